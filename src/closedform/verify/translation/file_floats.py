"""Whether the floats of a file may differ from its source although its real numbers do not.

A file is proved to be a rule or schedule over the real numbers (``translation``). In floats one of
its values may overflow or be NaN for ordinary inputs, and a comparison, a minimum, a divisor, a
conversion to an integer or a function that saturates may turn it into a number again: ``_HIDES``.
Then the file is PROVED only where the compiled source has the same operation on the same operands.

The file of a rule of this package has the operations of the compiled rule, so that any other value
that may not be finite is a difference. Another tool writes other ones, of which intervals know
less: the infinities and NaN that reach its outputs are seen there.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Mapping, Sequence, Set
from dataclasses import replace

import numpy as np

from closedform.compiler import (
    compile_assignments,
    compile_first_states,
    compile_point,
    compile_schedule,
)
from closedform.errors import ClosedFormError, shortened
from closedform.exporters.onnx_model import to_model
from closedform.importers.onnx_graph import read_model
from closedform.ir.analysis.obligations import Fault
from closedform.ir.graph import Builder, Graph, Node, Output, Role
from closedform.ir.ops import Op
from closedform.ir.program import flatten
from closedform.ir.types import DType
from closedform.language import Schedule
from closedform.language.groups import Assignment
from closedform.options import GraphOptions
from closedform.verify.certificates.floats import (
    describe_fault,
    faults_of_file,
    faults_of_schedule_file,
)
from closedform.verify.terms.from_graph import terms_of_graph
from closedform.verify.terms.verdict import Status, Verdict
from closedform.verify.translation.rule_terms import Model
from closedform.verify.translation.translation import last_step

_OPEN = "PROVED over the real numbers, and open in floats: {reason}"
_EXTRA = "{fault}, which its compiled source does not compute, and a later operation may hide that"


_Hides = Callable[[int, Fault, Node], bool]

_HIDES: Mapping[Op, _Hides] = {
    Op.LT: lambda *_: True,
    Op.LE: lambda *_: True,
    Op.EQ: lambda *_: True,
    # Engines differ in what they make of NaN.
    Op.MIN: lambda *_: True,
    Op.MAX: lambda *_: True,
    Op.REDUCE_MAX: lambda *_: True,
    Op.DIV: lambda place, fault, _: place == 1 and fault.interval.has_infinity,
    Op.FLOOR_MOD: lambda place, fault, _: place == 1 and fault.interval.has_infinity,
    Op.EXP: lambda _, fault, __: fault.interval.low == -math.inf,
    # NaN**0 and 1**NaN are 1.
    Op.POW: lambda place, _, exponent: place == 1 or not _is_positive(exponent),
    Op.CAST: lambda *_: True,
}
"""Whether an operation may make a number of an infinity or NaN.

By the place of the operand, its fault and the last operand of the operation; of ``cast`` only to
integers and truths.
"""


_NEARLY = 4.0
"""Engines may be off by some ulp: what overflows may be just below the largest float in one."""


def _is_positive(node: Node) -> bool:
    return node.op is Op.CONST and bool(np.all(node.array() > 0))


def check_floats(
    verdict: Verdict, graph: Graph, model: Model, kind: str = "step", *, is_own: bool
) -> Verdict:
    """Returns the verdict on a file; UNKNOWN where it is PROVED and its floats may differ.

    Args:
        verdict: The verdict over the real numbers.
        graph: The graph of the file, with the names of the rule.
        model: The rules of its parameters.
        kind: Which file of the rules it is: ``"init"``, ``"step"`` or ``"evaluation"``.
        is_own: Whether it is a file of this package.
    """
    if not verdict.proved:
        return verdict
    try:
        reason = _open_reason(graph, model, kind, is_own)
    except ClosedFormError as error:
        reason = f"its rule is not compiled, whose floats are known: {error}"
    if not reason:
        return verdict
    return replace(verdict, status=Status.UNKNOWN, reason=_OPEN.format(reason=reason))


def _open_reason(graph: Graph, model: Model, kind: str, is_own: bool) -> str:
    """The reason why the floats of a file may differ from its rule; "" where they do not."""
    assignments = [Assignment(rule, params) for rule, params in model.members]
    options = GraphOptions(dtype=model.kinds.tensor, scalar_dtype=model.kinds.scalar)
    program = compile_assignments("rule", assignments, options)
    init = compile_first_states("rule", assignments, options)
    faults = faults_of_file(graph, program, init)
    if not faults:
        return ""
    if kind == "init":
        source = init
    elif kind == "evaluation":
        source = compile_point("rule", assignments, options)
    else:
        source = flatten(program)
    fault = _first_extra(graph, faults, _common_nodes(graph, source), is_own)
    return "" if fault is None else _EXTRA.format(fault=_describe(graph, fault))


def check_schedule_floats(verdict: Verdict, graph: Graph, source: Schedule) -> Verdict:
    """Returns the verdict on the file of a schedule; UNKNOWN where it is PROVED and may differ.

    Args:
        verdict: The verdict over the real numbers.
        graph: The graph of the file.
        source: The schedule.
    """
    if not verdict.proved:
        return verdict
    end = last_step(graph, is_rule=False)
    faults = faults_of_schedule_file(
        graph, end if source.last_step is None else min(end, source.last_step)
    )
    if not faults:
        return verdict
    common: set[int] = set()
    for scalar in (DType.F64, DType.F32):
        try:
            source_graph = compile_schedule(source, _options_of(graph, scalar))
        except ClosedFormError:
            continue
        common |= _common_nodes(graph, source_graph)
    fault = _first_extra(graph, faults, common, is_own=False)
    if fault is None:
        return verdict
    reason = _EXTRA.format(fault=_describe(graph, fault))
    return replace(verdict, status=Status.UNKNOWN, reason=_OPEN.format(reason=reason))


def _options_of(graph: Graph, scalar: DType) -> GraphOptions:
    """The options with which the graph of a schedule was compiled, if it was."""
    (output,) = graph.outputs
    (step,) = (node for node in graph.inputs if node.attribute("role") is Role.STEP)
    inputs = [node for node in graph.inputs if node.attribute("role") is not Role.STEP]
    return GraphOptions(
        dtype=graph.nodes[output.index].type.dtype,
        scalar_dtype=scalar,
        step_dtype=step.type.dtype,
        step_shape=step.type.shape,
        inputs=[str(node.attribute("name")) for node in inputs],
    )


def _first_extra(
    graph: Graph, faults: Sequence[Fault], common: Set[int], is_own: bool
) -> Fault | None:
    """The first fault that is not common, or an operand of an operation that is not."""
    fault_at = {fault.index: fault for fault in reversed(faults)}
    for index, node in enumerate(graph.nodes):
        if index in common:
            continue
        for place, operand in enumerate(node.operands):
            if operand in fault_at and (is_own or _hides(graph, index, place, fault_at[operand])):
                return fault_at[operand]
        if is_own and index in fault_at:
            return fault_at[index]
    return None


def _hides(graph: Graph, index: int, place: int, fault: Fault) -> bool:
    node, dtype = graph.nodes[index], graph.nodes[fault.index].type.dtype
    # A value that is infinite for all inputs: the file has no floats at all.
    least = max(fault.interval.low, -fault.interval.high)
    if dtype.is_float and least > dtype.limits.max / _NEARLY:
        return True
    if node.op not in _HIDES or (node.op is Op.CAST and node.type.dtype.is_float):
        return False
    return _HIDES[node.op](place, fault, graph.nodes[node.operands[-1]])


def _common_nodes(graph: Graph, source: Graph) -> frozenset[int]:
    """The nodes of a file that are the same operations on the same operands in its source."""
    builder = Builder(source.name)
    # A file is read with other operations than it was written with.
    for node in read_model(to_model(source)).nodes:
        builder.add(_without_role(node))
    count = len(builder.nodes)
    places: list[int] = []
    for node in graph.nodes:
        operands = tuple(places[operand] for operand in node.operands)
        places.append(builder.add(replace(_without_role(node), operands=operands)).index)
    return frozenset(index for index, place in enumerate(places) if place < count)


def _without_role(node: Node) -> Node:
    attributes = tuple(entry for entry in node.attributes if entry[0] != "role")
    return replace(node, attributes=attributes)


def _describe(graph: Graph, fault: Fault) -> str:
    """The operation, how it fails, and the formula of its value, where there is one."""
    text = describe_fault(graph, fault)
    part = replace(graph, outputs=(Output("value", fault.index),))
    try:
        (term,) = terms_of_graph(part).values()
    except (ClosedFormError, ArithmeticError, RecursionError):
        return text
    return f"{text} in {shortened(str(term))}"

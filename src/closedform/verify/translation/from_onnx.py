"""The schedule that an ONNX file computes, whichever tool wrote it."""

from __future__ import annotations

import sympy as sp
from onnx import ModelProto

from closedform.errors import VerificationError
from closedform.importers.onnx_checks import CheckedModel
from closedform.importers.onnx_graph import OnnxSource, checked_model, defaults_of, read_model
from closedform.ir import Graph, Role
from closedform.ir.types import MAX_STEP
from closedform.language import Schedule, t
from closedform.verify.terms.from_graph import as_stored, terms_of_graph
from closedform.verify.terms.limits import LIMITS, Deadline, OutOfTime
from closedform.verify.terms.partition import partition
from closedform.verify.terms.sympy_io import term as term_of
from closedform.verify.terms.sympy_io import to_sympy
from closedform.verify.terms.tree import Term, symbols
from closedform.verify.translation.constants import Constants, with_split_constants

CLOCK = term_of(t)


def from_onnx(source: OnnxSource, *, stored: bool = False) -> Schedule:
    """Returns the schedule that an ONNX model computes, over the exact numbers.

    Arguments, errors and an example are those of :func:`closedform.api.from_onnx`.
    """
    model = checked_model(source)
    is_file = not isinstance(source, ModelProto | CheckedModel)
    where = f"file {str(source)!r}" if is_file else f"graph {model.graph.name!r}"
    graph = read_model(model)
    _check_schedule(graph, where)
    constant = as_stored if stored else with_split_constants(Constants(), graph)
    try:
        (term,) = terms_of_graph(graph, constant=constant).values()
        return Schedule(_expression(term), name=graph.name).bind(defaults_of(model))
    except RecursionError:
        raise VerificationError("its operations are nested too deeply", where=where) from None


def _expression(root: Term) -> sp.Basic:
    """The expression of a term; segment by segment where it is too large with shared parts in it.

    A chain of choices, each on the one before, has few segments and would be a tree without end.
    """
    try:
        return to_sympy(root)
    except VerificationError:
        if set(symbols(root)) != {"t"}:
            raise
        deadline = Deadline.after(LIMITS.unfolding_seconds)
        try:
            segments = partition(root, CLOCK, 0, MAX_STEP + 1, check=deadline.check)
        except OutOfTime:
            segments = []
        if not 0 < len(segments) <= LIMITS.unfolded_segments:
            raise
        *others, last = [(to_sympy(each.term(CLOCK)), each.end) for each in segments]
        branches = [(value, t < end) for value, end in others]
        return sp.Piecewise(*branches, (last[0], True))


def _check_schedule(graph: Graph, where: str) -> None:
    hint = "a schedule maps an integer step, and scalar hyperparameters, to one value"
    if len(graph.outputs) != 1:
        names = ", ".join(output.name for output in graph.outputs)
        raise VerificationError(f"expected one output, got {names}", where=where, hint=hint)
    roles = [node.attribute("role") for node in graph.inputs]
    if Role.STEP not in roles:
        names = ", ".join(str(node.attribute("name")) for node in graph.inputs) or "none"
        raise VerificationError(
            f"no input is the clock; the inputs are {names}", where=where, hint=hint
        )
    for node in graph.inputs:
        role, name = node.attribute("role"), node.attribute("name")
        if role not in (Role.STEP, Role.HYPER) or (role == Role.HYPER and node.type.shape):
            raise VerificationError(
                f"the input {name!r} of type {node.type} is not a hyperparameter",
                where=where,
                hint=hint,
            )

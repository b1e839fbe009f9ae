"""A bound of the difference in floats between a file and the graph that a rule is compiled to.

Both start from the first states of the rule and take the same gradients. Over the real numbers they
make the same steps, so each is as far from these as its own rounding brings it, and the two are
apart by at most the sum: forward error analysis (``certificates.errors``) carries the bound from
step to step, with the states in the range that these steps reach.

The gradients of a box have two signs. Where no operation joins elements, an element has either, and
its square is not 0; elsewhere a gradient may be any number of its size.
"""

from __future__ import annotations

import math
from collections.abc import Mapping
from dataclasses import dataclass, replace

import numpy as np
from flint import fmpq

from closedform.compiler import compile_assignments
from closedform.errors import VerificationError
from closedform.ir import DType, Graph, naming
from closedform.ir.graph import Node
from closedform.ir.ops import Op
from closedform.ir.program import flatten
from closedform.ir.types import Shape
from closedform.language import PARAM
from closedform.language.exact import nearest_float
from closedform.language.groups import Assignment
from closedform.options import GraphOptions
from closedform.referee.ports import PortKind
from closedform.referee.simulation import Renaming, Simulation
from closedform.referee.step import ForeignStep, states_of
from closedform.verify.certificates.error_rules import Enclosure
from closedform.verify.certificates.errors import enclosures_of_outputs
from closedform.verify.terms import build
from closedform.verify.terms.evaluate import value as value_of
from closedform.verify.terms.sympy_io import term
from closedform.verify.translation.constants import rounding_interval
from closedform.verify.translation.rule_terms import Model

MOST_VALUES = 2**22
"""Numbers that an analysis holds: nodes times elements."""

_JOINING = frozenset(
    {Op.REDUCE_SUM, Op.REDUCE_MAX, Op.MATMUL, Op.TRANSPOSE, Op.SLICE, Op.CONCAT, Op.LOOKUP}
)


@dataclass(frozen=True, slots=True)
class Box:
    """The inputs for which a bound holds.

    Attributes:
        param: The largest size of an element of a parameter before the first step.
        grad: The largest size of an element of a gradient.
        least_grad: The smallest size of an element of a gradient.
        steps: The number of steps from the first states.
    """

    param: float = 1.0
    grad: float = 1.0
    least_grad: float = 2.0**-3
    steps: int = 4


@dataclass(frozen=True, slots=True)
class FloatDifference:
    """A bound of the distance of the parameters of two graphs, whose inputs are the same floats.

    Attributes:
        absolute: The bound, for each element after each step; infinite where there is none.
        dtype: The dtype of the parameters.
        box: The inputs for which it holds; the gradients have any size up to the largest if
            ``least_grad`` is 0.
    """

    absolute: float
    dtype: DType
    box: Box

    @property
    def ulp(self) -> float:
        """The bound in units in the last place of the largest first parameter of the box."""
        return self.absolute / float(np.spacing(self.dtype.numpy.type(self.box.param)))

    def __str__(self) -> str:
        box = self.box
        least = f"{box.least_grad:g} <= " if box.least_grad else ""
        size = f"{self.absolute:.2g} ({self.ulp:.2g} ulp of {self.dtype} at {box.param:g})"
        bound = f"at most {size}" if np.isfinite(self.absolute) else "no bound"
        return (
            f"{bound} after up to {box.steps} steps with |param| <= {box.param:g} before them and "
            f"{least}|grad| <= {box.grad:g}"
        )


def bound_difference(
    step: ForeignStep, model: Model, renaming: Renaming, box: Box | None = None
) -> FloatDifference:
    """Returns a bound of the distance of a file from the graph of its rule.

    Args:
        step: The step of the file, proved to be that of the rule.
        model: The rules of its parameters.
        renaming: What each state of the file is in the rule.
        box: The inputs; 4 steps of parameters and gradients up to 1 if None.

    Raises:
        VerificationError: A graph has an operation or an input for which there is no bound.
    """
    box = Box() if box is None else box
    file_graph = Simulation(step, renaming).graph()
    dtype = next(type_.dtype for port, type_ in step.types.items() if port.kind is PortKind.PARAM)
    assignments = [Assignment(rule, params) for rule, params in model.members]
    rule_graph = flatten(compile_assignments("rule", assignments, GraphOptions(dtype=dtype)))
    initial = {state.name: state.initial for state in states_of(model)}
    # Sums of gradients of both signs may cancel, so that a least size of their elements says
    # nothing of the sum.
    if not all(_is_elementwise(graph) for graph in (file_graph, rule_graph)):
        box = replace(box, least_grad=0.0)
    runs = [_Run(graph, initial, box) for graph in (file_graph, rule_graph)]
    names = [naming.following(naming.param(param)) for param in step.shapes]
    worst = 0.0
    for count in range(box.steps):
        errors = [run.step(count) for run in runs]
        # Triangle inequality: both are compared with the exact step.
        worst = max(worst, *(sum(error[name] for error in errors) for name in names))
    return FloatDifference(worst, dtype, box)


def _is_elementwise(graph: Graph) -> bool:
    """Whether each output element depends on one element of one gradient."""
    grads: list[frozenset[str]] = []
    for node in graph.nodes:
        name = str(node.attribute("name")) if node.op is Op.INPUT else ""
        inputs = frozenset({name}) if name.startswith(naming.GRAD) else frozenset()
        grads.append(inputs.union(*(grads[place] for place in node.operands)))
        is_joined = node.op in _JOINING and bool(grads[-1])
        if is_joined or len(grads[-1]) > 1 or (grads[-1] and node.op is Op.RESHAPE):
            return False
    return True


class _Run:
    """The enclosures of a graph, step after step.

    Args:
        graph: The step, its inputs named as in the files of a rule.
        initial: The first values of its states.
        box: The inputs.
    """

    def __init__(self, graph: Graph, initial: Mapping[str, object], box: Box) -> None:
        self.graph = graph
        self.box = box
        sizes = [math.prod(_sizes(node.type.shape)) for node in graph.nodes]
        if sum(sizes) > MOST_VALUES and not _is_elementwise(graph):
            raise VerificationError(
                f"it has {sum(sizes):,} values, and a bound is for up to {MOST_VALUES:,}",
                where=f"graph {graph.name!r}",
            )
        param = _between(-box.param, box.param)
        used = {place for node in graph.nodes for place in node.operands}
        used |= {output.index for output in graph.outputs}
        self.inputs: dict[str, Enclosure] = {}
        for place, node in enumerate(graph.nodes):
            if node.op is not Op.INPUT:
                continue
            name = str(node.attribute("name"))
            if place not in used:
                self.inputs[name] = _between(-np.inf, np.inf)
            elif name.startswith(naming.PARAM):
                self.inputs[name] = _with_rank(param, node)
            elif name in initial:
                is_param = initial[name] == PARAM
                number = param if is_param else _number(initial[name], node.type.dtype)
                self.inputs[name] = _with_rank(number, node)
            elif not name.startswith(naming.GRAD) and name != naming.STEP:
                raise VerificationError(
                    f"the input {name!r} may have any value", where=f"graph {graph.name!r}"
                )

    def step(self, count: int) -> dict[str, float]:
        """Takes a step, and returns the largest error of each output by name."""
        inputs = dict(self.inputs)
        for node in self.graph.inputs:
            name = str(node.attribute("name"))
            if name.startswith(naming.GRAD):
                inputs[name] = _with_rank(self._grad(), node)
            elif name == naming.STEP:
                inputs[name] = _number(count, node.type.dtype)
        outputs = enclosures_of_outputs(self.graph, inputs)
        for name in self.inputs:
            following = outputs.get(naming.following(name))
            if following is not None:
                # One interval again: as separate cases they would double at each step.
                self.inputs[name] = _hull(following)
        return {name: float(np.max(entry.error)) for name, entry in outputs.items()}

    def _grad(self) -> Enclosure:
        least, most = self.box.least_grad, self.box.grad
        if not least:
            return _between(-most, most)
        # Two intervals along the axis of the intervals: the negative and the positive gradients.
        return Enclosure(np.array([-most, least]), np.array([-least, most]), np.zeros(2))


def _sizes(shape: Shape) -> tuple[int, ...]:
    return tuple(int(size) for size in shape)


def _between(low: float, high: float, *, is_whole: bool = False) -> Enclosure:
    return Enclosure(np.array([low]), np.array([high]), np.zeros(1), is_whole=is_whole)


def _number(value: object, dtype: DType) -> Enclosure:
    """A number of the language, and its distance from the float of a dtype."""
    exact = value_of(term(value), {})
    number = nearest_float(exact) if isinstance(exact, fmpq) else float(exact)
    # A float of the dtype is exact, and has no error; any other number is half a unit away from its
    # float.
    if build.exact(number) == exact and dtype.numpy.type(number) == number:
        return _between(number, number, is_whole=number.is_integer())
    ends = rounding_interval(float(dtype.numpy.type(number)), dtype)
    low, high = np.nextafter([nearest_float(end) for end in ends], [-np.inf, np.inf])
    return Enclosure(np.array([low]), np.array([high]), np.array([high - low]))


def _with_rank(enclosure: Enclosure, node: Node) -> Enclosure:
    """An enclosure with the axes of a node behind that of the intervals."""
    return enclosure.map(lambda part: part.reshape(part.shape[:1] + (1,) * node.type.rank))


def _hull(enclosure: Enclosure) -> Enclosure:
    """One interval that holds all of them."""
    low, high, error, share = np.broadcast_arrays(
        enclosure.low, enclosure.high, enclosure.error, enclosure.share
    )
    return Enclosure(
        low.min(axis=0, keepdims=True),
        high.max(axis=0, keepdims=True),
        error.max(axis=0, keepdims=True),
        enclosure.is_whole,
        share.max(axis=0, keepdims=True),
    )

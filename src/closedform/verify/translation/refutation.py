"""Refutation of a translation: points at which the graph differs from its source, exactly.

At a point the elements of each tensor are equal: then functions of tensors are numbers, and two
outputs that differ there differ.
"""

from __future__ import annotations

import random
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from functools import cached_property
from math import isfinite
from typing import Any

import numpy as np
import sympy as sp
from flint import arb, fmpq

from closedform.effort import UNLIMITED, Effort
from closedform.errors import ClosedFormError
from closedform.ir import DType, Graph, Node, Op, Role, evaluate, naming
from closedform.ir.analysis.interval import full
from closedform.ir.analysis.step_check import node_values
from closedform.ir.graph import Array
from closedform.language import t
from closedform.language.balls import ball_precision
from closedform.language.exact import nearest_float
from closedform.verify.identity.equality import StepRange
from closedform.verify.terms import build
from closedform.verify.terms.evaluate import Undefined
from closedform.verify.terms.evaluate import value as value_of
from closedform.verify.terms.from_graph import Constant
from closedform.verify.terms.limits import LIMITS
from closedform.verify.terms.partition import Segments
from closedform.verify.terms.sides import sides_of
from closedform.verify.terms.sympy_io import term
from closedform.verify.terms.tree import Sign, Term, symbols
from closedform.verify.terms.verdict import Status, Verdict
from closedform.verify.translation.constants import rounding_interval
from closedform.verify.translation.scales import MOST_SIZES, draw_float, scales_of

CLOCK = term(t)
# Of the largest value that is seen: far more than float32 rounds, far less than a fault changes.
_LARGEST_ERROR = 2.0**-18


class FloatValues:
    """The outputs of a graph with a symbol for each float constant, computed on demand.

    Args:
        exact: The exact number of a float; a whole number of the source represents itself.
        outputs: The terms of the outputs of the graph, for given values of its constants.
        graph: The graph, where it is known.
    """

    def __init__(
        self,
        exact: Constant,
        outputs: Callable[[Constant], Mapping[str, Term]],
        graph: Graph | None = None,
    ) -> None:
        self._exact = exact
        self._outputs = outputs
        self._graph = graph
        self.balls: dict[str, Any] = {}

    @cached_property
    def exact_outputs(self) -> Mapping[str, Term]:
        """The terms of the outputs with the exact number of each constant."""
        return self._outputs(self._exact)

    @cached_property
    def outputs(self) -> Mapping[str, Term]:
        """The terms of the outputs; ``balls`` has the numbers that round to each constant."""
        return self._outputs(self._constant)

    def is_computed(self, name: str, point: Mapping[str, fmpq], expected: fmpq | arb) -> bool:
        """Whether engines may compute a number, though the graph has no value at a point.

        A comparison with NaN has a value, and what is divided by an infinity is 0.
        """
        if self._graph is None:
            return False
        inputs = {}
        for node in self._graph.inputs:
            own_name = str(node.attribute("name"))
            is_clock = node.attribute("role") == Role.STEP
            symbol_name = CLOCK.value.name if is_clock else own_name
            inputs[own_name] = _tensor_of(point.get(symbol_name), node)
        try:
            values = node_values(self._graph, inputs)
        except ClosedFormError:
            return False
        nodes = self._graph.nodes
        # Engines differ in the integer that a float becomes which has none.
        if any(_has_no_integer(node, values) or _is_of_infinities(node, values) for node in nodes):
            return True
        (place,) = (output.index for output in self._graph.outputs if output.name == name)
        dtype = nodes[place].type.dtype
        wanted = float(arb(expected))
        # A number may be below the least float.
        least = float(dtype.limits.tiny) if dtype.is_float else 0.0
        error = abs(wanted) * _LARGEST_ERROR + least
        return bool(np.all(np.abs(values[place].astype(np.float64) - wanted) <= error))

    def _constant(self, number: float, dtype: DType) -> Term:
        constant = self._exact(number, dtype)
        is_whole = build.is_rational(constant) and constant.value.q == 1
        if is_whole and constant.value == build.exact(number):
            return constant
        constant = build.own_symbol(f"constant {number!r} of {dtype}")
        name = constant.value.name
        if name not in self.balls:
            low, high = rounding_interval(number, dtype)
            with ball_precision(128):
                self.balls[name] = arb(low).union(arb(high))
        return constant


@dataclass(frozen=True, slots=True)
class Pair:
    """An output of a graph and its required value.

    Attributes:
        name: The name of the output.
        source: Its required value.
        computed: Its term, with exact constants.
        floats: Its value for all numbers that round to its constants.
        segments: Its required value from the first step to the last.
    """

    name: str
    source: Term
    computed: Term
    floats: FloatValues
    segments: Segments[int]


def refutation(
    pair: Pair, points: Iterable[Mapping[str, fmpq]], effort: Effort = UNLIMITED
) -> Verdict | None:
    """Returns a refutation at a point where no numbers that round to the constants would do.

    Args:
        pair: The output and its required value.
        points: The points that are tried, at least for a moment.
        effort: The work that it may do, beyond that of the first points.
    """
    first = Effort.of(LIMITS.first_work)
    for point in points:
        if not effort.left and not first.left:
            return None
        expected = value_of(pair.source, point)
        computed = value_of(pair.floats.outputs[pair.name], {**point, **pair.floats.balls})
        if isinstance(expected, Undefined):
            continue
        if isinstance(computed, Undefined) and pair.floats.is_computed(pair.name, point, expected):
            continue
        if isinstance(computed, Undefined) or not arb(expected).overlaps(arb(computed)):
            return _refuted_verdict(pair, point, _sides_text(computed, expected))
    return None


def _is_of_infinities(node: Node, values: Sequence[Array]) -> bool:
    """Whether a node is a quotient of infinities: Tanh is read as one, and engines compute it."""
    if node.op is not Op.DIV:
        return False
    above, below = (np.isinf(values[operand]) for operand in node.operands)
    return bool(np.any(above & below))


def _has_no_integer(node: Node, values: Sequence[Array]) -> bool:
    """Whether a node converts a float that no integer of its dtype is the whole part of."""
    if node.op is not Op.CAST or not node.type.dtype.is_integer:
        return False
    operand = values[node.operands[0]]
    low, high = full(node.type.dtype).ends
    is_float = operand.dtype.kind not in "biu"
    wide = operand.astype(np.float64) if is_float else np.zeros(())
    return not bool(np.all((wide > float(low) - 1) & (wide < float(high) + 1)))


def _tensor_of(number: fmpq | None, node: Node) -> Array:
    """A tensor of equal elements; an axis of a named size has one."""
    shape = tuple(size if isinstance(size, int) else 1 for size in node.type.shape)
    value = 0.0 if number is None else nearest_float(number)
    dtype = node.type.dtype
    whole = 0 if number is None else int(number.p)
    return np.full(shape, whole if dtype.is_integer else value).astype(dtype.numpy)


def computed_refutation(
    graph: Graph, pair: Pair, points: Iterable[Mapping[str, fmpq]]
) -> Verdict | None:
    """Returns a refutation at a step at which rounding to float32 cannot bring the value so far."""
    samples = []
    for point in points:
        expected = value_of(pair.source, point)
        if not isinstance(expected, Undefined) and set(point) == {CLOCK.value.name}:
            step = int(point[CLOCK.value.name].p)
            samples.append((point, expected, float(evaluate(graph, {"step": step})[pair.name])))
    scale = max((abs(float(arb(expected))) for _, expected, _ in samples), default=0.0)
    for point, expected, computed in samples:
        # Not ``>``, which is false for nan.
        if not abs(computed - float(arb(expected))) <= scale * _LARGEST_ERROR:
            values = node_values(
                graph, {"step": _tensor_of(point[CLOCK.value.name], *graph.inputs)}
            )
            if any(_is_of_infinities(node, values) for node in graph.nodes):
                continue
            number = build.exact(computed) if isfinite(computed) else Undefined(str(computed))
            return _refuted_verdict(pair, point, f"computed as {_sides_text(number, expected)}")
    return None


def _sides_text(computed: fmpq | arb | Undefined, expected: fmpq | arb) -> str:
    sides = sides_of(computed, expected)
    return f"{sides.left}, and its source {sides.right}{sides.suffix}"


def _refuted_verdict(pair: Pair, point: Mapping[str, fmpq], sides: str) -> Verdict:
    counterexample = {
        name: sp.Rational(int(value.p), int(value.q)) for name, value in point.items()
    }
    reason = f"{pair.name} is {sides}"
    return Verdict(Status.REFUTED, ("points",), counterexample, reason)


def points_of(pair: Pair, steps: StepRange) -> Iterator[dict[str, fmpq]]:
    """Yields the ends of the run and their neighbours, then steps between, near and far."""
    draw = random.Random(f"{steps.first}..{steps.last}")
    width = steps.last - steps.first
    near = [*range(min(width, 6) + 1), *(width - back for back in range(min(width, 3) + 1))]
    spread = [width * part // 16 for part in range(17)]
    # Where integers and powers become too large.
    doubling = [2**power for power in range(width.bit_length()) if 2**power <= width]
    offsets = [draw.randint(0, width) for _ in range(LIMITS.refutation_points)]
    free_symbols = {**symbols(pair.source), **symbols(pair.computed)}
    free_symbols.pop(steps.clock.value.name, None)
    for offset in dict.fromkeys((*near, *spread, *doubling, *offsets)):
        values = {name: _draw_number(node, draw) for name, node in free_symbols.items()}
        yield {**values, steps.clock.value.name: fmpq(steps.first + offset)}
    if any(name.startswith(naming.BODY_GRAD) for name in free_symbols):
        yield from _points_at_scales(pair, steps, free_symbols, draw)


def _points_at_scales(
    pair: Pair, steps: StepRange, free_symbols: Mapping[str, Term], draw: random.Random
) -> Iterator[dict[str, fmpq]]:
    """Yields the first step of most rules, states of 0, with tensors near the constants."""
    for size in scales_of((pair.source, pair.computed))[:MOST_SIZES]:
        values = {}
        for name, node in free_symbols.items():
            if name.startswith((naming.BODY_GRAD, naming.BODY_PARAM)):
                values[name] = draw_float(size, draw, DType.F32)
            else:
                is_state = name.startswith((naming.STATE, naming.SHARED))
                values[name] = fmpq(0) if is_state else _draw_number(node, draw)
        yield {**values, steps.clock.value.name: fmpq(steps.first)}


def zeros_of(pair: Pair, steps: StepRange) -> Iterator[dict[str, fmpq]]:
    """Yields the first of ``points_of`` with each number that may be 0 set to it, one and all."""
    point = next(points_of(pair, steps))
    declarations = {**symbols(pair.source), **symbols(pair.computed)}
    clock = steps.clock.value.name
    weak = (Sign.ANY, Sign.NONNEGATIVE, Sign.NONPOSITIVE)
    zeros = {
        name: fmpq(0) for name in point if name != clock and declarations[name].value.sign in weak
    }
    yield {**point, **zeros}
    yield from ({**point, name: fmpq(0)} for name in zeros)


def _draw_number(symbol: Term, draw: random.Random) -> fmpq:
    """A number that the declaration of a symbol admits."""
    size = fmpq(draw.choice((1, 2, 3, 7, 10, 100, 1000)))
    if not symbol.value.integer:
        size /= draw.choice((1, 2, 5, 100, 1000))
    if symbol.value.sign in (Sign.NEGATIVE, Sign.NONPOSITIVE):
        return -size
    return -size if symbol.value.sign is Sign.ANY and draw.random() < 0.4 else size

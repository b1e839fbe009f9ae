"""The bound of the error of a graph in floats, as goals of Gappa, which rounds as IEEE 754 says.

A node has two names: ``x7`` is the value that is computed, ``X7`` the real one. The steps are taken
in intervals, halved until Gappa proves the bound on each of them; where a condition about exact
numbers is open on an interval, both branches are goals. The assumptions are the ones of
``certificates.error_rules``: a constant is within half a unit in the last place of the number that
is meant; a root, a sine and a whole power are as near as the op table says. Real values of a sine,
of an extremum and of an integer other than a sum or product have the range of the analysis.
"""

from __future__ import annotations

import itertools
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from fractions import Fraction

import numpy as np

from closedform.ir.graph import Graph, Node
from closedform.ir.ops import OPS, Op
from closedform.ir.types import DType
from closedform.verify.certificates.error_rules import Enclosure, unit_of_largest
from closedform.verify.certificates.errors import enclosures_of_nodes
from tools.rocq.definitions import InexpressibleError

COMMAND = ("gappa", "-Eno-auto-dichotomy", "-Echange-threshold=0.001")
"""The program, which exits 0 where it proves a file; with ``-Bcoq`` it prints the proof for Rocq.

It does not split ranges itself, which has no limit, and keeps an interval that is 0.1 % narrower,
not only one that is 1 % narrower: half of an ulp more or less decides.
"""
MOST_INTERVALS = 512
"""More intervals of the step are not tried."""
_FORMATS = {DType.F32: "ieee_32", DType.F64: "ieee_64"}
_SIGNS = {Op.ADD: "+", Op.SUB: "-", Op.MUL: "*", Op.DIV: "/"}
_MOST_EXPONENT = 4
_MOST_CONDITIONS = 4


class _OpenError(InexpressibleError):
    """On an interval of steps a number has no bound, or a choice of floats is open."""


class _OpenConditionError(Exception):
    """A condition about exact numbers, by its node, holds at some steps of an interval only."""

    def __init__(self, index: int) -> None:
        super().__init__(index)
        self.index = index


@dataclass(frozen=True, slots=True)
class ErrorGoal:
    """The bound on an interval of steps.

    Attributes:
        first: The first step.
        last: The last step.
        texts: The files of Gappa: one for each way in which the open conditions may be decided.
    """

    first: int
    last: int
    texts: tuple[str, ...]


def error_goals(
    graph: Graph,
    first: int,
    last: int,
    bound: float,
    *,
    starts: Sequence[int] = (),
    is_accepted: Callable[[str], bool] = lambda _: True,
) -> Iterator[ErrorGoal]:
    """Yields goals whose intervals cover the steps, halved until choices and Gappa decide.

    Args:
        graph: Its one input is the step, its one output a float.
        first: The first step.
        last: The last step.
        bound: The bound of the absolute error, as of ``certificates.errors.bound_error``.
        starts: Steps at which intervals begin: milestones.
        is_accepted: Runs Gappa on a file.

    Raises:
        InexpressibleError: The graph has an operation that Gappa has not, or a goal is not proved.
    """
    if not np.isfinite(bound):
        raise InexpressibleError("the error has no bound")
    cuts = [first, *(start for start in starts if first < start <= last), last + 1]
    pending = [(start, end - 1) for start, end in itertools.pairwise(cuts)][::-1]
    count = 0
    while pending:
        start, end = pending.pop()
        count += 1
        if count > MOST_INTERVALS:
            raise InexpressibleError(f"more than {MOST_INTERVALS} intervals of the step")
        try:
            texts = tuple(_texts(graph, start, end, bound))
        except _OpenError:
            texts = ()
        if texts and all(map(is_accepted, texts)):
            yield ErrorGoal(start, end, texts)
            continue
        if start == end:
            raise InexpressibleError(f"Gappa does not prove the bound at t = {start}")
        middle = (start + end) // 2
        pending += [(middle + 1, end), (start, middle)]


def _texts(graph: Graph, first: int, last: int, bound: float) -> Iterator[str]:
    """Computed and real values take the same branch of a condition about exact numbers."""
    pending: list[Mapping[int, bool]] = [{}]
    while pending:
        decisions = pending.pop()
        try:
            yield _Printer(graph, first, last, decisions).goal(bound)
        except _OpenConditionError as error:
            if len(decisions) == _MOST_CONDITIONS:
                raise _OpenError("too many conditions are open") from None
            pending += [{**decisions, error.index: value} for value in (True, False)]


class _Printer:
    def __init__(self, graph: Graph, first: int, last: int, decisions: Mapping[int, bool]) -> None:
        self.graph, self.decisions = graph, decisions
        (clock,) = graph.inputs
        step = Enclosure(
            np.array([float(first)]), np.array([float(last)]), np.zeros(1), is_whole=True
        )
        self.enclosures = enclosures_of_nodes(
            graph, {str(clock.attribute("name")): step}, frozenset(range(len(graph.nodes)))
        )
        self.lines: list[str] = []
        self.hypotheses: list[str] = []
        self.hints: list[str] = []
        self.goals: list[str] = []
        self._pairs: dict[int, tuple[str, str]] = {}

    def goal(self, bound: float) -> str:
        """Returns the file that states that the output is off by at most this."""
        computed, real = self.pair(self.graph.outputs[0].index)
        goal = " /\\\n  ".join((*self.goals, _within(computed, real, bound)))
        assumptions = " /\\\n  ".join(self.hypotheses)
        formats = [f"@{name} = float<{name},ne>;" for name in sorted(_FORMATS.values())]
        claim = f"{assumptions} ->\n  {goal}" if assumptions else goal
        return "\n".join((*formats, *self.lines, f"{{ {claim} }}", *self.hints, ""))

    def pair(self, index: int) -> tuple[str, str]:
        """Returns the names of the computed value and of the real one."""
        if index not in self._pairs:
            node = self.graph.nodes[index]
            if node.type.dtype in _FORMATS:
                self._pairs[index] = self._float(index, node)
            else:
                self._pairs[index] = (self._integer(index, node),) * 2
        return self._pairs[index]

    # --- integers and choices --------------------------------------------------------------------

    def _integer(self, index: int, node: Node) -> str:
        """An integer is exact: the computed value is the real one."""
        low, high, error = self._range(index)
        if error or not np.isfinite(high - low):
            raise InexpressibleError("an integer that may be off")
        if low == high:
            return _number(low)
        operands = [self.graph.nodes[operand].type.dtype for operand in node.operands]
        if all(dtype.is_integer for dtype in operands):
            if node.op in (Op.ADD, Op.SUB, Op.MUL):
                left, right = (self.pair(operand)[0] for operand in node.operands)
                return self._define(f"n{index}", f"{left} {_SIGNS[node.op]} {right}")
            if node.op is Op.NEG:
                return self._define(f"n{index}", f"-{self.pair(node.operands[0])[0]}")
        name = self._define(f"n{index}", f"fixed<0,ne>(n{index}_)")
        self._assume(name, low, high)
        return name

    def _branch(self, index: int) -> bool:
        low, high, error = self._range(index)
        if error:
            raise _OpenError("a condition may be decided differently")
        if low == high:
            return bool(low)
        if index not in self.decisions:
            raise _OpenConditionError(index)
        return self.decisions[index]

    # --- floats ----------------------------------------------------------------------------------

    def _float(self, index: int, node: Node) -> tuple[str, str]:
        operands, op = node.operands, node.op
        rounding = _FORMATS[node.type.dtype]
        if op is Op.CONST:
            return self._constant(index, float(node.array()), node.type.dtype)
        if op is Op.LOOKUP:
            return self._entry(index, node)
        if op is Op.WHERE:
            condition, first, second = operands
            return self.pair(first if first == second or self._branch(condition) else second)
        if op in (Op.MIN, Op.MAX):
            return self._extremum(index, node)
        if op in (Op.BROADCAST_TO, Op.RESHAPE):
            return self.pair(operands[0])
        if op in _SIGNS:
            (x, real_x), (y, real_y) = map(self.pair, operands)
            sign = _SIGNS[op]
            return self._approximate(
                index, f"{rounding}({x} {sign} {y})", f"{real_x} {sign} {real_y}"
            )
        if op is Op.CAST:
            source = self.graph.nodes[operands[0]].type.dtype
            x, real = self.pair(operands[0])
            if source in (node.type.dtype, DType.F32):
                return x, real
            return self._approximate(index, f"{rounding}({x})", real)
        if op is Op.NEG:
            x, real = self.pair(operands[0])
            return self._approximate(index, f"-{x}", f"-{real}")
        if op is Op.SQRT:
            x, real = self.pair(operands[0])
            return self._near(index, node, f"sqrt({x})", f"sqrt({real})")
        if op in (Op.SIN, Op.COS):
            return self._turn(index, node)
        if op is Op.POW:
            return self._whole_power(index, node)
        raise InexpressibleError(f"Gappa has no {op}")

    def _constant(self, index: int, value: float, dtype: DType) -> tuple[str, str]:
        if not np.isfinite(value):
            raise InexpressibleError(f"Gappa has no {value}")
        text = _number(value)
        if value == np.floor(value):
            return text, text
        half = float(unit_of_largest(np.array(abs(value)), dtype)) / 2
        self._assume(
            f"X{index}", Fraction(value) - Fraction(half), Fraction(value) + Fraction(half)
        )
        self.hints.append(f"{text} ~ X{index};")
        return text, f"X{index}"

    def _entry(self, index: int, node: Node) -> tuple[str, str]:
        table, place = node.operands
        low, high, error = self._range(place)
        if error or low != high:
            raise _OpenError("the place in a table is open")
        source = self.graph.nodes[table]
        if source.op is not Op.CONST:
            raise InexpressibleError("a table that is computed")
        entries = source.array()
        entry = entries[int(np.clip(low, 0, len(entries) - 1))]
        return self._constant(index, float(entry), node.type.dtype)

    def _extremum(self, index: int, node: Node) -> tuple[str, str]:
        left, right = node.operands
        (low, high, error), (least, most, further) = map(self._range, (left, right))
        error += further
        if high + error <= least or most + error <= low:
            is_left_less = high + error <= least
            return self.pair(left if is_left_less == (node.op is Op.MIN) else right)
        # The difference of two minima is between those of their operands.
        return self._moved(index, node.operands, self._range(index)[2])

    def _turn(self, index: int, node: Node) -> tuple[str, str]:
        """A sine, whose slope is at most 1."""
        (operand,) = node.operands
        error = self._range(operand)[2]
        unit = float(node.type.dtype.limits.eps)
        return self._moved(index, [operand], error, OPS[node.op].ulp * unit)

    def _moved(
        self, index: int, operands: Sequence[int], error: float, rounding: float = 0.0
    ) -> tuple[str, str]:
        """A function that is off by what its operands are off, and by its rounding.

        That the operands are off by at most the error is proved with the bound of the output: they
        come before the function, and so do not depend on what is assumed about it.
        """
        low, high, _ = self._range(index)
        self._assume(f"X{index}", low, high)
        distance = Fraction(error) + Fraction(rounding) if np.isfinite(error) else error
        self._assume(f"x{index} - X{index}", -distance, distance)
        self.goals += [_within(*self.pair(operand), error) for operand in operands]
        self.hints.append(f"x{index} ~ X{index};")
        return f"x{index}", f"X{index}"

    def _whole_power(self, index: int, node: Node) -> tuple[str, str]:
        low, high, error = self._range(node.operands[1])
        if low != high or error or low != np.floor(low) or not 1 <= low <= _MOST_EXPONENT:
            raise InexpressibleError("Gappa has no pow")
        x, real = self.pair(node.operands[0])
        if self._range(node.operands[0])[0] < 0:
            raise InexpressibleError("Gappa has no pow")
        powers = (" * ".join([name] * int(low)) for name in (x, real))
        return self._near(index, node, *powers)

    def _near(self, index: int, node: Node, exact: str, real: str) -> tuple[str, str]:
        """A function whose result is off by some units in the last place."""
        low, high, error = self._range(index)
        size, info = max(abs(low), abs(high)) + error, node.type.dtype.limits
        if not np.isfinite(size):
            raise _OpenError("a number without a bound")
        self._define(f"s{index}", exact)
        units = OPS[node.op].ulp
        distance = units * float(unit_of_largest(np.array(size), node.type.dtype))
        self._assume(f"x{index} - s{index}", -distance, distance)
        # Below the normal numbers the spacing is not in proportion to the value.
        if low - error >= float(info.tiny):
            part = units * float(info.eps)
            self._assume(f"x{index} -/ s{index}", -part, part)
        self._define(f"X{index}", real)
        self.hints.append(f"x{index} ~ X{index};")
        return f"x{index}", f"X{index}"

    # --- lines -----------------------------------------------------------------------------------

    def _define(self, name: str, text: str) -> str:
        if text.isalnum():
            return text
        self.lines.append(f"{name} = {text};")
        return name

    def _approximate(self, index: int, computed: str, real: str) -> tuple[str, str]:
        names = self._define(f"x{index}", computed), self._define(f"X{index}", real)
        self.hints.append(" ~ ".join(names) + ";")
        return names

    def _assume(self, name: str, low: float | Fraction, high: float | Fraction) -> None:
        if not np.isfinite(float(high - low)):
            raise _OpenError("a number without a bound")
        self.hypotheses.append(f"{name} in [{_number(low)}, {_number(high)}]")

    def _range(self, index: int) -> tuple[float, float, float]:
        enclosure = self.enclosures[index]
        parts = enclosure.low, enclosure.high, enclosure.error
        if any(np.size(part) != 1 for part in parts):
            raise InexpressibleError("a tensor")
        low, high, error = (float(np.asarray(part).ravel()[0]) for part in parts)
        return low, high, error


def _within(computed: str, real: str, bound: float) -> str:
    return f"|{computed} - {real}| <= {_number(bound)}"


def _number(value: float | Fraction) -> str:
    """A number whose divisor is a power of two, exactly."""
    number = Fraction(value)
    return f"{number.numerator}b{-(number.denominator.bit_length() - 1)}"

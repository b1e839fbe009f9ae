"""What linear assumptions say of a symbol once others have values: intervals to draw from."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from dataclasses import dataclass

from flint import fmpq

from closedform.verify.identity.canonical import is_zero
from closedform.verify.terms.build import ONE, ZERO, add, both, multiply, substitute, subtract
from closedform.verify.terms.limits import LIMITS
from closedform.verify.terms.tree import RELATIONS, Op, Term, symbols, walk


def is_large(term: Term) -> bool:
    """Whether a term has too many nodes to look for lines in it."""
    return (
        sum(1 for _ in zip(walk(term), range(LIMITS.bound_nodes), strict=False))
        == LIMITS.bound_nodes
    )


def satisfied(op: Op, difference: fmpq) -> bool:
    """Whether ``0 op difference`` holds."""
    if op is Op.EQUAL:
        return bool(difference == 0)
    return bool(difference > 0 if op is Op.LESS else difference >= 0)


@dataclass(frozen=True, slots=True)
class Bound:
    """``0 op slope * symbol + height``, where slope and height hold other symbols."""

    op: Op
    slope: Term
    height: Term
    others: frozenset[str]  # all symbols of the assumption
    linear: frozenset[str]  # those that it is linear in


def linear_bounds(
    assumptions: Iterable[Term], declared: Mapping[str, Term]
) -> dict[str, list[Bound]]:
    """The assumptions that are linear in a symbol, by symbol."""
    bounds: dict[str, list[Bound]] = {name: [] for name in declared}
    given = both(*assumptions)
    for relation in given.args if given.op is Op.AND else (given,):
        if relation.op not in RELATIONS:
            continue
        difference = subtract(relation.args[1], relation.args[0])
        if is_large(difference):
            continue
        names = frozenset(symbols(difference))
        lines = {}
        for name in names:
            node = declared[name]
            height = substitute(difference, {node: ZERO})
            slope = subtract(substitute(difference, {node: ONE}), height)
            line = add(multiply(slope, node), height)
            if is_zero(subtract(difference, line)):
                lines[name] = slope, height
        for name, (slope, height) in lines.items():
            bounds[name].append(Bound(relation.op, slope, height, names, frozenset(lines)))
    return bounds


@dataclass(frozen=True, slots=True)
class Interval:
    """The numbers between two ends, each of which may be missing, or be no part of it."""

    low: fmpq | None = None
    high: fmpq | None = None
    low_is_open: bool = False
    high_is_open: bool = False

    def cut(self, op: Op, root: fmpq, *, rising: bool) -> Interval:
        """The part where a line through ``root`` is above 0, at least 0, or 0."""
        result = self
        is_open = op is Op.LESS
        if rising or op is Op.EQUAL:
            result = result.above(root, is_open=is_open)
        if not rising or op is Op.EQUAL:
            result = result.under(root, is_open=is_open)
        return result

    def above(self, root: fmpq, *, is_open: bool) -> Interval:
        """The part at or above a number."""
        if self.low is not None and (self.low > root or (self.low == root and self.low_is_open)):
            return self
        return Interval(root, self.high, is_open, self.high_is_open)

    def under(self, root: fmpq, *, is_open: bool) -> Interval:
        """The part at or below a number."""
        if self.high is not None and (
            self.high < root or (self.high == root and self.high_is_open)
        ):
            return self
        return Interval(self.low, root, self.low_is_open, is_open)

    def whole(self) -> Interval:
        """The same integers, between integers."""
        low = self.low
        if low is not None:
            low = fmpq(low.floor()) + 1 if self.low_is_open else fmpq(low.ceil())
        high = self.high
        if high is not None:
            high = fmpq(high.ceil()) - 1 if self.high_is_open else fmpq(high.floor())
        return Interval(low, high)

    @property
    def is_empty(self) -> bool:
        """Whether it holds no number."""
        if self.low is None or self.high is None:
            return False
        is_open = self.low_is_open or self.high_is_open
        return bool(self.low > self.high or (self.low == self.high and is_open))

    def holds(self, number: fmpq) -> bool:
        """Whether it holds a number."""
        if self.low is not None and (
            number < self.low or (number == self.low and self.low_is_open)
        ):
            return False
        if self.high is None:
            return True
        return bool(number < self.high or (number == self.high and not self.high_is_open))

    def ends(self, is_integer: bool) -> list[fmpq]:
        """Numbers at its ends: themselves, or close to them where they are open; and 0 and 1."""
        step = fmpq(1) if is_integer else fmpq(1, 1000)
        found = [fmpq(0), fmpq(1), fmpq(2)]
        if self.low is not None:
            found += [self.low, self.low + step]
        if self.high is not None:
            found += [self.high, self.high - step]
        return [number for number in dict.fromkeys(found) if self.holds(number)]

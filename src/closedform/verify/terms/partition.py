"""Pieces of the clock: a term as a list of simpler terms, each for a run of steps.

Comparisons, minima, maxima, absolute values, floors and table indices that are lines in the clock
with rational numbers are decided run by run. What is left on a run is a line, or a term without
them. A table of n milestones becomes n runs at a cost of n; nothing is approximated.

Invariant of every list: the runs are in order, touch, and cover the steps asked for; on each the
value equals the term it was made of, or is undefined where that is.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass

from flint import fmpq

from closedform.verify import terms
from closedform.verify.terms import Op, Term
from closedform.verify.terms.tables import is_integer

Others = tuple[tuple[Term, fmpq], ...]


@dataclass(frozen=True, slots=True)
class Line:
    """``slope * clock + height``, plus multiples of other symbols, in the order of their names."""

    slope: fmpq
    height: fmpq
    others: Others = ()

    @property
    def is_constant(self) -> bool:
        """Whether it is a rational number."""
        return self.slope == 0 and not self.others

    def at(self, step: int) -> fmpq:
        """Returns its value at a step, the other symbols left out."""
        return self.slope * step + self.height

    def scaled(self, factor: fmpq) -> Line:
        """Returns a multiple of it."""
        others = tuple((symbol, factor * times) for symbol, times in self.others if factor != 0)
        return Line(factor * self.slope, factor * self.height, others)


@dataclass(frozen=True, slots=True)
class Run:
    """The steps from ``first`` to ``last``, and what a term is there."""

    first: int
    last: int
    value: Line | Term


Value = Line | Term
Runs = list[Run]
NO_SLOPE = fmpq(0)
_MOST_UNITS = 64


def runs_of(root: Term, clock: Term, first: int, last: int) -> Runs:
    """Returns the runs of a term on the steps from ``first`` to ``last``.

    Args:
        root: The term; a truth has the values true, false, or a term.
        clock: The integer symbol that counts the steps.
        first: The first step.
        last: The last step.

    Example:
        >>> t = terms.symbol("t", integer=True)
        >>> runs = runs_of(terms.minimum(t, terms.rational(5)), t, 0, 100)
        >>> [(run.first, run.last, as_term(run.value, t)) for run in runs]
        [(0, 4, t), (5, 100, 5)]
    """
    return _Divider(clock).runs(root, first, last)


def as_term(value: Value, clock: Term) -> Term:
    """Returns a line as a term."""
    if isinstance(value, Term):
        return value
    multiples = [(clock, value.slope), *value.others]
    parts = [terms.multiply(terms.rational(times), node) for node, times in multiples if times != 0]
    return terms.add(*parts, terms.rational(value.height))


def aligned(*lists: Runs) -> Iterator[tuple[int, int, tuple[Value, ...]]]:
    """Yields the steps on which none of some lists changes, with the value of each."""
    places = [0] * len(lists)
    start, end = lists[0][0].first, lists[0][-1].last
    while start <= end:
        current = [runs[place] for runs, place in zip(lists, places, strict=True)]
        last = min(run.last for run in current)
        yield start, last, tuple(run.value for run in current)
        places = [place + (run.last == last) for place, run in zip(places, current, strict=True)]
        start = last + 1


def _joined(runs: Iterable[Run]) -> Runs:
    """The runs with neighbours of one value made one."""
    result: Runs = []
    for run in runs:
        if result and result[-1].value == run.value:
            result[-1] = Run(result[-1].first, run.last, run.value)
        else:
            result.append(run)
    return result


class _Divider:
    """Divides from above: a branch is looked at on the steps on which it is taken."""

    def __init__(self, clock: Term) -> None:
        self.clock = clock
        self._known: dict[tuple[Term, int, int], Runs] = {}

    def runs(self, node: Term, first: int, last: int) -> Runs:
        """The runs of a node on some steps."""
        key = node, first, last
        if key not in self._known:
            self._known[key] = _joined(self._divide(node, first, last))
        return self._known[key]

    def _divide(self, node: Term, first: int, last: int) -> Iterable[Run]:
        if node.op is Op.ITE:
            return sorted(self._choice(node, first, last), key=lambda run: run.first)
        if not node.args:
            return [Run(first, last, self._leaf(node, first, last))]
        return (
            run
            for start, end, values in aligned(*(self.runs(arg, first, last) for arg in node.args))
            for run in self._apply(node, start, end, values)
        )

    def _leaf(self, node: Term, first: int, last: int) -> Value:
        if terms.is_rational(node):
            return Line(NO_SLOPE, node.value)
        if node == self.clock:
            return Line(NO_SLOPE, fmpq(first)) if first == last else Line(fmpq(1), fmpq(0))
        is_symbol = node.op is Op.SYMBOL
        return Line(NO_SLOPE, fmpq(0), ((node, fmpq(1)),)) if is_symbol else node

    def _choice(self, node: Term, first: int, last: int) -> Iterator[Run]:
        """Branch by branch along a chain; where a condition is not decided, the choice itself."""
        open_steps = [(first, last)]
        while node.op is Op.ITE:
            condition, then, other = node.args
            left = []
            for start, end in open_steps:
                for run in self.runs(condition, start, end):
                    if run.value == terms.TRUE:
                        yield from self.runs(then, run.first, run.last)
                    elif run.value == terms.FALSE:
                        left.append((run.first, run.last))
                    else:
                        yield from self._undecided(node, run)
            open_steps, node = left, other
        for start, end in open_steps:
            yield from self.runs(node, start, end)

    def _undecided(self, node: Term, run: Run) -> Iterator[Run]:
        branches = [self.runs(branch, run.first, run.last) for branch in node.args[1:]]
        for first, last, values in aligned([run], *branches):
            yield Run(first, last, self._rebuilt(node, values))

    def _rebuilt(self, node: Term, values: Sequence[Value]) -> Term:
        return terms.rebuild(node, tuple(as_term(value, self.clock) for value in values))

    def _apply(self, node: Term, first: int, last: int, values: tuple[Value, ...]) -> Iterator[Run]:
        if first == last:
            values = tuple(_stopped(value, first) for value in values)
        lines = [value for value in values if isinstance(value, Line)]
        rule = RULES.get(node.op)
        parts: Iterable[Part] = [(first, last, None)]
        if rule is not None and len(lines) == len(values):
            parts = rule(node, first, last, lines)
        for start, end, value in parts:
            yield Run(start, end, self._plain(node, values) if value is None else value)

    def _plain(self, node: Term, values: tuple[Value, ...]) -> Value:
        """The node over these values; a rational number is a line."""
        rebuilt = self._rebuilt(node, values)
        return Line(NO_SLOPE, rebuilt.value) if terms.is_rational(rebuilt) else rebuilt


def _stopped(value: Value, step: int) -> Value:
    """A line at one step."""
    return Line(NO_SLOPE, value.at(step), value.others) if isinstance(value, Line) else value


Part = tuple[int, int, Value | None]
Rule = Callable[[Term, int, int, Sequence[Line]], Iterator[Part]]


def _sum(lines: Sequence[Line]) -> Line:
    multiples: dict[Term, fmpq] = {}
    for line in lines:
        for symbol, times in line.others:
            multiples[symbol] = multiples.get(symbol, fmpq(0)) + times
    kept = [(symbol, times) for symbol, times in multiples.items() if times != 0]
    return Line(
        sum((line.slope for line in lines), fmpq(0)),
        sum((line.height for line in lines), fmpq(0)),
        tuple(sorted(kept, key=lambda pair: str(pair[0].value.name))),
    )


def _difference(lines: Sequence[Line]) -> Line:
    return _sum((lines[0], lines[1].scaled(fmpq(-1))))


def _add(_: Term, first: int, last: int, lines: Sequence[Line]) -> Iterator[Part]:
    yield first, last, _sum(lines)


def _multiply(_: Term, first: int, last: int, lines: Sequence[Line]) -> Iterator[Part]:
    moving = [line for line in lines if not line.is_constant]
    if len(moving) > 1:
        yield first, last, None
        return
    result = moving[0] if moving else Line(NO_SLOPE, fmpq(1))
    for line in lines:
        if line.is_constant:
            result = result.scaled(line.height)
    yield first, last, result


def _divide(_: Term, first: int, last: int, lines: Sequence[Line]) -> Iterator[Part]:
    above, below = lines
    is_plain = below.is_constant and below.height != 0
    yield first, last, above.scaled(1 / below.height) if is_plain else None


def _constant(node: Term, first: int, last: int, lines: Sequence[Line]) -> Iterator[Part]:
    """Powers and the like, of constants."""
    if not all(line.is_constant for line in lines):
        yield first, last, None
        return
    if node.op is Op.POWER and lines[0].height in (0, 1) and lines[1].height > 0:
        yield first, last, lines[0]
        return
    result = terms.rebuild(node, tuple(terms.rational(line.height) for line in lines))
    yield first, last, Line(NO_SLOPE, result.value) if terms.is_rational(result) else result


def _floor(_: Term, first: int, last: int, lines: Sequence[Line]) -> Iterator[Part]:
    """Whole multiples of integers are taken out; what is left is floored where it is one unit.

    A line that passes through few units on a run is cut where it enters each.
    """
    (line,) = lines
    whole = all(is_integer(symbol) and times.q == 1 for symbol, times in line.others)
    if not whole:
        yield first, last, None
    elif line.slope.q == 1:
        yield first, last, Line(line.slope, fmpq(line.height.floor()), line.others)
    elif abs(line.slope) * (last - first) <= _MOST_UNITS:
        yield from _units(line, first, last)
    else:
        yield first, last, None


def _units(line: Line, first: int, last: int) -> Iterator[Part]:
    """The runs on which the floor of a line does not change."""
    start = first
    while start <= last:
        unit = int(line.at(start).floor())
        bound = (unit + (line.slope > 0) - line.height) / line.slope
        end = int(bound.ceil()) - 1 if line.slope > 0 else int(bound.floor())
        yield start, min(end, last), Line(NO_SLOPE, fmpq(unit), line.others)
        start = min(end, last) + 1


def _lookup(node: Term, first: int, last: int, lines: Sequence[Line]) -> Iterator[Part]:
    """Each element of the table by itself, where a run is not longer than the table."""
    (index,) = lines
    if index.others or (index.slope != 0 and last - first >= len(node.value)):
        yield first, last, None
        return
    steps = [(first, last)] if index.slope == 0 else [(s, s) for s in range(first, last + 1)]
    for start, end in steps:
        place = index.at(start)
        fits = place.q == 1 and 0 <= place < len(node.value)
        yield start, end, Line(NO_SLOPE, node.value[int(place.p)]) if fits else terms.UNDEFINED


def _signs(line: Line, first: int, last: int) -> Iterator[tuple[int, int, int | None]]:
    """The runs on which a line is below, at and above zero, as (first, last, sign).

    The sign is None where other symbols decide it.
    """
    if line.others:
        yield first, last, None
        return
    if line.slope == 0:
        yield first, last, (line.height > 0) - (line.height < 0)
        return
    root = -line.height / line.slope
    rising = 1 if line.slope > 0 else -1
    before, after = int(root.ceil()) - 1, int(root.floor()) + 1
    parts = ((first, before, -rising), (before + 1, after - 1, 0), (after, last, rising))
    for start, end, sign in parts:
        if max(start, first) <= min(end, last):
            yield max(start, first), min(end, last), sign


def _relation(holds: frozenset[int]) -> Rule:
    """A comparison: true where the sign of the difference is one of these."""

    def rule(_: Term, first: int, last: int, lines: Sequence[Line]) -> Iterator[Part]:
        for start, end, sign in _signs(_difference(lines), first, last):
            found = terms.TRUE if sign in holds else terms.FALSE
            yield start, end, None if sign is None else found

    return rule


def _extremum(choice: int) -> Rule:
    """The first of two lines where the sign of their difference is ``choice``, else the second."""

    def rule(_: Term, first: int, last: int, lines: Sequence[Line]) -> Iterator[Part]:
        for start, end, sign in _signs(_difference(lines), first, last):
            found = lines[0] if sign == choice else lines[1]
            yield start, end, None if sign is None else found

    return rule


def _absolute(_: Term, first: int, last: int, lines: Sequence[Line]) -> Iterator[Part]:
    (line,) = lines
    for start, end, sign in _signs(line, first, last):
        found = line if sign is not None and sign >= 0 else line.scaled(fmpq(-1))
        yield start, end, None if sign is None else found


def _sign(_: Term, first: int, last: int, lines: Sequence[Line]) -> Iterator[Part]:
    for start, end, sign in _signs(lines[0], first, last):
        yield start, end, None if sign is None else Line(NO_SLOPE, fmpq(sign))


RULES: Mapping[Op, Rule] = {
    Op.ADD: _add,
    Op.MULTIPLY: _multiply,
    Op.DIVIDE: _divide,
    Op.POWER: _constant,
    Op.EXP: _constant,
    Op.LOG: _constant,
    Op.FLOOR: _floor,
    Op.MINIMUM: _extremum(-1),
    Op.MAXIMUM: _extremum(1),
    Op.ABSOLUTE: _absolute,
    Op.SIGN: _sign,
    Op.LOOKUP: _lookup,
    Op.LESS: _relation(frozenset({-1})),
    Op.LESS_EQUAL: _relation(frozenset({-1, 0})),
    Op.EQUAL: _relation(frozenset({0})),
}
"""How each op acts on lines; what has no row, or yields None, stays as a term."""

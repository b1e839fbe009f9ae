"""Terms over the clock as a real number: their pieces between rational breakpoints."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass

from flint import fmpq

from closedform.verify.terms import (
    FALSE,
    RELATIONS,
    ZERO,
    Op,
    Sign,
    Term,
    fold,
    is_rational,
    ite,
    less,
    less_equal,
    negative,
    rational,
    rebuild,
    substitute,
    subtract,
    symbol,
    walk,
)

TIME = symbol("t", sign=Sign.NONNEGATIVE)
"""The clock as a real number."""


@dataclass(frozen=True, slots=True)
class Cell:
    """What a term is between two breakpoints.

    Attributes:
        low: Where it begins.
        has_low: Whether that point belongs to it.
        high: Where it ends; None where it goes on for ever.
        has_high: Whether that point belongs to it.
        value: The term there.
    """

    low: fmpq
    has_low: bool
    high: fmpq | None
    has_high: bool
    value: Term

    @property
    def first(self) -> int:
        """The first step in it."""
        return int(self.low.ceil()) if self.has_low else int(self.low.floor()) + 1

    @property
    def last(self) -> int | None:
        """The last step in it, before ``first`` where it holds none; None for no end."""
        if self.high is None:
            return None
        return int(self.high.floor()) if self.has_high else int(self.high.ceil()) - 1


@dataclass(frozen=True, slots=True)
class _Span:
    """An interval of the line: its ends, and whether they belong to it."""

    low: fmpq
    has_low: bool
    high: fmpq | None
    has_high: bool

    @property
    def middle(self) -> fmpq:
        return self.low + 1 if self.high is None else (self.low + self.high) / 2

    def parts(self, points: list[fmpq]) -> Iterator[_Span]:
        """The open intervals between points, and the points, in order."""
        if self.low == self.high:
            yield self
            return
        low = self.low
        if self.has_low and self.low in points:
            yield _Span(low, True, low, True)
        has_low = self.has_low and self.low not in points
        for point in points:
            if not self.low < point or (self.high is not None and point >= self.high):
                continue
            yield _Span(low, has_low, point, False)
            yield _Span(point, True, point, True)
            low, has_low = point, False
        if self.has_high and self.high in points:
            yield _Span(low, has_low, self.high, False)
            yield _Span(self.high, True, self.high, True)
        else:
            yield _Span(low, has_low, self.high, self.has_high)


def cells(root: Term) -> list[Cell]:
    """Returns the pieces of a term on [0, ∞), in order; they touch and cover it.

    Choices whose conditions are lines in ``TIME`` with rational numbers are decided; others stay.
    A point that belongs to neither side is a cell of its own. A chain of n branches costs n.

    Example:
        >>> from closedform.verify.terms import ONE, ZERO, ite, less
        >>> found = cells(ite(less(TIME, rational(5)), ONE, ZERO))
        >>> [(str(cell.low), cell.value) for cell in found]
        [('0', 1), ('5', 0)]
    """
    choices = _holding(root, Op.ITE)
    found = _split(root, _Span(fmpq(0), True, None, False), choices)
    return [Cell(span.low, span.has_low, span.high, span.has_high, value) for span, value in found]


_Pieces = list[tuple[_Span, Term]]


def _split(root: Term, span: _Span, choices: set[Term]) -> _Pieces:
    found: _Pieces = []
    rest: list[tuple[_Span, Term, bool]] = [(span, root, root not in choices)]
    while rest:
        span, node, is_whole = rest.pop()
        if is_whole:
            found.append((span, node))
        elif node.op is Op.ITE:
            rest.extend(reversed(_branches(node, span, choices)))
        else:
            found += _split_arguments(node, span, choices)
    return found


def _branches(node: Term, span: _Span, choices: set[Term]) -> list[tuple[_Span, Term, bool]]:
    """The branches of a choice where each is taken, and whether it is whole, without choices.

    A condition that holds choices is split first. One that is no line leaves the choice whole.
    """
    condition, then, otherwise = node.args
    branches: list[tuple[_Span, Term, bool]] = []
    for part, simple in _split(condition, span, choices):
        points = _breakpoints(simple)
        if points is None:
            branches.append((part, rebuild(node, (simple, then, otherwise)), True))
            continue
        for piece, holds in _decided(simple, part, points):
            taken = then if holds else otherwise
            branches.append((piece, taken, taken not in choices))
    return branches


def _decided(condition: Term, span: _Span, points: list[fmpq]) -> list[tuple[_Span, bool]]:
    """The parts of a span on which a condition does not change, joined where it is the same."""
    joined: list[tuple[_Span, bool]] = []
    for part in span.parts(points):
        holds = substitute(condition, {TIME: rational(part.middle)}) != FALSE
        if joined and joined[-1][1] == holds:
            before = joined[-1][0]
            part = _Span(before.low, before.has_low, part.high, part.has_high)
            joined.pop()
        joined.append((part, holds))
    return joined


def _split_arguments(node: Term, span: _Span, choices: set[Term]) -> _Pieces:
    """A node over arguments that are split: the common pieces of all."""
    pieces: _Pieces = [(span, node)]
    for arg in node.args:
        if arg in choices:
            pieces = [
                (part, _with_argument(value, arg, piece))
                for whole, value in pieces
                for part, piece in _split(arg, whole, choices)
            ]
    return pieces


def _with_argument(node: Term, old: Term, new: Term) -> Term:
    return rebuild(node, tuple(new if arg == old else arg for arg in node.args))


def _breakpoints(condition: Term) -> list[fmpq] | None:
    """Where a condition may change, in order; None where it is not made of rational lines."""
    points: set[fmpq] = set()
    for node in walk(condition):
        if node.op not in RELATIONS:
            continue
        line = line_of(subtract(*node.args))
        if line is None:
            return None
        if line[0] != 0:
            points.add(-line[1] / line[0])
    return sorted(points)


def line_of(root: Term) -> tuple[fmpq, fmpq] | None:
    """Returns slope and height of a line in ``TIME`` with rational numbers; None for any other."""

    def make(node: Term, args: list[tuple[fmpq, fmpq] | None]) -> tuple[fmpq, fmpq] | None:
        if node == TIME:
            return fmpq(1), fmpq(0)
        if is_rational(node):
            return fmpq(0), node.value
        if any(arg is None for arg in args) or not args:
            return None
        lines = [arg for arg in args if arg is not None]
        if node.op is Op.ADD:
            return sum((a for a, _ in lines), fmpq(0)), sum((b for _, b in lines), fmpq(0))
        if node.op is Op.MULTIPLY:
            return _product(lines)
        if node.op is Op.DIVIDE and lines[1][0] == 0 and lines[1][1] != 0:
            return lines[0][0] / lines[1][1], lines[0][1] / lines[1][1]
        return None

    return fold(root, make)


def _product(lines: list[tuple[fmpq, fmpq]]) -> tuple[fmpq, fmpq] | None:
    slope, height = fmpq(0), fmpq(1)
    for a, b in lines:
        if a != 0 and slope != 0:
            return None
        slope, height = a * height + b * slope, b * height
    return slope, height


def moving(root: Term, *ops: Op) -> list[Term]:
    """Returns the nodes of these kinds that depend on ``TIME``, each once; of any kind if none."""
    found: set[Term] = set()
    for node in walk(root):
        if node == TIME or any(arg in found for arg in node.args):
            found.add(node)
    return [node for node in walk(root) if node in found and (not ops or node.op in ops)]


def _holding(root: Term, op: Op) -> set[Term]:
    """The nodes that are, or hold, a node of this kind that depends on ``TIME``."""
    found = set(moving(root, op))
    for node in walk(root):
        if any(arg in found for arg in node.args):
            found.add(node)
    return found


def as_choices(root: Term) -> Term:
    """Returns the term with each minimum, maximum and absolute value as the choice that it is."""

    def make(node: Term, args: list[Term]) -> Term:
        match node.op:
            case Op.MINIMUM:
                return ite(less_equal(args[0], args[1]), args[0], args[1])
            case Op.MAXIMUM:
                return ite(less_equal(args[1], args[0]), args[0], args[1])
            case Op.ABSOLUTE:
                return ite(less(args[0], ZERO), negative(args[0]), args[0])
            case _:
                return rebuild(node, tuple(args))

    return fold(root, make)

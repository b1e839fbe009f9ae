"""A statement about the clock alone, as simpler statements for runs of steps.

Comparisons, minima, maxima, absolute values, signs, floors and tables of *lines* in the clock, with
rational numbers, change only at steps that can be worked out. Between them each is a constant, so a
statement is split at those steps, exactly; on each run only what is curved is left. A chain of n
branches costs n, not n * n.
"""

from __future__ import annotations

from bisect import bisect_right
from collections.abc import Callable, Iterator
from dataclasses import dataclass

from flint import fmpq

from closedform.verify.identity.periods import Form, form_of
from closedform.verify.terms.build import (
    FALSE,
    TRUE,
    UNDEFINED,
    multiply,
    rational,
    rebuild,
)
from closedform.verify.terms.tree import RELATIONS, TRUTHS, Op, Term, walk

FOREVER = 1 << 200
"""Stands for no last step; no breakpoint of a schedule comes near it."""

_MOST_JUMPS = 3000

Span = tuple[int, int]  # first and last step, both included


@dataclass(frozen=True, slots=True)
class Run:
    """A statement on the steps from ``first`` to ``last``, both included."""

    first: int
    last: int
    statement: Term


def split_into_runs(
    statement: Term,
    clock: Term,
    first: int,
    last: int,
    check: Callable[[], None] = lambda: None,
) -> Iterator[Run]:
    """Yields the runs of a statement, in order; one, the same, where nothing is to be split.

    Args:
        statement: A truth.
        clock: An integer symbol.
        first: The first step.
        last: The last step, or FOREVER.
        check: Called before each run; it may raise.

    Example:
        >>> from closedform.verify.terms import less, minimum, rational, symbol
        >>> t = symbol("t", integer=True)
        >>> runs = split_into_runs(less(minimum(t, rational(5)), rational(9)), t, 0, FOREVER)
        >>> [(run.first, run.statement) for run in runs]
        [(0, t < 9), (5, t < 9), (6, true)]
    """
    lines = _Lines(statement, clock, (first, last))
    starts = sorted(start for start in lines.starts if first <= start <= last)
    ends = [start - 1 for start in starts[1:]] + [last]
    for start, end in zip(starts, ends, strict=True):
        check()
        yield Run(start, end, lines.on(start, end))


class _Lines:
    """What of a statement is decided by lines in the clock, on a span of steps."""

    def __init__(self, statement: Term, clock: Term, span: Span) -> None:
        self.statement = statement
        self.clock = clock
        self.span = span
        self.starts: set[int] = {span[0]}
        self._forms: dict[Term, Form] = {}
        self._truths: dict[Term, list[Span]] = {}
        self._chains: dict[Term, list[tuple[int, Term]]] = {}
        self._flat: set[Term] = set()  # nodes that are constant on each run
        for node in walk(statement):
            if node.op in TRUTHS:
                self._note_truth(node)
            else:
                self._forms[node] = form_of(node, self._forms)
                self._note_number(node)
        for node in reversed(list(walk(statement))):  # heads of chains before their links
            if node.op is Op.ITE and node.args[0] in self._truths:
                self._note_chain(node)

    # --- where things change -----------------------------------------------------------------

    def line(self, node: Term) -> tuple[fmpq, fmpq] | None:
        """Slope and height of a number that is a line in the clock."""
        form = self._forms[node]
        if any(key is not None and key != self.clock for key in form):
            return None
        return form.get(self.clock, fmpq(0)), form.get(None, fmpq(0))

    def _difference(self, node: Term) -> tuple[fmpq, fmpq] | None:
        left, right = (self.line(arg) for arg in node.args)
        if left is None or right is None:
            return None
        return left[0] - right[0], left[1] - right[1]

    def _note_truth(self, node: Term) -> None:
        spans = self._spans(node)
        if spans is None:
            return
        self._truths[node] = spans
        if node.op in RELATIONS:
            for first, last in spans:
                self.starts.update((first, last + 1))

    def _spans(self, node: Term) -> list[Span] | None:
        """The steps at which a truth holds, or None where lines do not decide it."""
        if node.op in RELATIONS:
            line = self._difference(node)
            return None if line is None else list(_where(node.op, line, self.span))
        parts = [self._truths.get(arg) for arg in node.args]
        known = [part for part in parts if part is not None]
        if len(known) < len(parts):
            return None
        match node.op:
            case Op.TRUE:
                return [self.span]
            case Op.FALSE:
                return []
            case Op.NOT:
                return _without([self.span], known[0])
            case Op.AND:
                result = [self.span]
                for part in known:
                    result = _without(result, _without([self.span], part))
                return result
            case _:
                rest = [self.span]
                for part in known:
                    rest = _without(rest, part)
                return _without([self.span], rest)

    def _note_number(self, node: Term) -> None:
        if node.op in (Op.MINIMUM, Op.MAXIMUM):
            line = self._difference(node)
        elif node.op in (Op.ABSOLUTE, Op.SIGN, Op.FLOOR, Op.LOOKUP):
            line = self.line(node.args[0])
        else:
            return
        if line is None:
            return
        steps = self._jumps(line) if node.op in (Op.FLOOR, Op.LOOKUP) else _signs(line, self.span)
        if steps is not None:
            self.starts.update(steps)
            self._flat.add(node)

    def _jumps(self, line: tuple[fmpq, fmpq]) -> list[int] | None:
        """The steps at which the floor of a line is another one than before; None for too many."""
        slope, height = line
        first, last = self.span
        if slope == 0:
            return []
        levels = sorted(int((slope * step + height).floor()) for step in (first, last))
        if levels[1] - levels[0] > _MOST_JUMPS:
            return None
        if slope > 0:
            return [
                int(((level - height) / slope).ceil()) for level in range(levels[0], levels[1] + 1)
            ]
        return [
            int(((level - height) / slope).floor()) + 1 for level in range(levels[0], levels[1] + 2)
        ]

    def _note_chain(self, head: Term) -> None:
        """The branch that is taken from each step on."""
        if head in self._chains:
            return
        left, taken = [self.span], []
        node = head
        while node.op is Op.ITE and node.args[0] in self._truths and left:
            holds = self._truths[node.args[0]]
            rest = _without(left, holds)
            taken += [(first, node.args[1]) for first, _ in _without(left, rest)]
            left, node = rest, node.args[2]
            self._chains.setdefault(node, [])
        taken += [(first, node) for first, _ in left]
        self._chains[head] = sorted(taken, key=lambda each: each[0])

    # --- a statement on one run --------------------------------------------------------------

    def on(self, first: int, last: int) -> Term:
        """Returns the statement with everything that is constant on a run settled."""
        done: dict[Term, Term] = {}
        pending = [self.statement]
        while pending:
            node = pending[-1]
            if node in done:
                pending.pop()
                continue
            settled = self._settled(node, first, last)
            needed = [settled] if settled is not node else list(node.args)
            if settled is not node and not settled.args:
                done[node] = settled
                continue
            missing = [each for each in needed if each not in done]
            if missing:
                pending += missing
                continue
            if settled is not node:
                done[node] = done[settled]
            elif node.args:
                done[node] = rebuild(node, tuple(done[arg] for arg in node.args))
            else:
                done[node] = node
        return done[self.statement]

    def _settled(self, node: Term, first: int, last: int) -> Term:
        """What a node is on a run: a part of it, a constant, or itself."""
        if node in self._truths:
            return TRUE if any(low <= first <= high for low, high in self._truths[node]) else FALSE
        if node.op is Op.ITE:
            chain = self._chains.get(node)
            if not chain:
                return node
            place = bisect_right(chain, first, key=lambda each: each[0]) - 1
            return chain[place][1]
        if node == self.clock and first == last:
            return rational(first)
        if node not in self._flat:
            return node
        if node.op in (Op.MINIMUM, Op.MAXIMUM):
            line = self._difference(node) or (fmpq(0), fmpq(0))
            is_left = (_at(line, first, last) <= 0) == (node.op is Op.MINIMUM)
            return node.args[0 if is_left else 1]
        line = self.line(node.args[0]) or (fmpq(0), fmpq(0))
        return _flat_value(node, line, first, last)


def _flat_value(node: Term, line: tuple[fmpq, fmpq], first: int, last: int) -> Term:
    """The value on a run of a function of a line that does not change its case there."""
    number = line[0] * first + line[1]
    sign = _at(line, first, last)
    match node.op:
        case Op.FLOOR:
            return rational(fmpq(number.floor()))
        case Op.SIGN:
            return rational((sign > 0) - (sign < 0))
        case Op.ABSOLUTE:
            inner = node.args[0]
            return inner if sign >= 0 else multiply(rational(-1), inner)
        case _:
            is_fixed = line[0] == 0 or first == last
            fits = number.q == 1 and 0 <= number < len(node.value)
            if not is_fixed:
                return node
            return rational(node.value[int(number.p)]) if fits else UNDEFINED


def _at(line: tuple[fmpq, fmpq], first: int, last: int) -> fmpq:
    """A number with the sign that a line has on a run, which does not change there."""
    start, end = (line[0] * step + line[1] for step in (first, last))
    return start if start != 0 else end


def _signs(line: tuple[fmpq, fmpq], span: Span) -> list[int]:
    """The first steps at which a line is at, and beyond, 0."""
    slope, height = line
    if slope == 0:
        return []
    root = -height / slope
    return [step for step in (int(root.ceil()), int(root.floor()) + 1) if span[0] < step <= span[1]]


def _where(op: Op, line: tuple[fmpq, fmpq], span: Span) -> Iterator[Span]:
    """The steps of a span at which ``line op 0`` holds."""
    slope, height = line
    first, last = span
    if slope == 0:
        holds = {Op.LESS: height < 0, Op.LESS_EQUAL: height <= 0, Op.EQUAL: height == 0}[op]
        if holds:
            yield span
        return
    root = -height / slope
    if op is Op.EQUAL:
        if root.q == 1 and first <= root <= last:
            yield int(root.p), int(root.p)
        return
    includes_root = op is Op.LESS_EQUAL
    if slope > 0:
        last = min(last, int(root.floor()) if includes_root else int(root.ceil()) - 1)
    else:
        first = max(first, int(root.ceil()) if includes_root else int(root.floor()) + 1)
    if first <= last:
        yield first, last


def _without(spans: list[Span], removed: list[Span]) -> list[Span]:
    """The steps of some spans that are in none of some others; both in order."""
    result = []
    for first, last in spans:
        start = first
        for low, high in removed:
            if high < start:
                continue
            if low > last:
                break
            if low > start:
                result.append((start, low - 1))
            start = max(start, high + 1)
        if start <= last:
            result.append((start, last))
    return result

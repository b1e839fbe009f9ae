"""A term on an interval of steps as a list of segments, on each of which no branch changes.

Comparisons, minima, maxima, absolute values, signs, floors and table indices that are linear in the
clock, with rational coefficients, change only at steps that can be worked out exactly; comparisons,
signs and floors of curves in the clock at steps that ``jumps`` finds, where these are few. Between
them each is decided: the rest on a segment is a linear form, or a term without them. A chain of n
branches costs n, since a branch is looked at only on the steps on which it is taken. Nothing is
approximated, and no recursion is used: a chain of 10,000 branches is a term as deep.

Invariant of every list: the segments are in order, touch, and cover the steps asked for; on each
the value equals the term it was made of, or is undefined where that is.

``partition`` is over the integer steps; ``partition_line`` over the clock as a real number, where
only choices are decided.
"""

from __future__ import annotations

from collections.abc import Callable, Generator, Iterable, Iterator, Sequence
from dataclasses import dataclass
from typing import Generic, TypeVar

from flint import fmpq

from closedform.effort import spend
from closedform.verify.terms import build
from closedform.verify.terms.facts import is_integer
from closedform.verify.terms.jumps import jumps_of
from closedform.verify.terms.limits import FOREVER, LIMITS
from closedform.verify.terms.linear import LinearForm, combine_forms
from closedform.verify.terms.tree import RELATIONS, Op, Term, fold, walk

Cut = tuple[fmpq, int]
"""A place between real numbers: ``(x, 0)`` is just before x, ``(x, 1)`` just after it."""

Place = TypeVar("Place", int, Cut)
SegmentValue = LinearForm | Term


@dataclass(frozen=True, slots=True)
class Segment(Generic[Place]):
    """A term on the interval ``[first, end)`` of steps, or between two cuts of the line."""

    first: Place
    end: Place
    value: SegmentValue

    def term(self, clock: Term) -> Term:
        """Returns the value as a term."""
        return as_term(self.value, clock)

    @property
    def last(self: Segment[int]) -> int:
        """The last step, or FOREVER."""
        return self.end if self.end == FOREVER else self.end - 1


Segments = list[Segment[Place]]


def partition(
    root: Term,
    clock: Term,
    first: int,
    end: int,
    *,
    levels: int = LIMITS.floor_levels,
    check: Callable[[], None] = lambda: None,
) -> Segments[int]:
    """Returns the segments of a term on the steps ``[first, end)``.

    Args:
        root: The term; a truth has the values true, false, or a term.
        clock: The integer symbol that counts the steps.
        first: The first step.
        end: The step after the last one, or FOREVER.
        levels: A floor of a linear form that passes through more integers than this stays a floor.
        check: Called before each segment; it may raise.

    Example:
        >>> from closedform.verify.terms.build import minimum, rational, symbol
        >>> t = symbol("t", integer=True)
        >>> segments = partition(minimum(t, rational(5)), t, 0, 100)
        >>> [(segment.first, segment.end, segment.term(t)) for segment in segments]
        [(0, 5, t), (5, 100, 5)]
    """
    return _Steps(root, clock, check, levels).segments(root, first, end)


def partitions(root: Term, clock: Term) -> Callable[[Term, int, int], Segments[int]]:
    """Returns :func:`partition` for the nodes of a term, which share what is found for each.

    Args:
        root: The term.
        clock: The integer symbol that counts the steps.
    """
    return _Steps(root, clock, lambda: None, LIMITS.floor_levels).segments


def form_on(root: Term, clock: Term, first: int, last: int) -> LinearForm | None:
    """Returns the linear form that a term is on all steps from ``first`` to ``last``, or None."""
    segments = partition(root, clock, first, last + 1)
    value = segments[0].value
    return value if len(segments) == 1 and isinstance(value, LinearForm) else None


def partition_line(root: Term, clock: Term) -> Segments[Cut]:
    """Returns the segments of a term on the real line from 0 on.

    Choices whose conditions are linear in the clock are decided; all other terms stay as they are.
    A point that belongs to neither side is a separate segment.
    """
    return _Line(root, clock, lambda: None).segments(root, (fmpq(0), 0), (fmpq(FOREVER), 0))


def as_term(value: SegmentValue, clock: Term) -> Term:
    """Returns a value of a segment as a term."""
    return value if isinstance(value, Term) else value.as_term(clock)


def align_segments(
    *lists: Segments[Place],
) -> Iterator[tuple[Place, Place, tuple[SegmentValue, ...]]]:
    """Yields the intervals on which none of some lists changes, with the value of each."""
    places = [0] * len(lists)
    start, stop = lists[0][0].first, lists[0][-1].end
    while start < stop:
        current = [segments[place] for segments, place in zip(lists, places, strict=True)]
        end = min(segment.end for segment in current)
        yield start, end, tuple(segment.value for segment in current)
        places = [place + (part.end == end) for place, part in zip(places, current, strict=True)]
        start = end


def _join_segments(segments: Iterable[Segment[Place]]) -> Segments[Place]:
    """The segments with neighbours of one value made one."""
    result: Segments[Place] = []
    for segment in segments:
        if result and result[-1].value == segment.value:
            result[-1] = Segment(result[-1].first, segment.end, segment.value)
        else:
            result.append(segment)
    return result


_Request = tuple[Term, Place, Place]
_Part = tuple[Place, Place, SegmentValue | None]
_Task = Generator[_Request[Place], Segments[Place], Segments[Place]]


class _Partition(Generic[Place]):
    """Divides from above; a task that needs the segments of a node yields a request for them."""

    decided: frozenset[Op]
    """The nodes that are decided segment by segment; a term without any is one segment."""

    def __init__(self, root: Term, clock: Term, check: Callable[[], None]) -> None:
        self.clock = clock
        self.check = check
        self._known: dict[_Request[Place], Segments[Place]] = {}
        # Terms without choices are one segment on every interval: found once, bottom up.
        self._fixed: dict[Term, SegmentValue] = {}
        for node in walk(root):
            args = [self._fixed.get(arg) for arg in node.args]
            forms = tuple(arg for arg in args if arg is not None)
            if node.op not in self.decided and len(forms) == len(args):
                self._fixed[node] = self._over(node, forms)

    def around(self, root: fmpq) -> tuple[Place, Place]:
        """The first place at or beyond a number, and the first beyond it."""
        raise NotImplementedError

    def fix_clock(self, value: SegmentValue, first: Place, end: Place) -> SegmentValue:
        """A value with the clock as a number, where the interval is a single step."""
        raise NotImplementedError

    def segments(self, root: Term, first: Place, end: Place) -> Segments[Place]:
        """The segments of a node; a loop over the tasks that wait for one another."""
        key = root, first, end
        answer = self._answer(key)
        if answer is not None:
            return answer
        # Generators on a stack instead of recursion: chains of 10,000 branches exceed Python's
        # limit.
        waiting: list[tuple[_Request[Place], _Task[Place]]] = [(key, self._divide(*key))]
        while True:
            key, task = waiting[-1]
            try:
                request = next(task) if answer is None else task.send(answer)
            except StopIteration as finished:
                spend(_SEGMENT_WORK * len(finished.value))
                self.check()
                answer = self._known[key] = _join_segments(finished.value)
                waiting.pop()
                if not waiting:
                    return answer
                continue
            answer = self._answer(request)
            if answer is None:
                waiting.append((request, self._divide(*request)))

    def _answer(self, request: _Request[Place]) -> Segments[Place] | None:
        """The segments of a node where they are known at once."""
        node, first, end = request
        if node in self._fixed:
            return [Segment(first, end, self.fix_clock(self._fixed[node], first, end))]
        return self._known.get(request)

    def _divide(self, node: Term, first: Place, end: Place) -> _Task[Place]:
        if node.op is Op.ITE:
            choices = yield from self._choice(node, first, end)
            return sorted(choices, key=lambda segment: segment.first)
        lists = []
        for arg in node.args:
            segments = yield arg, first, end
            lists.append(segments)
        return [
            segment
            for start, stop, values in align_segments(*lists)
            for segment in self._apply(node, start, stop, values)
        ]

    def _choice(self, node: Term, first: Place, end: Place) -> _Task[Place]:
        """Branch by branch along a chain; where a condition is not decided, the choice itself."""
        segments: Segments[Place] = []
        remaining = [(first, end)]
        while node.op is Op.ITE and remaining:
            condition, then, otherwise = node.args
            left = []
            for start, stop in remaining:
                for part in (yield condition, start, stop):
                    if part.value == build.TRUE:
                        segments += yield then, part.first, part.end
                    elif part.value == build.FALSE:
                        left.append((part.first, part.end))
                    else:
                        yes = yield then, part.first, part.end
                        no = yield otherwise, part.first, part.end
                        segments += [
                            Segment(inner, outer, self._rebuilt(node, values))
                            for inner, outer, values in align_segments([part], yes, no)
                        ]
            remaining, node = left, otherwise
        for start, stop in remaining:
            segments += yield node, start, stop
        return segments

    def _rebuilt(self, node: Term, values: Sequence[SegmentValue]) -> Term:
        return build.rebuild(node, tuple(as_term(value, self.clock) for value in values))

    def _over(self, node: Term, values: Sequence[SegmentValue]) -> SegmentValue:
        """A node over some values, where nothing is to be decided."""
        if node.op is Op.SYMBOL:
            return LinearForm.of(node)
        forms = [value for value in values if isinstance(value, LinearForm)]
        if len(forms) == len(values):
            form = combine_forms(node, forms)
            if form is not None:
                return form
            if node.op is Op.POWER and _is_fixed_point(*forms):
                return forms[0]
        rebuilt = self._rebuilt(node, values) if values else node
        return LinearForm(rebuilt.value) if build.is_rational(rebuilt) else rebuilt

    def _apply(
        self, node: Term, first: Place, end: Place, values: Sequence[SegmentValue]
    ) -> Iterator[Segment[Place]]:
        """The segments of an operation on values of its operands.

        ``decide`` splits a place into parts; a part whose value is None is not decided, so that
        its value is the operation itself.
        """
        values = [
            self.fix_clock(value, first, end) if isinstance(value, LinearForm) else value
            for value in values
        ]
        forms = [value for value in values if isinstance(value, LinearForm)]
        parts: Iterable[_Part[Place]] = [(first, end, None)]
        if node.op in self.decided:
            if len(forms) == len(values):
                parts = self.decide(node, first, end, forms)
            else:
                parts = self.decide_curve(self._rebuilt(node, values), first, end)
        for start, stop, value in parts:
            yield Segment(start, stop, self._over(node, values) if value is None else value)

    def decide_curve(self, node: Term, first: Place, end: Place) -> Iterable[_Part[Place]]:
        """The parts of an interval on which an operation on other terms is another value."""
        return [(first, end, None)]

    def decide(
        self, node: Term, first: Place, end: Place, forms: Sequence[LinearForm]
    ) -> Iterator[_Part[Place]]:
        """The parts of an interval on which an operation on linear forms is another value."""
        difference = forms[0] - forms[1]
        for start, stop, sign in self.signs(difference, first, end):
            yield start, stop, None if sign is None else _TRUTHS[build.is_satisfied(node.op, -sign)]

    def signs(
        self, form: LinearForm, first: Place, end: Place
    ) -> Iterator[tuple[Place, Place, int | None]]:
        """The parts of an interval on which a form is below, at and above 0, with its sign.

        The sign is None where other symbols than the clock decide it.
        """
        if not form.is_line(self.clock):
            yield first, end, None
        elif form.is_constant:
            yield first, end, (form.constant > 0) - (form.constant < 0)
        else:
            # Three parts: before the root, at it, after it; at a root between two integers the
            # middle one is empty.
            at, past = self.around(form.root(self.clock))
            rising = 1 if form.slope(self.clock) > 0 else -1
            for start, stop, sign in ((first, at, -rising), (at, past, 0), (past, end, rising)):
                if max(start, first) < min(stop, end):
                    yield max(start, first), min(stop, end), sign


_TRUTHS = (build.FALSE, build.TRUE)
_SEGMENT_WORK = 10
"""Units of work for one segment of one node; measured over periods of 12,012 steps."""


def _is_fixed_point(base: LinearForm, exponent: LinearForm) -> bool:
    """Whether a power is its base: 0 or 1, to a constant exponent above 0."""
    is_constant = base.is_constant and exponent.is_constant
    return is_constant and base.constant in (0, 1) and exponent.constant > 0


class _Line(_Partition[Cut]):
    """Over the real numbers."""

    decided = RELATIONS | {Op.ITE}

    def around(self, root: fmpq) -> tuple[Cut, Cut]:
        return (root, 0), (root, 1)

    def fix_clock(self, value: SegmentValue, first: Cut, end: Cut) -> SegmentValue:
        return value


class _Steps(_Partition[int]):
    """Over the integers."""

    decided = _Line.decided | {Op.MINIMUM, Op.MAXIMUM, Op.ABSOLUTE, Op.SIGN, Op.FLOOR, Op.LOOKUP}

    def __init__(self, root: Term, clock: Term, check: Callable[[], None], levels: int) -> None:
        super().__init__(root, clock, check)
        self._levels = levels
        self._curved_levels = max(levels, LIMITS.curved_levels)

    def around(self, root: fmpq) -> tuple[int, int]:
        return int(root.ceil()), int(root.floor()) + 1

    def fix_clock(self, value: SegmentValue, first: int, end: int) -> SegmentValue:
        if end - first != 1:
            return value
        if isinstance(value, LinearForm):
            return value.fix_clock(self.clock, first)

        def at_step(node: Term, args: list[SegmentValue]) -> SegmentValue:
            return LinearForm(fmpq(first)) if node == self.clock else self._over(node, args)

        return fold(value, at_step)

    def decide(
        self, node: Term, first: int, end: int, forms: Sequence[LinearForm]
    ) -> Iterator[_Part[int]]:
        match node.op:
            case Op.MINIMUM | Op.MAXIMUM:
                choice = -1 if node.op is Op.MINIMUM else 1
                for start, stop, sign in self.signs(forms[0] - forms[1], first, end):
                    chosen_form = forms[0] if sign == choice else forms[1]
                    yield start, stop, None if sign is None else chosen_form
            case Op.ABSOLUTE:
                for start, stop, sign in self.signs(forms[0], first, end):
                    yield start, stop, None if sign is None else forms[0].scale(fmpq(sign or 1))
            case Op.SIGN:
                for start, stop, sign in self.signs(forms[0], first, end):
                    yield start, stop, None if sign is None else LinearForm(fmpq(sign))
            case Op.FLOOR:
                yield from self._floor(forms[0], first, end)
            case Op.LOOKUP:
                yield from self._lookup(node, forms[0], first, end)
            case _:
                yield from super().decide(node, first, end, forms)

    def decide_curve(self, node: Term, first: int, end: int) -> Iterable[_Part[int]]:
        """The runs of one floor, sign or truth of a number that only the clock moves."""
        if not self._levels:
            return [(first, end, None)]
        last = FOREVER if end == FOREVER else end - 1
        runs = jumps_of(node, self.clock, first, last, self._curved_levels)
        if runs is None:
            return [(first, end, None)]
        ends = [*(start for start, _ in runs[1:]), end]
        return [
            (start, stop, LinearForm(value) if isinstance(value, fmpq) else _TRUTHS[value])
            for (start, value), stop in zip(runs, ends, strict=True)
        ]

    def _floor(self, form: LinearForm, first: int, end: int) -> Iterator[_Part[int]]:
        """Whole multiples of integers are taken out; what is left is floored where it is one level.

        A form that passes through few levels on an interval is cut where it enters each.
        """
        slope, remaining = form.slope(self.clock), form.other_coefficients(self.clock)
        if not all(
            is_integer(symbol) and multiple.q == 1 for symbol, multiple in remaining.items()
        ):
            yield first, end, None
        # floor(p t + c) = p t + floor(c) for integers p and t.
        elif slope.q == 1:
            yield first, end, LinearForm(fmpq(form.constant.floor()), form.multiples)
        # A cut at each level would be as many segments as periods.
        elif abs(slope) * (end - 1 - first) > self._levels:
            yield first, end, None
        else:
            start = first
            while start < end:
                level = int(form.at(self.clock, start).floor())
                # The step at which the line leaves its level: upwards at level + 1, downwards below
                # level.
                bound = (level + (slope > 0) - form.constant) / slope
                stop = int(bound.ceil()) if slope > 0 else int(bound.floor()) + 1
                yield start, min(stop, end), LinearForm(fmpq(level), remaining)
                start = min(stop, end)

    def _lookup(self, node: Term, index: LinearForm, first: int, end: int) -> Iterator[_Part[int]]:
        """Each element of the table by itself, where an interval is not longer than the table."""
        is_fixed = index.is_constant
        if not index.is_line(self.clock) or (not is_fixed and end - first > len(node.value)):
            yield first, end, None
            return
        steps = [(first, end)] if is_fixed else [(s, s + 1) for s in range(first, end)]
        for start, stop in steps:
            place = index.at(self.clock, start)
            fits = place.q == 1 and 0 <= place < len(node.value)
            yield start, stop, LinearForm(node.value[int(place.p)]) if fits else build.UNDEFINED

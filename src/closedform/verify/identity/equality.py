"""Equality of two terms on a run of steps, cheapest way first.

1. Both are lines: the numbers are compared.
2. They are written alike, or in their normal forms the identity engine (``canonical``) finds that
   their difference is 0. Choices that the run decides are made before (``choices.settle_choices``).
3. Where the clock occurs in only one floor, they are compared for each number in its place.
4. Floors of lines repeat with a common period M: the clock is written as ``M * cycle + phase`` with
   0 <= phase < M, the floors become whole multiples of the cycle, and the phases are compared run
   by run. That covers all steps of the run, and may cover more.

The engine says that two terms are equal wherever both are defined. That the second one is defined
on the run, ``is_defined`` shows by the signs of its denominators, radicands and arguments of log.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from functools import cache, partial

from flint import fmpq

from closedform.verify.identity.choices import has_choices, settle_choices, with_shared_choices
from closedform.verify.identity.normal import (
    by_angles,
    has_trigonometry,
    normal,
    opaque_cosines,
)
from closedform.verify.terms import build, facts
from closedform.verify.terms.build import (
    is_rational,
    rebuild,
)
from closedform.verify.terms.canonical import is_zero
from closedform.verify.terms.limits import LIMITS
from closedform.verify.terms.linear import LinearForm, line, linear_forms
from closedform.verify.terms.partition import (
    Segments,
    SegmentValue,
    align_segments,
    as_term,
    form_on,
    partition,
    partitions,
)
from closedform.verify.terms.tree import Op, Sign, Term, fold, walk

CYCLE = build.own_symbol("cycle", integer=True, sign=Sign.NONNEGATIVE)
ANY_CYCLE = build.own_symbol("any cycle", integer=True)
PHASE = build.own_symbol("phase", integer=True, sign=Sign.NONNEGATIVE)


@dataclass(frozen=True, slots=True)
class StepRange:
    """The steps from ``first`` to ``last`` of a clock."""

    clock: Term
    first: int
    last: int

    def sign_of(self, node: Term) -> Sign:
        """Returns the sign of a term at all of these steps, as far as it is plain."""
        segments = partition(node, self.clock, self.first, self.last + 1)
        return facts.weakest(
            [self._sign_of_value(part.value, part.first, part.end - 1) for part in segments]
        )

    def _sign_of_value(self, value: SegmentValue, first: int, last: int) -> Sign:
        if isinstance(value, LinearForm):
            return value.sign_between(self.clock, first, last)
        steps, segments = StepRange(self.clock, first, last), partitions(value, self.clock)
        return fold(value, lambda node, args: steps._sign_of_node(node, args, segments))

    def _sign_of_decays(self, form: LinearForm) -> Sign:
        """The sign of a constant and multiples of numbers that are above 0 and below 1."""
        if not form.multiples or not all(map(self._is_decay, form.multiples)):
            return Sign.ANY
        low = high = form.constant
        for times in form.multiples.values():
            low, high = (low, high + times) if times > 0 else (low + times, high)
        # Each decay is strictly between 0 and 1, so the bounds are not attained: sign strict at low
        # = 0.
        if low >= 0:
            return Sign.POSITIVE
        return Sign.NEGATIVE if high <= 0 else Sign.ANY

    def _is_decay(self, node: Term) -> bool:
        """Whether a term is exp(x) with x < 0, or b ** x with 0 < b < 1 and x > 0."""
        if node.op is Op.EXP:
            return self.sign_of(node.args[0]) is Sign.NEGATIVE
        if node.op is not Op.POWER or not is_rational(node.args[0]):
            return False
        return 0 < node.args[0].value < 1 and self.sign_of(node.args[1]) is Sign.POSITIVE

    def _sign_of_node(
        self, node: Term, args: list[Sign], segments: Callable[[Term, int, int], Segments[int]]
    ) -> Sign:
        """The sign of a node from the signs of its arguments; of a linear form from the form."""
        sign = facts.sign_from(node, args)
        is_strict = sign in (Sign.POSITIVE, Sign.NEGATIVE)
        if is_strict or node.op not in (Op.ADD, Op.MULTIPLY, Op.SYMBOL, Op.FLOOR):
            return sign
        signs = []
        for part in segments(node, self.first, self.last + 1):
            if not isinstance(part.value, LinearForm):
                is_sum = node.op is Op.ADD and sign is Sign.ANY
                return self._sign_of_decays(linear_forms(node)[node]) if is_sum else sign
            signs.append(part.value.sign_between(self.clock, part.first, part.end - 1))
        return facts.weakest(signs)


def are_equal(left: SegmentValue, right: SegmentValue, steps: StepRange) -> str | None:
    """Returns the name of the way in which two values are shown to be equal on some steps."""
    if isinstance(left, LinearForm) and isinstance(right, LinearForm):
        if steps.first == steps.last:
            left, right = (side.fix_clock(steps.clock, steps.first) for side in (left, right))
        return "lines" if left == right else None
    first_term, second_term = (as_term(side, steps.clock) for side in (left, right))
    if steps.first == steps.last:
        first_term, second_term = (_at(side, steps) for side in (first_term, second_term))
    if first_term == second_term:
        return "structure"
    run = steps.clock, steps.first, steps.last
    if _are_identical(normal(first_term, *run), normal(second_term, *run), steps):
        return "identity"
    if not any(node.op is Op.FLOOR for node in walk(first_term, second_term)):
        return None
    way = _way_of_floors(first_term, second_term, steps)
    if way is not None:
        return way
    settled_terms = settle_choices(first_term, *run), settle_choices(second_term, *run)
    return (
        None
        if settled_terms == (first_term, second_term)
        else _way_of_floors(*settled_terms, steps)
    )


def _way_of_floors(left: Term, right: Term, steps: StepRange) -> str | None:
    """The name of the way in which floors of the clock are shown to be equal in two terms."""
    # Within a period the floors have been resolved; a second period would not end.
    if steps.clock == PHASE:
        return None
    if _are_equal_by_floor(left, right, steps):
        return "floor"
    return "period" if _are_equal_by_period(left, right, steps) else None


def _at(side: Term, steps: StepRange) -> Term:
    """A term at the only step."""
    (segment,) = partition(side, steps.clock, steps.first, steps.first + 1)
    return segment.term(steps.clock)


def _are_identical(left: Term, right: Term, steps: StepRange) -> bool:
    """Whether two terms in their normal forms have one canonical form.

    First as they are, then with the choices made that the run decides, then with those shared that
    say the same: each way costs more than the one before it.
    """
    if _are_same(steps, left, right):
        return True
    settled_terms = _with_choices_made(left, steps), _with_choices_made(right, steps)
    if settled_terms != (left, right):
        left, right = settled_terms
        if _are_same(steps, left, right):
            return True
    if not (has_choices(left) and has_choices(right)):
        return False
    sign_of = cache(steps.sign_of)  # many choices have parts in common
    shared_forms = with_shared_choices(
        left, right, partial(_are_same, steps), partial(_are_defined, sign_of)
    )
    return shared_forms != (left, right) and _are_same(steps, *shared_forms)


def _with_choices_made(form: Term, steps: StepRange) -> Term:
    """A normal form with the choices made that the run decides, in its normal form."""
    run = steps.clock, steps.first, steps.last
    settled_form = settle_choices(form, *run)
    return form if settled_form == form else normal(settled_form, *run)


def _are_same(steps: StepRange, left: Term, right: Term) -> bool:
    """Whether the difference is 0: cosines as atoms, angles as variables, then as they are."""
    if left == right:
        return True
    difference = build.subtract(left, right)
    if is_zero(opaque_cosines(difference), steps.sign_of):
        return True
    if not has_trigonometry(difference):
        return False
    by_variables = by_angles(difference, steps.clock, steps.first, steps.last)
    return is_zero(by_variables, steps.sign_of) or is_zero(difference, steps.sign_of)


def _are_equal_by_floor(left: Term, right: Term, steps: StepRange) -> bool:
    """Whether two terms are equal for each whole number in the place of the floors of a line.

    ``floor(p t / q + c)`` is ``floor((p t + [q c]) / q)`` for whole p, q and t. Where the clock is
    met in such floors of one slope, and their constants differ by whole numbers, one of these
    floors is another clock: what holds at all of its steps holds at those it takes.
    """
    floors = {
        node: form
        for node in walk(left, right)
        if node.op is Op.FLOOR
        and (form := line(node.args[0], steps.clock)) is not None
        and form.slope(steps.clock) != 0
    }
    if not floors:
        return False
    count = build.own_symbol(f"floor of {steps.clock.value.name}", integer=True)
    slope = next(iter(floors.values())).slope(steps.clock)
    heights = {node: _in_parts(form.constant, slope) for node, form in floors.items()}
    rest = next(iter(heights.values()))[1]
    if any(
        form.slope(steps.clock) != slope or heights[node][1] != rest
        for node, form in floors.items()
    ):
        return False
    counts = {node: build.add(count, build.rational(whole)) for node, (whole, _) in heights.items()}
    sides = [build.substitute(side, counts) for side in (left, right)]
    if steps.clock in walk(*sides):
        return False
    form = LinearForm(rest, {steps.clock: slope})
    ends = sorted(int(form.at(steps.clock, step).floor()) for step in (steps.first, steps.last))
    lists = [partition(side, count, ends[0], ends[1] + 1) for side in sides]
    return all(
        are_equal(first_side, second_side, StepRange(count, first, end - 1)) is not None
        for first, end, (first_side, second_side) in align_segments(*lists)
    )


def _in_parts(constant: fmpq, slope: fmpq) -> tuple[fmpq, fmpq]:
    """A constant in the floor of multiples of ``1 / q``: a whole number, and k / q below 1."""
    parts = int(slope.q)
    whole, rest = divmod(int((constant * parts).floor()), parts)
    return fmpq(whole), fmpq(rest, parts)


def _are_equal_by_period(left: Term, right: Term, steps: StepRange) -> bool:
    return any(
        _are_equal_in_cycles(left, right, steps, clock, period)
        for clock, period in _cycles(steps, left, right)
    )


def _are_equal_in_cycles(
    left: Term, right: Term, steps: StepRange, clock: Term, period: int
) -> bool:
    sides = [_without_turns(build.substitute(side, {steps.clock: clock})) for side in (left, right)]
    lists = [partition(side, PHASE, 0, period) for side in sides]
    return all(
        are_equal(first_side, second_side, StepRange(PHASE, first, end - 1)) is not None
        for first, end, (first_side, second_side) in align_segments(*lists)
    )


def _without_turns(side: Term) -> Term:
    """A term whose angles hold no whole turns: ``cos(pi (2 n + u))`` is ``cos(pi u)``."""

    def change(rebuilt: Term) -> Term:
        if rebuilt.op not in (Op.COSPI, Op.SINPI):
            return rebuilt
        (angle,) = rebuilt.args
        form = linear_forms(angle).get(angle)
        if form is None:
            return rebuilt
        turns = {
            symbol: multiple
            for symbol, multiple in form.multiples.items()
            if symbol.op is Op.SYMBOL
            and symbol.value.integer
            and multiple.q == 1
            and multiple.p % 2 == 0
        }
        if not turns:
            return rebuilt
        return rebuild(rebuilt, ((form - LinearForm(fmpq(0), turns)).as_term(),))

    return build.rewrite(side, change)


def _cycles(steps: StepRange, *sides: Term) -> Iterator[tuple[Term, int]]:
    """Yields the clock as a term in cycle and phase, and the number of phases, in ways to try.

    First by the common period of all floors. Then by a single floor of a line ``(p t + c) / q``:
    ``p t + c = q * cycle + phase``, where the floor is the cycle; these are more t than there are.
    """
    forms = dict.fromkeys(_floored_forms(steps, *sides))
    # floor(p t / q) has the period q up to a linear term: all floors repeat after the least common
    # multiple.
    period = math.lcm(*(int(form.slope(steps.clock).q) for form in forms))
    if 1 < period <= LIMITS.cycle_period:
        yield build.add(build.multiply(build.rational(period), CYCLE), PHASE), period
    for form in forms:
        slope = form.slope(steps.clock)
        scale = math.lcm(int(slope.q), int(form.constant.q))
        is_long = not 1 < scale <= LIMITS.cycle_period or scale == period
        if is_long or not form.is_line(steps.clock) or slope == 0:
            continue
        least = min(form.at(steps.clock, step) for step in (steps.first, steps.last))
        cycle = CYCLE if least >= 0 else ANY_CYCLE
        phase = build.multiply(build.rational(1, scale), PHASE)
        position = build.add(cycle, phase, build.rational(-form.constant))
        yield build.divide(position, build.rational(slope)), scale


def _floored_forms(steps: StepRange, *sides: Term) -> Iterator[LinearForm]:
    for node in walk(*sides):
        if node.op is Op.FLOOR:
            form = form_on(node.args[0], steps.clock, steps.first, steps.last)
            if form is not None:
                yield form


def is_defined(value: SegmentValue, steps: StepRange) -> bool:
    """Returns whether a value is shown to be defined at every one of some steps."""
    return isinstance(value, LinearForm) or _are_defined(steps.sign_of, value)


def _are_defined(sign_of: Callable[[Term], Sign], root: Term) -> bool:
    return all(operand_fits(node, sign_of) for node in walk(root))


def operand_fits(node: Term, sign_of: Callable[[Term], Sign]) -> bool:
    """Returns whether the signs of its operands show that an operation is defined."""
    match node.op:
        case Op.UNDEFINED | Op.LOOKUP:
            return False
        case Op.DIVIDE:
            return sign_of(node.args[1]) in (Sign.POSITIVE, Sign.NEGATIVE)
        case Op.LOG:
            return sign_of(node.args[0]) is Sign.POSITIVE
        case Op.POWER:
            return _power_fits(node.args[0], node.args[1], sign_of)
        case _:
            return True


def _power_fits(base: Term, exponent: Term, sign_of: Callable[[Term], Sign]) -> bool:
    # x**0 and whole powers are defined for every x.
    if is_rational(exponent) and exponent.value >= 0:
        return exponent.value.q == 1 or sign_of(base) in (Sign.POSITIVE, Sign.NONNEGATIVE)
    if sign_of(base) is Sign.POSITIVE:
        return True
    is_growing = sign_of(exponent) is Sign.POSITIVE
    return is_growing and sign_of(base) is Sign.NONNEGATIVE

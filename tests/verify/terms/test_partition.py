"""Terms as segments of steps: the values are those of the term at every step."""

import random
from collections.abc import Callable

import pytest
import sympy as sp
from flint import fmpq
from hypothesis import given
from hypothesis import strategies as st

from closedform import schedules, t
from closedform.effort import METER
from closedform.language import floor_div, floor_mod
from closedform.verify.terms import build, sympy_io
from closedform.verify.terms.evaluate import Undefined
from closedform.verify.terms.evaluate import value as value_of
from closedform.verify.terms.limits import FOREVER
from closedform.verify.terms.linear import LinearForm
from closedform.verify.terms.partition import Segments, align_segments, partition
from closedform.verify.terms.tree import Op, Sign, Term
from tests.verify.test_soundness import truth

CLOCK = sympy_io.term(t)
X = build.symbol("x")


def values(term: Term, first: int, last: int) -> list[object]:
    """The value at each step, read off the segments; also checks that they cover the steps."""
    segments = partition(term, CLOCK, first, last + 1)
    assert [part.first for part in segments] == [first, *(part.end for part in segments[:-1])]
    assert segments[-1].end == last + 1
    found: list[object] = []
    for part in segments:
        inner = part.term(CLOCK)
        found += [value_of(inner, {"t": fmpq(step)}) for step in range(part.first, part.end)]
    return found


def ends(segments: Segments[int]) -> list[tuple[int, int]]:
    return [(segment.first, segment.end) for segment in segments]


def shown(value: object) -> str:
    return "undefined" if isinstance(value, Undefined) else str(value)


@st.composite
def clock_terms(draw: st.DrawFn, depth: int = 3) -> Term:
    """Terms of the clock and small rationals, of every op that segments decide."""
    if depth == 0 or draw(st.integers(0, 4)) == 0:
        constant = build.rational(draw(st.fractions(-6, 6, max_denominator=4)))
        return draw(st.sampled_from([CLOCK, CLOCK, constant]))
    below = clock_terms(depth=depth - 1)
    one, other = draw(below), draw(below)
    makers: list[Callable[..., Term]] = [
        build.add,
        build.subtract,
        build.minimum,
        build.maximum,
        build.multiply,
    ]
    kind = draw(st.integers(0, 9))
    if kind < 5:
        return makers[kind](one, other)
    if kind == 5:
        return build.absolute(one)
    if kind == 6:
        return build.floor(build.divide(one, build.rational(draw(st.integers(1, 5)))))
    if kind == 7:
        return build.sign(one)
    compare = draw(st.sampled_from([build.less, build.less_equal, build.equal]))
    condition = compare(one, other)
    if kind == 8:
        condition = build.negate(condition)
    return build.ite(condition, draw(below), draw(below))


@given(clock_terms(), st.integers(0, 5), st.integers(0, 30))
def test_segments_have_the_values_of_the_term(term: Term, first: int, width: int) -> None:
    exact = [value_of(term, {"t": fmpq(step)}) for step in range(first, first + width + 1)]
    assert [shown(v) for v in values(term, first, first + width)] == [shown(v) for v in exact]


@given(clock_terms())
def test_segments_of_all_steps_agree_far_out(term: Term) -> None:
    for part in partition(term, CLOCK, 0, 2**50)[-3:]:
        for step in {part.first, part.end - 1, (part.first + part.end) // 2}:
            there = value_of(part.term(CLOCK), {"t": fmpq(step)})
            assert shown(there) == shown(value_of(term, {"t": fmpq(step)}))


def test_a_schedule_of_lines_is_lines() -> None:
    term = sympy_io.term(schedules.linear(0, 1, 4).then(schedules.constant(1)).bound)
    segments = partition(term, CLOCK, 0, 2**50)
    assert all(isinstance(segment.value, LinearForm) for segment in segments)
    assert ends(segments) == [(0, 4), (4, 2**50)]


def test_a_chain_of_ten_thousand_branches_is_ten_thousand_segments() -> None:
    term = build.UNDEFINED
    for mark in range(10_000, 0, -1):
        term = build.ite(
            build.less(CLOCK, build.rational(7 * mark)), build.rational(mark % 3), term
        )
    segments = partition(term, CLOCK, 0, FOREVER)
    assert len(segments) == 10_001
    assert segments[-1].value == build.UNDEFINED
    assert [segment.value for segment in segments[:3]] == [LinearForm(fmpq(n)) for n in (1, 2, 0)]


def test_segments_are_counted_as_work() -> None:
    before = METER.work
    segments = partition(
        sympy_io.term(floor_mod(t, 12) + floor_mod(t, 1001)), CLOCK, 0, 12_012, levels=5000
    )
    assert METER.work - before >= 10 * len(segments) > 10_000


def test_deep_terms_need_no_recursion() -> None:
    term: Term = CLOCK
    for mark in range(2000):
        term = build.maximum(build.minimum(term, build.rational(9 * mark + 9)), build.rational(3))
    assert ends(partition(term, CLOCK, 0, FOREVER))[:1] == [(0, 4)]


def test_other_symbols_go_along_and_decide_nothing() -> None:
    both = build.add(CLOCK, build.multiply(build.rational(3), X))
    (segment,) = partition(build.subtract(both, X), CLOCK, 0, 10)
    assert segment.value == LinearForm(multiples={CLOCK: fmpq(1), X: fmpq(2)})
    (segment,) = partition(build.less(both, build.rational(3)), CLOCK, 0, 10)
    assert isinstance(segment.value, Term)
    assert segment.value.op is Op.LESS
    cancelled = build.less(build.subtract(both, both), build.rational(3))
    assert [part.value for part in partition(cancelled, CLOCK, 0, 10)] == [build.TRUE]


def test_whole_multiples_of_integers_leave_a_floor() -> None:
    k = build.symbol("k", integer=True)
    inside = build.add(
        build.multiply(build.rational(2), k), build.multiply(build.rational(1, 5), CLOCK)
    )
    segments = partition(build.floor(inside), CLOCK, 0, 10)
    assert ends(segments) == [(0, 5), (5, 10)]
    assert segments[1].value == LinearForm(fmpq(1), {k: fmpq(2)})
    (segment,) = partition(build.floor(build.multiply(build.rational(1, 2), k)), CLOCK, 0, 10)
    assert isinstance(segment.value, Term)


def test_a_lookup_is_its_elements_where_the_index_is_a_line() -> None:
    term = build.lookup([5, 7, 9], build.subtract(CLOCK, build.rational(1)))
    assert [shown(value) for value in values(term, 0, 4)] == [
        "undefined",
        "5",
        "7",
        "9",
        "undefined",
    ]


@pytest.mark.parametrize("expr", [floor_mod(t, 7) - 3, floor_div(3 * t + 1, 4), sp.Abs(t - 5) / 3])
def test_segments_of_floors(expr: sp.Expr) -> None:
    term = sympy_io.term(expr)
    assert values(term, 0, 40) == [value_of(term, {"t": fmpq(step)}) for step in range(41)]


def test_aligned_segments_end_where_any_one_changes() -> None:
    first = partition(build.minimum(CLOCK, build.rational(4)), CLOCK, 0, 10)
    second = partition(build.less(CLOCK, build.rational(7)), CLOCK, 0, 10)
    assert [(start, end) for start, end, _ in align_segments(first, second)] == [
        (0, 4),
        (4, 7),
        (7, 10),
    ]


def test_segments_of_drawn_statements_have_their_values() -> None:
    clock = build.symbol("t", integer=True, sign=Sign.NONNEGATIVE)
    chance = random.Random(9)
    for _ in range(150):
        goal = truth(chance, [clock], 3)
        for part in partition(goal, clock, 0, 41, levels=3000):
            for step in {part.first, (part.first + part.last) // 2, part.last}:
                point = {"t": fmpq(step)}
                before, after = value_of(goal, point), value_of(part.term(clock), point)
                is_undefined = isinstance(before, Undefined) and isinstance(after, Undefined)
                assert is_undefined or before == after, f"{goal} at {step}: {before}, {after}"


def _line(slope: int, height: int) -> Term:
    return build.add(build.multiply(build.rational(slope), CLOCK), build.rational(height))


@pytest.mark.parametrize(
    ("goal", "segments"),
    [
        (build.less(_line(2, 0), build.rational(7)), [(0, 4, True), (4, FOREVER, False)]),
        (build.less_equal(_line(2, 0), build.rational(6)), [(0, 4, True), (4, FOREVER, False)]),
        (
            build.equal(_line(2, 0), build.rational(6)),
            [(0, 3, False), (3, 4, True), (4, FOREVER, False)],
        ),
        (build.equal(_line(2, 0), build.rational(7)), [(0, FOREVER, False)]),
        (build.less(build.rational(7), _line(2, 0)), [(0, 4, False), (4, FOREVER, True)]),
        (build.less(build.ZERO, build.sign(_line(1, -3))), [(0, 4, False), (4, FOREVER, True)]),
    ],
)
def test_comparisons_of_lines_change_where_they_cross(
    goal: Term, segments: list[tuple[int, int, bool]]
) -> None:
    parts = partition(goal, CLOCK, 0, FOREVER)
    assert [(part.first, part.end, part.value == build.TRUE) for part in parts] == segments

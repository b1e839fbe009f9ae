"""Goals about pairs: schedules of two systems, closed forms and recurrences, planted
faults. Names end in what is wrong where a goal is expected to be refuted."""

from collections.abc import Callable, Iterator
from typing import Any

import sympy as sp
from sympy import Abs, And, Eq, Max, Min, Or, Rational, cos, pi, sqrt
from sympy import Piecewise as Pw

from closedform.language import floor_div, floor_mod, hyper, t
from closedform.verify.terms.build import both, equal, substitute
from closedform.verify.terms.definedness import obligations
from closedform.verify.terms.sympy_io import term
from closedform.verify.terms.verdict import Status
from tests.verify.goals import PROVED, REFUTED, Goal, at, at_most, below, same, terms_of
from tests.verify.goals_schedules import (
    CASES_BY_NAME,
    COSINE_ANNEALING,
    COSINE_DECAY,
    LINEAR,
    MULTISTEP,
    POLYNOMIAL,
    POLYNOMIAL_CYCLE,
    POSITION,
    S1,
    S2,
    T0,
    WSD,
    D,
    S,
    T,
    W,
    along_cosine,
    b,
    e,
    g,
    i0,
    m,
    m1,
    m2,
    m3,
    mn,
    mx,
    p,
    pct,
    warm_restarts,
)

c = hyper("c")
BEFORE = hyper("before")
ORDER = (b >= e, e >= 0)
STEPS = (*ORDER, T >= 1)
MILESTONES = (b > 0, g > 0, m1 >= 1, m2 > m1, m3 > m2)
PART = (T >= 2, pct * T > 1, pct < 1, mx >= i0, i0 >= mn, mn >= 0)
ONE_CYCLE_COSINE = CASES_BY_NAME["one cycle 2 cosine"].formula
ONE_CYCLE_LINE = CASES_BY_NAME["one cycle 2 linear"].formula


def equality_goals() -> Iterator[Goal]:
    """Equalities, inductions and planted faults."""
    yield from _equalities()
    yield from _inductions()
    yield from _planted()


def _goal(name: str, goal: Any, assume: tuple[Any, ...], expected: Status = PROVED) -> Goal:
    return Goal(name, goal, terms_of(assume), expected)


def _equalities() -> Iterator[Goal]:
    restart = along_cosine(b, e, floor_mod(t, T0) / T0)
    as_implemented = along_cosine(b, e, Pw((t, t < T0), (floor_div(t, T0) * T0 - T0, True)) / T0)
    _, inside, length = warm_restarts(m)
    double = 2 * S1
    place = t / double - floor_div(double + t, double) + 1
    counted = sum((Pw((1, t >= each), (0, True)) for each in (m1, m2, m3)), sp.Integer(0))
    torch_cycle = Pw(
        (mx + (i0 - mx) / 2 * (1 + cos(pi * (t / (pct * T - 1)))), t <= pct * T - 1),
        (mn + (mx - mn) / 2 * (1 + cos(pi * ((t - (pct * T - 1)) / (T - pct * T)))), True),
    )
    line = b * (i0 + (mn - i0) * Min(T, t) / T)
    two_points = Pw((b * mn, t >= T), ((b * i0 - b * mn) * (1 - t / T) + b * mn, True))
    power_to_zero = Pw((0, t >= T), (b * (1 - t / T) ** p, True))
    clamped = Pw(
        (b * t / W, t < W), (e + (b - e) * (1 - sqrt(Min(Max(t - W - S, 0) / D, 1))), True)
    )
    yield _goal("decay is annealing to T", same(COSINE_DECAY, COSINE_ANNEALING), (*STEPS, t <= T))
    yield _goal("decay is annealing beyond T", same(COSINE_DECAY, COSINE_ANNEALING), STEPS, REFUTED)
    yield _goal("polynomial 1 is linear", same(at(POLYNOMIAL, {p: 1}), LINEAR), STEPS)
    yield _goal(
        "line of torch is that of cerebras",
        same(line, two_points),
        (T >= 1, b > 0, i0 > 0, mn >= 0),
    )
    yield _goal(
        "polynomial of torch is that of cerebras",
        same(b * (1 - Min(T, t) / T) ** p, power_to_zero),
        (T >= 1, b > 0, p > 0),
    )
    yield _goal("cycle has no effect", same(POLYNOMIAL_CYCLE, POLYNOMIAL), (*STEPS, p > 0))
    yield _goal(
        "half angle", same(COSINE_ANNEALING, e + (b - e) * cos(pi * t / (2 * T)) ** 2), STEPS
    )
    yield _goal("period 2T", same(COSINE_ANNEALING, at(COSINE_ANNEALING, {t: t + 2 * T})), STEPS)
    yield _goal(
        "reduced modulo 2T",
        same(COSINE_ANNEALING, at(COSINE_ANNEALING, {t: floor_mod(t, 2 * T)})),
        STEPS,
    )
    yield _goal(
        "folded to a triangle",
        same(COSINE_ANNEALING, at(COSINE_ANNEALING, {t: Abs(floor_mod(t + T, 2 * T) - T)})),
        STEPS,
    )
    yield _goal(
        "restarts of cerebras are those of torch",
        same(as_implemented, restart),
        (*ORDER, T0 >= 2, b > e),
        REFUTED,
    )
    yield _goal(
        "restarts agree in the first period",
        same(as_implemented, restart),
        (*ORDER, T0 >= 2, b > e, t < T0),
    )
    yield _goal(
        "restart clock is inside its period",
        both(at_most(0, inside), below(inside, length)),
        (T0 >= 1, m > 1),
    )
    yield _goal(
        "two cyclic forms",
        same(
            Pw((2 * place, place <= Rational(1, 2)), (2 - 2 * place, True)),
            Max(0, 1 - Abs(t / S1 - 2 * floor_div(double + t, double) + 1)),
        ),
        (S1 >= 1,),
    )
    chain = b * Pw((1, t < m1), (g, t < m2), (g**2, t < m3), (g**3, True))
    yield _goal("multistep as a chain", same(MULTISTEP, chain), MILESTONES)
    yield _goal("multistep as a count", same(MULTISTEP, b * g**counted), MILESTONES)
    yield _goal("one cycle of torch", same(ONE_CYCLE_COSINE, torch_cycle), PART)
    yield _goal("wsd by clamps", same(WSD, clamped), (*ORDER, W >= 1, S >= 0, D >= 1))
    yield _goal(
        "power by exp and log",
        same(b * g ** (t / T), b * sp.exp(t * sp.log(g) / T)),
        (b > 0, g > 0, T >= 1),
    )


Step = Callable[[Any, Any], Any]


def _induction(
    name: str,
    closed: Any,
    step: Step,
    assume: tuple[Any, ...],
    base: Any,
    expected: Status = PROVED,
) -> Iterator[Goal]:
    """The closed form begins at the base, obeys the recurrence, and that is always defined."""
    # The closed form is put in as a term: SymPy would cancel a divisor that may be 0.
    following = substitute(term(step(BEFORE, t + 1)), {term(BEFORE): term(closed)})
    reached = equal(term(at(closed, {t: t + 1})), following)
    yield _goal(f"{name}: base", same(at(closed, {t: 0}), base), assume)
    yield _goal(f"{name}: step", reached, assume, expected)
    for found in obligations(following) if expected is PROVED else ():
        given = (*terms_of(assume), *found.path)
        yield Goal(f"{name}: step defined {found.text}", found.goal, given, PROVED)


def _cosine_step(shift: int) -> Step:
    def step(previous: Any, now: Any) -> Any:
        restart = previous + (b - e) * (1 - cos(pi / T)) / 2
        ratio = (1 + cos(pi * now / T)) / (1 + cos(pi * (now - 1) / T))
        at_end = Eq(floor_mod(now - shift - T, 2 * T), 0, evaluate=False)
        return Pw((restart, at_end), (ratio * (previous - e) + e, True))

    return step


def _line_step(shift: int) -> Step:
    def step(previous: Any, now: Any) -> Any:
        growth = 1 + (mn - i0) / (T * i0 + (now - shift) * (mn - i0))
        return Pw((previous, now > T), (previous * growth, True))

    return step


def _power_step(exponent: Any) -> Step:
    def step(previous: Any, now: Any) -> Any:
        factor = ((1 - now / T) / (1 - (now - 1) / T)) ** exponent
        return Pw((previous, now > T), (previous * factor, True))

    return step


def _inductions() -> Iterator[Goal]:
    decayed = (b > 0, g > 0)
    line = b * (i0 + (mn - i0) * Min(T, t) / T)
    line_given = (b > 0, i0 > 0, i0 <= 1, mn >= 0, mn <= 1, T >= 1)
    local = Max(0, t - W)
    yield from _induction("exponential", b * g**t, lambda v, _: v * g, decayed, b)
    yield from _induction(
        "step",
        b * g ** floor_div(t, S),
        lambda v, now: Pw((v * g, Eq(floor_mod(now, S), 0, evaluate=False)), (v, True)),
        (*decayed, S >= 1),
        b,
    )
    yield from _induction(
        "multistep",
        MULTISTEP,
        lambda v, now: Pw((v * g, Or(Eq(now, m1), Eq(now, m2), Eq(now, m3))), (v, True)),
        MILESTONES,
        b,
    )
    yield from _induction(
        "constant",
        b * Pw((c, t < T), (1, True)),
        lambda v, now: Pw((v / c, Eq(now, T)), (v, True)),
        (b > 0, c > 0, T >= 1),
        b * c,
    )
    yield from _induction("linear", line, _line_step(1), line_given, b * i0)
    for name, exponent in (("polynomial", p), ("polynomial 2", sp.Integer(2))):
        yield from _induction(
            name,
            b * (1 - Min(T, t) / T) ** exponent,
            _power_step(exponent),
            (b > 0, p > 0, T >= 1),
            b,
        )
    yield from _induction("cosine annealing", COSINE_ANNEALING, _cosine_step(1), STEPS, b)
    yield from _induction(
        "cosine annealing, one late",
        COSINE_ANNEALING,
        _cosine_step(0),
        (b > e, e >= 0, T >= 1),
        b,
        REFUTED,
    )
    yield _goal(
        "exponential, one late: base", same(at(b * g ** (t + 1), {t: 0}), b), decayed, REFUTED
    )
    yield from _induction("linear, one late", line, _line_step(0), line_given, b * i0, REFUTED)
    yield from _induction("multiplicative", b * c**t, lambda v, _: v * c, (b > 0, c > 0), b)
    yield from _induction(
        "restart clock",
        floor_mod(t, T0),
        lambda v, _: Pw((v + 1 - T0, v + 1 >= T0), (v + 1, True)),
        (T0 >= 1,),
        0,
    )
    waiting = (W >= 1,)
    yield from _induction(
        "local clock", local, lambda v, now: v + Pw((0, now <= W), (1, True)), waiting, 0
    )
    yield from _induction(
        "local clock, one late",
        local,
        lambda v, now: v + Pw((0, now < W), (1, True)),
        waiting,
        0,
        REFUTED,
    )


def _planted() -> Iterator[Goal]:
    fall = (b - e) * (1 - t / T) + e
    swapped = S2 / (S1 + S2)
    wrong_triangle = Pw(
        (POSITION / swapped, POSITION <= swapped),
        ((POSITION - 1) / (S1 / (S1 + S2) - 1), True),
    )
    late = Pw(
        (b * t / W, t < W),
        (b, t <= W + S),
        (e + (b - e) * (1 - sqrt((t - W - S - 1) / D)), t < W + S + D),
        (e, True),
    )
    wrong_sign = e + (b - e) * (1 - cos(pi * Min(T, t) / T)) / 2 + e
    no_half = e + (b - e) * (1 + cos(pi * Min(T, t) / T))
    needle = Pw((b + 1, Eq(t, T * W + 1)), (b, True))
    seldom = Pw((b + 1, And(Eq(floor_mod(T, 97), 0, evaluate=False), t > T)), (b, True))
    yield _goal("clamp one late", at_most(e, Pw((fall, t <= T + 1), (e, True))), STEPS, REFUTED)
    yield _goal("<= or < at a joint", same(Pw((fall, t <= T), (e, True)), LINEAR), STEPS)
    yield _goal(
        "<= or < at a jump",
        same(Pw((b, t <= m1), (b * g, True)), Pw((b, t < m1), (b * g, True))),
        (b > 0, g > 0, g < 1, m1 >= 1),
        REFUTED,
    )
    yield _goal("cosine of wrong sign", at_most(wrong_sign, b), STEPS, REFUTED)
    yield _goal("cosine without its half", at_most(no_half, b), STEPS, REFUTED)
    yield _goal(
        "square without its clamp", at_most((b - e) * (1 - t / T) ** 2 + e, b), STEPS, REFUTED
    )
    yield _goal("line without its clamp", at_most(e, fall), STEPS, REFUTED)
    yield _goal("decay one late", same(late, WSD), (*ORDER, W >= 1, S >= 0, D >= 2), REFUTED)
    yield _goal(
        "triangle with its sides swapped",
        at_most(e + (mx - e) * wrong_triangle, mx),
        (mx >= e, e >= 0, S1 >= 1, S2 >= 1),
        REFUTED,
    )
    yield _goal("root of a minimum", at_most(b / sqrt(Min(W, t)), b), (b > 0, W >= 1), REFUTED)
    yield _goal("one cycle past its end", at_most(mn, ONE_CYCLE_LINE), PART, REFUTED)
    yield _goal(
        "one cycle with no first part",
        at_most(mn, ONE_CYCLE_LINE),
        (T >= 2, pct * T >= 1, pct < 1, mx >= i0, i0 >= mn, mn >= 0, t <= T - 1),
        REFUTED,
    )
    yield _goal("root at no warmup", at_most(0, b / sqrt(Max(W, t))), (b > 0, W >= 0), REFUTED)
    yield _goal("a needle", same(needle, b), (b > 0, T >= 1000, W >= 1000), REFUTED)
    yield _goal("seldom wrong", same(seldom, b), (b > 0, T >= 1), REFUTED)

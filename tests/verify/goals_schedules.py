"""Goals about 29 schedules with symbolic parameters.

Branches (covering, each reachable), definedness with and without path conditions, both bounds,
monotone in each phase, continuous at each boundary. A goal that is really false is expected to be
refuted: a branch that can be reached refutes the claim that it cannot.
"""

from collections.abc import Iterator
from dataclasses import dataclass
from typing import Any

import sympy as sp
from sympy import Min, cos, pi, sqrt
from sympy import Piecewise as Pw

from closedform.language import floor_div, floor_mod, hyper, t
from closedform.verify.terms.build import (
    ONE,
    ZERO,
    add,
    either,
    equal,
    less,
    less_equal,
    negate,
    power,
    substitute,
    symbol,
)
from closedform.verify.terms.definedness import obligations
from closedform.verify.terms.sympy_io import term
from closedform.verify.terms.tree import Op, Term, show, walk
from tests.verify.goals import PROVED, REFUTED, Goal, terms_of

T, W, S, D, T0, S1, S2, m1, m2, m3 = (
    hyper(name, integer=True) for name in ("T", "W", "S", "D", "T0", "S1", "S2", "m1", "m2", "m3")
)
n = hyper("n", integer=True)
b, e, g, p, r, sc, k, mx, i0, mn, pct, m = (
    hyper(name) for name in ("b", "e", "g", "p", "r", "sc", "k", "mx", "i0", "mn", "pct", "m")
)
v0, v1, v2 = (hyper(name) for name in ("v0", "v1", "v2"))
LATER = symbol("s", integer=True)
CLOCK = term(t)
ALWAYS = sp.true

FALLING, RISING = "falling", "rising"


@dataclass(frozen=True, slots=True)
class Case:
    """A schedule of the table: its formula, what is assumed, its bounds and phases."""

    name: str
    formula: Any
    assume: tuple[Any, ...]
    low: Any
    high: Any
    phases: tuple[tuple[Any, str], ...]
    jumps: tuple[str, ...] = ()  # kinds of boundary at which it is not continuous
    unsafe: tuple[str, ...] = ()  # kinds of operation on the clock, unsafe where not taken
    is_joined: bool = True  # False: continuity is not asked


def along_cosine(a: Any, c: Any, u: Any) -> Any:
    return c + (a - c) * (1 + cos(pi * u)) / 2


def along_line(a: Any, c: Any, u: Any) -> Any:
    return a + (c - a) * u


def warm_restarts(factor: Any) -> tuple[Any, Any, Any]:
    """The value, the step in the period, the length of the period."""
    index = floor_div(sp.log(t * (factor - 1) / T0 + 1), sp.log(factor))
    length = T0 * factor**index
    inside = t - T0 * (factor**index - 1) / (factor - 1)
    return along_cosine(b, e, inside / length), inside, length


LINEAR = Pw((e, t >= T), ((b - e) * (1 - t / T) + e, True))
POLYNOMIAL = Pw((e, t >= T), ((b - e) * (1 - t / T) ** p + e, True))
CYCLE = -floor_div(-(t + 1), T)
POLYNOMIAL_CYCLE = Pw((e, t >= T), ((b - e) * (1 - t / (T * CYCLE)) ** p + e, True))
COSINE_DECAY = along_cosine(b, e, Min(T, t) / T)
COSINE_ANNEALING = along_cosine(b, e, t / T)
MULTISTEP = b * Pw((1, t < m1), (g, True)) * Pw((1, t < m2), (g, True)) * Pw((1, t < m3), (g, True))
_TOTAL = S1 + S2
_CYCLES = floor_div(_TOTAL + t, _TOTAL)
POSITION = t / _TOTAL - _CYCLES + 1
_RATIO = S1 / _TOTAL
TRIANGLE = Pw((POSITION / _RATIO, POSITION <= _RATIO), ((POSITION - 1) / (_RATIO - 1), True))
A1, A2, A3 = pct * T - 1, 2 * pct * T - 2, T - 1
WSD = Pw(
    (b * t / W, t < W),
    (b, t < W + S),
    (e + (b - e) * (1 - sqrt((t - W - S) / D)), t < W + S + D),
    (e, True),
)
WARMUP_COSINE = Pw((i0 + (b - i0) * t / W, t < W), (along_cosine(b, e, Min(t - W, T) / T), True))
K_DECAY = Pw(
    (i0 + (b - i0) * t / W, t < W),
    (along_cosine(b, e, (t - W) ** k / T**k), t <= W + T),
    (e, True),
)


def one_cycle_two(blend: Any) -> Any:
    return Pw((blend(i0, mx, t / A1), t <= A1), (blend(mx, mn, (t - A1) / (A3 - A1)), True))


def one_cycle_three(blend: Any) -> Any:
    return Pw(
        (blend(i0, mx, t / A1), t <= A1),
        (blend(mx, i0, (t - A1) / (A2 - A1)), t <= A2),
        (blend(i0, mn, (t - A2) / (A3 - A2)), True),
    )


_FALLS = ((ALWAYS, FALLING),)
_ORDER = (b >= e, e >= 0)
_FACTOR = (b > 0, g > 0, g <= 1)
_CYCLIC = (mx >= e, e >= 0, S1 >= 1, S2 >= 1)
_ONE_CYCLE = (mx >= i0, i0 >= mn, mn >= 0, T >= 2, pct * T > 1, pct <= 1, t <= T - 1)
_WAVE = ((t <= S1, RISING), (sp.And(t >= S1, t <= S1 + S2), FALLING))
_HILL = ((t <= A1, RISING), (t > A1, FALLING))
_WARM = ((t <= W, RISING), (t >= W, FALLING))
_TWO, _THREE = (*_ONE_CYCLE, pct < 1), (*_ONE_CYCLE, 2 * pct * T - 2 < T - 1)

CASES = [
    Case("constant", b, (b > 0,), b, b, _FALLS),
    Case("linear", LINEAR, (*_ORDER, T >= 1), e, b, _FALLS),
    Case("polynomial 2", POLYNOMIAL.xreplace({p: sp.Integer(2)}), (*_ORDER, T >= 1), e, b, _FALLS),
    Case("polynomial", POLYNOMIAL, (*_ORDER, T >= 1, p > 0), e, b, _FALLS, unsafe=("power",)),
    Case(
        "polynomial cycle",
        POLYNOMIAL_CYCLE,
        (*_ORDER, T >= 1, p > 0),
        e,
        b,
        _FALLS,
        is_joined=False,
    ),
    Case("exponential", b * g ** (t / T), (*_FACTOR, T >= 1), 0, b, _FALLS),
    Case(
        "exponential stairs",
        b * g ** floor_div(t, T),
        (*_FACTOR, T >= 1),
        0,
        b,
        _FALLS,
        jumps=("floor",),
    ),
    Case("inverse time", b / (1 + r * t / T), (b > 0, r >= 0, T >= 1), 0, b, _FALLS),
    Case(
        "inverse time power", b / (1 + r * t**n / T), (b > 0, r >= 0, T >= 1, n > 0), 0, b, _FALLS
    ),
    Case(
        "inverse time stairs",
        b / (1 + r * floor_div(t, T)),
        (b > 0, r >= 0, T >= 1),
        0,
        b,
        _FALLS,
        jumps=("floor",),
    ),
    Case(
        "inverse root",
        b * sc / sqrt(sp.Max(W, t)),
        (b > 0, sc > 0, W >= 1),
        0,
        b * sc / sqrt(W),
        _FALLS,
    ),
    Case("cosine decay", COSINE_DECAY, (*_ORDER, T >= 1), e, b, _FALLS),
    Case(
        "cosine annealing",
        COSINE_ANNEALING,
        (*_ORDER, T >= 1),
        e,
        b,
        ((t <= T, FALLING), (sp.And(t >= T, t <= 2 * T), RISING)),
    ),
    Case(
        "warm restarts 1",
        along_cosine(b, e, floor_mod(t, T0) / T0),
        (*_ORDER, T0 >= 1),
        e,
        b,
        ((sp.Lt(t, T0), FALLING),),
        jumps=("floor",),
    ),
    Case(
        "warm restarts 2",
        warm_restarts(2)[0],
        (*_ORDER, T0 >= 1),
        e,
        b,
        ((sp.Lt(t, T0), FALLING),),
        jumps=("floor",),
    ),
    Case(
        "warm restarts m",
        warm_restarts(m)[0],
        (*_ORDER, T0 >= 1, m > 1),
        e,
        b,
        ((sp.Lt(t, T0), FALLING),),
        jumps=("floor",),
    ),
    Case("step", b * g ** floor_div(t, S), (*_FACTOR, S >= 1), 0, b, _FALLS, jumps=("floor",)),
    Case(
        "multistep",
        MULTISTEP,
        (*_FACTOR, m1 >= 1, m2 > m1, m3 > m2),
        0,
        b,
        _FALLS,
        jumps=("branch",),
    ),
    Case(
        "segments",
        Pw((v0, t < m1), (v1, sp.And(t >= m1, t < m2)), (v2, t >= m2)),
        (v0 >= v1, v1 >= v2, v2 >= 0, m1 >= 1, m2 > m1),
        v2,
        v0,
        _FALLS,
        jumps=("branch",),
    ),
    Case("triangular", e + (mx - e) * TRIANGLE, _CYCLIC, e, mx, _WAVE),
    Case("triangular2", e + (mx - e) * TRIANGLE * 2 ** (1 - _CYCLES), _CYCLIC, e, mx, _WAVE),
    Case(
        "exp_range",
        e + (mx - e) * TRIANGLE * g**t,
        (*_CYCLIC, g > 0, g <= 1),
        e,
        mx,
        _WAVE[1:],
    ),
    Case("one cycle 2 cosine", one_cycle_two(along_cosine), _TWO, mn, mx, _HILL),
    Case("one cycle 3 cosine", one_cycle_three(along_cosine), _THREE, mn, mx, _HILL),
    Case("one cycle 2 linear", one_cycle_two(along_line), _TWO, mn, mx, _HILL),
    Case("one cycle 3 linear", one_cycle_three(along_line), _THREE, mn, mx, _HILL),
    Case(
        "warmup cosine",
        WARMUP_COSINE,
        (*_ORDER, i0 >= e, b >= i0, W >= 1, T >= 1),
        e,
        b,
        _WARM,
    ),
    Case("wsd", WSD, (*_ORDER, W >= 1, S >= 0, D >= 1), 0, b, _WARM, unsafe=("root",)),
    Case(
        "k decay",
        K_DECAY,
        (*_ORDER, b >= i0, i0 >= e, W >= 1, T >= 1, k > 0),
        e,
        b,
        _WARM,
        unsafe=("power",),
    ),
]
CASES_BY_NAME = {case.name: case for case in CASES}


def schedule_goals() -> Iterator[Goal]:
    """All goals of all schedules, by part."""
    for case in CASES:
        formula, given = term(sp.sympify(case.formula)), terms_of(case.assume)
        yield from _branches(case, formula, given)
        yield from _definedness(case, formula, given)
        low, high = term(sp.sympify(case.low)), term(sp.sympify(case.high))
        yield Goal(f"{case.name}: low", less_equal(low, formula), given, PROVED)
        yield Goal(f"{case.name}: high", less_equal(formula, high), given, PROVED)
        yield from _phases(case, formula, given)
        if case.is_joined:
            yield from _continuity(case, formula, given)


def _chain(node: Term) -> tuple[list[Term], Term]:
    conditions = []
    while node.op is Op.ITE:
        conditions.append(node.args[0])
        node = node.args[2]
    return conditions, node


def _branches(case: Case, formula: Term, given: tuple[Term, ...]) -> Iterator[Goal]:
    """Every branch can be reached; without a last one the conditions cover everything."""
    for node in walk(formula):
        if node.op is not Op.ITE:
            continue
        conditions, last = _chain(node)
        covers = REFUTED if last.op is not Op.UNDEFINED else PROVED
        yield Goal(f"{case.name}: covers", either(*conditions), given, covers)
        for place, condition in enumerate(conditions):
            before = tuple(negate(each) for each in conditions[:place])
            name = f"{case.name}: never in branch {show(condition)}"
            yield Goal(name, negate(condition), (*given, *before), REFUTED)


def _definedness(case: Case, formula: Term, given: tuple[Term, ...]) -> Iterator[Goal]:
    for found in obligations(formula):
        name = f"{case.name}: defined {found.text}"
        yield Goal(name, found.goal, (*given, *found.path), PROVED)
    for found in obligations(formula, taken=False):
        is_unsafe = found.kind in case.unsafe and CLOCK in walk(found.goal)
        expected = REFUTED if is_unsafe else PROVED
        yield Goal(f"{case.name}: safe {found.text}", found.goal, given, expected)


def _phases(case: Case, formula: Term, given: tuple[Term, ...]) -> Iterator[Goal]:
    """Two copies of the clock, one later, both in the phase."""
    swap = {CLOCK: LATER}
    later = substitute(formula, swap)
    ordered = (less(CLOCK, LATER), less_equal(ZERO, LATER))
    again = tuple(substitute(each, swap) for each in given if CLOCK in walk(each))
    for condition, direction in case.phases:
        inside = () if condition is ALWAYS else terms_of((condition,))
        inside += tuple(substitute(each, swap) for each in inside)
        goal = less_equal(later, formula) if direction is FALLING else less_equal(formula, later)
        name = f"{case.name}: {direction} on {condition}"
        yield Goal(name, goal, (*given, *inside, *ordered, *again), PROVED)


def _continuity(case: Case, formula: Term, given: tuple[Term, ...]) -> Iterator[Goal]:
    """Where one branch ends its value is that of the next; where a floor jumps, no jump."""
    for node in walk(formula):
        if node.op is Op.ITE and node.args[0].op in (Op.LESS, Op.LESS_EQUAL):
            condition, before, after = node.args
            after = after.args[1] if after.op is Op.ITE else after
            if after.op is Op.UNDEFINED:
                continue
            border = equal(*condition.args)
            expected = REFUTED if "branch" in case.jumps else PROVED
            name = f"{case.name}: joined at {show(border)}"
            yield Goal(name, equal(before, after), (*given, border), expected)
        if node.op is Op.FLOOR:
            yield _floor_jump(case, formula, node, given)


def _floor_jump(case: Case, formula: Term, node: Term, given: tuple[Term, ...]) -> Goal:
    whole = symbol("j", integer=True)
    following = add(whole, ONE)
    before, after = (substitute(formula, {node: each}) for each in (whole, following))
    inner = node.args[0]
    at_jump = equal(inner, following)
    if inner.op is Op.DIVIDE and inner.args[0].op is Op.LOG:
        of, base = (arg.args[0] for arg in inner.args)
        at_jump = equal(of, power(base, following))
    expected = REFUTED if "floor" in case.jumps else PROVED
    name = f"{case.name}: joined where {show(node)} jumps"
    return Goal(name, equal(before, after), (*given, at_jump, less_equal(ZERO, whole)), expected)

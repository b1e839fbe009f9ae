"""Exact values: which branch is taken, also where a comparison is irrational or has no value."""

import math
import random
from fractions import Fraction
from typing import Any

import numpy as np
import pytest
import sympy as sp

import closedform as cf
from closedform.compiler import compile_schedule
from closedform.errors import DomainError, LimitError
from closedform.ir import DType
from closedform.ir.evaluate import evaluate
from closedform.language import Schedule, floor_div, floor_mod, t
from closedform.language.exact import holds_at, to_float, to_odd_float, value_at
from closedform.options import ANY_STEPS, GraphOptions

ROOTS = sp.sqrt(t) + sp.sqrt(t + 1)
NESTED = sp.sqrt(5 + 2 * sp.sqrt(6))  # ROOTS at t = 2, which SymPy does not see


@pytest.mark.parametrize(
    ("condition", "steps"),
    [
        (sp.And(t > 2, t < 5), {3, 4}),
        (sp.Or(t < 2, t > 7), {0, 1, 8, 9}),
        (sp.Not(sp.And(t > 2, t < 5), evaluate=False), {0, 1, 2, 5, 6, 7, 8, 9}),
        (sp.ITE(t < 5, t > 2, t > 8), {3, 4, 9}),
        (sp.Eq(ROOTS, NESTED), {2}),
        (sp.Ne(ROOTS, NESTED), set(range(10)) - {2}),
        (ROOTS < NESTED, {0, 1}),
        (ROOTS > NESTED, set(range(3, 10))),
        (ROOTS <= NESTED, {0, 1, 2}),
        (ROOTS >= NESTED, set(range(2, 10))),
        # An argument without a value matters only where no other one decides.
        (sp.Or(t < 1, 1 / t > sp.Rational(1, 3)), {0, 1, 2}),
        (sp.And(t > 0, 1 / t > sp.Rational(1, 3)), {1, 2}),
    ],
)
def test_conditions(condition: sp.Basic, steps: set[int]) -> None:
    assert {k for k in range(10) if holds_at(condition, {t: sp.Integer(k)})} == steps


def test_an_argument_that_decides_alone_must_have_a_value() -> None:
    with pytest.raises(DomainError):
        holds_at(sp.And(t < 1, 1 / t > 0), {t: sp.Integer(0)})


def test_values_round_once() -> None:
    value = value_at(sp.Piecewise((t / 3, t < 5), (sp.sqrt(t), True)), {t: sp.Integer(2)})
    assert value == sp.Rational(2, 3)
    assert to_float(value) == 2 / 3
    assert to_float(sp.sqrt(2)) == 2**0.5


# --- floors of numbers that are not rational -----------------------------------------------------

BASES = (sp.Integer(2), sp.Integer(3), sp.Integer(10), sp.Rational(3, 2), sp.Integer(7))


def drawn_numbers(seed: int) -> list[sp.Expr]:
    """Logarithms, roots and cosines in t, some of which are integers at some steps."""
    rng = random.Random(seed)
    factor = sp.Rational(rng.randint(1, 9), rng.randint(1, 9))
    return [
        sp.log(factor * (t + 1)) / sp.log(rng.choice(BASES)),
        factor * sp.sqrt(t + 1) + sp.sqrt(2),
        factor * (t + 1) ** sp.Rational(1, 3),
        10 * factor * sp.cos(sp.pi * t / 7),
        sp.sqrt(t + 1) * sp.sqrt(t + 2) - sp.Pow(2, -t),
        sp.exp(sp.log(t + 1) * factor),
    ]


@pytest.mark.parametrize("seed", range(8))
def test_floors_and_remainders_are_integers_and_rest(seed: int) -> None:
    divisor = sp.Rational(2, 3)
    for expr in drawn_numbers(seed):
        for step in (0, 1, 7, 8, 26, 63, 99, 999, 1023):
            at = {t: sp.Integer(step)}
            # 60 digits by SymPy's evaluation; nearer to an integer than 1e-40 is equal to it.
            value = Fraction(str(sp.N(expr.subs(t, step), 60))) + Fraction(1, 10**40)
            floors = [
                value_at(kind(expr), at) for kind in (sp.floor, lambda x: floor_div(x, divisor))
            ]
            assert floors == [math.floor(value), math.floor(value * 3 / 2)], (expr, step)
            remainder = value_at(floor_mod(expr, divisor), at)
            exact = value - Fraction(2, 3) * floors[1].p
            assert float(remainder) == pytest.approx(float(exact), abs=1e-12)


def test_floors_of_tiny_and_large_numbers() -> None:
    late = {t: sp.Integer(10**6)}
    tiny = sp.Pow(2, -t)
    assert value_at(sp.floor(tiny), late) == 0
    assert value_at(sp.floor(-tiny), late) == -1
    assert value_at(sp.ceiling(tiny), late) == 1
    assert value_at(sp.floor(5 - tiny), late) == 4
    digits = 31415926535897932384626433832795028841971
    assert value_at(sp.floor(sp.pi * 10**40 + 0 * t, evaluate=False), late) == digits
    assert holds_at(tiny > 0, late)
    assert holds_at(sp.sqrt(2) + tiny > sp.sqrt(2), late)


@pytest.mark.parametrize(
    ("number", "floor"),
    [
        (sp.log(8) / sp.log(2), 3),
        (sp.log(sp.Rational(8, 27)) / sp.log(sp.Rational(2, 3)), 3),
        (sp.log(1024) / sp.log(4) - sp.Pow(10, -400), 4),
        (sp.sqrt(5 + 2 * sp.sqrt(6)) - sp.sqrt(2) - sp.sqrt(3), 0),
        (sp.sqrt(2, evaluate=False) ** 2, 2),
        (sp.log(sp.Integer(10) ** 300) / sp.log(10), 300),
        (sp.exp(sp.log(2) + sp.log(3), evaluate=False), 6),
    ],
)
def test_numbers_that_are_integers_or_almost(number: sp.Expr, floor: int) -> None:
    assert value_at(sp.floor(number + 0 * t, evaluate=False), {t: sp.Integer(0)}) == floor
    assert value_at(floor_div(number, 1), {t: sp.Integer(0)}) == floor


def test_the_value_of_warm_restarts_is_a_number() -> None:
    cycle = floor_div(sp.log(t / 5 + 1) / sp.log(2), 1)
    expr = sp.cos(sp.pi * (t - 5 * 2**cycle + 5) / (5 * 2**cycle))
    for step in range(200):
        length, start = 5, 0
        while step >= start + length:
            start, length = start + length, 2 * length
        expected = math.cos(math.pi * (step - start) / length)
        value = float(value_at(expr, {t: sp.Integer(step)}))
        assert value == pytest.approx(expected, abs=1e-14)


# --- rounding to narrower floats ------------------------------------------------------------------


@pytest.mark.parametrize("kind", [np.float32, np.float16])
@pytest.mark.parametrize("seed", range(40))
def test_numbers_next_to_the_middle_of_two_floats_are_rounded_once(kind: Any, seed: int) -> None:
    rng = random.Random(seed)
    low = kind(rng.uniform(0.5, 2) * 10.0 ** rng.randint(-3, 3))
    high = np.nextafter(low, kind(np.inf))
    middle = (sp.Rational(float(low)) + sp.Rational(float(high))) / 2
    for sign in (1, -1):
        for bits in (30, 60, 80, 2000):
            step = sp.Rational(1, 2**bits) * middle
            for number in (step, step * sp.sqrt(2)):
                assert kind(to_odd_float(sign * (middle + number))) == sign * high
                assert kind(to_odd_float(sign * (middle - number))) == sign * low
        is_low_even = int.from_bytes(low.tobytes(), "little") % 2 == 0
        assert kind(to_odd_float(sign * middle)) == sign * (low if is_low_even else high)


def test_a_constant_in_float32_is_the_nearest_one() -> None:
    above = 1 + sp.Rational(1, 2**24) + sp.Rational(1, 2**80)
    for number, expected in ((above, 1 + 2.0**-23), (above - sp.Rational(1, 2**79), 1.0)):
        schedule = cf.Schedule(number + 0 * t)
        graph = compile_schedule(schedule, GraphOptions(dtype=DType.F32))
        (value,) = evaluate(graph, {"step": np.array(0)}).values()
        assert value == expected


@pytest.mark.parametrize("step", [4, 596, 604, 1204])
def test_a_sign_of_equal_cosines_beyond_a_turn_is_0(step: int) -> None:
    difference = 2 * sp.cos(sp.pi * t / 300) - 2 * sp.cos(sp.pi / 75)
    assert value_at(sp.sign(difference), {t: sp.Integer(step)}) == 0


@pytest.mark.parametrize("base", [sp.Integer(10), sp.Rational(9, 10)])
@pytest.mark.parametrize("sign", [1, -1])
def test_a_power_of_an_exponent_without_end_is_refused(base: sp.Expr, sign: int) -> None:
    """The loop of mpmath over the bits of the exponent takes seconds for ``10 ** (400 ** t)``."""
    value = cf.Schedule(base ** (sign * sp.Integer(400) ** t))
    assert value.exact(2)
    with pytest.raises(LimitError, match="exponent of more than 1000 bits: write its limit, 0"):
        value.exact(200)
    with pytest.raises(LimitError, match="exponent of more than 1000 bits"):
        value.exact(20_000)  # the exponent is a Float


@pytest.mark.parametrize(
    "expr",
    [
        sp.Min(sp.log(t - 2), 1),
        sp.exp(sp.Max(-4, sp.Min(4, sp.log(t - 1)))),
        sp.Max(sp.sqrt(t - 2), sp.pi),
        sp.Min(1 / t, 1),
        sp.Abs(sp.log(t - 2)),
        sp.Heaviside(sp.log(t - 2)),
        sp.Max(1, sp.Abs(sp.log(t - 2))),
    ],
)
def test_a_function_of_a_number_that_is_not_real_has_no_value(expr: sp.Expr) -> None:
    with pytest.raises(DomainError, match=r"is not a real number \(t = 0\)"):
        value_at(expr, {t: sp.Integer(0)})
    assert value_at(expr, {t: sp.Integer(7)}).is_real


def test_a_condition_is_compiled_where_its_other_branch_has_no_value() -> None:
    # The thresholds of the second comparison are looked for from step 0 on, too.
    logarithm = sp.exp(sp.Max(-4, sp.Min(4, sp.log(t - 1)))) <= 1
    schedule = Schedule(sp.Piecewise((0, sp.ITE(t <= 1, t > 0, logarithm)), (2, True)))
    values = evaluate(compile_schedule(schedule, ANY_STEPS), {"step": np.arange(5)})["value"]
    assert values.tolist() == [2, 0, 0, 2, 2]

"""Assumptions of SymPy about expressions of schedules, compared with their exact values."""

import math
import random
from collections.abc import Callable
from fractions import Fraction
from typing import Any

import pytest
import sympy as sp

import closedform as cf
from closedform.language import t

STEPS = range(40)

CONSTANTS = (*map(Fraction, (-6, -1, 1, 2, 3, 4, 6, 30)), Fraction(1, 2), Fraction(2, 3))

Tree = tuple[Any, ...]

# Each function of expressions next to that of exact numbers.
FUNCTIONS: dict[str, tuple[Callable[..., Any], Callable[..., Fraction]]] = {
    "add": (lambda a, b: a + b, lambda a, b: a + b),
    "multiply": (lambda a, b: a * b, lambda a, b: a * b),
    "minimum": (sp.Min, min),
    "maximum": (sp.Max, max),
    "floor": (lambda a, _: sp.floor(a), lambda a, _: Fraction(math.floor(a))),
    "ceiling": (lambda a, _: sp.ceiling(a), lambda a, _: Fraction(math.ceil(a))),
    "absolute": (lambda a, _: sp.Abs(a), lambda a, _: abs(a)),
    "square": (lambda a, _: a**2, lambda a, _: a**2),
}

TESTS: dict[str, Callable[[Fraction], bool]] = {
    "integer": lambda value: value.denominator == 1,
    "even": lambda value: value.denominator == 1 and value.numerator % 2 == 0,
    "odd": lambda value: value.denominator == 1 and value.numerator % 2 == 1,
    "positive": lambda value: value > 0,
    "negative": lambda value: value < 0,
    "zero": lambda value: value == 0,
}


def draw(source: random.Random, depth: int) -> Tree:
    """Returns a random tree of functions, steps and constants."""
    if not depth:
        return ("step",) if source.random() < 0.5 else ("constant", source.choice(CONSTANTS))
    name = source.choice([*FUNCTIONS, "multiply", "multiply"])
    return name, draw(source, depth - 1), draw(source, depth - 1)


def build(tree: Tree) -> sp.Expr:
    """Returns the expression of a tree."""
    if tree[0] == "step":
        return t
    if tree[0] == "constant":
        return sp.Rational(tree[1].numerator, tree[1].denominator)
    return FUNCTIONS[tree[0]][0](*map(build, tree[1:]))


def value(tree: Tree, step: int) -> Fraction:
    """Returns the value of a tree, without SymPy."""
    if tree[0] == "step":
        return Fraction(step)
    if tree[0] == "constant":
        return Fraction(tree[1])
    return FUNCTIONS[tree[0]][1](*(value(part, step) for part in tree[1:]))


@pytest.mark.parametrize("block", range(4))
def test_assumptions_hold_for_all_values(block: int) -> None:
    decided = 0
    for seed in range(100 * block, 100 * block + 100):
        tree = draw(random.Random(seed), 3)
        expr = build(tree)
        values = [value(tree, step) for step in STEPS]
        for name, holds in TESTS.items():
            answer = getattr(expr, f"is_{name}")
            if answer is not None:
                decided += 1
                assert all(holds(number) is answer for number in values), (tree, name)
    assert decided > 100


@pytest.mark.parametrize("divisor", [2, 3, 4, 5, 6, 7, 12, 30])
@pytest.mark.parametrize(
    "even", [sp.Max(0, 4 * t - 70), sp.Min(300, sp.Max(2, 2 * t)), 2 ** (t + 1)], ids=str
)
def test_even_numbers_over_a_divisor(even: sp.Expr, divisor: int) -> None:
    quotient = even / divisor
    values = [Fraction(int(even.subs(t, step)), divisor) for step in range(30)]
    integers = {number.denominator == 1 for number in values}
    assert quotient.is_integer in ({None} if len(integers) > 1 else {None, *integers})
    floors = [sp.floor(quotient).subs(t, step) for step in range(30)]
    assert floors == [number.numerator // number.denominator for number in values]


def test_powers_of_two_still_divide_even_numbers() -> None:
    assert (sp.Max(2, 4 * t) / 2).is_integer is True


def decay(step: int) -> float:
    return 1e-3 * 0.5 ** math.floor(max(0, 4 * step - 70) / 30)


def cosine(step: int) -> float:
    return 1e-3 * math.cos(math.pi * min(30, max(0, 4 * step - 70)) / 30)


@pytest.mark.parametrize("function", [decay, cosine])
def test_functions_of_even_counts_are_read(function: Callable[[int], float]) -> None:
    schedule = cf.from_python(function)
    for step in range(120):
        assert float(schedule(step)) == pytest.approx(function(step), rel=1e-12, abs=1e-18)

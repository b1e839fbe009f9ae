"""Equality on segments of steps: shown only where it is true."""

import pytest
import sympy as sp

from closedform import t
from closedform.language import floor_div, floor_mod
from closedform.verify.identity.equality import Steps, are_equal, is_defined
from closedform.verify.terms import sympy_io
from closedform.verify.terms.partition import aligned, partition
from closedform.verify.terms.tree import Sign, Term

CLOCK = sympy_io.term(t)
ALL = Steps(CLOCK, 0, 2**50)
x = sp.Symbol("x", positive=True)
v = sp.Symbol("v", real=True)


def shown(left: sp.Expr, right: sp.Expr, steps: Steps = ALL) -> list[str | None]:
    """How each segment is shown to be equal."""
    first, end = steps.first, steps.last + 1
    lists = [partition(sympy_io.term(side), CLOCK, first, end) for side in (left, right)]
    return [
        are_equal(one, other, Steps(CLOCK, first, end - 1))
        for first, end, (one, other) in aligned(*lists)
    ]


def inert_cos(turns: sp.Expr) -> sp.Expr:
    return sp.cos(sp.pi * turns, evaluate=False)


EQUAL = {
    "lines": (2 * (t + 1), 2 * t + 2),
    "quotient": ((t + 1) ** 2 / (t + 1), t + 1),
    "power": (sp.Rational(9, 10) ** t, sp.exp(t * sp.log(sp.Rational(9, 10)))),
    "split root": (sp.sqrt(4 * t + 4), 2 * sp.sqrt(t + 1)),
    "half angle": ((1 - inert_cos(t / 640)) / 2, sp.sin(sp.pi * t / 1280) ** 2),
    "quarter turn": (
        inert_cos(t / 640 - sp.Rational(63, 64)),
        sp.sin(sp.pi * (t / 640 - sp.Rational(31, 64))),
    ),
    "period": (inert_cos(t / 30), inert_cos(floor_mod(t, 60) / 30)),
    "folded": (inert_cos(t / 30), inert_cos((30 - sp.Abs(floor_mod(t, 60) - 30)) / 30)),
    "fine period": (
        inert_cos((1000 * t - 9179) / 18821),
        inert_cos(floor_mod(1000 * t - 9179, 37642) / 18821),
    ),
    "triangle": (
        sp.Min(floor_mod(t, 10), 10 - floor_mod(t, 10)),
        5 - sp.Abs(floor_mod(t, 10) - 5),
    ),
    "restarts": (floor_div(t, 7) * 7 + floor_mod(t, 7), t),
    "two cosines": (
        inert_cos(t / 80) * inert_cos(floor_mod(t, 14) / 7),
        sp.sin(sp.pi * (t + 40) / 80) * inert_cos(t / 7),
    ),
    "order of a minimum": (
        sp.Min(1 / sp.sqrt(t + 1), (t + 1) / 40 ** sp.Rational(3, 2)),
        sp.Min((t + 1) * sp.sqrt(10) / 800, 1 / sp.sqrt(t + 1)),
    ),
    "hyperparameter": (x * (t + 1) - x * t, x),
    "bias correction": (
        sp.sqrt(v) / sp.sqrt(1 - sp.Rational(9, 10) ** (t + 1)),
        (1 / sp.sqrt(1 - sp.exp((t + 1) * sp.log(sp.Rational(9, 10))))) * sp.sqrt(v),
    ),
}

DIFFERENT = {
    "lines": (2 * t, 2 * t + 1),
    "off by one": (sp.Min(t, 5), sp.Min(t, 6)),
    "base": (sp.Rational(9, 10) ** t, sp.exp(t * sp.log(sp.Rational(8, 10)))),
    "sign": (inert_cos(t / 30), -inert_cos(t / 30)),
    "phase": (
        inert_cos(t / 640 - sp.Rational(63, 64)),
        sp.sin(sp.pi * (t / 640 - sp.Rational(32, 64))),
    ),
    "period": (inert_cos(t / 30), inert_cos(floor_mod(t, 61) / 30)),
    "fold": (inert_cos(t / 30), inert_cos((30 - sp.Abs(floor_mod(t, 60) - 29)) / 30)),
    "floor": (floor_div(t, 3), t / 3),
    "minimum": (sp.Min(1 / sp.sqrt(t + 1), t + 1), sp.Max(1 / sp.sqrt(t + 1), t + 1)),
    "root": (sp.sqrt(t**2 + 1), t + 1),
    "hyperparameter": (x * t, x * t + x),
}


@pytest.mark.parametrize("name", EQUAL)
def test_equal_terms_are_shown_equal(name: str) -> None:
    assert None not in shown(*EQUAL[name])


@pytest.mark.parametrize("name", DIFFERENT)
def test_different_terms_are_not(name: str) -> None:
    assert None in shown(*DIFFERENT[name])


def test_ways_are_named() -> None:
    assert shown(*EQUAL["lines"]) == ["lines"]
    assert shown(*EQUAL["power"]) == ["identity"]
    assert shown(*EQUAL["folded"]) == ["period"]
    assert shown(sp.exp(t), sp.exp(t)) == ["structure"]


@pytest.mark.parametrize(
    ("expr", "first", "wanted"),
    [
        (1 / (t + 1), 0, True),
        (1 / t, 0, False),
        (1 / t, 1, True),
        (1 / (5 - t), 0, False),
        (sp.sqrt(t - 3), 0, False),
        (sp.sqrt(t - 3), 3, True),
        (sp.log(t + 1), 0, True),
        (sp.log(t), 0, False),
        (1 / (floor_div(t, 10) / 2 + 1), 0, True),
        ((t + 1) ** x, 0, True),
        (t**x, 0, True),
        (t ** (-x), 0, False),
        (1 / (sp.exp(-t) - 2), 0, False),
    ],
)
def test_definedness_on_steps(expr: sp.Expr, first: int, wanted: bool) -> None:
    term = sympy_io.term(expr)
    assert is_defined(term, Steps(CLOCK, first, 2**50)) is wanted


SIGNS: list[tuple[Term, Sign]] = [
    (sympy_io.term(t + 1), Sign.POSITIVE),
    (sympy_io.term(t), Sign.NONNEGATIVE),
    (sympy_io.term(-t - 1), Sign.NEGATIVE),
    (sympy_io.term(t - 5), Sign.ANY),
    (sympy_io.term((t + 1) * (t - 2**50 - 1)), Sign.NEGATIVE),
    (sympy_io.term(sp.exp(t - 7)), Sign.POSITIVE),
    (sympy_io.term(x * t), Sign.NONNEGATIVE),
    (sympy_io.term(floor_div(t, 3)), Sign.NONNEGATIVE),
    (sympy_io.term(sp.Max(t - 5, 2)), Sign.POSITIVE),
    (sympy_io.term(sp.Min(t + 1, x)), Sign.POSITIVE),
    (sympy_io.term((t - 5) ** 2), Sign.NONNEGATIVE),
]


@pytest.mark.parametrize(("term", "sign"), SIGNS, ids=str)
def test_signs_on_steps(term: Term, sign: Sign) -> None:
    assert ALL.sign_of(term) is sign

"""Constructors without SymPy's search: the expressions are those that SymPy makes."""

import itertools
import random
from collections.abc import Callable
from unittest import mock

import pytest
import sympy as sp
from sympy.core.cache import clear_cache

from closedform import schedules, t
from closedform.language import Schedule, hyper, matmul, reduce_mean, settled, transpose
from closedform.language.settled import construct, product, square_root, substitute
from closedform.optimizers.formulas import rectification
from closedform.schedules.examples import EXAMPLES

N = hyper("steps", integer=True, positive=True)
PEAK = hyper("peak")
X = sp.Symbol("x")

OPERANDS = (
    t,
    t + 1,
    t - 20,
    100 - t,
    t / 7,
    t**2,
    N,
    t / N,
    (N - t) / (N + 1),
    PEAK,
    X,
    sp.Integer(0),
    sp.Integer(-3),
    sp.Rational(5, 2),
    sp.Max(t - 20, 0),
    sp.Min(t, 30),
    30 - sp.Max(t - 20, 0),
    sp.sqrt(t),
    1 / sp.sqrt(t),
    (t + 1) ** sp.Rational(20001, 2),
    sp.floor(t / 7),
    sp.floor(sp.sqrt(t) + PEAK),
)

ANGLES = (
    sp.pi * t / 100,
    2 * sp.pi * t,
    3 * sp.pi * t / 2,
    5 * sp.pi * t / 2,
    -sp.pi * t / 3,
    sp.pi * t,
    sp.pi * t * (t + 1) / 2,
    sp.pi * (t - 20) / 77,
    sp.pi * (20 - t) / 77,
    sp.pi * (t - sp.Rational(1, 2)),
    sp.pi * sp.Min(t, 77) / 77,
    sp.pi * (sp.Min(t, 77) / 200 + sp.Rational(1, 2)),
    sp.pi * PEAK,
    sp.pi * t / N,
    sp.pi,
    sp.Integer(0),
    sp.pi / 8,
    t,
)


@pytest.fixture(autouse=True)
def _empty_cache() -> None:
    """SymPy's cache has equal expressions of other tests, in which a symbol is printed otherwise.

    ``positive=True, integer=True`` and the same with ``real=True`` make equal symbols.
    """
    clear_cache()


def identical(one: sp.Basic, other: sp.Basic) -> bool:
    """Equal, printed alike, and with operands in the same order."""
    return bool(one == other and one.args == other.args) and sp.srepr(one) == sp.srepr(other)


@pytest.mark.parametrize("func", [sp.Min, sp.Max, sp.Lt, sp.Le, sp.Gt, sp.Ge])
def test_an_order_is_that_of_sympy(func: type[sp.Basic]) -> None:
    pairs = list(itertools.product(OPERANDS, repeat=2))
    for pair in random.Random(7).sample(pairs, 60):
        assert identical(construct(func, *pair), func(*pair)), pair


@pytest.mark.parametrize("angle", ANGLES, ids=str)
def test_a_cosine_is_that_of_sympy(angle: sp.Expr) -> None:
    assert identical(construct(sp.cos, angle), sp.cos(angle))


SHIFTED_ROOTS = [
    sp.sqrt((sp.Max(5, inner) - 4) * (sp.Max(5, inner) - 2))
    for inner in (t - 3, N, 7 - t * sp.Rational(1, 2) ** (t + 1))
]
FACTORS = (
    sp.Integer(-1),
    sp.Integer(3),
    sp.Rational(2, 3),
    sp.sqrt(6),
    sp.sqrt(2) / 3,
    -sp.sqrt(2),
    sp.Rational(1, 2) ** t,
    2 ** (t + 1),
    t,
    t + 1,
    1 / (t + 1),
    sp.sqrt(1 - sp.Rational(1, 2) ** (t + 1)),
    PEAK / 2,
    1 / SHIFTED_ROOTS[0],
    *SHIFTED_ROOTS,
)


@pytest.mark.parametrize("beta", ["0.999", "0.99", "0.7", "0.9999"])
@pytest.mark.parametrize("threshold", [4, 5])
def test_the_rectification_of_radam_is_what_sympy_substitutes(beta: str, threshold: int) -> None:
    symbol = hyper("beta2")
    for expr in rectification(symbol, threshold):
        scaled = expr * sp.sqrt(1 - symbol ** (t + 1)) * PEAK
        for each in (expr, scaled):
            values = {symbol: sp.Rational(beta)}
            assert identical(substitute(each, values), each.xreplace(values)), each


def test_a_product_with_a_root_is_that_of_sympy() -> None:
    for root in SHIFTED_ROOTS:
        for others in random.Random(9).sample(list(itertools.product(FACTORS, repeat=2)), 30):
            assert identical(product([root, *others]), sp.Mul(root, *others)), (root, others)


def test_a_root_of_differences_asks_sympy_for_no_sign() -> None:
    factors = [sp.Rational(1999, 7), *(sp.Max(5, t - 3) - number for number in (4, 2))]
    with mock.patch.object(sp.Mul, "is_imaginary", property(lambda _: 1 / 0)):
        root = square_root(sp.Mul(*factors, evaluate=False))
        found = product([root, sp.sqrt(1 - sp.Rational(1, 2) ** t)])
    expected = sp.sqrt(sp.Mul(*factors)) * sp.sqrt(1 - sp.Rational(1, 2) ** t)
    assert identical(found, expected)


def test_three_operands_are_those_of_sympy() -> None:
    for three in random.Random(8).sample(list(itertools.combinations(OPERANDS, 3)), 25):
        assert identical(construct(sp.Min, *three), sp.Min(*three)), three


@pytest.mark.parametrize("name", ["cosine", "one_cycle", "wsd", "rex", "inverse_square_root"])
def test_bound_is_what_sympy_substitutes(name: str) -> None:
    schedule = EXAMPLES[name].make()
    assert isinstance(schedule, Schedule)
    values = {
        symbol: schedule.hyperparameters[symbol.name] for symbol in schedule.expr.free_symbols - {t}
    }
    assert identical(schedule.bound, schedule.expr.xreplace(values))


COMMON: dict[str, Callable[[], Schedule]] = {
    "cosine": lambda: schedules.cosine(3e-4, 3e-5, 98_123),
    "linear": lambda: schedules.linear(3e-4, 0, 1_234),
    "wsd": lambda: schedules.wsd(3e-4, 0, 100_123, 2_123, 10_000),
    "one_cycle": lambda: schedules.one_cycle(1e-5, 1e-3, 1e-7, 10_123),
}


@pytest.mark.parametrize("make", COMMON.values(), ids=COMMON)
def test_the_first_value_asks_sympy_for_no_order(
    make: Callable[[], Schedule], monkeypatch: pytest.MonkeyPatch
) -> None:
    lr = make()
    expected = float(make().exact(5))

    def search(*_: object) -> None:
        raise AssertionError("SymPy compares two operands")

    monkeypatch.setattr(sp.Min, "_find_localzeros", search)
    monkeypatch.setattr(sp.Max, "_find_localzeros", search)
    assert lr(5) == pytest.approx(expected, rel=1e-15, abs=1e-19)


B, E, G, S = hyper("beta"), hyper("eps"), sp.Symbol("grad", real=True), sp.Symbol("s", real=True)
RATIO = G * sp.sqrt(S + E) / sp.sqrt(B * S + (1 - B) * G**2 + E)
LENGTH = 2 / (1 - B) - 1 - 2 * (t + 1) * B ** (t + 1) / (1 - B ** (t + 1))
UNDECIDED = {
    "roots": (RATIO, -RATIO),
    "powers of the clock": (LENGTH, sp.Integer(5)),
    "a modulus": (B * S, sp.Abs(G) + E),
    "branches": (S * sp.Piecewise((B, G > 0), (E, G < 0), (1 + G, True)), E),
    "a reduction": (sp.Integer(1), sp.sqrt(reduce_mean(S**2)) / E),
    "a product of matrices": (matmul(S, transpose(G)), sp.Integer(1)),
    "an integer": (sp.floor(G / 9 + sp.Rational(1, 2)), sp.Integer(0)),
}


@pytest.mark.parametrize("pair", UNDECIDED.values(), ids=UNDECIDED)
@pytest.mark.parametrize("func", [sp.Max, sp.Gt])
def test_operands_of_rules_are_ordered_without_sympy(
    func: type[sp.Basic], pair: tuple[sp.Expr, sp.Expr], monkeypatch: pytest.MonkeyPatch
) -> None:
    expected = func(*pair)

    def search(*_: object) -> None:
        raise AssertionError("SymPy compares two operands")

    monkeypatch.setattr(sp.Max, "_find_localzeros", search)
    monkeypatch.setattr(sp.Gt, "_eval_fuzzy_relation", search)
    assert identical(construct(func, *pair), expected)


RECTIFIED = (sp.Max(LENGTH, 5) - 4) * (sp.Max(LENGTH, 5) - 2) / sp.Max(LENGTH, 5)
ROOTS = (
    RECTIFIED.subs(B, sp.Rational(999, 1000)),
    RECTIFIED,
    4 * t,
    sp.Abs(G) * t / 9,
    G * S,
    -G * S / 2,
    sp.Integer(12),
    -(t + 1) * sp.Abs(S),
    sp.I * G * 2,
    G**2 * S,
    sp.pi * t,
    sp.sqrt(t) * G,
    t,
    G + 1,
)


@pytest.mark.parametrize("operand", ROOTS, ids=str)
def test_a_square_root_is_that_of_sympy(operand: sp.Expr) -> None:
    assert identical(square_root(operand), sp.sqrt(operand))


ORDERED = {
    "a root and a negative number": (sp.sqrt(t), sp.Integer(-1)),
    "a modulus and its number": (sp.Abs(G), -sp.Abs(G)),
    "an equal value, written with roots": (sp.sqrt(t**2 + 2 * t + 1), t + 1),
    "a sum of squares": (G**2 + S**2, sp.Integer(-1)),
    "an integer and its number": (sp.floor(G), G),
    "an integer of a root": (sp.floor(sp.sqrt(t**2 + 1)), t - 1),
}


@pytest.mark.parametrize("pair", ORDERED.values(), ids=ORDERED)
@pytest.mark.parametrize("func", [sp.Max, sp.Min, sp.Gt, sp.Le])
def test_operands_with_an_order_are_left_to_sympy(
    func: type[sp.Basic], pair: tuple[sp.Expr, sp.Expr]
) -> None:
    assert identical(construct(func, *pair), func(*pair))


def test_samples_that_show_nothing_leave_it_to_sympy(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(settled, "_STEPS", (0,))
    assert construct(sp.Min, t, t + 1) == t
    assert construct(sp.Lt, t, t + 1) == sp.true

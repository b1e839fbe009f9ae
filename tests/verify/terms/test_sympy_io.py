"""Terms are inert, read SymPy as it stands, and go back to SymPy with the same meaning."""

import random
import sys
from collections.abc import Iterator
from fractions import Fraction

import pytest
import sympy as sp
from flint import fmpq

import closedform as cf
from closedform.errors import VerificationError
from closedform.language import ReduceMax, ReduceSum, floor_div, floor_mod, hyper, reduce_sum, t
from closedform.language.exact import value_at
from closedform.verify.terms.build import (
    FALSE,
    ONE,
    PI,
    TRUE,
    UNDEFINED,
    ZERO,
    add,
    both,
    cospi,
    divide,
    either,
    equal,
    exact,
    exp,
    floor,
    ite,
    less,
    less_equal,
    log,
    lookup,
    maximum,
    minimum,
    multiply,
    negate,
    power,
    rational,
    square_root,
    substitute,
    subtract,
    symbol,
)
from closedform.verify.terms.sympy_io import term, to_sympy
from closedform.verify.terms.tree import Op, Sign, Term, show, symbols, walk

X, N = symbol("x"), symbol("n", integer=True)
CLOCK = symbol("t", integer=True, sign=Sign.NONNEGATIVE)


@pytest.mark.parametrize(
    ("value", "expected"),
    [
        (3, fmpq(3)),
        (0.5, fmpq(1, 2)),
        (Fraction(2, 6), fmpq(1, 3)),
        (sp.Rational(5, 4), fmpq(5, 4)),
    ],
)
def test_exact_reads_each_kind_of_number(value: object, expected: fmpq) -> None:
    assert exact(value) == expected
    assert exact(value, 2) == expected / 2


def test_a_float_is_the_dyadic_number_it_holds() -> None:
    assert exact(0.1) == fmpq(3602879701896397, 36028797018963968)


def test_terms_are_values() -> None:
    assert add(X, N) == add(X, N)
    assert add(X, N) != add(N, X)
    assert len({divide(X, N), divide(X, N), divide(N, X)}) == 2
    assert symbol("x", sign=Sign.POSITIVE) != X


@pytest.mark.parametrize(
    ("made", "shown"),
    [
        (add(rational(1), X, rational(2)), "(x + 3)"),
        (add(ZERO, X), "x"),
        (multiply(rational(2), X, rational(1, 2)), "x"),
        (multiply(ZERO, X), "(0 * x)"),
        (divide(X, rational(4)), "(1/4 * x)"),
        (divide(X, ZERO), "(x / 0)"),
        (power(X, rational(-2)), "(1 / (x ^ 2))"),
        (power(rational(2), rational(10)), "1024"),
        (power(ZERO, ZERO), "1"),
        (power(rational(2), rational(1000)), "(2 ^ 1000)"),
        (floor(rational(-1, 2)), "-1"),
        (minimum(rational(3), rational(2), X), "min(2, x)"),
        (maximum(rational(3), rational(2)), "3"),
        (exp(ZERO), "1"),
        (log(ONE), "0"),
        (ite(TRUE, X, N), "x"),
        (ite(FALSE, X, N), "n"),
        (less(rational(1), rational(2)), "true"),
        (less_equal(rational(2), rational(1)), "false"),
        (equal(rational(1), rational(1)), "true"),
        (both(), "true"),
        (both(TRUE, less(X, N)), "x < n"),
        (both(FALSE, less(X, N)), "false"),
        (either(both(less(X, N), less(N, X)), FALSE), "(x < n and n < x)"),
        (lookup([1, 2, 3], N), "table of 3[n]"),
        (subtract(X, ONE), "(x + -1)"),
    ],
)
def test_constructors_fold_constants_and_nothing_else(made: Term, shown: str) -> None:
    assert show(made) == shown


def test_negation_is_pushed_inwards() -> None:
    goal = both(less(X, N), either(less_equal(X, ONE), equal(X, N)))
    assert show(negate(goal)) == "(n <= x or (1 < x and not(x = n)))"
    assert negate(negate(goal)) == goal


def test_a_number_has_no_negation() -> None:
    with pytest.raises(VerificationError, match=r"only a truth has a negation, got the number x"):
        negate(X)


def test_substitution_is_simultaneous_and_builds_by_the_constructors() -> None:
    swapped = substitute(divide(X, N), {X: N, N: X})
    assert swapped == divide(N, X)
    assert substitute(less(X, rational(3)), {X: ONE}) == TRUE


def test_long_chains_are_walked_without_recursion() -> None:
    def chain() -> Term:
        result: Term = ONE
        for step in range(20_000):
            result = ite(less(CLOCK, rational(step)), add(result, X), result)
        return result

    left, right = chain(), chain()
    assert left == right
    assert sum(1 for _ in walk(left)) == 80_002
    assert set(symbols(left)) == {"t", "x"}
    assert substitute(left, {X: N}) != left
    assert len(show(left)) < 5000


def test_one_name_has_one_declaration() -> None:
    with pytest.raises(VerificationError, match=r"x is declared as .*positive.* and as .*any"):
        symbols(add(X, symbol("x", sign=Sign.POSITIVE)))


A, B = hyper("a", positive=True), hyper("b")
READ = [
    (t, "t"),
    (A / B, "(a / b)"),
    (1 / sp.sqrt(A), "(1 / (a ^ 1/2))"),
    (sp.exp(-A), "exp((-1 * a))"),
    (B ** (-A), "(b ^ (-1 * a))"),
    (A * B ** (-t), "(a / (b ^ t))"),
    (sp.cos(sp.pi * t / A), "cospi((t / a))"),
    (sp.cos(sp.pi * (t - A) / B), "cospi(((t + (-1 * a)) / b))"),
    (sp.sin(sp.pi + B), "(-1 * sinpi((b / pi)))"),
    (sp.cos(B), "cospi((b / pi))"),
    (sp.Min(A, B), "min(a, b)"),
    (floor_div(t, 5), "floor((1/5 * t))"),
    (floor_mod(t, 5), "(t + (-5 * floor((1/5 * t))))"),
    (sp.Mod(t, 5), "(t + (-5 * floor((1/5 * t))))"),
    (sp.floor(B), "floor(b)"),
    (sp.ceiling(B), "(-1 * floor((-1 * b)))"),
    (sp.Abs(B), "abs(b)"),
    (sp.sign(B), "sign(b)"),
    (sp.E**B, "exp(b)"),
    (sp.pi * B, "(pi * b)"),
    (ReduceSum(B), "reduce_sum(b)"),
    (ReduceMax(B), "reduce_max(b)"),
    (sp.Gt(B, 1), "1 < b"),
    (sp.Ge(B, 1), "1 <= b"),
    (sp.Ne(B, 1), "not(b = 1)"),
    (sp.Piecewise((A, t < 3), (B, t < 5)), "ite(t < 3, a, ite(t < 5, b, undefined))"),
    (sp.Float(0.5) * B, "(1/2 * b)"),
    (sp.true, "true"),
    (3, "3"),
]


@pytest.mark.parametrize(("expr", "shown"), READ, ids=[str(row[0]) for row in READ])
def test_sympy_is_read_as_it_stands(expr: sp.Basic, shown: str) -> None:
    assert show(term(expr)) == shown


def test_declarations_are_read() -> None:
    declared = {name: node.value for name, node in symbols(term(t + A + B)).items()}
    assert declared["t"].integer
    assert declared["t"].sign is Sign.NONNEGATIVE
    assert declared["a"].sign is Sign.POSITIVE
    assert declared["b"].sign is Sign.ANY


def test_a_nested_mod_is_refused() -> None:
    nested = sp.Mod(3 * sp.Mod(t, 6), 8, evaluate=False)
    with pytest.raises(VerificationError, match=r"nested Mod .*write closedform.expr.floor_mod"):
        term(nested)


def test_an_unknown_node_is_refused() -> None:
    with pytest.raises(VerificationError, match=r"gamma has no meaning .* got gamma\(b\)"):
        term(sp.gamma(B))


def test_a_complex_symbol_is_refused() -> None:
    with pytest.raises(VerificationError, match=r"z is declared as not real"):
        term(sp.Symbol("z", imaginary=True))


@pytest.fixture
def _usual_depth() -> Iterator[None]:
    """The recursion limit of Python, which torch's compiler raises in the same process."""
    limit = sys.getrecursionlimit()
    sys.setrecursionlimit(1000)
    yield
    sys.setrecursionlimit(limit)


@pytest.mark.usefixtures("_usual_depth")
def test_depth_without_end_is_refused() -> None:
    tower = B
    for _ in range(400):
        tower = sp.Add(1, sp.Mul(2, floor_div(tower, 3), evaluate=False), evaluate=False)
    with pytest.raises(VerificationError, match=r"nested too deeply to read: Add of 2 arguments"):
        term(tower)


def test_symbols_come_back_as_the_languages_own() -> None:
    count = hyper("count", integer=True, positive=True)
    assert to_sympy(term(t + A + B + count)) == t + A + B + count


BACK = [
    sp.Piecewise((t / A, t < 3), (B**2, t < 9), (sp.exp(-t / A), True)),
    A * sp.cos(sp.pi * floor_mod(t, 7) / 7) + sp.sin(sp.pi * t / 4),
    sp.Min(A, B) * sp.Max(t, 3) - sp.Abs(B) + sp.sign(B),
    floor_div(t, 3) * floor_mod(3 * floor_mod(t, 6), 8) + sp.floor(A) + sp.ceiling(A),
    sp.Piecewise((1, sp.And(t > 2, sp.Or(t < 5, sp.Ne(t, 8)))), (2, True)) / sp.sqrt(t + A),
    sp.log(A) ** 2 + A**B,
]


@pytest.mark.parametrize("expr", BACK, ids=str)
def test_sympy_and_back_has_the_same_values(expr: sp.Expr) -> None:
    back = to_sympy(term(expr))
    for step in range(12):
        values = {t: sp.Integer(step), A: sp.Rational(5, 2), B: sp.Rational(-7, 3)}
        difference = value_at(expr, values) - value_at(back, values)
        assert abs(sp.N(difference, 40)) < sp.Float(10) ** -35  # both are 40 digits of one number


def test_a_table_comes_back_as_branches() -> None:
    table = to_sympy(lookup([5, 6, 7], CLOCK))
    assert [value_at(table, {t: sp.Integer(step)}) for step in range(3)] == [5, 6, 7]


def test_a_long_piecewise_goes_both_ways() -> None:
    rng = random.Random(4)
    values = [rng.randrange(1, 9) for _ in range(3000)]
    schedule = cf.schedules.table(values)
    read = term(schedule.expr)
    assert read.op is Op.ITE
    assert len(to_sympy(read).args) == len(schedule.expr.args)


def test_functions_of_whole_tensors_go_both_ways() -> None:
    assert to_sympy(term(ReduceSum(B) + ReduceMax(A))) == ReduceSum(B) + ReduceMax(A)


def test_a_sum_over_some_axes_is_not_that_over_all() -> None:
    with pytest.raises(VerificationError) as caught:
        term(reduce_sum(B, (-1,)))
    assert str(caught.value) == (
        "ReduceSum(b, (-1,), False) reduces some axes only, which is not supported here: reduce "
        "all axes"
    )


def test_undefined_has_no_expression() -> None:
    with pytest.raises(VerificationError, match=r"undefined has no SymPy expression"):
        to_sympy(UNDEFINED)
    with pytest.raises(VerificationError, match=r"\(x \+ undefined\) has no SymPy expression"):
        to_sympy(Term(Op.ADD, (X, UNDEFINED)))


def test_square_root_and_pi() -> None:
    assert show(square_root(multiply(PI, cospi(X)))) == "((pi * cospi(x)) ^ 1/2)"

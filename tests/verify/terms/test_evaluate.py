"""Values at points, beside mpmath, and what is undefined or undecided there."""

import contextlib
import random
from typing import Any

import mpmath
import pytest
from flint import arb, ctx, fmpq

from closedform.effort import METER
from closedform.errors import VerificationError
from closedform.verify.terms import evaluate
from closedform.verify.terms.build import (
    ONE,
    PI,
    TWO,
    UNDEFINED,
    ZERO,
    absolute,
    add,
    atan,
    both,
    cospi,
    divide,
    either,
    equal,
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
    opaque,
    power,
    rational,
    sign,
    sinpi,
    square_root,
    subtract,
    symbol,
)
from closedform.verify.terms.evaluate import (
    Evaluator,
    UndecidedError,
    Undefined,
    compile_steps,
    holds,
    value,
)
from closedform.verify.terms.tree import Op, Sign, Term

X, Y = symbol("x"), symbol("y")
HALF = rational(1, 2)


def at(term: Term, **point: int | fmpq) -> object:
    return value(term, {name: fmpq(number) for name, number in point.items()})


@pytest.mark.parametrize(
    ("term", "expected"),
    [
        (add(X, Y, ONE), fmpq(11, 2)),
        (multiply(X, Y), fmpq(5)),
        (divide(X, Y), fmpq(4, 5)),
        (power(X, rational(3)), fmpq(8)),
        (power(X, rational(-3)), fmpq(1, 8)),
        (power(rational(4, 9), rational(3, 2)), fmpq(8, 27)),
        (power(Y, ZERO), fmpq(1)),
        (power(ZERO, X), fmpq(0)),
        (power(Term(op=ONE.op, value=fmpq(-2)), subtract(X, ONE)), fmpq(-2)),
        (cospi(X), fmpq(1)),
        (cospi(rational(7, 3)), fmpq(1, 2)),
        (sinpi(rational(1, 6)), fmpq(1, 2)),
        (sinpi(Y), fmpq(1)),
        (exp(subtract(X, TWO)), fmpq(1)),
        (log(divide(X, TWO)), fmpq(0)),
        (floor(Y), fmpq(2)),
        (floor(multiply(rational(-1), Y)), fmpq(-3)),
        (floor(divide(log(rational(3**40)), log(rational(3)))), fmpq(40)),
        (floor(divide(log(rational(3**40 - 1)), log(rational(3)))), fmpq(39)),
        (floor(multiply(PI, rational(100))), fmpq(314)),
        (minimum(X, Y), fmpq(2)),
        (maximum(X, Y), fmpq(5, 2)),
        (absolute(subtract(X, Y)), fmpq(1, 2)),
        (sign(subtract(X, Y)), fmpq(-1)),
        (ite(less(X, Y), X, divide(ONE, ZERO)), fmpq(2)),
        (lookup([7, 8, 9], X), fmpq(9)),
        (multiply(ZERO, PI), fmpq(0)),
        (opaque("reduce_sum", X), fmpq(2)),
        (opaque("reduce_max", X), fmpq(2)),
        (opaque("transpose", Y), fmpq(5, 2)),
        (opaque("matmul", X, Y), fmpq(5)),
    ],
)
def test_rational_values_are_fractions(term: Term, expected: fmpq) -> None:
    assert at(term, x=2, y=fmpq(5, 2)) == expected


@pytest.mark.parametrize(
    ("term", "reason"),
    [
        (divide(X, Y), "division by zero: y is 0"),
        (divide(ZERO, Y), "division by zero: y is 0"),
        (power(Y, rational(-2)), "division by zero"),
        (power(Y, subtract(X, rational(3))), "0 to a power below 0"),
        (power(Y, multiply(rational(-1, 2), X)), "0 to a power below 0"),
        (power(Y, rational(-1, 2)), "0 to a power below 0"),
        (square_root(subtract(Y, ONE)), "a power of a negative number"),
        (log(Y), "log of a number that is not above 0"),
        (log(subtract(Y, ONE)), "log of a number that is not above 0"),
        (UNDEFINED, "no branch holds"),
        (ite(less(X, Y), X, UNDEFINED), "no branch holds"),
        (lookup([1, 2], X), "no entry 2 in a table of 2"),
        (lookup([1, 2], HALF), "no entry 1/2 in a table of 2"),
        (add(ONE, multiply(ZERO, divide(ONE, Y))), "division by zero"),
    ],
)
def test_undefined_is_a_result_with_a_reason(term: Term, reason: str) -> None:
    found = at(term, x=2, y=0)
    assert isinstance(found, Undefined)
    assert reason in found.reason
    verdict = holds(less(term, ONE), {"x": fmpq(2), "y": fmpq(0)})
    assert isinstance(verdict, Undefined)


def test_undefined_has_no_truth_value() -> None:
    with pytest.raises(TypeError, match="no truth value"):
        bool(Undefined("why"))


BROKEN = less(divide(ONE, ZERO), ONE)


@pytest.mark.parametrize(
    ("goal", "expected"),
    [
        (both(BROKEN, less(ONE, X)), False),
        (both(less(ONE, X), BROKEN), False),
        (either(BROKEN, less(X, ONE)), True),
        (either(less(X, ONE), BROKEN), True),
    ],
)
def test_a_part_that_decides_outweighs_an_undefined_one(goal: Term, expected: bool) -> None:
    assert holds(goal, {"x": fmpq(0)}) is expected


def test_an_evaluator_serves_many_points() -> None:
    """Branches that are taken at other points, and parts without a value at one of them."""
    shared = divide(ONE, X)
    branch = ite(less(ZERO, Y), add(shared, multiply(shared, Y)), square_root(subtract(Y, X)))
    goal = either(less(branch, ONE), both(equal(X, Y), less(shared, TWO)))
    points = [{"x": fmpq(x), "y": fmpq(y)} for x in (-2, 0, 1, 3) for y in (-3, 0, 1, 2, -1)]
    evaluators = Evaluator(branch), Evaluator(goal)
    for point in points:
        before = METER.work
        expected = value(branch, point), holds(goal, point)
        work = METER.work - before
        results = evaluators[0].value(point), evaluators[1].holds(point)
        assert repr(results) == repr(expected), point
        # The work of a point does not depend on those before it.
        assert METER.work - before == 2 * work
    kinds = {type(value(branch, point)) for point in points}
    assert kinds == {fmpq, arb, Undefined}


def test_comparisons_of_irrational_numbers() -> None:
    root = square_root(TWO)
    point: dict[str, fmpq] = {}
    assert holds(less(root, rational(141421356238, 10**11)), point) is True
    assert holds(less(multiply(root, root), rational(1)), point) is False
    assert holds(equal(root, root), point) is True
    assert holds(less(root, root), point) is False
    assert holds(negate(equal(root, PI)), point) is True


def test_what_balls_cannot_tell_is_not_decided() -> None:
    half_turn = multiply(rational(4), atan(ONE))
    assert holds(equal(half_turn, PI), {}) is None
    assert holds(less_equal(PI, half_turn), {}) is None


def test_an_unknown_symbol_is_named() -> None:
    with pytest.raises(VerificationError, match=r"y has no value among x"):
        value(Y, {"x": fmpq(1)})


@pytest.mark.parametrize(
    "term",
    [
        power(TWO, rational(10**18)),
        power(rational(-3), add(rational(10**30), X)),
        exp(power(TWO, rational(100))),
        power(TWO, power(TWO, power(TWO, rational(100)))),
        exp(exp(exp(exp(rational(100))))),
        floor(exp(rational(10**6))),
        power(rational(10**50 + 1, 10**50), rational(10**60)),
        floor(divide(log(rational(10**9)), log(rational(10001, 10000)))),
    ],
)
def test_towers_of_powers_end(term: Term) -> None:
    assert isinstance(at(term, x=1), arb | fmpq)


def test_values_agree_with_mpmath() -> None:
    rng = random.Random(11)
    with mpmath.workdps(60), ctx.workprec(256):
        for _ in range(200):
            x, y = (fmpq(rng.randint(1, 400), rng.randint(1, 40)) for _ in range(2))
            mx, my = (mpmath.mpf(int(z.p)) / int(z.q) for z in (x, y))
            pairs = [
                (cospi(X), mpmath.cospi(mx)),
                (sinpi(X), mpmath.sinpi(mx)),
                (power(X, Y), mx**my if my < 200 else None),
                (log(X), mpmath.log(mx)),
                (exp(divide(X, Y)), mpmath.exp(mx / my) if mx / my < 10**4 else None),
                (square_root(add(X, Y)), mpmath.sqrt(mx + my)),
                (floor(multiply(X, Y)), mpmath.floor(mx * my)),
            ]
            for term, expected in pairs:
                if expected is None:
                    continue
                found = arb(value(term, {"x": x, "y": y}, 256))
                # 60 digits of mpmath against a ball of 256 bits, about 77 digits.
                assert abs(found - arb(str(expected))) <= abs(found) * arb("1e-55") + arb("1e-55")


def test_a_ball_holds_the_values_at_all_its_points() -> None:
    rng = random.Random(3)
    term = add(multiply(X, cospi(X)), divide(ONE, add(X, rational(20))), power(X, rational(2)))
    for _ in range(50):
        middle, radius = rng.uniform(-5, 5), rng.uniform(0, 1)
        found = value(term, {"x": arb(middle, radius)})
        for part in (-1, -0.5, 0, 0.3, 1):
            inner = value(term, {"x": fmpq(*((middle + part * radius).as_integer_ratio()))})
            assert found.overlaps(arb(inner))


# --- compiled functions of the step --------------------------------------------------------------

T = symbol("t", integer=True, sign=Sign.NONNEGATIVE)
RAMP = divide(T, rational(7))
COSINE = cospi(divide(T, rational(100)))

COMPILED = {
    "line": add(multiply(rational(2, 3), T), HALF),
    "constant": rational(5, 7),
    "pi": add(PI, T),
    "sum of balls": add(COSINE, multiply(rational(3), sinpi(RAMP)), T, HALF),
    "sum of floors": add(floor(RAMP), multiply(TWO, floor(divide(T, TWO)))),
    "product": multiply(RAMP, floor(RAMP), RAMP),
    "product of balls": multiply(COSINE, RAMP),
    "quotient": divide(add(T, ONE), add(multiply(TWO, T), ONE)),
    "quotient of balls": divide(COSINE, exp(RAMP)),
    "special angles": cospi(divide(T, rational(6))),
    "square": power(COSINE, TWO),
    "square of a line": power(add(RAMP, ONE), TWO),
    "remainder of a power": subtract(
        power(T, rational(3)),
        multiply(rational(64), floor(divide(power(T, rational(3)), rational(64)))),
    ),
    "long power of a line": power(add(T, ONE), rational(4000)),
    "inverse": power(add(T, ONE), rational(-3)),
    "root": square_root(T),
    "fractional power": power(RAMP, rational(9, 10)),
    "constant base": power(rational(24, 25), RAMP),
    "two varying operands": power(add(T, ONE), divide(ONE, add(T, ONE))),
    "log": log(add(T, ONE)),
    "floor of a ball": floor(multiply(rational(10), COSINE)),
    "whole logarithm": floor(divide(log(add(T, ONE)), log(rational(3)))),
    "extremes": minimum(maximum(COSINE, RAMP), add(ONE, sinpi(RAMP))),
    "absolute value and sign": add(
        absolute(COSINE), sign(COSINE), absolute(add(RAMP, rational(-3)))
    ),
    "choice": ite(either(less(COSINE, RAMP), equal(T, ONE)), COSINE, RAMP),
    "conditions": ite(both(less_equal(ONE, T), negate(equal(T, TWO))), T, floor(RAMP)),
    "table": lookup([fmpq(k, 3) for k in range(50)], T),
}


@pytest.mark.parametrize("term", COMPILED.values(), ids=COMPILED)
def test_compiled_functions_have_the_values(term: Term) -> None:
    with ctx.workprec(128):
        function = compile_steps(term, T)
    for step in (*range(30), 49):
        expected = value(term, {"t": fmpq(step)})
        try:
            with ctx.workprec(128):
                found = function(step)
        except UndecidedError:
            assert isinstance(expected, Undefined) or term is COMPILED["whole logarithm"]
            continue
        if isinstance(found, fmpq):
            assert arb(found).overlaps(arb(expected)), step
            continue
        # A ball that is too wide is asked for again with more digits; nothing is wrong.
        assert found.overlaps(arb(expected)), step
        assert found.rel_accuracy_bits() > 90 or arb(expected).contains(0), step


def test_a_part_that_occurs_twice_is_evaluated_once(monkeypatch: pytest.MonkeyPatch) -> None:
    calls: list[Op] = []
    handler = evaluate._HANDLERS[Op.MAXIMUM]

    def counted(*args: Any) -> Any:
        calls.append(Op.MAXIMUM)
        return handler(*args)

    monkeypatch.setattr(evaluate, "_HANDLERS", {**evaluate._HANDLERS, Op.MAXIMUM: counted})
    # As a tree it has 2**12 leaves.
    term = COSINE
    for level in range(12):
        term = maximum(multiply(term, rational(level + 1)), multiply(term, RAMP))
    function = compile_steps(term, T)
    for count, step in enumerate((3, 4, 3), 1):
        assert arb(function(step)).overlaps(value(term, {"t": fmpq(step)}))
        assert len(calls) == 12 * (2 * count), step


@pytest.mark.parametrize(
    ("term", "step"),
    [
        (divide(ONE, add(T, rational(-5))), 5),
        (ite(less(T, rational(8)), ONE, UNDEFINED), 8),
        (lookup([1, 2], T), 2),
        (power(TWO, power(TWO, T)), 2**31),
    ],
)
def test_compiled_functions_leave_what_has_no_value_undecided(term: Term, step: int) -> None:
    function = compile_steps(term, T)
    with contextlib.suppress(UndecidedError, ZeroDivisionError):
        assert not function(step).is_finite()


@pytest.mark.parametrize("times", [5, 17, 60])
def test_fractions_stay_short(times: int) -> None:
    """A square of a square has four times the bits: 40 squares would be 2 TB."""
    number, exact = symbol("x"), fmpq(2, 3)
    for _ in range(times):
        number = add(multiply(number, number), rational(1, 7))
    begin = METER.work
    result = evaluate.value(number, {"x": exact})
    assert METER.work - begin < 1000
    assert isinstance(result, fmpq) == (times == 5)
    for _ in range(min(times, 17)):
        exact = exact * exact + fmpq(1, 7)
    # The numbers fall to the fixed point of x = x² + 1/7.
    assert arb(result).overlaps(arb(exact)) or times == 60
    fixed_point = (1 - (arb(3) / 7).sqrt()) / 2
    assert times < 60 or abs(arb(result) - fixed_point) < 1e-6

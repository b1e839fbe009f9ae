"""Goals that are proved by what is shown of their parts first, and false ones beside them."""

from flint import fmpq

from closedform.effort import Effort
from closedform.verify.checker.replay import Replay, check
from closedform.verify.search.guesses import Points
from closedform.verify.search.refutation import find_proof
from closedform.verify.search.solver import Solver
from closedform.verify.search.statements import statement_of
from closedform.verify.search.steps import NoProofError
from closedform.verify.terms.build import (
    HALF,
    ONE,
    ZERO,
    add,
    divide,
    equal,
    floor,
    ite,
    less,
    less_equal,
    multiply,
    power,
    rational,
    subtract,
    symbol,
)
from closedform.verify.terms.tree import Sign, Term

S = symbol("s", integer=True, sign=Sign.NONNEGATIVE)
T = symbol("t", integer=True, sign=Sign.NONNEGATIVE)
N = symbol("n", integer=True, sign=Sign.POSITIVE)
X, Y = symbol("x"), symbol("y")
WORK = 2_000_000
POWER = power(X, T)
UNIT = less(ZERO, X), less_equal(X, ONE)


def is_proved(goal: Term, *assume: Term, work: int = WORK) -> bool:
    statement = statement_of(goal, assume)
    try:
        proof = find_proof(statement, Effort.of(work))
    except NoProofError:
        return False
    check(statement, proof)
    return True


def product_of_falling_factors(step: Term, number: int, offset: int) -> Term:
    """``(9/5 sqrt(number) / sqrt(step + offset) + 1/10) (5 - step / 40)``."""
    scale, divisor = (power(n, HALF) for n in (rational(number), add(step, rational(offset))))
    root = add(divide(multiply(rational(9, 5), scale), divisor), rational(1, 10))
    return multiply(root, subtract(rational(5), divide(step, rational(40))))


def test_a_product_of_falling_factors_falls() -> None:
    early, late = (product_of_falling_factors(step, number=3, offset=5) for step in (T, S))
    order = less(T, S), less_equal(rational(100), T), less_equal(S, rational(199))
    assert is_proved(less_equal(late, early), *order)
    assert not is_proved(less_equal(early, late), *order, work=200_000)


def test_a_floor_with_one_value_is_that_value() -> None:
    count = floor(divide(add(T, N), N))
    powers = (power(X, divide(T, divisor)) for divisor in (multiply(N, count), N))
    goal = equal(*powers)
    assert is_proved(goal, less(T, N), less(ZERO, X))
    # At t = n the floor is 2.
    assert not is_proved(goal, less_equal(T, N), less(ZERO, X), work=400_000)


def test_a_product_with_a_choice_of_at_most_one() -> None:
    rest = multiply(rational(2), subtract(T, multiply(N, floor(divide(T, N)))))
    share = ite(less_equal(rest, N), divide(rest, N), ONE)
    product = multiply(Y, POWER, share)
    assert is_proved(less_equal(product, Y), less(ZERO, Y), *UNIT)
    assert not is_proved(less_equal(product, Y), *UNIT, work=400_000)


def test_guesses_are_false_at_no_point() -> None:
    replay = Replay()
    terms = replay.terms
    first, second = (terms.declare(name, integer=True) for name in "mn")
    zero = terms.rational(0)
    facts = terms.less(zero, first), terms.less(first, second)
    stairs = terms.make("floor", (terms.make("/", (first, second)),))
    points = Points(replay, Solver(), facts, [stairs], Effort.of(WORK))
    assert points.range_of(stairs) == (fmpq(0), fmpq(0))
    assert points.may_hold(terms.less_equal(first, second))
    assert not points.may_hold(terms.less_equal(second, first))
    assert points.range_of(terms.make("log", (terms.make("*", (zero, first)),))) is None


def test_a_point_may_be_beyond_floats() -> None:
    replay = Replay()
    terms = replay.terms
    number = terms.declare("m", integer=True)
    large = terms.rational(10**400)
    points = Points(replay, Solver(), [terms.equal(number, large)], [large], Effort.of(WORK))
    ends = points.range_of(number)
    # The ends of intervals have 96 bits where a number has more than 400.
    assert ends is not None
    assert ends[0] < 10**400 < ends[1]
    assert not points.may_hold(terms.less(terms.add(large, large), number))

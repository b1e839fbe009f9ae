"""Traces: hyperparameters, exact constants, decisions, comparison, equality with the library."""

import functools
import itertools
import math
import pickle
import random
from collections.abc import Callable
from fractions import Fraction
from typing import Any

import numpy as np
import pytest
import sympy as sp

import closedform as cf
from closedform import t
from closedform.effort import METER
from closedform.errors import DefinitionError, DomainError, TraceError
from closedform.importers.python import TracedSchedule, trace
from closedform.importers.python.prover import ConditionRange
from closedform.importers.python.run import Limits
from closedform.language import Schedule, floor_div, floor_mod
from closedform.verify.tracing import TracingProver
from tests.importers.published import PUBLISHED

schedules = cf.schedules


def get_lr(
    it: int, warmup: int = 100, total: int = 1000, peak: float = 6e-4, low: float = 6e-5
) -> float:
    if it < warmup:
        return peak * (it + 1) / (warmup + 1)
    if it > total:
        return low
    ratio = (it - warmup) / (total - warmup)
    assert 0 <= ratio <= 1
    return low + 0.5 * (1.0 + math.cos(math.pi * ratio)) * (peak - low)


# --- equal to the library, by proof --------------------------------------------------------------

PEAK, LOW = Fraction(6, 10**4), Fraction(6, 10**5)
LIBRARY: dict[str, Callable[[], Schedule]] = {
    "karpathy/nanoGPT:get_lr": lambda: schedules.linear(PEAK / 2001, PEAK, 2000).then(
        schedules.cosine(PEAK, LOW, 598_000)
    ),
    "karpathy/build-nanogpt:get_lr_of_globals": lambda: schedules.linear(
        PEAK / 715, PEAK + PEAK / 715, 715
    ).then(schedules.cosine(PEAK, LOW, 18_358)),
    "seed:stack overflow:linear_decay_of_lambda_lr": lambda: schedules.linear(1, 0, 50),
    "seed:stack overflow:cosine_annealing_with_warmup": lambda: schedules.linear(0, 1, 10).then(
        schedules.cosine_annealing(1, 0, 90)
    ),
    "seed:stack overflow:step_decay_with_momentum": lambda: schedules.multi_step(
        0.001, 0.1, [50, 100]
    ),
    "OpenNMT/OpenNMT-py:noam_decay": lambda: schedules.noam(512, 8000, 2),
    "pytorch/examples:imagenet_step": lambda: schedules.step_decay(0.1, 0.1, 30),
    "huggingface/transformers:linear": lambda: cf.frameworks.schedule(
        "huggingface", "linear", {"num_warmup_steps": 500, "num_training_steps": 10_000}, base=1
    ),
}


@pytest.mark.parametrize("name", LIBRARY)
def test_a_published_function_is_a_form_of_the_library(name: str) -> None:
    traced = cf.from_python(PUBLISHED[name]())
    assert cf.claims.equal(traced, LIBRARY[name]()).verify().proved


# --- hyperparameters -----------------------------------------------------------------------------


def test_named_variables_are_hyperparameters() -> None:
    schedule = cf.from_python(get_lr, hyper=["warmup", "total", "peak", "low"])
    assert {symbol.name for symbol in schedule.expr.free_symbols} == {
        "t", "warmup", "total", "peak", "low",
    }  # fmt: skip
    assert schedule.hyperparameters["peak"] == sp.Rational(6, 10**4)
    assert schedule.trace.comparison.points > 10
    other = schedule.bind(warmup=50, total=400, peak=1e-3, low=0)
    again = functools.partial(get_lr, warmup=50, total=400, peak=1e-3, low=0)
    steps = np.arange(450)
    # Each rounds some ten times.
    expected = [again(int(step)) for step in steps]
    np.testing.assert_allclose(other(steps), expected, rtol=1e-12, atol=1e-18)


def outer() -> Callable[[int], float]:
    factor = 0.5

    def inner(step: int) -> float:
        return factor * step

    return inner


class Linear:
    def __init__(self) -> None:
        self.slope = 0.25

    def at(self, step: int) -> float:
        return self.slope * step


RATE = 0.125


@pytest.mark.parametrize(
    ("function", "name", "value"),
    [
        (outer(), "factor", sp.Rational(1, 2)),
        (Linear().at, "slope", sp.Rational(1, 4)),
        (lambda step: RATE * step, "RATE", sp.Rational(1, 8)),
        (functools.partial(lambda step, rate: rate * step, rate=3), "rate", sp.Integer(3)),
    ],
)
def test_where_a_variable_may_be(function: Any, name: str, value: sp.Expr) -> None:
    schedule = cf.from_python(function, hyper=[name])
    assert schedule.hyperparameters == {name: value}
    assert schedule.bind({name: 2}).exact(3) == 6


def test_a_parameter_without_a_value_stays_open() -> None:
    schedule = cf.from_python(lambda step, rate: rate * step, hyper=["rate"])
    assert [symbol.name for symbol in schedule.open] == ["rate"]
    assert schedule.trace.notes == ("not compared: a hyperparameter has no value",)


def test_declarations_follow_the_values() -> None:
    schedule = cf.from_python(get_lr, hyper=["warmup", "low"])
    symbols = {symbol.name: symbol for symbol in schedule.expr.free_symbols}
    assert (symbols["warmup"].is_integer, symbols["warmup"].is_positive) == (True, True)
    assert symbols["low"].is_integer is None
    own = cf.expr.hyper("warmup", integer=True)
    assert own in cf.from_python(get_lr, hyper=[own]).expr.free_symbols


def checked(step: int, warmup: int = 10, total: int = 100) -> float:
    if warmup > total:
        raise ValueError("warmup is longer than the run")
    return min(step / total, 1.0) * warmup


def test_an_exception_about_hyperparameters_is_the_domain() -> None:
    schedule = cf.from_python(checked, hyper=["warmup", "total"])
    assert [str(rule) for rule in schedule.domain] == ["warmup <= total"]
    with pytest.raises(DomainError, match="warmup <= total must hold"):
        schedule.bind(warmup=101)


def test_an_unknown_variable_is_refused() -> None:
    with pytest.raises(DefinitionError, match=r"'warmpu' is not a variable.*did you mean 'warmup'"):
        cf.from_python(get_lr, hyper=["warmpu"])


def test_schedules_function_takes_python_functions() -> None:
    schedule = schedules.function(get_lr, name="lr", warmup=50, length=1001)
    assert (schedule.name, schedule.length) == ("lr", 1001)
    assert schedule.hyperparameters == {"warmup": 50}
    assert schedule.exact(50) == sp.Rational(6, 10**4)


# --- exact constants -----------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("number", "exact"),
    [
        (0.1, sp.Rational(1, 10)),
        (3e-4 / 10, sp.Rational(3, 10**5)),
        (0.1 + 0.2, sp.Rational(3, 10)),
        (2000 / 7654321, sp.Rational(2000, 7654321)),
        (math.pi, sp.pi),
        (-math.pi / 3, -sp.pi / 3),
        (2 * math.pi * 0.3, sp.pi * 3 / 5),
        (512**-0.5, sp.sqrt(2) / 32),
        (-math.sqrt(3), -sp.sqrt(3)),
        (0.0, sp.Integer(0)),
        (1e300, sp.Integer(10) ** 300),
        # Not near anything simple: the decimal that it prints as.
        (0.1234567890123457, sp.Rational("0.1234567890123457")),
        (math.exp(0.3), sp.Rational(repr(math.exp(0.3)))),
    ],
)
def test_exact_constants(number: float, exact: sp.Expr) -> None:
    assert TracingProver().exact(number) == exact
    assert float(exact) == pytest.approx(number, rel=4 * 2**-52)


def test_constants_of_the_function_are_exact() -> None:
    scale = 3e-4 / 10
    schedule = cf.from_python(lambda step: scale * 0.1 * 3 * math.sqrt(2) * math.pi + step * 0)
    assert schedule.exact(0) == sp.sqrt(2) * sp.pi * 9 / 10**6


def test_conversions_of_constants_are_those_of_python() -> None:
    assert int(0.29 * 100) == 28
    assert cf.from_python(lambda step: int(0.29 * 100) * step).exact(1) == 28
    assert cf.from_python(lambda step: 1 if 0.1 * 3 == 0.3 else step).exact(7) == 7


# --- decisions -----------------------------------------------------------------------------------

CONDITIONS = [
    t < 10,
    sp.Eq(t, 17),
    sp.Ge(t / 7, sp.Rational(5, 3)),
    sp.Lt(floor_div(t, 13), 4, evaluate=False),
    sp.Eq(floor_div(t, 13), 4, evaluate=False),
    sp.Eq(floor_mod(t, 10), 0, evaluate=False),
    sp.Eq(sp.Min(floor_div(t, 30), 2, evaluate=False), 2, evaluate=False),
    sp.Lt(sp.Max(0, 1 - t / 40), sp.Rational(1, 2), evaluate=False),
    sp.Gt(sp.sqrt(t), 9, evaluate=False),
    sp.Lt(sp.Rational(9, 10) ** t, sp.Rational(1, 100), evaluate=False),
    sp.Le(sp.cos(sp.pi * t / 90), 0, evaluate=False),
    sp.Lt(t**2 - 100 * t, -900, evaluate=False),
    sp.And(t > 5, t < 90, evaluate=False),
    sp.Ne(t, 3),
]


@pytest.mark.parametrize("condition", CONDITIONS, ids=str)
@pytest.mark.parametrize(("first", "end"), [(0, 120), (11, 77), (3, None)])
def test_parts_are_exact(condition: sp.Basic, first: int, end: int | None) -> None:
    parts = TracingProver().split(condition, first, end)
    assert parts[0].first == first
    assert parts[-1].end == end
    assert all(one.end == other.first for one, other in itertools.pairwise(parts))
    for part in parts:
        last = 200 if part.end is None else part.end
        for step in range(part.first, last):
            assert part.truth in (None, bool(condition.subs(t, step)))


def test_parts_that_must_be_decided() -> None:
    undecided = [sp.Eq(floor_mod(t, 10), 0, evaluate=False), sp.cos(t) < 0]
    for condition in CONDITIONS:
        parts = TracingProver().split(condition, 0, 120)
        assert condition in undecided or all(part.truth is not None for part in parts)


@pytest.mark.parametrize("number", [t / 10, sp.sqrt(t)], ids=str)
@pytest.mark.parametrize(("depth", "is_shared"), [(110, False), (14, True)])
def test_nested_extrema_take_linear_work(number: sp.Expr, depth: int, is_shared: bool) -> None:
    begun, root = METER.work, 70 if number == t / 10 else 49
    for k in range(depth):
        lower = sp.Min(number, t + 8 * k, evaluate=False) if is_shared else -k - t
        number = sp.Max(sp.Min(number, t + 9 * k, evaluate=False), lower, evaluate=False)
        assert number.is_extended_real  # noted level by level, where SymPy recurses
    parts = TracingProver().split(sp.Lt(number, 7, evaluate=False), 0, None)
    assert parts == [ConditionRange(0, root, True), ConditionRange(root, None, False)]
    assert METER.work - begun < 800_000


@pytest.mark.parametrize(
    ("condition", "facts", "expected"),
    [
        (sp.Eq(floor_mod(t, 12), 5), [sp.Eq(floor_mod(t, 1001), 0)], None),
        (sp.Eq(floor_mod(t, 12), 0), [sp.Eq(floor_mod(t, 24), 0)], True),
        (sp.Eq(floor_mod(t, 12), 1), [sp.Eq(floor_mod(t, 24), 0)], False),
        (t < 10**7, [sp.Eq(floor_div(t, 1000), 5000)], True),  # no early step is a witness
        (t < 10**6, [sp.Eq(floor_div(t, 1000), 5000)], False),
        (t < 10**6, [sp.Ge(t, 10**5), sp.Eq(floor_mod(t, 7), 3)], None),
        (sp.Eq(floor_mod(t, 7), 6), [sp.Ge(t, 10**5), sp.Lt(t, 10**5 + 3)], None),
        (sp.Eq(floor_mod(t, 7), 3), [sp.Ge(t, 10**5), sp.Lt(t, 10**5 + 3)], False),
    ],
)
def test_questions_with_facts(
    condition: sp.Basic, facts: list[sp.Basic], expected: bool | None
) -> None:
    assert TracingProver().decide(condition, facts) is expected


# --- the comparison ------------------------------------------------------------------------------


def test_the_comparison_covers_the_ends_of_branches() -> None:
    schedule = cf.from_python(get_lr)
    found = schedule.trace.comparison
    assert (schedule.trace.paths, found.points > 20, list(found.rounded)) == (3, True, [])
    assert found.largest_difference < 1e-18
    assert str(schedule.trace).startswith("get_lr: 3 paths, compared at ")
    assert schedule.trace.place is not None
    assert schedule.trace.place.function == "get_lr"


def test_steps_at_which_the_function_rounds_are_listed() -> None:
    assert 3 * 0.1 > 0.3
    schedule = cf.from_python(lambda step: 1.0 if step * 0.1 <= 0.3 else 0.5)
    assert schedule.trace.comparison.rounded == (3,)
    assert [schedule.exact(step) for step in (3, 4)] == [1, sp.Rational(1, 2)]


def test_a_function_with_a_hidden_state_is_refused() -> None:
    calls = itertools.count()
    with pytest.raises(TraceError, match=r"uses a itertools\.count, which may have a state"):
        cf.from_python(lambda step: step + next(calls))


class Shifted(TracingProver):
    """A prover with a fault: each part begins one step late."""

    def split(self, condition: sp.Basic, first: int, end: int | None) -> list[ConditionRange]:
        parts = super().split(condition, first, end)
        return [
            ConditionRange(
                part.first + (index > 0),
                None if part.end is None else part.end + (index < len(parts) - 1),
                part.truth,
            )
            for index, part in enumerate(parts)
        ]


@pytest.mark.parametrize(
    "function",
    [
        lambda step: 1.0 if step < 100 else 0.5,
        lambda step: 1.0 if step / 100 < 1.005 else 0.5,  # no float is near a tie there
        lambda step: [1.0, 0.5][min(step // 101, 1)],
    ],
)
def test_a_wrong_decision_is_found(function: Callable[[int], float]) -> None:
    cf.from_python(function)
    with pytest.raises(TraceError, match=r"differs from the function: at step 10[01]"):
        trace(function, Shifted())


class Inexact(TracingProver):
    """A prover with a fault: a constant is replaced by one nearby."""

    def exact(self, number: float) -> sp.Expr:
        return super().exact(number) * sp.Rational(10**8 + 1, 10**8)


def test_a_wrong_constant_is_found() -> None:
    rate = 1 / 3
    with pytest.raises(TraceError, match="differs from the function"):
        trace(lambda step: rate * (step + 1), Inexact())


def test_limits_are_errors() -> None:
    def branches(step: int) -> int:
        return sum(step % 7 == k for k in range(7)) + sum(step % 5 == k for k in range(5))

    with pytest.raises(TraceError, match="more than 3 paths, most of which begin here"):
        trace(branches, TracingProver(), limits=Limits(runs=3))


def test_a_traced_schedule_is_a_schedule() -> None:
    schedule = cf.from_python(get_lr, name="mine")
    assert schedule.name == "mine"
    again = pickle.loads(pickle.dumps(schedule))
    assert isinstance(again, TracedSchedule)
    assert (again, again.trace) == (schedule, schedule.trace)
    assert type(schedule.scale(2)) is Schedule


def drawn_function(seed: int) -> Callable[[int], Any]:
    """A function with drawn branches, thresholds and formulas."""
    draw = random.Random(seed)
    marks = sorted(draw.sample(range(1, 300), 4))
    rates = [draw.choice([0.1, 0.25, 1e-3, 3.0]) for _ in range(5)]
    period, power = draw.randint(2, 40), draw.choice([0.5, 1.0, 2.0])
    kind = draw.randrange(4)

    def function(step: int) -> Any:
        index = sum(step >= mark for mark in marks)
        progress = min(1.0, (step + 1) / marks[-1])
        if kind == 0:
            return rates[index] * progress**power
        if kind == 1 and step % period < period // 2 + 1:
            return rates[index] * 0.5 ** (step // period)
        if kind == 2:
            return max(rates[index], rates[0] * math.cos(math.pi * progress))
        return rates[index] / math.sqrt(1 + step / period)

    return function


@pytest.mark.sample(every=8)
@pytest.mark.parametrize("seed", range(64))
def test_drawn_functions(seed: int) -> None:
    function = drawn_function(seed)
    schedule = cf.from_python(function)
    expected = [function(step) for step in range(400)]
    # Some ten roundings of numbers up to 3.
    np.testing.assert_allclose(schedule(np.arange(400)), expected, rtol=1e-12, atol=1e-15)


@pytest.mark.parametrize(
    ("function", "expected"),
    [
        (lambda step: np.log(0.01) * step, -t * sp.log(100)),
        (lambda step: step * (1 - np.sqrt(2)), t * (1 - sp.sqrt(2))),
        (lambda step: -np.cos(1) / 4 * step, -t * sp.cos(1) / 4),
        (lambda step: float(np.exp(2)) * step, t * sp.exp(2)),
    ],
)
def test_constants_of_numpy_are_exact_as_constants_of_math_are(
    function: Callable[[int], float], expected: sp.Expr
) -> None:
    assert sp.expand(cf.from_python(function).expr - expected) == 0


@pytest.mark.filterwarnings("ignore:divide by zero")
def test_constants_of_numpy_divide_as_numpy_does() -> None:
    traced = cf.from_python(lambda step: 0.1 if 1 / np.log(1) > 0 else 0.2)
    assert traced.exact(5) == sp.Rational(1, 10)


@pytest.mark.parametrize("rounds", [3, 24, 60])
def test_values_of_shared_and_deep_terms(rounds: int) -> None:
    """As a tree it has 2 ** rounds nodes."""

    def function(step: int) -> float:
        x = 1 / (1 + step)
        for _ in range(rounds):
            x = math.sqrt(x + math.cos(x))
        return x

    prover, expr = TracingProver(), 1 / (1 + t)
    for _ in range(rounds):
        expr = sp.sqrt(expr + sp.cos(expr))
    for step in (0, 3, 100):
        found = prover.value(expr, step)
        assert found == pytest.approx(function(step), rel=1e-13)

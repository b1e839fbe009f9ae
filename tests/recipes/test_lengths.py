"""Schedules whose lengths are in tokens, samples, epochs, micro-batches or parts of the run."""

import copy
import inspect
import pickle
from collections.abc import Callable
from typing import Any

import pytest
import sympy as sp

import closedform as cf
from closedform import units
from closedform.errors import ArgumentError, DefinitionError, DomainError
from closedform.language.in_units import ScheduleInUnits
from closedform.recipes.clock import Amount, Facts
from closedform.schedules.examples import EXAMPLES
from closedform.schedules.stages import Stage

FACTS = Facts(
    global_batch_size=16,
    sequence_length=8,
    gradient_accumulation=4,
    dataset_size=1600,
    total_updates=1000,
)
# Each is 100 updates with the facts above: 16 samples, 128 tokens, 4 micro-batches an update.
HUNDRED = [
    units.tokens(12_800),
    units.samples(1600),
    units.micro_batches(400),
    units.epochs(1),
    units.fraction(0.1),
    units.tokens(12_801, rounding="floor"),
    units.samples(1599, rounding="ceil"),
    units.samples(1608 - 1, rounding="nearest"),
]


@pytest.mark.parametrize("length", HUNDRED, ids=str)
def test_each_unit_is_converted_exactly(length: Amount) -> None:
    lr = cf.schedules.cosine(3e-4, 3e-5, length)
    assert lr.resolve(FACTS) == cf.schedules.cosine(3e-4, 3e-5, 100)
    assert lr.resolve(FACTS).length == 100


COUNTS = {
    "steps": 400,
    "warmup": 20,
    "cooldown": 10,
    "decay": 100,
    "hold": 30,
    "tail": 40,
    "every": 200,
    "anneal": 5,
    "flat": 50,
    "up": 20,
    "down": 25,
    "bound": 500,
    "timescale": 60,
}
ARGUMENTS: dict[str, Any] = {
    **COUNTS,
    **dict.fromkeys(("start", "peak", "value", "high"), 1),
    **dict.fromkeys(("end", "gamma", "rate", "infimum"), 0.5),
    "low": 0.1,
    "beta": 1.5,
    "width": 64,
    "exponent": -0.5,
    "schedule": cf.schedules.cosine(1, 0, 400),
}


def _calls() -> list[tuple[str, Callable[..., Any]]]:
    skipped = {"reduce_on_plateau", "function"}
    return [(name, getattr(cf.schedules, name)) for name in EXAMPLES if name not in skipped]


def _length_names(name: str) -> list[str]:
    """The arguments of a schedule that are lengths; ``anneal`` of a one-cycle is a shape."""
    parameters = inspect.signature(getattr(cf.schedules, name)).parameters
    shapes = {("one_cycle", "anneal"), ("one_cycle_momentum", "anneal")}
    return [key for key in parameters if key in COUNTS and (name, key) not in shapes]


# Their lengths are inside of lists and schedules, which a test below has, or they have none.
WITHOUT_LENGTHS = {
    *("chained", "maximum", "multi_step", "multiplicative", "piecewise_constant", "product"),
    *("refined", "scale", "sequential", "splice", "stages", "table"),
}
WITH_LENGTHS = [(name, function) for name, function in _calls() if _length_names(name)]


def test_schedules_without_lengths() -> None:
    assert {name for name, _ in _calls()} - dict(WITH_LENGTHS).keys() == WITHOUT_LENGTHS


@pytest.mark.parametrize(("name", "function"), WITH_LENGTHS, ids=[name for name, _ in WITH_LENGTHS])
def test_every_schedule_takes_lengths(name: str, function: Callable[..., Any]) -> None:
    parameters = inspect.signature(function).parameters
    lengths = _length_names(name)
    numbers = {key: ARGUMENTS[key] for key in parameters if key in (ARGUMENTS.keys() - COUNTS)}
    numbers |= {key: COUNTS[key] for key in lengths}
    deferred = function(**{**numbers, **{key: units.samples(16 * COUNTS[key]) for key in lengths}})
    assert isinstance(deferred, ScheduleInUnits)
    assert deferred.resolve(FACTS) == function(**numbers)


def test_lists_and_stages_take_lengths() -> None:
    marks = cf.schedules.multi_step(1, 0.1, [units.epochs(1), 250, units.fraction(0.5)])
    assert marks.resolve(FACTS) == cf.schedules.multi_step(1, 0.1, [100, 250, 500])
    rise = cf.schedules.stages(0, [Stage(1, units.epochs(1)), (0, units.samples(3200), "cosine")])
    assert rise.resolve(FACTS) == cf.schedules.stages(0, [(1, 100), (0, 200, "cosine")])


def test_composition_is_deferred_and_converted_whole() -> None:
    warmup = cf.schedules.linear(0, 1, units.samples(160))
    plain = cf.schedules.cosine(1, 0, 90)
    whole = warmup.then(plain).scale(0.5).clip(low=0.01).bind(end_2=0.1).shift(3).rename("lr")
    expected = cf.schedules.linear(0, 1, 10).then(plain)
    expected = expected.scale(0.5).clip(low=0.01).bind(end_2=0.1).shift(3).rename("lr")
    made = whole.resolve(FACTS)
    assert made == expected
    assert made.name == "lr"
    spliced = plain.splice(units.epochs(0.5), cf.schedules.linear(1, 0, units.epochs(2)))
    assert spliced.resolve(FACTS) == plain.splice(50, cf.schedules.linear(1, 0, 200))
    repeated = plain.repeat(units.epochs(1))
    assert repeated.resolve(FACTS) == plain.repeat(100)
    assert plain.bind(steps=units.epochs(2)).resolve(FACTS) == plain.bind(steps=200)


def test_a_plain_schedule_resolves_to_itself() -> None:
    lr = cf.schedules.linear(1, 0, 10)
    assert lr.resolve(FACTS) is lr


def test_facts_by_name_and_by_the_names_of_frameworks() -> None:
    lr = cf.schedules.linear(1, 0, units.tokens(4096))
    assert lr.missing_facts({"sequence_length": 8}) == ("global_batch_size",)  # type: ignore[attr-defined]
    assert lr.resolve({"sequence_length": 8}, train_batch_size=16).length == 32
    assert lr.resolve(tokens_per_update=128).length == 32


def test_comparison_printing_and_copies() -> None:
    lr = cf.schedules.linear(0, 3e-4, units.tokens(2e9))
    same = cf.schedules.linear(start=0, end=3e-4, steps=units.tokens(2_000_000_000))
    assert lr == same
    assert hash(lr) == hash(same)
    assert lr != cf.schedules.linear(0, 3e-4, units.samples(2e9))
    assert lr != cf.schedules.linear(0, 3e-4, 10)
    assert cf.schedules.linear(0, 3e-4, 10) != lr
    assert repr(lr) == "linear(0, 0.0003, tokens(2000000000))"
    assert pickle.loads(pickle.dumps(lr)) == lr
    assert copy.deepcopy(lr) == lr
    half = units.fraction(0.5, rounding="floor")
    assert str(half) == 'fraction(1/2, rounding="floor")'


USES: dict[str, Callable[[Any], object]] = {
    "value": lambda lr: lr(5),
    "exact": lambda lr: lr.exact(5),
    "length": lambda lr: lr.length,
    "latex": lambda lr: lr.latex(),
    "verify": lambda lr: lr.verify(),
    "compile": lambda lr: cf.compile(lr),
    "onnx": lambda lr: cf.to_onnx(lr, "unused.onnx"),
    "torch": lambda lr: cf.to_torch(lr),
    "diff": lambda lr: cf.diff(lr, cf.schedules.constant(1)),
    "rule": lambda lr: cf.compile(cf.optimizers.sgd(lr=lr), params={"w": (2,)}),
}


@pytest.mark.parametrize("use", USES.values(), ids=USES)
def test_a_use_without_facts_names_those_that_are_missing(use: Callable[[Any], object]) -> None:
    lr = cf.schedules.linear(0, 1, units.tokens(1e9)).then(cf.schedules.constant(1))
    message = "missing facts: global_batch_size, sequence_length .*: convert them first: resolve"
    with pytest.raises(ArgumentError, match=message):
        use(lr)


def test_all_missing_facts_of_a_composition_are_named_once() -> None:
    lr = cf.schedules.linear(0, 1, units.fraction(0.1)).then(
        cf.schedules.cosine(1, 0, units.epochs(3))
    )
    with pytest.raises(ArgumentError, match="total_updates, dataset_size ") as caught:
        lr.resolve(global_batch_size=4)
    assert "global_batch_size," not in str(caught.value)
    with pytest.raises(ArgumentError, match="unknown fact 'batch'"):
        lr.resolve(batch=4)
    with pytest.raises(ArgumentError, match=r"facts must be a mapping .*, got int 5"):
        lr.resolve(5)
    with pytest.raises(ArgumentError, match="got both: total_updates"):
        lr.resolve(FACTS, total_updates=4)


def test_fractions_of_a_step_are_taken_or_refused_by_name() -> None:
    third = cf.schedules.cosine(1, 0, units.samples(100)).resolve(FACTS)
    assert third.hyperparameters["steps"] == sp.Rational(25, 4)
    assert third.exact(4).is_positive
    assert third.exact(7) == 0
    refused = cf.schedules.wsd(1, 0, 100, units.samples(100), 10)
    with pytest.raises(DomainError, match=r"warmup .* got 25/4 .*samples\(100\) is 25/4 updates"):
        refused.resolve(FACTS)
    rounded = cf.schedules.wsd(1, 0, 100, units.samples(100, rounding="floor"), 10)
    assert rounded.resolve(FACTS) == cf.schedules.wsd(1, 0, 100, 6, 10)
    with pytest.raises(
        DefinitionError, match=r"rounding must be one of .*got 'flor': did you mean"
    ):
        units.tokens(5, rounding="flor")
    with pytest.raises(DefinitionError, match="a number of tokens must be finite"):
        units.tokens(float("inf"))


def test_arguments_that_do_not_fit_are_refused_at_once() -> None:
    with pytest.raises(ArgumentError, match="missing a required argument: 'end'"):
        cf.schedules.linear(0, steps=units.tokens(5))  # type: ignore[call-arg]

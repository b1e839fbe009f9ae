"""Clocks and facts: exact conversions, and errors that list the facts."""

from collections.abc import Callable
from dataclasses import FrozenInstanceError

import pytest
import sympy as sp

from closedform.errors import ArgumentError, DefinitionError
from closedform.language import Schedule, t
from closedform.recipes.clock import (
    Amount,
    Clock,
    Facts,
    Unit,
    epochs,
    fraction,
    hold,
    samples,
    tokens,
)

FACTS = Facts(
    global_batch_size=12,
    world_size=3,
    gradient_accumulation=2,
    dataset_size=100,
    sequence_length=7,
    total_updates=50,
    warmup_updates=5,
    updates_per_training_step=4,
)
# Unit -> its units in an update, with the facts above: 12 samples of 7 tokens, 100/12 updates an
# epoch.
PER_UPDATE = {
    Unit.UPDATE: sp.Integer(1),
    Unit.MICRO_BATCH: sp.Integer(2),
    Unit.PROCESS_STEP: sp.Integer(3),
    Unit.SAMPLE: sp.Integer(12),
    Unit.TOKEN: sp.Integer(84),
    Unit.EPOCH: sp.Rational(12, 100),
    Unit.TRAINING_STEP: sp.Rational(1, 4),
    Unit.RUN: sp.Rational(1, 50),
    Unit.WARMUP: sp.Rational(1, 5),
}


@pytest.mark.parametrize("unit", Unit)
def test_every_unit_has_its_rate(unit: Unit) -> None:
    assert Clock(unit).per_update(FACTS) == PER_UPDATE[unit]
    assert Clock(unit, offset=-1).position(FACTS) == sp.expand((t - 1) * PER_UPDATE[unit])
    assert Clock(unit).updates(3, FACTS) == 3 / PER_UPDATE[unit]


def test_direct_facts_take_the_place_of_products() -> None:
    facts = Facts(tokens_per_update=90, updates_per_epoch=8)
    assert tokens(45).updates(facts) == sp.Rational(1, 2)
    assert epochs(3).updates(facts) == 24


def test_amounts_are_exact() -> None:
    assert samples(0.1).updates(FACTS) == sp.Rational(1, 120)
    assert fraction(0.3).updates(FACTS) == 15
    assert Amount(4).updates(Facts()) == 4


def test_facts_are_frozen() -> None:
    with pytest.raises(FrozenInstanceError):
        FACTS.world_size = 5  # type: ignore[misc]


def test_missing_facts_are_listed_at_once() -> None:
    with pytest.raises(ArgumentError) as caught:
        tokens(1).updates(Facts(world_size=2))
    assert str(caught.value) == (
        "missing facts: global_batch_size, sequence_length: this needs the facts "
        "global_batch_size, sequence_length"
    )


def test_names_of_frameworks_are_known() -> None:
    assert Facts.of({"num_training_steps": 9, "samples_per_batch": 4}) == Facts(
        total_updates=9, global_batch_size=4
    )


def test_unknown_fact_is_refused() -> None:
    with pytest.raises(ArgumentError) as caught:
        Facts.of({"world_sise": 3})
    assert str(caught.value) == "unknown fact 'world_sise': did you mean 'world_size'?"


def test_two_values_of_one_fact_are_refused() -> None:
    with pytest.raises(DefinitionError) as caught:
        Facts.of({"num_iterations": 3, "training_steps": 4})
    assert str(caught.value) == (
        "the fact total_updates has two values, 3 and 4 as 'training_steps'"
    )


def test_a_fact_must_be_above_zero() -> None:
    with pytest.raises(DefinitionError) as caught:
        Facts(world_size=-2)
    assert str(caught.value) == "the fact world_size must be above 0, got -2"


def test_a_value_of_a_stepped_clock_serves_all_updates_of_its_unit() -> None:
    clock = Clock(Unit.EPOCH, is_stepped=True)
    assert clock.updates_per_value(Facts()) == 1
    assert clock.updates_per_value(Facts(updates_per_epoch=3)) == 3
    assert clock.updates_per_value(Facts(dataset_size=24, global_batch_size=8)) == 3
    assert Clock(Unit.EPOCH).updates_per_value(Facts(updates_per_epoch=3)) == 1
    with pytest.raises(DefinitionError, match="whole number, got 5/2"):
        clock.updates_per_value(Facts(dataset_size=20, global_batch_size=8))


def test_a_schedule_that_is_held_ends_with_its_last_value() -> None:
    short = Schedule(t, domain=(t <= 2,))
    slow = hold(short, 4)
    assert [slow.exact(step) for step in (0, 3, 4, 11)] == [0, 0, 1, 2]
    assert slow.last_step == 11


@pytest.mark.parametrize("mark", [sp.Integer(2), sp.Rational(5, 2)])
@pytest.mark.parametrize("test", [sp.Lt, sp.Le, sp.Gt, sp.Ge])
def test_a_schedule_that_is_held_has_its_marks_in_updates(
    test: Callable[[sp.Expr, sp.Expr], sp.Rel], mark: sp.Expr
) -> None:
    schedule = Schedule(sp.Piecewise((t, test(t, mark)), (-t, True)))
    slow = hold(schedule, 3)
    steps = range(15)
    assert [slow.exact(step) for step in steps] == [schedule.exact(step // 3) for step in steps]
    assert all(rel.lhs == t for rel in slow.expr.atoms(sp.Rel))


def test_facts_of_one_framework_are_named() -> None:
    facts = Facts.of({"part": "actor", "max_steps": 5}, ("part",))
    assert (facts.framework_facts, facts.total_updates) == ({"part": "actor"}, 5)
    with pytest.raises(ArgumentError, match="unknown fact 'part'"):
        Facts.of({"part": "actor"})


@pytest.mark.parametrize("name", ["batches_per_epoch", "dataloader_len_batches"])
@pytest.mark.parametrize("batches", [6, 7, 8])
@pytest.mark.parametrize("accumulation", [None, 1, 2, 3])
def test_batches_of_an_epoch_are_updates_by_the_accumulation(
    name: str, batches: int, accumulation: int | None
) -> None:
    facts = Facts.of({name: batches, "gradient_accumulation_steps": accumulation})
    count = accumulation or 1
    # A part of an update is rounded up, down or dropped, as the framework does: it is not known.
    assert facts.updates_per_epoch == (batches // count if batches % count == 0 else None)


def test_updates_of_an_epoch_must_agree_with_its_batches() -> None:
    facts = {"batches_per_epoch": 6, "gradient_accumulation": 3}
    assert Facts.of({**facts, "updates_per_epoch": 2}).updates_per_epoch == 2
    with pytest.raises(DefinitionError, match="updates_per_epoch has two values"):
        Facts.of({**facts, "updates_per_epoch": 6})

"""Configs of reinforcement learning: their clock, their parts and what they refuse."""

from collections.abc import Mapping
from typing import Any

import pytest
import sympy as sp

from closedform.errors import ClosedFormError, MissingFactsError
from closedform.recipes import Recipe, load_recipe
from closedform.recipes.clock import Unit
from closedform.recipes.document import document_of
from closedform.recipes.recipe import Role

VERL = """\
actor_rollout_ref.actor.optim.lr=1.0
+actor_rollout_ref.actor.optim.lr_warmup_steps=4
critic.optim.lr_warmup_steps=2
trainer.total_training_steps=10
"""


def read(text: str, facts: Mapping[str, Any] | None = None, suffix: str = ".args") -> Recipe:
    return load_recipe(document_of(text, suffix, f"config{suffix}"), facts=facts)


def test_the_updates_of_a_training_step_share_a_value() -> None:
    slow, fast = read(VERL, {"updates_per_training_step": 3}), read(VERL)
    assert slow.clock is not None
    assert slow.clock.unit is Unit.TRAINING_STEP
    assert (fast.horizon, slow.horizon) == (10, 30)
    assert all(slow.schedule().exact(t) == fast.schedule().exact(t // 3) for t in range(33))


def test_the_part_of_verl_is_a_fact() -> None:
    critic = read(VERL, {"part": "critic"})
    assert float(critic.schedule()(2)) == pytest.approx(1e-5, rel=1e-15)
    megatron = read(f"{VERL}actor_rollout_ref.actor.strategy=megatron\n")
    assert [group.role for group in megatron.param_groups] == [Role.DEFAULT, Role.NO_DECAY]
    with pytest.raises(ClosedFormError, match="the fact part must be one of fsdp, actor"):
        read(VERL, {"part": "driver"})
    tuned = {"optim": {"lr": 1.0}, "trainer": {"total_epochs": 2}}
    with pytest.raises(MissingFactsError, match="missing facts: part"):
        load_recipe(tuned)
    facts = {"updates_per_epoch": 5}
    assert load_recipe(tuned, facts={**facts, "part": "sft"}).schedule().exact(1) == 1
    assert load_recipe(tuned, facts={**facts, "part": "engine"}).horizon == 10


def test_the_length_of_verl_is_that_of_the_config_the_fact_or_the_epochs() -> None:
    line = "actor_rollout_ref.actor.optim.lr=1.0 data.train_batch_size=8 trainer.total_epochs=3"
    assert read(line, {"dataset_size": 100}).horizon == 36
    assert read(line, {"total_training_steps": 7}).horizon == 7
    assert read(line, {"total_updates": 14, "updates_per_training_step": 2}).horizon == 14
    with pytest.raises(MissingFactsError, match="missing facts: total_training_steps"):
        read(line)
    with pytest.raises(ClosedFormError, match="is 10, but the fact is 9"):
        read(VERL, {"total_training_steps": 9})


@pytest.mark.parametrize("key", ["lr_decay_steps=5", "lr_warmup=5", "min_lr=0.1"])
def test_a_key_of_another_worker_of_verl_is_refused(key: str) -> None:
    with pytest.raises(ClosedFormError, match="unknown key"):
        read(f"{VERL}actor_rollout_ref.actor.optim.{key}\n")


SLIME = """\
--lr 1.0 --lr-decay-style cosine --num-rollout 10
--rollout-batch-size 16 --n-samples-per-prompt 8
"""


def test_the_run_of_slime_is_that_of_its_rollouts() -> None:
    assert read(f"{SLIME}--global-batch-size 64").horizon == 20
    assert read(f"{SLIME}--num-steps-per-rollout 4").horizon == 40
    assert read(SLIME, {"--global-batch-size": 33}).horizon == 38
    with pytest.raises(MissingFactsError, match="missing facts: --global-batch-size"):
        read(SLIME)
    with pytest.raises(ClosedFormError, match="4 steps of a rollout have 32 samples, got 64"):
        read(f"{SLIME}--num-steps-per-rollout 4 --global-batch-size 64")
    epochs = "--lr 1.0 --num-epoch 3 --rollout-batch-size 16 --global-batch-size 8"
    assert read(epochs, {"dataset_size": 100}).horizon == 36


def test_a_fraction_silences_the_warmup_of_slime() -> None:
    line = f"{SLIME}--global-batch-size 64 --lr-warmup-iters 128 --lr-warmup-fraction 0.9"
    recipe = read(line)
    assert recipe.schedule().exact(18) == 1
    assert "fraction-wins" in recipe.notes


def test_the_former_back_end_of_slime_counts_updates() -> None:
    root = SLIME.replace("cosine", "inverse-square-root") + "--global-batch-size 64"
    assert read(root).schedule().exact(1) == sp.Rational(1, 8)
    assert read(f"{root} --train-backend fsdp").schedule().exact(1) == 1

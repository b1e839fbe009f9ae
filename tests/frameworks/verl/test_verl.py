"""Configs of verl: its training steps, its parts and what it refuses."""

import pytest

from closedform.errors import ClosedFormError, MissingFactsError
from closedform.recipes import load_recipe
from closedform.recipes.clock import Unit
from closedform.recipes.recipe import Role
from tests.support.configs import read_recipe

VERL = """\
actor_rollout_ref.actor.optim.lr=1.0
+actor_rollout_ref.actor.optim.lr_warmup_steps=4
critic.optim.lr_warmup_steps=2
trainer.total_training_steps=10
"""


def test_the_updates_of_a_training_step_share_a_value() -> None:
    slow, fast = read_recipe(VERL, {"updates_per_training_step": 3}), read_recipe(VERL)
    assert slow.clock is not None
    assert slow.clock.unit is Unit.TRAINING_STEP
    assert (fast.horizon, slow.horizon) == (10, 30)
    assert all(slow.schedule().exact(t) == fast.schedule().exact(t // 3) for t in range(33))


def test_the_part_of_verl_is_a_fact() -> None:
    critic = read_recipe(VERL, {"part": "critic"})
    assert float(critic.schedule()(2)) == pytest.approx(1e-5, rel=1e-15)
    megatron = read_recipe(f"{VERL}actor_rollout_ref.actor.strategy=megatron\n")
    assert [group.role for group in megatron.param_groups] == [Role.DEFAULT, Role.NO_DECAY]
    with pytest.raises(ClosedFormError, match="the fact part must be one of fsdp, actor"):
        read_recipe(VERL, {"part": "driver"})
    tuned = {"optim": {"lr": 1.0}, "trainer": {"total_epochs": 2}}
    with pytest.raises(MissingFactsError, match="missing facts: part"):
        load_recipe(tuned)
    facts = {"updates_per_epoch": 5}
    assert load_recipe(tuned, facts={**facts, "part": "sft"}).schedule().exact(1) == 1
    assert load_recipe(tuned, facts={**facts, "part": "engine"}).horizon == 10


def test_the_length_of_verl_is_that_of_the_config_the_fact_or_the_epochs() -> None:
    line = "actor_rollout_ref.actor.optim.lr=1.0 data.train_batch_size=8 trainer.total_epochs=3"
    assert read_recipe(line, {"dataset_size": 100}).horizon == 36
    assert read_recipe(line, {"total_training_steps": 7}).horizon == 7
    assert read_recipe(line, {"total_updates": 14, "updates_per_training_step": 2}).horizon == 14
    with pytest.raises(MissingFactsError, match="missing facts: total_training_steps"):
        read_recipe(line)
    with pytest.raises(ClosedFormError, match="is 10, but the fact is 9"):
        read_recipe(VERL, {"total_training_steps": 9})


@pytest.mark.parametrize("key", ["lr_decay_steps=5", "lr_warmup=5", "min_lr=0.1"])
def test_a_key_of_another_worker_of_verl_is_refused(key: str) -> None:
    with pytest.raises(ClosedFormError, match="unknown key"):
        read_recipe(f"{VERL}actor_rollout_ref.actor.optim.{key}\n")

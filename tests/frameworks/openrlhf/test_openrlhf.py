"""Configs of OpenRLHF: whole batches, groups, models and what it refuses."""

import pytest

from closedform.errors import ClosedFormError, MissingFactsError
from closedform.recipes import load_recipe
from closedform.recipes.document import document_of
from closedform.recipes.recipe import Role
from tests.support.configs import read_recipe

OPENRLHF = "--train.batch_size 8 --train.max_epochs 2 --adam.lr 1.0 --lr_scheduler linear"
PPO = "--train.batch_size 8 --rollout.n_samples_per_prompt 4 --actor.adam.lr 1.0"


def test_the_run_of_openrlhf_is_that_of_its_whole_batches() -> None:
    assert read_recipe(OPENRLHF, {"dataset_size": 87}).horizon == 20
    assert read_recipe(OPENRLHF, {"dataset_len": 87}).horizon == 20
    assert read_recipe(f"{OPENRLHF} --data.max_samples 40", {"dataset_len": 87}).horizon == 10
    assert read_recipe(OPENRLHF, {"total_updates": 7}).horizon == 7
    assert read_recipe(PPO, {"prompts_len": 21}).horizon == 10
    assert read_recipe(f"{PPO} --train.num_episodes 3", {"dataset_size": 21}).horizon == 30
    with pytest.raises(MissingFactsError, match="missing facts: total_updates"):
        read_recipe(PPO)
    with pytest.raises(ClosedFormError, match="the run has no update"):
        read_recipe(OPENRLHF, {"dataset_size": 7})


def test_muon_of_openrlhf_has_two_groups_with_one_factor() -> None:
    recipe = read_recipe(f"{OPENRLHF} --optim muon --muon.lr 2.0", {"total_updates": 10})
    muon, adam = recipe.param_groups
    assert [muon.schedules["lr"].exact(t) for t in range(12)] == [
        2 * adam.schedules["lr"].exact(t) for t in range(12)
    ]
    assert set(recipe.notes) == {"clipping-after-muon"}


def test_a_model_of_openrlhf_is_a_fact() -> None:
    facts = {"prompts_len": 80, "role": "critic"}
    recipe = read_recipe(
        f"{PPO} --critic.lr_scheduler constant --critic.adam.weight_decay 0.1", facts
    )
    assert float(recipe.schedule()(0)) == pytest.approx(9e-6, rel=1e-15)
    assert [group.role for group in recipe.param_groups] == [Role.DEFAULT, Role.NO_DECAY]
    assert "constant-without-warmup" in recipe.notes


@pytest.mark.parametrize(
    ("flags", "message"),
    [
        ("--lr_scheduler warmup_stable_decay", "num_decay_steps is missing"),
        ("--lr_scheduler wsd", "there is no lr_scheduler 'wsd'"),
        ("--adam.warmup 3", "unknown key 'warmup'"),
    ],
)
def test_what_openrlhf_refuses_is_refused(flags: str, message: str) -> None:
    with pytest.raises(ClosedFormError, match=message):
        read_recipe(f"{OPENRLHF} {flags}", {"total_updates": 10})


def test_the_minimum_of_openrlhf_was_passed_to_every_scheduler() -> None:
    document = document_of(OPENRLHF, ".args", "config.args")
    with pytest.raises(ClosedFormError, match="unknown key 'min_lr_rate'"):
        load_recipe(document, version="c3188af3^", facts={"total_updates": 10})

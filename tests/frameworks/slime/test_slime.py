"""Configs of slime: its rollouts, its warmup and its former back end."""

import pytest
import sympy as sp

from closedform.errors import ClosedFormError, MissingFactsError
from tests.support.configs import read_recipe

SLIME = """\
--lr 1.0 --lr-decay-style cosine --num-rollout 10
--rollout-batch-size 16 --n-samples-per-prompt 8
"""


def test_the_run_of_slime_is_that_of_its_rollouts() -> None:
    assert read_recipe(f"{SLIME}--global-batch-size 64").horizon == 20
    assert read_recipe(f"{SLIME}--num-steps-per-rollout 4").horizon == 40
    assert read_recipe(SLIME, {"--global-batch-size": 33}).horizon == 38
    with pytest.raises(MissingFactsError, match="missing facts: --global-batch-size"):
        read_recipe(SLIME)
    with pytest.raises(ClosedFormError, match="4 steps of a rollout have 32 samples, got 64"):
        read_recipe(f"{SLIME}--num-steps-per-rollout 4 --global-batch-size 64")
    epochs = "--lr 1.0 --num-epoch 3 --rollout-batch-size 16 --global-batch-size 8"
    assert read_recipe(epochs, {"dataset_size": 100}).horizon == 36


def test_a_fraction_silences_the_warmup_of_slime() -> None:
    line = f"{SLIME}--global-batch-size 64 --lr-warmup-iters 128 --lr-warmup-fraction 0.9"
    recipe = read_recipe(line)
    assert recipe.schedule().exact(18) == 1
    assert "fraction-wins" in recipe.notes


def test_the_former_back_end_of_slime_counts_updates() -> None:
    root = SLIME.replace("cosine", "inverse-square-root") + "--global-batch-size 64"
    assert read_recipe(root).schedule().exact(1) == sp.Rational(1, 8)
    assert read_recipe(f"{root} --train-backend fsdp").schedule().exact(1) == 1


def test_the_weight_decay_of_megatron_is_scheduled_as_well() -> None:
    flags = "--weight-decay-incr-style linear --start-weight-decay 0.0 --end-weight-decay 0.1"
    slime = read_recipe(f"{SLIME}--global-batch-size 64 {flags}").param_groups[0].schedules
    assert slime["weight_decay"].exact(10) == sp.Rational(1, 20)

"""Configs of Levanter: groups, clipping and notes."""

from pathlib import Path

import pytest

from closedform.recipes import load_recipe
from tests.recipes.test_research_readers import LEVANTER, load, rates
from tests.recipes.test_training_readers import Config


def test_levanter_muon_has_a_group_with_the_rate_of_adam(tmp_path: Path) -> None:
    recipe = load(tmp_path, "levanter", LEVANTER.replace("warmup: 10", "warmup: 10, type: muon"))
    assert rates(recipe, 10) == [0.1]
    assert rates(recipe, 10, group="adamw") == [0.0006]


@pytest.mark.parametrize(("text", "threshold"), [("", 1), ("max_grad_norm: null", None)])
def test_levanter_clips_unless_the_threshold_is_null(
    tmp_path: Path, text: str, threshold: int | None
) -> None:
    clipping = load(
        tmp_path,
        "levanter",
        f"{LEVANTER}  {text}\n".replace(
            "optimizer: {learning_rate: 0.1, warmup: 10}", "optimizer:\n  warmup: 10"
        ),
    ).clipping
    assert (None if clipping is None else clipping.threshold) == threshold


def test_a_tag_of_the_application_matters_only_where_its_value_is_needed(tmp_path: Path) -> None:
    recipe = load(tmp_path, "levanter", LEVANTER + "data: !include data/openwebtext.yaml\n")
    assert rates(recipe, 10) == [0.1]


@pytest.mark.parametrize(
    ("changes", "is_noted"),
    [
        ({}, True),
        ({"default_weight_decay_mask": True}, True),
        ({"default_weight_decay_mask": False}, False),
        ({"weight_decay_modules": ".*attn.*"}, False),
        ({"weight_decay": 0}, False),
    ],
)
def test_the_default_mask_of_levanter_is_a_note(changes: Config, is_noted: bool) -> None:
    optimizer = {"type": "adam", "learning_rate": 1e-3, "weight_decay": 0.1, **changes}
    config = {"trainer": {"num_train_steps": 100}, "optimizer": optimizer}
    assert ("default-mask" in load_recipe(config, framework="levanter").notes) == is_noted

"""Configs of AutoModel: draft models."""

from typing import Any

import numpy as np
import pytest

from closedform.errors import DefinitionError
from closedform.frameworks import schedule
from closedform.language import Schedule
from closedform.recipes import load_recipe


def values(schedule: Schedule, steps: list[int]) -> Any:
    return schedule(np.array(steps))


def test_draft_models_of_automodel_have_a_cosine_where_their_recipe_is_named() -> None:
    optimizer = {"lr": 1.0, "warmup_ratio": 0.1, "min_lr_ratio": 0.5}
    constant = load_recipe({"optimizer": optimizer}, framework="automodel")
    assert constant.schedule()(50) == 1
    assert "draft-keys-ignored" in constant.notes
    drafted = load_recipe(
        {"optimizer": optimizer, "recipe_args": {"num_epochs": 1}},
        framework="automodel",
        facts={"total_updates": 100},
    )
    np.testing.assert_allclose(
        values(drafted.schedule(), [0, 9, 10, 55, 100]), [0.1, 1, 1, 0.75, 0.5], rtol=1e-15
    )


def test_a_schedule_of_automodel_needs_the_rate_of_its_optimizer() -> None:
    config = {"optimizer": {}, "lr_scheduler": {"lr_decay_style": "cosine", "max_lr": 1}}
    with pytest.raises(DefinitionError, match=r"^lr is missing \("):
        schedule("automodel", "cosine", config, facts={"total_updates": 10})

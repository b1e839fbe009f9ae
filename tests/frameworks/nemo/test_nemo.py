"""Configs of NeMo: the length of a run."""

import pytest

from closedform.recipes import load_recipe


@pytest.mark.parametrize("limit", [5, 20])
def test_nemo_says_that_the_trainer_decides_the_length(limit: int) -> None:
    sched = {"name": "CosineAnnealing", "max_steps": 20}
    config = {"model": {"optim": {"name": "adamw", "lr": 1.0, "sched": sched}}}
    recipe = load_recipe({**config, "trainer": {"max_steps": limit}}, "nemo")
    assert recipe.horizon == limit
    assert ("trainer-decides-the-length" in recipe.notes) == (limit != 20)
    assert "trainer-decides-the-length" not in load_recipe(config, "nemo").notes

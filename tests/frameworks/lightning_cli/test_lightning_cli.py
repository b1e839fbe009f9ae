"""Configs of the CLI of Lightning."""

from pathlib import Path

from tests.recipes.test_research_readers import LIGHTNING, load, rates


def test_lightning_steps_once_an_epoch(tmp_path: Path) -> None:
    recipe = load(tmp_path, "lightning-cli", LIGHTNING)
    assert rates(recipe, 3, 4, 8) == [0.1, 0.01, 0.001]
    assert recipe.horizon == 12

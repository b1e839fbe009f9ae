"""Configs of big_vision, which are functions."""

from pathlib import Path

from tests.recipes.test_research_readers import BIG_VISION, load, rates


def test_big_vision_walks_get_config(tmp_path: Path) -> None:
    recipe = load(tmp_path, "big_vision", BIG_VISION)
    assert [group.name for group in recipe.param_groups] == ["llm/.*", "img/.*"]
    assert rates(recipe, 5, 10) == [0.05, 0.1]
    # The weight decay is multiplied by the schedule alone.
    assert float(recipe.schedule("weight_decay").exact(5)) == 0.005
    assert rates(recipe, 10, group="img/.*") == [0]
    assert recipe.clipping is not None

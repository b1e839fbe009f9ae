"""Configs of TorchTitan: versions by their keys."""

import pytest

from closedform.recipes import load_recipe
from tests.recipes.test_training_readers import TITAN, Config


@pytest.mark.parametrize(
    ("more", "version", "first"),
    [
        # The warmup of 2 updates: divided by 2, by 3 until June 2025, and from another section.
        ({"lr_scheduler": {"warmup_steps": 2}}, "b5bcd76c6", 1 / 2),
        ({"lr_scheduler": {"warmup_steps": 2, "lr_min": 0.1}}, "f7084fc78", 1 / 2),
        (
            {"lr_scheduler": {"warmup_steps": 2}, "training": {"steps": 10, "batch_size": 8}},
            "3b85aa31f",
            1 / 3,
        ),
        ({"training": {"steps": 10, "warmup_steps": 2}}, "e846b6946", 1 / 3),
    ],
)
def test_torchtitan_is_read_as_the_commit_that_has_its_keys(
    more: Config, version: str, first: float
) -> None:
    recipe = load_recipe({**TITAN, **more}, framework="torchtitan")
    assert recipe.version == version
    assert recipe.schedule()(0) == pytest.approx(first, rel=1e-15)

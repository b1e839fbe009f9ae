"""The config of nanoVLM, which is a dataclass."""

from pathlib import Path

from closedform.recipes import load_recipe
from tests.support.configs import write_experiment

FIELDS = """
from dataclasses import dataclass

@dataclass
class VLMConfig:
    vit_lr: float = 1.0

@dataclass
class TrainConfig:
    lr_mp: float = 0.5
    compile: bool = False
    max_training_steps: int = 4 * 100
"""


def test_the_fields_of_a_dataclass_are_the_config(tmp_path: Path) -> None:
    recipe = load_recipe(write_experiment(FIELDS, tmp_path))
    assert recipe.framework == "nanovlm"
    assert recipe.horizon == 400
    # The warmup of 3 % has 12 updates, and update 11 has the rate.
    assert recipe.schedule("lr", "lr_mp")(11) == 0.5
    assert recipe.schedule("lr", "lr_vision_backbone")(11) == 5e-5


def test_a_part_without_a_rate_is_not_trained() -> None:
    recipe = load_recipe({"lr_mp": 1e-3, "lr_vision_backbone": 0, "max_training_steps": 100})
    assert [group.name for group in recipe.param_groups] == ["lr_mp", "lr_language_backbone"]

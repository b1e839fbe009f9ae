"""Configs that are Python classes: experiments of YOLOX, and the dataclass of nanoVLM."""

from pathlib import Path

import pytest

from closedform.errors import ConfigError
from closedform.recipes import load_recipe

FACTS = {"iters_per_epoch": 10, "batch_size": 64}
EXPERIMENT = """
import os
from yolox.exp import Exp as MyExp

class Exp(MyExp):
    def __init__(self):
        super(Exp, self).__init__()
        self.exp_name = os.path.split(os.path.realpath(__file__))[1].split(".")[0]
        self.max_epoch = 4 * 5
        self.warmup_epochs = 1
        self.no_aug_epochs = 2
        self.basic_lr_per_img = 0.02 / 64.0
"""
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


def written(text: str, folder: Path) -> Path:
    path = folder / "experiment.py"
    path.write_text(text, encoding="utf-8")
    return path


def test_an_experiment_is_the_mapping_of_its_attributes(tmp_path: Path) -> None:
    attributes: dict[str, float] = {"max_epoch": 20, "warmup_epochs": 1, "no_aug_epochs": 2}
    attributes["basic_lr_per_img"] = 0.02 / 64.0
    of_class = load_recipe(written(EXPERIMENT, tmp_path), facts=FACTS)
    of_mapping = load_recipe(attributes, facts=FACTS)
    assert of_class.framework == of_mapping.framework == "yolox"
    assert of_class.schedule() == of_mapping.schedule()
    assert of_class.horizon == 200
    assert of_class.schedule()(10) == pytest.approx(0.02, rel=1e-15)


@pytest.mark.parametrize("name", ["get_lr_scheduler", "get_optimizer"])
def test_an_experiment_with_code_for_its_rates_is_refused(name: str, tmp_path: Path) -> None:
    text = f"{EXPERIMENT}\n    def {name}(self, *arguments):\n        return None\n"
    with pytest.raises(ConfigError, match=name):
        load_recipe(written(text, tmp_path), facts=FACTS)


def test_the_fields_of_a_dataclass_are_the_config(tmp_path: Path) -> None:
    recipe = load_recipe(written(FIELDS, tmp_path))
    assert recipe.framework == "nanovlm"
    assert recipe.horizon == 400
    # The warmup of 3 % has 12 updates, and update 11 has the rate.
    assert recipe.schedule("lr", "lr_mp")(11) == 0.5
    assert recipe.schedule("lr", "lr_vision_backbone")(11) == 5e-5


def test_a_part_without_a_rate_is_not_trained() -> None:
    recipe = load_recipe({"lr_mp": 1e-3, "lr_vision_backbone": 0, "max_training_steps": 100})
    assert [group.name for group in recipe.param_groups] == ["lr_mp", "lr_language_backbone"]


def test_an_experiment_may_leave_all_to_the_defaults(tmp_path: Path) -> None:
    text = EXPERIMENT[: EXPERIMENT.index("        self.max_epoch")]
    recipe = load_recipe(written(text, tmp_path), facts=FACTS)
    assert (recipe.framework, recipe.horizon) == ("yolox", 3000)


def test_flags_of_mlx_lm_have_hyphens(tmp_path: Path) -> None:
    # The keys of its YAML files have underscores, and hyphens have no effect there.
    path = tmp_path / "run.args"
    path.write_text(
        "mlx_lm.lora --train --iters 600 --learning-rate 2e-5 --batch-size 4", encoding="utf-8"
    )
    recipe = load_recipe(path)
    assert (recipe.framework, recipe.horizon, recipe.notes) == ("mlx-lm", 600, {})
    assert recipe.schedule()(0) == 2e-5

"""Experiments of YOLOX, which are Python classes."""

from pathlib import Path

import pytest

from closedform.errors import ConfigError
from closedform.recipes import load_recipe
from tests.support.configs import write_experiment

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


def test_an_experiment_is_the_mapping_of_its_attributes(tmp_path: Path) -> None:
    attributes: dict[str, float] = {"max_epoch": 20, "warmup_epochs": 1, "no_aug_epochs": 2}
    attributes["basic_lr_per_img"] = 0.02 / 64.0
    of_class = load_recipe(write_experiment(EXPERIMENT, tmp_path), facts=FACTS)
    of_mapping = load_recipe(attributes, facts=FACTS)
    assert of_class.framework == of_mapping.framework == "yolox"
    assert of_class.schedule() == of_mapping.schedule()
    assert of_class.horizon == 200
    assert of_class.schedule()(10) == pytest.approx(0.02, rel=1e-15)


@pytest.mark.parametrize("name", ["get_lr_scheduler", "get_optimizer"])
def test_an_experiment_with_code_for_its_rates_is_refused(name: str, tmp_path: Path) -> None:
    text = f"{EXPERIMENT}\n    def {name}(self, *arguments):\n        return None\n"
    with pytest.raises(ConfigError, match=name):
        load_recipe(write_experiment(text, tmp_path), facts=FACTS)


def test_an_experiment_may_leave_all_to_the_defaults(tmp_path: Path) -> None:
    text = EXPERIMENT[: EXPERIMENT.index("        self.max_epoch")]
    recipe = load_recipe(write_experiment(text, tmp_path), facts=FACTS)
    assert (recipe.framework, recipe.horizon) == ("yolox", 3000)

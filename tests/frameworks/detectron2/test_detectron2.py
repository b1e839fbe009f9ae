"""Configs of Detectron2: YAML files and lazy configs."""

from pathlib import Path

import pytest

from closedform.errors import ClosedFormError
from closedform.recipes.recipe import ClippingKind
from tests.recipes.test_research_readers import SOLVER, load, rates

LAZY = """
from ..common.optim import SGD as optimizer
from ..common.coco_schedule import lr_multiplier_1x as lr_multiplier
optimizer.lr = 0.04
train.max_iter = 90000
lr_multiplier.warmup_factor = 0.5
"""


def test_detectron2_scales_to_the_workers(tmp_path: Path) -> None:
    text = (
        SOLVER + "  REFERENCE_WORLD_SIZE: 8\n  CLIP_GRADIENTS: {ENABLED: true, CLIP_TYPE: norm}\n"
    )
    recipe = load(tmp_path, "detectron2", text, world_size=4)
    assert recipe.horizon == 200
    assert rates(recipe, 99, 100) == [0.05, 0.005]
    assert recipe.clipping is not None
    assert recipe.clipping.kind is ClippingKind.PARAM_NORM


def test_detectron2_knows_the_common_files_of_lazy_configs(tmp_path: Path) -> None:
    recipe = load(tmp_path, "detectron2", LAZY, ".py")
    assert rates(recipe, 0, 1000, 60_000, 80_000) == [0.02, 0.04, 0.004, 0.0004]
    assert float(recipe.optimizer().hyperparameters["momentum"]) == 0.9


IMPORTED = """
from .mask_rcnn_vitdet_b_100ep import lr_multiplier as base, model, optimizer, train
train.max_iter = 1000
lr_multiplier = L(WarmupParamScheduler)(
    scheduler=L(MultiStepParamScheduler)(values=[1.0, 0.1], milestones=[900, 1000]),
    warmup_length=10 / train.max_iter, warmup_factor=0.5)
optimizer.lr = 0.02
"""


def test_detectron2_curves_do_not_need_an_optimizer_that_is_not_read(tmp_path: Path) -> None:
    recipe = load(tmp_path, "detectron2", IMPORTED, ".py")
    assert rates(recipe, 0, 10, 899, 900) == [0.01, 0.02, 0.02, 0.002]
    with pytest.raises(ClosedFormError, match=r"no optimizer '\.mask_rcnn"):
        recipe.optimizer()


@pytest.mark.parametrize("line", ["optimizer.lr = 0.02", "train.max_iter = 1000"])
def test_detectron2_asks_for_a_file_with_a_number_that_is_missing(
    line: str, tmp_path: Path
) -> None:
    with pytest.raises(ClosedFormError, match=r"is imported from .*, which is not read"):
        load(tmp_path, "detectron2", IMPORTED.replace(line, ""), ".py")

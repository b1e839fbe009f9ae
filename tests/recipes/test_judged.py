"""Records and configs whose expected values are not what the framework computes from them.

Each has its verdict: the upstream line that decides, the error or the other values that are here,
and the change of the facts or of the text with which the expected values are reproduced. So the
values are evidence for the formula, and the verdict is about the input alone.
"""

from collections.abc import Mapping
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from closedform.errors import ClosedFormError
from closedform.recipes import load_recipe
from tests.recipes.test_corpus import DOUBLE, gap
from tests.recipes.test_framework_records import RECORDS, assert_values
from tests.reference.records import Row, judged


@dataclass(frozen=True, slots=True)
class Verdict:
    """Why expected values are not reproduced as they are.

    Attributes:
        reason: The upstream line, and what it does.
        error: A part of the error here; empty where the values differ.
        text: A part of the config, and the one that has the expected values.
        facts: The facts that the expected values need; None for a fact that is left out.
        factor: The factor between the expected values and those here.
    """

    reason: str
    error: str = ""
    text: tuple[str, str] = ("", "")
    facts: Mapping[str, Any] = field(default_factory=dict)
    factor: float = 1.0


_CLASSES = Verdict(
    "ultralytics/engine/trainer.py, build_optimizer: the rate of optimizer=auto has the number of "
    "classes, which is that of COCO here, and which the record leaves out",
    "missing facts: nc",
    facts={"nc": 80},
)
OF_RECORDS: Mapping[str, Verdict] = {
    "ultralytics-linear-037": _CLASSES,
    "ultralytics-linear-038": _CLASSES,
    "slime-megatron-cosine-010": Verdict(
        "megatron/core/optimizer_param_scheduler.py, get_lr: the max_lr and the min_lr of the "
        "param group win, which the record leaves out",
        facts={"param_group": {"max_lr": 1e-4, "min_lr": 1e-5}},
    ),
}
_RATIO = (
    "composer/trainer/trainer.py:1570-1574 multiplies max_duration by scale_schedule_ratio and "
    "hands the ratio to the schedulers, whose warmup of 8ep it multiplies as well "
    "(composer/optim/scheduler.py:159); the values are those without a ratio"
)
_MULTIPLIER = "the values are those of lr_multiplier, as the record says; the rate is {} of {}"
_WORLD = (
    "mmengine/runner/runner.py:957-985 multiplies the rate by world_size * batch_size over "
    "base_batch_size; the values have the factor 1, and the facts have no number of processes"
)
OF_CONFIGS: Mapping[str, Verdict] = {
    "composer/031-resnet50_medium.yaml": Verdict(
        _RATIO, text=("scale_schedule_ratio: 1.5\n", ""), facts={"total_steps": None}
    ),
    "composer/033-resnet50_spicy.yaml": Verdict(
        _RATIO, text=("scale_schedule_ratio: 3\n", ""), facts={"total_steps": None}
    ),
    "mmengine/007-arcface-resnet50-arcface_8xb32_inshop.py": Verdict(
        _WORLD, "missing facts: world_size", facts={"world_size": 8}
    ),
    "mmengine/042-configs-mvit-small_ft-8xb16-coslr-100e_k400.py": Verdict(
        _WORLD, "missing facts: world_size", facts={"world_size": 16}
    ),
    "nemo/026-megatron_retro_config.yaml": Verdict(
        "nemo/core/classes/modelPT.py:714 sets sched.max_steps to trainer.max_steps; the values "
        "are those of the length in sched",
        "the fact total_updates must agree with the config, which gives 100000, got 750000",
        text=("  max_steps: 100000", "  max_steps: 750000"),
    ),
    "detectron2/051-lazy-COCO-mask_rcnn_vitdet_b_100ep.py": Verdict(
        _MULTIPLIER.format("1e-4", "configs/common/optim.py:28"),
        "the fact lr must agree with the config, which gives 0.0001, got 1.0",
        facts={"base_lr": None},
        factor=1e-4,
    ),
    "detectron2/039-lazy-Misc-torchvision_imagenet_R_50.py": Verdict(
        _MULTIPLIER.format("0.1", "the file"),
        "the fact lr must agree with the config, which gives 0.1, got 1.0",
        facts={"base_lr": None},
        factor=0.1,
    ),
    "gpt-neox/016-gmlp_small.yaml": Verdict(
        "configs/gmlp_small.yml:27 writes 1.0e_8, which YAML reads as a text: the first update of "
        "FusedAdam raises TypeError",
        "eps[0] must be a finite number, got '1.0e_8'",
        text=("1.0e_8", "1.0e-8"),
    ),
    "trl/026-scripts-sft_gpt_oss.args": Verdict(
        "transformers/training_args.py:1529 (5.23.0) reads the argument as JSON; a shell drops the "
        "inner quotes of this line, and json.loads raises JSONDecodeError",
        "lr_scheduler_kwargs is not valid JSON",
        text=('"{"min_lr_rate": 0.1}"', "'{\"min_lr_rate\": 0.1}'"),
    ),
}
CONFIGS: Mapping[str, Row] = {row["file"]: row for row in judged() if "file" in row}
JUDGED_RECORDS = RECORDS | {row["id"]: row for row in judged() if "id" in row}


def with_facts(facts: Mapping[str, Any], changes: Mapping[str, Any]) -> dict[str, Any]:
    return {name: value for name, value in {**facts, **changes}.items() if value is not None}


@pytest.mark.parametrize("key", OF_RECORDS)
def test_a_record_is_reproduced_with_the_fact_that_it_leaves_out(key: str) -> None:
    row, verdict = JUDGED_RECORDS[key], OF_RECORDS[key]
    with pytest.raises((AssertionError, ClosedFormError)) as caught:
        assert_values(row)
    assert (verdict.error or "Not equal to tolerance") in str(caught.value)
    assert_values({**row, "facts": with_facts(row["facts"], verdict.facts)})


def config_gap(row: Row, folder: Path, verdict: Verdict | None = None) -> float:
    """The largest difference between a config's rates and the expected ones, changed or not."""
    framework, _, name = row["file"].partition("/")
    text, facts, rates = row["text"], row["expected"]["facts"], row["expected"]["lr"]
    if verdict is not None:
        assert verdict.text[0] in text
        text = text.replace(*verdict.text) if verdict.text[0] else text
        facts = with_facts(facts, verdict.facts)
        rates = list(np.array([float(rate) for rate in rates]) * verdict.factor)
    (folder / name).write_text(text, encoding="utf-8")
    recipe = load_recipe(folder / name, framework=framework, facts=facts)
    return gap(recipe.schedule("lr"), row["expected"]["steps"], rates)


@pytest.mark.parametrize("file", OF_CONFIGS)
def test_a_config_has_the_expected_values_with_its_change(file: str, tmp_path: Path) -> None:
    row, verdict = CONFIGS[file], OF_CONFIGS[file]
    assert config_gap(row, tmp_path, verdict) <= DOUBLE
    if not verdict.error:
        assert config_gap(row, tmp_path) > 0.1
        return
    with pytest.raises(ClosedFormError) as caught:
        config_gap(row, tmp_path)
    assert verdict.error in str(caught.value)


@pytest.mark.parametrize("file", sorted(CONFIGS.keys() - OF_CONFIGS.keys()))
def test_a_config_that_is_read_has_the_expected_values(file: str, tmp_path: Path) -> None:
    assert config_gap(CONFIGS[file], tmp_path) <= DOUBLE


def test_every_row_has_a_test() -> None:
    assert {row["id"] for row in judged() if "id" in row} <= OF_RECORDS.keys()
    assert OF_CONFIGS.keys() <= CONFIGS.keys()
    assert len(CONFIGS) == len(OF_CONFIGS) + 2

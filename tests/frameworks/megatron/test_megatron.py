"""Configs of Megatron: ramps of the batch size, and Megatron Bridge."""

from pathlib import Path
from typing import Any

import numpy as np
import pytest

from closedform.errors import ArgumentError, ConfigError
from closedform.frameworks.megatron.ramp import along_samples, read_ramp, updates_of
from closedform.language import Schedule
from closedform.recipes import load_recipe
from closedform.schedules import linear
from tests.recipes.test_training_readers import PYTHON, changed


def values(schedule: Schedule, steps: list[int]) -> Any:
    return schedule(np.array(steps))


def test_ramp_of_the_batch_size_counts_samples() -> None:
    stages = read_ramp("0:4 10:8 100:16", None, "here")
    # 4, 8, 12 samples after three updates of 4; then updates of 8 until at least 100 are seen.
    assert [(one.begin, one.samples_before, one.batch) for one in stages] == [
        (0, 0, 4),
        (3, 12, 8),
        (14, 100, 16),
    ]
    seen, batches = [0], {0: 4, 10: 8, 100: 16}
    while seen[-1] < 200:
        seen.append(seen[-1] + batches[max(mark for mark in batches if mark <= seen[-1])])
    in_updates = along_samples(linear(0, 1, 1000), stages)
    np.testing.assert_allclose(
        values(in_updates, list(range(len(seen)))), np.array(seen) / 1000, rtol=1e-15
    )
    assert updates_of(stages, 200) == len(seen) - 1


def test_token_thresholds_of_a_ramp_need_the_sequence_length() -> None:
    config = {
        "MODEL_ARGS": {
            "--lr": 1e-3,
            "--train-samples": 1000,
            "--step-batch-size-schedule": "0:4 40:8 0.4K:16",
        }
    }
    with pytest.raises(ArgumentError, match="sequence_length"):
        load_recipe(config, framework="megatron")
    recipe = load_recipe(config, facts={"sequence_length": 4})
    constant = load_recipe(
        {"lr": 1e-3, "train-samples": 1000, "global-batch-size": 4}, framework="megatron"
    )
    # The line to 0 over 1000 samples, of which 3 updates have seen 12.
    assert recipe.schedule().exact(3) == constant.schedule().exact(3)
    assert recipe.schedule().exact(4) == constant.schedule().exact(5)
    late = changed(config, "MODEL_ARGS.--step-batch-size-schedule", "8:4")
    with pytest.raises(ConfigError, match="thresholds must begin with 0 and grow"):
        load_recipe(late, facts={"sequence_length": 4})


def test_weight_decay_of_megatron_bridge_is_that_of_the_scheduler(tmp_path: Path) -> None:
    path = tmp_path / "config.py"
    path.write_text(PYTHON["megatron"])
    recipe = load_recipe(path)
    assert recipe.schedule("weight_decay")(50) == pytest.approx(0.033, rel=1e-15)
    assert "weight-decay-of-scheduler" in recipe.notes

"""SimpleTuner: curves that are cut to billionths, and the length of a run."""

import math

import pytest

from closedform.errors import ClosedFormError
from closedform.recipes import load_recipe


@pytest.mark.parametrize("kind", ["cosine", "sine"])
@pytest.mark.parametrize("processes", [1, 3])
@pytest.mark.parametrize("rate", [1e-4, 3e-6, 7.3e-5])
def test_a_curve_of_simpletuner_is_cut_to_billionths_as_its_floats_are(
    kind: str, processes: int, rate: float
) -> None:
    config = {
        "learning_rate": rate,
        "lr_scheduler": kind,
        "lr_warmup_steps": 12,
        "lr_end": 1e-6,
        "max_train_steps": 120,
        "train_batch_size": 1,
        "optimizer": "adamw_bf16",
    }
    schedule = load_recipe(config, facts={"num_processes": processes}).schedule()
    half = 12 * processes
    for update in range(240):
        angle = math.pi * (-update * processes if kind == "cosine" else update * processes) / half
        if kind == "cosine":
            value = 1e-6 + (rate - 1e-6) * (1 + math.cos(angle)) / 2
        else:
            value = 1e-6 + (rate - 1e-6) * (0.5 * (1 + math.sin(angle)))
        assert schedule.exact(update) * 10**9 == math.floor(value * 1e9)


def test_simpletuner_takes_steps_or_epochs() -> None:
    config = {"learning_rate": 1e-4, "lr_scheduler": "sine", "train_batch_size": 1}
    config |= {"optimizer": "adamw_bf16", "max_train_steps": 10}
    with pytest.raises(ClosedFormError, match="num_train_epochs must be 0"):
        load_recipe({**config, "num_train_epochs": 2})
    with pytest.raises(ClosedFormError, match="sine needs lr_warmup_steps above 0"):
        load_recipe(config)

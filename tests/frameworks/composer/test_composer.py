"""Configs of Composer: the length of a run."""

import pytest
import sympy as sp

from closedform.recipes import load_recipe


@pytest.mark.parametrize("ratio", [0.5, 1.5, 3])
def test_composer_scales_the_length_of_the_run(ratio: float) -> None:
    """``Trainer`` multiplies max_duration (composer/trainer/trainer.py:1574 of 0.32.1).

    Times in ``dur`` follow it, and the warmup, which is not scaled, keeps its length.
    """
    scheduler = {"cosine_decay_with_warmup": {"t_warmup": "8ep", "t_max": "1dur", "alpha_f": 0.0}}
    config = {
        "optimizers": {"decoupled_sgdw": {"lr": 2.048, "momentum": 0.875, "weight_decay": 5e-4}},
        "max_duration": "90ep",
        "schedulers": scheduler,
        "train_batch_size": 2048,
    }
    facts = {"updates_per_epoch": 200}
    scaled = load_recipe({**config, "scale_schedule_ratio": ratio}, "composer", facts=facts)
    longer = load_recipe(
        {**config, "max_duration": f"{int(90 * ratio)}ep"}, "composer", facts=facts
    )
    assert scaled.horizon == longer.horizon == 90 * 200 * ratio
    assert scaled.schedule() == longer.schedule()
    assert scaled.schedule().exact(1600) == sp.Rational(2048, 1000)

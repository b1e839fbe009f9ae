"""The configs of OneTrainer: the unit of its warmup, its scalers, its own classes."""

from typing import Any

import pytest

from closedform.errors import ClosedFormError, MissingFactsError
from closedform.recipes import Recipe, load_recipe


def read(facts: dict[str, Any] | None = None, **changes: Any) -> Recipe:
    config = {
        "learning_rate": 1e-4,
        "learning_rate_scheduler": "LINEAR",
        "epochs": 2,
        "gradient_accumulation_steps": 4,
        "batch_size": 9,
    }
    return load_recipe({**config, **changes}, facts={"steps_per_epoch": 40, **(facts or {})})


@pytest.mark.parametrize(
    ("written", "updates"),
    [(-3, 0), (0, 0), (0.25, 5), (0.99, 19), (1, 20), (1.5, 0), (8, 2), (9, 2), (12.0, 3)],
)
def test_a_warmup_is_a_ratio_or_a_number_of_micro_batches(written: float, updates: int) -> None:
    schedule = read(learning_rate_warmup_steps=written).schedule()
    assert schedule.exact(0) * 10_000 == (0 if updates else 1)
    if updates:
        assert schedule.exact(1) * 10_000 * updates == 1


@pytest.mark.parametrize(
    ("scaler", "factor"),
    [
        *(("NONE", 1), ("BATCH", 3), ("GRADIENT_ACCUMULATION", 2), ("BOTH", 6)),
        *(("GLOBAL_BATCH", 15), ("GLOBAL_BOTH", 30)),
    ],
)
def test_the_rate_is_scaled_by_a_root(scaler: str, factor: int) -> None:
    recipe = read({"world_size": 25}, learning_rate_scaler=scaler, learning_rate_warmup_steps=0)
    assert recipe.schedule().exact(0) * 10_000 == factor


def test_facts_that_are_missing() -> None:
    with pytest.raises(MissingFactsError, match="world_size"):
        read(learning_rate_scaler="GLOBAL_BOTH")
    with pytest.raises(MissingFactsError, match="micro_batches_per_epoch"):
        load_recipe({"learning_rate": 1e-4, "learning_rate_scheduler": "COSINE"})


@pytest.mark.parametrize(
    ("changes", "message"),
    [
        ({"learning_rate_scheduler": "ADAFACTOR"}, "no formula of the scheduler 'ADAFACTOR'"),
        ({"learning_rate_scheduler": "cosine"}, "no formula of the scheduler 'cosine'"),
        ({"learning_rate_schedular": "COSINE"}, "unknown key"),
        (
            {
                "learning_rate_scheduler": "CUSTOM",
                "custom_learning_rate_scheduler": "mine.Schedule",
            },
            "only classes of torch",
        ),
        (
            {"learning_rate_scheduler": "CUSTOM", "custom_learning_rate_scheduler": "StepLR"},
            "the path of a class has a module",
        ),
    ],
)
def test_configs_that_are_refused(changes: dict[str, Any], message: str) -> None:
    with pytest.raises(ClosedFormError, match=message):
        read(**changes)

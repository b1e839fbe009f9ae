"""The Ultralytics trainer; its values are in the framework records."""

from typing import Any

import pytest

from closedform import frameworks
from closedform.errors import ClosedFormError, MissingFactsError
from closedform.language import Schedule
from closedform.recipes import load_recipe

FACTS = {"batches_per_epoch": 10, "images": 160}


def schedule(key: str = "lr", **config: Any) -> Schedule:
    facts = {**FACTS, "param_group": config.pop("param_group", "weight")}
    return frameworks.schedule("ultralytics", "linear", config, key=key, facts=facts)


def test_auto_takes_its_own_rate() -> None:
    # Few updates: AdamW with 0.002 * 5 / (4 + 10 classes), rounded to 6 digits.
    rates: dict[str, Any] = {"lr0": 0.5, "lrf": 1.0, "batch": 64, "warmup_epochs": 0}
    assert float(schedule(epochs=4, nc=10, **rates).exact(0)) == 0.000714
    # Many: MuSGD.
    assert float(schedule(epochs=4000, **rates).exact(0)) == 0.01


def test_auto_asks_for_the_number_of_classes() -> None:
    # The default of 10 in the trainer is never used: its data sets have names of classes.
    config: dict[str, Any] = {"epochs": 4, "batch": 64}
    with pytest.raises(MissingFactsError, match="missing facts: nc"):
        schedule(**config)
    facts = {"updates_per_epoch": 10, "dataset_size": 160, "nc": 80}
    text = {**config, "optimizer": "auto", "warmup_epochs": 0, "lrf": 1.0}
    recipe = load_recipe(text, framework="ultralytics", facts=facts)
    assert float(recipe.schedule().exact(0)) == 0.000119


@pytest.mark.parametrize(
    ("key", "config", "message"),
    [
        ("lr", {"optimizer": "Lyon"}, "there is no optimizer 'Lyon'"),
        ("lr", {"batch": -1}, "batch must be above 0, got -1"),
        ("lr", {"cos_lr": True}, "must ask for 'linear', got 'cos_lr'"),
        ("lr", {"param_group": "head"}, "param_group must be one of weight, bn, bias, muon"),
        ("lr", {"epochs": 0}, "epochs must be above 0, got 0"),
        ("momentum", {"optimizer": "adamw"}, "AdamW has betas, not a momentum"),
        ("beta1", {"optimizer": "SGD"}, "SGD has a momentum, no betas"),
        ("decay", {}, "the trainer has no 'decay'"),
    ],
)
def test_refused(key: str, config: dict[str, Any], message: str) -> None:
    with pytest.raises(ClosedFormError, match=message):
        schedule(key, **config)

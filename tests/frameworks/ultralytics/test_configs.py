"""Configs of Ultralytics, beside its records and its loop."""

from typing import Any

import numpy as np
import pytest

from closedform.errors import ConfigError, MissingFactsError
from closedform.frameworks.ultralytics import Arguments
from closedform.recipes import load_recipe
from tests.reference.records import Row, framework_records

CLOSE = 1e-12
"""Some hundred roundings of float64, as a part of the largest value."""

ULTRALYTICS = {
    row["id"]: row
    for row in framework_records()
    if row["system"] == "ultralytics"
    and "error" not in row
    and row["key"] not in ("accumulate", "beta1")
    and row["facts"].get("param_group") != "muon"
}
"""The records whose key and group the reader has; it reads no betas and no group of muon."""


@pytest.mark.sample(every=3)
@pytest.mark.parametrize("key", ULTRALYTICS)
def test_values_of_ultralytics_are_those_of_its_records(key: str) -> None:
    row: Row = ULTRALYTICS[key]
    given = row["facts"]
    facts = {"updates_per_epoch": given["batches_per_epoch"]}
    facts |= {"dataset_size": given["images"]} if "images" in given else {}
    config = row["config"] | ({"nc": given["nc"]} if "nc" in given else {})
    recipe = load_recipe(config, framework="ultralytics", facts=facts)
    group = given.get("param_group", "weight")
    schedule = recipe.schedule(row["key"], 0 if group == "weight" else group)
    wanted = np.array(row["values"])
    apart = np.abs(np.asarray(schedule(np.array(row["steps"]))) - wanted).max()
    assert apart <= CLOSE * np.abs(wanted).max()


def counted_updates(batch: int, nbs: int, warmup: float, batches: int, epochs: int) -> int:
    """The loop of the trainer, which counts the updates that it makes."""
    ramp = round(min(warmup, epochs - 1) * batches)
    accumulate = least = max(round(nbs / batch), 1)
    last, updates = -1, 0
    for index in range(batches * epochs):
        if ramp and index <= ramp:
            accumulate = max(1, int(np.interp(index, [0, ramp], [1, nbs / batch]).round()))
        if index - last >= accumulate:
            updates += 1
            last = index
    assert accumulate == least or not ramp or batches * epochs <= ramp + 1
    return updates


@pytest.mark.parametrize(
    ("batch", "nbs", "warmup", "batches", "epochs"),
    [(64, 64, 3.0, 10, 5), (16, 64, 2.0, 11, 6), (8, 64, 3.0, 50, 4), (16, 64, 0.0, 7, 3)],
)
def test_the_length_of_a_run_of_ultralytics(
    batch: int, nbs: int, warmup: float, batches: int, epochs: int
) -> None:
    config = {"batch": batch, "nbs": nbs, "warmup_epochs": warmup, "epochs": epochs}
    recipe = load_recipe(
        {**config, "optimizer": "SGD", "lr0": 0.01}, facts={"updates_per_epoch": batches}
    )
    assert recipe.framework == "ultralytics"
    assert recipe.horizon == counted_updates(batch, nbs, warmup, batches, epochs)


@pytest.mark.parametrize(
    ("change", "message"),
    [
        ({"optimizer": "SDG"}, r"there is no optimizer 'SDG'.*did you mean 'SGD'"),
        ({"warmup_epoch": 3}, r"unknown key 'warmup_epoch'.*did you mean 'warmup_epochs'"),
        ({"epochs": 0}, "epochs must be above 0, got 0"),
        ({"batch": -1}, "batch must be above 0, got -1"),
        ({"lr0": "fast"}, "lr0 must be a finite number, got 'fast'"),
    ],
)
def test_mistakes_in_arguments_of_ultralytics(change: dict[str, Any], message: str) -> None:
    config = {"optimizer": "SGD", "lr0": 0.01, "lrf": 0.1, **change}
    with pytest.raises(ConfigError, match=message):
        load_recipe(config, "ultralytics", facts={"updates_per_epoch": 10})


def test_keys_of_the_trainer_that_cannot_matter_are_known_as_a_list() -> None:
    """A trainer writes all of them into args.yaml: each one alone is a config as well."""
    args = {"lr0": 0.01, "lrf": 0.01, "optimizer": "SGD", "epochs": 3, "nbs": 64}
    facts = {"dataset_size": 640}
    curve = load_recipe(args, "ultralytics", facts=facts).schedule()
    for key in Arguments.spellings():
        if key not in Arguments.__annotations__:
            recipe = load_recipe({**args, key: "x"}, "ultralytics", facts=facts)
            assert recipe.schedule() == curve, key
    with pytest.raises(ConfigError, match="unknown key 'optimizr'"):
        load_recipe({**args, "optimizr": "SGD"}, "ultralytics", facts=facts)


def test_missing_facts_are_asked_for_together() -> None:
    with pytest.raises(MissingFactsError, match="missing facts: dataset_size, nc"):
        load_recipe({"lr0": 0.01, "epochs": 10}, "ultralytics")
    with pytest.raises(MissingFactsError, match="missing facts: dataset_size "):
        load_recipe({"lr0": 0.01, "epochs": 10, "nc": 2}, "ultralytics")


def test_an_option_of_the_export_is_read_over() -> None:
    args = {"lr0": 0.01, "lrf": 0.01, "optimizer": "SGD", "epochs": 3, "optimize": False}
    assert load_recipe(args, facts={"dataset_size": 640}).framework == "ultralytics"

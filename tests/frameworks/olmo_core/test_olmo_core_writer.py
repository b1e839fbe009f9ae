"""Configs of OLMo-core that are written: values of its own code, groups and clipping."""

import json
from collections.abc import Iterator
from itertools import groupby
from typing import Any

import numpy as np
import pytest

from closedform.analysis.writing import Verdict, write_recipe
from closedform.recipes import load_recipe
from tests.reference.records import Row, framework_records

CLASSES = (
    "ConstantScheduler",
    "ConstantWithWarmup",
    "CosWithWarmup",
    "InvSqrtWithWarmup",
    "LinearWithWarmup",
    "WSD",
)
"""The classes that the writer writes."""

EACH = 5
"""Records of each class that are tried."""

SAME = 1e-12
"""Of the largest rate: OLMo-core computes in float64."""


def rows() -> Iterator[Row]:
    """Records of the classes whose clock counts steps, with a value at every step."""
    found = [
        row
        for row in framework_records()
        if row["system"] == "olmo_core"
        and row["class"] in CLASSES
        and len(row.get("values", ())) == len(row["steps"])
        and all(isinstance(value, float) for value in row["values"])
        and row["config"]["scheduler"].get("units", "steps") == "steps"
        and set(row["config"]) == {"optim", "scheduler"}
    ]
    for _, group in groupby(sorted(found, key=lambda row: str(row["class"])), lambda r: r["class"]):
        yield from list(group)[:EACH]


def config_of(row: Row) -> dict[str, Any]:
    """The record as a config of a checkpoint."""
    scheduler = {k: v for k, v in row["config"]["scheduler"].items() if k != "class"}
    named = {"_CLASS_": f"olmo_core.optim.scheduler.{row['class']}", **scheduler}
    optim = {"_CLASS_": "olmo_core.optim.AdamWConfig", **row["config"]["optim"]}
    duration = {
        "_CLASS_": "olmo_core.train.Duration",
        "value": row["facts"]["max_steps"],
        "unit": "steps",
    }
    return {
        "train_module": {"optim": optim, "scheduler": named},
        "trainer": {"max_duration": duration},
    }


def test_every_class_of_the_writer_has_records() -> None:
    assert {row["class"] for row in rows()} == set(CLASSES)


@pytest.mark.parametrize("row", list(rows()), ids=lambda row: row["id"])
def test_verdicts_hold_for_the_values_of_olmo_core(row: Row) -> None:
    written = write_recipe(load_recipe(config_of(row), framework="olmo_core"), "olmo_core")
    config = json.loads(written.text)
    again = load_recipe(config, framework="olmo_core", facts=written.facts)
    end = min(row["facts"]["max_steps"], written.until or row["steps"][-1] + 1)
    assert again.schedule("lr").last_step is None
    steps = np.array([step for step in row["steps"] if step < end])
    expected = np.array(row["values"][: len(steps)])
    apart = np.abs(again.schedule("lr")(steps) - expected) / np.max(np.abs(expected))
    if written.verdict is Verdict.NEAREST:
        assert written.gap == pytest.approx(np.max(apart), rel=1e-9)
    else:
        assert np.max(apart) <= SAME


def test_each_class_is_written_exactly_at_least_once() -> None:
    found = {
        str(row["class"])
        for row in rows()
        if row["class"] in write_recipe(load_recipe(config_of(row), "olmo_core"), "olmo_core").text
    }
    assert found == set(CLASSES)


def test_all_classes_are_exact() -> None:
    verdicts = {
        row["id"]: write_recipe(load_recipe(config_of(row), "olmo_core"), "olmo_core").verdict
        for row in rows()
    }
    assert set(verdicts.values()) == {Verdict.EXACT}, verdicts


def test_groups_and_clipping_are_written() -> None:
    optim = {
        "_CLASS_": "olmo_core.optim.AdamWConfig",
        "lr": 3e-4,
        "betas": [0.9, 0.95],
        "weight_decay": 0.1,
        "group_overrides": [{"params": ["embeddings.weight"], "opts": {"weight_decay": 0.0}}],
    }
    cosine = {"_CLASS_": "olmo_core.optim.scheduler.CosWithWarmup", "warmup": 20, "alpha_f": 0.1}
    config = {
        "train_module": {"optim": optim, "scheduler": cosine, "max_grad_norm": 0.7},
        "trainer": {
            "max_duration": {
                "_CLASS_": "olmo_core.train.Duration",
                "value": 100,
                "unit": "steps",
            }
        },
    }
    made = write_recipe(load_recipe(config, framework="olmo_core"), "olmo_core")
    assert made.verdict in (Verdict.EXACT, Verdict.UNTIL)
    written = json.loads(made.text)
    module = written["train_module"]
    assert module["max_grad_norm"] == 0.7
    assert module["optim"] | {"lr": 3e-4} == module["optim"]
    assert module["optim"]["betas"] == [0.9, 0.95]
    assert module["optim"]["group_overrides"] == optim["group_overrides"]
    assert module["scheduler"]["_CLASS_"].endswith("CosWithWarmup")
    assert set(made.left_out) == set()

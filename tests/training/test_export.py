"""The files of a training step say whether their update was shown to be the rule."""

import importlib
import json
from pathlib import Path
from typing import Any

import pytest
import torch
from torch import nn
from torch.nn import functional

from closedform import UpdateRule, optimizers, schedules, transforms
from closedform.errors import VerificationError
from closedform.options import ModelSpec
from closedform.training import export
from closedform.verify.translation.verdicts import KEY
from tests.support.torch_exporter import traced_once

BATCH = (torch.zeros(2, 3), torch.zeros(2, dtype=torch.long))
RATE = schedules.linear(0, 1e-2, 5)
RULE = transforms.clip_by_global_norm(optimizers.adamw(RATE), 1)


def written(rule: UpdateRule, folder: Path, **options: Any) -> dict[str, dict[str, Any]]:
    model = nn.Sequential(nn.Linear(3, 4), nn.Tanh(), nn.Linear(4, 2))
    with traced_once(written):
        models = export(model, functional.cross_entropy, BATCH, rule, folder, **options)
    found = {}
    for name, file in models.items():
        facts = {entry.key: entry.value for entry in file.metadata_props}
        if f"{KEY}.rule" in facts:
            found[name] = json.loads(facts[f"{KEY}.rule"])
    return found


def test_the_update_is_proved(tmp_path: Path) -> None:
    found = written(RULE, tmp_path)
    assert {name: content["status"] for name, content in found.items()} == {
        "train.onnx": "PROVED",
        "init.onnx": "PROVED",
    }
    assert written(RULE, tmp_path, validate=False) == {}


def test_another_update_is_not_written(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    module = importlib.import_module("closedform.training.assembly")
    made = module.compile_step
    other = optimizers.sgd(0.2)
    monkeypatch.setattr(
        module,
        "compile_step",
        lambda spec, options: made(ModelSpec(other, spec.params), options),
    )
    with pytest.raises(VerificationError, match="the model is not its source"):
        written(optimizers.sgd(0.1), tmp_path / "run")
    assert not (tmp_path / "run").exists()

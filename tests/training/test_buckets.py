"""Small parameters as one vector: the same steps, in fewer operators."""

from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch
from torch import nn
from torch.nn.functional import cross_entropy

import closedform as cf
from closedform import training, transforms
from closedform.language import UpdateRule
from closedform.language.groups import Group
from closedform.options import ModelSpec
from closedform.training import assembly
from closedform.training.buckets import LIMIT, Buckets, with_buckets

SHAPES: dict[str, Any] = {"w": (4, 3), "b": (3,), "scale": (), "big": (LIMIT + 1,), "n[0]": (2, 2)}


def test_small_parameters_of_a_rule_are_one_vector() -> None:
    rule = cf.optimizers.adamw(1e-3)
    spec = ModelSpec(rule, SHAPES, [Group(["b", "scale"], changes={"weight_decay": 0})])
    found = with_buckets(spec)
    assert {name: list(of) for name, of in found.members.items()} == {
        "bucket_0": ["w", "n[0]"],
        "bucket_1": ["b", "scale"],
    }
    assert dict(found.spec.params) == {"big": (LIMIT + 1,), "bucket_0": (16,), "bucket_1": (4,)}
    assert [one.rule for one in found.spec.assignments] == [one.rule for one in spec.assignments]


@pytest.mark.parametrize(
    ("rule", "shapes"),
    [
        (cf.optimizers.muon(1e-2), {"w": (4, 3), "v": (3, 3)}),
        (cf.optimizers.sgd(1e-2), {"w": (4, 3), "big": (LIMIT + 1,)}),
    ],
    ids=["sums over matrices", "one small parameter"],
)
def test_others_have_no_bucket(rule: UpdateRule, shapes: dict[str, Any]) -> None:
    spec = ModelSpec(rule, shapes)
    assert with_buckets(spec).spec is spec
    assert not with_buckets(spec).members


def test_a_bucket_has_a_name_of_its_own() -> None:
    spec = ModelSpec(cf.optimizers.sgd(1e-2), {"bucket_0.x": (2,), "y": (2,)})
    assert list(with_buckets(spec).members) == ["bucket_0_"]


class _Scaled(nn.Module):
    def __init__(self) -> None:
        super().__init__()
        self.first, self.last = nn.Linear(6, 70), nn.Linear(70, 3)
        self.scale = nn.Parameter(torch.tensor(1.5))
        self.grid = nn.Parameter(torch.randn(5, 14))

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        hidden = torch.tanh(self.first(x)) * self.scale + self.grid.reshape(-1)
        result: torch.Tensor = self.last(hidden)
        return result


def test_steps_are_those_without_buckets(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    torch.manual_seed(0)
    model = _Scaled()
    lr = cf.schedules.linear(0, 1e-2, 5)
    rule = transforms.skip_nonfinite(cf.optimizers.adamw(lr, weight_decay=None))
    groups = [Group(["*.bias", "scale"], changes={"weight_decay": 0.1})]
    batch = torch.randn(8, 6), torch.randint(3, (8,))
    sessions = []
    for folder in ("with", "without"):
        if folder == "without":
            monkeypatch.setattr(assembly, "with_buckets", lambda spec: Buckets(spec, {}))
        training.export(
            model, cross_entropy, batch, rule, tmp_path / folder, groups=groups, validate=False
        )
        sessions.append(training.TrainSession(tmp_path / folder))
    for _ in range(6):
        for session in sessions:
            session.step([tensor.numpy() for tensor in batch], weight_decay=0.2)
    with_buckets, without = sessions
    assert (
        with_buckets.params.keys() == without.params.keys() == dict(model.named_parameters()).keys()
    )
    for name, array in without.params.items():
        assert not np.array_equal(array, model.state_dict()[name])
        assert np.array_equal(array, with_buckets.params[name]), name
    for name, array in without.states.items():
        assert np.array_equal(array, with_buckets.states[name]), name

"""Tracing respects the mode of each module, changes nothing, and fixes no size."""

import random
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch
from torch import nn
from torch.nn import functional
from torch.utils import _pytree as pytree

from closedform import optimizers
from closedform.errors import ExportError
from closedform.training import TrainSession, export
from closedform.training.to_onnx.isolation import plain_kernels
from closedform.training.to_onnx.onnx_registry import quiet


class Situations(nn.Module):
    """A frozen batch norm, an embedding whose rows are bounded, and a transposed dropout."""

    def __init__(self) -> None:
        super().__init__()
        self.embedding = nn.Embedding(9, 5, max_norm=1.0)
        self.frozen = nn.BatchNorm1d(5)
        self.trained = nn.BatchNorm1d(5)
        self.dropout = nn.Dropout(0.5)
        self.calls = 0

    def forward(self, rows: torch.Tensor) -> Any:
        self.last = self.trained(self.frozen(self.embedding(rows)))
        return self.dropout(self.last.transpose(0, 1)).transpose(0, 1)


def test_modules_keep_their_mode_and_their_tensors(tmp_path: Path) -> None:
    torch.manual_seed(0)
    model = Situations()
    model.frozen.eval()
    model.frozen.running_mean = torch.randn(5)
    hook = model.trained.register_forward_hook(lambda *_: None)
    model.embedding.weight.grad = torch.ones(9, 5)
    random.seed(1)
    rows, target = torch.tensor([0, 3, 3, 8, 1]), torch.randn(5, 5)
    before = _everything(model)
    export(model, functional.mse_loss, (rows, target), optimizers.sgd(0.1), tmp_path)
    after = _everything(model)
    assert before.keys() == after.keys()
    for key, value in before.items():
        same = torch.equal(value, after[key]) if isinstance(value, torch.Tensor) else None
        assert value == after[key] if same is None else same, key
    assert hook.id in model.trained._forward_hooks
    assert not hasattr(model, "last")

    session = TrainSession(tmp_path)
    assert {name for name in session._session.outputs if name.startswith("next.buffer")} == {
        f"next.buffer.trained.{name}"
        for name in ("running_mean", "running_var", "num_batches_tracked")
    }
    # Seven rows: the file has no size of the example, which equals the number of features.
    seven, wanted = torch.tensor([0, 8, 2, 5, 5, 0, 7]), torch.randn(7, 5)
    optimizer = torch.optim.SGD(model.parameters(), 0.1)
    for _ in range(3):
        mask = _mask(session, 7)
        session.step((seven.numpy(), wanted.numpy()))
        optimizer.zero_grad()
        model.dropout.p = 0.0
        hidden = model(seven) * mask.T * 2
        functional.mse_loss(hidden, wanted).backward()
        optimizer.step()
    for name, parameter in model.named_parameters():
        # float32 sums in another order, over three steps.
        close = pytest.approx(parameter.detach().numpy(), rel=1e-4, abs=1e-5)
        assert session.params[name] == close, name


def _mask(session: TrainSession, rows: int) -> torch.Tensor:
    """The mask of dropout in the next step, by features and rows."""
    numbers = np.random.default_rng((0, session.t)).random((5, rows)).astype(np.float32)
    return torch.from_numpy(numbers < 0.5).float()


def _everything(model: nn.Module) -> dict[str, Any]:
    found: dict[str, Any] = {f"tensor.{k}": v.clone() for k, v in model.state_dict().items()}
    for name, module in model.named_modules():
        found[f"mode.{name}"] = module.training
        found[f"hooks.{name}"] = dict(module._forward_hooks), dict(module._forward_pre_hooks)
        found[f"attributes.{name}"] = sorted(module.__dict__)
    for name, parameter in model.named_parameters():
        found[f"parameter.{name}"] = id(parameter)
        found[f"grad.{name}"] = None if parameter.grad is None else parameter.grad.clone()
    found["generators"] = torch.get_rng_state(), random.getstate()
    found["generators"] = found["generators"][0].tolist(), found["generators"][1]
    return found


class Counts(nn.Module):
    """A tensor that a forward writes to, and that no step could carry."""

    def __init__(self) -> None:
        super().__init__()
        self.layer = nn.Linear(3, 2)
        self.count = torch.zeros(())

    def forward(self, x: torch.Tensor) -> Any:
        self.count += 1
        return self.layer(x) / self.count


class Tosses(nn.Module):
    """A layer that is dropped by Python's generator."""

    def __init__(self) -> None:
        super().__init__()
        self.layer = nn.Linear(3, 2)

    def forward(self, x: torch.Tensor) -> Any:
        return self.layer(x) * (random.random() < 0.5)


class Fixes(nn.Module):
    """A reshape by the number of rows of the example."""

    def __init__(self) -> None:
        super().__init__()
        self.layer = nn.Linear(3, 2)

    def forward(self, x: torch.Tensor) -> Any:
        return self.layer(x).reshape(4, 2)


@pytest.mark.parametrize(
    ("model", "message"),
    [
        (Counts(), r"aten.add_.\w+ writes to a tensor \[\] that is neither a parameter nor a buff"),
        (Tosses(), "the forward draws numbers from Python's random, which a graph would repeat"),
        (
            Fixes(),
            r"'batch' is not free: Tensor.reshape in the model itself \(Fixes\) fixes it to 4",
        ),
    ],
    ids=lambda value: type(value).__name__,
)
def test_what_a_step_cannot_repeat_is_refused(
    model: nn.Module, message: str, tmp_path: Path
) -> None:
    batch = (torch.randn(4, 3), torch.randn(4, 2))
    before = _everything(model)
    with pytest.raises(ExportError, match=message):
        export(model, functional.mse_loss, batch, optimizers.sgd(0.1), tmp_path / "out")
    assert _everything(model).keys() == before.keys()
    assert not (tmp_path / "out").exists()
    if isinstance(model, Counts):
        assert model.count == 0


@pytest.mark.parametrize("kind", [nn.LSTM, nn.GRU, nn.RNN])
def test_recurrent_layers_that_drop_nothing_are_those_of_torch(kind: Any) -> None:
    torch.manual_seed(0)
    options = {"num_layers": 3, "bidirectional": True, "batch_first": True}
    layers = kind(4, 5, **options)
    value, states = torch.randn(2, 6, 4), torch.randn(6, 2, 5)
    begun = (states, states / 2) if kind is nn.LSTM else states
    wanted = layers(value, begun)
    layers.dropout = 1e-9  # which drops no number of float32
    with quiet(), plain_kernels():
        found = layers(value, begun)
    for own, other in zip(pytree.tree_leaves(found), pytree.tree_leaves(wanted), strict=True):
        torch.testing.assert_close(own, other)

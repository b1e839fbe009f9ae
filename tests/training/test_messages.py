"""Mistakes and situations with a known way out: exported, or refused with it."""

import ast
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch
from torch import nn
from torch.nn import functional

from closedform import optimizers, training
from closedform.errors import DefinitionError, ExportError, TrainingExportError
from closedform.training import TrainSession, export
from closedform.training.sources import unwrap

EXAMPLE = torch.ones(4, 4), torch.ones(4, 3)


def linear() -> nn.Linear:
    return nn.Linear(4, 3)


class Counts(nn.Module):
    """Counts its calls in Python."""

    def __init__(self, scale: Callable[[Any], float], label: str = "count") -> None:
        super().__init__()
        self.layer, self.scale, self.label = linear(), scale, label
        self.count, self.table, self.width = 0, {"calls": 0}, 0

    def forward(self, x: torch.Tensor) -> Any:
        if self.label == "count":
            self.count += 1
        if self.label == "table":
            self.table["calls"] += 1
        if self.label == "width":
            self.width = x.shape[1]
        return self.layer(x) * self.scale(self)


def _counting_loss() -> Callable[..., Any]:
    calls = 0

    def loss(output: torch.Tensor, target: torch.Tensor) -> Any:
        nonlocal calls
        calls += 1
        return functional.mse_loss(output, target) * calls

    return loss


REFUSED: dict[str, tuple[Callable[[], nn.Module], dict[str, Any], str]] = {
    "warm-up": (
        lambda: Counts(lambda m: min(1.0, m.count / 10)),
        {},
        r"the forward changes 'count' in Python .* \(at 1\).*register_buffer",
    ),
    "late change": (lambda: Counts(lambda m: 2.0 if m.count > 50 else 1.0), {}, "changes 'count'"),
    "dictionary": (
        lambda: Counts(lambda m: m.table["calls"], "table"),
        {},
        r"changes \"table\['calls'\]\"",
    ),
    "closure": (linear, {"loss": _counting_loss()}, "changes 'calls'"),
    "lazy": (
        lambda: nn.Sequential(nn.LazyLinear(3)),
        {},
        r"'0.weight' has no size before the first forward.*call the model once",
    ),
    "another device": (lambda: linear().to("meta"), {}, r"'weight' on meta.*model.cpu\(\)"),
    "old opset": (linear, {"opset": 17}, "opset must be an integer of 18 or more, got 17"),
}


@pytest.mark.parametrize("name", REFUSED)
def test_a_refusal_says_the_way_out(name: str, tmp_path: Path) -> None:
    make, options, message = REFUSED[name]
    given = {"loss": "mse", "opset": 21, **options}
    model = make()
    attributes = {key: value for key, value in vars(model).items() if isinstance(value, int)}
    with pytest.raises(ExportError, match=message):
        export(model, given["loss"], EXAMPLE, optimizers.sgd(0.1), tmp_path, opset=given["opset"])
    assert {key: vars(model)[key] for key in attributes} == attributes


def test_muon_names_the_groups(tmp_path: Path) -> None:
    with pytest.raises(DefinitionError, match=r"parameter 'bias'\).*groups=\[Group"):
        export(linear(), "mse", EXAMPLE, optimizers.muon(0.1), tmp_path, validate=False)


@pytest.mark.parametrize("label", ["count", "width"])
def test_a_number_without_effect_is_exported(label: str, tmp_path: Path) -> None:
    model = Counts(lambda m: 1.0 if label == "count" else m.width, label)
    export(model, "mse", EXAMPLE, optimizers.sgd(0.1), tmp_path, validate=False)
    assert (model.count, model.width) == (0, 0)


def test_wrappers_are_taken_off(tmp_path: Path) -> None:
    inner = linear()
    compiled: Any = torch.compile(nn.DataParallel(inner), backend="eager")
    wrapped = nn.DataParallel(compiled)
    assert unwrap(wrapped) is inner
    export(wrapped, "mse", EXAMPLE, optimizers.sgd(0.1), tmp_path, validate=False)
    session = TrainSession(tmp_path, threads=1)
    assert list(session.params) == ["weight", "bias"]
    session.step(tuple(value.numpy() for value in EXAMPLE))
    session.to_torch(wrapped)
    assert np.array_equal(inner.bias.detach().numpy(), session.params["bias"])
    session.from_torch(wrapped, step=7)
    assert session.t == 7
    with pytest.warns(UserWarning, match="SGD of torch does not count its steps: .* at step 7"):
        session.from_torch(wrapped, torch.optim.SGD(wrapped.parameters(), 0.1))


def test_torchscript_is_refused_by_name() -> None:
    with pytest.warns((DeprecationWarning, FutureWarning), match="trace"):  # torch 2.14: Future
        traced = torch.jit.trace(linear(), EXAMPLE[0])
    with pytest.raises(
        ExportError, match=r"part '0' of the model is compiled by TorchScript \(Lin"
    ):
        unwrap(nn.Sequential(traced))


class Labelled(nn.Module):
    """Takes labels, as models of transformers do."""

    def __init__(self) -> None:
        super().__init__()
        self.layer = linear()

    def forward(self, x: torch.Tensor, labels: torch.Tensor | None = None) -> Any:
        output = self.layer(x)
        return output if labels is None else (functional.mse_loss(output, labels), output)


def _needs_both(output: torch.Tensor, x: torch.Tensor, labels: torch.Tensor) -> Any:
    return functional.l1_loss(output, labels + x[:, :3])


def test_a_loss_takes_names_that_the_model_takes_too(tmp_path: Path) -> None:
    model, (x, labels) = Labelled(), EXAMPLE
    example = {"x": x, "labels": labels}
    export(model, _needs_both, example, optimizers.sgd(0.1), tmp_path, validate=False)
    session = TrainSession(tmp_path, threads=1)
    loss = session.step({"x": x.numpy(), "labels": labels.numpy()}).loss
    assert loss == pytest.approx(_needs_both(model(x), x, labels).item(), rel=1e-6)
    assert session.predict(x.numpy()).shape == (4, 3)


def test_refusals_of_an_export_require_a_way_out() -> None:
    with pytest.raises(TypeError, match="hint"):
        TrainingExportError("a problem")  # type: ignore[call-arg]
    folder = Path(training.__file__).parent
    calls = [
        (path.name, node.lineno)
        for path in folder.rglob("*.py")
        for node in ast.walk(ast.parse(path.read_text(encoding="utf-8")))
        if isinstance(node, ast.Call)
        and isinstance(node.func, ast.Name)
        and node.func.id == ExportError.__name__
    ]
    assert not calls, "raise TrainingExportError, which has a hint"

"""The memory of an export: parameters are not copied, and gradients live one at a time."""

import functools
import weakref
from pathlib import Path
from typing import Any

import pytest
import torch
from torch import nn
from torch.nn.functional import cross_entropy

import closedform as cf
from closedform import training
from closedform.errors import ExportError
from closedform.training.to_onnx import comparison, onnx_program, trace
from closedform.training.to_onnx.batch import read_batch
from closedform.training.to_onnx.forward import Forward
from closedform.training.to_onnx.probe import run_eagerly

BATCH = torch.randint(0, 9, (4, 5)), torch.randint(0, 3, (4,))


class _Tokens(nn.Module):
    """Embeddings, of which a forward with ``max_norm`` rescales the rows that it reads."""

    def __init__(self, max_norm: float | None = None, *, is_frozen: bool = False) -> None:
        super().__init__()
        self.table = nn.Embedding(9, 6, max_norm=max_norm)
        self.table.requires_grad_(not is_frozen)
        self.norm, self.head = nn.BatchNorm1d(6), nn.Linear(6, 3)

    def forward(self, tokens: torch.Tensor) -> torch.Tensor:
        result: torch.Tensor = self.head(self.norm(self.table(tokens).mean(1)))
        return result


def _forward(model: nn.Module) -> Forward:
    return Forward(model, cross_entropy, read_batch(model, cross_entropy, BATCH, "here"), False, "")


def test_parameters_are_not_copied_after_the_first_run() -> None:
    model = _Tokens()
    forward = _forward(model)
    params, fixed = forward.tensors()
    first_run = run_eagerly(forward, params, fixed, forward.batch.tensors)
    assert not first_run.written_params
    forward.copied_params.clear()
    pending = run_eagerly(forward, params, fixed, forward.batch.tensors)
    for name, parameter in model.named_parameters():
        assert pending.leaves[name].data_ptr() == parameter.data_ptr(), name
    for name, buffer in model.named_buffers():
        assert pending.run.buffers[name].data_ptr() != buffer.data_ptr(), name


@pytest.mark.parametrize("is_frozen", [False, True])
def test_parameters_that_a_forward_writes_to_are_copied(is_frozen: bool, tmp_path: Path) -> None:
    model = _Tokens(0.5, is_frozen=is_frozen)
    before = {name: value.clone() for name, value in model.state_dict().items()}
    forward = _forward(model)
    pending = run_eagerly(forward, *forward.tensors(), forward.batch.tensors)
    assert pending.written_params == {"table.weight"}
    training.export(model, cross_entropy, BATCH, cf.optimizers.sgd(0.1), tmp_path)
    for name, value in model.state_dict().items():
        assert torch.equal(value, before[name]), name


def test_gradients_are_handed_over_one_by_one() -> None:
    forward = _forward(_Tokens())
    pending = run_eagerly(forward, *forward.tensors(), forward.batch.tensors)
    wanted = torch.autograd.grad(pending.loss, list(pending.leaves.values()), retain_graph=True)
    named = dict(zip(pending.leaves, wanted, strict=True))
    alive: list[weakref.ref[torch.Tensor]] = []

    def take(name: str, gradient: torch.Tensor) -> None:
        assert all(reference() is None for reference in alive), name
        assert torch.equal(gradient, named.pop(name))
        alive.append(weakref.ref(gradient))

    pending.gradients(take)
    assert not named


def _with_wrong_output(name: str) -> Any:
    write = onnx_program.write_onnx

    def written(*arguments: Any) -> Any:
        model = write(*arguments)
        if any(name in node.output for node in model.graph.node):
            for node in model.graph.node:
                for values in (node.input, node.output):
                    values[:] = [f"{name}.right" if value == name else value for value in values]
            model.graph.node.add(op_type="Neg", input=[f"{name}.right"], output=[name])
        return model

    return written


@pytest.mark.parametrize("name", ["table.weight", "head.bias"])
def test_gradients_of_a_large_model_are_compared_in_groups(
    name: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(comparison, "_GROUP", 1)
    model = _Tokens()
    groups = comparison.groups_of(dict(model.named_parameters()))
    assert groups == [["table.weight"], ["norm.weight", "norm.bias"], ["head.weight", "head.bias"]]
    training.export(model, cross_entropy, BATCH, cf.optimizers.sgd(0.1), tmp_path)
    monkeypatch.setattr(trace, "write_onnx", _with_wrong_output(f"grad.{name}"))
    with pytest.raises(ExportError, match=f"differs from torch in 'grad.{name}' by 2 of its"):
        training.export(model, cross_entropy, BATCH, cf.optimizers.sgd(0.1), tmp_path)


@pytest.mark.parametrize("dtype", [torch.float32, torch.bfloat16])
def test_a_step_has_the_weights_that_its_forward_writes(dtype: torch.dtype) -> None:
    is_widened = dtype is not torch.float32
    step = trace.trace(_Tokens(0.5).to(dtype), cross_entropy, BATCH, is_widened=is_widened)
    assert step.written_params == ("table.weight",)


def test_weights_that_a_forward_writes_are_compared(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(trace, "write_onnx", _with_wrong_output("written.table.weight"))
    with pytest.raises(ExportError, match=r"differs from torch in 'written.table.weight' by 2 of"):
        trace.trace(_Tokens(0.5), cross_entropy, BATCH)


class _Clips(nn.Linear):
    """Clips its weights from a call on, in a mode."""

    calls = 0

    def __init__(self, first: int, is_trained: bool, by_data: bool) -> None:
        super().__init__(5, 3)
        self.first, self.is_trained, self.by_data = first, is_trained, by_data
        type(self).calls = 0

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        type(self).calls += 1
        if self.training is self.is_trained and type(self).calls >= self.first:
            with torch.no_grad():
                if self.by_data:
                    self.weight.data = self.weight.data.clamp(-0.1, 0.1)
                else:
                    self.weight.clamp_(-0.1, 0.1)
        return super().forward(x)


@pytest.mark.parametrize("dtype", [torch.float32, torch.bfloat16])
@pytest.mark.parametrize("by_data", [False, True])
@pytest.mark.parametrize("first", range(1, 6))
def test_weights_that_are_written_late_are_refused_and_stay(
    first: int, by_data: bool, dtype: torch.dtype
) -> None:
    model = _Clips(first, True, by_data).to(dtype)
    before = {name: value.clone() for name, value in model.state_dict().items()}
    batch = torch.ones(4, 5, dtype=dtype), BATCH[1]
    traced = functools.partial(
        trace.trace, model, cross_entropy, batch, is_widened=dtype is not torch.float32
    )
    if first == 1 and not by_data:
        assert traced().written_params == ("weight",)
    else:
        with pytest.raises(ExportError, match=r"some runs only|assigns to .data|changes .*calls"):
            traced()
    assert all(torch.equal(value, before[name]) for name, value in model.state_dict().items())


@pytest.mark.parametrize("dtype", [torch.float32, torch.bfloat16])
def test_weights_that_are_written_in_evaluation_mode(dtype: torch.dtype) -> None:
    model = _Clips(1, False, False).to(dtype)
    batch = torch.ones(4, 5, dtype=dtype), BATCH[1]
    step = trace.trace(model, cross_entropy, batch, is_widened=dtype is not torch.float32)
    assert not step.written_params
    assert [node.op_type for node in step.forward.graph.node][-2:] == ["Clip", "Gemm"]

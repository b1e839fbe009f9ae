"""torch's table of operators and their samples: each as a part of a model, traced beside torch."""

from __future__ import annotations

import functools
import signal
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from enum import StrEnum
from typing import Any

import numpy as np
import torch
from torch import nn
from torch.utils import _pytree as pytree

from closedform.errors import ExportError
from closedform.runtime.onnx_session import open_session, run_on
from closedform.training.feeds import draw
from closedform.training.tracing.arrays import array_of
from closedform.training.tracing.isolation import plain_kernels
from closedform.training.tracing.onnx_registry import quiet
from closedform.training.tracing.places import Places
from closedform.training.tracing.random_operators import Drawn
from closedform.training.tracing.trace import trace
from tests.support.torch_testing import torch_testing

LARGEST, SECONDS = 16_000, 60


class Result(StrEnum):
    """The result of a sample."""

    MATCHED = "matched"
    REFUSED = "refused"
    WRONG = "wrong"
    FOREIGN = "foreign"


@dataclass(frozen=True, slots=True)
class Outcome:
    """A result with its message or difference."""

    result: Result
    text: str = ""


@functools.cache
def operators() -> dict[str, Any]:
    """The differentiable operators of torch's table in float32 on the CPU, by name."""
    table = torch_testing("common_methods_invocations").op_db
    return {
        ".".join(filter(None, (op.name, op.variant_test_name))): op
        for op in table
        if op.supports_autograd
        and torch.float32 in op.supported_dtypes("cpu")
        and torch.float32 in op.supported_backward_dtypes("cpu")
    }


def samples(op: Any, count: int = 1) -> list[Any]:
    """The first samples of an operator whose tensors are dense and not large."""
    torch.manual_seed(0)
    np.random.seed(0)  # noqa: NPY002
    found = []
    for sample in op.sample_inputs("cpu", torch.float32, requires_grad=True):
        tensors = _tensors(sample)
        is_trained = any(_is_parameter(tensor) for tensor in tensors)
        is_dense = all(tensor.layout is torch.strided for tensor in tensors)
        if is_trained and is_dense and all(0 < t.numel() <= LARGEST for t in tensors):
            found.append(sample)
        if len(found) == count:
            break
    return found


def _tensors(sample: Any) -> list[torch.Tensor]:
    leaves = pytree.tree_leaves((sample.input, sample.args, sample.kwargs))
    return [leaf for leaf in leaves if isinstance(leaf, torch.Tensor)]


def _is_parameter(tensor: torch.Tensor) -> bool:
    return tensor.requires_grad and tensor.dtype is torch.float32


class Sample(nn.Module):
    """An operator in front of a loss; its trained tensors are parameters, the others a batch."""

    def __init__(self, op: Any, sample: Any) -> None:
        super().__init__()
        given = (sample.input, sample.args, sample.kwargs)
        self._op, self._process = op, sample.output_process_fn_grad
        self._leaves, self._form = pytree.tree_flatten(given)
        self.values = nn.ParameterList(
            nn.Parameter(leaf.detach().clone()) for leaf in self._leaves if _is_trained(leaf)
        )
        self.batch = [torch.ones(())] + [
            leaf.detach().clone()
            for leaf in self._leaves
            if isinstance(leaf, torch.Tensor) and not _is_trained(leaf)
        ]

    def forward(self, batch: Sequence[torch.Tensor]) -> torch.Tensor:
        scale, *rest = batch
        trained, others = iter(self.values), iter(rest)
        leaves = [
            next(trained).clone()
            if _is_trained(leaf)
            else next(others)
            if isinstance(leaf, torch.Tensor)
            else leaf
            for leaf in self._leaves
        ]
        given, arguments, options = pytree.tree_unflatten(leaves, self._form)
        output = self._process(
            self._op.gradcheck_wrapper(self._op.op, given, *arguments, **options)
        )
        parts = [_weighted(leaf) for leaf in pytree.tree_leaves(output) if _has_gradient(leaf)]
        return torch.stack(parts).sum() * scale if parts else scale


def _is_trained(leaf: object) -> bool:
    return isinstance(leaf, torch.Tensor) and _is_parameter(leaf)


def _has_gradient(leaf: object) -> bool:
    return isinstance(leaf, torch.Tensor) and (leaf.is_floating_point() or leaf.is_complex())


def _weighted(value: torch.Tensor) -> torch.Tensor:
    """A sum with weights that differ, so that each place of a result matters."""
    value = torch.view_as_real(value.resolve_conj()) if value.is_complex() else value
    flat = value.reshape(-1)
    total: torch.Tensor = (flat * torch.cos(1.0 + torch.arange(flat.shape[0]))).sum()
    return total.float() if value.dtype in (torch.float16, torch.bfloat16) else total


def outcome(op: Any, sample: Any) -> Outcome:
    """Traces a sample and runs it beside torch."""
    model = Sample(op, sample)
    try:
        with _limited():
            traced = trace(model, None, (model.batch,), dynamic_axes={}, check=False)
            session = open_session(traced.step)
    except ExportError as error:
        is_clear = "torch cannot trace the model" not in str(error)
        return Outcome(Result.REFUSED if is_clear else Result.FOREIGN, str(error))
    except Exception as error:  # of any kind: each is a defect
        return Outcome(Result.FOREIGN, f"{type(error).__name__}: {error}"[:300])
    ports = {n: p for n, p in session.inputs.items() if n.startswith("random.")}
    numbers = draw(ports, {}, (7,), "the samples")
    feeds = {f"param.{n}": v for n, v in traced.params.items()}
    feeds |= {f"buffer.{n}": v for n, v in traced.buffers.items()}
    feeds |= {f"batch.batch.{n}": array_of(v) for n, v in enumerate(model.batch)} | numbers
    try:
        made = run_on(session, {name: feeds[name] for name in session.inputs})
    except Exception as error:  # of any kind: the graph is not one that onnxruntime runs
        return Outcome(Result.FOREIGN, f"onnxruntime: {error}"[:300])
    found = dict(zip(session.outputs, made, strict=True))
    return _compared(found, model, list(numbers.values()))


@contextmanager
def _limited() -> Iterator[None]:
    def stop(*_: object) -> None:
        raise TimeoutError(f"more than {SECONDS} s")

    before = signal.signal(signal.SIGPROF, stop)
    signal.setitimer(signal.ITIMER_PROF, SECONDS)
    try:
        yield
    finally:
        signal.setitimer(signal.ITIMER_PROF, 0)
        signal.signal(signal.SIGPROF, before)


def _compared(found: dict[str, Any], model: Sample, numbers: list[Any]) -> Outcome:
    single = _in_torch(model, model.batch, numbers)
    try:
        exact = _in_torch(model.double(), [_wide(value) for value in model.batch], numbers)
    except (RuntimeError, NotImplementedError):  # an option that names float32
        exact = single
    largest = max(np.abs(value[np.isfinite(value)]).max(initial=0) for value in exact.values())
    # A few roundings of the largest value: torch's own error may be zero by chance.
    floor = 32 * np.finfo(np.float32).eps * max(largest, 1e-2)
    for name, wanted in exact.items():
        own = found[name].astype(np.float64)
        with np.errstate(invalid="ignore"):
            distances = np.where(_same(own, single[name]), 0, np.abs(own - wanted))
            in_single = np.abs(np.where(_same(single[name], wanted), 0, single[name] - wanted))
        most = float(np.nan_to_num(distances, nan=np.inf).max(initial=0))
        # Four times as far from float64 as torch in float32.
        if not most <= 4 * float(np.nan_to_num(in_single).max(initial=0)) + floor:
            return Outcome(Result.WRONG, f"{name} differs by {most:.2g} of {largest:.2g}")
    return Outcome(Result.MATCHED)


def _same(first: Any, second: Any) -> Any:
    return (first == second) | (np.isnan(first) & np.isnan(second))


def _wide(value: torch.Tensor) -> torch.Tensor:
    return value.double() if value.is_floating_point() else value


def _in_torch(model: Sample, batch: list[torch.Tensor], numbers: list[Any]) -> dict[str, Any]:
    """The loss and the gradients in torch, with given random numbers."""
    dtype = next(model.parameters()).dtype
    left = [torch.from_numpy(value) for value in numbers]

    def given(_: Any, shape: Any, __: Any) -> torch.Tensor:
        return left.pop(0).reshape(shape).to(dtype)

    with quiet(), plain_kernels(), Drawn(given, Places(), ""):
        loss = model(batch)
    parameters = dict(model.named_parameters())
    grads = torch.autograd.grad(loss, list(parameters.values()), materialize_grads=True)
    named = {f"grad.{name}": grad for name, grad in zip(parameters, grads, strict=True)}
    return {n: v.detach().double().numpy() for n, v in ({"loss": loss} | named).items()}

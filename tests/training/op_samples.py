"""torch's table of operators and their samples: each as a part of a model, traced beside torch."""

import functools
import itertools
import signal
from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, replace
from enum import StrEnum
from typing import Any

import numpy as np
import torch
from torch import nn
from torch.utils import _pytree as pytree

from closedform.errors import ExportError, SessionError
from closedform.runtime.onnx_session import open_session, run_on
from closedform.training.feeds import draw
from closedform.training.to_onnx.arrays import array_of
from closedform.training.to_onnx.isolation import plain_kernels
from closedform.training.to_onnx.onnx_registry import quiet
from closedform.training.to_onnx.places import Places
from closedform.training.to_onnx.random_operators import Drawn
from closedform.training.to_onnx.trace import trace
from tests.support.torch_testing import torch_testing

LARGEST, SECONDS = 16_000, 60
SEARCHED = 60
"""The number of samples of an operator among which one with a broadcast is looked for."""


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


@dataclass(frozen=True, slots=True)
class Variant:
    """A sample of an operator, and how its tensors are stored.

    Attributes:
        input: The first argument.
        args: The others.
        kwargs: Those by name.
        process: Takes the part of the results that is compared.
        is_permuted: Whether the trained matrices are views of transposed parameters.
    """

    input: Any
    args: tuple[Any, ...]
    kwargs: Mapping[str, Any]
    process: Any
    is_permuted: bool = False


@functools.cache
def operators(dtype: torch.dtype = torch.float32) -> dict[str, Any]:
    """The differentiable operators of torch's table in a dtype on the CPU, by name."""
    table = torch_testing("common_methods_invocations").op_db
    return {
        ".".join(filter(None, (op.name, op.variant_test_name))): op
        for op in table
        if op.supports_autograd
        and dtype in op.supported_dtypes("cpu")
        and dtype in op.supported_backward_dtypes("cpu")
    }


def samples(op: Any, count: int = 1, dtype: torch.dtype = torch.float32) -> list[Variant]:
    """The first samples of an operator whose tensors are dense, not empty and not large."""
    usual = (sample for sample in _generated(op, dtype) if not _is_empty(sample))
    return list(itertools.islice(usual, count))


def variants(op: Any, dtype: torch.dtype = torch.float32) -> dict[str, Variant]:
    """Other samples of an operator, by their kind; those that torch itself computes.

    ``permuted``: the first sample, its trained matrices with permuted strides; ``broadcast``: the
    first one whose tensors have different shapes; ``scalar first``: a Python number in front of the
    last operand; ``empty``: the first one with an axis of size 0.
    """
    found: dict[str, Variant] = {}
    for sample in itertools.islice(_generated(op, dtype), SEARCHED):
        shapes = {tensor.shape for tensor in _tensors(sample)}
        if _is_empty(sample):
            found.setdefault("empty", sample)
            continue
        if "permuted" not in found:
            found["permuted"] = replace(sample, is_permuted=True)
            if getattr(op, "supports_one_python_scalar", False) and sample.args:
                found["scalar first"] = replace(sample, input=0.75)
        if len(shapes) > 1:
            found.setdefault("broadcast", sample)
    return {kind: sample for kind, sample in found.items() if _is_computed(op, sample)}


def _generated(op: Any, dtype: torch.dtype) -> Iterator[Variant]:
    torch.manual_seed(0)
    np.random.seed(0)  # noqa: NPY002
    for made in op.sample_inputs("cpu", dtype, requires_grad=True):
        sample = Variant(made.input, made.args, made.kwargs, made.output_process_fn_grad)
        tensors = _tensors(sample)
        is_usual = all(t.layout is torch.strided and t.numel() <= LARGEST for t in tensors)
        if is_usual and any(map(_is_trained, tensors)):
            yield sample


def _is_empty(sample: Variant) -> bool:
    return not all(tensor.numel() for tensor in _tensors(sample))


def _tensors(sample: Variant) -> list[torch.Tensor]:
    leaves = pytree.tree_leaves((sample.input, sample.args, sample.kwargs))
    return [leaf for leaf in leaves if isinstance(leaf, torch.Tensor)]


def _is_computed(op: Any, sample: Variant) -> bool:
    """Whether torch computes a sample with its gradients."""
    if not any(map(_is_trained, _tensors(sample))):
        return False
    model = Sample(op, sample)
    try:
        torch.autograd.grad(
            model(model.batch), list(model.parameters()), allow_unused=True, materialize_grads=True
        )
    except Exception:  # of any kind: torch refuses the sample
        return False
    return True


class Sample(nn.Module):
    """An operator in front of a loss; its trained tensors are parameters, the others a batch."""

    def __init__(self, op: Any, sample: Variant) -> None:
        super().__init__()
        given = (sample.input, sample.args, sample.kwargs)
        self._op, self._process = op, sample.process
        self._is_permuted = sample.is_permuted
        self._leaves, self._form = pytree.tree_flatten(given)
        self.values = nn.ParameterList(
            nn.Parameter(self._stored(leaf.detach()).clone(memory_format=torch.contiguous_format))
            for leaf in self._leaves
            if _is_trained(leaf)
        )
        dtype = self.values[0].dtype
        self.batch = [torch.ones((), dtype=dtype)] + [
            leaf.detach().clone()
            for leaf in self._leaves
            if isinstance(leaf, torch.Tensor) and not _is_trained(leaf)
        ]

    def forward(self, batch: Sequence[torch.Tensor]) -> torch.Tensor:
        scale, *rest = batch
        trained, others = iter(self.values), iter(rest)
        leaves = [
            self._stored(next(trained).clone())
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

    def _stored(self, value: torch.Tensor) -> torch.Tensor:
        """A tensor, or a view of it with the last two axes exchanged, which is its own inverse."""
        is_matrix = self._is_permuted and value.dim() > 1
        return value.transpose(-1, -2) if is_matrix else value


def _is_trained(leaf: object) -> bool:
    return (
        isinstance(leaf, torch.Tensor)
        and leaf.requires_grad
        and leaf.dtype in (torch.float32, torch.float16, torch.bfloat16)
    )


def _has_gradient(leaf: object) -> bool:
    return isinstance(leaf, torch.Tensor) and (leaf.is_floating_point() or leaf.is_complex())


def _weighted(value: torch.Tensor) -> torch.Tensor:
    """A sum with weights that differ, so that each place of a result matters."""
    value = torch.view_as_real(value.resolve_conj()) if value.is_complex() else value
    value = value.float() if value.dtype in (torch.float16, torch.bfloat16) else value
    flat = value.reshape(-1)
    total: torch.Tensor = (flat * torch.cos(1.0 + torch.arange(flat.shape[0]))).sum()
    return total


def outcome(op: Any, sample: Variant) -> Outcome:
    """Traces a sample and runs it beside torch: in bfloat16 with float32 as the compute dtype."""
    model = Sample(op, sample)
    dtype = model.values[0].dtype
    is_widened = dtype is torch.bfloat16
    try:
        with _limited():
            traced = trace(
                model, None, (model.batch,), dynamic_axes={}, check=False, is_widened=is_widened
            )
            session = open_session(traced.step)
    except ExportError as error:
        is_clear = "torch cannot trace the model" not in str(error)
        return Outcome(Result.REFUSED if is_clear else Result.FOREIGN, str(error))
    except SessionError as error:  # onnxruntime names the operator that has an axis of size 0
        result = Result.REFUSED if _is_empty(sample) else Result.FOREIGN
        return Outcome(result, str(error))
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
    if is_widened:  # torch, too, computes in float32, and rounds the gradients
        model = model.float()
    return _compared(found, model, list(numbers.values()), dtype)


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


FLOORS = {torch.float32: 32, torch.float16: 8, torch.bfloat16: 2}
"""Roundings of the largest value by dtype: torch's own error may be zero by chance. In bfloat16,
only the result is rounded."""


def _compared(
    found: dict[str, Any], model: Sample, numbers: list[Any], dtype: torch.dtype
) -> Outcome:
    batch = [
        value.to(model.values[0].dtype) if _is_float(value) else value for value in model.batch
    ]
    single = _in_torch(model, batch, numbers)
    try:
        exact = _in_torch(model.double(), [_wide(value) for value in batch], numbers)
    except (RuntimeError, NotImplementedError):  # an option that names float32
        exact = single
    largest = max(np.abs(value[np.isfinite(value)]).max(initial=0) for value in exact.values())
    floor = FLOORS[dtype] * torch.finfo(dtype).eps * max(largest, 1e-2)
    for name, wanted in exact.items():
        own = found[name].astype(np.float64)
        if own.shape != wanted.shape:
            return Outcome(Result.WRONG, f"{name} has the shape {own.shape}, not {wanted.shape}")
        with np.errstate(invalid="ignore"):
            distances = np.where(_same(own, single[name]), 0, np.abs(own - wanted))
            in_single = np.abs(np.where(_same(single[name], wanted), 0, single[name] - wanted))
        most = float(np.nan_to_num(distances, nan=np.inf).max(initial=0))
        # Four times as far from float64 as torch in the same dtype.
        if not most <= 4 * float(np.nan_to_num(in_single).max(initial=0)) + floor:
            return Outcome(Result.WRONG, f"{name} differs by {most:.2g} of {largest:.2g}")
    return Outcome(Result.MATCHED)


def _same(first: Any, second: Any) -> Any:
    return (first == second) | (np.isnan(first) & np.isnan(second))


def _is_float(value: torch.Tensor) -> bool:
    return value.is_floating_point() and value.dtype is not torch.float64


def _wide(value: torch.Tensor) -> torch.Tensor:
    return value.double() if value.is_floating_point() else value


def _in_torch(model: Sample, batch: list[torch.Tensor], numbers: list[Any]) -> dict[str, Any]:
    """The loss and the gradients in torch, with given random numbers."""
    left = [torch.from_numpy(value) for value in numbers]
    is_double = next(model.parameters()).dtype is torch.float64

    def given(_: Any, shape: Any, dtype: torch.dtype) -> torch.Tensor:
        return left.pop(0).reshape(shape).to(torch.float64 if is_double else dtype)

    with quiet(), plain_kernels(), Drawn(given, Places(), ""):
        loss = model(batch)
    parameters = dict(model.named_parameters())
    grads = torch.autograd.grad(loss, list(parameters.values()), materialize_grads=True)
    named = {f"grad.{name}": grad for name, grad in zip(parameters, grads, strict=True)}
    return {n: v.detach().double().numpy() for n, v in ({"loss": loss} | named).items()}

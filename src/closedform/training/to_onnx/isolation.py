"""Tracing without a trace: modules are as they were, layers are traced by their definitions.

A forward that counts its calls in an attribute has another count afterwards: ``PythonNumbers``
names it, and ``restore_on_exit`` puts the count back.
"""

from __future__ import annotations

import contextlib
import math
import random
import sys
from collections.abc import (
    Callable,
    Collection,
    Iterable,
    Iterator,
    MutableMapping,
    MutableSequence,
    MutableSet,
    Sequence,
)
from typing import Any
from unittest import mock

import numpy as np
import torch
from torch.utils import checkpoint

from closedform.errors import TrainingExportError
from closedform.training.to_onnx.packed_sequences import PaddedEntries, padded_sequences, recurrent


@contextlib.contextmanager
def restore_on_exit(*modules: torch.nn.Module) -> Iterator[None]:
    """Restores modules and random generators on exit.

    It restores each attribute of each module (parameters, buffers, flags, hooks, and attributes
    that a forward assigns), and the generators of torch, NumPy and Python. The content of tensors
    is not restored: a forward runs on other tensors, and ``Writes`` refuses what it reaches apart
    from these.
    """
    # By id: modules that share a part would restore it twice.
    parts = {id(part): part for module in modules for part in module.modules()}
    attributes = [(part, dict(part.__dict__)) for part in parts.values()]
    # A copy of each container, since a forward may append to a list of the module without assigning
    # it.
    containers = [
        (value, value.copy())
        for _, attributes_of_part in attributes
        for value in attributes_of_part.values()
        if isinstance(value, dict | list | set)
    ]
    generators = torch.get_rng_state(), random.getstate(), np.random.get_state()  # noqa: NPY002
    try:
        yield
    finally:
        for part, attributes_of_part in attributes:
            # Not by setattr: _parameters, _buffers and the hooks are entries of __dict__, too.
            part.__dict__.clear()
            part.__dict__.update(attributes_of_part)
        for container, content in containers:
            _refill(container, content)
        torch.set_rng_state(generators[0])
        random.setstate(generators[1])
        np.random.set_state(generators[2])  # noqa: NPY002


@contextlib.contextmanager
def one_thread() -> Iterator[None]:
    """Has torch compute with one thread: several may add to one place in any order."""
    threads = torch.get_num_threads()
    torch.set_num_threads(1)
    try:
        yield
    finally:
        torch.set_num_threads(threads)


class PythonNumbers:
    """Numbers in Python that a forward may read.

    These are attributes of modules and the loss, of their classes, globals that their code names,
    and variables of closures.

    Args:
        modules: The modules.
        loss: The loss.
    """

    def __init__(self, modules: Sequence[torch.nn.Module], loss: object) -> None:
        self._modules, self._loss = modules, loss
        self._cells = _cells(loss)

    def _parts(self) -> list[tuple[str, Any, str]]:
        """The name of each attribute or global, what holds it, and its name there."""
        modules, loss = self._modules, self._loss
        parts: list[tuple[str, Any, str]] = [
            (f"{name}.{label}" if name else label, part.__dict__, label)
            for module in modules
            for name, part in module.named_modules()
            for label in vars(part)
        ]
        functions = {type(part).forward for module in modules for part in module.modules()}
        for function in (*functions, getattr(loss, "__func__", loss)):
            code, names = getattr(function, "__code__", None), getattr(function, "__globals__", {})
            parts += [
                (name, names, name) for name in getattr(code, "co_names", ()) if name in names
            ]
        classes = {
            kind
            for module in (*modules, loss)
            for part in _parts(module)
            for kind in type(part).__mro__
        }
        parts += [
            (f"{kind.__name__}.{label}", kind, label)
            for kind in classes
            if not kind.__module__.startswith(("torch.", "builtins"))
            for label in vars(kind)
        ]
        if not isinstance(loss, torch.nn.Module):
            holders = (loss, getattr(loss, "__self__", None))
            parts += [
                # The loss, or the object whose method it is; a module's globals are not state.
                (f"{type(holder).__name__}.{label}", vars(holder), label)
                for holder in holders
                if hasattr(holder, "__dict__") and not isinstance(holder, type(sys))
                for label in vars(holder)
            ]
        return parts

    def values(self) -> dict[str, object]:
        """Returns the numbers by name, those within containers included."""
        numbers: dict[str, object] = {}
        for name, holder, label in self._parts():
            attributes = holder if isinstance(holder, dict) else vars(holder)
            numbers |= _numbers(name, attributes.get(label))
        for name, cell in self._cells.items():
            with contextlib.suppress(ValueError):  # a variable without a value yet
                numbers |= _numbers(name, cell.cell_contents)
        return numbers

    def add(self, names: Collection[str], amount: int) -> None:
        """Adds an amount to attributes; numbers within containers stay."""
        for name, holder, label in self._parts():
            if name not in names:
                continue
            if not isinstance(holder, dict):
                setattr(holder, label, getattr(holder, label) + amount)
            elif isinstance(holder[label], int | float):
                holder[label] += amount

    def tensor_names(self) -> list[str]:
        """Returns the names of attributes that are tensors."""
        return [
            name
            for name, holder, label in self._parts()
            if isinstance(holder, dict) and isinstance(holder.get(label), torch.Tensor)
        ]


def _parts(value: object) -> Iterable[object]:
    return value.modules() if isinstance(value, torch.nn.Module) else [value]


def _cells(loss: object) -> dict[str, Any]:
    """The variables of a function that belong to the function around it."""
    cells = getattr(loss, "__closure__", None) or ()
    names = getattr(getattr(loss, "__code__", None), "co_freevars", ())
    return dict(zip(names, cells, strict=True))


def _numbers(name: str, value: object) -> dict[str, object]:
    if isinstance(value, int | float):  # a bool is an int
        return {name: value}
    # Counters are few numbers; a list of a thousand numbers is data.
    if isinstance(value, list | tuple) and len(value) < _LARGE:
        return {k: v for i, e in enumerate(value) for k, v in _numbers(f"{name}[{i}]", e).items()}
    if type(value) is dict and len(value) < _LARGE:
        return {k: v for i, e in value.items() for k, v in _numbers(f"{name}[{i!r}]", e).items()}
    return {}


_LARGE = 1000
"""Containers with more entries hold data, not counters."""


def _refill(container: Any, content: Any) -> None:
    container.clear()
    if isinstance(container, MutableMapping | MutableSet):
        container |= content
    elif isinstance(container, MutableSequence):
        container.extend(content)


@contextlib.contextmanager
def no_other_randomness(where: str) -> Iterator[None]:
    """Raises ExportError where the forward draws from the generators of Python or NumPy."""
    before = random.getstate(), np.random.get_state()  # noqa: NPY002
    yield
    after = random.getstate(), np.random.get_state()  # noqa: NPY002
    for name, old, new in zip(("Python's random", "numpy.random"), before, after, strict=True):
        # By text: the state of NumPy's generator holds an array, whose comparison is an array.
        if str(old) != str(new):
            raise TrainingExportError(
                f"the forward draws numbers from {name}, which a graph would repeat in each step",
                where=where,
                hint="draw them with torch, such as torch.rand, and decide with torch.where",
            )


@contextlib.contextmanager
def plain_kernels() -> Iterator[None]:
    """Calls the definitions of layers, not their fused kernels.

    Recurrent layers are traced as products and sums, attention and encoders without their fast
    paths, and a checkpointed segment is called once: what is stored is up to onnxruntime.
    """

    def call(function: Callable[..., Any], _preserve: bool, *arguments: Any) -> Any:
        return function(*arguments)

    def no_recomputation(*_arguments: Any, **_options: Any) -> Iterator[None]:
        yield

    # torch compares the mask with a causal one, whose result depends on data.
    def is_causal_mask(_mask: Any, is_causal: bool | None = None, _size: Any = None) -> bool:
        return is_causal is True  # otherwise the mask itself is added

    recurrent_functions: dict[str, Any] = {
        name: _by_layers(name, getattr(torch._VF, name)) for name in _RECURRENT
    }
    backends = torch.nn.attention
    of_distribution = torch.distributions.Distribution.__init__

    # Its checks branch on values, such as scale > 0.
    def without_validation(distribution: Any, *shapes: Any, **options: Any) -> None:
        distribution._validate_args = False  # a graph has no errors that depend on values
        of_distribution(distribution, *shapes[:2], **{**options, "validate_args": False})

    fast_path = torch.backends.mha.get_fastpath_enabled()
    torch.backends.mha.set_fastpath_enabled(False)
    try:
        with (
            # Fused attention has no decomposition into operators of ONNX.
            backends.sdpa_kernel(backends.SDPBackend.MATH),
            # oneDNN's layers, such as mkldnn_rnn_layer, are operators without an ONNX form.
            torch.backends.mkldnn.flags(enabled=False),
            # The order of its products would be chosen for the sizes of the example.
            torch.backends.opt_einsum.flags(enabled=False),
            mock.patch.object(torch.nn.modules.batchnorm._BatchNorm, "forward", _batch_norm),
            mock.patch.object(checkpoint.CheckpointFunction, "apply", call),
            mock.patch.object(
                checkpoint, "_checkpoint_without_reentrant_generator", no_recomputation
            ),
            mock.patch.object(
                torch.nn.modules.transformer, "_detect_is_causal_mask", is_causal_mask
            ),
            mock.patch.multiple(torch._VF, **recurrent_functions),
            padded_sequences(),
            mock.patch.object(torch.nn.functional, "gaussian_nll_loss", _gaussian_nll_loss),
            mock.patch.object(torch.distributions.Distribution, "__init__", without_validation),
            _without_compilation(),
        ):
            yield
    finally:
        torch.backends.mha.set_fastpath_enabled(fast_path)


@contextlib.contextmanager
def symbolic_lengths(*functions: object) -> Iterator[None]:
    """Has ``len`` of a tensor return its size, a symbol in a trace, in the files of functions.

    Python's own returns an integer, which would fix the size to that of the example.

    Args:
        functions: Modules and functions.
    """
    files: dict[int, dict[str, Any]] = {}
    for function in functions:
        parts = function.modules() if isinstance(function, torch.nn.Module) else [function]
        for part in parts:
            # Methods may be inherited from classes of other files.
            for kind in (part, *type(part).__mro__):
                name = str(getattr(kind, "__module__", ""))
                if name in sys.modules and name.split(".")[0] not in ("torch", "builtins"):
                    names = vars(sys.modules[name])
                    if "len" not in names:
                        files[id(names)] = names
    # A global hides the builtin of the same name: a file without a global "len" gets one for the
    # time of the trace.
    for names in files.values():
        names["len"] = _length
    try:
        yield
    finally:
        for names in files.values():
            del names["len"]


def _length(value: Any) -> Any:
    return value.shape[0] if isinstance(value, torch.Tensor) and value.dim() else len(value)


_BATCH_NORM = torch.nn.modules.batchnorm._BatchNorm.forward


def _batch_norm(layer: Any, value: torch.Tensor) -> torch.Tensor:
    """A batch normalisation; one with ``momentum=None`` averages the statistics of all batches.

    torch's own reads the number of batches as a number of Python, to call its kernel with 1/n.
    """
    is_tracked = layer.running_mean is not None
    if is_tracked and (layer.momentum is not None or not layer.training):
        return _BATCH_NORM(layer, value)
    layer._check_input_dim(value)
    if is_tracked:
        layer.num_batches_tracked.add_(1)
        axes = [axis for axis in range(value.dim()) if axis != 1]
        with torch.no_grad():
            # Biased and unbiased alike: var_mean divides by n − 1, as torch's running variance
            # does.
            variance, mean = torch.var_mean(value, axes)
            # The running mean of n batches: m + (x − m)/n.
            share = 1 / layer.num_batches_tracked
            for average, statistic in ((layer.running_mean, mean), (layer.running_var, variance)):
                average.copy_(average * (1 - share) + statistic * share)
    # In 16 bits, torch's decomposition needs averages, which a momentum of 0 does not change.
    # With momentum 0 the averages are read and not changed.
    averages = (value.new_zeros(value.shape[1]), value.new_ones(value.shape[1]))
    return torch.nn.functional.batch_norm(
        value, *averages, layer.weight, layer.bias, training=True, momentum=0.0, eps=layer.eps
    )


@contextlib.contextmanager
def _without_compilation() -> Iterator[None]:
    """Calls functions and parts that torch.compile has wrapped as they are."""
    if "torch._dynamo" not in sys.modules:  # nothing is compiled, and its import takes its time
        yield
        return
    config: Any = torch._dynamo.config
    with torch.compiler.set_stance("force_eager"), config.patch(error_on_nested_fx_trace=False):
        yield


def _gaussian_nll_loss(
    input: Any,
    target: Any,
    var: Any,
    full: bool = False,
    eps: float = 1e-6,
    reduction: str = "mean",
) -> Any:
    """The loss of torch without its look at the variances, of which none may be negative."""
    variance = var if isinstance(var, torch.Tensor) else torch.full_like(input, var)
    # Variances without the last axis, as torch's function accepts them.
    if variance.shape == input.shape[:-1]:
        variance = variance.unsqueeze(-1)
    # The value is clamped, the gradient passes: torch clamps in place without recording it.
    variance = variance + (variance.clamp(min=eps) - variance).detach()
    loss = 0.5 * (torch.log(variance) + (input - target) ** 2 / variance)
    loss = loss + 0.5 * math.log(2 * math.pi) if full else loss
    match reduction:
        case "mean":
            return loss.mean()
        case "sum":
            return loss.sum()
        case "none":
            return loss
    raise ValueError(f"{reduction} is not valid")


_RECURRENT = ("lstm", "gru", "rnn_tanh", "rnn_relu")


def _by_layers(name: str, function: Callable[..., Any]) -> Callable[..., Any]:
    """A recurrent function that is called once for each layer where it drops between layers.

    torch 2.13 leaves the dropout between layers out when it traces the layers at once.
    """

    def call(value: Any, states: Any, weights: Any, *options: Any) -> Any:
        if isinstance(value, PaddedEntries):
            # The numbers of rows at each place come second: the entries have their lengths.
            return recurrent(name, value, weights, *options)
        has_biases, layers, dropout, train, bidirectional, batch_first = options
        if layers == 1 or not (train and dropout):
            return function(value, states, weights, *options)
        rows, weight_count = 2 if bidirectional else 1, len(weights) // layers
        finals = []
        for layer in range(layers):
            part = slice(rows * layer, rows * (layer + 1))
            # Weights of a layer come in its directions' order: w_ih, w_hh and biases for each.
            is_single = isinstance(states, torch.Tensor)
            initial_states = states[part] if is_single else tuple(state[part] for state in states)
            # torch drops between layers, neither before the first nor after the last.
            value = value if layer == 0 else torch.dropout(value, dropout, True)
            value, *last = function(
                value,
                initial_states,
                weights[weight_count * layer : weight_count * (layer + 1)],
                *(has_biases, 1, 0.0, train, bidirectional, batch_first),
            )
            finals.append(last)
        return value, *(torch.cat(parts) for parts in zip(*finals, strict=True))

    return call

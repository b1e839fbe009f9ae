"""A batch: its tensors by name, their free sizes, and which of them the model and the loss take."""

from __future__ import annotations

import inspect
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

import torch
from torch.utils import _pytree as pytree

from closedform.errors import TrainingExportError, nearest
from closedform.training.from_onnx import OnnxModule

Loss = Callable[..., Any]
"""Called with the output of the model and the targets."""

ROWS = "batch"
"""The name of the free first size of the tensors of a batch."""

DynamicAxes = Mapping[str, Mapping[int, str]]
"""Names of free sizes by tensor and axis."""


@dataclass(frozen=True, slots=True)
class BatchEntry:
    """One argument of the model or of the loss.

    Attributes:
        name: Its name in the batch.
        is_target: Whether the loss takes it.
        is_keyword: Whether it is passed by name.
        is_shared: Whether both take it.
        value: Tensors, and containers of tensors and constants.
    """

    name: str
    is_target: bool
    is_keyword: bool
    value: Any
    is_shared: bool = False

    def leaves(self) -> dict[str, torch.Tensor]:
        """The tensors by name: that of the entry, then the path within it."""
        paths_and_leaves, _ = pytree.tree_flatten_with_path(self.value)
        return {
            ".".join((self.name, *map(key_text, path))): leaf
            for path, leaf in paths_and_leaves
            if isinstance(leaf, torch.Tensor)
        }

    def rebuild(self, tensors: Mapping[str, torch.Tensor]) -> Any:
        """The value with other tensors."""
        paths_and_leaves, spec = pytree.tree_flatten_with_path(self.value)
        names = [".".join((self.name, *map(key_text, path))) for path, _ in paths_and_leaves]
        leaves = [
            tensors.get(name, leaf) for name, (_, leaf) in zip(names, paths_and_leaves, strict=True)
        ]
        return pytree.tree_unflatten(leaves, spec)


def key_text(key: Any) -> str:
    """Returns a key of a path within containers."""
    # Paths of pytree: SequenceKey has idx, MappingKey key, GetAttrKey name.
    for attribute in ("idx", "key", "name"):
        if hasattr(key, attribute):
            return str(getattr(key, attribute))
    return str(key)


@dataclass(frozen=True, slots=True)
class Batch:
    """The arguments of a model and its loss.

    Attributes:
        entries: The arguments in their order.
        sizes: Names of the free sizes, by tensor and axis.
    """

    entries: tuple[BatchEntry, ...]
    sizes: DynamicAxes

    @property
    def tensors(self) -> dict[str, torch.Tensor]:
        """All tensors by name, the arguments of the model first."""
        return {name: leaf for entry in self.entries for name, leaf in entry.leaves().items()}

    @property
    def symbols(self) -> dict[str, int]:
        """The free sizes by name, with their values in the example."""
        tensors = self.tensors
        return {
            symbol: tensors[name].shape[axis]
            for name, axes in self.sizes.items()
            for axis, symbol in axes.items()
        }

    @property
    def inputs(self) -> list[str]:
        """Names of the tensors that the model takes."""
        return [name for entry in self.entries if not entry.is_target for name in entry.leaves()]

    def arguments(
        self, tensors: Mapping[str, torch.Tensor], *, is_target: bool
    ) -> tuple[list[Any], dict[str, Any]]:
        """Returns the arguments of the model, or of the loss, with these tensors."""
        entries = [
            entry for entry in self.entries if entry.is_target == is_target or entry.is_shared
        ]
        positional = [entry.rebuild(tensors) for entry in entries if not entry.is_keyword]
        return positional, {e.name: e.rebuild(tensors) for e in entries if e.is_keyword}


def read_batch(
    model: torch.nn.Module,
    loss: Loss | None,
    example: object,
    where: str,
    *,
    dynamic_axes: DynamicAxes | None = None,
    targets: Sequence[str] = (),
) -> Batch:
    """Returns the arguments of a model and its loss.

    Args:
        model: The model.
        loss: The loss; None if the model computes it.
        example: A batch: a sequence with the arguments of the model, then of the loss, or
            a mapping with them by name. An argument is a tensor, or nested containers of tensors.
        where: The model, named in errors.
        dynamic_axes: Names of free sizes by tensor and axis; the first of each tensor if None.
        targets: Names of arguments of the model that only its loss depends on.

    Raises:
        ExportError: The arguments do not match the signatures, a value is not a tensor, or sizes
            of one name differ.
    """
    if isinstance(model, OnnxModule):
        # The names of the file are names of the batch, too, such as onnx::Flatten_0.
        names = dict(zip(model.file_inputs, model.input_names, strict=True))
        if isinstance(example, Mapping):
            example = {names.get(name, name): value for name, value in example.items()}
        if dynamic_axes is not None:
            dynamic_axes = {names.get(name, name): axes for name, axes in dynamic_axes.items()}
    if isinstance(example, Mapping):
        entries = _by_name(model, loss, example, where)
    else:
        entries = _by_place(model, loss, example, where)
    unknown = [name for name in targets if name not in {entry.name for entry in entries}]
    if unknown:
        raise TrainingExportError(
            f"targets must be names of the batch, got {unknown[0]!r}",
            where=where,
            hint=nearest(unknown[0], [entry.name for entry in entries]),
        )
    for entry in entries:
        _check_values(entry, example, where)
    batch = Batch(tuple(entries), {})
    if not batch.tensors:
        raise TrainingExportError(
            "the batch holds no tensor", where=where, hint="such as (inputs, targets)"
        )
    if isinstance(model, OnnxModule):
        model.input_shapes.check_ranks({name: batch.tensors[name] for name in batch.inputs})
        dynamic_axes = _own_sizes(model, batch) if dynamic_axes is None else dynamic_axes
    return Batch(batch.entries, _sizes(batch.tensors, dynamic_axes, where))


def _own_sizes(model: OnnxModule, batch: Batch) -> DynamicAxes:
    """The free sizes of an ONNX model, and the rows of the targets."""
    tensors = batch.tensors
    free_axes = {
        name: axes for name, axes in model.input_shapes.free_sizes.items() if name in tensors
    }
    rows = {tensors[name].shape[0]: axes[0] for name, axes in free_axes.items() if 0 in axes}
    targets = {name: tensors[name] for name in tensors if name not in batch.inputs}
    of_targets = {
        name: {0: rows[tensor.shape[0]]}
        for name, tensor in targets.items()
        if tensor.dim() and tensor.shape[0] in rows
    }
    return {**free_axes, **of_targets}


def target_count(loss: Loss | None, where: str) -> int:
    """The number of arguments that the loss takes in addition to the model's output."""
    return 0 if loss is None else len(_required_names(_function_of(loss), where)) - 1


def _function_of(loss: Loss) -> Callable[..., Any]:
    # A module's __call__ takes *args; its forward has the names.
    return loss.forward if isinstance(loss, torch.nn.Module) else loss


_POSITIONAL = (inspect.Parameter.POSITIONAL_ONLY, inspect.Parameter.POSITIONAL_OR_KEYWORD)


def _parameters(function: Callable[..., Any], where: str) -> list[inspect.Parameter]:
    try:
        return list(inspect.signature(function).parameters.values())
    except (TypeError, ValueError):
        raise TrainingExportError(
            f"cannot read the parameters of {function!r}", where=where, hint="wrap it in a lambda"
        ) from None


def _inputs(model: torch.nn.Module, where: str) -> list[inspect.Parameter]:
    """The parameters of a forward; an ONNX model names its inputs."""
    if isinstance(model, OnnxModule):
        kind = inspect.Parameter.POSITIONAL_OR_KEYWORD
        return [inspect.Parameter(name, kind) for name in model.input_names]
    return _parameters(model.forward, where)


def _required_names(function: Callable[..., Any], where: str) -> list[str]:
    parameters = _parameters(function, where)
    # Parameters with a default, such as reduction="mean", are options and not targets.
    return [p.name for p in parameters if p.kind in _POSITIONAL and p.default is p.empty]


def _by_place(
    model: torch.nn.Module, loss: Loss | None, example: object, where: str
) -> list[BatchEntry]:
    if not isinstance(example, list | tuple):
        raise _not_tensors(example, where)
    target_total = target_count(loss, where)
    # A batch by place: the last entries are the targets, as many as the loss requires.
    count = len(example) - target_total
    if target_total < 0 or count < 1:
        raise TrainingExportError(
            f"the loss takes an output and {target_total} targets, got a batch of "
            f"{len(example)} tensors",
            where=where,
            hint="the batch holds the model's inputs, then the loss's targets",
        )
    positional = [p.name for p in _inputs(model, where) if p.kind in _POSITIONAL]
    # forward(*args) has no names.
    inputs = positional if len(positional) >= count else [f"input{i}" for i in range(count)]
    names = inputs[:count]
    if loss is not None:
        names = [*names, *_required_names(_function_of(loss), where)[1:]]
    # A loss and a model often both have an argument x.
    if len(set(names)) != len(names):
        names = [f"{name}{index}" for index, name in enumerate(names)]
    return [
        BatchEntry(name, index >= count, False, value)
        for index, (name, value) in enumerate(zip(names, example, strict=True))
    ]


def _by_name(
    model: torch.nn.Module, loss: Loss | None, example: Mapping[Any, Any], where: str
) -> list[BatchEntry]:
    forward = _inputs(model, where)
    targets = [] if loss is None else _parameters(_function_of(loss), where)[1:]
    takes_all = any(p.kind is p.VAR_KEYWORD for p in forward)
    forward_names, target_names = (
        {p.name for p in ps if p.kind not in _REST} for ps in (forward, targets)
    )
    # A loss needs its targets; a model of transformers computes a loss if it is given labels.
    names_without_default, spare = (
        {p.name for p in ps if p.kind not in _REST and (p.default is p.empty) == is_needed}
        for ps, is_needed in ((targets, True), (forward, False))
    )
    entries = []
    for name, value in example.items():
        if not isinstance(name, str) or not (name in forward_names | target_names or takes_all):
            names = sorted(forward_names | target_names)
            raise TrainingExportError(
                f"neither the model nor the loss takes {name!r}",
                where=where,
                hint=nearest(str(name), names) if names else "it takes none",
            )
        is_target = name in target_names and (
            name not in forward_names or name in names_without_default & spare
        )
        # Both need it: a mask, say.
        is_shared = name in forward_names & names_without_default and not is_target
        entries.append(BatchEntry(name, is_target, True, value, is_shared))
    # sorted() is stable: the inputs keep their order.
    return sorted(entries, key=lambda entry: entry.is_target)


_REST = (inspect.Parameter.VAR_POSITIONAL, inspect.Parameter.VAR_KEYWORD)


def _check_values(entry: BatchEntry, example: object, where: str) -> None:
    for leaf in pytree.tree_leaves(entry.value):
        if not isinstance(leaf, torch.Tensor | int | float | str | None):
            raise _not_tensors(example, where)


def _not_tensors(example: object, where: str) -> TrainingExportError:
    parts = ""
    if isinstance(example, list | tuple):
        parts = f" of {', '.join(type(value).__name__ for value in example)}"
    return TrainingExportError(
        f"example_inputs must be a tuple of tensors, got {type(example).__name__}{parts}",
        where=where,
        hint="give a batch, such as (images, labels), with torch.from_numpy of arrays",
    )


def _sizes(
    tensors: Mapping[str, torch.Tensor], dynamic_axes: DynamicAxes | None, where: str
) -> dict[str, dict[int, str]]:
    if dynamic_axes is not None:
        return _named_sizes(tensors, dynamic_axes, where)
    first = {name: tensor.shape[0] for name, tensor in tensors.items() if tensor.dim()}
    if len(set(first.values())) != 1:
        raise TrainingExportError(
            f"the tensors of a batch must have the same first size, got {list(first.values())}",
            where=where,
            hint='name the free sizes: dynamic_axes={"input": {0: "batch"}, …}',
        )
    _check_free(ROWS, first.values(), where)
    return {name: {0: ROWS} for name in first}


def _named_sizes(
    tensors: Mapping[str, torch.Tensor], dynamic_axes: DynamicAxes, where: str
) -> dict[str, dict[int, str]]:
    sizes_by_symbol: dict[str, list[int]] = {}
    for name, axes in dynamic_axes.items():
        if name not in tensors:
            raise TrainingExportError(
                f"dynamic_axes must name tensors of the batch, got {name!r}",
                where=where,
                hint=nearest(str(name), list(tensors)),
            )
        for axis, symbol in axes.items():
            dims = tensors[name].dim()
            if type(axis) is not int or not 0 <= axis < dims:
                raise TrainingExportError(
                    f"an axis of {name!r} must be in 0..{dims - 1}, got {axis!r}",
                    where=where,
                    hint='axes are counted from 0, such as {0: "batch"}',
                )
            if not isinstance(symbol, str) or not symbol.isidentifier():
                raise TrainingExportError(
                    f"the name of a free size must be an identifier, got {symbol!r}",
                    where=f"{where}, axis {axis} of {name!r}",
                    hint='such as "batch"',
                )
            sizes_by_symbol.setdefault(symbol, []).append(tensors[name].shape[axis])
    for symbol, sizes in sizes_by_symbol.items():
        if len(set(sizes)) != 1:
            raise TrainingExportError(
                f"the sizes named {symbol!r} must be equal in the example, got {sizes}",
                where=where,
                hint="give different sizes different names in dynamic_axes",
            )
        _check_free(symbol, sizes, where)
    return {name: dict(axes) for name, axes in dynamic_axes.items()}


def _check_free(symbol: str, sizes: Iterable[int], where: str) -> None:
    if (size := next(iter(sizes))) > 1:
        return
    subject = (
        "batch must hold two rows or more" if symbol == ROWS else f"size {symbol!r} must be > 1"
    )
    raise TrainingExportError(
        f"the example {subject}, got {size}",
        where=where,
        hint="torch treats sizes 0 and 1 as fixed",
    )

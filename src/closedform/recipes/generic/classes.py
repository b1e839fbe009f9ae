"""Scheduler blocks of a config by their class: Hydra, LightningCLI, calls of Python, names.

A block is a mapping with ``_target_`` or ``class_path``, a call, or a mapping whose ``name`` or
``type`` is a class of torch. Members of ``SequentialLR`` and ``ChainedScheduler`` are blocks too.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from typing import Any

from closedform.errors import ConfigError, nearest
from closedform.recipes.document import Document, join_path
from closedform.recipes.documents.values import ConfigCall, Reference, Unresolved
from closedform.recipes.entries import ScheduleEntry
from closedform.recipes.registry import FRAMEWORKS

FUNCTIONS: Mapping[str, str] = {
    "get_constant_schedule": "constant",
    "get_constant_schedule_with_warmup": "constant_with_warmup",
    "get_cosine_schedule_with_warmup": "cosine",
    "get_cosine_with_hard_restarts_schedule_with_warmup": "cosine_with_restarts",
    "get_cosine_with_min_lr_schedule_with_warmup": "cosine_with_min_lr",
    "get_cosine_with_min_lr_schedule_with_warmup_lr_rate": "cosine_warmup_with_min_lr",
    "get_inverse_sqrt_schedule": "inverse_sqrt",
    "get_linear_schedule_with_warmup": "linear",
    "get_polynomial_decay_schedule_with_warmup": "polynomial",
    "get_wsd_schedule": "warmup_stable_decay",
}
"""The functions of transformers' ``optimization.py``, and their entries here."""

_TARGETS = ("_target_", "class_path", "target")
_NESTED = ("init_args", "dict_kwargs", "params", "args", "kwargs")
_NAMES = ("name", "type", "class", "class_name", "cls", "kind")
_NOT_ARGUMENTS = frozenset({"verbose", "optimizer", "_partial_", "_convert_", "_recursive_"})
_OF_LIGHTNING = frozenset({"interval", "frequency", "monitor", "by_epoch"})


def torch_schedules() -> Mapping[str, ScheduleEntry]:
    """Returns the scheduler classes of torch by name."""
    return FRAMEWORKS["torch"].schedules


def class_of(value: Any) -> str | None:
    """Returns the class that a value names as a block, without its module; None if it names none.

    Example:
        >>> class_of({"_target_": "torch.optim.lr_scheduler.StepLR", "step_size": 3})
        'StepLR'
    """
    if isinstance(value, ConfigCall):
        return value.name.rpartition(".")[2]
    if not isinstance(value, Mapping):
        return None
    for key in (*_TARGETS, *_NAMES):
        text = value.get(key)
        if isinstance(text, Reference):
            text = text.name
        if isinstance(text, str):
            name = text.replace("/", ".").rpartition(".")[2]
            # Keys such as name hold other texts, too: they count only if they name a class of
            # torch.
            if key in _TARGETS or name in torch_schedules():
                return name
    return None


def is_scheduler(name: str | None) -> bool:
    """Returns whether a class or function of this name builds a scheduler."""
    return name is not None and (name in torch_schedules() or name in FUNCTIONS)


def blocks(content: Any, path: str = "") -> Iterator[tuple[str, Any]]:
    """Yields the path and the value of each outermost block of a scheduler."""
    if is_scheduler(class_of(content)):
        yield path, content
        return
    if isinstance(content, ConfigCall):
        content = {**content.kwargs, **{f"[{i}]": item for i, item in enumerate(content.args)}}
    if isinstance(content, Mapping):
        for key, value in content.items():
            yield from blocks(value, join_path(path, key))
    elif isinstance(content, list | tuple):
        for index, value in enumerate(content):
            yield from blocks(value, f"{path}[{index}]")


def arguments(document: Document, value: Any, path: str) -> dict[str, Any]:
    """Returns the arguments of a block, its members as ``{"class": name, "kwargs": {…}}``.

    Raises:
        ConfigError: An argument is not determined, or given by its position where it has no name.
    """
    name = str(class_of(value))
    raw = _raw(document, value, path, name)
    return {
        key: _convert(document, argument, f"{path}.{key}")
        for key, argument in raw.items()
        if argument is not None
    }


def _raw(document: Document, value: Any, path: str, name: str) -> dict[str, Any]:
    if isinstance(value, ConfigCall):
        positional = [entry.name for entry in _parameters(name)]
        extra = value.args[1:]  # the optimizer is the first argument
        if len(extra) > len(positional):
            raise document.error(f"{name} takes fewer arguments", path)
        by_name = {**dict(zip(positional, extra, strict=False)), **value.kwargs}
        return {key: item for key, item in by_name.items() if key not in _NOT_ARGUMENTS}
    is_target = any(isinstance(value.get(key), str | Reference) for key in _TARGETS)
    if value.get("_args_"):
        raise document.error(
            "arguments by their position are not read", f"{path}._args_", "name each argument"
        )
    left_out = {*_TARGETS, *_NOT_ARGUMENTS, "_args_"} | (set() if is_target else set(_NAMES))
    inner = [value[key] for key in _NESTED if isinstance(value.get(key), Mapping)]
    names = {entry.name for entry in _parameters(name)}
    outer = {
        key: item
        for key, item in value.items()
        if key not in left_out
        and not (key in _NESTED and isinstance(item, Mapping))
        and not (key in _OF_LIGHTNING and key not in names)
    }
    result: dict[str, Any] = outer
    for part in inner:
        result = {**result, **{k: v for k, v in part.items() if k not in _NOT_ARGUMENTS}}
    return result


def _parameters(name: str) -> tuple[Any, ...]:
    return entry_of(name).parameters


def entry_of(name: str) -> ScheduleEntry:
    """Returns the entry of a class of torch or a function of transformers."""
    if name in FUNCTIONS:
        return FRAMEWORKS["huggingface"].schedules[FUNCTIONS[name]]
    return torch_schedules()[name]


def _convert(document: Document, value: Any, path: str) -> Any:
    if isinstance(value, Unresolved):
        raise document.error(
            f"{path.rpartition('.')[2]} is needed, but the file does not determine it: "
            f"{value.text!r:.60}",
            path,
            "write its value into the file",
        )
    name = class_of(value)
    if name is not None:
        if name not in torch_schedules():
            raise document.error(
                f"there is no scheduler {name!r}", path, nearest(name, torch_schedules())
            )
        return {"class": name, "kwargs": arguments(document, value, path)}
    if isinstance(value, list | tuple):
        return [_convert(document, item, f"{path}[{i}]") for i, item in enumerate(value)]
    if isinstance(value, Mapping):
        raise ConfigError("a mapping is not an argument of a scheduler", where=document.place(path))
    return value

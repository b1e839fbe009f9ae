"""Tracing without a trace: modules are as they were, and numbers that a forward changes are seen.

A forward that counts its calls in an attribute has another count afterwards: ``PythonNumbers``
names it, and ``restore_on_exit`` puts the count back.
"""

from __future__ import annotations

import contextlib
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

import numpy as np
import torch

from closedform.errors import TrainingExportError


@contextlib.contextmanager
def restore_on_exit(*modules: torch.nn.Module) -> Iterator[None]:
    """Restores modules and random generators on exit, as ``state_of`` does."""
    restore = state_of(*modules)
    try:
        yield
    finally:
        restore()


def state_of(*modules: torch.nn.Module) -> Callable[[], None]:
    """Returns a function that restores modules and random generators to what they are now.

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

    def restore() -> None:
        for part, attributes_of_part in attributes:
            # Not by setattr: _parameters, _buffers and the hooks are entries of __dict__, too.
            part.__dict__.clear()
            part.__dict__.update(attributes_of_part)
        for container, content in containers:
            _refill(container, content)
        torch.set_rng_state(generators[0])
        random.setstate(generators[1])
        np.random.set_state(generators[2])  # noqa: NPY002

    return restore


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

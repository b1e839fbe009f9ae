"""Leaves of what an optimizer stores, by what they are in a rule.

A number counts steps, is a hyperparameter, or changes and is a state; tensors are states; what
remains is static, and keeps its structure after the first steps.
"""

from __future__ import annotations

import math
import re
from collections.abc import Sequence
from dataclasses import dataclass, field
from typing import Any

import numpy as np
import sympy as sp
import torch

from closedform.errors import TraceError
from closedform.importers.python.number import Number
from closedform.importers.tensors.integers import Width
from closedform.importers.tensors.values import Axes, Sizes
from closedform.importers.torch_optimizer.inputs import is_mask
from closedform.importers.torch_optimizer.subject import (
    DEFAULTS,
    GROUP,
    STATE,
    Path,
    Subject,
    at_place,
    is_counter,
    is_number,
    keys_of,
    number_of,
)
from closedform.language.symbols import PARAM, exact_number

LONGEST = 16
"""The most steps after which an optimizer keeps its structure."""
_RESERVED = frozenset({"t", "step", "param", "grad"})


@dataclass(frozen=True, slots=True)
class Slot:
    """A number or tensor that the rule reads before a step and writes after it.

    Attributes:
        name: Of the state.
        path: Where the optimizer stores it.
        shape: Its shape; () for a number.
        is_shared: Whether it belongs to the whole model.
        mask: The state that selects the elements that it holds; None for all.
    """

    name: str
    path: Path
    shape: Sizes
    is_shared: bool
    mask: str | None = None


@dataclass(eq=False)
class Layout:
    """The leaves of what an optimizer stores, by path.

    Attributes:
        axes: The shapes of the parameters.
        changing: Numbers that change, though they did not in the first steps.
        counted_from: What numbers that count steps have counted before the first.
    """

    axes: Axes
    changing: set[Path] = field(default_factory=set, kw_only=True)
    counted_from: dict[Path, int] = field(default_factory=dict, kw_only=True)

    def classify(self, snapshots: Sequence[Subject]) -> bool:
        """Sorts what an optimizer stores after each step; returns whether it keeps its structure.

        Raises:
            TraceError: It does not, after the most steps.
        """
        self.snapshots = snapshots
        self.leaves = [snapshot.leaves() for snapshot in snapshots]
        last = self.leaves[-1]
        self.counters: dict[Path, int] = {}
        self.static: set[Path] = set()
        self.slots: dict[str, Slot] = {}
        self.hypers: dict[str, float] = {}
        self.hyper_paths: dict[Path, str] = {}
        static: list[dict[Path, str]] = [{} for _ in self.leaves]
        paths = {path: None for leaves in self.leaves for path in leaves}
        for path in paths:
            values = [leaves.get(path) for leaves in self.leaves]
            kind = self._kind(path, values)
            if kind == "static":
                for texts, leaves in zip(static, self.leaves, strict=True):
                    if path in leaves:
                        texts[path] = text_of(leaves[path])
                self.static.add(path)
            elif kind == "slot" and path in last:
                for texts, leaves in zip(static, self.leaves, strict=True):
                    texts[path] = str(path in leaves)
        steps = len(self.leaves) - 1
        self.first_steady = next(
            first
            for first in range(1, steps + 1)
            if all(static[k] == static[-1] for k in range(first, steps + 1))
        )
        # At least one more step with the same structure has been seen.
        if self.first_steady < steps - 1:
            return True
        if steps == LONGEST:
            unstable = [path for path in static[-1] if static[-1].get(path) != static[-2].get(path)]
            raise TraceError(
                f"{spell(unstable[0]) if unstable else 'the state'} still changes in step {steps}",
                hint="what an optimizer stores must keep its structure after the first steps",
            )
        return False

    def _kind(self, path: Path, values: Sequence[Any]) -> str:
        """Sorts a leaf: a counter, a hyperparameter, a state of the rule, or static."""
        present = [value for value in values[1:] if value is not None]
        if not present or (
            len(present) < len(values) - 1 and not isinstance(present[-1], torch.Tensor)
        ):
            return "static"
        value = present[-1]
        is_of_param = path[0] == STATE
        if is_of_param and is_mask(values[0], self.axes.both[path[1]]):
            return "static"  # an input of the rule
        width = Width.of(str(value.dtype)) if isinstance(value, np.generic) else None
        if width is not None and width.is_short:
            raise TraceError(
                f"{spell(path)} is an integer of NumPy from {width.low} to {width.high}, where it "
                "wraps",
                hint="keep it as an int, or in a tensor",
            )
        if all(is_number(item) for item in present):
            numbers = [number_of(item) for item in present]
            is_whole = len(present) == len(values) - 1 and is_counter(numbers)
            if is_whole:
                self.counted_from[path] = int(numbers[0]) - 1
            if is_whole and path not in self.changing:
                self.counters[path] = self.counted_from[path]
                return "counter"
            changes = (
                path in self.changing
                or values[0] is None
                or any(n != number_of(values[0]) for n in numbers)
            )
            is_float = (
                path in self.changing
                or isinstance(value, float)
                or (isinstance(value, torch.Tensor) and value.is_floating_point())
            )
            if is_of_param and (is_float or isinstance(value, torch.Tensor)):
                return self._slot(path, value, is_shared=False)
            if changes and is_float and path[0] != DEFAULTS:
                return self._slot(path, value, is_shared=True)
            is_tensor = path[0] == GROUP and isinstance(value, torch.Tensor) and is_float
            if (is_tensor or isinstance(value, float)) and math.isfinite(numbers[0]):
                self._hyper(path, numbers[0])
                return "hyper"
            return "static"
        if isinstance(value, torch.Tensor) and is_of_param and value.numel():
            return self._slot(path, value, is_shared=False)
        return "static"

    def _slot(self, path: Path, value: Any, *, is_shared: bool) -> str:
        # The second parameter has the states of the first.
        if path[0] == STATE and path[1] == 1:
            return "slot"
        name = _identifier("_".join(map(str, keys_of(path))))
        while name in self.slots:
            name = f"{name}_"
        shape = tuple(value.shape) if isinstance(value, torch.Tensor) else ()
        # One element, and not the shape of the parameter: a scalar state such as a per-tensor step
        # size.
        is_scalar = is_shared or (math.prod(shape) == 1 and shape != self.axes.shape)
        mask = None if is_scalar else self._mask_of(path, shape)
        shape = () if is_scalar else self.axes.shape if mask is not None else shape
        self.slots[name] = Slot(name, path, shape, is_shared, mask)
        return "slot"

    def _mask_of(self, path: Path, shape: Sizes) -> str | None:
        """The mask that selects the elements that a state holds, by their number."""
        twin = self.leaves[-1].get(at_place(path, 1))
        if path[0] != STATE or len(shape) != 1 or not isinstance(twin, torch.Tensor):
            return None
        masks = [self.snapshots[0].masks(place) for place in (0, 1)]
        for key in masks[0]:
            counts = [(int(of_place[key].sum()),) for of_place in masks if key in of_place]
            if counts == [shape, tuple(twin.shape)]:
                return key
        return None

    def _hyper(self, path: Path, value: float) -> None:
        name = _hyper_name(path[1:])
        while self.hypers.get(name, value) != value or name in _RESERVED:
            name = f"{name}_"
        self.hypers[name] = value
        self.hyper_paths[path] = name

    def start(self, slot: Slot) -> sp.Expr | None:
        """Returns the value of a state before the first step; None if it is not known."""
        value = self.leaves[0].get(slot.path)
        if value is None and slot.path in self.counted_from:
            return sp.Integer(self.counted_from[slot.path])
        if not isinstance(value, torch.Tensor | int | float):
            return None
        if isinstance(value, torch.Tensor):
            param = self.snapshots[0].params[0]
            if value.shape == param.shape and torch.equal(value, param):
                return PARAM
            # A tensor with one value in all places has that number as its first value.
            first = value.reshape(-1)[0]
            return exact_number(float(first)) if bool((value == first).all()) else None
        return exact_number(float(value))

    def width(self, path: Path) -> Width | None:
        """Returns the integers that a leaf can hold; None without a dtype, or for floats."""
        return Width.of(str(getattr(self.leaves[-1][path], "dtype", "")))


def text_of(value: Any) -> str:
    """Returns a text that tells static things apart."""
    if isinstance(value, torch.Tensor):
        return f"tensor {tuple(value.shape)}"
    if isinstance(value, str):
        return f"str {value!r}"
    if isinstance(value, Number):
        return f"{NUMBER} {value.expr}"
    if value is None or isinstance(value, bool | int | float | torch.dtype):
        return f"{type(value).__name__} {value!r}"
    return f"{OBJECT} of type {type(value).__name__}"


OBJECT, NUMBER = "object", "number"


def _identifier(text: str) -> str:
    identifier = re.sub(r"\W", "_", text)
    return identifier if identifier.isidentifier() else f"_{identifier}"


_PLURALS = {"betas": "beta", "eps": "eps", "etas": "eta", "nus": "nu", "gammas": "gamma"}


def _hyper_name(keys: Sequence[Any]) -> str:
    """``("betas", 0)`` is beta1."""
    name = str(keys[0])
    for key in keys[1:]:
        name = _PLURALS.get(name, name)
        name = f"{name}{key + 1}" if isinstance(key, int) else f"{name}_{key}"
    return _identifier(name)


def spell(path: Path) -> str:
    """Returns a path as errors show it."""
    return f"{path[0]} {'.'.join(map(_key_text, keys_of(path)))!r}"


def _key_text(key: Any) -> str:
    """A key of a container; tensors and other objects without their contents."""
    return str(key) if isinstance(key, str | int) else f"<{type(key).__name__}>"

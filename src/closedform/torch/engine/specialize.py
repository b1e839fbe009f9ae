"""From the entries of a param group to the rule of its step, opened where a scheduler may write.

A source makes a rule of the entries; which entry is which hyperparameter is found by asking it
twice: an entry drives a hyperparameter if another number there changes that number and nothing
else. So a class of any system needs no table here.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from dataclasses import dataclass, field
from typing import Any, Protocol

from torch import Tensor

from closedform.errors import ClosedFormError, DefinitionError
from closedform.language import Schedule, UpdateRule, exact_number
from closedform.torch.base import located
from closedform.torch.engine.hyper_inputs import (
    RANGES,
    Bound,
    OpenRule,
    is_within,
    open_with,
    weakest_bounds,
)
from closedform.torch.schedule_values import plain

_STAND_IN = 2.0**-10
"""A number in the range of every hyperparameter, in the place of 0."""


class RuleSource(Protocol):
    """What makes a rule of the entries of a group."""

    @property
    def name(self) -> str:
        """A name for errors."""

    @property
    def keys(self) -> tuple[str, ...]:
        """The entries that it reads."""

    def build(self, values: Mapping[str, Any]) -> UpdateRule:
        """Returns the rule for these values of the entries."""


@dataclass(frozen=True, slots=True)
class Leaf:
    """An entry of a group, or of a tuple there."""

    key: str
    index: int | None = None

    def of(self, values: Mapping[str, Any]) -> Any:
        """Returns its value; None where there is none."""
        value = values.get(self.key)
        if self.index is None:
            return value
        return value[self.index] if isinstance(value, tuple | list) else None

    def put(self, values: Mapping[str, Any], number: object) -> dict[str, Any]:
        """Returns the values with another number in its place."""
        if self.index is None:
            return {**values, self.key: number}
        entries = list(values[self.key])
        entries[self.index] = number
        return {**values, self.key: tuple(entries)}


@dataclass(slots=True)
class Variant:
    """A rule for groups that share all but the numbers of some entries.

    Attributes:
        opened: The rule; its inputs are the hyperparameters that entries drive.
        drives: Name, entry and range of each input.
        fixed: The other entries, with their values.
        kernels: What was compiled for it, by shape, dtype and device.
    """

    opened: OpenRule
    drives: tuple[tuple[str, Leaf, tuple[float, float]], ...]
    fixed: tuple[tuple[Leaf, Any], ...]
    kernels: dict[Any, Any] = field(default_factory=dict)

    def serves(self, values: Mapping[str, Any]) -> bool:
        """Returns whether a group with these values has this rule."""
        for leaf, value in self.fixed:
            found = leaf.of(values)
            if found is not value and (isinstance(found, Tensor) or found != value):
                return False
        for _, leaf, (low, high) in self.drives:
            number = leaf.of(values)
            if isinstance(number, Tensor):
                continue
            if not isinstance(number, int | float) or not low <= number <= high:
                return False
        return True


@dataclass(frozen=True, slots=True)
class _Found:
    """What is known of the entries of groups with one structure.

    Attributes:
        drives: The entry that each hyperparameter is.
        bounds: The bound of each that can be an input.
        idle: Switches without an effect on the rule, such as foreach. torch.compile sets one.
    """

    drives: dict[str, Leaf]
    bounds: dict[str, Bound]
    idle: frozenset[Leaf]


class Variants:
    """The rules of a source that were made so far."""

    def __init__(self, source: RuleSource) -> None:
        self.source = source
        self.made: list[Variant] = []
        self._found: dict[Any, _Found] = {}

    def of(self, values: Mapping[str, Any], shape: tuple[int, ...], where: str) -> Variant:
        """Returns the rule of a group with these values; a tensor stands for any number.

        Raises:
            ClosedFormError: The values have no meaning, named with ``where``.
        """
        for variant in self.made:
            if variant.serves(values):
                return variant
        with located(where):
            variant = self._make(values, shape)
        self.made.append(variant)
        return variant

    def check(self, values: Mapping[str, Any], where: str) -> UpdateRule:
        """Returns the rule with the numbers of a group in it.

        Raises:
            ClosedFormError: The values have no meaning, named with ``where``.
        """
        with located(where):
            return self.source.build(_numbers(values))

    def _make(self, values: Mapping[str, Any], shape: tuple[int, ...]) -> Variant:
        numbers = _numbers(values)
        rule = self.source.build(numbers)
        leaves = dict(_leaves(values))
        signature = tuple((leaf, _kind(value)) for leaf, value in leaves.items())
        if signature not in self._found:
            entries = _drives(self.source, rule, numbers)
            weakest = weakest_bounds(rule, entries, shape)
            self._found[signature] = _Found(entries, weakest, _idle(self.source, rule, numbers))
        found = self._found[signature]
        drives, bounds = found.drives, found.bounds
        inside = {
            name: bound
            for name, bound in bounds.items()
            if isinstance(drives[name].of(values), Tensor)
            or is_within(drives[name].of(values), bound)
        }
        opened = tuple((name, drives[name], RANGES[bound]) for name, bound in inside.items())
        free = {leaf for _, leaf, _ in opened} | found.idle
        fixed = tuple((leaf, value) for leaf, value in leaves.items() if leaf not in free)
        for leaf, value in fixed:
            if isinstance(value, Tensor):
                raise DefinitionError(
                    f"{leaf.key!r} must be a number, got a tensor: the rule compiles with no input "
                    "there",
                    hint="give a float",
                )
        return Variant(open_with(rule, inside), opened, fixed)


def _leaves(values: Mapping[str, Any]) -> Iterator[tuple[Leaf, Any]]:
    for key, value in values.items():
        if isinstance(value, tuple | list):
            yield from ((Leaf(key, index), entry) for index, entry in enumerate(value))
        else:
            yield Leaf(key), value


def _is_number(value: Any) -> bool:
    if isinstance(value, bool | Schedule | str) or value is None:
        return False
    return isinstance(value, int | float | Tensor)


def _kind(value: Any) -> Any:
    """What decides the structure of a rule: whether a number is 0, and all that is no number."""
    if isinstance(value, Tensor):
        return "tensor"
    return value == 0 if _is_number(value) else repr(value)


def _numbers(values: Mapping[str, Any]) -> dict[str, Any]:
    """The values for the source: a tensor as its number, or another one in the place of 0."""
    numbers = dict(values)
    for leaf, value in _leaves(values):
        if isinstance(value, Tensor):
            numbers = leaf.put(numbers, plain(value) or _STAND_IN)
    return numbers


def _drives(source: RuleSource, rule: UpdateRule, numbers: Mapping[str, Any]) -> dict[str, Leaf]:
    """The entry that each hyperparameter is, where it is one."""
    found: dict[str, Leaf] = {}
    for leaf, value in _leaves(numbers):
        if isinstance(value, bool | str | Schedule) or value is None:
            continue
        other = float(value) * (1 - _STAND_IN) if value != 0 else _STAND_IN
        try:
            changed = source.build(leaf.put(numbers, other))
        except ClosedFormError:
            continue
        name = _only_difference(rule, changed)
        if name is not None and changed.hyperparameters[name] == exact_number(other, name):
            found[name] = leaf
    return found


def _idle(source: RuleSource, rule: UpdateRule, numbers: Mapping[str, Any]) -> frozenset[Leaf]:
    """The switches that leave the rule as it is when they are turned."""
    found = set()
    for leaf, value in _leaves(numbers):
        if value is not None and not isinstance(value, bool):
            continue
        try:
            turned = source.build(leaf.put(numbers, not value))
        except ClosedFormError:
            continue
        if _content(turned) == _content(rule):
            found.add(leaf)
    return frozenset(found)


def _content(rule: UpdateRule) -> tuple[Any, ...]:
    return rule.all_expressions(), dict(rule.hyperparameters)


def _only_difference(one: UpdateRule, other: UpdateRule) -> str | None:
    """The hyperparameter in which two rules differ, if it is all that they differ in."""
    if one.hyperparameters.keys() != other.hyperparameters.keys():
        return None
    if one.all_expressions() != other.all_expressions():
        return None
    names = [
        name for name, value in one.hyperparameters.items() if other.hyperparameters[name] != value
    ]
    return names[0] if len(names) == 1 else None

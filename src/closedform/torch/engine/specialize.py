"""From the entries of a param group to the rule of its step, specialized to their values.

A source builds a rule from the entries. Which entry is which hyperparameter is found by building
twice: an entry is a hyperparameter if another number there changes the value of that
hyperparameter and nothing else. No library of named classes therefore needs a table here.
"""

from __future__ import annotations

from collections.abc import Callable, Collection, Iterable, Iterator, Mapping, Sequence
from contextlib import suppress
from dataclasses import dataclass, field
from functools import lru_cache, partial
from typing import Any, NamedTuple, Protocol

import torch
from torch import Tensor

from closedform.errors import ClosedFormError, DefinitionError, GraphError
from closedform.ir.types import Shape
from closedform.language import Schedule, UpdateRule, exact_number
from closedform.torch.engine.hyper_inputs import (
    LIMITS,
    InputRange,
    is_within,
    widest_ranges,
    with_inputs,
)
from closedform.torch.engine.kernels import (
    ANY_SHAPE,
    TorchKernel,
    has_graph_by_rank,
    has_one_graph,
    named_sizes,
    step_graph,
    torch_kernel,
)
from closedform.torch.param_groups import locate_errors, plain

# A power of two, so that x·(1 - n·probe) is exact for the usual hyperparameters.
_PROBE = 2.0**-10
"""A number in the range of every hyperparameter, used in place of 0."""


class RuleSource(Protocol):
    """Builds a rule from the entries of a group."""

    def __hash__(self) -> int:
        """Equal sources are one: optimizers share what is compiled for them."""

    @property
    def name(self) -> str:
        """A name for errors."""

    @property
    def keys(self) -> tuple[str, ...]:
        """The entries that it reads."""

    @property
    def optional(self) -> Mapping[str, Any]:
        """The entries that a saved group may lack, with the values that they have then."""

    @property
    def takes_sparse(self) -> bool:
        """Whether a sparse gradient is stepped as a dense one with zeros."""

    def build(self, values: Mapping[str, Any]) -> UpdateRule:
        """Returns the rule for these values of the entries."""


@dataclass(frozen=True, slots=True)
class HyperSource:
    """The source of an optimizer with a given rule: entries are hyperparameters by name.

    Attributes:
        rule: The rule.
        left_out: Hyperparameters that are 0 in the rule, so that its function leaves their terms
            out, and that are entries, too.
    """

    rule: UpdateRule
    left_out: tuple[str, ...] = ()

    @property
    def name(self) -> str:
        """The name of the rule."""
        return f"rule {self.rule.name!r}"

    @property
    def keys(self) -> tuple[str, ...]:
        """The hyperparameters."""
        return (*self.rule.hyperparameters, *self.left_out)

    @property
    def optional(self) -> Mapping[str, Any]:
        """None of them."""
        return {}

    @property
    def takes_sparse(self) -> bool:
        """No: most rules move a parameter whose gradient is zero."""
        return False

    def build(self, values: Mapping[str, Any]) -> UpdateRule:
        """Returns the rule with these values of its hyperparameters."""
        rate = values.get("lr")
        if isinstance(rate, int | float) and rate < 0:
            raise DefinitionError(f"lr must be >= 0, got {rate!r}", where=self.name)
        return self.rule.bind(**values)


@dataclass(frozen=True, slots=True)
class GroupEntry:
    """An entry of a group, or an element of a tuple there."""

    key: str
    index: int | None = None

    def of(self, values: Mapping[str, Any]) -> Any:
        """Returns its value; None if it is absent."""
        value = values.get(self.key)
        if self.index is None:
            return value
        return value[self.index] if isinstance(value, tuple | list) else None

    def with_number(self, values: Mapping[str, Any], number: float) -> dict[str, Any]:
        """Returns the values with another number for this entry."""
        if self.index is None:
            return {**values, self.key: number}
        elements = list(values[self.key])
        elements[self.index] = number
        return {**values, self.key: tuple(elements)}


class NonzeroEntries:
    """Entries that are not 0, and whose rule has other states at 0; found when first needed.

    Args:
        find: Returns them.
    """

    def __init__(self, find: Callable[[], frozenset[GroupEntry]]) -> None:
        self._find = find
        self._found: frozenset[GroupEntry] | None = None

    @property
    def entries(self) -> frozenset[GroupEntry]:
        """The entries; a trace needs them to be found before."""
        if self._found is None:
            self._found = self._find()
        return self._found


@dataclass(slots=True)
class Specialization:
    """A rule for all groups that differ only in the values of its inputs.

    Attributes:
        rule: The rule, with inputs.
        inputs: The name, entry, and smallest and largest value of each input.
        constants: The other entries, with their values.
        nonzero: The inputs whose rule has other states at 0, such as the momentum of SGD.
        kernels: The kernels compiled for it, by shape and dtype.
        is_for_all_shapes: Whether parameters of all shapes share one graph.
        is_by_rank: Whether parameters of one rank share a graph, if it compiles.
    """

    rule: UpdateRule
    inputs: tuple[tuple[str, GroupEntry, tuple[float, float]], ...]
    constants: tuple[tuple[GroupEntry, Any], ...]
    nonzero: NonzeroEntries
    kernels: dict[Any, Any] = field(default_factory=dict)
    is_for_all_shapes: bool = field(init=False)
    is_by_rank: bool = field(init=False)
    _by_shape: set[Any] = field(default_factory=set)

    def __post_init__(self) -> None:
        self.is_for_all_shapes = has_one_graph(self.rule)
        self.is_by_rank = not self.is_for_all_shapes and has_graph_by_rank(self.rule)

    def torch_kernel(
        self,
        shapes: tuple[tuple[int, ...], ...],
        dtype: torch.dtype,
        names: Sequence[Collection[str]],
    ) -> TorchKernel:
        """Returns the kernel for parameters of these shapes and this dtype, compiled once.

        Args:
            shapes: Their shapes.
            dtype: The dtype in which they are stepped.
            names: The names of the tensors of each parameter.
        """
        if self.is_for_all_shapes:
            return self._kernel((ANY_SHAPE,), dtype, names)
        if self.is_by_rank:
            key = (named_sizes(shapes[0]),), dtype
            if key not in self._by_shape:
                try:
                    return self._kernel(*key, names)
                except GraphError:  # a product of square matrices exists only for equal sizes
                    self._by_shape.add(key)
        return self._kernel(shapes, dtype, names)

    def _kernel(
        self, shapes: tuple[Shape, ...], dtype: torch.dtype, names: Sequence[Collection[str]]
    ) -> TorchKernel:
        key = shapes, dtype
        if key not in self.kernels:
            graph = step_graph(self.rule, shapes, dtype)
            is_for_all = self.is_for_all_shapes
            self.kernels[key] = torch_kernel(graph, names, is_for_all_shapes=is_for_all)
        kernel: TorchKernel = self.kernels[key]
        return kernel

    def matches(self, values: Mapping[str, Any]) -> bool:
        """Returns whether it is the rule of a group with these values."""
        for entry, value in self.constants:
            entry_value = entry.of(values)
            if entry_value is not value and (
                isinstance(entry_value, Tensor) or entry_value != value
            ):
                return False
        for _, entry, (low, high) in self.inputs:
            # Inputs may have any value in their range without a new compilation.
            number = entry.of(values)
            if isinstance(number, Tensor):
                continue
            if not isinstance(number, int | float) or not low <= number <= high:
                return False
            if number == 0 and entry in self.nonzero.entries:
                return False
        return True


@dataclass(frozen=True, slots=True)
class _Analysis:
    """The entries of groups with the same structure.

    Attributes:
        hypers: The entry of each hyperparameter.
        ranges: The range of each hyperparameter that can be an input.
        unused_switches: Switches that select an implementation, and do not change the rule.
        nonzero: The entries of hyperparameters at which a 0 gives a rule with other states.
    """

    hypers: dict[str, GroupEntry]
    ranges: dict[str, InputRange]
    unused_switches: frozenset[GroupEntry]
    nonzero: NonzeroEntries


_SELECTING = frozenset({"foreach", "fused", "capturable", "differentiable"})
"""Switches that select an implementation in torch; ``torch.compile`` sets one."""

_SPECIALIZATIONS = 32
"""How many specializations of a source are remembered."""


@lru_cache(128)
def specializer(source: RuleSource) -> Specializer:
    """Returns the rules of a source, which all optimizers with an equal source share."""
    return Specializer(source)


class Specializer:
    """The rules of a source, each specialized when it is first needed."""

    def __init__(self, source: RuleSource) -> None:
        self.source = source
        self.made: list[Specialization] = []
        self._analyses: dict[Any, _Analysis] = {}
        self._built: dict[Any, UpdateRule] = {}

    def specialize(
        self, values: Mapping[str, Any], shape: tuple[int, ...], where: str
    ) -> Specialization:
        """Returns the rule of a group with these values; a tensor may have any value.

        Raises:
            ClosedFormError: The values are invalid; ``where`` is named.
        """
        # Few: one for each combination of switches and zeros that occurs.
        for specialization in self.made:
            if specialization.matches(values):
                return specialization
        with locate_errors(where):
            specialization = self._make(values, shape)
        self.made.append(specialization)
        # The oldest goes first; a value that changes in every step would otherwise fill the memory.
        del self.made[:-_SPECIALIZATIONS]
        return specialization

    def rule(self, values: Mapping[str, Any], where: str) -> UpdateRule:
        """Returns the rule with the values of a group as constants.

        Raises:
            ClosedFormError: The values are invalid; ``where`` is named.
        """
        with locate_errors(where):
            return self._rule(_numbers(values))

    def _rule(self, numbers: Mapping[str, Any]) -> UpdateRule:
        """The rule with these values, built once for plain ones."""
        if not all(map(_is_plain, numbers.values())):
            return self.source.build(numbers)
        # With the type: 1, 1.0 and True are equal and hash alike.
        key = tuple((name, type(value), value) for name, value in numbers.items())
        if key not in self._built:
            rule = self.source.build(numbers)
            if len(self._built) >= _SPECIALIZATIONS:
                del self._built[next(iter(self._built))]
            self._built[key] = rule
        return self._built[key]

    def states_of_variants(self, values: Mapping[str, Any]) -> frozenset[str]:
        """Returns the states of all rules that differ in one entry: a switch, or a 0 or not."""
        numbers = _numbers(values)
        names = set(self.source.build(numbers).states)
        for entry, value in entries_of(numbers):
            if value is None or isinstance(value, str | Schedule):
                continue
            # A switch is turned, a number becomes 0 or is no longer 0.
            probe = not value if isinstance(value, bool) else 0 if value != 0 else _PROBE
            with suppress(ClosedFormError):
                names.update(self.source.build(entry.with_number(numbers, probe)).states)
        return frozenset(names)

    def _make(self, values: Mapping[str, Any], shape: tuple[int, ...]) -> Specialization:
        """The rule with an input for each number that can be one; other entries are constants.

        Raises:
            DefinitionError: A tensor is given for an entry that cannot be an input.
        """
        numbers = _numbers(values)
        rule = self._rule(numbers)
        entries = dict(entries_of(values))
        structure = tuple((entry, _structure(value)) for entry, value in entries.items())
        if structure not in self._analyses:
            hypers, unused_switches = _hypers(self.source, rule, numbers)
            ranges = widest_ranges(rule, hypers, shape)
            find = partial(_nonzero, self.source, rule, numbers, tuple(hypers.values()))
            nonzero = NonzeroEntries(find)
            self._analyses[structure] = _Analysis(hypers, ranges, unused_switches, nonzero)
        analysis = self._analyses[structure]
        ranges = {
            name: bounds
            for name, bounds in analysis.ranges.items()
            if isinstance(analysis.hypers[name].of(values), Tensor)
            or is_within(analysis.hypers[name].of(values), bounds)
        }
        limits = {
            name: (float(LIMITS[input_range][0]), float(LIMITS[input_range][1]))
            for name, input_range in ranges.items()
        }
        inputs = tuple((name, analysis.hypers[name], limit) for name, limit in limits.items())
        free = {entry for _, entry, _ in inputs} | analysis.unused_switches
        constants = tuple((entry, value) for entry, value in entries.items() if entry not in free)
        for entry, value in constants:
            if isinstance(value, Tensor):
                raise DefinitionError(
                    f"{entry.key!r} must be a number, got a tensor: the rule does not compile with "
                    "an input for it",
                    hint="give a float",
                )
        return Specialization(with_inputs(rule, ranges), inputs, constants, analysis.nonzero)


def entries_of(values: Mapping[str, Any]) -> Iterator[tuple[GroupEntry, Any]]:
    """Yields the entries of a group, and of tuples one by one, with their values."""
    for key, value in values.items():
        if isinstance(value, tuple | list):
            yield from ((GroupEntry(key, index), element) for index, element in enumerate(value))
        else:
            yield GroupEntry(key), value


def _is_plain(value: Any) -> bool:
    """Whether equal values of one type give equal rules."""
    if isinstance(value, tuple):
        return all(element is None or isinstance(element, float) for element in value)
    return value is None or isinstance(value, bool | int | float | str)


def is_number(value: Any) -> bool:
    """Returns whether an entry is a number, or a tensor with one."""
    return isinstance(value, int | float | Tensor) and not isinstance(value, bool)


def _structure(value: Any) -> Any:
    """The part of a value on which the form of a rule depends: is a number 0, and all others."""
    if isinstance(value, Tensor):
        return "tensor"
    return value == 0 if is_number(value) else repr(value)


def _numbers(values: Mapping[str, Any]) -> dict[str, Any]:
    """The values for the source: a tensor as its number, or as another one if that is 0."""
    numbers = dict(values)
    for entry, value in entries_of(values):
        if isinstance(value, Tensor):
            # A tensor may be filled with another value later, so that its 0 must not leave a term
            # out.
            numbers = entry.with_number(numbers, plain(value) or _PROBE)
    return numbers


def _hypers(
    source: RuleSource, rule: UpdateRule, numbers: Mapping[str, Any]
) -> tuple[dict[str, GroupEntry], frozenset[GroupEntry]]:
    """The entry of each hyperparameter that has one, and the switches that change nothing."""
    entries = [
        (entry, value)
        for entry, value in entries_of(numbers)
        if value is not None and not isinstance(value, bool | str | Schedule)
    ]
    switches = _switches(numbers)
    # A number 0 often leaves a term out, and another number there makes another rule.
    zeros = [item for item in entries if item[1] == 0]
    nonzero = [item for item in entries if item[1] != 0]
    together = _hypers_together(source, rule, numbers, nonzero, switches)
    if together is None:
        return _hypers_apart(source, rule, numbers, entries), _unused_switches(
            source, rule, numbers
        )
    hypers, is_explained = together
    unused_switches = (
        frozenset(switches) if is_explained else _unused_switches(source, rule, numbers)
    )
    return hypers | _hypers_apart(source, rule, numbers, zeros), unused_switches


def _hypers_apart(
    source: RuleSource,
    rule: UpdateRule,
    numbers: Mapping[str, Any],
    entries: Iterable[tuple[GroupEntry, Any]],
) -> dict[str, GroupEntry]:
    """The entries of hyperparameters, from one rule for each entry that has the value of one."""
    hypers: dict[str, GroupEntry] = {}
    for entry, value in entries:
        if exact_number(value, entry.key) not in rule.hyperparameters.values():
            continue
        # Just below the value, which stays in the range of the hyperparameter.
        probe = float(value) * (1 - _PROBE) if value != 0 else _PROBE
        try:
            probed_rule = source.build(entry.with_number(numbers, probe))
        except ClosedFormError:
            continue
        name = _only_difference(rule, probed_rule)
        if name is not None and probed_rule.hyperparameters[name] == exact_number(probe, name):
            hypers[name] = entry
    return hypers


def _hypers_together(
    source: RuleSource,
    rule: UpdateRule,
    numbers: Mapping[str, Any],
    entries: Sequence[tuple[GroupEntry, Any]],
    switches: Mapping[GroupEntry, Any],
) -> tuple[dict[str, GroupEntry], bool] | None:
    """The entries of hyperparameters, from one rule in which all have separate numbers.

    The switches are turned, too.

    Returns:
        The entries, and whether nothing else has changed. None if it does not tell: the rule is
        invalid, or its expressions have changed.
    """
    probed_values, entry_of_number = _toggle(numbers, switches), dict[Any, GroupEntry]()
    for count, (entry, value) in enumerate(entries, 1):
        # Distinct factors, so that a number in the rule tells the entry that it comes from.
        probe = float(value) * (1 - count * _PROBE)
        probed_values = entry.with_number(probed_values, probe)
        entry_of_number[exact_number(probe, entry.key)] = entry
    try:
        probed_rule = source.build(probed_values)
    except ClosedFormError:
        return None
    # Two entries with one number cannot be told apart.
    if probed_rule.all_expressions() != rule.all_expressions() or len(entry_of_number) < len(
        entries
    ):
        return None
    if probed_rule.hyperparameters.keys() != rule.hyperparameters.keys():
        return None
    differing = {
        name: value
        for name, value in probed_rule.hyperparameters.items()
        if value != rule.hyperparameters[name]
    }
    hypers = {
        name: entry_of_number[value]
        for name, value in differing.items()
        if value is not None and value in entry_of_number
    }
    if len(set(hypers.values())) < len(hypers):
        return None
    return hypers, len(hypers) == len(differing)


def _unused_switches(
    source: RuleSource, rule: UpdateRule, numbers: Mapping[str, Any]
) -> frozenset[GroupEntry]:
    """The switches that select an implementation, if they do not change the rule."""
    switches = _switches(numbers)
    without_effect: set[GroupEntry] = set()
    for trial in (switches, *({entry: value} for entry, value in switches.items())):
        with suppress(ClosedFormError):  # together, or one by one
            if _content(source.build(_toggle(numbers, trial))) == _content(rule):
                without_effect |= trial.keys()
        if len(without_effect) == len(switches):
            break
    return frozenset(without_effect)


def _switches(numbers: Mapping[str, Any]) -> dict[GroupEntry, Any]:
    """The switches that select an implementation."""
    return {
        entry: value
        for entry, value in entries_of(numbers)
        if entry.key in _SELECTING and (value is None or isinstance(value, bool))
    }


def _toggle(numbers: Mapping[str, Any], switches: Mapping[GroupEntry, Any]) -> dict[str, Any]:
    """The values with these switches turned."""
    return {**numbers, **{entry.key: not value for entry, value in switches.items()}}


def _nonzero(
    source: RuleSource, rule: UpdateRule, numbers: Mapping[str, Any], entries: Iterable[GroupEntry]
) -> frozenset[GroupEntry]:
    """The entries that are not 0, and for which the rule with a 0 has other states."""
    nonzero = set()
    candidates = [entry for entry in entries if entry.of(numbers) != 0]
    zeros = dict(numbers)
    for entry in candidates:
        zeros = entry.with_number(zeros, 0)
    with suppress(ClosedFormError):  # a state that a 0 removes is not there with other zeros
        if source.build(zeros).states.keys() == rule.states.keys():
            return frozenset()
    for entry in candidates:
        with suppress(ClosedFormError):
            if source.build(entry.with_number(numbers, 0)).states.keys() != rule.states.keys():
                nonzero.add(entry)
    return frozenset(nonzero)


def _content(rule: UpdateRule) -> tuple[Any, ...]:
    return rule.all_expressions(), dict(rule.hyperparameters)


def _only_difference(rule: UpdateRule, changed_rule: UpdateRule) -> str | None:
    """The hyperparameter that differs between two rules, if nothing else does."""
    if rule.hyperparameters.keys() != changed_rule.hyperparameters.keys():
        return None
    if rule.all_expressions() != changed_rule.all_expressions():
        return None
    names = [
        name
        for name, value in rule.hyperparameters.items()
        if changed_rule.hyperparameters[name] != value
    ]
    return names[0] if len(names) == 1 else None


def input_tensors(specialization: Specialization, params: Sequence[Tensor]) -> dict[str, Tensor]:
    """Returns tensors for the inputs of a group, contiguous in memory."""
    names = [name for name, *_ in specialization.inputs]
    device = params[0].device if params else None
    numbers = torch.zeros(len(names), dtype=torch.float64, device=device)
    return dict(zip(names, numbers.unbind(), strict=True))


class Layout(NamedTuple):
    """The shape, dtype and device for which the step of a parameter is compiled."""

    shape: tuple[int, ...]
    dtype: torch.dtype
    device: torch.device


@dataclass(slots=True)
class CompiledGroup:
    """The computation of a param group.

    Attributes:
        specialization: Its rule.
        inputs: The tensors of its hyperparameters.
        layouts: The layouts for which its kernels are compiled; None for a parameter without shape.
        state_names: The states of each parameter, in order, without the step.
        written_values: The numbers that were last written to them.
        kernels: The kernel of each parameter, or one for all.
        is_joint: Whether all parameters step together.
        version: Counts the changes of its hyperparameters.
    """

    specialization: Specialization
    inputs: dict[str, Tensor]
    layouts: list[Layout | None] = field(default_factory=list)
    state_names: list[tuple[str, ...]] = field(default_factory=list)
    written_values: dict[str, Any] = field(default_factory=dict)
    kernels: list[Any] = field(default_factory=list)
    is_joint: bool = False
    version: int = 0

    def write_inputs(self, values: Mapping[str, Any]) -> Mapping[str, Tensor]:
        """Returns the hyperparameters of a group as tensors, the same ones each time.

        A number is written only if it has changed. Within a trace the tensors are new: AOT
        autograd of torch 2.13 loses a fill of a tensor that is an input of the graph.
        """
        numbers = {name: entry.of(values) for name, entry, _ in self.specialization.inputs}
        if torch.compiler.is_compiling():
            return {name: self._new(name, number) for name, number in numbers.items()}
        for name, number in numbers.items():
            if isinstance(number, Tensor):
                self.inputs[name].copy_(number.detach().reshape(()))
                self.written_values.pop(name, None)
                self.version += 1
            elif self.written_values.get(name) != number:
                self.inputs[name].fill_(number)
                # Read by kernels that cache numbers computed from hyperparameters.
                self.written_values[name] = number
                self.version += 1
        return self.inputs

    def _new(self, name: str, number: float | Tensor) -> Tensor:
        like = self.inputs[name]
        if isinstance(number, Tensor):
            return number.detach().to(like.device, like.dtype).reshape(())
        return torch.zeros_like(like) + number  # a number of a full would be a constant

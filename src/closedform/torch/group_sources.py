"""The rule of a param group, its own or the optimizer's, and the entries that it reads."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any

from torch import Tensor

from closedform.errors import ArgumentError, UnknownNameError, correction
from closedform.language import Schedule, UpdateRule
from closedform.language.config_names import suggest_argument
from closedform.torch.engine.hyper_inputs import constants_of
from closedform.torch.engine.specialize import (
    HyperSource,
    RuleSource,
    Specializer,
    entries_of,
    is_number,
    specializer,
)
from closedform.torch.param_groups import TRAIN_MODE

RULE = "rule"
"""The entry of a group that is its own rule; the group loses it."""

ENTRIES = frozenset(
    {
        *("params", "param_names", "name", "tags", "adjust_learning_rate", "lr_scale", TRAIN_MODE),
        *("initial_lr", "max_lr", "min_lr", "base_lr", "swa_lr", "max_momentum", "base_momentum"),
        *("foreach", "fused", "capturable", "differentiable", "maximize", "amsgrad", "nesterov"),
        "decoupled_weight_decay",
    }
)
"""Entries of groups that torch, its schedulers, timm and cerebras write or read."""

_SYNONYMS = frozenset({"learning_rate", "wd", "epsilon", "beta_1", "beta_2"})
"""Names of hyperparameters in other libraries."""

_MARKS = dict.fromkeys(("momentum", "betas", "beta1"), "max_momentum")
"""Entries that OneCycleLR and CyclicLR cycle with the rate, and the entry by which they show it."""

_COMMON = ("weight_decay", "momentum")
"""Hyperparameters that a group sets to 0 where its rule has none."""


@dataclass(slots=True)
class GroupSource:
    """From the entries of a param group to its rule.

    Attributes:
        source: Builds the rule.
        scheduled: The hyperparameters that are not entries of the group.
        first_values: The entries that determine the rule, as the first step read them.
        keys: The entries that determine the rule.
        specializer: Its rules, which all groups with an equal source share.
    """

    source: RuleSource
    scheduled: dict[str, Any] = field(default_factory=dict)
    first_values: dict[str, Any] = field(default_factory=dict)
    keys: tuple[str, ...] = field(init=False)
    specializer: Specializer = field(init=False)

    def __post_init__(self) -> None:
        # A trace can look up neither.
        self.keys, self.specializer = self.source.keys, specializer(self.source)

    def __reduce__(self) -> tuple[type[GroupSource], tuple[RuleSource, dict[str, Any]]]:
        return GroupSource, (self.source, self.scheduled)

    def values(self, group: Mapping[str, Any], where: str) -> dict[str, Any]:
        """Returns the entries that determine the rule of a group, or of a saved one.

        Raises:
            UnknownNameError: One is missing.
        """
        entries = {**group, **self.scheduled}
        for key in self.keys:
            if key not in entries:
                raise UnknownNameError(
                    f"the group has no value for {key!r}",
                    where=where,
                    hint=f"{self.source.name} needs {', '.join(self.keys)}",
                )
        return {key: entries[key] for key in self.keys}

    def rule(self, group: Mapping[str, Any], where: str) -> UpdateRule:
        """Returns the rule of a group, or of a saved one."""
        return self.specializer.rule(self.values(group, where), where)

    def check_unread(self, group: Mapping[str, Any], where: str) -> None:
        """Raises ArgumentError for a rule or schedule in an entry that is not read."""
        for name in group.keys() - {*self.keys}:
            value = group[name]
            if not isinstance(value, UpdateRule | Schedule):
                continue
            kind = "rule" if isinstance(value, UpdateRule) else "schedule"
            raise ArgumentError(
                f"the group has a {kind} in the entry {name!r}, which is not read",
                where=where,
                hint="add the group with its rule: {'params': …, 'rule': …}"
                if kind == "rule"
                else f"the entries that are read are {', '.join(self.keys)}",
            )

    def host_numbers(self, group: Mapping[str, Any]) -> dict[str, str]:
        """Returns how the host gives entries that change between steps, by name.

        A number is a constant of a captured step: it comes from the host if a scheduler has left
        its mark in the group, or it is no longer that of the first step. A tensor on the device of
        the parameters is read there by each replay.
        """
        device = next((param.device for param in group["params"]), None)
        marks = group.keys() - {*self.keys}  # initial_lr is a hyperparameter of some rules
        values = {
            key: group[key] for key in self.keys if key in group.keys() - self.scheduled.keys()
        }
        numbers: dict[str, str] = {}
        for entry, value in entries_of(values):
            key = entry.key
            if isinstance(value, Tensor):
                if value.device != device:
                    numbers[key] = f"a tensor on {value.device}"
            elif is_number(value) and marks & {f"initial_{key}", _MARKS.get(key)}:
                numbers[key] = "a number that a scheduler writes"
            elif is_number(value) and self.first_values.get(key, values[key]) != values[key]:
                numbers[key] = "a number that has changed since the first step"
        return numbers

    def states_of_variants(self, group: Mapping[str, Any], where: str) -> frozenset[str]:
        """Returns the states that the group would have with other values of its entries."""
        return self.specializer.states_of_variants(self.values(group, where))


def check_rule_type(rule: object, where: str | None = None) -> None:
    """Raises ArgumentError for what is not an update rule."""
    if not isinstance(rule, UpdateRule):
        raise ArgumentError(
            f"rule must be an UpdateRule, got {type(rule).__name__}",
            where=where,
            hint="get one from closedform.optimizers",
        )


def defaults_of(rule: UpdateRule) -> dict[str, Any]:
    """Returns the hyperparameters of a rule that have values, as entries of a group."""
    numbers = {name: value for name, value in rule.hyperparameters.items() if value is not None}
    return {name: constants_of(rule).get(name, value) for name, value in numbers.items()}


def with_rules(params: Any, rules: Sequence[UpdateRule]) -> list[dict[str, Any]]:
    """Returns param groups in which each has its rule.

    Args:
        params: The param groups.
        rules: As many rules, such as ``closedform.from_torch`` returns for an optimizer.

    Raises:
        ArgumentError: One is not a rule, or they are not as many as the groups.
    """
    for number, rule in enumerate(rules):
        check_rule_type(rule, f"rule {number}")
    items = list(params)
    has_groups = bool(items) and all(isinstance(item, dict) for item in items)
    groups = items if has_groups else [{"params": items}]
    if len(groups) != len(rules):
        raise ArgumentError(
            f"there must be a rule for each param group, got {len(rules)} rules for "
            f"{len(groups)} group{'s' * (len(groups) != 1)}",
            hint="give groups: [{'params': …}, {'params': …}], in the order of the rules",
        )
    return [{RULE: rule, **group} for group, rule in zip(groups, rules, strict=True)]


def group_source(
    param_group: Mapping[str, Any], source: RuleSource | None, where: str
) -> tuple[dict[str, Any], RuleSource]:
    """Returns a group without its rule but with the values of it, and the source of its rule.

    Args:
        param_group: The group as it is given.
        source: The source of the optimizer's rule; None if each group must have a rule.
        where: The place of the group, for errors.

    Raises:
        ArgumentError: The rule is not an UpdateRule, or is missing.
        UnknownNameError: An entry is a misspelled hyperparameter.
    """
    group = dict(param_group)
    rule = group.pop(RULE, None)
    if rule is not None:
        check_rule_type(rule, where)
        source = HyperSource(rule)
    if source is None:
        raise ArgumentError(
            "each group of this optimizer has a rule, and this one has none",
            where=where,
            hint="give it one: {'params': …, 'rule': …}",
        )
    if isinstance(source, HyperSource):
        group = _with_decay_rates(group, source.rule)
        source = _with_left_out(source, group, where)
    _check_entries(group, source, where)
    return ({**defaults_of(rule), **group} if rule is not None else group), source


def _with_decay_rates(group: dict[str, Any], rule: UpdateRule) -> dict[str, Any]:
    """A group with beta1, beta2 and so on for betas, as the functions of rules and torch say."""
    rates: Any = group.get("betas")
    if not isinstance(rates, tuple | list):
        return group
    named_rates = {f"beta{number}": rate for number, rate in enumerate(rates, 1)}
    if not named_rates.keys() <= rule.hyperparameters.keys():
        return group
    return {**named_rates, **{name: value for name, value in group.items() if name != "betas"}}


def _with_left_out(source: HyperSource, group: Mapping[str, Any], where: str) -> HyperSource:
    """The source that also reads the entries of terms that the function of a rule leaves out."""
    arguments, left_out = source.rule.arguments, []
    for name in arguments.keys() & group.keys() - source.rule.hyperparameters.keys():
        value = group[name]
        if is_number(value) or isinstance(value, Schedule):
            left_out.append(name)
        elif value != arguments[name] and not isinstance(value, tuple | list):
            raise ArgumentError(
                f"{name!r} is {arguments[name]!r} in the rule {source.rule.name!r}, and "
                f"{value!r} in the group: it is not a hyperparameter",
                where=where,
                hint=f"give the group a rule: {{'params': …, 'rule': {source.rule.name}"
                f"({name}={value!r})}}",
            )
    return HyperSource(source.rule, tuple(sorted(left_out)))


def _check_entries(group: Mapping[str, Any], source: RuleSource, where: str) -> None:
    """Raises UnknownNameError for an entry that is meant to be a hyperparameter, and is none.

    Other entries stay in the group unread, as in torch.
    """
    keys = source.keys
    rule = source.rule if isinstance(source, HyperSource) else None
    candidates = (*keys, *(() if rule is None else rule.arguments))
    for name, value in group.items():
        if name in candidates or name in ENTRIES or not isinstance(name, str):
            continue
        known_name = correction(name, candidates)
        is_lost = rule is not None and name in _COMMON and not _is_zero(value)
        if known_name is None and name not in _SYNONYMS and not is_lost:
            continue
        hint = suggest_argument(name, candidates)
        if known_name is not None:
            hint = f"did you mean {known_name!r}?"
        raise UnknownNameError(
            f"the group has an entry {name!r}, which is not a hyperparameter",
            where=where,
            hint=hint,
        )


def _is_zero(value: Any) -> bool:
    return value is None or (isinstance(value, int | float) and value == 0)

"""Groups of parameters: which rule steps which parameter of a model."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from fnmatch import fnmatchcase
from typing import Any

import sympy as sp

from closedform.errors import DefinitionError, describe, nearest
from closedform.language.schedule import Schedule
from closedform.language.shapes import SHAPE_SYMBOLS, Shape, shape_values
from closedform.language.symbols import exact_number
from closedform.language.update_rule import UpdateRule


@dataclass(frozen=True, slots=True)
class Group:
    """Parameters with a separate rule.

    Attributes:
        params: Names or globs on whole names, such as ``"*.bias"``; one or several.
        rule: Their rule; None for that of the model.
        changes: Hyperparameters by name that differ from the rule's: numbers, Schedules, None.
        factors: Hyperparameters by name that are multiplied by a number, numbers and Schedules.
        shapes: A condition on the shape that a parameter of such a name has to satisfy.

    Example:
        >>> no_decay = Group(("*bias", "*norm*"), changes={"weight_decay": 0})
        >>> slower = Group("embedding*", factors={"lr": 0.5})
    """

    params: str | Sequence[str]
    rule: UpdateRule | None = None
    changes: Mapping[str, Any] = field(default_factory=dict)
    factors: Mapping[str, Any] = field(default_factory=dict)
    shapes: sp.Basic = sp.true

    def __post_init__(self) -> None:
        names = [self.params] if isinstance(self.params, str) else self.params
        if not isinstance(names, Sequence) or not all(isinstance(name, str) for name in names):
            raise DefinitionError(
                f"params of a group must be names or globs, got {describe(self.params)}",
                hint='give "*.bias" or ("*.bias", "*norm*")',
            )

    @property
    def globs(self) -> tuple[str, ...]:
        """The names and globs as a tuple."""
        return (self.params,) if isinstance(self.params, str) else tuple(self.params)

    def matches(self, name: str, shape: Shape) -> bool:
        """Returns whether the group matches a parameter."""
        if not any(fnmatchcase(name, glob) for glob in self.globs):
            return False
        condition = self.shapes.xreplace(shape_values(shape))
        if condition.free_symbols & SHAPE_SYMBOLS:
            raise DefinitionError(
                f"the condition {condition} is not decided by the shape {list(shape)}",
                where=f"group {list(self.globs)}, parameter {name!r}",
                hint="write it on RANK first, such as sp.Ge(RANK, 2)",
            )
        return bool(condition)

    def bound(self, rule: UpdateRule) -> UpdateRule:
        """Returns the rule of the group's parameters; ``rule`` is that of the model.

        Raises:
            DefinitionError: It has no hyperparameter of a name, or one that is an input of the
                graph is to be multiplied.
        """
        own_rule = rule if self.rule is None else self.rule
        changes = dict(self.changes)
        for name, factor in self.factors.items():
            where = f"group {list(self.globs)}, factor of {name!r}"
            if name not in own_rule.hyperparameters:
                raise DefinitionError(
                    f"rule {own_rule.name!r} has no hyperparameter {name!r}",
                    where=where,
                    hint=nearest(name, own_rule.hyperparameters),
                )
            value = changes.get(name, own_rule.hyperparameters[name])
            if value is None:
                raise DefinitionError(
                    f"{name!r} is an input of the graph, which has no factor here",
                    where=where,
                    hint="give it a number or a Schedule",
                )
            number = exact_number(factor, f"factor of {name!r}")
            is_schedule = isinstance(value, Schedule)
            changes[name] = (
                value.scale(number) if is_schedule else exact_number(value, name) * number
            )
        return own_rule.bind(**changes) if changes else own_rule


@dataclass(frozen=True, slots=True)
class Assignment:
    """A rule and the parameters that it steps, with their shapes by name."""

    rule: UpdateRule
    params: Mapping[str, Shape]


def assign(
    rule: UpdateRule, params: Mapping[str, Shape], groups: Sequence[Group] = ()
) -> list[Assignment]:
    """Returns each rule with the parameters that it steps; the first group that matches one wins.

    Parameters that no group matches are stepped by ``rule`` itself.

    Raises:
        DefinitionError: A group matches no remaining parameter, or cannot be made from the rule.

    Example:
        >>> from closedform.language import GRAD, PARAM, hyper
        >>> sgd = UpdateRule("sgd", PARAM - hyper("lr") * GRAD, {}, {"lr": 1})
        >>> shapes = {"w": (2, 3), "b": (3,)}
        >>> assignments = assign(sgd, shapes, [Group("b", factors={"lr": 0.5})])
        >>> [(one.rule.hyperparameters, list(one.params)) for one in assignments]
        [({'lr': 1}, ['w']), ({'lr': 1/2}, ['b'])]
    """
    names_by_group: list[dict[str, Shape]] = [{} for _ in (None, *groups)]
    for name, shape in params.items():
        matching = (i for i, group in enumerate(groups, 1) if group.matches(name, shape))
        # Place 0 is the rule of the model.
        names_by_group[next(matching, 0)][name] = shape
    for group, names in zip(groups, names_by_group[1:], strict=True):
        if not names:
            raise DefinitionError(
                f"group {list(group.globs)} matches no remaining parameter",
                where=f"rule {rule.name!r}",
                hint="a glob matches the whole name, and the first matching group wins",
            )
    rules = [rule, *(group.bound(rule) for group in groups)]
    return [
        Assignment(group_rule, names)
        for group_rule, names in zip(rules, names_by_group, strict=True)
        if names
    ]


def from_param_groups(param_groups: Sequence[Mapping[str, Any]], rule: UpdateRule) -> list[Group]:
    """Returns groups for the param groups of other systems, such as ``configure_param_groups``.

    A dict holds ``params``, a list of names; its other entries are hyperparameters that differ.
    ``adjust_learning_rate`` is a factor of ``lr``; ``tags`` are for schedulers and left out, and so
    is a 0 for a hyperparameter that the rule has not: its term is 0 already.

    Raises:
        DefinitionError: A param group has no ``params``.

    Example:
        >>> from closedform.language import PARAM, hyper
        >>> decay = UpdateRule("decay", PARAM - hyper("lr") * PARAM, {}, {"lr": 1})
        >>> group = {"params": ["b"], "weight_decay": 0, "adjust_learning_rate": 0.5}
        >>> from_param_groups([group], decay)
        [Group(params=('b',), rule=None, changes={}, factors={'lr': 0.5}, shapes=True)]
    """
    groups = []
    for index, entry in enumerate(param_groups):
        if not isinstance(entry, Mapping) or "params" not in entry:
            raise DefinitionError(
                f"a param group is a mapping with 'params', got {entry!r}",
                where=f"param group {index}",
            )
        names = tuple(literal_glob(name) for name in entry["params"])
        factor = entry.get("adjust_learning_rate", 1)
        reserved_keys = ("params", "tags", "adjust_learning_rate")
        changes = {
            key: value
            for key, value in entry.items()
            if key not in reserved_keys and (key in rule.hyperparameters or value != 0)
        }
        if names:
            groups.append(Group(names, None, changes, {"lr": factor} if factor != 1 else {}))
    return groups


def literal_glob(name: str) -> str:
    """A glob that matches only this name."""
    # fnmatch has no escape character; a set of one character is taken literally.
    return "".join(f"[{char}]" if char in "*?[" else char for char in name)

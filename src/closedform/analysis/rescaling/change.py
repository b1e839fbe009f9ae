"""A run before and after rescaling, as the invariants see it."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass

import sympy as sp

from closedform.analysis.rescaling.clock import RescaledClock
from closedform.analysis.rescaling.rules import BatchRule
from closedform.errors import ClosedFormError
from closedform.language import Schedule, UpdateRule
from closedform.recipes.recipe import ParamGroup, Recipe
from closedform.schedules import constant

MOMENTS = ("beta1", "beta2", "beta3", "momentum")
"""Hyperparameters that are decay rates of moments."""

RELATIVE = ("initial_lr", "max_lr")
"""Hyperparameters that make the weight decay relative to a rate of the run."""


@dataclass(frozen=True, slots=True)
class Factors:
    """The factors of a change.

    Attributes:
        batch: Of the batch size.
        tokens: Of the tokens of the run.
        width: Of the width of the model.
    """

    batch: sp.Rational
    tokens: sp.Rational
    width: sp.Rational


@dataclass(frozen=True, slots=True)
class Change:
    """A change of a run.

    Attributes:
        before: The recipe.
        after: The rescaled one; its first param groups are the groups of ``before``, in order.
        factors: The factors.
        clock: The clock of the new run.
        rule: The rule of the batch size.
        rate: The factor of the learning rate by the batch size.
        widths: The factor of each param group's learning rate by the width.
        warmup_problem: Why the warmup has no length that is known; empty where it has.
        batch_size: The batch size before, None if unknown.
        critical: The critical batch size in the same unit, None if unknown.
    """

    before: Recipe
    after: Recipe
    factors: Factors
    clock: RescaledClock
    rule: BatchRule
    rate: sp.Expr
    widths: tuple[sp.Expr, ...]
    warmup_problem: str = ""
    batch_size: sp.Expr | None = None
    critical: sp.Expr | None = None

    def pairs(self) -> Iterator[tuple[ParamGroup, ParamGroup, sp.Expr]]:
        """Yields each param group before and after, with the factor of its learning rate."""
        for index, group in enumerate(self.before.param_groups):
            yield group, self.after.param_groups[index], self.rate * self.widths[index]


def rule_of(group: ParamGroup) -> UpdateRule | None:
    """Returns the update rule of a param group; None where the library does not have it."""
    try:
        return group.optimizer.build(group.schedules)
    except ClosedFormError:
        return None


def hyperparameter(group: ParamGroup, key: str) -> Schedule | None:
    """Returns a hyperparameter of a param group as a schedule; None where it has none."""
    if key in group.schedules:
        return group.schedules[key]
    rule = rule_of(group)
    value = None if rule is None else rule.hyperparameters.get(key)
    if value is None or isinstance(value, Schedule):
        return value
    return constant(value)

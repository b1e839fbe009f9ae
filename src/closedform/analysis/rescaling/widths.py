"""The factors of µP for the param groups of a recipe, by their roles."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import replace
from types import MappingProxyType

import sympy as sp

from closedform.analysis.rescaling.change import rule_of
from closedform.errors import DomainError
from closedform.recipes.recipe import ParamGroup, Recipe, Role
from closedform.scaling.tables import FAMILIES, MUP, Layer, Powers

LAYERS: Mapping[Role, Layer | None] = MappingProxyType(
    {
        Role.DEFAULT: Layer.HIDDEN,
        Role.NO_DECAY: Layer.VECTOR,
        Role.NORM: Layer.VECTOR,
        Role.BIAS: Layer.VECTOR,
        Role.EMBEDDING: Layer.EMBEDDING,
        Role.OUTPUT: Layer.OUTPUT,
        # Input and output weights have one rate in Table 8, for Adam and for SGD.
        Role.EMBEDDING_AND_OUTPUT: Layer.OUTPUT,
        Role.FROZEN: Layer.FIXED,
        Role.NAMED: None,
    }
)
"""The kind of the weights of a role; None where only the config describes them."""


def width_factors(recipe: Recipe, width: sp.Rational) -> tuple[sp.Expr, ...]:
    """Returns the factor of each param group's learning rate for a factor of the width.

    Raises:
        DomainError: The table has no factor for an optimizer or a role.
    """
    return tuple(_factor(recipe, group, width) for group in recipe.param_groups)


def _factor(recipe: Recipe, group: ParamGroup, width: sp.Rational) -> sp.Expr:
    layer = LAYERS[group.role]
    rule = rule_of(group)
    name = group.optimizer.name if rule is None else rule.name
    if layer is None or rule is None or name not in FAMILIES:
        reason = (
            f"the param group {group.name!r} has no role"
            if layer is None
            else f"there is no table of rates for the optimizer {name!r}"
        )
        raise DomainError(
            f"the invariant 'mup' cannot be kept: {reason}",
            where=recipe.source,
            hint="closedform.scaling.mup has factors for the shapes of a model",
        )
    powers = MUP.rates[FAMILIES[name]].get(layer, Powers())
    return powers.factor(width, width, sp.S.One)


def with_width_groups(recipe: Recipe) -> Recipe:
    """Returns the recipe with a param group for each kind of weight that has its factor.

    Embedding and output weights, biases and gains that belong to the default group become groups
    with its schedules.
    """
    first = recipe.param_groups[0]
    if LAYERS[first.role] is not Layer.HIDDEN:
        return recipe
    roles = {group.role for group in recipe.param_groups}
    missing = []
    if Role.EMBEDDING_AND_OUTPUT not in roles:
        has_part = roles & {Role.EMBEDDING, Role.OUTPUT}
        parts = {Role.EMBEDDING, Role.OUTPUT} if has_part else {Role.EMBEDDING_AND_OUTPUT}
        missing = sorted(parts - roles)
    if Role.NO_DECAY not in roles:
        missing += sorted({Role.BIAS, Role.NORM} - roles)
    added = tuple(replace(first, role=role, name=role.value, patterns=()) for role in missing)
    return replace(recipe, param_groups=(*recipe.param_groups, *added))

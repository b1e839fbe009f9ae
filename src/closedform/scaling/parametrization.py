"""Parametrizations: factors of rates, initial deviations and outputs for the shapes of a model."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from typing import Any

import sympy as sp

from closedform.errors import ArgumentError, DefinitionError, describe, nearest
from closedform.language import Group, Schedule, UpdateRule, exact_number
from closedform.language.aliases import Number
from closedform.language.groups import literal_glob
from closedform.recipes.recipe import OptimizerPlan, ParamGroup, Recipe, Role
from closedform.scaling.layers import (
    BLOCKS,
    EMBEDDINGS,
    Model,
    Parameter,
    Shapes,
    layers_of,
)
from closedform.scaling.tables import (
    FAMILIES,
    MUP,
    U_MUP,
    Column,
    Family,
    Layer,
    Powers,
    Table,
    complete_p,
)

PARAMETRIZATIONS = ("mup", "u-mup", "complete-p")
"""The parametrizations by name."""


@dataclass(frozen=True, slots=True)
class ParameterScale:
    """The factors of one parameter.

    Attributes:
        name: Its name.
        layer: Its layer.
        rate: The factor of its learning rate.
        weight_decay: The factor of its weight decay.
        eps: The factor of its eps.
        deviation: The factor of the standard deviation of its initial values.
        multiplier: The factor of the output of its layer.
    """

    name: str
    layer: Layer
    rate: sp.Expr
    weight_decay: sp.Expr
    eps: sp.Expr
    deviation: sp.Expr
    multiplier: sp.Expr

    @property
    def factors(self) -> dict[str, sp.Expr]:
        """The factors of the hyperparameters that are not 1."""
        factors = {"lr": self.rate, "weight_decay": self.weight_decay, "eps": self.eps}
        return {key: factor for key, factor in factors.items() if factor != 1}


@dataclass(frozen=True, slots=True)
class Parametrization:
    """The factors of all parameters of a model.

    Attributes:
        name: The parametrization.
        source: Its publication and table.
        parameters: The factors, in the order of the model.
        residual: The factor of each residual branch.
    """

    name: str
    source: str
    parameters: tuple[ParameterScale, ...]
    residual: sp.Expr = sp.S.One

    def __getitem__(self, name: str) -> ParameterScale:
        """Returns the factors of a parameter.

        Raises:
            DefinitionError: There is no such parameter.
        """
        by_name = {entry.name: entry for entry in self.parameters}
        if name not in by_name:
            raise DefinitionError(
                f"the model has no parameter {name!r}", hint=nearest(name, by_name)
            )
        return by_name[name]

    @property
    def groups(self) -> list[Group]:
        """The groups of parameters whose factors are not all 1, for exports and sessions."""
        return [
            Group(tuple(literal_glob(entry.name) for entry in entries), factors=entries[0].factors)
            for entries in self._by_factors()
            if entries[0].factors
        ]

    def _by_factors(self) -> Iterator[list[ParameterScale]]:
        parts: dict[tuple[Any, ...], list[ParameterScale]] = {}
        for entry in self.parameters:
            parts.setdefault(tuple(entry.factors.items()), []).append(entry)
        yield from parts.values()

    def param_groups(self, model: Model, rule: UpdateRule) -> list[dict[str, Any]]:
        """Returns the param groups of a model for a torch optimizer, with numbers of the rule.

        A hyperparameter that is a schedule is left out: its scheduler needs the factor, which is
        the entry ``lr_scale``.

        Args:
            model: The model; its parameters have the names of ``parameters``.
            rule: The rule whose numbers are multiplied.

        Raises:
            DefinitionError: The model has another parameter.
        """
        tensors = dict(model.named_parameters())
        # Both ways: a parameter without a factor would keep the rate of the base model.
        unknown = sorted(tensors.keys() ^ {entry.name for entry in self.parameters})
        if unknown:
            raise DefinitionError(
                f"the model must have the parameters of the shapes, got a difference: {unknown[0]}"
            )
        groups = []
        for entries in self._by_factors():
            scaled = {
                key: float(number * factor)
                for key, factor in entries[0].factors.items()
                if isinstance(number := rule.hyperparameters.get(key), sp.Expr)
            }
            names = [entry.name for entry in entries]
            groups.append(
                {
                    "params": [tensors[name] for name in names],
                    "param_names": names,
                    "lr_scale": float(entries[0].rate),
                    **scaled,
                }
            )
        return groups

    def recipe(self, recipe: Recipe) -> Recipe:
        """Returns a recipe with a param group for each layer, its rates those of the default group.

        Vectors have the weight decay of the recipe's group without it, where it has one. The
        default group is that of the hidden weights.

        Args:
            recipe: The recipe of the base model, or of one width.
        """
        base = recipe.param_groups[0]
        vectors = next(
            (group for group in recipe.param_groups if group.role in _VECTOR_ROLES), base
        )
        ends = {tuple(entry.factors.items()) for entry in self.parameters if entry.layer in _ENDS}
        # Frameworks such as Megatron have one rate for both ends of a model.
        merged_roles = dict.fromkeys(_ENDS, Role.EMBEDDING_AND_OUTPUT)
        roles = {**_ROLES, **merged_roles} if len(ends) == 1 else _ROLES
        parts: dict[tuple[Any, ...], list[ParameterScale]] = {}
        for entry in self.parameters:
            parts.setdefault((roles[entry.layer], *entry.factors.items()), []).append(entry)
        groups: list[ParamGroup] = []
        for (role, *_), entries in parts.items():
            source = vectors if role is Role.NO_DECAY else base
            count = sum(group.role is role for group in groups)
            groups.append(_scaled_group(source, role, entries, count))
        # False sorts first: the default group.
        groups.sort(key=lambda group: group.role is not Role.DEFAULT)
        return replace(recipe, param_groups=tuple(groups), grouping=None, document=None)


_ROLES: Mapping[Layer, Role] = {
    Layer.HIDDEN: Role.DEFAULT,
    Layer.EMBEDDING: Role.EMBEDDING,
    Layer.OUTPUT: Role.OUTPUT,
    Layer.VECTOR: Role.NO_DECAY,
    Layer.INPUT: Role.NAMED,
    Layer.FIXED: Role.NO_DECAY,
}
_ENDS = (Layer.EMBEDDING, Layer.OUTPUT)
_VECTOR_ROLES = (Role.NO_DECAY, Role.NORM, Role.BIAS)


def _scaled_group(
    source: ParamGroup, role: Role, entries: Sequence[ParameterScale], index: int
) -> ParamGroup:
    factors, layer = entries[0].factors, entries[0].layer
    schedules = {
        key: schedule.scale(factors[key]) if key in factors else schedule
        for key, schedule in source.schedules.items()
    }
    name = layer.value if role is Role.NAMED else role.value
    if role is Role.DEFAULT:
        name = "" if index == 0 else Layer.HIDDEN.value
        role = role if index == 0 else Role.NAMED
    rest = {key: factor for key, factor in factors.items() if key not in schedules}
    return ParamGroup(
        schedules,
        _plan(source.optimizer, rest) if rest else source.optimizer,
        role,
        name if index == 0 else f"{name}_{index}",
        tuple(entry.name for entry in entries),
    )


def _plan(plan: OptimizerPlan, factors: Mapping[str, sp.Expr]) -> OptimizerPlan:
    def build(schedules: Mapping[str, Schedule]) -> UpdateRule:
        rule = plan.build(schedules)
        values = {key: rule.hyperparameters[key] for key in factors if key in rule.hyperparameters}
        return rule.bind(
            **{
                key: value.scale(factors[key])
                if isinstance(value, Schedule)
                else value * factors[key]
                for key, value in values.items()
            }
        )

    return replace(plan, build=build)


def mup(
    model_or_shapes: Model | Shapes,
    base_shapes: Model | Shapes,
    optimizer: UpdateRule,
    *,
    parametrization: str = "mup",
    depths: tuple[int, int] | None = None,
    alpha: Number = 1,
    embeddings: Sequence[str] = EMBEDDINGS,
    blocks: str = BLOCKS,
    scale_decay: bool = True,
) -> Parametrization:
    r"""Returns the factors of a maximal update parametrization for the shapes of a model.

    A learning rate that was tuned at the base shapes is then near the best one at others. With m
    the ratio of a width, for Adam (Tensor Programs V, Table 8):

    .. math:: \eta_{hidden} = \eta / m, \quad \sigma_{hidden} = \sigma / \sqrt{m}, \quad
        y_{output} = W x / m

    Embeddings, biases and gains keep their rates. Attention logits are divided by the size of a
    head, not by its root. The factors of the initial deviation and of the output are for the model.

    Args:
        model_or_shapes: The model, or its shapes by name; a weight has the fan-out first.
        base_shapes: The base model. Dimensions that are equal to it are not widths.
        optimizer: The rule: of the family of Adam, or ``sgd``.
        parametrization: ``mup``; ``u-mup``, whose rates are by the sizes themselves, for Adam; or
            ``complete-p``, which also scales with the depth, for Adam.
        depths: The depth of the base model and of the model; for ``u-mup`` the second one is the
            number of residual branches. None where the depth does not change.
        alpha: The power of the depth in the residual branches, 1/2 to 1, for ``complete-p``.
        embeddings: Globs on the names of embeddings, whose shapes are as of output weights.
        blocks: The pattern of the index of a block in a name, for ``depths``.
        scale_decay: Whether the weight decay is divided by the factor of the rate, so that their
            product remains.

    Raises:
        ArgumentError: There is no such parametrization, or it has no table for the rule.
        DefinitionError: The shapes do not fit, or a number is not in its range.

    Example:
        >>> from closedform.optimizers import adamw
        >>> shapes = {"embed": (10, 256), "h.0.w": (256, 256), "head": (10, 256)}
        >>> base = {"embed": (10, 64), "h.0.w": (64, 64), "head": (10, 64)}
        >>> scales = mup(shapes, base, adamw(lr=1e-2, weight_decay=0.1))
        >>> [(group.params, group.factors) for group in scales.groups]
        [(('h.0.w',), {'lr': 1/4, 'weight_decay': 4})]
        >>> scales["head"].multiplier, scales["h.0.w"].deviation
        (1/4, 1/2)

    Source: Yang et al., Tensor Programs V (2022); Blake et al., u-µP (2024); Dey et al., CompleteP
    (2025).
    """
    if not isinstance(optimizer, UpdateRule):
        raise ArgumentError(f"optimizer must be an UpdateRule, got {describe(optimizer)}")
    table = _table(parametrization, alpha)
    family = FAMILIES.get(optimizer.name)
    if family is None or family not in table.rates:
        raise ArgumentError(
            f"{parametrization} has no rates for the rule {optimizer.name!r}",
            hint=f"its table is for {', '.join(family.value for family in table.rates)}",
        )
    before, after = _depths(depths)
    depth = after if table.is_absolute else after / before
    parameters = layers_of(model_or_shapes, base_shapes, embeddings, blocks)
    scales = tuple(
        _scale(parameter, table, family, optimizer, depth, scale_decay=scale_decay)
        for parameter in parameters
    )
    residual = table.residual.factor(sp.S.One, sp.S.One, depth)
    return Parametrization(parametrization, table.source, scales, residual)


def _table(name: str, alpha: Number) -> Table:
    if name not in PARAMETRIZATIONS:
        raise ArgumentError(
            f"parametrization must be one of {', '.join(PARAMETRIZATIONS)}, got {name!r}",
            hint=nearest(str(name), PARAMETRIZATIONS),
        )
    power = exact_number(alpha, "alpha")
    if not (power.is_Rational and sp.S.Half <= power <= 1):
        raise DefinitionError(f"alpha must be a rational number from 1/2 to 1, got {alpha!r}")
    return {"mup": MUP, "u-mup": U_MUP, "complete-p": complete_p(power)}[name]


def _depths(depths: tuple[int, int] | None) -> tuple[sp.Integer, sp.Integer]:
    if depths is None:
        return sp.S.One, sp.S.One
    numbers = tuple(exact_number(depth, "a depth") for depth in depths)
    if len(numbers) != 2 or not all(number.is_Integer and number > 0 for number in numbers):
        raise DefinitionError(f"depths must be two integers above 0, got {depths!r}")
    return numbers[0], numbers[1]


def _scale(
    parameter: Parameter,
    table: Table,
    family: Family,
    rule: UpdateRule,
    depth: sp.Expr,
    *,
    scale_decay: bool,
) -> ParameterScale:
    fan_in, fan_out = parameter.fan_in, parameter.fan_out
    if table.is_absolute:
        fan_in, fan_out = map(sp.Integer, parameter.sizes)
    # Embeddings and output weights are outside of the residual stream's sum.
    own_depth = depth if parameter.is_in_block else sp.S.One

    def factor(column: Column) -> sp.Expr:
        powers = column.get(parameter.layer, Powers())
        return powers.factor(fan_in, fan_out, own_depth)

    rate = factor(table.rates[family])
    has_decay = scale_decay and "weight_decay" in rule.hyperparameters
    width_rate = replace(
        table.rates[family].get(parameter.layer, Powers()), depth=sp.S.Zero
    ).factor(fan_in, fan_out, sp.S.One)
    return ParameterScale(
        parameter.name,
        parameter.layer,
        rate,
        # A decoupled decay shrinks weights by rate·decay in a step; with 1/rate that is the same
        # for all widths.
        1 / width_rate if has_decay else sp.S.One,
        factor(table.epsilons) if "eps" in rule.hyperparameters else sp.S.One,
        factor(table.deviations),
        factor(table.multipliers),
    )

"""Rules for the learning rate and the moments at another batch size."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from types import MappingProxyType

import sympy as sp

from closedform.errors import ArgumentError, DefinitionError, nearest
from closedform.language import exact_number
from closedform.language.aliases import Number


@dataclass(frozen=True, slots=True)
class BatchRule:
    """A rule of the learning rate.

    Attributes:
        power: The power of the ratio of the batch sizes that the rate is multiplied by.
        source: The publication.
        has_sde_moments: Whether the moments follow the stochastic differential equation, too.
        is_critical: Whether the critical batch size decides, not a power.
    """

    power: sp.Rational
    source: str
    has_sde_moments: bool = False
    is_critical: bool = False


BATCH_RULES: Mapping[str, BatchRule] = MappingProxyType(
    {
        "none": BatchRule(sp.S.Zero, "the rate is kept"),
        # Section 2.1: the minibatch is multiplied by k, and so is the learning rate.
        "linear": BatchRule(sp.S.One, "Goyal et al. 2017, arXiv:1706.02677"),
        "sqrt": BatchRule(sp.S.Half, "Malladi et al. 2022, arXiv:2205.10287"),
        # Definition 5.2: also 1 - beta times k, and eps over the root of k.
        "sde": BatchRule(sp.S.Half, "Malladi et al. 2022, arXiv:2205.10287", True),
        # Equation 2.6: the best rate is that of large batches over 1 + B_noise / B.
        "critical": BatchRule(
            sp.S.Zero, "McCandlish et al. 2018, arXiv:1812.06162", is_critical=True
        ),
    }
)
"""The rules by name."""

SCALINGS = tuple(
    name for name, rule in BATCH_RULES.items() if not (rule.is_critical or rule.has_sde_moments)
)
"""The rules of a learning rate that need only the ratio of the batch sizes."""


def batch_rule(name: str) -> BatchRule:
    """Returns a rule.

    Raises:
        ArgumentError: There is none of this name.
    """
    if name not in BATCH_RULES:
        raise ArgumentError(
            f"rule must be one of {', '.join(BATCH_RULES)}, got {name!r}",
            hint=nearest(str(name), BATCH_RULES),
        )
    return BATCH_RULES[name]


def rate_factor(rule: BatchRule, ratio: sp.Expr) -> sp.Expr:
    """Returns the factor of the learning rate for a ratio of batch sizes, by a power.

    Example:
        >>> rate_factor(BATCH_RULES["sqrt"], sp.Integer(4))
        2
    """
    return ratio**rule.power


def critical_factor(ratio: sp.Expr, batch: sp.Expr, critical: sp.Expr) -> sp.Expr:
    """Returns the factor of the best rate, ``e / (1 + C / B)``, for a ratio of batch sizes.

    Example:
        >>> critical_factor(sp.Integer(4), sp.Integer(100), sp.Integer(400))
        5/2
    """
    return (1 + critical / batch) / (1 + critical / (ratio * batch))


def positive_ratio(value: Number, name: str) -> sp.Rational:
    """Returns a rational factor above 0.

    Raises:
        DefinitionError: It is not one.
    """
    number = exact_number(value, name)
    if not (number.is_Rational and number > 0):
        raise DefinitionError(f"{name} must be a rational number above 0, got {value!r}")
    return number


def half_life_moment(beta: sp.Expr, ratio: sp.Rational) -> sp.Expr:
    """Returns the decay rate with the same half-life in tokens.

    Example:
        >>> half_life_moment(sp.Rational(9, 10), sp.Integer(2))
        81/100
    """
    return beta**ratio


def sde_moment(beta: sp.Expr, ratio: sp.Rational) -> sp.Expr:
    """Returns the decay rate of the same stochastic differential equation.

    Example:
        >>> sde_moment(sp.Rational(9, 10), sp.Integer(2))
        4/5
    """
    return 1 - ratio * (1 - beta)

"""Tables of parametrizations: the power of the width and of the depth of each quantity by layer.

A quantity of a parameter is multiplied by ``fan_in**a * fan_out**b * depth**c``, where each is the
ratio to the base model, or the number itself in an absolute parametrization.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from enum import StrEnum
from types import MappingProxyType

import sympy as sp

_HALF = sp.S.Half


class Layer(StrEnum):
    """The kind of a parameter by its dimensions that grow with the width.

    ``INPUT`` and ``EMBEDDING`` have a width as fan-out only, ``OUTPUT`` as fan-in only, ``HIDDEN``
    as both; ``VECTOR`` is a bias or a gain; ``FIXED`` has no width.
    """

    INPUT = "input"
    EMBEDDING = "embedding"
    HIDDEN = "hidden"
    OUTPUT = "output"
    VECTOR = "vector"
    FIXED = "fixed"


class Family(StrEnum):
    """The size of an update by the gradient: that of Adam does not depend on its scale."""

    ADAM = "adam"
    SGD = "sgd"


FAMILIES: Mapping[str, Family] = MappingProxyType(
    {
        **dict.fromkeys(
            (
                "adabelief",
                "adam",
                "adamax",
                "adamw",
                "adan",
                "ademamix",
                "adopt",
                "laprop",
                "lion",
                "nadam",
                "qhadam",
                "radam",
                "rmsprop",
                "signum",
                "tiger",
            ),
            Family.ADAM,
        ),
        "sgd": Family.SGD,
    }
)
"""The family of a rule by its name. The updates of Lion, Signum and Tiger are signs."""


@dataclass(frozen=True, slots=True)
class Powers:
    """The powers of the ratios that a quantity is multiplied by.

    Attributes:
        fan_in: The power of the fan-in.
        fan_out: The power of the fan-out.
        depth: The power of the depth, for the parameters of blocks.
    """

    fan_in: sp.Rational = sp.S.Zero
    fan_out: sp.Rational = sp.S.Zero
    depth: sp.Rational = sp.S.Zero

    def factor(self, fan_in: sp.Expr, fan_out: sp.Expr, depth: sp.Expr) -> sp.Expr:
        """Returns the exact factor for ratios.

        Example:
            >>> Powers(fan_in=-1).factor(sp.Integer(4), sp.Integer(2), sp.S.One)
            1/4
        """
        return fan_in**self.fan_in * fan_out**self.fan_out * depth**self.depth


_NONE = Powers()
Column = Mapping[Layer, Powers]
"""A quantity by layer; a layer that is missing keeps it."""


@dataclass(frozen=True, slots=True)
class Table:
    """A parametrization.

    Attributes:
        source: The publication, with the number of its table.
        rates: The learning rate, by family and layer.
        deviations: The standard deviation of the initial weights.
        multipliers: The factor of the layer's output.
        epsilons: The eps of Adam.
        residual: The factor of a residual branch.
        is_absolute: Whether fan-in, fan-out and depth count themselves instead of their ratios.
    """

    source: str
    rates: Mapping[Family, Column]
    deviations: Column
    multipliers: Column
    epsilons: Column = field(default_factory=dict)
    residual: Powers = _NONE
    is_absolute: bool = False


# Yang et al. 2022, Tensor Programs V, arXiv:2203.03466, Table 8. The variance of hidden weights is
# 1/fan_in, and 1 for output weights, whose multiplier is 1/fan_in.
_MUP_RATES: Mapping[Family, Column] = MappingProxyType(
    {
        Family.ADAM: {Layer.HIDDEN: Powers(fan_in=-sp.S.One)},
        Family.SGD: {
            Layer.INPUT: Powers(fan_out=sp.S.One),
            Layer.EMBEDDING: Powers(fan_out=sp.S.One),
            Layer.VECTOR: Powers(fan_out=sp.S.One),
            Layer.OUTPUT: Powers(fan_in=sp.S.One),
            # The table has 1, for one ratio of all widths; this is the general form (mup 1.0,
            # optim.py, fanin_fanout_mult_ratio).
            Layer.HIDDEN: Powers(fan_in=-sp.S.One, fan_out=sp.S.One),
        },
    }
)
_MUP_DEVIATIONS: Column = MappingProxyType({Layer.HIDDEN: Powers(fan_in=-_HALF)})
_MUP_MULTIPLIERS: Column = MappingProxyType({Layer.OUTPUT: Powers(fan_in=-sp.S.One)})

MUP = Table(
    "Yang et al. 2022, arXiv:2203.03466, Table 8", _MUP_RATES, _MUP_DEVIATIONS, _MUP_MULTIPLIERS
)


def complete_p(alpha: sp.Expr) -> Table:
    """Returns CompleteP, or another power of the depth in the residual branches.

    Args:
        alpha: The power, from 1/2 to 1; 1 is CompleteP.
    """
    # Dey et al. 2025, arXiv:2505.01618, Table 1: the rates of hidden weights, biases and norms have
    # depth^(alpha - 1), eps has width^-1, and depth^-alpha in the blocks.
    deep = Powers(depth=alpha - 1)
    return Table(
        "Dey et al. 2025, arXiv:2505.01618, Table 1",
        {
            Family.ADAM: {
                Layer.HIDDEN: Powers(fan_in=-sp.S.One, depth=alpha - 1),
                Layer.VECTOR: deep,
                Layer.FIXED: deep,
            }
        },
        _MUP_DEVIATIONS,
        _MUP_MULTIPLIERS,
        {
            Layer.HIDDEN: Powers(fan_in=-sp.S.One, depth=-alpha),
            Layer.VECTOR: Powers(fan_out=-sp.S.One, depth=-alpha),
            Layer.INPUT: Powers(fan_out=-sp.S.One),
            Layer.EMBEDDING: Powers(fan_out=-sp.S.One),
            Layer.OUTPUT: Powers(fan_in=-sp.S.One),
        },
        Powers(depth=-alpha),
    )


# Blake et al. 2024, u-µP, arXiv:2407.17465, Table 2; the depth is the number of residual branches
# (unit_scaling 0.3, optim.py, lr_scale_for_depth and lr_scale_func_adam).
U_MUP = Table(
    "Blake et al. 2024, arXiv:2407.17465, Table 2",
    {
        Family.ADAM: {
            Layer.INPUT: Powers(fan_in=-_HALF),
            Layer.EMBEDDING: Powers(fan_out=-_HALF),
            Layer.HIDDEN: Powers(fan_in=-_HALF, depth=-_HALF),
            Layer.VECTOR: Powers(depth=-_HALF),
            Layer.FIXED: Powers(depth=-_HALF),
        }
    },
    # Unit Scaling: every weight begins with the deviation 1.
    {},
    {
        Layer.INPUT: Powers(fan_in=-_HALF),
        Layer.HIDDEN: Powers(fan_in=-_HALF),
        Layer.OUTPUT: Powers(fan_in=-sp.S.One),
    },
    is_absolute=True,
)

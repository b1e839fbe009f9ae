"""The laws: each is one declaration, in the notation of its paper."""

from __future__ import annotations

from collections.abc import Mapping

import sympy as sp

from closedform.errors import ArgumentError, UnknownNameError, nearest
from closedform.laws.law import (
    AFTER,
    COUNT,
    PREVIOUS,
    RATE,
    TAIL,
    TAIL_SQUARES,
    TOTAL,
    TOTAL_SQUARES,
    Law,
    Summation,
)

_L0, _A, _ALPHA = sp.symbols("L0 A alpha", positive=True)
_B, _C, _BETA, _GAMMA = sp.symbols("B C beta gamma", positive=True)
_LAMBDA = sp.Symbol("lambda", positive=True)
_D, _G = sp.symbols("D G", positive=True)
_DROP, _ANNEALED, _NOISE = sp.symbols("LD S2 N", real=True)

_MULTI_POWER = Law(
    name="multi_power",
    title="Multi-Power Law",
    loss=_L0 + _A * TOTAL**-_ALPHA - _B * _DROP,
    sums=(
        Summation(
            _DROP,
            (PREVIOUS - RATE) * (1 - (_C * RATE**-_GAMMA * TAIL + 1) ** -_BETA),
            is_of_changes=True,
        ),
    ),
    parameters=(_L0, _A, _ALPHA, _B, _C, _BETA, _GAMMA),
    # src/config.py of the authors' code: Llama-2 models of these sizes, fitted on three curves.
    published={
        size: dict(zip(("L0", "A", "alpha", "B", "C", "beta", "gamma"), numbers, strict=True))
        for size, numbers in {
            "25M": (
                3.04045406,
                0.52468604,
                0.50786857,
                363.78751622,
                2.06560812,
                0.58279013,
                0.64142257,
            ),
            "100M": (
                2.6514477,
                0.60115152,
                0.45295811,
                437.9464276,
                2.13245612,
                0.59785199,
                0.65523644,
            ),
            "400M": (
                2.37474466,
                0.65421216,
                0.42878731,
                523.42464371,
                2.02462735,
                0.59350493,
                0.63472457,
            ),
        }.items()
    },
    # src/fitting.py of the authors' code; B is the middle of its three values.
    start={"B": 550, "C": 1, "beta": 0.5, "gamma": 0.5},
    source="Luo et al., arXiv 2503.12811; github.com/thu-yao-01-luo/MultiPowerLaw",
)

_MOMENTUM = Law(
    name="momentum",
    title="Scaling law with learning rate annealing",
    loss=_L0 + _A * TOTAL**-_ALPHA - _C * _ANNEALED,
    # The momentum m_i = lambda*m_(i-1) + eta_(i-1) - eta_i of the paper, summed over i: a change of
    # the rate at update k counts 1 + lambda + … once for each update from k on.
    sums=(
        Summation(
            _ANNEALED,
            (PREVIOUS - RATE) * (1 - _LAMBDA**COUNT) / (1 - _LAMBDA),
            is_of_changes=True,
        ),
    ),
    parameters=(_L0, _A, _ALPHA, _C, _LAMBDA),
    published={},
    source="Tissue et al., arXiv 2408.11029",
    defaults={"lambda": 0.999},
    below={"lambda": 1},
    start={"C": 0.5},
)

_LAST_ITERATE = Law(
    name="last_iterate",
    title="Convex suboptimality bound of the last iterate",
    loss=(_D**2 + _G**2 * TOTAL_SQUARES) / (2 * TOTAL) + _G**2 * _NOISE / 2,
    sums=(Summation(_NOISE, RATE / AFTER * TAIL_SQUARES / TAIL),),
    parameters=(_D, _G),
    # D is the distance of the start from the optimum, G a bound of the gradients: 1 in the paper.
    published={"unit": {"D": 1, "G": 1}},
    start={"D": 1, "G": 1},
    source="Schaipp et al., arXiv 2501.18965, theorem 1; github.com/fabian-sp/lr-scheduling",
)

LAWS: Mapping[str, Law] = {law.name: law for law in (_MULTI_POWER, _MOMENTUM, _LAST_ITERATE)}
"""The laws by name."""


def law_of(law: str | Law) -> Law:
    """Returns a law by its name, or the law itself.

    Raises:
        UnknownNameError: There is no law of this name.
        ArgumentError: It is neither a law nor a name.
    """
    if isinstance(law, Law):
        return law
    if not isinstance(law, str):
        raise ArgumentError(f"law must be a name or a Law, got {type(law).__name__}", where="law")
    if law not in LAWS:
        raise UnknownNameError(
            f"there is no law {law!r}, got {', '.join(LAWS)}", hint=nearest(law, LAWS)
        )
    return LAWS[law]

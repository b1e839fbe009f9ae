"""Recipes for another batch size, number of tokens or width, with invariants that are proved."""

from closedform.analysis.rescaling.clock import dilate, dilated_length
from closedform.analysis.rescaling.invariants import INVARIANTS
from closedform.analysis.rescaling.rescale import Invariance, Rescaled, rescale
from closedform.analysis.rescaling.rules import (
    BATCH_RULES,
    SCALINGS,
    batch_rule,
    positive_ratio,
    rate_factor,
)

__all__ = [
    "BATCH_RULES",
    "INVARIANTS",
    "SCALINGS",
    "Invariance",
    "Rescaled",
    "batch_rule",
    "dilate",
    "dilated_length",
    "positive_ratio",
    "rate_factor",
    "rescale",
]

"""Transforms: each makes a rule of a rule, and they compose.

The outermost transform sees the gradient that the step is given; each hands its own to the one
inside. ``skip_nonfinite(clip_by_global_norm(rule, 1))`` tests the gradient as it comes.

Example:
    >>> from closedform.optimizers import sgd
    >>> clip_by_value(sgd(lr=1), 2).definitions
    {'gradient_1': Max(-2, Min(2, grad))}
"""

from typing import NoReturn

from closedform.errors import unknown_attribute
from closedform.language.partitions import Partition, partition
from closedform.transforms.averaging import lookahead, weight_average
from closedform.transforms.gradients import (
    accumulate,
    clip_by_global_norm,
    clip_by_unit_norm,
    clip_by_value,
    grokfast,
)
from closedform.transforms.masks import cautious, mask_weight_decay, sparsify, states_to_sparsify
from closedform.transforms.precision import (
    dynamic_loss_scaling,
    kahan,
    loss_scaling,
    master_weights,
    sixteen_bit_states,
    skip_nonfinite,
    stochastic_rounding,
)
from closedform.transforms.quantized_states import eight_bit_states, four_bit_states
from closedform.transforms.sharpness import sam
from closedform.transforms.spheres import hyperball

__all__ = [
    "Partition",
    "accumulate",
    "cautious",
    "clip_by_global_norm",
    "clip_by_unit_norm",
    "clip_by_value",
    "dynamic_loss_scaling",
    "eight_bit_states",
    "four_bit_states",
    "grokfast",
    "hyperball",
    "kahan",
    "lookahead",
    "loss_scaling",
    "mask_weight_decay",
    "master_weights",
    "partition",
    "sam",
    "sixteen_bit_states",
    "skip_nonfinite",
    "sparsify",
    "states_to_sparsify",
    "stochastic_rounding",
    "weight_average",
]


def __getattr__(name: str) -> NoReturn:
    raise unknown_attribute(__name__, name, __all__)


def __dir__() -> list[str]:
    return sorted(__all__)

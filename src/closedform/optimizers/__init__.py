"""The library of optimizers: one function per rule, with named choices where frameworks differ.

Example:
    >>> sgd(lr=0.1, momentum=0.9).states["momentum_buffer"].next
    grad + momentum*state.momentum_buffer
"""

from typing import TYPE_CHECKING, NoReturn

from closedform.errors import unknown_attribute
from closedform.optimizers.adagrad import adadelta, adagrad, rmsprop, sm3
from closedform.optimizers.adam import adam, adamax, adamw, nadam, radam
from closedform.optimizers.adam_mini import adam_mini
from closedform.optimizers.adam_variants import adabound, grams, qhadam
from closedform.optimizers.adamuon import adamuon
from closedform.optimizers.dion import dion
from closedform.optimizers.distances import dog, dowg
from closedform.optimizers.dual_averaging import ftrl, madgrad
from closedform.optimizers.factored import adafactor, came
from closedform.optimizers.first_moments import adan, ademamix, mars
from closedform.optimizers.kron import kron
from closedform.optimizers.layerwise import fromage, lamb, lars, novograd
from closedform.optimizers.learning_rate_free import d_adapt_adam, d_adapt_sgd, prodigy
from closedform.optimizers.momenta import aggmo, pid
from closedform.optimizers.momo import momo
from closedform.optimizers.muon import muon
from closedform.optimizers.normuon import normuon
from closedform.optimizers.projected import adamp, sgdp
from closedform.optimizers.schedule_free import (
    schedule_free_adamw,
    schedule_free_radam,
    schedule_free_sgd,
)
from closedform.optimizers.scion import scion
from closedform.optimizers.second_moments import (
    acprop,
    adabelief,
    adopt,
    laprop,
    stable_adamw,
    yogi,
)
from closedform.optimizers.sgd import asgd, sgd
from closedform.optimizers.shampoo import shampoo
from closedform.optimizers.sign_descent import lion, rprop, signum, tiger
from closedform.optimizers.soap import soap
from closedform.optimizers.sophia import sophia
from closedform.optimizers.spam import spam
from closedform.optimizers.weight_decays import (
    adamc,
    adams,
    decoupled_adamw,
    decoupled_lionw,
    decoupled_sgdw,
)

__all__ = [
    "acprop",
    "adabelief",
    "adabound",
    "adadelta",
    "adafactor",
    "adagrad",
    "adam",
    "adam_mini",
    "adamax",
    "adamc",
    "adamp",
    "adams",
    "adamuon",
    "adamw",
    "adan",
    "ademamix",
    "adopt",
    "aggmo",
    "asgd",
    "came",
    "d_adapt_adam",
    "d_adapt_sgd",
    "decoupled_adamw",
    "decoupled_lionw",
    "decoupled_sgdw",
    "dion",
    "dog",
    "dowg",
    "fromage",
    "ftrl",
    "grams",
    "kron",
    "lamb",
    "laprop",
    "lars",
    "lion",
    "madgrad",
    "mars",
    "momo",
    "muon",
    "nadam",
    "normuon",
    "novograd",
    "pid",
    "prodigy",
    "qhadam",
    "radam",
    "rmsprop",
    "rprop",
    "schedule_free_adamw",
    "schedule_free_radam",
    "schedule_free_sgd",
    "scion",
    "sgd",
    "sgdp",
    "shampoo",
    "signum",
    "sm3",
    "soap",
    "sophia",
    "spam",
    "stable_adamw",
    "tiger",
    "yogi",
]


if not TYPE_CHECKING:  # type checkers report unknown names themselves

    def __getattr__(name: str) -> NoReturn:
        raise unknown_attribute(__name__, name, __all__)


def __dir__() -> list[str]:
    return sorted(__all__)

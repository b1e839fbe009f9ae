"""The library of optimizers: one function per rule, with named choices where frameworks differ."""

from closedform.optimizers.adagrad import adadelta, adagrad, rmsprop, sm3
from closedform.optimizers.adam import adam, adamax, adamw, nadam, radam
from closedform.optimizers.factored import adafactor, came
from closedform.optimizers.first_moments import adan, ademamix, mars
from closedform.optimizers.layerwise import lamb, lars, novograd
from closedform.optimizers.learning_rate_free import d_adapt_adam, d_adapt_sgd, prodigy
from closedform.optimizers.muon import muon
from closedform.optimizers.schedule_free import (
    schedule_free_adamw,
    schedule_free_radam,
    schedule_free_sgd,
)
from closedform.optimizers.second_moments import adabelief, adopt, laprop, stable_adamw, yogi
from closedform.optimizers.sgd import asgd, sgd
from closedform.optimizers.sign_descent import lion, rprop, signum, tiger
from closedform.optimizers.sophia import sophia

__all__ = [
    "adabelief",
    "adadelta",
    "adafactor",
    "adagrad",
    "adam",
    "adamax",
    "adamw",
    "adan",
    "ademamix",
    "adopt",
    "asgd",
    "came",
    "d_adapt_adam",
    "d_adapt_sgd",
    "lamb",
    "laprop",
    "lars",
    "lion",
    "mars",
    "muon",
    "nadam",
    "novograd",
    "prodigy",
    "radam",
    "rmsprop",
    "rprop",
    "schedule_free_adamw",
    "schedule_free_radam",
    "schedule_free_sgd",
    "sgd",
    "signum",
    "sm3",
    "sophia",
    "stable_adamw",
    "tiger",
    "yogi",
]


def __dir__() -> list[str]:
    return sorted(__all__)

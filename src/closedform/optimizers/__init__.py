"""The library of optimizers: one function per rule, with named choices where frameworks differ."""

from closedform.optimizers.adabelief import adabelief
from closedform.optimizers.adadelta import adadelta
from closedform.optimizers.adafactor import adafactor
from closedform.optimizers.adagrad import adagrad
from closedform.optimizers.adam import adam, adamw
from closedform.optimizers.adamax import adamax
from closedform.optimizers.adan import adan
from closedform.optimizers.ademamix import ademamix
from closedform.optimizers.adopt import adopt
from closedform.optimizers.asgd import asgd
from closedform.optimizers.came import came
from closedform.optimizers.d_adaptation import d_adapt_adam, d_adapt_sgd
from closedform.optimizers.lamb import lamb
from closedform.optimizers.laprop import laprop
from closedform.optimizers.lars import lars
from closedform.optimizers.lion import lion
from closedform.optimizers.mars import mars
from closedform.optimizers.muon import muon
from closedform.optimizers.nadam import nadam
from closedform.optimizers.novograd import novograd
from closedform.optimizers.prodigy import prodigy
from closedform.optimizers.radam import radam
from closedform.optimizers.rmsprop import rmsprop
from closedform.optimizers.rprop import rprop
from closedform.optimizers.schedule_free import (
    schedule_free_adamw,
    schedule_free_radam,
    schedule_free_sgd,
)
from closedform.optimizers.sgd import sgd
from closedform.optimizers.signum import signum, tiger
from closedform.optimizers.sm3 import sm3
from closedform.optimizers.sophia import sophia
from closedform.optimizers.stable_adamw import stable_adamw
from closedform.optimizers.yogi import yogi

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

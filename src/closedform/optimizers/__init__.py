"""The library of optimizers: one function per rule, with named choices where systems differ."""

from closedform.optimizers.adadelta import adadelta
from closedform.optimizers.adagrad import adagrad
from closedform.optimizers.adam import adam, adamw
from closedform.optimizers.adamax import adamax
from closedform.optimizers.asgd import asgd
from closedform.optimizers.lamb import lamb
from closedform.optimizers.lion import lion
from closedform.optimizers.nadam import nadam
from closedform.optimizers.radam import radam
from closedform.optimizers.rmsprop import rmsprop
from closedform.optimizers.rprop import rprop
from closedform.optimizers.sgd import sgd

__all__ = [
    "adadelta",
    "adagrad",
    "adam",
    "adamax",
    "adamw",
    "asgd",
    "lamb",
    "lion",
    "nadam",
    "radam",
    "rmsprop",
    "rprop",
    "sgd",
]

"""The library of optimizers: one function per rule, with named choices where systems differ."""

from closedform.optimizers.adagrad import adagrad
from closedform.optimizers.adam import adam, adamw
from closedform.optimizers.adamax import adamax
from closedform.optimizers.lion import lion
from closedform.optimizers.rmsprop import rmsprop
from closedform.optimizers.sgd import sgd

__all__ = ["adagrad", "adam", "adamax", "adamw", "lion", "rmsprop", "sgd"]

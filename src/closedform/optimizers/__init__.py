"""The library of optimizers: one function per rule, with named choices where systems differ."""

from closedform.optimizers.adam import adam, adamw
from closedform.optimizers.sgd import sgd

__all__ = ["adam", "adamw", "sgd"]

"""The types of the keys of a section: each names the quantity of a value, and its unit."""

from __future__ import annotations

from collections.abc import Callable
from enum import StrEnum
from typing import Annotated, TypeAlias, TypeVar

import sympy as sp

T = TypeVar("T")


class Quantity(StrEnum):
    """The quantity of a number in a config, with its unit."""

    RATE = "learning rate"
    START_RATE = "learning rate that a warmup begins with"
    END_RATE = "learning rate that a decay ends with"
    RATE_RATIO = "ratio to the learning rate"
    RUN_RATIO = "part of the run"
    STEPS = "updates"
    EPOCHS = "epochs"
    SAMPLES = "samples"
    TOKENS = "tokens"
    BATCH_SIZE = "samples of an update"
    ACCUMULATION = "micro-batches of an update"
    SEQUENCE_LENGTH = "tokens of a sample"
    WEIGHT_DECAY = "weight decay"
    MOMENTUM = "momentum, or decay rate of a moment"
    EPSILON = "term of a denominator"
    NORM = "largest norm or entry of a gradient"
    POWER = "exponent of a decay"


Number = sp.Expr
"""A finite number, read exactly."""
Numbers = tuple[sp.Expr, ...]
NumberOrNumbers: TypeAlias = sp.Expr | tuple[sp.Expr, ...]
"""A number, or a tuple of them: one for each param group."""
Rate = Annotated[sp.Expr, Quantity.RATE]
Rates = Annotated[tuple[sp.Expr, ...], Quantity.RATE]
RateOrRates = Annotated[NumberOrNumbers, Quantity.RATE]
StartRate = Annotated[sp.Expr, Quantity.START_RATE]
EndRate = Annotated[sp.Expr, Quantity.END_RATE]
RateRatio = Annotated[sp.Expr, Quantity.RATE_RATIO]
RunRatio = Annotated[sp.Expr, Quantity.RUN_RATIO]
Steps = Annotated[int, Quantity.STEPS]
RealSteps = Annotated[sp.Expr, Quantity.STEPS]
"""Updates, which may be a part of one."""
Epochs = Annotated[int, Quantity.EPOCHS]
RealEpochs = Annotated[sp.Expr, Quantity.EPOCHS]
"""Epochs, which may be a part of one."""
Samples = Annotated[int, Quantity.SAMPLES]
RealSamples = Annotated[sp.Expr, Quantity.SAMPLES]
Tokens = Annotated[int, Quantity.TOKENS]
BatchSize = Annotated[int, Quantity.BATCH_SIZE]
Accumulation = Annotated[int, Quantity.ACCUMULATION]
SequenceLength = Annotated[int, Quantity.SEQUENCE_LENGTH]
WeightDecay = Annotated[sp.Expr, Quantity.WEIGHT_DECAY]
Momentum = Annotated[sp.Expr, Quantity.MOMENTUM]
Momenta = Annotated[tuple[sp.Expr, ...], Quantity.MOMENTUM]
Epsilon = Annotated[sp.Expr, Quantity.EPSILON]
Norm = Annotated[sp.Expr, Quantity.NORM]
Power = Annotated[sp.Expr, Quantity.POWER]
WhereNeeded = Callable[[], T]
"""A value that is read when it is called, so that one that is not determined may stand unused."""

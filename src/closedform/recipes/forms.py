"""The form of a learning rate that frameworks have: a rise, a plateau, one decay."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass
from enum import StrEnum
from typing import Any

import sympy as sp


class Curve(StrEnum):
    """The curve of the decay."""

    CONSTANT = "constant"
    LINEAR = "linear"
    COSINE = "cosine"
    INVERSE_ROOT = "inverse root"


@dataclass(frozen=True, slots=True)
class Rise:
    """A line that the values begin with: ``start + slope t``.

    Attributes:
        start: Its value at t = 0, also where it begins later.
        slope: What an update adds.
        begin: The first update on it: 0, or 1 where update 0 has the value of update 1.
        end: The first update that is no longer on it.
    """

    start: sp.Expr
    slope: sp.Expr
    begin: int
    end: int


@dataclass(frozen=True, slots=True)
class Form:
    """A rise, the peak, and a decay.

    The decay is ``low + (peak - low) c(s)`` with s = (t - begin) / (end - begin), where c is 1 - s
    for a line and (1 + cos(pi s)) / 2 for a cosine; for an inverse root it is
    ``peak sqrt(end / (t - begin))``, where begin and end are the shift and the scale.

    Attributes:
        rise: The line before it, None for none.
        peak: The value at ``begin``.
        low: The value at ``end``.
        begin: Where the decay begins, perhaps between two updates.
        end: Where it ends.
        curve: Its curve.
        first: The first update on it.
        total: The updates of the run.
    """

    rise: Rise | None
    peak: sp.Expr
    low: sp.Expr
    begin: sp.Expr
    end: sp.Expr
    curve: Curve
    first: int
    total: int

    def warmup(self, clock: int = 0) -> sp.Expr:
        """Returns the length of the rise to the peak, by a clock that counts ``t + clock``.

        Without a rise it is 0.
        """
        if self.rise is None:
            return sp.S.Zero
        return (self.peak - self.rise.start) / self.rise.slope + clock

    def at(self, clock: int = 0) -> sp.Expr:
        """Returns the value of the rise where a clock that counts ``t + clock`` is 0."""
        if self.rise is None:
            return sp.S.Zero
        return self.rise.start - clock * self.rise.slope

    @property
    def has_plateau(self) -> bool:
        """Whether updates at the peak are between the rise and the decay."""
        return self.curve is not Curve.CONSTANT and self.begin > self.warmup()


Config = Mapping[str, Any]


@dataclass(frozen=True, slots=True)
class Optimizer:
    """An optimizer as writers need it.

    Attributes:
        name: The rule of the library; empty where it has none.
        values: Its hyperparameters: ``betas``, ``eps``, ``momentum``.
        weight_decay: Its weight decay, None for none.
        clipping: The largest norm of the gradients, None for none.
    """

    name: str
    values: Mapping[str, Any]
    weight_decay: Any
    clipping: Any


@dataclass(frozen=True, slots=True)
class Writer:
    """The writer of a framework's configs.

    Attributes:
        suffix: The ending of its files: ``.yaml``, ``.json``, ``.toml`` or ``.args``.
        configs: From a form, the optimizer and the facts to configs that may have that form, the
            likeliest first. Each is read back and compared: a wrong one does no harm.
        facts: Facts to read them back with, for a number that a config does not determine.
        optimizers: The rules of the library that it has a name for.
    """

    suffix: str
    configs: Callable[[Form, Optimizer, Mapping[str, Any]], Iterator[Config]]
    facts: Mapping[str, Any]
    optimizers: tuple[str, ...]


def native(value: Any) -> Any:
    """Returns a number as a config has it: an integer, or the nearest float.

    Example:
        >>> native(sp.Rational(1, 4)), native(sp.Integer(3))
        (0.25, 3)
    """
    if isinstance(value, int | float):
        return value
    return int(value) if value.is_Integer else float(value)


def whole(value: sp.Expr) -> int:
    """Returns the nearest integer.

    Example:
        >>> whole(sp.Rational(7, 4))
        2
    """
    return int(sp.floor(value + sp.S.Half))

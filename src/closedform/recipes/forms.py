"""The forms that learning rates have in configs, and the inputs of a framework's writer."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass, field
from enum import StrEnum
from typing import Any

import sympy as sp

from closedform.recipes.recipe import Clipping, OptimizerPlan


class CurveName(StrEnum):
    """The curve of a segment, or of a decay."""

    CONSTANT = "constant"
    LINEAR = "linear"
    COSINE = "cosine"
    INVERSE_ROOT = "inverse root"
    POWER = "polynomial"
    ROOT = "1 - sqrt"
    EXPONENTIAL = "exponential"
    LOGARITHM = "logarithmic"
    STEPS = "multistep"
    SEQUENCE = "piecewise"


@dataclass(frozen=True, slots=True)
class CurveSegment:
    """The values from ``first`` on, before ``end``, along one curve.

    With x = t, or ``stride * floor(t / stride)`` for a clock that counts epochs, the value is by
    its curve and its ``numbers``:

    - constant: (a): a
    - linear: (a, b): a + b x
    - cosine: (a, b, begin, length): a + b cos(pi (x - begin) / length)
    - inverse root: (a, begin, scale): a sqrt(scale / (x - begin))
    - polynomial: (a, b, c, d, p): a + b (c + d x)**p, where d is 1 or -1
    - exponential: (a, b, c): a + b exp(c x)
    - logarithmic: (a, b, c): a + b log(x + c)

    Attributes:
        first: The first update on it.
        end: The first update after it, None for no end.
        curve: Its curve.
        numbers: The parameters of the curve.
        stride: The updates that have the same value.
    """

    first: int
    end: int | None
    curve: CurveName
    numbers: tuple[sp.Expr, ...]
    stride: int = 1

    def value(self, step: int) -> sp.Expr:
        """Returns the value at an update.

        Example:
            >>> CurveSegment(0, None, CurveName.LINEAR, (sp.Integer(1), sp.Integer(2))).value(3)
            7
        """
        x = step - step % self.stride
        match self.curve:
            case CurveName.CONSTANT:
                return self.numbers[0]
            case CurveName.LINEAR:
                return self.numbers[0] + self.numbers[1] * x
            case CurveName.COSINE:
                middle, size, begin, length = self.numbers
                return middle + size * sp.cos(sp.pi * (x - begin) / length)
            case CurveName.INVERSE_ROOT:
                peak, begin, scale = self.numbers
                return peak * sp.sqrt(scale / (x - begin))
            case CurveName.POWER:
                low, factor, shift, way, power = self.numbers
                return low + factor * (shift + way * x) ** power
            case CurveName.EXPONENTIAL:
                low, factor, rate = self.numbers
                return low + factor * sp.exp(rate * x)
            case _:
                low, factor, shift = self.numbers
                return low + factor * sp.log(x + shift)


@dataclass(frozen=True, slots=True)
class Rise:
    """The values before the peak: the line ``start + slope t``, or another curve.

    Attributes:
        start: Its value at t = 0, also where it begins later.
        slope: What an update adds; of another curve than a line, what it adds on average.
        begin: The first update on it: 0; 1 where update 0 has the value of update 1; later where
            the values are at least a minimum.
        end: The first update that is no longer on it.
        curve: LINEAR; POWER for ``start + (peak - start) (t / length)**power``; LOGARITHM for
            ``start + (peak - start) log(t) / log(length)``; CONSTANT for ``start`` throughout.
        power: The exponent of POWER.
    """

    start: sp.Expr
    slope: sp.Expr
    begin: int
    end: int
    curve: CurveName = CurveName.LINEAR
    power: sp.Expr = sp.S.One


@dataclass(frozen=True, slots=True)
class WarmupDecayForm:
    """A rise, the peak, and a decay.

    The decay is ``low + (peak - low) c(s)`` with s = (t - begin) / (end - begin), where c is 1 - s
    for a line, (1 + cos(pi s)) / 2 for a cosine, (1 - s)**power for a polynomial, 1 - sqrt(s) for
    a root. It is ``peak (low / peak)**s`` where it is exponential, and for an inverse root
    ``low + (peak - low) sqrt(end / (t - begin))``, where begin and end are the shift and the
    scale, and low is the limit, 0 for most. A multistep decay has the values of ``marks``. A
    piecewise decay has no such formula: its ``segments`` describe it.

    Attributes:
        rise: The line before it, None for none.
        peak: The value at ``begin``.
        low: The value at ``end``.
        begin: Where the decay begins, perhaps between two updates.
        end: Where it ends.
        curve: Its curve.
        first: The first update on it.
        total: The updates of the run.
        power: The exponent of a polynomial.
        marks: Of a multistep decay, the first update of each value and the value.
        stride: The updates that have one value, where the clock of the decay counts epochs.
        cycles: How often the decay is run; each cycle is as long as the one before.
        shrink: The factor of the values from one cycle to the next.
        after: The value after the decay, None where the decay goes on.
        segments: The segments that the form was recognized from.
    """

    rise: Rise | None
    peak: sp.Expr
    low: sp.Expr
    begin: sp.Expr
    end: sp.Expr
    curve: CurveName
    first: int
    total: int
    power: sp.Expr = sp.S.One
    marks: tuple[tuple[int, sp.Expr], ...] = ()
    stride: int = 1
    cycles: int = 1
    shrink: sp.Expr = sp.S.One
    after: sp.Expr | None = None
    segments: tuple[CurveSegment, ...] = ()

    def warmup(self, clock: int = 0) -> sp.Expr:
        """Returns the length of the rise to the peak, by a clock that counts ``t + clock``.

        Without a rise it is 0.
        """
        if self.rise is None:
            return sp.S.Zero
        if self.rise.slope == 0:
            return sp.Integer(self.rise.end + clock)
        return (self.peak - self.rise.start) / self.rise.slope + clock

    def at(self, clock: int = 0) -> sp.Expr:
        """Returns the value of the rise where a clock that counts ``t + clock`` is 0."""
        if self.rise is None:
            return sp.S.Zero
        return self.rise.start - clock * self.rise.slope

    @property
    def low_ratio(self) -> Any:
        """The minimum as a part of the peak."""
        return native(self.low / self.peak) if self.peak != 0 else 0.0

    @property
    def milestones(self) -> list[int]:
        """The first updates of the later values of a multistep decay."""
        return [first for first, _ in self.marks[1:]]

    @property
    def gamma(self) -> sp.Expr:
        """The factor of a multistep decay at its first milestone."""
        values = [value for _, value in self.marks]
        return values[1] / values[0] if values[0] != 0 else sp.S.Zero

    @property
    def has_plateau(self) -> bool:
        """Whether updates at the peak are between the rise and the decay."""
        return self.curve is not CurveName.CONSTANT and self.begin > self.warmup()


Config = Mapping[str, Any]


@dataclass(frozen=True, slots=True)
class GroupDifference:
    """A param group other than the default one, by its difference from the default.

    Attributes:
        name: Its name in the config that was read.
        patterns: The patterns on names of parameters, in the syntax of that config.
        factor: What its learning rate is multiplied by, None if that is not a constant.
        weight_decay: Its weight decay, None if it is the default group's.
        form: The form of its learning rate, where that is not a multiple of the default one.
        is_special: Whether it has another optimizer than the default group.
    """

    name: str
    patterns: tuple[str, ...] = ()
    factor: sp.Expr | None = sp.S.One
    weight_decay: sp.Expr | None = None
    form: WarmupDecayForm | None = None
    is_special: bool = False

    def peak(self, default: sp.Expr) -> sp.Expr | None:
        """Returns the peak of its learning rate, from the default group's peak."""
        if self.factor is not None:
            return self.factor * default
        return None if self.form is None else self.form.peak


@dataclass(frozen=True, slots=True)
class Optimizer:
    """An optimizer as writers need it.

    Attributes:
        name: The rule of the library; empty where it has none.
        values: Its hyperparameters: ``betas``, ``eps``, ``momentum``.
        weight_decay: Its weight decay at update 0, None for none.
        clipping: The largest norm of the gradients, None for none.
        groups: The other param groups.
        schedules: The forms of other values that change: ``weight_decay``, ``momentum``, ``beta1``,
            ``beta2``, and ``clipping`` for the largest norm.
        custom: The class and the arguments of an optimizer that the library does not have, where
            the config that was read is of the same framework.
        limit: The clipping of the recipe, also where it is not of the norm of all gradients.
        version: The version of the framework that the config was read by, where it is the same one.
        facts: The facts of the recipe that the writer names.
    """

    name: str
    values: Mapping[str, Any]
    weight_decay: Any
    clipping: Any
    groups: tuple[GroupDifference, ...] = ()
    schedules: Mapping[str, WarmupDecayForm] = field(default_factory=dict)
    custom: OptimizerPlan | None = None
    limit: Clipping | None = None
    version: str = ""
    facts: Mapping[str, Any] = field(default_factory=dict)

    def clip(self, key: str) -> dict[str, Any]:
        """Returns an entry with the largest norm, none where the gradients are not clipped."""
        return {} if self.clipping is None else {key: native(self.clipping)}

    def argument(self, default: str) -> str:
        """Returns the class of a custom optimizer, or else the default."""
        return default if self.custom is None else self.custom.name

    def arguments(self, *left_out: str) -> dict[str, Any]:
        """Returns the arguments of a custom optimizer."""
        arguments = {} if self.custom is None else self.custom.arguments
        return {key: plain(value) for key, value in arguments.items() if key not in left_out}

    def betas(self) -> list[Any]:
        """Returns the decay rates of the moments, none where it has none."""
        return [native(beta) for beta in self.values.get("betas", ())]

    @property
    def class_name(self) -> str:
        """The name of its class in torch.optim; AdamW where it has none."""
        return _CLASSES.get(self.name, "AdamW")

    def keywords(self, peak: sp.Expr) -> dict[str, Any]:
        """Returns the arguments of its class in torch.optim, with this learning rate.

        Example:
            >>> values = {"betas": (0.9, 0.95), "eps": 1e-8}
            >>> Optimizer("adamw", values, None, None).keywords(sp.Rational(1, 4))
            {'lr': 0.25, 'weight_decay': 0, 'eps': 1e-08, 'betas': [0.9, 0.95]}
        """
        decay = native(self.weight_decay or 0)
        return {"lr": native(peak), "weight_decay": decay, **self.hyperparameters()}

    def hyperparameters(self) -> dict[str, Any]:
        """Returns the arguments of its class except the learning rate and the weight decay."""
        arguments = {key: native(value) for key, value in self.values.items() if key != "betas"}
        return {**arguments, "betas": self.betas()} if "betas" in self.values else arguments


_CLASSES = {"adam": "Adam", "adamw": "AdamW", "lion": "Lion", "sgd": "SGD"}
"""Rule of the library -> its class. torch has no Lion: frameworks with one call it that."""


RUN = "of the run"
"""The value of a writer's fact that the recipe determines: the updates of the run or an epoch."""


@dataclass(frozen=True, slots=True)
class Writer:
    """The writer of a framework's configs.

    Attributes:
        suffix: The ending of its files: ``.yaml``, ``.json``, ``.toml``, ``.py``, ``.gin`` or
            ``.args``.
        configs: From a form and the optimizer to configs that may have that form, the likeliest
            first. Each is read back and compared: wrong candidates are filtered out.
        facts: Facts to read them back with, for a number that a config does not determine, and
            what they are if the recipe does not know them; ``RUN`` for what the recipe has.
        optimizers: The rules of the library that it has a name for.
        text: From a config to the text of its file, where the suffix does not determine it.
    """

    suffix: str
    configs: Callable[[WarmupDecayForm, Optimizer], Iterator[Config]]
    facts: Mapping[str, Any]
    optimizers: tuple[str, ...]
    text: Callable[[Config], str] | None = None


def native(value: Any) -> Any:
    """Returns a number as a config has it: an integer, or the nearest float.

    Example:
        >>> native(sp.Rational(1, 4)), native(sp.Integer(3))
        (0.25, 3)
    """
    # bool is an int: true and false stay as they are.
    if isinstance(value, int | float):
        return value
    return int(value) if value.is_Integer else float(value)


def literal(value: Any) -> str:
    """Returns a value as Python writes it; mappings with names as keys are calls of dict.

    Example:
        >>> literal({"type": "SGD", "lr": 0.1, "steps": [1, 2]})
        "dict(type='SGD', lr=0.1, steps=[1, 2])"
    """
    if isinstance(value, Mapping):
        # The style of MMEngine's configs; keys such as "lr-mult" cannot be keywords.
        if all(isinstance(key, str) and key.isidentifier() for key in value):
            return f"dict({', '.join(f'{key}={literal(item)}' for key, item in value.items())})"
        return "{" + ", ".join(f"{key!r}: {literal(item)}" for key, item in value.items()) + "}"
    if isinstance(value, list):
        return f"[{', '.join(literal(item) for item in value)}]"
    return repr(value)


def plain(value: Any) -> Any:
    """Returns a value in the types of a config: numbers of SymPy and tuples are converted."""
    if isinstance(value, list | tuple):
        return [plain(item) for item in value]
    return native(value) if isinstance(value, sp.Expr) else value


def nearest_integer(value: sp.Expr) -> int:
    """Returns the nearest integer.

    Example:
        >>> nearest_integer(sp.Rational(7, 4))
        2
    """
    return int(sp.floor(value + sp.S.Half))

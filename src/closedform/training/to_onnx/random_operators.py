"""Random operators as functions of numbers that are inputs of the graph.

Random operators of ONNX differ between runtimes, so each draw is an input with a distribution, and
the operator becomes a formula of it. One table serves the trace and the comparison with torch.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from enum import StrEnum
from typing import Any

import torch
from torch._ops import HigherOrderOperator
from torch.utils._python_dispatch import TorchDispatchMode

from closedform.errors import TrainingExportError
from closedform.training.to_onnx.operators import ATEN
from closedform.training.to_onnx.places import Places


class Distribution(StrEnum):
    """The distribution of an input: uniform on [0, 1), standard normal, exponential of rate 1."""

    UNIFORM = "uniform"
    NORMAL = "normal"
    EXPONENTIAL = "exponential"


Sizes = tuple[int | torch.SymInt, ...]
Draw = Callable[[Distribution, Sizes, torch.dtype], torch.Tensor]
"""Returns the numbers of a draw of this shape and dtype."""


@dataclass(frozen=True, slots=True)
class _Like:
    """An operator whose draw has the shape of its first tensor.

    Attributes:
        distribution: The distribution of the numbers.
        value: The result, of the numbers and the arguments of the operator.
        is_in_place: Whether the first tensor is overwritten with the result.
    """

    distribution: Distribution
    value: Callable[..., torch.Tensor]
    is_in_place: bool = False

    def __call__(self, draw: Draw, target: torch.Tensor, *arguments: Any, **options: Any) -> Any:
        numbers = draw(self.distribution, tuple(target.shape), _wide(target.dtype))
        value_options = {key: value for key, value in options.items() if key not in _PLACEMENT}
        value = self.value(numbers, target, *arguments, **value_options)
        dtype = options.get("dtype") or target.dtype
        return target.copy_(value) if self.is_in_place else value.to(dtype)


@dataclass(frozen=True, slots=True)
class _Sized:
    """An operator whose draw has a shape that is an argument."""

    distribution: Distribution
    value: Callable[..., torch.Tensor] | None = None
    place: int = 0
    dtype: torch.dtype | None = None

    def __call__(self, draw: Draw, *arguments: Any, **options: Any) -> Any:
        dtype = options.get("dtype") or self.dtype or torch.get_default_dtype()
        size = tuple(arguments[self.place])
        numbers = draw(self.distribution, size, _wide(dtype))
        value = _own(numbers) if self.value is None else self.value(numbers, *arguments)
        return value.to(dtype)


_PLACEMENT = frozenset(
    {"generator", "dtype", "layout", "device", "pin_memory", "memory_format", "requires_grad"}
)


def _wide(dtype: torch.dtype) -> torch.dtype:
    """The dtype of the numbers: float32, or float64 for a tensor in float64."""
    # Numbers in 16 bits would have 2¹¹ values in [0, 1), so that small probabilities are off.
    return torch.float64 if dtype is torch.float64 else torch.float32


def _own(numbers: torch.Tensor, *_: Any) -> torch.Tensor:
    """The numbers in memory that the model may write to: they are an input of the graph."""
    return numbers.clone()


def _bernoulli(numbers: torch.Tensor, _: Any, probability: Any = 0.5) -> torch.Tensor:
    # u < p with u in [0, 1): never for p = 0, always for p = 1.
    return torch.lt(numbers, probability)


def _bernoulli_of(numbers: torch.Tensor, probability: torch.Tensor) -> torch.Tensor:
    return torch.lt(numbers, probability)


def _between(numbers: torch.Tensor, _: Any, low: float = 0.0, high: float = 1.0) -> torch.Tensor:
    return numbers * (high - low) + low


def _scale(numbers: torch.Tensor, _: Any, mean: Any = 0.0, deviation: Any = 1.0) -> torch.Tensor:
    return torch.mul(numbers, deviation).add(mean)


def _scaled_by_own(numbers: torch.Tensor, mean: Any, deviation: Any = 1.0) -> torch.Tensor:
    return torch.mul(numbers, deviation).add(mean)


def _of_rate(numbers: torch.Tensor, _: Any, rate: float = 1.0) -> torch.Tensor:
    return torch.div(numbers, rate)


def _cauchy(numbers: torch.Tensor, _: Any, median: float = 0.0, scale: float = 1.0) -> torch.Tensor:
    # The inverse of the distribution function 1/2 + atan(x)/π.
    return torch.tan(math.pi * (numbers - 0.5)).mul(scale).add(median)


def _log_normal(
    numbers: torch.Tensor, _: Any, mean: float = 1.0, deviation: float = 2.0
) -> torch.Tensor:
    return torch.exp(numbers * deviation + mean)


def _geometric(numbers: torch.Tensor, _: Any, probability: float) -> torch.Tensor:
    # The inverse of 1 − (1 − p)ᵏ; u is below 1, so that the logarithm is finite.
    # ⌊log(1 − u)/log(1 − p)⌋ + 1 counts trials from 1, as torch does.
    return torch.floor(torch.log1p(-numbers) / math.log1p(-probability)) + 1


def _integers(numbers: torch.Tensor, low: int, high: int) -> torch.Tensor:
    """Integers in [low, high); the product may round up to high."""
    return torch.clamp(torch.floor(numbers * (high - low)) + low, max=high - 1)


def _integers_like(numbers: torch.Tensor, _: Any, low: int, high: int | None = None) -> Any:
    return _integers(numbers, 0, low) if high is None else _integers(numbers, low, high)


def _randperm(draw: Draw, count: Any, **options: Any) -> torch.Tensor:
    """The order of uniform numbers."""
    numbers = draw(Distribution.UNIFORM, (count,), torch.float32)
    # Ties among 2²⁴ floats make some orders a little likelier.
    return numbers.argsort().to(options.get("dtype") or torch.int64)


def _multinomial(
    draw: Draw,
    weights: torch.Tensor,
    count: int,
    replacement: bool = False,
    *,
    generator: object = None,
) -> torch.Tensor:
    """The places of the largest w / E with exponential E: the first arrivals of Poisson processes.

    With replacement, each sample is the first arrival of independent processes.
    """
    del generator
    if not replacement or count == 1:
        # The least E/w of independent exponentials is at i with probability w[i]/Σw.
        waits = draw(Distribution.EXPONENTIAL, tuple(weights.shape), _wide(weights.dtype))
        # weights/waits has its largest values where waits/weights has its least, and is 0 for
        # weight 0.
        return torch.topk(weights / waits, count, -1)[1]
    waits = draw(Distribution.EXPONENTIAL, (count, *weights.shape), _wide(weights.dtype))
    return (weights / waits).argmax(-1).movedim(0, -1)


def _native_dropout(
    draw: Draw, value: torch.Tensor, probability: float, train: bool | None
) -> tuple[torch.Tensor, torch.Tensor]:
    if train is False or probability == 0:
        return value, torch.ones_like(value, dtype=torch.bool)
    mask = draw(Distribution.UNIFORM, tuple(value.shape), _wide(value.dtype)) < 1 - probability
    # torch returns zeros for p = 1, not 0·∞.
    factor = 0.0 if probability == 1 else 1 / (1 - probability)
    return value * mask * factor, mask


def _rrelu(
    draw: Draw,
    value: torch.Tensor,
    noise: torch.Tensor,
    lower: float = 1 / 8,
    upper: float = 1 / 3,
    training: bool = False,
    generator: object = None,
) -> torch.Tensor:
    del generator
    if not training:
        # Outside of training the slope is the mean of its bounds.
        return torch.where(value > 0, value, value * ((lower + upper) / 2))
    numbers = draw(Distribution.UNIFORM, tuple(value.shape), _wide(value.dtype))
    slope = (numbers * (upper - lower) + lower).to(value.dtype)
    # The backward of torch multiplies by ``noise``, which the operator fills.
    noise.copy_(torch.where(value > 0, torch.ones_like(slope), slope))
    return value * noise


_U, _N, _E = Distribution

RANDOM: Mapping[Any, Callable[..., Any]] = {
    ATEN.bernoulli_.float: _Like(_U, _bernoulli, is_in_place=True),
    ATEN.bernoulli_.Tensor: _Like(_U, _bernoulli, is_in_place=True),
    ATEN.bernoulli.p: _Like(_U, _bernoulli),
    ATEN.bernoulli.default: _Like(_U, _bernoulli_of),
    ATEN.native_dropout.default: _native_dropout,
    ATEN.rrelu_with_noise.default: _rrelu,
    ATEN.rand.default: _Sized(_U),
    ATEN.rand_like.default: _Like(_U, _own),
    ATEN.uniform_.default: _Like(_U, _between, is_in_place=True),
    ATEN.uniform.default: _Like(_U, _between),
    ATEN.randn.default: _Sized(_N),
    ATEN.randn_like.default: _Like(_N, _own),
    ATEN.normal_.default: _Like(_N, _scale, is_in_place=True),
    ATEN.normal_functional.default: _Like(_N, _scale),
    ATEN.normal.Tensor_float: _Like(_N, _scaled_by_own),
    ATEN.normal.Tensor_Tensor: _Like(_N, _scaled_by_own),
    ATEN.normal.float_Tensor: lambda draw, mean, deviation, **_: (
        draw(_N, tuple(deviation.shape), _wide(deviation.dtype)) * deviation + mean
    ),
    ATEN.normal.float_float: _Sized(
        _N, lambda numbers, mean, deviation, _: numbers * deviation + mean, place=2
    ),
    ATEN.exponential_.default: _Like(_E, _of_rate, is_in_place=True),
    ATEN.exponential.default: _Like(_E, _of_rate),
    ATEN.cauchy_.default: _Like(_U, _cauchy, is_in_place=True),
    ATEN.log_normal_.default: _Like(_N, _log_normal, is_in_place=True),
    ATEN.geometric_.default: _Like(_U, _geometric, is_in_place=True),
    ATEN.randint.default: _Sized(
        _U, lambda numbers, high, _: _integers(numbers, 0, high), place=1, dtype=torch.int64
    ),
    ATEN.randint.low: _Sized(
        _U,
        lambda numbers, low, high, _: _integers(numbers, low, high),
        place=2,
        dtype=torch.int64,
    ),
    ATEN.randint_like.default: _Like(_U, _integers_like),
    ATEN.randint_like.low_dtype: _Like(_U, _integers_like),
    ATEN.randperm.default: _randperm,
    ATEN.multinomial.default: _multinomial,
}
"""Random operators: each is called with a function that gives the numbers, then its arguments."""


def random_decompositions(draw: Draw) -> dict[Any, Callable[..., Any]]:
    """Returns the operators with their numbers from ``draw``, as a table of decompositions."""

    def bound(formula: Callable[..., Any]) -> Callable[..., Any]:
        return lambda *arguments, **options: formula(draw, *arguments, **options)

    return {operator: bound(formula) for operator, formula in RANDOM.items()}


class Drawn(TorchDispatchMode):
    """Runs random operators with numbers from ``draw``; others of them raise ExportError.

    So do operators that call functions, such as ``torch.cond``.
    """

    supports_higher_order_operators = True

    def __init__(self, draw: Draw, places: Places, where: str) -> None:
        super().__init__()  # type: ignore[no-untyped-call]
        self._draw, self._places, self._where = draw, places, where

    def __torch_dispatch__(
        self, function: Any, types: Any, args: Any = (), kwargs: Any = None
    ) -> Any:
        if isinstance(function, HigherOrderOperator):
            name = function.name()
            raise TrainingExportError(
                f"torch.{name} has no form without control flow, in {self._places.here()}",
                where=self._where,
                hint="compute both results and select one with torch.where"
                if name == "cond"
                else "write it as a Python loop over a fixed size, which the trace repeats",
            )
        if function in RANDOM and (kwargs or {}).get("generator") is None:
            return RANDOM[function](self._draw, *args, **(kwargs or {}))
        # Tagged by torch: each operator that reads a generator.
        if torch.Tag.nondeterministic_seeded in function.tags and not _is_without_draw(
            function, args, kwargs or {}
        ):
            raise TrainingExportError(
                f"the random operator {function} is not supported as an input of the graph, "
                f"in {self._places.here()}",
                where=self._where,
                hint="draw the numbers outside and pass them with the batch"
                if (kwargs or {}).get("generator") is None
                else "draw without generator=: a session draws new numbers in each step",
            )
        return function(*args, **(kwargs or {}))


def _is_without_draw(function: Any, args: Any, kwargs: Any) -> bool:
    """Whether an operator that may draw (a fused attention, say) has no probability to draw by."""
    for place, argument in enumerate(function._schema.arguments):
        if argument.name in ("dropout_p", "dropout"):
            argument_value = kwargs.get(argument.name, args[place] if place < len(args) else None)
            return argument_value in (None, 0, 0.0)
    return False

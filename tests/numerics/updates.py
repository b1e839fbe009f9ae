"""Updates whose errors are measured: rules, parameters, states and gradients before one step.

States are those after three float32 steps of the evaluator with gradients of the same kind, so
that a second moment belongs to its first. Every array is of float32 numbers, which all engines
begin with and the exact value is computed from.
"""

from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass, replace
from typing import Any

import mpmath
import numpy as np
from numpy.typing import NDArray

from closedform import optimizers
from closedform.compiler import compile_init, compile_step
from closedform.ir.evaluate import evaluate
from closedform.ir.types import DType
from closedform.language import UpdateRule
from closedform.options import GraphOptions, ModelSpec
from tests.support.rules import accepts
from tests.test_library import OPTIMIZERS

Array = NDArray[Any]
Generator = np.random.Generator

ELEMENTS = 400
"""Elements of each kind of gradient, for rules that step each element by itself."""

SHAPES = ((8, 6), (12,))
"""The shapes of other rules: a matrix, and a vector for back ends of flat arrays."""

WARM_STEPS = 3
LATE = 10**6

NOT_MEASURED = {"muon_bf16": "it rounds to bfloat16 between products: a float32 error decides"}
"""Rules whose exact update is not a continuous function of their inputs."""


def _signed(powers: Array, random: Generator) -> Array:
    return random.choice([-1.0, 1.0], powers.shape) * 10.0**powers


def _random(shape: tuple[int, ...], random: Generator) -> Array:
    return random.normal(size=shape) * 10.0 ** random.uniform(-4, 0, shape)


KINDS: Mapping[str, tuple[Callable[..., Array], Callable[..., Array]]] = {
    "random": (_random, _random),
    "tiny": (lambda shape, random: _signed(random.uniform(-44, -20, shape), random),) * 2,
    "huge": (lambda shape, random: _signed(random.uniform(6, 15, shape), random),) * 2,
    "zero": (_random, lambda shape, random: np.zeros(shape)),
    "spike": (_random, lambda shape, random: _signed(random.uniform(6, 15, shape), random)),
    "vanishing": (_random, lambda shape, random: _signed(random.uniform(-44, -20, shape), random)),
}
"""Gradients of the steps before, and of the step that is measured."""


def rules() -> dict[str, UpdateRule]:
    """Returns the measured rules of the library by name."""
    measured = {name: make() for name, make in OPTIMIZERS.items() if name not in NOT_MEASURED}
    # The rules of the table have a penalty for the random states of its test.
    return measured | {"adagrad": optimizers.adagrad(1e-3), "adadelta": optimizers.adadelta(1e-3)}


@dataclass(frozen=True, slots=True)
class Case:
    """A tensor before a step.

    Attributes:
        kinds: Which elements have gradients of which kind, by name.
        tensors: Parameter, gradient, states and inputs by name.
        shared: States of the whole model by name.
        step: The number of steps done.
    """

    kinds: Mapping[str, slice]
    tensors: Mapping[str, Array]
    shared: Mapping[str, Array]
    step: int

    def inputs(self, ports: Mapping[str, DType]) -> dict[str, Array]:
        """Returns the inputs of the graph of a step, in the dtypes of its ports."""
        values: dict[str, Any] = {"step": self.step}
        values |= {f"shared.{name}": value for name, value in self.shared.items()}
        for name, value in self.tensors.items():
            values |= {f"{role}.w.{name}": value for role in ("state", "input")}
        values |= {f"{name}.w": self.tensors[name] for name in ("param", "grad")}
        return {name: np.asarray(values[name]).astype(kind.numpy) for name, kind in ports.items()}


def ports(graph: Any) -> dict[str, DType]:
    """Returns the dtypes of a graph's inputs by name."""
    return {node.attribute("name"): node.type.dtype for node in graph.inputs}


def cases(
    rule: UpdateRule, shape: tuple[int, ...], dtype: DType = DType.F32, kinds: Any = tuple(KINDS)
) -> Iterator[Case]:
    """Yields the tensors before the first, the fourth and a late step.

    Args:
        rule: The rule.
        shape: That of the tensor; a rule that steps each element by itself has ``ELEMENTS`` of
            each kind instead.
        dtype: The dtype whose numbers parameters and gradients are.
        kinds: Kinds of gradients.
    """
    if is_separate(rule):
        yield from _cases(rule, kinds, (ELEMENTS * len(kinds),), dtype)
        return
    for kind in kinds:
        yield from _cases(rule, (kind,), shape, dtype)


def is_separate(rule: UpdateRule) -> bool:
    """Whether an element of a parameter does not depend on others, nor on those of the model."""
    has_sums = any("GlobalSum" in str(expr) for expr in rule.all_expressions())
    return rule.is_elementwise and not rule.shared and not has_sums


def _cases(
    rule: UpdateRule, kinds: tuple[str, ...], shape: tuple[int, ...], dtype: DType
) -> Iterator[Case]:
    random = np.random.default_rng(0)
    size = shape[0] // len(kinds)
    slices = {
        kind: slice(place * size, (place + 1) * size) if len(kinds) > 1 else slice(None)
        for place, kind in enumerate(kinds)
    }

    def gradients(which: int) -> Array:
        part = (size,) if len(kinds) > 1 else shape
        return _in_dtype(
            np.concatenate([KINDS[kind][which](part, random) for kind in kinds]), dtype
        )

    spec = ModelSpec(replace(rule, stored=None), {"w": shape})
    options = GraphOptions()
    init, step = compile_init(spec, options), compile_step(spec, options)
    param = _in_dtype(random.normal(size=shape) * 10.0 ** random.uniform(-6, 0, shape), dtype)
    state: dict[str, Array] = {"param.w": param}
    state |= evaluate(init, dict.fromkeys(ports(init), param))

    def case(done: int) -> Case:
        tensors = {"param": param, "grad": gradients(1)}
        tensors |= {name: random.normal(size=shape).astype(np.float32) for name in rule.inputs}
        tensors |= {
            name.removeprefix("state.w."): value
            for name, value in state.items()
            if name.startswith("state.w.")
        }
        shared = {k.removeprefix("shared."): v for k, v in state.items() if k.startswith("shared.")}
        return Case(slices, tensors, shared, done)

    yield case(0)
    for _ in range(WARM_STEPS):
        inputs = state | {"grad.w": gradients(0)}
        inputs |= {
            f"input.w.{name}": random.normal(size=shape).astype(np.float32) for name in rule.inputs
        }
        with np.errstate(all="ignore"):
            results = evaluate(step, {name: inputs[name] for name in ports(step)})
        state = {name.removeprefix("next."): value for name, value in results.items()}
    param = _in_dtype(state["param.w"], dtype)
    yield case(WARM_STEPS)
    yield case(LATE)


def _in_dtype(values: Array, dtype: DType) -> Array:
    """The nearest numbers of a dtype of at most 32 bits, as float32 or in 16 bits."""
    with np.errstate(all="ignore"):
        return np.asarray(values.astype(dtype.numpy), np.float32)


def unit(exact: Any, dtype: DType) -> Any:
    """Returns the distance of the neighboring floats of a dtype at a number."""
    precision, least = _FORMATS[dtype]
    if exact == 0:
        return mpmath.ldexp(1, least)
    return mpmath.ldexp(1, max(int(mpmath.floor(mpmath.log(abs(exact), 2))) - precision + 1, least))


_FORMATS = {
    DType.F64: (53, -1074),
    DType.F32: (24, -149),
    DType.F16: (11, -24),
    DType.BF16: (8, -133),
}
"""Bits of the significand, and the exponent of the least subnormal number."""


def errors(exact: Array, output: Array, before: Array, dtype: DType) -> tuple[Array, Array]:
    """Returns errors in ulp of the exact parameter and of the larger of it and the one before.

    An element whose exact value is not finite, or beyond the dtype, is NaN in both.
    """
    greatest = mpmath.mpf(2) ** (16 if dtype is DType.F16 else 1024 if dtype is DType.F64 else 128)
    rows = []
    for value, result, start in zip(
        exact.ravel(), output.astype(np.float64).ravel(), before.ravel(), strict=True
    ):
        if not mpmath.isfinite(value) or abs(value) >= greatest:
            rows.append((np.nan, np.nan))
        elif not np.isfinite(result):
            rows.append((np.inf, np.inf))
        else:
            error = abs(mpmath.mpf(float(result)) - value)
            scale = max(abs(value), abs(mpmath.mpf(float(start))))
            rows.append((float(error / unit(value, dtype)), float(error / unit(scale, dtype))))
    of_value, of_scale = np.array(rows).T
    return of_value.reshape(exact.shape), of_scale.reshape(exact.shape)


def measured_shapes(rule: UpdateRule) -> list[tuple[int, ...]]:
    """Returns the shapes that a rule is measured with."""
    if is_separate(rule):
        return [()]
    return [shape for shape in SHAPES if accepts(rule, shape)]

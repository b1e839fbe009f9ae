"""Runs whose bits are compared: engines, rules, and four ways to run the same steps.

As a program it prints the digest of a run on some cores of the machine: ``python -m
tests.determinism.runs CORES ENGINE RULE``.
"""

import hashlib
import os
import sys
from collections.abc import Callable, Mapping
from typing import Any

import numpy as np
import torch
from numpy.typing import NDArray

import closedform as cf
from closedform import optimizers, schedules, transforms
from closedform.language import UpdateRule
from tests.low_precision.engines import BF16, Arrays, CSession, Engine, Jax, Session, Torch

STEPS = 3
SHAPES: Mapping[str, tuple[int, ...]] = {"w": (600, 500), "b": (7,)}
"""More elements than the smallest part that a thread gets in any engine, and a few."""

LINE = schedules.linear(0.01, 0.001, 20)
RULES: Mapping[str, UpdateRule] = {
    "elementwise": optimizers.adamw(LINE, weight_decay=0.1),
    "sums": transforms.clip_by_global_norm(optimizers.adamw(LINE, weight_decay=0.1), 0.5),
    "random": transforms.stochastic_rounding(optimizers.adamw(LINE, weight_decay=0.1), seed=3),
}
"""Rules that step each element by itself, that add up elements, and that draw random numbers."""

Bits = dict[str, dict[str, bytes]]


class Compiled(Torch):
    """The same, compiled by inductor."""

    backend = "compile"


class InOnnxruntime(Torch):
    """The same, by onnxruntime."""

    backend = "onnxruntime"


class Mlx(Engine):
    """An optimizer of MLX."""

    def __init__(self, rule: UpdateRule, params: Arrays, threads: int = 1) -> None:
        super().__init__(rule, params, threads)
        import mlx.core as mx

        self.array = mx.array
        self.optimizer: Any = cf.to_mlx(rule)
        self.arrays: Any = {name: mx.array(array) for name, array in params.items()}
        self.optimizer.init(self.arrays)

    def step(self, grads: Arrays) -> None:
        gradients = {name: self.array(grad) for name, grad in grads.items()}
        self.arrays = self.optimizer.apply_gradients(gradients, self.arrays)

    def params(self) -> Arrays:
        return {name: np.array(array) for name, array in self.arrays.items()}

    def states(self) -> dict[str, Arrays]:
        return {
            label: {name: np.array(self.optimizer.state[name][label]) for name in self.arrays}
            for label in self.rule.states
        }

    def save(self) -> Any:
        return self.optimizer.state

    def load(self, saved: Any) -> None:
        self.optimizer.state = saved


class Keras(Engine):
    """An optimizer of Keras, on the backend that ``KERAS_BACKEND`` names."""

    def __init__(self, rule: UpdateRule, params: Arrays, threads: int = 1) -> None:
        super().__init__(rule, params, threads)
        import keras

        self.numpy = keras.ops.convert_to_numpy
        self.optimizer: Any = cf.to_keras(rule)
        self.variables = {name: keras.Variable(array, name=name) for name, array in params.items()}
        self.optimizer.build(list(self.variables.values()))

    def step(self, grads: Arrays) -> None:
        self.optimizer.apply([grads[name] for name in self.variables])

    def params(self) -> Arrays:
        return {name: np.array(self.numpy(array)) for name, array in self.variables.items()}

    def states(self) -> dict[str, Arrays]:
        return {
            label: {
                name: np.array(self.numpy(slot))
                for name, slot in zip(self.variables, slots, strict=True)
            }
            for label, slots in self.optimizer._slots.items()
        }

    def save(self) -> Any:
        return [np.array(self.numpy(variable)) for variable in self.optimizer.variables]

    def load(self, saved: Any) -> None:
        for variable, value in zip(self.optimizer.variables, saved, strict=True):
            variable.assign(value)


ENGINES: Mapping[str, type[Engine]] = {
    "`OptimizerSession`, onnxruntime": Session,
    "`OptimizerSession`, C": CSession,
    "torch, eager": Torch,
    "torch, `torch.compile`": Compiled,
    "torch, onnxruntime": InOnnxruntime,
    "JAX, jitted": Jax,
    "MLX, CPU": Mlx,
    "Keras": Keras,
}


def drawn(seed: int, kind: str, shapes: Mapping[str, tuple[int, ...]] = SHAPES) -> dict[str, Any]:
    """Normally distributed arrays, in the dtype of the parameters of a rule."""
    rng = np.random.default_rng(seed)
    dtype = BF16 if kind == "random" else np.float32
    return {name: rng.normal(size=shape).astype(dtype) for name, shape in shapes.items()}


def bits_of(engine: Engine) -> Bits:
    """The bytes of parameters and states."""
    tables = {"param": engine.params(), **engine.states()}
    return {
        label: {name: np.ascontiguousarray(array).tobytes() for name, array in arrays.items()}
        for label, arrays in tables.items()
    }


def advance(engine: Engine, kind: str, first: int, last: int) -> None:
    """Performs some steps; the gradients depend on the step alone."""
    for step in range(first, last):
        engine.step(drawn(100 + step, kind))


def run(engine_class: type[Engine], kind: str, threads: int = 1) -> Bits:
    """The bits after some steps."""
    torch.set_num_threads(threads)
    engine = engine_class(RULES[kind], drawn(0, kind), threads)
    advance(engine, kind, 0, STEPS)
    return bits_of(engine)


def resumed(engine_class: type[Engine], kind: str) -> Bits:
    """The bits of a run that was saved after a step and goes on in another optimizer."""
    torch.set_num_threads(1)
    first = engine_class(RULES[kind], drawn(0, kind))
    advance(first, kind, 0, 1)
    second = engine_class(RULES[kind], dict(first.params()))
    second.load(first.save())
    advance(second, kind, 1, STEPS)
    return bits_of(second)


def in_shards(engine_class: type[Engine], kind: str) -> Bits:
    """The bits of a run of two optimizers, each with half of the rows."""
    torch.set_num_threads(1)
    rows = SHAPES["w"][0] // 2
    engines = []
    for place in (slice(0, rows), slice(rows, None)):
        engine = engine_class(RULES[kind], rows_of(drawn(0, kind), place))
        for step in range(STEPS):
            engine.step(rows_of(drawn(100 + step, kind), place))
        engines.append(bits_of(engine))
    top, bottom = engines
    return {
        label: {name: part + bottom[label][name] for name, part in parts.items()}
        for label, parts in top.items()
    }


def rows_of(arrays: Arrays, place: slice) -> dict[str, NDArray[Any]]:
    """Some rows of the matrix; the vector is left to the first shard."""
    return {"w": np.ascontiguousarray(arrays["w"][place])}


def whole_matrix(bits: Bits) -> Bits:
    """The bits of the matrix alone."""
    return {label: {"w": by_name["w"]} for label, by_name in bits.items()}


def has_equal_runs(engine_class: type[Engine], kind: str) -> bool:
    """Whether a second run has the same bits."""
    return run(engine_class, kind) == run(engine_class, kind)


def has_equal_threads(engine_class: type[Engine], kind: str) -> bool:
    """Whether runs with one, two and three threads have the same bits."""
    first = run(engine_class, kind)
    return all(run(engine_class, kind, threads) == first for threads in (2, 3))


def has_equal_resumption(engine_class: type[Engine], kind: str) -> bool:
    """Whether a run that resumes has the bits of the uninterrupted one."""
    return resumed(engine_class, kind) == run(engine_class, kind)


def has_equal_shards(engine_class: type[Engine], kind: str) -> bool:
    """Whether two halves of a matrix have the bits of the whole."""
    return in_shards(engine_class, kind) == whole_matrix(run(engine_class, kind))


Check = Callable[[type[Engine], str], bool]
CHECKS: Mapping[str, Check] = {
    "repeated runs": has_equal_runs,
    "thread counts": has_equal_threads,
    "resume": has_equal_resumption,
    "shards": has_equal_shards,
}


def digest(bits: Bits) -> str:
    """A digest of all bytes."""
    total = hashlib.sha256()
    for label, by_name in sorted(bits.items()):
        for name, content in sorted(by_name.items()):
            total.update(f"{label} {name}".encode() + content)
    return total.hexdigest()


if __name__ == "__main__":
    count, engine_name, rule_name = sys.argv[1:]
    # XLA and MLX take as many threads as there are cores, when they are imported.
    os.sched_setaffinity(0, sorted(os.sched_getaffinity(0))[: int(count)])
    print(digest(run(ENGINES[engine_name], rule_name, int(count))))

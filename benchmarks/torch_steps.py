"""Steps of AdamW and SGD on small and large models, compared with torch: time of a step.

python -m benchmarks.torch_steps            the eager step
python -m benchmarks.torch_steps --compile  the compiled step, with its first call (minutes)
"""

from __future__ import annotations

import functools
import random
import sys
import time
from collections.abc import Iterator, Sequence
from typing import Any

import torch
from torch._inductor.utils import fresh_cache

from benchmarks._side_by_side import Row, Task, compared, machine, medians, show
from closedform.torch import optim
from closedform.torch.engine.compiled import compiled_kernel
from closedform.torch.engine.specialize import specializer

MODELS: dict[str, list[tuple[int, ...]]] = {
    "50 x 1k": [(1000,)] * 50,
    "MLP 4 x 64²": [(64, 64), (64,)] * 4,
    "200 x 100": [(100,)] * 200,
    "4 x 1M": [(1000, 1000)] * 4,
}

RULES: dict[str, dict[str, Any]] = {
    "AdamW": {"lr": 1e-3},
    "SGD": {"lr": 1e-3, "momentum": 0.9},
}


def parameters(shapes: Sequence[tuple[int, ...]]) -> list[torch.nn.Parameter]:
    """Parameters with gradients."""
    made = [torch.nn.Parameter(torch.randn(shape)) for shape in shapes]
    for one in made:
        one.grad = torch.randn_like(one)
    return made


def eager_rows() -> Iterator[Row]:
    """The eager step, with torch's foreach and for-loop."""
    for name, arguments in RULES.items():
        for model, shapes in MODELS.items():
            tasks: list[Task] = [optim.OPTIMIZERS[name](parameters(shapes), **arguments).step]
            tasks += [
                getattr(torch.optim, name)(parameters(shapes), **arguments, foreach=foreach).step
                for foreach in (True, False)
            ]
            rounds = 60 if model == "4 x 1M" else 400
            eager, foreach, loop = medians(*tasks, rounds=rounds, warm=10)
            yield compared(f"{name}, {model}, eager / foreach", 1.0, eager, foreach, "foreach")
            yield compared(f"{name}, {model}, eager / for-loop", 1.0, eager, loop, "for-loop")


def _step_with(optimizer: Any, grads: Sequence[Any], draws: random.Random, share: float) -> None:
    """A step in which this share of the gradients is missing."""
    for param, grad in zip(optimizer.param_groups[0]["params"], grads, strict=True):
        param.grad = None if draws.random() < share else grad
    optimizer.step()


def changing_rows() -> Iterator[Row]:
    """Construction, the first step, and steps in which a random third of gradients is missing.

    torch's own optimizer is made before: the first one of a process imports ``torch._dynamo``.
    """
    torch.optim.SGD(parameters([(1,)]), lr=0.1).step()
    for name, arguments in RULES.items():
        shapes = [(10 + index % 7, 10) for index in range(200)]
        made = optim.OPTIMIZERS[name]
        params = parameters(shapes)
        for kind, bars in (("cold", (60.0, 60.0)), ("warm", (5.0, None))):
            start = time.process_time()
            optimizer = made(params, **arguments)
            middle = time.process_time()
            optimizer.step()
            end = time.process_time()
            what = f"{name}, 200 tensors, {kind}"
            yield Row(f"{what}: construction", (middle - start) * 1e3, bars[0], unit="ms")
            yield Row(f"{what}: first step", (end - middle) * 1e3, bars[1], unit="ms")
        draws = random.Random(0)
        grads = [param.grad for param in params]
        tasks = [
            functools.partial(
                _step_with, made(parameters(shapes), **arguments), grads, draws, share
            )
            for share in (1 / 3, 0)
        ]
        missing, full = medians(*tasks, rounds=200, warm=10)
        what = f"{name}, 200 tensors, a third of the gradients missing / all"
        yield compared(what, 1.3, missing, full, "all")


def _first_call(step: Task) -> float:
    """The seconds of the first call of a compiled step, with nothing compiled before."""
    torch._dynamo.reset()
    specializer.cache_clear()
    compiled_kernel.cache_clear()
    with fresh_cache():
        start = time.perf_counter()
        step()
        return time.perf_counter() - start


def compiled_rows() -> Iterator[Row]:
    """The compiled step and its first call, each with torch.compile of torch's step.

    Inductor is imported before.
    """
    torch.compile(torch.neg)(torch.ones(1))
    for name, arguments in RULES.items():
        for model, shapes in MODELS.items():
            theirs = getattr(torch.optim, name)(parameters(shapes), **arguments)
            ours = optim.OPTIMIZERS[name](parameters(shapes), backend="compile", **arguments)
            tasks: list[Task] = [ours.step, torch.compile(theirs.step)]
            mine, other = map(_first_call, tasks)
            yield compared(f"{name}, {model}, first compiled step", 1.0, mine, other, "torch")
            mine, other = medians(*tasks, rounds=60 if model == "4 x 1M" else 400, warm=10)
            yield compared(f"{name}, {model}, compiled step", 1.0, mine, other, "torch")


def rows() -> Iterator[Row]:
    """The rows of eager steps."""
    yield from changing_rows()
    yield from eager_rows()


if __name__ == "__main__":
    torch.set_num_threads(1)
    print(machine(("closedform", "torch")))
    show(compiled_rows() if "--compile" in sys.argv else rows())

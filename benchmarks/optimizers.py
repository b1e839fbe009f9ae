"""Optimizer steps in onnxruntime and torch.compile compared with torch: time and memory.

python -m benchmarks.optimizers
"""

from __future__ import annotations

import statistics
import subprocess
import sys
from collections.abc import Iterator
from itertools import chain
from typing import Any

import numpy as np
import torch

import closedform as cf
from benchmarks._side_by_side import (
    Row,
    Task,
    compared,
    decision,
    machine,
    medians,
    peak,
    resident,
    show,
)
from closedform.torch import Optimizer
from closedform.torch import optim as named

LARGE = 2**24
"""Elements: 64 MiB of float32 in each array."""

SMALL = 2**20
MODEL_TENSORS, MODEL_ELEMENTS = 1000, 25_000_000


def one_tensor(count: int) -> dict[str, np.ndarray]:
    return {"w": np.random.default_rng(0).normal(size=count).astype(np.float32)}


def model() -> dict[str, np.ndarray]:
    """A thousand tensors, a third of them small like biases."""
    draws = np.random.default_rng(0)
    small = [f"layer{i}.bias" for i in range(MODEL_TENSORS // 3)]
    large = [f"layer{i}.weight" for i in range(MODEL_TENSORS - len(small))]
    rows = MODEL_ELEMENTS // (len(large) * 128)
    shapes = dict.fromkeys(large, (rows, 128)) | dict.fromkeys(small, (128,))
    return {name: draws.normal(size=shape).astype(np.float32) for name, shape in shapes.items()}


def in_onnxruntime(params: dict[str, np.ndarray]) -> Task:
    session = cf.OptimizerSession(cf.optimizers.adamw(1e-3, weight_decay=0.1), params)
    grads = {name: np.full_like(array, 0.01) for name, array in params.items()}
    return lambda: session.step(grads)


def tensors(params: dict[str, np.ndarray]) -> list[torch.nn.Parameter]:
    made = [torch.nn.Parameter(torch.from_numpy(array.copy())) for array in params.values()]
    for parameter in made:
        parameter.grad = torch.full_like(parameter, 0.01)
    return made


def in_onnxruntime_scaled(params: dict[str, np.ndarray]) -> Task:
    rule = cf.optimizers.adamw(1e-3, weight_decay=0.1)
    session = cf.OptimizerSession(rule, params, equivalent_states=True)
    grads = {name: np.full_like(array, 0.01) for name, array in params.items()}
    return lambda: session.step(grads)


def in_torch(params: dict[str, np.ndarray], **options: Any) -> Task:
    return torch.optim.AdamW(tensors(params), 1e-3, weight_decay=0.1, **options).step


ADAMW = (
    "on one core of a Xeon with AVX-512 and 1 MiB of L2, 8.2 ns per element, of which 15 operators "
    "take 5.4 in the cache (33 GB/s), memory 1.8 (torch's fused kernel), the rest copies and runs; "
    "torch's foreach, in AVX-512, takes 5.3"
)
SCALED = (
    "12 operators instead of 15 take 4.3 ns per element instead of 5.4; memory, copies and runs "
    "remain, 2.8 of 7.7"
)


def adamw_rows() -> Iterator[Row]:
    """AdamW of one large tensor, and of a thousand tensors."""
    params = one_tensor(LARGE)
    sessions = in_onnxruntime(params), in_onnxruntime_scaled(params)
    peers = in_torch(params), in_torch(params, foreach=True)
    ours, scaled, default, foreach = medians(*sessions, *peers, rounds=11)
    what = "AdamW, 16.8 M parameters, onnxruntime"
    yield compared(f"{what} / torch default", 0.60, ours, default, "torch", ADAMW)
    yield compared(f"{what} / foreach", 0.85, ours, foreach, "torch foreach", ADAMW)
    what += ", equivalent states"
    yield compared(f"{what} / torch default", 0.50, scaled, default, "torch", SCALED)
    yield compared(f"{what} / foreach", 0.72, scaled, foreach, "torch foreach", SCALED)
    rule = cf.optimizers.adamw(1e-3, weight_decay=0.1)
    compiled = Optimizer(tensors(params), rule, backend="compile").step
    ours, fused = medians(compiled, in_torch(params, fused=True), rounds=11)
    yield compared("AdamW, 16.8 M, compile / torch fused", 1.05, ours, fused, "torch fused")
    eager = Optimizer(tensors(params), rule).step
    ours, loop = medians(eager, in_torch(params, foreach=False), rounds=11)
    yield compared("AdamW, 16.8 M, eager / for-loop", None, ours, loop, "torch's for-loop")
    params = model()
    ours, foreach = medians(in_onnxruntime(params), in_torch(params, foreach=True), rounds=11)
    what = "AdamW, 1,000 tensors of 25 M, onnxruntime / foreach"
    yield compared(what, 1.0, ours, foreach, "torch foreach", ADAMW)


RULES: dict[str, dict[str, Any]] = {
    "SGD": {"lr": 0.01, "momentum": 0.9},
    "Adam": {},
    "AdamW": {},
    "Adamax": {},
    "NAdam": {},
    "RAdam": {},
    "RMSprop": {},
    "Rprop": {},
    "Adagrad": {},
    "Adadelta": {},
    "ASGD": {},
}


def time_ratios(backend: str, **options: Any) -> dict[str, float]:
    """Time of each elementwise rule of torch in a backend, relative to torch."""
    params = {f"w{i}": array for i, array in enumerate(np.split(one_tensor(SMALL)["w"], 16))}
    ratios = {}
    for name, arguments in RULES.items():
        ours = getattr(named, name)(tensors(params), backend=backend, **arguments)
        theirs = getattr(torch.optim, name)(tensors(params), **options, **arguments)
        mine, peer = medians(ours.step, theirs.step, rounds=21, warm=5)
        ratios[name] = mine / peer
    return ratios


def rules_of_torch() -> Iterator[Row]:
    """Each elementwise rule of torch: compiled relative to foreach, eager to the for-loop."""
    for backend, peer, bars in (
        ("compile", "foreach", (0.5, 1.0)),
        ("eager", "for-loop", (None,) * 2),
    ):
        ratios = time_ratios(backend, foreach=peer == "foreach")
        each = ", ".join(f"{name} {ratio:.2f}" for name, ratio in ratios.items())
        what = f"rules of torch, {backend} / {peer}, 1 M parameters in 16 tensors"
        yield Row(f"{what}, median", statistics.median(ratios.values()), bars[0], each)
        yield Row(f"{what}, maximum", max(ratios.values()), bars[1])


def peak_of_a_session() -> Iterator[Row]:
    """Memory of a session beyond parameters, gradients and states, in a separate process."""
    run = subprocess.run(
        [sys.executable, "-m", "benchmarks.optimizers", "--peak"],
        capture_output=True,
        text=True,
        check=True,
    )
    yield Row(
        "memory of a session beyond parameters, gradients, states",
        float(run.stdout.splitlines()[-1]),
        64,
        "25 M parameters in 1,000 tensors, ten steps",
        "MB",
    )


def print_peak() -> None:
    """Prints the growth of this process in megabytes, minus the arrays that a session needs.

    A session of a small model is made first, so that libraries are loaded before.
    """
    rule = cf.optimizers.adamw(1e-3)
    small = {"w": np.ones(8, np.float32)}
    cf.OptimizerSession(rule, small).step(small)
    params = model()
    grads = {name: np.full_like(array, 0.01) for name, array in params.items()}
    before = resident()
    session = cf.OptimizerSession(rule, params)
    for _ in range(10):
        session.step(grads)
    grown = peak() - before
    needed = 3 * sum(array.nbytes for array in params.values())  # the copy, two moments
    print((grown - needed) / 1e6)


SUMMARY = (
    "AdamW in onnxruntime is limited by its 15 operators on tiles in the cache "
    f"({decision('operators_of_an_update')}), and its ratio varies with torch's threads in the "
    f"same process ({decision('session_workers')}). `compile` calls functions of inductor without "
    f"the guards of `torch.compile` ({decision('torch_compiled_engine')}); `eager` is "
    f"`torch._foreach` in place and compiles nothing ({decision('torch_eager_engine')})."
)
"""The paragraph below the table of results."""

PARTS = (adamw_rows, rules_of_torch, peak_of_a_session)
"""The functions whose rows ``make bench`` measures."""


if __name__ == "__main__":
    if "--peak" in sys.argv:
        print_peak()
    else:
        print(machine(("closedform", "torch", "numpy", "onnxruntime")))
        show(chain.from_iterable(part() for part in PARTS))

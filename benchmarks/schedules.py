"""Schedules: scheduler steps, values in Python, vectors and single runs in onnxruntime.

python -m benchmarks.schedules
"""

from __future__ import annotations

import itertools
import math
import statistics
import subprocess
import sys
import tempfile
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import numpy as np
import onnx
import onnxruntime as ort
import sympy as sp
import torch
from onnx import TensorProto, helper

import closedform as cf
from benchmarks._side_by_side import (
    COUNTED,
    INTERPRETED,
    Row,
    compared,
    compiled_files,
    decision,
    machine,
    medians,
    show,
)
from closedform.language import Schedule
from closedform.schedules.examples import EXAMPLES
from closedform.torch import ParamScheduler

WARMUP, TOTAL, PEAK, FLOOR = 2000, 100_000, 3e-4, 3e-5
MILLION = 1_000_000


def warmup_cosine() -> Schedule:
    return cf.schedules.linear(0, PEAK, WARMUP).then(
        cf.schedules.cosine(PEAK, FLOOR, TOTAL - WARMUP)
    )


def optimizer() -> torch.optim.Optimizer:
    return torch.optim.SGD([torch.nn.Parameter(torch.zeros(1))], lr=0.1)


def scheduler_steps() -> Iterator[Row]:
    """A step of a scheduler, compared with the same class of torch."""
    made = torch.optim.lr_scheduler
    pairs: dict[str, tuple[Any, Schedule]] = {
        "CosineAnnealingLR": (
            lambda o: made.CosineAnnealingLR(o, TOTAL),
            cf.schedules.cosine_annealing(0.1, 0, TOTAL),
        ),
        "OneCycleLR": (
            lambda o: made.OneCycleLR(o, 0.1, total_steps=TOTAL),
            cf.schedules.one_cycle(0.004, 0.1, 4e-7, TOTAL),
        ),
        "LambdaLR": (
            lambda o: made.LambdaLR(o, lambda step: 0.95 ** (step // 1000)),
            cf.schedules.step_decay(0.1, 0.95, 1000),
        ),
        "MultiStepLR": (
            lambda o: made.MultiStepLR(o, [30_000, 60_000]),
            cf.schedules.multi_step(0.1, 0.1, [30_000, 60_000]),
        ),
        "SequentialLR": (
            lambda o: made.SequentialLR(
                o,
                [made.LinearLR(o, 0.01, 1, WARMUP), made.CosineAnnealingLR(o, TOTAL)],
                [WARMUP],
            ),
            warmup_cosine(),
        ),
    }
    for name, (theirs, schedule) in pairs.items():
        peers, ours = optimizer(), optimizer()
        peer, mine = theirs(peers), ParamScheduler(ours, schedule)
        peers.step()
        ours.step()
        mine_s, peer_s = medians(mine.step, peer.step, rounds=60, repeat=200)
        yield compared(f"ParamScheduler.step(), {name}", 1.0, mine_s, peer_s, f"torch's {name}")


def where_form(steps: np.ndarray) -> np.ndarray:
    """The schedule as it is commonly written in NumPy."""
    progress = np.clip((steps - WARMUP) / (TOTAL - WARMUP), 0, 1)
    cosine = FLOOR + (PEAK - FLOOR) * (1 + np.cos(np.pi * progress)) / 2
    return np.where(steps < WARMUP, PEAK * steps / WARMUP, cosine)


def values() -> Iterator[Row]:
    """Values in Python and in onnxruntime."""
    lr = warmup_cosine()
    steps = np.arange(MILLION)
    graph = cf.compile(lr, step_shape=("n",))
    session = cf.ScheduleSession(graph, threads=1)
    assert np.allclose(session(steps), where_form(steps), rtol=1e-12)
    ours, mine, peer = medians(
        lambda: session(steps), lambda: lr(steps), lambda: where_form(steps), rounds=15
    )
    reason = (
        "its sine takes 12 ns per step, NumPy's cosine 9; the other operators as long as NumPy's"
    )
    yield compared("10^6 steps in onnxruntime", 1.0, ours, peer, "NumPy's where-form", reason)
    yield compared("10^6 steps, lr(steps)", None, mine, peer, "NumPy's where-form")
    single = cf.ScheduleSession(cf.compile(lr))
    identity = identity_session()
    feeds = {"step": np.array(5)}
    steps_on = itertools.count()
    ours, alone, peer = medians(
        lambda: session(next(steps_on)),
        lambda: single(5),
        lambda: identity.run(None, feeds),
        rounds=60,
        repeat=300,
    )
    name = "a model of one Identity"
    task = "one ScheduleSession run, step after step"
    yield compared(task, 2.5, ours, peer, name, noise=INTERPRETED)
    yield compared("the same, a file of one step", 2.5, alone, peer, name)
    (once,) = medians(lambda: lr(5), rounds=60, repeat=300)
    yield Row("lr(5), a float", once * 1e6, 5, unit="µs")


COMMON = {
    "cosine": "cosine(3e-4, 3e-5, 98_000)",
    "linear": "linear(3e-4, 0, 1_000)",
    "warmup and cosine": "linear(0, 3e-4, 2_000).then(cosine(3e-4, 3e-5, 98_000))",
    "wsd": "wsd(3e-4, 0, 100_000, 2_000, 10_000)",
    "one_cycle": "one_cycle(1e-5, 1e-3, 1e-7, 10_000)",
    "step_decay": "step_decay(0.1, 0.1, 30)",
}
"""Calls of the common schedules."""

FIRST_VALUE = """
import time
import closedform.compiler
from closedform.schedules import cosine, linear, one_cycle, step_decay, wsd
lr = {call}
begin = time.process_time()
lr(5)
print(time.process_time() - begin)
"""


def first_values() -> Iterator[Row]:
    """The first value of a schedule, each in processes of its own that have loaded the compiler."""
    times = {}
    for name, call in COMMON.items():
        runs = [
            subprocess.run(
                [sys.executable, "-c", FIRST_VALUE.format(call=call)],
                capture_output=True,
                text=True,
                check=True,
                env=compiled_files(),
            )
            for _ in range(3)
        ]
        times[name] = 1e3 * min(float(run.stdout) for run in runs)
    each = ", ".join(f"{name} {time:.1f}" for name, time in times.items())
    median = statistics.median(times.values())
    yield Row("lr(5), the first call of a schedule, median", median, 10, each, unit="ms")


def identity_session() -> Any:
    value = helper.make_tensor_value_info
    graph = helper.make_graph(
        [helper.make_node("Identity", ["step"], ["value"])],
        "identity",
        [value("step", TensorProto.INT64, ())],
        [value("value", TensorProto.INT64, ())],
    )
    opset = [helper.make_opsetid("", 21)]
    model = helper.make_model(graph, opset_imports=opset, ir_version=10)
    return ort.InferenceSession(model.SerializeToString(), providers=["CPUExecutionProvider"])


class Where(torch.nn.Module):
    """A schedule as commonly written in torch: a formula on Python numbers, with torch.where."""

    def __init__(self, schedule: Schedule) -> None:
        super().__init__()
        self.schedule = schedule

    def forward(self, step: torch.Tensor) -> torch.Tensor:
        """Returns the value at a step."""
        value = torch_value(self.schedule.expr, step, self.schedule.hyperparameters)
        return value if isinstance(value, torch.Tensor) else torch.full_like(step, value)


def torch_value(expr: Any, step: torch.Tensor, numbers: Any) -> Any:
    """An expression in torch, one call per operation."""
    if expr == cf.t:
        return step.to(torch.float64)
    if expr.is_number or expr.is_Symbol:
        return float(numbers.get(expr.name) if expr.is_Symbol else expr)
    if isinstance(expr, sp.Piecewise):
        result = torch_value(expr.args[-1][0], step, numbers)
        for value, condition in reversed(expr.args[:-1]):
            branch = torch_value(value, step, numbers)
            taken = torch_value(condition, step, numbers)
            result = torch.where(taken, as_tensor(branch), as_tensor(result))
        return result
    arguments = [torch_value(arg, step, numbers) for arg in expr.args]
    return CALLS[expr.func.__name__](arguments)


def as_tensor(value: Any) -> torch.Tensor:
    return value if isinstance(value, torch.Tensor) else torch.tensor(value, dtype=torch.float64)


def folded(call: Any) -> Any:
    def fold(arguments: list[Any]) -> Any:
        result = arguments[0]
        for argument in arguments[1:]:
            result = call(result, argument)
        return result

    return fold


CALLS: dict[str, Any] = {
    "Add": folded(lambda a, b: a + b),
    "Mul": folded(lambda a, b: a * b),
    "Pow": lambda a: a[0] ** a[1],
    "Min": folded(lambda a, b: torch.minimum(as_tensor(a), as_tensor(b))),
    "Max": folded(lambda a, b: torch.maximum(as_tensor(a), as_tensor(b))),
    "Abs": lambda a: torch.abs(a[0]),
    "cos": lambda a: (torch if isinstance(a[0], torch.Tensor) else math).cos(a[0]),
    "sin": lambda a: (torch if isinstance(a[0], torch.Tensor) else math).sin(a[0]),
    "exp": lambda a: (torch if isinstance(a[0], torch.Tensor) else math).exp(a[0]),
    "log": lambda a: (torch if isinstance(a[0], torch.Tensor) else math).log(a[0]),
    "tanh": lambda a: (torch if isinstance(a[0], torch.Tensor) else math).tanh(a[0]),
    "floor": lambda a: torch.floor(as_tensor(a[0])),
    "ceiling": lambda a: torch.ceil(as_tensor(a[0])),
    "FloorDiv": lambda a: torch.floor(a[0] / a[1]),
    "FloorMod": lambda a: torch.remainder(as_tensor(a[0]), as_tensor(a[1])),
    "StrictLessThan": lambda a: as_tensor(a[0]) < as_tensor(a[1]),
    "LessThan": lambda a: as_tensor(a[0]) <= as_tensor(a[1]),
    "StrictGreaterThan": lambda a: as_tensor(a[0]) > as_tensor(a[1]),
    "GreaterThan": lambda a: as_tensor(a[0]) >= as_tensor(a[1]),
    "Equality": lambda a: as_tensor(a[0]) == as_tensor(a[1]),
    "Unequality": lambda a: as_tensor(a[0]) != as_tensor(a[1]),
    "And": folded(torch.logical_and),
    "Or": folded(torch.logical_or),
    "Not": lambda a: torch.logical_not(a[0]),
}


def node_counts() -> Iterator[Row]:
    """Nodes of exports, compared with torch.onnx.export of the same branches, 2 s each."""
    ratios = {}
    for name in list(EXAMPLES)[::3]:
        schedule = EXAMPLES[name].make()
        if not isinstance(schedule, Schedule):
            continue
        with tempfile.TemporaryDirectory() as folder:
            written = cf.to_onnx(schedule, Path(folder) / "lr.onnx", validate=False)
        assert isinstance(written, onnx.ModelProto)
        ours = len(written.graph.node)
        theirs = torch.onnx.export(
            Where(schedule), (torch.tensor(3),), dynamo=True, opset_version=21, verbose=False
        )
        assert theirs is not None
        model: onnx.ModelProto = theirs.model_proto
        ratios[name] = ours / max(1, len(model.graph.node))
    worst = max(ratios, key=lambda name: ratios[name])
    yield Row(
        "nodes of an export, median over every third schedule",
        statistics.median(ratios.values()),
        0.7,
        f"peer: torch.onnx.export of torch.where; maximum {ratios[worst]:.2f}, {worst}",
        reason="angles and exponents are reduced in integers, nodes that the peer lacks; its error "
        "late in a run is hundreds of ulp, ours at most 2",
        noise=COUNTED,
    )


SUMMARY = (
    "A scheduler step evaluates a compiled formula and writes the param groups; torch's classes "
    "compute each value from the previous one. onnxruntime evaluates blocks of steps "
    f"({decision('blocks_of_schedule_values')}). Graphs have as many nodes as those of the peer, "
    f"whose error late in a run is larger ({decision('nodes_of_a_schedule')})."
)
"""The paragraph below the table of results."""

PARTS = (scheduler_steps, values, first_values, node_counts)
"""The functions whose rows ``make bench`` measures."""


if __name__ == "__main__":
    print(machine(("closedform", "torch", "numpy", "onnxruntime")))
    show(itertools.chain.from_iterable(part() for part in PARTS))

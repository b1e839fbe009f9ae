"""Training steps of small models in onnxruntime, compared with torch eager: time and memory.

python -m benchmarks.training_steps              one thread, CPU time of the process
python -m benchmarks.training_steps --threads 2  wall time, on an idle machine
python -m benchmarks.training_steps --memory     growth of the resident set of a process of its own
python -m benchmarks.training_steps --profile    the operators that take most of a step

A step consists of forward, backward and update: AdamW for the GPT, SGD with momentum for the
convolutional networks. Both sides train the same model on the same batch, in turn.
"""

from __future__ import annotations

import argparse
import collections
import json
import subprocess
import sys
import tempfile
import time
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import onnx
import onnxruntime as ort
import torch
from onnx import ModelProto
from torch import nn
from torch.nn.functional import cross_entropy, scaled_dot_product_attention

from benchmarks._side_by_side import Row, Task, compared, machine, medians, peak, resident, show
from closedform import UpdateRule, optimizers, schedules, training
from closedform.compiler import compile_schedule
from closedform.options import GraphOptions
from closedform.runtime.onnx_session import open_session


class Block(nn.Module):
    """A pre-norm block of a GPT with causal attention."""

    def __init__(self, width: int, heads: int) -> None:
        super().__init__()
        self.heads = heads
        self.first, self.second = nn.LayerNorm(width), nn.LayerNorm(width)
        self.mixed, self.out = nn.Linear(width, 3 * width), nn.Linear(width, width)
        self.up, self.down = nn.Linear(width, 4 * width), nn.Linear(4 * width, width)

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        """Returns the output."""
        rows, length, width = x.shape
        query, key, value = (
            part.view(rows, length, self.heads, width // self.heads).transpose(1, 2)
            for part in self.mixed(self.first(x)).chunk(3, -1)
        )
        attended = scaled_dot_product_attention(query, key, value, is_causal=True)
        x = x + self.out(attended.transpose(1, 2).reshape(rows, length, width))
        result: torch.Tensor = x + self.down(nn.functional.gelu(self.up(self.second(x))))
        return result


class GPT(nn.Module):
    """A GPT of characters."""

    def __init__(self, width: int = 128, layers: int = 4, length: int = 64) -> None:
        super().__init__()
        self.tokens = nn.Embedding(96, width)
        self.positions = nn.Parameter(torch.randn(length, width) / 50)
        self.blocks = nn.Sequential(*(Block(width, 4) for _ in range(layers)))
        self.norm = nn.LayerNorm(width)
        self.head = nn.Linear(width, 96, bias=False)

    def forward(self, tokens: torch.Tensor) -> torch.Tensor:
        """Returns the output."""
        hidden = self.blocks(self.tokens(tokens) + self.positions)
        result: torch.Tensor = self.head(self.norm(hidden)).flatten(0, 1)
        return result


def convolved(inputs: int, outputs: int, size: int, stride: int = 1, groups: int = 1) -> nn.Module:
    """A convolution with batch normalisation."""
    conv = nn.Conv2d(inputs, outputs, size, stride, size // 2, groups=groups, bias=False)
    return nn.Sequential(conv, nn.BatchNorm2d(outputs))


class Residual(nn.Module):
    """A basic block of a ResNet."""

    def __init__(self, inputs: int, outputs: int, stride: int) -> None:
        super().__init__()
        self.first = convolved(inputs, outputs, 3, stride)
        self.second = convolved(outputs, outputs, 3)
        same = inputs == outputs and stride == 1
        self.short = nn.Identity() if same else convolved(inputs, outputs, 1, stride)

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        """Returns the output."""
        inner = self.second(torch.relu(self.first(x)))
        return torch.relu(inner + self.short(x))


def resnet(width: int = 32) -> nn.Module:
    """A ResNet of two blocks at each of three sizes, for images of 32 x 32."""
    layers: list[nn.Module] = [convolved(3, width, 3), nn.ReLU()]
    for stage, stride in enumerate((1, 2, 2)):
        outputs = width << stage
        inputs = max(outputs // stride, width)
        layers += [Residual(inputs, outputs, stride), Residual(outputs, outputs, 1)]
    return nn.Sequential(*layers, nn.AdaptiveAvgPool2d(1), nn.Flatten(), nn.Linear(4 * width, 10))


class Inverted(nn.Module):
    """An inverted residual of MobileNetV2."""

    def __init__(self, inputs: int, outputs: int, stride: int, factor: int) -> None:
        super().__init__()
        wide = inputs * factor
        layers = [] if factor == 1 else [convolved(inputs, wide, 1), nn.ReLU6()]
        layers += [convolved(wide, wide, 3, stride, wide), nn.ReLU6(), convolved(wide, outputs, 1)]
        self.inner = nn.Sequential(*layers)
        self.adds = stride == 1 and inputs == outputs

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        """Returns the output."""
        inner: torch.Tensor = self.inner(x)
        return x + inner if self.adds else inner


def mobilenet() -> nn.Module:
    """MobileNetV2 with half its repetitions, for images of 32 x 32."""
    layers: list[nn.Module] = [convolved(3, 32, 3), nn.ReLU6()]
    inputs = 32
    stages = ((1, 16, 1, 1), (6, 24, 1, 1), (6, 32, 2, 2), (6, 64, 2, 2), (6, 96, 1, 1))
    for factor, outputs, count, stride in (*stages, (6, 160, 1, 2)):
        for index in range(count):
            layers.append(Inverted(inputs, outputs, 1 if index else stride, factor))
            inputs = outputs
    layers += [convolved(inputs, 640, 1), nn.ReLU6(), nn.AdaptiveAvgPool2d(1), nn.Flatten()]
    return nn.Sequential(*layers, nn.Linear(640, 10))


def _tokens(rows: int) -> tuple[torch.Tensor, ...]:
    return torch.randint(96, (rows, 64)), torch.randint(96, (rows, 64))


def _images(rows: int) -> tuple[torch.Tensor, ...]:
    return torch.randn(rows, 3, 32, 32), torch.randint(10, (rows,))


def _flat_loss(output: torch.Tensor, target: torch.Tensor) -> torch.Tensor:
    return cross_entropy(output, target.flatten())


Optimizer = Callable[[nn.Module], torch.optim.Optimizer]


def _adamw(model: nn.Module) -> torch.optim.Optimizer:
    return torch.optim.AdamW(model.parameters(), lr=1e-3)


def _sgd(model: nn.Module) -> torch.optim.Optimizer:
    return torch.optim.SGD(model.parameters(), lr=1e-2, momentum=0.9)


@dataclass(frozen=True, slots=True)
class Case:
    """A model to train, with the bars of its step's time for one and for two threads."""

    model: Callable[[], nn.Module]
    batch: Callable[[int], tuple[torch.Tensor, ...]]
    rows: int
    rule: UpdateRule
    in_torch: Optimizer
    loss: Callable[..., torch.Tensor]
    bars: tuple[float, float]


_ADAMW, _SGD = optimizers.adamw(1e-3), optimizers.sgd(1e-2, momentum=0.9)

CASES = {
    "GPT, 128 wide, rows 1": Case(GPT, _tokens, 1, _ADAMW, _adamw, _flat_loss, (0.75, 0.6)),
    "GPT, 128 wide, rows 8": Case(GPT, _tokens, 8, _ADAMW, _adamw, _flat_loss, (0.85, 0.75)),
    "ResNet, width 32": Case(resnet, _images, 16, _SGD, _sgd, cross_entropy, (1.1, 1.2)),
    "MobileNetV2": Case(mobilenet, _images, 16, _SGD, _sgd, cross_entropy, (1.1, 1.2)),
}

MEMORY_BAR = 0.7


def torch_step(case: Case) -> Task:
    """A step of torch eager."""
    torch.manual_seed(0)
    model = case.model().train()
    inputs, targets = case.batch(case.rows)
    optimizer = case.in_torch(model)

    def step() -> None:
        optimizer.zero_grad()
        case.loss(model(inputs), targets).backward()
        optimizer.step()

    return step


def files(case: Case, folder: Path) -> None:
    """Writes the files of a step."""
    torch.manual_seed(0)
    training.export(
        case.model(), case.loss, case.batch(max(case.rows, 2)), case.rule, folder, validate=False
    )


def session_step(case: Case, folder: Path, threads: int) -> Task:
    """A step of onnxruntime."""
    session = training.TrainSession(folder, threads=threads)
    torch.manual_seed(0)
    case.model()
    batch = tuple(tensor.numpy() for tensor in case.batch(case.rows))
    return lambda: session.step(batch)


def time_rows(names: list[str], threads: int) -> Iterator[Row]:
    """The time of a step, as a ratio to torch's."""
    torch.set_num_threads(threads)
    clock = time.process_time if threads == 1 else time.perf_counter
    for name in names:
        case = CASES[name]
        with tempfile.TemporaryDirectory() as folder:
            files(case, Path(folder))
            tasks = session_step(case, Path(folder), threads), torch_step(case)
            ours, peer = medians(*tasks, rounds=25, warm=3, clock=clock)
        suffix = f"{threads} thread{'s' * (threads > 1)}"
        yield compared(f"{name}, {suffix}", case.bars[threads - 1], ours, peer, "torch")


def memory_rows(names: list[str]) -> Iterator[Row]:
    """Growth of the resident set by 10 steps, model and states included, as a ratio to torch's."""
    for name in names:
        with tempfile.TemporaryDirectory() as folder:
            files(CASES[name], Path(folder))
            grown = []
            for side in ("session", "torch"):
                command = [sys.executable, "-m", "benchmarks.training_steps", "--grow", side]
                given = [*command, "--folder", folder, "--only", name]
                done = subprocess.run(given, capture_output=True, check=True, text=True)
                grown.append(float(done.stdout) / 2**20)
        ours, peer = grown
        detail = f"{ours:.1f} MiB, torch {peer:.1f} MiB"
        yield Row(f"{name}, memory", ours / peer, MEMORY_BAR, detail)


def grown(name: str, side: str, folder: Path) -> float:
    """Growth of this process by 10 steps at its peak, in bytes; libraries are warm before it."""
    torch.set_num_threads(1)
    case = CASES[name]
    small = torch.nn.Conv2d(1, 1, 3)
    small(torch.zeros(1, 1, 5, 5)).sum().backward()
    _sgd(small).step()
    open_session(compile_schedule(schedules.cosine(1, 0, 9), GraphOptions()))
    before = resident()
    step = session_step(case, folder, 1) if side == "session" else torch_step(case)
    for _ in range(10):
        step()
    return peak() - before


@dataclass(frozen=True, slots=True)
class NodeTime:
    """The time of an operator in a step.

    Attributes:
        node: The name of its node in the graph.
        kind: The type of the operator.
        inputs: The shapes of its inputs.
        outputs: The shapes of its outputs.
        seconds: The mean of some steps.
    """

    node: str
    kind: str
    inputs: list[list[int]]
    outputs: list[list[int]]
    seconds: float


def profile(names: list[str], top: int = 25) -> None:
    """Prints the operators that take most of a step, by kind and shapes."""
    for name in names:
        case = CASES[name]
        with tempfile.TemporaryDirectory() as folder:
            files(case, Path(folder))
            times, _ = node_times(case, Path(folder))
        by_kind: dict[str, list[float]] = collections.defaultdict(lambda: [0.0, 0])
        by_shape: dict[str, list[float]] = collections.defaultdict(lambda: [0.0, 0])
        for found in times:
            shapes = f"{found.kind} {found.inputs} -> {found.outputs}"
            for table, key in ((by_kind, found.kind), (by_shape, shapes)):
                table[key][0] += found.seconds
                table[key][1] += 1
        total = sum(found.seconds for found in times)
        print(f"{name}: {1e3 * total:.2f} ms in {len(times)} operators")
        for table in (by_kind, by_shape):
            for key, (taken, count) in sorted(table.items(), key=lambda item: -item[1][0])[:top]:
                print(f"  {taken / total:6.1%} {1e6 * taken:9.0f} µs {count:5.0f}  {key[:150]}")


def node_times(case: Case, folder: Path, steps: int = 10) -> tuple[list[NodeTime], ModelProto]:
    """Returns the operators of a step in the order in which they run, and their graph."""
    options = ort.SessionOptions()
    options.intra_op_num_threads = 1
    options.enable_profiling = True
    options.enable_mem_pattern = False
    options.profile_file_prefix = str(folder / "profile")
    options.optimized_model_filepath = str(folder / "optimized.onnx")
    options.graph_optimization_level = ort.GraphOptimizationLevel.ORT_ENABLE_BASIC
    raw = ort.InferenceSession(str(folder / "train.onnx"), options)
    start = ort.InferenceSession(str(folder / "init.onnx"))
    feeds = dict(zip((o.name for o in start.get_outputs()), start.run(None, {}), strict=True))
    tensors = [tensor.numpy() for tensor in case.batch(case.rows)]
    batch = [port.name for port in raw.get_inputs() if port.name.startswith("batch.")]
    feeds |= dict(zip(batch, tensors, strict=True))
    feeds = {port.name: feeds[port.name] for port in raw.get_inputs()}
    for _ in range(steps):
        raw.run(None, feeds)
    events = json.loads(Path(raw.end_profiling()).read_text(encoding="utf-8"))
    found: dict[str, NodeTime] = {}
    for event in events:
        if event.get("cat") != "Node" or not event["name"].endswith("_kernel_time"):
            continue
        args: dict[str, Any] = event["args"]
        node = event["name"].removesuffix("_kernel_time")
        inputs: list[list[int]] = [list(*shape.values()) for shape in args["input_type_shape"]]
        outputs: list[list[int]] = [list(*shape.values()) for shape in args["output_type_shape"]]
        before = found[node].seconds if node in found else 0.0
        taken = before + event["dur"] / 1e6 / steps
        found[node] = NodeTime(node, args["op_name"], inputs, outputs, taken)
    return list(found.values()), onnx.load(folder / "optimized.onnx")


def main() -> None:
    """Prints what the arguments ask for."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--threads", type=int, default=1)
    parser.add_argument("--memory", action="store_true")
    parser.add_argument("--profile", action="store_true")
    parser.add_argument("--only", help="a part of the names of models", default="")
    parser.add_argument("--grow", choices=("session", "torch"), help=argparse.SUPPRESS)
    parser.add_argument("--folder", type=Path, help=argparse.SUPPRESS)
    given = parser.parse_args()
    names = [name for name in CASES if given.only in name]
    if given.grow:
        print(grown(given.only, given.grow, given.folder))
        return
    print(machine(("closedform", "torch", "numpy", "onnxruntime")))
    if given.profile:
        torch.set_num_threads(1)
        profile(names)
    elif given.memory:
        show(memory_rows(names))
    else:
        show(time_rows(names, given.threads))


if __name__ == "__main__":
    main()

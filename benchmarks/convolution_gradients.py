"""The forms of the gradient of a convolution in its weight, by time in onnxruntime.

python -m benchmarks.convolution_gradients  writes the table of the fastest form of each class of
                                            shapes to training/to_onnx/convolution_costs.py
"""

from __future__ import annotations

import itertools
import time
from collections.abc import Iterator, Sequence
from pathlib import Path
from typing import Any

import torch
from torch.fx.experimental.proxy_tensor import make_fx

from benchmarks._side_by_side import machine
from closedform.runtime.onnx_session import open_session
from closedform.training.to_onnx import convolution_costs
from closedform.training.to_onnx.convolutions import FORMS, Geometry
from closedform.training.to_onnx.onnx_program import write_onnx
from closedform.training.to_onnx.onnx_registry import onnx_decompositions

ROWS = 16
CHANNELS = (4, 32, 64, 128)
SIZES = (4, 8, 16, 32)
OF_KIND = {
    "dense": ("correlated", "summed", "shifted", "channels_last"),
    "grouped": ("correlated", "summed"),
    "depthwise": ("correlated", "diagonals"),
}
ROUNDS = 3

Shapes = tuple[torch.Tensor, torch.Tensor, torch.Tensor, Geometry]


def example(kind: str, kernel: int, stride: int, channels: int, size: int) -> Shapes:
    """Returns the tensors and the geometry of a convolution whose output has ``size`` squared."""
    groups = {"dense": 1, "grouped": 2, "depthwise": channels}[kind]
    total = channels * 2 if kind == "grouped" else channels
    across = (size - 1) * stride + 1 + (kernel > 1) * (stride > 1)
    wide = torch.randn(ROWS, total, across, across)
    narrow = torch.randn(ROWS, total, size, size)
    weight = torch.zeros(total, total // groups, kernel, kernel)
    padding = [kernel // 2] * 2
    return wide, narrow, weight, ([stride] * 2, padding, [1, 1], groups)


def in_onnxruntime(form: str, of: Shapes) -> Any:
    """Returns a function that computes a form."""
    *tensors, geometry = of

    def called(*given: torch.Tensor) -> list[torch.Tensor]:
        return [FORMS[form](given[0], given[1], given[2], geometry)]

    table = onnx_decompositions(21)
    traced = make_fx(called, tracing_mode="fake", decomposition_table=table)(*tensors)
    names = ["wide", "narrow", "weight"]
    session = open_session(write_onnx(traced, names, ["out"], {}, 21, "a form"), threads=1)
    feeds = {
        name: tensor.numpy()
        for name, tensor in zip(names, tensors, strict=True)
        if name in session.inputs
    }
    return lambda: session.raw.run(None, feeds)


def times(forms: Sequence[str], of: Shapes) -> dict[str, float]:
    """Returns the least CPU time of each form in seconds; the forms run in turn."""
    tasks = {form: in_onnxruntime(form, of) for form in forms}
    found: dict[str, list[float]] = {form: [] for form in forms}
    for _ in range(ROUNDS):
        for form, task in tasks.items():
            start = time.process_time()
            task()
            found[form].append(time.process_time() - start)
    return {form: min(taken) for form, taken in found.items()}


def lines() -> Iterator[str]:
    """Measures, prints the times in ms, and returns the rows of the table."""
    for kind, kernel, stride in itertools.product(OF_KIND, (1, 3), (1, 2)):
        if kind == "depthwise" and kernel == 1:
            continue
        for index, channels in enumerate(CHANNELS):
            row = []
            for size in SIZES:
                forms = [f for f in OF_KIND[kind] if f != "shifted" or kernel > stride == 1]
                found = times(forms, example(kind, kernel, stride, channels, size))
                row.append(min(found, key=lambda form: found[form]))
                taken = ", ".join(f"{form} {1e3 * t:.2f}" for form, t in found.items())
                print(f"{kind} {kernel} {stride} {channels} channels, {size}²: {taken}", flush=True)
            yield " ".join((f"{kind:9} {kernel} {stride} {index} ", *(f"{f:13}" for f in row)))


def main() -> None:
    """Writes the table."""
    torch.set_num_threads(1)
    print(machine(("torch", "onnxruntime")))
    path = Path(convolution_costs.__file__)
    head, mark, rest = path.read_text(encoding="utf-8").partition('_TABLE = """\\\n')
    tail = rest[rest.index('"""') :]
    body = "".join(f"{line.rstrip()}\n" for line in lines())
    path.write_text(f"{head}{mark}{body}{tail}", encoding="utf-8")


if __name__ == "__main__":
    main()

"""Training steps of MLPs in onnxruntime, compared with those of onnxsim: one thread, CPU time.

pip install --no-deps onnxsim      an optional peer; measured with 0.8.1
python -m benchmarks.training_neighbours

Both differentiate the model ahead and run a step of Adam in onnxruntime, on one thread, in turn,
from the same parameters and on the same batch; their losses are compared. onnxsim has no gradient
of a cross entropy, so the loss is a mean of squares. Its step takes the learning rate and the bias
corrections of Adam as numbers; ours computes them in the graph.
"""

from __future__ import annotations

import contextlib
import copy
import importlib
import io
import itertools
import logging
import sys
import tempfile
import time
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import numpy as np
import onnxruntime as ort
import torch
from torch import nn

from benchmarks._side_by_side import Row, compared, machine, medians, show
from closedform import optimizers, training

Step = Callable[[], float]

SIZES = {
    "64-128-10, 32 rows": ((64, 128, 10), 32),
    "256-512-512-10, 64 rows": ((256, 512, 512, 10), 64),
    "784-1024-1024-10, 256 rows": ((784, 1024, 1024, 10), 256),
}
"""Widths and rows: a step takes 0.1, 1 and 10 ms."""

RATE = 1e-3


class _WithLoss(nn.Module):
    def __init__(self, model: nn.Module) -> None:
        super().__init__()
        self.model = model

    def forward(self, x: torch.Tensor, y: torch.Tensor) -> torch.Tensor:
        return _loss(self.model(x), y)


def _loss(output: torch.Tensor, target: torch.Tensor) -> torch.Tensor:
    difference = output - target
    return (difference * difference).mean()


def _mlp(widths: tuple[int, ...]) -> nn.Module:
    torch.manual_seed(0)
    layers: list[nn.Module] = []
    for inputs, outputs in itertools.pairwise(widths):
        layers += [nn.Linear(inputs, outputs), nn.ReLU()]
    return nn.Sequential(*layers[:-1])


def own_step(model: nn.Module, batch: tuple[torch.Tensor, ...], folder: Path) -> Step:
    """A step of ours."""
    training.export(model, _loss, batch, optimizers.adam(RATE), folder, validate=False)
    session = training.TrainSession(folder, threads=1)
    arrays = tuple(tensor.numpy() for tensor in batch)
    return lambda: session.step(arrays).loss


def step_of_onnxsim(model: nn.Module, batch: tuple[torch.Tensor, ...]) -> Step:
    """A step of onnxsim, on one thread, which its interface does not offer."""
    onnxsim: Any = importlib.import_module("onnxsim")
    runtime: Any = importlib.import_module("onnxsim.backend").rt

    class OneThread(ort.SessionOptions):  # type: ignore[misc]
        def __init__(self) -> None:
            super().__init__()
            self.intra_op_num_threads = 1

    logging.disable(logging.WARNING)
    loop: Any = onnxsim.compile_torch_training_loop(_WithLoss(model), batch)
    names = ("x", "y")
    feeds = dict(zip(names, (tensor.numpy() for tensor in batch), strict=True))
    before = runtime.SessionOptions
    runtime.SessionOptions = OneThread
    try:
        _ = loop.step_graph
        loop._compile()
    finally:
        runtime.SessionOptions = before
        logging.disable(logging.NOTSET)
    return lambda: float(loop(feeds, lr=RATE))


def rows() -> Iterator[Row]:
    """The time of a step, as a ratio to that of onnxsim."""
    for name, (widths, count) in SIZES.items():
        model = _mlp(widths)
        batch = torch.randn(count, widths[0]), torch.randn(count, widths[-1])
        with tempfile.TemporaryDirectory() as folder:
            with contextlib.redirect_stdout(io.StringIO()):
                steps = (
                    own_step(copy.deepcopy(model), batch, Path(folder)),
                    step_of_onnxsim(copy.deepcopy(model), batch),
                )
            own, others = ([step() for _ in range(5)] for step in steps)
            # Adam divides by gradients, so roundings grow a little; a wrong step is far from this.
            np.testing.assert_allclose(own, others, rtol=1e-4)
            least = 3.0 if count < 100 else 6.0
            ours, peer = medians(*steps, rounds=31, least=least, clock=time.process_time)
        yield compared(f"MLP {name}, 1 thread", 1.0, ours, peer, "onnxsim")


def main() -> None:
    """Prints the rows."""
    torch.set_num_threads(1)
    try:
        print(machine(("closedform", "onnxsim", "torch", "numpy", "onnxruntime")))
    except ModuleNotFoundError:
        sys.exit("onnxsim is not installed: pip install --no-deps onnxsim")
    show(rows())


if __name__ == "__main__":
    main()

"""Peak memory of the training of GPT-2 small, 124 M parameters, next to the size of its weights.

python -m benchmarks.training_memory                 all phases; needs transformers
python -m benchmarks.training_memory --folder run    keeps the export, or measures one that exists

Each phase is a process. A figure is the peak of its resident set minus its resident set after the
imports, divided by the bytes of the weights; the peak of the whole process is the detail.
"""

from __future__ import annotations

import argparse
import json
import os
import subprocess
import sys
import tempfile
import time
from collections.abc import Callable, Iterator
from pathlib import Path

import numpy as np

from benchmarks._side_by_side import Row, peak, resident, show

ROWS, LENGTH = 2, 64
BARS = {"export": 4.0, "open": None, "train": 4.0, "load": 4.0, "to_onnx": 2.5}
"""Of each phase; ``to_onnx`` is measured beyond the memory of a session that has trained."""

EXPORT_SECONDS = 60
"""The bar on the CPU time of the export."""


def export(folder: Path) -> float:
    """Exports the model and returns the resident bytes after the imports."""
    import torch
    import torch._dynamo
    from transformers import GPT2Config, GPT2LMHeadModel

    from closedform import optimizers, training

    before = resident()
    torch.manual_seed(0)
    model = GPT2LMHeadModel(GPT2Config(use_cache=False, attn_implementation="sdpa"))
    model.eval()
    tokens = torch.randint(0, 50257, (ROWS, LENGTH))
    batch = {"input_ids": tokens, "labels": tokens}
    axes = {"input_ids": {0: "batch"}, "labels": {0: "batch"}}
    rule = optimizers.adamw(1e-4)
    training.export(model, None, batch, rule, folder, dynamic_axes=axes, verbose=True)
    return before


def _open(folder: Path) -> float:
    from closedform.training import TrainSession

    before = resident()
    TrainSession(folder)
    return before


def _train(folder: Path) -> float:
    from closedform.training import TrainSession

    before = resident()
    session = TrainSession(folder)
    _steps(session)
    session.save(folder / "state.safetensors")
    return before


def _steps(session: object) -> None:
    tokens = np.random.default_rng(0).integers(0, 50257, (ROWS, LENGTH))
    for _ in range(3):
        print(session.step({"input_ids": tokens, "labels": tokens}), file=sys.stderr)  # type: ignore[attr-defined]


def _load(folder: Path) -> float:
    from closedform.training import TrainSession

    before = resident()
    session = TrainSession(folder)
    session.load(folder / "state.safetensors")
    _steps(session)
    return before


def _to_onnx(folder: Path) -> float:
    import closedform.training.inference  # noqa: F401  # imported by the call
    from closedform.training import TrainSession

    session = TrainSession(folder)
    before = resident()
    session.to_onnx(folder / "model.onnx")
    return before


PHASES: dict[str, Callable[[Path], float]] = {
    "export": export,
    "open": _open,
    "train": _train,
    "load": _load,
    "to_onnx": _to_onnx,
}


def rows(folder: Path) -> Iterator[Row]:
    """The phases in their order; an export that exists is not repeated."""
    phases = [name for name in PHASES if name != "export" or not (folder / "train.onnx").exists()]
    for name in phases:
        command = [sys.executable, "-m", "benchmarks.training_memory", "--phase", name]
        process = subprocess.run(
            [*command, "--folder", str(folder)], stdout=subprocess.PIPE, check=True, text=True
        )
        figures = json.loads(process.stdout.splitlines()[-1])
        weights = sum(path.stat().st_size for path in folder.glob("init.onnx*"))
        grown, whole = figures["peak"] - figures["before"], figures["peak"] / weights
        detail = f"{grown / 1e9:.2f} GB; the whole process {whole:.2f}"
        yield Row(f"GPT-2 small, {name}", grown / weights, BARS[name], detail)
        if name == "export":
            yield Row(
                "GPT-2 small, CPU time of export", figures["seconds"], EXPORT_SECONDS, "", "s"
            )


def main() -> None:
    """Prints the rows, or the figures of one phase."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--folder", type=Path)
    parser.add_argument("--phase", choices=sorted(PHASES), help=argparse.SUPPRESS)
    arguments = parser.parse_args()
    if arguments.phase:
        before = PHASES[arguments.phase](arguments.folder)
        figures = {"before": before, "peak": peak(), "seconds": time.process_time()}
        print(json.dumps(figures))
        sys.stdout.flush()
        os._exit(0)  # the release of gigabytes takes seconds
    with tempfile.TemporaryDirectory() as temporary:
        show(rows(arguments.folder or Path(temporary)))


if __name__ == "__main__":
    main()

"""Readers of the reference records: values that the reference systems computed themselves.

``tests/frameworks/NAME`` has the records of a framework: ``records.jsonl``, a line for each
schedule or call, ``configs``, real configs, ``configs.jsonl``, the values that its own code
computes from each of them, and ``judged.jsonl``, rows whose values are not those of their config.
``optimizers/`` holds trajectories of optimizers, whose format ``OptimizerRecord`` reads.
"""

import functools
import json
from collections.abc import Iterator, Sequence
from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import NDArray

ROOT = Path(__file__).parent
FRAMEWORKS = ROOT.parent / "frameworks"
CEREBRAS = FRAMEWORKS / "cerebras" / "configs"
CONFIGS = sorted(CEREBRAS.glob("*.yaml"))
"""The 35 configs of real training runs of cerebras."""

Row = dict[str, Any]
Array = NDArray[Any]


def _lines(path: Path) -> list[Row]:
    return [json.loads(line) for line in path.read_text(encoding="utf-8").splitlines()]


def _of_frameworks(name: str) -> Iterator[tuple[Path, Row]]:
    """The rows of the files with this name, framework by framework, each with its folder."""
    for path in sorted(FRAMEWORKS.glob(f"*/{name}")):
        for row in _lines(path):
            yield path.parent, row


@functools.cache
def _records(key: str) -> list[Row]:
    """The records with a key, which only those of one kind have."""
    return [row for _, row in _of_frameworks("records.jsonl") if key in row]


def framework_records() -> list[Row]:
    """Values of the schedules of training frameworks, computed by the frameworks' own code."""
    return _records("facts")


def schedule_records() -> list[Row]:
    """Values of the scheduler classes of cerebras, pytorch-accelerated and torch."""
    return _records("param_groups")


def other_system_records() -> list[Row]:
    """Values of transformers, timm and optax, made here from the installed packages."""
    return _records("base")


def config_function_records() -> list[Row]:
    """Calls of cerebras' config functions, with their results."""
    return _records("function")


def _with_text(folder: Path, row: Row) -> Row:
    """A row that names a config, with its text."""
    path = folder / "configs" / row["file"].partition("/")[2]
    return {**row, "text": path.read_text(encoding="utf-8")}


@functools.cache
def corpus() -> list[Row]:
    """Real configs of frameworks: ``file``, ``text``, and ``expected`` where the curve is known.

    ``expected`` holds ``facts``, ``steps``, the ``lr`` and ``weight_decay`` of each, and ``how``:
    the function of the framework that computed them.
    """
    return [_with_text(folder, row) for folder, row in _of_frameworks("configs.jsonl")]


@functools.cache
def judged() -> list[Row]:
    """Records and configs whose values are not those of the config as it is; see test_judged.py."""
    rows = _of_frameworks("judged.jsonl")
    return [_with_text(folder, row) if "file" in row else row for folder, row in rows]


@functools.cache
def _arrays(name: str) -> dict[str, Array]:
    with np.load(ROOT / "optimizers" / name) as file:
        return dict(file)


class OptimizerRecord:
    """One run of a reference optimizer: parameters, gradients and states by step, from 1."""

    def __init__(self, row: Row) -> None:
        self.row = row
        self.shapes = [tuple(shape) for shape in row["shapes"]]

    @property
    def id(self) -> str:
        return str(self.row["id"])

    def initial(self) -> list[Array]:
        return self._cut(self._raw("init"), self.shapes)

    def gradient(self, step: int) -> list[Array]:
        return self._cut(self._raw("grad")[step - 1], self.shapes)

    def parameter(self, step: int) -> list[Array]:
        return self._cut(self._raw("param")[self.row["param_steps"].index(step)], self.shapes)

    def state(self, name: str, step: int) -> list[Array | None]:
        """The state of each parameter, None where it has none."""
        shapes = self.row["states"][name]
        flat = self._raw(f"state/{name}")[self.row["state_steps"].index(step)]
        parts = iter(self._cut(flat, [tuple(shape) for shape in shapes if shape is not None]))
        return [None if shape is None else next(parts) for shape in shapes]

    def _raw(self, name: str) -> Array:
        return _arrays(self.row["file"])[f"{self.id}/{name}"]

    @staticmethod
    def _cut(flat: Array, shapes: Sequence[tuple[int, ...]]) -> list[Array]:
        ends = np.cumsum([int(np.prod(shape)) for shape in shapes])
        parts = np.split(flat, ends[:-1])
        return [part.reshape(shape) for part, shape in zip(parts, shapes, strict=True)]


def optimizer_records() -> list[OptimizerRecord]:
    """The optimizer records, in the order of the file."""
    return [OptimizerRecord(row) for row in _lines(ROOT / "optimizers" / "index.jsonl")]


def reference_error(system: str, name: str, path: str, steps: int) -> float:
    """The float32 error of a reference class itself: the largest ``rel`` over its configurations.

    The rows are for 12 and for 100 steps; a longer run than 12 is judged by the latter.
    """
    rows = json.loads((ROOT / "optimizers" / "accuracy.json").read_text(encoding="utf-8"))["rows"]
    metric = "rel_12" if steps <= 12 else "rel_100"
    found = [
        row[metric]
        for row in rows
        if (row["system"], row["class"], row["path"]) == (system, name, path)
    ]
    return float(max(found))

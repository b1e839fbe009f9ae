"""Readers of the reference records: values that the reference systems computed themselves.

``schedules.jsonl``, ``config_functions.jsonl``, ``optimizers/`` and ``configs/`` are copies of the
rows, arrays and files of the reference data for the classes that the frameworks have; the format is
described in the specification that came with them.
"""

import functools
import json
import lzma
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import NDArray

ROOT = Path(__file__).parent
CONFIGS = ROOT / "configs"

_REMARKS = {"mae": ("samples",), "nemo-rl": ("algorithm",), "openrlhf": ("trainer",)}

Row = dict[str, Any]
Array = NDArray[Any]


def _lines(path: Path) -> list[Row]:
    return [json.loads(line) for line in path.read_text(encoding="utf-8").splitlines()]


def schedule_records() -> list[Row]:
    """The schedule records, in the order of the file."""
    return _lines(ROOT / "schedules.jsonl")


def config_function_records() -> list[Row]:
    """The records of config functions, in the order of the file."""
    return _lines(ROOT / "config_functions.jsonl")


def other_system_records() -> list[Row]:
    """Values of transformers, timm and optax, made here from the installed packages."""
    return _lines(ROOT / "other_systems.jsonl")


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


def _compressed_lines(path: Path) -> list[Row]:
    text = lzma.decompress(path.read_bytes()).decode("utf-8")
    return [json.loads(line) for line in text.splitlines()]


@functools.cache
def framework_records() -> list[Row]:
    """Values of the schedules of training frameworks, computed by the frameworks' own code."""
    second_part = _compressed_lines(ROOT / "frameworks_new.jsonl.xz")
    return [
        *_compressed_lines(ROOT / "frameworks.jsonl.xz"),
        *second_part,
    ]


@functools.cache
def corpus() -> list[Row]:
    """Real configs of frameworks: ``file``, ``text``, and ``expected`` where the curve is known.

    ``expected`` holds ``facts``, ``steps``, the ``lr`` and ``weight_decay`` of each, and ``how``:
    the function of the framework that computed them.
    """
    second_part = _compressed_lines(ROOT / "corpus_new.jsonl.xz")
    rows = [
        *_compressed_lines(ROOT / "corpus.jsonl.xz"),
        *second_part,
    ]
    return [_without_remarks(row) for row in rows]


def _without_remarks(row: Row) -> Row:
    """A config without the facts that its framework does not depend on: remarks on the run."""
    remarks = _REMARKS.get(row["file"].partition("/")[0], ())
    if not remarks or "expected" not in row:
        return row
    facts = {name: fact for name, fact in row["expected"]["facts"].items() if name not in remarks}
    return {**row, "expected": {**row["expected"], "facts": facts}}


@functools.cache
def judged() -> list[Row]:
    """Records and configs whose values are not those of the config as it is; see test_judged.py."""
    return _lines(ROOT / "judged.jsonl")

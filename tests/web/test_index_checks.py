"""Pages refuse the labels and indices that a session in Python refuses, with row and value."""

import json
import re
import shutil
import subprocess
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from closedform import web
from closedform.errors import SessionError
from closedform.training.index_ranges import IndexRange, check, without_formulas

ROWS, COLUMNS, DRAWS = 4, 6, 40
RANGES = (
    IndexRange("x", "5"),
    IndexRange("x", "5", is_from_end=True),
    IndexRange("x", "5", low=2, free=(-100, 7)),
    IndexRange("x", "columns + 1"),
    IndexRange("x", "columns // 4 + rows % 3 + 3"),
    IndexRange("x", "2 * columns", cuts=((1, 1, None, 2),)),
    IndexRange("x", "5", cuts=((0, -3, None, 1), (1, None, -2, 1), (1, 1, 3, 1))),
    IndexRange("x", "5", steps=(("add", -3), ("multiply", -2))),
    IndexRange("x", "5", steps=(("multiply", 2), ("add", -4))),
    IndexRange("x", "5", steps=(("floor_divide", 2),)),
    IndexRange("x", "5", steps=(("add", -1), ("clip_low", 0))),
    IndexRange("x", "5", steps=(("clip_high", 3),)),
)


def _batches() -> list[np.ndarray[Any, np.dtype[np.int64]]]:
    draws = np.random.default_rng(0)
    batches = []
    for _ in range(DRAWS):
        batch = draws.integers(2, 4, size=(ROWS, COLUMNS))
        place = tuple(draws.integers(0, batch.shape))
        batch[place] = draws.integers(-12, 14)
        batches.append(batch)
    return batches


def _in_python(entry: IndexRange, batch: Any) -> str | None:
    try:
        check([entry], {"batch.x": batch}, {"rows": ROWS, "columns": COLUMNS}, "")
    except SessionError as error:
        return error.what
    return None


def test_pages_refuse_what_python_refuses(tmp_path: Path) -> None:
    if shutil.which("node") is None:
        pytest.skip("needs node")
    inputs = [{"name": "batch.x", "symbols": ["rows", "columns"]}]
    rows = [10, 20, 30, 40]
    pairs = [(entry, batch) for entry in RANGES for batch in _batches()]
    cases = [
        {
            "indices": without_formulas([entry]),
            "inputs": inputs,
            "tensors": {"x": {"dims": batch.shape, "values": batch.ravel().tolist()}},
            "rows": rows,
        }
        for entry, batch in pairs
    ]
    (tmp_path / "cases.json").write_text(json.dumps(cases))
    # Node reads a module from a file that says so; a page says so in its tag.
    module = tmp_path / "trainer.mjs"
    module.write_bytes((Path(web.__file__).parent / "assets" / "trainer.js").read_bytes())
    script = Path(__file__).with_name("check_indices.mjs")
    done = subprocess.run(
        ["node", script, module, tmp_path / "cases.json"],
        capture_output=True,
        text=True,
        timeout=60,
        check=False,
    )
    assert done.returncode == 0, done.stderr
    refused = dict.fromkeys(RANGES, 0)
    for (entry, batch), message in zip(pairs, json.loads(done.stdout), strict=True):
        expected = _in_python(entry, batch)
        assert (message is None) == (expected is None), (entry, batch, message, expected)
        if message is None or expected is None:
            continue
        refused[entry] += 1
        bounds = re.search(r"must have values (.*), got (-?\d+) in row (\d+)", expected)
        assert bounds is not None
        values, value, row = bounds.groups()
        text = f"must have values {values}, got {value} in row {rows[int(row)]} of the data"
        assert text in message
    assert all(0 < count < DRAWS for count in refused.values()), refused

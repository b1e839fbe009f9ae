"""Every script of examples/ runs to its end, in an empty folder and a process of its own."""

import os
import subprocess
import sys
from pathlib import Path

import pytest

EXAMPLES = sorted((Path(__file__).parents[1] / "examples").glob("[a-z]*.py"))
LONG = {"train_characters", "train_digits"}
"""They train for up to a minute; their steps are those of tests/training."""
LIMIT_SECONDS = 300


@pytest.mark.parametrize(
    "script",
    [
        pytest.param(one, id=one.stem, marks=[pytest.mark.exhaustive] if one.stem in LONG else [])
        for one in EXAMPLES
    ],
)
def test_example_runs(script: Path, tmp_path: Path) -> None:
    done = subprocess.run(
        [sys.executable, str(script)],
        cwd=tmp_path,
        env={**os.environ, "MPLBACKEND": "Agg", "COLUMNS": "100", "NO_COLOR": "1"},
        capture_output=True,
        text=True,
        check=False,
        timeout=LIMIT_SECONDS,
    )
    assert done.returncode == 0, f"{script.name}:\n{done.stdout}\n{done.stderr}"
    assert done.stdout.strip(), f"{script.name} prints nothing: an example shows its result"

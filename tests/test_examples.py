"""Every script of examples/ runs to its end, in an empty folder and a process of its own."""

from pathlib import Path

import pytest

from tests.support.programs import run_python

EXAMPLES = sorted((Path(__file__).parents[1] / "examples").glob("[a-z]*.py"))
LONG = {"train_characters", "train_digits"}
"""They train for up to a minute; their steps are those of tests/training."""


@pytest.mark.parametrize(
    "script",
    [
        pytest.param(one, id=one.stem, marks=[pytest.mark.exhaustive] if one.stem in LONG else [])
        for one in EXAMPLES
    ],
)
def test_example_runs(script: Path, tmp_path: Path) -> None:
    shown = {"MPLBACKEND": "Agg", "COLUMNS": "100", "NO_COLOR": "1"}
    done = run_python([str(script)], tmp_path, shown)
    assert done.returncode == 0, f"{script.name}:\n{done.stdout}\n{done.stderr}"
    assert done.stdout.strip(), f"{script.name} prints nothing: an example shows its result"

"""Real configs: each is read, given its facts, and its curves are those of its framework."""

from collections.abc import Mapping
from pathlib import Path
from typing import Any

import numpy as np
import pytest

import closedform.frameworks
from closedform.errors import ClosedFormError
from closedform.language import Schedule
from closedform.recipes import Recipe, load_recipe
from tests.reference.records import CEREBRAS, FRAMEWORKS, Row, corpus, judged

DOUBLE = 1e-12
"""Python's floats: at most some thousand roundings of 1.1e-16 of the largest value."""
SINGLE = 5e-7
"""float32, as ``how`` of the record says: a few operations of 6e-8 each."""

REFUSED: Mapping[str, str] = {}
"""File -> a part of its error, for configs that cannot be read as they are, with the reason."""

LEFT: Mapping[str, str] = {
    "composer/032-resnet50_mild.yaml": (
        "the trainer of Composer multiplies max_duration by scale_schedule_ratio as well, so that "
        "the cosine ends after 36 epochs; the values were computed with the 90 epochs of the file"
    ),
}
"""File -> why its curve is another one than the expected values."""

NAMES = sorted({row["file"].partition("/")[0] for row in corpus() if "expected" in row})


def rows(framework: str) -> list[Row]:
    """The files of a framework whose curves are known."""
    return [
        row for row in corpus() if row["file"].startswith(f"{framework}/") and "expected" in row
    ]


def read(row: Row, folder: Path, **more: Any) -> Recipe:
    """The recipe of a file, with its facts."""
    framework, _, name = row["file"].partition("/")
    path = folder / name
    path.write_text(row["text"], encoding="utf-8")
    facts = row["expected"]["facts"]
    return load_recipe(path, **{"framework": framework, "facts": facts, **more})


def gap(schedule: Schedule, steps: list[int], wanted: list[Any]) -> float:
    """The largest difference, as a part of the largest value."""
    values = np.array([float(value) for value in wanted])
    found = np.array([float(schedule(step)) for step in steps])
    return float(np.max(np.abs(found - values)) / max(np.max(np.abs(values)), 1e-300))


def is_refused(row: Row) -> bool:
    """Whether the framework itself refuses a file, so that there are no values."""
    return "error" in row["expected"] and not row["expected"]["steps"]


def differences(row: Row, folder: Path) -> list[str]:
    """The keys whose curves differ, or the error."""
    data = row["expected"]
    try:
        recipe = read(row, folder)
    except ClosedFormError as error:
        is_known = row["file"] in REFUSED and REFUSED[row["file"]] in str(error)
        return [] if is_known or is_refused(row) else [f"{type(error).__name__}: {error}"]
    if row["file"] in REFUSED or is_refused(row):
        return ["it is read, but must be refused"]
    tolerance = SINGLE if "float32" in data["how"] else DOUBLE
    # The rate of litgpt's optimizer is that of the last micro-batch of an update.
    data = {**data, "lr": data.get("lr_last") or data["lr"]}
    wrong = []
    for key in ("lr", "weight_decay"):
        if data[key] is not None:
            difference = gap(recipe.schedule(key), data["steps"], data[key])
            if not difference <= tolerance:
                wrong.append(f"{key} differs by {difference:.1e} of its largest value")
    return wrong


@pytest.mark.sample(every=2)
@pytest.mark.parametrize("framework", NAMES)
def test_curves_are_those_of_the_framework(framework: str, tmp_path: Path) -> None:
    wrong = {row["file"]: differences(row, tmp_path) for row in rows(framework)}
    wrong = {file: what for file, what in wrong.items() if bool(what) != (file in LEFT)}
    lines = [f"{file}: {'; '.join(what) or 'matches now'}" for file, what in wrong.items()]
    assert not wrong, f"{len(wrong)} of {len(rows(framework))}:\n" + "\n".join(lines)


def test_every_config_has_a_line_with_its_values() -> None:
    named = {row["file"] for row in (*corpus(), *judged()) if "file" in row}
    files = [path.name for path in FRAMEWORKS.glob("*/configs/*") if path.parent != CEREBRAS]
    assert sorted(files) == sorted(file.partition("/")[2] for file in named)


def test_every_folder_is_that_of_a_framework() -> None:
    folders = {path.name for path in FRAMEWORKS.iterdir() if path.name != "__pycache__"}
    sources = Path(closedform.frameworks.__file__).parent
    assert folders <= {path.parent.name for path in sources.glob("*/__init__.py")}

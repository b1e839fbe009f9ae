"""Files of published schedules: each is proved equal to its schedule, with a few exceptions."""

import json
import pathlib
import statistics
import time
from collections.abc import Callable

import numpy as np
import pytest

import closedform as cf
from closedform.api.compiling import compile
from closedform.verify.translation.translation import validate
from closedform.verify.translation.verdicts import KEY
from tests.importers import published, published_families
from tests.importers.test_published import REFUSED

# Factories that have variants add them when they are called.
for _make in list(published.PUBLISHED.values()):
    _make()
FUNCTIONS: dict[str, Callable[[], published.Schedule]] = {
    name: make
    for name, make in (published.PUBLISHED | published_families.PUBLISHED).items()
    if name not in REFUSED
}
NO_FILE = {
    "harvardnlp/annotated-transformer:noam_opt": "it divides by 0 at step 0",
    "curriculum_root:0": "a root of a float at a step at which its exact value is a whole number",
}
UNPROVED: dict[str, str] = {}
"""Functions whose file is not proved, and why."""
NAMES = sorted(FUNCTIONS.keys() - NO_FILE.keys())
MILLISECONDS = 100


def test_there_are_enough() -> None:
    assert len(NAMES) >= 350
    assert len(UNPROVED) <= 0.03 * len(NAMES)


@pytest.mark.sample(every=6)
@pytest.mark.parametrize("name", NAMES)
def test_a_file_is_proved(name: str, tmp_path: pathlib.Path) -> None:
    model = cf.to_onnx(cf.from_python(FUNCTIONS[name]()), tmp_path / "schedule.onnx")
    (entry,) = (json.loads(each.value) for each in model.metadata_props if each.key == KEY)
    assert (entry["status"] == "PROVED") is (name not in UNPROVED), entry["reason"]


@pytest.mark.sample(every=6)
@pytest.mark.parametrize("name", sorted(published_families.PUBLISHED.keys() - NO_FILE.keys()))
def test_a_schedule_is_its_function(name: str) -> None:
    function = FUNCTIONS[name]()
    schedule = cf.from_python(function)
    steps = np.array([0, 1, 2, 13, 77, 150, 999, 12_345])
    expected = np.array([float(function(int(step))) for step in steps])
    # Each rounds some ten times, relative to the largest value.
    tolerance = 1e-12 * np.abs(expected).max()
    np.testing.assert_allclose(schedule(steps), expected, rtol=1e-10, atol=tolerance)


@pytest.mark.exhaustive
def test_the_median_proof_is_short() -> None:
    times = []
    for name in NAMES:
        schedule = cf.from_python(FUNCTIONS[name]())
        graph = compile(schedule)
        began = time.process_time()
        validate(schedule, graph)
        times.append(1000 * (time.process_time() - began))
    assert statistics.median(times) <= MILLISECONDS

"""Calls run through few files, so that a newcomer can follow them."""

import json
import subprocess
import sys
from collections.abc import Callable

import pytest

from benchmarks import walks

# The files of each walk, which may only fall. An export reads its file back with the reader of all
# files and proves it, which is half of its files. Decisions of floats, limits of numbers, states
# that are made at the first step, and balls of intervals brought one to five files each.
MOST_FILES = {
    "to_onnx(schedule)": 68,
    # A curve of a framework is a plain function, which one file reads.
    "two recipes and diff": 55,
    # The checker and the search are among them: each question is answered by a replayed proof.
    "equal recipes and diff": 102,
    "first step of torch": 54,
}


def test_every_walk_has_a_bound() -> None:
    assert MOST_FILES.keys() == walks.WALKS.keys()


@pytest.fixture(scope="module")
def counts() -> dict[str, dict[str, int]]:
    """The calls per file of each walk in a fresh process: caches of other tests make them fewer."""
    command = [sys.executable, "-m", "benchmarks.walks", "--json"]
    result = subprocess.run(command, capture_output=True, check=True, text=True)
    counts: dict[str, dict[str, int]] = json.loads(result.stdout)
    return counts


@pytest.mark.parametrize("name", MOST_FILES)
def test_a_walk_is_not_longer(name: str, counts: dict[str, dict[str, int]]) -> None:
    assert len(counts[name]) <= MOST_FILES[name], "\n".join(sorted(counts[name]))


def test_a_walk_counts_files_of_the_package_only() -> None:
    def call() -> None:
        ",".join(walks.WALKS)

    assert walks.files_of(call) == {}
    build: Callable[[], object] = walks.export_of_a_schedule(0.5)
    assert walks.files_of(build)["exporters/onnx_model.py"] > 0

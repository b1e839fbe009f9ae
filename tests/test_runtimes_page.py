"""The page of back ends and runtimes: written from stored results of enough entries."""

import json

from tests.runtimes.runtimes import RUNTIMES
from tests.support.backends import BACKENDS
from tools import build_runtimes as build


def test_page_is_written_from_the_results() -> None:
    assert build.PAGE.read_text(encoding="utf-8") == build.page(), "run `make runtimes`"


def test_each_runtime_runs_most_of_the_library() -> None:
    results = json.loads(build.RESULTS.read_text(encoding="utf-8"))
    assert set(results) == set(RUNTIMES)
    for name, result in results.items():
        assert result["passed"]["schedules"] >= 75, name
        assert result["passed"]["rules"] >= 17, name


def test_each_back_end_has_most_of_the_library() -> None:
    results = json.loads(build.BACKENDS.read_text(encoding="utf-8"))
    assert set(results) == set(BACKENDS)
    for name, result in results.items():
        assert not result["refused"]["schedules"], name
        assert result["passed"]["schedules"] >= 75, name
        assert result["passed"]["rules"] >= 34, name

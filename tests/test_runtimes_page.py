"""The page of runtimes: written from stored results, which are of enough entries."""

import json

from docs import build_runtimes as build
from tests.runtimes.runtimes import RUNTIMES


def test_page_is_written_from_the_results() -> None:
    assert build.PAGE.read_text(encoding="utf-8") == build.page(), "run `make runtimes`"


def test_each_runtime_runs_most_of_the_library() -> None:
    results = json.loads(build.RESULTS.read_text(encoding="utf-8"))
    assert set(results) == set(RUNTIMES) - {"OpenVINO 2026.4"}
    for name, result in results.items():
        assert result["passed"]["schedules"] >= 75, name
        assert result["passed"]["rules"] >= 17, name

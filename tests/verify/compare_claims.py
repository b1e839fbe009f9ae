"""The standard claims over the whole library and every config: each schedule's are decided.

Not collected with the tests, since it takes minutes; `make compare` runs it. Its figures, with the
times, are printed by `benchmarks/claims.py`.
"""

from pathlib import Path

import pytest

from closedform.recipes import load_schedules
from tests.reference.records import CONFIGS
from tests.test_library import SCHEDULES
from tests.verify.defaults import default_conditions


@pytest.mark.parametrize("name", SCHEDULES)
def test_entry_is_decided_under_its_default_conditions(name: str) -> None:
    schedule = SCHEDULES[name]().unbind()
    report = schedule.verify(assume=default_conditions(schedule))
    assert not report.unknown, str(report)
    assert not report.refuted, str(report)


@pytest.mark.parametrize("name", SCHEDULES)
def test_entry_is_decided_in_its_whole_domain(name: str) -> None:
    report = SCHEDULES[name]().unbind().verify()
    assert not report.unknown, str(report)
    assert not report.refuted, str(report)


@pytest.mark.parametrize("path", CONFIGS, ids=lambda path: path.stem)
def test_config_is_decided(path: Path) -> None:
    schedules, _ = load_schedules(path)
    for schedule in schedules.values():
        report = schedule.verify()
        assert not report.unknown, str(report)
        assert not report.refuted, str(report)

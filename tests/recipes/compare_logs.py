"""Event files of genuine runs, with the package ``tensorboard``: they agree with their configs."""

from pathlib import Path

import pytest

from closedform.recipes.logs import read_log
from tests.analysis.recovery.test_genuine_logs import check_is_recovered
from tests.recipes.test_logs import check_agrees
from tests.reference.logs import GenuineLog, genuine_logs, label

pytestmark = pytest.mark.packages(JAX_ENABLE_X64="1")
LOGS = [log for log in genuine_logs() if log.is_event_file]


@pytest.mark.parametrize("log", LOGS, ids=label)
def test_an_event_file_agrees_with_its_own_config_and_with_no_other(
    log: GenuineLog, tmp_path: Path
) -> None:
    check_agrees(log, read_log(log.write(tmp_path)))
    check_agrees(log, read_log(tmp_path))


@pytest.mark.parametrize("log", [log for log in LOGS if log.is_of_trainer], ids=label)
def test_the_scheduler_of_an_event_file_is_recovered(log: GenuineLog, tmp_path: Path) -> None:
    check_is_recovered(log, log.write(tmp_path))

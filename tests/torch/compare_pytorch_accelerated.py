"""The published tests of pytorch-accelerated's two schedulers, run against ours.

The tests are those of its source distribution on PyPI, fetched when this runs; our classes take the
place of its own under its own import path. Not collected with the tests: ``make compare``.
"""

import importlib
import subprocess
import sys
import tarfile
from pathlib import Path
from typing import Any

import pytest

from closedform.torch import pytorch_accelerated as ours

pytestmark = pytest.mark.packages()
VERSION = "0.1.61"
CACHE = "its own cache of one value, _get_checkpoint_info.cache_clear(), which ours has not"
ROUNDING = (
    "asks for exactly base or lr_min; ours is within 2 ulp of the largest value, its error bound"
)
DIFFERENCES = {
    "test_lr_maxes_equal": ROUNDING,
    "test_wsd_decay_formulas[1.0-0.1]": ROUNDING,
    "test_wsd_decay_formulas[0.01-0.01]": ROUNDING,
    "test_wsd_pre_decay_continuation_multiple_checkpoints": ROUNDING,
    "test_wsd_info_consistency": CACHE,
    "test_wsd_continuation_info_consistency": CACHE,
    "test_wsd_invalid_configurations": "asks for AssertionError; ours is a ValueError",
    "test_wsd_continuation_state": (
        "reads previous_checkpoint_step, which a stateless formula has not (spec 4.3: a load "
        "brings back the old run's arguments)"
    ),
}


class Outcomes:
    """Collects what each test came to."""

    def __init__(self) -> None:
        self.passed: list[str] = []
        self.failed: list[str] = []

    def pytest_runtest_logreport(self, report: Any) -> None:
        if report.when == "call":
            name = report.nodeid.rsplit("::", maxsplit=1)[-1]
            (self.passed if report.passed else self.failed).append(name)


def test_published_tests(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    pytest.importorskip("pytorch_accelerated")
    package = f"pytorch-accelerated=={VERSION}"
    options = ["--no-deps", "--no-binary", ":all:", "-q"]
    subprocess.run(
        [sys.executable, "-m", "pip", "download", *options, "-d", str(tmp_path), package],
        check=True,
    )
    (archive,) = tmp_path.glob("*.tar.gz")
    with tarfile.open(archive) as file:
        file.extractall(tmp_path, filter="data")
    root = tmp_path / f"pytorch_accelerated-{VERSION}"
    for module, name in (
        ("cosine_scheduler", "CosineLrScheduler"),
        ("wsd_scheduler", "WSDLrScheduler"),
    ):
        theirs = importlib.import_module(f"pytorch_accelerated.schedulers.{module}")
        monkeypatch.setattr(theirs, name, getattr(ours, name))
    monkeypatch.chdir(root)
    monkeypatch.syspath_prepend(str(root))
    outcomes = Outcomes()
    files = [f"test/scheduler/test_{kind}_scheduler.py" for kind in ("cosine", "wsd")]
    pytest.main(["-q", "-p", "no:cacheprovider", "--tb=no", *files], plugins=[outcomes])
    print(f"{len(outcomes.passed)} of {len(outcomes.passed) + len(outcomes.failed)} pass")
    for name in outcomes.failed:
        print(f"  {name}: {DIFFERENCES.get(name, 'unexplained')}")
    assert set(outcomes.failed) == set(DIFFERENCES)
    assert len(outcomes.passed) >= 20

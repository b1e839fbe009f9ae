"""The script of `make gpu` on a CPU, and its page."""

import json
from collections.abc import Iterator
from pathlib import Path

import pytest

from benchmarks import gpu
from benchmarks._side_by_side import Row
from tools.build_gpu import SECTION


def test_the_page_has_the_stored_figures() -> None:
    assert SECTION.page.read_text(encoding="utf-8") == SECTION.updated_page()


def test_a_section_that_fails_is_stored_and_the_next_one_runs(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    def broken(setting: gpu.Setting) -> Iterator[Row]:
        yield Row("a row before it", 1.0, 2.0)
        raise RuntimeError("out of memory")

    def whole(setting: gpu.Setting) -> Iterator[Row]:
        yield Row("a row after it", 3.0, 2.0)

    monkeypatch.setattr(gpu, "SECTIONS", {"broken": broken, "whole": whole})
    results = tmp_path / "results" / "gpu.json"
    assert gpu.main(["--device", "cpu", "--results", str(results)]) == 1
    stored = json.loads(results.read_text(encoding="utf-8"))
    assert stored["broken"]["error"] == "RuntimeError: out of memory"
    figures = [row["figure"] for section in stored.values() for row in section["rows"]]
    assert figures == [1.0, 3.0]


def test_a_captured_step_has_its_schedules_inside() -> None:
    """torch.compile takes the place of a CUDA graph; its kernels fuse products and sums."""
    rows = list(gpu.captured_rows(gpu.Setting("cpu")))
    assert [row.task.partition(":")[0] for row in rows[:4]] == list(gpu.CAPTURED)
    # 21 steps of 0.002 at most, each rounded as a number of about 2: 2.4e-7.
    assert max(row.figure for row in rows[:4]) <= 21 * 2.4e-7


def test_an_unknown_section_is_named(capsys: pytest.CaptureFixture[str]) -> None:
    with pytest.raises(SystemExit):
        gpu.main(["--device", "cpu", "heat"])
    assert "unknown sections ['heat']; choose from captured, drop-in" in capsys.readouterr().err

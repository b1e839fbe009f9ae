"""Regressions of the benchmarks: ratios that are stored, and ratios that are measured."""

import re
from pathlib import Path

import pytest

from benchmarks import check
from benchmarks.__main__ import RESULTS, SECTIONS, table, unexplained
from benchmarks._side_by_side import COUNTED, NOISE, Row, decision
from benchmarks.check import best, regressions, stored_ratios

STORED = [
    Row("a / b", 0.5, 0.6, "1 ms, b 2 ms"),
    Row("c / d", 1.0, None),
    Row("e", 3.0, 9, "", "MB"),
]


def test_ratios_are_read_from_the_table_that_is_written() -> None:
    assert stored_ratios(table(STORED)) == {"a / b": 0.5, "c / d": 1.0}


def test_the_results_hold_ratios() -> None:
    assert len(stored_ratios(RESULTS.read_text(encoding="utf-8"))) > 10


def test_a_ratio_beyond_the_noise_is_a_regression() -> None:
    stored = stored_ratios(table(STORED))
    limit = 0.5 * (1 + NOISE)
    assert regressions([Row("a / b", limit, None), Row("new", 9.0, None)], stored) == []
    worse = [Row("a / b", limit * 1.01, None), Row("e", 99.0, None, "", "MB")]
    assert regressions(worse, stored) == ["a / b: 0.657, stored 0.5"]


def test_counts_are_compared_without_noise() -> None:
    stored = stored_ratios(table(STORED))
    assert regressions([Row("a / b", 0.5, None, noise=COUNTED)], stored) == []
    worse = [Row("a / b", 0.51, None, noise=COUNTED)]
    assert regressions(worse, stored) == ["a / b: 0.51, stored 0.5"]


def test_a_row_that_misses_its_bar_has_a_reason() -> None:
    met, missed = Row("a", 1.0, 2, reason="x"), Row("b", 3.0, 2, "1 ms", reason="memory")
    assert "Reason" not in table([met])
    assert "| 1 ms. Reason: memory |" in table([missed])
    assert unexplained(table([met, missed])) == []
    assert unexplained(table([met, Row("b", 3.0, 2, "1 ms")])) == ["b"]


@pytest.mark.parametrize(("figure", "is_failure"), [(1.05, False), (1.1, False), (1.11, True)])
def test_a_row_without_a_reason_fails_beyond_its_noise(figure: float, is_failure: bool) -> None:
    page = table([Row("a / b", figure, 1.0, "1 ms", noise=0.1)])
    assert unexplained(page) == (["a / b"] if is_failure else [])
    assert ("| within noise |" in page) is not is_failure
    explained = table([Row("a / b", figure, 1.0, reason="memory", noise=0.1)])
    assert "| **missed** | Reason: memory |" in explained


def test_every_missed_row_of_the_results_has_a_reason() -> None:
    assert unexplained(RESULTS.read_text(encoding="utf-8")) == []


def test_the_best_of_the_runs_counts() -> None:
    rows = best([Row("a", 2.0, None), Row("b", 1.0, None)], [Row("a", 1.0, None)])
    assert [row.figure for row in rows] == [1.0, 1.0]


@pytest.mark.parametrize(("figure", "code"), [(0.64, 0), (0.66, 1)])
def test_the_check_fails_beyond_the_noise_of_a_stored_page(
    figure: float,
    code: int,
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
    capsys: pytest.CaptureFixture[str],
) -> None:
    page = tmp_path / "base.md"
    page.write_text(table(STORED), encoding="utf-8")
    runs = []

    def part() -> list[Row]:
        runs.append(figure)
        return [Row("a / b", figure, 0.6), Row("new / b", 2.0, None)]

    monkeypatch.setattr(check, "PARTS", (part,))
    assert check.main(["--stored", str(page)]) == code
    said = capsys.readouterr().out
    assert "of another processor" in said
    assert "not stored, so not compared: new / b" in said
    assert ("a / b: 0.66, stored 0.5" in said) == (code == 1)
    assert len(runs) == (check.ATTEMPTS if code else 1)


def test_a_job_compares_with_ratios_that_it_has_stored() -> None:
    text = (RESULTS.parents[1] / ".github" / "workflows" / "bench.yml").read_text(encoding="utf-8")
    (page,) = re.findall(r"-m benchmarks --results \.\./(\S+)", text)
    assert f"-m benchmarks.check --stored {page}" in text


@pytest.mark.parametrize("section", SECTIONS)
def test_the_results_end_a_table_with_its_paragraph(section: str) -> None:
    page = RESULTS.read_text(encoding="utf-8")
    tail = page.partition(f"## {section}\n")[2].partition("\n## ")[0]
    assert tail.rstrip().endswith(SECTIONS[section].SUMMARY)


def test_a_link_to_a_decision_has_its_title() -> None:
    assert decision("milestones").startswith("[Milestones](https://")
    with pytest.raises(FileNotFoundError):
        decision("no_such_page")

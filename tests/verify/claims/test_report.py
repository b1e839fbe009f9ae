"""Reports: what they count, print, write into artefacts, and exit with."""

import json

import pytest
import sympy as sp

from closedform import claims, schedules
from closedform.language import t
from closedform.verify.claims.core import Claim, Goal
from closedform.verify.claims.report import Report, check
from closedform.verify.terms.build import FALSE

LINE = schedules.linear(0, 1, 10)
PROVED = claims.bounded(LINE, 0, 1)
REFUTED = claims.bounded(LINE, high=0.5)
QUESTION = claims.continuous(schedules.step_decay(1, 0.5, 4), is_question=True)
UNKNOWN = Claim("hard", "it is hard", LINE, (Goal("hard", FALSE, is_sufficient=True),))


def report(*asked: Claim) -> Report:
    return check("four claims", asked)


ALL = report(PROVED, REFUTED, QUESTION, UNKNOWN)


def test_findings_by_verdict() -> None:
    assert [f.claim for f in ALL.findings_proved] == [PROVED]
    assert [f.claim for f in ALL.refuted] == [REFUTED]
    assert [f.claim for f in ALL.answered_no] == [QUESTION]
    assert [f.claim for f in ALL.unknown] == [UNKNOWN]
    assert [f.shown for f in ALL] == ["PROVED", "REFUTED", "NO", "UNKNOWN"]
    assert len(ALL) == 4
    assert ALL.seconds == sum(f.verdict.seconds for f in ALL) > 0


@pytest.mark.parametrize(
    ("asked", "code", "strict"),
    [
        ((), 0, 0),
        ((PROVED,), 0, 0),
        ((PROVED, QUESTION), 0, 0),
        ((PROVED, UNKNOWN), 0, 3),
        ((REFUTED,), 1, 1),
        ((UNKNOWN, REFUTED), 1, 1),
    ],
)
def test_exit_codes(asked: tuple[Claim, ...], code: int, strict: int) -> None:
    found = report(*asked)
    assert found.exit_code() == code
    assert found.exit_code(strict=True) == strict


def test_a_report_has_no_truth_value() -> None:
    with pytest.raises(TypeError) as caught:
        bool(ALL)
    assert (
        str(caught.value) == "a report is not a truth value: use .all_proved, .refuted and .unknown"
    )


def test_findings_by_name() -> None:
    assert ALL["hard"].claim is UNKNOWN
    with pytest.raises(KeyError) as caught:
        ALL["total"]
    assert caught.value.args == ("no claim 'total' among bounded, bounded, continuous, hard",)


def test_text_has_a_line_for_each() -> None:
    lines = str(ALL).splitlines()
    assert lines[0] == "four claims"
    assert lines[1].split("  by ")[0].rstrip() == "  PROVED   the value is >= 0 and <= 1"
    assert lines[2].startswith("  REFUTED  the value is <= 0.5         t = ")
    assert "value <= 0.5, the value is " in lines[2]
    assert lines[3].startswith("  NO       the value does not jump")
    assert lines[4].startswith("  UNKNOWN  it is hard")


def test_symbols_of_the_prover_are_not_shown() -> None:
    found = report(QUESTION)["continuous"]
    assert any(" " in name for name in found.verdict.counterexample or {})
    assert "floor" not in found.detail.partition(":")[0]


def test_metadata_is_json_without_times() -> None:
    entries = json.loads(ALL.as_metadata())
    assert [entry["claim"] for entry in entries] == ["bounded", "bounded", "continuous", "hard"]
    assert entries[0]["verdict"] == "PROVED"
    assert entries[0]["arguments"] == {"low": "0", "high": "1"}
    assert entries[1]["arguments"] == {"high": "1/2"}
    assert entries[1]["counterexample"].keys() == {"t"}
    assert "reason" in entries[1]
    assert "arguments" not in entries[3]
    assert "seconds" not in str(entries)
    assert report(PROVED, REFUTED).as_metadata() == report(PROVED, REFUTED).as_metadata()


def test_what_has_a_text_is_an_argument() -> None:
    assert claims.bounded(LINE, 0, sp.sqrt(2)).arguments == {"low": "0", "high": "sqrt(2)"}
    where = claims.bounded(LINE, 0, 1, where=t < 3)
    assert where.arguments == {"low": "0", "high": "1", "where": "t < 3"}
    assert claims.bounded(LINE, 0, sp.sin(1)).arguments is None
    assert claims.bounded(LINE.unbind(), 0, 1, assume=[sp.Symbol("end") < 1]).arguments is None
    assert claims.ends_at(LINE, 1).arguments == {"value": "1", "at": "10"}
    assert claims.periodic(LINE, 4).arguments == {"period": "4"}


@pytest.mark.parametrize(
    ("asked", "expected"),
    [
        ((), False),
        ((PROVED,), True),
        ((PROVED, QUESTION), True),
        ((PROVED, UNKNOWN), False),
        ((PROVED, REFUTED), False),
    ],
)
def test_all_proved_takes_every_claim(asked: tuple[Claim, ...], expected: bool) -> None:
    assert report(*asked).all_proved is expected


def test_a_fault_in_floats_is_not_proved() -> None:
    assert Report("lr", ALL.findings_proved).all_proved
    assert not Report("lr", ALL.findings_proved, floats=ALL.refuted).all_proved

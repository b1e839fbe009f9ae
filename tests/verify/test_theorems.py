"""The theorems of the docs: each comes out as its row says, and the page says what the rows say."""

import re
from dataclasses import replace
from fractions import Fraction
from typing import Any

import pytest
from flint import fmpq

from closedform.language import Schedule
from closedform.verify.claims.core import Claim
from closedform.verify.terms.evaluate import Undefined, holds, value
from closedform.verify.terms.sympy_io import value_term
from closedform.verify.terms.tree import symbols
from closedform.verify.terms.verdict import Status, Verdict
from tests.recipes.schedule_tables import DEFECTS
from tests.reference.records import schedule_records
from tests.verify.claims.test_iterates import iterated, steps_of
from tools import theorems as docs
from tools.theorem import PROVED, REFUTED, Section, Theorem
from tools.theorems_polynomials import ITERATIONS

LINES: dict[str, str] = dict(
    re.findall(
        r"^### (.+?)\n.*?^(\*\*(?:PROVED|REFUTED|UNKNOWN)\*\*.*?)$",
        docs.PAGE.read_text(encoding="utf-8"),
        re.MULTILINE | re.DOTALL,
    )
)
"""The text of the page for each theorem."""


def by_name(theorem: Theorem) -> str:
    return theorem.name


@pytest.mark.sample(every=4)
@pytest.mark.parametrize("theorem", docs.THEOREMS, ids=by_name)
def test_theorem_is_decided_as_its_row_says(theorem: Theorem) -> None:
    claim = theorem.claim()
    verdict = claim.verify()
    assert verdict.status is theorem.expected, str(verdict)
    if verdict.refuted:
        assert is_false_at(theorem, claim, verdict.counterexample or {})


def is_false_at(theorem: Theorem, claim: Claim, point: Any) -> bool:
    """Whether one of the claim's goals is false, or has no value, where it is asked."""
    place = {name: fmpq(int(number.p), int(number.q)) for name, number in point.items()}
    if claim.name == "iterate_within":
        row = ITERATIONS[theorem.name]
        x = Fraction(int(point["x"].p), int(point["x"].q))
        result = iterated(steps_of(row.coefficients, row.steps), x)
        is_asked = row.source[0] <= x <= row.source[1]
        return is_asked and not row.target[0] <= result <= row.target[1]
    if claim.name == "finite":
        # The demand of an operation may be stricter than needed: the value itself must be missing.
        assert isinstance(claim.subject, Schedule)
        root = value_term(claim.subject)
        anywhere = dict.fromkeys(symbols(root), fmpq(1))
        return isinstance(value(root, {**anywhere, **place}), Undefined)
    for goal in (*claim.presumes, *claim.goals):
        given = [holds(fact, place) for fact in (*claim.assume, *goal.given)]
        if all(fact is True for fact in given):
            found = holds(goal.statement, place)
            if found is False or isinstance(found, Undefined):
                return True
    return False


@pytest.mark.parametrize("theorem", docs.THEOREMS, ids=by_name)
def test_page_says_the_verdict(theorem: Theorem) -> None:
    assert LINES[theorem.name].startswith(f"**{theorem.expected.value}** ")


@pytest.mark.parametrize(
    "theorem",
    [theorem for theorem in docs.THEOREMS if theorem.expected is REFUTED],
    ids=by_name,
)
def test_page_has_a_point_where_the_statement_is_false(theorem: Theorem) -> None:
    shown = re.findall(r"`([\w.]+) = (-?\d+(?:/\d+)?)`", LINES[theorem.name])
    claim = theorem.claim()
    assert is_false_at(theorem, claim, {name: _Number(text) for name, text in shown})


class _Number:
    """A fraction of the page, read as a point holds it."""

    def __init__(self, text: str) -> None:
        number = Fraction(text)
        self.p, self.q = number.numerator, number.denominator


def test_page_is_made_of_the_rows() -> None:
    found = docs.PAGE.read_text(encoding="utf-8")
    assert found == docs.page(LINES), "run `make theorems`"


def test_rows_are_distinct_and_every_section_has_some() -> None:
    names = [theorem.name for theorem in docs.THEOREMS]
    assert len(set(names)) == len(names)
    assert {theorem.section for theorem in docs.THEOREMS} == set(Section)
    assert all(theorem.source for theorem in docs.THEOREMS)


def test_every_flagged_defect_is_stated() -> None:
    stated = {flag for theorem in docs.THEOREMS for flag in theorem.flags}
    flagged = {flag for row in schedule_records() for flag in row["flags"]} | set(DEFECTS)
    assert flagged <= stated | set(docs.WITHOUT_THEOREM)
    assert not stated & set(docs.WITHOUT_THEOREM)


def test_every_defect_is_refuted() -> None:
    # A mode that is dropped is not a false value: it is proved to have no effect.
    for theorem in docs.THEOREMS:
        if set(theorem.flags) - {"scale_mode_overwritten"}:
            assert theorem.expected is REFUTED, theorem.name


def test_evidence_of_a_proof_and_of_a_refutation() -> None:
    proved = Verdict(PROVED, ("identity", "evaluation"))
    assert docs.evidence(proved) == "**PROVED** by identity, evaluation."
    point: Any = {"t": 11, "b": Fraction(1, 2)}
    refuted = Verdict(REFUTED, ("samples",), point, "it is 1 * x", seconds=3.0)
    assert docs.evidence(refuted) == "**REFUTED** at `t = 11`, `b = 1/2`: `it is 1 * x`."


def test_page_is_not_written_where_a_row_is_wrong(
    monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str], tmp_path: Any
) -> None:
    first = docs.THEOREMS[0]
    monkeypatch.setattr(docs, "PAGE", tmp_path / "theorems.md")
    monkeypatch.setattr(docs, "THEOREMS", (replace(first, expected=Status.REFUTED),))
    assert docs.main() == 1
    assert capsys.readouterr().err.startswith("Exponential decay: PROVED by ")
    assert not docs.PAGE.exists()
    monkeypatch.setattr(docs, "THEOREMS", (first,))
    assert docs.main() == 0
    assert "### Exponential decay" in docs.PAGE.read_text(encoding="utf-8")

"""Claims of files: every one is asked again, and nothing that a file says is believed."""

import json
from pathlib import Path
from typing import Any

import onnx
import pytest
from onnx import helper

import closedform as cf
from closedform.errors import ExportError, VerificationError
from closedform.verify.claims.files import verify_file

LR = cf.schedules.linear(0, 3e-4, 20).then(cf.schedules.cosine(3e-4, 3e-5, 80))


def write(path: Path, claims: Any, schedule: cf.Schedule = LR) -> Path:
    """A file of a schedule with these claims in its metadata; text is written as it is."""
    model = cf.to_onnx(schedule, path)
    assert isinstance(model, onnx.ModelProto)
    text = claims if isinstance(claims, str) else json.dumps(claims)
    known = {entry.key: entry.value for entry in model.metadata_props}
    helper.set_model_props(model, {**known, "closedform.claims": text})
    onnx.save(model, path)
    return path


def entry(claim: str, **arguments: str) -> dict[str, Any]:
    return {"claim": claim, "sentence": "so it says", "verdict": "PROVED", "arguments": arguments}


def test_claims_are_written_when_asked(tmp_path: Path) -> None:
    plain = cf.to_onnx(LR, tmp_path / "plain.onnx")
    assert isinstance(plain, onnx.ModelProto)
    assert "closedform.claims" not in {entry.key for entry in plain.metadata_props}
    report = LR.verify()
    model = cf.to_onnx(LR, tmp_path / "lr.onnx", claims=report)
    assert isinstance(model, onnx.ModelProto)
    written = {entry.key: entry.value for entry in model.metadata_props}
    assert written["closedform.claims"] == report.as_metadata()


def test_a_rule_takes_no_report(tmp_path: Path) -> None:
    rule = cf.optimizers.sgd(0.1)
    with pytest.raises(ExportError, match=r"claims are written for a schedule, got a rule .*'sgd'"):
        cf.to_onnx(rule, tmp_path, params={"w": (2,)}, claims=LR.verify())  # type: ignore[call-overload]


def test_an_exported_file_is_proved_again(tmp_path: Path) -> None:
    path = tmp_path / "lr.onnx"
    report = LR.verify()
    cf.to_onnx(LR, path, claims=report)
    lifted, again = verify_file(path)
    assert lifted.exact(10) == LR.exact(10)
    assert again.subject == "file 'lr.onnx'"
    assert {f.claim.sentence for f in again} >= {f.claim.sentence for f in report}
    assert not again.unknown
    assert not again.refuted
    # The statements of the file are claimed, also where one is a question by itself.
    assert not again["continuous"].claim.is_question


def test_a_file_without_claims_is_asked_the_standard_ones(tmp_path: Path) -> None:
    cf.to_onnx(LR, tmp_path / "lr.onnx")
    _, report = verify_file(tmp_path / "lr.onnx")
    assert [f.claim.name for f in report][:2] == ["total", "finite"]
    assert report["continuous"].claim.is_question


def test_a_false_statement_is_refuted(tmp_path: Path) -> None:
    path = write(tmp_path / "lr.onnx", [entry("bounded", low="0", high="1/10000")])
    _, report = verify_file(path)
    (refuted,) = report.refuted
    assert refuted.claim.sentence == "the value is >= 0 and <= 1/10000"
    step = int((refuted.verdict.counterexample or {})["t"])
    assert LR.exact(step) > 1e-4
    assert report.exit_code() == 1


def test_a_stated_claim_that_only_is_a_question_else_is_a_fault(tmp_path: Path) -> None:
    stairs = cf.schedules.multi_step(1, 0.5, [4, 8])
    statement = {"claim": "continuous", "verdict": "PROVED", "arguments": {}}
    _, report = verify_file(write(tmp_path / "a.onnx", [statement], stairs))
    assert [f.claim.name for f in report.refuted] == ["continuous"]
    statement["sentence"] = "the value does not jump"
    _, report = verify_file(write(tmp_path / "b.onnx", [statement], stairs))
    assert [f.claim.name for f in report.refuted] == ["continuous"]
    _, honest = verify_file(write(tmp_path / "c.onnx", [], stairs))
    assert not honest.refuted


def test_a_statement_that_cannot_be_asked_is_unknown(tmp_path: Path) -> None:
    claims = [{"claim": "magic", "verdict": "PROVED", "sentence": "it is best"}]
    _, report = verify_file(write(tmp_path / "lr.onnx", claims))
    (unknown,) = report.unknown
    assert unknown.claim.sentence == "stated in the file: it is best"
    assert "it has no arguments to ask it again with" in unknown.detail


def test_what_a_file_does_not_state_as_proved_is_not_asked(tmp_path: Path) -> None:
    claims = [{**entry("bounded", high="1/10000"), "verdict": "UNKNOWN"}]
    _, report = verify_file(write(tmp_path / "lr.onnx", claims))
    assert not report.refuted


BAD = {
    "no json": ("eval(1)", "must be a list of claims with a name and a verdict, got no JSON"),
    "no list": ('{"claim": 1}', "got '{\"claim\": 1}'"),
    "no name": ('[{"verdict": "PROVED"}]', 'got \'[{"verdict": "PROVED"}]\''),
    "no number": (
        json.dumps([entry("bounded", low="__import__('os')")]),
        "the claim 'bounded' cannot be made of {'low': \"__import__('os')\"}",
    ),
    "no such argument": (
        json.dumps([entry("total", low="1")]),
        "the claim 'total' cannot be made of {'low': '1'}",
    ),
    "nothing to divide": (
        json.dumps([entry("bounded", low="1/0")]),
        "the claim 'bounded' cannot be made of {'low': '1/0'}",
    ),
}


@pytest.mark.parametrize("name", BAD)
def test_invalid_statements_are_refused(tmp_path: Path, name: str) -> None:
    text, message = BAD[name]
    path = write(tmp_path / "lr.onnx", text)
    with pytest.raises(VerificationError) as caught:
        verify_file(path)
    assert message in str(caught.value)
    assert f"(file {str(path)!r})" in str(caught.value)

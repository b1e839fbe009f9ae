"""Results of the analyses: their data are JSON, their text its lines, and HTML has both escaped."""

import io
import json
import sys
from dataclasses import dataclass, fields

import pytest
import sympy as sp

import closedform as cf
from closedform.analysis.linting import lint
from closedform.analysis.recovery import recover
from closedform.analysis.result import Result, plain
from closedform.analysis.resuming import resume
from closedform.cli.output import print_json, print_result
from closedform.verify.terms.verdict import Status

LR = cf.schedules.cosine(1, 0, 100)
RESULTS: dict[str, Result] = {
    "diff": cf.diff(LR, cf.schedules.linear(1, 0, 100)),
    "recover": recover({step: float(f"{float(LR(step)):.4g}") for step in range(100)}),
    "recover nothing": recover({step: (step * 7919 + 13) % 1009 for step in range(12)}),
    "resume": resume(LR, 50, total=150),
    "lint": lint(cf.schedules.linear(0, 1, 500), updates=400)[0],
}


@pytest.mark.parametrize("name", RESULTS)
def test_data_are_json_and_lines_are_the_text(name: str) -> None:
    result = RESULTS[name]
    assert json.loads(json.dumps(result.data(), allow_nan=False))
    assert str(result) == "\n".join(result.lines())
    assert result.lines()[0].split()[0].strip(":") in result._repr_html_()


@pytest.mark.parametrize("name", RESULTS)
def test_data_have_the_named_attributes_or_all_fields(name: str) -> None:
    result = RESULTS[name]
    names = result.DATA or tuple(entry.name for entry in fields(result))  # type: ignore[arg-type]
    assert tuple(result.data()) == names


def test_a_result_without_a_call_has_no_distances() -> None:
    data = RESULTS["recover nothing"].data()
    assert (data["call"], data["residual"], data["points"]) == (None, None, 12)


@dataclass(frozen=True)
class Point(Result):
    """A result of one number, with a character that HTML escapes."""

    value: sp.Expr
    status: Status

    def lines(self) -> list[str]:
        return [f"β < {self.value}"]


def test_numbers_verdicts_and_nested_results_become_plain() -> None:
    point = Point(sp.Rational(1, 4), Status.PROVED)
    data = plain({"points": (point,), "none": None, "name": "β"})
    assert data == {"points": [{"value": 0.25, "status": "PROVED"}], "none": None, "name": "β"}
    assert type(data["points"][0]["status"]) is str
    assert "&lt;" in point._repr_html_()


@pytest.mark.parametrize(("encoding", "text"), [("utf-8", '"β"'), ("ascii", '"\\u03b2"')])
def test_json_escapes_what_the_stream_does_not_have(
    encoding: str, text: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    stream = io.TextIOWrapper(io.BytesIO(), encoding=encoding)
    monkeypatch.setattr(sys, "stdout", stream)
    print_json(["β"])
    stream.flush()
    assert text in stream.buffer.getvalue().decode(encoding)


def test_a_result_is_printed_as_lines_or_as_json(capsys: pytest.CaptureFixture[str]) -> None:
    point = Point(sp.Integer(2), Status.UNKNOWN)
    print_result(point, as_json=False)
    print_result(point, as_json=True)
    assert capsys.readouterr().out == 'β < 2\n{\n  "value": 2.0,\n  "status": "UNKNOWN"\n}\n'

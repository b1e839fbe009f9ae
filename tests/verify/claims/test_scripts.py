"""Proved goals as SMT-LIB 2 scripts: complete, read by z3, and different for what is false."""

from __future__ import annotations

import json
from pathlib import Path

import pytest
import sympy as sp
import z3

import closedform as cf
from closedform import claims, schedules, t
from closedform.errors import VerificationError
from closedform.verify.claims.core import Goal
from closedform.verify.claims.scripts import MANIFEST, script_of, write_proofs
from closedform.verify.terms import build
from closedform.verify.terms.sympy_io import term
from tests.support.commands import CliRunner

LR = schedules.linear(0, 3e-4, 20).then(schedules.cosine(3e-4, 3e-5, 80))


def answer(script: str) -> str:
    solver = z3.Solver()
    solver.set("timeout", 20_000)
    solver.from_string(script)
    return str(solver.check())


def test_every_goal_of_a_proved_claim_is_listed(tmp_path: Path) -> None:
    report = LR.verify()
    paths = write_proofs((*report, *report.floats), tmp_path / "proofs")
    entries = json.loads((tmp_path / "proofs" / MANIFEST).read_text())
    assert [entry["sentence"] for entry in entries] == [
        finding.claim.sentence for finding in (*report, *report.floats)
    ]
    for entry, finding in zip(entries, (*report, *report.floats), strict=True):
        claim = finding.claim
        wanted = list(dict.fromkeys((*claim.presumes, *claim.goals)))
        assert [goal["goal"] for goal in entry["goals"]] == [goal.text for goal in wanted]
        assert all(("script" in goal) != ("no script" in goal) for goal in entry["goals"])
    assert entries[-1]["no script"].startswith("it is about floats")
    listed = [goal["script"] for e in entries for goal in e["goals"] if "script" in goal]
    assert [path.name for path in paths] == listed
    assert len(listed) >= 8


def test_scripts_are_contradictions(tmp_path: Path) -> None:
    line = schedules.linear(0, 1, 10)
    for path in write_proofs(line.verify(), tmp_path):
        script = path.read_text()
        assert script.startswith("; the value ")
        assert "(check-sat)" in script
        assert answer(script) == "unsat", path


def test_a_false_goal_has_no_contradiction() -> None:
    clock = term(t)
    true = Goal("t >= 0", build.less_equal(build.ZERO, clock))
    false = Goal("t >= 1", build.less_equal(build.ONE, clock))
    assert answer(script_of(true, (), "a claim")) == "unsat"
    assert script_of(false, (), "a claim") == "a solver knows too little of its functions"
    assumed = script_of(false, (build.less(build.ZERO, clock),), "a claim")
    assert answer(assumed) == "unsat"


def test_goals_without_a_script_say_why() -> None:
    clock = term(t)
    somewhere = Goal("it is taken", build.less(build.ONE, clock), is_somewhere=True)
    assert script_of(somewhere, (), "") == "it holds at a point"
    assert script_of(Goal("it is true", build.TRUE), (), "") == "it holds by its form"


def test_a_refuted_claim_has_no_scripts(tmp_path: Path) -> None:
    report = LR.verify(claims.bounded(LR, 0, 1e-4), claims.bounded(LR, 0, 1))
    paths = write_proofs(report, tmp_path)
    entries = json.loads((tmp_path / MANIFEST).read_text())
    assert [entry["verdict"] for entry in entries] == ["REFUTED", "PROVED"]
    assert "goals" not in entries[0]
    assert all(path.name.endswith("-bounded.smt2") for path in paths)


def test_a_rule_with_sums_over_tensors_has_scripts(tmp_path: Path) -> None:
    report = cf.optimizers.adam().verify()
    assert write_proofs(report, tmp_path)


def test_a_file_in_the_place_of_the_folder_is_an_error(tmp_path: Path) -> None:
    place = tmp_path / "taken"
    place.write_text("")
    with pytest.raises(VerificationError, match="the proofs cannot be written"):
        write_proofs(LR.verify(), place)


def test_the_command_writes_proofs(tmp_path: Path) -> None:
    cf.to_onnx(schedules.linear(0, 1, 10), tmp_path / "lr.onnx")
    out = tmp_path / "out"
    for words in (
        [str(tmp_path / "lr.onnx"), "--proof", str(out)],
        ["linear", "--start", "0", "--end", "1", "--steps", "10", "--proof", str(out)],
    ):
        result = CliRunner().invoke(["verify", *words])
        assert result.exit_code == 0, result.output
    assert (out / MANIFEST).exists()
    assert (out / "linear" / MANIFEST).exists()
    for path in out.glob("**/*.smt2"):
        assert answer(path.read_text()) == "unsat"


def test_values_of_irrational_functions_are_numbers_with_lemmas() -> None:
    goal = Goal("it is at most 1", term(sp.Le(sp.cos(sp.pi * t / 7), 1)))
    script = script_of(goal, (), "a claim")
    assert "cos" in script
    assert answer(script) == "unsat"

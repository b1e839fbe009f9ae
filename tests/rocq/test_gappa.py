"""Gappa proves the bounds of errors that closedform reports, and no smaller ones than the errors.

The tests that run `gappa` are skipped only where it is not installed; a separate CI job has it.
"""

import itertools
from pathlib import Path

import pytest

from tests.rocq.coq import COQC, compile_file
from tests.rocq.floats import GAPPA, bounded_graph, run_gappa
from tools.rocq.definitions import InexpressibleError
from tools.rocq.files import unexpected_axioms
from tools.rocq.gappa import error_goals

needs_gappa = pytest.mark.skipif(GAPPA is None, reason="gappa is not installed")
needs_coqc = pytest.mark.skipif(COQC is None, reason="coqc is not installed")

CASES = [
    ("linear", "f32"),
    ("cosine", "f64"),
    ("noam", "f32"),
    ("repeat", "f32"),
    ("multi_step", "f64"),
]
"""A branch; a sine; a root and a smaller one of two; an open condition; a table."""


@needs_gappa
@pytest.mark.parametrize(("name", "dtype"), CASES)
def test_the_reported_bound_is_proved(name: str, dtype: str, tmp_path: Path) -> None:
    """And half of the largest error that is measured is not, at the step of that error."""
    case = bounded_graph(name, dtype)

    def is_accepted(text: str) -> bool:
        return run_gappa(text, tmp_path).returncode == 0

    goals = list(
        error_goals(
            case.graph, 0, case.last, case.bound, starts=case.values.starts, is_accepted=is_accepted
        )
    )
    ends = [(goal.first, goal.last) for goal in goals]
    assert ends[0][0] == 0
    assert ends[-1][1] == case.last
    assert all(last + 1 == first for (_, last), (first, _) in itertools.pairwise(ends))
    error, step = case.measured_error()
    assert 0 < error <= case.bound
    with pytest.raises(InexpressibleError, match=f"the bound at t = {step}"):
        list(error_goals(case.graph, step, step, error / 2, is_accepted=is_accepted))


@needs_gappa
def test_the_rounding_is_that_of_the_dtype(tmp_path: Path) -> None:
    """The bound of float64 is not proved about the graph of float32."""
    case, bound = bounded_graph("linear", "f32"), bounded_graph("linear", "f64").bound
    (goal, *_) = error_goals(case.graph, 1, 1, bound)
    assert run_gappa(goal.texts[0], tmp_path).returncode == 1


@needs_gappa
@needs_coqc
def test_the_proof_of_gappa_is_accepted_by_rocq(tmp_path: Path) -> None:
    case = bounded_graph("cosine", "f64")
    (goal,) = error_goals(case.graph, 0, case.last, case.bound)
    proof = run_gappa(goal.texts[0], tmp_path, "-Bcoq")
    assert proof.returncode == 0, proof.stderr
    # A rewriting rule of ours would be a hypothesis.
    assert "Hypothesis" not in proof.stdout
    (tmp_path / "goal.v").write_text(f"{proof.stdout}Print Assumptions l1.\n", encoding="utf-8")
    result = compile_file(tmp_path, "goal.v")
    if "Cannot find a physical path" in result.stderr:
        pytest.skip("libcoq-gappa is not installed")
    assert result.returncode == 0, result.stderr
    assert "Axioms:" in result.stdout
    assert unexpected_axioms(result.stdout) == ()


def test_other_operations_are_named() -> None:
    for name, op in (("exponential", "pow"), ("tanh_decay", "exp"), ("log_warmup", "log")):
        case = bounded_graph(name, "f64")
        with pytest.raises(InexpressibleError, match=f"Gappa has no {op}"):
            list(error_goals(case.graph, 0, case.last, case.bound))


def test_a_choice_is_printed_for_both_branches() -> None:
    """The steps of a repeated schedule; the branches differ in the sign of a sine."""
    case = bounded_graph("repeat", "f64")
    (goal,) = error_goals(case.graph, 0, case.last, case.bound)
    assert len(goal.texts) == 2
    assert goal.texts[0] != goal.texts[1]

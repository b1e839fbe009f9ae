"""The range of steps for which a graph is proved: never beyond a step that differs."""

import json
import random

import pytest
import sympy as sp
from flint import fmpq

from closedform import t
from closedform.api.compiling import compile
from closedform.exporters.onnx_model import to_model
from closedform.language import Schedule, floor_div, floor_mod
from closedform.verify.identity.equality import StepRange
from closedform.verify.terms import build, sympy_io
from closedform.verify.terms.evaluate import value
from closedform.verify.terms.limits import LIMITS
from closedform.verify.terms.tree import Term
from closedform.verify.terms.verdict import Status, Verdict
from closedform.verify.translation.proved_range import first_open_step
from closedform.verify.translation.translation import validate
from closedform.verify.translation.verdicts import KEY, validate_model

CLOCK = sympy_io.term(t)
LAST = 2**50
COSINE = sympy_io.term(sp.cos(sp.pi * t / 900) / 2 + sp.Rational(1, 2))
# Equal, and the prover does not find it for all steps: it would take a case for each residue.
# t^7 is t beyond a multiple of 42, and t^5 beyond one of 30.
QUOTIENT = floor_div(t**7, 42) + floor_div(t**5, 30)
BY_CASES = (t**7 - floor_mod(t, 42)) / 42 + (t**5 - floor_mod(t, 30)) / 30


def changed_at(step: int, source: Term) -> Term:
    is_early = build.less(CLOCK, build.rational(step))
    return build.ite(is_early, source, build.add(source, build.rational(1, 10**9)))


@pytest.mark.parametrize("step", [0, 1, 7, 999, 1000, 1001, 5000, 123_456, 10**9])
def test_a_range_ends_at_the_first_step_that_differs(step: int) -> None:
    assert first_open_step(COSINE, changed_at(step, COSINE), StepRange(CLOCK, 0, LAST)) == step


def test_a_range_that_is_the_whole_run() -> None:
    assert first_open_step(COSINE, COSINE, StepRange(CLOCK, 10, 77)) == 78
    assert first_open_step(COSINE, COSINE, StepRange(CLOCK, 0, LAST)) == LAST + 1


def test_a_step_without_a_value_ends_a_range() -> None:
    """The graph divides by 0 at step 40."""
    near = build.subtract(CLOCK, build.rational(40))
    computed = build.add(COSINE, build.subtract(build.divide(near, near), build.ONE))
    assert first_open_step(COSINE, computed, StepRange(CLOCK, 0, 10**6)) == 40


@pytest.mark.parametrize("seed", range(20))
def test_generated_changes_are_not_in_a_range(seed: int) -> None:
    chance = random.Random(seed)
    step = chance.randint(0, 10 ** chance.randint(1, 6))
    period = chance.randint(2, 40)
    source = build.maximum(sympy_io.term(floor_mod(t, period)), COSINE)
    computed = changed_at(step, sympy_io.term(t - period * floor_div(t, period)))
    reached = first_open_step(source, build.maximum(COSINE, computed), StepRange(CLOCK, 0, LAST))
    assert reached <= step + period  # it may be the cosine that is greater


def test_a_verdict_says_the_range() -> None:
    verdict = validate(Schedule(QUOTIENT), compile(Schedule(BY_CASES)))
    assert verdict.unknown
    until = verdict.proved_until
    assert until is not None
    assert until >= LIMITS.range_comparisons // 2
    assert verdict.proved_range == f"proved for t < {until:,}; open beyond"
    assert f"UNKNOWN, {verdict.proved_range}: value at the steps from" in str(verdict)
    sides = [sympy_io.term(expr) for expr in (QUOTIENT, BY_CASES)]
    for step in range(until):
        left, right = (value(side, {"t": fmpq(step)}) for side in sides)
        assert left == right


def test_a_file_says_the_range() -> None:
    model = to_model(compile(Schedule(BY_CASES)))
    verdict = validate_model(Schedule(QUOTIENT), model)
    (entry,) = (json.loads(each.value) for each in model.metadata_props if each.key == KEY)
    assert (entry["status"], entry["proved_until"]) == ("UNKNOWN", verdict.proved_until)


def test_a_verdict_without_a_range_says_none() -> None:
    assert Verdict(Status.UNKNOWN, reason="too large").proved_range == ""
    assert str(Verdict(Status.UNKNOWN, reason="too large")) == "UNKNOWN: too large"

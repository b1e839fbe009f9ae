"""Numbers that the host gives are found by name: in rules, in their files, in files of others.

The members are generated: each rule of the library with one of its numbers taken from the host.
"""

from collections.abc import Callable, Iterator
from dataclasses import replace
from pathlib import Path

import onnx
import pytest
import sympy as sp
from onnx import ModelProto

import closedform as cf
from closedform import claims, optimizers, schedules
from closedform.errors import ArgumentError, VerificationError
from closedform.importers.onnx_graph import read_model
from closedform.language import GRAD, Schedule, State, UpdateRule, hyper, state, t
from closedform.referee.file_report import FileReport, ReportLine, check_file
from closedform.referee.judgement import read_step
from closedform.referee.step import ForeignStep, ports_by_name
from closedform.verify.terms.verdict import Verdict
from tests.referee.host_steps import step_of
from tests.test_library import OPTIMIZERS

GIVEN = {"kron": {"noise"}, "sophia": {"hessian"}}
"""Tensors of rules that are computed on the device, besides gradients."""
IN_FILES = frozenset({"lr", "eps", "bias_correction", "count", "grad_scale"})
"""Numbers with which rules are exported: of others, such as beta1, a range has to be declared."""
DIVIDING = frozenset({("adan", "lr"), ("asgd", "lr"), ("momo", "lr")})
"""Rules that divide by ``1 + lr * weight_decay``, for which the range has to be declared."""
SHAPE = (4, 3)


def named(verdict: Verdict) -> set[str]:
    """Returns the names of the numbers that a verdict finds."""
    assert not verdict.unknown
    assert verdict.proved == (not verdict.reason)
    return {part.split(" is ")[0] for part in verdict.reason.split("; ") if part}


def changed(rule: UpdateRule, name: str, change: Callable[[sp.Basic], sp.Basic]) -> UpdateRule:
    """Returns a rule whose expressions are changed, with one more number that the host gives."""
    fields = rule.expressions_by(change)
    values = {**rule.hyperparameters, name: None}
    used = {s.name for s in _symbols(fields)}
    return replace(
        rule, **fields, hyperparameters={k: v for k, v in values.items() if k in used}, call=None
    )


def _symbols(fields: dict[str, object]) -> Iterator[sp.Symbol]:
    for value in fields.values():
        for part in value.values() if isinstance(value, dict) else (value,):
            expr = getattr(part, "next", part)
            yield from getattr(expr, "free_symbols", ())


def correction_of(rule: UpdateRule) -> sp.Basic | None:
    """Returns a bias correction of a rule, ``1 - beta**t``; None where it has none."""
    corrections = (
        part
        for expr in rule.all_expressions()
        for part in sp.preorder_traversal(expr)
        if isinstance(part, sp.Add)
        and any(t in power.exp.free_symbols for power in part.atoms(sp.Pow))
        and {s.name for s in part.free_symbols} <= {"t", *rule.hyperparameters}
    )
    return next(corrections, None)


def planted() -> Iterator[tuple[str, str]]:
    """Yields each rule with each number that can come from the host."""
    for name, make in OPTIMIZERS.items():
        rule = make()
        yield from ((name, key) for key, value in rule.hyperparameters.items() if value is not None)
        yield name, "grad_scale"
        if correction_of(rule) is not None:
            yield name, "bias_correction"
        if any(t in expr.free_symbols for expr in rule.all_expressions()):
            yield name, "count"


MEMBERS = tuple(planted())


def member(name: str, number: str) -> UpdateRule:
    """Returns a rule of the library with one number from the host."""
    rule = OPTIMIZERS[name]()
    if number == "grad_scale":
        return changed(rule, number, lambda expr: expr.xreplace({GRAD: GRAD * hyper(number)}))
    if number == "bias_correction":
        correction = correction_of(rule)
        return changed(
            rule, number, lambda expr: expr.xreplace({correction: hyper(number, positive=True)})
        )
    if number == "count":
        clock = hyper(number, integer=True, positive=True) - 1  # as hosts count: from 1
        return changed(rule, number, lambda expr: expr.xreplace({t: clock}))
    return rule.bind(**{number: None})


def test_the_members_have_every_kind_of_number() -> None:
    numbers = {number for _, number in MEMBERS}
    assert {"lr", "weight_decay", "eps", "bias_correction", "count", "grad_scale"} <= numbers
    assert len({name for name, number in MEMBERS if number == "bias_correction"}) >= 10
    assert len(MEMBERS) >= 300


@pytest.mark.parametrize("name", OPTIMIZERS)
def test_a_rule_of_the_library_needs_the_model_only(name: str) -> None:
    rule = OPTIMIZERS[name]()
    given = GIVEN.get(rule.name, set())
    assert named(claims.capturable(rule).verify()) == given
    assert claims.capturable(rule, device=given).verify().proved
    scheduled = {
        key: schedules.linear(value, value / 2, 100) if value != 0 else value
        for key, value in rule.hyperparameters.items()
        if value is not None and not isinstance(value, Schedule)
    }
    assert named(claims.capturable(rule.bind(**scheduled)).verify()) == given


@pytest.mark.parametrize(("name", "number"), MEMBERS)
def test_a_number_of_the_host_is_found_in_a_rule(name: str, number: str) -> None:
    rule = member(name, number)
    given = GIVEN.get(rule.name, set())
    assert named(claims.capturable(rule, device=given).verify()) == {number}


def test_a_schedule_without_values_is_not_in_the_graph() -> None:
    rate = schedules.cosine(1e-3, 0, 100)
    assert named(claims.capturable(optimizers.lion(rate)).verify()) == set()
    assert named(claims.capturable(optimizers.lion(rate.unbind())).verify()) == {"lr"}


# --- files ---------------------------------------------------------------------------------------


def step_file(rule: UpdateRule, folder: Path) -> ModelProto:
    """Returns the step of a rule for one matrix."""
    return cf.to_onnx(rule, folder, params={"w": SHAPE}, validate=False)["step"]


def names_in(model: ModelProto) -> set[str]:
    """Returns what is found in a file of this package."""
    graph = read_model(model)
    return named(claims.capturable(ForeignStep(graph, ports_by_name(graph))).verify())


@pytest.mark.sample(every=8)
@pytest.mark.parametrize(
    ("name", "number"),
    [pair for pair in MEMBERS if pair[1] in IN_FILES and pair not in DIVIDING],
)
def test_a_number_of_the_host_is_found_in_a_file(name: str, number: str, tmp_path: Path) -> None:
    rule = member(name, number)
    given = {f"input.w.{label}" for label in rule.inputs}
    assert names_in(step_file(rule, tmp_path)) == {number, *given}


@pytest.mark.sample(every=8)
@pytest.mark.parametrize("name", OPTIMIZERS)
def test_a_clock_that_the_file_does_not_count_is_found(name: str, tmp_path: Path) -> None:
    model = step_file(OPTIMIZERS[name](), tmp_path)
    whole = names_in(model)
    others = [value for value in model.graph.output if value.name != "next.step"]
    del model.graph.output[:]
    model.graph.output.extend(others)
    is_read = any(
        "step" in node.input for node in model.graph.node if node.output[0] != "next.step"
    )
    assert names_in(model) == whole | ({"step"} if is_read else set())


@pytest.mark.parametrize("name", ["adamw", "lion"])
def test_a_clock_of_another_tool_that_the_host_counts(name: str) -> None:
    rule = getattr(optimizers, name)(schedules.inverse_time(0.1, 0.5, 1))
    model, ports = step_of(rule, {"w": SHAPE}, "f32")
    found = named(claims.capturable(read_step(model, ports)).verify())
    (clock,) = (key for key, text in ports["inputs"].items() if text == "step")
    assert found == {clock}


def test_a_rate_that_is_a_state_for_the_host(tmp_path: Path) -> None:
    """As optax.inject_hyperparams keeps it: a state that each step gives back."""
    rule = optimizers.sgd(0.1, momentum=0.9)
    rate = State(state("rate"), sp.Rational(1, 10), shape="scalar")
    fields = rule.expressions_by(lambda expr: expr.xreplace({hyper("lr"): state("rate")}))
    values = {key: value for key, value in rule.hyperparameters.items() if key != "lr"}
    fields |= {"hyperparameters": values, "states": {**fields["states"], "rate": rate}}
    rule_of_optax = replace(rule, **fields, call=None)
    assert names_in(step_file(rule_of_optax, tmp_path)) == {"state.w.rate"}
    falling = replace(
        rule_of_optax,
        states={**rule_of_optax.states, "rate": replace(rate, next=state("rate") / 2)},
    )
    assert names_in(step_file(falling, tmp_path)) == set()


def replay_row(report: FileReport) -> ReportLine:
    """Returns the only row about replays."""
    (row,) = (row for row in report.rows if row.name == "capturable")
    return row


def test_the_report_of_a_file_says_whether_it_can_be_captured(tmp_path: Path) -> None:
    step_file(optimizers.adamw(lr=None), tmp_path / "open")
    report = check_file(tmp_path / "open" / "step.onnx")
    row = replay_row(report)
    assert (row.verdict, row.detail) == ("NO", "lr is an input that no output replaces")
    assert report.exit_code(strict=False) == 0
    rule = optimizers.adamw(lr=schedules.cosine(1e-3, 0, 100))
    step_file(rule, tmp_path / "scheduled")
    row = replay_row(check_file(tmp_path / "scheduled" / "step.onnx", rule))
    assert (row.verdict, row.detail) == ("PROVED", "by the inputs of the step")
    assert row.claim == "a replay needs no number from the host"
    cf.to_onnx(rule, tmp_path / "all", params={"w": SHAPE})
    assert not any(row.name == "capturable" for row in check_file(tmp_path / "all/init.onnx").rows)


def test_a_file_of_another_tool_is_asked_with_and_without_a_source(tmp_path: Path) -> None:
    rule = optimizers.sgd(lr=None, momentum=0.9)
    model, ports = step_of(rule, {"w": SHAPE}, "i64")
    onnx.save(model, tmp_path / "step.onnx")
    (rate,) = (key for key, text in ports["inputs"].items() if text == "lr")
    for source in (None, rule):
        row = replay_row(check_file(tmp_path / "step.onnx", source, ports=ports))
        assert (row.verdict, named_in(row)) == ("NO", {rate})
    by_use = replay_row(check_file(tmp_path / "step.onnx"))
    assert rate in named_in(by_use)
    with pytest.raises(ArgumentError, match="'nothing' is neither an input nor an output"):
        check_file(tmp_path / "step.onnx", ports={"nothing": "grad.w"})


def named_in(row: ReportLine) -> set[str]:
    """Returns the names in a row."""
    return {part.split(" is ")[0] for part in row.detail.split("; ")}


# --- arguments -----------------------------------------------------------------------------------


def test_what_is_not_a_step_is_refused() -> None:
    with pytest.raises(VerificationError, match=r"takes a rule or an optimizer.*got float 0\.1"):
        claims.capturable(0.1)  # type: ignore[arg-type]
    with pytest.raises(VerificationError, match=r"the host gives no 'los'.*did you mean 'loss'"):
        claims.capturable(optimizers.momo(), device=["los"])

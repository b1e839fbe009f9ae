"""Verdicts on the floats of graphs: what they say, in metadata, and that engines agree."""

import json
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from typing import Any

import numpy as np
import onnxruntime
import pytest
import sympy as sp
import torch

from closedform import optimizers, schedules, transforms
from closedform.api.onnx import to_onnx
from closedform.compiler import compile_init, compile_program, compile_schedule
from closedform.effort import Effort
from closedform.ir.analysis.ranges import Ranges
from closedform.ir.analysis.step_check import node_values
from closedform.ir.graph import Array, Node, Role
from closedform.ir.ops import OPS
from closedform.ir.program import flatten
from closedform.language import Schedule, UpdateRule, hyper, t
from closedform.options import GraphOptions, ModelSpec
from closedform.verify.certificates.floats import (
    SIZE,
    FloatVerdict,
    rule_floats,
    schedule_floats,
    ulp_table,
)
from closedform.verify.certificates.rule_runs import find_failure
from tests.support.floats import run_random
from tests.support.sampling import examples
from tests.test_library import OPTIMIZERS

SHAPES = {"w": (8, 16), "v": (8, 16), "u": (16, 8)}


def of(expr: Any, **options: Any) -> FloatVerdict:
    schedule = Schedule(expr, domain=options.pop("domain", ()))
    graph = compile_schedule(schedule, GraphOptions(**options))
    return schedule_floats(graph, last=schedule.last_step)


def of_rule(rule: UpdateRule) -> FloatVerdict:
    spec = ModelSpec(rule, SHAPES)
    return rule_floats(compile_program(spec), compile_init(spec))


def test_the_ulp_of_the_op_table_is_stated() -> None:
    assert ulp_table() == {str(op): row.ulp for op, row in OPS.items() if row.ulp > 0}


def test_a_verdict_says_what_it_is_about() -> None:
    data = of(schedules.cosine(1, 0, 100).bound).as_data()
    assert data["status"] == "PROVED"
    assert data["steps"] == [0, 2**50]
    assert data["ulp"] == ulp_table()
    assert data["reason"].startswith("in floats, on engines that round as IEEE 754 says")
    assert data["reason"].endswith(f"at any step from 0 to {2**50}")
    assert of(t, step_dtype="i32").last == 2**31 - 1


def test_a_failure_names_the_first_step_and_the_operation() -> None:
    verdict = of(sp.Integer(2) ** t).verdict
    assert str(verdict) == (
        "REFUTED by intervals of floats, evaluation at t = 1024: the value is inf: pow overflows, "
        "the first step at which it happens"
    )
    assert of(sp.Integer(2) ** t, domain=(t <= 1023,)).verdict.proved
    assert of(sp.Integer(2) ** t, domain=(t <= 1024,)).verdict.refuted


def test_an_infinity_that_makes_another_number_is_refuted() -> None:
    # 1/(1e-300 * exp(t)) is 2e-9 at t = 710, and 0 in floats.
    found = of(1 / (sp.Rational(1, 10**300) * (1 + sp.exp(t))))
    assert found.verdict.refuted
    assert found.check is not None
    assert (found.check.step, found.check.value) == (710, None)


def test_inputs_of_a_schedule_have_stated_ranges() -> None:
    scale = hyper("scale")
    graph = compile_schedule(Schedule(scale * t), GraphOptions(inputs=("scale",)))
    found = schedule_floats(graph)
    assert found.verdict.proved
    assert found.as_data()["ranges"] == {"scale": {"high": SIZE, "is": "assumed", "low": -SIZE}}
    divided_by = compile_schedule(
        Schedule(t / (1 + hyper("steps", positive=True))), GraphOptions(inputs=("steps",))
    )
    assert schedule_floats(divided_by).verdict.unknown


# --- rules ---------------------------------------------------------------------------------------


def test_states_have_invariants() -> None:
    found = of_rule(optimizers.adamw(weight_decay=0.1))
    assert found.verdict.proved, found.verdict
    ranges = found.as_data()["ranges"]
    second = ranges["state.w.exp_avg_sq"]
    assert second["is"] == "an invariant of the step"
    assert second["low"] == 0
    assert ranges["state.w.exp_avg"]["is"] == "an invariant of the step"
    assert ranges["grad.w"] == {"low": -SIZE, "high": SIZE, "is": "assumed"}


def test_a_sum_that_only_grows_has_an_assumed_range() -> None:
    found = of_rule(optimizers.adagrad(0.1))
    assert found.verdict.proved, found.verdict
    assert found.as_data()["ranges"]["state.w.sum"]["is"] == "assumed"
    assert found.ranges["state.w.sum"].low == 0


def test_invariants_hold_in_runs_with_the_largest_gradients() -> None:
    """States of a run stay in the ranges that were found, with gradients at their ends."""
    from closedform.runtime import OptimizerSession

    rule = optimizers.adam(lr=0.1)
    found = of_rule(rule)
    start = {"w": np.full((8, 16), SIZE, np.float32)}
    session = OptimizerSession(rule, start, threads=1)
    for sign in (1, 1, -1, 1, -1, -1, 1, 1):
        session.step({"w": np.full((8, 16), sign * SIZE, np.float32)})
    for label in ("exp_avg", "exp_avg_sq"):
        values, interval = session.states[label]["w"], found.ranges[f"state.w.{label}"]
        assert interval.low <= values.min() <= values.max() <= interval.high


def test_sums_over_parameters_count_all_of_them() -> None:
    rule = transforms.clip_by_global_norm(optimizers.sgd(0.1), 1)
    found = of_rule(rule)
    assert found.verdict.proved, found.verdict


def test_a_rule_that_may_divide_by_zero_is_not_proved() -> None:
    from closedform.language import GRAD, PARAM

    verdict = of_rule(UpdateRule("unsafe", PARAM - GRAD / sp.Abs(PARAM))).verdict
    assert verdict.refuted
    assert verdict.reason == (
        "next.param.w is -inf, from parameters of 0 with gradients of 1.67772e+07"
    )
    assert of_rule(UpdateRule("safe", PARAM - GRAD / (1 + sp.Abs(PARAM)))).verdict.proved


@pytest.mark.parametrize("name", ["lamb", "yogi", "schedule_free_radam", "stable_adamw", "muon"])
def test_rules_whose_values_depend_on_one_another_are_proved(name: str) -> None:
    found = of_rule(OPTIMIZERS[name]())
    assert found.verdict.proved, found.verdict
    assert "at step 0 with the first states" in found.reason


REFUTED = {
    "adafactor": (0, "next.param.w is nan on engines that flush subnormal numbers to zero"),
    "came": (0, "next.param.w is nan on engines that flush subnormal numbers to zero"),
    "d_adapt_sgd": (
        4,
        "next.shared.d is nan, from parameters of 0 with gradients of 2.17e-19 at step 0",
    ),
    "prodigy": (
        41,
        "next.state.w.exp_avg_sq is inf, from parameters of 0 with gradients of 1",
    ),
}


@pytest.mark.parametrize("name", REFUTED)
def test_rules_that_fail_are_refuted_by_a_run(name: str) -> None:
    spec = ModelSpec(OPTIMIZERS[name](), SHAPES)
    found = rule_floats(compile_program(spec), compile_init(spec), effort=Effort.of(60_000_000))
    step, reason = REFUTED[name]
    assert found.verdict.refuted, found.verdict
    assert found.verdict.counterexample == {"t": step}
    assert found.verdict.reason.startswith(reason)


def test_a_run_that_is_finite_refutes_nothing() -> None:
    spec = ModelSpec(optimizers.adam(0.1), SHAPES)
    program, init = compile_program(spec), compile_init(spec)
    assert find_failure(program, init, SIZE, effort=Effort.of(60_000_000)) is None


def test_adafactor_fails_in_onnxruntime_where_subnormal_numbers_are_flushed(
    tmp_path: Path,
) -> None:
    """The run that refutes it, in an engine: NaN with flushing, finite numbers without it."""
    models = to_onnx(optimizers.adafactor(lr=0.1), tmp_path, params={"w": (4, 6)})
    gradient = np.full((4, 6), SIZE, np.float32)
    gradient[0] = 0

    def is_finite(flushes: bool) -> bool:
        # The mode is that of the thread, in which a session of one thread runs.
        torch.set_flush_denormal(flushes)
        options = onnxruntime.SessionOptions()
        options.intra_op_num_threads = 1
        init, step = (
            onnxruntime.InferenceSession(models[name].SerializeToString(), options)
            for name in ("init", "step")
        )
        given = {"step": np.int64(0), "param.w": np.ones((4, 6), np.float32), "grad.w": gradient}
        states = init.run(None, {each.name: given[each.name] for each in init.get_inputs()})
        names = [each.name.removeprefix("next.") for each in init.get_outputs()]
        given |= dict(zip(names, states, strict=True))
        outputs = step.run(None, {each.name: given[each.name] for each in step.get_inputs()})
        return all(bool(np.isfinite(each).all()) for each in outputs)

    for flushes in (False, True):
        with ThreadPoolExecutor(1) as thread:
            assert thread.submit(is_finite, flushes).result() is not flushes


@pytest.mark.parametrize("name", OPTIMIZERS)
@pytest.mark.sample(every=6)
def test_values_of_rules_are_in_their_intervals(name: str) -> None:
    """All nodes of a step, for inputs at the ends of their ranges, tiny ones and random ones."""
    spec = ModelSpec(OPTIMIZERS[name](), {"w": (4, 6)})
    program = compile_program(spec)
    graph = flatten(program)
    found = rule_floats(program, compile_init(spec))
    table = Ranges(graph.nodes, 2**40, step_min=1, input_ranges=found.ranges, flushes=True)
    draw = np.random.default_rng(5)
    for number in range(24):
        inputs = {node.attribute("name"): drawn(draw, node, found) for node in graph.inputs}
        values = node_values(graph, inputs, flushes=number % 2 == 1)
        for index, value in enumerate(values):
            interval = table.of(index)
            numbers = value[~np.isnan(value)] if value.dtype.kind == "f" else value
            assert numbers.size == value.size or interval.maybe_nan, (number, index)
            if numbers.size:
                assert interval.low <= numbers.min(), (number, index)
                assert numbers.max() <= interval.high, (number, index)


def drawn(draw: np.random.Generator, node: Node, found: FloatVerdict) -> Array:
    """An input of a step in its range: each element at an end, 0, tiny, or of any size."""
    dtype = node.type.dtype.numpy
    shape = tuple(int(dim) for dim in node.type.shape)
    if node.attribute("role") is Role.STEP:
        return np.asarray(draw.integers(1, 2 ** int(draw.integers(1, 40))), dtype)
    interval = found.ranges[node.attribute("name")]
    sizes = 2.0 ** draw.uniform(-140, 24, shape) * draw.choice([-1, 1], shape)
    ends = draw.choice([interval.low, interval.high, 0.0, 1.0, -1.0], shape)
    chosen = np.where(draw.random(shape) < draw.random(), sizes, ends)
    return np.asarray(np.clip(chosen, interval.low, interval.high), dtype)


# --- files ---------------------------------------------------------------------------------------


def floats_of(model: Any) -> dict[str, Any]:
    entries = {entry.key: entry.value for entry in model.metadata_props}
    found: dict[str, Any] = json.loads(entries["closedform.floats"])
    assert "closedform.translation" in entries
    return found


def test_files_have_both_verdicts(tmp_path: Path) -> None:
    lr = schedules.linear(0, 1e-3, 100)
    model = to_onnx(lr, tmp_path / "lr.onnx")
    assert floats_of(model) == schedule_floats(compile_schedule(lr)).as_data()
    models = to_onnx(optimizers.adamw(lr), tmp_path, params={"w": (4, 3), "b": (3,)})
    assert floats_of(models["step"])["status"] == "PROVED"
    plain = to_onnx(lr, tmp_path / "lr.onnx", validate=False)
    assert "closedform.floats" not in {entry.key for entry in plain.metadata_props}


@pytest.mark.parametrize("precision", [{}, {"dtype": "f32", "scalar_dtype": "f32"}])
def test_random_formulas_that_are_proved_are_finite_in_onnxruntime(
    precision: dict[str, str],
) -> None:
    options = GraphOptions(step_shape=("n",), **precision)
    tally = run_random(examples(60), options, seed=3)
    assert not tally.wrong, tally.wrong
    # The share of two thousand; a sample may have one that is not decided more.
    assert tally.decided >= 0.9 * tally.compiled - 1, tally


def test_onnxruntime_is_run_by_the_random_formulas() -> None:
    """A verdict that is wrong is found: exp(t) without its verdict is not finite."""
    graph = compile_schedule(Schedule(sp.exp(t)), GraphOptions(step_shape=("n",)))
    from tests.support.floats import run

    assert isinstance(onnxruntime.get_device(), str)
    assert not np.isfinite(run(graph, np.array([720]))).all()

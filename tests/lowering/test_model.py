"""Programs: sums over all parameters by parts, states of the model, a clock that may stop."""

from collections.abc import Callable, Mapping
from dataclasses import replace
from typing import Any

import numpy as np
import pytest
import sympy as sp
from numpy.typing import NDArray

from closedform import optimizers, transforms
from closedform.compiler import compile_assignments, compile_evaluation, compile_init, compile_step
from closedform.errors import DefinitionError, LoweringError
from closedform.ir.evaluate import evaluate
from closedform.ir.graph import Graph, input_names
from closedform.ir.naming import BODY_GRAD, BODY_PARAM, STATE, outer_name
from closedform.ir.program import Call, Program
from closedform.ir.types import DType
from closedform.language import GRAD as GRADIENT
from closedform.language import PARAM as PARAMETER
from closedform.language import (
    Shared,
    State,
    UpdateRule,
    counter,
    global_sum,
    hyper,
    local,
    non_finite,
    shared,
    state,
    t,
)
from closedform.language.groups import Assignment
from closedform.options import GraphOptions, ModelSpec
from tests.support.engines import run_evaluator, run_onnxruntime, run_torch

Array = NDArray[Any]
Values = dict[str, Any]
Run = Callable[[Graph, Mapping[str, Array]], Mapping[str, Array]]

NORM = sp.sqrt(global_sum(GRADIENT**2))


# --- the protocol by hand ------------------------------------------------------------------------


def run_by_parts(program: Program, feed: Values, run: Run) -> Values:
    """A step as a sharded runtime does it: parts, totals, scalars, then each tensor by itself."""
    known = dict(feed)
    for stage in program.stages:
        scalars = _run(stage.scalars, known, run)
        totals: Values = {}
        for call in stage.calls:
            for name, part in _body(stage.bodies, call, scalars, known, run).items():
                totals[name] = totals.get(name, 0) + np.asarray(part)
        known |= totals
    scalars = _run(program.scalars, known, run)
    results = {name: value for name, value in scalars.items() if not name.startswith("scalar.")}
    for call in program.calls:
        for name, value in _body(program.bodies, call, scalars, known, run).items():
            results[outer_name(name, call.param)] = value
    return results


def _run(graph: Graph, known: Values, run: Run) -> Values:
    if not graph.outputs:
        return {}
    return dict(run(graph, {name: known[name] for name in input_names(graph)}))


def _body(
    bodies: tuple[Graph, ...], call: Call, scalars: Values, known: Values, run: Run
) -> Values:
    body = bodies[call.body]
    given = {f"scalar.{place}": scalars[name] for place, name in enumerate(call.scalars)}
    for name in input_names(body):
        if name not in given:
            given[name] = known[outer_name(name, call.param)]
    return dict(run(body, given))


RULES: dict[str, UpdateRule] = {
    "prodigy": optimizers.prodigy(d0=1e-2, weight_decay=0.1),
    "d_adapt_sgd": optimizers.d_adapt_sgd(d0=1e-2, momentum=0.9),
    "clipped": transforms.dynamic_loss_scaling(
        transforms.clip_by_global_norm(optimizers.adamw(0.1), 1), 4
    ),
    "clipped prodigy": transforms.clip_by_global_norm(optimizers.prodigy(d0=1e-2), 1),
}


def first_values(rule: UpdateRule, params: Mapping[str, Array]) -> Values:
    shapes = {name: array.shape for name, array in params.items()}
    feed: Values = {f"param.{name}": array for name, array in params.items()}
    init = compile_init(ModelSpec(rule, shapes), GraphOptions(dtype=DType.F64))
    return feed | evaluate(init, {name: feed[name] for name in input_names(init)})


def steps_by_parts(rule: UpdateRule, params: Mapping[str, Array], run: Run) -> Values:
    """Three steps; the gradient is the parameter and 0.1."""
    shapes = {name: array.shape for name, array in params.items()}
    program = compile_assignments(
        rule.name, [Assignment(rule, shapes)], GraphOptions(dtype=DType.F64)
    )
    feed = first_values(rule, params)
    for _ in range(3):
        feed |= {f"grad.{name}": feed[f"param.{name}"] + 0.1 for name in params}
        results = run_by_parts(program, feed, run)
        feed |= {name.removeprefix("next."): value for name, value in results.items()}
    return feed


def steps_fused(rule: UpdateRule, params: Mapping[str, Array]) -> Values:
    shapes = {name: array.shape for name, array in params.items()}
    graph = compile_step(ModelSpec(rule, shapes), GraphOptions(dtype=DType.F64))
    feed = first_values(rule, params)
    for _ in range(3):
        feed |= {f"grad.{name}": feed[f"param.{name}"] + 0.1 for name in params}
        given = {name: feed[name] for name in input_names(graph)}
        results = evaluate(graph, given)
        feed |= {name.removeprefix("next."): value for name, value in results.items()}
    return feed


PARAMS = {"w": np.array([[1.0, -2.0, 0.5], [0.25, 3.0, -1.0]]), "b": np.array([0.5, -0.75])}
SHARDS = {"w.0": PARAMS["w"][:1], "w.1": PARAMS["w"][1:], "b": PARAMS["b"]}


@pytest.mark.parametrize("run", [run_evaluator, run_onnxruntime, run_torch])
@pytest.mark.parametrize("name", RULES)
def test_parts_and_shards_are_the_fused_step(name: str, run: Run) -> None:
    whole = steps_fused(RULES[name], PARAMS)
    sharded = steps_by_parts(RULES[name], SHARDS, run)
    # The sums of eight numbers are folded in another order; three steps in float64.
    for key, value in whole.items():
        kind, _, rest = key.partition(".")
        if rest.startswith("w"):
            tail = rest[1:]
            shards = [sharded[f"{kind}.w.{place}{tail}"] for place in (0, 1)]
            np.testing.assert_allclose(np.concatenate(shards), value, rtol=1e-13)
        else:
            np.testing.assert_allclose(sharded[key], value, rtol=1e-13)


def test_a_hyperparameter_may_stand_in_a_sum_alone() -> None:
    total = global_sum(hyper("scale") * GRADIENT**2)
    scaled = UpdateRule("scaled", PARAMETER - GRADIENT / (1 + total), {}, {"scale": 2})
    fused = steps_fused(scaled, PARAMS)
    by_parts = steps_by_parts(scaled, PARAMS, run_evaluator)
    gradients = {name: array + 0.1 for name, array in PARAMS.items()}
    divisor = 1 + 2 * sum(float((grad**2).sum()) for grad in gradients.values())
    unbound = replace(scaled, hyperparameters={"scale": None})
    shapes = {name: array.shape for name, array in PARAMS.items()}
    graph = compile_step(ModelSpec(unbound, shapes), GraphOptions(dtype=DType.F64))
    feed = {f"param.{name}": array for name, array in PARAMS.items()}
    feed |= {f"grad.{name}": grad for name, grad in gradients.items()}
    found = evaluate(graph, {**feed, "step": np.int64(0), "scale": np.float64(2)})
    for name, array in PARAMS.items():
        np.testing.assert_allclose(by_parts[f"param.{name}"], fused[f"param.{name}"], rtol=1e-13)
        expected = array - gradients[name] / divisor
        np.testing.assert_allclose(found[f"next.param.{name}"], expected, rtol=1e-13)


def test_a_stage_for_each_level_of_sums() -> None:
    program = compile_assignments("p", [Assignment(RULES["clipped prodigy"], {"w": (2,)})])
    assert len(program.stages) == 2
    first, second = program.stages
    assert [output.name for output in first.bodies[0].outputs] == ["sum.0"]
    assert input_names(first.bodies[0]) == (BODY_GRAD,)
    assert {output.name for output in second.bodies[0].outputs} == {"sum.1", "sum.2"}
    assert {"sum.0", "step"} <= set(input_names(second.scalars))
    assert BODY_PARAM in input_names(second.bodies[0])
    assert f"{STATE}p0" in input_names(second.bodies[0])


def test_one_sum_for_rules_that_share_it() -> None:
    small, large = optimizers.sgd(0.1), optimizers.adam(0.2)
    members = [
        Assignment(transforms.clip_by_global_norm(small, 1), {"a": (2,)}),
        Assignment(transforms.clip_by_global_norm(large, 1), {"b": ()}),
    ]
    program = compile_assignments("p", members, GraphOptions(dtype=DType.F64))
    assert len(program.stages) == 1
    assert [call.param for call in program.stages[0].calls] == ["a", "b"]
    zeros = {f"state.b.{name}": np.zeros(()) for name in large.states}
    feed = {
        "step": np.array(0),
        "param.a": np.zeros(2),
        "grad.a": np.array([3.0, 0.0]),
        "param.b": np.zeros(()),
        "grad.b": np.array(4.0),
        **zeros,
    }
    moved = run_by_parts(program, feed, run_evaluator)["next.param.a"]
    np.testing.assert_allclose(moved, [-0.1 * 3 / (5 + 1e-6), 0], rtol=1e-15)


# --- states of the model and the clock ---------------------------------------------------------


def step_of(rule: UpdateRule, **arrays: Any) -> Values:
    """A step in float64 on a parameter of two elements; the three engines agree."""
    graph = compile_step(ModelSpec(rule, {"w": (2,)}), GraphOptions(dtype=DType.F64))
    feed: Values = {
        "step": np.array(3),
        "param.w": np.array([1.0, 2.0]),
        "grad.w": np.array([3.0, 4.0]),
        **{name.replace("_of_", "."): np.asarray(value) for name, value in arrays.items()},
    }
    expected = run_evaluator(graph, feed)
    for results in (run_onnxruntime(graph, feed), run_torch(graph, feed)):
        for name, value in expected.items():
            np.testing.assert_allclose(results[name], value, rtol=1e-15)
    return expected


def test_scalars_follow_from_sums_and_shared_states() -> None:
    scale = shared("scale")
    rule = UpdateRule(
        "test",
        PARAMETER - scale * GRADIENT / NORM,
        shared={
            "scale": Shared(sp.Piecewise((scale * 2, NORM < 6), (scale / 2, True)), 8),
            "late": Shared(counter("late") + sp.Piecewise((1, t > 2), (0, True)), 7, True),
        },
        advances=sp.Gt(NORM, 5),
    )
    init = compile_init(ModelSpec(rule, {"w": (2,)}))
    start = evaluate(init, {})
    assert start["shared.scale"].dtype == np.float64
    assert start["shared.late"].dtype == np.int64
    assert [float(start["shared.scale"]), int(start["shared.late"])] == [8, 7]
    after = step_of(rule, shared_of_scale=8.0, shared_of_late=7)
    assert after["next.step"] == 3
    assert after["next.shared.scale"] == 16
    assert after["next.shared.late"] == 8
    np.testing.assert_allclose(after["next.param.w"], [1 - 24 / 5, 2 - 32 / 5], rtol=1e-15)


@pytest.mark.parametrize("bad", [np.nan, np.inf, -np.inf])
def test_non_finite_elements_are_counted(bad: float) -> None:
    rule = UpdateRule("test", PARAMETER * global_sum(non_finite(GRADIENT)))
    assert step_of(rule)["next.param.w"].tolist() == [0, 0]
    spoilt = step_of(rule, grad_of_w=[bad, 1e308])
    assert spoilt["next.param.w"].tolist() == [1, 2]


def test_counters_go_on_beyond_float32() -> None:
    rule = UpdateRule("test", PARAMETER, shared={"n": Shared(counter("n") + 1, 0, True)})
    assert step_of(rule, shared_of_n=2**24)["next.shared.n"] == 2**24 + 1
    assert step_of(rule, shared_of_n=2**40 + 1)["next.shared.n"] == 2**40 + 2


def test_point_of_evaluation_reads_what_it_needs() -> None:
    slow = state("slow")
    rule = UpdateRule(
        "test",
        PARAMETER - hyper("lr") * GRADIENT,
        {"slow": State((slow + PARAMETER) / 2, PARAMETER), "other": State(GRADIENT)},
        {"lr": 0.5, "weight": 3},
        evaluation=slow + (PARAMETER - slow) / (hyper("weight") + t),
    )
    graph = compile_evaluation(ModelSpec(rule, {"w": (2,)}), GraphOptions(dtype=DType.F64))
    assert input_names(graph) == ("step", "param.w", "state.w.slow")
    feed = {"step": np.array(1), "param.w": np.ones(2), "state.w.slow": np.array([5.0, 9.0])}
    assert run_evaluator(graph, feed)["evaluation.w"].tolist() == [4, 7]
    plain = compile_evaluation(
        ModelSpec(optimizers.sgd(0.1), {"w": (1,)}), GraphOptions(dtype=DType.F64)
    )
    assert run_evaluator(plain, {"step": np.array(0), "param.w": np.ones(1)}) == {
        "evaluation.w": np.ones(1)
    }


# --- what is refused ---------------------------------------------------------------------------


def with_shared(number: Any) -> UpdateRule:
    following = shared("scale") * hyper("factor")
    return UpdateRule(
        "up", PARAMETER - GRADIENT, {}, {"factor": number}, shared={"scale": Shared(following, 1)}
    )


def test_rules_of_a_model_agree() -> None:
    members = [Assignment(with_shared(2), {"a": ()}), Assignment(with_shared(3), {"b": ()})]
    with pytest.raises(LoweringError) as caught:
        compile_assignments("p", members)
    assert str(caught.value) == (
        "the rules of a model must agree on next value of 'scale', got 2*shared.scale and "
        "3*shared.scale (rules 'up' and 'up'): give both the same hyperparameters there"
    )
    same = [Assignment(with_shared(2), {"a": ()}), Assignment(with_shared(2), {"b": ()})]
    names = [output.name for output in compile_assignments("p", same).scalars.outputs]
    assert names == ["next.step", "next.shared.scale"]


def test_a_point_of_evaluation_takes_no_sum() -> None:
    rule = UpdateRule("far", PARAMETER - GRADIENT, evaluation=PARAMETER * NORM)
    with pytest.raises(LoweringError) as caught:
        compile_evaluation(ModelSpec(rule, {"w": ()}))
    assert str(caught.value) == (
        "the point of evaluation takes a sum over all parameters (rule 'far'): keep the sum as a "
        "state of the model"
    )


def test_a_sum_of_no_tensor_is_refused() -> None:
    with pytest.raises(DefinitionError) as caught:
        UpdateRule("flat", PARAMETER * global_sum(hyper("lr") + 1), {}, {"lr": 0.5})
    assert str(caught.value) == (
        "global_sum(lr + 1) sums no tensor (rule 'flat'): it is over the elements of PARAM, GRAD, "
        "states, inputs or definitions"
    )
    half = UpdateRule(
        "half", PARAMETER * global_sum(local("half")), {}, {"lr": 0.5}, {"half": hyper("lr") / 2}
    )
    with pytest.raises(LoweringError, match=r"global_sum\(local.half\) sums no tensor"):
        compile_step(ModelSpec(half, {"w": (2,)}))

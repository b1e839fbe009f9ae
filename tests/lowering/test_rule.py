"""Rules: scalars apart from tensors, branches on both, and what is refused."""

from collections.abc import Callable
from typing import Any

import numpy as np
import pytest
import sympy as sp

from closedform import optimizers, schedules
from closedform.compiler import compile_init, compile_step
from closedform.errors import DomainError, LoweringError
from closedform.ir.ops import Op
from closedform.ir.text import parse_graph, print_graph
from closedform.language import (
    GRAD,
    PARAM,
    State,
    UpdateRule,
    hyper,
    matmul,
    reduce_sum,
    state,
    t,
    transpose,
)
from closedform.options import ModelSpec
from tests.support.engines import run_evaluator, run_onnxruntime

LR, RHO = hyper("lr"), hyper("rho")


def rule(param: Any, states: Any = None, **values: Any) -> UpdateRule:
    expressions = [sp.sympify(param), *(spec.next for spec in (states or {}).values())]
    used = {symbol.name for expr in expressions for symbol in expr.free_symbols}
    given = {"lr": 0.5, "rho": 20, **values}
    return UpdateRule("test", param, states or {}, {k: v for k, v in given.items() if k in used})


def run(tested: UpdateRule, step: int = 0, **arrays: Any) -> dict[str, Any]:
    inputs = {
        name.replace("_of_", "."): np.asarray(value, np.float32) for name, value in arrays.items()
    }
    shape = np.shape(inputs["param.w"])
    graph = compile_step(ModelSpec(tested, {"w": shape}))
    full: dict[str, Any] = {"step": np.array(step), **inputs}
    expected = run_evaluator(graph, full)
    for key, value in run_onnxruntime(graph, full).items():
        np.testing.assert_allclose(value, expected[key], rtol=5e-7)  # pow: 4 ulp
    return expected


def test_golden(golden: Callable[[str, str], None]) -> None:
    lr = schedules.linear(0, 1e-3, 10).then(schedules.cosine(1e-3, 0, 100))
    adamw = optimizers.adamw(lr=lr, betas=(0.9, 0.95), eps=1e-8, weight_decay=0.1)
    text = print_graph(compile_step(ModelSpec(adamw, {"w": (3, 4), "b": (4,)})))
    golden("lowering/adamw_step", text)
    assert parse_graph(text) == compile_step(ModelSpec(adamw, {"w": (3, 4), "b": (4,)}))
    golden("lowering/adamw_init", print_graph(compile_init(ModelSpec(adamw, {"w": (3, 4)}))))


def test_sign_is_zero_at_nan_in_every_engine() -> None:
    tested = rule(PARAM - LR * sp.sign(GRAD))
    result = run(tested, param_of_w=[0, 0, 0, 0], grad_of_w=[2, -3, 0, np.nan])
    assert result["next.param.w"].tolist() == [-0.5, 0.5, 0, 0]


def test_a_scalar_that_is_partial_outside_of_its_branch() -> None:
    # The root is of a negative number for the first steps, where the branch is not taken.
    rect = sp.sqrt((RHO - 40 / (t + 1)) / RHO)
    tested = rule(sp.Piecewise((PARAM - rect * GRAD, RHO > 40 / (t + 1)), (PARAM - GRAD, True)))
    for step, factor in ((0, 1.0), (1, 1.0), (3, np.sqrt(0.5))):
        result = run(tested, step, param_of_w=[1.0], grad_of_w=[1.0])
        assert result["next.param.w"] == pytest.approx(1 - factor, rel=1e-6)  # float32


def test_a_condition_on_powers_of_the_step_is_decided_in_time() -> None:
    # RAdam's own form: samples reach steps at which the exact power would never end.
    power = RHO ** (t + 1)
    length = 2 / (1 - RHO) - 1 - 2 * (t + 1) * power / (1 - power)
    root = sp.sqrt((length - 4) * (length - 2))
    tested = rule(PARAM - GRAD * sp.Piecewise((root, length > 5), (1, True)), rho=0.999)
    for step, factor in ((0, 1.0), (4, 1.0)):
        result = run(tested, step, param_of_w=[1.0], grad_of_w=[1.0])
        assert result["next.param.w"] == pytest.approx(1 - factor, abs=1e-6)  # float32
    assert np.isfinite(run(tested, 100, param_of_w=[1.0], grad_of_w=[1.0])["next.param.w"]).all()


def test_branches_on_data() -> None:
    guarded = sp.Piecewise((PARAM - LR * GRAD, sp.Abs(GRAD) < 1), (PARAM, True))
    result = run(rule(guarded), param_of_w=[1, 1], grad_of_w=[0.5, 2])
    assert result["next.param.w"].tolist() == [0.75, 1]


def test_powers_of_and_by_tensors() -> None:
    result = run(rule(PARAM + 3**GRAD), param_of_w=[0, 0], grad_of_w=[2, -1])
    np.testing.assert_allclose(result["next.param.w"], [9, 1 / 3], rtol=5e-7)  # pow: 4 ulp
    result = run(rule(sp.Abs(PARAM) ** (RHO / 40)), param_of_w=[4, -9], grad_of_w=[0, 0])
    np.testing.assert_allclose(result["next.param.w"], [2, 3], rtol=5e-7)


def test_reductions_and_products() -> None:
    norm = sp.sqrt(reduce_sum(GRAD**2))
    result = run(rule(PARAM - GRAD / norm), param_of_w=[[0, 0]], grad_of_w=[[3, 4]])
    np.testing.assert_allclose(result["next.param.w"], [[-0.6, -0.8]], rtol=2e-7)  # float32
    gram = matmul(matmul(GRAD, transpose(GRAD)), GRAD)
    result = run(rule(PARAM - gram), param_of_w=np.zeros((2, 3)), grad_of_w=np.eye(2, 3) * 2)
    assert result["next.param.w"].tolist() == (-8 * np.eye(2, 3)).tolist()


def test_scalar_states_and_states_that_start_from_the_parameter() -> None:
    states = {
        "count": State(state("count") + 1, 0, "scalar"),
        "slow": State((state("slow") + PARAM) / 2, PARAM),
    }
    tested = rule(PARAM - LR * GRAD * state("count"), states)
    init = run_evaluator(
        compile_init(ModelSpec(tested, {"w": (2,)})), {"param.w": np.array([1, 2], np.float32)}
    )
    assert init["state.w.slow"].tolist() == [1, 2]
    assert init["state.w.count"].shape == ()
    given: dict[str, Any] = {
        "param_of_w": [1, 2],
        "grad_of_w": [1, 1],
        "state_of_w_of_slow": [3, 4],
    }
    result = run(tested, **given, state_of_w_of_count=3)
    assert result["next.state.w.count"] == 4
    assert result["next.param.w"].tolist() == [-0.5, 0.5]


def test_hyperparameters_as_inputs_and_schedules() -> None:
    unbound = compile_step(ModelSpec(rule(PARAM - LR * GRAD, lr=None), {"w": (2,)}))
    arrays: dict[str, Any] = {
        "param.w": np.array([1, 1], np.float32),
        "grad.w": np.array([1, 2], np.float32),
    }
    result = run_evaluator(unbound, {"step": np.array(0), "lr": np.array(0.25), **arrays})
    assert result["next.param.w"].tolist() == [0.75, 0.5]
    ramp = schedules.linear(0, 1, 4)
    result = run(rule(PARAM - LR * GRAD, lr=ramp), 3, param_of_w=[1, 1], grad_of_w=[1, 2])
    assert result["next.param.w"].tolist() == [0.25, -0.5]


def test_the_scalars_are_shared_by_all_parameters() -> None:
    lr = schedules.cosine(1e-3, 1e-4, 100)
    adamw = optimizers.adamw(lr=lr)
    one, many = (
        compile_step(ModelSpec(adamw, {f"w{k}": (2,) for k in range(count)})) for count in (1, 5)
    )
    assert sum(n.op is Op.SIN for n in many.nodes) == sum(n.op is Op.SIN for n in one.nodes) == 1


@pytest.mark.parametrize(
    ("param", "error", "message"),
    [
        (sp.Piecewise((PARAM, GRAD > 0)), LoweringError, "Piecewise has no value .*add a final"),
        (PARAM + sp.gamma(GRAD), LoweringError, "gamma cannot be lowered"),
        (PARAM / (t - 3), DomainError, "at t = 3: t - 3 is 0.*rule 'test', next value of 'param'"),
        (PARAM * sp.log(1 - LR * 4), DomainError, "1 - 4[*]lr is -1, and must be above zero"),
        (transpose(PARAM), LoweringError, r"transpose needs a matrix, got f32\[2\]"),
    ],
)
def test_refused(param: sp.Expr, error: type[Exception], message: str) -> None:
    with pytest.raises(error, match=message):
        compile_step(ModelSpec(rule(param), {"w": (2,)}))


def test_an_input_is_clamped_to_its_range() -> None:
    expr = PARAM - LR * GRAD / sp.sqrt(1 - RHO ** (t + 1))
    below_one = (sp.Integer(0), 1 - sp.Rational(1, 2**40))
    ranges = {"rho": below_one}
    ranged = UpdateRule("test", expr, {}, {"lr": 0.5, "rho": None}, ranges=ranges)
    shapes = {"w": (2,)}
    graph = compile_step(ModelSpec(ranged, shapes))
    with pytest.raises(DomainError, match="rho"):
        compile_step(ModelSpec(UpdateRule("test", expr, {}, {"lr": 0.5, "rho": None}), shapes))
    written = compile_step(ModelSpec(ranged.clamped(), shapes))
    param, grad = np.array([1, 2], np.float32), np.array([3, -4], np.float32)
    for value, inside in ((0.75, 0.75), (-2.0, 0.0), (1.0, float(below_one[1])), (5.0, 1 - 2**-40)):
        given = {"step": np.array(3), "rho": np.array(value), "param.w": param, "grad.w": grad}
        got = run_evaluator(graph, given)["next.param.w"]
        wanted = param - 0.5 * grad / np.sqrt(1 - inside**4)
        np.testing.assert_allclose(got, wanted, rtol=3e-7)  # three roundings of float32
        np.testing.assert_array_equal(got, run_evaluator(written, given)["next.param.w"])

"""Scalars of rules in pairs of float32: files without float64 and int64 that step as others do."""

from pathlib import Path

import mpmath
import numpy as np
import pytest
import sympy as sp

import closedform as cf
from closedform.compiler import compile_program, compile_step
from closedform.errors import LoweringError
from closedform.ir import evaluate
from closedform.ir.graph import Array, Graph
from closedform.ir.types import DType
from closedform.language import GRAD, PARAM, UpdateRule
from closedform.options import GraphOptions, ModelSpec, Precision
from closedform.runtime.onnx_session import open_session
from tests.support.backends import INSTALLED, differences, tolerance
from tests.test_library import OPTIMIZERS, PARAMS, drawn_inputs, fitting

SINGLE = GraphOptions(dtype="f32", scalar_dtype="f32", step_dtype="i32")
PAIRS = GraphOptions(
    dtype="f32", scalar_dtype="f32", step_dtype="i32", precision=Precision.DOUBLE_FLOAT
)
SMALL = {DType.F32, DType.I32, DType.BOOL}
LR = cf.schedules.linear(0, 3e-4, 2000).then(cf.schedules.cosine(3e-4, 3e-5, 98_000))
STEPS = [0, 1, 2, 9, 999, 1999, 2000, 2001, 50_000, 99_999, 10**6, 2**31 - 2]


def inputs_of(graph: Graph, values: dict[str, Array]) -> dict[str, Array]:
    """The values in the dtypes of the inputs of a graph."""
    return {
        name: np.asarray(values[name]).astype(node.type.dtype.numpy)
        for node in graph.inputs
        if (name := str(node.attribute("name"))) in values
    }


def corrected(options: GraphOptions) -> list[float]:
    """The rate of AdamW with its bias correction, as a step with a gradient of 1 takes it."""
    beta = sp.Rational(999, 1000)
    correction = sp.sqrt(1 - beta ** (cf.t + 1)) / (1 - sp.Rational(9, 10) ** (cf.t + 1))
    step = cf.expr.hyper("lr") * correction
    rule = UpdateRule("corrected", PARAM + step * GRAD, {}, {"lr": LR})
    graph = compile_step(ModelSpec(rule, {"w": ()}), options)
    values = {"param.w": np.array(0), "grad.w": np.array(1)}
    return [
        float(evaluate(graph, inputs_of(graph, {**values, "step": np.array(t)}))["next.param.w"])
        for t in STEPS
    ]


def test_scalars_are_rounded_once() -> None:
    """Beside mpmath, at most 0.501 ulp; in single precision the correction cancels 100 ulp."""
    exact = []
    with mpmath.workdps(60):
        for t in STEPS:
            lr = mpmath.mpf(LR.exact(t)) if t < 2000 else mpmath.mpf(sp.N(LR.exact(t), 50))
            root = mpmath.sqrt(1 - mpmath.mpf("0.999") ** (t + 1))
            exact.append(lr * root / (1 - mpmath.mpf("0.9") ** (t + 1)))
        apart = {
            options.precision: [
                float(abs(value - wanted) / np.spacing(np.float32(wanted)))
                for value, wanted in zip(corrected(options), exact, strict=True)
            ]
            for options in (SINGLE, PAIRS)
        }
    assert max(apart[Precision.DOUBLE_FLOAT]) <= 0.501
    assert max(apart[Precision.SINGLE]) > 10


@pytest.mark.sample(every=21)
@pytest.mark.parametrize("name", OPTIMIZERS)
def test_every_rule_in_pairs(name: str) -> None:
    rule = OPTIMIZERS[name]()
    spec = ModelSpec(rule, fitting(rule, PARAMS))
    graph = compile_step(spec, PAIRS)
    stored = {DType(rule.stored)} if rule.stored else set()
    rounded = {DType.BF16} if "bf16" in name else set()
    assert {node.type.dtype for node in graph.nodes} <= SMALL | stored | rounded
    wide = compile_step(spec)
    drawn = drawn_inputs(wide)
    expected = evaluate(wide, drawn)
    actual = evaluate(graph, inputs_of(graph, drawn))
    for key, value in expected.items():
        if np.issubdtype(value.dtype, np.floating):
            # A scalar may be rounded the other way, 1 ulp; sums and states of the model are single.
            scale = float(np.abs(value).max(initial=0.0))
            near = tolerance(wide, scale, DType.F32) + 4 * float(np.spacing(np.float32(scale)))
            assert np.abs(actual[key] - value).max(initial=0) <= near, key
        else:
            assert np.array_equal(actual[key], value), key
    ours = {key: one for key, one in INSTALLED.items() if one.params is None}
    assert not differences(graph, inputs_of(graph, drawn), DType.F32, ours)


def test_files_for_devices_of_32_bits(tmp_path: Path) -> None:
    """Ten steps of AdamW are those with float64 scalars, bit for bit."""
    rule = cf.optimizers.adamw(lr=LR, weight_decay=0.1)
    params = {"w": (3, 4), "b": ()}
    files = cf.to_onnx(
        rule,
        tmp_path,
        params=params,
        target="32-bit",
        dtype="f32",
        scalar_dtype="f32",
        step_dtype="i32",
        precision="double-float",
        validate=False,
    )
    assert isinstance(files, dict)
    session = open_session(files["step"]).raw
    start = open_session(files["init"]).raw
    rng = np.random.default_rng(2)
    drawn = {name: rng.normal(size=shape).astype(np.float32) for name, shape in params.items()}
    names = [output.name for output in start.get_outputs()]
    known = dict(zip(names, start.run(names, {}), strict=True))
    assert known["step"].dtype == np.int32
    known |= {f"param.{name}": value for name, value in drawn.items()}
    other = cf.OptimizerSession(rule, drawn, threads=1)
    outputs = [output.name for output in session.get_outputs()]
    for _ in range(10):
        grads = {name: rng.normal(size=shape).astype(np.float32) for name, shape in params.items()}
        given = {**known, **{f"grad.{name}": value for name, value in grads.items()}}
        known = {
            name.removeprefix("next."): value
            for name, value in zip(outputs, session.run(outputs, given), strict=True)
        }
        other.step(grads)
    for name, value in other.params.items():
        assert np.array_equal(known[f"param.{name}"], value), name


def test_schedules_that_have_no_pairs_are_refused() -> None:
    rule = cf.optimizers.sgd(cf.Schedule(cf.expr.floor_mod(sp.exp(cf.t / 7), 2), name="saw"))
    with pytest.raises(LoweringError, match="has no double-float form"):
        compile_program(ModelSpec(rule, {"w": ()}), PAIRS)


def test_non_finite_totals_are_seen() -> None:
    total = cf.expr.global_sum(GRAD**2)
    skipped = sp.Piecewise((PARAM, cf.expr.non_finite(total) > 0), (PARAM - GRAD, True))
    graph = compile_step(ModelSpec(UpdateRule("skips", skipped, {}, {}), {"w": (2,)}), PAIRS)
    for grad, after in (([1.0, 2.0], [0.0, -1.0]), ([np.inf, 1.0], [1.0, 1.0])):
        given = {"step": np.array(1), "param.w": np.ones(2), "grad.w": np.array(grad)}
        found = evaluate(graph, inputs_of(graph, given))["next.param.w"]
        assert found.tolist() == after

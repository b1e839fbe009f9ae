"""Static structure: what a rule is for a shape, functions of tensors, definitions, refusals."""

from collections.abc import Callable
from typing import Any

import numpy as np
import pytest
import sympy as sp

from closedform.compiler import compile_step
from closedform.errors import DefinitionError, LoweringError
from closedform.ir.types import Shape
from closedform.language import (
    EPSILON,
    GRAD,
    PARAM,
    RANK,
    SIZE,
    GlobalSum,
    Sizes,
    State,
    UpdateRule,
    Without,
    all_but,
    axis_size,
    broadcast_to,
    expand_dims,
    global_sum,
    hyper,
    like_param,
    local,
    matmul,
    permute,
    reduce_max,
    reduce_mean,
    reduce_sum,
    reshape,
    rounded,
    state,
    t,
    transpose,
)
from closedform.language.printing import latex, text
from closedform.options import ModelSpec
from closedform.verify.translation.translation import validate
from tests.support.engines import run_evaluator, run_onnxruntime, run_torch

RNG = np.random.default_rng(5)


def after(expr: sp.Expr, shape: tuple[int, ...], **parts: Any) -> tuple[Any, Any]:
    """The parameter after a step of a rule, alike in three engines, and the gradient."""
    graph = compile_step(ModelSpec(UpdateRule("test", expr, **parts), {"w": shape}))
    gradient = np.asarray(RNG.normal(size=shape), np.float32)
    feed = {"step": np.array(3), "param.w": np.zeros(shape, np.float32), "grad.w": gradient}
    result = run_evaluator(graph, feed)["next.param.w"]
    for run in (run_onnxruntime, run_torch):
        # Sums of a few float32 numbers in another order.
        np.testing.assert_allclose(run(graph, feed)["next.param.w"], result, rtol=1e-6, atol=1e-6)
    return result, gradient.astype(np.float64)


def column(x: Any) -> Any:
    return x.mean(-2, keepdims=True)


FORMULAS: dict[str, tuple[sp.Expr, tuple[int, ...], Callable[[Any], Any]]] = {
    "mean over all": (PARAM + reduce_mean(GRAD), (2, 3), lambda g: np.full((2, 3), g.mean())),
    "sum of rows": (
        PARAM + expand_dims(reduce_sum(GRAD, (-1,)), -1),
        (2, 3),
        lambda g: np.broadcast_to(g.sum(-1, keepdims=True), (2, 3)),
    ),
    "mean of columns, keepdims": (
        PARAM + reduce_mean(GRAD, (-2,), keepdims=True),
        (2, 3, 4),
        lambda g: np.broadcast_to(column(g), (2, 3, 4)),
    ),
    "two axes": (
        PARAM + reduce_sum(GRAD, (0, -1), keepdims=True),
        (2, 3, 4),
        lambda g: np.broadcast_to(g.sum((0, 2), keepdims=True), (2, 3, 4)),
    ),
    "the largest": (PARAM + reduce_max(GRAD), (2, 3), lambda g: np.full((2, 3), g.max())),
    "the largest of a column": (
        PARAM + reduce_max(GRAD, (0,), keepdims=True),
        (2, 3),
        lambda g: np.broadcast_to(g.max(0, keepdims=True), (2, 3)),
    ),
    "all axes but one": (
        PARAM + reduce_max(GRAD, all_but(1), keepdims=True) - reduce_sum(GRAD, all_but(-1)),
        (2, 3, 4),
        lambda g: np.broadcast_to(g.max((0, 2), keepdims=True), (2, 3, 4)) - g.sum((0, 1)),
    ),
    "all axes but one that is not there": (
        PARAM + reduce_max(GRAD, all_but(5), keepdims=True),
        (2, 3),
        lambda g: np.full((2, 3), g.max()),
    ),
    "the largest of one": (PARAM + reduce_max(GRAD), (), lambda g: g),
    "the largest of none": (
        PARAM + reduce_max(GRAD, (0,), keepdims=True),
        (0, 3),
        lambda g: g,
    ),
    "a kernel as a matrix": (
        like_param(
            matmul(
                matmul(
                    reshape(GRAD, (axis_size(0), SIZE / axis_size(0))),
                    transpose(reshape(GRAD, (axis_size(0), SIZE / axis_size(0)))),
                ),
                reshape(GRAD, (axis_size(0), SIZE / axis_size(0))),
            )
        ),
        (2, 3, 2),
        lambda g: (g.reshape(2, 6) @ g.reshape(2, 6).T @ g.reshape(2, 6)).reshape(2, 3, 2),
    ),
    "axes in another order": (
        PARAM + permute(permute(GRAD, (2, 0, 1)) * 2, (1, 2, 0)),
        (2, 3, 4),
        lambda g: 2 * g,
    ),
    "a row for each row": (
        matmul(
            broadcast_to(reduce_sum(GRAD, (0,), keepdims=True), (axis_size(0), axis_size(0))), GRAD
        ),
        (3, 3),
        lambda g: np.broadcast_to(g.sum(0), (3, 3)) @ g,
    ),
    "a number in a shape": (
        matmul(matmul(GRAD, reshape(sp.Rational(1, 3), (1, 1))), broadcast_to(2, (1, 1))),
        (3, 1),
        lambda g: g * 2 / 3,
    ),
    "a count in a shape": (matmul(GRAD, reshape(t + 2, (1, 1))), (3, 1), lambda g: g * 5),
    "sizes are numbers": (GRAD * SIZE / axis_size(-1) + RANK, (3, 4), lambda g: g * 3 + 2),
    "the epsilon of float32": (PARAM + EPSILON * GRAD, (2,), lambda g: g * 2.0**-23),
    "a branch by rank": (
        sp.Piecewise((GRAD / axis_size(-2), sp.Ge(RANK, 2)), (GRAD, True)),
        (5,),
        lambda g: g,
    ),
}


@pytest.mark.parametrize("name", FORMULAS)
def test_functions_of_tensors(name: str) -> None:
    expr, shape, formula = FORMULAS[name]
    result, gradient = after(expr, shape)
    np.testing.assert_allclose(result, formula(gradient), rtol=1e-6, atol=1e-6)


@pytest.mark.parametrize("reduce", [reduce_max, reduce_mean])
def test_no_elements_and_no_numbers(reduce: Callable[..., sp.Expr]) -> None:
    rows = State(reduce(GRAD, (-1,)), shape=Without((-1,)))
    for gradient, expected in (
        (np.zeros((2, 0), np.float32), [0, 0]),
        (np.array([[1, np.nan], [np.inf, 3]], np.float32), [np.nan, np.inf]),
    ):
        shape = gradient.shape
        graph = compile_step(
            ModelSpec(UpdateRule("test", PARAM - GRAD, {"rows": rows}), {"w": shape})
        )
        feed = {"step": np.array(0), "param.w": gradient, "grad.w": gradient}
        feed["state.w.rows"] = np.zeros(2, np.float32)
        for run in (run_evaluator, run_onnxruntime, run_torch):
            np.testing.assert_array_equal(run(graph, feed)["next.state.w.rows"], expected)


def test_rounding_to_bf16_is_to_the_nearest_even() -> None:
    graph = compile_step(ModelSpec(UpdateRule("test", rounded(GRAD, "bf16")), {"w": (4,)}))
    given = np.array([1 + 2**-8, 1 + 3 * 2**-8, 3e38, np.inf], np.float32)
    feed = {"step": np.array(0), "param.w": given, "grad.w": given}
    # 1 + 2**-8 is halfway between two numbers of 8 bits; so is the next, which rounds up.
    expected = [1, 1 + 2**-6, 226 * 2.0**120, np.inf]
    for run in (run_evaluator, run_onnxruntime, run_torch):
        np.testing.assert_allclose(run(graph, feed)["next.param.w"], expected, rtol=1e-7)


def test_definitions_are_computed_once_and_scalars_apart() -> None:
    definitions = {
        "rate": hyper("lr") / (t + 1),
        "change": local("rate") * GRAD,
        "unused": sp.exp(GRAD),
    }
    rule = UpdateRule(
        "test",
        PARAM - local("change") ** 2 + local("change"),
        hyperparameters={"lr": 2},
        definitions=definitions,
    )
    graph = compile_step(ModelSpec(rule, {"w": (3,)}))
    ops = [str(node.op) for node in graph.nodes if node.type.shape == (3,)]
    assert ops.count("mul") == 2  # the change, and its square
    feed = {"step": np.array(3), "param.w": np.zeros(3, np.float32), "grad.w": np.ones(3)}
    result = run_evaluator(graph, {**feed, "grad.w": np.ones(3, np.float32)})
    assert result["next.param.w"].tolist() == [0.25] * 3


def test_a_rule_for_all_shapes_is_itself_for_each() -> None:
    rule = UpdateRule("plain", PARAM - GRAD, {"m": State(state("m") + GRAD)})
    assert rule.is_for_all_shapes
    assert rule.is_elementwise
    assert rule.for_shape((2, 3)) is rule
    assert not UpdateRule("sums", PARAM - reduce_sum(GRAD)).is_elementwise
    assert not UpdateRule("sizes", PARAM - GRAD * SIZE).is_for_all_shapes
    scalar = {"n": State(state("n") + 1, shape="scalar")}
    assert not UpdateRule("counts", PARAM - GRAD * state("n"), scalar).is_elementwise


def test_formulas_are_printed() -> None:
    expr = matmul(transpose(PARAM), GRAD) + reduce_mean(GRAD**2, (-1,)) + reduce_sum(GRAD)
    expr += reduce_max(GRAD, all_but(0))
    assert "MatMul(Transpose(param), grad)" in text(expr)
    in_latex = latex(expr)
    names = {name: latex(symbol) for name, symbol in (("p", PARAM), ("g", GRAD))}
    assert r"\left(\left({p}\right)^{{\top}}\right) \left({g}\right)".format(**names) in in_latex
    assert r"\operatorname{{mean}}_{{-1}}\left({g}^{{2}}\right)".format(**names) in in_latex
    assert r"\operatorname{{sum}}\left({g}\right)".format(**names) in in_latex
    assert r"\max_{{\ne 0}}\left({g}\right)".format(**names) in in_latex


def for_shape(shape: Shape, expr: sp.Expr = PARAM, **parts: Any) -> Callable[[], object]:
    return lambda: UpdateRule("test", expr, **parts).for_shape(shape, "w")


ROWS = {"rows": State(reduce_sum(GRAD, (-1,)), shape=Without((-2,)))}
SQUARE = {"square": State(matmul(GRAD, transpose(GRAD)), 0, Sizes((axis_size(0), axis_size(0))))}


def test_a_state_may_have_any_sizes() -> None:
    gram = UpdateRule("test", PARAM - matmul(state("square"), GRAD), SQUARE)
    assert gram.state_shape("square", (3, 5)) == (3, 3)
    graph = compile_step(ModelSpec(gram, {"w": (2, 3)}))
    gradient = np.array([[1, 2, 3], [0, 1, 0]], np.float32)
    feed = {"step": np.array(0), "param.w": gradient, "grad.w": gradient}
    feed["state.w.square"] = np.eye(2, dtype=np.float32)
    for run in (run_evaluator, run_onnxruntime, run_torch):
        result = run(graph, feed)
        assert result["next.param.w"].tolist() == np.zeros((2, 3)).tolist()
        assert result["next.state.w.square"].tolist() == (gradient @ gradient.T).tolist()


@pytest.mark.parametrize(
    "expr",
    [
        permute(GRAD, (1, 0)) * PARAM,
        matmul(broadcast_to(reduce_sum(GRAD, (0,), keepdims=True), (3, 3)), PARAM),
        PARAM * global_sum(GRAD) / GlobalSum(sp.Integer(1)),
    ],
    ids=str,
)
def test_a_step_is_proved_to_be_its_rule(expr: sp.Expr) -> None:
    """The proof reads the rule and the graph apart, and finds a factor that is another one."""
    right, wrong = UpdateRule("test", PARAM - expr), UpdateRule("test", PARAM - 2 * expr)
    graph = compile_step(ModelSpec(right, {"w": (3, 3)}))
    assert validate(right, graph).proved
    assert not validate(wrong, graph).proved


BAD: dict[str, tuple[Callable[[], object], str]] = {
    "order of axes": (
        lambda: permute(GRAD, (0, 2)),
        "permute must order the axes 0 to 1, got (0, 2)",
    ),
    "sizes of a state": (
        lambda: UpdateRule("test", PARAM, SQUARE).state_shape("square", ()),
        "a parameter of shape [] gives the size shape[0] for shape[0] (rule 'test', state "
        "'square'): let the state exist only for parameters that have these axes",
    ),
    "axis": (lambda: axis_size(9), "an axis must be an integer in -8..7, got 9 (axis_size)"),
    "axis of a sum": (
        lambda: reduce_sum(GRAD, (1.5,)),  # type: ignore[arg-type]
        "an axis of reduce_sum must be an integer, got 1.5",
    ),
    "axis twice": (
        lambda: reduce_mean(GRAD, (-1, -1)),
        "reduce_mean must name each axis once, got (-1, -1)",
    ),
    "no axis to keep": (
        lambda: reduce_max(GRAD, all_but(2.5)),  # type: ignore[arg-type]
        "the axis of all_but must be an integer, got 2.5",
    ),
    "nothing to keep": (
        lambda: reduce_sum(GRAD, keepdims=True),
        "reduce_sum keeps axes that are named, got none: name axes",
    ),
    "no stored dtype": (
        lambda: rounded(GRAD, "f8"),
        "rounded needs one of ('bf16', 'f16', 'f32'), got 'f8'",
    ),
    "no axis of a state": (
        lambda: UpdateRule("test", PARAM, ROWS).state_shape("rows", (7,)),
        "a parameter of shape [7] has no axis -2 (rule 'test', state 'rows'): let the state exist "
        "only for parameters that have the axis",
    ),
    "no number": (
        for_shape((4,), PARAM * axis_size(-3)),
        "the shape has no number for shape[-3] (rule 'test', shape [4] of parameter 'w'): give "
        "sizes as integers, or make the expression a branch of a Piecewise on RANK",
    ),
    "a named size": (
        for_shape(("n", 2), PARAM * SIZE),
        "the shape has no number for shape.size (rule 'test', shape ['n', 2] of parameter 'w'): "
        "give sizes as integers, or make the expression a branch of a Piecewise on RANK",
    ),
    "another shape": (
        for_shape((3, 3), requires=sp.Eq(RANK, 1)),
        "the rule is only for shapes with Eq(shape.rank, 1) (rule 'test', shape [3, 3] of "
        "parameter 'w'): give the other parameters another rule: "
        "groups=[Group('*.bias', rule=…), …]",
    ),
    "a condition on data": (
        lambda: UpdateRule("test", PARAM, requires=PARAM > 0),
        "the condition of the rule must be only on the shape, got param > 0 (rule 'test'): such "
        "as sp.Ge(closedform.expr.RANK, 2)",
    ),
    "a definition before its time": (
        lambda: UpdateRule("test", PARAM, definitions={"a": local("b"), "b": GRAD}),
        "'local.b' is neither a state nor a hyperparameter (rule 'test', definition 'a'): add it "
        "to hyperparameters, states or, before its use, to definitions",
    ),
}


@pytest.mark.parametrize("name", BAD)
def test_undefined_expressions_are_refused(name: str) -> None:
    make, message = BAD[name]
    with pytest.raises(DefinitionError) as caught:
        make()
    assert str(caught.value) == message


LOWERED: dict[str, tuple[sp.Expr, Shape, str]] = {
    "no such axis": (
        PARAM + reduce_sum(GRAD, (-3,), keepdims=True),
        (2, 3),
        "ReduceSum over axis -3 of f32[2,3]: the axis is out of range (rule 'test', parameter 'w')",
    ),
    "a mean of a named size": (
        PARAM + reduce_mean(GRAD),
        ("n",),
        "ReduceMean needs sizes that are numbers, got f32[n] (rule 'test', parameter 'w')",
    ),
    "a maximum of a named size": (
        PARAM + reduce_max(GRAD, all_but(-1)),
        ("n", 2),
        "ReduceMax needs sizes that are numbers, got f32[n,2] (rule 'test', parameter 'w')",
    ),
    "no place for an axis": (
        PARAM + expand_dims(GRAD, 5),
        (2,),
        "f32[2] cannot get an axis at 5 (rule 'test', parameter 'w')",
    ),
    "no size": (
        like_param(reshape(GRAD, (sp.Rational(3, 2), 4))),
        (6,),
        "sizes of reshape must be integers >= 0, got (3/2, 4) (rule 'test', parameter 'w')",
    ),
}


@pytest.mark.parametrize("name", LOWERED)
def test_inexpressible_rules_are_refused(name: str) -> None:
    expr, shape, message = LOWERED[name]
    with pytest.raises(LoweringError) as caught:
        compile_step(ModelSpec(UpdateRule("test", expr), {"w": shape}))
    assert str(caught.value) == message

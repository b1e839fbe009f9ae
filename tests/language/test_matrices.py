"""Linear algebra without loops beside NumPy, in three engines, and proved."""

from collections.abc import Callable, Mapping
from typing import Any

import numpy as np
import pytest
import sympy as sp
import torch
from torch.nn.utils import parametrizations

from closedform.compiler import compile_init, compile_step
from closedform.errors import DefinitionError, LoweringError
from closedform.ir.types import DType
from closedform.language import (
    GRAD,
    PARAM,
    RANK,
    State,
    UpdateRule,
    axis_size,
    broadcast_to,
    local,
    matmul,
    matrices,
    positions,
    reduce_sum,
    transpose,
    update_rule,
)
from closedform.language.rotations import pairs_of_rounds
from closedform.options import GraphOptions, ModelSpec
from closedform.verify.translation.translation import validate
from tests.support.engines import run_evaluator, run_onnxruntime, run_torch

RNG = np.random.default_rng(3)
Definitions = Mapping[str, sp.Expr]


def rule_of(expr: sp.Expr, definitions: Definitions) -> UpdateRule:
    return UpdateRule("test", PARAM + expr, definitions=definitions)


def result(expr: sp.Expr, definitions: Definitions, matrix: Any, *, is_proved: bool = True) -> Any:
    """The value of an expression of the gradient, alike in three engines."""
    rule = rule_of(expr, definitions)
    graph = compile_step(ModelSpec(rule, {"w": matrix.shape}), GraphOptions(dtype=DType.F64))
    feed = {"step": np.array(0), "param.w": np.zeros(matrix.shape), "grad.w": matrix}
    value = run_evaluator(graph, feed)["next.param.w"]
    for run in (run_onnxruntime, run_torch):
        # Products of a few numbers in another order, enlarged by condition numbers of 1e3.
        np.testing.assert_allclose(run(graph, feed)["next.param.w"], value, rtol=1e-9, atol=1e-11)
    assert not is_proved or validate(rule, graph).proved
    return value


def wide(x: Any, shape: tuple[int, ...]) -> Any:
    return np.broadcast_to(x, shape)


SIMPLE: dict[str, tuple[sp.Expr, Callable[[Any], Any]]] = {
    "identity": (matrices.identity(GRAD), lambda x: np.eye(len(x))),
    "diagonal": (
        matrices.diagonal(GRAD),
        lambda x: wide(np.diag(x)[:, None], x.shape),
    ),
    "trace": (matrices.trace(GRAD), lambda x: wide(np.trace(x), x.shape)),
    "upper triangle": (matrices.upper_triangle(GRAD), np.triu),
    "positions": (
        positions(GRAD, -2) + 10 * positions(GRAD, 1),
        lambda x: np.add.outer(np.arange(len(x)), 10 * np.arange(len(x))),
    ),
}


@pytest.mark.parametrize("name", SIMPLE)
@pytest.mark.parametrize("size", [1, 2, 5, 9])
def test_functions_of_places(name: str, size: int) -> None:
    expr, expected = SIMPLE[name]
    matrix = RNG.normal(size=(size, size))
    np.testing.assert_allclose(result(expr, {}, matrix), expected(matrix), rtol=1e-15)


def test_a_definition_of_places_is_a_tensor() -> None:
    definitions = {"unit": matrices.identity(broadcast_to(1, (axis_size(0), axis_size(0))))}
    expr = sp.sign(matmul(matmul(transpose(local("unit")), GRAD), local("unit")))
    matrix = RNG.normal(size=(3, 3))
    np.testing.assert_array_equal(result(expr, definitions, matrix), np.sign(matrix))


@pytest.mark.parametrize("size", [1, 2, 3, 5, 8, 12])
def test_triangular_inverse(size: int) -> None:
    matrix = np.triu(RNG.normal(size=(size, size))) + 2 * np.eye(size)
    definitions = {"inverse": matrices.triangular_inverse(GRAD, axis_size(0))}
    # The blocks of three levels are more than the prover compares.
    value = result(local("inverse"), definitions, matrix, is_proved=size < 8)
    np.testing.assert_allclose(value, np.linalg.inv(matrix), rtol=1e-12, atol=1e-13)


@pytest.mark.parametrize("shape", [(1, 1), (2, 2), (5, 5), (5, 3), (4, 1)], ids=str)
@pytest.mark.parametrize("scale", [1, 1e-30, 1e30])
def test_orthogonal_factor_is_that_of_lapack(shape: tuple[int, int], scale: float) -> None:
    matrix = scale * RNG.normal(size=shape)
    definitions = {"q": matrices.orthogonal_factor(GRAD, axis_size(0), axis_size(1))}
    value = result(local("q"), definitions, matrix)
    np.testing.assert_allclose(value, np.linalg.qr(matrix)[0], rtol=1e-12, atol=1e-14)


def test_orthogonal_factor_of_dependent_columns_is_orthogonal() -> None:
    column = RNG.normal(size=(6, 1))
    matrix = column @ np.array([[1.0, 0, 2, -1]])
    rule = rule_of(local("q"), {"q": matrices.orthogonal_factor(GRAD, axis_size(0), axis_size(1))})
    graph = compile_step(ModelSpec(rule, {"w": matrix.shape}), GraphOptions(dtype=DType.F64))
    feed = {"step": np.array(0), "param.w": np.zeros(matrix.shape), "grad.w": matrix}
    for run in (run_evaluator, run_onnxruntime, run_torch):
        value = run(graph, feed)["next.param.w"]
        np.testing.assert_allclose(value.T @ value, np.eye(4), atol=1e-14)


def with_values(rows: int, values: Any) -> Any:
    """A random matrix with these singular values."""
    left, right = (np.linalg.qr(RNG.normal(size=(n, n)))[0] for n in (rows, len(values)))
    return (left[:, : len(values)] * values) @ right.T


@pytest.mark.sample(every=2)
@pytest.mark.parametrize(
    ("rows", "columns", "condition"),
    [(1, 1, 1), (2, 2, 10), (5, 5, 1e8), (7, 5, 1e3), (6, 4, 1e8), (8, 8, 1e8)],
)
def test_singular_vectors_are_those_of_lapack(rows: int, columns: int, condition: float) -> None:
    values = 3 * np.geomspace(1, 1 / condition, columns)
    matrix = with_values(rows, values)
    vectors = matrices.right_singular_vectors(GRAD, axis_size(0), axis_size(1))
    definitions = {"v": vectors, "w": matmul(GRAD, local("v"))}
    rule = UpdateRule("test", PARAM + local("w"), definitions=definitions)
    graph = compile_step(ModelSpec(rule, {"w": matrix.shape}), GraphOptions(dtype=DType.F64))
    feed = {"step": np.array(0), "param.w": np.zeros(matrix.shape), "grad.w": matrix}
    for run in (run_evaluator, run_onnxruntime, run_torch):
        turned = run(graph, feed)["next.param.w"]
        sizes = np.linalg.norm(turned, axis=0)
        # Roundings of the largest value, some hundred rotations of them.
        np.testing.assert_allclose(sizes, values, rtol=1e-12, atol=1e-14)
        gram = (turned / sizes).T @ (turned / sizes)
        np.testing.assert_allclose(gram, np.eye(columns), atol=1e-14 * condition)
        expected = np.abs(np.linalg.svd(matrix)[0][:, :columns])
        np.testing.assert_allclose(np.abs(turned / sizes), expected, atol=1e-14 * condition)


def iterated(matrix: Any, steps: int) -> tuple[Any, Any]:
    """The vectors of torch's power iteration from ones, which is for numbers near 1."""
    layer = torch.nn.Linear(matrix.shape[1], matrix.shape[0], bias=False, dtype=torch.float64)
    with torch.no_grad():
        layer.weight.copy_(torch.tensor(matrix))
    parametrizations.spectral_norm(layer, n_power_iterations=1)
    norm: Any = layer.parametrizations.weight[0]  # type: ignore[index, union-attr]
    norm._v.copy_(torch.nn.functional.normalize(torch.ones_like(norm._v), dim=0))
    norm._power_method(torch.tensor(matrix), steps)
    return norm._u.numpy(), norm._v.numpy()


@pytest.mark.parametrize("shape", [(5, 3), (3, 5), (1, 4), (4, 4)])
@pytest.mark.parametrize("scale", [1, 1e-30])
def test_the_power_iteration_is_that_of_torch(shape: tuple[int, int], scale: float) -> None:
    matrix = scale * RNG.normal(size=shape)
    definitions = matrices.spectral_norm(GRAD, "norm", steps=7)
    # torch ends with the left vector of the right one before; here it is of the last one.
    _, right = iterated(matrix / scale, 7)
    left = matrix / scale @ right
    left /= np.linalg.norm(left)
    outer = matmul(local("norm_u"), transpose(local("norm_v")))
    value = result(outer, definitions, matrix, is_proved=False)
    np.testing.assert_allclose(value, np.outer(left, right), rtol=1e-12, atol=1e-14)
    value = result(local("norm") + 0 * GRAD, definitions, matrix, is_proved=False)
    np.testing.assert_allclose(value, left @ matrix @ right, rtol=1e-13, atol=0)


def test_the_estimate_of_a_spectral_norm_rises_to_it() -> None:
    matrix = with_values(6, np.array([2.0, 1.0, 0.5]))
    errors = []
    for steps in (2, 3, 4):
        definitions = matrices.spectral_norm(GRAD, "norm", steps=steps)
        value = result(local("norm") + 0 * GRAD, definitions, matrix, is_proved=False)
        errors.append(2 - value[0, 0])
    assert errors[0] > 0
    # The quotient of the two largest values is 1/2, its fourth power 1/16.
    np.testing.assert_allclose(np.divide(errors[1:], errors[:-1]), 1 / 16, rtol=0.1)
    zero = result(local("norm") + 0 * GRAD, definitions, np.zeros((4, 3)), is_proved=False)
    np.testing.assert_array_equal(zero, 0)


def test_singular_vectors_of_any_matrix_are_orthogonal() -> None:
    column = RNG.normal(size=(6, 1))
    for matrix in (np.zeros((6, 4)), np.ones((6, 4)), column @ np.array([[1.0, 0, 2, -1]])):
        square = matrices.right_singular_vectors(
            matmul(transpose(GRAD), GRAD), axis_size(1), axis_size(1)
        )
        definitions = {"v": square, "w": matmul(GRAD, local("v"))}
        turned = result(local("w"), definitions, matrix, is_proved=False)
        # A rotation keeps lengths, and a matrix of rank 1 has one column that is not 0.
        np.testing.assert_allclose(np.linalg.norm(turned), np.linalg.norm(matrix), rtol=1e-14)
        np.testing.assert_allclose(turned[:, 1:], 0, atol=1e-14)


def test_all_columns_meet_in_a_sweep() -> None:
    for columns in (2, 3, 6, 7):
        like = sp.Symbol("like")
        met = np.zeros((columns, columns), int)
        for is_pair in pairs_of_rounds(like, columns):
            places = {
                (i, j): bool(
                    is_pair.xreplace(
                        {positions(like, -2): sp.Integer(i), positions(like, -1): sp.Integer(j)}
                    )
                )
                for i in range(columns)
                for j in range(columns)
            }
            partners = [[j for j in range(columns) if places[i, j]] for i in range(columns)]
            assert max(map(len, partners)) == 1
            assert sum(map(len, partners)) == columns - columns % 2
            met += np.array([[places[i, j] for j in range(columns)] for i in range(columns)])
        np.testing.assert_array_equal(met, 1 - np.eye(columns, dtype=int))


@pytest.mark.parametrize(("order", "condition"), [(1, 10), (2, 1e3), (3, 10), (4, 1e6)])
def test_inverse_root(order: int, condition: float) -> None:
    basis, _ = np.linalg.qr(RNG.normal(size=(6, 6)))
    values = np.geomspace(1, 1 / condition, 6)
    matrix = 7 * (basis * values) @ basis.T
    steps = int(np.ceil(1.2 * np.log(condition))) + 8
    definitions = matrices.inverse_root(GRAD, order, "root", steps=steps)
    value = result(matrices.last_name(definitions), definitions, matrix, is_proved=order == 2)
    expected = (basis * (7 * values) ** (-1 / order)) @ basis.T
    # A relative error of the smallest eigenvalue: roundings of 1.1e-16 times the condition number.
    np.testing.assert_allclose(
        value, expected, atol=1e-14 * condition * np.abs(expected).max(), rtol=0
    )


def test_float32_takes_the_steps_that_its_condition_numbers_need() -> None:
    definitions = matrices.inverse_root(GRAD, 2, "root", steps=40)
    rule = rule_of(matrices.last_name(definitions), definitions)
    counts = {}
    for dtype in (DType.F32, DType.F64):
        graph = compile_step(ModelSpec(rule, {"w": (6, 6)}), GraphOptions(dtype=dtype))
        counts[dtype] = sum(node.op.name == "MATMUL" for node in graph.nodes)
    # Three products a step; the first and the last need fewer.
    assert counts[DType.F64] - counts[DType.F32] == 3 * (40 - matrices.SINGLE_STEPS)
    values = np.geomspace(1, 1e-6, 6, dtype=np.float32)
    feed = {
        "step": np.array(0),
        "param.w": np.zeros((6, 6), np.float32),
        "grad.w": np.diag(values),
    }
    graph = compile_step(ModelSpec(rule, {"w": (6, 6)}), GraphOptions(dtype=DType.F32))
    root = run_onnxruntime(graph, feed)["next.param.w"]
    # A diagonal matrix loses nothing in products: ten roundings of 6e-8.
    np.testing.assert_allclose(np.diag(root), values**-0.5, rtol=1e-6)


def test_columns_are_ordered_and_equal_ones_keep_their_order() -> None:
    matrix = np.array([[1.0, 3, 2, 3, 0], *RNG.normal(size=(4, 5))])
    first = sp.Piecewise((GRAD, sp.Eq(positions(GRAD, -2), 0)), (0, True))
    definitions = {
        "values": reduce_sum(first, (-2,), keepdims=True),
        **matrices.descending_order(local("values"), GRAD, "order"),
    }
    value = result(local("order"), definitions, matrix)
    np.testing.assert_array_equal(np.arange(5) @ value, [1, 3, 2, 0, 4])


def test_a_factor_in_an_expression_is_refused() -> None:
    definitions = {"twice": 2 * matrices.triangular_inverse(GRAD, axis_size(0))}
    with pytest.raises(DefinitionError) as caught:
        rule_of(local("twice"), definitions).for_shape((3, 3))
    assert str(caught.value) == (
        "a matrix factor must be a whole definition, got 2*TriangularInverse(grad, 3) (rule 'test',"
        " shape [3, 3]): name it in definitions and use local(name)"
    )


def test_a_factor_of_many_columns_is_refused() -> None:
    definitions = {"q": matrices.orthogonal_factor(GRAD, axis_size(0), axis_size(1))}
    with pytest.raises(DefinitionError) as caught:
        rule_of(local("q"), definitions).for_shape((300, 200))
    assert str(caught.value) == (
        "a QR decomposition takes up to 128 columns and no more than rows, got 300 rows and 200 "
        "columns (definition 'q')"
    )


def test_positions_of_a_vector_are_refused() -> None:
    with pytest.raises(LoweringError) as caught:
        compile_step(ModelSpec(rule_of(positions(GRAD, -1), {}), {"w": (3,)}))
    assert "positions need two axes and axis -1, got f32[3]" in str(caught.value)


def test_a_factor_of_sizes_without_numbers_is_refused() -> None:
    definitions = {"q": matrices.orthogonal_factor(GRAD, axis_size(0), axis_size(1))}
    with pytest.raises(DefinitionError) as caught:
        rule_of(local("q"), definitions).for_shape(("rows", 2))
    assert str(caught.value).startswith("the shape has no number for shape")


def test_first_states_are_made_without_factors(monkeypatch: pytest.MonkeyPatch) -> None:
    """The states before a step are a few numbers; a factor has thousands of definitions."""
    factor = matrices.orthogonal_factor(GRAD, axis_size(0), axis_size(1))
    states = {"first": State(local("q")), "second": State(GRAD, 3, exists=sp.Eq(RANK, 1))}
    rule = UpdateRule("test", PARAM, states, definitions={"q": factor})
    monkeypatch.setattr(update_rule, "expanded", None)
    assert list(rule.states_for((3, 2))) == ["first"]
    graph = compile_init(ModelSpec(rule, {"w": (3, 2)}), GraphOptions(dtype=DType.F64))
    np.testing.assert_array_equal(run_evaluator(graph, {})["state.w.first"], np.zeros((3, 2)))

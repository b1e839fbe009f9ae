"""Norms of matrices: bounds that products of a matrix with itself keep, in floats."""

import numpy as np
import pytest

from closedform.ir.analysis.interval import Interval
from closedform.ir.analysis.ranges import Ranges
from closedform.ir.analysis.step_check import node_values
from closedform.ir.graph import Builder, Graph, Role, Value
from closedform.ir.ops import Op
from closedform.ir.types import DType, TensorType

MUON = (3.4445, -4.775, 2.0315)


def newton_schulz(
    shape: tuple[int, int], numbers: tuple[float, float, float], steps: int, *, floor: float = 1e-7
) -> Graph:
    """The iteration of Muon from a matrix divided by its norm."""
    builder = Builder("iteration")
    matrix = builder.input("x", TensorType(DType.F32, shape), Role.GRAD)
    square = builder.emit(Op.MUL, matrix, matrix)
    total = builder.emit(Op.REDUCE_SUM, square, axes=(0, 1), keepdims=True)
    norm = builder.emit(Op.MAX, builder.emit(Op.SQRT, total), builder.const(floor, DType.F32))
    x = builder.emit(Op.DIV, matrix, norm)

    def times(value: Value, number: float) -> Value:
        return builder.emit(Op.MUL, value, builder.const(number, DType.F32))

    for _ in range(steps):
        a = builder.emit(Op.MATMUL, x, builder.emit(Op.TRANSPOSE, x, permutation=(1, 0)))
        inner = builder.emit(
            Op.ADD, times(a, numbers[1]), times(builder.emit(Op.MATMUL, a, a), numbers[2])
        )
        x = builder.emit(Op.ADD, times(x, numbers[0]), builder.emit(Op.MATMUL, inner, x))
    builder.output("value", x)
    return builder.build()


def table_of(graph: Graph) -> Ranges:
    given = {"x": Interval(-(2.0**40), 2.0**40)}
    table = Ranges(graph.nodes, 0, input_ranges=given, flushes=True)
    for index in range(len(graph.nodes)):
        table.of(index)
    return table


@pytest.mark.parametrize("shape", [(4, 4), (8, 16), (3, 40)])
@pytest.mark.parametrize("numbers", [MUON, (2.0, -1.5, 0.5), (1.5, -0.5, 0.0)])
def test_every_value_is_in_its_interval(
    shape: tuple[int, int], numbers: tuple[float, float, float]
) -> None:
    graph = newton_schulz(shape, numbers, 5)
    table = table_of(graph)
    draw = np.random.default_rng(1)
    rank_one = np.outer(draw.normal(size=shape[0]), draw.normal(size=shape[1]))
    for x in (draw.normal(size=shape), rank_one, np.eye(*shape), np.zeros(shape), 1e-22 * rank_one):
        for scale in (1.0, 1e11, 1e-9):
            values = node_values(graph, {"x": (x * scale).astype(np.float32)})
            for index, value in enumerate(values):
                interval = table.of(index)
                assert interval.low <= value.min() <= value.max() <= interval.high, index


def test_the_bound_is_that_of_singular_values() -> None:
    """The polynomial of Muon is below 1.21 on [0, 1.21]; 50 iterations stay there."""
    graph = newton_schulz((8, 16), MUON, 50)
    table = table_of(graph)
    assert table.of(graph.outputs[0].index).high < 1.25


def test_coefficients_that_let_the_values_grow_are_not_bounded() -> None:
    graph = newton_schulz((8, 16), (3.4445, -4.775, 3.5), 8)
    interval = table_of(graph).of(graph.outputs[0].index)
    assert interval.maybe_nan
    x = np.zeros((8, 16), np.float32)
    x[0, 0] = 1
    values = node_values(graph, {"x": x})
    assert not np.isfinite(values[graph.outputs[0].index]).all()


def test_a_norm_that_may_be_lost_is_not_one() -> None:
    """Without a floor the squares of a matrix of tiny numbers are lost from its norm."""
    graph = newton_schulz((8, 16), MUON, 1, floor=0.0)
    assert table_of(graph).of(graph.outputs[0].index).maybe_nan

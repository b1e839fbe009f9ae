"""Bounds of rounding errors of graphs of tensors, next to the same graphs in float64."""

import numpy as np
import pytest

from closedform.ir import DType, Graph, Role, TensorType, evaluate
from closedform.ir.graph import Builder, Value
from closedform.ir.ops import Op
from closedform.verify.certificates.error_rules import Enclosure
from closedform.verify.certificates.errors import enclosures_of_outputs

SHAPE = (5, 3)


def graph_of(seed: int, dtype: DType) -> Graph:
    """A graph of twelve random operations of two inputs."""
    draw = np.random.default_rng(seed)
    builder = Builder("drawn")
    type_ = TensorType(dtype, SHAPE)
    values = [builder.input("x", type_, Role.PARAM), builder.input("y", type_, Role.GRAD)]

    def pick() -> Value:
        return values[int(draw.integers(max(0, len(values) - 4), len(values)))]

    def number(value: float) -> Value:
        return builder.const(value, dtype)

    for _ in range(12):
        a, b = pick(), pick()
        match int(draw.integers(12)):
            case 0:
                value = builder.emit(Op.ADD, a, b)
            case 1:
                value = builder.emit(Op.SUB, a, b)
            case 2:
                value = builder.emit(Op.MUL, a, b)
            case 3:
                value = builder.emit(Op.DIV, a, builder.emit(Op.ADD, square(builder, b), number(2)))
            case 4:
                value = builder.emit(Op.SQRT, builder.emit(Op.ABS, a))
            case 5:
                value = builder.emit(Op.MAX, a, builder.emit(Op.MUL, b, number(0.375)))
            case 6:
                value = builder.emit(Op.POW, a, number(3))
                value = builder.emit(Op.MIN, value, number(4))
            case 7:
                total = builder.emit(Op.REDUCE_SUM, a, axes=(0,), keepdims=True)
                value = builder.emit(Op.ADD, total, b)
            case 8:
                turned = builder.emit(Op.TRANSPOSE, b, permutation=(1, 0))
                product = builder.emit(Op.MATMUL, turned, a)
                value = builder.emit(Op.MATMUL, b, builder.emit(Op.MUL, product, number(0.125)))
            case 9:
                row = builder.emit(Op.REDUCE_MAX, a, axes=(0,), keepdims=False)
                value = builder.emit(Op.MUL, builder.emit(Op.BROADCAST_TO, row, shape=SHAPE), b)
            case 10:
                flat = builder.emit(Op.RESHAPE, a, shape=(15,))
                value = builder.emit(Op.RESHAPE, builder.emit(Op.NEG, flat), shape=SHAPE)
            case _:
                value = builder.emit(Op.MUL, square(builder, a), number(0.0009765625))
        values.append(value)
    builder.output("result", values[-1])
    return builder.build()


def test_roots_and_products_of_small_numbers_keep_few_ulps() -> None:
    builder = Builder("small")
    x = builder.input("x", TensorType(DType.F32, ()), Role.PARAM)
    root = builder.emit(Op.SQRT, builder.emit(Op.ADD, square(builder, x), square(builder, x)))
    builder.output("result", builder.emit(Op.DIV, x, root))
    box = Enclosure(np.array([1e-10]), np.array([1.0]), np.zeros(1))
    result = enclosures_of_outputs(builder.build(), {"x": box})["result"]
    # Two roundings of half an ulp under the root, which halves them, an ulp of the root by the
    # table of ops, and half an ulp of the quotient; an ulp is up to 2**-23 of the value.
    assert 2e-7 < result.share[0] <= 2.01 * 2.0**-23


def square(builder: Builder, value: Value) -> Value:
    return builder.emit(Op.MUL, value, value)


@pytest.mark.parametrize("seed", range(60))
def test_float32_is_as_near_to_float64_as_the_bound_says(seed: int) -> None:
    draw = np.random.default_rng(1000 + seed)
    feed = {name: draw.uniform(-2, 2, SHAPE).astype(np.float32) for name in "xy"}
    single, double = graph_of(seed, DType.F32), graph_of(seed, DType.F64)
    computed = evaluate(single, feed)["result"].astype(float)
    exact = evaluate(double, {name: value.astype(float) for name, value in feed.items()})["result"]
    points = {
        name: Enclosure(value[None].astype(float), value[None].astype(float), np.zeros((1, *SHAPE)))
        for name, value in feed.items()
    }
    low, high, error = (np.full((1, 1, 1), end) for end in (-2.0, 2.0, 0.0))
    box = dict.fromkeys("xy", Enclosure(low, high, error))
    # Float64 itself is off by far less than the spacing of float32.
    slack = 1e-12 * np.max(np.abs(exact))
    for inputs in (points, box):
        result = enclosures_of_outputs(single, inputs)["result"]
        assert np.all(np.abs(computed - exact) <= result.error[0] + slack)
        assert np.all(result.low[0] - slack <= exact)
        assert np.all(exact <= result.high[0] + slack)
        share = np.broadcast_to(result.share, (1, *SHAPE))[0]
        part = np.where(np.isfinite(share), share, 0) * np.abs(exact)
        is_within = np.abs(computed - exact) <= part + slack
        assert np.all(is_within | ~np.isfinite(share))


@pytest.mark.parametrize("target", [DType.BF16, DType.F16, DType.F32])
@pytest.mark.parametrize("source", [DType.F32, DType.F64])
def test_conversions_are_as_near_as_the_bound_says(source: DType, target: DType) -> None:
    builder = Builder("stored")
    x = builder.input("x", TensorType(source, ()), Role.PARAM)
    stored = builder.emit(Op.CAST, x, to=target)
    builder.output("y", builder.emit(Op.CAST, stored, to=source))
    graph = builder.build()
    numbers = np.geomspace(2.0**-20, 2.0**12, 999).astype(source.numpy)
    exact = numbers.astype(np.float64)
    zero = np.zeros(exact.shape)
    bound = enclosures_of_outputs(graph, {"x": Enclosure(exact, exact, zero)})["y"].error
    rounded = np.array([evaluate(graph, {"x": number})["y"] for number in numbers], np.float64)
    distance = np.abs(rounded - exact)
    assert (distance <= bound).all()
    # Half a unit in the last place, and not the double of it, is what a conversion may lose.
    assert distance.max() > 0.4 * bound.max() or source is target

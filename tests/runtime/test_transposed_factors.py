"""Transposed first factors of products: the same values, and only where they pay."""

from collections import Counter
from typing import Any

import numpy as np
import onnx
import pytest
from onnx import TensorProto, helper

from closedform.runtime.onnx_session import open_session
from closedform.runtime.tuned_session import COLUMNS, ROWS_PER_COLUMN, tune


def _product(
    rows: int,
    columns: int,
    element: int = TensorProto.FLOAT,
    operands: int = 2,
    **attributes: Any,
) -> onnx.ModelProto:
    """The product of the transpose of [n, rows] and [n, columns], with a free n."""
    sizes: dict[str, list[str | int]] = {"a": ["n", rows], "b": ["n", columns], "c": [columns]}
    names = list(sizes)[:operands]
    graph = helper.make_graph(
        [helper.make_node("Gemm", names, ["y"], **{"transA": 1, **attributes})],
        "product",
        [helper.make_tensor_value_info(name, element, sizes[name]) for name in names],
        [helper.make_tensor_value_info("y", element, [rows, columns])],
    )
    return helper.make_model(graph, opset_imports=[helper.make_opsetid("", 21)], ir_version=10)


def _kinds(model: onnx.ModelProto) -> Counter[str]:
    return Counter(node.op_type for node in model.graph.node)


@pytest.mark.parametrize("rows", [1, 7, 512, ROWS_PER_COLUMN * COLUMNS])
@pytest.mark.parametrize("count", [1, 3, 64])
def test_a_transposed_factor_gives_the_same_values(rows: int, count: int) -> None:
    model = _product(rows, COLUMNS)
    tuned_model = tune(model)
    assert tuned_model is not None
    assert _kinds(tuned_model) == {"Transpose": 1, "MatMul": 1}
    assert _kinds(model) == {"Gemm": 1}
    draws = np.random.default_rng(count)
    # Small integers, whose sums are exact in float32.
    feeds = {
        name: draws.integers(-9, 9, (count, width)).astype(np.float32)
        for name, width in (("a", rows), ("b", COLUMNS))
    }
    first, second = (
        open_session(source, threads=1).raw.run(None, feeds)[0] for source in (model, tuned_model)
    )
    assert np.array_equal(first, second)


_OTHERS = {
    "few columns": _product(512, COLUMNS - 1),
    "rows of a vocabulary": _product(ROWS_PER_COLUMN * COLUMNS + 1, COLUMNS),
    "float64": _product(512, 512, TensorProto.DOUBLE),
    "an addend": _product(512, 512, operands=3),
    "a factor": _product(512, 512, alpha=0.5),
    "no transpose": _product(512, 512, transA=0),
    "two transposes": _product(512, 512, transB=1),
}


@pytest.mark.parametrize("name", _OTHERS)
def test_other_products_stay_as_they_are(name: str) -> None:
    assert tune(_OTHERS[name]) is None


def test_a_model_with_external_data_stays_as_it_is() -> None:
    model = _product(512, 512)
    model.graph.initializer.append(TensorProto(name="w", data_location=TensorProto.EXTERNAL))
    assert tune(model) is None

"""Forms of a sum of rows at places that repeat, in onnxruntime: time, and error beside float64.

python -m benchmarks.sums_of_rows              all sizes, one thread and two
python -m benchmarks.sums_of_rows --places 65  one size of the table

The page docs/decisions/sums_of_rows.md has the figures.
"""

from __future__ import annotations

import argparse
import time
from collections.abc import Callable, Mapping

import numpy as np
import onnxruntime as ort
from onnx import ModelProto, NodeProto, TensorProto, helper, numpy_helper
from onnx.helper import make_node

PLACES, WIDTHS, ROWS = (65, 256, 1000, 8000, 50_000), (8, 64, 256, 768), (256, 4096, 16_384)

MOST_PRODUCTS = 2e10
"""Multiplications of a form that is run; more take seconds."""

Constants = dict[str, np.ndarray]
Form = tuple[list[NodeProto], Constants]


def scatter_nd(places: int, width: int, rows: int) -> Form:
    """The kernel that loses rows."""
    nodes = [
        make_node("Expand", ["zero", "shape"], ["z"]),
        make_node("Unsqueeze", ["i", "last"], ["j"]),
        make_node("ScatterND", ["z", "j", "u"], ["y"], reduction="add"),
    ]
    return nodes, {"shape": np.array([places, width]), "last": np.array([1])}


def scatter_elements(places: int, width: int, rows: int) -> Form:
    """A place for each element, on one thread."""
    nodes = [
        make_node("Expand", ["zero", "shape"], ["z"]),
        make_node("Unsqueeze", ["i", "last"], ["j"]),
        make_node("Expand", ["j", "spread"], ["k"]),
        make_node("ScatterElements", ["z", "k", "u"], ["y"], axis=0, reduction="add"),
    ]
    sizes = {"shape": np.array([places, width]), "spread": np.array([1, width])}
    return nodes, {**sizes, "last": np.array([1])}


def product(places: int, width: int, rows: int) -> Form:
    """A product with the matrix of places."""
    nodes = [
        make_node("Equal", ["places", "i"], ["e"]),
        make_node("Cast", ["e"], ["o"], to=TensorProto.FLOAT),
        make_node("MatMul", ["o", "u"], ["y"]),
    ]
    return nodes, {"places": np.arange(places)[:, None]}


def differences(element: int) -> Callable[[int, int, int], Form]:
    """Differences of cumulative sums over sorted rows, at the ends of the places."""

    def form(places: int, width: int, rows: int) -> Form:
        nodes = [
            make_node("TopK", ["i", "rows"], ["s", "order"], largest=0),
            make_node("Gather", ["u", "order"], ["v"]),
            make_node("Cast", ["v"], ["w"], to=element),
            make_node("CumSum", ["w", "first"], ["c"]),
            make_node("Pad", ["c", "before"], ["d"]),
            make_node("LessOrEqual", ["s", "places"], ["below"]),
            make_node("Cast", ["below"], ["units"], to=TensorProto.INT32),
            make_node("ReduceSum", ["units", "last"], ["ends"], keepdims=0),
            make_node("Gather", ["d", "ends"], ["high"]),
            make_node("Pad", ["high", "before"], ["shifted"]),
            make_node("Slice", ["shifted", "start", "stop"], ["low"]),
            make_node("Sub", ["high", "low"], ["x"]),
            make_node("Cast", ["x"], ["y"], to=TensorProto.FLOAT),
        ]
        return nodes, {
            "rows": np.array([rows]),
            "first": np.array(0),
            "last": np.array([1]),
            "before": np.array([1, 0, 0, 0]),
            "places": np.arange(places)[:, None],
            "start": np.array([0]),
            "stop": np.array([places]),
        }

    return form


FORMS: Mapping[str, Callable[[int, int, int], Form]] = {
    "ScatterND": scatter_nd,
    "ScatterElements": scatter_elements,
    "product": product,
    "differences, float32": differences(TensorProto.FLOAT),
    "differences, float64": differences(TensorProto.DOUBLE),
}


def model_of(form: Form, places: int, width: int, rows: int) -> ModelProto:
    """A graph of a form, with places ``i`` and rows ``u``."""
    nodes, constants = form
    read = {name for node in nodes for name in node.input}
    constants = {"zero": np.zeros((), np.float32), **constants}
    graph = helper.make_graph(
        nodes,
        "sum of rows",
        [
            helper.make_tensor_value_info("i", TensorProto.INT64, [rows]),
            helper.make_tensor_value_info("u", TensorProto.FLOAT, [rows, width]),
        ],
        [helper.make_tensor_value_info("y", TensorProto.FLOAT, [places, width])],
        [numpy_helper.from_array(c, n) for n, c in constants.items() if n in read],
    )
    return helper.make_model(graph, opset_imports=[helper.make_opsetid("", 21)], ir_version=10)


def measure(
    model: ModelProto, threads: int, feeds: Mapping[str, np.ndarray], exact: np.ndarray, runs: int
) -> tuple[float, float]:
    """The least time of some runs in milliseconds, and the largest error."""
    options = ort.SessionOptions()
    options.intra_op_num_threads = threads
    session = ort.InferenceSession(
        model.SerializeToString(), options, providers=["CPUExecutionProvider"]
    )
    times, error = [], 0.0
    for _ in range(runs):
        start = time.perf_counter()
        (y,) = session.run(None, dict(feeds))
        times.append(1e3 * (time.perf_counter() - start))
        error = max(error, float(np.abs(y - exact).max() / np.abs(exact).max()))
    return min(times), error


def main() -> None:
    """Prints the figures, a line for each size and number of threads."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--places", type=int, nargs="*", default=PLACES)
    parser.add_argument("--runs", type=int, default=5)
    arguments = parser.parse_args()
    draws = np.random.default_rng(0)
    sizes = [(p, w, r) for p in arguments.places for w in WIDTHS for r in ROWS]
    for places, width, rows in sizes:
        i = draws.integers(0, places, rows)
        u = draws.normal(size=(rows, width)).astype(np.float32)
        exact = np.zeros((places, width))
        np.add.at(exact, i, u.astype(np.float64))
        for threads in (1, 2):
            cells = []
            for name, form in FORMS.items():
                if name == "product" and places * rows * width > MOST_PRODUCTS:
                    continue
                model = model_of(form(places, width, rows), places, width, rows)
                spent, error = measure(model, threads, {"i": i, "u": u}, exact, arguments.runs)
                cells.append(f"{name} {spent:.2f} ms ({error:.0e})")
            print(f"{places} x {width}, {rows} rows, threads {threads}: {'; '.join(cells)}")


if __name__ == "__main__":
    main()

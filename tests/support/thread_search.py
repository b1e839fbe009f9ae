"""Operators of exported graphs whose results depend on the threads of onnxruntime.

Each node of a graph is run apart, on the values that it has in a run of the graph: whatever is
exported is searched, without a list of operators.
"""

from collections.abc import Iterator, Mapping
from dataclasses import dataclass

import numpy as np
import onnxruntime as ort
from onnx import ModelProto, NodeProto, helper, numpy_helper

from closedform.ir.graph import Array

SMALLEST = 32_768
"""Elements from which on onnxruntime divides the work of an operator (its cost model starts a
thread for some 100,000 cycles)."""


@dataclass(frozen=True, slots=True)
class NodeRun:
    """A node and the values that it reads.

    Attributes:
        node: The node.
        values: Its operands by name, without constants.
        model: A graph of this node.
        size: The elements of its largest operand or result.
    """

    node: NodeProto
    values: Mapping[str, Array]
    model: bytes
    size: int

    @property
    def kind(self) -> tuple[object, ...]:
        """The operator, its attributes, and the dtypes and axes of its computed operands."""
        attributes = sorted((a.name, a.SerializeToString()) for a in self.node.attribute)
        operands = [(str(value.dtype), value.ndim) for value in self.values.values()]
        return self.node.op_type, tuple(attributes), tuple(operands)


def session(model: bytes, threads: int | None) -> ort.InferenceSession:
    """A session that runs the nodes as they are."""
    options = ort.SessionOptions()
    options.intra_op_num_threads = threads or 0
    options.graph_optimization_level = ort.GraphOptimizationLevel.ORT_DISABLE_ALL
    options.log_severity_level = 4
    return ort.InferenceSession(model, options, providers=["CPUExecutionProvider"])


def node_runs(model: ModelProto, feeds: Mapping[str, Array]) -> Iterator[NodeRun]:
    """Yields the nodes of a model with their operands in a run on one thread."""
    whole = ModelProto()
    whole.CopyFrom(model)
    del whole.graph.output[:]
    names = [name for node in model.graph.node for name in node.output if name]
    # onnxruntime infers the types of outputs.
    whole.graph.output.extend(helper.make_empty_tensor_value_info(name) for name in names)
    runner = session(whole.SerializeToString(), 1)
    wanted = {value.name for value in runner.get_inputs()}
    results = runner.run(names, {name: value for name, value in feeds.items() if name in wanted})
    constants = {t.name: numpy_helper.to_array(t) for t in model.graph.initializer}
    values = constants | dict(feeds) | dict(zip(names, results, strict=True))
    for node in model.graph.node:
        operands = {name: values[name] for name in node.input if name}
        # Axes and shapes stay constants, which some kernels ask for.
        read = [name for name in operands if name not in constants]
        inputs = [
            helper.make_tensor_value_info(
                name, helper.np_dtype_to_tensor_dtype(values[name].dtype), values[name].shape
            )
            for name in read
        ]
        outputs = [helper.make_empty_tensor_value_info(name) for name in node.output if name]
        fixed = [t for t in model.graph.initializer if t.name in operands]
        single = helper.make_model(
            helper.make_graph([node], "node", inputs, outputs, fixed),
            opset_imports=model.opset_import,
            ir_version=model.ir_version,
        )
        arrays = {name: values[name] for name in read}
        if arrays:
            size = max(values[name].size for name in (*node.input, *node.output) if name)
            yield NodeRun(node, arrays, single.SerializeToString(), size)


def largest_difference(run: NodeRun, threads: int | None, repetitions: int) -> tuple[float, float]:
    """How far runs with several threads are from one with one thread, and from each other.

    Both are relative to the largest value; infinite where other elements are not finite.
    """
    expected = session(run.model, 1).run(None, dict(run.values))
    runner = session(run.model, threads)
    first = runner.run(None, dict(run.values))
    from_one = max(map(difference, first, expected), default=0.0)
    apart = 0.0
    for _ in range(repetitions - 1):
        again = runner.run(None, dict(run.values))
        apart = max(apart, *map(difference, again, first))
    return from_one, apart


def difference(value: Array, expected: Array) -> float:
    """The largest difference, relative to the largest value; infinite for other infinities."""
    if np.array_equal(value, expected, equal_nan=value.dtype.kind in "fc"):
        return 0.0
    if value.dtype.kind not in "fc":
        return np.inf
    is_finite = np.isfinite(expected)
    if not np.array_equal(value[~is_finite], expected[~is_finite], equal_nan=True):
        return np.inf
    if not np.isfinite(value[is_finite]).all():
        return np.inf
    scale = np.abs(expected[is_finite]).max(initial=0.0)
    return float(np.abs(value[is_finite] - expected[is_finite]).max(initial=0.0) / scale)

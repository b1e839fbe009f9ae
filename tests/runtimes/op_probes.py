"""Errors of the operations of a runtime: alone, and beside the ones that it fuses them with.

The rows of ``runtimes.py`` that allow a runtime more than the op table rest on these measurements.
"""

from collections.abc import Callable, Iterator, Mapping
from functools import partial

import numpy as np

from closedform.ir.evaluate import evaluate, evaluate_node
from closedform.ir.graph import Array, Builder, Graph, Role, Value
from closedform.ir.ops import OPS, Op
from closedform.ir.types import DType, TensorType

SIZE = 4000
Make = Callable[[Builder, Value, Value, Value, Callable[[float], Value]], Value]

PROBES: Mapping[str, Make] = {
    "x + y": lambda b, x, y, z, c: b.emit(Op.ADD, x, y),
    "x * y": lambda b, x, y, z, c: b.emit(Op.MUL, x, y),
    "x / y": lambda b, x, y, z, c: b.emit(Op.DIV, x, y),
    "x / 7": lambda b, x, y, z, c: b.emit(Op.DIV, x, c(7.0)),
    "x * y + z": lambda b, x, y, z, c: b.emit(Op.ADD, b.emit(Op.MUL, x, y), z),
    "x * y - z": lambda b, x, y, z, c: b.emit(Op.SUB, b.emit(Op.MUL, x, y), z),
    "(x + 0.7) * 0.3": lambda b, x, y, z, c: b.emit(Op.MUL, b.emit(Op.ADD, x, c(0.7)), c(0.3)),
    "(x + 0.3) + 0.7": lambda b, x, y, z, c: b.emit(Op.ADD, b.emit(Op.ADD, x, c(0.3)), c(0.7)),
    "(x * 0.3) * 0.7": lambda b, x, y, z, c: b.emit(Op.MUL, b.emit(Op.MUL, x, c(0.3)), c(0.7)),
    "sqrt(x * x)": lambda b, x, y, z, c: b.emit(Op.SQRT, b.emit(Op.MUL, x, x)),
    "exp(x)": lambda b, x, y, z, c: b.emit(Op.EXP, x),
    "log(|x|)": lambda b, x, y, z, c: b.emit(Op.LOG, b.emit(Op.ABS, x)),
    "sin(x)": lambda b, x, y, z, c: b.emit(Op.SIN, x),
    "atan(x)": lambda b, x, y, z, c: b.emit(Op.ATAN, x),
    "|x| ** y": lambda b, x, y, z, c: b.emit(Op.POW, b.emit(Op.ABS, x), y),
}


def probes(dtype: DType) -> Iterator[tuple[str, Graph, dict[str, Array]]]:
    """The graph of each probe, with normal numbers as inputs."""
    rng = np.random.default_rng(0)
    for name, make in PROBES.items():
        builder = Builder("probe")
        kind = TensorType(dtype, (SIZE,))
        inputs = {
            key: rng.normal(size=SIZE).astype(dtype.numpy) for key in ("in_x", "in_y", "in_z")
        }
        x, y, z = (builder.input(key, kind, Role.STATE) for key in inputs)
        builder.output("result", make(builder, x, y, z, partial(builder.const, dtype=dtype)))
        graph = builder.build()
        used = {str(node.attribute("name")) for node in graph.inputs}
        yield name, graph, {key: value for key, value in inputs.items() if key in used}


def allowed(graph: Graph, more: Mapping[Op, float]) -> float:
    """The error that the operations of a probe may have together, in units in the last place."""
    return sum(OPS[node.op].ulp + more.get(node.op, 0) for node in graph.nodes)


def units(graph: Graph, inputs: Mapping[str, Array]) -> Array:
    """The unit in the last place of each element of a probe.

    It is that of the result of one operation, and that of the largest number of several, since a
    fused operation is not rounded where the single ones are.
    """
    values: list[Array] = []
    for node in graph.nodes:
        if node.op is Op.INPUT:
            values.append(inputs[str(node.attribute("name"))])
            continue
        values.append(evaluate_node(node, tuple(values[operand] for operand in node.operands)))
    computed = [node.op for node in graph.nodes if node.op not in (Op.INPUT, Op.CONST)]
    sizes = [np.broadcast_to(np.abs(value), (SIZE,)) for value in values]
    largest = sizes[-1] if len(computed) == 1 else np.max(sizes, axis=0)
    unit: Array = np.spacing(np.maximum(largest, 1) if Op.SIN in computed else largest)
    return unit


def measured(graph: Graph, inputs: Mapping[str, Array], result: Array) -> float:
    """How far a result is from that of the evaluator, in units in the last place."""
    (expected,) = evaluate(graph, inputs).values()
    apart = np.abs(result.astype(np.longdouble) - expected)
    return float(np.max(apart / units(graph, inputs)))

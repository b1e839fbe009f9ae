"""The graph language: types, ops, graphs, and the functions that read and rewrite them.

Knows no SymPy, no ONNX, no torch.

Example:
    >>> body = "%0 = const 0.5 : f64[] %1 = mul(x, %0) : f64[] y = %1"
    >>> half = parse_graph(f"graph half(x: f64[] hyper) -> (y: f64[]) {{ {body} }}")
    >>> evaluate(half, {"x": 3.0})
    {'y': array(1.5)}
"""

from closedform.ir.analysis.interval import Interval
from closedform.ir.analysis.ranges import ranges
from closedform.ir.check import check
from closedform.ir.evaluate import STEP_MAX, evaluate, evaluate_node
from closedform.ir.graph import (
    Array,
    Builder,
    Graph,
    Node,
    Output,
    Role,
    Value,
    input_names,
    scalar,
)
from closedform.ir.ops import COMMUTATIVE, OPS, Op, OpSpec, infer_type
from closedform.ir.text import parse_graph, print_graph
from closedform.ir.types import DType, Shape, TensorType, broadcast, convert

__all__ = [
    "COMMUTATIVE",
    "OPS",
    "STEP_MAX",
    "Array",
    "Builder",
    "DType",
    "Graph",
    "Interval",
    "Node",
    "Op",
    "OpSpec",
    "Output",
    "Role",
    "Shape",
    "TensorType",
    "Value",
    "broadcast",
    "check",
    "convert",
    "evaluate",
    "evaluate_node",
    "infer_type",
    "input_names",
    "parse_graph",
    "print_graph",
    "ranges",
    "scalar",
]


def __dir__() -> list[str]:
    return sorted(__all__)

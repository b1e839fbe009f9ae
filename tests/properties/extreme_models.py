"""ONNX files of schedules with extreme constants and attributes."""

import os
import random
from typing import Any

import numpy as np
import onnx
from onnx import TensorProto, helper, numpy_helper

_VALUES = (
    *(0.0, -0.0, 1e-300, 5e-324, 1e300, 1.7e308, np.nan, np.inf, -np.inf, 1e-8, 1e20, -1e20, 1e-45),
    *(0.5, 2.0, 3.0, -1.0, 1e9, 1e15, 2.0**62, 2.0**63, 1e-20, 0.1, 1e5),
)
_COUNTS = (0, -1, 1, 2, 3, 2**31, 2**62, 2**63 - 1, -(2**63), 10**12, 10**18)
_UNARY = (
    "Exp",
    "Log",
    "Sqrt",
    "Floor",
    "Ceil",
    "Cos",
    "Sin",
    "Tanh",
    "Neg",
    "Abs",
    "Round",
    "Reciprocal",
)
_BINARY = ("Add", "Sub", "Mul", "Div", "Pow", "Min", "Max", "Mod")


def save_model(place: str, seed: int) -> str:
    """Writes a file, which is a function of the seed, and returns its path."""
    draw = random.Random(seed)
    kind = draw.choice((np.float64, np.float64, np.float32))
    code = helper.np_dtype_to_tensor_dtype(np.dtype(kind))
    nodes = [helper.make_node("Cast", ["step"], ["x0"], to=code)]
    inits = []
    for index in range(draw.randrange(1, 6)):
        source, target = f"x{index}", f"x{index + 1}"
        choice = draw.random()
        if choice < 0.35:
            nodes.append(helper.make_node(draw.choice(_UNARY), [source], [target]))
        elif choice < 0.85:
            with np.errstate(all="ignore"):
                value = np.array(draw.choice(_VALUES)).astype(kind)
            inits.append(numpy_helper.from_array(value, f"c{index}"))
            operands = [source, f"c{index}"]
            draw.shuffle(operands)
            op = draw.choice(_BINARY)
            attributes: dict[str, Any] = {"fmod": 1} if op == "Mod" else {}
            nodes.append(helper.make_node(op, operands, [target], **attributes))
        elif choice < 0.95:
            count = draw.choice(_COUNTS)
            inits.append(numpy_helper.from_array(np.array(count, np.int64), f"i{index}"))
            nodes += [
                helper.make_node("Cast", [source], [f"w{index}"], to=TensorProto.INT64),
                helper.make_node(
                    draw.choice(("Add", "Mul", "Div", "Mod", "Pow", "Sub")),
                    [f"w{index}", f"i{index}"],
                    [f"v{index}"],
                ),
                helper.make_node("Cast", [f"v{index}"], [target], to=code),
            ]
        else:
            sizes = np.array([draw.choice((10**12, 2**40, 3))], np.int64)
            inits.append(numpy_helper.from_array(sizes, f"s{index}"))
            nodes += [
                helper.make_node("ConstantOfShape", [f"s{index}"], [f"z{index}"]),
                helper.make_node("ReduceSum", [f"z{index}"], [f"y{index}"], keepdims=0),
                helper.make_node("Cast", [f"y{index}"], [f"q{index}"], to=code),
                helper.make_node("Add", [source, f"q{index}"], [target]),
            ]
    nodes.append(helper.make_node("Identity", [nodes[-1].output[0]], ["value"]))
    graph = helper.make_graph(
        nodes,
        "extreme",
        [helper.make_tensor_value_info("step", TensorProto.INT64, [])],
        [helper.make_tensor_value_info("value", code, [])],
        inits,
    )
    path = os.path.join(place, "x.onnx")
    onnx.save(
        helper.make_model(graph, opset_imports=[helper.make_opsetid("", 18)], ir_version=9), path
    )
    return path

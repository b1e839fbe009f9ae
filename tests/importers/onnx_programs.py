"""Random programs of ONNX operators, and their values in onnxruntime.

Of real numbers: quotients, roots and logarithms that have no value at some steps, multiplied by 0
or cancelled. Of integers: sums, products, quotients and remainders at the ends of their type.
"""

import math
import random
from collections.abc import Iterator, Mapping

import numpy as np
import onnxruntime as ort
from onnx import ModelProto, NodeProto, TensorProto, helper, numpy_helper

from closedform.errors import ClosedFormError
from closedform.verify.translation.from_onnx import from_onnx

STEPS = (0, 1, 2, 3, 4, 7)
REALS = {"zero": 0.0, "one": 1.0, "two": 2.0, "half": 0.5, "less": -1.0}
LOW, HIGH = -(2**63), 2**63 - 1
WHOLE = {
    "low": LOW,
    "high": HIGH,
    "lower": LOW + 3,
    "higher": HIGH - 2,
    "bit": 2**31,
    "zero": 0,
    "one": 1,
    "less": -1,
}
DIVISORS = {"three": 3, "minus_three": -3, "seven": 7, "large": HIGH, "largest": LOW}
# Of the value: some roundings of float64 in sequence, each amplified by a cancellation of small
# constants.
TOLERANCE = 1e-9


def real_program(draw: random.Random) -> ModelProto:
    """A program of float64 numbers."""
    names = ["d", "d", *REALS]
    nodes = [helper.make_node("Cast", ["step"], ["d"], to=TensorProto.DOUBLE)]
    for place in range(draw.randrange(2, 7)):
        op = draw.choice(
            ("Add", "Sub", "Mul", "Mul", "Div", "Div", "Div", "Sqrt", "Log", "Abs", "Neg", "Max")
        )
        count = 1 if op in ("Sqrt", "Log", "Abs", "Neg") else 2
        nodes.append(
            helper.make_node(op, [draw.choice(names) for _ in range(count)], [f"x{place}"])
        )
        names += [f"x{place}"] * 3
    constants = {name: np.float64(value) for name, value in REALS.items()}
    return program_model([*nodes, helper.make_node("Identity", names[-1:], ["value"])], constants)


def whole_program(draw: random.Random) -> ModelProto:
    """A program of 64-bit integers, the result as a float64 number."""
    names = ["step", *WHOLE]
    nodes: list[NodeProto] = []
    for place in range(draw.randrange(1, 5)):
        op = draw.choice(("Add", "Sub", "Mul", "Div", "Mod", "C", "Abs", "Neg", "Max", "Sign", "I"))
        made = f"x{place}"
        first = draw.choice(names)
        if op in ("Abs", "Neg", "Sign"):
            nodes.append(helper.make_node(op, [first], [made]))
        elif op == "I":
            nodes.append(helper.make_node("Cast", [first], [f"{made}i"], to=TensorProto.INT32))
            nodes.append(helper.make_node("Cast", [f"{made}i"], [made], to=TensorProto.INT64))
        elif op in ("Div", "Mod", "C"):
            # The quotient of the least integer and -1 ends the process of onnxruntime.
            fmod = int(op == "C")
            divisor = draw.choice(list(DIVISORS))
            name = "Div" if op == "Div" else "Mod"
            nodes.append(helper.make_node(name, [first, divisor], [made], fmod=fmod))
        else:
            nodes.append(helper.make_node(op, [first, draw.choice(names)], [made]))
        names += [made] * 3
    nodes.append(helper.make_node("Cast", names[-1:], ["value"], to=TensorProto.DOUBLE))
    numbers = {name: np.int64(value) for name, value in {**WHOLE, **DIVISORS}.items()}
    return program_model(nodes, numbers)


def program_model(nodes: list[NodeProto], constants: Mapping[str, np.generic]) -> ModelProto:
    graph = helper.make_graph(
        nodes,
        "program",
        [helper.make_tensor_value_info("step", TensorProto.INT64, [])],
        [helper.make_tensor_value_info("value", TensorProto.DOUBLE, [])],
        [numpy_helper.from_array(np.asarray(value), name) for name, value in constants.items()],
    )
    return helper.make_model(graph, opset_imports=[helper.make_opsetid("", 21)], ir_version=10)


def differences(model: ModelProto) -> Iterator[str]:
    """Yields the steps at which what is read has a value that onnxruntime does not compute."""
    try:
        schedule = from_onnx(model)
    except ClosedFormError:
        return
    options = ort.SessionOptions()
    options.graph_optimization_level = ort.GraphOptimizationLevel.ORT_DISABLE_ALL
    options.intra_op_num_threads = 1
    session = ort.InferenceSession(
        model.SerializeToString(), options, providers=["CPUExecutionProvider"]
    )
    for step in STEPS:
        (computed,) = session.run(None, {"step": np.array(step, np.int64)})
        try:
            value = float(schedule.exact(step))
        except ClosedFormError:
            continue
        if not math.isclose(value, float(computed), rel_tol=TOLERANCE, abs_tol=TOLERANCE):
            yield f"{schedule.expr} at {step} is {value}, and onnxruntime computes {computed}"


def sweep(count: int, seed: int) -> tuple[int, list[str]]:
    """The number of programs, and all steps at which what is read differs from what runs."""
    draw = random.Random(seed)
    wrong: list[str] = []
    for place in range(count):
        model = (whole_program if place % 2 else real_program)(draw)
        wrong += [f"program {place}: {text}" for text in differences(model)]
    return count, wrong

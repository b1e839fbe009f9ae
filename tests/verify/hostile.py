"""Files that ask a reader for far more than they hold, or end its process.

Each is small, valid ONNX but for the recursive function, and was once a hang or a crash.
"""

import json
from collections.abc import Callable, Mapping, Sequence
from typing import Any

import numpy as np
from onnx import FunctionProto, ModelProto, NodeProto, TensorProto, helper, numpy_helper

STEP = "step"
OPSETS = [helper.make_opsetid("", 21), helper.make_opsetid("f", 1)]
node = helper.make_node


def model(
    nodes: Sequence[NodeProto],
    constants: Mapping[str, Any] | None = None,
    functions: Sequence[FunctionProto] = (),
    metadata: Mapping[str, str] | None = None,
) -> ModelProto:
    """A model from an integer step to a float64 value."""
    graph = helper.make_graph(
        list(nodes),
        "hostile",
        [helper.make_tensor_value_info(STEP, TensorProto.INT64, [])],
        [helper.make_tensor_value_info("value", TensorProto.DOUBLE, [])],
        initializer=[
            numpy_helper.from_array(np.asarray(number), name)
            for name, number in (constants or {}).items()
        ],
    )
    made = helper.make_model(graph, opset_imports=OPSETS, functions=list(functions), ir_version=10)
    helper.set_model_props(made, dict(metadata or {}))
    return made


def chain(count: int, make: Callable[[int], Sequence[NodeProto]], **constants: Any) -> ModelProto:
    """So many links from ``x0``, the step, to ``value``; link i makes ``x{i + 1}`` of ``x{i}``."""
    first = node("Cast", [STEP], ["x0"], to=TensorProto.DOUBLE)
    links = [each for place in range(count) for each in make(place)]
    return model([first, *links, node("Identity", [f"x{count}"], ["value"])], constants)


def repeated(op: str, count: int, *operands: str, **constants: Any) -> ModelProto:
    """One operator again and again."""
    return chain(count, lambda i: [node(op, [f"x{i}", *operands], [f"x{i + 1}"])], **constants)


def squarings(count: int = 40) -> ModelProto:
    """The step to the power of 2**40."""
    return chain(count, lambda i: [node("Mul", [f"x{i}", f"x{i}"], [f"x{i + 1}"])])


def squarings_of_a_constant(count: int = 40) -> ModelProto:
    """A number of 10**12 digits."""
    nodes = [node("Cast", [STEP], ["s"], to=TensorProto.DOUBLE), node("Mul", ["c", "c"], ["x0"])]
    nodes += [node("Mul", [f"x{i}", f"x{i}"], [f"x{i + 1}"]) for i in range(count)]
    return model([*nodes, node("Add", ["s", f"x{count}"], ["value"])], {"c": 1.1})


def choices(count: int, *, by_sine: bool = False) -> ModelProto:
    """A chain of Where, each on the value of the one before it: 2**count paths."""

    def link(i: int) -> list[NodeProto]:
        compared = f"s{i}" if by_sine else f"x{i}"
        sine = [node("Sin", [f"x{i}"], [f"s{i}"])] if by_sine else []
        return [
            *sine,
            node("Less", [compared, "c"], [f"b{i}"]),
            node("Mul", [f"x{i}", "h"], [f"y{i}"]),
            node("Where", [f"b{i}", f"y{i}", f"x{i}"], [f"x{i + 1}"]),
        ]

    return chain(count, link, c=0.1 if by_sine else 100.0, h=0.7)


def table(count: int) -> ModelProto:
    """A table of random numbers."""
    nodes = [node("Min", [STEP, "last"], ["i"]), node("Gather", ["table", "i"], ["value"])]
    entries = np.random.default_rng(0).random(count)
    return model(nodes, {"table": entries, "last": np.int64(count - 1)})


def doubling(count: int) -> ModelProto:
    """Functions that each call the one before twice: 2**count additions."""
    first = helper.make_function("f", "f0", ["x"], ["y"], [node("Add", ["x", "x"], ["y"])], OPSETS)
    functions = [first]
    for place in range(1, count):
        called = f"f{place - 1}"
        nodes = [
            node(called, ["x"], ["u"], domain="f"),
            node(called, ["u"], ["y"], domain="f"),
        ]
        functions.append(helper.make_function("f", f"f{place}", ["x"], ["y"], nodes, OPSETS))
    return _calling(f"f{count - 1}", functions)


def recursive() -> ModelProto:
    """A function that calls itself."""
    inner = [node("f0", ["x"], ["y"], domain="f")]
    return _calling("f0", [helper.make_function("f", "f0", ["x"], ["y"], inner, OPSETS)])


def _calling(name: str, functions: Sequence[FunctionProto]) -> ModelProto:
    nodes = [
        node("Cast", [STEP], ["s"], to=TensorProto.DOUBLE),
        node(name, ["s"], ["value"], domain="f"),
    ]
    return model(nodes, functions=functions)


def stating(claims: str) -> ModelProto:
    """The step, with these claims in the metadata."""
    nodes = [node("Cast", [STEP], ["value"], to=TensorProto.DOUBLE)]
    return model(nodes, metadata={"closedform.claims": claims})


def bounded_by(number: Any) -> ModelProto:
    """The step, said to be at most a number."""
    claim = {"claim": "bounded", "verdict": "PROVED", "arguments": {"high": number}}
    return stating(json.dumps([claim]))


REFUSED: Mapping[str, tuple[Callable[[], ModelProto], str]] = {
    "40 squarings": (squarings, "more than 200000 nodes as an expression"),
    "40 squarings of a constant": (squarings_of_a_constant, "a number of more than 4,200 digits"),
    "40 choices by sines": (lambda: choices(40, by_sine=True), "nested choices, at most 6"),
    "a table of 200,000": (lambda: table(200_000), "has 200000 entries; at most 65536 are read"),
    "30 doublings": (lambda: doubling(30), "it has 536870913 nodes"),
    "200 doublings": (lambda: doubling(200), "it has more than 10**12 nodes"),
    "a recursive function": (recursive, "the function 'f0' calls itself"),
    "an exponent of a billion": (lambda: bounded_by("1e999999999"), "cannot be made of"),
    "5,000 digits": (lambda: bounded_by("7" * 5000), "cannot be made of"),
    "4,200 digits": (lambda: bounded_by(f"1/{'7' * 4200}"), "cannot be made of"),
    "an integer of 5,000 digits": (
        lambda: stating(f'[{{"claim": "bounded", "verdict": "PROVED", "a": {"9" * 5000}}}]'),
        "got no JSON",
    ),
    "nested lists": (lambda: stating("[" * 200_000), "got no JSON"),
    "5,000 sines": (lambda: repeated("Sin", 5000), "nested too deeply"),
    "5,000 floors": (lambda: repeated("Floor", 5000), "nested too deeply"),
}
"""Files that are refused before they cost anything, and a part of the message."""

LIMITED: Mapping[str, Callable[[], ModelProto]] = {
    "a tower of powers": lambda: repeated("Pow", 10, "c", c=1000.0),
    "a tower of exponentials": lambda: repeated("Exp", 10),
    "5,000 additions": lambda: repeated("Add", 5000, "c", c=1.5),
    "5,000 products": lambda: repeated("Mul", 5000, "c", c=1.5),
    "5,000 quotients": lambda: repeated("Div", 5000, "c", c=1.5),
    "5,000 maxima": lambda: repeated("Max", 5000, "c", c=1.5),
    "5,000 signs": lambda: repeated("Neg", 5000),
    "12 squarings": lambda: squarings(12),
    "6 choices": lambda: choices(6),
    "40 choices": lambda: choices(40),
    "10 doublings": lambda: doubling(10),
    "a table of 20,000": lambda: table(20_000),
    "50,000 additions": lambda: repeated("Add", 50_000, "c", c=1.5),
}
"""Files that are read, and decided or not within the limits."""

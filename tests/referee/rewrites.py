"""Steps of this package as another exporter might write them: the same functions in other words.

Each rewriting keeps the function over the real numbers: sums and products in another order,
operations that change nothing, differences as sums, subgraphs as local functions or as both
branches of an ``If`` on the counter, and a counter of another dtype.
"""

import random
from collections.abc import Callable, Mapping
from typing import Any

import numpy as np
import onnx
from onnx import ModelProto, NodeProto, TensorProto, helper, numpy_helper
from onnx.reference import ReferenceEvaluator

from closedform.language import UpdateRule
from closedform.language.groups import Group
from closedform.options import GraphOptions, ModelSpec
from tests.support.rules import compiled_models

Shapes = Mapping[str, tuple[int, ...]]
COUNTERS = {"i64": TensorProto.INT64, "i32": TensorProto.INT32, "f32": TensorProto.FLOAT}


def exported(
    rule: UpdateRule, params: Shapes, groups: tuple[Group, ...] = (), scalar: str = "f64"
) -> tuple[ModelProto, dict[str, Any]]:
    """Returns the step of a rule under names that say nothing, and its ports."""
    options = GraphOptions(scalar_dtype=scalar)
    models = compiled_models(ModelSpec(rule, params, groups), options)
    model = models["step"]
    del model.metadata_props[:]
    inputs = [value.name for value in model.graph.input]
    outputs = [value.name for value in model.graph.output]
    names = {name: f"in_{place}" for place, name in enumerate(inputs)}
    names |= {name: f"out_{place}" for place, name in enumerate(outputs)}
    ports = {
        "inputs": {names[name]: "shared.count" if name == "step" else name for name in inputs},
        "outputs": {
            names[name]: "shared.count" if name == "next.step" else name.removeprefix("next.")
            for name in outputs
        },
    }
    # States that begin as the parameters are left out: the rule says how they begin.
    ports["initial_states"] = {
        "shared.count" if name == "step" else name: np.asarray(value).tolist()
        for name, value in _first_states(models["init"]).items()
    }
    _rename(model, names)
    return model, ports


def _first_states(init: ModelProto) -> dict[str, Any]:
    if init.graph.input:
        return {}
    names = [value.name for value in init.graph.output]
    values: Any = ReferenceEvaluator(init).run(None, {})
    return dict(zip(names, values, strict=True))


def _rename(model: ModelProto, names: Mapping[str, str]) -> None:
    for value in (*model.graph.input, *model.graph.output):
        value.name = names[value.name]
    for node in model.graph.node:
        node.input[:] = [names.get(name, name) for name in node.input]
        node.output[:] = [names.get(name, name) for name in node.output]


class Rewriting:
    """A file that is rewritten, with a source of random choices and of names."""

    def __init__(self, model: ModelProto, seed: int) -> None:
        self.model = ModelProto()
        self.model.CopyFrom(model)
        self.draw = random.Random(seed)
        self.count = 0
        self.types = {
            value.name: value.type.tensor_type.elem_type
            for value in onnx.shape_inference.infer_shapes(model).graph.value_info
        }
        values = (*model.graph.input, *model.graph.output)
        self.types |= {value.name: value.type.tensor_type.elem_type for value in values}
        self.types |= {tensor.name: tensor.data_type for tensor in model.graph.initializer}

    def name(self) -> str:
        self.count += 1
        return f"rewritten_{self.count}"

    def constant(self, value: float, element: int) -> str:
        name = self.name()
        array = np.array(value, helper.tensor_dtype_to_np_dtype(element))
        self.model.graph.initializer.append(numpy_helper.from_array(array, name))
        return name

    def nodes(self, change: Callable[[NodeProto], list[NodeProto]]) -> None:
        """Replaces each node by others."""
        nodes = [entry for node in self.model.graph.node for entry in change(node)]
        del self.model.graph.node[:]
        self.model.graph.node.extend(nodes)

    def is_float(self, node: NodeProto) -> bool:
        return self.types.get(node.output[0]) in (TensorProto.FLOAT, TensorProto.DOUBLE)

    # --- arithmetic -------------------------------------------------------------------------------

    def reorder(self) -> None:
        """Swaps operands, and regroups chains of sums and of products."""
        makers = {node.output[0]: node for node in self.model.graph.node}

        def change(node: NodeProto) -> list[NodeProto]:
            if node.op_type not in ("Add", "Mul") or not self.is_float(node):
                return [node]
            left, right = node.input
            if self.draw.random() < 0.5:
                left, right = right, left
            inner = makers.get(left)
            if inner is not None and inner.op_type == node.op_type and self.draw.random() < 0.7:
                first, second = inner.input
                middle = self.name()
                return [
                    helper.make_node(node.op_type, [second, right], [middle]),
                    helper.make_node(node.op_type, [first, middle], list(node.output)),
                ]
            return [helper.make_node(node.op_type, [left, right], list(node.output))]

        self.nodes(change)

    def distribute(self) -> None:
        """Writes ``(a - b) * c`` as ``a * c - b * c``, and ``a - b`` as ``a + (-b)``."""
        makers = {node.output[0]: node for node in self.model.graph.node}

        def change(node: NodeProto) -> list[NodeProto]:
            if not self.is_float(node) or self.draw.random() < 0.3:
                return [node]
            inner = makers.get(node.input[0])
            if node.op_type == "Mul" and inner is not None and inner.op_type in ("Sub", "Add"):
                first, second = self.name(), self.name()
                return [
                    helper.make_node("Mul", [inner.input[0], node.input[1]], [first]),
                    helper.make_node("Mul", [inner.input[1], node.input[1]], [second]),
                    helper.make_node(inner.op_type, [first, second], list(node.output)),
                ]
            if node.op_type == "Sub":
                negative = self.name()
                return [
                    helper.make_node("Neg", [node.input[1]], [negative]),
                    helper.make_node("Add", [node.input[0], negative], list(node.output)),
                ]
            return [node]

        self.nodes(change)

    def pad(self) -> None:
        """Adds 0, multiplies and divides by 1 and 4, and negates twice."""

        def change(node: NodeProto) -> list[NodeProto]:
            if not self.is_float(node) or self.draw.random() < 0.7:
                return [node]
            element = self.types[node.output[0]]
            plain, scaled = self.name(), self.name()
            words = [
                [helper.make_node("Add", [plain, self.constant(0, element)], list(node.output))],
                [helper.make_node("Div", [plain, self.constant(1, element)], list(node.output))],
                [
                    helper.make_node("Mul", [plain, self.constant(4, element)], [scaled]),
                    helper.make_node("Mul", [scaled, self.constant(0.25, element)], node.output),
                ],
                [
                    helper.make_node("Neg", [plain], [scaled]),
                    helper.make_node("Neg", [scaled], list(node.output)),
                ],
            ]
            renamed = NodeProto()
            renamed.CopyFrom(node)
            renamed.output[0] = plain
            return [renamed, *self.draw.choice(words)]

        self.nodes(change)

    # --- structure --------------------------------------------------------------------------------

    def wrap(self) -> None:
        """Moves single nodes into local functions, and some of these into further ones."""
        functions: list[onnx.FunctionProto] = []
        opsets = [helper.make_opsetid("", self.model.opset_import[0].version)]
        nested = [*opsets, helper.make_opsetid("local", 1)]

        def change(node: NodeProto) -> list[NodeProto]:
            if node.op_type == "If" or self.draw.random() < 0.6:
                return [node]
            name = f"f{len(functions)}"
            formals = [f"a{place}" for place in range(len(node.input))]
            body = NodeProto()
            body.CopyFrom(node)
            body.input[:], body.output[:] = formals, ["b"]
            functions.append(helper.make_function("local", name, formals, ["b"], [body], opsets))
            if self.draw.random() < 0.3:
                call = helper.make_node(name, formals, ["c"], domain="local")
                name += "_outer"
                functions.append(
                    helper.make_function("local", name, formals, ["c"], [call], nested)
                )
            inputs, outputs = list(node.input), list(node.output)
            return [helper.make_node(name, inputs, outputs, domain="local")]

        self.nodes(change)
        self.model.functions.extend(functions)
        self.model.opset_import.append(helper.make_opsetid("local", 1))

    def branch(self, counter: str) -> None:
        """Puts some nodes into both branches of an ``If`` on the counter, in other words."""
        condition, limit = self.name(), self.name()
        kind = self.types[counter]
        array = np.array(self.draw.choice([1, 3, 100]), helper.tensor_dtype_to_np_dtype(kind))
        self.model.graph.initializer.append(numpy_helper.from_array(array, limit))

        def body(node: NodeProto, name: str, *, is_swapped: bool) -> onnx.GraphProto:
            inner = NodeProto()
            inner.CopyFrom(node)
            inner.output[0] = f"{name}_value"
            if is_swapped and node.op_type in ("Add", "Mul"):
                inner.input[:] = reversed(node.input)
            value = helper.make_tensor_value_info(inner.output[0], self.types[node.output[0]], None)
            return helper.make_graph([inner], name, [], [value])

        def change(node: NodeProto) -> list[NodeProto]:
            if not self.is_float(node) or self.draw.random() < 0.75:
                return [node]
            name = self.name()
            return [
                helper.make_node(
                    "If",
                    [condition],
                    list(node.output),
                    then_branch=body(node, f"{name}_then", is_swapped=False),
                    else_branch=body(node, f"{name}_else", is_swapped=True),
                )
            ]

        self.nodes(change)
        self.model.graph.node.insert(0, helper.make_node("Less", [counter, limit], [condition]))

    def recount(self, ports: Mapping[str, Any], kind: str) -> None:
        """Counts steps in another dtype."""
        graph, element = self.model.graph, COUNTERS[kind]
        (counter,) = (name for name, text in ports["inputs"].items() if "count" in text)
        (following,) = (name for name, text in ports["outputs"].items() if "count" in text)
        integer = self.name()
        names = {counter: integer, following: self.name()}
        nodes = list(graph.node)
        for node in nodes:
            node.input[:] = [names.get(name, name) for name in node.input]
            node.output[:] = [names.get(name, name) for name in node.output]
        one = self.constant(1, element)
        del graph.node[:]
        cast = helper.make_node("Cast", [counter], [integer], to=TensorProto.INT64)
        graph.node.extend([cast, *nodes, helper.make_node("Add", [counter, one], [following])])
        for value in (*graph.input, *graph.output):
            if value.name in (counter, following):
                value.type.tensor_type.elem_type = element
                self.types[value.name] = element
        self.types |= dict.fromkeys(names.values(), TensorProto.INT64)


def rewritten(
    model: ModelProto, ports: Mapping[str, Any], seed: int, kind: str = "i64"
) -> ModelProto:
    """Returns a file of the same function, rewritten in several ways."""
    rewriting = Rewriting(model, seed)
    (counter,) = (name for name, text in ports["inputs"].items() if "count" in text)
    rewriting.recount(ports, kind)
    ways = [rewriting.reorder, rewriting.distribute, rewriting.pad]
    rewriting.draw.shuffle(ways)
    for way in ways[: rewriting.draw.choice([1, 2, 3])]:
        way()
    if rewriting.draw.random() < 0.6:
        rewriting.branch(counter)
    if rewriting.draw.random() < 0.6:
        rewriting.wrap()
    onnx.checker.check_model(rewriting.model)
    return rewriting.model

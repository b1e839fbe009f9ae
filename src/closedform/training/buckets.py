"""Small parameters of an elementwise rule as one vector: a step has fewer operators.

The vector is made and taken apart inside the graph; the names and shapes of its ports stay.
"""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from dataclasses import dataclass

from onnx import ModelProto, NodeProto, ValueInfoProto, helper

from closedform.exporters.onnx_targets import lowest_ir_version
from closedform.ir import naming
from closedform.ir.types import Shape
from closedform.language.groups import Assignment, Group
from closedform.options import ModelSpec

LIMIT = 4096
"""The largest number of elements of a parameter in a bucket. Below it, the call
of an operator dominates its time in onnxruntime; above it, copies cost as much as they save."""


@dataclass(frozen=True, slots=True)
class Buckets:
    """A model with buckets in the place of its small parameters.

    Attributes:
        spec: The rules of the buckets and of the other parameters.
        members: The parameters of each bucket in their order, with their shapes.
    """

    spec: ModelSpec
    members: Mapping[str, Mapping[str, Shape]]

    def around(self, update: ModelProto, opset: int) -> dict[str, ModelProto]:
        """Returns an update of the buckets between the models that fill and empty them."""
        if not self.members:
            return {"update": update}
        fill, empty = _Moves(), _Moves()
        for value in update.graph.input:
            for kind, bucket, rest in self._match_port(value, ""):
                names = [f"{kind}{member}{rest}" for member in self.members[bucket]]
                fill.join(names, value, self.members[bucket])
        for value in update.graph.output:
            for kind, bucket, rest in self._match_port(value, naming.following("")):
                names = [f"{kind}{member}{rest}" for member in self.members[bucket]]
                empty.split(value, names, self.members[bucket])
        return {
            "fill": fill.model("fill", opset),
            "update": update,
            "empty": empty.model("empty", opset),
        }

    def _match_port(self, value: ValueInfoProto, prefix: str) -> list[tuple[str, str, str]]:
        """The kind, the bucket and the state of a port, if it is one of a bucket."""
        kinds = [f"{prefix}{kind}" for kind in (naming.PARAM, naming.GRAD, naming.STATE)]
        return [
            (kind, bucket, value.name.removeprefix(f"{kind}{bucket}"))
            for bucket in self.members
            for kind in kinds
            if f"{value.name}.".startswith(f"{kind}{bucket}.")
        ]


def with_buckets(spec: ModelSpec) -> Buckets:
    """Returns a model with one bucket for each elementwise rule that has several small parameters.

    Each element takes the same step; a sum over all parameters is added in another order.
    """
    params: dict[str, Shape] = {}
    groups, members = [], {}
    for index, assignment in enumerate(spec.assignments):
        small = _small(assignment)
        shapes = {name: shape for name, shape in assignment.params.items() if name not in small}
        if small:
            bucket = f"bucket_{index}"
            while any(name.split(".")[0] == bucket for name in spec.params):
                # A parameter of the model may have the name of a bucket.
                bucket = f"{bucket}_"
            members[bucket] = small
            shapes[bucket] = (sum(math.prod(map(int, shape)) for shape in small.values()),)
        params |= shapes
        groups.append(Group([_literal(name) for name in shapes], rule=assignment.rule))
    return Buckets(ModelSpec(spec.rule, params, groups) if members else spec, members)


def _small(assignment: Assignment) -> dict[str, Shape]:
    if not assignment.rule.is_elementwise:
        return {}
    small = {
        name: shape
        for name, shape in assignment.params.items()
        if 0 < math.prod(map(int, shape)) <= LIMIT
    }
    return small if len(small) > 1 else {}


def _literal(name: str) -> str:
    """A glob that matches only this name."""
    return "".join(f"[{char}]" if char in "*?[" else char for char in name)


class _Moves:
    """A model of concatenations and splits."""

    def __init__(self) -> None:
        self.nodes: list[NodeProto] = []
        self.inputs: list[ValueInfoProto] = []
        self.outputs: list[ValueInfoProto] = []
        self.constants: dict[tuple[int, ...], str] = {}

    def join(
        self, names: Sequence[str], whole: ValueInfoProto, shapes: Mapping[str, Shape]
    ) -> None:
        """Joins tensors into a vector."""
        parts = []
        for name, shape in zip(names, shapes.values(), strict=True):
            self.inputs.append(_declare(name, whole, shape))
            parts.append(name if len(shape) == 1 else self._reshape(name, f"flat/{name}", [-1]))
        self.nodes.append(helper.make_node("Concat", parts, [whole.name], axis=0))
        self.outputs.append(whole)

    def split(
        self, whole: ValueInfoProto, names: Sequence[str], shapes: Mapping[str, Shape]
    ) -> None:
        """Splits a vector into tensors."""
        sizes = [math.prod(map(int, shape)) for shape in shapes.values()]
        self.inputs.append(whole)
        parts = [
            name if len(shape) == 1 else f"flat/{name}"
            for name, shape in zip(names, shapes.values(), strict=True)
        ]
        operands = [whole.name, self._constant(sizes)]
        self.nodes.append(helper.make_node("Split", operands, parts, axis=0))
        for name, part, shape in zip(names, parts, shapes.values(), strict=True):
            if part != name:
                self._reshape(part, name, [int(size) for size in shape])
            self.outputs.append(_declare(name, whole, shape))

    def model(self, name: str, opset: int) -> ModelProto:
        """Returns the model."""
        constants = [
            helper.make_tensor(label, 7, [len(numbers)], numbers)  # 7 is int64
            for numbers, label in self.constants.items()
        ]
        graph = helper.make_graph(self.nodes, name, self.inputs, self.outputs, constants)
        return helper.make_model(
            graph,
            opset_imports=[helper.make_opsetid("", opset)],
            ir_version=lowest_ir_version(opset),
        )

    def _reshape(self, name: str, into: str, shape: list[int]) -> str:
        self.nodes.append(helper.make_node("Reshape", [name, self._constant(shape)], [into]))
        return into

    def _constant(self, numbers: list[int]) -> str:
        return self.constants.setdefault(tuple(numbers), f"numbers_{len(self.constants)}")


def _declare(name: str, like: ValueInfoProto, shape: Shape) -> ValueInfoProto:
    return helper.make_tensor_value_info(name, like.type.tensor_type.elem_type, shape)

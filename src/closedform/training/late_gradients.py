"""Gradients that are computed from smaller tensors when their update needs them.

The gradient in a matrix is a product of two factors, which for short batches are smaller than the
matrix by far. A step that ends with the factors keeps all of them in less memory than the
gradients, which then exist one at a time.

The operators of the step run on whole tensors, so that the results are the same bits.
"""

from __future__ import annotations

import math
from collections import Counter
from collections.abc import Collection, Mapping, Sequence
from dataclasses import dataclass

import onnx
from onnx import ModelProto, NodeProto, TensorProto, ValueInfoProto, helper

from closedform.exporters.onnx_scopes import graphs_within

GRADIENT = "gradient"
"""The output of the model of a gradient."""

BEFORE = "gradient.before"
"""The input of a model that writes its gradient over it."""


@dataclass(frozen=True, slots=True)
class LateGradient:
    """The end of the computation of a gradient.

    Attributes:
        models: Serialized models that run one after the other; gradients with the same end have
            equal models. Each writes the gradient; the second one reads it first.
        factors: The values that they read, by the input of a model.
        size: The bytes of the gradient.
    """

    models: tuple[bytes, ...]
    factors: Mapping[str, str]
    size: int


class LateGradients:
    """Finds the ends of gradients in a step.

    Args:
        model: The step.
        value_infos: Declarations of its values.
        computed: The values that the first part of the step computes in any case.
        smallest: Elements of a result that is worth to be computed late.
    """

    def __init__(
        self,
        model: ModelProto,
        value_infos: Mapping[str, ValueInfoProto],
        computed: Collection[str],
        smallest: int,
    ) -> None:
        self._model, self._value_infos, self._computed = model, value_infos, computed
        self._smallest = smallest
        self._producers = {output: node for node in model.graph.node for output in node.output}
        self._constants = {constant.name: constant for constant in model.graph.initializer}
        self._inputs = {value.name for value in model.graph.input}
        self._uses = Counter(name for node in model.graph.node for name in node.input)

    def end_of(self, gradient: str) -> LateGradient | None:
        """Returns the end of a gradient; None if its factors are not known to be smaller."""
        if not self._is_late(gradient):
            return None
        nodes: list[NodeProto] = []
        factors: dict[str, str] = {}
        constants: dict[str, TensorProto] = {}
        labels: dict[str, str] = {"": ""}

        def add(name: str) -> str:
            """The label of a value, whose nodes are added."""
            if name in labels:
                return labels[name]
            constant = self._constants.get(name)
            is_late = self._is_late(name) or self._is_expanded(name)
            if name == gradient or (self._uses[name] == 1 and is_late):
                node = NodeProto()
                node.CopyFrom(self._producers[name])
                node.name = ""
                operands = [add(operand) for operand in node.input]
                labels[name] = GRADIENT if name == gradient else f"value.{len(nodes)}"
                node.input[:], node.output[:] = operands, [labels[name]]
                nodes.append(node)
            elif constant is not None and name not in self._inputs:
                labels[name] = f"constant.{len(constants)}"
                constants[name] = TensorProto()
                constants[name].CopyFrom(constant)
                constants[name].name = labels[name]
            else:
                labels[name] = f"factor.{len(factors)}"
                factors[labels[name]] = name
            return labels[name]

        add(gradient)
        if any(name not in self._value_infos for name in factors.values()):
            return None
        size = static_bytes(self._value_infos[gradient]) or 0
        if sum(static_bytes(self._value_infos[name]) or 0 for name in factors.values()) >= size:
            return None
        first, after = _parts(nodes)
        models = tuple(
            self._model_of(part, gradient, factors, constants.values())
            for part in (first, after)
            if part
        )
        return LateGradient(models, factors, size)

    def _model_of(
        self,
        nodes: Sequence[NodeProto],
        gradient: str,
        factors: Mapping[str, str],
        constants: Collection[TensorProto],
    ) -> bytes:
        """A model of these nodes, which computes a tensor like the gradient."""
        value_infos = {label: self._value_infos[name] for label, name in factors.items()}
        value_infos[BEFORE] = self._value_infos[gradient]
        names = {name for node in nodes for name in node.input}
        inputs = [
            helper.make_tensor_value_info(label, _element(value), None)
            for label, value in value_infos.items()
            if label in names
        ]
        output = ValueInfoProto()
        output.CopyFrom(self._value_infos[gradient])
        output.name = GRADIENT
        initializers = [constant for constant in constants if constant.name in names]
        graph = helper.make_graph(nodes, GRADIENT, inputs, [output], initializers)
        model = helper.make_model(
            graph, opset_imports=self._model.opset_import, ir_version=self._model.ir_version
        )
        serialized: bytes = model.SerializeToString(deterministic=True)
        return serialized

    def _is_expanded(self, name: str) -> bool:
        """Whether a value is a smaller one repeated, as places of rows are for ScatterElements."""
        node = self._producers.get(name)
        return node is not None and node.op_type == "Expand" and name not in self._computed

    def _is_late(self, name: str) -> bool:
        """Whether a value is large, and a node computes it for nothing but a gradient."""
        node, value_info = self._producers.get(name), self._value_infos.get(name)
        if node is None or value_info is None or name in self._computed:
            return False
        sizes = static_shape(value_info)
        return (
            sizes is not None
            and math.prod(sizes) >= self._smallest
            and len(node.output) == 1
            and not [*graphs_within(node)]
        )


def _parts(nodes: list[NodeProto]) -> tuple[list[NodeProto], list[NodeProto]]:
    """The nodes of a gradient, and those that add rows to it, if it ends so.

    A ScatterElements over a tensor that is computed is the end of the gradient of a tied embedding,
    and onnxruntime would have both tensors: as an output of the model, the second one gets separate
    memory. Its kernel begins with a copy of its operand, unless that is its result (onnxruntime,
    scatter_elements.cc, CopyScatterData).
    """
    last = nodes[-1]
    if last.op_type != "ScatterElements":
        return nodes, []
    pending, first = {last.input[0]}, list[NodeProto]()
    # A late value is read once: the operands of the sum share none.
    for node in reversed(nodes[:-1]):
        if node.output[0] in pending:
            pending.update(node.input)
            first.insert(0, node)
    if not first:
        return nodes, []
    after = [node for node in nodes if node not in first]
    first[-1].output[0], last.input[0] = GRADIENT, BEFORE
    return first, after


def wasteful(
    model: ModelProto, late: Mapping[str, LateGradient], shapes: Mapping[str, tuple[int, ...]]
) -> set[str]:
    """Returns the gradients whose factors take more memory than they do, or may do so.

    Args:
        model: The first part of the step, whose outputs are the factors.
        late: The ends of gradients by the gradient.
        shapes: The shapes of inputs with free sizes.
    """
    typed = ModelProto()
    typed.CopyFrom(model)
    # Their names for free sizes would hide the sizes that follow from the inputs.
    del typed.graph.value_info[:]
    for value in typed.graph.output:
        value.type.tensor_type.ClearField("shape")
    for value in typed.graph.input:
        if value.name in shapes:
            element = _element(value)
            value.CopyFrom(helper.make_tensor_value_info(value.name, element, shapes[value.name]))
    # Without propagation of data: onnx 1.23 takes 170 MB for that of GPT-2 small, whose factors all
    # have their sizes without it.
    graph = onnx.shape_inference.infer_shapes(typed).graph
    sizes = {v.name: static_bytes(v) for v in (*graph.value_info, *graph.input, *graph.output)}
    result = set()
    for gradient, end in late.items():
        factors = [sizes.get(name) for name in end.factors.values()]
        known = [size for size in factors if size is not None]
        if len(known) < len(factors) or sum(known) > end.size:
            result.add(gradient)
    return result


def static_shape(value: ValueInfoProto) -> tuple[int, ...] | None:
    """Returns the shape of a value, if it has no free size."""
    type_ = value.type.tensor_type
    if not type_.HasField("shape"):
        return None
    dims = type_.shape.dim
    return tuple(d.dim_value for d in dims) if all(d.HasField("dim_value") for d in dims) else None


def static_bytes(value: ValueInfoProto) -> int | None:
    """Returns the bytes of a value, if it has no free size."""
    sizes = static_shape(value)
    if sizes is None or not _element(value):
        return None
    return math.prod(sizes) * helper.tensor_dtype_to_np_dtype(_element(value)).itemsize


def _element(value: ValueInfoProto) -> int:
    element: int = value.type.tensor_type.elem_type
    return element

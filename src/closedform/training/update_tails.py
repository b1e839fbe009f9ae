"""A training step in two: gradients, and the update of each large parameter from its gradient.

A gradient that nothing but its update reads is left to the second part, too: see
``late_gradients``.

The end of a step computes the next value of a parameter and of its states element by element, from
the gradient and from numbers that all elements share. Such an end is a separate model over
vectors of any length, which can run over tiles, in place.

Only operators that IEEE 754 defines to the last bit are taken apart: kernels of the others (exp,
pow) may round an element otherwise at another place in a vector.
"""

from __future__ import annotations

import math
from collections.abc import Collection, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path

import numpy as np
import onnx
from onnx import ModelProto, NodeProto, TensorProto, ValueInfoProto, helper

from closedform.errors import SessionError
from closedform.exporters.onnx_scopes import part_of
from closedform.files import check_regular
from closedform.ir import naming
from closedform.runtime.onnx_session import OnnxSession, Port
from closedform.training.late_gradients import LateGradient, LateGradients, static_shape, wasteful

SMALLEST = 2**18
"""Elements of a parameter from which on its update is taken apart. Smaller ones take little memory,
and their update stays in the cache anyway."""

SMALLEST_MODEL = 4 * SMALLEST
"""Elements of all such parameters: for fewer, a second session costs more time (8 % of a step of
0.26 million elements) than the memory is worth."""

EXACT = frozenset(
    {"Abs", "Add", "And", "Cast", "Ceil", "Clip", "Div", "Equal", "Floor", "Greater"}
    | {"GreaterOrEqual", "Identity", "IsInf", "IsNaN", "Less", "LessOrEqual", "Max", "Min", "Mul"}
    | {"Neg", "Not", "Or", "Reciprocal", "Round", "Sign", "Sqrt", "Sub", "Where", "Xor"}
)
"""Elementwise operators whose results do not depend on the place of an element."""


@dataclass(frozen=True, slots=True)
class Tail:
    """The update of a parameter.

    Attributes:
        model: A serialized model of vectors; parameters with one update have equal models.
        tensors: The inputs of the step, or gradients, by the input of the model that takes their
            elements.
        numbers: Values that all elements share, by the input of the model.
        results: The inputs of the step that are replaced, by the output of the model.
        overwriting: The outputs that may be written over the tensors that they replace.
    """

    model: bytes
    tensors: Mapping[str, str]
    numbers: Mapping[str, str]
    results: Mapping[str, str]
    overwriting: frozenset[str]


@dataclass(frozen=True, slots=True)
class Split:
    """A training step in two.

    Attributes:
        model: The whole step.
        gradients: The step without the updates that are taken apart, with further outputs: their
            gradients or the factors of these, and the numbers that they share.
        tails: The updates by parameter.
        late: The ends of gradients that the first part does not compute, by the gradient.
        further: The names of the further outputs.
    """

    model: ModelProto
    gradients: ModelProto
    tails: Mapping[str, Tail]
    late: Mapping[str, LateGradient]
    further: tuple[str, ...]

    def ports(self, session: OnnxSession) -> dict[str, Port]:
        """Returns the inputs of the whole step, of which its first part has most."""
        return {
            value.name: session.inputs.get(value.name) or _port(value)
            for value in self.model.graph.input
            if value.name not in session.optional
        }

    def for_sizes(self, shapes: Mapping[str, tuple[int, ...]]) -> Split:
        """Returns the split for inputs of these shapes: a gradient is late if that saves memory."""
        early = wasteful(self.gradients, self.late, shapes)
        if not early:
            return self
        return _split(self.model, self.tails, _value_infos(self.model), early)


def split_file(path: Path) -> Split | None:
    """Returns the training step of a file in two; None if no update can be taken apart.

    A file that is missing or not a model gives None, too: onnxruntime has the better error.
    """
    check_regular(path, SessionError)
    try:
        model = ModelProto.FromString(path.read_bytes())
    # A broken file: whatever protobuf raises, onnxruntime reports it better.
    except Exception:  # protobuf's own have no types
        return None
    return split_update(model)


def _port(value: ValueInfoProto) -> Port:
    dtype = np.dtype(helper.tensor_dtype_to_np_dtype(_element(value)))
    sizes = value.type.tensor_type.shape.dim
    return Port(
        value.name,
        dtype,
        tuple(size.dim_value if size.HasField("dim_value") else None for size in sizes),
        tuple(size.dim_param or None for size in sizes),
    )


def split_update(model: ModelProto) -> Split | None:
    """Returns a training step in two; None if no update can be taken apart."""
    graph = model.graph
    # The sizes of parameters are fixed; a free one counts as 0 elements.
    large = {
        value.name
        for value in graph.input
        if value.name.startswith(naming.PARAM)
        and math.prod(static_shape(value) or (0,)) >= SMALLEST
    }
    if not large:
        return None
    value_infos = _value_infos(model)
    finder = _Finder(model, value_infos)
    tails = {name: tail for name in sorted(large) if (tail := finder.tail(name)) is not None}
    count = sum(math.prod(static_shape(value_infos[name]) or ()) for name in tails)
    return _split(model, tails, value_infos, ()) if tails and count >= SMALLEST_MODEL else None


def _value_infos(model: ModelProto) -> dict[str, ValueInfoProto]:
    """The declarations of all values."""
    graph = onnx.shape_inference.infer_shapes(model).graph
    values = {v.name: v for v in (*graph.value_info, *graph.input, *graph.output)}
    return values | {
        constant.name: helper.make_tensor_value_info(
            constant.name, constant.data_type, constant.dims
        )
        for constant in graph.initializer
    }


def _split(
    model: ModelProto,
    tails: Mapping[str, Tail],
    value_infos: Mapping[str, ValueInfoProto],
    early: Collection[str],
) -> Split:
    """The step in two, with these gradients in its first part."""
    graph = model.graph
    results = {name for tail in tails.values() for name in tail.results.values()}
    node_outputs = {output for node in graph.node for output in node.output}
    outputs = {
        value.name: None
        for value in graph.output
        if value.name.removeprefix(naming.NEXT) not in results
    }

    def first_part(names: Collection[str]) -> ModelProto:
        whole = ModelProto()
        whole.CopyFrom(model)
        whole.graph.output.extend(value_infos[n] for n in names if n not in _names(graph.output))
        return part_of(whole, sorted({*outputs, *names}))

    numbers = dict.fromkeys(
        n for tail in tails.values() for n in tail.numbers.values() if n in node_outputs
    )
    gradients = dict.fromkeys(
        n for tail in tails.values() for n in tail.tensors.values() if n in node_outputs
    )
    base = first_part(numbers).graph
    # Nodes of the first part that is needed anyway: their results cost nothing more.
    finder = LateGradients(model, value_infos, {o for n in base.node for o in n.output}, SMALLEST)
    late = {
        gradient: end
        for gradient in gradients
        if gradient not in early and (end := finder.end_of(gradient)) is not None
    }
    further = dict(numbers)
    for gradient in gradients:
        names = late[gradient].factors.values() if gradient in late else (gradient,)
        further |= dict.fromkeys(name for name in names if name in node_outputs)
    return Split(model, first_part(further), tails, late, tuple(further))


def _names(values: Collection[ValueInfoProto]) -> set[str]:
    return {value.name for value in values}


class _Finder:
    """Takes updates apart.

    Args:
        model: The step.
        value_infos: Declarations of its values.
    """

    def __init__(self, model: ModelProto, value_infos: Mapping[str, ValueInfoProto]) -> None:
        self._model, self._typed = model, value_infos
        self._producers = {output: node for node in model.graph.node for output in node.output}
        self._constants = {constant.name: constant for constant in model.graph.initializer}
        self._inputs = _names(model.graph.input)
        self._outputs = _names(model.graph.output)

    def tail(self, param: str) -> Tail | None:
        """Returns the update of a parameter, by the name of its input; None if it is another."""
        shape = static_shape(self._typed[param])
        label = param.removeprefix(naming.PARAM)
        names = [param, *(n for n in self._inputs if n.startswith(naming.state(label, "")))]
        if any(
            naming.following(n) not in self._outputs or static_shape(self._typed[n]) != shape
            # Each state has to be carried and of the parameter's shape, unlike a counter or a
            # factored state.
            for n in names
        ):
            return None
        walk = _Walk(self, shape or ())
        results = {name: walk.value(naming.following(name)) for name in sorted(names)}
        # One tensor that is computed: the gradient. Others would take the memory that this saves.
        computed_names = walk.tensors.keys() - set(names)
        is_of_gradient = (
            len(computed_names) <= 1 and computed_names <= self._producers.keys() - self._outputs
        )
        return walk.finish(results) if is_of_gradient and not walk.is_other else None


class _Walk:
    """The nodes above the next values of one parameter."""

    def __init__(self, finder: _Finder, shape: tuple[int, ...]) -> None:
        self._finder, self._shape = finder, shape
        self._names: dict[str, str] = {}
        self.nodes: list[NodeProto] = []
        self.constants: list[TensorProto] = []
        self.tensors: dict[str, str] = {}
        self.numbers: dict[str, str] = {}
        self.is_other = False

    def value(self, name: str) -> str:
        # "" is an operand that is left out.
        """The name of a value in the tail, whose nodes are added."""
        if not name or name in self._names:
            return self._names.get(name, "")
        finder = self._finder
        value_info = finder._typed.get(name)
        dims = None if value_info is None else static_shape(value_info)
        node = finder._producers.get(name)
        # Numbers, and vectors of one element, broadcast to any tile.
        if dims in ((), (1,)):
            self._names[name] = self._number(name)
        # A broadcast vector, such as a row, has other elements than a tile.
        elif dims != self._shape:
            self.is_other = True
            self._names[name] = name
        # The walk ends at the gradient, at inputs, and at operators that may round by place.
        elif node is None or name.startswith(naming.GRAD) or node.op_type not in EXACT:
            self._names[name] = f"tensor.{len(self.tensors)}"
            self.tensors[name] = self._names[name]
        else:
            copy = NodeProto()
            copy.CopyFrom(node)
            copy.name = ""
            copy.input[:] = [self.value(operand) for operand in node.input]
            self._names[name] = f"value.{len(self.nodes)}"
            copy.output[:] = [self._names[name]]
            self.nodes.append(copy)
        return self._names[name]

    def _number(self, name: str) -> str:
        constant = self._finder._constants.get(name)
        if constant is not None and name in self._finder._inputs:
            self.is_other = True  # a default, which a step may be given another value for
        if constant is None:
            label = f"number.{len(self.numbers)}"
            self.numbers[name] = label
            return label
        copy = TensorProto()
        copy.CopyFrom(constant)
        copy.name = f"constant.{len(self.constants)}"
        self.constants.append(copy)
        return copy.name

    def finish(self, results: Mapping[str, str]) -> Tail:
        """The tail with these results by the carried inputs that they replace."""
        value_infos = self._finder._typed

        def vector(name: str, like: str) -> ValueInfoProto:
            return helper.make_tensor_value_info(name, _element(value_infos[like]), ["n"])

        inputs = [vector(label, name) for name, label in self.tensors.items()]
        for name, label in self.numbers.items():
            inputs.append(
                helper.make_tensor_value_info(
                    label, _element(value_infos[name]), static_shape(value_infos[name])
                )
            )
        name_of_label = {f"next.{index}": name for index, name in enumerate(results)}
        outputs = [vector(label, name) for label, name in name_of_label.items()]
        nodes = _naming(self.nodes, {label: results[n] for label, n in name_of_label.items()})
        graph = helper.make_graph(nodes, "update", inputs, outputs, self.constants)
        model = self._finder._model
        tail = helper.make_model(
            graph, opset_imports=model.opset_import, ir_version=model.ir_version
        )
        return Tail(
            tail.SerializeToString(deterministic=True),
            {label: name for name, label in self.tensors.items()},
            {label: name for name, label in self.numbers.items()},
            name_of_label,
            frozenset(
                label
                for label, name in name_of_label.items()
                if may_overwrite(nodes, self.tensors.get(name, ""), label)
            ),
        )


def _naming(nodes: Sequence[NodeProto], values: Mapping[str, str]) -> list[NodeProto]:
    """The nodes with these values under the names of outputs, by the output."""
    computed = {node.output[0] for node in nodes}
    labels: dict[str, str] = {}
    copies = []
    for label, value in values.items():
        # onnxruntime copies an Identity: only an input, or a second output of one value, needs one.
        if value in computed and value not in labels:
            labels[value] = label
        else:
            copies.append(helper.make_node("Identity", [labels.get(value, value)], [label]))
    for node in nodes:
        node.input[:] = [labels.get(name, name) for name in node.input]
        node.output[:] = [labels.get(name, name) for name in node.output]
    return [*nodes, *copies]


def may_overwrite(nodes: Sequence[NodeProto], tensor: str, output: str) -> bool:
    """Returns whether an output may be written to the memory of a tensor, in any order of nodes.

    It may if the output depends on each node that reads the tensor, and its producer does not read
    it: kernels need not read an element before they write it.

    Args:
        nodes: The nodes of a graph, each with one output.
        tensor: The name of an input of the graph.
        output: The name of an output of the graph.
    """
    producers = {name: node for node in nodes for name in node.output}
    ancestors: set[str] = set()
    pending = list(producers[output].input)
    while pending:
        name = pending.pop()
        if name in producers and name not in ancestors:
            ancestors.add(name)
            pending.extend(producers[name].input)
    return all(node.output[0] in ancestors for node in nodes if tensor in node.input)


def _element(value: ValueInfoProto) -> int:
    element: int = value.type.tensor_type.elem_type
    return element

"""Program -> ONNX model: the step of each kind of tensor is a local function, called by name.

A function has no types: one serves every shape for which its nodes are the same: a rule on
elements is one function, whatever the shapes of the parameters. onnxruntime puts the bodies in the
places of the calls when it loads the model.
"""

from __future__ import annotations

from collections.abc import Mapping

from onnx import FunctionProto, ModelProto, NodeProto, TensorProto, ValueInfoProto, helper

from closedform.errors import ExportError
from closedform.exporters.onnx_model import (
    check_opset,
    finish_model,
    type_info,
    write_graph,
)
from closedform.exporters.onnx_targets import ALL_DTYPES, check_dtypes
from closedform.ir import naming
from closedform.ir.graph import Graph, input_names
from closedform.ir.program import Call, Program, SumStage
from closedform.ir.types import DType
from closedform.options import DEFAULT_OPSET

DOMAIN = "closedform"
"""The domain of the local functions."""


def to_program_model(
    program: Program,
    *,
    opset: int = DEFAULT_OPSET,
    dtypes: frozenset[DType] = ALL_DTYPES,
    metadata: Mapping[str, str] | None = None,
    docs: Mapping[str, str] | None = None,
) -> ModelProto:
    """Returns one step of a model as an ONNX model that passed the checker and shape inference.

    Inputs, outputs and values are as in ``flatten(program)``. Functions have
    the name of the program and a number, their inputs and outputs the names of a body: ``param``,
    ``grad``, ``state.exp_avg``, ``next.param``.

    Args:
        program: The step.
        opset: 10 to 23; an op that needs a later one raises.
        dtypes: The dtypes that the file may contain, constants included.
        metadata: The metadata_props, written in the order of their keys.
        docs: Doc strings by input or output name.

    Raises:
        ExportError: The opset is out of range or too old for an op, two inputs or outputs share a
            name, the dtype of a value is not in ``dtypes``, or ONNX refuses the model.
    """
    writer = _ProgramWriter(program, opset)
    for place, stage in enumerate(program.stages):
        writer.write_stage(stage, f"stage_{place}/")
    writer.write_scalars(program.scalars, "")
    for call in program.calls:
        writer.write_call(program.bodies[call.body], call, "")
    writer.check_names()
    for value in (*writer.inputs.values(), *writer.outputs):
        value.doc_string = (docs or {}).get(value.name, "")
    body = helper.make_graph(
        writer.nodes,
        program.name,
        list(writer.inputs.values()),
        writer.outputs,
        initializer=writer.initializers,
    )
    model = finish_model(body, opset, metadata, functions=writer.functions, domain=DOMAIN)
    check_dtypes(model, dtypes)
    return model


class _ProgramWriter:
    """Collects the inputs, nodes and functions of one model.

    Attributes:
        inputs: Inputs of the model by name.
        outputs: Its outputs.
        nodes: Its nodes.
        initializers: Constants of the graphs of scalars.
        functions: The local functions, each once.
    """

    def __init__(self, program: Program, opset: int) -> None:
        self.program = program
        self.opset = opset
        self.inputs: dict[str, ValueInfoProto] = {}
        self.outputs: list[ValueInfoProto] = []
        self.nodes: list[NodeProto] = []
        self.initializers: list[TensorProto] = []
        self.functions: list[FunctionProto] = []
        self._by_graph: dict[Graph, tuple[str, list[str]]] = {}
        self._constants: dict[bytes, str] = {}
        self._by_bytes: dict[bytes, str] = {}
        self._parts: dict[str, list[str]] = {}

    def write_stage(self, stage: SumStage, prefix: str) -> None:
        """Adds the parts of some sums, and the sums."""
        if stage.scalars.outputs:
            self.write_scalars(stage.scalars, prefix)
        self._parts = {}
        for call in stage.calls:  # Each adds its parts of the sums.
            self.write_call(stage.bodies[call.body], call, prefix)
        for name, parts in self._parts.items():
            total = parts[0]
            for place, part in enumerate(parts[1:], 1):
                result = name if place == len(parts) - 1 else f"{name}/{place}"
                self.nodes.append(helper.make_node("Add", [total, part], [result], name=result))
                total = result
            if len(parts) == 1:
                # A sum of one part: the name of the sum is what later nodes read.
                self.nodes.append(helper.make_node("Identity", parts, [name], name=name))

    def write_scalars(self, graph: Graph, prefix: str) -> None:
        """Adds a graph of scalars; other results are outputs of the model."""
        check_opset(graph, self.opset)
        writer, outputs = write_graph(graph, self.opset)
        for value in writer.inputs:
            if not value.name.startswith(naming.TOTAL):
                self.inputs.setdefault(value.name, value)
        self.outputs.extend(value for value in outputs if not value.name.startswith(naming.SCALAR))
        # Graphs of several stages have scalars of the same names.
        outside = {*input_names(graph), *(v.name for v in outputs if naming.SCALAR not in v.name)}
        for node in writer.nodes:
            _rename(node, outside, prefix)
        for constant in writer.initializers:
            constant.name = f"{prefix}{constant.name}"
        self.nodes.extend(writer.nodes)
        self.initializers.extend(writer.initializers)

    def write_call(self, body: Graph, call: Call, prefix: str) -> None:
        """Adds the call of one parameter."""
        arguments = []
        for node in body.inputs:
            name = node.attribute("name")
            if name.startswith(naming.SCALAR):
                arguments.append(f"{prefix}{call.scalars[int(name.removeprefix(naming.SCALAR))]}")
                continue
            outer = naming.outer_name(name, call.param)
            self.inputs.setdefault(outer, type_info(outer, node.type))
            arguments.append(outer)
        results = []
        for output in body.outputs:
            if output.name.startswith(naming.TOTAL):
                result = f"{output.name}/{call.param}"
                self._parts.setdefault(output.name, []).append(result)
            else:
                result = naming.outer_name(output.name, call.param)
                self.outputs.append(type_info(result, body.nodes[output.index].type))
            results.append(result)
        name, constants = self._function(body)
        arguments.extend(constants)
        label = f"{prefix}{name}/{call.param}"
        self.nodes.append(helper.make_node(name, arguments, results, name=label, domain=DOMAIN))

    def check_names(self) -> None:
        """Raises where two inputs or outputs have one name."""
        names = [value.name for value in self.outputs]
        duplicates = [name for name in names if name in self.inputs or names.count(name) > 1]
        if len(set(names)) < len(names) or not self.inputs.keys().isdisjoint(names):
            raise ExportError(
                f"the name {duplicates[0]!r} is used by two inputs or outputs",
                where=f"graph {self.program.name!r}",
                hint="give the parameters and states distinct names",
            )

    def _function(self, body: Graph) -> tuple[str, list[str]]:
        """The function of a body and its constants; bodies with the same nodes share it."""
        if body not in self._by_graph:
            check_opset(body, self.opset)
            function, constants = _function_of(body, self.opset)
            # Without a name: equal bodies have equal bytes.
            key = function.SerializeToString(deterministic=True)
            if key not in self._by_bytes:
                self._by_bytes[key] = f"{self.program.name}_{len(self._by_bytes)}"
                function.name = self._by_bytes[key]
                self.functions.append(function)
            names = [self._constant(tensor) for tensor in constants]
            self._by_graph[body] = self._by_bytes[key], names
        return self._by_graph[body]

    def _constant(self, tensor: TensorProto) -> str:
        """The name of an initializer of the model with this value."""
        key = tensor.SerializeToString(deterministic=True)
        if key not in self._constants:
            self._constants[key] = f"constant.{len(self._constants)}"
            self.initializers.append(tensor)
            tensor.name = self._constants[key]
        return self._constants[key]


def _rename(node: NodeProto, outside: set[str], prefix: str) -> None:
    """Puts a prefix before the values of a node that are neither inputs nor outputs."""
    for names in (node.input, node.output):
        names[:] = [name if name in outside else f"{prefix}{name}" for name in names]
    node.name = f"{prefix}{node.name}"


def _function_of(body: Graph, opset: int) -> tuple[FunctionProto, list[TensorProto]]:
    """The function of a body, without a name, and the constants that it takes after its inputs.

    A number is an input: bodies that differ only in numbers are one function, and onnxruntime
    holds each number once. Axes and shapes are nodes: they decide about types.
    """
    writer, outputs = write_graph(body, opset)
    inside, outside, names = [], [], []
    for tensor in writer.initializers:
        name, tensor.name = tensor.name, ""
        if tensor.dims:
            inside.append(helper.make_node("Constant", [], [name], name=name, value=tensor))
        else:
            outside.append(tensor)
            names.append(name)
    function = helper.make_function(
        DOMAIN,
        "",
        [*(value.name for value in writer.inputs), *names],
        [value.name for value in outputs],
        [*inside, *writer.nodes],
        [helper.make_opsetid("", opset)],
    )
    return function, outside

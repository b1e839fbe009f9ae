"""ONNX models as their engine reads them: what is checked before any node is read.

A model that onnxruntime refuses is refused. So is one to which onnxruntime would give another
meaning than the standard: a local function in a domain of the engine (its kernel runs instead of
the function), a name that is defined twice (the last initializer counts), two versions of one
domain. What is ambiguous is an error here; no part of a model is repaired or left out.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Mapping
from dataclasses import dataclass

import onnx
from onnx import FunctionProto, GraphProto, ModelProto, NodeProto, TensorProto, inliner

from closedform.errors import VerificationError, shortened
from closedform.importers.onnx_structure import (
    MOST_ENTRIES,
    check_size,
    entries_of,
    has_branches,
    inline_branches,
    nodes_within,
)

OPSETS = range(7, min(26, onnx.defs.onnx_opset_version()) + 1)
"""The versions of the standard operators that onnxruntime 1.31 has kernels for."""

IR_VERSIONS = range(3, onnx.IR_VERSION + 1)
"""The versions of the format that import an opset, up to the one that onnx itself writes.

It says which parts a file may have, and changes no meaning: onnxruntime 1.31 loads up to 13.
"""

DEFAULTS_SINCE = 4
"""The version of the format since which an input with an initializer is an optional input."""

ENGINE_NAMESPACES: Mapping[str, int] = {
    "ai.onnx.ml": 5,
    "ai.onnx.preview": 1,
    "ai.onnx.training": 1,
    "ai.onnx": 0,
    "com.amd": 1,
    "com.microsoft": 1,
    "com.ms": OPSETS[-1],
    "com.xilinx": 1,
    "org.pytorch.aten": 1,
    "trt.plugins": 1,
}
"""Domains whose operators engines define, with their sub-domains, and the last version of each.

Those of onnx.defs, of onnxruntime's ``get_all_operator_schema``, and of its execution providers.
"""

NAMES_OF_ANY_DOMAIN = frozenset(
    {"Add", "Constant", "Div", "Gather", "Mul", "Size", "Squeeze", "Sub", "Unsqueeze"}
)
"""Operators that onnxruntime 1.31 recognizes without looking at the domain.

Constants are collected and shapes propagated by name: a function ``f.Div`` of one operand ends the
process.
"""

STANDARD = "ai.onnx"
"""The long name of the domain ``""``."""

CheckNode = Callable[[NodeProto], None]
"""Raises a ClosedFormError if an operator is not supported."""


@dataclass(frozen=True, slots=True)
class CheckedModel:
    """A model that has one meaning, that of onnxruntime; ``check_model`` makes it.

    Attributes:
        model: The model. The standard domain is ``""``; an input is optional if it has an
            initializer, and a constant is not an input.
        functions: Its local functions by domain and name.
    """

    model: ModelProto
    functions: Mapping[tuple[str, str], FunctionProto]

    @property
    def graph(self) -> GraphProto:
        """The main graph."""
        return self.model.graph

    def inline_functions(self) -> GraphProto:
        """Returns the main graph with the nodes of each function in place of its calls."""
        if not self.functions:
            return self.model.graph
        return inliner.inline_local_functions(self.model).graph


def check_model(source: ModelProto | CheckedModel, check_node: CheckNode) -> CheckedModel:
    """Returns a model as onnxruntime reads it.

    Args:
        source: The model; one that has been checked is returned as it is.
        check_node: Raises an error for an operator that the caller does not read.

    Raises:
        VerificationError: The model is too large, ``onnx.checker`` refuses it, its version is not
            one that onnxruntime loads, a name is defined twice, or a function is in a domain of the
            engine.
    """
    if isinstance(source, CheckedModel):
        return source
    # Before any copy: the limits are on what reading takes.
    check_size(source)
    model = _normalize(source)
    where = f"graph {model.graph.name!r}"
    functions = _check_functions(model, where)
    version = _standard_version(model, where)
    _check_unread(model, where)
    _check_definitions(model, where)
    _check_defaults(model, where)
    # Calls between functions are checked like calls from the main graph.
    for body in (model.graph, *model.functions):
        for node in body.node:
            function = functions.get((node.domain, node.op_type))
            if function is None:
                check_node(node)
                _check_attributes(node, version)
            else:
                _check_call(node, function)
    _check_references(model.graph, where)
    _check_by_onnx(model, where)
    return CheckedModel(model, functions)


def without_branches(source: ModelProto) -> ModelProto:
    """Returns a model with a choice of values in place of each ``If``; onnx checks it first.

    Raises:
        VerificationError: The model is too large, ``onnx.checker`` refuses it, or a branch has
            inputs.
    """
    if not has_branches(source):
        return source
    check_size(source)
    _check_by_onnx(source, f"graph {source.graph.name!r}")
    return inline_branches(source)


def is_of_engine(domain: str) -> bool:
    """Whether engines define operators of a domain.

    Example:
        >>> [is_of_engine(name) for name in ("", "com.microsoft.nchwc", "pkg.onnxscript.torch_lib")]
        [True, True, False]
    """
    return not domain or _namespace(domain) is not None


def _namespace(domain: str) -> str | None:
    matches = (name for name in ENGINE_NAMESPACES if f"{domain}.".startswith(f"{name}."))
    return next(matches, None)


def node_place(node: NodeProto) -> str:
    """Returns a node as errors name it."""
    name = node.name or next(iter(node.output), "")
    return f"node {name!r}, operator {node.op_type}"


# --- versions ------------------------------------------------------------------------------------


def _normalize(source: ModelProto) -> ModelProto:
    """The model with one name for the standard domain, and without inputs that are constants.

    Calls have the defaults of the attributes of their functions.
    """
    bodies = [source.graph, *source.functions]
    has_defaults = any(function.attribute_proto for function in source.functions)
    owners = (source, *source.functions)
    domains = (entry.domain for owner in owners for entry in owner.opset_import)
    has_long_name = STANDARD in domains or any(
        node.domain == STANDARD for body in bodies for node in body.node
    )
    constants = (
        {tensor.name for tensor in source.graph.initializer}
        if IR_VERSIONS[0] <= source.ir_version < DEFAULTS_SINCE
        else set()
    )
    if not has_long_name and not constants and not has_defaults:
        return source
    if constants:
        where = f"graph {source.graph.name!r}"
        for name in sorted(constants - {value.name for value in source.graph.input}):
            raise VerificationError(
                f"the constant {name!r} is not an input, which IR version "
                f"{source.ir_version} requires",
                where=where,
            )
        _check_defaults(source, where)
    model = ModelProto()
    model.CopyFrom(source)
    inputs = [value for value in model.graph.input if value.name not in constants]
    if len(inputs) < len(model.graph.input):
        del model.graph.input[:]
        model.graph.input.extend(inputs)
        model.ir_version = DEFAULTS_SINCE  # of a constant that is not an input
    for owner in (model, *model.functions):
        for entry in owner.opset_import:
            entry.domain = "" if entry.domain == STANDARD else entry.domain
    for body in (model.graph, *model.functions):
        for node in body.node:
            node.domain = "" if node.domain == STANDARD else node.domain
    _fill_defaults(model)
    return model


def _fill_defaults(model: ModelProto) -> None:
    """Adds to each call the attributes of its function that it leaves out.

    ``onnx.inliner`` 1.23 removes what refers to an attribute that a call does not have, default or
    not; onnxruntime takes the default.
    """
    defaults = {
        (function.domain, function.name): function.attribute_proto for function in model.functions
    }
    for body in (model.graph, *model.functions):
        is_optional = set(() if isinstance(body, GraphProto) else body.attribute)
        for node in nodes_within(body.node):
            attributes = {attribute.name: attribute for attribute in node.attribute}
            for default in defaults.get((node.domain, node.op_type), ()):
                attribute = attributes.get(default.name)
                if attribute is None:
                    node.attribute.append(default)
                elif attribute.ref_attr_name in is_optional:
                    raise VerificationError(
                        f"its attribute {default.name!r} has a default, and is given the attribute "
                        f"{attribute.ref_attr_name!r} that its caller may leave out",
                        where=node_place(node),
                    )


def _standard_version(model: ModelProto, where: str) -> int:
    """The version of the standard operators; each domain has one version."""
    if model.ir_version not in IR_VERSIONS:
        raise VerificationError(
            f"its IR version must be in {IR_VERSIONS[0]}..{IR_VERSIONS[-1]}, got "
            f"{model.ir_version}",
            where=where,
            hint="export it again, for a version that onnxruntime loads",
        )
    versions: dict[str, int] = {}
    for entry in model.opset_import:
        if entry.domain in versions:
            name = entry.domain or STANDARD
            raise VerificationError(f"it imports the domain {name!r} twice", where=where)
        versions[entry.domain] = entry.version
        _check_version(entry.domain, entry.version, where)
    if "" not in versions:
        raise VerificationError(f"it does not import the domain {STANDARD!r}", where=where)
    for function in model.functions:
        for entry in function.opset_import:
            if versions.get(entry.domain) != entry.version:
                name = entry.domain or STANDARD
                raise VerificationError(
                    f"the function {function.name!r} imports version {entry.version} of the "
                    f"domain {name!r}, and the model {versions.get(entry.domain, 'none')}",
                    where=where,
                    hint="export it with one opset",
                )
    return versions[""]


def _check_version(domain: str, version: int, where: str) -> None:
    if not domain:
        if version not in OPSETS:
            raise VerificationError(
                f"its opset must be in {OPSETS[0]}..{OPSETS[-1]}, got {version}",
                where=where,
                hint="convert it with onnx.version_converter.convert_version",
            )
        return
    namespace = _namespace(domain)
    last = version if namespace is None else ENGINE_NAMESPACES[namespace]
    if not 1 <= version <= last:
        raise VerificationError(
            f"version {version} of the domain {domain!r} is not one that onnxruntime has",
            where=where,
        )


def _check_unread(model: ModelProto, where: str) -> None:
    """Raises VerificationError for parts of a model that have no meaning here."""
    graph = model.graph
    parts = {
        "sparse initializers": graph.sparse_initializer,
        "quantization annotations": graph.quantization_annotation,
        "training information": model.training_info,
        "device configurations": getattr(model, "configuration", ()),  # since onnx 1.18
    }
    for name, entries in parts.items():
        if entries:
            raise VerificationError(f"it has {name}, which are not supported", where=where)


# --- functions -----------------------------------------------------------------------------------


def _check_functions(model: ModelProto, where: str) -> dict[tuple[str, str], FunctionProto]:
    functions: dict[tuple[str, str], FunctionProto] = {}
    for function in model.functions:
        key = function.domain, function.name
        if is_of_engine(function.domain):
            raise VerificationError(
                f"the function {function.name!r} is in the domain {function.domain or STANDARD!r}, "
                "whose operators engines define: they may run their own instead",
                where=where,
                hint="rename the domain of the function, such as 'local'",
            )
        if function.name in NAMES_OF_ANY_DOMAIN:
            raise VerificationError(
                f"the function {function.name!r} of the domain {function.domain!r} has the name of "
                "an operator that onnxruntime recognizes in any domain",
                where=where,
                hint="rename the function",
            )
        if key in functions or function.overload:
            raise VerificationError(
                f"the function {function.name!r} of the domain {function.domain!r} is defined "
                f"{'twice' if key in functions else 'as an overload'}",
                where=where,
            )
        functions[key] = function
        _check_function(function)
    return functions


def _check_function(function: FunctionProto) -> None:
    where = f"function {function.name!r}"
    names = [*function.attribute, *(entry.name for entry in function.attribute_proto)]
    for kind, entries in (("attribute", names), ("output", list(function.output))):
        for name in _duplicates(entries):
            raise VerificationError(f"its {kind} {name!r} is declared twice", where=where)
    values = _defined_names(function.input, function.node, where)
    _check_outputs(function.output, values, where)


def _check_call(node: NodeProto, function: FunctionProto) -> None:
    where = node_place(node)
    if node.overload:
        raise VerificationError(
            f"it calls the overload {node.overload!r}, which is not supported", where=where
        )
    declared_names = {*function.attribute, *(entry.name for entry in function.attribute_proto)}
    for attribute in node.attribute:
        if attribute.name not in declared_names:
            raise VerificationError(
                f"the function {function.name!r} has no attribute {attribute.name!r}", where=where
            )
    for kind, actual, formal in (
        ("inputs", node.input, function.input),
        ("outputs", node.output, function.output),
    ):
        if len(actual) != len(formal):
            raise VerificationError(
                f"the function {function.name!r} has {len(formal)} {kind}, got {len(actual)}",
                where=where,
            )


def _check_attributes(node: NodeProto, version: int) -> None:
    """Raises VerificationError for an attribute that the operator does not have in this version."""
    # Domains of engines have no schema here; check_node knows their operators.
    if not node.attribute or not onnx.defs.has(node.op_type, node.domain):
        return
    try:
        attributes = onnx.defs.get_schema(node.op_type, version, node.domain).attributes
    except onnx.defs.SchemaError:
        raise VerificationError(
            f"opset {version} does not have the operator", where=node_place(node)
        ) from None
    for attribute in node.attribute:
        if attribute.name not in attributes:
            raise VerificationError(
                f"its attribute {attribute.name!r} is not supported", where=node_place(node)
            )


def _check_references(graph: GraphProto, where: str) -> None:
    """Raises VerificationError if a node of the main graph takes an attribute of a function."""
    for node in nodes_within(graph.node):
        for attribute in node.attribute:
            if attribute.ref_attr_name:
                raise VerificationError(
                    f"its attribute {attribute.name!r} is one of a function, and it is in none",
                    where=node_place(node),
                )


# --- names ---------------------------------------------------------------------------------------


def _check_definitions(model: ModelProto, where: str) -> None:
    """Raises VerificationError unless each name has one definition, before it is used."""
    graph = model.graph
    constants = [tensor.name for tensor in graph.initializer]
    for name in _duplicates(constants):
        raise VerificationError(f"the constant {name!r} is defined twice", where=where)
    inputs = [value.name for value in graph.input]
    sources = [*inputs, *(name for name in constants if name not in set(inputs))]
    values = _defined_names(sources, graph.node, where)
    outputs = [value.name for value in graph.output]
    for name in _duplicates(outputs):
        raise VerificationError(f"the output {name!r} is declared twice", where=where)
    _check_outputs(outputs, values, where)


def _defined_names(sources: Iterable[str], nodes: Iterable[NodeProto], where: str) -> set[str]:
    """The names that are defined; each once, and before it is used."""
    values: set[str] = set()
    for name in sources:
        if not name or name in values:
            state = "is defined twice" if name else "has no name"
            raise VerificationError(f"the input or constant {name!r} {state}", where=where)
        values.add(name)
    for node in nodes:
        for name in node.input:
            if name and name not in values:
                raise VerificationError(
                    f"its operand {name!r} is not computed by any node before it",
                    where=node_place(node),
                )
        if not any(node.output):
            raise VerificationError("it has no output", where=node_place(node))
        for name in node.output:
            if name in values:
                raise VerificationError(
                    f"its output {name!r} is defined before", where=node_place(node)
                )
            if name:
                values.add(name)
    return values


def _check_outputs(outputs: Iterable[str], values: set[str], where: str) -> None:
    for name in outputs:
        if name not in values:
            raise VerificationError(f"the output {name!r} is not computed by any node", where=where)


def _duplicates(names: Iterable[str]) -> Iterator[str]:
    earlier: set[str] = set()
    for name in names:
        if name in earlier:
            yield name
        earlier.add(name)


def _check_defaults(model: ModelProto, where: str) -> None:
    """Raises VerificationError if a constant is unreadable, or no default of its input."""
    inputs = {value.name: value.type.tensor_type for value in model.graph.input}
    for tensor in model.graph.initializer:
        if min(tensor.dims, default=0) < 0:
            raise VerificationError(
                f"the constant {tensor.name!r} has the negative size {min(tensor.dims)}",
                where=where,
            )
        if tensor.data_location == TensorProto.EXTERNAL:
            raise VerificationError(
                f"the constant {tensor.name!r} cannot be read",
                where=where,
                hint="its data is in another file",
            )
        declared_type = inputs.get(tensor.name)
        if declared_type is None:
            continue
        sizes = [
            dim.dim_value if dim.HasField("dim_value") else None for dim in declared_type.shape.dim
        ]
        is_same = len(sizes) == len(tensor.dims) and all(
            size is None or size == dim for size, dim in zip(sizes, tensor.dims, strict=True)
        )
        if declared_type.elem_type != tensor.data_type or not is_same:
            raise VerificationError(
                f"the default of the input {tensor.name!r} has another type than the input",
                where=where,
            )
    for value in model.graph.input:
        if not value.type.HasField("tensor_type"):
            continue
        for dim in value.type.tensor_type.shape.dim:
            if dim.dim_value < 0:
                raise VerificationError(
                    f"the input {value.name!r} has the negative size {dim.dim_value}", where=where
                )


# --- onnx.checker --------------------------------------------------------------------------------


def _check_by_onnx(model: ModelProto, where: str) -> None:
    """Raises VerificationError where ``onnx.checker`` or strict type inference refuses a model.

    An output without a shape, which engines accept, has the one that is inferred.
    """
    light = _without_weights(model)
    try:
        # Strict: a type or shape that does not fit is an error, not left unknown.
        with_shapes = onnx.shape_inference.infer_shapes(light, check_type=True, strict_mode=True)
        _fill_shapes(with_shapes)
        onnx.checker.check_model(with_shapes)
    except (onnx.checker.ValidationError, onnx.shape_inference.InferenceError) as error:
        raise VerificationError(
            f"onnx.checker refuses it: {_summary(error)}", where=where
        ) from error
    except (ValueError, RuntimeError) as error:  # of protobuf, and of messages that are not UTF-8
        raise VerificationError(f"onnx cannot check it: {_summary(error)}", where=where) from error


def _summary(error: Exception) -> str:
    # Messages of onnx.checker contain the text of the whole node.
    return shortened(" ".join(str(error).split()), 300)


def _without_weights(model: ModelProto) -> ModelProto:
    """The model with inputs in place of large constants: protobuf holds at most 2 GiB."""
    large = [tensor for tensor in model.graph.initializer if entries_of(tensor) > MOST_ENTRIES]
    if not large:
        return model
    light = ModelProto()
    for field, value in model.ListFields():
        if field.name not in ("graph", "functions", "opset_import", "metadata_props"):
            setattr(light, field.name, value)
    light.functions.extend(model.functions)
    light.opset_import.extend(model.opset_import)
    light.graph.name = model.graph.name
    for name in ("node", "input", "output", "value_info"):
        getattr(light.graph, name).extend(getattr(model.graph, name))
    inputs = {value.name for value in model.graph.input}
    for tensor in model.graph.initializer:
        if entries_of(tensor) <= MOST_ENTRIES:
            light.graph.initializer.append(tensor)
        elif tensor.name not in inputs:
            light.graph.input.append(
                onnx.helper.make_tensor_value_info(tensor.name, tensor.data_type, tensor.dims)
            )
    return light


def _fill_shapes(model: ModelProto) -> None:
    """Gives each output a shape, which the checker requires: that of a scalar if none is known."""
    for value in model.graph.output:
        if value.type.HasField("tensor_type") and not value.type.tensor_type.HasField("shape"):
            value.type.tensor_type.shape.SetInParent()

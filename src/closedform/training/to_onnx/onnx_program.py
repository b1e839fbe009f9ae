"""Traced operators to ONNX by torch's exporter, with its errors in one line."""

from __future__ import annotations

import math
import operator
import re
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from types import MappingProxyType
from typing import Any

import numpy as np
import onnx
import torch
from torch.export import graph_signature
from torch.onnx._internal.exporter import _core, _fx_passes, _ir_passes

from closedform.errors import TrainingExportError
from closedform.exporters.onnx_metadata import set_metadata
from closedform.training.dtypes import IN_FLOAT32
from closedform.training.progress import phase
from closedform.training.to_onnx.factors import merge_factors
from closedform.training.to_onnx.moves import merge_moves
from closedform.training.to_onnx.onnx_registry import quiet, registry
from closedform.training.to_onnx.operands import OF_TENSORS, normalize_operands
from closedform.training.to_onnx.places import operator_of, place_of
from closedform.training.to_onnx.scattered_sums import add_rows_to_sums

Tensors = dict[str, torch.Tensor]


@dataclass(frozen=True, slots=True)
class _Program:
    """The part of an ``ExportedProgram`` that torch's translation to ONNX reads."""

    graph_module: torch.fx.GraphModule
    graph_signature: graph_signature.ExportGraphSignature
    range_constraints: Mapping[Any, Any]
    constants: Mapping[str, torch.Tensor]

    def named_parameters(self) -> tuple[()]:
        return ()

    def named_buffers(self) -> tuple[()]:
        return ()


def write_onnx(
    graph_module: torch.fx.GraphModule,
    inputs: Sequence[str],
    outputs: Sequence[str],
    symbols: Mapping[str, str],
    opset: int,
    where: str,
    properties: Mapping[str, str] = MappingProxyType({}),
) -> onnx.ModelProto:
    """Returns the ONNX model of traced operators.

    Args:
        graph_module: The operators, without writes, with one tensor for each input and output.
        inputs: Names of the inputs.
        outputs: Names of the outputs.
        symbols: Names of free sizes, by their symbols in the trace.
        opset: ONNX opset.
        where: The model, named in errors.
        properties: The metadata of the model.

    Raises:
        ExportError: An operator has no ONNX form, or onnxruntime does not support its dtype.
    """
    _check_operators(graph_module, where)
    add_rows_to_sums(graph_module)
    _widen_scalars(graph_module)
    exporter: Any = _core
    program = _program(graph_module)
    try:
        with phase("lower"), quiet(), _zero_one_free():
            normalize_operands(graph_module)
            # The order of torch.onnx's own pipeline (_core.py of torch 2.13), without its
            # decompositions: the trace has them.
            _fx_passes.insert_type_promotion_nodes(graph_module)
            _fx_passes.remove_assertion_nodes(graph_module)
            onnx_program: Any = _core._exported_program_to_onnx_program(
                program,  # type: ignore[arg-type]
                registry=registry(opset),
            )
            # torchlib writes opset 18; the converter of onnxscript raises it.
            onnx_program.model = exporter.onnxscript_apis.convert_version(onnx_program.model, opset)
            # Free sizes get the names of the user in place of s0, s1.
            _ir_passes.rename_axis(onnx_program.model, dict(symbols.items()))
            _fold(onnx_program.model)
    except Exception as error:
        raise _unsupported_error(graph_module, opset, error, where) from error
    _ir_passes.rename_inputs(onnx_program.model, inputs)
    _ir_passes.rename_outputs(onnx_program.model, outputs)
    model: onnx.ModelProto = onnx_program.model_proto
    _strip_metadata(model)
    set_metadata(model, properties)
    return model


def _widen_scalars(graph_module: torch.fx.GraphModule) -> None:
    """Makes numbers and sizes of operators in float64 tensors: torch's exporter has float32."""
    aten, graph = torch.ops.aten, graph_module.graph
    constants: dict[float, torch.fx.Node] = {}

    def constant(number: float) -> torch.fx.Node:
        if number not in constants:
            name = f"_double_{len(constants)}"
            value = torch.tensor(number, dtype=torch.float64)
            graph_module.register_buffer(name, value)
            with graph.inserting_before(next(iter(graph.nodes))):
                constants[number] = graph.get_attr(name)
            constants[number].meta["val"] = value
        return constants[number]

    def is_rounded(value: object) -> bool:
        return (
            # Numbers that float32 holds, such as 0.5, need no tensor.
            isinstance(value, float) and math.isfinite(value) and float(np.float32(value)) != value
        )

    def wide_size(number: Any, user: torch.fx.Node) -> torch.fx.Node:
        """A number that follows from sizes, such as the share 1/n of a mean, as a tensor."""
        if is_rounded(number):
            return constant(number)
        call: Any = aten.scalar_tensor.default
        operands: tuple[Any, ...] = (number,)
        options: dict[str, Any] = {"dtype": torch.float64}
        if isinstance(number, torch.fx.Node) and number.target in _OF_NUMBERS:
            call, options = _OF_NUMBERS[number.target], {}
            operands = tuple(wide_size(operand, user) for operand in number.args)
        elif isinstance(number, torch.fx.Node) and number.target is torch.sym_float:
            operands = number.args
        with graph.inserting_before(user):
            size_node = graph.call_function(call, operands, options)
        # The translation reads shapes and dtypes from meta["val"].
        size_node.meta = {**user.meta, "val": torch.empty((), dtype=torch.float64, device="meta")}
        return size_node

    for node in list(graph.nodes):
        values = (
            node.meta.get("val"),
            *(source_node.meta.get("val") for source_node in node.all_input_nodes),
        )
        # In float32 the exporter's constants are right as they are.
        is_wide = any(isinstance(v, torch.Tensor) and v.dtype is torch.float64 for v in values)
        if not is_wide or not isinstance(node.target, torch._ops.OpOverload):
            continue
        # A range of numbers is computed here in float64: its ONNX form takes float32 constants.
        if node.target in _RANGES and not node.all_input_nodes:
            name = f"_range_{node.name}"
            graph_module.register_buffer(name, node.target(*node.args, dtype=torch.float64))
            with graph.inserting_before(node):
                range_constant = graph.get_attr(name)
            range_constant.meta = dict(node.meta)
            node.replace_all_uses_with(range_constant)
            graph.erase_node(node)
            continue
        if node.target in (aten.full.default, aten.scalar_tensor.default):
            # full has a size and a number, scalar_tensor only a number.
            *size, number = node.args[:2]
            if is_rounded(number):
                with graph.inserting_before(node):
                    spread = graph.call_function(
                        aten.expand.default, (constant(number), size[0] if size else [])
                    )
                spread.meta = dict(node.meta)
                node.replace_all_uses_with(spread)
                graph.erase_node(node)
            continue
        # A number cannot be replaced by a tensor in an overload of numbers: mul.Scalar becomes
        # mul.Tensor.
        overload = OF_TENSORS.get(node.target, node.target)
        for place, argument in enumerate(overload._schema.arguments[: len(node.args)]):
            if not isinstance(argument.type, torch.TensorType):
                continue
            number = node.args[place]
            if is_rounded(number):
                node.update_arg(place, constant(number))
                node.target = overload
            elif isinstance(_value(number), torch.SymFloat):
                node.update_arg(place, wide_size(number, node))
                node.target = overload
    graph_module.recompile()


_RANGES = frozenset(
    {
        torch.ops.aten.arange.default,
        torch.ops.aten.arange.start,
        torch.ops.aten.arange.start_step,
        torch.ops.aten.linspace.default,
    }
)
"""Operators of numbers only."""


def _value(operand: Any) -> Any:
    return operand.meta.get("val") if isinstance(operand, torch.fx.Node) else operand


_OF_NUMBERS: Mapping[Any, Any] = {
    operator.truediv: torch.ops.aten.div.Tensor,
    operator.mul: torch.ops.aten.mul.Tensor,
    operator.add: torch.ops.aten.add.Tensor,
    operator.sub: torch.ops.aten.sub.Tensor,
    operator.pow: torch.ops.aten.pow.Tensor_Tensor,
    operator.neg: torch.ops.aten.neg.default,
}
"""The operator on tensors for each operator on numbers."""


def _fold(model: Any) -> None:
    """Folds constants, and removes what is not used, computed twice or without effect.

    torch's own optimizer also matches some sixty patterns, in which an export would spend a quarter
    of its time; onnxruntime matches patterns when it reads the file.
    """
    from onnxscript import ir, optimizer, rewriter
    from onnxscript.rewriter.rules import common

    passes: Any = ir.passes.common
    # Functions of torchlib first: constants are folded within their bodies.
    optimizer.inline(model)
    optimizer.fold_constants(model, onnx_shape_inference=True)
    rules = (
        common.materialize_reshape_shape_rule,
        common.no_op_cast_rule,
        common.no_op_expand_rule,
        common.no_op_transpose_rule,
    )
    rewriter.rewrite(model, rules)
    merge_moves(model.graph)
    merge_factors(model.graph)
    for last in (
        passes.IdentityEliminationPass(),
        passes.RemoveUnusedNodesPass(),
        # Before the duplicates are removed: the pass after it compares initializers only.
        passes.LiftConstantsToInitializersPass(lift_all_constants=True, size_limit=0),
        passes.DeduplicateInitializersPass(),
        passes.CommonSubexpressionEliminationPass(),
        passes.OutputFixPass(),
        passes.NameFixPass(),
    ):
        last(model)


def _zero_one_free() -> Any:
    """Has torch treat sizes 0 and 1 as others, in what runs the operators once more."""
    config: Any = torch.fx.experimental._config
    return config.patch(backed_size_oblivious=True)


def _program(graph_module: torch.fx.GraphModule) -> _Program:
    """The operators with the signature that torch's translation asks for."""
    _separate_outputs(graph_module)
    graph = graph_module.graph
    for node in graph.nodes:
        # Buffers of the graph module are lifted constants.
        if node.op == "get_attr":  # a constant, whose values the translation takes from here
            node.meta["val"] = _attribute(graph_module, str(node.target)).detach()
    (result,) = graph.find_nodes(op="output")
    argument = graph_signature.TensorArgument
    signature = graph_signature.ExportGraphSignature(
        [
            graph_signature.InputSpec(
                graph_signature.InputKind.USER_INPUT, argument(node.name), None
            )
            for node in graph.find_nodes(op="placeholder")
        ],
        [
            graph_signature.OutputSpec(
                graph_signature.OutputKind.USER_OUTPUT, argument(node.name), None
            )
            for node in result.args[0]
        ],
    )
    return _Program(graph_module, signature, {}, {})


def _attribute(module: torch.nn.Module, path: str) -> torch.Tensor:
    attribute: Any = module
    for name in path.split("."):
        attribute = getattr(attribute, name)
    tensor: torch.Tensor = attribute
    return tensor


def _separate_outputs(graph_module: torch.fx.GraphModule) -> None:
    """Gives each output a separate node: ONNX has no input or constant as an output."""
    graph = graph_module.graph
    (result,) = graph.find_nodes(op="output")
    visited, outputs = set(), []
    for node in result.args[0]:
        # One value as two outputs, or an input as an output.
        if node in visited or node.op != "call_function":
            with graph.inserting_before(result):
                copy = graph.call_function(torch.ops.aten.clone.default, (node,))
            copy.meta = dict(node.meta)
            outputs.append(copy)
        else:
            outputs.append(node)
        visited.add(node)
    result.args = (tuple(outputs),)
    graph_module.recompile()


def _strip_metadata(model: onnx.ModelProto) -> None:
    """Removes torch's metadata of each node: paths of this machine, three quarters of the file."""
    bodies = (model.graph, *model.functions)
    values = (*model.graph.value_info, *model.graph.input, *model.graph.output)
    for part in (*values, *bodies, *(node for body in bodies for node in body.node)):
        # Also paths of the user's source, which no other machine has.
        part.ClearField("metadata_props")
        part.ClearField("doc_string")


_MOVES = frozenset(
    {
        "aten._to_copy",
        "aten.alias",
        "aten.clone",
        "aten.copy",
        "aten.detach",
        "aten.expand",
        "aten.permute",
        "aten.reshape",
        "aten.slice",
        "aten.split",
        "aten.squeeze",
        "aten.t",
        "aten.transpose",
        "aten.unsqueeze",
        "aten.view",
    }
)
"""Operators without arithmetic, which onnxruntime supports for all dtypes."""


def _check_operators(graph_module: torch.fx.GraphModule, where: str) -> None:
    """Raises ExportError at the first operator that onnxruntime does not compute.

    This is arithmetic in bfloat16, which onnxruntime 1.31 does not support on CPUs (it computes
    float16 in float32), and complex numbers in 16 bits.
    """
    for node in graph_module.graph.nodes:
        value = node.meta.get("val")
        target = node.target
        is_half_complex = isinstance(value, torch.Tensor) and value.dtype is torch.complex32
        if is_half_complex:
            raise TrainingExportError(
                f"{operator_of(node)} has no ONNX form in complex32, in {place_of(node)}",
                where=where,
                hint="write it with other operators",
            )
        is_bf16 = isinstance(value, torch.Tensor) and value.dtype is torch.bfloat16
        if not is_bf16 or not isinstance(target, torch._ops.OpOverload):
            continue
        # Moves of bfloat16 run; arithmetic has no kernel.
        if str(target.overloadpacket) not in _MOVES:
            raise TrainingExportError(
                f"onnxruntime does not compute {operator_of(node)} in bfloat16, "
                f"in {place_of(node)}",
                where=where,
                hint='give compute_dtype="f32": parameters stay bfloat16, and forward and '
                "backward run in float32; where it is given, the model itself converts to bfloat16 "
                "there: remove that conversion",
            )


def _unsupported_error(
    graph_module: torch.fx.GraphModule, opset: int, error: Exception, where: str
) -> TrainingExportError:
    """The error for an operator that torch's exporter does not support, with its module.

    Some operators without a rule are decomposed by torch: moves, and those not in its message.
    """
    message = "".join(map(str, _chain(error)))
    is_complex = [node for node in graph_module.graph.nodes if _takes_complex(node)]
    named_nodes = [node for node in is_complex if repr(node.target) in message]
    if "complex" in message and is_complex:
        node = (named_nodes or is_complex)[0]
        return TrainingExportError(
            f"{operator_of(node)} has no ONNX form for complex numbers, in {place_of(node)}",
            where=where,
            hint="compute with their real and imaginary parts",
        )
    operators = registry(opset)
    without = [
        node
        for node in graph_module.graph.nodes
        if isinstance(node.target, torch._ops.OpOverload)
        and str(node.target.overloadpacket) not in _MOVES
        and not operators.is_registered(node.target)
    ]
    # False sorts first: the node that torch's message names.
    without.sort(key=lambda node: repr(node.target) not in message)
    if not without:
        return explain_error(error, where, "a traced operator")
    return TrainingExportError(
        f"{operator_of(without[0])} has no ONNX form, in {place_of(without[0])}",
        where=where,
        hint="write it with other operators",
    )


def without_kernel(text: str, where: str, place: str = "") -> TrainingExportError | None:
    """Returns the error for an operator without a kernel, from what onnxruntime says; or None."""
    kernel = re.search(r"Could not find an implementation for (\w+)", text)
    if kernel is None:
        return None
    return TrainingExportError(
        f"onnxruntime has no kernel of {kernel[1]} for a dtype of the model{place}",
        where=where,
        hint=f"it has all of them in float32: {IN_FLOAT32}",
    )


def explain_error(error: Exception, where: str, place: str) -> TrainingExportError:
    """Returns an error of torch in one line, with its place and a hint."""
    # The first cause is torch's own error; the outer ones say that the export failed.
    *_, cause = _chain(error)
    kind = type(cause).__name__
    text = str(cause).strip().splitlines()[0] if str(cause).strip() else kind
    if "DataDependent" in kind or "data-dependent" in str(cause) or "Unbacked" in kind:
        return TrainingExportError(
            f"the model has control flow that depends on data: {text}, in {place}",
            where=where,
            hint="write it with torch.where; a graph has no control flow; if the loss within the "
            "model branches, leave its labels out of the call and pass a loss to the export",
        )
    if kind == "DynamicOutputShapeException":
        return TrainingExportError(
            f"the sizes of the results of {text} depend on data, in {place}",
            where=where,
            hint="write it with operators whose results have sizes of the batch",
        )
    if (missing := without_kernel(text, where, f", in {place}")) is not None:
        return missing
    if "Sparse" in text:
        return TrainingExportError(
            f"sparse tensors are not supported, in {place}",
            where=where,
            hint="compute with dense tensors",
        )
    if "not implemented for 'Long'" in text:
        return TrainingExportError(
            f"integers where torch computes with floats: {text}, in {place}",
            where=where,
            hint="convert them with .float(), or check the order of the arguments: a loss is "
            "called with the output, then the targets",
        )
    if re.search(r"not implemented for '(Half|BFloat16)'|tensors of type: (Half|BFloat16)", text):
        return TrainingExportError(
            f"torch does not compute it in 16 bits: {text}, in {place}",
            where=where,
            hint='give compute_dtype="f32": parameters stay as they are, and forward and backward '
            "run in float32",
        )
    if kind == "NotImplementedError":
        return TrainingExportError(
            f"{text} is not supported, in {place}",
            where=where,
            hint="write it with other operators",
        )
    return TrainingExportError(
        f"torch cannot trace the model: {kind}: {text}, in {place}",
        where=where,
        hint="run the model and its loss once with the example: if that works, write this place "
        "with other operators",
    )


def _chain(error: BaseException | None) -> Iterator[BaseException]:
    """An error and its causes."""
    while error is not None:
        yield error
        error = error.__cause__


def _takes_complex(node: torch.fx.Node) -> bool:
    values = [source_node.meta.get("val") for source_node in node.all_input_nodes]
    return node.op == "call_function" and any(
        isinstance(value, torch.Tensor) and value.is_complex() for value in values
    )

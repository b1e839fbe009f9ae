"""Runtimes that read ONNX files: which versions and dtypes they read, and the check of a file.

docs/runtimes.md says in which runtimes the files of the whole library were run.
"""

from __future__ import annotations

import re
from collections.abc import Iterator, Mapping
from dataclasses import dataclass, field

import onnx
from onnx import AttributeProto, ModelProto, NodeProto, helper

from closedform.errors import ExportError, nearest
from closedform.ir.types import DType
from closedform.options import DEFAULT_OPSET

# Before 4 a constant must be an input, too; local functions are part of the format since 8.
_CONSTANTS = 4
_FUNCTIONS = 8
ALL_DTYPES = frozenset(DType)
_SMALL_DTYPES = frozenset({DType.BOOL, DType.I32, DType.F32})
# onnxruntime 1.16 removes a conversion to bfloat16 and back, which rounds.
_WITHOUT_BF16 = ALL_DTYPES - {DType.BF16}
_SMALL_HINT = (
    'give dtype="f32", scalar_dtype="f32", precision="double-float" and step_dtype="i32"; shapes '
    "of Reshape are int64 in every opset"
)


@dataclass(frozen=True, slots=True)
class Target:
    """A runtime of a version, and later ones.

    Attributes:
        opset: The opset of files for it, one that it has every operator of.
        has_functions: Whether it runs files with local functions.
        dtypes: The dtypes that it has.
    """

    opset: int
    has_functions: bool = True
    dtypes: frozenset[DType] = ALL_DTYPES


TARGETS: Mapping[str, Mapping[tuple[int, ...], Target]] = {
    "onnxruntime": {
        (1, 16): Target(19, dtypes=_WITHOUT_BF16),
        (1, 17): Target(20),
        (1, 18): Target(21),
    },
    "onnxruntime-web": {(1, 30): Target(21)},
    "onnx": {(1, 17): Target(21)},
    "openvino": {(2026, 4): Target(21, has_functions=False)},
    "tract": {(0, 23): Target(21, has_functions=False)},
    # Opset 12: axes of sums are attributes in it, and int64 operands later.
    "32-bit": {(): Target(12, has_functions=False, dtypes=_SMALL_DTYPES)},
}
"""By name and lowest version."""


@dataclass(frozen=True, slots=True)
class OnnxFormat:
    """How a graph is written as a file.

    Attributes:
        opset: The version of the standard operators.
        inline: Whether the step of a rule is one flat graph, without local functions.
        dtypes: The dtypes that a file may contain, constants included.
    """

    opset: int = DEFAULT_OPSET
    inline: bool = True
    dtypes: frozenset[DType] = field(default=ALL_DTYPES)


def onnx_format(
    *, opset: int | None = None, inline: bool = True, target: str | None = None
) -> OnnxFormat:
    """Returns the format of files for a runtime.

    Args:
        opset: The opset; None chooses that of the target, or the default.
        inline: Whether the step of a rule is one flat graph, without local functions.
        target: ``"NAME"`` or ``"NAME>=VERSION"``, a name of ``TARGETS``; None for no restriction.

    Raises:
        ExportError: The target is unknown, or does not read the opset or local functions.

    Example:
        >>> onnx_format(target="onnxruntime>=1.17").opset, onnx_format().opset
        (20, 21)
    """
    if target is None:
        return OnnxFormat(DEFAULT_OPSET if opset is None else opset, inline)
    row = find_target(target)
    if opset is not None and opset != row.opset:
        # Axes of sums are int64 operands in other opsets.
        is_narrow = DType.I64 not in row.dtypes
        if not isinstance(opset, int) or opset > row.opset or is_narrow:
            raise ExportError(
                f"files for target {target!r} have opset {row.opset}"
                f"{'' if is_narrow else ' or lower'}, got {opset!r}",
                hint="leave opset out",
            )
    if not inline and not row.has_functions:
        raise ExportError(
            f"target {target!r} does not read local functions, got inline=False",
            hint="leave inline out",
        )
    return OnnxFormat(row.opset if opset is None else opset, inline, row.dtypes)


def find_target(target: str) -> Target:
    """Returns the row of a target such as ``"onnxruntime>=1.17"``; without a version the first.

    Raises:
        ExportError: The name or version is not in the table.
    """
    match = re.fullmatch(r"([\w-]+?)(?:>=(\d{1,4}(?:\.\d{1,4}){0,3}))?", str(target))
    name = str(target).partition(">=")[0] if match is None else match.group(1)
    if match is None or name not in TARGETS:
        raise ExportError(
            f'target must be "NAME" or "NAME>=VERSION", got {target!r}',
            hint=nearest(name, tuple(TARGETS)),
        )
    rows = TARGETS[name]
    if match.group(2) is None:
        return next(iter(rows.values()))
    version = tuple(map(int, match.group(2).split(".")))
    candidates = [row for lowest, row in rows.items() if lowest and lowest <= version]
    if not candidates:
        first = ".".join(map(str, next(iter(rows))))
        raise ExportError(
            f"target {name!r} is known from version {first} on, got {match.group(2)}"
            if first
            else f"target {name!r} has no version, got {match.group(2)}",
            hint=f'give target="{name}"',
        )
    return candidates[-1]


def lowest_ir_version(opset: int, *, has_functions: bool = False) -> int:
    """Returns the lowest IR version of a model.

    It is that of the ONNX release that brought the opset: a runtime that has the operators reads
    the format.

    Args:
        opset: The version of the standard operators.
        has_functions: Whether the model has local functions.

    Example:
        >>> lowest_ir_version(17), lowest_ir_version(13), lowest_ir_version(13, has_functions=True)
        (8, 7, 8)
    """
    ir_version: int = helper.find_min_ir_version_for([helper.make_opsetid("", opset)])
    return max(ir_version, _CONSTANTS, _FUNCTIONS if has_functions else 0)


def check_dtypes(model: ModelProto, dtypes: frozenset[DType]) -> None:
    """Raises ExportError if a value or constant of a model has a dtype that its target has not.

    Every input, output, initializer and value between nodes is looked at; in local functions,
    constants and conversions.
    """
    if dtypes == ALL_DTYPES:
        return
    legal = {dtype.row.number: dtype for dtype in dtypes}
    for name, element in _elements(onnx.shape_inference.infer_shapes(model, strict_mode=True)):
        if element not in legal:
            kind = onnx.TensorProto.DataType.Name(element).lower()
            is_small = DType.I64 not in dtypes
            raise ExportError(
                f"{name} is {kind}, and the target has {', '.join(sorted(dtypes))}",
                where=f"graph {model.graph.name!r}",
                hint=_SMALL_HINT if is_small else "choose a later version",
            )


def _elements(model: ModelProto) -> Iterator[tuple[str, int]]:
    """The element types of all that a graph contains, with a description of each."""
    graph = model.graph
    for kind, values in (("input", graph.input), ("output", graph.output)):
        for value in values:
            yield f"{kind} {value.name!r}", value.type.tensor_type.elem_type
    for tensor in graph.initializer:
        yield f"constant {tensor.name!r}", tensor.data_type
    for value in graph.value_info:
        yield f"value {value.name!r}", value.type.tensor_type.elem_type
    for nodes in (graph.node, *(function.node for function in model.functions)):
        for node in nodes:
            yield from _of_attributes(node)


def _of_attributes(node: NodeProto) -> Iterator[tuple[str, int]]:
    for attribute in node.attribute:
        if attribute.type == AttributeProto.TENSOR:
            yield f"constant of node {node.name!r}", attribute.t.data_type
        elif attribute.name == "to":
            yield f"value {node.output[0]!r}", attribute.i

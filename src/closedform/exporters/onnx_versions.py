"""The IR version that an ONNX file declares: the lowest that its contents need."""

from __future__ import annotations

from onnx import helper

# Before 4 a constant must be an input, too; local functions are part of the format since 8.
_CONSTANTS = 4
_FUNCTIONS = 8


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
    needed: int = helper.find_min_ir_version_for([helper.make_opsetid("", opset)])
    return max(needed, _CONSTANTS, _FUNCTIONS if has_functions else 0)

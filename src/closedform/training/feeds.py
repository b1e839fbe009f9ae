"""The further inputs of a step: a batch and random numbers."""

from __future__ import annotations

import ast
import operator
from collections.abc import Callable, Mapping, Sequence
from typing import Any, TypeVar

import numpy as np

from closedform.errors import SessionError
from closedform.ir.graph import Array
from closedform.ir.naming import BATCH, RANDOM
from closedform.runtime.checks import check_array, check_names
from closedform.runtime.onnx_session import Port
from closedform.training.file_names import python_name

BatchLike = Sequence[Any] | Mapping[str, Any]
"""Arrays, or nested containers of arrays, in the order of the export or by name."""


def read_batch(batch: BatchLike, ports: Mapping[str, Port], where: str) -> dict[str, Array]:
    """Returns the contiguous arrays of a batch by the names of their inputs.

    Raises:
        SessionError: A tensor is missing, unknown or does not fit, or sizes of one name differ.
    """
    names = [name.removeprefix(BATCH) for name in ports]
    tensors = _by_name(batch, names, where)
    check_names(tensors, dict.fromkeys(names), "tensor", f"the batch, {where}")
    arrays = {
        key: contiguous(tensors[name], port, where)
        for name, (key, port) in zip(names, ports.items(), strict=True)
    }
    read_sizes(arrays, ports, where)
    return arrays


def _by_name(batch: BatchLike, names: Sequence[str], where: str) -> dict[str, Any]:
    name_list = ", ".join(names)
    if not isinstance(batch, Mapping | list | tuple):
        raise SessionError(
            f"a batch must be a tuple of arrays ({name_list}) or a mapping of them "
            f"by name, got {type(batch).__name__}",
            where=where,
        )
    tops = list(dict.fromkeys(name.split(".")[0] for name in names))
    if not isinstance(batch, Mapping):
        # A tuple has either the arguments of the model, or all tensors in them in order.
        if len(batch) not in (len(tops), len(names)):
            raise SessionError(
                f"a batch must have {len(tops)} tensors ({', '.join(tops)}), got {len(batch)}",
                where=where,
            )
        batch = dict(zip(tops if len(batch) == len(tops) else names, batch, strict=True))
    arrays = {}
    for key, value in batch.items():
        # An input of an ONNX file has its name in the file, too.
        matches = (n for n in (key, python_name(str(key))) if n in names or n in tops)
        name = next(matches, key)
        inner = [leaf for leaf in names if leaf.startswith(f"{name}.")]
        if not isinstance(value, Mapping | list | tuple) or not inner:
            arrays[name] = value
            continue
        for leaf in inner:
            arrays[leaf] = _at(value, leaf.removeprefix(f"{name}.").split("."), leaf, where)
    return arrays


def _at(value: Any, path: Sequence[str], name: str, where: str) -> Any:
    """The array at a path of keys and places in nested containers."""
    for key in path:
        if isinstance(value, Mapping) and key in value:
            value = value[key]
        elif isinstance(value, list | tuple) and key.isdigit() and int(key) < len(value):
            value = value[int(key)]
        else:
            raise SessionError(f"the batch has no tensor {name!r}", where=where)
    return value


def contiguous(array: object, port: Port, where: str) -> Array:
    """Returns a contiguous array that fits the port."""
    valid_array = check_array(array, port, repr(port.name), where)
    # np.ascontiguousarray makes an array of rank 0 one of rank 1.
    return np.asarray(valid_array, order="C")


def read_sizes(
    arrays: Mapping[str, Array], ports: Mapping[str, Port], where: str
) -> dict[str, int]:
    """Returns the free sizes of a batch by name.

    Raises:
        SessionError: Sizes of one name differ, or one is zero.
    """
    sizes_of: dict[str, list[int]] = {}
    for name, port in ports.items():
        for axis, symbol in enumerate(port.symbols):
            if symbol is not None:
                sizes_of.setdefault(symbol, []).append(arrays[name].shape[axis])
    for symbol, sizes in sizes_of.items():
        different = sorted(set(sizes))
        if len(different) == 1 and 0 not in different:
            continue
        requirement = (
            "the tensors of a batch must have one nonzero first size"
            if symbol == "batch"
            else f"the sizes {symbol!r} of a batch must be equal and not zero"
        )
        raise SessionError(f"{requirement}, got {different}", where=where)
    return {symbol: sizes[0] for symbol, sizes in sizes_of.items()}


def draw(
    ports: Mapping[str, Port], sizes: Mapping[str, int], seed: Sequence[int], where: str
) -> dict[str, Array]:
    """Returns numbers for the random inputs: uniform, or of the distribution in their names.

    Args:
        ports: The inputs: ``random.0`` is uniform on [0, 1), ``random.normal.1`` standard normal,
            ``random.exponential.2`` exponential of rate 1.
        sizes: The free sizes.
        seed: The seed of the stream.
        where: The model, named in errors.
    """
    # The seed holds the step: a resumed run draws the numbers that it would have drawn.
    generator = np.random.default_rng(seed)
    return {
        name: _numbers(generator, name, shape_of(port, sizes, where)).astype(port.dtype)
        for name, port in ports.items()
    }


def _numbers(generator: np.random.Generator, name: str, shape: tuple[int, ...]) -> Array:
    kind = name.removeprefix(RANDOM).split(".")[0]
    if kind == "normal":
        return generator.standard_normal(shape)
    if kind == "exponential":
        return generator.standard_exponential(shape)
    return generator.random(shape)


def shape_of(port: Port, sizes: Mapping[str, int], where: str) -> tuple[int, ...]:
    """Returns the shape of an input with these free sizes.

    Raises:
        SessionError: A size of it does not follow from them.
    """
    return tuple(
        size if size is not None else size_value(symbol or "", sizes, port.name, where)
        for size, symbol in zip(port.shape, port.symbols, strict=True)
    )


_OPERATIONS: Mapping[type[ast.operator], Callable[[int, int], int]] = {
    ast.Add: operator.add,
    ast.Sub: operator.sub,
    ast.Mult: operator.mul,
    ast.FloorDiv: operator.floordiv,
    ast.Mod: operator.mod,
}


def size_value(text: str, sizes: Mapping[str, int], name: str, where: str) -> int:
    """Returns the value of a size such as ``batch`` or ``sequence + 1``.

    Raises:
        SessionError: It is not such a formula, or does not follow from the sizes.
    """
    try:
        return fold_size(
            text,
            lambda symbol: sizes[symbol],
            lambda number: number,
            lambda kind, first, second: _OPERATIONS[kind](first, second),
        )
    except KeyError:
        raise SessionError(
            f"cannot compute the size {text!r} of {name!r} from the batch ({', '.join(sizes)})",
            where=where,
        ) from None
    except (SyntaxError, ValueError, RecursionError, MemoryError):
        raise SessionError(f"the size {text!r} of {name!r} is not a formula", where=where) from None


def size_tree(text: str) -> Any:
    """Returns a size as JSON: a number, a name, or a list of an operator and two sizes.

    Example:
        >>> size_tree("sequence + 1")
        ['add', 'sequence', 1]
    """
    return fold_size(text, str, int, lambda kind, *sizes: [_OPERATION_NAMES[kind], *sizes])


_OPERATION_NAMES: Mapping[type[ast.operator], str] = {
    ast.Add: "add",
    ast.Sub: "subtract",
    ast.Mult: "multiply",
    ast.FloorDiv: "floor_divide",
    ast.Mod: "modulo",
}

_Value = TypeVar("_Value")


def fold_size(
    text: str,
    symbol: Callable[[str], _Value],
    number: Callable[[int], _Value],
    operation: Callable[[type[ast.operator], _Value, _Value], _Value],
) -> _Value:
    """Returns the value of a size such as ``batch`` or ``sequence + 1`` in a domain of values.

    Args:
        text: The size.
        symbol: The value of a name.
        number: The value of an integer.
        operation: The value of a sum, difference, product, floor division or remainder.

    Raises:
        KeyError: It has another operation.
        SyntaxError, ValueError, RecursionError, MemoryError: It is not a formula.
    """

    def of(node: ast.expr) -> _Value:
        match node:
            case ast.Name(id=name):
                return symbol(name)
            case ast.Constant(value=int(value)):
                return number(value)
            case ast.BinOp(left=left, op=op, right=right) if type(op) in _OPERATIONS:
                return operation(type(op), of(left), of(right))
            case _:
                raise KeyError(text)

    return of(ast.parse(text, mode="eval").body)

"""Random numbers in ONNX files: nodes on unsigned integers are read as one op, ``uniform``.

The graph language has no unsigned integers. A node on them becomes a tuple, its operator and its
operands; where such a value is converted to a float, it must be that of ``closedform.ir.draws``.
"""

from __future__ import annotations

from collections.abc import Hashable
from typing import Any

from onnx import NodeProto, TensorProto, helper

from closedform.errors import VerificationError
from closedform.importers.onnx_constants import array_of
from closedform.importers.onnx_ops import DTYPES, Reader
from closedform.ir import DType, Op, Value, draws

WORDS = (TensorProto.UINT32, TensorProto.UINT64)
OPERATORS = frozenset({"BitShift", "BitwiseXor", "Range", "Size"})
"""Operators that are read only as parts of random numbers."""

_READ = OPERATORS | {"Add", "Cast", "Mul", "Reshape"}


def add_word(reader: Reader, name: str, tensor: TensorProto) -> bool:
    """Adds an unsigned initializer; returns whether it is one."""
    if tensor.data_type not in WORDS or tensor.dims:
        return False
    reader.words[name] = "constant", int(array_of(tensor, name))
    return True


def read_words(reader: Reader, node: NodeProto) -> bool:
    """Reads a node on unsigned integers; returns whether it is one.

    Raises:
        VerificationError: A float is made of other integers than random bits.
    """
    if node.domain or len(node.output) != 1:
        return False
    if node.op_type == "Constant":
        tensors = [attribute.t for attribute in node.attribute if attribute.name == "value"]
        return any(add_word(reader, node.output[0], tensor) for tensor in tensors)
    if node.op_type not in _READ:
        return False
    attributes: dict[str, Any] = {a.name: helper.get_attribute_value(a) for a in node.attribute}
    target: Any = attributes.get("to")
    has_words = any(name in reader.words for name in node.input)
    is_made = node.op_type in OPERATORS or (node.op_type == "Cast" and target in WORDS)
    if not has_words and not is_made:
        return False
    has_arrays = node.op_type in ("Range", "Reshape")
    operands = tuple(_operand(reader, name, has_arrays) for name in node.input)
    (result,) = node.output
    if node.op_type == "Cast" and target in DTYPES:
        reader.values[result] = _random_bits(reader, operands[0], DTYPES[target])
        return True
    facts = tuple(sorted((name, value) for name, value in attributes.items()))
    reader.words[result] = node.op_type, facts, *operands
    return True


def _operand(reader: Reader, name: str, has_arrays: bool) -> Hashable:
    if name in reader.words:
        word: Hashable = reader.words[name]
        return word
    if has_arrays and name in reader.arrays:
        return "array", tuple(reader.arrays[name].ravel().tolist())
    return reader.values[name]


class _Hole:
    """A part of a pattern that any operand matches."""

    def __init__(self) -> None:
        self.value: Any = None


def _random_bits(reader: Reader, word: Hashable, dtype: DType) -> Value:
    """The random bits as floats: a multiple of the op, which the file divides again."""
    for is_wide in (True, False):
        like, step, seed, shape = (_Hole() for _ in range(4))
        pattern = _pattern(like, step, seed, shape, is_wide=is_wide)
        if _matches(pattern, word) and _is_drawn(like.value, step.value, shape.value, is_wide):
            number = draws.seed_of_word(seed.value)
            numbers = reader.emit(Op.UNIFORM, like.value, step.value, seed=number, to=dtype)
            return reader.emit(Op.MUL, numbers, reader.constant(2**draws.BITS, numbers))
    raise VerificationError("it converts unsigned integers that are not random numbers")


def _is_drawn(like: Any, step: Any, shape: Any, is_wide: bool) -> bool:
    """Whether the operands are a tensor, its sizes, and a step of this width."""
    if not isinstance(like, Value) or not isinstance(step, Value) or step.type.shape:
        return False
    return shape == like.type.shape and step.type.dtype is (DType.I64 if is_wide else DType.I32)


def _pattern(like: _Hole, step: _Hole, seed: _Hole, shape: _Hole, *, is_wide: bool) -> Hashable:
    def constant(value: Any) -> Hashable:
        return "constant", value

    words: draws.Words[Any] = draws.Words(
        lambda x, y: ("Add", (), x, y),
        lambda x, factor: ("Mul", (), x, constant(factor)),
        lambda x, count: ("BitShift", (("direction", b"RIGHT"),), x, constant(count)),
        lambda x, y: ("BitwiseXor", (), x, y),
        constant,
    )

    def cast(x: Any, to: int) -> Hashable:
        return "Cast", (("to", to),), x

    narrow, wide = WORDS
    low, high = cast(step, narrow), None
    if is_wide:
        step_word = cast(step, wide)
        low, high = cast(step_word, narrow), cast(words.shift(step_word, 32), narrow)
    zero, one = ("array", (0,)), ("array", (1,))
    places = "Range", (), zero, ("Size", (), like), one
    hole: Any = seed
    bits = words.bits(cast(places, narrow), low, high, hole)
    # An attribute says what a size of 0 means: the tensor has these sizes in any case.
    return "Reshape", _Hole(), bits, ("array", shape)


def _matches(pattern: Any, word: Any) -> bool:
    """Whether a value has a pattern; each hole is filled with one value."""
    if isinstance(pattern, _Hole):
        if pattern.value is None:
            pattern.value = word
        return bool(pattern.value == word)
    if isinstance(pattern, tuple) and isinstance(word, tuple) and len(pattern) == len(word):
        return all(map(_matches, pattern, word))
    return type(pattern) is type(word) and bool(pattern == word)

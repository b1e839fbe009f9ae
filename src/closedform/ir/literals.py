"""Numbers in the text form: short for people, and exact bit for bit.

    number ::= "true" | "false" | integer | decimal | hex float | "inf" | "-inf" | "nan" | bits
    bits   ::= "nan(0x" hex digits ")"       a NaN other than the usual one, by its bits

A float is written as the shortest decimal that reads back as the same bits, else as a hex float.
"""

from __future__ import annotations

import re
from typing import Any

import numpy as np

from closedform.errors import GraphError
from closedform.ir.graph import Array
from closedform.ir.types import DType

_INTEGER = re.compile(r"-?[0-9]+")
_DECIMAL = re.compile(r"-?[0-9]+(\.[0-9]*)?(e[-+]?[0-9]+)?")
_HEX_FLOAT = re.compile(r"-?0x[01](\.[0-9a-f]+)?p[-+]?[0-9]+")
_BITS = re.compile(r"nan\(0x[0-9a-f]{1,16}\)")
_LONGEST = 40
"""No number that we print is longer; a longer one is refused before it is read."""


def format_number(number: Any, dtype: DType) -> str:
    """Returns the literal of a NumPy scalar of this dtype."""
    if dtype is DType.BOOL:
        return "true" if number else "false"
    if dtype.is_integer:
        return str(int(number))
    if _is_nan(number):
        return _format_nan(number, dtype)
    value = float(number)
    if np.isinf(value):
        return "inf" if value > 0 else "-inf"
    # NumPy prints the shortest decimal in the precision of its dtype.
    decimal = repr(value) if dtype is DType.F64 else _with_point(str(number))
    if parse_number(decimal, dtype) == _data(number):
        return decimal
    # A decimal of a bfloat16 or float16 may not read back by way of float64; the hex form is exact.
    return re.sub(r"\.?0*p", "p", value.hex())


def parse_number(literal: str, dtype: DType) -> bytes:
    """Returns the bytes of a number of this dtype.

    Raises:
        GraphError: The literal is none of this dtype, or is too large for it.
    """
    if len(literal) > _LONGEST:
        raise GraphError(f"a number has at most {_LONGEST} signs, got {len(literal)}")
    if dtype is DType.BOOL:
        return _parse_bool(literal)
    if dtype.is_integer:
        return _parse_integer(literal, dtype)
    return _parse_float(literal, dtype)


def _with_point(decimal: str) -> str:
    return decimal if re.search(r"[.e]", decimal) else f"{decimal}.0"


def _is_nan(number: Any) -> bool:
    """Compared in its own dtype: a signalling NaN warns when it is cast."""
    with np.errstate(all="ignore"):
        return bool(number != number)


def _data(number: Any) -> bytes:
    return np.asarray(number).tobytes()


def _bits_dtype(dtype: DType) -> np.dtype[Any]:
    return np.dtype(f"u{dtype.numpy.itemsize}")


def _usual_nan(dtype: DType) -> bytes:
    return np.asarray(np.nan).astype(dtype.numpy).tobytes()


def _format_nan(number: Any, dtype: DType) -> str:
    data = _data(number)
    if data == _usual_nan(dtype):
        return "nan"
    bits = int(np.frombuffer(data, _bits_dtype(dtype))[0])
    return f"nan(0x{bits:0{2 * dtype.numpy.itemsize}x})"


def _parse_bool(literal: str) -> bytes:
    if literal not in ("true", "false"):
        raise GraphError(f"expected true or false, got {literal!r}")
    return b"\1" if literal == "true" else b"\0"


def _parse_integer(literal: str, dtype: DType) -> bytes:
    if not _INTEGER.fullmatch(literal):
        raise GraphError(f"expected an integer for {dtype}, got {literal!r}")
    value = int(literal)
    limits = np.iinfo(dtype.numpy)
    if not limits.min <= value <= limits.max:
        raise GraphError(f"{value} does not fit {dtype}")
    return np.asarray(value, dtype.numpy).tobytes()


def _parse_float(literal: str, dtype: DType) -> bytes:
    if _BITS.fullmatch(literal):
        return _parse_nan(literal, dtype)
    if literal == "nan":
        return _usual_nan(dtype)
    if literal in ("inf", "-inf"):
        return _convert(float(literal), dtype).tobytes()
    if _DECIMAL.fullmatch(literal):
        value = float(literal)
    elif _HEX_FLOAT.fullmatch(literal):
        value = _from_hex(literal, dtype)
    else:
        raise GraphError(f"expected a number for {dtype}, got {literal!r}")
    array = _convert(value, dtype)
    if np.isinf(array.astype(np.float64)):
        raise GraphError(f"{literal} does not fit {dtype}", hint="write inf for an infinity")
    return array.tobytes()


def _from_hex(literal: str, dtype: DType) -> float:
    try:
        return float.fromhex(literal)
    except OverflowError:
        raise GraphError(f"{literal} does not fit {dtype}") from None


def _convert(value: float, dtype: DType) -> Array:
    with np.errstate(all="ignore"):
        return np.asarray(np.asarray(value).astype(dtype.numpy))


def _parse_nan(literal: str, dtype: DType) -> bytes:
    bits = int(literal[len("nan(") : -1], 16)
    if bits >= 1 << (8 * dtype.numpy.itemsize):
        raise GraphError(f"{literal} has more bits than {dtype}")
    array = np.asarray(bits, _bits_dtype(dtype))
    if not _is_nan(array.view(dtype.numpy)):
        raise GraphError(f"{literal} is not a NaN of {dtype}")
    return array.tobytes()

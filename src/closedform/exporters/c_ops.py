"""The C table: for each op of the graph language the C11 expression of the same value.

Where C differs from the graph language, the row says so: signed overflow is undefined (so integers
that may wrap are computed unsigned), ``/`` and ``%`` truncate, and a conversion of a float that
does not fit the integer is undefined. Ranges of values decide where the plain operator is enough.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass
from typing import Any

import numpy as np

from closedform.errors import ExportError
from closedform.ir import draws
from closedform.ir.analysis.interval import Interval, full
from closedform.ir.graph import Node
from closedform.ir.ops import MOVES, Op
from closedform.ir.types import DType

C_TYPES: Mapping[DType, str] = {
    DType.BOOL: "CLOSEDFORM_BOOL",
    DType.I8: "int8_t",
    DType.I32: "int32_t",
    DType.I64: "int64_t",
    DType.F32: "float",
    DType.F64: "double",
    DType.BF16: "uint16_t",
}
"""The C types of the dtypes that are computed, and of bf16, which is stored as its bits."""

KEYWORDS = """\
#ifndef CLOSEDFORM_BOOL
#ifdef __cplusplus
#define CLOSEDFORM_BOOL bool
#define CLOSEDFORM_RESTRICT __restrict
#define CLOSEDFORM_STATIC_ASSERT static_assert
#else
#define CLOSEDFORM_BOOL _Bool
#define CLOSEDFORM_RESTRICT restrict
#define CLOSEDFORM_STATIC_ASSERT _Static_assert
#endif
#endif"""
"""The words of C11 that C++ spells otherwise; gcc, clang and MSVC know ``__restrict``."""

BF16 = """\
#ifndef CLOSEDFORM_BF16
#define CLOSEDFORM_BF16
typedef union { float number; uint32_t bits; } closedform_float_bits;
static inline float closedform_from_bf16(uint16_t stored)
{
    closedform_float_bits value;
    value.bits = (uint32_t)stored << 16;
    return value.number;
}
static inline uint16_t closedform_to_bf16(float number)
{
    closedform_float_bits value;
    value.number = number;
    if (number != number) {
        return UINT16_C(0x7fc0);
    }
    return (uint16_t)((value.bits + UINT32_C(0x7fff) + ((value.bits >> 16) & 1u)) >> 16);
}
#endif"""
"""Conversions of bf16, the upper half of a float: ties go to the even one, NaN stays one."""

_UNSIGNED = {DType.I32: "uint32_t", DType.I64: "uint64_t"}
_LEAST = {DType.I32: "INT32_MIN", DType.I64: "INT64_MIN"}


@dataclass(frozen=True, slots=True)
class Site:
    """Where a node is written.

    Attributes:
        node: The node.
        operands: C expressions of its operands: names, literals or elements of arrays.
        sources: The nodes of its operands.
        intervals: What its operands may be.
        interval: What its own value may be.
        declare: Declares a value of a C type before the node, and returns its name.
    """

    node: Node
    operands: tuple[str, ...]
    sources: tuple[Node, ...]
    intervals: tuple[Interval, ...]
    interval: Interval
    declare: Callable[[str, str], str]

    @property
    def dtype(self) -> DType:
        """The dtype of the first operand."""
        return self.sources[0].type.dtype

    @property
    def may_wrap(self) -> bool:
        """Whether a result of integers may leave their range; ranges are whole where it may."""
        dtype = self.node.type.dtype
        return dtype.is_integer and self.interval == full(dtype)


UNIFORM = f"""\
#ifndef CLOSEDFORM_UNIFORM
#define CLOSEDFORM_UNIFORM
static inline uint32_t closedform_mix(uint32_t x)
{{
    x = (x ^ (x >> 16)) * UINT32_C(0x{draws.FIRST:08x});
    x = (x ^ (x >> 15)) * UINT32_C(0x{draws.SECOND:08x});
    return x ^ (x >> 16);
}}
static inline uint32_t closedform_bits(uint32_t place, uint64_t step, uint32_t seed)
{{
    const uint32_t inner = (uint32_t)step + closedform_mix((uint32_t)(step >> 32));
    const uint32_t key = closedform_mix(closedform_mix(inner) + seed);
    uint32_t x = (place + key) * UINT32_C(0x{draws.FIRST:08x});
    x = (x ^ (x >> 15)) * UINT32_C(0x{draws.SECOND:08x}) + key;
    x = (x ^ (x >> 16)) * UINT32_C(0x{draws.GOLDEN:08x});
    return x >> {32 - draws.BITS};
}}
#endif"""
"""Random bits as a function of the place, the step and the word of the seed."""

Emitter = Callable[[Site], str]


def c_type(dtype: DType) -> str:
    """Returns the C type of a dtype.

    Raises:
        ExportError: C11 has no such type.
    """
    if dtype not in C_TYPES:
        raise ExportError(
            f"C11 has no type for {dtype}", hint="store parameters and states in f32 or f64"
        )
    return C_TYPES[dtype]


def literal(number: Any, dtype: DType) -> str:
    """Returns a number as a C expression; decimals of floats round to the same float.

    Example:
        >>> literal(0.1, DType.F32), literal(-2, DType.I64), literal(1e300, DType.F64)
        ('0.1f', '(-INT64_C(2))', '1e+300')
    """
    if dtype is DType.BOOL:
        return "1" if number else "0"
    if dtype.is_integer:
        return _integer(int(number), dtype)
    value = float(number)
    if dtype is DType.BF16:
        bits = np.asarray(value, np.float32).astype(dtype.numpy).view(np.uint16).item()
        return f"UINT16_C(0x{bits:04x})"
    if np.isnan(value):
        return "NAN"
    suffix = "f" if dtype is DType.F32 else ""
    shortest = str(dtype.numpy.type(abs(value)))
    digits = shortest if set(shortest) & set(".e") else f"{shortest}.0"
    text = "INFINITY" if np.isinf(value) else f"{digits}{suffix}"
    return f"(-{text})" if np.signbit(value) else text


def conversion(expression: str, source: DType, target: DType) -> str:
    """Returns a float of a dtype as one of another; f64 reaches bf16 by way of f32."""
    if source is target:
        return expression
    if target is DType.BF16:
        number = expression if source is DType.F32 else f"(float){expression}"
        return f"closedform_to_bf16({number})"
    if source is DType.BF16:
        return f"closedform_from_bf16({expression})"
    return f"({c_type(target)}){expression}"


def _integer(value: int, dtype: DType) -> str:
    if value == np.iinfo(dtype.numpy).min:
        return _LEAST[dtype]
    macro = "INT64_C" if dtype is DType.I64 else "INT32_C"
    return f"{macro}({value})" if value >= 0 else f"(-{macro}({-value}))"


def _suffix(dtype: DType) -> str:
    return "f" if dtype is DType.F32 else ""


def _infix(operator: str) -> Emitter:
    """Arithmetic; integers that may wrap are computed without sign, which wraps in C, too."""

    def emit(site: Site) -> str:
        first, second = site.operands
        if not site.may_wrap:
            return f"{first} {operator} {second}"
        unsigned_type = _UNSIGNED[site.node.type.dtype]
        signed_type = C_TYPES[site.node.type.dtype]
        return f"({signed_type})(({unsigned_type}){first} {operator} ({unsigned_type}){second})"

    return emit


def _direct(template: str) -> Emitter:
    """An expression of only the operands."""

    def emit(site: Site) -> str:
        return template.format(*site.operands)

    return emit


def _function(name: str) -> Emitter:
    """A function of math.h, of the dtype of the operands."""

    def emit(site: Site) -> str:
        return f"{name}{_suffix(site.dtype)}({', '.join(site.operands)})"

    return emit


def _neg(site: Site) -> str:
    (operand,) = site.operands
    if not site.may_wrap:
        return f"-{operand}"
    dtype = site.node.type.dtype
    return f"({C_TYPES[dtype]})(0 - ({_UNSIGNED[dtype]}){operand})"


def _abs(site: Site) -> str:
    (operand,) = site.operands
    if not site.dtype.is_integer:
        return f"fabs{_suffix(site.dtype)}({operand})"
    return f"{operand} < 0 ? {_neg(site)} : {operand}"


def _floor_div(site: Site) -> str:
    first, second = site.operands
    if all(interval.low >= 0 for interval in site.intervals):
        return f"{first} / {second}"
    is_off = f"{first} % {second} != 0 && ({first} < 0) != ({second} < 0)"
    return f"{first} / {second} - ({is_off})"


def _floor_mod(site: Site) -> str:
    first, second = site.operands
    if not site.dtype.is_integer:
        rest = site.declare(C_TYPES[site.dtype], f"fmod{_suffix(site.dtype)}({first}, {second})")
    elif all(interval.low >= 0 for interval in site.intervals):
        return f"{first} % {second}"
    else:
        rest = site.declare(C_TYPES[site.dtype], f"{first} % {second}")
    return f"{rest} != 0 && ({rest} < 0) != ({second} < 0) ? {rest} + {second} : {rest}"


def _extremum(comparison: str) -> Emitter:
    """The smaller or larger operand; NaN wins. Of two zeros either may be the result."""

    def emit(site: Site) -> str:
        first, second = site.operands
        is_chosen = f"{first} {comparison} {second}"
        if site.intervals[0].maybe_nan:
            is_chosen = f"{is_chosen} || {first} != {first}"
        return f"{is_chosen} ? {first} : {second}"

    return emit


def _cast(site: Site) -> str:
    """A conversion; a float that does not fit the integer gives the least one."""
    (operand,) = site.operands
    target = site.node.type.dtype
    if DType.BF16 in (site.dtype, target):
        return conversion(operand, site.dtype, target)
    if target is DType.BOOL:
        return f"{operand} != 0"
    plain = f"({c_type(target)}){operand}"
    if not (target.is_integer and site.dtype.is_float):
        return plain
    bounds, limits = site.intervals[0], full(target)
    if limits.low <= bounds.low and bounds.high < limits.high and not bounds.maybe_nan:
        return plain
    low, high = (literal(bound, site.dtype) for bound in (limits.low, -limits.low))
    # Truncation is towards 0: all numbers above the least integer less 1 fit. float32
    # does not hold that bound, nor float64 that of 64 bits: the least integer replaces it.
    above = (
        f"{operand} >= {low}"
        if site.dtype is DType.F32 or target is DType.I64
        else (f"{operand} > {literal(limits.low - 1, site.dtype)}")
    )
    return f"{above} && {operand} < {high} ? {plain} : {_LEAST[target]}"


def _lookup(site: Site) -> str:
    table, index = site.operands
    return f"{table}[{index}]"


def _uniform(site: Site) -> str:
    """Multiples of 2**-16: the conversion and the product are exact."""
    place = "(uint32_t)i" if site.node.type.shape else "0"
    seed = draws.seed_word(int(site.node.attribute("seed")))
    bits = f"closedform_bits({place}, (uint64_t){site.operands[1]}, UINT32_C(0x{seed:08x}))"
    dtype = site.node.type.dtype
    return f"({C_TYPES[dtype]}){bits} * {literal(2.0**-draws.BITS, dtype)}"


C_OPS: Mapping[Op, Emitter] = {
    Op.ADD: _infix("+"),
    Op.SUB: _infix("-"),
    Op.MUL: _infix("*"),
    Op.NEG: _neg,
    Op.ABS: _abs,
    Op.DIV: _direct("{} / {}"),
    Op.FLOOR_DIV: _floor_div,
    Op.FLOOR_MOD: _floor_mod,
    Op.MIN: _extremum("<"),
    Op.MAX: _extremum(">"),
    Op.FLOOR: _function("floor"),
    Op.SQRT: _function("sqrt"),
    Op.EXP: _function("exp"),
    Op.LOG: _function("log"),
    Op.COS: _function("cos"),
    Op.SIN: _function("sin"),
    Op.ATAN: _function("atan"),
    Op.POW: _function("pow"),
    Op.LT: _direct("{} < {}"),
    Op.LE: _direct("{} <= {}"),
    Op.EQ: _direct("{} == {}"),
    Op.AND: _direct("{} & {}"),
    Op.OR: _direct("{} | {}"),
    Op.NOT: _direct("!{}"),
    Op.WHERE: _direct("{} ? {} : {}"),
    Op.CAST: _cast,
    Op.LOOKUP: _lookup,
    Op.UNIFORM: _uniform,
}
"""The ops that are expressions of their operands, element by element."""

C_STATEMENTS = frozenset({Op.INPUT, Op.CONST, Op.REDUCE_SUM})
"""The ops that functions are made of: parameters, literals and arrays, loops that add."""

C_REFUSED = MOVES | {Op.REDUCE_MAX, Op.MATMUL}
"""The ops on shapes, which functions of numbers and of flat arrays do not have."""

"""Operators in terms of those that the WebGPU provider computes as onnxruntime does on a CPU.

Each replacement writes the results of a node by other nodes and returns True, or returns False
where the node may stay. The measurements are of onnxruntime-web 1.30 on SwiftShader.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Mapping, Sequence

import numpy as np
from onnx import NodeProto, TensorProto

from closedform.training.webgpu.movement import MOVEMENT, convert
from closedform.training.webgpu.translation import Replacement, Translation

_FLOAT, _INT, _BOOL = TensorProto.FLOAT, TensorProto.INT32, TensorProto.BOOL


def log_softmax(out: Translation, node: NodeProto) -> bool:
    """``x − max x − log Σ exp(x − max x)``: LogSoftmax has no kernel."""
    value, axis = out.operand(node, 0), out.literal([out.attribute(node, "axis", -1)])
    centred_value = out.emit("Sub", [value, out.emit("ReduceMax", [value, axis], keepdims=1)])
    # Opset 13 and later: the axes are an operand.
    total = out.emit("ReduceSum", [out.emit("Exp", [centred_value]), axis], keepdims=1)
    out.emit("Sub", [centred_value, out.emit("Log", [total])], outputs=node.output)
    return True


def log_sum_exp(out: Translation, node: NodeProto) -> bool:
    """``m + log Σ exp(x − m)`` with m the maximum: the kernel overflows at 100."""
    if len(node.input) < 2 or not node.input[1]:
        # Without axes over all entries: the kernel stays, since the number of axes may be unknown.
        return False
    value, axes = out.operand(node, 0), out.on_host(node, 1)
    top = out.emit("ReduceMax", [value, axes], keepdims=1)
    total = out.emit("ReduceSum", [out.emit("Exp", [out.emit("Sub", [value, top])]), axes])
    whole = out.emit("Add", [top, out.emit("Log", [total])])
    if out.attribute(node, "keepdims", 1):
        out.emit("Identity", [whole], outputs=node.output)
    else:
        out.emit("Squeeze", [whole, axes], outputs=node.output)
    return True


def logarithm(out: Translation, node: NodeProto) -> bool:
    # −88.03 is −127·ln 2, as if the exponent bits of 0 were a number.
    """−∞ at 0 and NaN below: WGSL's logarithm is −88.03 at 0 and log |x| below."""
    value = out.operand(node, 0)
    zero = out.literal(0.0, _FLOAT)
    at_zero = out.emit("Equal", [value, zero], element=_BOOL)
    below = out.emit("Less", [value, zero], element=_BOOL)
    limit = out.literal(-np.inf, _FLOAT)
    logarithms = out.emit("Where", [at_zero, limit, out.emit("Log", [value])], element=_FLOAT)
    out.emit("Where", [below, out.literal(np.nan, _FLOAT), logarithms], outputs=node.output)
    return True


def power(out: Translation, node: NodeProto) -> bool:
    """Products, roots and reciprocals for constant exponents: WGSL's power is exp2(y·log2 x).

    For others |x|^y, with the sign of an odd exponent, and the limits at x = 0 and y = 0.
    """
    base, constant = out.operand(node, 0), out.constant(node.input[1])
    if out.element(node) != _FLOAT:
        return False
    if constant is not None and constant.size == 1 and not constant.shape:
        number = float(constant)
        # Products by squares: at most 10 multiplications up to 64, each rounded once.
        if number == int(number) and 1 <= number <= 64:
            _write(out, _product(out, base, int(number)), node)
            return True
        if number in _ROOTS:
            _write(out, _ROOTS[number](out, base), node)
            return True
    exponent = out.operand(node, 1)
    if out.element(node, 1) != _FLOAT:
        exponent = out.emit("Cast", [exponent], element=_FLOAT, to=_FLOAT)
    zero, unit, two = (out.literal(number, _FLOAT) for number in (0.0, 1.0, 2.0))
    half = out.emit("Floor", [out.emit("Div", [exponent, two])])
    # y − 2·floor(y/2) is 1 for odd y and 0 for even ones, exact below 2^24; above, all float32 are
    # even.
    parity = out.emit("Sub", [exponent, out.emit("Mul", [half, two])])
    # (−|x|)^y = −|x|^y for odd y, |x|^y for even y, NaN for others, as in IEEE 754's pow.
    is_odd = out.emit("Equal", [parity, unit], element=_BOOL)
    is_whole = out.emit("Equal", [out.emit("Floor", [exponent]), exponent], element=_BOOL)
    is_negative = out.emit("Less", [base, zero], element=_BOOL)
    is_zero = out.emit("Equal", [base, zero], element=_BOOL)
    # At 0 another base is taken: its result is not used.
    size = out.emit("Abs", [out.emit("Where", [is_zero, unit, base], element=_FLOAT)])
    result = out.emit("Pow", [size, exponent])
    is_flipped = out.emit("And", [is_negative, is_odd], element=_BOOL)
    result = out.emit("Where", [is_flipped, out.emit("Neg", [result]), result], element=_FLOAT)
    is_broken = out.emit("Not", [is_whole], element=_BOOL)
    is_undefined = out.emit("And", [is_negative, is_broken], element=_BOOL)
    nan = out.literal(np.nan, _FLOAT)
    result = out.emit("Where", [is_undefined, nan, result], element=_FLOAT)
    is_rising = out.emit("Greater", [exponent, zero], element=_BOOL)
    at_zero = out.emit("Where", [is_rising, zero, out.literal(np.inf, _FLOAT)], element=_FLOAT)
    result = out.emit("Where", [is_zero, at_zero, result], element=_FLOAT)
    # x^0 is 1 for all x, also NaN.
    is_constant = out.emit("Equal", [exponent, zero], element=_BOOL)
    out.emit("Where", [is_constant, unit, result], outputs=node.output)
    return True


# Right to left binary exponentiation: the bits of count from the lowest.
def _product(out: Translation, base: str, count: int) -> str:
    """A power by squares."""
    result, square = "", base
    while count:
        if count % 2:
            result = out.emit("Mul", [result, square]) if result else square
        count //= 2
        if count:
            square = out.emit("Mul", [square, square])
    return result


_ROOTS: Mapping[float, Callable[[Translation, str], str]] = {
    0.5: lambda out, base: out.emit("Sqrt", [base]),
    -0.5: lambda out, base: out.emit("Reciprocal", [out.emit("Sqrt", [base])]),
    -1.0: lambda out, base: out.emit("Reciprocal", [base]),
    -2.0: lambda out, base: out.emit("Reciprocal", [out.emit("Mul", [base, base])]),
    1.5: lambda out, base: out.emit("Mul", [base, out.emit("Sqrt", [base])]),
}


def _write(out: Translation, value: str, node: NodeProto) -> None:
    out.emit("Identity", [value], outputs=node.output)


# π/2 in three floats, the first two with so few bits that their products with whole numbers below
# 2^13 are exact: Cody and Waite's reduction.
_HALF_PI = (1.5703125, 4.837512969970703e-4, 7.549789948768648e-8)
# sinf and cosf of Cephes: coefficients of x³, x⁵, x⁷ and of x⁴, x⁶, x⁸.
_SINE = (-1.6666654611e-1, 8.3321608736e-3, -1.9515295891e-4)
_COSINE = (4.166664568298827e-2, -1.388731625493765e-3, 2.443315711809948e-5)


def _circular(shift: int) -> Replacement:
    """The sine of x + shift·π/2 with the polynomials of Cephes: WGSL's is off by up to 2e-4."""

    def replace(out: Translation, node: NodeProto) -> bool:
        _write(out, _sine(out, out.operand(node, 0), shift), node)
        return True

    return replace


def _sine(out: Translation, value: str, shift: int) -> str:
    def number(constant: float) -> str:
        return out.literal(constant, _FLOAT)

    turns = out.emit("Mul", [value, number(2 / math.pi)])
    # The nearest multiple of π/2, so that |rest| is at most π/4, where the polynomials hold.
    turns = out.emit("Floor", [out.emit("Add", [turns, number(0.5)])])
    rest = value
    for part in _HALF_PI:
        rest = out.emit("Sub", [rest, out.emit("Mul", [turns, number(part)])])
    square = out.emit("Mul", [rest, rest])

    def polynomial(coefficients: Sequence[float]) -> str:
        result = number(coefficients[-1])
        for coefficient in coefficients[-2::-1]:
            product = out.emit("Mul", [square, result])
            result = out.emit("Add", [product, number(coefficient)])
        return result

    cube = out.emit("Mul", [square, rest])
    sine = out.emit("Add", [rest, out.emit("Mul", [cube, polynomial(_SINE)])])
    fourth = out.emit("Mul", [square, square])
    cosine = out.emit("Mul", [fourth, polynomial(_COSINE)])
    # 1 − x²/2 + x⁴·P(x²): in this order the large terms are added last, as in Cephes.
    half_square = out.emit("Mul", [square, number(0.5)])
    cosine = out.emit("Add", [out.emit("Sub", [cosine, half_square]), number(1.0)])
    # cos x = sin(x + π/2): one quarter turn more.
    if shift:
        turns = out.emit("Add", [turns, number(float(shift))])
    # Quarter turns modulo 4: an odd number exchanges sine and cosine, 2 and 3 turn the sign.
    half = out.emit("Floor", [out.emit("Mul", [turns, number(0.5)])])
    is_odd = out.emit(
        "Greater",
        [turns, out.emit("Mul", [half, number(2.0)])],
        element=_BOOL,
    )
    magnitude = out.emit("Where", [is_odd, cosine, sine], element=_FLOAT)
    quarter = out.emit("Floor", [out.emit("Mul", [half, number(0.5)])])
    is_flipped = out.emit("Greater", [half, out.emit("Mul", [quarter, number(2.0)])], element=_BOOL)
    return out.emit("Where", [is_flipped, out.emit("Neg", [magnitude]), magnitude], element=_FLOAT)


def tangent(out: Translation, node: NodeProto) -> bool:
    """The sine over the cosine."""
    value = out.operand(node, 0)
    out.emit("Div", [_sine(out, value, 0), _sine(out, value, 1)], outputs=node.output)
    return True


def arc_cosine(out: Translation, node: NodeProto) -> bool:
    """``π/2 − asin x``: WGSL's is off by 5e-5."""
    half = out.literal(math.pi / 2, _FLOAT)
    out.emit("Sub", [half, out.emit("Asin", [out.operand(node, 0)])], outputs=node.output)
    return True


def sign(out: Translation, node: NodeProto) -> bool:
    """``(x > 0) − (x < 0)``: Sign has no kernel."""
    value, element = out.operand(node, 0), out.element(node)
    zero = out.literal(0, element)
    above, below = (
        out.emit(
            "Cast",
            [out.emit(comparison, [value, zero], element=_BOOL)],
            element=element,
            to=element,
        )
        for comparison in ("Greater", "Less")
    )
    out.emit("Sub", [above, below], outputs=node.output)
    return True


def rounding(out: Translation, node: NodeProto) -> bool:
    """Rounding to the nearest integer, halves to even: Round has no kernel."""
    value = out.operand(node, 0)
    half, two, unit = (out.literal(number, _FLOAT) for number in (0.5, 2.0, 1.0))
    low = out.emit("Floor", [value])
    rest = out.emit("Sub", [value, low])
    double = out.emit("Mul", [out.emit("Floor", [out.emit("Mul", [low, half])]), two])
    # A tie goes up only from an odd floor: parity is 1 there.
    parity = out.emit("Sub", [low, double])
    is_up = out.emit("Greater", [rest, half], element=_BOOL)
    is_tie = out.emit("Equal", [rest, half], element=_BOOL)
    by_tie = out.emit("Where", [is_tie, parity, out.literal(0.0, _FLOAT)], element=_FLOAT)
    rise = out.emit("Where", [is_up, unit, by_tie], element=_FLOAT)
    out.emit("Add", [low, rise], outputs=node.output)
    return True


def negate(out: Translation, node: NodeProto) -> bool:
    """``0 − x`` for int32, which has no kernel."""
    if out.element(node) != _INT:
        return False
    out.emit("Sub", [out.literal(0, _INT), out.operand(node, 0)], outputs=node.output)
    return True


def absolute(out: Translation, node: NodeProto) -> bool:
    """``max(x, 0 − x)`` for int32, which has no kernel."""
    if out.element(node) != _INT:
        return False
    value = out.operand(node, 0)
    # −2^31 has no opposite in int32, here as in C.
    below = out.emit("Sub", [out.literal(0, _INT), value])
    out.emit("Max", [value, below], outputs=node.output)
    return True


def remainder(out: Translation, node: NodeProto) -> bool:
    """``x − d·trunc(x/d)`` in int32, plus d where its sign is not that of d."""
    if out.element(node) != _INT or out.attribute(node, "fmod", 0):
        return False
    value, divisor = out.operand(node, 0), out.operand(node, 1)
    # Integer division of WGSL truncates; ONNX's Mod has the sign of the divisor.
    quotient = out.emit("Div", [value, divisor])
    rest = out.emit("Sub", [value, out.emit("Mul", [quotient, divisor])])
    zero = out.literal(0, _INT)
    # sign(rest) ≠ sign(divisor) as two integers 0 and 1: Equal of booleans has no kernel.
    signs = [
        out.emit("Cast", [out.emit("Less", [name, zero], element=_BOOL)], element=_INT, to=_INT)
        for name in (rest, divisor)
    ]
    differs = out.emit("Not", [out.emit("Equal", signs, element=_BOOL)], element=_BOOL)
    is_rest = out.emit("Not", [out.emit("Equal", [rest, zero], element=_BOOL)], element=_BOOL)
    is_moved = out.emit("And", [differs, is_rest], element=_BOOL)
    out.emit("Where", [is_moved, out.emit("Add", [rest, divisor]), rest], outputs=node.output)
    return True


def is_nan(out: Translation, node: NodeProto) -> bool:
    """``not x = x``: IsNaN has no kernel."""
    value = out.operand(node, 0)
    is_equal = out.emit("Equal", [value, value], element=_BOOL)
    out.emit("Not", [is_equal], outputs=node.output)
    return True


def is_infinite(out: Translation, node: NodeProto) -> bool:
    """``|x| = ∞``: IsInf has no kernel."""
    if node.attribute:  # one of the two signs
        return False
    size = out.emit("Abs", [out.operand(node, 0)])
    out.emit("Equal", [size, out.literal(np.inf, _FLOAT)], outputs=node.output)
    return True


def logical(operator: str) -> Replacement:
    """An operator of booleans as one of int32: the maximum is ``or``."""

    def replace(out: Translation, node: NodeProto) -> bool:
        if out.element(node, len(node.input) - 1) != _BOOL:
            return False
        # The condition of Where is a boolean; only its two values are converted.
        first = 1 if operator == "Where" else 0
        operands = [
            convert(out, out.operand(node, place), _INT)
            if place >= first
            else out.operand(node, place)
            for place in range(len(node.input))
        ]
        if operator == "Equal":
            out.emit("Equal", operands, outputs=node.output)
            return True
        result = out.emit(operator, operands, element=_INT)
        out.emit("Cast", [result], outputs=node.output, to=_BOOL)
        return True

    return replace


def exclusive(out: Translation, node: NodeProto) -> bool:
    """``not (a = b)`` in int32."""
    operands = [convert(out, out.operand(node, place), _INT) for place in (0, 1)]
    is_equal = out.emit("Equal", operands, element=_BOOL)
    out.emit("Not", [is_equal], outputs=node.output)
    return True


REPLACEMENTS: Mapping[str, Replacement] = {
    **MOVEMENT,
    "Abs": absolute,
    "Acos": arc_cosine,
    "Cos": _circular(1),
    "Equal": logical("Equal"),
    "IsInf": is_infinite,
    "IsNaN": is_nan,
    "Log": logarithm,
    "LogSoftmax": log_softmax,
    "Mod": remainder,
    "Neg": negate,
    "Or": logical("Max"),
    "Pow": power,
    "ReduceLogSumExp": log_sum_exp,
    "Round": rounding,
    "Sign": sign,
    "Sin": _circular(0),
    "Tan": tangent,
    "Where": logical("Where"),
    "Xor": exclusive,
}

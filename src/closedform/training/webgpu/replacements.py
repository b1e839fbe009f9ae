"""Operators in terms of those that the WebGPU provider computes as onnxruntime does on a CPU.

Each replacement writes the results of a node by other nodes and returns True, or returns False
where the node may stay. The measurements are of onnxruntime-web 1.30 on SwiftShader.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Mapping, Sequence

import numpy as np
from onnx import NodeProto, TensorProto, helper, numpy_helper

from closedform.training.webgpu.kernels import KERNELS, MAX_TENSORS
from closedform.training.webgpu.translation import Replacement, Translation

_FLOAT, _INT = TensorProto.FLOAT, TensorProto.INT32
_BOOL, _LONG = TensorProto.BOOL, TensorProto.INT64


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
            _convert(out, out.operand(node, place), _INT)
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
    operands = [_convert(out, out.operand(node, place), _INT) for place in (0, 1)]
    is_equal = out.emit("Equal", operands, element=_BOOL)
    out.emit("Not", [is_equal], outputs=node.output)
    return True


def _convert(out: Translation, name: str, element: int) -> str:
    return out.emit("Cast", [name], element=element, to=element)


_HALF_WORD = 1 << 16


def move(places: Sequence[int] = (0,)) -> Replacement:
    """A move of data whose kernel does not support the type, as a move of float32.

    Booleans are 0 and 1; an int32 is moved as two floats, x div 2^16 and the rest, both exact.
    """

    def replace(out: Translation, node: NodeProto) -> bool:
        element = out.element(node)
        kernel = KERNELS[node.op_type]
        if element not in (_BOOL, _INT) or element in kernel.types:
            return False
        data = places or range(len(node.input))
        values = [out.operand(node, place) for place in data]
        rest = {
            place: out.on_host(node, place) if place in kernel.host else out.operand(node, place)
            for place in range(len(node.input))
            if place not in data
        }
        attributes = {a.name: out.attribute(node, a.name, None) for a in node.attribute}

        def move(parts: Sequence[str]) -> list[str]:
            operands = dict(zip(data, parts, strict=True)) | rest
            names = [f"{parts[0]}/{output}" for output in node.output]
            for name in names:
                out.types[name] = _FLOAT
            inputs = [operands[place] for place in range(len(node.input))]
            out.emit(node.op_type, inputs, outputs=names, **attributes)
            return names

        if element == _BOOL:
            parts = move([_convert(out, value, _FLOAT) for value in values])
            for name, output in zip(parts, node.output, strict=True):
                out.emit("Cast", [name], outputs=[output], to=_BOOL)
            return True
        # Both parts are below 2^16 in magnitude: float32 holds integers up to 2^24.
        word = out.literal(_HALF_WORD, _INT)
        # Division truncates, so that both parts have the sign of x and x = high·2^16 + low.
        high = [out.emit("Div", [value, word]) for value in values]
        low = [
            out.emit("Sub", [value, out.emit("Mul", [part, word])])
            for value, part in zip(values, high, strict=True)
        ]
        results = [
            [_convert(out, name, _INT) for name in move([_convert(out, p, _FLOAT) for p in ps])]
            for ps in (high, low)
        ]
        for above, below, output in zip(*results, node.output, strict=True):
            out.emit("Add", [out.emit("Mul", [above, word]), below], outputs=[output])
        return True

    return replace


def identity(out: Translation, node: NodeProto) -> bool:
    """Booleans are negated twice: their Identity has no kernel."""
    if out.element(node) != _BOOL:
        return False
    value = out.operand(node, 0)
    out.emit("Not", [out.emit("Not", [value])], outputs=node.output)
    return True


def squeeze(out: Translation, node: NodeProto) -> bool:
    """Booleans are squeezed as int32."""
    if out.element(node) != _BOOL:
        return False
    value = _convert(out, out.operand(node, 0), _INT)
    axes = [out.on_host(node, 1)] if len(node.input) > 1 else []
    result = out.emit("Squeeze", [value, *axes])
    out.emit("Cast", [result], outputs=node.output, to=_BOOL)
    return True


def fill(out: Translation, node: NodeProto) -> bool:
    """A constant that is expanded: ConstantOfShape has no kernel."""
    tensor = out.attribute(node, "value", None)
    value = np.zeros(1, np.float32) if tensor is None else numpy_helper.to_array(tensor)
    element = out.types[node.output[0]]
    # The translation has int64 values as int32: the literal takes the type of the result.
    literal = out.literal(value.astype(helper.tensor_dtype_to_np_dtype(element)), element)
    out.emit("Expand", [literal, out.on_host(node, 0)], outputs=node.output)
    return True


def concatenate(out: Translation, node: NodeProto) -> bool:
    """A tree of concatenations of at most seven tensors."""
    if move(())(out, node):
        return True
    names = [out.operand(node, place) for place in range(len(node.input))]
    axis = out.attribute(node, "axis", 0)
    while len(names) > MAX_TENSORS:
        runs = [names[at : at + MAX_TENSORS] for at in range(0, len(names), MAX_TENSORS)]
        names = [run[0] if len(run) == 1 else out.emit("Concat", run, axis=axis) for run in runs]
    out.emit("Concat", names, outputs=node.output, axis=axis)
    return True


def split(out: Translation, node: NodeProto) -> bool:
    """A tree of splits of at most seven results."""
    if move()(out, node):
        return True
    sizes = out.constant(node.input[1]) if len(node.input) > 1 else None
    if len(node.output) <= MAX_TENSORS:
        return False
    if sizes is None:
        whole = (out.shape(node.input[0]) or ())[out.attribute(node, "axis", 0)]
        if whole is None:
            return False
        # Equal parts of Split, the last one smaller: opset 18.
        part = -(-whole // len(node.output))
        sizes = np.array([min(part, whole - at) for at in range(0, whole, part)])
    parts = [(name, int(size)) for name, size in zip(node.output, sizes, strict=True)]
    _split(out, out.operand(node, 0), parts, out.attribute(node, "axis", 0))
    return True


def _split(out: Translation, value: str, parts: Sequence[tuple[str, int]], axis: int) -> None:
    if len(parts) == 1:
        out.emit("Identity", [value], outputs=[parts[0][0]])
        return
    # The largest power of seven that is below the number of results: each part has at most seven
    # results again.
    run = MAX_TENSORS
    while run * MAX_TENSORS < len(parts):
        run *= MAX_TENSORS
    if len(parts) <= MAX_TENSORS:
        runs = [[part] for part in parts]
    else:
        runs = [list(parts[at : at + run]) for at in range(0, len(parts), run)]
    names = [group[0][0] if len(group) == 1 else f"webgpu/{group[0][0]}" for group in runs]
    for name in names:
        out.types.setdefault(name, out.types[value])
    sizes = out.literal([sum(size for _, size in group) for group in runs])
    out.emit("Split", [value, sizes], outputs=names, axis=axis)
    for name, group in zip(names, runs, strict=True):
        if len(group) > 1:
            _split(out, name, group, axis)


def extreme_place(extremum: str) -> Replacement:
    """The first place of a maximum or minimum, in int32: the kernel's result is int64."""

    def replace(out: Translation, node: NodeProto) -> bool:
        axis, shape = out.attribute(node, "axis", 0), out.shape(node.input[0])
        if shape is None or out.attribute(node, "select_last_index", 0):
            return False
        value, axes, axis = out.operand(node, 0), out.literal([axis]), axis % len(shape)
        best = out.emit(extremum, [value, axes], keepdims=1)
        is_best = out.emit("Equal", [value, best], element=_BOOL)
        places, last = _number_places(out, value, axis, shape)
        # The last place where NaN equals none.
        candidates = out.emit("Where", [is_best, places, last], element=_INT)
        keep = out.attribute(node, "keepdims", 1)
        out.emit("ReduceMin", [candidates, axes], outputs=node.output, keepdims=keep)
        return True

    return replace


def _number_places(
    out: Translation, value: str, axis: int, shape: Sequence[int | None]
) -> tuple[str, str]:
    """The places along an axis in int32, with the axes of the tensor, and the last of them."""
    sizes, count = [1] * len(shape), shape[axis]
    if count is not None:
        sizes[axis] = count
        return out.literal(np.arange(count).reshape(sizes), _INT), out.literal(count - 1, _INT)
    sizes[axis] = -1
    size = out.emit("Shape", [value], element=_LONG, start=axis, end=axis + 1)
    size = out.emit("Squeeze", [size, out.literal([0])])
    size = out.emit("Cast", [size], element=_INT, to=_INT)
    unit = out.literal(1, _INT)
    line = out.emit("Range", [out.literal(0, _INT), size, unit])
    return out.emit("Reshape", [line, out.literal(sizes)]), out.emit("Sub", [size, unit])


def largest(out: Translation, node: NodeProto) -> bool:
    """TopK with places in int32: numbers in float32, gathered by the kernel's int64."""
    shape, axis = out.shape(node.input[0]), out.attribute(node, "axis", -1)
    count = None if shape is None else shape[axis]
    # Places are gathered as float32, which holds integers up to 2^24.
    if shape is None or count is None or count > 1 << 24 or len(node.output) < 2:
        return False
    value = out.operand(node, 0)
    attributes = {a.name: out.attribute(node, a.name, None) for a in node.attribute}
    places = f"webgpu/{node.output[1]}"
    out.types[places] = _LONG
    top = [node.output[0] or f"{places}/values", places]
    out.emit("TopK", [value, out.on_host(node, 1)], outputs=top, **attributes)
    sizes = [1] * len(shape)
    sizes[axis] = count
    line = out.literal(np.arange(count).reshape(sizes), _FLOAT)
    line = out.emit("Expand", [line, out.emit("Shape", [value], element=_LONG)])
    numbers = out.emit("GatherElements", [line, places], axis=axis)
    out.emit("Cast", [numbers], outputs=[node.output[1]], to=_INT)
    return True


def index(out: Translation, node: NodeProto) -> bool:
    """GatherND and ScatterND, whose indices are int64 in ONNX; booleans are moved as int32."""
    indices = out.operand(node, 1)
    operands = [out.operand(node, place) for place in range(len(node.input))]
    constant = out.constant(node.input[1])
    # Constant indices need no cast at run time.
    if constant is None:
        operands[1] = out.emit("Cast", [indices], element=_LONG, to=_LONG)
    else:
        operands[1] = out.literal(constant)
    attributes = {a.name: out.attribute(node, a.name, None) for a in node.attribute}
    if out.element(node) != _BOOL:
        out.emit(node.op_type, operands, outputs=node.output, **attributes)
        return True
    operands[::2] = [_convert(out, name, _INT) for name in operands[::2]]
    result = out.emit(node.op_type, operands, **attributes)
    out.emit("Cast", [result], outputs=node.output, to=_BOOL)
    return True


def max_pool(out: Translation, node: NodeProto) -> bool:
    """A maximum pooling with places: strided slices, their maximum, and the first that equals it.

    ONNX counts places over all rows and channels. Padding is the least float32.
    """
    shape = out.shape(node.input[0])
    if len(node.output) < 2 or not node.output[1] or shape is None:
        return False
    kernel = list(out.attribute(node, "kernel_shape", []))
    axes, sizes = len(kernel), shape[2:]
    strides = list(out.attribute(node, "strides", [1] * axes))
    spread = list(out.attribute(node, "dilations", [1] * axes))
    pads = list(out.attribute(node, "pads", [0] * 2 * axes))
    if None in sizes or out.attribute(node, "storage_order", 0):
        return False
    lengths = [int(size or 0) for size in sizes]
    spans = [
        lengths[a] + pads[a] + pads[a + axes] - spread[a] * (kernel[a] - 1) - 1 for a in range(axes)
    ]
    counts = [span // stride + 1 for span, stride in zip(spans, strides, strict=True)]
    # floor(span / stride) + 1 windows; ceil_mode adds one for a remainder.
    if out.attribute(node, "ceil_mode", 0):
        counts = [-(-span // stride) + 1 for span, stride in zip(spans, strides, strict=True)]
        # A window that would begin behind the values and the padding in front is left out.
        counts = [
            count - ((count - 1) * strides[a] >= lengths[a] + pads[a])
            for a, count in enumerate(counts)
        ]
    # Padding behind, so that the last window is whole.
    ends = [
        (counts[a] - 1) * strides[a] + spread[a] * (kernel[a] - 1) + 1 - lengths[a] - pads[a]
        for a in range(axes)
    ]
    pads[axes:] = [max(*pair) for pair in zip(pads[axes:], ends, strict=True)]
    value = out.operand(node, 0)
    padded_value = value
    if any(pads):
        # Pads of ONNX: all begins, then all ends; batch and channels have none.
        widths = [0, 0, *pads[:axes], 0, 0, *pads[axes:]]
        lowest = out.literal(float(np.finfo(np.float32).min), _FLOAT)
        padded_value = out.emit("Pad", [value, out.literal(widths), lowest])
    taps, places = [], []
    for offsets in np.ndindex(*kernel):
        starts = [offset * step for offset, step in zip(offsets, spread, strict=True)]
        ends = [
            start + (count - 1) * stride + 1
            for start, count, stride in zip(starts, counts, strides, strict=True)
        ]
        where = [out.literal(x) for x in (starts, ends, list(range(2, 2 + axes)), strides)]
        taps.append(out.emit("Slice", [padded_value, *where]))
        lines = [
            np.arange(count) * stride + start - pad
            for count, stride, start, pad in zip(counts, strides, starts, pads[:axes], strict=True)
            # Row-major places, as in ONNX with storage_order 0, without the padding.
        ]
        flat = np.zeros((), np.int64)
        for line, length in zip(lines, lengths, strict=True):
            flat = flat[..., None] * length + line
        places.append(out.literal(flat[None, None], _INT))
    best = taps[0]
    for tap in taps[1:]:
        best = out.emit("Max", [best, tap])
    out.emit("Identity", [best], outputs=[node.output[0]])
    # Of equal values ONNX takes the first.
    place = places[-1]
    # Backwards, so that the first of equal maxima is the last to be chosen.
    for tap, candidate in zip(taps[-2::-1], places[-2::-1], strict=True):
        is_best = out.emit("Equal", [tap, best], element=_BOOL)
        place = out.emit("Where", [is_best, candidate, place], element=_INT)
    outer = out.emit("Shape", [value], element=_LONG, start=0, end=2)
    count = out.emit("ReduceProd", [outer], keepdims=0)
    bounds = [out.literal(0, _INT), out.emit("Cast", [count], element=_INT, to=_INT)]
    rows = out.emit("Range", [*bounds, out.literal(1, _INT)])
    unit_axes = out.literal([1] * axes)
    rows = out.emit("Reshape", [rows, out.emit("Concat", [outer, unit_axes], axis=0)])
    base = out.emit("Mul", [rows, out.literal(math.prod(lengths), _INT)])
    out.emit("Add", [base, place], outputs=[node.output[1]])
    return True


def diagonal(out: Translation, node: NodeProto) -> bool:
    """Ones where the column is the row plus k: EyeLike has no kernel."""
    shape = out.shape(node.input[0])
    if shape is None:
        return False
    value, element = out.operand(node, 0), out.types[node.output[0]]
    rows, columns = (_number_places(out, value, axis, shape)[0] for axis in (0, 1))
    shifted_rows = out.emit("Add", [rows, out.literal(out.attribute(node, "k", 0), _INT)])
    is_one = out.emit("Equal", [columns, shifted_rows], element=_BOOL)
    out.emit("Cast", [is_one], outputs=node.output, to=element)
    return True


REPLACEMENTS: Mapping[str, Replacement] = {
    "Abs": absolute,
    "Acos": arc_cosine,
    "ArgMax": extreme_place("ReduceMax"),
    "ArgMin": extreme_place("ReduceMin"),
    "Concat": concatenate,
    "ConstantOfShape": fill,
    "Cos": _circular(1),
    "Equal": logical("Equal"),
    "EyeLike": diagonal,
    "GatherElements": move(),
    "GatherND": index,
    "Identity": identity,
    "IsInf": is_infinite,
    "IsNaN": is_nan,
    "Log": logarithm,
    "LogSoftmax": log_softmax,
    "MaxPool": max_pool,
    "Mod": remainder,
    "Neg": negate,
    "Or": logical("Max"),
    "Pow": power,
    "ReduceLogSumExp": log_sum_exp,
    "Round": rounding,
    "ScatterND": index,
    "Sign": sign,
    "Sin": _circular(0),
    "Slice": move(),
    "Split": split,
    "Squeeze": squeeze,
    "Tan": tangent,
    "Tile": move(),
    "TopK": largest,
    "Transpose": move(),
    "Where": logical("Where"),
    "Xor": exclusive,
}

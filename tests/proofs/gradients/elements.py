"""One element of an elementwise ONNX graph as a term of the prover.

Tensors have one shape, or are constants that are spread over it; operators of sizes are passed by.
Constants are the exact numbers that they are rounded from
(:class:`closedform.verify.translation.constants.Constants`).
"""

import math
from collections.abc import Callable, Mapping

import numpy as np
from onnx import ModelProto, NodeProto, TensorProto, helper, numpy_helper

from closedform.errors import VerificationError
from closedform.ir.types import DType
from closedform.verify.terms import build
from closedform.verify.terms.build import (
    FALSE,
    HALF,
    MINUS_ONE,
    ONE,
    PI,
    TRUE,
    TWO,
    ZERO,
    add,
    cospi,
    divide,
    equal,
    exp,
    ite,
    less,
    less_equal,
    log,
    multiply,
    negative,
    opaque,
    power,
    rational,
    sinpi,
    square_root,
    subtract,
)
from closedform.verify.terms.tree import Op, Term
from closedform.verify.translation.constants import Constants

_IRRATIONAL = (
    square_root(divide(TWO, PI)),
    divide(ONE, square_root(PI)),
    log(TWO),
    log(rational(10)),
)
"""Numbers of formulas of torch: of erf, of both forms of GELU, of logarithms to other bases."""

_CUBIC, ALPHA, SCALE = (
    build.exact(44715, 10**6),
    build.exact(16732632423543772848170429916717, 10**31),
    build.exact(10507009873554804934193349852946, 10**31),
)

_RATIONAL = (_CUBIC, 3 * _CUBIC, ALPHA, SCALE, ALPHA * SCALE)
"""Numbers of GELU by tanh, and of SELU (Klambauer et al., 2017)."""


def read_elements(model: ModelProto, inputs: Mapping[str, Term]) -> dict[str, Term]:
    """Returns an element of each output.

    Args:
        model: An elementwise graph.
        inputs: The elements of its inputs by name.

    Raises:
        VerificationError: An operator is not elementwise.
    """
    reader = _Reader(model, inputs)
    return {value.name: reader.element(value.name) for value in model.graph.output}


class _Reader:
    def __init__(self, model: ModelProto, inputs: Mapping[str, Term]) -> None:
        self._elements = dict(inputs)
        self._nodes = {name: node for node in model.graph.node for name in node.output}
        self._constants = {tensor.name: tensor for tensor in model.graph.initializer}
        self._exact = Constants(_IRRATIONAL, _RATIONAL)

    def element(self, name: str) -> Term:
        """The element of a value; each is read when it is first needed."""
        if name not in self._elements:
            self._elements[name] = (
                self.constant(name) if name in self._constants else self._result(self._nodes[name])
            )
        return self._elements[name]

    def constant(self, name: str) -> Term:
        tensor = self._constants[name]
        values = set(numpy_helper.to_array(tensor).reshape(-1).tolist())
        if len(values) != 1:
            raise VerificationError(f"the constant {name!r} is not one number")
        return self.number(values.pop(), tensor.data_type)

    def number(self, value: float | bool, element: int = TensorProto.FLOAT) -> Term:
        """The exact number of a constant."""
        if isinstance(value, bool):
            return TRUE if value else FALSE
        if not math.isfinite(value):
            return opaque(str(value))
        if value == int(value):
            return rational(int(value))
        return self._exact(value, DType.F64 if element == TensorProto.DOUBLE else DType.F32)

    def _result(self, node: NodeProto) -> Term:
        if node.op_type in _PASSED:
            return self.element(node.input[0])
        attributes = {a.name: helper.get_attribute_value(a) for a in node.attribute}
        operands = [self.element(name) for name in node.input if name]
        if node.op_type in _WITH_NUMBERS:
            defaults, form = _WITH_NUMBERS[node.op_type]
            numbers = {
                # Attributes of ONNX are float32: an alpha of 0.01 is the float next to it.
                name: self.number(float(np.float32(attributes.get(name, default))))
                for name, default in defaults.items()
            }
            return form(*operands, *numbers.values())
        if node.op_type == "Clip":
            bounds = [self.element(name) if name else None for name in node.input[1:]]
            return _clip(operands[0], *bounds)
        if node.op_type == "Gelu":
            return _gelu(*operands, approximate=attributes.get("approximate", b"none"))
        if node.op_type not in _FORMS:
            raise VerificationError(f"{node.op_type} is not read as elementwise")
        return _FORMS[node.op_type](*operands)


_PASSED = frozenset({"Identity", "Cast", "Expand", "Reshape", "Unsqueeze", "Squeeze"})


def _logistic(u: Term) -> Term:
    return divide(ONE, add(ONE, exp(negative(u))))


def _tanh(u: Term) -> Term:
    twice = exp(multiply(TWO, u))
    return divide(subtract(twice, ONE), add(twice, ONE))


def _error(u: Term) -> Term:
    return opaque("erf", u)


def _larger(*operands: Term) -> Term:
    first, *rest = operands
    for second in rest:
        first = ite(less(first, second), second, first)
    return first


def _smaller(*operands: Term) -> Term:
    first, *rest = operands
    for second in rest:
        first = ite(less(second, first), second, first)
    return first


def _sign(u: Term) -> Term:
    return ite(less(u, ZERO), MINUS_ONE, ite(less(ZERO, u), ONE, ZERO))


def _absolute(u: Term) -> Term:
    return ite(less(u, ZERO), negative(u), u)


def _gelu(u: Term, *, approximate: bytes) -> Term:
    if approximate == b"none":
        return multiply(HALF, u, add(ONE, _error(divide(u, square_root(TWO)))))
    # 0.044715 of Hendrycks and Gimpel (2016).
    cubic = add(u, multiply(rational(44715, 10**6), u, u, u))
    return multiply(HALF, u, add(ONE, _tanh(multiply(square_root(divide(TWO, PI)), cubic))))


def _clip(u: Term, low: Term | None = None, high: Term | None = None) -> Term:
    u = u if low is None else _larger(u, low)
    return u if high is None else _smaller(u, high)


def _equal(u: Term, v: Term) -> Term:
    # A number is not infinite.
    is_infinite = any(side.op is Op.OPAQUE and not side.args for side in (u, v))
    return FALSE if is_infinite else equal(u, v)


def _cosh(u: Term) -> Term:
    return multiply(HALF, add(exp(u), exp(negative(u))))


def _sinh(u: Term) -> Term:
    return multiply(HALF, subtract(exp(u), exp(negative(u))))


def _square(u: Term) -> Term:
    return multiply(u, u)


def _elu(u: Term, alpha: Term) -> Term:
    return ite(less(u, ZERO), multiply(alpha, subtract(exp(u), ONE)), u)


def _selu(u: Term, alpha: Term, gamma: Term) -> Term:
    return multiply(gamma, _elu(u, alpha))


_FORMS: Mapping[str, Callable[..., Term]] = {
    "Abs": _absolute,
    "Ceil": lambda u: negative(build.floor(negative(u))),
    "IsInf": lambda u: FALSE,
    "Acos": lambda u: opaque("acos", u),
    "Acosh": lambda u: log(add(u, square_root(subtract(_square(u), ONE)))),
    "Add": add,
    "And": build.both,
    "Asin": lambda u: opaque("asin", u),
    "Asinh": lambda u: log(add(u, square_root(add(_square(u), ONE)))),
    "Atan": lambda u: opaque("atan", u),
    "Atanh": lambda u: multiply(HALF, log(divide(add(ONE, u), subtract(ONE, u)))),
    "Cos": lambda u: cospi(divide(u, PI)),
    "Cosh": _cosh,
    "Div": divide,
    "Equal": _equal,
    "Erf": _error,
    "Exp": exp,
    "Floor": build.floor,
    "Greater": lambda u, v: less(v, u),
    "GreaterOrEqual": lambda u, v: less_equal(v, u),
    # Over the real numbers nothing is NaN.
    "IsNaN": lambda u: FALSE,
    "Less": less,
    "LessOrEqual": less_equal,
    "Log": log,
    "Max": _larger,
    "Min": _smaller,
    "Mul": multiply,
    "Neg": negative,
    "Not": build.negate,
    "Or": build.either,
    "Pow": power,
    "Reciprocal": lambda u: divide(ONE, u),
    "Relu": lambda u: _larger(u, ZERO),
    "Sigmoid": _logistic,
    "Sign": _sign,
    "Sin": lambda u: sinpi(divide(u, PI)),
    "Sinh": _sinh,
    "Softplus": lambda u: log(add(ONE, exp(u))),
    "Sqrt": square_root,
    "Sub": subtract,
    "Tan": lambda u: divide(sinpi(divide(u, PI)), cospi(divide(u, PI))),
    "Tanh": _tanh,
    "Where": ite,
}
"""Formulas of operators. Source: the ONNX specification; DLMF 4.37 of inverse hyperbolic ones."""

_SIXTH = 1 / 6

_WITH_NUMBERS: Mapping[str, tuple[Mapping[str, float], Callable[..., Term]]] = {
    "LeakyRelu": ({"alpha": 0.01}, lambda u, a: ite(less(u, ZERO), multiply(a, u), u)),
    "Elu": ({"alpha": 1.0}, _elu),
    # The float32 numbers of the ONNX specification.
    "Selu": ({"alpha": 1.67326319217681884765625, "gamma": 1.05070102214813232421875}, _selu),
    "HardSigmoid": (
        {"alpha": 0.2, "beta": 0.5},
        lambda u, a, b: _clip(add(multiply(a, u), b), ZERO, ONE),
    ),
    "HardSwish": (
        {"alpha": _SIXTH, "beta": 0.5},
        lambda u, a, b: multiply(u, _clip(add(multiply(a, u), b), ZERO, ONE)),
    ),
}
"""Operators with attributes: their defaults, and the formula."""

"""Elementwise operators of ONNX on tensors of index sums.

Comparisons of real numbers hold off the places where these are equal.
"""

from collections.abc import Callable, Mapping, Sequence
from fractions import Fraction
from typing import Any

import z3
from onnx import NodeProto, TensorProto

from closedform.errors import VerificationError
from tests.proofs.gradients.formulas import are_equal_numbers, is_negative
from tests.proofs.gradients.index_sums import Summand, product, restrict, scale
from tests.proofs.gradients.nonlinear import divide
from tests.proofs.gradients.normal_forms import number_of
from tests.proofs.gradients.tensors import Tensor, broadcast, joint_shape


def _elementwise(form: Callable[..., Any], *, is_real: bool | None = None) -> Callable[..., Tensor]:
    def compute(node: NodeProto, operands: Sequence[Tensor], _: Any) -> Tensor:
        real = operands[0].is_real if is_real is None else is_real
        return Tensor(
            joint_shape(operands),
            lambda index: form(real, *(broadcast(index, operand) for operand in operands)),
            real,
        )

    return compute


def _add(is_real: bool, first: Any, second: Any) -> Any:
    return (*first, *second) if is_real else first + second


def _subtract(is_real: bool, first: Any, second: Any) -> Any:
    return (*first, *scale(second, Fraction(-1))) if is_real else first - second


def _multiply(is_real: bool, first: Any, second: Any) -> Any:
    return product(first, second) if is_real else first * second


def _negate(is_real: bool, value: Any) -> Any:
    return scale(value, Fraction(-1)) if is_real else -value


def _divide(node: NodeProto, operands: Sequence[Tensor], _: Any) -> Tensor:
    first, second = operands
    if first.is_real:
        return divide(first, second)
    return _elementwise(lambda _, a, b: a / b)(node, operands, _)


def _choose(condition: Any, then: Any, otherwise: Any, is_real: bool) -> Any:
    if is_real:
        return (*restrict(then, condition), *restrict(otherwise, z3.Not(condition)))
    return z3.simplify(z3.If(condition, then, otherwise))


def _where(node: NodeProto, operands: Sequence[Tensor], _: Any) -> Tensor:
    condition, then, otherwise = operands
    return Tensor(
        joint_shape(operands),
        lambda index: _choose(
            broadcast(index, condition),
            broadcast(index, then),
            broadcast(index, otherwise),
            then.is_real,
        ),
        then.is_real,
    )


def _cast(node: NodeProto, operands: Sequence[Tensor], attributes: Mapping[str, Any]) -> Tensor:
    (operand,) = operands
    if operand.is_real or attributes["to"] not in (TensorProto.FLOAT, TensorProto.DOUBLE):
        return operand
    return Tensor(operand.shape, lambda index: number_of(operand.at(index)))


def _is_less(is_real: bool, first: Any, second: Any) -> Any:
    if not is_real:
        return first < second
    return is_negative((*first, *scale(second, Fraction(-1))))


def _is_equal(is_real: bool, first: Any, second: Any) -> Any:
    return are_equal_numbers(first, second) if is_real else first == second


def _compare(form: Callable[..., Any]) -> Callable[..., Tensor]:
    """A truth of two numbers; that of reals holds off the places where they are equal."""

    def compute(node: NodeProto, operands: Sequence[Tensor], _: Any) -> Tensor:
        is_real = operands[0].is_real
        return Tensor(
            joint_shape(operands),
            lambda index: form(is_real, *(broadcast(index, operand) for operand in operands)),
            is_real=False,
        )

    return compute


def _least(is_real: bool, first: Any, second: Any) -> Any:
    return _choose(_is_less(is_real, first, second), first, second, is_real)


def _greatest(is_real: bool, first: Any, second: Any) -> Any:
    return _choose(_is_less(is_real, second, first), first, second, is_real)


def _clip(node: NodeProto, operands: Sequence[Any], _: Any) -> Tensor:
    value: Tensor
    value, *bounds = operands
    for form, bound in zip((_greatest, _least), bounds, strict=False):
        if bound is not None:
            value = _elementwise(form)(node, [value, bound], _)
    return value


def _absolute(is_real: bool, value: Any) -> Any:
    negative = _negate(is_real, value)
    return _choose(_is_less(is_real, value, _zero(is_real)), negative, value, is_real)


def _zero(is_real: bool) -> Any:
    return () if is_real else z3.IntVal(0)


def _sign(is_real: bool, value: Any) -> Any:
    unit = (Summand(Fraction(1)),)
    if not is_real:
        raise VerificationError("a sign of integers is not read")
    return _choose(is_negative(value), scale(unit, Fraction(-1)), unit, is_real)


ELEMENTWISE: Mapping[str, Callable[..., Tensor]] = {
    "Abs": _elementwise(_absolute),
    "Add": _elementwise(_add),
    "And": _elementwise(lambda _, a, b: z3.And(a, b)),
    "Cast": _cast,
    "Clip": _clip,
    "Div": _divide,
    "Equal": _compare(_is_equal),
    "Greater": _compare(lambda real, a, b: _is_less(real, b, a)),
    "GreaterOrEqual": _compare(lambda real, a, b: _is_less(True, b, a) if real else a >= b),
    "IsNaN": _compare(lambda real, a: z3.BoolVal(False)),
    "Less": _compare(_is_less),
    "LessOrEqual": _compare(lambda real, a, b: _is_less(True, a, b) if real else a <= b),
    "Max": _elementwise(_greatest),
    "Min": _elementwise(_least),
    "Mod": _elementwise(lambda _, a, b: a % b),
    "Mul": _elementwise(_multiply),
    "Neg": _elementwise(_negate),
    "Not": _elementwise(lambda _, a: z3.Not(a)),
    "Or": _elementwise(lambda _, a, b: z3.Or(a, b)),
    "Relu": _elementwise(lambda real, a: _greatest(real, a, _zero(real))),
    "Sign": _elementwise(_sign),
    "Sub": _elementwise(_subtract),
    "Where": _where,
}
"""Elementwise operators by name."""

"""Elementwise operators of ONNX on tensors of index sums.

A product of two sums is a sum; a quotient is read if the divisor is a number or a size.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from fractions import Fraction
from typing import Any

import z3
from onnx import NodeProto, TensorProto

from closedform.errors import VerificationError
from closedform.verify.gradients.index_sums import Access, Summand, product, restrict, scale
from closedform.verify.gradients.tensors import Tensor, broadcast, joint_shape


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


def _divide(is_real: bool, first: Any, second: Any) -> Any:
    if not is_real:
        return first / second
    (divisor,) = second
    if divisor.accesses and divisor.accesses[0].tensor == "number":
        (access,) = divisor.accesses
        return product(first, (Summand(1 / divisor.factor, (Access("1/number", access.index),)),))
    if divisor.accesses:
        raise VerificationError("a quotient by a tensor is not linear")
    return scale(first, 1 / divisor.factor)


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
    return Tensor(
        operand.shape,
        lambda index: (Summand(Fraction(1), (Access("number", (operand.at(index),)),)),),
    )


def _least(is_real: bool, first: Any, second: Any) -> Any:
    return z3.If(first < second, first, second)


def _clip(is_real: bool, value: Any, low: Any, high: Any) -> Any:
    return _least(is_real, _greatest(is_real, value, low), high)


def _greatest(is_real: bool, first: Any, second: Any) -> Any:
    return z3.If(first > second, first, second)


ELEMENTWISE: Mapping[str, Callable[..., Tensor]] = {
    "Add": _elementwise(_add),
    "And": _elementwise(lambda _, a, b: z3.And(a, b)),
    "Cast": _cast,
    "Clip": _elementwise(_clip),
    "Div": _elementwise(_divide),
    "Equal": _elementwise(lambda _, a, b: a == b, is_real=False),
    "Greater": _elementwise(lambda _, a, b: a > b, is_real=False),
    "GreaterOrEqual": _elementwise(lambda _, a, b: a >= b, is_real=False),
    "Less": _elementwise(lambda _, a, b: a < b, is_real=False),
    "LessOrEqual": _elementwise(lambda _, a, b: a <= b, is_real=False),
    "Max": _elementwise(_greatest),
    "Min": _elementwise(_least),
    "Mod": _elementwise(lambda _, a, b: a % b),
    "Mul": _elementwise(_multiply),
    "Neg": _elementwise(_negate),
    "Not": _elementwise(lambda _, a: z3.Not(a)),
    "Sub": _elementwise(_subtract),
    "Where": _where,
}
"""Elementwise operators by name."""

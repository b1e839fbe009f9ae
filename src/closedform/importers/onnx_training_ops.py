"""The optimizers of the domain ``ai.onnx.preview.training``, version 1, by their formulas.

``Adagrad``, ``Adam`` and ``Momentum`` as docs/Operators.md of onnx states them, for any number of
tensors: the learning rate, the training count, the parameters, their gradients, their states.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from typing import Any

from onnx import NodeProto

from closedform.errors import VerificationError
from closedform.importers.onnx_ops import Reader, attributes_of
from closedform.ir import DType, Op, Value

TRAINING = "ai.onnx.preview.training"
TrainingRow = Callable[[Reader, NodeProto, tuple[Value, ...]], list[Value]]


class _Formulas:
    """Arithmetic of tensors of one parameter, with the attributes of its node."""

    def __init__(self, reader: Reader, attributes: Mapping[str, Any], like: Value) -> None:
        self.reader = reader
        self.attributes = attributes
        self.dtype = like.type.dtype

    def number(self, value: float) -> Value:
        return self.reader.builder.const(value, self.dtype)

    def attribute(self, name: str) -> Value:
        """An attribute, which is a float32 whatever the dtype of the tensors."""
        value = self.reader.builder.const(self.attributes[name], DType.F32)
        return self.converted(value)

    def add(self, left: Value, right: Value) -> Value:
        return self.reader.emit(Op.ADD, left, right)

    def subtract(self, left: Value, right: Value) -> Value:
        return self.reader.emit(Op.SUB, left, right)

    def multiply(self, left: Value, right: Value) -> Value:
        return self.reader.emit(Op.MUL, left, right)

    def divide(self, left: Value, right: Value) -> Value:
        return self.reader.emit(Op.DIV, left, right)

    def root(self, operand: Value) -> Value:
        return self.reader.emit(Op.SQRT, operand)

    def converted(self, value: Value) -> Value:
        """A value in the dtype of the tensors."""
        if value.type.dtype is self.dtype:
            return value
        return self.reader.emit(Op.CAST, value, to=self.dtype)

    def is_later(self, count: Value) -> Value:
        return self.reader.emit(Op.LT, self.reader.constant(0, count), count)

    def regularized(self, param: Value, gradient: Value) -> Value:
        return self.add(self.multiply(self.attribute("norm_coefficient"), param), gradient)

    def average(self, factor: Value, state: Value, value: Value) -> Value:
        """``factor * state + (1 - factor) * value``."""
        complement = self.subtract(self.number(1), factor)
        return self.add(self.multiply(factor, state), self.multiply(complement, value))


def _parts(operands: tuple[Value, ...], kinds: int) -> list[tuple[Value, ...]]:
    """The operands of each parameter: itself, its gradient and its states."""
    tensors = operands[2:]
    if len(operands) < 2 or len(tensors) % kinds or not tensors:
        raise VerificationError(
            f"its operands must be a rate, a count and {kinds} tensors for each parameter, got "
            f"{len(operands)}"
        )
    count = len(tensors) // kinds
    # Operands come by kind: all parameters, then all gradients, then each kind of states.
    return [tensors[place::count] for place in range(count)]


def _by_kind(results: Sequence[tuple[Value, ...]]) -> list[Value]:
    """The results of all parameters: all new parameters first, then each kind of states."""
    return [value for kind in zip(*results, strict=True) for value in kind]


def _adagrad(reader: Reader, node: NodeProto, operands: tuple[Value, ...]) -> list[Value]:
    attributes = attributes_of(node, decay_factor=0.0, epsilon=1e-6, norm_coefficient=0.0)
    results = []
    for param, gradient, squares in _parts(operands, 3):
        formulas = _Formulas(reader, attributes, param)
        decay = formulas.multiply(
            formulas.converted(operands[1]), formulas.attribute("decay_factor")
        )
        rate = formulas.divide(
            formulas.converted(operands[0]), formulas.add(formulas.number(1), decay)
        )
        regularized = formulas.regularized(param, gradient)
        next_squares = formulas.add(squares, formulas.multiply(regularized, regularized))
        size = formulas.add(formulas.root(next_squares), formulas.attribute("epsilon"))
        change = formulas.divide(formulas.multiply(rate, regularized), size)
        results.append((formulas.subtract(param, change), next_squares))
    return _by_kind(results)


def _momentum(reader: Reader, node: NodeProto, operands: tuple[Value, ...]) -> list[Value]:
    # None: ONNX has no default for these.
    attributes = attributes_of(node, alpha=None, beta=None, mode=b"", norm_coefficient=None)
    mode = attributes["mode"].decode()
    if mode not in ("standard", "nesterov"):
        raise VerificationError(f"its mode must be 'standard' or 'nesterov', got {mode!r}")
    results = []
    for param, gradient, velocity in _parts(operands, 3):
        formulas = _Formulas(reader, attributes, param)
        regularized = formulas.regularized(param, gradient)
        factor = reader.emit(
            Op.WHERE,
            # "B" of the definition: beta from the second step on, 1 in the first one (T = 0).
            formulas.is_later(operands[1]),
            formulas.attribute("beta"),
            formulas.number(1),
        )
        decayed = formulas.multiply(formulas.attribute("alpha"), velocity)
        next_velocity = formulas.add(decayed, formulas.multiply(factor, regularized))
        direction = next_velocity
        if mode == "nesterov":
            # Nesterov: the gradient once more, with the decayed new velocity.
            ahead = formulas.multiply(formulas.attribute("alpha"), next_velocity)
            direction = formulas.add(regularized, ahead)
        change = formulas.multiply(formulas.converted(operands[0]), direction)
        results.append((formulas.subtract(param, change), next_velocity))
    return _by_kind(results)


def _adam(reader: Reader, node: NodeProto, operands: tuple[Value, ...]) -> list[Value]:
    attributes = attributes_of(
        node,
        alpha=0.9,
        beta=0.999,
        epsilon=1e-6,
        norm_coefficient=0.0,
        norm_coefficient_post=0.0,
    )
    results = []
    for param, gradient, average, squares in _parts(operands, 4):
        formulas = _Formulas(reader, attributes, param)
        regularized = formulas.regularized(param, gradient)
        next_average = formulas.average(formulas.attribute("alpha"), average, regularized)
        square = formulas.multiply(regularized, regularized)
        next_squares = formulas.average(formulas.attribute("beta"), squares, square)
        size = formulas.add(formulas.root(next_squares), formulas.attribute("epsilon"))
        rate = _corrected_rate(formulas, formulas.converted(operands[0]), operands[1])
        change = formulas.divide(formulas.multiply(rate, next_average), size)
        # Weight decay after the step, without the rate: not AdamW.
        shrunk = formulas.subtract(formulas.number(1), formulas.attribute("norm_coefficient_post"))
        next_param = formulas.multiply(shrunk, formulas.subtract(param, change))
        results.append((next_param, next_average, next_squares))
    return _by_kind(results)


def _corrected_rate(formulas: _Formulas, rate: Value, count: Value) -> Value:
    """The rate of Adam with the bias correction, which begins with the count of 1."""
    exponent = formulas.converted(count)
    one_minus_alpha, one_minus_beta = (
        formulas.subtract(
            formulas.number(1),
            formulas.reader.emit(Op.POW, formulas.attribute(name), exponent),
        )
        for name in ("alpha", "beta")
    )
    # The corrections are in the rate, so that epsilon is not scaled, as in section 2 of Kingma and
    # Ba.
    above = formulas.multiply(rate, formulas.root(one_minus_beta))
    corrected = formulas.divide(above, one_minus_alpha)
    return formulas.reader.emit(Op.WHERE, formulas.is_later(count), corrected, rate)


TRAINING_ROWS: Mapping[str, TrainingRow] = {
    "Adagrad": _adagrad,
    "Adam": _adam,
    "Momentum": _momentum,
}
"""The formulas of each operator."""

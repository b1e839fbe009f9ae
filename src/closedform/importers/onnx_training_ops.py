"""The optimizers of the domain ``ai.onnx.preview.training``, version 1, by their formulas.

``Adagrad``, ``Adam`` and ``Momentum`` as docs/Operators.md of onnx states them, for any number of
tensors: the learning rate, the training count, the parameters, their gradients, their states. Of
``Adagrad(R, T, X, G, H)`` with ``decay_factor=0`` the results are ``X - R*G/(sqrt(H') + epsilon)``
and ``H' = H + G*G``.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

from onnx import NodeProto

from closedform.errors import VerificationError
from closedform.importers.onnx_ops import Reader, attributes_of
from closedform.ir import DType, Op, Value

TRAINING = "ai.onnx.preview.training"
TrainingRow = Callable[[Reader, NodeProto, tuple[Value, ...]], list[Value]]


def _operator(op: Op) -> Callable[[_Number, _Number], _Number]:
    return lambda left, right: left.apply(op, right)


@dataclass(frozen=True, slots=True)
class _Number:
    """A value of a graph, with the operators of Python."""

    reader: Reader
    value: Value

    def apply(self, op: Op, *operands: _Number) -> _Number:
        """The result of an op."""
        values = (operand.value for operand in operands)
        return _Number(self.reader, self.reader.emit(op, self.value, *values))

    __add__, __sub__ = _operator(Op.ADD), _operator(Op.SUB)
    __mul__, __truediv__ = _operator(Op.MUL), _operator(Op.DIV)
    __pow__ = _operator(Op.POW)

    def root(self) -> _Number:
        return self.apply(Op.SQRT)


@dataclass(frozen=True, slots=True)
class _Step:
    """The step of one parameter.

    Attributes:
        reader: Takes the nodes.
        attributes: Those of the node of the optimizer.
        rate: The learning rate.
        count: The training count, an integer.
        tensors: The parameter, its gradient and its states.
    """

    reader: Reader
    attributes: Mapping[str, Any]
    rate: Value
    count: Value
    tensors: Sequence[Value]

    def number(self, source: Value | str | float) -> _Number:
        """A value, an attribute by its name, or a constant, in the dtype of the tensors."""
        builder, dtype = self.reader.builder, self.tensors[0].type.dtype
        if isinstance(source, str):  # an attribute is a float32, whatever the tensors are
            source = builder.const(self.attributes[source], DType.F32)
        value = source if isinstance(source, Value) else builder.const(source, dtype)
        if value.type.dtype is not dtype:
            value = self.reader.emit(Op.CAST, value, to=dtype)
        return _Number(self.reader, value)

    def numbers(self) -> tuple[_Number, ...]:
        """The parameter, the gradient with the regularization, and the states."""
        param, gradient, *states = map(self.number, self.tensors)
        return param, self.number("norm_coefficient") * param + gradient, *states

    def later(self, value: _Number, first: _Number) -> _Number:
        """A value from the second step on, another one in the first, whose count is 0."""
        is_later = self.reader.emit(Op.LT, self.reader.constant(0, self.count), self.count)
        return _Number(self.reader, is_later).apply(Op.WHERE, value, first)


def _by_param(
    formula: Callable[[_Step], tuple[_Number, ...]], states: int, **defaults: Any
) -> TrainingRow:
    """An operator that takes the step of each parameter, which has so many states."""

    def row(reader: Reader, node: NodeProto, operands: tuple[Value, ...]) -> list[Value]:
        attributes = attributes_of(node, **defaults)
        kinds, tensors = 2 + states, operands[2:]
        if len(operands) < 2 or len(tensors) % kinds or not tensors:
            raise VerificationError(
                f"its operands must be a rate, a count and {kinds} tensors for each parameter, got "
                f"{len(operands)}"
            )
        count = len(tensors) // kinds
        # Operands come by kind: all parameters, then all gradients, then each kind of states; and
        # so do the results.
        steps = (
            _Step(reader, attributes, operands[0], operands[1], tensors[place::count])
            for place in range(count)
        )
        results = list(map(formula, steps))
        return [number.value for kind in zip(*results, strict=True) for number in kind]

    return row


def _adagrad(step: _Step) -> tuple[_Number, ...]:
    param, gradient, squares = step.numbers()
    decay = step.number(1) + step.number(step.count) * step.number("decay_factor")
    next_squares = squares + gradient * gradient
    size = next_squares.root() + step.number("epsilon")
    return param - step.number(step.rate) / decay * gradient / size, next_squares


def _momentum(step: _Step) -> tuple[_Number, ...]:
    mode = step.attributes["mode"].decode()
    if mode not in ("standard", "nesterov"):
        raise VerificationError(f"its mode must be 'standard' or 'nesterov', got {mode!r}")
    param, gradient, velocity = step.numbers()
    alpha = step.number("alpha")
    # "B" of the definition: beta from the second step on, 1 in the first one (T = 0).
    factor = step.later(step.number("beta"), step.number(1))
    next_velocity = alpha * velocity + factor * gradient
    # Nesterov: the gradient once more, with the decayed new velocity.
    is_ahead = mode == "nesterov"
    direction = gradient + alpha * next_velocity if is_ahead else next_velocity
    return param - step.number(step.rate) * direction, next_velocity


def _adam(step: _Step) -> tuple[_Number, ...]:
    param, gradient, average, squares = step.numbers()
    alpha, beta, unit = step.number("alpha"), step.number("beta"), step.number(1)
    next_average = alpha * average + (unit - alpha) * gradient
    next_squares = beta * squares + (unit - beta) * (gradient * gradient)
    # The bias corrections are in the rate, so that epsilon is not scaled, as in section 2 of
    # Kingma and Ba; they begin with the count of 1.
    rate, count = step.number(step.rate), step.number(step.count)
    corrected = rate * (unit - beta**count).root() / (unit - alpha**count)
    size = next_squares.root() + step.number("epsilon")
    change = step.later(corrected, rate) * next_average / size
    # Weight decay after the step, without the rate: not AdamW.
    shrunk = unit - step.number("norm_coefficient_post")
    return shrunk * (param - change), next_average, next_squares


_COMMON = {"epsilon": 1e-6, "norm_coefficient": 0.0}
TRAINING_ROWS: Mapping[str, TrainingRow] = {
    "Adagrad": _by_param(_adagrad, 1, decay_factor=0.0, **_COMMON),
    "Adam": _by_param(_adam, 2, alpha=0.9, beta=0.999, norm_coefficient_post=0.0, **_COMMON),
    # None: ONNX has no default for these.
    "Momentum": _by_param(_momentum, 1, alpha=None, beta=None, mode=b"", norm_coefficient=None),
}
"""The formulas of each operator."""

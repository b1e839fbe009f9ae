"""Files that are what they were over the real numbers, and overflow in floats where it is hidden.

Each edit puts a few nodes before an operand: a number that overflows for ordinary inputs, and an
operation that makes a number of its infinity or NaN again. Over the real numbers they are the
operand; an engine computes another value, from which nothing shows that a value has overflowed.
"""

from collections.abc import Callable, Mapping
from typing import Any

import numpy as np
from onnx import TensorProto, helper

from closedform.effort import Effort
from closedform.referee.judgement import judge_step
from tests.referee import foreign
from tests.test_library import POSITIVE
from tests.verify.tampered import RULES, Edit, Subject, subject_of_rule, subjects
from tests.verify.tampered_values import Insertion, edit_with

LARGE: Mapping[int, float] = {TensorProto.FLOAT: 1e30, TensorProto.DOUBLE: 1e200}
"""By element type: a number whose square overflows, and whose inverse is not subnormal."""


def _size(made: Insertion) -> str:
    """A number of at least 1 and of the size of the operand."""
    return made.call("Add", made.call("Abs", made.operand), made.number(1))


def _large(made: Insertion) -> str:
    return made.number(LARGE[made.kind])


# --- what overflows ------------------------------------------------------------------------------


def _exponential(made: Insertion) -> str:
    return made.call("Exp", made.call("Add", _size(made), made.number(1000)))


def _power(made: Insertion) -> str:
    base = made.call("Add", _size(made), made.number(10))
    return made.call("Pow", base, made.number(1000))


def _product(made: Insertion) -> str:
    return made.call("Mul", made.call("Mul", _size(made), _large(made)), _large(made))


def _quotient(made: Insertion) -> str:
    small = made.call("Reciprocal", _large(made))
    divisor = made.call("Mul", small, made.call("Div", small, _size(made)))
    return made.call("Div", made.number(1), divisor)


def _square(made: Insertion) -> str:
    root = made.call("Mul", _size(made), _large(made))
    return made.call("Mul", root, root)


OVERFLOWS: Mapping[str, Callable[[Insertion], str]] = {
    "an exponential": _exponential,
    "a power": _power,
    "a product": _product,
    "a quotient": _quotient,
    "a square": _square,
}


# --- what hides it -------------------------------------------------------------------------------


def _restored(made: Insertion) -> str:
    """``|x| + 1``, by way of a number that overflows."""
    above = _product(made)
    small = made.call("Reciprocal", _large(made))
    return made.call("Mul", made.call("Mul", above, small), small)


def _below(made: Insertion, value: str) -> str:
    """The operand where a value is below ``|x| + 2``, as it is over the real numbers."""
    limit = made.call("Add", _size(made), made.number(1))
    return made.choose(made.call("Less", value, limit), otherwise=made.other())


def _nan(made: Insertion, value: str) -> str:
    difference = made.call("Sub", value, value)
    return made.choose(made.call("IsNaN", difference), then=made.other())


def _equal(made: Insertion, value: str) -> str:
    quotient = made.call("Div", value, value)
    return made.choose(made.call("Equal", quotient, made.number(1)), otherwise=made.other())


def _order(made: Insertion, value: str) -> str:
    twice = made.call("Mul", value, made.number(2))
    return made.choose(made.call("Less", value, twice), otherwise=made.other())


def _truth(made: Insertion, value: str) -> str:
    truth = made.cast(made.call("Sub", value, value), TensorProto.BOOL)
    return made.choose(truth, then=made.other())


def _inverse(made: Insertion, _: str) -> str:
    inverse = made.call("Reciprocal", _product(made))
    restored = made.call("Mul", made.call("Mul", inverse, _large(made)), _large(made))
    return made.call("Mul", made.call("Mul", restored, _size(made)), made.operand)


def _negative_power(made: Insertion, _: str) -> str:
    inverse = made.call("Pow", _product(made), made.number(-1))
    restored = made.call("Mul", made.call("Mul", inverse, _large(made)), _large(made))
    return made.call("Mul", made.call("Mul", restored, _size(made)), made.operand)


def _minimum(made: Insertion, _: str) -> str:
    return _below(made, made.call("Min", _restored(made), _large(made)))


def _maximum(made: Insertion, _: str) -> str:
    return _below(made, made.call("Max", _restored(made), made.number(0)))


def _clip(made: Insertion, _: str) -> str:
    return _below(made, made.call("Clip", _restored(made), made.number(0), _large(made)))


def _least(made: Insertion, _: str) -> str:
    """The smaller one of the operand and a number above it."""
    above = made.call("Sub", _restored(made), _size(made))
    return made.call("Add", made.operand, made.call("Min", above, made.number(5)))


def _no_exponential(made: Insertion, _: str) -> str:
    decay = made.call("Exp", made.call("Neg", _restored(made)))
    limit = made.call("Exp", made.call("Neg", made.call("Add", _size(made), made.number(1))))
    return made.choose(made.call("Less", limit, decay), otherwise=made.other())


def _sigmoid(made: Insertion, _: str) -> str:
    half = made.call("Sigmoid", made.call("Sub", _restored(made), _size(made)))
    return made.call("Mul", made.operand, made.call("Mul", made.number(2), half))


def _tangent(made: Insertion, _: str) -> str:
    zero = made.call("Tanh", made.call("Sub", _restored(made), _size(made)))
    return made.call("Add", made.operand, zero)


def _integer(made: Insertion, _: str) -> str:
    whole = made.cast(made.cast(_restored(made), TensorProto.INT64))
    is_positive = made.call("LessOrEqual", made.number(0), whole)
    return made.choose(is_positive, otherwise=made.other())


def _infinity(made: Insertion, value: str) -> str:
    return made.choose(made.call("IsInf", value), then=made.other())


def _equal_infinities(made: Insertion, value: str) -> str:
    """Two different numbers, both above the largest float."""
    other_value = made.call("Mul", value, made.number(3))
    return made.choose(made.call("Equal", value, other_value), then=made.other())


HIDERS: Mapping[str, Callable[[Insertion, str], str]] = {
    "IsNaN": _nan,
    "Equal to 1": _equal,
    "Less": _order,
    "a cast to a truth": _truth,
    "Reciprocal": _inverse,
    "Pow": _negative_power,
    "Min": _minimum,
    "Min of a number above": _least,
    "Max": _maximum,
    "Clip": _clip,
    "Exp": _no_exponential,
    "Sigmoid": _sigmoid,
    "Tanh": _tangent,
    "a cast to an integer": _integer,
    "IsInf": _infinity,
    "Equal": _equal_infinities,
}


def float_edit(overflow: str, hider: str) -> Edit:
    """The edit that puts a number that overflows, and what hides it, before an operand."""

    def value(made: Insertion) -> str:
        return HIDERS[hider](made, OVERFLOWS[overflow](made))

    return edit_with(f"{overflow} behind {hider}", value)


FLOAT_EDITS: tuple[Edit, ...] = tuple(
    float_edit(overflow, hider) for overflow in OVERFLOWS for hider in HIDERS
)


# --- the files -----------------------------------------------------------------------------------


def subject_of_foreign(name: str) -> Subject:
    """The step of another tool, in float32, against the rule that was traced from its source."""
    step = foreign.load(name)
    draw = np.random.default_rng(5)
    inputs: list[dict[str, Any]] = []
    for size in (1.0, 1e-3, 30.0):
        values: dict[str, Any] = {"step": np.asarray(0)}
        for value in step.model.graph.input:
            text = step.ports["inputs"][value.name]
            dtype = helper.tensor_dtype_to_np_dtype(value.type.tensor_type.elem_type)
            shape = [dim.dim_value for dim in value.type.tensor_type.shape.dim]
            numbers = size * draw.normal(size=shape)
            is_positive = POSITIVE.search(text) or text.endswith("nu") or "sum" in text
            number = np.abs(numbers) if is_positive or not shape else numbers
            tensor = np.full(shape, 3) if dtype.kind == "i" else number
            values[value.name] = tensor.astype(dtype)
        inputs.append(values)
    return Subject(
        f"{name} of optax",
        step.model,
        lambda model: (
            judge_step(model, step.rule, ports=step.ports, effort=Effort.of(300_000)).verdict
        ),
        inputs,
    )


def float_subjects() -> dict[str, Callable[[], Subject]]:
    """Files of schedules and of rules, in float64 and float32, and of another tool."""
    makers = subjects()
    for name in RULES:
        makers[f"{name} in 32 bits"] = lambda n=name: subject_of_rule(n, is_flat=True, dtype="f32")  # type: ignore[misc]
    for name in foreign.names():
        makers[f"{name} of optax"] = lambda n=name: subject_of_foreign(n)  # type: ignore[misc]
    return makers

"""Control flow among the primitives of JAX: branches are selected, loops unrolled."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

import numpy as np
import sympy as sp

from closedform.errors import TraceError
from closedform.importers.optax.elementwise import ELEMENTWISE, choose_case
from closedform.importers.optax.interpreter import (
    MOST_ROUNDS,
    Interpreter,
    Known,
    PrimitiveRule,
    as_operand,
    small_array,
)
from closedform.importers.optax.jaxprs import Equation
from closedform.importers.optax.structure import STRUCTURE, sizes, stacked_arrays
from closedform.importers.tensors.values import Sizes, Value


def _cond(run: Interpreter, equation: Equation, index: Known, *operands: Known) -> list[Known]:
    """All branches are computed: they are pure, and the language selects."""
    branches = equation.params["branches"]
    selector = as_operand(index)[()]
    if isinstance(selector, sp.Integer):
        place = min(max(int(selector), 0), len(branches) - 1)
        return run.run(branches[place], operands)  # type: ignore[return-value]
    if selector in (sp.true, sp.false):
        return run.run(branches[int(bool(selector))], operands)  # type: ignore[return-value]
    results = [run.run(branch, operands) for branch in branches]
    case = Value(selector)
    return [
        values[0]
        if all(_is_same(value, values[0]) for value in values)
        else choose_case(run, case, values)
        for values in zip(*results, strict=True)
    ]


def _is_same(a: Known | None, b: Known | None) -> bool:
    if isinstance(a, Value) or isinstance(b, Value):
        return a is b or (isinstance(a, Value) and isinstance(b, Value) and a == b)
    return a is b


def _scan(run: Interpreter, equation: Equation, *operands: Known) -> list[Known]:
    params = equation.params
    consts, carries, length = params["num_consts"], params["num_carry"], params["length"]
    if length > MOST_ROUNDS:
        raise TraceError(f"a loop of {length} rounds has more than {MOST_ROUNDS}")
    carry = list(operands[consts : consts + carries])
    rows: list[list[Known]] = []
    order = range(length)[::-1] if params["reverse"] else range(length)
    for round_ in order:
        slices = [
            _row(x, sizes(equation, consts + carries + place), round_)
            for place, x in enumerate(operands[consts + carries :])
        ]
        results = run.run(params["jaxpr"], [*operands[:consts], *carry, *slices])
        carry = results[:carries]  # type: ignore[assignment]
        rows.append(results[carries:])  # type: ignore[arg-type]
    if params["reverse"]:
        rows.reverse()
    return [*carry, *(stacked_arrays(list(column)) for column in zip(*rows, strict=True))]


def _row(x: Known, shape: Sizes, place: int) -> Known:
    if isinstance(x, np.ndarray):
        return small_array(np.asarray(x[place], dtype=object))
    if x.shape == () or len(x.shape) < len(shape):
        return x
    raise TraceError("a loop over an axis of a tensor has no expression")


def _while(run: Interpreter, equation: Equation, *operands: Known) -> list[Known]:
    params = equation.params
    first, second = params["cond_nconsts"], params["body_nconsts"]
    of_condition, of_body = operands[:first], operands[first : first + second]
    carry: list[Any] = list(operands[first + second :])
    for _ in range(MOST_ROUNDS):
        (holds,) = run.run(params["cond_jaxpr"], [*of_condition, *carry])
        truth = None if holds is None else as_operand(holds)[()]
        if truth == sp.false:
            return carry
        if truth != sp.true:
            raise TraceError(
                "the number of rounds of a loop depends on the step or on data",
                hint="a loop that ends when a number is small enough has no expression",
            )
        carry = run.run(params["body_jaxpr"], [*of_body, *carry])
    raise TraceError(f"a loop has more than {MOST_ROUNDS} rounds")


RULES: Mapping[str, PrimitiveRule] = {
    **ELEMENTWISE, **STRUCTURE, "cond": _cond, "scan": _scan, "while": _while
}  # fmt: skip
"""The rule of each primitive; calls of other jaxprs are interpreted where they are."""

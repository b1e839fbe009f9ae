"""Schedules to graphs: the four steps of the lowering in a row."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from fractions import Fraction

import numpy as np
import sympy as sp

from closedform.errors import LoweringError, nearest
from closedform.ir.graph import Builder, Graph, Role, Value
from closedform.ir.ops import Op
from closedform.ir.types import DType, Shape, TensorType
from closedform.language.schedule import Schedule
from closedform.language.settled import substitute
from closedform.lowering.analysis.domain import INFINITY, LAST_STEP, Domain, Interval, clock_domain
from closedform.lowering.context import Lowering
from closedform.lowering.double_float.lower import lower_rounded
from closedform.lowering.guard import guard
from closedform.lowering.lower import RULES
from closedform.lowering.simplify import simplify
from closedform.lowering.stable import stable
from closedform.options import GraphOptions, Precision


def prepare(expr: sp.Expr, domain: Domain, place: str, scalar_dtype: DType = DType.F64) -> sp.Expr:
    """Returns ``expr`` in the vocabulary of the lowering, every operand safe at every step."""
    largest = float(np.finfo(scalar_dtype.numpy).max)
    return guard(stable(simplify(expr, domain, place), domain, largest), domain, place)


def hyper_interval(symbol: sp.Symbol) -> Interval:
    """Returns the interval that the assumptions on a hyperparameter declare."""
    low = Fraction(0) if symbol.is_nonnegative else -INFINITY
    if symbol.is_positive and symbol.is_integer:
        low = Fraction(1)
    return Interval(low, INFINITY, is_nonzero=bool(symbol.is_positive))


def declare_hypers(
    builder: Builder, symbols: Iterable[sp.Symbol], integer: DType, scalar: DType
) -> dict[sp.Symbol, Value]:
    """Adds a scalar input for each hyperparameter symbol."""
    return {
        symbol: builder.input(
            symbol.name, TensorType(integer if symbol.is_integer else scalar), Role.HYPER
        )
        for symbol in symbols
    }


def lower_schedule(schedule: Schedule, options: GraphOptions) -> Graph:
    """Returns the graph ``step, hyperparameters -> value`` of a schedule, not yet optimised."""
    place = f"schedule {schedule.name!r}"
    step_dtype, scalar_dtype = options.step_dtype, options.scalar_dtype
    open_symbols = _inputs(schedule, options.inputs, place)
    domain = clock_domain(
        {symbol: hyper_interval(symbol) for symbol in open_symbols}, last=LAST_STEP[step_dtype]
    )
    expr = prepare(_bound_but(schedule, open_symbols), domain, place, scalar_dtype)

    builder = Builder(_identifier(schedule.name))
    step = builder.input("step", TensorType(step_dtype, options.step_shape), Role.STEP)
    symbols = declare_hypers(builder, open_symbols, step_dtype, scalar_dtype)
    low = Lowering(RULES, builder, step, place, scalar=scalar_dtype, symbols=symbols)
    if options.precision is Precision.DOUBLE_FLOAT:
        value = lower_rounded(low, expr, domain)
    elif expr.is_number:
        value = low.constant(expr, options.value_dtype)
    else:
        value = low.cast(low.real(expr, domain), options.value_dtype)
    builder.output("value", _with_shape(low, value, options.step_shape))
    return builder.build()


def _bound_but(schedule: Schedule, open_symbols: Sequence[sp.Symbol]) -> sp.Expr:
    """The expression with every known hyperparameter but those replaced by its value."""
    if not open_symbols:
        return schedule.bound
    numbers = schedule.hyperparameters
    symbols = schedule.expr.free_symbols - set(open_symbols)
    return substitute(schedule.expr, {s: numbers[s.name] for s in symbols if s.name in numbers})


def _inputs(schedule: Schedule, names: tuple[str, ...], place: str) -> tuple[sp.Symbol, ...]:
    symbols = {symbol.name: symbol for symbol in schedule.expr.free_symbols if symbol.name != "t"}
    for name in names:
        if name not in symbols:
            raise LoweringError(
                f"{name!r} is not a hyperparameter of the schedule",
                where=place,
                hint=nearest(name, symbols) if symbols else "it has none",
            )
    missing = [symbol.name for symbol in schedule.open if symbol.name not in names]
    if missing:
        raise LoweringError(
            f"the symbol {missing[0]} has no value",
            where=place,
            hint=f"bind({missing[0]}=…), or name it among the inputs of the graph",
        )
    return tuple(symbols[name] for name in sorted(names))


def _with_shape(low: Lowering, value: Value, shape: Shape) -> Value:
    """A value of the step's shape, also where the schedule does not depend on the step."""
    if value.type.shape == shape:
        return value
    is_step = low.emit(Op.EQ, low.step, low.step)
    return low.emit(Op.WHERE, is_step, value, value)


def _identifier(name: str) -> str:
    identifier = "".join(char if char.isalnum() or char == "_" else "_" for char in name)
    return identifier if identifier and not identifier[0].isdigit() else f"_{identifier}"

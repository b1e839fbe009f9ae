"""Update rules to graphs: one step of every parameter, and the states before the first one.

Hyperparameter symbols stay symbols while an expression is simplified and guarded (their numbers are
points of the domain), so that SymPy does not regroup the arithmetic on tensors. Each scalar
subexpression is then bound to its exact numbers and lowered by itself, in the scalar dtype, and
rounded once where it meets a tensor. A schedule is lowered once and shared.
"""

from __future__ import annotations

from collections.abc import Mapping

import sympy as sp

from closedform.errors import LoweringError
from closedform.ir.graph import Builder, Graph, Role, Value
from closedform.ir.ops import Op
from closedform.ir.types import DType, Shape, TensorType
from closedform.language.schedule import Schedule
from closedform.language.symbols import GRAD, PARAM, state
from closedform.language.update_rule import UpdateRule
from closedform.lowering.annotate import interval
from closedform.lowering.context import Lowering
from closedform.lowering.domain import LAST_STEP, Domain, clock_domain
from closedform.lowering.guard import guard
from closedform.lowering.lower import RULES
from closedform.lowering.schedule import declare_hypers, hyper_interval, prepare
from closedform.lowering.simplify import simplify


def lower_step(
    rule: UpdateRule,
    params: Mapping[str, Shape],
    *,
    dtype: DType,
    scalar_dtype: DType,
    step_dtype: DType,
) -> Graph:
    """Returns the graph of one step, not yet optimised.

    Inputs ``step``, open hyperparameters, then ``param.<name>``, ``grad.<name>`` and
    ``state.<name>.<state>`` for each parameter; outputs ``next.step`` and the same names with
    ``next.`` before them.
    """
    builder = Builder(rule.name)
    step = builder.input("step", TensorType(step_dtype), Role.STEP)
    symbols, numbers, domain = _hyperparameters(rule, builder, step, scalar_dtype)
    one = builder.const(1, step_dtype)
    builder.output("next.step", builder.emit(Op.ADD, step, one))
    tensors = (PARAM, *(state(name) for name in rule.states), GRAD)
    place = f"rule {rule.name!r}"

    points = {symbol: interval(number, Domain()) for symbol, number in numbers.items()}
    domain = Domain({**domain.bounds, **points})
    prepared = {
        label: guard(
            simplify(expr, domain, f"{place}, next value of {label!r}"),
            domain,
            f"{place}, next value of {label!r}",
            tensors=frozenset(tensors),
            numbers=numbers,
        )
        for label, expr in rule.expressions().items()
    }

    def bind(expr: sp.Expr, inside: Domain) -> sp.Expr:
        return simplify(expr.xreplace(numbers), inside, place)

    scalars: dict[tuple[sp.Basic, Domain], Value] = {}
    for name, shape in params.items():
        low = Lowering(
            RULES,
            builder,
            step,
            f"{place}, parameter {name!r}",
            scalar=scalar_dtype,
            tensor=dtype,
            symbols={**symbols, **_tensor_inputs(rule, builder, name, shape, dtype)},
            tensors=tensors,
            prepare=bind,
            scalars=scalars,
        )
        for label, expr in prepared.items():
            value = low.tensor_value(expr, domain)
            is_scalar = label != "param" and rule.states[label].shape == "scalar"
            output = f"param.{name}" if label == "param" else f"state.{name}.{label}"
            wanted = () if is_scalar else shape
            builder.output(f"next.{output}", _shaped(low, value, wanted, f"{label!r} of {name!r}"))
    return builder.build()


def lower_init(rule: UpdateRule, params: Mapping[str, Shape], *, dtype: DType) -> Graph:
    """Returns the graph of the states before the first step.

    Inputs ``param.<name>`` where a state starts from the parameter; outputs ``step`` (0) and
    ``state.<name>.<state>``.
    """
    builder = Builder(f"{rule.name}_init")
    builder.output("step", builder.const(0, DType.I64))
    starts_from_param = any(spec.initial == PARAM for spec in rule.states.values())
    for name, shape in params.items():
        param = None
        if starts_from_param:
            param = builder.input(f"param.{name}", TensorType(dtype, shape), Role.PARAM)
        for label, spec in rule.states.items():
            wanted = shape if spec.shape == "param" else ()
            if spec.initial == PARAM and param is not None:
                builder.output(f"state.{name}.{label}", param)
                continue
            fill = builder.const(float(spec.initial), dtype)
            value = builder.emit(Op.BROADCAST_TO, fill, shape=wanted) if wanted else fill
            builder.output(f"state.{name}.{label}", value)
    return builder.build()


def _hyperparameters(
    rule: UpdateRule, builder: Builder, step: Value, scalar: DType
) -> tuple[dict[sp.Symbol, Value], dict[sp.Symbol, sp.Expr], Domain]:
    """Values of open and scheduled symbols, numbers of the others, and what is known of them."""
    expressions = rule.expressions().values()
    used = {s.name: s for expr in expressions for s in expr.free_symbols}
    numbers: dict[sp.Symbol, sp.Expr] = {}
    symbols: dict[sp.Symbol, Value] = {}
    intervals = {}
    for name, value in rule.hyperparameters.items():
        symbol = used.get(name)
        if symbol is None:
            continue
        if value is None:
            symbols |= declare_hypers(builder, (symbol,), step.type.dtype, scalar)
            intervals[symbol] = hyper_interval(symbol)
        elif isinstance(value, Schedule):
            expr, symbols[symbol] = _scheduled(value, builder, step, scalar, rule.name)
            intervals[symbol] = interval(expr, clock_domain(last=LAST_STEP[step.type.dtype]))
        else:
            numbers[symbol] = value
    return symbols, numbers, clock_domain(intervals, last=LAST_STEP[step.type.dtype])


def _scheduled(
    schedule: Schedule, builder: Builder, step: Value, scalar: DType, rule: str
) -> tuple[sp.Expr, Value]:
    place = f"schedule {schedule.name!r} in rule {rule!r}"
    if schedule.open:
        raise LoweringError(
            f"the symbol {schedule.open[0]} has no value", where=place, hint="bind it first"
        )
    domain = clock_domain(last=LAST_STEP[step.type.dtype])
    expr = prepare(schedule.bound, domain, place)
    return expr, Lowering(RULES, builder, step, place, scalar=scalar).real(expr, domain)


def _tensor_inputs(
    rule: UpdateRule, builder: Builder, name: str, shape: Shape, dtype: DType
) -> dict[sp.Symbol, Value]:
    full = TensorType(dtype, shape)
    values = {
        PARAM: builder.input(f"param.{name}", full, Role.PARAM),
        GRAD: builder.input(f"grad.{name}", full, Role.GRAD),
    }
    for label, spec in rule.states.items():
        type_ = full if spec.shape == "param" else TensorType(dtype)
        values[state(label)] = builder.input(f"state.{name}.{label}", type_, Role.STATE)
    return values


def _shaped(low: Lowering, value: Value, shape: Shape, what: str) -> Value:
    """A value broadcast to the shape of the tensor that it replaces."""
    if value.type.shape == shape:
        return value
    if value.type.rank > len(shape):
        raise low.error(f"the next value of {what} has type {value.type}, expected shape {shape}")
    return low.builder.emit(Op.BROADCAST_TO, value, shape=shape)

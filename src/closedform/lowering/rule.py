"""Update rules to graphs: one step of every parameter, and the states before the first one.

Hyperparameter symbols stay symbols while an expression is simplified and guarded (their numbers are
points of the domain), so that SymPy does not regroup the arithmetic on tensors. Each scalar
subexpression is then bound to its exact numbers and lowered by itself, in the scalar dtype, and
rounded once where it meets a tensor. A schedule is lowered once and shared. A rule is prepared once
and lowered once for each shape; parameters of one rule and shape share the graph.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass

import numpy as np
import sympy as sp

from closedform.errors import LoweringError
from closedform.ir.graph import Builder, Graph, Role, Value
from closedform.ir.ops import Op
from closedform.ir.program import GRAD as GRAD_NAME
from closedform.ir.program import NEXT, STATE, Call, Program, flatten
from closedform.ir.program import PARAM as PARAM_NAME
from closedform.ir.types import DType, Shape, TensorType
from closedform.language.schedule import Schedule
from closedform.language.shapes import EPSILON
from closedform.language.symbols import GRAD, PARAM, local, state
from closedform.language.update_rule import UpdateRule
from closedform.lowering.annotate import interval
from closedform.lowering.body import BodyLowering
from closedform.lowering.context import Lowering
from closedform.lowering.domain import LAST_STEP, Domain, clock_domain
from closedform.lowering.guard import guard
from closedform.lowering.lower import RULES
from closedform.lowering.schedule import declare_hypers, hyper_interval, prepare
from closedform.lowering.simplify import simplify


@dataclass(frozen=True, slots=True)
class RuleFor:
    """A rule and the parameters that take it, with their shapes by name."""

    rule: UpdateRule
    params: Mapping[str, Shape]


@dataclass(frozen=True, slots=True)
class _Prepared:
    """A rule of one static structure, simplified and guarded.

    Attributes:
        rule: The rule, resolved for a shape.
        definitions: Its definitions that depend on tensors, in order.
        results: The next value of the parameter ("param") and of each state.
        tensors: The symbols of tensors, in the order in which sums are folded.
    """

    rule: UpdateRule
    definitions: Mapping[str, sp.Expr]
    results: Mapping[str, sp.Expr]
    tensors: tuple[sp.Symbol, ...]


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
    members = [RuleFor(rule, params)]
    return flatten(
        lower_program(
            rule.name, members, dtype=dtype, scalar_dtype=scalar_dtype, step_dtype=step_dtype
        )
    )


def lower_program(
    name: str,
    members: Sequence[RuleFor],
    *,
    dtype: DType,
    scalar_dtype: DType,
    step_dtype: DType,
) -> Program:
    """Returns one step of a model whose parameters take one rule or several, not yet optimised.

    An open hyperparameter of one name is one input, whichever rules have it.
    """
    builder = Builder(name)
    step = builder.input("step", TensorType(step_dtype), Role.STEP)
    builder.output("next.step", builder.emit(Op.ADD, step, builder.const(1, step_dtype)))
    inputs: dict[str, Value] = {}
    names: dict[Value, str] = {}
    bodies: dict[Graph, int] = {}
    calls: list[Call] = []
    for member in members:
        lowering = _RuleLowering(member.rule, builder, step, inputs, dtype, scalar_dtype)
        known: dict[Shape, tuple[Graph, tuple[Value, ...]]] = {}
        for param, shape in member.params.items():
            if shape not in known:
                known[shape] = lowering.body(param, shape)
            body, scalars = known[shape]
            place = bodies.setdefault(body, len(bodies))
            taken = tuple(names.setdefault(value, f"scalar.{len(names)}") for value in scalars)
            calls.append(Call(param, place, taken))
    for value, label in names.items():
        builder.output(label, value)
    return Program(name, builder.build(), tuple(bodies), tuple(calls))


class _RuleLowering:
    """Lowers one rule for parameters of any shapes, its scalars into one graph.

    Args:
        rule: The rule.
        builder: The graph of scalars.
        step: The clock in it.
        inputs: Its open hyperparameters by name, shared by all rules.
        dtype: Dtype of tensors.
        scalar: Dtype of scalars.
    """

    def __init__(
        self,
        rule: UpdateRule,
        builder: Builder,
        step: Value,
        inputs: dict[str, Value],
        dtype: DType,
        scalar: DType,
    ) -> None:
        self.rule = rule
        self.step = step
        self.dtype = dtype
        self.scalar = scalar
        self.place = f"rule {rule.name!r}"
        symbols, self.numbers, domain = _hyperparameters(rule, builder, step, scalar, inputs)
        self.numbers[EPSILON] = sp.Rational(float(np.finfo(dtype.numpy).eps))
        points = {symbol: interval(number, Domain()) for symbol, number in self.numbers.items()}
        self.domain = Domain({**domain.bounds, **points})
        self.outer = Lowering(
            RULES,
            builder,
            step,
            self.place,
            scalar=scalar,
            tensor=dtype,
            symbols=symbols,
            prepare=self._bind,
        )
        self._prepared: dict[tuple[object, ...], _Prepared] = {}

    def _bind(self, expr: sp.Expr, inside: Domain) -> sp.Expr:
        return simplify(expr.xreplace(self.numbers), inside, self.place)

    def prepared(self, rule: UpdateRule) -> _Prepared:
        """Returns a resolved rule, simplified and guarded; rules that are equal share it."""
        key = (*rule.definitions.items(), *rule.expressions().items())
        if key not in self._prepared:
            self._prepared[key] = self._prepare(rule)
        return self._prepared[key]

    def _prepare(self, rule: UpdateRule) -> _Prepared:
        tensors = [PARAM, *(state(name) for name in rule.states), GRAD]
        scalars: dict[sp.Symbol, sp.Expr] = {}
        definitions: dict[str, sp.Expr] = {}
        for name, given in rule.definitions.items():
            expr = given.xreplace(scalars)
            if expr.free_symbols.isdisjoint(tensors):
                scalars[local(name)] = expr
                continue
            definitions[name] = expr
            tensors.append(local(name))

        def ready(label: str, expr: sp.Expr) -> sp.Expr:
            place = f"{self.place}, {label}"
            simple = simplify(expr.xreplace(scalars), self.domain, place)
            known = frozenset(tensors)
            return guard(simple, self.domain, place, tensors=known, numbers=self.numbers)

        return _Prepared(
            rule,
            {name: ready(f"definition {name!r}", expr) for name, expr in definitions.items()},
            {
                label: ready(f"next value of {label!r}", expr)
                for label, expr in rule.expressions().items()
            },
            tuple(tensors),
        )

    def body(self, param: str, shape: Shape) -> tuple[Graph, tuple[Value, ...]]:
        """Returns the step of a parameter of this shape, and the outer scalars that it takes."""
        ready = self.prepared(self.rule.for_shape(shape, param))
        builder = Builder(self.rule.name)
        low = BodyLowering(
            self.outer,
            RULES,
            builder,
            self.step,
            f"{self.place}, parameter {param!r}",
            scalar=self.scalar,
            tensor=self.dtype,
            symbols=_tensor_inputs(ready.rule, builder, shape, self.dtype),
            tensors=ready.tensors,
        )
        for name, expr in ready.definitions.items():
            low.define(local(name), low.tensor_value(expr, self.domain))
        for label, expr in ready.results.items():
            value = low.tensor_value(expr, self.domain)
            is_param = label == "param"
            wanted = shape if is_param else ready.rule.state_shape(label, shape)
            output = PARAM_NAME if is_param else f"{STATE}{label}"
            shaped = _shaped(low, value, wanted, f"{label!r} of {param!r}")
            builder.output(f"{NEXT}{output}", shaped)
        return builder.build(), tuple(low.taken)


def lower_init(name: str, members: Sequence[RuleFor], *, dtype: DType) -> Graph:
    """Returns the graph of the states before the first step.

    Inputs ``param.<name>`` where a state starts from the parameter; outputs ``step`` (0) and
    ``state.<name>.<state>``.
    """
    builder = Builder(f"{name}_init")
    builder.output("step", builder.const(0, DType.I64))
    for member in members:
        for param, shape in member.params.items():
            _start(builder, member.rule.for_shape(shape, param), param, shape, dtype)
    return builder.build()


def _start(builder: Builder, rule: UpdateRule, param: str, shape: Shape, dtype: DType) -> None:
    """Adds the states of one parameter to the graph of the start."""
    given = None
    if any(spec.initial == PARAM for spec in rule.states.values()):
        given = builder.input(f"param.{param}", TensorType(dtype, shape), Role.PARAM)
    for label, spec in rule.states.items():
        wanted = rule.state_shape(label, shape)
        if spec.initial == PARAM and given is not None:
            builder.output(f"state.{param}.{label}", given)
            continue
        fill = builder.const(float(spec.initial), dtype)
        value = builder.emit(Op.BROADCAST_TO, fill, shape=wanted) if wanted else fill
        builder.output(f"state.{param}.{label}", value)


def _hyperparameters(
    rule: UpdateRule, builder: Builder, step: Value, scalar: DType, inputs: dict[str, Value]
) -> tuple[dict[sp.Symbol, Value], dict[sp.Symbol, sp.Expr], Domain]:
    """Values of open and scheduled symbols, numbers of the others, and what is known of them."""
    expressions = (*rule.expressions().values(), *rule.definitions.values())
    used = {s.name: s for expr in expressions for s in expr.free_symbols}
    numbers: dict[sp.Symbol, sp.Expr] = {}
    symbols: dict[sp.Symbol, Value] = {}
    intervals = {}
    for name, value in rule.hyperparameters.items():
        symbol = used.get(name)
        if symbol is None:
            continue
        if value is None:
            if name not in inputs:
                made = declare_hypers(builder, (symbol,), step.type.dtype, scalar)
                inputs[name] = made[symbol]
            symbols[symbol] = inputs[name]
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
    rule: UpdateRule, builder: Builder, shape: Shape, dtype: DType
) -> dict[sp.Symbol, Value]:
    full = TensorType(dtype, shape)
    values = {
        PARAM: builder.input(PARAM_NAME, full, Role.PARAM),
        GRAD: builder.input(GRAD_NAME, full, Role.GRAD),
    }
    for label in rule.states:
        type_ = TensorType(dtype, rule.state_shape(label, shape))
        values[state(label)] = builder.input(f"{STATE}{label}", type_, Role.STATE)
    return values


def _shaped(low: Lowering, value: Value, shape: Shape, what: str) -> Value:
    """A value broadcast to the shape of the tensor that it replaces."""
    if value.type.shape == shape:
        return value
    if value.type.rank > len(shape):
        raise low.error(f"the next value of {what} has type {value.type}, expected shape {shape}")
    return low.builder.emit(Op.BROADCAST_TO, value, shape=shape)

"""Update rules to graphs: one step of every parameter, and the states before the first one.

Hyperparameter symbols stay symbols while an expression is simplified and guarded (their numbers are
points of the domain), because SymPy would regroup the arithmetic on tensors otherwise. Each scalar
subexpression is then bound to its exact numbers and lowered by itself, in the scalar dtype, and
rounded once where it meets a tensor. A schedule is lowered once and shared. A rule is prepared once
and lowered once for each shape; parameters of one rule and shape share the graph.

The step of one tensor takes the scalars, which are computed outside, as inputs (`Body`).
"""

from __future__ import annotations

import math
from collections.abc import Callable, Mapping
from dataclasses import dataclass, replace
from fractions import Fraction
from typing import Any

import numpy as np
import sympy as sp

from closedform.errors import LoweringError
from closedform.ir import naming
from closedform.ir.graph import Builder, Graph, Role, Value
from closedform.ir.ops import Op
from closedform.ir.types import DType, Shape, TensorType
from closedform.language.functions import WHOLE_TENSOR
from closedform.language.model import tensor_input
from closedform.language.schedule import Schedule
from closedform.language.settled import Substitution
from closedform.language.shapes import EPSILON
from closedform.language.symbols import GRAD, PARAM, local, state
from closedform.language.update_rule import State, UpdateRule
from closedform.lowering.analysis.annotate import interval
from closedform.lowering.analysis.domain import ALL, LAST_STEP, Domain, Interval, clock_domain
from closedform.lowering.arithmetic import lower_integer
from closedform.lowering.context import Lowering, Prepare
from closedform.lowering.double_float.scalars import PairLowering
from closedform.lowering.guard import guard
from closedform.lowering.lower import RULES
from closedform.lowering.schedule import declare_hypers, hyper_interval, prepare
from closedform.lowering.simplify import simplify
from closedform.lowering.stable import stable
from closedform.lowering.sums import sum_symbol
from closedform.options import GraphOptions, Precision


class BodyLowering(Lowering):
    """A graph of one tensor under construction.

    Invariant: nothing that depends only on the clock and hyperparameters is computed in it. Such
    a value is lowered by ``outer``; a constant is repeated here, another becomes an input.

    Args:
        outer: The lowering of scalars.
        size_of: Returns a named size as a scalar of it; None if there is no such input.
        *args: Those of ``Lowering``; the clock is that of ``outer`` and is not a node here.
        **options: Those of ``Lowering``.
    """

    def __init__(
        self,
        outer: Lowering,
        *args: Any,
        size_of: Callable[[str], Value] | None = None,
        **options: Any,
    ) -> None:
        super().__init__(*args, **options)
        self.outer = outer
        self._size_of = size_of
        self.taken: dict[Value, Value] = {}

    def define(self, symbol: sp.Symbol, value: Value) -> None:
        """Gives a symbol its value."""
        self.symbols[symbol] = value

    def clock(self) -> Value:
        """Returns the clock as an input."""
        return self._from_outside(self.outer.step)

    def real(self, expr: sp.Expr, domain: Domain) -> Value:
        """Lowers an expression to a float value; a scalar one outside."""
        if self.is_tensor(expr):
            return super().real(expr, domain)
        prepared_expr = expr if self.outer.prepare is None else self.outer.prepare(expr, domain)
        return self._from_outside(self.outer.real(prepared_expr, domain))

    def tensor_value(self, expr: sp.Expr, domain: Domain) -> Value:
        """Lowers an expression to the tensor dtype; a scalar one outside, rounded once."""
        if self.is_tensor(expr):
            return super().real(expr, domain)
        return self._from_outside(self.outer.tensor_value(expr, domain))

    def condition(self, condition: sp.Basic, domain: Domain) -> Value:
        """Lowers a condition; a scalar one outside."""
        if self.is_tensor(condition):
            return super().condition(condition, domain)
        return self._from_outside(self.outer.condition(condition, domain))

    def element_count(self, shape: Shape) -> Value | None:
        """Returns the product of sizes, at least 1; None if one is named and no input.

        The product is computed outside and rounded once to the tensor dtype.
        """
        names = [size for size in shape if isinstance(size, str)]
        if not names:
            return super().element_count(shape)
        if self._size_of is None:
            return None
        known_sizes = self.outer.constant(
            sp.Integer(math.prod(size for size in shape if isinstance(size, int)))
        )
        count = self.outer.fold(Op.MUL, [known_sizes, *map(self._size_of, names)])
        # The mean of no elements is 0 / 1.
        count = self.outer.emit(Op.MAX, count, self.outer.constant(sp.Integer(1)))
        return self._from_outside(self.outer.cast(count, self.tensor))

    def _from_outside(self, value: Value) -> Value:
        node = self.outer.builder.node(value)
        if node.op is Op.CONST:
            return self.builder.const(node.array(), node.type.dtype)
        if value not in self.taken:
            name = naming.scalar(len(self.taken))
            self.taken[value] = self.builder.input(name, node.type, Role.HYPER)
        return self.taken[value]


Body = tuple[Graph, tuple[Value, ...]]
"""A graph of one tensor, and the outer scalars that it takes."""

# Half of the integers: counters may be added to without an overflow.
COUNTED = {dtype: Interval(Fraction(0), Fraction(last // 2)) for dtype, last in LAST_STEP.items()}


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


class RuleLowering:
    """Lowers one rule for parameters of any shapes, its scalars into one graph.

    Args:
        rule: The rule.
        builder: The graph of scalars.
        step: The clock in it.
        inputs: Its open hyperparameters by name, shared by all rules.
        options: The dtypes of tensors and scalars, and the precision of scalars.
        size_of: Returns a named size as a scalar; None if a graph has no input for it.
    """

    def __init__(
        self,
        rule: UpdateRule,
        builder: Builder,
        step: Value,
        inputs: dict[str, Value],
        options: GraphOptions,
        size_of: Callable[[str], Value] | None = None,
    ) -> None:
        self.rule = rule
        self.size_of = size_of
        self.dtype = dtype = options.tensor_dtype
        self.scalar = options.scalar_dtype
        self.stored = dtype if rule.stored is None else DType(rule.stored)
        self.place = f"rule {rule.name!r}"
        self.outer = _scalars(builder, step, self.place, options, self._bind)
        self.numbers, domain = _hyperparameters(rule, self.outer, inputs)
        self.numbers[EPSILON] = sp.Rational(float(np.finfo(dtype.numpy).eps))
        self._with_numbers = Substitution(self.numbers)
        names = [symbol.name for expr in rule.all_expressions() for symbol in expr.free_symbols]
        totals = {sum_symbol(name) for name in names if name.startswith(naming.TOTAL)}
        # Totals and states of the model are data, as tensors are: their values are not known.
        self.data = frozenset(totals | set(rule.shared_symbols.values()))
        # Numbers as points of the domain, not substituted: SymPy would distribute 0.9 * (a + b).
        points = {symbol: interval(number, Domain()) for symbol, number in self.numbers.items()}
        self.domain = Domain({**domain.bounds, **points})
        self._prepared: dict[tuple[object, ...], _Prepared] = {}

    def _bind(self, expr: sp.Expr, inside: Domain) -> sp.Expr:
        simple = simplify(self._with_numbers(expr), inside, self.place)
        return stable(simple, inside, float(np.finfo(self.scalar.numpy).max))

    def _ready(self, label: str, expr: sp.Basic, tensors: frozenset[sp.Symbol]) -> sp.Basic:
        place = f"{self.place}, {label}"
        simple = simplify(expr, self.domain, place)
        tensor_symbols = tensors | self.data
        return guard(simple, self.domain, place, tensors=tensor_symbols, numbers=self.numbers)

    def scalar_value(self, label: str, expr: sp.Basic, *, is_integer: bool = False) -> Value:
        """Returns a value computed once for the model, in the scalar dtype or that of the step."""
        ready = self._bind(self._ready(label, expr, frozenset()), self.domain)
        if is_integer:
            return lower_integer(self.outer, ready, self.domain)
        return self.outer.cast(self.outer.real(ready, self.domain), self.scalar)

    def condition(self, label: str, condition: sp.Basic) -> Value:
        """Returns a condition on scalars."""
        ready = self._ready(label, condition, frozenset())
        return self.outer.condition(ready, self.domain)

    def _prepared_rule(self, rule: UpdateRule) -> _Prepared:
        """Returns a resolved rule, simplified and guarded; rules that are equal share it."""
        # Most shapes resolve to equal expressions: hundreds of parameters are simplified once.
        key = (*rule.definitions.items(), *rule.expressions().items())
        if key not in self._prepared:
            self._prepared[key] = self._prepare(rule)
        return self._prepared[key]

    def _prepare(self, rule: UpdateRule) -> _Prepared:
        inputs = map(tensor_input, rule.inputs)
        tensors = [PARAM, *(state(name) for name in rule.states), GRAD, *inputs]
        scalars: dict[sp.Symbol, sp.Expr] = {}
        definitions: dict[str, sp.Expr] = {}
        for name, definition in rule.definitions.items():
            expr = definition.xreplace(scalars)
            if expr.free_symbols.isdisjoint(tensors) and not expr.has(*WHOLE_TENSOR):
                scalars[local(name)] = expr
                continue
            definitions[name] = expr
            tensors.append(local(name))

        tensor_symbols = frozenset(tensors)

        def ready(label: str, expr: sp.Expr) -> sp.Expr:
            return self._ready(label, expr.xreplace(scalars), tensor_symbols)

        return _Prepared(
            rule,
            {name: ready(f"definition {name!r}", expr) for name, expr in definitions.items()},
            {
                label: ready(f"next value of {label!r}", expr)
                for label, expr in rule.expressions().items()
            },
            tuple(tensors),
        )

    def step(self, param: str, shape: Shape) -> Body:
        """Returns the step of a parameter of this shape."""
        ready, low = self._begin(self.rule.for_shape(shape, param), param, shape)
        for label, expr in ready.results.items():
            value = low.tensor_value(expr, self.domain)
            is_param = label == "param"
            target_shape = shape if is_param else ready.rule.state_shape(label, shape)
            output = naming.BODY_PARAM if is_param else f"{naming.STATE}{label}"
            output_value = _broadcast_to_shape(low, value, target_shape, f"{label!r} of {param!r}")
            state_dtype = None if is_param else _state_dtype(ready.rule.states[label], self.dtype)
            output_value = _store(low, output_value, state_dtype or self.stored)
            low.builder.output(naming.following(output), output_value)
        return low.builder.build(), tuple(low.taken)

    def parts(self, param: str, shape: Shape) -> Body:
        """Returns the terms that a parameter adds to the sums that are the rule's definitions."""
        ready, low = self._begin(self.rule.for_shape(shape, param), param, shape, is_sparing=True)
        for name in ready.rule.definitions:
            if name.startswith(naming.TOTAL):
                definition = ready.rule.definitions[name]
                if name in ready.definitions:
                    element = low.symbol(local(name))
                elif definition.is_number:  # its sum counts elements
                    element = _fill_shape(low, low.tensor_value(definition, self.domain), shape)
                else:
                    raise low.error(f"global_sum({definition}) sums no tensor")
                value = _broadcast_to_shape(low, element, shape, name)
                axes = tuple(range(len(shape)))
                part = low.builder.emit(Op.REDUCE_SUM, value, axes=axes, keepdims=False)
                low.builder.output(name, low.cast(part, self.scalar))
        return low.builder.build(), tuple(low.taken)

    def point(self, param: str, shape: Shape) -> Body:
        """Returns the parameter of a rule for the point of evaluation."""
        ready, low = self._begin(self.rule.for_shape(shape, param), param, shape, is_sparing=True)
        value = low.tensor_value(ready.results["param"], self.domain)
        output_value = _broadcast_to_shape(low, value, shape, f"evaluation of {param!r}")
        low.builder.output(naming.BODY_EVALUATION, low.cast(output_value, self.stored))
        return low.builder.build(), tuple(low.taken)

    def _begin(
        self, rule: UpdateRule, param: str, shape: Shape, *, is_sparing: bool = False
    ) -> tuple[_Prepared, BodyLowering]:
        """Starts the graph of a parameter; a sparing one has no inputs that it does not need."""
        ready = self._prepared_rule(rule)
        builder = Builder(self.rule.name)
        needed_symbols = None
        if is_sparing:
            expressions = [*ready.definitions.values(), ready.results["param"]]
            needed_symbols = {symbol for expr in expressions for symbol in expr.free_symbols}
            definitions = ready.rule.definitions.items()
            if any(name.startswith(naming.TOTAL) and expr.is_number for name, expr in definitions):
                needed_symbols.add(PARAM)  # a sum that counts elements has their shape from it
        low = BodyLowering(
            self.outer,
            RULES,
            builder,
            self.outer.step,
            f"{self.place}, parameter {param!r}",
            scalar=self.scalar,
            tensor=self.dtype,
            symbols=_tensor_inputs(
                ready.rule, builder, shape, self.dtype, self.stored, needed_symbols
            ),
            tensors=ready.tensors,
            parameter=shape,
            size_of=self.size_of,
        )
        for name, expr in ready.definitions.items():
            low.define(local(name), low.tensor_value(expr, self.domain))
        return ready, low


def _scalars(
    builder: Builder, step: Value, place: str, options: GraphOptions, prepare: Prepare
) -> Lowering:
    """A lowering of scalars, in pairs of float32 where the options ask for them."""
    tensor = options.tensor_dtype
    if options.precision is Precision.DOUBLE_FLOAT:
        return PairLowering(builder, step, place, tensor=tensor, prepare=prepare)
    scalar = options.scalar_dtype
    return Lowering(RULES, builder, step, place, scalar=scalar, tensor=tensor, prepare=prepare)


def _hyperparameters(
    rule: UpdateRule, low: Lowering, inputs: dict[str, Value]
) -> tuple[dict[sp.Symbol, sp.Expr], Domain]:
    """Gives open and scheduled symbols their values; returns other numbers, and the domain."""
    symbols = {s.name: s for expr in rule.all_expressions() for s in expr.free_symbols}
    numbers: dict[sp.Symbol, sp.Expr] = {}
    intervals = {}
    clock = clock_domain(last=LAST_STEP[low.integer])
    for name, value in rule.hyperparameters.items():
        symbol = symbols.get(name)
        if symbol is None:
            continue
        if value is None:
            if name not in inputs:
                declared_inputs = declare_hypers(low.builder, (symbol,), low.integer, low.scalar)
                inputs[name] = declared_inputs[symbol]
            least, most = rule.ranges.get(name, (-sp.oo, sp.oo))
            low.symbols[symbol] = _clamp_to_range(low, inputs[name], least, most)
            intervals[symbol] = _intersection(hyper_interval(symbol), least, most)
        elif isinstance(value, Schedule):
            place = f"schedule {value.name!r} in rule {rule.name!r}"
            expr = _prepare_schedule(value, clock, place, low.scalar)
            low.adopt(symbol, expr, clock, place)
            intervals[symbol] = interval(expr, clock)
        else:
            numbers[symbol] = value
    for name, symbol in rule.shared_symbols.items():
        low.symbols[symbol] = inputs[naming.shared(name)]
        intervals[symbol] = COUNTED[low.integer] if symbol.is_integer else ALL
    return numbers, clock_domain(intervals, last=LAST_STEP[low.integer])


def _clamp_to_range(low: Lowering, value: Value, least: sp.Expr, most: sp.Expr) -> Value:
    """The value, or the nearest one in the range; its bounds are rounded inwards."""
    for op, bound, inwards in ((Op.MAX, least, np.inf), (Op.MIN, most, -np.inf)):
        if bound.is_finite:
            number = value.type.dtype.numpy.type(float(bound))
            if (Fraction(float(number)) - Fraction(bound)) * (1 if op is Op.MAX else -1) < 0:
                number = np.nextafter(number, number.dtype.type(inwards))
            value = low.builder.emit(op, low.builder.const(number, value.type.dtype), value)
    return value


def _intersection(values: Interval, least: sp.Expr, most: sp.Expr) -> Interval:
    """The values that are in the range."""
    if least.is_finite:
        values = replace(values, low=max(values.low, Fraction(least)))
    return replace(values, high=min(values.high, Fraction(most))) if most.is_finite else values


def _prepare_schedule(schedule: Schedule, clock: Domain, place: str, scalar: DType) -> sp.Expr:
    """The expression of a schedule, prepared."""
    if schedule.open:
        raise LoweringError(
            f"the symbol {schedule.open[0]} has no value", where=place, hint="bind it first"
        )
    return prepare(schedule.bound, clock, place, scalar)


def _state_dtype(spec: State, dtype: DType) -> DType:
    """The dtype of a state between steps."""
    return dtype if spec.stored is None else DType(spec.stored)


def _store(low: BodyLowering, value: Value, dtype: DType) -> Value:
    """A value in the dtype that it is stored in; what does not fit i8 is its nearest integer."""
    if dtype is not DType.I8:
        return low.cast(value, dtype)
    least, most = (low.builder.const(bound, value.type.dtype) for bound in (-128.0, 127.0))
    # Comparisons and not a maximum: NaN, too, becomes an integer.
    fits = low.emit(Op.AND, low.emit(Op.LT, least, value), low.emit(Op.LT, value, most))
    nearest = low.emit(Op.WHERE, low.emit(Op.LE, value, least), least, most)
    inside = low.emit(Op.WHERE, fits, value, nearest)
    return low.cast(low.cast(inside, DType.I32), dtype)


def _tensor_inputs(
    rule: UpdateRule,
    builder: Builder,
    shape: Shape,
    dtype: DType,
    storage_dtype: DType,
    needed_symbols: set[sp.Symbol] | None,
) -> dict[sp.Symbol, Value]:
    """The tensors of a body in the dtype that is computed in, whatever they are stored in."""
    tensor_type = TensorType(storage_dtype, shape)
    ports = {
        PARAM: (naming.BODY_PARAM, tensor_type, Role.PARAM),
        GRAD: (naming.BODY_GRAD, tensor_type, Role.GRAD),
    }
    for label, spec in rule.states.items():
        type_ = TensorType(_state_dtype(spec, dtype), rule.state_shape(label, shape))
        ports[state(label)] = (f"{naming.STATE}{label}", type_, Role.STATE)
    for name in rule.inputs:
        ports[tensor_input(name)] = (f"{naming.INPUT}{name}", tensor_type, Role.GRAD)
    values = {}
    for symbol, port in ports.items():
        if needed_symbols is None or symbol in needed_symbols:
            values[symbol] = builder.emit(Op.CAST, builder.input(*port), to=dtype)
    return values


def _fill_shape(low: Lowering, number: Value, shape: Shape) -> Value:
    """A number in a shape of which a size is not known: a choice that makes no difference."""
    if all(isinstance(size, int) for size in shape):
        return number
    param = low.symbol(PARAM)
    return low.builder.emit(Op.WHERE, low.builder.emit(Op.LE, param, param), number, number)


def _broadcast_to_shape(low: Lowering, value: Value, shape: Shape, name: str) -> Value:
    """A value broadcast to the shape of the tensor that it replaces."""
    if value.type.shape == shape:
        return value
    if value.type.rank > len(shape):
        raise low.error(f"the next value of {name} has type {value.type}, expected shape {shape}")
    return low.builder.emit(Op.BROADCAST_TO, value, shape=shape)

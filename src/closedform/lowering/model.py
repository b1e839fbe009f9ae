"""Models to programs: rules for named parameters become graphs of scalars and of single tensors."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from typing import Any

import sympy as sp

from closedform.errors import LoweringError
from closedform.ir import naming
from closedform.ir.graph import Builder, Graph, Role, Value
from closedform.ir.ops import Op
from closedform.ir.program import Call, Program, SumStage
from closedform.ir.types import DType, Shape, TensorType
from closedform.language.groups import Assignment
from closedform.language.symbols import PARAM
from closedform.language.update_rule import UpdateRule
from closedform.lowering.rule import Body, RuleLowering
from closedform.lowering.sums import SumTable, evaluation_rule, parts_rule
from closedform.options import GraphOptions


def lower_program(
    name: str,
    assignments: Sequence[Assignment],
    options: GraphOptions,
    *,
    takes_sizes: bool = False,
) -> Program:
    """Returns one step of a model whose parameters take one rule or several, not yet optimised.

    The scalar graph takes ``step``, the open hyperparameters and the states of the whole model; one
    of one name is one input, whichever rules have it. A sum is over the parameters of the rules
    that have it. With ``takes_sizes``, a named size that a mean divides by is an input of it, too.
    """
    table = SumTable()
    parts_of_rules = [
        (*table.name_sums(assignment.rule), assignment.params) for assignment in assignments
    ]
    stages = []
    totals: list[str] = []
    for level in table.levels:
        stage = _Part(name, options, assignments, totals, takes_sizes=takes_sizes)
        for rule, parts, params in parts_of_rules:
            here = {key: expr for key, expr in parts.items() if key in level}
            if here:
                lowering = stage.lowering(parts_rule(rule, here))
                stage.add(params, lowering.parts)
        stages.append(SumStage(*stage.finish()))
        totals.extend(level)
    part = _Part(name, options, assignments, totals, takes_sizes=takes_sizes)
    following = part.builder.emit(Op.ADD, part.step, part.builder.const(1, options.step_dtype))
    lowerings = [(part.lowering(rule), params) for rule, _, params in parts_of_rules]
    _clock(part, following, [lowering for lowering, _ in lowerings])
    _add_shared_states(part, [lowering for lowering, _ in lowerings])
    for lowering, params in lowerings:
        part.add(params, lowering.step)
    return Program(name, *part.finish(), tuple(stages))


def lower_evaluation(
    name: str, assignments: Sequence[Assignment], options: GraphOptions
) -> Program:
    """Returns the point at which a model is evaluated after a step: ``evaluation.<parameter>``.

    The step is the number of steps done, as after the last one.
    """
    part = _Part(name, options, assignments, ())
    for assignment in assignments:
        part.add(assignment.params, part.lowering(evaluation_rule(assignment.rule)).point)
    return Program(name, *part.finish())


class _Part:
    """A graph of scalars and the graphs of tensors that take them, under construction."""

    def __init__(
        self,
        name: str,
        options: GraphOptions,
        assignments: Sequence[Assignment],
        totals: Sequence[str],
        *,
        takes_sizes: bool = False,
    ) -> None:
        self.options = options
        self.takes_sizes = takes_sizes
        self.builder = Builder(name)
        self.step = self.builder.input("step", TensorType(options.step_dtype), Role.STEP)
        self.inputs: dict[str, Value] = {}
        for assignment in assignments:
            for key, spec in assignment.rule.shared.items():
                self._declare(naming.shared(key), Role.STATE, is_counter=spec.is_counter)
        for key in totals:
            self._declare(key, Role.HYPER)
        self._names: dict[Value, str] = {}
        self._bodies: dict[Graph, int] = {}
        self._calls: list[Call] = []

    def _declare(self, name: str, role: Role, *, is_counter: bool = False) -> None:
        if name not in self.inputs:
            options = self.options
            type_ = TensorType(options.step_dtype if is_counter else options.scalar_dtype)
            self.inputs[name] = self.builder.input(name, type_, role)

    def lowering(self, rule: UpdateRule) -> RuleLowering:
        """Returns the lowering of a rule into this part."""
        declare = self._declared_size if self.takes_sizes else None
        return RuleLowering(rule, self.builder, self.step, self.inputs, self.options, declare)

    def _declared_size(self, name: str) -> Value:
        self._declare(naming.size(name), Role.HYPER)
        return self.inputs[naming.size(name)]

    def add(self, params: Mapping[str, Shape], lower: Callable[[str, Shape], Body]) -> None:
        """Adds a call for each parameter; parameters of one shape share the body."""
        bodies: dict[Shape, Body] = {}
        for param, shape in params.items():
            if shape not in bodies:
                bodies[shape] = lower(param, shape)
            body, scalars = bodies[shape]
            # Equal graphs are equal values: rules that lower alike share a body.
            place = self._bodies.setdefault(body, len(self._bodies))
            scalar_names = tuple(
                self._names.setdefault(v, naming.scalar(len(self._names))) for v in scalars
            )
            self._calls.append(Call(param, place, scalar_names))

    def finish(self) -> tuple[Graph, tuple[Graph, ...], tuple[Call, ...]]:
        """Returns the graph of scalars, the bodies and the calls."""
        for value, label in self._names.items():
            self.builder.output(label, value)
        return self.builder.build(), tuple(self._bodies), tuple(self._calls)


def _clock(part: _Part, following: Value, lowerings: Sequence[RuleLowering]) -> None:
    """Adds the next step: the following one, where the rules let the clock go on."""
    label = "the condition of the clock"
    conditional = [lowering for lowering in lowerings if lowering.rule.advances != sp.true]
    _check_agreement(
        label, [(rule_lowering, rule_lowering.rule.advances) for rule_lowering in conditional]
    )
    if conditional:
        goes_on = conditional[0].condition(label, conditional[0].rule.advances)
        following = part.builder.emit(Op.WHERE, goes_on, following, part.step)
    part.builder.output(naming.following(naming.STEP), following)


def _add_shared_states(part: _Part, lowerings: Sequence[RuleLowering]) -> None:
    """Adds the next values of the states of the model."""
    owners: dict[str, list[RuleLowering]] = {}
    for lowering in lowerings:
        for name in lowering.rule.shared:
            owners.setdefault(name, []).append(lowering)
    for name, having in owners.items():
        label = f"next value of {name!r}"
        _check_agreement(label, [(member, member.rule.shared[name]) for member in having])
        spec = having[0].rule.shared[name]
        value = having[0].scalar_value(label, spec.next, is_integer=spec.is_counter)
        part.builder.output(naming.following(naming.shared(name)), value)


def _check_agreement(label: str, statements: Sequence[tuple[RuleLowering, Any]]) -> None:
    """Raises if the rules of a model have different formulas for a value of the whole model."""
    if len(statements) == 1:
        return
    keys = []
    for lowering, value in statements:
        expr = value if isinstance(value, sp.Basic) else value.next
        start = () if isinstance(value, sp.Basic) else (value.initial, value.is_counter)
        # With numbers: two rules may write one value by different names.
        keys.append((expr.xreplace(lowering.numbers), *start))
    for (lowering, _), key in zip(statements, keys, strict=True):
        if key != keys[0]:
            raise LoweringError(
                f"the rules of a model must agree on {label}, got {keys[0][0]} and {key[0]}",
                where=f"rules {statements[0][0].rule.name!r} and {lowering.rule.name!r}",
                hint="give both the same hyperparameters there",
            )


def lower_init(name: str, assignments: Sequence[Assignment], options: GraphOptions) -> Graph:
    """Returns the graph of the states before the first step.

    Inputs ``param.<name>`` where a state starts from the parameter; outputs ``step`` (0),
    ``shared.<state>`` and ``state.<name>.<state>``.
    """
    builder = Builder(f"{name}_init")
    builder.output("step", builder.const(0, options.step_dtype))
    common = {
        key: spec for assignment in assignments for key, spec in assignment.rule.shared.items()
    }
    for key, spec in common.items():
        dtype = options.step_dtype if spec.is_counter else options.scalar_dtype
        initial = int(spec.initial) if spec.is_counter else float(spec.initial)
        builder.output(naming.shared(key), builder.const(initial, dtype))
    for assignment in assignments:
        for param, shape in assignment.params.items():
            _start(builder, assignment.rule, param, shape, options.tensor_dtype)
    return builder.build()


def _start(builder: Builder, rule: UpdateRule, param: str, shape: Shape, dtype: DType) -> None:
    """Adds the states of one parameter to the graph of the start."""
    param_value, states = None, rule.states_for(shape, param)
    if any(spec.initial == PARAM for spec in states.values()):
        stored_dtype = dtype if rule.stored is None else DType(rule.stored)
        param_value = builder.input(
            naming.param(param), TensorType(stored_dtype, shape), Role.PARAM
        )
        param_value = builder.emit(Op.CAST, param_value, to=dtype)
    for label, spec in states.items():
        state_shape = rule.state_shape(label, shape)
        state_dtype = dtype if spec.stored is None else DType(spec.stored)
        if spec.initial == PARAM and param_value is not None:
            first = builder.emit(Op.CAST, param_value, to=state_dtype)
            builder.output(naming.state(param, label), first)
            continue
        fill = builder.const(float(spec.initial), state_dtype)
        value = builder.emit(Op.BROADCAST_TO, fill, shape=state_shape) if state_shape else fill
        builder.output(naming.state(param, label), value)

"""The terms that the graph of a step must compute: one for each output of an update rule.

The graph is read elementwise (``from_graph``): the symbols in the terms of a parameter are single
elements of its tensors, named as the inputs of the graph. Functions of whole tensors are as in
``tensor_functions``, with the shapes of the rule's own expressions.

A sum over all parameters is the sum of their contributions, or a symbol where one is given.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, field, replace
from functools import cached_property

import sympy as sp

from closedform.ir import DType, Graph, Shape, naming
from closedform.ir.types import COMPUTED_FLOATS
from closedform.language import PARAM, UpdateRule, state
from closedform.language.model import GlobalSum
from closedform.language.symbols import t
from closedform.verify.terms import build, sympy_io
from closedform.verify.terms import tensor_functions as functions
from closedform.verify.terms.tree import Term
from closedform.verify.translation.rule_reading import (
    Kinds,
    RuleReading,
    SumKey,
    is_integer_state,
    stored_value,
    sum_key,
)


@dataclass(frozen=True, slots=True)
class Wanted:
    """The required value of an output.

    Attributes:
        name: The name of the output.
        param: The parameter that it belongs to, or "".
        term: Its value.
        shape: Its shape; None where any will do.
        is_counter: Whether it is an integer or a float; None where either will do.
    """

    name: str
    param: str
    term: Term
    shape: Shape | None
    is_counter: bool | None = None


@dataclass(frozen=True)
class Model:
    """Rules and the parameters that take them.

    Attributes:
        members: Each rule with the shapes of its parameters by name.
        kinds: The dtypes of the computation.
        sums: The terms of sums over all parameters that have one.
    """

    members: Sequence[tuple[UpdateRule, Mapping[str, Shape]]]
    kinds: Kinds
    sums: dict[SumKey, Term] = field(default_factory=dict)

    def __post_init__(self) -> None:
        # As the exporter lowers them.
        members = [(rule.clamped(), params) for rule, params in self.members]
        object.__setattr__(self, "members", members)

    @cached_property
    def rules(self) -> dict[str, UpdateRule]:
        """The rule of each parameter."""
        return {param: rule for rule, params in self.members for param in params}

    @cached_property
    def shapes(self) -> dict[str, Shape]:
        """The shape of each parameter."""
        return {param: shape for _, params in self.members for param, shape in params.items()}

    @cached_property
    def _readings(self) -> dict[str, RuleReading]:
        return {}

    def reading(self, param: str) -> RuleReading:
        """Returns the reader of the expressions of a parameter's rule."""
        if param not in self._readings:
            self._readings[param] = self._reading(self.rules[param], param)
        return self._readings[param]

    def _reading(self, rule: UpdateRule, param: str = "") -> RuleReading:
        return RuleReading(rule, self.kinds, self.total, param, self.shapes.get(param, ()))

    def sum_keys(self, rule: UpdateRule) -> dict[SumKey, None]:
        """Returns the sums over all parameters that a rule takes, inner ones first."""
        totals = {total for expr in rule.all_expressions() for total in expr.atoms(GlobalSum)}
        sorted_totals = sorted(
            totals, key=lambda total: (_depth(total), sp.default_sort_key(total))
        )
        return dict.fromkeys(sum_key(rule, total) for total in sorted_totals)

    def members_of(self, key: SumKey) -> list[str]:
        """Returns the parameters that add to a sum."""
        return [
            param for rule, params in self.members if key in self.sum_keys(rule) for param in params
        ]

    def part(self, key: SumKey, param: str) -> Term:
        """Returns a parameter's summand."""
        shape = self.shapes[param]
        reading = self._reading(_adding(self.rules[param], key), param)
        operand = reading.read(reading.rule.param)
        axes = range(len(shape))
        return functions.reduce_axes(functions.REDUCE_SUM, operand, shape, axes, keepdims=False)

    def total(self, key: SumKey) -> Term:
        """Returns a sum over all parameters."""
        if key not in self.sums:
            self.sums[key] = build.add(*(self.part(key, member) for member in self.members_of(key)))
        return self.sums[key]

    def step(self) -> Wanted:
        """Returns the next step."""
        step_rules = [rule for rule, _ in self.members if rule.advances != sp.true]
        following = build.add(sympy_io.term(t), build.ONE)
        if step_rules:
            reading = self._reading(step_rules[0])
            goes_on = reading.read(reading.rule.advances)
            following = build.ite(goes_on, following, sympy_io.term(t))
        return Wanted(naming.following(naming.STEP), "", following, (), is_counter=True)

    def shared_states(self) -> Iterator[Wanted]:
        """Yields the next states of the whole model."""
        yielded_names: set[str] = set()
        for rule, _ in self.members:
            for name in rule.shared:
                if name not in yielded_names:
                    yielded_names.add(name)
                    reading = self._reading(rule)
                    spec = reading.rule.shared[name]
                    output = naming.following(naming.shared(name))
                    value = reading.read(spec.next)
                    yield Wanted(output, "", value, (), is_counter=spec.is_counter)

    def of(self, param: str) -> Iterator[Wanted]:
        """Yields the next value of a parameter and of its states."""
        reading = self.reading(param)
        for label, expr in reading.rule.expressions().items():
            value = reading.read(expr)
            is_param = label == "param"
            spec = reading.rule if is_param else reading.rule.states[label]
            value = stored_value(value, spec.stored)
            name = naming.param(param) if is_param else naming.state(param, label)
            shape = reading.shape if is_param else reading.rule.state_shape(label, reading.shape)
            is_integer = not is_param and is_integer_state(reading.rule.states[label])
            yield Wanted(naming.following(name), param, value, shape, is_counter=is_integer)

    def common(self) -> Iterator[Wanted]:
        """Yields the outputs of a step that belong to no parameter."""
        yield self.step()
        yield from self.shared_states()

    def outputs(self) -> Iterator[Wanted]:
        """Yields every output of a step."""
        yield from self.common()
        for param in self.shapes:
            yield from self.of(param)

    def point(self, param: str) -> Iterator[Wanted]:
        """Yields the point of evaluation of a parameter."""
        reading = self.reading(param)
        point = reading.rule.evaluation
        value = reading.read(PARAM if point is None else point)
        value = stored_value(value, reading.rule.stored)
        yield Wanted(naming.evaluation(param), param, value, reading.shape, is_counter=False)

    def first(self) -> Iterator[Wanted]:
        """Yields the first step and the first states of the whole model."""
        yield Wanted("step", "", build.ZERO, (), is_counter=True)
        shared_specs = {
            # In reverse, so that the first rule with a name counts, as in ``shared_states``.
            name: spec
            for rule, _ in self.members[::-1]
            for name, spec in rule.shared.items()
        }
        for name, spec in shared_specs.items():
            value = sympy_io.term(spec.initial)
            yield Wanted(naming.shared(name), "", value, (), is_counter=spec.is_counter)

    def start(self, param: str) -> Iterator[Wanted]:
        """Yields the first states of a parameter."""
        shape = self.shapes[param]
        rule = self.rules[param].for_shape(shape, param)
        for label, spec in rule.states.items():
            is_param = spec.initial == PARAM
            value = build.symbol(naming.param(param)) if is_param else sympy_io.term(spec.initial)
            value = stored_value(value, spec.stored)
            name, state_shape = naming.state(param, label), rule.state_shape(label, shape)
            yield Wanted(name, param, value, state_shape, is_counter=is_integer_state(spec))


def _adding(rule: UpdateRule, key: SumKey) -> UpdateRule:
    """The rule whose parameter becomes its summand; its states stay as they are."""
    expr, definitions = key[0], dict(key[1])
    names = {
        symbol.name
        for expression in (expr, *definitions.values())
        for symbol in expression.free_symbols
    }
    return replace(
        rule,
        param=expr,
        states={name: replace(spec, next=state(name)) for name, spec in rule.states.items()},
        definitions=definitions,
        hyperparameters={k: value for k, value in rule.hyperparameters.items() if k in names},
        shared={
            name: replace(spec, next=rule.shared_symbols[name])
            for name, spec in rule.shared.items()
        },
        advances=sp.true,
        evaluation=None,
    )


def _depth(total: GlobalSum) -> int:
    return max((_depth(inner) for inner in total.args[0].atoms(GlobalSum)), default=0) + 1


def model_of(rule: UpdateRule, graph: Graph) -> Model:
    """Returns the model with the parameters of the graph of a step, all of one rule.

    It is computed in the dtypes of the graph's inputs.
    """
    types = {node.attribute("name"): node.type for node in graph.inputs}
    prefix = f"{naming.BODY_PARAM}."
    shapes = {
        name.removeprefix(prefix): type_.shape
        for name, type_ in types.items()
        if name.startswith(prefix)
    }
    dtypes = [type_.dtype for name, type_ in types.items() if name.startswith(prefix)]
    tensor = next((dtype for dtype in dtypes if dtype in COMPUTED_FLOATS), DType.F32)
    has_wide = any(node.type.dtype is DType.F64 for node in graph.nodes)
    return Model([(rule, shapes)], Kinds(tensor, DType.F64 if has_wide else DType.F32))

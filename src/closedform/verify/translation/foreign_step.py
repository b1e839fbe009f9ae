"""Whether the step of a file that another tool wrote is that of a rule.

The file has ports (``onnx_ports``), and states of other names than the rule. A renaming says what
each of its states is: a state of the rule, a count of steps (``t``, or ``t + 1`` where it begins
with 1), or a constant that no step changes. It is proposed by names and by the exact values of a
few steps, which decide nothing: with the renaming in place each output of the file is proved to be
what the rule makes of it (``validate_outputs``), for all tensors and all steps. Then the file makes
the steps of the rule from the states on that are the rule's before the first step.

``step_runs`` proposes the renaming, and refutes.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from fractions import Fraction

import numpy as np
import sympy as sp
from sympy.core.sympify import _sympify

from closedform.effort import Effort
from closedform.errors import VerificationError
from closedform.importers.onnx_ports import Port, PortKind, Ports
from closedform.ir import DType, Graph, Role, Shape, TensorType, naming, ranges
from closedform.ir.graph import Builder, Node, Value, with_outputs
from closedform.ir.ops import Op
from closedform.language import UpdateRule
from closedform.language.model import NonFinite
from closedform.language.symbols import t
from closedform.verify.terms import build
from closedform.verify.terms.sympy_io import term
from closedform.verify.terms.tree import symbols
from closedform.verify.terms.verdict import Status, Verdict
from closedform.verify.translation.rule_reading import Kinds
from closedform.verify.translation.rule_terms import Model, Wanted
from closedform.verify.translation.translation import last_step, time_verdict, validate_outputs

Rules = UpdateRule | Mapping[str, UpdateRule]
"""One rule for all parameters, or the rule of each by name."""

CLOCK = term(t)


@dataclass(frozen=True, slots=True)
class Meaning:
    """The meaning of a state of a file in the rule.

    Attributes:
        name: A state of the rule, by the name of its input in the files of the rule; "" for what
            is not a state.
        offset: Of a count of steps, the number that it begins with.
        number: Of a constant, its value.
    """

    name: str = ""
    offset: int | None = None
    number: Fraction | None = None

    def __str__(self) -> str:
        if self.offset is not None:
            return f"t + {self.offset}" if self.offset else "t"
        return self.name or str(self.number)


Renaming = Mapping[Port, Meaning]
"""The meaning of each state of a file."""


@dataclass(frozen=True)
class ForeignStep:
    """A step of another tool.

    Attributes:
        graph: Its graph.
        ports: What its inputs and outputs are.
    """

    graph: Graph
    ports: Ports

    @property
    def types(self) -> dict[Port, TensorType]:
        """The type of each input by what it is."""
        nodes = {str(node.attribute("name")): node for node in self.graph.inputs}
        return {port: nodes[name].type for name, port in self.ports.inputs.items()}

    @property
    def shapes(self) -> dict[str, Shape]:
        """The shapes of the parameters by name."""
        return {
            port.param: type_.shape
            for port, type_ in self.types.items()
            if port.kind is PortKind.PARAM
        }

    @property
    def states(self) -> list[Port]:
        """The states that something but themselves depends on."""
        # A state that is passed through and read by nothing has no influence on the others.
        idle = self.unchanged - self.read_inputs
        return [
            port
            for port in self.ports.inputs.values()
            if port.kind is PortKind.STATE and port not in idle
        ]

    @property
    def outputs(self) -> dict[str, Port]:
        """The port that each output replaces, but for states that nothing depends on."""
        states = {*self.states}
        return {
            name: port
            for name, port in self.ports.outputs.items()
            if port.kind is not PortKind.STATE or port in states
        }

    @property
    def unchanged(self) -> frozenset[Port]:
        """The states that a step gives back as they are."""
        places = {output.name: output.index for output in self.graph.outputs}
        return frozenset(
            port
            for name, port in self.ports.outputs.items()
            if self.graph.nodes[places[name]].op is Op.INPUT
            and self.ports.inputs[str(self.graph.nodes[places[name]].attribute("name"))] == port
        )

    @property
    def read_inputs(self) -> frozenset[Port]:
        """The inputs that are operands of a node."""
        places = {place for node in self.graph.nodes for place in node.operands}
        names = (
            str(node.attribute("name"))
            for place, node in enumerate(self.graph.nodes)
            if node.op is Op.INPUT and place in places
        )
        return frozenset(self.ports.inputs[name] for name in names)

    def renamed(self, renaming: Renaming) -> Graph:
        """Returns its graph with the names of the rule, and the clock for counts of steps."""
        builder = Builder(self.graph.name)
        values: list[Value] = []
        inputs: dict[str, Value] = {}
        outputs = self.outputs
        counts = [type_.dtype for port, type_ in self.types.items() if port in renaming]
        # The narrowest counter: the proof holds for the steps at which none has overflowed.
        step_type = TensorType(DType.I32 if DType.I32 in counts else DType.I64)
        for node in self.graph.nodes:
            if node.op is Op.INPUT:
                values.append(self._input(builder, inputs, node, renaming, step_type))
                continue
            operands = tuple(values[place].index for place in node.operands)
            values.append(builder.add(Node(node.op, operands, node.attributes, node.type)))
        for output in self.graph.outputs:
            port = outputs.get(output.name)
            if port is not None:
                value = values[output.index]
                # The rule has no boolean states; a truth is the number 0 or 1.
                if value.type.dtype is DType.BOOL:
                    value = builder.emit(Op.CAST, value, to=DType.F32)
                builder.output(naming.following(str(port)), value)
        return settle_counts(builder.build())

    def _input(
        self,
        builder: Builder,
        inputs: dict[str, Value],
        node: Node,
        renaming: Renaming,
        step_type: TensorType,
    ) -> Value:
        port = self.ports.inputs[str(node.attribute("name"))]
        meaning = renaming.get(port)
        if meaning is None or meaning.name:
            name = meaning.name if meaning is not None else str(port)
            is_truth = node.type.dtype is DType.BOOL
            if name not in inputs:
                type_ = TensorType(DType.F32, node.type.shape) if is_truth else node.type
                inputs[name] = builder.input(name, type_, _ROLES[port.kind])
            if not is_truth:
                return inputs[name]
            zero = builder.const(0, DType.F32)
            return builder.emit(Op.NOT, builder.emit(Op.EQ, inputs[name], zero))
        if meaning.number is not None:
            number = node.type.dtype.numpy.type(float(meaning.number))
            return builder.const(np.full(_sizes(node.type.shape), number), node.type.dtype)
        if naming.STEP not in inputs:
            inputs[naming.STEP] = builder.input(naming.STEP, step_type, Role.STEP)
        count = inputs[naming.STEP]
        if meaning.offset:
            count = builder.emit(Op.ADD, count, builder.const(meaning.offset, step_type.dtype))
        if node.type.dtype is not step_type.dtype:
            count = builder.emit(Op.CAST, count, to=node.type.dtype)
        if node.type.shape:
            count = builder.emit(Op.RESHAPE, count, shape=node.type.shape)
        return count


def settle_counts(graph: Graph) -> Graph:
    """Returns a graph in which comparisons of integers that the steps decide are constants.

    A counter that stops at the largest number of its dtype never stops at the steps at which the
    graph may run: the last one is below that number.
    """
    intervals = ranges(graph, last_step(graph, True))
    builder = Builder(graph.name)
    values: list[Value] = []
    for node, interval in zip(graph.nodes, intervals, strict=True):
        operands = [graph.nodes[place].type.dtype for place in node.operands]
        is_comparison = node.op in (Op.LT, Op.LE, Op.EQ)
        if is_comparison and operands[0].is_integer and interval.low == interval.high:
            truth = np.full(_sizes(node.type.shape), bool(interval.low))
            values.append(builder.const(truth, DType.BOOL))
            continue
        places = tuple(values[place].index for place in node.operands)
        values.append(builder.add(Node(node.op, places, node.attributes, node.type)))
    for output in graph.outputs:
        builder.output(output.name, values[output.index])
    return builder.build()


_ROLES = {
    PortKind.PARAM: Role.PARAM,
    PortKind.GRAD: Role.GRAD,
    PortKind.STATE: Role.STATE,
    PortKind.HYPER: Role.HYPER,
}


def _sizes(shape: Shape) -> tuple[int, ...]:
    return tuple(int(size) for size in shape)


def model_of_rules(rules: Rules, step: ForeignStep) -> Model:
    """Returns the rules of the parameters of a step, with their shapes.

    Raises:
        VerificationError: A parameter has no rule.
    """
    by_param = dict.fromkeys(step.shapes, rules) if isinstance(rules, UpdateRule) else dict(rules)
    groups: dict[int, tuple[UpdateRule, dict[str, Shape]]] = {}
    floats = [type_.dtype for port, type_ in step.types.items() if port.kind is PortKind.PARAM]
    tensor = next((dtype for dtype in floats if dtype.is_float), DType.F32)
    for param, shape in step.shapes.items():
        rule = by_param.get(param)
        if not isinstance(rule, UpdateRule):
            raise VerificationError(
                f"the parameter {param!r} has no rule",
                where="the rules that the file is compared with",
                hint=f"there are rules for {', '.join(by_param) or 'none'}",
            )
        groups.setdefault(id(rule), (without_nan_tests(rule, tensor), {}))[1][param] = shape
    return Model(list(groups.values()), Kinds(tensor, tensor))


def without_nan_tests(rule: UpdateRule, dtype: DType) -> UpdateRule:
    """Returns a rule without the tests for NaN that front ends write, which no number passes.

    ``NonFinite(x) = 1`` says that ``|x|`` is above the largest float, and then ``Min(1, |x|)`` is 1
    (``importers.tensors.comparisons``). Over the real numbers, therefore:

    1. its conjunction with ``Min(1, |x|) != 1`` is false, and with ``Min(1, |x|) = 1`` redundant;
    2. ``NonFinite(x) = 0`` or ``Min(1, |x|) = 1`` is true;
    3. its conjunction with ``x < 0`` is ``x < -largest``, and with ``x > 0`` ``x > largest``.
    """
    largest = sp.Rational(float(np.finfo(dtype.numpy).max))

    def change(expr: sp.Basic) -> sp.Basic:
        while True:
            places = {
                node: simpler
                for node in expr.atoms(sp.And, sp.Or)
                if (simpler := _without_nan_test(node, largest)) is not None
            }
            if not places:
                return expr
            expr = expr.xreplace(places)

    if not any(expr.has(NonFinite) for expr in rule.all_expressions()):
        return rule
    return replace(rule, **rule.expressions_by(change))


def _without_nan_test(node: sp.Basic, largest: sp.Rational) -> sp.Basic | None:
    """A conjunction or disjunction in simpler words; None where it has no such test."""
    for part in node.args:
        if not (isinstance(part, sp.Eq | sp.Ne) and isinstance(part.lhs, NonFinite)):
            continue
        (x,) = part.lhs.args
        is_beyond = part in (sp.Eq(part.lhs, 1), sp.Ne(part.lhs, 0))
        minimum = sp.Min(1, sp.Abs(x))
        if isinstance(node, sp.Or):
            if not is_beyond and sp.Eq(minimum, 1) in node.args:
                return sp.true
            continue
        if not is_beyond:
            continue
        if sp.Ne(minimum, 1) in node.args:
            return sp.false
        simpler = {
            sp.Eq(minimum, 1): part,
            sp.Lt(x, 0): sp.Lt(x, -largest),
            sp.Gt(x, 0): sp.Gt(x, largest),
        }
        for redundant, replacement in simpler.items():
            if redundant in node.args:
                rest = (entry for entry in node.args if entry not in (part, redundant))
                return sp.And(*rest, replacement)
    return None


# --- the states of the rule, and what a state of the file may be ---------------------------------


@dataclass(frozen=True, slots=True)
class RuleState:
    """A state of a rule.

    Attributes:
        name: The name of its input.
        param: The parameter that it belongs to; "" for the whole model.
        label: Its name.
        shape: Its shape.
        initial: Its value before the first step: a number, or ``PARAM``.
        is_counter: Whether it is an integer.
    """

    name: str
    param: str
    label: str
    shape: Shape
    initial: sp.Expr
    is_counter: bool = False


def states_of(model: Model) -> list[RuleState]:
    """Returns the states of all parameters and of the whole model."""
    states = []
    for param, shape in model.shapes.items():
        rule = model.reading(param).rule
        for label, spec in rule.states.items():
            name = naming.state(param, label)
            size = rule.state_shape(label, shape)
            states.append(RuleState(name, param, label, size, _sympify(spec.initial)))
    for rule, _ in model.members:
        for label, shared in rule.shared.items():
            name = naming.shared(label)
            if all(state.name != name for state in states):
                initial = _sympify(shared.initial)
                states.append(RuleState(name, "", label, (), initial, shared.is_counter))
    return states


def is_shaped(shape: Shape, other_shape: Shape) -> bool:
    """Whether two shapes are the same, or both are of one element."""
    return shape == other_shape or all(size == 1 for size in (*shape, *other_shape))


def meanings_of(
    step: ForeignStep, port: Port, states: Sequence[RuleState], unchanged: frozenset[Port]
) -> list[Meaning]:
    """Returns what a state of a file may be, the likeliest first."""
    type_ = step.types[port]
    stated = step.ports.initial.get(port)
    meanings: list[tuple[int, Meaning]] = []
    for place, state in enumerate(states):
        fits = is_shaped(state.shape, type_.shape) and port.param in (state.param, "")
        if fits and state.is_counter is type_.dtype.is_integer:
            # Names are only hints for the order of the search: the proof decides.
            rank = 0 if state.label == port.label else 10 + place
            meanings.append((rank, Meaning(state.name)))
    is_number = all(size == 1 for size in type_.shape)
    if is_number and port not in unchanged:
        begins = [0, 1] if stated is None else [int(np.ravel(stated)[0])]
        rank = 5 if type_.dtype.is_integer else 100
        meanings += [(rank + begin, Meaning(offset=begin)) for begin in begins if begin >= 0]
    if port in unchanged and stated is not None and stated.size:
        numbers = set(np.ravel(stated).tolist())
        if len(numbers) == 1:
            number = Fraction(str(np.float32(numbers.pop())))
            meanings.append((1, Meaning(number=number)))
    return [meaning for _, meaning in sorted(meanings, key=lambda entry: entry[0])]


# --- proof ---------------------------------------------------------------------------------------


EXACT_COUNTS = {DType.F16: 2**11, DType.BF16: 2**8, DType.F32: 2**24, DType.F64: 2**53}
"""By dtype: the whole numbers up to this one are floats of it."""


def prove_step(step: ForeignStep, model: Model, renaming: Renaming, effort: Effort) -> Verdict:
    """Returns whether each output of a file is what the rule makes of it, under a renaming.

    A step that is counted in floats is considered as long as these hold the count.
    """

    def decide(until: int | None) -> Verdict:
        graph = step.renamed(renaming)
        tactics: dict[str, None] = {}
        reasons: list[str] = []
        for entry in expected_outputs(step, model, renaming):
            part = with_outputs(graph, {entry.name})
            verdict = validate_outputs([entry], part, effort, until=until)
            if not verdict.proved:
                return verdict
            tactics.update(dict.fromkeys(verdict.tactics))
            reasons.append(verdict.reason)
        # The output that takes the clock has the fewest steps.
        return Verdict(Status.PROVED, tuple(tactics), reason=min(reasons, key=len, default=""))

    counts = [
        step.types[port].dtype for port, meaning in renaming.items() if meaning.offset is not None
    ]
    limits = [EXACT_COUNTS[dtype] - 2 for dtype in counts if dtype.is_float]
    verdict = time_verdict(lambda: decide(min(limits, default=None)), effort)
    has_integers = any(dtype.is_integer for dtype in counts)
    if verdict.proved or limits or not has_integers:
        return verdict
    # A count that is converted to a float, where no rounding of a larger one is admitted.
    exact = time_verdict(lambda: decide(EXACT_COUNTS[DType.F32] - 2), effort)
    return exact if exact.proved else verdict


def expected_outputs(step: ForeignStep, model: Model, renaming: Renaming) -> list[Wanted]:
    """Returns the required value of each output, in the states of the rule."""
    by_name = {entry.name: entry for entry in model.outputs()}
    expected = []
    for port in step.outputs.values():
        shape = step.types[port].shape
        name = naming.following(str(port))
        if port.kind is PortKind.PARAM:
            expected.append(replace(by_name[name], shape=shape, is_counter=None))
            continue
        meaning = renaming[port]
        if meaning.name:
            source = by_name[naming.following(meaning.name)]
            expected.append(Wanted(name, source.param, source.term, shape))
        elif meaning.offset is not None:
            expected.append(expected_count(port, meaning.offset, shape))
        else:
            expected.append(Wanted(name, "", build.rational(meaning.number), shape))
    return expected


def expected_count(port: Port, begin: int, shape: Shape) -> Wanted:
    """Returns the required value of the output of a count of steps that begins with a number."""
    value = build.add(CLOCK, build.rational(begin + 1))
    return Wanted(naming.following(str(port)), "", value, shape)


def unstated_input(step: ForeignStep, model: Model) -> str:
    """Returns why an input of a file has no counterpart in the rules; "" where all have.

    The rules would have to hold for all of its values: a rate that the host computes, or a bias
    correction.
    """
    inputs = [port for port in step.read_inputs if port.kind is PortKind.HYPER]
    outputs = model.outputs() if inputs else ()
    rule_symbols = {name for entry in outputs for name in symbols(entry.term)}
    for port in sorted(inputs, key=str):
        if port.label not in rule_symbols:
            return (
                f"the input {port.label!r} of the file may have any value, and is not a "
                "hyperparameter of the rule without one: leave it open in the rule "
                f"({port.label}=None), or compare closedform.from_onnx(file, ports=…).bind("
                f"{port.label}=…)"
            )
    return ""


def check_hyperparameters(step: ForeignStep, model: Model) -> None:
    """Raises VerificationError for a hyperparameter of the rule without a value.

    One that is an input of the file by the same name needs none.
    """
    inputs = {port.label for port in step.ports.inputs.values() if port.kind is PortKind.HYPER}
    for rule in {id(rule): rule for rule, _ in model.members}.values():
        for name, value in rule.hyperparameters.items():
            if value is None and name not in inputs:
                raise VerificationError(
                    f"the hyperparameter {name!r} of the rule has no value, and the file has no "
                    "input of this name",
                    where=f"rule {rule.name!r}",
                    hint=f"give it one: --set {name}=0.01",
                )

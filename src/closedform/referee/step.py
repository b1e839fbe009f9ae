"""A step that another tool wrote with its ports, and the rules that it is compared with."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace

import numpy as np
import sympy as sp
from sympy.core.sympify import _sympify

from closedform.errors import VerificationError
from closedform.importers.onnx_checks import CheckedModel
from closedform.ir import DType, Graph, Shape, TensorType, naming
from closedform.ir.ops import Op
from closedform.language import UpdateRule
from closedform.language.model import NonFinite
from closedform.referee.ports import Port, PortKind, Ports
from closedform.verify.translation.rule_reading import Kinds
from closedform.verify.translation.rule_terms import Model

Rules = UpdateRule | Mapping[str, UpdateRule]
"""One rule for all parameters, or the rule of each by name."""


@dataclass(frozen=True)
class ForeignStep:
    """A step of another tool.

    Attributes:
        graph: Its graph.
        ports: What its inputs and outputs are.
        model: The file.
    """

    graph: Graph
    ports: Ports
    model: CheckedModel | None = None

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
        # A state that no step changes and nothing reads has no influence on the others.
        idle = (self.unchanged | self.host_values) - self.read_inputs
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
    def host_values(self) -> frozenset[Port]:
        """The states that no output replaces: the host gives them for each step."""
        outputs = {*self.ports.outputs.values()}
        return frozenset(
            port
            for port in self.ports.inputs.values()
            if port.kind is PortKind.STATE and port not in outputs
        )

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

    def host_numbers(self) -> dict[str, str]:
        """Returns how the host gives what no step computes, by the names of the inputs.

        A number that a step gives back as it is changes only where the host writes it. A tensor
        that it gives back, such as the first parameters of DoG, is a state.
        """
        numbers: dict[str, str] = {}
        for name, port in self.ports.inputs.items():
            is_number = all(size == 1 for size in self.types[port].shape)
            if port.kind is PortKind.HYPER or port in self.host_values:
                numbers[name] = "an input that no output replaces"
            elif port in self.unchanged and is_number and port.kind is PortKind.STATE:
                numbers[name] = "a state that the step gives back as it is"
        return {
            name: way
            for name, way in numbers.items()
            if self.ports.inputs[name] in self.read_inputs
        }


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


def ports_by_name(graph: Graph) -> Ports:
    """Returns the ports of a file of this package, whose inputs have the names of the rule.

    Its clock begins with 0, and its other states as the rule says.
    """
    names = [str(node.attribute("name")) for node in graph.inputs]
    params = [name.removeprefix(naming.PARAM) for name in names if name.startswith(naming.PARAM)]
    # The longest parameter first: 'layer.w' before 'layer', whose name it begins with.
    params.sort(key=len, reverse=True)
    inputs = {name: _port_of_name(name, params) for name in names}
    outputs = {
        output.name: inputs[name]
        for output in graph.outputs
        if (name := output.name.removeprefix(naming.NEXT)) in inputs and name != output.name
    }
    clocks = {port: np.array(0) for name, port in inputs.items() if name == naming.STEP}
    return Ports(inputs, outputs, clocks)


def _port_of_name(name: str, params: Sequence[str]) -> Port:
    if name == naming.STEP:
        return Port(PortKind.STATE, "", name)
    if name.startswith(naming.SHARED):
        return Port(PortKind.STATE, "", name.removeprefix(naming.SHARED))
    for kind, prefix in ((PortKind.PARAM, naming.PARAM), (PortKind.GRAD, naming.GRAD)):
        if name.startswith(prefix):
            return Port(kind, name.removeprefix(prefix))
    for param in params:
        prefix = naming.state(param, "")
        if name.startswith(prefix):
            return Port(PortKind.STATE, param, name.removeprefix(prefix))
    return Port(PortKind.HYPER, "", name)

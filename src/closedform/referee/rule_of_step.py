"""The update rules of a step that another tool wrote.

A state that each step raises by 1 is the clock, and so is one that the host counts. Numbers of the
whole model are shared states. A sum of the same expression over all parameters is a global sum;
nothing else of one parameter may reach another one. Where the rules of all parameters are written
alike, they are one rule.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from fractions import Fraction
from typing import Any

import numpy as np
import sympy as sp

from closedform.effort import Effort
from closedform.errors import VerificationError
from closedform.importers.onnx_graph import OnnxSource
from closedform.ir import DType, Shape, broadcast, naming
from closedform.ir.graph import with_outputs
from closedform.language import GRAD, PARAM, State, UpdateRule, state
from closedform.language.functions import (
    broadcast_to,
    matmul,
    permute,
    reduce_max,
    reduce_sum,
    reshape,
    rounded,
)
from closedform.language.model import Shared, counter, global_sum, shared
from closedform.language.shapes import ShapeRule, Sizes
from closedform.language.symbols import hyper, local
from closedform.referee.judgement import read_step
from closedform.referee.ports import Port, PortKind, PortNames
from closedform.referee.simulation import CLOCK, Meaning, Simulation
from closedform.referee.step import ForeignStep
from closedform.verify.terms import build
from closedform.verify.terms import tensor_functions as functions
from closedform.verify.terms.from_graph import as_stored, terms_of_graph
from closedform.verify.terms.limits import LIMITS
from closedform.verify.terms.sympy_io import to_sympy
from closedform.verify.terms.tree import RELATIONS, Op, Term, symbols, walk
from closedform.verify.translation.constants import Constants, with_split_constants
from closedform.verify.translation.from_onnx import without_undefined
from closedform.verify.translation.rule_terms import Wanted
from closedform.verify.translation.translation import validate_outputs


def rules_of_file(
    source: OnnxSource, ports: PortNames | None, *, stored: bool = False
) -> UpdateRule | dict[str, UpdateRule]:
    """Returns the rule of a step, or the rule of each parameter by name where they differ.

    Arguments and errors are as in :func:`closedform.api.onnx.from_onnx`.
    """
    step = read_step(source, ports)
    rules = _Rules(step, is_stored=stored).rules()
    first, *rest = rules.values()
    return first if all(rule == first for rule in rest) else rules


@dataclass
class _Rules:
    """The rules of a step."""

    step: ForeignStep
    is_stored: bool
    sums: dict[Term, tuple[str, Term]] = field(default_factory=dict)

    def __post_init__(self) -> None:
        self.params = list(self.step.shapes)
        self.counts = self._counts()
        self._check_host_values()
        renaming = {
            port: self.counts.get(port, Meaning(self._name(port))) for port in self.step.states
        }
        graph = Simulation(self.step, renaming).graph()
        constant = as_stored if self.is_stored else with_split_constants(Constants(), graph)
        terms = terms_of_graph(graph, constant=constant)
        # Integers of the language do not leave their dtype.
        self.terms = {name: without_undefined(root) for name, root in terms.items()}
        self.types = {str(node.attribute("name")): node.type for node in graph.inputs}

    def _name(self, port: Port) -> str:
        """The name of the input of a state; with one parameter, states of the model are its own."""
        return str(self._owned(port))

    def _owned(self, port: Port) -> Port:
        is_only = len(self.params) == 1 and not port.param
        return Port(port.kind, self.params[0], port.label) if is_only else port

    def _counts(self) -> dict[Port, Meaning]:
        """The states that count steps, with the numbers that they begin with."""
        counts: dict[Port, Meaning] = {}
        for port in self.step.states:
            type_ = self.step.types[port]
            stated = self.step.ports.initial.get(port)
            begin = 0 if stated is None else int(np.ravel(stated)[0])
            is_named = port.label == naming.STEP and type_.dtype is not DType.BOOL
            is_number = all(size == 1 for size in type_.shape)
            if not (type_.dtype.is_integer or is_named) or not is_number or begin < 0:
                continue
            meaning = Meaning(offset=begin)
            if port in self.step.host_values or self._is_counted(port, meaning):
                counts[port] = meaning
        return counts

    def _is_counted(self, port: Port, meaning: Meaning) -> bool:
        """Whether a step raises a state by 1, where it has counted the steps before."""
        others = {entry: Meaning(self._name(entry)) for entry in self.step.states}
        simulation = Simulation(self.step, {**others, port: meaning})
        following = naming.following(str(port))
        value = meaning.term(build.add(CLOCK, build.ONE))
        expected = Wanted(following, "", value, self.step.types[port].shape)
        graph = with_outputs(simulation.graph(), {following})
        return validate_outputs([expected], graph, Effort.of(LIMITS.validation_work)).proved

    def _check_host_values(self) -> None:
        """Raises VerificationError for a state that the host gives, but for a count of steps."""
        for port in self.step.states:
            if port in self.step.host_values and port not in self.counts:
                raise VerificationError(
                    f"no output replaces {port}, and a rule has no value for it",
                    where="ports",
                    hint=f"name it {naming.STEP!r} where it counts the steps; of any other, make "
                    f"it a hyperparameter, {port.label!r}, and bind that",
                )

    # --- rules ------------------------------------------------------------------------------------

    def rules(self) -> dict[str, UpdateRule]:
        """Returns the rule of each parameter."""
        return {param: self._rule(param) for param in self.params}

    def _rule(self, param: str) -> UpdateRule:
        places = self._places(param)
        outputs: dict[Port, Term] = {}
        for port in self.step.outputs.values():
            owned = self._owned(port)
            if port in self.counts or owned.param not in (param, ""):
                continue
            outputs[owned] = self._with_sums(self.terms[naming.following(str(port))], param)
        writer = _Writer(self._shapes(param), places, list(outputs.values()))
        expressions = {port: writer.write(root) for port, root in outputs.items()}
        for name, part in dict(self.sums.values()).items():
            writer.places[sp.Symbol(name, real=True)] = global_sum(
                writer.write(self._for_param(part, param))
            )
        expressions = {port: writer.finish(expr) for port, expr in expressions.items()}
        definitions = {name: writer.finish(expr) for name, expr in writer.definitions.items()}
        hypers = {
            port.label: None
            for port in self.step.ports.inputs.values()
            if port.kind is PortKind.HYPER
            and any(
                hyper(port.label) in expr.free_symbols
                for expr in (*expressions.values(), *definitions.values())
            )
        }
        return UpdateRule(
            "step",
            expressions[Port(PortKind.PARAM, param)],
            {
                port.label: State(expr, self._initial(port), self._shape_rule(port, param))
                for port, expr in expressions.items()
                if port.kind is PortKind.STATE and port.param
            },
            hypers,
            definitions,
            shared={
                port.label: Shared(expr, self._initial(port), is_counter=self._is_counter(port))
                for port, expr in expressions.items()
                if port.kind is PortKind.STATE and not port.param
            },
        )

    def _places(self, param: str) -> dict[sp.Symbol, sp.Expr]:
        """The symbol of the language for each input of the graph."""
        places: dict[sp.Symbol, sp.Expr] = {}
        for port in map(self._owned, self.step.ports.inputs.values()):
            name = str(port)
            symbol = sp.Symbol(name, real=True, integer=self._is_counter(port) or None)
            match port.kind:
                case PortKind.PARAM if port.param == param:
                    places[symbol] = PARAM
                case PortKind.GRAD if port.param == param:
                    places[symbol] = GRAD
                case PortKind.HYPER:
                    places[symbol] = hyper(port.label)
                case PortKind.STATE if port.param == param:
                    places[symbol] = state(port.label)
                case PortKind.STATE if not port.param:
                    is_counter = self._is_counter(port)
                    places[symbol] = counter(port.label) if is_counter else shared(port.label)
        return places

    def _is_counter(self, port: Port) -> bool:
        type_ = self.types.get(str(port))
        return type_ is not None and type_.dtype.is_integer

    def _shapes(self, param: str) -> dict[str, Shape]:
        return {name: type_.shape for name, type_ in self.types.items()}

    def _shape_rule(self, port: Port, param: str) -> ShapeRule:
        shape = self.types[str(port)].shape if str(port) in self.types else ()
        if shape == self.step.shapes[param]:
            return "param"
        return Sizes(tuple(int(size) for size in shape)) if shape else "scalar"

    def _initial(self, port: Port) -> sp.Expr:
        """The value before the first step: the stated one, or 0."""
        initial_value = self.step.ports.initial.get(port)
        if initial_value is None:
            initial_value = self.step.ports.initial.get(Port(port.kind, "", port.label))
        numbers = set() if initial_value is None else set(np.ravel(initial_value).tolist())
        if len(numbers) > 1:
            return PARAM
        number = numbers.pop() if numbers else 0
        if isinstance(number, float):
            # The shortest decimal of the float32 that the file holds.
            return sp.Rational(Fraction(str(np.float32(number))))
        return sp.Integer(int(number))

    # --- sums over all parameters -----------------------------------------------------------------

    def _with_sums(self, root: Term, param: str) -> Term:
        """A term with a symbol for each sum over all parameters."""
        if not self._others(root, param):
            return root
        rebuilt: dict[Term, Term] = {}
        for node in walk(root):
            args = tuple(rebuilt[arg] for arg in node.args)
            new = build.rebuild(node, args) if args else node
            if new.op is Op.ADD and self._others(new, param):
                new = self._sum(new)
            rebuilt[node] = new
        others = self._others(rebuilt[root], param)
        if others:
            raise VerificationError(
                f"the step of {param!r} takes {sorted(others)[0]!r}, and not in a sum over all "
                "parameters",
                hint="such a step has no rule for each parameter",
            )
        return rebuilt[root]

    def _owner(self, name: str) -> str:
        for port in map(self._owned, self.step.ports.inputs.values()):
            if str(port) == name:
                return port.param
        return ""

    def _others(self, root: Term, param: str) -> set[str]:
        return {name for name in symbols(root) if self._owner(name) not in ("", param)}

    def _sum(self, node: Term) -> Term:
        """A sum whose summands are the same of each parameter, as a symbol."""
        by_param: dict[str, list[Term]] = {}
        rest: list[Term] = []
        for part in _summands(node):
            owners = {self._owner(name) for name in symbols(part)} - {""}
            if len(owners) == 1 and self._sum_operand(part, next(iter(owners))) is not None:
                by_param.setdefault(owners.pop(), []).append(part)
            else:
                rest.append(part)
        # A sum over some parameters only has no expression in the language.
        if by_param.keys() != set(self.params) or any(len(v) > 1 for v in by_param.values()):
            return node
        parts = {param: self._sum_operand(part, param) for param, (part,) in by_param.items()}
        first = self.params[0]
        alike = {
            build.substitute(part, self._renamed(param, first))
            for param, part in parts.items()
            if part is not None
        }
        if len(alike) != 1:
            return node
        (operand,) = alike
        name, _ = self.sums.setdefault(operand, (f"total {len(self.sums)}", operand))
        return build.add(*rest, build.symbol(name)) if rest else build.symbol(name)

    def _sum_operand(self, part: Term, param: str) -> Term | None:
        """The elements whose sum over a whole parameter a term is."""
        function = part.value
        is_sum = part.op is Op.OPAQUE and isinstance(function, functions.TensorFunction)
        if not is_sum or function.kind != functions.REDUCE_SUM:
            return None
        (shape,) = function.shapes
        axes = tuple(axis for axis, size in enumerate(shape) if size != 1)
        # Axes of size 1 need not be summed.
        is_whole = shape == self.step.shapes[param] and function.axes == axes
        return part.args[0] if is_whole else None

    def _renamed(self, param: str, other: str) -> dict[Term, Term]:
        """The symbols of one parameter as those of another one."""
        renamed = {}
        for port in map(self._owned, self.step.ports.inputs.values()):
            if port.param == param and port.kind is not PortKind.HYPER:
                renamed[build.symbol(str(port))] = build.symbol(
                    str(Port(port.kind, other, port.label))
                )
        return renamed

    def _for_param(self, part: Term, param: str) -> Term:
        return build.substitute(part, self._renamed(self.params[0], param))


def _summands(node: Term) -> list[Term]:
    if node.op is not Op.ADD:
        return [node]
    return [part for arg in node.args for part in _summands(arg)]


class _Writer:
    """Writes terms of tensors as expressions of the language."""

    def __init__(
        self, shapes: Mapping[str, Shape], places: dict[sp.Symbol, sp.Expr], roots: Sequence[Term]
    ) -> None:
        self.places = places
        self.definitions: dict[str, sp.Expr] = {}
        self._shapes_of_inputs = dict(shapes)
        self._shapes: dict[Term, Shape] = {}
        self._symbols: dict[Term, Term] = {}
        uses: Counter[Term] = Counter()
        in_conditions: set[Term] = set()
        for node in walk(*roots):
            uses.update(node.args)
            if node.op in RELATIONS:
                in_conditions.update(walk(node))
        for node in walk(*roots):
            # SymPy writes a choice within a condition out for all of its cases.
            if node.op is Op.ITE and (uses[node] > 1 or node in in_conditions):
                self._define(node)

    def _define(self, node: Term) -> None:
        name = f"choice_{len(self.definitions) + 1}"
        symbol = build.own_symbol(f"local {name}")
        self.definitions[name] = self.write(node)
        self._shapes_of_inputs[symbol.value.name] = self._shapes[self._reduced(node)]
        self._symbols[node] = symbol
        self.places[sp.Symbol(symbol.value.name, real=True)] = local(name)

    def _reduced(self, node: Term) -> Term:
        """A term with the symbols of the definitions in it."""
        if node in self._symbols:
            return self._symbols[node]
        args = tuple(build.substitute(arg, self._symbols) for arg in node.args)
        return build.rebuild(node, args) if args else node

    def write(self, root: Term) -> sp.Expr:
        """Returns the expression of a term."""
        reduced = self._reduced(root)
        for node in walk(reduced):
            if node not in self._shapes:
                self._shapes[node] = self._shape(node)
        return self.finish(to_sympy(reduced, self._function))

    def finish(self, expr: sp.Expr) -> sp.Expr:
        """Returns an expression in the symbols of the language."""
        return expr.xreplace(self.places)

    def _shape(self, node: Term) -> Shape:
        if node.op is Op.SYMBOL:
            return self._shapes_of_inputs.get(node.value.name, ())
        function = node.value
        if node.op is Op.OPAQUE and isinstance(function, functions.TensorFunction):
            return self._shape_of_function(node, function)
        shape: Shape = ()
        for arg in node.args:
            shape = broadcast(shape, self._shapes[arg])
        return shape

    def _shape_of_function(self, node: Term, function: functions.TensorFunction) -> Shape:
        match function.kind:
            case functions.REDUCE_SUM | functions.REDUCE_MAX:
                (shape,) = function.shapes
                return tuple(size for axis, size in enumerate(shape) if axis not in function.axes)
            case functions.RESHAPE:
                return function.shapes[1]
            case functions.TRANSPOSE:
                return tuple(function.shapes[0][axis] for axis in function.axes)
            case functions.MATMUL:
                left, right = function.shapes
                return (*broadcast(left[:-2], right[:-2]), left[-2], right[-1])
            case _:
                return self._shapes[node.args[0]]

    def _function(self, node: Term, args: list[Any]) -> sp.Expr:
        function = node.value
        if not isinstance(function, functions.TensorFunction):
            raise VerificationError(f"{function} of a tensor has no expression")
        if function.kind == functions.ROUNDED:
            return rounded(args[0], function.dtype)
        operands = [
            self._in_shape(arg, self._shapes[term], shape)
            for arg, term, shape in zip(args, node.args, function.shapes, strict=False)
        ]
        match function.kind:
            case functions.REDUCE_SUM | functions.REDUCE_MAX:
                reduce = reduce_sum if function.kind == functions.REDUCE_SUM else reduce_max
                return _reduction(reduce, operands[0], function)
            case functions.RESHAPE:
                return reshape(operands[0], [sp.Integer(size) for size in function.shapes[1]])
            case functions.TRANSPOSE:
                return permute(operands[0], function.axes)
            case functions.MATMUL:
                return matmul(*operands)
            case _:
                raise VerificationError(f"{function} of a tensor has no expression")

    def _in_shape(self, expr: sp.Expr, shape: Shape, needed: Shape) -> sp.Expr:
        if shape == needed:
            return expr
        return broadcast_to(expr, [sp.Integer(size) for size in needed])


def _reduction(
    reduce: Callable[..., sp.Expr], operand: sp.Expr, function: functions.TensorFunction
) -> sp.Expr:
    rank = len(function.shapes[0])
    if len(function.axes) == rank:
        return reduce(operand)
    # From the end, so that the rule does not depend on the rank.
    return reduce(operand, tuple(axis - rank for axis in function.axes))

"""Update rules: one optimizer step as data, an expression for the parameter and each state."""

from __future__ import annotations

import copy
import functools
import inspect
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field, replace
from typing import TYPE_CHECKING, Any

import sympy as sp
from sympy.logic.boolalg import Boolean

from closedform import delegation
from closedform.errors import DefinitionError
from closedform.language import description
from closedform.language.aliases import Hyper
from closedform.language.definitions import holds, replace_shape_symbols, taken_by
from closedform.language.functions import STORED, STORED_STATES, WHOLE_TENSOR, Uniform
from closedform.language.matrices import expanded
from closedform.language.model import GlobalSum, Shared, counter, shared, tensor_input
from closedform.language.schedule import Schedule
from closedform.language.shapes import (
    EPSILON,
    SHAPE_SYMBOLS,
    Shape,
    ShapeRule,
    check_rule,
    shape_by,
    shape_values,
)
from closedform.language.symbols import GRAD, PARAM, exact_number, local, rationalize, state, t

if TYPE_CHECKING:
    from closedform.verify.claims.core import Claim
    from closedform.verify.claims.report import Report


@dataclass(frozen=True, slots=True)
class State:
    """A state of an update rule.

    Attributes:
        next: Its value after the step, an expression in ``t``, ``PARAM``, ``GRAD``, hyperparameter
            symbols and the ``state(name)`` symbols.
        initial: Its value before the first step: a number, or ``PARAM``.
        shape: "param" for the parameter's shape, "scalar" for rank 0, ``Without(axes)`` for the
            parameter's shape without some axes.
        exists: The condition on the shape under which a parameter has this state.
        stored: The dtype that it has between steps, where that is not the one that is computed in:
            ``"bf16"`` or ``"f16"``, to which it is rounded, or ``"i8"``, an integer from -128 to
            127; another number becomes the nearest of these towards 0.
    """

    next: sp.Expr
    initial: sp.Expr | float = 0
    shape: ShapeRule = "param"
    exists: sp.Basic = sp.true
    stored: str | None = None


@dataclass(frozen=True, slots=True, repr=False)
class UpdateRule:
    """One optimizer step: the next values of the parameter and of each state.

    Attributes:
        name: A name for graphs, files and errors.
        param: The parameter after the step, an expression as in ``State.next``.
        states: States by name, in the order of the optimizer's own state dict.
        hyperparameters: Value of each hyperparameter symbol by name: a number, a Schedule (then it
            is inside the graph), or None for an input of the graph.
        definitions: Values that the expressions share, by name, each in terms of those before it:
            ``local(name)`` is the symbol of one. It is computed once, as written.
        requires: The condition on the shape under which the rule has a meaning.
        inputs: Names of tensors of the parameter's shape that each step takes in addition to the
            gradient; ``tensor_input(name)`` is the symbol of one.
        shared: States of the whole model by name.
        advances: The condition under which this step advances the clock by 1, in what the
            next value of a shared state may hold. Elsewhere the step counts for nothing.
        evaluation: The point at which the model is evaluated, where that is not the parameter: an
            expression in the parameter, states and ``t`` after a step.
        stored: The dtype of parameters and gradients outside, ``"bf16"`` or ``"f16"``, where that
            is not the one that is computed in, and that states have.
        ranges: The smallest and the largest value of hyperparameters that are inputs of the graph,
            by name; a value outside is taken as the nearest one inside.
        call: The call of a function that made the rule; it may have been changed since.

    Expressions may use the symbols of the shape (``RANK``, ``SIZE``, ``axis_size``): ``for_shape``
    replaces them, and a ``Piecewise`` on them is then one of its branches.

    Raises:
        DefinitionError: A symbol without a hyperparameter, state or definition of its name, or a
            value that is neither a number nor a Schedule.
    """

    name: str
    param: sp.Expr
    states: Mapping[str, State] = field(default_factory=dict)
    hyperparameters: Mapping[str, Any] = field(default_factory=dict)
    definitions: Mapping[str, sp.Expr] = field(default_factory=dict)
    requires: sp.Basic = sp.true
    inputs: tuple[str, ...] = ()
    shared: Mapping[str, Shared] = field(default_factory=dict)
    advances: sp.Basic = sp.true
    evaluation: sp.Expr | None = None
    stored: str | None = None
    ranges: Mapping[str, tuple[sp.Expr, sp.Expr]] = field(default_factory=dict)
    call: functools.partial[UpdateRule] | None = field(default=None, compare=False)

    def __post_init__(self) -> None:
        if not isinstance(self.name, str) or not self.name.isidentifier():
            raise DefinitionError(
                f"a rule's name must be an identifier, got {self.name!r}",
                hint="it names graphs and files: use letters, digits and underscores",
            )
        _check_stored(self.stored, f"rule {self.name!r}")
        values = {
            key: value
            if value is None or isinstance(value, Schedule)
            else exact_number(value, f"hyperparameter {key!r} of {self.name}")
            for key, value in self.hyperparameters.items()
        }
        # Frozen: the checked values replace the given ones only here.
        object.__setattr__(self, "hyperparameters", values)
        self._check_ranges()
        object.__setattr__(self, "param", self._checked_expression("param", self.param))
        states = {name: self._checked_state(name, spec) for name, spec in self.states.items()}
        object.__setattr__(self, "states", states)
        object.__setattr__(self, "shared", self._checked_shared())
        tensors = {PARAM, GRAD, *map(state, states), *map(tensor_input, self.inputs)}
        symbols = {t, EPSILON, *SHAPE_SYMBOLS, *tensors, *self.shared_symbols.values()}
        definitions = {}
        for name, expr in self.definitions.items():
            definitions[name] = self._checked_expression(name, expr)
            self._check_symbols(f"definition {name!r}", definitions[name], symbols)
            # Definitions see only those before them, so there is no cycle.
            symbols.add(local(name))
        object.__setattr__(self, "definitions", definitions)
        self._check_names({symbol.name for symbol in symbols})
        for label, expr in self.expressions().items():
            self._check_symbols(f"next value of {label!r}", expr, symbols)
        if self.evaluation is not None:
            point = self._checked_expression("evaluation", self.evaluation)
            object.__setattr__(self, "evaluation", point)
            self._check_symbols("the point of evaluation", point, symbols)
        for label, expr in self.scalar_expressions().items():
            self._check_symbols(label, expr, symbols)
            self._check_scalar(label, expr, {*tensors, *map(local, definitions)})
        for label, condition in self._conditions().items():
            self._check_condition(label, condition)
        self._check_sums({*tensors, *map(local, definitions)})
        self._check_use()

    def __hash__(self) -> int:
        """Agrees with ``==``: equal rules have equal names and expressions."""
        # Mappings have no hash; equal rules have equal expressions.
        return hash((self.name, *self.expressions().items()))

    def _check_scalar(self, label: str, expr: sp.Basic, tensors: set[sp.Symbol]) -> None:
        # Inside of a global sum tensors are allowed: it is one number for the model.
        outside = expr.xreplace({total: sp.Integer(1) for total in expr.atoms(GlobalSum)})
        tensor_names = sorted(symbol.name for symbol in outside.free_symbols & tensors)
        if tensor_names:
            raise DefinitionError(
                f"{tensor_names[0]!r} belongs to one parameter, and this is for the whole model",
                where=f"rule {self.name!r}, {label}",
                hint="use it inside global_sum(…)",
            )

    def _check_sums(self, tensors: set[sp.Symbol]) -> None:
        totals = {total for expr in self.all_expressions() for total in expr.atoms(GlobalSum)}
        for total in sorted(totals, key=sp.default_sort_key):
            if not total.free_symbols & tensors and not total.args[0].is_number:
                raise DefinitionError(
                    f"global_sum({total.args[0]}) sums no tensor",
                    where=f"rule {self.name!r}",
                    hint="it is over the elements of PARAM, GRAD, states, inputs or definitions",
                )

    def _check_ranges(self) -> None:
        for name, (low, high) in self.ranges.items():
            if not low <= high:
                raise DefinitionError(
                    f"the range of {name!r} must be (low, high) with low <= high, got "
                    f"({low}, {high})",
                    where=f"rule {self.name!r}",
                )

    def _check_use(self) -> None:
        used_names = {
            symbol.name for expr in self.all_expressions() for symbol in expr.free_symbols
        }
        unused_names = [name for name in self.hyperparameters if name not in used_names]
        if unused_names:
            raise DefinitionError(
                f"no expression uses the hyperparameter {unused_names[0]!r}",
                where=f"rule {self.name!r}",
                hint="leave it out",
            )

    def _check_names(self, symbol_names: set[str]) -> None:
        """Raises DefinitionError for a hyperparameter that is named as another symbol is."""
        for name in self.hyperparameters:
            if name in symbol_names:
                raise DefinitionError(
                    f"a hyperparameter may not be named {name!r}, as a symbol of rules is",
                    where=f"rule {self.name!r}",
                    hint="choose another name",
                )

    def _check_symbols(self, label: str, expr: sp.Expr, symbols: set[sp.Symbol]) -> None:
        names = [symbol.name for symbol in expr.free_symbols - symbols]
        unknown = sorted(name for name in names if name not in self.hyperparameters)
        if unknown:
            raise DefinitionError(
                f"{unknown[0]!r} is neither a state nor a hyperparameter",
                where=f"rule {self.name!r}, {label}",
                hint="add it to hyperparameters, states or, before its use, to definitions",
            )

    def _conditions(self) -> dict[str, sp.Basic]:
        existing = {f"state {name!r}": spec.exists for name, spec in self.states.items()}
        return {"the rule": self.requires, **existing}

    def _check_condition(self, label: str, condition: object) -> None:
        is_condition = isinstance(condition, Boolean) and not isinstance(condition, sp.Symbol)
        free = condition.free_symbols if isinstance(condition, Boolean) else set()
        if not is_condition or free - SHAPE_SYMBOLS:
            raise DefinitionError(
                f"the condition of {label} must be only on the shape, got {condition!r}",
                where=f"rule {self.name!r}",
                hint="such as sp.Ge(closedform.expr.RANK, 2)",
            )

    def __repr__(self) -> str:
        values = description.assignments(self.hyperparameters)
        return f"<UpdateRule {self.name!r}{': ' if values else ''}{values}>"

    def __str__(self) -> str:
        return description.rule_as_text(self)

    def _repr_html_(self) -> str:
        curves = {
            name: value
            for name, value in self.hyperparameters.items()
            if isinstance(value, Schedule) and not value.open
        }
        picture = delegation.functions().picture(curves) if curves else ""
        return description.rule_as_html(self, picture)

    def expressions(self) -> dict[str, sp.Expr]:
        """Returns the next value of the parameter ("param") and of each state by name."""
        return {"param": self.param, **{name: spec.next for name, spec in self.states.items()}}

    def scalar_expressions(self) -> dict[str, sp.Basic]:
        """Returns the expressions computed once for the model: next shared values and the clock.

        The keys describe them, for errors.
        """
        following = {f"next value of {name!r}": spec.next for name, spec in self.shared.items()}
        return {**following, "the condition of the clock": self.advances}

    def all_expressions(self) -> list[sp.Basic]:
        """Returns every expression of the rule."""
        point = [] if self.evaluation is None else [self.evaluation]
        tensors = [*self.definitions.values(), *self.expressions().values(), *point]
        return [*tensors, *self.scalar_expressions().values()]

    def expressions_by(
        self, change: Callable[[Any], Any], definitions: Mapping[str, Any] | None = None
    ) -> dict[str, Any]:
        """Returns the fields that hold expressions, each expression changed, for ``replace``.

        Args:
            change: From an expression to the changed one.
            definitions: The definitions where they are changed already.
        """
        if definitions is None:
            definitions = {name: change(expr) for name, expr in self.definitions.items()}
        return {
            "definitions": definitions,
            "states": {k: replace(s, next=change(s.next)) for k, s in self.states.items()},
            "shared": {k: replace(s, next=change(s.next)) for k, s in self.shared.items()},
            "param": change(self.param),
            "advances": change(self.advances),
            "evaluation": None if self.evaluation is None else change(self.evaluation),
        }

    @property
    def shared_symbols(self) -> dict[str, sp.Symbol]:
        """The symbols of the states of the whole model by name."""
        return {
            name: counter(name) if spec.is_counter else shared(name)
            for name, spec in self.shared.items()
        }

    @property
    def is_in_one_dtype(self) -> bool:
        """Whether parameters and states are stored in the dtype that is computed in."""
        return self.stored is None and all(spec.stored is None for spec in self.states.values())

    @property
    def is_for_all_shapes(self) -> bool:
        """Whether the rule is the same for parameters of all shapes."""
        is_free = not any(part.free_symbols & SHAPE_SYMBOLS for part in self.all_expressions())
        return is_free and all(condition == sp.true for condition in self._conditions().values())

    @property
    def is_drawn(self) -> bool:
        """Whether each element takes its step by itself but for random numbers at its place."""
        parts = self.all_expressions()
        functions = tuple(kind for kind in WHOLE_TENSOR if kind is not Uniform)
        has_shapes = any(spec.shape != "param" for spec in self.states.values())
        is_free = self.is_for_all_shapes and not has_shapes
        return (
            is_free
            and any(p.has(Uniform) for p in parts)
            and not any(p.has(*functions) for p in parts)
        )

    @property
    def is_elementwise(self) -> bool:
        """Whether each element of a parameter takes its step by itself.

        Then parameters may be updated in tiles of any size, once the sums over all parameters are
        known: no other expression looks at a shape or adds up elements, and all states have the
        parameter's shape.
        """
        has_whole = any(expr.has(*WHOLE_TENSOR) for expr in self.all_expressions())
        has_shapes = any(spec.shape != "param" for spec in self.states.values())
        return self.is_for_all_shapes and not has_whole and not has_shapes

    def for_shape(self, shape: Shape, parameter: str | None = None) -> UpdateRule:
        """Returns the rule for a parameter of this shape: its static structure is resolved.

        Args:
            shape: Sizes of the parameter's axes, integers or names.
            parameter: The parameter's name, for errors.

        Raises:
            DefinitionError: The rule is not for this shape, or asks for an axis or a size that the
                shape does not have.

        Example:
            >>> from closedform.language import RANK, Without, reduce_sum
            >>> is_matrix = sp.Ge(RANK, 2)
            >>> rows = State(reduce_sum(GRAD, (-1,)), shape=Without((-1,)), exists=is_matrix)
            >>> step = sp.Piecewise((PARAM - reduce_sum(GRAD), is_matrix), (PARAM - GRAD, True))
            >>> rule = UpdateRule("example", step, {"rows": rows})
            >>> rule.for_shape((3,)).param, list(rule.for_shape((3, 4)).states)
            (-grad + param, ['rows'])
        """
        if self.is_for_all_shapes:
            return self
        values, where = self._sizes_of(shape, parameter)
        states = {
            name: replace(
                spec, next=replace_shape_symbols(spec.next, values, where), exists=sp.true
            )
            for name, spec in self.states_for(shape, parameter).items()
        }
        needed_definitions = {
            name: replace_shape_symbols(expr, values, where, is_final=False)
            for name, expr in self.definitions.items()
        }
        param = replace_shape_symbols(self.param, values, where)
        point = self.evaluation
        point = None if point is None else replace_shape_symbols(point, values, where)
        results = [param, *(spec.next for spec in states.values())]
        results.append(param if point is None else point)
        definitions = taken_by([*results, *self.scalar_expressions().values()], needed_definitions)
        for expr in definitions.values():
            replace_shape_symbols(expr, values, where)
        definitions = expanded(definitions, where)
        expressions = [*results, *definitions.values(), *self.scalar_expressions().values()]
        names = {symbol.name for expr in expressions for symbol in expr.free_symbols}
        return replace(
            self,
            param=param,
            states=states,
            hyperparameters={k: v for k, v in self.hyperparameters.items() if k in names},
            definitions=definitions,
            requires=sp.true,
            evaluation=point,
        )

    def states_for(self, shape: Shape, parameter: str | None = None) -> dict[str, State]:
        """Returns the states of a parameter of this shape, with next values for all shapes.

        Args:
            shape: Sizes of the parameter's axes, integers or names.
            parameter: The parameter's name, for errors.

        Raises:
            DefinitionError: The rule is not for this shape.
        """
        values, where = self._sizes_of(shape, parameter)
        return {k: spec for k, spec in self.states.items() if holds(spec.exists, values, where)}

    def _sizes_of(self, shape: Shape, name: str | None) -> tuple[Mapping[sp.Symbol, sp.Expr], str]:
        """The numbers of the symbols of a shape for which the rule is, and its name in errors."""
        owner = "" if name is None else f" of parameter {name!r}"
        where = f"rule {self.name!r}, shape {list(shape)}{owner}"
        values = shape_values(shape)
        if not holds(self.requires, values, where):
            raise DefinitionError(
                f"the rule is only for shapes with {self.requires}",
                where=where,
                hint="give the other parameters another rule: groups=[Group('*.bias', rule=…), …]",
            )
        return values, where

    def state_shape(self, name: str, shape: Shape) -> Shape:
        """Returns the shape of a state for a parameter of this shape."""
        return shape_by(self.states[name].shape, shape, f"rule {self.name!r}, state {name!r}")

    def verify(self, *claims: Claim, effort: float = 1.0, budget: float | None = None) -> Report:
        """Returns the verdicts of claims; see :func:`closedform.api.verification.verify`."""
        return delegation.functions().verify(self, *claims, effort=effort, budget=budget)

    def bind(self, **hyperparameters: Hyper) -> UpdateRule:
        """Returns the rule with these hyperparameters changed.

        A hyperparameter that is 0 in the call of the function that made the rule has no term; with
        another value, the function makes the rule anew.

        Raises:
            DefinitionError: The rule has no hyperparameter of that name.
        """
        absent = {k: v for k, v in hyperparameters.items() if k not in self.hyperparameters}
        rule = self._with_terms(absent) if absent else self
        values = {**self.hyperparameters, **hyperparameters}
        present = {name: values.get(name, value) for name, value in rule.hyperparameters.items()}
        return replace(rule, hyperparameters=present)

    def made_by(self, call: functools.partial[UpdateRule]) -> UpdateRule:
        """Returns the rule with the call that made it."""
        rule = copy.copy(self)
        # The constructor has checked the fields of this rule.
        object.__setattr__(rule, "call", call)
        return rule

    @property
    def arguments(self) -> Mapping[str, Any]:
        """The arguments of the call that made the rule, with defaults; none for another rule."""
        if self.call is None:
            return {}
        bound = inspect.signature(self.call.func).bind(*self.call.args, **self.call.keywords)
        bound.apply_defaults()
        return bound.arguments

    def _with_terms(self, values: Mapping[str, Any]) -> UpdateRule:
        """The rule with hyperparameters whose terms its function has left out."""
        where, arguments = f"rule {self.name!r}", self.arguments
        name = next((name for name in values if name not in arguments), None)
        if self.call is None or name is not None:
            raise self._no_hyperparameter(name or next(iter(values)))
        if replace(self.call(), hyperparameters=self.hyperparameters) != self:
            raise DefinitionError(
                f"the term of {next(iter(values))!r} is left out, as it is 0",
                where=where,
                hint=f"the rule is {self.call.func.__name__}(…) with a transform: give a value in "
                "that call, and 0 to the other parameters",
            )
        # By name: an argument may have been given by its position.
        rule = self.call.func(**{**arguments, **values})
        for name, value in values.items():
            is_absent = name not in rule.hyperparameters
            if is_absent and (isinstance(value, bool | Schedule) or value != 0):
                raise self._no_hyperparameter(name)
        return rule

    def _no_hyperparameter(self, name: str) -> DefinitionError:
        hint = f"it has {', '.join(self.hyperparameters)}"
        if self.call is None:
            hint += "; a term that is 0 may be left out: make the rule with another value there"
        return DefinitionError(
            f"{name!r} is not a hyperparameter", where=f"rule {self.name!r}", hint=hint
        )

    def clamped(self) -> UpdateRule:
        """Returns the rule with its ranges written into the expressions, as Max and Min."""
        if not self.ranges:
            return self
        symbols = {symbol for part in self.all_expressions() for symbol in part.free_symbols}
        inside: dict[sp.Basic, sp.Basic] = {
            symbol: sp.Min(sp.Max(symbol, self.ranges[symbol.name][0]), self.ranges[symbol.name][1])
            for symbol in symbols
            if symbol.name in self.ranges and self.hyperparameters.get(symbol.name, 0) is None
        }
        expressions = self.expressions_by(lambda expr: expr.xreplace(inside))
        return replace(self, **expressions, ranges={})

    def _checked_shared(self) -> dict[str, Shared]:
        for name, spec in self.shared.items():
            if not isinstance(spec, Shared):
                raise DefinitionError(
                    f"a state of the model must be a Shared, got {type(spec).__name__} {spec!r}",
                    where=f"rule {self.name!r}, shared {name!r}",
                    hint="such as Shared(next, initial=0)",
                )
        return {
            name: replace(
                spec,
                next=self._checked_expression(name, spec.next),
                initial=exact_number(spec.initial, f"initial value of {name!r}"),
            )
            for name, spec in self.shared.items()
        }

    def _checked_state(self, name: str, spec: State) -> State:
        where = f"rule {self.name!r}, state {name!r}"
        if not isinstance(spec, State):
            raise DefinitionError(
                f"a state must be a State, got {type(spec).__name__} {spec!r}",
                where=where,
                hint="such as State(next, initial=0)",
            )
        check_rule(spec.shape, where)
        _check_stored(spec.stored, where, STORED_STATES)
        initial = spec.initial
        if initial != PARAM:
            initial = exact_number(initial, f"initial value of state {name!r}")
        return replace(spec, next=self._checked_expression(name, spec.next), initial=initial)

    def _checked_expression(self, name: str, expr: Any) -> sp.Expr:
        if isinstance(expr, sp.Expr):
            if expr.has(sp.I, sp.nan, sp.zoo, sp.oo, -sp.oo):
                raise DefinitionError(
                    f"an expression must be real and finite, got {expr}",
                    where=f"rule {self.name!r}, {name!r}",
                )
            return rationalize(expr, f"{name!r} in rule {self.name!r}")
        return exact_number(expr, f"next value of {name!r} in rule {self.name!r}")


def _check_stored(dtype: str | None, where: str, dtypes: tuple[str, ...] = STORED) -> None:
    if dtype not in (None, *dtypes):
        raise DefinitionError(f"stored must be one of {dtypes} or None, got {dtype!r}", where=where)

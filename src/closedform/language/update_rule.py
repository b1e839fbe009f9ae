"""Update rules: one optimizer step as data, an expression for the parameter and each state."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Any

import sympy as sp

from closedform.errors import DefinitionError
from closedform.language.numbers import exact_number, rationalize
from closedform.language.schedule import Schedule
from closedform.language.symbols import GRAD, PARAM, state, t

SHAPES = ("param", "scalar")
"""Shape rules of a state: that of the parameter, or rank 0."""


@dataclass(frozen=True, slots=True)
class State:
    """A state of an update rule.

    Attributes:
        next: Its value after the step, an expression in ``t``, ``PARAM``, ``GRAD``, hyperparameter
            symbols and the ``state(name)`` symbols.
        initial: Its value before the first step: a number, or ``PARAM``.
        shape: "param" for the parameter's shape, "scalar" for rank 0.
    """

    next: sp.Expr
    initial: sp.Expr | float = 0
    shape: str = "param"


@dataclass(frozen=True, slots=True)
class UpdateRule:
    """One optimizer step: what becomes of the parameter and of each state.

    Attributes:
        name: A name for graphs, files and errors.
        param: The parameter after the step, an expression as in ``State.next``.
        states: States by name, in the order of the optimizer's own state dict.
        hyperparameters: Value of each hyperparameter symbol by name: a number, a Schedule (then it
            is inside the graph), or None for an input of the graph.

    Raises:
        DefinitionError: A symbol without a hyperparameter or state of its name, or a value that is
            neither a number nor a Schedule.
    """

    name: str
    param: sp.Expr
    states: Mapping[str, State] = field(default_factory=dict)
    hyperparameters: Mapping[str, Any] = field(default_factory=dict)

    def __post_init__(self) -> None:
        values = {
            key: value
            if value is None or isinstance(value, Schedule)
            else exact_number(value, f"hyperparameter {key!r} of {self.name}")
            for key, value in self.hyperparameters.items()
        }
        object.__setattr__(self, "hyperparameters", values)
        object.__setattr__(self, "param", self._checked_expression("param", self.param))
        states = {name: self._checked_state(name, spec) for name, spec in self.states.items()}
        object.__setattr__(self, "states", states)
        known = {t, PARAM, GRAD} | {state(name) for name in states}
        for label, expr in self.expressions().items():
            unknown = sorted(
                symbol.name
                for symbol in expr.free_symbols - known
                if symbol.name not in self.hyperparameters
            )
            if unknown:
                raise DefinitionError(
                    f"{unknown[0]!r} is neither a state nor a hyperparameter",
                    where=f"rule {self.name!r}, next value of {label!r}",
                    hint="add it to hyperparameters or states",
                )

    def expressions(self) -> dict[str, sp.Expr]:
        """Returns the next value of the parameter ("param") and of each state by name."""
        return {"param": self.param, **{name: spec.next for name, spec in self.states.items()}}

    def bind(self, **hyperparameters: Any) -> UpdateRule:
        """Returns the rule with these hyperparameters changed.

        Raises:
            DefinitionError: The rule has no hyperparameter of that name.
        """
        for key in hyperparameters:
            if key not in self.hyperparameters:
                raise DefinitionError(
                    f"{key!r} is no hyperparameter",
                    where=f"rule {self.name!r}",
                    hint=f"it has {', '.join(self.hyperparameters)}",
                )
        merged = {**self.hyperparameters, **hyperparameters}
        return UpdateRule(self.name, self.param, self.states, merged)

    def _checked_state(self, name: str, spec: State) -> State:
        where = f"rule {self.name!r}, state {name!r}"
        if spec.shape not in SHAPES:
            raise DefinitionError(
                f"the shape rule must be one of {SHAPES}, got {spec.shape!r}", where=where
            )
        initial = spec.initial
        if initial != PARAM:
            initial = exact_number(initial, f"initial value of state {name!r}")
        return State(self._checked_expression(name, spec.next), initial, spec.shape)

    def _checked_expression(self, name: str, expr: Any) -> sp.Expr:
        if isinstance(expr, sp.Expr):
            return rationalize(expr)
        return exact_number(expr, f"next value of {name!r} in rule {self.name!r}")

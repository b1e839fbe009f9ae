"""One step of an update rule as claims read it, and the code shared by claims about rules."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping
from dataclasses import dataclass
from typing import Any

import sympy as sp

from closedform.errors import VerificationError, nearest
from closedform.language import PARAM, Schedule, UpdateRule, exact_number, state, t
from closedform.language.symbols import local, rationalize
from closedform.verify.claims.core import Goal, all_defined
from closedform.verify.claims.reading import Condition, value_text
from closedform.verify.terms.build import TRUE
from closedform.verify.terms.limits import LIMITS
from closedform.verify.terms.sympy_io import term
from closedform.verify.terms.tree import Term

STEP_LATER = {t: t + 1}
"""The substitution that turns a statement about a step into one about the next."""


@dataclass(frozen=True, slots=True)
class Step:
    """One step of a rule with the known hyperparameters in it.

    Attributes:
        rule: The rule.
        values: The value of each hyperparameter symbol that has one, by name.
        param: The parameter after the step.
        states: Each state after the step, by name.
        initial: Each state before the first step.
        shared: Each state of the whole model after the step, by its symbol.
        advances: The condition under which the step counts.
        evaluation: The point at which the model is evaluated, in the parameter and states; None for
            the parameter.
    """

    rule: UpdateRule
    values: Mapping[str, sp.Expr]
    param: sp.Expr
    states: Mapping[str, sp.Expr]
    initial: Mapping[str, sp.Expr]
    shared: Mapping[sp.Symbol, sp.Expr]
    advances: sp.Basic
    evaluation: sp.Expr | None

    def read(self, expr: Any) -> Any:
        """Returns an expression or condition with the known hyperparameters in it."""
        if isinstance(expr, bool):
            return sp.true if expr else sp.false
        if not isinstance(expr, sp.Basic):
            return exact_number(expr, f"a value in a claim about {self.rule.name}")
        symbols = open_symbols(self)
        values_by_name = {**symbols, **self.values}
        exactly = rationalize(expr)
        places = {
            s: values_by_name[s.name] for s in exactly.free_symbols if s.name in values_by_name
        }
        return exactly.xreplace(places)

    def after(self) -> dict[sp.Symbol, sp.Expr]:
        """Returns the parameter and the states after the step, by their symbols."""
        return {PARAM: self.param, **{state(name): expr for name, expr in self.states.items()}}

    def evaluation_after(self) -> sp.Expr:
        """Returns the point at which the model is evaluated, in what a step is given."""
        if self.evaluation is None:
            return self.param
        return self.evaluation.xreplace({**self.after(), **self.shared, **STEP_LATER})


def step_of(rule: UpdateRule, open: Iterable[str]) -> Step:
    """Returns one step of a rule; hyperparameters named in ``open`` stay symbols.

    Raises:
        VerificationError: It is not a rule, has no hyperparameter of that name, or is too large
            with its definitions in place: five products of Muon have 27 million nodes.
    """
    if not isinstance(rule, UpdateRule):
        raise VerificationError(
            f"this claim is about an UpdateRule, got {type(rule).__name__}",
            hint="make one with closedform.UpdateRule or closedform.optimizers",
        )
    left_open = set(open)
    for name in left_open:
        if name not in rule.hyperparameters:
            raise VerificationError(
                f"{name!r} is not a hyperparameter",
                where=f"rule {rule.name!r}",
                hint=nearest(name, rule.hyperparameters),
            )
    _check_size(rule)
    values = {
        name: value.bound if isinstance(value, Schedule) else value
        for name, value in rule.hyperparameters.items()
        if value is not None and name not in left_open
    }
    # A definition may use those before it.
    meanings: dict[sp.Basic, sp.Basic] = {}

    def with_known(expr: Any) -> Any:
        names = {s: values[s.name] for s in expr.free_symbols if s.name in values}
        return _replace(expr, {**names, **meanings})

    for name, definition in rule.definitions.items():
        meanings[local(name)] = with_known(definition)

    next_states = {name: with_known(spec.next) for name, spec in rule.states.items()}
    initial = {name: spec.initial for name, spec in rule.states.items()}
    model_states = {
        symbol: with_known(rule.shared[name].next) for name, symbol in rule.shared_symbols.items()
    }
    advances = with_known(rule.advances)
    evaluation = None if rule.evaluation is None else with_known(rule.evaluation)
    return Step(
        rule,
        values,
        with_known(rule.param),
        next_states,
        initial,
        model_states,
        advances,
        evaluation,
    )


def _replace(expr: sp.Basic, results: dict[sp.Basic, sp.Basic]) -> sp.Basic:
    """An expression with parts replaced; the operands of minima and maxima are not compared.

    SymPy factors the difference of each two of them, in 1.4 of the 2.6 s of the library's rules.
    """
    if expr not in results:
        args = [_replace(arg, results) for arg in expr.args]
        is_same = all(new is old for new, old in zip(args, expr.args, strict=True))
        options = {"evaluate": False} if isinstance(expr, sp.Min | sp.Max) else {}
        results[expr] = expr if is_same else expr.func(*args, **options)
    return results[expr]


def _check_size(rule: UpdateRule) -> None:
    """Refuses a step whose definitions grow exponentially when one is put into the next."""
    sizes: dict[sp.Basic, int] = {}

    def size(expr: sp.Basic) -> int:
        if expr not in sizes:
            sizes[expr] = 1 + sum(map(size, expr.args))
        return sizes[expr]

    for name, expr in rule.definitions.items():
        sizes[local(name)] = size(expr)
    nodes = max(map(size, (rule.param, *(spec.next for spec in rule.states.values()))))
    if nodes > LIMITS.step_nodes:
        raise VerificationError(
            f"a step has {nodes:,} nodes with its definitions in place, and the prover reads at "
            f"most {LIMITS.step_nodes:,}",
            where=f"rule {rule.name!r}",
            hint="claims about a rule with fewer iterations are read, such as of Muon with "
            "ns_steps=1",
        )


def open_symbols(step: Step) -> dict[str, sp.Symbol]:
    """Returns the symbols of the hyperparameters that have no value, by name."""
    expressions = (step.param, *step.states.values())
    symbols_by_name = {s.name: s for expr in expressions for s in expr.free_symbols}
    return {
        name: symbols_by_name[name] for name in step.rule.hyperparameters if name in symbols_by_name
    }


def inductive(
    step: Step, condition: sp.Basic, premises: sp.Basic | None = None
) -> tuple[tuple[Goal, ...], tuple[Goal, ...]]:
    """Returns the goals that a condition holds initially and is preserved, and their premises.

    ``premises`` holds before the step; it is the condition itself if None.
    """
    begin = {state(name): expr for name, expr in step.initial.items()}
    first = condition.xreplace({t: sp.Integer(0), **begin})
    later_condition = condition.xreplace({**step.after(), **STEP_LATER})
    facts = given_by(condition if premises is None else premises)
    displays = tuple(
        (f"the next {name}", term(expr))
        for name, expr in step.states.items()
        if state(name) in condition.free_symbols
    )
    goals = (
        Goal(f"{value_text(condition)} at the beginning", term(first)),
        Goal(
            f"{value_text(condition)} is preserved by a step",
            term(later_condition),
            facts,
            shown=displays,
        ),
    )
    definitions = [
        (f"state {name!r}", expr)
        for name, expr in step.states.items()
        if state(name) in condition.free_symbols
    ]
    presumes = [goal for label, expr in definitions for goal in defined_in(label, (expr,), facts)]
    return goals, tuple(presumes)


def exactly(expr: Any) -> Any:
    """Returns an expression, or the exact number of a Python number."""
    return expr if isinstance(expr, sp.Basic) else exact_number(expr, "the value of a state")


def given_by(*conditions: sp.Basic) -> tuple[Term, ...]:
    """Returns conditions as premises; those that always hold are left out."""
    terms = dict.fromkeys(term(condition) for condition in conditions)
    return tuple(fact for fact in terms if fact != TRUE)


def facts_of(step: Step, assume: Iterable[Condition]) -> tuple[Term, ...]:
    """Returns the assumptions of a claim about a rule.

    Raises:
        VerificationError: One is about t, the parameter or a state: an induction would skip the
            steps at which it does not hold.
    """
    conditions = tuple(assume)
    changing_symbols = {t, PARAM, *(state(name) for name in step.states)}
    for condition in conditions:
        symbols = condition.free_symbols if isinstance(condition, sp.Basic) else set()
        for symbol in sorted(symbols & changing_symbols, key=str):
            raise VerificationError(
                f"assume holds conditions on hyperparameters, got {symbol} in "
                f"{value_text(condition)}",
                where=f"rule {step.rule.name!r}",
                hint="state it as an invariant, or with where",
            )
    return given_by(*map(step.read, conditions))


def defined_in(label: str, exprs: Iterable[sp.Expr], premises: tuple[Term, ...]) -> Iterator[Goal]:
    """Yields the goals that expressions have a value."""
    for expr in exprs:
        yield from all_defined(term(expr), premises, f"in {label}, ")

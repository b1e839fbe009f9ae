"""Building blocks of the transforms: another gradient, and a step that may be skipped."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from dataclasses import replace

import sympy as sp

from closedform.errors import DefinitionError, nearest
from closedform.language import (
    GRAD,
    PARAM,
    Shared,
    State,
    UpdateRule,
    counter,
    local,
    shared,
    state,
)


def substitute_symbols(
    rule: UpdateRule,
    values: dict[sp.Symbol, sp.Expr],
    first: dict[str, sp.Expr] | None = None,
) -> UpdateRule:
    """Returns a rule with symbols replaced in all its expressions, and first definitions."""
    expressions = rule.expressions_by(lambda expr: expr.xreplace(values))
    expressions["definitions"] = {**(first or {}), **expressions["definitions"]}
    return replace(rule, **expressions)


def with_gradient(rule: UpdateRule, gradient: sp.Expr) -> UpdateRule:
    """Returns a rule that takes an expression in place of the gradient, computed once.

    The expression may hold ``GRAD``, ``PARAM`` and all other symbols of the rule.
    """
    name = unused_name(rule, "gradient")
    return substitute_symbols(rule, {GRAD: local(name)}, {name: gradient})


def unless(
    rule: UpdateRule,
    is_done: sp.Basic,
    where: str,
    inputs: Sequence[str] = (),
    **common: Shared,
) -> UpdateRule:
    """Returns a rule whose step counts for nothing where a condition on the model fails.

    Parameters, states, states of the model and the clock keep their values there.

    Args:
        rule: The rule.
        is_done: The condition.
        where: What is being made, for errors.
        inputs: Hyperparameters of the condition, which have no value.
        **common: Further states of the model, which go on in every step.

    Raises:
        DefinitionError: The rule has a state of this name already.
    """
    _check_names(rule, common, where)

    def unchanged_there(following: sp.Expr, before: sp.Expr) -> sp.Expr:
        return sp.Piecewise((following, is_done), (before, True))

    return replace(
        rule,
        param=unchanged_there(rule.param, PARAM),
        states={
            name: replace(spec, next=unchanged_there(spec.next, state(name)))
            for name, spec in rule.states.items()
        },
        shared={
            name: replace(spec, next=unchanged_there(spec.next, shared_symbol(name, spec)))
            for name, spec in rule.shared.items()
        }
        | common,
        advances=sp.And(rule.advances, is_done),
        hyperparameters={**rule.hyperparameters, **dict.fromkeys(inputs)},
    )


def split_step(rule: UpdateRule, where: str) -> tuple[sp.Expr, sp.Expr]:
    """Returns the parameter less its decoupled weight decay, and the step subtracted from that.

    Raises:
        DefinitionError: The next parameter is not the parameter less some terms.
    """
    terms = sp.Add.make_args(rule.param)
    if PARAM not in terms:
        raise DefinitionError(
            f"the next parameter of rule {rule.name!r} is not the parameter less a step",
            where=where,
            hint=f"apply {where} before other transforms",
        )
    data = {GRAD, *map(state, rule.states), *map(local, rule.definitions)}
    # Terms without gradient or state are the decoupled weight decay.
    moving = [term for term in terms if term.free_symbols & data]
    return sp.Add(*(term for term in terms if term not in moving)), -sp.Add(*moving)


def with_following_param(rule: UpdateRule) -> tuple[UpdateRule, sp.Symbol]:
    """Returns the rule with its next parameter as a definition, and the symbol of that."""
    rule, following = with_definition(rule, "following", rule.param)
    return replace(rule, param=following), following


def with_definition(rule: UpdateRule, base: str, expr: sp.Expr) -> tuple[UpdateRule, sp.Symbol]:
    """Returns the rule with a further definition, and the symbol of that."""
    name = unused_name(rule, base)
    return replace(rule, definitions={**rule.definitions, name: expr}), local(name)


def with_states(rule: UpdateRule, where: str, **states: State) -> UpdateRule:
    """Returns the rule with further states.

    Raises:
        DefinitionError: It has one of these names already.
    """
    _check_names(rule, states, where)
    return replace(rule, states={**rule.states, **states})


def with_shared(rule: UpdateRule, where: str, **common: Shared) -> UpdateRule:
    """Returns the rule with further states of the model.

    Raises:
        DefinitionError: It has one of these names already.
    """
    _check_names(rule, common, where)
    return replace(rule, shared={**rule.shared, **common})


def with_evaluation(rule: UpdateRule, where: str, point: sp.Expr) -> UpdateRule:
    """Returns the rule with a point of evaluation.

    Raises:
        DefinitionError: It has one already.
    """
    if rule.evaluation is not None:
        raise DefinitionError(
            f"rule {rule.name!r} is evaluated at a separate point already",
            where=where,
            hint="average the parameters of a rule without one",
        )
    return replace(rule, evaluation=point)


def shared_symbol(name: str, spec: Shared) -> sp.Symbol:
    """Returns the symbol of a state of the model."""
    return counter(name) if spec.is_counter else shared(name)


def unused_name(rule: UpdateRule, base: str) -> str:
    """Returns a name for a definition that the rule does not have."""
    number = 1
    while f"{base}_{number}" in rule.definitions:
        number += 1
    return f"{base}_{number}"


def check_rule(rule: object, where: str) -> None:
    """Raises DefinitionError if a value is not a rule."""
    if not isinstance(rule, UpdateRule):
        raise DefinitionError(
            f"a transform takes an UpdateRule, got {type(rule).__name__} {rule!r}", where=where
        )


def check_states(rule: UpdateRule, names: Iterable[str], where: str) -> None:
    """Raises DefinitionError if the rule lacks one of these states."""
    for name in names:
        if name not in rule.states:
            raise DefinitionError(
                f"rule {rule.name!r} has no state {name!r}",
                where=where,
                hint=nearest(name, rule.states) if rule.states else "it has none",
            )


def check_unstored(rule: UpdateRule, names: Iterable[str], where: str) -> None:
    """Raises DefinitionError if one of these states is a number, or stored in few bits already."""
    for name in names:
        spec = rule.states[name]
        if spec.stored is not None or spec.shape == "scalar":
            kind = "one number" if spec.stored is None else f"stored in {spec.stored} already"
            raise DefinitionError(f"state {name!r} of rule {rule.name!r} is {kind}", where=where)


def _check_names(rule: UpdateRule, names: Iterable[str], where: str) -> None:
    for name in names:
        if name in rule.states or name in rule.shared:
            raise DefinitionError(
                f"rule {rule.name!r} has a state {name!r} already",
                where=where,
                hint="a transform is applied once",
            )

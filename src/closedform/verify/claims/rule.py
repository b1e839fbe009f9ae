"""Claims about update rules: equality under a substitution, invariants, bounds, induction on t.

Hyperparameters without a value, and those named in ``open``, are quantified over all their values;
the others have their value in the rule. A schedule inside a rule is its expression in ``t``.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from dataclasses import replace
from typing import Any

import sympy as sp

from closedform.errors import VerificationError, nearest
from closedform.language import PARAM, UpdateRule, state, t
from closedform.verify.claims.core import Claim, Goal
from closedform.verify.claims.reading import LATER, Condition, value_text
from closedform.verify.claims.runs import ConstantRuns, Runs
from closedform.verify.claims.step import (
    STEP_LATER,
    Step,
    defined_in,
    exactly,
    facts_of,
    given_by,
    inductive,
    open_symbols,
    step_of,
)
from closedform.verify.terms.build import (
    absolute,
    both,
    either,
    equal,
    less,
    less_equal,
    negate,
    substitute,
    subtract,
)
from closedform.verify.terms.sympy_io import CLOCK, term
from closedform.verify.terms.tree import Op, Term, walk


def same_rule(
    one: UpdateRule,
    other: UpdateRule,
    *,
    substitution: Mapping[str, Any] | None = None,
    states: Mapping[str, Any] | None = None,
    open: Iterable[str] = (),
    invariants: Iterable[sp.Basic] = (),
    where: Condition = True,
    assume: Iterable[Condition] = (),
) -> Claim:
    """Claims that two rules make the same steps, from their first one on.

    Steps are compared at all states that the invariants admit; states of the whole model are
    compared by their names. The claim is REFUTED by a run of the first rule to a step at which they
    differ. Where no run is found to such a state it is UNKNOWN, and the reason names the state.

    Args:
        one: The first rule; conditions and expressions here are in its names.
        other: The second rule. Its state of a name is the state of that name of the first, if
            ``states`` says nothing else.
        substitution: What a hyperparameter of the second is: a number or an expression.
        states: What a state of the second is: the name of a state of the first, or an expression
            in its states. It must be so at the beginning, and after each step that begins so.
        open: Hyperparameters of either rule that are quantified over all their values.
        invariants: Conditions on states of the first that hold before every step; they are
            proved, too.
        where: A condition under which steps are compared, on ``t``, ``PARAM``, ``GRAD``, states.
            The states before such a step are taken as the same, whatever the steps before it do.
        assume: Conditions on hyperparameters.

    Raises:
        VerificationError: A name is none of the rule's, or a state of the second has no meaning.

    Example:
        >>> from closedform import optimizers
        >>> bare = optimizers.adamw(weight_decay=0)
        >>> claim = same_rule(bare, optimizers.adam(), invariants=[state("exp_avg_sq") >= 0])
        >>> claim.verify().proved
        True
    """
    names = set(open)
    unknown = sorted(names - {*one.hyperparameters, *other.hyperparameters})
    if unknown:
        raise VerificationError(
            f"{unknown[0]!r} is a hyperparameter of neither rule",
            where=f"{one.name} and {other.name}",
            hint=nearest(unknown[0], {*one.hyperparameters, *other.hyperparameters}),
        )
    replacements = substitution or {}
    first = step_of(one, names & set(one.hyperparameters))
    second = step_of(other, (names & set(other.hyperparameters)) | set(replacements))
    meaning = _substitute_open(first, second, replacements)
    coupling = _coupling(first, second, states or {})
    _check_shared(first, second)
    names_of_second = {state(name): expr for name, expr in coupling.items()}

    def visible(expr: sp.Expr) -> sp.Expr:
        places = {s: meaning[s.name] for s in expr.free_symbols if s.name in meaning}
        return expr.xreplace({**places, **names_of_second})

    conditions = [first.read(condition) for condition in invariants]
    premises = given_by(first.read(where), *conditions)
    pairs = [("the parameter", first.param, visible(second.param))]
    pairs += [
        (f"state {name!r}", expr.xreplace(first.after()), visible(second.states[name]))
        for name, expr in coupling.items()
    ]
    pairs += [
        (str(symbol), first.shared[symbol], visible(expr)) for symbol, expr in second.shared.items()
    ]
    if one.evaluation is not None or other.evaluation is not None:
        points = first.evaluation_after(), visible(second.evaluation_after())
        pairs.append(("the point of evaluation", *points))
    goals = [
        Goal(
            f"{label} after the step is the same",
            equal(term(left), term(right)),
            premises,
            shown=((one.name, term(left)), (other.name, term(right))),
        )
        for label, left, right in pairs
    ]
    # Induction: the coupling of the states holds before the first step (these goals) and is kept by
    # each step (those above).
    begin = {state(name): expr for name, expr in first.initial.items()}
    for name, expr in coupling.items():
        left, right = term(expr.xreplace(begin)), term(second.initial[name])
        displays = ((one.name, left), (other.name, right))
        goals.append(Goal(f"state {name!r} begins the same", equal(left, right), shown=displays))
    for name in other.shared:
        left, right = (term(rule.shared[name].initial) for rule in (one, other))
        displays = ((one.name, left), (other.name, right))
        goals.append(Goal(f"shared.{name} begins the same", equal(left, right), shown=displays))
    if first.advances != second.advances:
        counts, others = term(first.advances), term(visible(second.advances))
        same = either(both(counts, others), both(negate(counts), negate(others)))
        goals.append(Goal("both steps count, or neither", same, premises))
    presumes = [
        goal for label, left, right in pairs for goal in defined_in(label, (left, right), premises)
    ]
    preservation_goals, presumed_goals = _preservation_goals(first, conditions)
    goals += preservation_goals
    sentence = f"{one.name} and {other.name} make the same steps"
    if where is not True:
        sentence += f" from the same states where {value_text(where)}"
    return _claim_of(first, "same_rule", sentence, goals, (*presumes, *presumed_goals), assume)


def _substitute_open(
    first: Step, second: Step, substitution: Mapping[str, Any]
) -> dict[str, sp.Expr]:
    """Each open hyperparameter of the second rule, in the names of the first."""
    symbols_of_first = open_symbols(first)
    meaning = {
        name: symbols_of_first[name] for name in open_symbols(second) if name in symbols_of_first
    }
    return meaning | {name: first.read(value) for name, value in substitution.items()}


def _coupling(first: Step, second: Step, states: Mapping[str, Any]) -> dict[str, sp.Expr]:
    """Each state of the second rule, in the states of the first."""
    coupling = {}
    _check_states(states, second)
    for name in second.states:
        meaning = states.get(name, name)
        if isinstance(meaning, str):
            if meaning not in first.states:
                raise VerificationError(
                    f"state {name!r} of {second.rule.name} has no meaning in {first.rule.name}",
                    where="same_rule",
                    hint="say with states which state or expression of the first rule it is",
                )
            coupling[name] = state(meaning)
        else:
            coupling[name] = first.read(meaning)
    return coupling


def _check_shared(first: Step, second: Step) -> None:
    for symbol in second.shared:
        if symbol not in first.shared:
            raise VerificationError(
                f"{symbol} of {second.rule.name} is not a state of the whole model in "
                f"{first.rule.name}",
                where="same_rule",
                hint="compare rules that have the same states of the whole model",
            )


def _check_states(names: Iterable[str], step: Step) -> None:
    for name in names:
        if name not in step.states:
            raise VerificationError(
                f"{name!r} is not a state",
                where=f"rule {step.rule.name!r}",
                hint=nearest(name, step.states) if step.states else "it has none",
            )


def invariant(
    rule: UpdateRule,
    condition: sp.Basic,
    *,
    open: Iterable[str] = (),
    assume: Iterable[Condition] = (),
) -> Claim:
    """Claims that a condition on states holds at the beginning and is preserved by every step.

    Args:
        rule: The rule.
        condition: The condition on ``state(name)`` and ``PARAM`` before a step.
        open: Hyperparameters that are quantified over all their values.
        assume: Conditions on hyperparameters.

    Example:
        >>> from closedform import optimizers
        >>> invariant(optimizers.adam(), state("exp_avg_sq") >= 0).verify().proved
        True
    """
    return invariant_of(step_of(rule, open), condition, assume)


def invariant_of(step: Step, condition: Condition, assume: Iterable[Condition]) -> Claim:
    """Returns ``invariant`` for a step that has been read."""
    goals, presumes = inductive(step, step.read(condition))
    sentence = f"{value_text(condition)} before every step"
    return _claim_of(step, "invariant", sentence, goals, presumes, assume)


def finite_steps(
    rule: UpdateRule,
    *,
    invariants: Iterable[sp.Basic] = (),
    open: Iterable[str] = (),
    assume: Iterable[Condition] = (),
) -> Claim:
    """Claims that the parameter and every state are finite and real after every step.

    Args:
        rule: The rule.
        invariants: Conditions on states that hold before every step; they are proved, too.
        open: Hyperparameters that are quantified over all their values.
        assume: Conditions on hyperparameters.
    """
    return finite_steps_of(step_of(rule, open), invariants, assume)


def finite_steps_of(
    step: Step, invariants: Iterable[sp.Basic], assume: Iterable[Condition]
) -> Claim:
    """Returns ``finite_steps`` for a step that has been read."""
    conditions = [step.read(condition) for condition in invariants]
    premises = given_by(*conditions)
    goals = list(defined_in("the parameter", (step.param,), premises))
    for name, expr in step.states.items():
        goals += defined_in(f"state {name!r}", (expr,), premises)
    preserved_goals, presumes = _preservation_goals(step, conditions)
    presumes += preserved_goals
    return _claim_of(step, "finite", "every step is finite", goals, presumes, assume)


def _claim_of(
    step: Step,
    name: str,
    sentence: str,
    goals: Iterable[Goal],
    presumes: Iterable[Goal],
    assume: Iterable[Condition],
) -> Claim:
    facts = facts_of(step, assume)
    return Claim(name, sentence, step.rule, tuple(goals), tuple(presumes), facts, runs=Runs(step))


def _preservation_goals(step: Step, conditions: list[sp.Basic]) -> tuple[list[Goal], list[Goal]]:
    """The goals that all conditions together hold before every step, and what they presume.

    A condition that is not preserved leaves open what it was to prove, which may still be true.
    """
    goals: list[Goal] = []
    presumes: list[Goal] = []
    for condition in conditions:
        preserved_goals, presumed_goals = inductive(step, condition, premises=sp.And(*conditions))
        goals += preserved_goals
        presumes += presumed_goals
    return (
        [replace(goal, is_sufficient=True) for goal in goals],
        [replace(goal, is_sufficient=True) for goal in presumes],
    )


def bounded_update(
    rule: UpdateRule,
    bound: Any,
    *,
    invariants: Iterable[sp.Basic] = (),
    open: Iterable[str] = (),
    assume: Iterable[Condition] = (),
) -> Claim:
    """Claims that no step changes an element of the parameter by more than ``bound``.

    Args:
        rule: The rule.
        bound: A number, or an expression in hyperparameters, ``PARAM``, ``GRAD``, states and t.
        invariants: Conditions on states that hold before every step; they are proved, too.
        open: Hyperparameters that are quantified over all their values.
        assume: Conditions on hyperparameters.

    Example:
        >>> from closedform import optimizers
        >>> bounded_update(optimizers.lion(lr=0.5), 0.5).verify().proved
        True
    """
    step = step_of(rule, open)
    conditions = [step.read(condition) for condition in invariants]
    premises = given_by(*conditions)
    change = subtract(term(step.param), term(PARAM))
    limit = term(step.read(bound))
    displays = (("the change", change), ("the bound", limit))
    goal = Goal(
        f"|change| <= {value_text(bound)}",
        less_equal(absolute(change), limit),
        premises,
        shown=displays,
    )
    presumes = defined_in("the parameter", (step.param, step.read(bound)), premises)
    preserved_goals, presumed_goals = _preservation_goals(step, conditions)
    sentence = f"a step changes the parameter by at most {value_text(bound)}"
    goals = (goal, *preserved_goals)
    return _claim_of(step, "bounded_update", sentence, goals, (*presumes, *presumed_goals), assume)


def after_steps(
    rule: UpdateRule,
    states: Mapping[str, Any],
    *,
    where: Condition = True,
    open: Iterable[str] = (),
    assume: Iterable[Condition] = (),
) -> Claim:
    """Claims the states after t steps with one gradient, by induction on t.

    The induction is whole: it begins at t = 0, and each step before one at which ``where`` holds
    is asked, whether ``where`` holds there or not. A step that fails leaves the claim UNKNOWN where
    the condition is not one on the first steps, such as ``t < 100``.

    Args:
        rule: The rule.
        states: An expression in ``t``, ``GRAD`` and hyperparameters for each state that the claim
            is about; at t = 0 it is the state's initial value.
        where: A condition on ``t``, ``GRAD`` and hyperparameters: the numbers of steps after
            which the states are so. It must hold somewhere.
        open: Hyperparameters that are quantified over all their values.
        assume: Conditions on hyperparameters.

    Raises:
        VerificationError: ``where`` is about the parameter or a state, or ``assume`` about t.

    Example:
        >>> from closedform import optimizers, t
        >>> from closedform.expr import GRAD
        >>> moments = {"exp_avg": GRAD * (1 - 0.9**t)}
        >>> after_steps(optimizers.adam(betas=(0.9, 0.999)), moments).verify().proved
        True
    """
    step = step_of(rule, open)
    _check_states(states, step)
    closed_forms = {name: step.read(exactly(expr)) for name, expr in states.items()}
    places = {state(name): expr for name, expr in closed_forms.items()}
    condition = step.read(where)
    _check_condition(condition, step)
    before, premises = _before(condition)
    # Where the condition holds on a prefix of the steps, a failing step refutes; otherwise the
    # chain is only broken there, and the formula may still be true.
    is_prefix = all(map(_is_prefix, given_by(condition)))
    goals: list[Goal] = []
    presumes: list[Goal] = []
    if premises:
        text = f"{value_text(where)} holds for some number of steps"
        presumes.append(Goal(text, term(condition), is_somewhere=True))
    for name, expr in closed_forms.items():
        begin, initial_value = term(expr.xreplace({t: sp.Integer(0)})), term(step.initial[name])
        # The induction hypothesis: the states before the step are the formulas at t.
        step_value = step.states[name].xreplace(places)
        later = expr.xreplace(STEP_LATER)
        displays = (("the step", term(step_value)), ("the formula", term(later)))
        statement, text = equal(term(step_value), term(later)), f"a step keeps {name} so"
        goals += [
            Goal(
                f"{name} begins so", equal(begin, initial_value), premises, shown=(("it", begin),)
            ),
            Goal(text, statement, before, is_sufficient=not is_prefix, shown=displays),
        ]
        presumes += defined_in(name, (step_value, expr, later), before)
    sentence = ", ".join(f"{name} = {value_text(expr)}" for name, expr in states.items())
    facts = facts_of(step, assume)
    sentence = f"after t steps with one gradient {sentence}"
    if premises:
        sentence += f" where {value_text(where)}"
    return Claim(
        "after_steps", sentence, rule, tuple(goals), tuple(presumes), facts, runs=ConstantRuns()
    )


def _check_condition(condition: sp.Basic, step: Step) -> None:
    """Raises VerificationError for a condition on what the steps change."""
    changing_symbols = {PARAM, *(state(name) for name in step.states)}
    for symbol in sorted(condition.free_symbols & changing_symbols, key=str):
        raise VerificationError(
            f"where is about t, GRAD and hyperparameters, got {symbol} in {value_text(condition)}",
            where=f"rule {step.rule.name!r}",
            hint="write the state's formula in its place",
        )


def _before(condition: sp.Basic) -> tuple[tuple[Term, ...], tuple[Term, ...]]:
    """The premises of a step before one at which a condition holds, and of the first step.

    The step at which it holds is any later one, so that every step before it is asked.
    """
    premises = given_by(condition)
    if t not in condition.free_symbols:
        return premises, premises
    later = tuple(substitute(fact, {CLOCK: LATER}) for fact in premises)
    return (*later, less(CLOCK, LATER)), later


def _is_prefix(condition: Term) -> bool:
    """Whether a condition that holds at a step is written so that it holds at all before it."""
    if condition.op is Op.AND:
        return all(map(_is_prefix, condition.args))
    if CLOCK not in walk(condition):
        return True
    is_limit = condition.op in (Op.LESS, Op.LESS_EQUAL) and condition.args[0] == CLOCK
    return is_limit and CLOCK not in walk(condition.args[1])

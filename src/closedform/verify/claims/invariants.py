"""Invariants of a rule that are looked for: conditions on its states before every step.

Candidates have a few forms. Those that a few runs contradict are dropped, and then those that a
step does not preserve where all others hold, until the rest are preserved together (Houdini:
Flanagan and Leino, FME 2001).
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from itertools import permutations

import sympy as sp

from closedform.effort import Effort
from closedform.language import PARAM, state
from closedform.verify.claims.core import Claim, Proofs
from closedform.verify.claims.runs import Point, Runs
from closedform.verify.claims.step import Step, inductive
from closedform.verify.terms.evaluate import holds
from closedform.verify.terms.limits import LIMITS
from closedform.verify.terms.sympy_io import term

Candidates = Callable[[Step], Iterator[sp.Basic]]
"""The conditions of one form."""


def non_negative_states(step: Step) -> Iterator[sp.Basic]:
    """Yields that a state that begins at or above 0 stays there."""
    for name, initial in _numbers(step).items():
        if initial >= 0:
            yield state(name) >= 0


def _above_square(step: Step) -> Iterator[sp.Basic]:
    """Means of squares and means, whose difference is a variance: centered RMSprop."""
    for (square, above), (mean, below) in _pairs(step):
        if above >= below**2:
            yield state(square) >= state(mean) ** 2


def _support(step: Step) -> Iterator[sp.Basic]:
    """States that are 0 as long as another one is 0: sums and sums of squares, in FTRL."""
    for (size, first), (other, start) in _pairs(step):
        if first > 0 or start == 0:
            yield sp.Or(state(size) > 0, sp.Eq(state(other), 0))


def _from_initial(step: Step) -> Iterator[sp.Basic]:
    """Products that shrink from 1 and sizes that grow: no state crosses its first value."""
    for name, initial in _numbers(step).items():
        if initial != 0:
            yield state(name) <= initial
            yield state(name) >= initial


def _ordered(step: Step) -> Iterator[sp.Basic]:
    """A state and its maximum, or a bound of its size."""
    for (high, above), (low, below) in _pairs(step):
        if above >= below:
            yield state(high) >= state(low)


FURTHER: tuple[Candidates, ...] = (_above_square, _support, _from_initial, _ordered)
"""Forms that are tried where states at or above 0 are not enough."""


def _numbers(step: Step) -> dict[str, sp.Expr]:
    """The first values that are numbers; a state that begins as the parameter has any."""
    return {name: at for name, at in step.initial.items() if at != PARAM and at.is_number}


def _pairs(step: Step) -> Iterator[tuple[tuple[str, sp.Expr], tuple[str, sp.Expr]]]:
    numbers = _numbers(step)
    # Each pair is two proofs.
    if len(numbers) <= LIMITS.paired_states:
        yield from permutations(numbers.items(), 2)


def preserved_conditions(
    step: Step,
    candidates: Sequence[sp.Basic],
    assume: Sequence[sp.Basic],
    effort: Effort,
    proofs: Proofs,
) -> list[sp.Basic]:
    """Returns the conditions that are preserved together; those that are not are left out.

    Each round asks less, so there are at most as many rounds as conditions.

    Args:
        step: One step of the rule.
        candidates: The conditions, each of which holds before the first step.
        assume: What is assumed of hyperparameters.
        effort: The work that all proofs together may take.
        proofs: Verdicts to share.
    """
    conditions = list(candidates)
    while conditions:
        together = sp.And(*conditions, *assume)
        failing = [
            condition
            for condition in conditions
            if not _is_preserved(step, condition, together, effort, proofs)
        ]
        if not failing:
            break
        conditions = [condition for condition in conditions if condition not in failing]
    return conditions


def _is_preserved(
    step: Step, condition: sp.Basic, premises: sp.Basic, effort: Effort, proofs: Proofs
) -> bool:
    goals, presumes = inductive(step, condition, premises=premises)
    claim = Claim("preserved", "", step.rule, goals, presumes)
    return effort.left > 0 and claim.judge(effort, proofs).proved


def not_contradicted(candidates: Sequence[sp.Basic], runs: Runs) -> list[sp.Basic]:
    """Returns the conditions that hold at each step of a few runs."""
    points = runs.points(LIMITS.run_steps) if candidates else []
    return [condition for condition in candidates if _holds_at(condition, points)]


def _holds_at(condition: sp.Basic, points: Sequence[Point]) -> bool:
    statement = term(condition)
    return all(holds(statement, point) is not False for point in points)

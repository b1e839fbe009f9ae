"""The standard claims about any update rule: states that stay at or above 0, and finite steps.

A schedule inside a rule is replaced by any number at or above 0: it is verified on its own.
"""

from __future__ import annotations

import time
from typing import Any

import sympy as sp

from closedform.errors import VerificationError
from closedform.language import PARAM, Schedule, UpdateRule, state
from closedform.verify.claims.core import BUDGET, Claim, Goal, Proofs
from closedform.verify.claims.report import Report, check
from closedform.verify.claims.rule import finite_steps, invariant
from closedform.verify.claims.step import Step, inductive, open_symbols, step_of
from closedform.verify.terms import FALSE


def verify_rule(rule: UpdateRule, *claims: Claim, budget: float = BUDGET) -> Report:
    """Returns the verdicts of some claims about a rule; of the standard ones if none is given.

    The standard claims: the states that begin at or above 0 and stay there, each as an invariant;
    and that the parameter and every state are finite after a step from such states.

    Args:
        rule: The rule.
        *claims: Claims made with ``closedform.claims``.
        budget: Seconds for each claim.

    Raises:
        VerificationError: One of them is not a claim, or the prover cannot read the rule.

    Example:
        >>> from closedform import optimizers
        >>> report = verify_rule(optimizers.adam())
        >>> [(finding.claim.sentence, finding.shown) for finding in report]
        [('state.exp_avg_sq >= 0 before every step', 'PROVED'), ('every step is finite', 'PROVED')]
    """
    subject = f"rule {rule.name!r}"
    if claims:
        return check(subject, claims, budget=budget)
    try:
        return _standard(rule, subject, budget)
    except VerificationError as error:
        # Functions of whole tensors are beyond the prover; the report says so.
        goal = Goal(error.what, FALSE, is_sufficient=True)
        return check(subject, [Claim("finite", "every step is finite", rule, (goal,))])


def _standard(rule: UpdateRule, subject: str, budget: float) -> Report:
    open_names = [key for key, value in rule.hyperparameters.items() if isinstance(value, Schedule)]
    step = step_of(rule, open_names)
    assume = [symbol >= 0 for name, symbol in open_symbols(step).items() if name in open_names]
    proofs = Proofs()
    preserved = _preserved(step, assume, budget, proofs)
    given: dict[str, Any] = {"open": open_names, "assume": assume}
    asked = [invariant(rule, sp.And(*preserved), **given)] if preserved else []
    asked.append(finite_steps(rule, invariants=preserved, **given))
    return check(subject, asked, budget=budget, proofs=proofs)


def _preserved(step: Step, assume: list[sp.Basic], budget: float, proofs: Proofs) -> list[sp.Basic]:
    """The conditions ``state >= 0`` that are preserved together; those that are not are left out.

    Each round asks less, so there are at most as many rounds as states.
    """
    until = time.monotonic() + budget
    conditions = [state(name) >= 0 for name, first in step.initial.items() if _begins_so(first)]
    while conditions:
        together = sp.And(*conditions)
        given = (together, *assume)
        failing = [
            condition
            for condition in conditions
            if not _is_preserved(step, condition, given, until - time.monotonic(), proofs)
        ]
        if not failing:
            break
        conditions = [each for each in conditions if each not in failing]
    return conditions


def _begins_so(first: sp.Expr) -> bool:
    return first != PARAM and bool(first >= 0)


def _is_preserved(
    step: Step, condition: sp.Basic, given: tuple[sp.Basic, ...], budget: float, proofs: Proofs
) -> bool:
    goals, presumes = inductive(step, condition, given=sp.And(*given))
    claim = Claim("preserved", "", step.rule, goals, presumes)
    return budget > 0 and claim.verify(budget=budget, proofs=proofs).proved

"""Equivalent states, proved: the scaling that ``transforms.scaled_states`` finds, or none."""

from __future__ import annotations

import sympy as sp

from closedform.errors import VerificationError
from closedform.language.symbols import state
from closedform.language.update_rule import UpdateRule
from closedform.transforms.scaled_states import ScaledStates, added_tensor, scaled_states
from closedform.verify.claims.core import Claim, claim_effort
from closedform.verify.claims.rule import same_rule

_WORK = 60_000_000
"""Work for a proof; that of AdamW takes a sixtieth of it."""


def equivalent_states(
    rule: UpdateRule, *, effort: float = 1.0, budget: float | None = None
) -> ScaledStates:
    """Returns a rule of multiples of the states that takes fewer operators, proved equal.

    AdamW keeps m / (1 - β₁) and v / (1 - β₂) and takes 12 operators on tensors in place of 15. Both
    rules make the same steps from the first one on; a result that is not proved is not returned.

    Args:
        rule: The rule.
        effort: How much work the proof may take, as a multiple of the usual.
        budget: Seconds of wall-clock time for the proof; None for no such limit.

    Returns:
        The rule of the stored states, their scales and the numbers of operators. Its scales are
        empty, and its rule is the one that is given, where no scaling saves an operator.

    Raises:
        VerificationError: A scaling saves operators, and is not proved.

    Example:
        >>> from closedform import optimizers
        >>> found = equivalent_states(optimizers.adamw(1e-3))
        >>> found.operators, found.scales
        ((15, 12), {'exp_avg': 1/10, 'exp_avg_sq': 1/1000})
        >>> found.rule.states["exp_avg"].next
        beta1*state.exp_avg + grad
    """
    scaled = scaled_states(rule)
    if not scaled.scales:
        return scaled
    for claim in claims(scaled):
        verdict = claim.judge(claim_effort(effort, budget, units=_WORK))
        if verdict.proved:
            return scaled
    raise VerificationError(
        f"the scaling of {', '.join(scaled.scales)} is not proved: {verdict}",
        where=f"rule {rule.name!r}",
        hint="run the rule as it is, or give the proof more effort",
    )


def claims(scaled: ScaledStates) -> list[Claim]:
    """Returns claims of which each says that the two rules make the same steps.

    The second one says so of the states that a run reaches, where means of squares are not below 0.
    """
    rule = scaled.original
    meaning = {name: state(name) / scale for name, scale in scaled.scales.items()}
    squares = [
        state(name) >= 0
        for name, spec in rule.states.items()
        if spec.initial == 0 and _is_square(added_tensor(rule, name))
    ]
    return [
        same_rule(rule, scaled.rule, states=meaning, invariants=invariants)
        for invariants in ([], squares)
    ]


def _is_square(expr: sp.Expr | None) -> bool:
    return isinstance(expr, sp.Pow) and expr.exp.is_Integer and expr.exp.is_even is True

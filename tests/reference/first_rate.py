"""ASGD of cerebras: its constructor makes the states, before a scheduler has set the rate."""

from dataclasses import replace

import sympy as sp

from closedform.language import UpdateRule, exact_number, hyper, state, t


def with_first_rate(rule: UpdateRule, rate: float) -> UpdateRule:
    """The rule of ASGD whose first step takes the rate of the constructor."""
    first = sp.Piecewise((hyper("lr"), sp.Eq(t, 0)), (state("eta"), True))
    assert rule.param.has(first)
    constructed = first.xreplace({hyper("lr"): exact_number(rate, "lr")})
    return replace(rule, **rule.expressions_by(lambda expr: expr.xreplace({first: constructed})))

"""Rules whose step at a learning rate of 0 leaves a parameter as it is, by their form.

``torch.distributed.checkpoint`` makes the states of an optimizer by a step with gradients of 0, for
which it sets the entry ``lr`` of each group to 0. States that a step makes need such a rule.
"""

from __future__ import annotations

from collections.abc import Set
from functools import lru_cache

import sympy as sp

from closedform.language import PARAM, Schedule, UpdateRule, hyper
from closedform.language.symbols import local

_RATE = hyper("lr")


@lru_cache(128)
def rests_at_zero_rate(rule: UpdateRule) -> bool:
    """Returns whether the next parameter is the parameter minus terms with the factor ``lr``.

    The other factors do not depend on ``lr``, so that none of them divides by it.

    Example:
        >>> from closedform import optimizers
        >>> rests_at_zero_rate(optimizers.adamw()), rests_at_zero_rate(optimizers.ftrl())
        (True, False)
    """
    rate = rule.hyperparameters.get("lr")
    if isinstance(rate, Schedule) or "lr" not in rule.hyperparameters:
        return False
    # Symbols that are 0 at a rate of 0, that are the parameter then, and that depend on the rate.
    zeros, params, dependent = {_RATE}, {PARAM}, {_RATE}
    for name, value in rule.definitions.items():
        if value.free_symbols & dependent:
            dependent.add(local(name))
        if _vanishes(value, zeros, dependent):
            zeros.add(local(name))
        if _rests(value, zeros, params, dependent):
            params.add(local(name))
    return _rests(rule.param, zeros, params, dependent)


def _rests(
    expr: sp.Basic, zeros: Set[sp.Basic], params: Set[sp.Basic], dependent: Set[sp.Basic]
) -> bool:
    """Whether an expression is the parameter at a rate of 0."""
    if isinstance(expr, sp.Piecewise):
        return all(
            _rests(branch, zeros, params, dependent) and not condition.free_symbols & dependent
            for branch, condition in expr.args
        )
    terms = [term for term in sp.Add.make_args(expr) if not _vanishes(term, zeros, dependent)]
    if len(terms) != 1:
        return False
    factors = [
        factor
        for factor in sp.Mul.make_args(terms[0])
        if not _vanishes(sp.Add(factor, -1), zeros, dependent)
    ]
    return len(factors) == 1 and factors[0] in params


def _vanishes(expr: sp.Basic, zeros: Set[sp.Basic], dependent: Set[sp.Basic]) -> bool:
    """Whether an expression is 0 at a rate of 0."""
    match expr:
        case sp.Symbol():
            return expr in zeros
        case sp.Add():
            return all(_vanishes(term, zeros, dependent) for term in expr.args)
        case sp.Mul():
            factors = [factor for factor in expr.args if not _vanishes(factor, zeros, dependent)]
            has_zero = len(factors) < len(expr.args)
            return has_zero and not any(factor.free_symbols & dependent for factor in factors)
        case sp.Piecewise():
            return all(
                _vanishes(branch, zeros, dependent) and not condition.free_symbols & dependent
                for branch, condition in expr.args
            )
    return False

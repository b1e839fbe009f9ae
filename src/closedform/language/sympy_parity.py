"""A correction of SymPy: whether a product is an integer.

SymPy 1.14 decides from the parity of the factors that ``Max(2, 4*n)/6`` is an integer for all n,
and that ``Max(2, 4*n)/3`` is none: its rules for denominators that are powers of two, and for odd
denominators, are applied to all. ``floor`` then leaves its operand as it is, and ``cos(pi*...)``
becomes a power of -1: a schedule would have other values than its source. SymPy constructs these
expressions before the library sees them, so that the method of ``Mul`` itself is corrected when
``closedform`` is imported. The correction only turns answers into "unknown".

Source: ``Mul._eval_is_integer`` of sympy/core/mul.py, SymPy 1.14.
"""

from __future__ import annotations

import functools
from collections.abc import Callable

import sympy as sp

Decision = Callable[[sp.Mul], bool | None]


def correct_integrality() -> None:
    """Replaces SymPy's decision whether a product is an integer, once, by a sound one."""
    decide: Decision = sp.Mul._eval_is_integer
    if hasattr(decide, "__wrapped__"):
        return

    @functools.wraps(decide)
    def is_integer(product: sp.Mul) -> bool | None:
        answer = decide(product)
        return None if answer is None or _is_by_parity(product, integer=answer) else answer

    sp.Mul._eval_is_integer = is_integer
    sp.Mul._prop_handler["integer"] = is_integer


def _is_by_parity(product: sp.Mul, *, integer: bool) -> bool:
    """Whether an answer rests on a parity that does not decide it."""
    numerators, denominators = [], []
    for factor in product.args:
        if factor.is_Rational:
            numerators.append(sp.Integer(factor.p))
            denominators.append(sp.Integer(factor.q))
        elif factor.is_integer:
            numerators.append(factor)
        elif factor.is_Pow and factor.exp.is_negative:
            denominators.append(1 / factor)
        else:  # an irrational factor, whose answer does not come from parities
            return False
    if integer:
        # Even factors show that a power of two divides the product, and no other number.
        return any(part.is_Integer and part.p & (part.p - 1) for part in denominators)
    # An odd number may divide an even one: 6/3.
    is_fraction = all(abs(part) == 1 for part in numerators)
    return not is_fraction and all(part.is_odd for part in denominators)

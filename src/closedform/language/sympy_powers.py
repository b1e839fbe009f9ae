"""A correction of SymPy: powers of numbers that are too long to be worked out.

SymPy 1.14 works each power of rational numbers out while it constructs it, however long: a power of
``2**-51200000000`` takes 6.4 GB, and where the memory is full FLINT, which SymPy computes with,
ends the process. Roots have their bases factored, which takes hours from some hundred digits on,
and a fine exponent is applied to each factor: ``24**(14234567890123457/10**16)`` contains
``3**14234567890123457``. The methods of ``Integer`` and ``Rational`` are corrected when
``closedform`` is imported: a long power is an error, and the root of a long number stays a root.

Source: ``Integer._eval_power`` and ``Rational._eval_power`` of sympy/core/numbers.py, SymPy 1.14.
"""

from __future__ import annotations

import functools
from collections.abc import Callable
from fractions import Fraction

import sympy as sp
from sympy.core.intfunc import integer_nthroot

from closedform.magnitude import MOST_BITS, check_power, power_bits

Evaluation = Callable[[sp.Rational, sp.Expr], sp.Expr | None]

_MOST_FACTORED = 512
"""Bits of the longest base whose root SymPy is asked for: 0.1 s of factoring."""


def correct_powers() -> None:
    """Replaces SymPy's evaluation of powers of numbers, once, by one with a limit."""
    for kind in (sp.Integer, sp.Rational):
        evaluate: Evaluation = kind._eval_power
        if not hasattr(evaluate, "__wrapped__"):
            kind._eval_power = _with_limit(evaluate)


def _with_limit(evaluate: Evaluation) -> Evaluation:
    @functools.wraps(evaluate)
    def eval_power(base: sp.Rational, exponent: sp.Expr) -> sp.Expr | None:
        if not isinstance(exponent, sp.Rational):
            return evaluate(base, exponent)
        number = Fraction(int(base.p), int(base.q))
        # The whole part of an exponent is worked out, also of a root.
        check_power(number, Fraction(int(exponent.p), int(exponent.q)))
        if exponent.q == 1:
            return evaluate(base, exponent)
        is_long = power_bits(number, 1) > _MOST_FACTORED
        if not is_long and power_bits(number, int(exponent.p)) <= MOST_BITS:
            return evaluate(base, exponent)
        root = _exact_root(base, exponent) if is_long else None
        return _with_positive_exponent(base, exponent) if root is None else root

    return eval_power


def _with_positive_exponent(base: sp.Rational, exponent: sp.Rational) -> sp.Expr | None:
    """A power that stays one, as SymPy writes it; None where it is written so already.

    ``Mul.flatten`` makes a number to a negative exponent again, and without end where it stays one:
    ``3**(-2/5)`` is ``3**(3/5) / 3``.
    """
    if base < 0 or (exponent > 0 and base.p != 1):
        return None
    if base.p != 1 and base.q != 1:
        return sp.Pow(1 / base, -exponent)
    whole, power = (base, exponent) if base.q == 1 else (1 / base, -exponent)
    if power > 0:
        return sp.Pow(whole, power)
    count = sp.ceiling(-power)
    return sp.Pow(whole, power + count) / whole**count


def _exact_root(base: sp.Rational, exponent: sp.Rational) -> sp.Expr | None:
    """The power of a long number where it is rational; None, for a root that stays one."""
    if base < 0:
        return None
    roots = [integer_nthroot(int(part), int(exponent.q)) for part in (base.p, base.q)]
    if not all(is_exact for _, is_exact in roots):
        return None
    return sp.Rational(roots[0][0], roots[1][0]) ** sp.Integer(int(exponent.p))

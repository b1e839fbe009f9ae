"""Corrections of SymPy 1.14, which constructs expressions before the library sees them.

Its methods are therefore replaced when ``closedform`` is imported, each once.

- A choice inside a function of whole tensors stays inside. SymPy folds the condition of a branch:
  ``f(Piecewise((a, c), (b, True))) > 0`` becomes ``f(a) > 0`` where ``c`` holds, and ``f(b) > 0``
  elsewhere. That is true of elementwise functions, and not of sums of tensors
  (``ExprCondPair.__new__`` of sympy/functions/elementary/piecewise.py).
- Whether a product is an integer is not decided by parities that do not decide it. SymPy holds
  ``Max(2, 4*n)/6`` for an integer for all n, and ``Max(2, 4*n)/3`` for none, since it applies its
  rules for powers of two, and for odd denominators, to all: ``floor`` then leaves its operand as it
  is. The correction only turns answers into "unknown" (``Mul._eval_is_integer`` of
  sympy/core/mul.py).
- Powers of numbers that are too long to be worked out are an error, and the root of a long number
  stays a root. ``2**-51200000000`` takes 6.4 GB, and where the memory is full FLINT ends the
  process; roots have their bases factored, which takes hours from some hundred digits on, and a
  fine exponent is applied to each factor: ``24**(14234567890123457/10**16)`` contains
  ``3**14234567890123457`` (``_eval_power`` of sympy/core/numbers.py).
"""

from __future__ import annotations

import functools
from collections.abc import Callable, Iterator
from fractions import Fraction
from typing import Any

import sympy as sp
from sympy.core.intfunc import integer_nthroot
from sympy.functions.elementary.piecewise import ExprCondPair

from closedform.magnitude import MOST_BITS, check_power, power_bits

Decision = Callable[[sp.Mul], bool | None]
Evaluation = Callable[[sp.Rational, sp.Expr], sp.Expr | None]

_MOST_FACTORED = 512
"""Bits of the longest base whose root SymPy is asked for: 0.1 s of factoring."""


def correct_folding() -> None:
    """Replaces SymPy's construction of a branch, once, by one that looks into no such function.

    A function of whole tensors has the class attribute ``is_elementwise = False``.
    """
    construct: Callable[[type, Any, Any], ExprCondPair] = ExprCondPair.__new__
    if hasattr(construct, "__wrapped__"):
        return

    @functools.wraps(construct)
    def new(cls: type, expr: Any, cond: Any) -> ExprCondPair:
        names = _names_of_tensors(cond) if isinstance(cond, sp.Basic) else {}
        if not names:
            return construct(cls, expr, cond)
        pair = construct(cls, expr, cond.xreplace(names))
        functions = {name: node for node, name in names.items()}
        return sp.Tuple.__new__(cls, pair.expr, pair.cond.xreplace(functions))

    ExprCondPair.__new__ = new


def _names_of_tensors(condition: sp.Basic) -> dict[sp.Basic, sp.Dummy]:
    """A symbol for each outermost function of whole tensors that has a choice in it."""
    if not condition.has(sp.Piecewise):
        return {}
    nodes = _functions_of_tensors(condition)
    return {node: sp.Dummy(real=node.is_real) for node in nodes if node.has(sp.Piecewise)}


def _functions_of_tensors(expr: sp.Basic) -> Iterator[sp.Basic]:
    nodes = sp.preorder_traversal(expr)
    for node in nodes:
        if not getattr(node, "is_elementwise", True):
            nodes.skip()
            yield node


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

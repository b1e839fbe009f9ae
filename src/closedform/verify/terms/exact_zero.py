"""Whether a number is exactly 0, where balls of any precision hold 0.

``log(8)/log(2) - 3``, ``cos(pi/6) - sqrt(3)/2`` and ``10**(1/3) * 100**(1/3) - 10`` are 0, and no
enclosure shows it. It is shown in two ways:

1. The canonical form is 0 (``canonical``).
2. An algebraic number that is not 0 is not nearer to 0 than its separation bound: where ``u`` and
   ``l`` bound the conjugates of its numerator and denominator, algebraic integers of a field of
   degree D, ``|x| >= 1 / (l * u**(D - 1))`` (Burnikel, Funke, Mehlhorn, Schirra and Schmitt 2001).
   ``2 cos(pi p/q)`` is an algebraic integer with conjugates of at most 2.

>>> from closedform.verify.terms import build
>>> from closedform.verify.terms.evaluate import value
>>> three = build.divide(build.log(build.rational(8)), build.log(build.TWO))
>>> is_zero(build.subtract(three, build.rational(3)), {}, value)
True
"""

from __future__ import annotations

import math
from collections.abc import Callable, Mapping
from typing import Any

from flint import arb, fmpq, fmpz

from closedform.effort import spend
from closedform.verify.terms import build, canonical
from closedform.verify.terms.limits import LIMITS
from closedform.verify.terms.tree import TRUTHS, Op, Term, fold

Evaluate = Callable[[Term, Mapping[str, Any], int], Any]
"""A fraction, ball or ``Undefined`` for a term, the values of its symbols and a precision."""

_BITS = 128
_CANONICAL = TRUTHS | {Op.RATIONAL, Op.PI, Op.ADD, Op.MULTIPLY, Op.DIVIDE, Op.POWER, Op.EXP, Op.LOG,
                  Op.COSPI, Op.SINPI}  # fmt: skip
"""The operations of canonical forms; of choices and floors the value is taken."""


def is_zero(number: Term, point: Mapping[str, Any], evaluate: Evaluate) -> bool:
    """Returns whether a number is shown to be 0 at a point; False where that is not found.

    Args:
        number: A term.
        point: The values of its symbols, fractions or balls.
        evaluate: The evaluation of terms by balls.
    """

    def at_point(node: Term) -> Term:
        result = None if node.op in _CANONICAL else evaluate(node, point, _BITS)
        return build.rational(result) if isinstance(result, fmpq) else node

    constant = build.rewrite(number, at_point)
    return canonical.is_zero(constant) or _is_algebraic_zero(constant, evaluate)


def _is_algebraic_zero(number: Term, evaluate: Evaluate) -> bool:
    bits = _separation_bits(number)
    if bits is None or bits > LIMITS.separation_bits:
        return False
    # A cosine of 26,000 bits takes 25 ms.
    spend(bits)
    result = evaluate(number, {}, 2 * bits + 64)
    return isinstance(result, arb | fmpq) and bool(arb(result).abs_upper() < arb(2) ** -bits)


def _separation_bits(number: Term) -> int | None:
    """Bits b, such that a number that is not 0 is at least ``2**-b`` in size; None if unknown."""
    degree = 1
    angles = 1

    def visit(node: Term, bounds: list[tuple[float, float] | None]) -> tuple[float, float] | None:
        nonlocal degree, angles
        operands = [bound for bound in bounds if bound is not None]
        if len(operands) < len(bounds):
            return None
        match node.op:
            case Op.RATIONAL:
                return float(abs(node.value.p).bit_length()), float(node.value.q.bit_length())
            case Op.ADD:
                upper, lower = operands[0]
                for other_upper, other_lower in operands[1:]:
                    upper = max(upper + other_lower, lower + other_upper) + 1
                    lower += other_lower
                return upper, lower
            case Op.MULTIPLY | Op.DIVIDE:
                if node.op is Op.DIVIDE:
                    operands[1] = operands[1][::-1]
                return sum(bound[0] for bound in operands), sum(bound[1] for bound in operands)
            case Op.COSPI | Op.SINPI if node.args[0].op is Op.RATIONAL:
                # sin(x) is cos(pi/2 - x), an angle of twice the denominator.
                angles = math.lcm(angles, 4 * int(node.args[0].value.q))
                return 1.0, 1.0
            case Op.POWER if node.args[1].op is Op.RATIONAL:
                exponent = node.args[1].value
                upper, lower = operands[0] if exponent > 0 else operands[0][::-1]
                times, root = abs(int(exponent.p)), int(exponent.q)
                degree *= root
                upper, lower = times * upper, times * lower
                if upper >= lower:
                    return (upper + (root - 1) * lower) / root, lower
                return upper, ((root - 1) * upper + lower) / root
            case _:
                return None

    bound = fold(number, visit)
    if bound is None:
        return None
    upper, lower = bound
    field = degree * max(1, int(fmpz(angles).euler_phi()) // 2)
    bits = lower + (field - 1) * upper + 2
    return math.ceil(bits * (1 + 2.0**-40)) if bits <= LIMITS.separation_bits else None

"""The sizes of numbers in expressions that come in: digits, exact powers, exponentials."""

from __future__ import annotations

from fractions import Fraction

import sympy as sp

from closedform.errors import LimitError
from closedform.magnitude import MOST_PRINTED, check_digits, check_power

LARGEST_EXPONENT = 2**40
"""The largest power of e that is worked out: floats of many digits hold its exponent.

The exponential of a larger number needs as many digits as its exponent has, and does not end.
"""

_LARGEST_FLOAT = 1024


def check_sizes(expr: sp.Basic, name: str) -> None:
    """Refuses numbers in an expression that are too long to be worked out.

    Args:
        expr: The expression.
        name: What it is, for errors.

    Raises:
        LimitError: A number has too many digits, or a power or an exponential of numbers is too
            large.
    """
    for number in expr.atoms(sp.Rational):
        check_digits(_fraction(number), f"a number of {name}", MOST_PRINTED)
    for number in expr.atoms(sp.Float):
        if number._mpf_[2] + number._mpf_[3] > _LARGEST_FLOAT:
            raise LimitError(
                f"{name} has a Float above 2**{_LARGEST_FLOAT}, the largest float64",
                hint="write it as a smaller number",
            )
    check_exponentials(expr, name)


def check_exponentials(expr: sp.Basic, name: str) -> None:
    """Refuses powers and exponentials of numbers that are too large to be worked out.

    Args:
        expr: The expression.
        name: What it is, for errors.

    Raises:
        LimitError: One is too large.
    """
    # Inner ones first: an outer one is measured by the value of its exponent.
    for node in sp.postorder_traversal(expr):
        if isinstance(node, sp.Pow | sp.exp) and node.is_number:
            _check_exponential(node, name)


def _check_exponential(node: sp.Expr, name: str) -> None:
    base, exponent = node.as_base_exp()
    if base.is_Rational and exponent.is_Rational:
        check_power(_fraction(base), _fraction(exponent))
        return
    size = (
        abs(exponent) if base is sp.E else abs(exponent * sp.log(base)) if base != 0 else sp.S.Zero
    )
    if not size.is_Rational:
        size = sp.N(size, 15)
    if not isinstance(size, sp.Rational | sp.Float):
        return  # a sum over a tensor, or what is refused elsewhere: an infinity
    if size > LARGEST_EXPONENT:
        raise LimitError(
            f"{name} has an exponential whose exponent is beyond {LARGEST_EXPONENT}",
            hint="write its limit, 0 for a large negative exponent",
        )


def _fraction(number: sp.Rational) -> Fraction:
    return Fraction(int(number.p), int(number.q))

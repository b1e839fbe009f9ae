"""The elementary functions of one number: their expressions, domains and names by library.

Every front end reads this table, and ``lowering.simplify`` rewrites the classes of SymPy by it: a
function has one expression, whoever calls it. ``tanh`` and the other hyperbolic functions are
written with ``exp``, of which the prover knows signs and bounds.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass
from typing import Any

import sympy as sp


@dataclass(frozen=True, slots=True)
class Elementary:
    """A function of one number.

    Attributes:
        form: Its expression.
        math: Its name in math; "" where there is none.
        numpy: Its name in numpy.
        torch: Its name in torch, and of the operator.
        jax: The name of the primitive of JAX.
        margin: A number that is above 0 in the domain, and 0 at its end; None for a function that
            is defined everywhere. It is called with numbers as well as with expressions.
        has_end: Whether the function has a value at the end of its domain.
    """

    form: Callable[[sp.Expr], sp.Expr]
    math: str = ""
    numpy: str = ""
    torch: str = ""
    jax: str = ""
    margin: Callable[[Any], Any] | None = None
    has_end: bool = False

    def is_outside(self, number: Any) -> Any:
        """Returns whether a number is outside of the domain; of an expression, the condition."""
        if self.margin is None:
            return False
        margin = self.margin(number)
        if isinstance(margin, sp.Basic):
            return (sp.Lt if self.has_end else sp.Le)(margin, 0, evaluate=False)
        return margin < 0 if self.has_end else margin <= 0


def _log_to(base: int) -> Callable[[sp.Expr], sp.Expr]:
    return lambda x: sp.log(x) / sp.log(sp.Integer(base))


def _itself(number: Any) -> Any:
    return number


def _one_more(number: Any) -> Any:
    return 1 + number


# name; form; name in math, in numpy, in torch and in JAX
_EVERYWHERE: tuple[tuple[str, Callable[[sp.Expr], sp.Expr], str, str, str, str], ...] = (
    ("cos", sp.cos, "cos", "cos", "cos", "cos"),
    ("sin", sp.sin, "sin", "sin", "sin", "sin"),
    ("tan", lambda x: sp.sin(x) / sp.cos(x), "tan", "tan", "tan", "tan"),
    ("atan", sp.atan, "atan", "arctan", "atan", "atan"),
    ("cosh", lambda x: (sp.exp(x) + sp.exp(-x)) / 2, "cosh", "cosh", "cosh", "cosh"),
    ("sinh", lambda x: (sp.exp(x) - sp.exp(-x)) / 2, "sinh", "sinh", "sinh", "sinh"),
    # Not (exp(x) - exp(-x)) / (exp(x) + exp(-x)): where exp is infinite, this one is 1.
    ("tanh", lambda x: 1 - 2 / (sp.exp(2 * x) + 1), "tanh", "tanh", "tanh", "tanh"),
    ("exp", sp.exp, "exp", "exp", "exp", "exp"),
    ("exp2", lambda x: sp.Integer(2) ** x, "exp2", "exp2", "exp2", "exp2"),
    ("expm1", lambda x: sp.exp(x) - 1, "expm1", "expm1", "expm1", "expm1"),
    ("sigmoid", lambda x: 1 / (1 + sp.exp(-x)), "", "", "sigmoid", "logistic"),
    ("degrees", lambda x: x * 180 / sp.pi, "degrees", "degrees", "rad2deg", ""),
    ("radians", lambda x: x * sp.pi / 180, "radians", "radians", "deg2rad", ""),
)

ELEMENTARY: Mapping[str, Elementary] = {
    **{
        name: Elementary(form, of_math, of_numpy, of_torch, of_jax)
        for name, form, of_math, of_numpy, of_torch, of_jax in _EVERYWHERE
    },
    "sqrt": Elementary(sp.sqrt, "sqrt", "sqrt", "sqrt", "sqrt", _itself, has_end=True),
    "rsqrt": Elementary(lambda x: 1 / sp.sqrt(x), "", "", "rsqrt", "rsqrt", _itself),
    "log": Elementary(sp.log, "log", "log", "log", "log", _itself),
    "log2": Elementary(_log_to(2), "log2", "log2", "log2", "", _itself),
    "log10": Elementary(_log_to(10), "log10", "log10", "log10", "", _itself),
    "log1p": Elementary(lambda x: sp.log(1 + x), "log1p", "log1p", "log1p", "log1p", _one_more),
}
"""The functions by name."""


def angle(y: sp.Expr, x: sp.Expr) -> sp.Expr:
    """Returns ``atan2(y, x)``: the angle of the point (x, y), above ``-pi`` and at most ``pi``.

    That of the origin is 0. Zeros have no sign: where x < 0 and y is -0.0, the angle is pi, as for
    y = 0, while that of C is -pi.
    """
    right = sp.pi / 2
    on_axis = sp.Piecewise((right, y > 0), (-right, y < 0), (0, True))
    if x.is_zero:
        return on_axis
    half_turn = sp.Piecewise((0, x > 0), (sp.pi, y >= 0), (-sp.pi, True))
    return sp.Piecewise((on_axis, sp.Eq(x, 0)), (sp.atan(y / x) + half_turn, True))


DEFINITIONS: Mapping[type[sp.Basic], Callable[..., sp.Expr]] = {
    **{getattr(sp, name): ELEMENTARY[name].form for name in ("tan", "sinh", "cosh", "tanh")},
    sp.cot: lambda x: sp.cos(x) / sp.sin(x),
    sp.atan2: angle,
}
"""The functions of SymPy that are written with others, and their expressions."""

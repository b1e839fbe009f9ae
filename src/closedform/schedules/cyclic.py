"""Triangles that repeat, at one height or an ever lower one."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import sympy as sp

from closedform.errors import DefinitionError, DomainError
from closedform.language import Schedule, exact_number, floor_div, floor_mod, hyper, t
from closedform.language.aliases import Number, Steps
from closedform.language.arguments import choice, positive_steps
from closedform.language.lengths import with_lengths
from closedform.language.settled import construct, values_in

MODES = ("triangular", "triangular2", "exp_range")
SCALE_MODES = ("cycle", "iterations")


@with_lengths
def cyclic(
    low: Number,
    high: Number,
    up: Steps,
    down: Steps | None = None,
    mode: str = "triangular",
    gamma: Number = 1,
    scale: sp.Expr | Callable[[sp.Expr], Any] | None = None,
    scale_mode: str = "cycle",
) -> Schedule:
    r"""Returns triangles from ``low`` to ``high`` and back, repeated for ever.

    .. math:: f(t) = l + (h - l)\, \min\!\left(\frac{m}{U}, \frac{S - m}{D}\right) s, \qquad
        m = t \bmod S, \quad S = U + D, \quad k = 1 + \lfloor t / S \rfloor

    .. math:: s = \begin{cases} 1 & \text{triangular} \\ 2^{1-k} & \text{triangular2} \\
        \gamma^t & \text{exp\_range} \\ g(k) \text{ or } g(t) & \text{own scale} \end{cases}

    Args:
        low: The value l at the start of each cycle; it may be above ``high``.
        high: The value h after U steps of a cycle, where s is 1.
        up: The number of steps U above 0 from low to high; a fraction is allowed.
        down: The number of steps D back, at least 0; ``up`` if not given. With 0 the cycle is a
            sawtooth that never meets ``high``.
        mode: ``triangular``, ``triangular2`` (half the height each cycle) or ``exp_range``.
        gamma: The factor of ``exp_range`` per step, counted from step 0, not from the cycle's
            start.
        scale: A factor g of your own, which replaces the mode: an expression in ``t``, or a
            function that gets an expression.
        scale_mode: What g is given: the ``cycle`` number k, 1 first, or the ``iterations`` t.

    Raises:
        DefinitionError: An argument is not a finite number, or the name of a mode is unknown.
        DomainError: ``up`` is not above 0, or ``down`` is below 0.

    Example:
        >>> cycles = cyclic(0, 1, 4, mode="triangular2")
        >>> [cycles.exact(step) for step in (0, 2, 4, 8, 12)]
        [0, 1/2, 1, 0, 1/2]
        >>> cyclic(0, 1, 4, scale=1 / t).exact(12)
        1/2

    Source: Smith, Cyclical learning rates (2017); ``CyclicLR`` of torch 2.13 and of
    cerebras.pytorch 2.10.
    """
    rise = positive_steps(up, "up", "cyclic", "the height over no steps has no value")
    fall = rise if down is None else exact_number(down, "down of cyclic")
    if not fall.is_Rational:
        raise DefinitionError(f"down must be a rational number, got {down!r}", where="cyclic")
    if fall < 0:
        raise DomainError(f"down must be at least 0, got {down!r}", where="cyclic")
    u = hyper("up", integer=bool(rise.is_Integer), positive=True)
    d = hyper("down", integer=bool(fall.is_Integer), positive=True) if fall else sp.Integer(0)
    place = floor_mod(t, u + d)
    # The lesser of both lines: rising before U and falling after it, without a condition.
    height = construct(sp.Min, place / u, (u + d - place) / d) if fall else place / u
    factor = _scale(mode, scale, scale_mode, 1 + floor_div(t, u + d))
    lowest, highest = hyper("low"), hyper("high")
    expr = lowest + (highest - lowest) * height * factor
    arguments = {"low": low, "high": high, "up": rise, "down": fall, "gamma": gamma}
    exact_number(gamma, "gamma of cyclic")
    return Schedule(expr, name="cyclic", **values_in(expr, arguments))


def _scale(
    mode: str,
    scale: sp.Expr | Callable[[sp.Expr], Any] | None,
    scale_mode: str,
    cycle: sp.Expr,
) -> sp.Expr:
    """The factor on the height of the triangles."""
    choice(mode, "mode", "cyclic", MODES)
    choice(scale_mode, "scale_mode", "cyclic", SCALE_MODES)
    if scale is None:
        factors = {
            "triangular": sp.Integer(1),
            "triangular2": sp.Integer(2) ** (1 - cycle),
            "exp_range": hyper("gamma") ** t,
        }
        return factors[mode]
    argument = cycle if scale_mode == "cycle" else t
    if isinstance(scale, sp.Expr):
        return scale.xreplace({t: argument})
    if not callable(scale):
        raise DefinitionError(
            f"scale must be an expression in t or a function, got {type(scale).__name__} {scale!r}",
            where="cyclic",
        )
    height = scale(argument)
    return height if isinstance(height, sp.Expr) else exact_number(height, "scale of cyclic")

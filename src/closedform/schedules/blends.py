"""Interpolations from one value to another along a progress from 0 to 1."""

from __future__ import annotations

import sympy as sp

from closedform.language.settled import construct


def along_line(start: sp.Expr, end: sp.Expr, progress: sp.Expr) -> sp.Expr:
    """Returns the straight line: ``start`` at progress 0, ``end`` at 1."""
    return start + (end - start) * progress


def along_cosine(start: sp.Expr, end: sp.Expr, progress: sp.Expr) -> sp.Expr:
    """Returns half a cosine: ``start`` at progress 0, ``end`` at 1, flat at both."""
    return end + (start - end) * (1 + construct(sp.cos, sp.pi * progress)) / 2


def along_half_cosine(start: sp.Expr, end: sp.Expr, progress: sp.Expr) -> sp.Expr:
    """Returns the second half of ``along_cosine``: from midway between the values to ``end``."""
    # The second half of a cosine begins midway.
    return along_cosine(start, end, (1 + progress) / 2)


def along_envelope(start: sp.Expr, end: sp.Expr, progress: sp.Expr) -> sp.Expr:
    """Returns half a cosine times a line: ``start`` at progress 0, ``end`` at 1, flat there."""
    return end + (1 - progress) * along_cosine(start - end, sp.S.Zero, progress)


def along_geometric(start: sp.Expr, end: sp.Expr, progress: sp.Expr) -> sp.Expr:
    """Returns the geometric interpolation: ``start`` at progress 0, ``end`` at 1, both above 0."""
    return start * (end / start) ** progress


def along_half_exponential(start: sp.Expr, end: sp.Expr, progress: sp.Expr) -> sp.Expr:
    """Returns ``end + (start - end) (2 * 2^-p - 1)``: half an exponential, lowered to its end."""
    # 2^(1 - p) - 1 falls from 1 to 0.
    return along_line(end, start, 2 * sp.Rational(1, 2) ** progress - 1)


def along_inverse_root(
    start: sp.Expr, end: sp.Expr, steps_since: sp.Expr, scale: sp.Expr
) -> sp.Expr:
    """Returns ``start`` at time 0, and half way to ``end`` when the time is three scales."""
    return along_line(end, start, sp.sqrt(scale) / sp.sqrt(steps_since + scale))


def logarithmic(steps_since: sp.Expr, length: sp.Expr) -> sp.Expr:
    """Returns the progress ``log(done + 1) / log(length)``: 1 at ``length - 1``."""
    return sp.log(steps_since + 1) / sp.log(length)

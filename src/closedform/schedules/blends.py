"""Interpolations from one value to another along a progress from 0 to 1."""

from __future__ import annotations

import sympy as sp


def along_line(start: sp.Expr, end: sp.Expr, progress: sp.Expr) -> sp.Expr:
    """Returns the straight line: ``start`` at progress 0, ``end`` at 1."""
    return start + (end - start) * progress


def along_cosine(start: sp.Expr, end: sp.Expr, progress: sp.Expr) -> sp.Expr:
    """Returns half a cosine: ``start`` at progress 0, ``end`` at 1, flat at both."""
    return end + (start - end) * (1 + sp.cos(sp.pi * progress)) / 2

"""Cycles of one curve: all of one length, or each a constant factor longer than the one before."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

import sympy as sp

from closedform.errors import DomainError
from closedform.language import floor_div, floor_mod, t

# Growing cycles are a finite table. 2^50 updates at 1 ms each take 35,000 years.
_LAST_START = 2**50
_MOST = 400


@dataclass(frozen=True, slots=True)
class Cycles:
    """The place in the cycles at a step.

    Attributes:
        progress: The part of the cycle that is done, from 0 to below 1.
        decay: A factor to the power of the number of cycles done.
        end: The first step after the last cycle; None where they do not end.
    """

    progress: sp.Expr
    decay: sp.Expr
    end: sp.Rational | None


def cycles(
    first: sp.Rational, growth: sp.Rational, decay: sp.Expr, limit: int | None, where: str
) -> Cycles:
    """Returns the place in cycles by comparison with their starts, never by a logarithm.

    Args:
        first: The number of steps N of the first cycle, above 0.
        growth: The factor M from one length to the next, at least 1.
        decay: The factor on the height from one cycle to the next.
        limit: The number of cycles; None for no end: with M > 1, up to the first start beyond 2^50.
        where: The place, for errors.

    Raises:
        DomainError: ``growth`` is below 1, or so near to it that there are too many cycles.

    Example:
        >>> place = cycles(sp.Integer(10), sp.Integer(1), sp.Integer(1), None, "here")
        >>> place.progress.xreplace({t: sp.Integer(25)})
        1/2
    """
    if growth < 1:
        raise DomainError(f"the lengths of cycles must not shrink, got {growth}", where=where)
    if growth == 1:
        index = floor_div(t, first)
        powers = decay**index if decay != 1 else sp.Integer(1)
        return Cycles(floor_mod(t, first) / first, powers, None if limit is None else limit * first)
    starts = [sp.Integer(0)]
    lengths = [first]
    # Comparisons with a table are exact; floor(log(…)) is off by a cycle at some borders in
    # float64.
    while len(lengths) < limit if limit is not None else starts[-1] <= _LAST_START:
        starts.append(starts[-1] + lengths[-1])
        lengths.append(lengths[-1] * growth)
        if len(lengths) > _MOST:
            raise DomainError(f"there are more than {_MOST} cycles of growing length", where=where)
    end = starts[-1] + lengths[-1]
    return Cycles(
        _branches([(t - s) / n for s, n in zip(starts, lengths, strict=True)], [*starts[1:], end]),
        _branches([decay**i for i in range(len(starts))], [*starts[1:], end]),
        None if limit is None else end,
    )


def _branches(values: list[Any], stops: list[sp.Rational]) -> sp.Expr:
    last = (values[-1], True)
    return sp.Piecewise(*((v, t < s) for v, s in zip(values[:-1], stops, strict=False)), last)

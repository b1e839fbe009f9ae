"""Exact values of a schedule at many steps, as pairs of float64, by ball arithmetic.

``exact.value`` reads a term at one point, branch by branch; here the walk is done once, so that a
million steps take seconds. Where a ball is too wide to decide, ``exact.value`` is asked.
"""

from __future__ import annotations

import bisect
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from typing import Any

import flint
import numpy as np
from flint import arb, fmpq
from numpy.typing import NDArray

from closedform.errors import DomainError
from closedform.verify.certificates.lines import Function, UndecidedError
from closedform.verify.certificates.terms import compile_term
from closedform.verify.terms import evaluate as exact
from closedform.verify.terms.tree import Term

BITS = 128
# A value of fewer good bits is evaluated again with more: errors are told to 2**-40 of an ulp.
_LEAST_BITS = 96

Floats = NDArray[np.float64]


class Values:
    """The exact values of a term.

    Args:
        term: A term in the one symbol t.
    """

    def __init__(self, term: Term) -> None:
        self.term = term
        with _precision(BITS):
            self._compiled = compile_term(term)

    @property
    def starts(self) -> list[int]:
        """First steps of the branches that thresholds of the step decide."""
        return self._compiled.segments()[0]

    def at(self, steps: Sequence[int]) -> tuple[Floats, Floats]:
        """Returns (high, low): float64 parts whose sum is off by 2**-95 of the value at most.

        Args:
            steps: In ascending order.

        Raises:
            DomainError: The term has no value at a step.
        """
        with _precision(BITS):
            return self._at(steps)

    def at_step(self, step: int) -> Any:
        """Returns the value at one step: a fraction where it is rational, else a ball."""
        result = exact.value(self.term, {"t": fmpq(step)}, 4 * BITS)
        if isinstance(result, exact.Undefined):
            raise DomainError(f"the schedule has no value: {result.reason}", where=f"t = {step}")
        return result

    def _at(self, steps: Sequence[int]) -> tuple[Floats, Floats]:
        starts, parts = self._compiled.segments()
        high, low = np.empty(len(steps)), np.empty(len(steps))
        cuts = [bisect.bisect_left(steps, start) for start in starts[1:]]
        for part, first, last in zip(parts, [0, *cuts], [*cuts, len(steps)], strict=True):
            if first == last:
                continue
            fixed = part.line is not None and part.line.slope == 0
            taken = steps[first : first + 1] if fixed else steps[first:last]
            pairs = [self._halves(part.function, step) for step in taken]
            high[first:last], low[first:last] = np.array(pairs).T
        return high, low

    def _halves(self, function: Function, step: int) -> tuple[float, float]:
        try:
            ball = arb(function(step))
        except (UndecidedError, ZeroDivisionError):
            ball = arb(self.at_step(step))
        if ball.rel_accuracy_bits() < _LEAST_BITS:
            ball = arb(self.at_step(step))
        high = float(ball)
        return high, float(ball - high)


@contextmanager
def _precision(bits: int) -> Iterator[None]:
    before = flint.ctx.prec
    flint.ctx.prec = bits
    try:
        yield
    finally:
        flint.ctx.prec = before

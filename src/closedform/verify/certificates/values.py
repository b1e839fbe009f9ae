"""Exact values of a schedule at many steps, as pairs of float64.

The steps are partitioned where a branch changes, and on each segment the term is compiled once, so
that a million steps take seconds. Where a ball is too wide to decide, ``evaluate.value`` is asked.
"""

from __future__ import annotations

from bisect import bisect_left
from collections.abc import Sequence
from typing import Any

import numpy as np
from flint import arb, fmpq

from closedform.errors import DomainError, VerificationError
from closedform.ir.types import FloatArray
from closedform.language.balls import ball_precision
from closedform.verify.terms.build import symbol
from closedform.verify.terms.evaluate import (
    PointFunction,
    UndecidedError,
    Undefined,
    compile_steps,
    value,
)
from closedform.verify.terms.limits import FOREVER
from closedform.verify.terms.partition import partition
from closedform.verify.terms.tree import Op, Sign, Term, show, symbols, walk

BITS = 128
# A value of fewer good bits is evaluated again with more: errors are known to 2**-40 of an ulp.
_LEAST_BITS = 96
# A ball around 0 with so many bits is narrower than a quarter of the least subnormal, 2**-1074:
# no float is nearer to the value than 0. An example: sqrt(2)/4 - sqrt(2)*n/1280000 at n = 320000.
_ZERO_BITS = 1200


class ExactValues:
    """The exact values of a term.

    Args:
        term: A term in the one symbol t.

    Raises:
        VerificationError: The term holds another symbol, or a function of tensors.
    """

    def __init__(self, term: Term) -> None:
        free_symbols = symbols(term)
        clock = free_symbols.pop("t", symbol("t", integer=True, sign=Sign.NONNEGATIVE))
        if free_symbols:
            raise VerificationError(
                f"the symbol {min(free_symbols)} has no value", hint="bind it before certifying"
            )
        opaque = next((node for node in walk(term) if node.op is Op.OPAQUE), None)
        if opaque is not None:
            raise VerificationError(
                f"{show(opaque)} has no exact value at a step",
                hint="a certificate is of a schedule; see the claims for update rules",
            )
        self.term = term
        self._clock = clock
        # levels=0: floors stay, or a schedule by epochs had a segment for each epoch.
        self._segments = partition(term, clock, 0, FOREVER, levels=0)

    @property
    def starts(self) -> list[int]:
        """The first steps of the segments."""
        return [segment.first for segment in self._segments]

    def at(self, steps: Sequence[int]) -> tuple[FloatArray, FloatArray]:
        """Returns (high, low): float64 parts whose sum is off by 2**-95 of the value at most.

        Args:
            steps: In ascending order.

        Raises:
            DomainError: The term has no value at a step.
        """
        high, low = np.empty(len(steps)), np.empty(len(steps))
        first = 0
        with ball_precision(BITS):
            for segment in self._segments:
                end = bisect_left(steps, segment.end, lo=first)
                if first < end:
                    term = segment.term(self._clock)
                    # A constant segment is evaluated once.
                    chosen_steps = (
                        steps[first:end] if self._clock in walk(term) else steps[first : first + 1]
                    )
                    pairs = self._pairs(term, chosen_steps)
                    high[first:end], low[first:end] = np.array(pairs).T
                first = end
        return high, low

    def at_step(self, step: int) -> Any:
        """Returns the value at one step: a fraction where it is rational, else a ball.

        A value that is nearer to 0 than to any other float is returned as 0.
        """
        result = value(self.term, {"t": fmpq(step)}, 4 * BITS)
        if isinstance(result, arb) and result.contains(0):
            result = value(self.term, {"t": fmpq(step)}, _ZERO_BITS)
            if isinstance(result, arb) and result.abs_upper() < arb(2) ** -1076:
                return fmpq(0)
        if isinstance(result, Undefined):
            raise DomainError(f"the schedule has no value: {result.reason}", where=f"t = {step}")
        return result

    def _pairs(self, term: Term, steps: Sequence[int]) -> list[tuple[float, float]]:
        function = compile_steps(term, self._clock)
        pairs = [_halves_at(function, step) for step in steps]
        missing = [place for place, pair in enumerate(pairs) if pair is None]
        if missing:
            # By cancellation, or of a large exponent as in 2**(-10**11*t): only these steps are
            # evaluated again, node by node where it does not help either.
            with ball_precision(4 * BITS):
                function = compile_steps(term, self._clock)
                for place in missing:
                    step = steps[place]
                    pairs[place] = _halves_at(function, step) or _halves(arb(self.at_step(step)))
        return [pair for pair in pairs if pair is not None]


def _halves_at(function: PointFunction, step: int) -> tuple[float, float] | None:
    """The two floats of a value; None where its ball is too wide or cannot be decided."""
    try:
        ball = arb(function(step))
    except (UndecidedError, ZeroDivisionError):
        return None
    return None if ball.rel_accuracy_bits() < _LEAST_BITS else _halves(ball)


def _halves(ball: arb) -> tuple[float, float]:
    # ball - high is exact in arb, so the two floats hold 106 bits.
    high = float(ball)
    return high, float(ball - high)

"""Integers of a fixed width: 8 and 16 bits wrap, longer integers must stay within their range.

The numbers of a rule are real. A short integer is therefore written as the remainder that its width
leaves of it, unless all of its values fit. Longer ones would hide each formula in remainders: of
them it is asked that no run of 2**31 steps comes to their ends.
"""

from __future__ import annotations

import functools
import math
from collections.abc import Callable, Collection
from dataclasses import dataclass
from fractions import Fraction

import sympy as sp

from closedform.errors import TraceError
from closedform.importers.tensors.values import Definitions
from closedform.language.integers import floor_mod
from closedform.language.symbols import t
from closedform.lowering.analysis.annotate import interval
from closedform.lowering.analysis.domain import ALL, Domain, Interval

_MOST_STEPS = 2**31


@dataclass(frozen=True, slots=True)
class Width:
    """The integers that a dtype holds.

    >>> Width.of("int8"), Width.of("uint16").is_short, Width.of("bool"), Width.of("float32")
    (Width(low=-128, high=127), True, None, None)
    """

    low: int
    high: int

    @classmethod
    def of(cls, dtype: str) -> Width | None:
        """Returns the integers of a dtype by its name; None for one that is not of integers."""
        kind, _, bits = dtype.removeprefix("torch.").partition("int")
        if kind not in ("", "u") or not bits.isdecimal():
            return None
        count = 2 ** int(bits)
        return cls(0, count - 1) if kind else cls(-count // 2, count // 2 - 1)

    @property
    def is_short(self) -> bool:
        """Whether a run of some steps may wrap."""
        return self.high < 2**16

    def wrap(self, definitions: Definitions) -> Callable[[sp.Expr], sp.Expr]:
        """Returns a function that gives an integer as the width holds it."""

        def remainder(expr: sp.Expr) -> sp.Expr:
            values = _range_of(expr, definitions, Domain(), ALL)
            if self.low <= values.low and values.high <= self.high:
                return expr
            return floor_mod(expr - self.low, self.high - self.low + 1) + self.low

        return remainder


def check_growth(
    expr: sp.Expr,
    width: Width,
    symbols: Collection[sp.Symbol],
    definitions: Definitions,
    name: str,
    start: sp.Expr | None,
) -> None:
    """Refuses a state that may leave the integers of its width within 2**31 steps.

    Args:
        expr: The state after a step.
        width: Its width, which is not short.
        symbols: The states that are integers, before the step.
        definitions: Those of the expression.
        name: The name of the state.
        start: Its first value; None where that is not one number.

    Raises:
        TraceError: It begins far from 0, or from some size on a step may add more than a 2**31st
            of what the width holds.
    """
    parts = (expr, *definitions.definitions_of([expr]).values())
    if not any(part.free_symbols & {*symbols} for part in parts):
        return
    growth = max(width.high // _MOST_STEPS, 1)
    check_start(width, name, start)
    # Counts of one step, such as the elements of a mask, are below 2**31.
    data = Interval(Fraction(-_MOST_STEPS), Fraction(_MOST_STEPS)) if growth > 1 else ALL
    for bound in (2**24 * growth, 2**30 * growth, width.high - growth):
        sides = Interval(Fraction(max(-bound, width.low)), Fraction(bound))
        domain = Domain(
            {t: Interval(Fraction(0), Fraction(bound)), **dict.fromkeys(symbols, sides)}
        )
        values = _range_of(expr, definitions, domain, data)
        if not max(-bound - growth, width.low) <= values.low <= values.high <= bound + growth:
            raise _wrap_error(width, name)


def check_start(width: Width, name: str, start: sp.Expr | int | None) -> None:
    """Refuses a state of integers that begins near the ends of its width.

    Raises:
        TraceError: Of 32 bits it begins beyond 2**24, of 64 bits beyond 2**56.
    """
    if start is not None and abs(start) > 2**24 * max(width.high // _MOST_STEPS, 1):
        raise _wrap_error(width, name)


def _wrap_error(width: Width, name: str) -> TraceError:
    return TraceError(
        f"the state {name!r} may leave the integers from {width.low} to {width.high}, where it "
        "wraps",
        hint="count in steps of 1 from a number near 0, or keep it in a float",
    )


def _range_of(expr: sp.Expr, definitions: Definitions, domain: Domain, data: Interval) -> Interval:
    """The values of an expression, on a domain of the clock and of states.

    Args:
        expr: The expression.
        definitions: Its definitions.
        domain: The domain.
        data: The interval of a definition without one that is known.
    """
    for symbol, definition in definitions.definitions_of([expr]).items():
        values = _interval(definition, domain)
        is_of_domain = not domain.bounds.keys().isdisjoint(definition.free_symbols)
        if not is_of_domain and math.inf in (values.high, -values.low):
            values = data
        domain = domain.with_interval(symbol, values)
    return _interval(expr, domain)


def _interval(expr: sp.Expr, domain: Domain) -> Interval:
    """The union over the values of indicators: ``m * s + (1 - m) * (s + 1)`` is one of two sums."""
    indicators = [part for part in expr.atoms(sp.Piecewise) - {expr} if _is_indicator(part)]
    if not 0 < len(indicators) <= _MOST_INDICATORS:
        return interval(expr, domain)
    values = [expr.xreplace({indicators[0]: value}) for value, _ in indicators[0].args]
    return functools.reduce(Interval.union, [_interval(value, domain) for value in values])


def _is_indicator(expr: sp.Piecewise) -> bool:
    return all(value.is_number for value, _ in expr.args)


_MOST_INDICATORS = 4

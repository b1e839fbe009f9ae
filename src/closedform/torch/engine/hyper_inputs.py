"""Which hyperparameters of a rule are inputs of its step graph, and what they may be.

A hyperparameter that a scheduler changes must be an input: a graph with its number in it would be
compiled again at every step. But a graph can only be made where what stands under a division, root
or logarithm is known to be in range. So each one is opened with the weakest bound under which the
rule compiles: any number, one that is not negative, or one in [0, 1). The bound is written into
the expressions as Max and Min, which change no value inside it; a value outside of it is a number
in a graph of its own. What compiles under no bound stays a number as well.
"""

from __future__ import annotations

import math
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from enum import StrEnum
from typing import Any, assert_never

import sympy as sp

from closedform.compiler import compile_step
from closedform.errors import ClosedFormError
from closedform.language import Schedule, UpdateRule
from closedform.options import ModelSpec

BELOW_ONE = 1 - sp.Rational(1, 2**40)
"""The largest number of the bound [0, 1): 1 less this is well above the rounding of a float64."""


class Bound(StrEnum):
    """What an input may be, from the weakest to the strongest."""

    ANY = "any"
    NOT_NEGATIVE = "not negative"
    BELOW_ONE = "in [0, 1)"


@dataclass(frozen=True, slots=True)
class OpenRule:
    """A rule with inputs, and the bound of each.

    Attributes:
        rule: The rule; its inputs are the hyperparameters that are None.
        bounds: The bound of each input by name.
    """

    rule: UpdateRule
    bounds: Mapping[str, Bound]


RANGES: Mapping[Bound, tuple[float, float]] = {
    Bound.ANY: (-math.inf, math.inf),
    Bound.NOT_NEGATIVE: (0, math.inf),
    Bound.BELOW_ONE: (0, float(BELOW_ONE)),
}
"""The least and the largest number of each bound."""


def is_within(value: float, bound: Bound) -> bool:
    """Returns whether a number is in a bound."""
    low, high = RANGES[bound]
    return low <= value <= high


def weakest_bounds(
    rule: UpdateRule, names: Iterable[str], shape: tuple[int, ...]
) -> dict[str, Bound]:
    """Returns the weakest bounds under which hyperparameters can be inputs, for those that can.

    Args:
        rule: A rule in which each of them has a number.
        names: The hyperparameters to open.
        shape: The shape of a parameter to compile for.
    """
    wanted = [name for name in names if name in _used(rule)]
    for tried in _likely(rule, wanted):
        if _compiles(open_with(rule, tried), shape):
            return tried
    found: dict[str, Bound] = {}
    for name in wanted:
        number = float(rule.hyperparameters[name])
        for bound in Bound:
            tried = {**found, name: bound}
            if is_within(number, bound) and _compiles(open_with(rule, tried), shape):
                found = tried
                break
    return found


def _likely(rule: UpdateRule, names: Sequence[str]) -> Iterator[dict[str, Bound]]:
    """Bounds that most rules compile with, to save the search: numbers near 1 are decay rates."""
    free = dict.fromkeys(names, Bound.ANY)
    yield free
    rates = [name for name in names if 0.5 <= float(rule.hyperparameters[name]) < 1]
    if rates:
        yield {**free, **dict.fromkeys(rates, Bound.BELOW_ONE)}


def _used(rule: UpdateRule) -> set[str]:
    return {symbol.name for part in rule.all_expressions() for symbol in part.free_symbols}


def open_with(rule: UpdateRule, bounds: Mapping[str, Bound]) -> OpenRule:
    """Returns the rule with these hyperparameters as inputs, held to their bounds."""
    bounded: dict[sp.Basic, sp.Basic] = {}
    for part in rule.all_expressions():
        for symbol in part.free_symbols:
            if symbol.name in bounds:
                bounded[symbol] = _bounded(symbol, bounds[symbol.name])
    states = {
        name: replace(spec, next=spec.next.xreplace(bounded)) for name, spec in rule.states.items()
    }
    opened = replace(
        rule,
        param=rule.param.xreplace(bounded),
        states=states,
        definitions={name: expr.xreplace(bounded) for name, expr in rule.definitions.items()},
        shared={
            name: replace(spec, next=spec.next.xreplace(bounded))
            for name, spec in rule.shared.items()
        },
        advances=rule.advances.xreplace(bounded),
        hyperparameters={**rule.hyperparameters, **dict.fromkeys(bounds)},
    )
    return OpenRule(opened, dict(bounds))


def _bounded(symbol: sp.Symbol, bound: Bound) -> sp.Expr:
    match bound:
        case Bound.ANY:
            return symbol
        case Bound.NOT_NEGATIVE:
            return sp.Max(symbol, 0)
        case Bound.BELOW_ONE:
            return sp.Min(sp.Max(symbol, 0), BELOW_ONE)
    assert_never(bound)


def _compiles(opened: OpenRule, shape: tuple[int, ...]) -> bool:
    try:
        compile_step(ModelSpec(opened.rule, {"p": shape}))
    except ClosedFormError:
        return False
    return True


def numbers_of(rule: UpdateRule) -> dict[str, Any]:
    """Returns the hyperparameters that are numbers, as Python numbers."""
    return {
        name: int(value) if value.is_Integer else float(value)
        for name, value in rule.hyperparameters.items()
        if value is not None and not isinstance(value, Schedule)
    }

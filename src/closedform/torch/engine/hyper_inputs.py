"""The hyperparameters of a rule that are inputs of its step graph, and the range of each.

A hyperparameter that a scheduler changes must be an input: a graph with its value as a constant
would be compiled again at every step. But a graph exists only if the operands of divisions, roots
and logarithms are known to be in their domain. Each hyperparameter therefore becomes an input with
the widest range for which the rule compiles: any number, a nonnegative one, or one in [0, 1). The
graph clamps its inputs to their ranges, which does not change a value inside; a value outside
becomes a constant of a separate graph, as does a hyperparameter for which the rule compiles with
no range.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import replace
from enum import StrEnum

import sympy as sp
import torch

from closedform.errors import ClosedFormError, GraphError
from closedform.language import Schedule, UpdateRule, t
from closedform.torch.engine.kernels import ANY_SHAPE, graph_shape, step_graph

BELOW_ONE = 1 - sp.Rational(1, 2**40)
"""The largest number of the range [0, 1): 1 minus this is far above the rounding of a float64."""


class InputRange(StrEnum):
    """The range of an input, from the widest to the narrowest."""

    ANY = "any"
    NONNEGATIVE = "nonnegative"
    BELOW_ONE = "in [0, 1)"


LIMITS: Mapping[InputRange, tuple[sp.Expr, sp.Expr]] = {
    InputRange.ANY: (-sp.oo, sp.oo),
    InputRange.NONNEGATIVE: (sp.Integer(0), sp.oo),
    InputRange.BELOW_ONE: (sp.Integer(0), BELOW_ONE),
}
"""The smallest and the largest number of each range."""


def is_within(value: float, bounds: InputRange) -> bool:
    """Returns whether a number is in a range."""
    low, high = map(float, LIMITS[bounds])
    return low <= value <= high


def widest_ranges(
    rule: UpdateRule, names: Iterable[str], shape: tuple[int, ...]
) -> dict[str, InputRange]:
    """Returns the widest range of each hyperparameter that can be an input.

    Args:
        rule: A rule in which each of them has a number.
        names: The hyperparameters to try.
        shape: The shape of a parameter to compile for.
    """
    names_in_rule = [name for name in names if name in _symbol_names(rule)]
    for candidate in _likely(rule, names_in_rule):
        if _compiles(with_inputs(rule, candidate), shape):
            return _widen(rule, candidate, shape)
    ranges: dict[str, InputRange] = {}
    for name in names_in_rule:
        number = float(rule.hyperparameters[name])
        for bounds in InputRange:
            candidate = {**ranges, name: bounds}
            # From the widest range: a value outside of it costs another graph.
            if is_within(number, bounds) and _compiles(with_inputs(rule, candidate), shape):
                ranges = candidate
                break
    return ranges


def _likely(rule: UpdateRule, names: Sequence[str]) -> Iterator[dict[str, InputRange]]:
    """Ranges with which most rules compile, tried before the search: decay rates are near 1.

    Either all hyperparameters are inputs, more and more of them nonnegative, or one is a constant:
    it may decide between branches of which one does not exist for all numbers. To find that a rule
    does not compile takes a tenth of the time of compiling it.
    """
    numbers = {name: float(rule.hyperparameters[name]) for name in names}
    # All ranges have 0, by which nothing is divided.
    divisors = _divisors(rule)
    names = [name for name in names if name not in divisors]
    free = dict.fromkeys(names, InputRange.ANY)
    # A rate in [0, 1) keeps 1 − β and 1 − βᵗ away from 0, by which bias corrections divide.
    rates = [name for name in names if 0.5 <= numbers[name] < 1]
    below_one = {**free, **dict.fromkeys(rates, InputRange.BELOW_ONE)}
    has_powers = _has_powers_of(rule, rates)
    bases = [below_one] if has_powers else [free, below_one] if rates else [free]
    yield from bases
    if has_powers:  # a rate that decides between branches is most likely that of the second moment
        for without in reversed(rates):
            yield {name: bounds for name, bounds in below_one.items() if name != without}
    ranges = bases[0]
    for name in names:
        if ranges[name] is InputRange.ANY and numbers[name] >= 0:
            ranges = {**ranges, name: InputRange.NONNEGATIVE}
            yield ranges
    for without in names:
        for base in bases:
            yield {name: bounds for name, bounds in base.items() if name != without}


def _widen(
    rule: UpdateRule, ranges: dict[str, InputRange], shape: tuple[int, ...]
) -> dict[str, InputRange]:
    """The ranges, where any number may take the place of a nonnegative one if the rule compiles.

    It does not for the last of them, which was tried before.
    """
    for name in [name for name, bounds in ranges.items() if bounds is InputRange.NONNEGATIVE][:-1]:
        wider = {**ranges, name: InputRange.ANY}
        if _compiles(with_inputs(rule, wider), shape):
            ranges = wider
    return ranges


def _divisors(rule: UpdateRule) -> set[str]:
    """The hyperparameters by which a rule divides."""
    powers = {power for part in rule.all_expressions() for power in part.atoms(sp.Pow)}
    return {
        power.base.name
        for power in powers
        if isinstance(power.base, sp.Symbol) and power.exp.is_Rational and power.exp < 0
    }


def _has_powers_of(rule: UpdateRule, names: Sequence[str]) -> bool:
    """Whether a hyperparameter has a power that depends on the step, which is real for some."""
    powers = {power for part in rule.all_expressions() for power in part.atoms(sp.Pow)}
    symbol_names = {
        symbol.name
        for power in powers
        if t in power.exp.free_symbols
        for symbol in power.base.free_symbols
    }
    return not symbol_names.isdisjoint(names)


def _symbol_names(rule: UpdateRule) -> set[str]:
    return {symbol.name for part in rule.all_expressions() for symbol in part.free_symbols}


def with_inputs(rule: UpdateRule, ranges: Mapping[str, InputRange]) -> UpdateRule:
    """Returns the rule with these hyperparameters as inputs, clamped to their ranges."""
    return replace(
        rule,
        hyperparameters={**rule.hyperparameters, **dict.fromkeys(ranges)},
        ranges={**rule.ranges, **{name: LIMITS[bounds] for name, bounds in ranges.items()}},
    )


def _compiles(rule: UpdateRule, shape: tuple[int, ...]) -> bool:
    general = graph_shape(rule, shape)
    try:
        try:
            step_graph(rule, (general,), torch.float32)
        except GraphError:  # a product of square matrices needs the sizes
            if general in (ANY_SHAPE, shape):
                raise
            step_graph(rule, (shape,), torch.float32)
    except ClosedFormError:
        return False
    return True


def constants_of(rule: UpdateRule) -> dict[str, int | float]:
    """Returns the hyperparameters that are constants, as Python numbers."""
    return {
        name: int(value) if value.is_Integer else float(value)
        for name, value in rule.hyperparameters.items()
        if value is not None and not isinstance(value, Schedule)
    }

"""The parts of a schedule, checked: expression, symbols, values, domain and length.

``last_step_of(t < 100)`` is 99; a condition such as ``t > 5`` is refused.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from typing import Any

import sympy as sp
from sympy.logic.boolalg import Boolean

from closedform.errors import DefinitionError, DomainError, nearest
from closedform.language.aliases import Number, Steps
from closedform.language.symbols import GRAD, PARAM, exact_number, rationalize, t


def symbols_of(expr: sp.Expr, name: str) -> dict[str, sp.Symbol]:
    """Returns the symbols but the clock by name."""
    symbols: dict[str, sp.Symbol] = {}
    for symbol in expr.free_symbols - {t}:
        if symbol.name in symbols:
            raise DefinitionError(
                f"two symbols are named {symbol.name!r}, with different assumptions",
                where=f"schedule {name!r}",
                hint="make the symbol once, with hyper() or sympy.symbols, and use it twice",
            )
        symbols[symbol.name] = symbol
    return symbols


def checked_value(key: str, value: Number, symbols: Mapping[str, sp.Symbol], name: str) -> sp.Expr:
    """Returns the exact value of a hyperparameter, which its symbol admits."""
    where = f"schedule {name!r}"
    if key not in symbols:
        raise DefinitionError(
            f"{key!r} is not a symbol of the expression",
            where=where,
            hint=nearest(key, symbols) if symbols else "the expression has no symbols",
        )
    number = exact_number(value, f"hyperparameter {key!r}")
    if symbols[key].is_positive and not number > 0:
        raise DomainError(f"{key} must be above 0, got {value}", where=where)
    if symbols[key].is_integer and not number.is_integer:
        raise DomainError(f"{key} must be an integer, got {value}", where=where)
    return number


def checked_domain(
    conditions: Iterable[sp.Basic],
    symbols: Mapping[str, sp.Symbol],
    values: Mapping[str, sp.Expr],
    name: str,
) -> tuple[sp.Basic, ...]:
    """Returns the conditions, each checked where all of its symbols have values."""
    where = f"schedule {name!r}"
    checked_conditions = []
    for condition in conditions:
        if not isinstance(condition, Boolean) or condition.is_Symbol:
            raise DefinitionError(
                f"domain must hold conditions such as flat < steps, got {condition!r}", where=where
            )
        unknown = sorted(s.name for s in condition.free_symbols - {t} if s != symbols.get(s.name))
        if unknown:
            raise DefinitionError(
                f"{unknown[0]!r} in the domain is not a symbol of the expression",
                where=where,
                hint=nearest(unknown[0], symbols) if symbols else "the expression has no symbols",
            )
        if t in condition.free_symbols:
            last_step_of(condition, where)
        # A condition is only false if all its symbols have values; SymPy leaves any other one open.
        numbers = {s: values[s.name] for s in condition.free_symbols if s.name in values}
        if condition.xreplace(numbers) == sp.false:
            keys = sorted(map(str, numbers))
            assignments = ", ".join(f"{key} = {numbers[symbols[key]]}" for key in keys)
            raise DomainError(f"{condition} must hold, got {assignments}", where=where)
        if condition != sp.true:
            checked_conditions.append(condition)
    return tuple(checked_conditions)


def last_step_of(condition: sp.Basic, where: str = "") -> sp.Expr:
    """Returns the last step of ``t <= last`` or ``t < end``; DefinitionError for another."""
    if isinstance(condition, sp.Gt | sp.Ge):
        condition = condition.reversed
    is_end = isinstance(condition, sp.Lt | sp.Le) and condition.lhs == t
    if not is_end or t in condition.rhs.free_symbols:
        raise DefinitionError(
            f"a condition on t in the domain must be t <= last or t < end, got {condition}",
            where=where,
            hint="a schedule begins at t = 0: write other conditions as branches of a Piecewise",
        )
    end = condition.rhs
    # t is an integer: t <= 9.5 ends at 9, and t < 9.5 at ceil(9.5) - 1 = 9, t < 9 at 8.
    return sp.floor(end) if isinstance(condition, sp.Le) else sp.ceiling(end) - 1


def checked_duration(length: Steps | None) -> sp.Expr | None:
    """Returns a length as an Integer; an expression of hyperparameters stays as it is."""
    if length is None or (isinstance(length, sp.Expr) and not length.is_number):
        return length
    return whole_steps(length, "length")


def whole_steps(value: object, name: str) -> sp.Integer:
    """Returns a number of steps as an Integer; DefinitionError if it is not an integer >= 0."""
    number = exact_number(value, name)
    if not number.is_integer or number < 0:
        raise DefinitionError(f"{name} must be an integer >= 0, got {value!r}")
    return number


def checked_expression(expr: Any, name: str) -> sp.Expr:
    """Returns an expression with exact numbers, which must be a finite function of the clock."""
    if not isinstance(expr, sp.Expr):
        return exact_number(expr, f"the expression of schedule {name!r}")
    if expr.has(sp.I, sp.zoo, sp.nan, sp.oo, sp.S.NegativeInfinity):
        raise DefinitionError(
            f"a schedule must be finite and real, got {expr}", where=f"schedule {name!r}"
        )
    symbols = expr.free_symbols
    foreign = [symbol for symbol in symbols if symbol in (PARAM, GRAD)]
    if foreign:
        raise DefinitionError(
            f"a schedule is a function of t and hyperparameters, got {foreign[0]}",
            where=f"schedule {name!r}",
            hint="tensors belong in an UpdateRule",
        )
    # Symbols of one name with other assumptions are unequal: this one would stay open in a graph.
    if any(symbol.name == "t" and symbol != t for symbol in symbols):
        raise DefinitionError(
            "the expression holds a symbol t that is not the clock",
            where=f"schedule {name!r}",
            hint="write it with closedform.t, which is an integer >= 0",
        )
    result: sp.Expr = rationalize(expr, f"the expression of schedule {name!r}")
    return result

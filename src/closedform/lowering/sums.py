"""Sums over all parameters: each gets a name, a level, and the rules that take part in it.

A rule with global sums becomes one with symbols in their places. Sums of the same expression are
one, whichever rules have it; one whose expression holds other sums is of a higher level.
"""

from __future__ import annotations

from dataclasses import replace

import sympy as sp

from closedform.errors import LoweringError
from closedform.ir import naming
from closedform.language.definitions import taken_by
from closedform.language.model import GlobalSum
from closedform.language.settled import substitute
from closedform.language.symbols import PARAM, local
from closedform.language.update_rule import State, UpdateRule

Definitions = tuple[tuple[str, sp.Expr], ...]


class SumTable:
    """The sums of a model; rules are put into it one after the other."""

    def __init__(self) -> None:
        self._names: dict[tuple[sp.Expr, Definitions], str] = {}
        self._levels: dict[str, int] = {}

    @property
    def levels(self) -> list[tuple[str, ...]]:
        """The names of the sums by level."""
        count = max(self._levels.values(), default=-1) + 1
        return [
            tuple(name for name, level in self._levels.items() if level == depth)
            for depth in range(count)
        ]

    def name_sums(self, rule: UpdateRule) -> tuple[UpdateRule, dict[str, sp.Expr]]:
        """Returns a rule with symbols for its sums, and its term of each by name."""
        if not any(expr.has(GlobalSum) for expr in rule.all_expressions()):
            return rule, {}
        parts: dict[str, sp.Expr] = {}
        definitions: dict[str, sp.Expr] = {}

        def name(expr: sp.Basic) -> sp.Basic:
            return self._rewritten(expr, definitions, parts)

        for key, expr in rule.definitions.items():
            definitions[key] = name(expr)
        changes = rule.expressions_by(name, definitions)
        # Symbols that occur only in a sum are used, too: each term becomes an unused definition.
        definitions.update((f"added_to_{key}", part) for key, part in parts.items())
        numbers = {**rule.hyperparameters, **dict.fromkeys(parts)}
        return replace(rule, **changes, hyperparameters=numbers), parts

    def _rewritten(
        self, expr: sp.Basic, definitions: dict[str, sp.Expr], parts: dict[str, sp.Expr]
    ) -> sp.Basic:
        while True:
            # Innermost first: a sum of a sum gets the name of the inner one before its own.
            inner = [s for s in expr.atoms(GlobalSum) if not s.args[0].has(GlobalSum)]
            if not inner:
                return expr
            symbols = {}
            # atoms() is a set: names must not depend on hash order.
            for total in sorted(inner, key=sp.default_sort_key):
                key = self._name(total.args[0], definitions)
                parts[key] = total.args[0]
                symbols[total] = sum_symbol(key)
            expr = substitute(expr, symbols)

    def _name(self, expr: sp.Expr, definitions: dict[str, sp.Expr]) -> str:
        used_definitions = tuple(taken_by([expr], definitions).items())
        key = (expr, used_definitions)
        if key not in self._names:
            symbols = {
                s.name
                for part in (expr, *(e for _, e in used_definitions))
                for s in part.free_symbols
            }
            below = [self._levels[name] for name in symbols if name in self._levels]
            self._names[key] = naming.total(len(self._names))
            self._levels[self._names[key]] = max(below, default=-1) + 1
        return self._names[key]


def sum_symbol(name: str) -> sp.Symbol:
    """Returns the symbol of a sum by its name."""
    return sp.Symbol(name, real=True)


def parts_rule(rule: UpdateRule, parts: dict[str, sp.Expr]) -> UpdateRule:
    """Returns a rule with a definition for each part; its next values are not used."""
    definitions = {**rule.definitions, **parts}
    return narrow_rule(rule, sp.Add(*(local(name) for name in parts)), _still(rule), definitions)


def evaluation_rule(rule: UpdateRule) -> UpdateRule:
    """Returns a rule whose parameter is the point of evaluation; other next values are not used.

    Raises:
        LoweringError: The point takes a sum over all parameters.
    """
    point = PARAM if rule.evaluation is None else rule.evaluation
    definitions = dict(rule.definitions)
    expressions = [point, *taken_by([point], definitions).values()]
    if any(expr.has(GlobalSum) for expr in expressions):
        raise LoweringError(
            "the point of evaluation takes a sum over all parameters",
            where=f"rule {rule.name!r}",
            hint="keep the sum as a state of the model",
        )
    return narrow_rule(rule, point, _still(rule), definitions)


def _still(rule: UpdateRule) -> dict[str, State]:
    """The states, only for their types."""
    return {key: replace(spec, next=sp.Integer(0)) for key, spec in rule.states.items()}


def narrow_rule(
    rule: UpdateRule,
    param: sp.Expr,
    states: dict[str, State],
    definitions: dict[str, sp.Expr],
) -> UpdateRule:
    """Returns a rule with other expressions, and the definitions and hyperparameters they need."""
    used_definitions = taken_by([param], definitions)
    expressions = [param, *used_definitions.values()]
    names = {symbol.name for expr in expressions for symbol in expr.free_symbols}
    return replace(
        rule,
        param=param,
        states=states,
        definitions=used_definitions,
        hyperparameters={key: v for key, v in rule.hyperparameters.items() if key in names},
        shared={key: replace(s, next=sp.Integer(0)) for key, s in rule.shared.items()},
        advances=sp.true,
        evaluation=None,
    )

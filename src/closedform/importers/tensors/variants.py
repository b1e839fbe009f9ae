"""Update rules of several shapes: each variant holds where its condition on the shape does."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any

import sympy as sp

from closedform.errors import ClosedFormError, TraceError
from closedform.language.model import Shared
from closedform.language.symbols import local
from closedform.language.update_rule import State, UpdateRule


@dataclass(frozen=True, slots=True)
class Variant:
    """The rule of the shapes of one trace.

    Attributes:
        condition: Which shapes these are.
        results: The next value of the parameter ("param") and of each state by name.
        definitions: The values that they share, by name.
        initial: The value of each state before the first step.
        shapes: The shape rule of each state.
        shared: The names of states of the whole model.
        advances: The condition under which a step counts.
        counters: Those of the whole model that count.
    """

    condition: sp.Basic
    results: Mapping[str, sp.Expr]
    definitions: Mapping[str, sp.Expr]
    initial: Mapping[str, sp.Expr]
    shapes: Mapping[str, Any]
    shared: frozenset[str]
    advances: sp.Basic
    counters: frozenset[str] = frozenset()


def rule_of(name: str, variants: Sequence[Variant], hypers: Mapping[str, Any]) -> UpdateRule:
    """Returns the rule of all variants.

    Raises:
        TraceError: The language refuses the rule, or a state has different shapes in variants.
    """
    if len(variants) == 1 and variants[0].condition == sp.true:
        merged, definitions = dict(variants[0].results), dict(variants[0].definitions)
    else:
        merged, definitions = _merged(variants)
    states: dict[str, State] = {}
    common: dict[str, Shared] = {}
    for variant in variants:
        for label, initial in variant.initial.items():
            if label in variant.shared:
                is_counter = label in variant.counters
                common[label] = Shared(merged[label], initial, is_counter)
                continue
            exists = sp.Or(*(v.condition for v in variants if label in v.initial))
            if label in states and states[label].shape != variant.shapes[label]:
                raise TraceError(f"the state {label!r} has shapes of different kinds")
            states[label] = State(
                merged[label],
                initial,
                variant.shapes[label],
                sp.true if len(variants) == 1 else exists,
            )
    expressions = [
        merged["param"],
        *definitions.values(),
        *(state.next for state in states.values()),
        *(one.next for one in common.values()),
    ]
    used = {symbol.name for expr in expressions for symbol in expr.free_symbols}
    requires = sp.Or(*(variant.condition for variant in variants))
    try:
        return UpdateRule(
            name,
            merged["param"],
            states,
            {key: value for key, value in hypers.items() if key in used},
            definitions,
            requires,
            shared=common,
            advances=variants[0].advances,
        )
    except ClosedFormError as error:
        raise TraceError(error.what, where=error.where, hint=error.hint) from error


def _merged(variants: Sequence[Variant]) -> tuple[dict[str, sp.Expr], dict[str, sp.Expr]]:
    """Results and definitions of several variants, each where its condition holds."""
    definitions: dict[str, sp.Expr] = {}
    results: dict[str, list[tuple[sp.Expr, sp.Basic]]] = {}
    for place, variant in enumerate(variants):
        renamed: dict[sp.Basic, sp.Basic] = {}
        for name, expr in variant.definitions.items():
            changed = expr.xreplace(renamed)
            wanted = name
            if definitions.get(wanted, changed) != changed:
                wanted = f"{name}_{place + 1}"
            definitions[wanted] = changed
            renamed[local(name)] = local(wanted)
        for label, expr in variant.results.items():
            results.setdefault(label, []).append((expr.xreplace(renamed), variant.condition))
    return {label: _chosen(pairs, len(variants)) for label, pairs in results.items()}, definitions


def _chosen(pairs: Sequence[tuple[sp.Expr, sp.Basic]], count: int) -> sp.Expr:
    first = pairs[0][0]
    if all(expr == first for expr, _ in pairs):
        return first
    *some, (last, _) = pairs
    return sp.Piecewise(*some, (last, True))

"""Update rules of several shapes: each variant holds where its condition on the shape does."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any

import sympy as sp

from closedform.errors import ClosedFormError, TraceError
from closedform.language.model import Shared, tensor_input
from closedform.language.shapes import Sizes
from closedform.language.symbols import local
from closedform.language.update_rule import State, UpdateRule

_INPUT = tensor_input("").name


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


def _shape_text(shape: Any) -> str:
    return str(list(shape.sizes)) if isinstance(shape, Sizes) else str(shape)


def rule_of(name: str, variants: Sequence[Variant], hypers: Mapping[str, Any]) -> UpdateRule:
    """Returns the rule of all variants.

    Raises:
        TraceError: The language refuses the rule, or a state has different shapes in variants.
    """
    if len(variants) == 1 and variants[0].condition == sp.true:
        results, definitions = dict(variants[0].results), dict(variants[0].definitions)
    else:
        results, definitions = _merge(variants)
    states: dict[str, State] = {}
    common: dict[str, Shared] = {}
    for variant in variants:
        for label, initial in variant.initial.items():
            if label in variant.shared:
                is_counter = label in variant.counters
                common[label] = Shared(results[label], initial, is_counter)
                continue
            exists = sp.Or(*(v.condition for v in variants if label in v.initial))
            if label in states and states[label].shape != variant.shapes[label]:
                kinds = [
                    _shape_text(shape) for shape in (states[label].shape, variant.shapes[label])
                ]
                raise TraceError(
                    f"the state {label!r} has the shape {kinds[0]} for some parameters, and "
                    f"{kinds[1]} for others",
                    hint="put them into separate param groups, each of which has a rule",
                )
            states[label] = State(
                results[label],
                initial,
                variant.shapes[label],
                sp.true if len(variants) == 1 else exists,
            )
    expressions = [
        results["param"],
        *definitions.values(),
        *(state.next for state in states.values()),
        *(spec.next for spec in common.values()),
    ]
    used_names = {symbol.name for expr in expressions for symbol in expr.free_symbols}
    requires = sp.Or(*(variant.condition for variant in variants))
    try:
        return UpdateRule(
            name,
            results["param"],
            states,
            {key: value for key, value in hypers.items() if key in used_names},
            definitions,
            requires,
            tuple(sorted(n.removeprefix(_INPUT) for n in used_names if n.startswith(_INPUT))),
            shared=common,
            advances=variants[0].advances,
        )
    except ClosedFormError as error:
        raise TraceError(error.what, where=error.where, hint=error.hint) from error


def _merge(variants: Sequence[Variant]) -> tuple[dict[str, sp.Expr], dict[str, sp.Expr]]:
    """Results and definitions of several variants, each where its condition holds."""
    definitions: dict[str, sp.Expr] = {}
    results: dict[str, list[tuple[sp.Expr, sp.Basic]]] = {}
    for place, variant in enumerate(variants):
        renames: dict[sp.Basic, sp.Basic] = {}
        for name, expr in variant.definitions.items():
            definition = expr.xreplace(renames)
            unique_name = name
            if definitions.get(unique_name, definition) != definition:
                unique_name = f"{name}_{place + 1}"
            definitions[unique_name] = definition
            renames[local(name)] = local(unique_name)
        for label, expr in variant.results.items():
            results.setdefault(label, []).append((expr.xreplace(renames), variant.condition))
    return {label: _choose(pairs, len(variants)) for label, pairs in results.items()}, definitions


def _choose(pairs: Sequence[tuple[sp.Expr, sp.Basic]], count: int) -> sp.Expr:
    first = pairs[0][0]
    if all(expr == first for expr, _ in pairs):
        return first
    *first_cases, (last, _) = pairs
    return sp.Piecewise(*first_cases, (last, True))

"""Update rules from traces: phases, branches and shapes become ``Piecewise``."""

from __future__ import annotations

import sympy as sp

from closedform.importers.tensors.values import as_shape_rule, inlined
from closedform.importers.tensors.variants import Variant
from closedform.importers.torch_optimizer.decisions import holding, joined, leaves
from closedform.importers.torch_optimizer.trace import Outcome, Trace
from closedform.language.numbers import exact_number
from closedform.language.shapes import RANK, axis_size
from closedform.language.symbols import PARAM, t

_CLOCK = "the clock"


def needs_phases(trace: Trace) -> bool:
    """Returns whether the first steps cannot be those of the later formula."""
    return len(trace.phases) > 2 or any(_initial(trace, name) is None for name in trace.slots)


def variant_of(trace: Trace, *, with_phases: bool) -> Variant:
    """Returns the rule of a trace.

    Args:
        trace: The trace.
        with_phases: Whether the first steps have formulas of their own.
    """
    trace.definitions.hypers = trace.hypers
    trace.definitions.ignored = frozenset() if with_phases else _starts(trace)
    results: dict[str, sp.Expr] = {}
    for label in ("param", *trace.slots):
        expr = _joined_phases(trace, label, with_phases=with_phases)
        total = trace.definitions.summed(expr)
        slot = trace.slots.get(label)
        is_shared = slot is not None and slot.is_shared
        results[label] = trace.definitions.expanded(total) if is_shared else total
    counts = _advances(trace, with_phases=with_phases)
    results[_CLOCK] = trace.definitions.expanded(trace.definitions.summed(counts))
    needed = trace.definitions.needed(results.values())
    short, remaining = inlined(results, needed)
    advances = short.pop(_CLOCK)
    return Variant(
        _condition(trace),
        short,
        {symbol.name.removeprefix("local."): expr for symbol, expr in remaining.items()},
        {name: _initial(trace, name) or sp.Integer(0) for name in trace.slots},
        {
            name: as_shape_rule(trace.axes, slot.shape)
            for name, slot in trace.slots.items()
            if not slot.is_shared
        },
        frozenset(name for name, slot in trace.slots.items() if slot.is_shared),
        advances,
    )


def _starts(trace: Trace) -> frozenset[sp.Basic]:
    """The condition that the first steps are over."""
    return frozenset({sp.Ge(t, len(trace.phases) - 1)})


def _joined_phases(trace: Trace, label: str, *, with_phases: bool) -> sp.Basic:
    def value_of(outcome: Outcome) -> sp.Basic:
        value = outcome.results.get(label)
        return sp.Integer(0) if value is None else value.expr

    within = trace.definitions.within
    steady = joined(trace.phases[-1], value_of, within)
    if not with_phases:
        return steady
    first = [
        (joined(tree, value_of, within), sp.Eq(t, k)) for k, tree in enumerate(trace.phases[:-1])
    ]
    return sp.Piecewise(*first, (within(steady, sp.Ge(t, len(first))), True))


def _advances(trace: Trace, *, with_phases: bool) -> sp.Basic:
    """The condition under which a step counts."""
    *first, steady = [holding(tree, lambda outcome: outcome.advances) for tree in trace.phases]
    if not with_phases or all(counts == steady for counts in first):
        return steady
    early = [sp.And(sp.Eq(t, k), counts) for k, counts in enumerate(first)]
    return sp.Or(*early, sp.And(sp.Ge(t, len(first)), steady))


def _initial(trace: Trace, name: str) -> sp.Expr | None:
    """The value of a state before the first step; None if the first step computes it."""
    start = trace.starts[name]
    if start is not None:
        return exact_number(start)
    found = set()
    for outcome in leaves(trace.phases[0]):
        value = outcome.initial.get(name)
        found.add(None if value is None else value.expr)
    if len(found) != 1:
        return None
    (expr,) = found
    is_start = expr is not None and (expr == PARAM or (expr.is_number and expr.is_finite))
    return expr if is_start else None


def _condition(trace: Trace) -> sp.Basic:
    conditions = list(trace.conditions)
    if trace.is_structural:
        shape = trace.axes.shape
        conditions.append(sp.Eq(RANK, len(shape)))
        conditions += [sp.Eq(axis_size(k), 1) for k, size in enumerate(shape) if size == 1]
    return sp.And(*conditions)

"""Update rules from traces: phases, branches and shapes become ``Piecewise``."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import replace

import sympy as sp

from closedform.errors import TraceError
from closedform.importers.tensors.values import Definitions, as_shape_rule, inline_definitions
from closedform.importers.tensors.variants import Variant
from closedform.importers.torch_optimizer.decisions import Outcome, holding, join_outcomes, leaves
from closedform.importers.torch_optimizer.trace import Tracer
from closedform.language.model import shared
from closedform.language.shapes import IS_SINGLE, RANK, axis_size
from closedform.language.symbols import PARAM, local, state, t
from closedform.language.update_rule import UpdateRule

_CLOCK = "the clock"


def needs_phases(trace: Tracer) -> bool:
    """Returns whether the first step has another formula than later ones.

    It has not where the later formula is that of the first step, term for term, with the states
    before the first step and ``t`` = 0.
    """
    if len(trace.phases) == 1:
        return any(_initial(trace, name) is None for name in trace.slots)
    start: dict[sp.Symbol, sp.Expr] = {t: sp.Integer(0)}
    for name, slot in trace.slots.items():
        initial = _initial(trace, name)
        if initial is None:
            return True
        start[shared(name) if slot.is_shared else state(name)] = initial
    if len(trace.phases) > 2:
        return True
    common = Definitions()
    for label in ("param", *trace.slots):
        first, later = (
            join_outcomes(tree, _value_of(label, trace), are_same=trace.definitions.are_same)
            for tree in trace.phases
        )
        # In one set of definitions equal expressions have equal names, so that != compares
        # formulas.
        first = trace.definitions.rebuilt(first, common, {})
        later = trace.definitions.rebuilt(later, common, start)
        # A power of 0 of the first step may have no value.
        has_value = not any(expr.has(sp.zoo, sp.nan) for expr in common.expressions.values())
        if first != later and has_value:
            return True
    return False


def _missing(trace: Tracer) -> bool:
    """Whether a first step that counts leaves a state unmade that later steps read.

    A later step that leaves a state as it is does not read it.
    """
    outcomes = [
        outcome for outcome in leaves(trace.phases[0]) if outcome.advances and not outcome.is_begun
    ]
    # torch's SGD makes momentum_buffer in the first step; a branch may skip that.
    absent = {name for outcome in outcomes for name in trace.slots if name not in outcome.results}
    if not absent:
        return False
    symbols = {name: (shared if trace.slots[name].is_shared else state)(name) for name in absent}
    results = [
        value.expr
        for outcome in leaves(trace.phases[-1])
        for name, value in outcome.results.items()
        if value.expr != symbols.get(name)
    ]
    definitions = trace.definitions.definitions_of(results)
    read = {symbol for expr in (*results, *definitions.values()) for symbol in expr.free_symbols}
    return not read.isdisjoint(symbols.values())


def _value_of(label: str, trace: Tracer) -> Callable[[Outcome], sp.Basic]:
    """The value of a result of a run; a state that a run has not made is as before."""
    slot = trace.slots.get(label)

    def value_of(outcome: Outcome) -> sp.Basic:
        value = outcome.results.get(label)
        if value is not None:
            return value.expr
        initial = _initial(trace, label)
        if initial is not None:
            return initial
        return shared(label) if slot is not None and slot.is_shared else state(label)

    return value_of


def variant_of(trace: Tracer, *, with_phases: bool) -> Variant:
    """Returns the rule of a trace.

    Args:
        trace: The trace.
        with_phases: Whether the first steps have separate formulas.
    """
    if with_phases and _missing(trace):
        raise TraceError(
            "the first step leaves states unmade in one of its ways, and has another formula",
            hint="make the states before the first decision",
        )
    trace.definitions.hypers = trace.hypers
    trace.definitions.invariants = frozenset() if with_phases else _starts(trace)
    results: dict[str, sp.Expr] = {}
    for label in ("param", *trace.slots):
        expr = _joined_phases(trace, label, with_phases=with_phases)
        total = trace.definitions.sum_over_params(expr)
        slot = trace.slots.get(label)
        is_shared = slot is not None and slot.is_shared
        results[label] = trace.definitions.expand(total) if is_shared else total
    counts = _advances(trace, with_phases=with_phases)
    results[_CLOCK] = trace.definitions.expand(trace.definitions.sum_over_params(counts))
    definitions = trace.definitions.definitions_of(results.values())
    short, remaining = inline_definitions(results, definitions)
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


def by_dtype(single: UpdateRule, double: UpdateRule, where: str) -> UpdateRule:
    """Returns the rule of a step that asks for the dtype, from the rules of float32 and float64.

    Dtypes of 16 bits have the rule of float32.

    Raises:
        TraceError: The rules differ in something other than expressions.
    """
    if single == double:
        return double
    common_fields = ("requires", "inputs", "shared", "advances", "evaluation")
    kinds = [
        [(key, spec.initial, spec.shape, spec.exists) for key, spec in rule.states.items()]
        for rule in (single, double)
    ]
    if kinds[0] != kinds[1] or any(
        getattr(single, key) != getattr(double, key) for key in common_fields
    ):
        raise TraceError(
            "the states of the optimizer depend on the dtype of its parameters",
            where=where,
            hint="make the same states for float32 and float64",
        )
    names: dict[sp.Basic, sp.Basic] = {}
    definitions: dict[str, sp.Expr] = {}
    for name, expr in single.definitions.items():
        label = name if double.definitions.get(name) == expr.xreplace(names) else f"{name}_single"
        names[local(name)] = local(label)
        definitions[label] = expr.xreplace(names)
    definitions |= double.definitions

    def choose(narrow: sp.Expr, wide: sp.Expr) -> sp.Expr:
        narrow = narrow.xreplace(names)
        return wide if narrow == wide else sp.Piecewise((narrow, IS_SINGLE), (wide, True))

    states = {
        key: replace(spec, next=choose(single.states[key].next, spec.next))
        for key, spec in double.states.items()
    }
    hypers = {**single.hyperparameters, **double.hyperparameters}
    param = choose(single.param, double.param)
    return replace(
        double, param=param, states=states, hyperparameters=hypers, definitions=definitions
    )


def _starts(trace: Tracer) -> frozenset[sp.Basic]:
    """The condition that the first steps are over."""
    return frozenset({sp.Ge(t, len(trace.phases) - 1)})


def _joined_phases(trace: Tracer, label: str, *, with_phases: bool) -> sp.Basic:
    value_of = _value_of(label, trace)
    within = trace.definitions.within
    are_same = trace.definitions.are_same
    steady = join_outcomes(trace.phases[-1], value_of, within, are_same)
    if not with_phases:
        return steady
    first = [
        (join_outcomes(tree, value_of, within, are_same), sp.Eq(t, k))
        for k, tree in enumerate(trace.phases[:-1])
    ]
    # Within t >= n: the discarded branch is computed, too, and needs a value at t = 0.
    return sp.Piecewise(*first, (within(steady, sp.Ge(t, len(first))), True))


def _advances(trace: Tracer, *, with_phases: bool) -> sp.Basic:
    """The condition under which a step counts."""
    *first, steady = [holding(tree, lambda outcome: outcome.advances) for tree in trace.phases]
    if not with_phases or all(counts == steady for counts in first):
        return steady
    early = [sp.And(sp.Eq(t, k), counts) for k, counts in enumerate(first)]
    return sp.Or(*early, sp.And(sp.Ge(t, len(first)), steady))


def _initial(trace: Tracer, name: str) -> sp.Expr | None:
    """The value of a state before the first step; None if the first step computes it."""
    start = trace.starts[name]
    if start is not None:
        return start
    values = set()
    for outcome in leaves(trace.phases[0]):
        if name not in outcome.initial and not outcome.is_begun:
            continue
        value = outcome.initial.get(name)
        values.add(None if value is None else value.expr)
    if len(values) != 1:
        return None
    (expr,) = values
    is_start = expr is not None and (expr == PARAM or (expr.is_number and expr.is_finite))
    # Schedule-free methods begin with a copy of the parameter; a start from the gradient is a
    # phase.
    return expr if is_start else None


def _condition(trace: Tracer) -> sp.Basic:
    conditions = list(trace.conditions)
    if trace.is_structural:
        shape = trace.axes.shape
        conditions.append(sp.Eq(RANK, len(shape)))
        # Axes of size 1 broadcast: longer axes have another formula.
        conditions += [sp.Eq(axis_size(k), 1) for k, size in enumerate(shape) if size == 1]
    return sp.And(*conditions)

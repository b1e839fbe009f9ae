"""A step is the same for each parameter: its terms for two are those with both exchanged."""

from __future__ import annotations

import functools
from collections.abc import Mapping, Sequence

import sympy as sp

from closedform.errors import TraceError
from closedform.importers.tensors.values import Definitions, twin_of
from closedform.importers.torch_optimizer.decisions import Outcome, Tree, join_outcomes
from closedform.importers.torch_optimizer.layout import Slot
from closedform.language.model import GlobalSum
from closedform.language.shapes import SHAPE_SYMBOLS
from closedform.language.symbols import GRAD, PARAM, state


def check_symmetry(
    definitions: Definitions, slots: Mapping[str, Slot], phases: Sequence[Tree]
) -> None:
    """Refuses a step that is not the same for both parameters, term for term.

    Raises:
        TraceError: The step of the second parameter, with the two exchanged, differs from the
            step of the first.
    """
    exchange: dict[sp.Symbol, sp.Expr] = {}
    inputs = [symbol for symbol in definitions.shapes if symbol.name.startswith("input.")]
    names = [PARAM, GRAD, *inputs, *(state(n) for n, slot in slots.items() if not slot.is_shared)]
    for symbol in (*names, *SHAPE_SYMBOLS):
        twin = twin_of(symbol)
        exchange |= {symbol: twin, twin: symbol}
    common = Definitions()
    common.shapes |= definitions.shapes
    sums = {s for expr in definitions.expressions.values() for s in expr.atoms(GlobalSum)}
    for tree in phases:
        for label in ("param", *(n for n, slot in slots.items() if not slot.is_shared)):
            pair = []
            for is_other in (False, True):
                value_of = functools.partial(_value_of, label, is_other)
                expr = join_outcomes(tree, value_of, are_same=definitions.are_same)
                same_sums = {  # what is a sum over all parameters is the same for each
                    part: definitions.rebuilt(part, common, {})
                    for part in sums | expr.atoms(GlobalSum)
                }
                replacements = {**exchange, **same_sums} if is_other else {}
                pair.append(definitions.rebuilt(expr, common, replacements))
            if pair[0] != pair[1] and common.sum_over_params(pair[0]) != common.sum_over_params(
                pair[1]
            ):
                subject = "parameter" if label == "param" else f"state {label!r}"
                raise TraceError(
                    f"the step has another formula for the {subject} of the second parameter",
                    hint="a rule is the same for every parameter, whatever its place",
                )


def _value_of(label: str, is_other: bool, outcome: Outcome) -> sp.Basic:
    """A result of one of the two parameters; a state that is not made is as before."""
    value = (outcome.twin_results if is_other else outcome.results).get(label)
    before = PARAM if label == "param" else state(label)
    return value.expr if value is not None else twin_of(before) if is_other else before

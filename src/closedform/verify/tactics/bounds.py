"""Linear assumptions as intervals of a symbol, once the others have values."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from dataclasses import dataclass

from flint import fmpq

from closedform.verify.identity.canonical import is_zero
from closedform.verify.terms.build import ONE, ZERO, add, both, multiply, substitute, subtract
from closedform.verify.terms.limits import LIMITS
from closedform.verify.terms.tree import RELATIONS, Op, Term, symbols, walk


def is_large(term: Term) -> bool:
    """Whether a term has too many nodes to look for lines in it."""
    return (
        sum(1 for _ in zip(walk(term), range(LIMITS.bound_nodes), strict=False))
        == LIMITS.bound_nodes
    )


def satisfied(op: Op, difference: fmpq) -> bool:
    """Whether ``0 op difference`` holds."""
    if op is Op.EQUAL:
        return bool(difference == 0)
    return bool(difference > 0 if op is Op.LESS else difference >= 0)


@dataclass(frozen=True, slots=True)
class LinearConstraint:
    """``0 op slope * symbol + height``, where slope and height hold other symbols."""

    op: Op
    slope: Term
    height: Term
    others: frozenset[str]  # all symbols of the assumption
    linear: frozenset[str]  # those that it is linear in


def linear_bounds(
    assumptions: Iterable[Term], declared: Mapping[str, Term]
) -> dict[str, list[LinearConstraint]]:
    """The assumptions that are linear in a symbol, by symbol."""
    bounds: dict[str, list[LinearConstraint]] = {name: [] for name in declared}
    given = both(*assumptions)
    for relation in given.args if given.op is Op.AND else (given,):
        if relation.op not in RELATIONS:
            continue
        difference = subtract(relation.args[1], relation.args[0])
        if is_large(difference):
            continue
        names = frozenset(symbols(difference))
        lines = {}
        for name in names:
            node = declared[name]
            height = substitute(difference, {node: ZERO})
            slope = subtract(substitute(difference, {node: ONE}), height)
            line = add(multiply(slope, node), height)
            if is_zero(subtract(difference, line)):
                lines[name] = slope, height
        for name, (slope, height) in lines.items():
            bounds[name].append(
                LinearConstraint(relation.op, slope, height, names, frozenset(lines))
            )
    return bounds

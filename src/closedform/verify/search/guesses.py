"""Points at which facts hold, to guess what may be true before a proof of it is looked for.

A point is a box of one value for each symbol, in which the intervals of the checker are narrow. A
guess that is wrong costs or saves work, and never decides.

At the point x = 2, ``x**2 < 4`` is false, and ``x**2`` is between 4 and 4.
"""

from __future__ import annotations

import random
from collections.abc import Iterable, Sequence
from typing import cast

from flint import fmpq

from closedform.effort import Effort
from closedform.verify.checker.intervals import Intervals
from closedform.verify.checker.polynomials import Monomial
from closedform.verify.checker.replay import Replay
from closedform.verify.search.solver import (
    Question,
    Solver,
    has_long_numbers,
    print_number,
    print_relation,
)

_POINTS = 12
_UNITS = 50_000  # of z3, for one point
_BOUNDS = fmpq(1, 5), fmpq(3, 4), *map(fmpq, (0, 1, 2, 3, 5, 8, 13, 40, 150))


class Points:
    """The values of terms at points at which facts about symbols hold.

    Args:
        replay: The terms and rules of the checker.
        solver: The context of the questions for points.
        facts: The facts that hold at the points.
        roots: The terms whose symbols have values, besides those of the facts.
        effort: The work that it may do.
        below_0: Whether symbols without a sign are below 0 at half of the points.
    """

    def __init__(
        self,
        replay: Replay,
        solver: Solver,
        facts: Sequence[int],
        roots: Iterable[int],
        effort: Effort,
        *,
        below_0: bool = False,
    ) -> None:
        terms = replay.terms
        symbols = [t for t in terms.below(*facts, *roots) if terms.nodes[t][0] == "symbol"]
        points = _points(replay, solver, facts, symbols, effort, below_0=below_0)
        boxes = [
            Intervals(replay, tuple(terms.equal(s, terms.rational(n)) for s, n in point.items()))
            for point in points
        ]
        self._boxes = [box for box in boxes if all(box.truth(f) is not False for f in facts)]

    def may_hold(self, truth: int) -> bool:
        """Returns whether a relation is false at no point."""
        return all(box.truth(truth) is not False for box in self._boxes)

    def range_of(self, number: int) -> tuple[fmpq, fmpq] | None:
        """Returns bounds of the least and the greatest value of a number at the points."""
        ends = [end for box in self._boxes for end in box.of_term(number) if end is not None]
        return (min(ends), max(ends)) if ends else None


def _points(
    replay: Replay,
    solver: Solver,
    facts: Sequence[int],
    symbols: Sequence[int],
    effort: Effort,
    *,
    below_0: bool,
) -> list[dict[int, fmpq]]:
    """Points at which the linear facts hold, with bounds of symbols at random."""
    nodes, forms = replay.terms.nodes, replay.forms
    names: dict[Monomial, str] = {
        ((next(iter(forms.of(symbol)))[0][0], 1),): f"s{place}"
        for place, symbol in enumerate(symbols)
    }
    literals = [literal for fact in facts if (literal := replay.literal(fact)) is not None]
    if has_long_numbers(literal.form for literal in literals):
        return []
    points: list[dict[int, fmpq]] = []
    with solver.question("QF_LIRA") as question:
        declarations = [cast("tuple[str, bool, str]", nodes[symbol][2]) for symbol in symbols]
        for name, (_, is_integer, _) in zip(names.values(), declarations, strict=True):
            question.declare(name, "Int" if is_integer else "Real")
        for literal in literals:
            if all(not monomial or monomial in names for monomial in literal.form):
                question.state(print_relation(literal, lambda monomial: names[monomial]))
        for seed in range(_POINTS):
            question.push()
            is_below_0 = below_0 and seed % 2
            signs = [-1 if is_below_0 and sign == "any" else 1 for _, _, sign in declarations]
            signed_names = [*zip(names.values(), signs, strict=True)]
            count = 1 + _add_bounds(question, signed_names, random.Random(seed), effort)
            if question.check(effort, _UNITS):
                values = question.values()
                numbers = (values.get(name, fmpq(0)) for name in names.values())
                points.append(dict(zip(symbols, numbers, strict=True)))
            question.pop(count)
    return points


def _add_bounds(
    question: Question,
    signed_names: Sequence[tuple[str, int]],
    chance: random.Random,
    effort: Effort,
) -> int:
    """States a bound of each symbol that may have it; the number of pushes to take back."""
    count = 0
    for name, sign in chance.sample(signed_names, len(signed_names)):
        bound = print_number(chance.choice(_BOUNDS) * sign)
        question.push()
        question.state(f"({'>=' if chance.random() < 0.6 else '<='} {name} {bound})")
        if question.check(effort, _UNITS):
            count += 1
        else:
            question.pop()
    return count

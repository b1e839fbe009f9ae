"""Steps at which decisions of a step can be taken together, and proofs that there are none.

A decision on the number of steps may be rare, such as ``step % 2000 == 0``: a way through the step
is left out only where the prover shows that no step takes it.
"""

from __future__ import annotations

import itertools
import math
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any

import numpy as np
import sympy as sp
from sympy.core.relational import Relational
from sympy.ntheory.modular import solve_congruence

from closedform.errors import TraceError
from closedform.importers.python.prover import Prover
from closedform.importers.tensors.steps import STEPS, values_at
from closedform.language.boundaries import root_of_line
from closedform.language.integers import FloorMod
from closedform.language.symbols import exact_number, t

_FAR = 2**31
_NEAR = range(-3, 4)
_LAST = 2**53
"""The step up to which floats count."""

_MOST_LISTED = 4096
"""The most steps that are looked at one by one."""


@dataclass(eq=False)
class Feasibility:
    """Finds steps at which conditions hold together.

    Args:
        prover: Decides whether there are none.
        numbers: Values of the symbols other than ``t``.
    """

    prover: Prover
    numbers: Mapping[sp.Symbol, Any]
    _steps: dict[tuple[tuple[sp.Basic, ...], int], int | None] = field(default_factory=dict)

    def step(self, conditions: Sequence[sp.Basic], first: int) -> int | None:
        """Returns a step from ``first`` on at which all conditions hold; None if there is none.

        Conditions on other symbols than ``t`` and the numbers do not count.

        Raises:
            TraceError: No step is known, and that there is none is not proved.
        """
        relevant = self._relevant(conditions)
        key = (relevant, first)
        if key not in self._steps:
            self._steps[key] = self._step(relevant, first)
        return self._steps[key]

    def sampled_step(self, conditions: Sequence[sp.Basic], first: int) -> int | None:
        """Returns one of the sampled steps at which all conditions hold; None if there is none."""
        return self._step_among(STEPS, self._relevant(conditions), first)

    def _relevant(self, conditions: Sequence[sp.Basic]) -> tuple[sp.Basic, ...]:
        return tuple(
            condition
            for condition in conditions
            if t in condition.free_symbols and not condition.free_symbols - {t, *self.numbers}
        )

    def _step(self, conditions: Sequence[sp.Basic], first: int) -> int | None:
        step = self._step_among(STEPS, conditions, first)
        if step is not None:
            return step
        numbers = {symbol: exact_number(number) for symbol, number in self.numbers.items()}
        exact = [condition.xreplace(numbers) for condition in conditions]
        step = self._step_among(_candidates(exact), conditions, first)
        if step is not None:
            return step
        facts = [sp.Ge(t, first), *exact[:-1]]
        if self.prover.decide(exact[-1], facts) is False:
            return None
        return self._listed_step(exact, first)

    def _step_among(self, steps: Any, conditions: Sequence[sp.Basic], first: int) -> int | None:
        """The first of some steps at which conditions hold, in floats; None if there is none."""
        steps = steps[steps >= first]
        for condition in conditions:
            steps = steps[values_at(condition, steps, self.numbers) == 1]
        return int(steps[0]) if steps.size else None

    def _listed_step(self, conditions: Sequence[sp.Basic], first: int) -> int | None:
        """The first step at which conditions hold, where only a few steps are to be looked at."""
        parts: list[range] = []
        for segment in _segments(first):
            # The parts of it on which no condition is shown to fail.
            open_parts = [segment]
            for condition in conditions:
                open_parts = [
                    range(steps.first, part.stop if steps.end is None else steps.end)
                    for part in open_parts
                    for steps in self.prover.split(condition, part.start, part.stop)
                    if steps.truth is not False
                ]
            parts += open_parts
            if sum(map(len, parts)) > _MOST_LISTED:
                raise TraceError(
                    f"no step is known at which {sp.And(*conditions, evaluate=False)}, and that "
                    "there is none is not proved",
                    hint="decide on the number of steps by comparisons and remainders",
                )
        for step in itertools.chain(*parts):
            at_step = (condition.xreplace({t: sp.Integer(step)}) for condition in conditions)
            if not any(holds == sp.false for holds in at_step):
                return step
        return None


def _segments(first: int) -> Iterator[range]:
    """The steps from the first one on, in segments on which a monotone function changes slowly."""
    start, end = first, max(16, first + 1)
    while start < _LAST:
        yield range(start, min(end, _LAST))
        start, end = end, 16 * end


def _candidates(conditions: Sequence[sp.Basic]) -> Any:
    """Steps at which conditions may change: close to their roots, and to multiples of periods."""
    remainders = {part for condition in conditions for part in condition.atoms(FloorMod)}
    lines = [part.args[0] for part in remainders] + [
        relation.lhs - relation.rhs
        for condition in conditions
        for relation in condition.atoms(Relational)
    ]
    whole = {int(n) for c in conditions for n in c.atoms(sp.Integer) if abs(n) < _FAR}
    roots = {0, *whole, *(root for line in lines for root in _roots(line))}
    periods = sorted({int(p.args[1]) for p in remainders if p.args[1].is_Integer and p.args[1] > 0})
    points = set(roots)
    residue = _residue(conditions)
    if residue is not None:
        points |= {
            root - (root - residue[0]) % residue[1] + residue[1] * k
            for root in roots
            for k in range(2)
        }
    for period in periods:
        for root in roots:
            # From each root on, the next steps of each remainder that occurs.
            base = root - root % period
            points |= {
                base + k * period + sign * n for k in range(3) for n in roots for sign in (1, -1)
            }
    steps = {point + near for point in points for near in _NEAR if 0 <= point + near < _FAR}
    return np.array(sorted(steps), dtype=np.int64)


def _residue(conditions: Sequence[sp.Basic]) -> tuple[int, int] | None:
    """The remainder and the modulus of the steps at which all remainders are those asked for."""
    congruences = []
    for condition in conditions:
        if not isinstance(condition, sp.Eq) or not isinstance(condition.lhs, FloorMod):
            continue
        line, modulus = condition.lhs.args
        offset = sp.expand(line - t)
        if offset.is_Integer and modulus.is_Integer and condition.rhs.is_Integer:
            congruences.append((int(condition.rhs - offset), int(modulus)))
    return solve_congruence(*congruences) if congruences else None


def _roots(line: sp.Expr) -> Iterator[int]:
    """The root of a linear expression in ``t``, rounded."""
    root = root_of_line(line)
    if root is not None and root.is_Rational:
        yield min(max(math.floor(root), -_FAR), _FAR)

"""The runs of a function joined to one expression.

Each run has a value on an interval of steps under some assumptions. On the common refinement of
the intervals the assumptions form a tree of decisions, since a function asks for the same
condition first wherever it has decided the same before; a branch is a Piecewise.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, field

import sympy as sp

from closedform.importers.python.choices import choice
from closedform.importers.python.place import Place
from closedform.importers.python.prover import Prover
from closedform.importers.python.run import Decision, Task, negation
from closedform.importers.python.tape import Tape
from closedform.language import FloorDiv, t
from closedform.language.exact import value_at
from closedform.lowering.analysis.domain import linear_in

_MOST_LEVELS = 16
"""Values of a floor that become numbers."""


@dataclass(frozen=True, slots=True)
class Raised:
    """An exception that the function raises for some steps.

    Attributes:
        first: The first step, where the conditions hold.
        end: The step after the last one; None if there is no last one.
        conditions: What must hold besides.
        exception: Its type and text.
        place: Its line; None where it is not in the user's function.
        is_rounded_away: Whether the function computes a value in floats, such as beside a pole.
    """

    first: int
    end: int | None
    conditions: tuple[sp.Basic, ...]
    exception: str
    place: Place | None
    is_rounded_away: bool = False

    def __str__(self) -> str:
        if self.end is None:
            steps = f"from step {self.first} on" if self.first else "at every step"
        elif self.end == self.first + 1:
            steps = f"at step {self.first}"
        else:
            steps = f"from step {self.first} to step {self.end - 1}"
        if self.conditions:
            steps += " where " + " and ".join(map(str, self.conditions))
        place = "" if self.place is None else f" ({self.place})"
        return f"{steps}: {self.exception}{place}"


@dataclass(frozen=True, slots=True)
class Outcome:
    """The value that one run returned, or its exception.

    Attributes:
        task: The steps and assumptions.
        value: The value, or the exception.
        tape: What the run computed in the numbers of the function.
    """

    task: Task
    value: sp.Expr | Raised
    tape: Tape = field(default_factory=Tape)


@dataclass(frozen=True, slots=True)
class ValueRange:
    """The value on the steps ``[first, end)``; None where the function raises an exception."""

    first: int
    end: int | None
    value: sp.Expr | None


def cells_of(outcomes: Sequence[Outcome]) -> list[ValueRange]:
    """Returns the value on each interval of steps, in order; equal neighbours are merged."""
    firsts = sorted({outcome.task.first for outcome in outcomes})
    # The common refinement: on each interval between two bounds the same runs are valid.
    bounds = sorted({*firsts, *(o.task.end for o in outcomes if o.task.end is not None)})
    cells: list[ValueRange] = []
    for index, first in enumerate(bounds):
        end = bounds[index + 1] if index + 1 < len(bounds) else None
        here = [
            (outcome.task.assumptions, outcome.value)
            for outcome in outcomes
            if outcome.task.first <= first
            and (outcome.task.end is None or outcome.task.end > first)
        ]
        if here:
            cells.append(ValueRange(first, end, _decide(here)))
    return simplify_cells(cells)


def split_floors(cells: Sequence[ValueRange], prover: Prover) -> list[ValueRange]:
    """Returns cells in which a floor of a nonlinear number is a number where it takes few values.

    ``floor(log(t))`` on a bounded interval becomes one interval for each of its values.
    """
    refinement = [part for cell in cells for part in _without_floors(cell, prover)]
    return refinement if len(refinement) == len(cells) else simplify_cells(refinement)


def _without_floors(cell: ValueRange, prover: Prover) -> list[ValueRange]:
    if cell.value is None or cell.end is None:
        return [cell]
    floors = [
        node
        for node in cell.value.atoms(FloorDiv)
        if node.free_symbols == {t} and linear_in(node.args[0] / node.args[1], t) is None
    ]
    if not floors:
        return [cell]
    levels: list[ValueRange] = []
    floor, first = floors[0], cell.first
    while first < cell.end:
        number = prover.value(floor, first)
        if number is None or len(levels) > _MOST_LEVELS:
            return [cell]
        level = sp.Integer(int(number))
        part = prover.split(sp.Eq(floor, level, evaluate=False), first, cell.end)[0]
        # The floor must have its level on a whole interval: one that falls and rises again has
        # none.
        if part.truth is not True or part.end is None:
            return [cell]
        value = cell.value.xreplace({floor: level})
        levels += _without_floors(ValueRange(first, part.end, value), prover)
        first = part.end
    return levels


def join_cells(cells: Sequence[ValueRange]) -> sp.Expr:
    """Returns the cells as one expression, which has no value where the function raises."""
    branches: list[tuple[sp.Expr, sp.Basic]] = []
    is_gap = False
    for cell in cells:
        if cell.value is None:
            is_gap = True
            continue
        # Branches are tried in order: behind a gap, t < end would take the steps of the gap,
        # too.
        conditions = [sp.Ge(t, cell.first, evaluate=False)] if is_gap else []
        if cell.end is not None:
            conditions.append(sp.Lt(t, cell.end, evaluate=False))
        whole = sp.And(*conditions, evaluate=False) if len(conditions) > 1 else None
        branches.append((cell.value, whole or (conditions or [sp.true])[0]))
    if len(branches) == 1 and branches[0][1] == sp.true:
        return branches[0][0]
    last, condition = branches[-1]
    if isinstance(last, sp.Piecewise) and condition == sp.true:
        branches[-1:] = [tuple(pair) for pair in last.args]
    return sp.Piecewise(*branches, evaluate=False)


def _decide(leaves: list[tuple[tuple[Decision, ...], sp.Expr | Raised]]) -> sp.Expr | None:
    """The value of leaves that begin with the same decision, or of one that needs none."""
    rest, value = leaves[0]
    if not rest:
        return None if isinstance(value, Raised) else value
    condition = rest[0][0]
    sides: list[sp.Expr | None] = []
    for holds in (True, False):
        side = [(decisions[1:], v) for decisions, v in leaves if decisions[0] == (condition, holds)]
        if not side:  # it cannot happen: the other side holds everywhere
            return _decide([(decisions[1:], v) for decisions, v in leaves])
        sides.append(_decide(side))
    yes, no = sides
    if yes == no:
        return yes
    if no is None:
        return choice([(yes, condition)])
    if yes is None:
        # Without another branch the Piecewise has no value where the function raises.
        return choice([(no, negation(condition))])
    remainder = no.args if isinstance(no, sp.Piecewise) else ((no, sp.true),)
    return choice([(yes, condition), *remainder])


def simplify_cells(cells: list[ValueRange]) -> list[ValueRange]:
    """Returns cells in which neighbours of one value, also at a single step, are one cell."""
    return _merge_equal(_without_single_steps(_merge_equal(cells)))


def _merge_equal(cells: list[ValueRange]) -> list[ValueRange]:
    """Cells in which neighbours of one value are one cell."""
    result: list[ValueRange] = []
    for cell in cells:
        if result and result[-1].value == cell.value:
            result[-1] = ValueRange(result[-1].first, cell.end, cell.value)
        else:
            result.append(cell)
    return result


def _without_single_steps(cells: list[ValueRange]) -> list[ValueRange]:
    """The value at a single step as a number, and as that of a neighbour where it is the same."""
    result: list[ValueRange] = []
    for index, cell in enumerate(cells):
        value = cell.value
        # Steps at the seam of two formulas are often equal in both, such as the last step of a
        # warmup.
        if value is None or cell.end != cell.first + 1 or value.free_symbols != {t}:
            result.append(cell)
            continue
        number = _at(value, cell.first)
        if number is None:
            result.append(cell)
            continue
        after = cells[index + 1].value if index + 1 < len(cells) else None
        if result and result[-1].value is not None and _at(result[-1].value, cell.first) == number:
            number = result[-1].value
        elif after is not None and _at(after, cell.first) == number:
            number = after
        result.append(ValueRange(cell.first, cell.end, number))
    return result


def _at(value: sp.Expr, step: int) -> sp.Expr | None:
    """The exact value at a step; None if there is none."""
    try:
        return value_at(value, {t: sp.Integer(step)})
    except ValueError:  # a DomainError, or a pole that SymPy refuses to compare
        return None

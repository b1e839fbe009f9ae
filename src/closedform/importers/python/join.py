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
    """

    first: int
    end: int | None
    conditions: tuple[sp.Basic, ...]
    exception: str
    place: Place | None

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
class Cell:
    """The value on the steps ``[first, end)``; None where the function raises an exception."""

    first: int
    end: int | None
    value: sp.Expr | None


def cells_of(outcomes: Sequence[Outcome]) -> list[Cell]:
    """Returns the value on each interval of steps, in order; equal neighbours are merged."""
    firsts = sorted({outcome.task.first for outcome in outcomes})
    bounds = sorted({*firsts, *(o.task.end for o in outcomes if o.task.end is not None)})
    cells: list[Cell] = []
    for index, first in enumerate(bounds):
        end = bounds[index + 1] if index + 1 < len(bounds) else None
        here = [
            (outcome.task.assumed, outcome.value)
            for outcome in outcomes
            if outcome.task.first <= first
            and (outcome.task.end is None or outcome.task.end > first)
        ]
        if here:
            cells.append(Cell(first, end, _decided(here)))
    return _merged(cells)


def refined(cells: Sequence[Cell], prover: Prover) -> list[Cell]:
    """Returns cells in which a floor of a nonlinear number is a number where it takes few values.

    ``floor(log(t))`` on a bounded interval becomes one interval for each of its values.
    """
    found = [part for cell in cells for part in _without_floors(cell, prover)]
    return found if len(found) == len(cells) else _merged(found)


def _without_floors(cell: Cell, prover: Prover) -> list[Cell]:
    if cell.value is None or cell.end is None:
        return [cell]
    floors = [
        node
        for node in cell.value.atoms(FloorDiv)
        if node.free_symbols == {t} and linear_in(node.args[0] / node.args[1], t) is None
    ]
    if not floors:
        return [cell]
    found: list[Cell] = []
    floor, first = floors[0], cell.first
    while first < cell.end:
        number = prover.value(floor, first)
        if number is None or len(found) > _MOST_LEVELS:
            return [cell]
        level = sp.Integer(int(number))
        part = prover.split(sp.Eq(floor, level, evaluate=False), first, cell.end)[0]
        if part.truth is not True or part.end is None:
            return [cell]
        value = cell.value.xreplace({floor: level})
        found += _without_floors(Cell(first, part.end, value), prover)
        first = part.end
    return found


def joined(cells: Sequence[Cell]) -> sp.Expr:
    """Returns the cells as one expression, which has no value where the function raises."""
    branches: list[tuple[sp.Expr, sp.Basic]] = []
    is_gap = False
    for cell in cells:
        if cell.value is None:
            is_gap = True
            continue
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


def _decided(leaves: list[tuple[tuple[Decision, ...], sp.Expr | Raised]]) -> sp.Expr | None:
    """The value of leaves that begin with the same decision, or of one that needs none."""
    rest, value = leaves[0]
    if not rest:
        return None if isinstance(value, Raised) else value
    condition = rest[0][0]
    sides: list[sp.Expr | None] = []
    for holds in (True, False):
        side = [(decisions[1:], v) for decisions, v in leaves if decisions[0] == (condition, holds)]
        if not side:  # it cannot happen: the other side holds everywhere
            return _decided([(decisions[1:], v) for decisions, v in leaves])
        sides.append(_decided(side))
    yes, no = sides
    if yes == no:
        return yes
    if no is None:
        return choice([(yes, condition)])
    if yes is None:
        return choice([(no, negation(condition))])
    others = no.args if isinstance(no, sp.Piecewise) else ((no, sp.true),)
    return choice([(yes, condition), *others])


def _merged(cells: list[Cell]) -> list[Cell]:
    merged: list[Cell] = []
    for cell in cells:
        if merged and merged[-1].value == cell.value:
            merged[-1] = Cell(merged[-1].first, cell.end, cell.value)
        else:
            merged.append(cell)
    return _without_single_steps(merged)


def _without_single_steps(cells: list[Cell]) -> list[Cell]:
    """The value at a single step as a number, and as that of a neighbour where it is the same."""
    made: list[Cell] = []
    for index, cell in enumerate(cells):
        value = cell.value
        if value is None or cell.end != cell.first + 1 or value.free_symbols != {t}:
            made.append(cell)
            continue
        number = _at(value, cell.first)
        if number is None:
            made.append(cell)
            continue
        after = cells[index + 1].value if index + 1 < len(cells) else None
        if made and made[-1].value is not None and _at(made[-1].value, cell.first) == number:
            number = made[-1].value
        elif after is not None and _at(after, cell.first) == number:
            number = after
        made.append(Cell(cell.first, cell.end, number))
    merged: list[Cell] = []
    for cell in made:
        if merged and merged[-1].value == cell.value:
            merged[-1] = Cell(merged[-1].first, cell.end, cell.value)
        else:
            merged.append(cell)
    return merged


def _at(value: sp.Expr, step: int) -> sp.Expr | None:
    """The exact value at a step; None if there is none."""
    try:
        return value_at(value, {t: sp.Integer(step)})
    except ValueError:  # a DomainError, or a pole that SymPy refuses to compare
        return None

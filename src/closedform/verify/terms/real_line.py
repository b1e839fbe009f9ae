"""Terms over the clock as a real number: their cells between rational breakpoints."""

from __future__ import annotations

from dataclasses import dataclass

from flint import fmpq

from closedform.language import Schedule
from closedform.verify.terms.build import as_choice, rewrite, substitute, symbol
from closedform.verify.terms.limits import FOREVER
from closedform.verify.terms.partition import partition_line
from closedform.verify.terms.sympy_io import CLOCK, value_term
from closedform.verify.terms.tree import Op, Sign, Term, walk

TIME = symbol("t", sign=Sign.NONNEGATIVE)
"""The clock as a real number."""


@dataclass(frozen=True, slots=True)
class RealCell:
    """The value of a term between two breakpoints.

    Attributes:
        low: Where it begins.
        has_low: Whether that point belongs to it.
        high: Where it ends; None without an end.
        has_high: Whether that point belongs to it.
        value: The term there.
    """

    low: fmpq
    has_low: bool
    high: fmpq | None
    has_high: bool
    value: Term

    @property
    def first(self) -> int:
        """The first step in it."""
        return int(self.low.ceil()) if self.has_low else int(self.low.floor()) + 1

    @property
    def last(self) -> int | None:
        """The last step in it, before ``first`` where it holds none; None for no end."""
        if self.high is None:
            return None
        return int(self.high.floor()) if self.has_high else int(self.high.ceil()) - 1


def real_cells(root: Term) -> list[RealCell]:
    """Returns the cells of a term on [0, ∞), in order; they touch and cover it.

    Choices whose conditions are linear in ``TIME`` with rational numbers are decided; others stay.
    A point that belongs to neither side is a separate cell. A chain of n branches costs n.

    Example:
        >>> from closedform.verify.terms.build import ONE, ZERO, ite, less, rational
        >>> found = real_cells(ite(less(TIME, rational(5)), ONE, ZERO))
        >>> [(str(cell.low), cell.value) for cell in found]
        [('0', 1), ('5', 0)]
    """
    cells = []
    for segment in partition_line(root, TIME):
        (low, is_after), (high, is_past) = segment.first, segment.end
        end = None if high == FOREVER else high
        cells.append(RealCell(low, not is_after, end, bool(is_past), segment.term(TIME)))
    return cells


def cells_of(lr: Schedule) -> list[RealCell]:
    """Returns the cells of a schedule.

    Without open hyperparameters the points at which minima turn are numbers, too.
    """

    def make() -> list[RealCell]:
        root = over_real_clock(value_term(lr))
        return real_cells(root if lr.open else as_choices(root))

    cells: list[RealCell] = lr.memo("cells", make)
    return cells


def choice_cells(root: Term) -> list[RealCell]:
    """Returns the cells of a term in the integer clock; minima, too, are choices."""
    return real_cells(as_choices(over_real_clock(root)))


def over_real_clock(root: Term) -> Term:
    """Returns the term with the real clock in place of the integer one.

    A sign that depends on the clock becomes a choice, whose cells the partition separates.
    """
    root = substitute(root, {CLOCK: TIME})
    for node in moving(root, Op.SIGN):
        root = substitute(root, {node: as_choice(node)})
    return root


def moving(root: Term, *ops: Op) -> list[Term]:
    """Returns the nodes of these kinds that depend on ``TIME``, each once; of any kind if none."""
    time_dependent: set[Term] = set()
    for node in walk(root):
        if node == TIME or any(arg in time_dependent for arg in node.args):
            time_dependent.add(node)
    return [node for node in walk(root) if node in time_dependent and (not ops or node.op in ops)]


def as_choices(root: Term) -> Term:
    """Returns the term with each minimum, maximum and absolute value as the choice that it is."""
    ops = Op.MINIMUM, Op.MAXIMUM, Op.ABSOLUTE
    return rewrite(root, lambda node: as_choice(node) if node.op in ops else node)

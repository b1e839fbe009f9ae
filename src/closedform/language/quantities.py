"""Quantities of a schedule, and equations about them."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING

import sympy as sp

from closedform.errors import DefinitionError
from closedform.language.symbols import exact_number

if TYPE_CHECKING:
    from closedform.language.schedule import Schedule


@dataclass(frozen=True, slots=True)
class Equation:
    """The statement that a quantity is a number, which ``closedform.solve`` takes.

    Attributes:
        quantity: The quantity.
        number: The number, exact.
    """

    quantity: Quantity
    number: sp.Expr


@dataclass(frozen=True, slots=True, eq=False)
class Quantity:
    """The value of a schedule at an update, or the sum of its values over the run.

    ``quantity == number`` is an ``Equation``.

    Attributes:
        schedule: The schedule.
        step: The update; None for the sum.
        until: The number of updates that are added up; None for the length of the schedule.
    """

    schedule: Schedule
    step: int | None = None
    until: int | None = None

    def __eq__(self, other: object) -> Equation:  # type: ignore[override]
        return Equation(self, exact_number(other, "the right side"))

    # == makes an equation, so that quantities cannot be keys.
    __hash__ = None  # type: ignore[assignment]

    def updates(self, schedule: Schedule) -> int:
        """Returns the number of updates over which the values of a schedule are added up.

        Raises:
            DefinitionError: It has no length, and the quantity no end.
        """
        end = self.until if self.until is not None else schedule.length
        if end is None:
            raise DefinitionError(
                "a schedule without a length has no area",
                where=f"schedule {schedule.name!r}",
                hint="give the number of updates: area(until=…)",
            )
        return int(end)

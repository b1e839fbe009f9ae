"""z3 as the search uses it: loaded at the first question, with its work counted as effort.

``units_of(effort, most)`` limits a question, and ``spend_units`` reports the units that it took.
"""

from __future__ import annotations

import importlib
from collections.abc import Iterable
from typing import Any

from closedform.effort import Effort, spend
from closedform.verify.checker.polynomials import Polynomial
from closedform.verify.terms.limits import LIMITS


class _Z3:
    """The module z3, loaded when the first name of it is used: few claims need a solver."""

    def __getattr__(self, name: str) -> Any:
        attribute = getattr(importlib.import_module("z3"), name)
        # Cached on the object, so that __getattr__ is asked once per name.
        setattr(self, name, attribute)
        return attribute


z3 = _Z3()


def has_long_numbers(forms: Iterable[Polynomial]) -> bool:
    """Returns whether numbers are too long for z3, whose resource units do not count digits."""
    return any(
        value.height_bits() > LIMITS.solver_bits for form in forms for value in form.values()
    )


def units_of(effort: Effort, most: int) -> int:
    """Returns the resource units that a question to z3 may take within an effort, at least 1."""
    return max(1, min(most, effort.left * LIMITS.solver_units))


def spend_units(solver: Any, before: int = 0) -> int:
    """Reports the resource units of a solver since a count before, and returns its count."""
    statistics = solver.statistics()
    if "rlimit count" not in statistics.keys():  # noqa: SIM118 - z3's statistics, no mapping
        return before
    count = int(statistics.get_key_value("rlimit count"))
    spend((count - before) // LIMITS.solver_units)
    return count

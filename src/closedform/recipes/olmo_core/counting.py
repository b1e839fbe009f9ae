"""The clock that OLMo and OLMo-core share: n = t + 1 updates, or as many tokens."""

from __future__ import annotations

from dataclasses import dataclass

import sympy as sp

from closedform.recipes.clock import Clock, Facts, Unit
from closedform.recipes.entries import Context
from closedform.recipes.native import refuse_unless

_UNITS = {"steps": Unit.UPDATE, "tokens": Unit.TOKEN}


@dataclass(frozen=True, slots=True)
class Counting:
    """How far the clock is in an update.

    Attributes:
        n: The count that update t uses.
        per_update: How much an update adds.
    """

    n: sp.Expr
    per_update: sp.Expr


def counting(unit: object, context: Context) -> Counting:
    """Returns the clock of a scheduler whose ``units`` are steps or tokens.

    Raises:
        DefinitionError: It has other units.
        ArgumentError: The fact ``tokens_per_batch`` is missing.
    """
    refuse_unless(unit in _UNITS, f"units must be steps or tokens, got {unit!r}", context.where)
    clock = Clock(_UNITS[str(unit)], offset=1)
    facts = Facts(tokens_per_update=context.facts.get("tokens_per_batch"))
    return Counting(clock.position(facts), clock.per_update(facts))

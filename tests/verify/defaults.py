"""Conditions on the hyperparameters of a library schedule in common use, beyond its domain.

With these the standard claims say more: a learning rate that begins, turns and ends at or above 0
is never below, and a fall only falls. An entry without a row is verified on its whole domain.
"""

import sympy as sp

from closedform.language import Schedule


def default_conditions(schedule: Schedule) -> list[sp.Basic]:
    """The conditions on the open hyperparameters of a schedule, by their names."""
    conditions: list[sp.Basic] = []
    for symbol in schedule.open:
        stem = symbol.name.rstrip("_0123456789")
        conditions += [rule for rule in _RULES.get(stem, lambda _: [])(symbol) if rule != sp.true]
    return conditions


# The common values by the name of a hyperparameter; a number after the name is that of a member.
_RULES = {
    **dict.fromkeys(
        (
            *("value", "start", "end", "final", "peak", "low", "high", "floor", "infimum"),
            *("warmup_start", "factor"),
        ),
        lambda symbol: [symbol >= 0],
    ),
    **dict.fromkeys(("rate", "gamma", "rise"), lambda symbol: [symbol > 0, symbol <= 1]),
    "scale": lambda symbol: [symbol >= 0],
    "power": lambda symbol: [symbol > 0],
    "exponent": lambda symbol: [symbol <= 0],
    "ratio": lambda symbol: [symbol >= 1],
}

"""States that a session stores as multiples: conversion where they are read, saved and loaded."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from types import MappingProxyType

import numpy as np

from closedform.errors import StateError
from closedform.ir import naming
from closedform.ir.graph import Array
from closedform.language.groups import Assignment
from closedform.language.update_rule import UpdateRule
from closedform.runtime.double_buffer import read_only
from closedform.transforms.scaled_states import ScaledStates
from closedform.verify.equivalent_states import equivalent_states


@dataclass(frozen=True, slots=True)
class StateScaling:
    """The factors of stored states.

    A conversion takes one product or quotient in float64 and rounds to the dtype of the state, so a
    float32 state is off by half a unit in the last place.

    Attributes:
        factors: By input name: what a stored array is multiplied by to give the state of the rule.
    """

    factors: Mapping[str, float]

    def rule_states(
        self, states: Mapping[str, Mapping[str, Array]]
    ) -> Mapping[str, Mapping[str, Array]]:
        """Returns the states of the rule, by state name, then by parameter name."""
        if not self.factors:
            return states
        return MappingProxyType(
            {
                label: MappingProxyType(
                    {
                        name: self._rule_state(naming.state(name, label), array)
                        for name, array in of.items()
                    }
                )
                for label, of in states.items()
            }
        )

    def _rule_state(self, name: str, array: Array) -> Array:
        if name not in self.factors:
            return array
        return read_only(_round_like(array.astype(np.float64) * self.factors[name], array))

    def scale_states(self, values: Mapping[str, Array], where: str) -> dict[str, Array]:
        """Returns the arrays that are stored for states of the rule, by input name.

        Raises:
            StateError: A finite value is beyond the largest float once it is scaled.
        """
        return {name: self._scale_state(name, array, where) for name, array in values.items()}

    def _scale_state(self, name: str, array: Array, where: str) -> Array:
        if name not in self.factors:
            return array
        scaled_array = _round_like(array.astype(np.float64) / self.factors[name], array)
        if np.any(np.isinf(scaled_array) & np.isfinite(array)):
            raise StateError(
                f"{name!r} holds a value beyond the largest {array.dtype} after scaling by "
                f"{1 / self.factors[name]:g}",
                where=where,
                hint="open the session without equivalent_states=True",
            )
        return scaled_array


NOT_SCALED = StateScaling({})
"""Each state is stored as it is."""


def scaled_rules(assignments: Sequence[Assignment]) -> tuple[list[UpdateRule], StateScaling]:
    """Returns the rule that steps the stored states of each assignment, and their factors."""
    states_by_rule: dict[UpdateRule, ScaledStates] = {}
    factors: dict[str, float] = {}
    for assignment in assignments:
        if assignment.rule not in states_by_rule:
            states_by_rule[assignment.rule] = equivalent_states(assignment.rule)
        for label, scale in states_by_rule[assignment.rule].scales.items():
            factors |= {naming.state(name, label): float(scale) for name in assignment.params}
    return [states_by_rule[assignment.rule].rule for assignment in assignments], StateScaling(
        factors
    )


def _round_like(wide: Array, like: Array) -> Array:
    with np.errstate(over="ignore", under="ignore"):
        return np.asarray(wide.astype(like.dtype))

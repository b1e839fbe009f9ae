"""Conditions on the free sizes under which a traced step equals its model: part of its file.

A branch of a model on a size (padding an odd height, say) is in the graph as the example took it.
"""

from __future__ import annotations

import json
import operator
from collections.abc import Callable, Mapping, Sequence
from dataclasses import asdict, dataclass

from closedform.errors import SessionError
from closedform.training.feeds import size_value

METADATA = "closedform.sizes"
"""The key of the table in the metadata of a file."""

RELATIONS: Mapping[str, Callable[[int, int], bool]] = {
    "==": operator.eq,
    "!=": operator.ne,
    "<": operator.lt,
    "<=": operator.le,
    ">": operator.gt,
    ">=": operator.ge,
}
"""Relations of two sizes."""


@dataclass(frozen=True, slots=True)
class SizeCondition:
    """A relation of two formulas of the free sizes.

    Attributes:
        left: The first formula.
        relation: A key of ``RELATIONS``.
        right: The second formula.
    """

    left: str
    relation: str
    right: str

    def __str__(self) -> str:
        return f"{self.left} {self.relation} {self.right}"


def metadata_of(conditions: Sequence[SizeCondition]) -> dict[str, str]:
    """Returns the metadata of conditions."""
    return {METADATA: json.dumps([asdict(entry) for entry in conditions])} if conditions else {}


def read(metadata: Mapping[str, str]) -> tuple[SizeCondition, ...]:
    """Returns the conditions in the metadata of a file."""
    return tuple(
        SizeCondition(entry["left"], entry["relation"], entry["right"])
        for entry in json.loads(metadata.get(METADATA, "[]"))
    )


def hold(conditions: Sequence[SizeCondition], sizes: Mapping[str, int], where: str = "") -> bool:
    """Whether sizes satisfy all conditions."""
    return all(_holds(entry, sizes, where) for entry in conditions)


def check(conditions: Sequence[SizeCondition], sizes: Mapping[str, int], where: str) -> None:
    """Raises SessionError at the first condition that sizes do not satisfy.

    Args:
        conditions: The conditions.
        sizes: The free sizes by name.
        where: The model, named in errors.
    """
    for entry in conditions:
        if _holds(entry, sizes, where):
            continue
        values = ", ".join(f"{name} = {size}" for name, size in sizes.items())
        raise SessionError(
            f"this step is for sizes with {entry}, got {values}",
            where=where,
            hint="the model branches on its sizes or slices by them, and a graph has the branch of "
            "the example: "
            "export the model with an example of these sizes",
        )


def _holds(entry: SizeCondition, sizes: Mapping[str, int], where: str) -> bool:
    left, right = (
        size_value(text, sizes, "a condition on sizes", where) for text in (entry.left, entry.right)
    )
    return RELATIONS[entry.relation](left, right)

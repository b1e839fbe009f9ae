"""Steps of a proof while it is searched for: lists that hold terms of the checker's table."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from typing import Any

from closedform.errors import VerificationError

Step = list[Any]


class NoProofError(VerificationError):
    """The search gave up; the text says where."""


@dataclass(frozen=True, slots=True)
class Place:
    """A term in a step, by its number in the checker's table."""

    term: int


def places_in(step: Any) -> list[Place]:
    """Returns the terms in a step and in the steps that follow it."""
    places = []
    pending = [step]
    while pending:
        part = pending.pop()
        if isinstance(part, Place):
            places.append(part)
        elif isinstance(part, list):
            pending += part
    return places


def number_places(step: Any, row_of: Mapping[int, int]) -> Any:
    """Returns a step with each term replaced by the number of its row."""
    if isinstance(step, Place):
        return row_of[step.term]
    return [number_places(part, row_of) for part in step] if isinstance(step, list) else step


def after(prefix: Iterable[Step], step: Step) -> Step:
    """Returns a step behind others, each of which has one next step."""
    for before in reversed(list(prefix)):
        step = [*before, step]
    return step

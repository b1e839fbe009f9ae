"""The results of one run of a traced step."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field

from closedform.importers.tensors.values import Value


@dataclass(frozen=True, slots=True)
class Outcome:
    """The results of one run.

    Attributes:
        results: The parameter ("param") and each state by name, after the step.
        initial: The value with which the storage of each state was made, if the step made it.
        advances: Whether the step counts.
        is_begun: Whether the step has made all states; one that is missing has its first value.
        twin_results: The results of the second parameter.
    """

    results: Mapping[str, Value]
    initial: Mapping[str, Value | None]
    advances: bool
    is_begun: bool = True
    twin_results: Mapping[str, Value] = field(default_factory=dict)

"""The declaration of a framework: its classes, its configs, its clock and its defects."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from enum import StrEnum
from typing import Any

from closedform.recipes.clock import Clock
from closedform.recipes.defects import Note
from closedform.recipes.entries import OptimizerEntry, ScheduleEntry
from closedform.recipes.forms import Writer
from closedform.recipes.reader import Reader

ConfigFunction = Callable[
    [Mapping[str, Any], bool, Sequence[ScheduleEntry]], tuple[str, Mapping[str, Any]] | None
]
"""From the arguments, ``as_implemented`` and classes of the user to a class and its arguments."""


class Tier(StrEnum):
    """Who keeps a framework's formulas in step with the framework."""

    OFFICIAL = "official"
    """closedform: its tests have values that the framework's own code computed."""
    FROZEN = "frozen"
    """closedform, as an official one whose repository is archived, or replaced by another one."""
    COMMUNITY = "community"
    """The package that adds it by an entry point."""


@dataclass(frozen=True, slots=True)
class Framework:
    """A framework: its scheduler and optimizer classes by name.

    Attributes:
        name: Its name.
        schedules: Its scheduler classes.
        optimizers: Its optimizer classes, by their documented formula.
        optimizers_as_implemented: Those whose implementation differs from their documented
            formula, as they are implemented.
        versions: The versions whose semantics are known, the newest first; a commit may be given
            by the first 7 or more characters of its hash.
        reader: The reader of its configs, None if there is none.
        writer: The writer of its configs, None if there is none.
        functions: Its functions from a config to a class and its arguments, or to None where the
            config asks for no schedule.
        repository: The URL of its repository.
        commit: The commit or release of the repository that the formulas follow: the newest of the
            versions, if it is not given.
        tier: Who keeps the formulas in step with the repository; the framework of another package
            is a community one.
        upstream: The files of the repository that the formulas come from.
        clock: The clock that its schedules count; a config may have another one.
        defects: Its defects and conventions, by short names.
        facts: The names of the facts that only this framework has.
        has_any_key: Whether its classes schedule any key of a param group, and not only those that
            they name.
    """

    name: str
    schedules: Mapping[str, ScheduleEntry]
    optimizers: Mapping[str, OptimizerEntry] = field(default_factory=dict)
    optimizers_as_implemented: Mapping[str, OptimizerEntry] = field(default_factory=dict)
    versions: tuple[str, ...] = ()
    reader: Reader | None = None
    writer: Writer | None = None
    functions: Mapping[str, ConfigFunction] = field(default_factory=dict)
    repository: str = field(kw_only=True, default="")
    commit: str = field(kw_only=True, default="")
    tier: Tier = field(kw_only=True, default=Tier.OFFICIAL)
    upstream: str = field(kw_only=True)
    clock: Clock = field(kw_only=True)
    defects: Mapping[str, Note[...]] = field(kw_only=True)
    facts: tuple[str, ...] = ()
    has_any_key: bool = field(kw_only=True, default=False)

    def __post_init__(self) -> None:
        if not self.commit and self.versions:
            object.__setattr__(self, "commit", self.versions[0])

    def notes(self, name: str) -> tuple[str, ...]:
        """Returns the defects of a scheduler class."""
        return tuple(
            defect.text
            for defect in self.defects.values()
            if defect.classes is None or name in defect.classes
        )

"""Notes on frameworks: conventions that surprise, and defects, which contradict documentation."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass
from typing import Generic, ParamSpec

from closedform.errors import DefinitionError

P = ParamSpec("P")


@dataclass(frozen=True, slots=True)
class Note(Generic[P]):
    """A note on what a framework computes from a config: a convention or a defect.

    Attributes:
        text: The note, as a clause.
        upstream: The file and the line of the framework's code, at a version.
        applies: Whether it concerns a config, by the values that the reader has of it; None for a
            note that only a scheduler class shows.
        classes: The scheduler classes that it concerns; None for all of them, empty for a note on
            configs only.
        versions: The versions that it concerns; empty for all of them.
    """

    text: str
    upstream: str
    applies: Callable[P, bool] | None = None
    classes: tuple[str, ...] | None = None
    versions: tuple[str, ...] = ()

    def concerns(self, version: str, *values: P.args, **options: P.kwargs) -> bool:
        """Returns whether it concerns a config of a version of the framework."""
        is_version = not self.versions or version in self.versions
        return is_version and self.applies is not None and self.applies(*values, **options)


class Convention(Note[P]):
    """A choice that no documentation contradicts, and that a reader may not expect."""

    __slots__ = ()


@dataclass(frozen=True, slots=True)
class Defect(Note[P]):
    """A departure from what the documentation or the name of a key states.

    Attributes:
        documented: The formula that the documentation states, as a clause, which
            ``as_implemented=False`` computes; None where it cannot be computed.
    """

    documented: str | None = None


def applicable_notes(
    notes: Mapping[str, Note[...]], version: str, *values: object
) -> dict[str, Note[...]]:
    """Returns the notes that concern a config."""
    return {name: note for name, note in notes.items() if note.concerns(version, *values)}


def check_documented(
    notes: Mapping[str, Note[...]], version: str, where: str, *values: object
) -> None:
    """Refuses a config whose values depart from a documentation that states no formula.

    Raises:
        DefinitionError: A departure without a documented formula concerns the config.
    """
    departures = [
        note.text
        for note in applicable_notes(notes, version, *values).values()
        if isinstance(note, Defect) and note.documented is None
    ]
    if departures:
        raise DefinitionError(
            f"there is no documented formula for this config: {'; '.join(departures)}",
            where=where,
            hint="omit as_implemented=False",
        )

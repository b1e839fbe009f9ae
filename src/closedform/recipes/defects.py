"""Defects of frameworks: values that differ from what their documentation suggests."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass
from enum import StrEnum
from typing import Generic, ParamSpec

from closedform.errors import DefinitionError


class DefectKind(StrEnum):
    """The kind of a defect.

    ``DEPARTURE``: the values are not those that the documentation or the name of a key states.
    ``CONVENTION``: the documentation leaves open what is computed, or states it, and the choice is
    one that a reader of the config may not expect.
    """

    DEPARTURE = "departure"
    CONVENTION = "convention"


P = ParamSpec("P")


@dataclass(frozen=True, slots=True)
class Defect(Generic[P]):
    """A defect of a framework, whose condition takes the values that its reader has of a config.

    Attributes:
        text: The defect, as a clause.
        upstream: The file and the line of the framework's code, at a version.
        applies: Whether it concerns a config; None for a defect that only a scheduler class shows.
        documented: The formula that the documentation states, as a clause, which
            ``as_implemented=False`` computes; None where it cannot be computed.
        kind: Whether the documentation is contradicted.
        classes: The scheduler classes that it concerns; None for all of them, empty for a defect of
            configs only.
        versions: The versions that it concerns; empty for all of them.
    """

    text: str
    upstream: str
    applies: Callable[P, bool] | None = None
    documented: str | None = None
    kind: DefectKind = DefectKind.DEPARTURE
    classes: tuple[str, ...] | None = None
    versions: tuple[str, ...] = ()

    def concerns(self, version: str, *values: P.args, **options: P.kwargs) -> bool:
        """Returns whether it concerns a config of a version of the framework."""
        is_version = not self.versions or version in self.versions
        return is_version and self.applies is not None and self.applies(*values, **options)


def applicable_defects(
    defects: Mapping[str, Defect[...]], version: str, *values: object
) -> dict[str, Defect[...]]:
    """Returns the defects that concern a config."""
    return {name: defect for name, defect in defects.items() if defect.concerns(version, *values)}


def check_documented(
    defects: Mapping[str, Defect[...]], version: str, where: str, *values: object
) -> None:
    """Refuses a config whose values depart from a documentation that states no formula.

    Raises:
        DefinitionError: A departure without a documented formula concerns the config.
    """
    departures = [
        defect.text
        for defect in applicable_defects(defects, version, *values).values()
        if defect.kind is DefectKind.DEPARTURE and defect.documented is None
    ]
    if departures:
        raise DefinitionError(
            f"there is no documented formula for this config: {'; '.join(departures)}",
            where=where,
            hint="omit as_implemented=False",
        )

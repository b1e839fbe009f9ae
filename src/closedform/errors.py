"""The errors of closedform: one base class and its kinds.

Every message says what is wrong (expected and got), where, and what to do, in this form::

    what (where): what to do
"""

from __future__ import annotations

import difflib
from collections.abc import Iterable

__all__ = [
    "ArgumentError",
    "ClosedFormError",
    "ConfigError",
    "DefinitionError",
    "DomainError",
    "ExportError",
    "GraphError",
    "LoweringError",
    "SessionError",
    "StateError",
    "UnknownNameError",
    "VerificationError",
    "nearest",
]


class ClosedFormError(Exception):
    """Base of every error that closedform raises on purpose.

    Args:
        what: What is wrong, with the expected and the given value.
        where: The schedule, branch, node, file or argument that it concerns.
        hint: What the reader can do about it.
    """

    def __init__(self, what: str, *, where: str | None = None, hint: str | None = None) -> None:
        self.what = what
        self.where = where
        self.hint = hint
        message = what if where is None else f"{what} ({where})"
        super().__init__(message if hint is None else f"{message}: {hint}")


class DefinitionError(ClosedFormError, ValueError):
    """A schedule or an update rule is written in a way that has no meaning."""


class DomainError(DefinitionError):
    """An expression has no finite real value at a step at which it is taken."""


class LoweringError(ClosedFormError, ValueError):
    """An expression has a meaning that the graph language cannot express."""


class GraphError(ClosedFormError, ValueError):
    """A graph breaks a rule of the graph language, or its text does not parse."""


class ExportError(ClosedFormError, ValueError):
    """A graph cannot be written as the wanted artefact."""


class ConfigError(ClosedFormError, ValueError):
    """A config file or dict cannot be read as a recipe."""


class ArgumentError(ClosedFormError, TypeError):
    """A class of a framework was given an argument that it has not, or lacks one that it needs."""


class UnknownNameError(ClosedFormError, LookupError):
    """No system, class, schedule, optimizer or parameter bears this name."""


class SessionError(ClosedFormError, ValueError):
    """A session was given arrays that do not fit its graph."""


class StateError(ClosedFormError, ValueError):
    """A state dict belongs to another rule, or to other parameters."""


class VerificationError(ClosedFormError, ValueError):
    """A claim cannot be stated in the prover's language, or the prover contradicts itself."""


def nearest(name: str, known: Iterable[str]) -> str:
    """Returns a hint that names the known name nearest to ``name``, or lists a few of them."""
    names = sorted(known)
    by_lower = {candidate.lower(): candidate for candidate in names}
    match = difflib.get_close_matches(name.lower(), by_lower, n=1, cutoff=0.5)
    if match:
        return f"did you mean {by_lower[match[0]]!r}?"
    return f"known are {', '.join(names[:12])}{', …' if len(names) > 12 else ''}"


def __dir__() -> list[str]:
    return sorted(__all__)

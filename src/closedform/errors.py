"""The exceptions of closedform: one base class and its subclasses.

Every message states the problem (expected and got), its location, and a remedy, in this form::

    what (where): hint
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from contextlib import contextmanager
from typing import TYPE_CHECKING, NoReturn

__all__ = [
    "ArgumentError",
    "ClosedFormError",
    "ConfigError",
    "DefinitionError",
    "DepartureError",
    "DepartureWarning",
    "DomainError",
    "ExportError",
    "GraphError",
    "LimitError",
    "LoweringError",
    "MissingFactsError",
    "SessionError",
    "StateError",
    "ThreadsWarning",
    "TraceError",
    "TrainingExportError",
    "UnknownNameError",
    "UnprovedWarning",
    "VerificationError",
    "WriteError",
]


class ClosedFormError(Exception):
    """Base class of the exceptions that closedform raises.

    Args:
        what: The problem, with the expected and the given value.
        where: The schedule, branch, node, file or argument concerned.
        hint: How to fix the problem.
    """

    def __init__(self, what: str, *, where: str | None = None, hint: str | None = None) -> None:
        self.what = what
        self.where = where
        self.hint = hint
        message = what if where is None else f"{what} ({where})"
        super().__init__(message if hint is None else f"{message}: {hint}")


class DefinitionError(ClosedFormError, ValueError):
    """The definition of a schedule or an update rule is invalid."""


class DepartureError(ClosedFormError, RuntimeError):
    """A run departs from the recipe that it is watched with."""


class DepartureWarning(UserWarning):
    """A run departs from the recipe that it is watched with, and goes on."""


class DomainError(DefinitionError):
    """An expression has no finite real value at a step where it is evaluated."""


class LimitError(ClosedFormError, ValueError):
    """A number, a file or a run is too large for the library; the message has the limit."""


class LoweringError(ClosedFormError, ValueError):
    """A valid expression cannot be expressed as a graph."""


class GraphError(ClosedFormError, ValueError):
    """A graph is malformed, or its text does not parse."""


class ExportError(ClosedFormError, ValueError):
    """A graph cannot be exported to the requested format."""


class TrainingExportError(ExportError):
    """A model, its loss or an example batch cannot be exported as a training step.

    Args:
        what: The problem, with the expected and the given value.
        hint: A way out, which every refusal has.
        where: The model, file, node or argument concerned.
    """

    def __init__(self, what: str, *, hint: str, where: str | None = None) -> None:
        super().__init__(what, where=where, hint=hint)


class WriteError(ExportError):
    """A file or folder cannot be written: no such place, no right, no space."""


class ConfigError(ClosedFormError, ValueError):
    """A config file or mapping cannot be read as a recipe."""


class ConflictError(ConfigError):
    """Two files of a run have different values, and the framework refuses to begin."""


class ArgumentError(ClosedFormError, TypeError):
    """An argument of a class or function is unknown, missing or out of range."""


class MissingFactsError(ArgumentError):
    """A number of the run that the config does not contain is not given."""


class UnknownNameError(ClosedFormError, LookupError):
    """A framework, class, schedule, optimizer or parameter of this name does not exist."""


class TraceError(ClosedFormError, ValueError):
    """Python code cannot be read as an expression: the place and the construct are named."""


class SessionError(ClosedFormError, ValueError):
    """Arrays, hyperparameters or models do not fit a session."""


class StateError(ClosedFormError, ValueError):
    """A state dict belongs to another rule or to other parameters."""


class VerificationError(ClosedFormError, ValueError):
    """A claim cannot be formulated for the prover, or the prover contradicts itself."""


class UnprovedWarning(UserWarning):
    """An export is not proved to be its source; the message has the reason and the proved range."""


class ThreadsWarning(UserWarning):
    """A file computes other numbers with several threads, and runs on one."""


def shortened(text: str, longest: int = 200) -> str:
    """Returns a text for a message, cut after some characters: formulas may have millions.

    Example:
        >>> shortened("exp(exp(exp(t)))", 7)
        'exp(exp …'
    """
    return text if len(text) <= longest else f"{text[:longest]} …"


def correction(name: str, candidates: Iterable[str]) -> str | None:
    """Returns the known name of which an unknown one is a misspelling, if there is one.

    That is one letter too many, too few, another or two exchanged; two of them in names of six
    letters or more.

    Example:
        >>> correction("weigth_decay", ["lr", "weight_decay"])
        'weight_decay'
        >>> correction("lr_scale", ["lr", "weight_decay"]) is None
        True

    Args:
        name: The unknown name.
        candidates: The names that there are.
    """
    distances = {word: _edits(name.lower(), word.lower()) for word in sorted(candidates)}
    # One letter is another one after one edit.
    near = {
        word: distance
        for word, distance in distances.items()
        if len(word) > 1 and distance <= (1 if len(word) < 6 else 2)
    }
    return min(near, key=near.__getitem__) if near else None


def _edits(first: str, second: str) -> int:
    """The number of letters to insert, delete, replace or exchange with the next one."""
    before: list[int] = []
    row = list(range(len(second) + 1))
    for i, letter in enumerate(first, 1):
        earlier, before, row = before, row, [i]
        for j, target in enumerate(second, 1):
            edits = min(before[j] + 1, row[j - 1] + 1, before[j - 1] + (letter != target))
            if i > 1 and j > 1 and letter == second[j - 2] and first[i - 2] == target:
                edits = min(edits, earlier[j - 2] + 1)
            row.append(edits)
    return row[-1]


def nearest(name: str, candidates: Iterable[str], likeness: float = 0.5) -> str:
    """Returns a hint with the known name closest to ``name``, or a list of known names.

    Names of which ``name`` is a whole word come first.

    Example:
        >>> nearest("warmup", ["mup", "warmup_tokens"])
        "did you mean 'warmup_tokens'?"

    Args:
        name: The unknown name.
        candidates: The names that there are.
        likeness: How much of two names must agree, from 0 to 1.
    """
    import difflib  # an import of 2 ms

    names = sorted(candidates)
    by_lower = {candidate.lower(): candidate for candidate in names}
    by_word = [lower for lower in by_lower if name.lower() in lower.split("_")]
    match = difflib.get_close_matches(
        name.lower(), by_word or by_lower, n=1, cutoff=0 if by_word else likeness
    )
    if match:
        return f"did you mean {by_lower[match[0]]!r}?"
    return f"known are {', '.join(names[:12])}{', …' if len(names) > 12 else ''}"


def describe(value: object, most: int = 60) -> str:
    """Returns the type and the value of an argument, for errors; a long value is cut.

    Example:
        >>> describe(3e-4), describe([1] * 99, most=12)
        ('float 0.0003', 'list [1, 1, 1, 1,…')
        >>> describe(10**5000)
        'int of more than 4300 digits'
    """
    try:
        text = repr(value)
    except ValueError:  # Python prints no integer of more than 4,300 digits
        text = "of more than 4300 digits"
    return f"{type(value).__name__} {text if len(text) <= most else text[:most] + '…'}"


class _UnknownAttributeError(AttributeError):
    """The error of ``unknown_attribute``; the nearest name is looked for when it is printed.

    An import from a module asks for attributes that it does not have, and discards the error.
    """

    def __init__(self, message: str, name: str, names: Iterable[str]) -> None:
        super().__init__(message)
        self._name, self._names = name, names

    def __str__(self) -> str:
        message = super().__str__()
        if self._name.startswith("_"):
            return message
        import difflib  # an import of 2 ms

        by_lower = {candidate.lower(): candidate for candidate in self._names}
        matches = difflib.get_close_matches(self._name.lower(), by_lower, n=1)
        return message + (f": did you mean {by_lower[matches[0]]!r}?" if matches else "")


def unknown_attribute(module: str, name: str, names: Iterable[str]) -> AttributeError:
    """Returns the error of a module that has no such attribute, with the nearest public name.

    Example:
        >>> print(unknown_attribute("closedform.optimizers", "AdamW", ["adamw", "sgd"]))
        module 'closedform.optimizers' has no attribute 'AdamW': did you mean 'adamw'?
    """
    message = f"module {module!r} has no attribute {name!r}"
    return _UnknownAttributeError(message, name, list(names))


_INSTALL = {
    "torch": 'pip install "closedform[torch]"; for a build without CUDA add '
    "--extra-index-url https://download.pytorch.org/whl/cpu",
}
"""Extras with more to say than their name."""


@contextmanager
def needs_extra(name: str) -> Iterator[None]:
    """Turns an import that fails into an ExportError that names the extra to install.

    Example:
        >>> with needs_extra("jax"):
        ...     raise ModuleNotFoundError("No module named 'optax'", name="optax")
        Traceback (most recent call last):
        closedform.errors.ExportError: optax is not installed: pip install "closedform[jax]"
    """
    try:
        yield
    except ModuleNotFoundError as error:
        raise ExportError(
            f"{error.name or name} is not installed", hint=install_hint(name)
        ) from None


def install_hint(extra: str) -> str:
    """Returns the command that installs an extra."""
    return _INSTALL.get(extra, f'pip install "closedform[{extra}]"')


if not TYPE_CHECKING:  # type checkers report unknown names themselves

    def __getattr__(name: str) -> NoReturn:
        raise unknown_attribute(__name__, name, __all__)


def __dir__() -> list[str]:
    return sorted(__all__)

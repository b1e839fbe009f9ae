"""Results of the analyses print themselves: lines for a terminal, data for JSON, HTML in notebooks.

A result is a dataclass that says its lines; the rest follows from them and its fields::

    @dataclass(frozen=True, slots=True)
    class Cause(Result):
        kind: CauseKind
        text: str

        def lines(self) -> list[str]:
            return [self.text]

``cause.data()`` is ``{"kind": "offset-by-one", "text": …}``, and ``str(cause)`` its lines.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import fields
from typing import Any, ClassVar, cast

import sympy as sp

from closedform import markup
from closedform.language.exact import to_float


class Result:
    """The result of an analysis."""

    __slots__ = ()
    DATA: ClassVar[tuple[str, ...]] = ()
    """The fields and properties that its data have, in their order; all fields if it is empty."""

    def lines(self) -> list[str]:
        """Returns the result as lines of text."""
        raise NotImplementedError

    def data(self) -> dict[str, Any]:
        """Returns the result as plain data; exact numbers are the nearest floats."""
        names = self.DATA or [field.name for field in fields(cast("Any", self))]
        return {name: plain(getattr(self, name)) for name in names}

    def __str__(self) -> str:
        return "\n".join(self.lines())

    def _repr_html_(self) -> str:
        first, *others = self.lines() or [""]
        return markup.block(first, *map(markup.paragraph, others))


def plain(value: Any) -> Any:
    """Returns a value in the types of JSON.

    Example:
        >>> plain((sp.Rational(1, 4), {"a": None}))
        [0.25, {'a': None}]
    """
    match value:
        case Result():
            return value.data()
        case sp.Basic():
            return to_float(value)
        case str():  # the members of a StrEnum, too
            return str(value)
        case list() | tuple():
            return [plain(item) for item in value]
        case Mapping():
            return {key: plain(item) for key, item in value.items()}
        case _:
            return value

"""Values of configs that are not plain data: calls, references and unresolved values."""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import Any


@dataclass(frozen=True, slots=True)
class Unresolved:
    """A value that the file does not determine, such as ``${LR}`` in a shell script.

    It is refused where it is needed, and ignored elsewhere.

    Attributes:
        text: The value as it is written.
    """

    text: str

    def __str__(self) -> str:
        return self.text


@dataclass(frozen=True, slots=True)
class Reference:
    """A name of Python code: an import, or ``@name`` in a gin file.

    Attributes:
        name: The dotted name, without a scope.
        scope: The scope before it in a gin file.
    """

    name: str
    scope: str = ""


@dataclass(frozen=True, slots=True)
class ConfigCall:
    """A call as a config has it: nothing is called.

    Attributes:
        name: The dotted name of the function or class; ``L(Class)`` for a call of a call.
        args: The positional arguments.
        kwargs: The keyword arguments.
        scope: The scope before the name in a gin file.
    """

    name: str
    args: tuple[Any, ...] = ()
    kwargs: dict[str, Any] = field(default_factory=dict)
    scope: str = ""


PythonValue = Any
"""A value in a Python config: a constant, a container, a call, a reference or an unresolved one."""

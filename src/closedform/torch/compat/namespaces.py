"""Public modules whose classes are generated: their ``__getattr__`` and ``__dir__``."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping
from typing import Any

from closedform.errors import nearest

Argument = object
"""The value of an argument of another library's class, which the table of the class checks."""


def class_namespace(
    module: str, classes: Mapping[str, type], names: Iterable[str]
) -> tuple[Callable[[str], Any], Callable[[], list[str]]]:
    """Returns ``__getattr__``, which finds generated classes, and ``__dir__`` of a module.

    Args:
        module: The name of the module, for errors.
        classes: The classes by name.
        names: The other public names of the module.
    """
    public = sorted({*classes, *names})

    def find(name: str) -> Any:
        if name in classes:
            return classes[name]
        raise AttributeError(
            f"module {module!r} has no attribute {name!r}: {nearest(name, public)}"
        )

    return find, lambda: public

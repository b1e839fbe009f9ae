"""The objects that a value reaches."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

from closedform.recipes.documents.values import ConfigCall, PythonValue, Reference, Unresolved


def reachable_objects(value: PythonValue) -> Iterator[Any]:
    """The mutable or unknown objects that a value reaches, itself included."""
    pending, seen_ids = [value], set()
    while pending:
        part = pending.pop()
        if id(part) in seen_ids:
            continue
        seen_ids.add(id(part))
        match part:
            case dict():
                pending.extend(part.values())
            case list() | tuple():
                pending.extend(part)
            case ConfigCall():
                pending.extend((*part.args, *part.kwargs.values()))
            case Reference() | Unresolved():
                pass
            case _:
                continue
        yield part


def reachable_containers(value: PythonValue) -> Iterator[Any]:
    """The dicts and lists that a value reaches, except through a call."""
    pending, seen_ids = [value], set()
    while pending:
        part = pending.pop()
        if id(part) in seen_ids or not isinstance(part, dict | list | tuple):
            continue
        seen_ids.add(id(part))
        pending.extend(part.values() if isinstance(part, dict) else part)
        if not isinstance(part, tuple):
            yield part

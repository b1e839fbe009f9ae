"""Tables of rules that are joined from several modules."""

from __future__ import annotations

from collections.abc import Hashable, Mapping
from typing import TypeVar

Key = TypeVar("Key", bound=Hashable)
Entry = TypeVar("Entry")


def union(*tables: Mapping[Key, Entry]) -> dict[Key, Entry]:
    """Returns the entries of all tables, in their order.

    Raises:
        ValueError: Two tables have an entry for a key, of which ``{**a, **b}`` would silently
            keep the last.
    """
    entries: dict[Key, Entry] = {}
    for table in tables:
        repeated = entries.keys() & table.keys()
        if repeated:
            raise ValueError(f"two tables have an entry for {', '.join(map(str, repeated))}")
        entries |= table
    return entries

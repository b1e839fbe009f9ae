"""Objects that hold a config as plain mappings: dataclasses, namespaces, OmegaConf.

Their packages are not imported: an object is known by its attributes.
"""

from __future__ import annotations

import dataclasses
import types
from collections.abc import Mapping
from enum import Enum
from numbers import Number
from typing import Any

from closedform.recipes.documents.limits import Budget
from closedform.recipes.documents.values import Unresolved


def is_config(value: object) -> bool:
    """Returns whether an object holds a config: a mapping, dataclass, namespace or OmegaConf.

    Example:
        >>> is_config(types.SimpleNamespace(lr=0.1)), is_config(3)
        (True, False)
    """
    is_instance = dataclasses.is_dataclass(value) and not isinstance(value, type)
    return (
        is_instance
        or isinstance(value, Mapping)
        or _is_namespace(value)
        or _nodes(value) is not None
    )


def _is_namespace(value: object) -> bool:
    """Whether a value is a namespace; argparse is not imported for it."""
    bases = {f"{base.__module__}.{base.__name__}" for base in type(value).__mro__}
    return isinstance(value, types.SimpleNamespace) or "argparse.Namespace" in bases


def _nodes(value: object) -> Any:
    """The nodes of an OmegaConf container, interpolations as they are written."""
    if isinstance(value, type) or not (hasattr(value, "items_ex") or hasattr(value, "_iter_ex")):
        return None
    # Access through OmegaConf's interface would resolve interpolations, which may call resolvers.
    return getattr(value, "__dict__", {}).get("_content")


def plain_object(value: object, source: str) -> dict[str, Any]:
    """Returns the content of an object as dicts, lists and scalars; anything else is unresolved.

    Raises:
        ConfigError: It is too large, is nested too deeply, or contains itself.
    """
    content: dict[str, Any] = _plain(value, Budget(source), 0)
    return content


def _plain(value: Any, budget: Budget, depth: int) -> Any:
    budget.spend(depth)
    if isinstance(value, Enum):
        value = value.value
    nodes = _nodes(value)
    if nodes is not None:
        value = nodes
    elif hasattr(value, "_is_missing") and hasattr(value, "_value"):  # a value node of OmegaConf
        value = value._value()
    if dataclasses.is_dataclass(value) and not isinstance(value, type):
        value = {entry.name: getattr(value, entry.name) for entry in dataclasses.fields(value)}
    elif _is_namespace(value):
        value = vars(value)
    if isinstance(value, Mapping):
        return {
            key if isinstance(key, int) else str(key): _plain(item, budget, depth + 1)
            for key, item in value.items()
        }
    if isinstance(value, list | tuple):
        return [_plain(item, budget, depth + 1) for item in value]
    if isinstance(value, str):
        # A subclass of str becomes a plain string.
        return str.__str__(value)
    if value is None or isinstance(value, bool | Number):
        return value
    return Unresolved(type(value).__name__)

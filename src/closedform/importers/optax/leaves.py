"""The leaves of pytrees by path: parameters, their states, and numbers of the whole model."""

from __future__ import annotations

import math
import re
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any, TypeAlias

import jax

from closedform.errors import ArgumentError
from closedform.importers.optax.jaxprs import Tree
from closedform.importers.tensors.values import Sizes

Path: TypeAlias = tuple[Any, ...]
"""The keys that lead to a leaf."""


def leaves_of(tree: Tree) -> dict[Path, Any]:
    """Returns the leaves of a pytree by path, in JAX's order."""
    return dict(jax.tree_util.tree_flatten_with_path(tree)[0])


def shapes_of(params: Tree) -> dict[Path, Sizes]:
    """Returns the shapes of parameters by path.

    Raises:
        ArgumentError: It is not a pytree with keys whose leaves have shapes.
    """
    shapes = {}
    for path, leaf in leaves_of(params).items():
        if not path or not hasattr(leaf, "shape"):
            raise ArgumentError(
                f"params must be a dict or another pytree of arrays, got {type(leaf).__name__} at "
                f"{dotted_name(path) or 'the root'}",
                hint='such as {"w": jnp.zeros((3, 4)), "b": jnp.zeros(4)}',
            )
        shapes[path] = tuple(int(size) for size in leaf.shape)
    if not shapes:
        raise ArgumentError("params has no parameters", hint="pass the parameters of the model")
    return shapes


def with_shapes(params: Tree, shapes: Mapping[Path, Sizes], dtype: Any) -> Tree:
    """Returns a pytree of other shapes and one dtype; None for the dtypes that it has."""
    return jax.tree_util.tree_map_with_path(
        lambda path, leaf: jax.ShapeDtypeStruct(shapes[path], dtype or leaf.dtype), params
    )


def name_of(key: Any) -> str:
    """Returns the name of a key: of an attribute, a dict's key, or a place in a sequence."""
    for attribute in ("name", "key", "idx"):
        if hasattr(key, attribute):
            return str(getattr(key, attribute))
    return str(key)


def dotted_name(path: Path) -> str:
    """Returns a path as a dotted name."""
    return ".".join(name_of(key) for key in path)


@dataclass(frozen=True, slots=True)
class Leaf:
    """A leaf of the optimizer's state.

    Attributes:
        path: Its path without that of its parameter.
        param: The path of its parameter; None if it belongs to the whole model.
        place: Its place among the leaves.
        shape: Its shape.
        dtype: Its dtype.
    """

    path: Path
    param: Path | None
    place: int
    shape: Sizes
    dtype: str


def state_leaves(state: Tree, params: Sequence[Path]) -> list[Leaf]:
    """Returns the leaves of a state."""
    by_length = sorted(params, key=len, reverse=True)
    leaves = []
    for place, (path, leaf) in enumerate(leaves_of(state).items()):
        owner, rest = _owner(path, by_length)
        leaves.append(Leaf(rest, owner, place, tuple(leaf.shape), str(leaf.dtype)))
    return leaves


def element_names(name: str, leaf: Leaf) -> list[str]:
    """Returns the names of the elements of a small array of the whole model, each a state.

    Args:
        name: The name of the array.
        leaf: Its leaf.
    """
    return [f"{name}_element_{place + 1}" for place in range(math.prod(leaf.shape))]


def _owner(path: Path, params: Sequence[Path]) -> tuple[Path | None, Path]:
    """The parameter whose path is part of this one, and the path without it."""
    for param in params:
        for start in range(len(path) - len(param), -1, -1):
            if path[start : start + len(param)] == param:
                return param, (*path[:start], *path[start + len(param) :])
    return None, path


def names_of(paths: Sequence[Path]) -> dict[Path, str]:
    """Returns names for paths: the last name of each, with those before it where it is not unique.

    ``[0].mu`` is ``mu``; two of them are ``0_mu`` and ``1_mu``, as identifiers.
    """
    names: dict[Path, str] = {}
    for path in paths:
        words = [name_of(key) for key in path]
        name_places = [place for place, word in enumerate(words) if not word.isdigit()]
        start = name_places[-1] if name_places else 0
        rest = [candidate for candidate in paths if candidate != path]
        while start > 0 and any(
            [name_of(key) for key in candidate][-len(words[start:]) :] == words[start:]
            for candidate in rest
        ):
            start -= 1
        name = re.sub(r"\W", "_", "_".join(words[start:])) or "state"
        name = name if name.isidentifier() else f"state_{name}"
        while name in names.values():
            name = f"{name}_"
        names[path] = name
    return names

"""Deprecated public names: they resolve for one release, with a ``DeprecationWarning``."""

from __future__ import annotations

import functools
import importlib
import warnings
from collections.abc import Callable, Iterable, Mapping
from typing import Any, ParamSpec, TypeVar

from closedform.errors import unknown_attribute

P = ParamSpec("P")
R = TypeVar("R")

REMOVED_IN = "0.4"
"""The release that removes the names that are deprecated today."""


def deprecated_names(module: str, names: Mapping[str, str]) -> Callable[..., Any]:
    """Returns a module's ``__getattr__`` that resolves its deprecated names.

    Args:
        module: ``__name__`` of the module that had the names.
        names: From the old name to the path of the new one: ``package.module:attribute``, or
            ``package.module`` for a module.

    Example:
        >>> resolve = deprecated_names("closedform.old", {"lift": "math:floor"})
        >>> import warnings
        >>> with warnings.catch_warnings(record=True) as caught:
        ...     warnings.simplefilter("always")
        ...     resolve("lift").__name__
        'floor'
        >>> print(caught[0].message)
        closedform.old.lift is deprecated and will be removed in 0.4; use math.floor
    """

    def resolve(name: str, candidates: Iterable[str] = ()) -> Any:
        if name not in names:
            raise unknown_attribute(module, name, candidates)
        path = names[name]
        warnings.warn(
            f"{module}.{name} is deprecated and will be removed in {REMOVED_IN}; "
            f"use {path.replace(':', '.')}",
            DeprecationWarning,
            stacklevel=3,
        )
        home, _, attribute = path.partition(":")
        home_module = importlib.import_module(home)
        return getattr(home_module, attribute) if attribute else home_module

    return resolve


def renamed_keywords(**names: str) -> Callable[[Callable[P, R]], Callable[P, R]]:
    """Returns a decorator that accepts the old names of keyword arguments.

    Args:
        **names: From the old name of an argument to the new one.

    Example:
        >>> @renamed_keywords(size="length")
        ... def zeros(length):
        ...     return [0] * length
        >>> import warnings
        >>> with warnings.catch_warnings(record=True) as caught:
        ...     warnings.simplefilter("always")
        ...     zeros(size=2)
        [0, 0]
        >>> print(caught[0].message)
        the argument 'size' of zeros is deprecated and will be removed in 0.4; use 'length'
    """

    def decorate(function: Callable[P, R]) -> Callable[P, R]:
        @functools.wraps(function)
        def call(*args: P.args, **kwargs: P.kwargs) -> R:
            for old, new in names.items():
                if old not in kwargs:
                    continue
                if new in kwargs:
                    raise TypeError(f"{function.__name__}() got both {old!r} and {new!r}")
                warnings.warn(
                    f"the argument {old!r} of {function.__qualname__} is deprecated and will be "
                    f"removed in {REMOVED_IN}; use {new!r}",
                    DeprecationWarning,
                    stacklevel=2,
                )
                kwargs[new] = kwargs.pop(old)
            return function(*args, **kwargs)

        return call

    return decorate

"""Sessions that several threads share: their methods run one after the other."""

from __future__ import annotations

import functools
import threading
from collections.abc import Callable
from typing import Concatenate, ParamSpec, Self, TypeVar

P = ParamSpec("P")
R = TypeVar("R")
S = TypeVar("S", bound="Serialized")


class Serialized:
    """The base of objects whose ``serialized`` methods exclude each other.

    A step reads arrays and writes others while onnxruntime does not hold the interpreter's lock, so
    two steps at once would lose one of them, or mix them in one array.
    """

    _lock: threading.RLock

    def __new__(cls, *_: object, **__: object) -> Self:
        """Makes the lock, for constructors by another name, too."""
        instance = object.__new__(cls)
        instance._lock = threading.RLock()
        return instance


def serialize_calls(method: Callable[Concatenate[S, P], R]) -> Callable[Concatenate[S, P], R]:
    """Returns a method that waits until no other serialized method of its object runs."""

    @functools.wraps(method)
    def wait_and_call(self: S, /, *args: P.args, **kwargs: P.kwargs) -> R:
        with self._lock:
            return method(self, *args, **kwargs)

    return wait_and_call

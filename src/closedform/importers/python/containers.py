"""Copies of the user's lists, dicts, sets and arrays, which a step-dependent index may enter.

They are copies, so that a run cannot change the user's data; an attempt to change one is refused,
since a schedule has no state.
"""

from __future__ import annotations

import operator
from collections import OrderedDict, defaultdict, deque
from collections.abc import Callable, Iterator, Sequence, Sized
from enum import Enum
from typing import Any

import numpy as np
import sympy as sp

from closedform.importers.python.choices import MOST_BRANCHES, branch_count, choice, over_branches
from closedform.importers.python.number import Number, constant, one_of, operand, record
from closedform.importers.python.place import UserValue

_LONG = 16
"""Longer tables of numbers become one expression instead of a run for each entry."""


ChangeError = Callable[[str], BaseException]
"""Returns the signal of a change of a container by its name."""


class _Frozen:
    """Refuses to be changed."""

    change_error: ChangeError

    def _refuse(self, *_: Any, **__: Any) -> Any:
        raise self.change_error(container_name(self))


def container_name(container: UserValue) -> str:
    """Returns a container of the user as it is called in errors."""
    # The method resolution order: the class, _Frozen, then the builtin.
    kinds = [k for k in type(container).__mro__ if k in (list, tuple, dict, set, deque)]
    return f"a {kinds[0].__name__}"


def _entry(values: list[Any] | tuple[Any, ...] | np.ndarray[Any, Any], index: Number) -> Any:
    """The entry at an index that depends on the step."""
    size = len(values)
    run, expr = index.run, index.expr
    # A run for each entry keeps short tables as numbers in the branches of the schedule.
    if not index.is_int or size <= _LONG or not run.is_exact:
        return values[_place(values, index)]
    items = list(values)
    numbers = [operand(run, value) for value in items]
    read = [number for number in numbers if number is not None]
    expressions = [number.expr for number in read]
    if len(read) < size:
        return values[_place(values, index)]
    if branch_count(expr) > MOST_BRANCHES:
        raise run.refuse(
            "an index that is made of entries of several long tables",
            hint="make one table of them outside the function",
        )

    def compute() -> Any:
        if index >= size or (index < 0 and index < -size):
            raise IndexError("list index out of range")
        if index < 0:
            return items[index.concrete("an index")]
        expr = over_branches(index.expr, lambda place: _entry_at(expressions, place), choice)
        return one_of(run, expr, read)

    return record(run, operator.getitem, (values, index), compute)


def _place(values: Sized, index: Number) -> int:
    """The integer of an index; of one outside of the values those that are tried are few."""
    run, size = index.run, len(values)
    if index.is_int and run.is_exact:
        is_outside = run.compare(sp.Ge, index, constant(run, size))
        if is_outside or run.compare(sp.Lt, index, constant(run, -size)):
            _raise_index_error(index, values)
    return operator.index(index)


def _raise_index_error(index: Number, values: Sized) -> None:
    def compute() -> Any:
        raise IndexError("list index out of range")

    record(index.run, operator.getitem, (list(range(len(values))), index), compute)


def _entry_at(values: Sequence[sp.Expr], index: sp.Expr) -> sp.Expr:
    """The entry at an index without choices, which is not outside of the table."""
    if index.is_Integer:
        return values[min(max(int(index), 0), len(values) - 1)]
    cases: list[tuple[sp.Expr, sp.Basic]] = []
    for place, value in enumerate(values[:-1]):
        # Equal neighbours are one branch.
        if value != values[place + 1]:
            cases.append((value, sp.Lt(index, place + 1, evaluate=False)))
    return choice([*cases, (values[-1], sp.true)]) if cases else values[-1]


class _Sequence:
    """Has an entry at an index that depends on the step."""

    def __getitem__(self, index: Any) -> Any:
        if isinstance(index, Number):
            return _entry(list(self), index)  # type: ignore[call-overload]
        return super().__getitem__(index)  # type: ignore[misc]


class TracedList(_Sequence, _Frozen, list[Any]):
    """A list of the user."""

    append = extend = insert = pop = remove = clear = sort = reverse = _Frozen._refuse
    __setitem__ = __delitem__ = __iadd__ = __imul__ = _Frozen._refuse


class TracedDeque(_Sequence, _Frozen, deque[Any]):
    """A deque of the user."""

    append = appendleft = extend = extendleft = insert = pop = popleft = _Frozen._refuse
    remove = clear = reverse = rotate = _Frozen._refuse
    __setitem__ = __delitem__ = __iadd__ = __imul__ = _Frozen._refuse


class TracedTuple(_Sequence, tuple[Any, ...]):
    """A tuple of the user."""


class TracedDict(_Frozen, dict[Any, Any]):
    """A dict of the user."""

    def _lookup(self, key: Any) -> Iterator[Any]:
        """The value of a key that depends on the step, where it is one of the keys."""
        # By comparison and not by hash: a key of the step decides once for each key.
        for candidate, value in self.items():
            if candidate == key:
                yield value
                return

    def __getitem__(self, key: Any) -> Any:
        if not isinstance(key, Number):
            return super().__getitem__(key)
        for value in self._lookup(key):
            return value
        raise KeyError(key)

    def get(self, key: UserValue, default: UserValue = None) -> Any:
        """Returns the value of a key, or the default."""
        if not isinstance(key, Number):
            return super().get(key, default)
        return next(self._lookup(key), default)

    def __contains__(self, key: object) -> bool:
        if not isinstance(key, Number):
            return super().__contains__(key)
        return any(True for _ in self._lookup(key))

    pop = popitem = clear = update = setdefault = _Frozen._refuse
    __setitem__ = __delitem__ = __ior__ = _Frozen._refuse


class TracedSet(_Frozen, set[Any]):
    """A set of the user."""

    def __contains__(self, key: object) -> bool:
        if not isinstance(key, Number):
            return super().__contains__(key)
        return any(bool(candidate == key) for candidate in self)

    add = discard = remove = pop = clear = update = _Frozen._refuse


class TracedArray(np.ndarray[Any, Any]):
    """An array of the user, or one that the function makes."""

    def __getitem__(self, index: Any) -> Any:
        if isinstance(index, Number):
            if self.ndim == 1:
                return _entry(self, index)
            index = _place(self, index)
        if isinstance(index, tuple):
            index = tuple(
                operator.index(part) if isinstance(part, Number) else part for part in index
            )
        return super().__getitem__(index)

    def __setitem__(self, index: Any, value: Any) -> None:
        index = operator.index(index) if isinstance(index, Number) else index
        super().__setitem__(index, value)


def local_array(value: UserValue) -> Any:
    """Returns an array that the function makes, so that the step may be an index of it."""
    return value.view(TracedArray) if type(value) is np.ndarray and value.ndim else value


def traced_copy(
    value: UserValue, change_error: ChangeError, wrap: Callable[[Any], Any]
) -> TracedList | TracedDeque | TracedTuple | TracedDict | TracedSet | TracedArray | None:
    """Returns the copy of a container; None for anything else.

    Args:
        value: The container.
        change_error: Returns the signal of a change of the copy.
        wrap: What its items become.
    """
    if isinstance(value, np.ndarray):
        array = value.copy().view(TracedArray)
        # numpy itself refuses to change it.
        array.flags.writeable = False
        return array
    # Not isinstance: a named tuple would lose its fields.
    if type(value) is tuple:
        return TracedTuple(map(wrap, value))
    container: TracedList | TracedDeque | TracedSet
    if type(value) is list:
        container = TracedList(map(wrap, value))
    elif type(value) is deque:
        container = TracedDeque(map(wrap, value), value.maxlen)
    elif isinstance(value, set | frozenset):
        container = TracedSet(map(wrap, value))
    elif isinstance(value, dict):
        return _traced_dict(value, change_error, wrap)
    else:
        return None
    container.change_error = change_error
    return container


def _traced_dict(
    value: dict[Any, Any], change_error: ChangeError, wrap: Callable[[Any], Any]
) -> TracedDict | None:
    """The copy of a dict, or of an object of a subclass, with its methods and attributes."""
    kind: Any = type(value)
    native: Any = next(base for base in kind.__mro__ if base in (OrderedDict, defaultdict, dict))
    members: dict[str, Any] = {}
    if native is OrderedDict:
        members["move_to_end"] = TracedDict.pop
    elif native is defaultdict and kind.__missing__ is defaultdict.__missing__:
        members["__missing__"] = _missing
    try:
        mirror = TracedDict if kind is dict else type(kind.__name__, (TracedDict, kind), members)
        instance: Any = native.__new__(mirror)
    except TypeError:
        return None
    if native is defaultdict:
        instance.default_factory = wrap(value.default_factory)  # type: ignore[attr-defined]
    for key, item in value.items():
        is_address = not isinstance(key, _KEYS)
        native.__setitem__(instance, wrap(key) if is_address else key, wrap(item))
    if hasattr(instance, "__dict__"):
        instance.__dict__.update(getattr(value, "__dict__", {}), change_error=change_error)
    result: TracedDict = instance
    return result


_KEYS = (str, bytes, int, float, tuple, frozenset, Enum, type(None))
"""Keys that are found by their values; an object of the user is another one in traced code."""


def _missing(self: Any, key: UserValue) -> Any:
    """The value of a key that is not in a defaultdict, which would keep it."""
    if self.default_factory is None:
        raise KeyError(key)
    return self._refuse()

"""Lengths in units other than updates, as arguments of schedules.

The facts of a run convert a length to updates. A call with a length is deferred until they are
known: ``with_lengths`` returns the call itself, a ``ScheduleInUnits``.
"""

from __future__ import annotations

import functools
import inspect
from abc import ABC, abstractmethod
from collections.abc import Callable, Collection, Iterable, Iterator, Mapping
from typing import Any, ParamSpec, TypeVar

import sympy as sp

from closedform.errors import ArgumentError

P = ParamSpec("P")
Result = TypeVar("Result")


class Length(ABC):
    """A length in a unit of a run, such as tokens."""

    @abstractmethod
    def updates(self, facts: object) -> sp.Expr:
        """Returns the number of optimizer updates, exactly.

        Args:
            facts: Facts of the run, or a mapping of them.

        Raises:
            ArgumentError: A fact is missing.
        """

    @abstractmethod
    def missing(self, facts: object = None) -> tuple[str, ...]:
        """Returns the names of the facts that the conversion needs and that are not given."""

    @abstractmethod
    def defer(self, function: Callable[..., Any], arguments: Mapping[str, Any]) -> Any:
        """Returns a call with such lengths, which is made when the facts are known."""


class HasLengths(ABC):
    """A schedule with lengths that are not converted yet."""

    arguments: Mapping[str, Any]

    @abstractmethod
    def resolve(self, facts: object = None, /, **fact_values: object) -> Any:
        """Returns the schedule in updates."""


def with_lengths(function: Callable[P, Result]) -> Callable[P, Result]:
    """Returns a function whose arguments may be lengths, or schedules that have lengths.

    With such an argument it returns the deferred call, else what ``function`` returns. A keyword
    that the function does not take is an ArgumentError with the name that it has here.
    """
    check = _keyword_check(function)

    # One wrapper for both: a deferred call is pickled by the name of the outermost function.
    @functools.wraps(function)
    def wrapper(*args: P.args, **kwargs: P.kwargs) -> Result:
        check(kwargs)
        length = next(lengths_in((*args, *kwargs.values())), None)
        if length is None:
            return function(*args, **kwargs)
        try:
            bound = inspect.signature(function).bind(*args, **kwargs)
        except TypeError as error:
            raise ArgumentError(str(error), where=function.__name__) from None
        deferred_call: Result = length.defer(wrapper, bound.arguments)
        return deferred_call

    return wrapper


def with_checked_keywords(function: Callable[P, Result]) -> Callable[P, Result]:
    """Returns a function that answers an unknown keyword with the name that it has here.

    Raises:
        ArgumentError: ``function`` does not take a keyword. ``inspect.signature`` still shows its
            parameters.

    Example:
        >>> @with_checked_keywords
        ... def decay(weight_decay=0):
        ...     return weight_decay
        >>> try:
        ...     decay(wd=0.1)
        ... except ArgumentError as error:
        ...     print(error.hint)
        its name here is 'weight_decay'
    """
    check = _keyword_check(function)

    @functools.wraps(function)
    def wrapper(*args: P.args, **kwargs: P.kwargs) -> Result:
        check(kwargs)
        return function(*args, **kwargs)

    return wrapper


def _keyword_check(function: Callable[..., object]) -> Callable[[Collection[str]], None]:
    """Returns a check that raises ``unknown_keyword`` for keywords that a function refuses."""
    parameters = inspect.signature(function).parameters
    takes_any = any(item.kind is item.VAR_KEYWORD for item in parameters.values())

    def check(keywords: Collection[str]) -> None:
        if not takes_any and not set(keywords) <= parameters.keys():
            raise unknown_keyword(function.__name__, keywords, parameters)

    return check


def unknown_keyword(
    function: str, keywords: Iterable[str], parameters: Collection[str]
) -> ArgumentError:
    """Returns the error of a function that is called with keywords that it does not take."""
    from closedform.language.config_names import suggest_argument

    name = next(keyword for keyword in keywords if keyword not in parameters)
    return ArgumentError(
        f"there is no argument {name!r}; the arguments are {', '.join(parameters)}",
        where=function,
        hint=suggest_argument(name, parameters),
    )


def lengths_in(value: object) -> Iterator[Length]:
    """Yields the lengths in an argument."""
    if isinstance(value, Length):
        yield value
    elif isinstance(value, HasLengths):
        yield from lengths_in(value.arguments)
    elif isinstance(value, Mapping):
        for item in value.values():
            yield from lengths_in(item)
    elif isinstance(value, list | tuple):
        for item in value:
            yield from lengths_in(item)


def resolved(value: Any, facts: object) -> Any:
    """Returns an argument with numbers of updates in place of its lengths."""
    if isinstance(value, Length):
        updates = value.updates(facts)
        return int(updates) if updates.is_Integer else updates
    if isinstance(value, HasLengths):
        return value.resolve(facts)
    if isinstance(value, Mapping):
        return {name: resolved(item, facts) for name, item in value.items()}
    if isinstance(value, list | tuple) and next(lengths_in(value), None) is not None:
        items = [resolved(item, facts) for item in value]
        return type(value)(*items) if hasattr(value, "_fields") else type(value)(items)
    return value

"""Schedules whose lengths are in samples, tokens, epochs or parts of the run."""

from __future__ import annotations

import inspect
from collections import OrderedDict
from collections.abc import Callable, Mapping
from typing import Any, NoReturn

from closedform.errors import ArgumentError, DefinitionError
from closedform.language.lengths import HasLengths, Length, lengths_in, resolved
from closedform.language.schedule import Schedule


class ScheduleInUnits(Schedule, HasLengths):
    """A schedule with lengths in samples, tokens, epochs or parts of the run.

    It can be composed, compared and printed. ``resolve`` converts its lengths to updates, exactly;
    until then it has no value, and each use of its expression is an error that names the missing
    facts.

    Attributes:
        function: The function of the library or method that makes the schedule.
        arguments: Its arguments, by name.

    Example:
        >>> from closedform import schedules
        >>> from closedform.units import tokens
        >>> lr = schedules.cosine(3e-4, 3e-5, tokens(300e9))
        >>> lr
        cosine(0.0003, 3e-05, tokens(300000000000))
        >>> lr.resolve(global_batch_size=1024, sequence_length=4096).length
        71526
    """

    __slots__ = ("arguments", "function")

    function: Callable[..., Schedule]
    arguments: dict[str, Any]

    def __init__(self, function: Callable[..., Schedule], arguments: Mapping[str, Any]) -> None:
        self.__setstate__(
            {"function": function, "arguments": dict(arguments), "name": function.__name__}
        )

    def __getstate__(self) -> dict[str, Any]:
        return {key: getattr(self, key) for key in ("function", "arguments", "name")}

    def __getattr__(self, name: str) -> NoReturn:
        if name in Schedule.__slots__:
            self._refuse(None)
        raise AttributeError(name)

    def __eq__(self, other: object) -> bool:
        if not isinstance(other, ScheduleInUnits):
            return False
        return (
            self.function is other.function
            and self._arguments_by_name() == other._arguments_by_name()
        )

    def __hash__(self) -> int:
        return hash((self.function, repr(self)))

    def __repr__(self) -> str:
        call = self._call(self.arguments)
        arguments = [
            *map(_argument_text, call.args),
            *(f"{k}={_argument_text(v)}" for k, v in call.kwargs.items()),
        ]
        return f"{self.function.__name__}({', '.join(arguments)})"

    def _call(self, arguments: Mapping[str, Any]) -> inspect.BoundArguments:
        signature = inspect.signature(self.function)
        return inspect.BoundArguments(signature, OrderedDict(arguments))

    def _arguments_by_name(self) -> dict[str, Any]:
        """The arguments, with the defaults of those that are not given."""
        call = self._call(self.arguments)
        call.apply_defaults()
        return {name: _plain(value) for name, value in call.arguments.items()}

    def _refuse(self, facts: object) -> NoReturn:
        missing = self.missing_facts(facts)
        named_facts = ", ".join(f"{name}=…" for name in missing)
        raise ArgumentError(
            f"lengths in units have no value yet, missing facts: {', '.join(missing) or 'none'}",
            where=f"schedule {self.name!r}",
            hint=f"convert them first: resolve({named_facts})",
        )

    def missing_facts(self, facts: object = None) -> tuple[str, ...]:
        """Returns the names of the facts that ``resolve`` needs and that are not given.

        Args:
            facts: Facts of the run, or a mapping of them.

        Example:
            >>> from closedform import schedules
            >>> from closedform.units import epochs
            >>> schedules.linear(1, 0, epochs(3)).missing_facts({"dataset_size": 1000})
            ('global_batch_size',)
        """
        names = (name for length in lengths_in(self) for name in length.missing(facts))
        return tuple(dict.fromkeys(names))

    def resolve(self, facts: object = None, /, **fact_values: object) -> Schedule:
        """Returns the schedule in optimizer updates.

        The conversion is exact. Where the schedule takes a fraction of a step, such as the end of
        a cosine, the length remains one; where it needs a whole number, a fraction is refused:
        give the length a ``rounding``.

        Args:
            facts: Facts of the run: a ``Facts``, or a mapping of them by name.
            **fact_values: Further facts.

        Raises:
            ArgumentError: A fact is missing or unknown; the message names all that are missing.
            DefinitionError: The schedule does not take a converted length.
        """
        all_facts = _merge_facts(facts, fact_values)
        if self.missing_facts(all_facts):
            self._refuse(all_facts)
        call = self._call(resolved(self.arguments, all_facts))
        try:
            return self.function(*call.args, **call.kwargs)
        except DefinitionError as error:
            fractions = [
                f"{length} is {length.updates(all_facts)} updates"
                for length in lengths_in(self)
                if not length.updates(all_facts).is_Integer
            ]
            hint = "; ".join([*fractions, 'a length may be rounded: rounding="floor"'])
            raise type(error)(
                error.what, where=error.where, hint=hint if fractions else error.hint
            ) from None

    def _repr_latex_(self) -> None:
        """Has no formula before its lengths are converted: notebooks print the call."""


def _merge_facts(facts: object, fact_values: Mapping[str, object]) -> object:
    if not fact_values:
        return {} if facts is None else facts
    if facts is None:
        return dict(fact_values)
    if isinstance(facts, Mapping):
        return {**facts, **fact_values}
    raise ArgumentError(
        f"facts must be given as one object or by name, got both: {', '.join(fact_values)}",
        hint="put all of them into the object",
    )


def _plain(value: Any) -> Any:
    """An argument in which sequences of one content are equal."""
    if isinstance(value, Mapping):
        return {name: _plain(item) for name, item in value.items()}
    return [_plain(item) for item in value] if isinstance(value, list | tuple) else value


def _argument_text(value: Any) -> str:
    if isinstance(value, Length):
        return str(value)
    if isinstance(value, list | tuple) and next(lengths_in(value), None) is not None:
        return f"[{', '.join(map(_argument_text, value))}]"
    if isinstance(value, Mapping):
        return f"{{{', '.join(f'{name}: {_argument_text(item)}' for name, item in value.items())}}}"
    return repr(value)

"""The parser of a command: argparse, from the class of its options.

A command declares its options as the fields of a dataclass: ``strict: bool = flag("exit with 3")``
is the option ``--strict``. In commands with a NAME, which have the field ``words``, all other
options are arguments of what is named: ``closedform show cosine --start 1 --steps 10 --json``. A
positional argument of argparse would take their values, and so they are set aside before it runs.
"""

from __future__ import annotations

import argparse
import re
from collections import deque
from collections.abc import Callable, Sequence
from typing import Any, NoReturn, TypeVar, dataclass_transform

from closedform.errors import ClosedFormError, nearest

_PAIR = re.compile(r"[A-Za-z_][\w.\-\[\]]*=")
"""The beginning of a word that is a name and a value."""


class UsageError(ClosedFormError):
    """The words of a command line are wrong."""


Declared = TypeVar("Declared")


@dataclass_transform(kw_only_default=True, frozen_default=True)
def command(options: type[Declared]) -> type[Declared]:
    """Makes the class of the options of a command.

    Example:
        >>> @command
        ... class Greeting:
        ...     name: str = argument("who is greeted")
        ...     is_loud: bool = flag("shout", "--loud")
        >>> Parser.of("greet", "Greet somebody.", Greeting).parse(["Ada", "--loud"])
        {'name': 'Ada', 'is_loud': True}
    """
    from dataclasses import dataclass  # with inspect, a tenth of `closedform --help`

    return dataclass(frozen=True, kw_only=True, slots=True)(options)


def _declaration(**metadata: object) -> Any:
    from dataclasses import field

    return field(metadata=metadata)


def argument(text: str, **settings: object) -> Any:
    """Declares a field as a positional argument, with its help and settings of argparse."""
    return _declaration(names=None, help=text, **settings)


def option(text: str, *names: str, **settings: object) -> Any:
    """Declares a field as an option, with its help and settings of argparse.

    Args:
        text: The help.
        names: Its names; with no long one among them, also ``--name-of-the-field``.
        settings: Arguments of ``argparse.ArgumentParser.add_argument``.
    """
    return _declaration(names=names, help=text, **settings)


def flag(text: str, *names: str) -> Any:
    """Declares a field as an option without a value: whether it is given."""
    return option(text, *names, action="store_true")


def bundle(make: Callable[..., Any], **parts: object) -> Any:
    """Declares a field whose value is made from several arguments, by keyword.

    Args:
        make: Makes the value.
        parts: The arguments, as ``option`` and ``flag`` declare them.
    """
    return _declaration(make=make, parts=parts)


class Parser(argparse.ArgumentParser):
    """The parser of one command.

    Args:
        prog: The words that call the command.
        description: Its help.
        has_arguments: Whether options that are not declared are arguments of NAME.
    """

    def __init__(self, prog: str, description: str, *, has_arguments: bool = False) -> None:
        self.actions_by_option: dict[str, argparse.Action] = {}
        self.positionals: list[argparse.Action] = []
        self.bundles: dict[str, tuple[Callable[..., Any], tuple[str, ...]]] = {}
        self.has_arguments = has_arguments
        super().__init__(
            prog=prog,
            description=description,
            add_help=False,
            allow_abbrev=False,
            formatter_class=argparse.RawDescriptionHelpFormatter,
            usage=f"{prog} %(options)s" if prog == "closedform" else None,
        )
        self.add_argument("-h", "--help", action="help", help="show this help")

    @classmethod
    def of(cls, prog: str, description: str, options: type[Any]) -> Parser:
        """Returns the parser of a command from the class of its options."""
        from dataclasses import fields

        declared = {entry.name: entry.metadata for entry in fields(options)}
        parser = cls(prog, description, has_arguments="words" in declared)
        for name, declaration in declared.items():
            if "make" in declaration:
                parts = declaration["parts"]
                parser.bundles[name] = declaration["make"], tuple(parts)
                for part, entry in parts.items():
                    parser._declare(part, **entry.metadata)
            elif declaration:
                parser._declare(name, **declaration)
        return parser

    def _declare(self, name: str, names: Sequence[str] | None, **settings: Any) -> None:
        if names is None:
            self.add_argument(name, **settings)
            return
        is_long = any(text.startswith("--") for text in names)
        own_name = () if is_long else (f"--{name.replace('_', '-')}",)
        self.add_argument(*names, *own_name, dest=name, **settings)

    def add_argument(self, *names: Any, **options: Any) -> argparse.Action:
        """Declares an argument, as argparse does, and records it."""
        action = super().add_argument(*names, **options)
        self.actions_by_option.update(dict.fromkeys(action.option_strings, action))
        if not action.option_strings:
            self.positionals.append(action)
        return action

    def error(self, message: str) -> NoReturn:
        """Raises an error of usage instead of printing the usage."""
        raise UsageError(message, hint=f"see {self.prog} --help")

    def parse(self, words: Sequence[str]) -> dict[str, Any]:
        """Returns the values by name; ``words`` has the arguments of NAME, if it has any.

        Raises:
            UsageError: An option is unknown, or a value is missing or wrong.
        """
        own_words, rest = self._set_apart(words)
        end = next((at for at, word in enumerate(rest) if _is_option(word)), len(rest))
        if self.has_arguments:
            many = any(action.nargs == "+" for action in self.positionals)
            end = end if many else min(end, len(self.positionals))
            is_required = any(action.nargs != "?" for action in self.positionals)
            asks_for_help = bool({"-h", "--help"} & set(own_words))
            if not end and rest and is_required and not asks_for_help:
                raise UsageError(f"the name must precede its options, got {rest[0]!r}")
        elif end < len(rest):
            word = rest[end].partition("=")[0]
            raise UsageError(f"unknown option {word}", hint=self.near(word))
        # argparse refuses "--" where a command has no positional argument.
        end_of_options = ["--"] if self.positionals else []
        values = vars(self.parse_args([*own_words, *end_of_options, *rest[:end]]))
        for name, (make, parts) in self.bundles.items():
            values[name] = make(**{part: values.pop(part) for part in parts})
        return {**values, "words": rest[end:]} if self.has_arguments else values

    def near(self, word: str) -> str:
        """Returns a hint with the option of this command that is closest to a word."""
        names = {name for name in self.actions_by_option if name.startswith("--")}
        return nearest(word, names).replace("'", "")

    def _set_apart(self, words: Sequence[str]) -> tuple[list[str], list[str]]:
        """The options of this command with their values, and all other words."""
        own_words: list[str] = []
        rest: list[str] = []
        queue = deque(words)
        while queue:
            word = queue.popleft()
            name, equals, _ = word.partition("=")
            is_attached = (
                not word.startswith("--") and word[:2] in self.actions_by_option and len(word) > 2
            )
            action = self.actions_by_option.get(word[:2] if is_attached else name)
            if action is None:
                rest.append(word)
                continue
            if (
                action.nargs == 0
                or equals
                or is_attached
                or not queue
                or queue[0] in self.actions_by_option
            ):
                own_words.append(word)
            elif word.startswith("--"):
                own_words.append(f"{word}={queue.popleft()}")
                # Pairs may follow each other: --facts world_size=8 dataset_size=50000.
                while queue and "=" in str(action.metavar or "") and _PAIR.match(queue[0]):
                    own_words.append(f"{word}={queue.popleft()}")
            else:
                own_words += [f"{word}{queue.popleft()}"]
        return own_words, rest


def _is_option(word: str) -> bool:
    """Whether a word is an option: it begins with a dash, and is not a number."""
    return len(word) > 1 and word[0] == "-" and not (word[1].isdigit() or word[1] == ".")


def positive(text: str) -> int:
    """Returns an integer above 0, the type of an option."""
    if not text.isdecimal() or int(text) < 1:
        raise argparse.ArgumentTypeError(f"it must be an integer of at least 1, got {text!r}")
    return int(text)


def at_least_a_tenth(text: str) -> float:
    """Returns a number of at least 0.1, the type of a limit."""
    try:
        number = float(text)
    except ValueError:
        number = 0.0
    if not 0.1 <= number < float("inf"):
        raise argparse.ArgumentTypeError(f"it must be a number of at least 0.1, got {text!r}")
    return number

"""Command lines and shell scripts: the flags of the command that has the most of them.

Words are split as a shell splits them; nothing is run. Variables that the script itself sets to a
plain text are inserted, arrays as well; everything else with a ``$`` is an :class:`Unresolved`.
"""

from __future__ import annotations

import re
import shlex
from collections.abc import Iterable, Iterator
from typing import Any

from closedform.errors import ConfigError
from closedform.recipes.documents.limits import MAX_NODES, TOO_LARGE
from closedform.recipes.documents.scalars import word
from closedform.recipes.documents.values import Unresolved

_SEPARATORS = frozenset(";&|\n")
_ASSIGNMENT = re.compile(r"([A-Za-z_]\w*)(\+?)=(.*)", re.DOTALL)
_KEY_VALUE = re.compile(r"(?:\+{1,2})?([A-Za-z_][\w.\-/]*)=(.*)", re.DOTALL)
_FLAG = re.compile(r"--?[A-Za-z][\w.\-]*")
_VARIABLE = re.compile(r"\$(?:\{([A-Za-z_]\w*)(?:\[[@*]\])?(?::?-([^{}$`]*))?\}|([A-Za-z_]\w*))")
_OF_WORDS = "_args"
"""The ending of flags whose values are words such as ``T_max=100``: ``--optimizer_args``."""
_ARRAY = re.compile(r"(?m)^[ \t]*(?:export\s+)?([A-Za-z_]\w*)(\+?)=\(([^()]*)\)")
_COMMENT = re.compile(r"(?m)(^|[ \t])#[^\n]*$")

_PROGRAM = re.compile(r"(?m)(?:^|[\s/=])([\w\-]+)\.py(?=\s|$)")

Variables = dict[str, str]


def program_of(text: str) -> str:
    """Returns the name of the Python script that a command line runs; empty if there is none.

    Example:
        >>> program_of("accelerate launch examples/train_controlnet.py --learning_rate 1e-5")
        'train_controlnet'
    """
    script = _PROGRAM.search(_COMMENT.sub(r"\1", text))
    return "" if script is None else script.group(1)


def parsed_command_line(text: str, source: str) -> dict[str, Any]:
    """Returns the flags and ``key=value`` words of a command, by their names without dashes.

    A flag without a value is True, one with several is the list of them. Numbers, ``true`` and
    ``false`` are read as such. Of a flag that occurs twice, the last one counts.

    Raises:
        ConfigError: The words cannot be split, or are too many.

    Example:
        >>> parsed_command_line("train.py --lr 3e-4 --betas 0.9 0.95 --bf16 steps=10", "<text>")
        {'lr': 0.0003, 'betas': [0.9, 0.95], 'bf16': True, 'steps': 10}
    """
    variables: Variables = {}
    text = text.replace("\r\n", "\n").replace("\\\n", " ")
    text = _COMMENT.sub(r"\1", text)
    text = _ARRAY.sub(lambda found: _array(found, variables), text)
    best: dict[str, Any] = {}
    for command in _commands(_split(text, source)):
        given = _flags(_expanded(_without_settings(command, variables), variables, source))
        if not any(key for key in given):
            continue
        best = {**best, **given} if _is_list(command) else max(best, given, key=len)
    return best


def _array(found: re.Match[str], variables: Variables) -> str:
    name, more, words = found.groups()
    words = " ".join(words.split("\n"))
    variables[name] = f"{variables.get(name, '')} {words}" if more else words
    return ""


def _split(text: str, source: str) -> list[str]:
    lexer = shlex.shlex(text, posix=True, punctuation_chars=";&|\n")
    lexer.whitespace = " \t\r"
    lexer.whitespace_split = True
    lexer.commenters = ""
    words: list[str] = []
    try:
        for one in lexer:
            words.append(one)
            if len(words) > MAX_NODES:
                raise ConfigError(TOO_LARGE, where=source)
    except ValueError as error:
        raise ConfigError(f"this is not a command line: {error}", where=source) from error
    return words


def _commands(words: Iterable[str]) -> Iterator[list[str]]:
    command: list[str] = []
    for one in words:
        if one and set(one) <= _SEPARATORS:
            if command:
                yield command
            command = []
        else:
            command.append(one)
    if command:
        yield command


def _is_list(command: list[str]) -> bool:
    """Whether a line is one flag of a list, and not a command of its own."""
    return _FLAG.fullmatch(command[0].partition("=")[0]) is not None or (
        len(command) == 1 and _KEY_VALUE.fullmatch(command[0]) is not None
    )


def _without_settings(command: list[str], variables: Variables) -> list[str]:
    """The words after the settings of variables, which are kept for the lines below.

    A line that is a setting and nothing else is a word of a list as well: ``steps=100``.
    """
    rest = command[1:] if command[0] in ("export", "set", "declare", "local") else command
    for index, one in enumerate(rest):
        found = _ASSIGNMENT.fullmatch(one)
        if found is None:
            return rest[index:]
        name, more, value = found.groups()
        value = _inserted(value, variables)
        variables[name] = f"{variables.get(name, '')}{value}" if more else value
    return rest if rest is command and len(rest) == 1 else []


def _inserted(text: str, variables: Variables) -> str:
    def value(found: re.Match[str]) -> str:
        name = found.group(1) or found.group(3)
        default = found.group(2)
        return variables.get(name, found.group(0) if default is None else default)

    inserted = _VARIABLE.sub(value, text)
    return inserted if len(inserted) <= MAX_WORD else text


MAX_WORD = 100_000
"""The most characters of a word with its variables inserted; a longer one is left open."""


def _expanded(command: list[str], variables: Variables, source: str) -> list[str]:
    """The words with variables inserted; one that is a variable alone may become several."""
    words: list[str] = []
    for one in command:
        if _VARIABLE.fullmatch(one):
            inserted = _inserted(one, variables)
            words.extend(_split(inserted, source) if inserted != one else [one])
        else:
            words.append(_inserted(one, variables))
        if len(words) > MAX_NODES:
            raise ConfigError(TOO_LARGE, where=source)
    return words


def _flags(words: list[str]) -> dict[str, Any]:
    result: dict[str, Any] = {}
    name: str | None = None
    values: list[Any] = []

    def close() -> None:
        if name is not None:
            result[name] = True if not values else values[0] if len(values) == 1 else values

    for one in words:
        flag, equals, value = one.partition("=")
        if _FLAG.fullmatch(flag) and (one.startswith("--") or not equals):
            close()
            name, values = flag.lstrip("-"), [_word(value)] if equals else []
        elif name is None or (
            _KEY_VALUE.fullmatch(one)
            and "{" not in flag
            and not values
            and not name.endswith(_OF_WORDS)
        ):
            found = _KEY_VALUE.fullmatch(one)
            if found is not None:
                close()
                name = None
                result[found.group(1)] = _word(found.group(2))
            elif name is not None:
                values.append(_word(one))
        else:
            values.append(_word(one))
    close()
    return result


def _word(text: str) -> Any:
    if "$" in text or "`" in text:
        return Unresolved(text)
    return word(text)

"""Command lines and shell scripts: the flags of the command with the most flags.

Words are split as a shell splits them; nothing is run. Variables that the script sets to plain
strings or arrays are inserted; everything else with a ``$`` is an :class:`Unresolved`.
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

    A flag without a value is True; several values are a list. Numbers, ``true`` and ``false`` are
    converted. The last occurrence of a flag counts.

    Raises:
        ConfigError: The words cannot be split, or are too many.

    Example:
        >>> parsed_command_line("train.py --lr 3e-4 --betas 0.9 0.95 --bf16 steps=10", "<text>")
        {'lr': 0.0003, 'betas': [0.9, 0.95], 'bf16': True, 'steps': 10}
    """
    variables: Variables = {}
    text = text.replace("\r\n", "\n").replace("\\\n", " ")
    # Arrays come before the split: their parentheses and line breaks are not separators.
    text = _COMMENT.sub(r"\1", text)
    text = _ARRAY.sub(lambda match: _array(match, variables), text)
    best: dict[str, Any] = {}
    for command in _commands(_split(text, source)):
        flags = _flags(_expand(_without_settings(command, variables), variables, source))
        if not any(key for key in flags):
            continue
        # A script also has short commands, such as mkdir -p: the training command has the most
        # flags.
        best = {**best, **flags} if _is_list(command) else max(best, flags, key=len)
    return best


def _array(match: re.Match[str], variables: Variables) -> str:
    name, more, words = match.groups()
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
        for token in lexer:
            words.append(token)
            if len(words) > MAX_NODES:
                raise ConfigError(TOO_LARGE, where=source)
    except ValueError as error:
        raise ConfigError(f"this is not a command line: {error}", where=source) from error
    return words


def _commands(words: Iterable[str]) -> Iterator[list[str]]:
    command: list[str] = []
    for token in words:
        if token and set(token) <= _SEPARATORS:
            if command:
                yield command
            command = []
        else:
            command.append(token)
    if command:
        yield command


def _is_list(command: list[str]) -> bool:
    """Whether a line is an item of a list of flags, not a command."""
    return _FLAG.fullmatch(command[0].partition("=")[0]) is not None or (
        len(command) == 1 and _KEY_VALUE.fullmatch(command[0]) is not None
    )


def _without_settings(command: list[str], variables: Variables) -> list[str]:
    """The words after assignments of variables, which are kept for the lines below.

    A line with nothing but an assignment is a word of a list as well: ``steps=100``.
    """
    rest = command[1:] if command[0] in ("export", "set", "declare", "local") else command
    for index, token in enumerate(rest):
        assignment = _ASSIGNMENT.fullmatch(token)
        if assignment is None:
            return rest[index:]
        name, more, value = assignment.groups()
        value = _insert_variables(value, variables)
        variables[name] = f"{variables.get(name, '')}{value}" if more else value
    return rest if rest is command and len(rest) == 1 else []


def _insert_variables(text: str, variables: Variables) -> str:
    def value(match: re.Match[str]) -> str:
        name = match.group(1) or match.group(3)
        default = match.group(2)
        return variables.get(name, match.group(0) if default is None else default)

    result = _VARIABLE.sub(value, text)
    # Variables that refer to each other could double the text with each line.
    return result if len(result) <= MAX_WORD else text


MAX_WORD = 100_000
"""The most characters of a word with variables inserted; longer words keep their variables."""


def _expand(command: list[str], variables: Variables, source: str) -> list[str]:
    """The words with variables inserted; a word that is only a variable may become several."""
    words: list[str] = []
    for token in command:
        if _VARIABLE.fullmatch(token):
            expansion = _insert_variables(token, variables)
            words.extend(_split(expansion, source) if expansion != token else [token])
        else:
            words.append(_insert_variables(token, variables))
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

    for token in words:
        flag, equals, value = token.partition("=")
        if _FLAG.fullmatch(flag) and (token.startswith("--") or not equals):
            close()
            name, values = flag.lstrip("-"), [_word(value)] if equals else []
        elif name is None or (
            _KEY_VALUE.fullmatch(token)
            and "{" not in flag
            and not values
            and not name.endswith(_OF_WORDS)
        ):
            setting = _KEY_VALUE.fullmatch(token)
            if setting is not None:
                close()
                name = None
                result[setting.group(1)] = _word(setting.group(2))
            elif name is not None:
                values.append(_word(token))
        else:
            values.append(_word(token))
    close()
    return result


def _word(text: str) -> Any:
    if "$" in text or "`" in text:
        return Unresolved(text)
    return word(text)

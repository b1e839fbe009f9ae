"""Errors in the words of a terminal: an argument of Python is an option there."""

from __future__ import annotations

import re

_VALUE = r"""('[^']*'|"[^"]*"|\{[^{}]*\}|[\w.…]+)"""
_CALL = re.compile(rf"load_recipe\((?:…, )?(\w+={_VALUE})\)")
_ARGUMENT = re.compile(rf"\b(framework|version|facts|files|base|paths|total)={_VALUE}")
_PHRASES = {
    "give an int, a float, a Fraction or a SymPy number": "give one, such as 100 or 3e-4",
    "one of new, total and batch_sizes must": "one of --new, --total and --batch-sizes must",
}
_MISSING = re.compile(r"missing facts: (\w+(?:, \w+)*)")
_ENTRY = re.compile(r"""['"]?([\w.\-]+)['"]?\s*:\s*['"]?([^'",{}]+)""")
_OPTIONS = {
    "base": "--base-value",
    "facts": "--facts",
    "files": "--files",
    "framework": "--framework",
    "paths": "--map",
    "total": "--total",
}


def in_terminal(text: str) -> str:
    """Returns the text of an error with the options that arguments of ``load_recipe`` are.

    Example:
        >>> in_terminal("name it: framework='cerebras'")
        'name it: --framework cerebras'
        >>> in_terminal("give the files, as in load_recipe(…, files=directory)")
        'give the files, as in --files DIRECTORY'
        >>> in_terminal("give facts={'total_updates': 9}")
        'give --facts total_updates=9'
    """
    # Between backticks stands source code, or a command already.
    for phrase, wording in _PHRASES.items():
        text = text.replace(phrase, wording)
    parts = text.split("`")
    parts[::2] = [_ARGUMENT.sub(_option, _CALL.sub(r"\1", part)) for part in parts[::2]]
    wording = "`".join(parts)
    missing = _MISSING.search(wording)
    if missing is not None and "--facts" not in wording:
        wording += f"; give --facts {missing[1].replace(', ', '=VALUE ')}=VALUE"
    return wording


def _option(argument: re.Match[str]) -> str:
    name, value = argument.groups()
    if name == "framework" and value.strip("'\"") == "generic":
        return "--generic"
    if name == "version":
        return f"--framework NAME@{value.strip(chr(39))}"
    if value.startswith("{"):
        entries = [f"{key}={entry.strip()}" for key, entry in _ENTRY.findall(value)]
        value = f" {_OPTIONS[name]} ".join(entries or ["NAME=VALUE"])
    is_placeholder = value in ("directory", "…", "files", "facts")
    return f"{_OPTIONS[name]} {value.upper() if is_placeholder else value.strip(chr(39))}"

"""Scalars by the rules of YAML 1.1 and 1.2: numbers, booleans and nothing."""

from __future__ import annotations

import re

from closedform.recipes.documents.limits import MAX_DIGITS

_INTEGER = re.compile(r"[-+]?(0|[1-9][0-9_]*)")
_REAL = re.compile(r"[-+]?(\.[0-9]+|[0-9][0-9_]*(\.[0-9_]*)?)([eE][-+]?[0-9]+)?")
_NOT_FINITE = re.compile(r"[-+]?\.(inf|Inf|INF)|\.(nan|NaN|NAN)")


def is_real(text: str) -> bool:
    """Returns whether a text is a number of YAML 1.2, such as ``1e-5``."""
    return _REAL.fullmatch(text) is not None


def integer(text: str) -> int:
    """Returns a decimal integer.

    Raises:
        ValueError: It is not one, or has too many digits.
    """
    # 010 is 8 in YAML 1.1 and 10 in YAML 1.2: the pattern refuses a leading zero.
    if len(text) > MAX_DIGITS or not _INTEGER.fullmatch(text):
        raise ValueError(text)
    return int(text)


def real(text: str) -> float:
    """Returns a decimal number, an infinity, or not-a-number.

    Raises:
        ValueError: It is not one.
    """
    if _NOT_FINITE.fullmatch(text):
        # .inf and .nan of YAML are inf and nan in Python.
        return float(text.replace(".", "", 1))
    if not _REAL.fullmatch(text):
        raise ValueError(text)
    return float(text)


def word(text: str) -> int | float | bool | str:
    """Returns a word of a command line: a number, ``true`` or ``false`` in any case, or a text."""
    for kind in (integer, real):
        try:
            return kind(text)
        except ValueError:
            continue
    return {"true": True, "false": False}.get(text.lower(), text)

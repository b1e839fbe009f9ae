"""Arguments of claims as text in metadata, and back: numbers, words, expressions, conditions.

A file is read by who does not trust it: the text is in the small expression language of
``recipes.expressions``, and nothing is evaluated. An argument that has no such text, or one that
does not come back as the same term, makes a claim that a file can state, but not ask again.
"""

from __future__ import annotations

import re
from fractions import Fraction
from typing import Any

import sympy as sp
from sympy.logic.boolalg import Boolean

from closedform.errors import ClosedFormError
from closedform.language import exact_number
from closedform.language.printing import code
from closedform.language.symbols import internal_symbol, rationalize
from closedform.recipes.expressions import MAX_CHARACTERS, parse_function
from closedform.verify.terms.limits import LIMITS
from closedform.verify.terms.sympy_io import term

PREVIOUS = internal_symbol("previous", "recurrence", real=True)
"""The value before, in the step of a recurrence."""

_WORDS = frozenset({"direction", "dtype", "scalar_dtype"})
_CONDITIONS = frozenset({"where"})


def as_texts(**arguments: Any) -> dict[str, str] | None:
    """Returns arguments as text by name, without those that are None; None where one has no text.

    Example:
        >>> from closedform import t
        >>> as_texts(low=0.5, direction="increasing", where=t < 3)
        {'low': '1/2', 'direction': 'increasing', 'where': 't < 3'}
    """
    texts: dict[str, str] = {}
    for name, value in arguments.items():
        if value is None:
            continue
        text = str(value) if name in _WORDS else _text(value)
        if text is None:
            return None
        texts[name] = text
    return texts


def _text(value: Any) -> str | None:
    exact = rationalize(value) if isinstance(value, sp.Basic) else exact_number(value, "it")
    if exact.is_Rational:
        return str(exact)
    try:
        text = code(exact)
        back = _condition(text) if isinstance(exact, Boolean) else _expression(text)
        return text if len(text) <= MAX_CHARACTERS and term(back) == term(exact) else None
    except (ClosedFormError, ValueError):
        return None


def read_arguments(texts: Any) -> dict[str, Any]:
    """Returns the arguments of a claim from their texts.

    Raises:
        ValueError: The texts are of another form.
        DefinitionError: An expression is outside of the language.
    """
    if not isinstance(texts, dict) or not all(
        isinstance(argument, str) for argument in texts.values()
    ):
        raise ValueError(f"expected texts by name, got {type(texts).__name__}")
    return {name: _read(name, text) for name, text in texts.items()}


def _read(name: str, text: str) -> Any:
    if name in _WORDS:
        return text
    if name in _CONDITIONS:
        return _condition(text)
    if _FRACTION.fullmatch(text) is None:
        return _expression(text)
    number = exact_number(_number(text))
    return int(number) if number.is_Integer else number


def _expression(text: str) -> sp.Expr:
    return parse_function({"expr": text}, "a claim", names={"previous": PREVIOUS})


def _condition(text: str) -> sp.Basic:
    choice = _expression(f"where({text}, 1, 0)")
    if isinstance(choice, sp.Piecewise):
        return choice.args[0].cond
    return sp.true if choice == 1 else sp.false


_FRACTION = re.compile(r"[+-]?\d+(/\d+)?")


def _number(text: str) -> Fraction:
    """The number that an argument states: a whole one or a fraction.

    Raises:
        ValueError: It has more digits than are read.
    """
    if len(text) > LIMITS.stated_digits:
        raise ValueError(f"expected at most {LIMITS.stated_digits} digits, got {len(text)}")
    return Fraction(text)


__all__ = ["PREVIOUS", "as_texts", "read_arguments"]

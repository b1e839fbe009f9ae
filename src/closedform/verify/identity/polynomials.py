"""Terms as polynomials, by their canonical forms: whole numbers among them, numerators."""

from __future__ import annotations

import math

from flint import fmpq

from closedform.verify.identity.canonical import Canonical, NotCanonical
from closedform.verify.terms.quotients import Quotient, TooLarge, from_terms, number
from closedform.verify.terms.tree import Sign, Term


def _form(term: Term) -> tuple[Canonical, Quotient] | None:
    """The canonical form and the engine that made it; None where there is none."""
    engine = Canonical(lambda _: Sign.ANY)
    try:
        return engine, engine.of(term)
    except (TooLarge, ZeroDivisionError, NotCanonical):
        return None


def numerator(term: Term) -> Term | None:
    """Returns a polynomial that is 0 wherever a term is defined and 0; None where none is found."""
    found = _form(term)
    return None if found is None else _term(found[0], found[1].above)


def _term(engine: Canonical, polynomial: object) -> Term | None:
    try:
        return engine.term_of(Quotient(polynomial, number(fmpq(1)).below))
    except TooLarge:
        return None


def integral_scale(term: Term) -> int | None:
    """Returns an integer L >= 1 such that ``L * term`` is a polynomial in integers over integers.

    None where the term is not a polynomial in integer symbols.
    """
    found = _form(term)
    if found is None or not found[1].below.is_one():
        return None
    engine, form = found
    scale = 1
    for exponents, coefficient in form.above.to_dict().items():
        if not _is_integer(engine, exponents):
            return None
        scale = math.lcm(scale, int(fmpq(coefficient).q))
    return scale


def whole_part(term: Term) -> tuple[Term, Term] | None:
    """Returns a polynomial as an integer and the rest; None where no part is surely an integer."""
    found = _form(term)
    if found is None or not found[1].below.is_one():
        return None
    engine, form = found
    parts: dict[bool, dict[tuple[int, ...], fmpq]] = {True: {}, False: {}}
    for exponents, coefficient in form.above.to_dict().items():
        is_whole = _is_integer(engine, exponents) and fmpq(coefficient).q == 1
        parts[bool(is_whole)][exponents] = fmpq(coefficient)
    whole, rest = (_term(engine, from_terms(parts[kind]).above) for kind in (True, False))
    return None if not parts[True] or whole is None or rest is None else (whole, rest)


def _is_integer(engine: Canonical, exponents: tuple[int, ...]) -> bool:
    """Whether a monomial is a product of integers."""
    return all(not times or index in engine.whole for index, times in enumerate(exponents))

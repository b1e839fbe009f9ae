"""Sums of products of facts that are 0 > 0: found by linear arithmetic, exactly."""

from __future__ import annotations

import itertools
from collections.abc import Iterable, Sequence
from dataclasses import dataclass

from flint import fmpq

from closedform.effort import Effort
from closedform.verify.checker.polynomials import (
    UNIT,
    Monomial,
    Polynomial,
    constant,
    constant_of,
    product,
)
from closedform.verify.checker.replay import Literal
from closedform.verify.search.solver import Solver, has_long_numbers, print_sum

_MOST_COLUMNS = 260
_UNITS = 1_000_000


@dataclass(frozen=True, slots=True)
class Column:
    """A product of facts and a square, or a multiple of an equation."""

    form: Polynomial
    facts: tuple[int, ...]
    square: Polynomial | None = None
    factor: Monomial | None = None
    is_strict: bool = False


@dataclass(frozen=True, slots=True)
class Combination:
    """Columns with their numbers; the sum is 0."""

    parts: tuple[tuple[fmpq, Column], ...]


def combine(
    solver: Solver,
    literals: Sequence[tuple[int, Literal]],
    effort: Effort,
    degree: int = 2,
    bases: Iterable[Polynomial] = (),
    columns: Sequence[Column] = (),
) -> Combination | None:
    """Returns a combination of facts that is a contradiction, or None.

    Args:
        solver: The context of its questions.
        literals: Relations with the places of their facts.
        effort: The work that it may do.
        degree: How many facts may be multiplied.
        bases: Numbers of which a square may be a factor, besides the monomials.
        columns: Further products.
    """
    inequalities = [(i, lit) for i, lit in literals if lit.relation in (">", ">=")]
    equations = [(i, lit) for i, lit in literals if lit.relation == "="]
    columns = [Column(constant(1), (), is_strict=True), *columns]
    columns += [Column(lit.form, (i,), is_strict=lit.relation == ">") for i, lit in inequalities]
    columns += [Column(lit.form, (i,), factor=UNIT) for i, lit in equations]
    combination = _solve(solver, columns, effort)
    if combination is not None or degree < 2:
        return combination
    varying = [(i, lit) for i, lit in inequalities if constant_of(lit.form) is None]
    # Short facts first: those that were cleared of quotients are among them.
    varying.sort(key=lambda item: sum(sum(e for _, e in m) for m in item[1].form))
    columns += [
        Column(product(a.form, b.form), (i, j), is_strict=a.relation == b.relation == ">")
        for (i, a), (j, b) in itertools.combinations_with_replacement(varying[:16], 2)
        if len(a.form) * len(b.form) < 400
    ]
    monomials = monomials_by_use(literals)
    bases = [*bases]
    columns += [
        Column(product(lit.form, {monomial: fmpq(1)}), (i,), factor=monomial)
        for i, lit in equations
        for monomial in dict.fromkeys((*quotients(lit.form, literals), *monomials[:12]))
    ]
    squares = [*bases, *({monomial: fmpq(1)} for monomial in monomials)][:24]
    columns += [Column(product(base, base), (), square=base) for base in squares]
    columns += [
        Column(product(product(base, base), lit.form), (i,), square=base)
        for base in squares[:10]
        for i, lit in varying[:12]
    ]
    combination = _solve(solver, columns[:_MOST_COLUMNS], effort)
    if combination is not None or degree < 3:
        return combination
    place = len(columns)
    columns += [
        Column(
            product(product(a.form, b.form), c.form),
            (i, j, k),
            is_strict=a.relation == b.relation == c.relation == ">",
        )
        for (i, a), (j, b), (k, c) in itertools.combinations(varying[:9], 3)
        if len(a.form) * len(b.form) * len(c.form) < 400
    ]
    # A sum of squares weighted by numbers above 0, as r lr (g + p)**2 with the facts r > 0, lr > 0.
    columns[place:place] = [
        Column(product(product(base, base), product(a.form, b.form)), (i, j), square=base)
        for base in bases[:8]
        for (i, a), (j, b) in itertools.combinations(varying[:9], 2)
        if len(base) ** 2 * len(a.form) * len(b.form) < 400
    ]
    return _solve(solver, columns[: 2 * _MOST_COLUMNS], effort)


def quotients(equation: Polynomial, literals: Sequence[tuple[int, Literal]]) -> list[Monomial]:
    """Returns the multipliers by which a monomial of an equation cancels one of a relation."""
    counts: dict[Monomial, int] = {}
    for monomial in equation:
        if not monomial:
            continue
        for _, literal in literals:
            for multiple in literal.form:
                quotient = quotient_of(multiple, monomial)
                if quotient is not None and multiple != monomial:
                    counts[quotient] = counts.get(quotient, 0) + 1
    return sorted(counts, key=lambda quotient: -counts[quotient])[:16]


def quotient_of(monomial: Monomial, divisor: Monomial) -> Monomial | None:
    """Returns the monomial by which another one is multiplied to give one, or None."""
    if not divisor:
        return monomial
    exponents = dict(monomial)
    for atom, exponent in divisor:
        difference = exponents.get(atom, 0) - exponent
        if difference < 0:
            return None
        if difference:
            exponents[atom] = difference
        else:
            del exponents[atom]
    # In the order of the monomial, which is that of the atoms.
    return tuple(exponents.items())


def monomials_by_use(literals: Iterable[tuple[int, Literal]]) -> list[Monomial]:
    """Returns the atoms and the products that stand in some relations, the most frequent first."""
    counts: dict[Monomial, int] = {}
    for _, literal in literals:
        for monomial in literal.form:
            for atom, _ in monomial:
                counts[((atom, 1),)] = counts.get(((atom, 1),), 0) + 2
            if len(monomial) > 1:
                counts[monomial] = counts.get(monomial, 0) + 1
    return sorted(counts, key=lambda monomial: -counts[monomial])


def _solve(solver: Solver, columns: Sequence[Column], effort: Effort) -> Combination | None:
    if has_long_numbers(column.form for column in columns):
        return None
    names = [f"c{place}" for place in range(len(columns))]
    rows: dict[Monomial, list[tuple[fmpq, str]]] = {}
    for name, column in zip(names, columns, strict=True):
        for monomial, value in column.form.items():
            rows.setdefault(monomial, []).append((value, name))
    with solver.question() as question:
        for name, column in zip(names, columns, strict=True):
            question.declare(name)
            # Multiples of equations may have any sign.
            if column.factor is None:
                question.state(f"(>= {name} 0.0)")
        for parts in rows.values():
            question.state(f"(= {print_sum(parts)} 0.0)")
        # A strict part makes the sum 0 > 0; multiples of a combination are combinations, so that
        # their sum may be set to 1.
        strict = [
            (fmpq(1), name) for name, column in zip(names, columns, strict=True) if column.is_strict
        ]
        question.state(f"(= {print_sum(strict)} 1.0)")
        values = question.values() if question.check(effort, _UNITS) else None
    if values is None:
        return None
    weights = zip((values.get(name, fmpq(0)) for name in names), columns, strict=True)
    return Combination(tuple((weight, column) for weight, column in weights if weight != 0))

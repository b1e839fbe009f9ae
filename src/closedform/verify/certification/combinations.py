"""Sums of products of facts that are 0 > 0: found by linear arithmetic, exactly."""

from __future__ import annotations

import itertools
from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from typing import Any

from flint import fmpq

from closedform.effort import Effort, spend
from closedform.verify.certification.solver import (
    has_long_numbers,
    spend_units,
    units_of,
    z3,
)
from closedform.verify.checker.polynomials import (
    UNIT,
    Monomial,
    Polynomial,
    constant,
    constant_of,
    product,
)
from closedform.verify.checker.replay import Literal

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
    literals: Sequence[tuple[int, Literal]],
    effort: Effort,
    degree: int = 2,
    bases: Iterable[Polynomial] = (),
    columns: Sequence[Column] = (),
) -> Combination | None:
    """Returns a combination of facts that is a contradiction, or None.

    Args:
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
    combination = _solve(columns, effort)
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
    combination = _solve(columns[:_MOST_COLUMNS], effort)
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
    return _solve(columns[: 2 * _MOST_COLUMNS], effort)


def quotients(equation: Polynomial, literals: Sequence[tuple[int, Literal]]) -> list[Monomial]:
    """Returns the multipliers by which a monomial of an equation cancels one of a relation."""
    counts: dict[Monomial, int] = {}
    for monomial in equation:
        if not monomial:
            continue
        for _, literal in literals:
            for multiple in literal.form:
                exponents = dict(multiple)
                for atom, exponent in monomial:
                    exponents[atom] = exponents.get(atom, 0) - exponent
                if min(exponents.values()) >= 0 and multiple != monomial:
                    quotient = tuple((atom, e) for atom, e in sorted(exponents.items()) if e)
                    counts[quotient] = counts.get(quotient, 0) + 1
    return sorted(counts, key=lambda quotient: -counts[quotient])[:16]


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


def _solve(columns: Sequence[Column], effort: Effort) -> Combination | None:
    if has_long_numbers(column.form for column in columns):
        return None
    # A separate context: its answer does not depend on the questions before.
    context = z3.Context()
    solver = z3.SolverFor("QF_LRA", ctx=context)
    solver.set("rlimit", units_of(effort, _UNITS))
    numbers = [z3.Real(f"c{place}", context) for place in range(len(columns))]
    rows: dict[Monomial, list[Any]] = {}
    spend(10 * sum(len(column.form) for column in columns))
    for number, column in zip(numbers, columns, strict=True):
        # Multiples of equations may have any sign.
        if column.factor is None:
            solver.add(number >= 0)
        for monomial, value in column.form.items():
            rows.setdefault(monomial, []).append(
                z3.RealVal(f"{value.p}/{value.q}", context) * number
            )
    for parts in rows.values():
        solver.add(z3.Sum(parts) == 0)
    # A strict part makes the sum 0 > 0; multiples of a combination are combinations, so that their
    # sum may be set to 1.
    strict = [n for n, column in zip(numbers, columns, strict=True) if column.is_strict]
    solver.add(z3.Sum(strict) == 1)
    answer = solver.check()
    spend_units(solver)
    if answer != z3.sat:
        return None
    model = solver.model()
    weighted_columns = []
    for number, column in zip(numbers, columns, strict=True):
        value = model.eval(number, model_completion=True)
        weight = fmpq(value.numerator_as_long(), value.denominator_as_long())
        if weight != 0:
            weighted_columns.append((weight, column))
    return Combination(tuple(weighted_columns))

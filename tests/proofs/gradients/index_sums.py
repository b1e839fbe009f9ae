"""Tensors as sums over indices: ``y[i] = Σ over r of [condition]·number·x[f(i, r)]·w[h(i, r)]``.

Indices, sizes and conditions are terms of z3 over the integers, so that statements hold for all
sizes of a rank. Two sums of products are compared as functions of the indices of their tensors:
bound indices are eliminated by the equations that determine them.
"""

import itertools
import math
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field
from fractions import Fraction
from typing import Any

import z3

Index = Any
"""An integer of z3, or of Python."""

_LABELS = itertools.count()


def fresh(label: str = "r") -> Index:
    """Returns an index that no other term has."""
    return z3.Int(f"{label}!{next(_LABELS)}")


def plain(index: Any) -> Index:
    """An integer of z3 as one of Python if it is a number."""
    if isinstance(index, int):
        return index
    simple = z3.simplify(index)
    return simple.as_long() if z3.is_int_value(simple) else simple


@dataclass(frozen=True, slots=True)
class Access:
    """A power of a number of a tensor.

    Attributes:
        tensor: The name of the tensor; :data:`NUMBER` is the integer of the index itself.
        index: The index.
        power: The exponent.
        definition: The function of other tensors that the tensor is, unless it is an input.
    """

    tensor: str
    index: tuple[Index, ...]
    power: Fraction = Fraction(1)
    definition: Any = field(default=None, compare=False)


NUMBER = "number"
"""The tensor of all integers, whose element at i is i."""


@dataclass(frozen=True, slots=True)
class Summand:
    """``Σ over bound of [condition]·factor·Π accesses``.

    Attributes:
        factor: A number.
        accesses: The numbers of tensors that are multiplied.
        condition: A condition of z3.
        bound: The indices of the sum, with their sizes; an index is from 0 up to its size.
    """

    factor: Fraction
    accesses: tuple[Access, ...] = ()
    condition: Any = field(default_factory=lambda: z3.BoolVal(True))
    bound: tuple[tuple[Index, Index], ...] = ()


Sum = tuple[Summand, ...]


PLACE = "place of the "
"""The start of names of functions of z3 whose values are from 0 up to their last argument."""


def ranges_of_places(term: Any) -> list[Any]:
    """Returns the ranges of the places of extremes in a term of z3."""
    result = [range_ for child in term.children() for range_ in ranges_of_places(child)]
    if z3.is_app(term) and term.decl().name().startswith(PLACE):
        size = term.arg(term.num_args() - 1)
        result.append(z3.And(term >= 0, z3.Or(term < size, size < 1)))
    return result


def restrict(value: Sum, condition: Any) -> Sum:
    """Returns a sum where a condition holds, and 0 elsewhere."""
    condition = z3.simplify(condition)
    if z3.is_true(condition):
        return value
    if z3.is_false(condition):
        return ()
    return tuple(
        Summand(s.factor, s.accesses, z3.And(s.condition, condition), s.bound) for s in value
    )


def scale(value: Sum, factor: Fraction) -> Sum:
    """Returns a multiple of a sum."""
    return tuple(Summand(s.factor * factor, s.accesses, s.condition, s.bound) for s in value)


def product(first: Sum, second: Sum) -> Sum:
    """Returns the product of two sums; their bound indices are distinct."""
    return tuple(
        Summand(
            a.factor * b.factor,
            (*a.accesses, *b.accesses),
            z3.And(a.condition, b.condition),
            (*a.bound, *b.bound),
        )
        for a in first
        for b in second
    )


def total(term: Callable[[Index], Sum], size: Index) -> Sum:
    """Returns the sum of a term over an index from 0 up to a size."""
    if isinstance(size, int) and size == 1:
        return term(0)
    index = fresh()
    return tuple(
        Summand(s.factor, s.accesses, s.condition, (*s.bound, (index, size))) for s in term(index)
    )


@dataclass(frozen=True, slots=True)
class _Free:
    """A summand whose tensors have canonical indices: a condition on them."""

    key: tuple[str, ...]
    factor: Fraction
    condition: Any


def are_equal(first: Sum, second: Sum, assumptions: Sequence[Any]) -> str | None:
    """Returns None if two sums are equal for all tensors, else the reason why that is open.

    Args:
        first: A sum; all of its indices are bound.
        second: The other one.
        assumptions: What holds of the sizes and of integer tensors.
    """
    groups: dict[tuple[str, ...], list[tuple[Fraction, Any]]] = {}
    for sign, value in ((1, first), (-1, second)):
        for summand in value:
            parts = _canonical(summand)
            if parts is None:
                return f"an index of a sum is not determined: {summand.bound}"
            for free in parts:
                groups.setdefault(free.key, []).append((sign * free.factor, free.condition))
    # Monomials of unknown reals are independent: two sums are equal if the factors of each are.
    for key, pairs in groups.items():
        weights = [z3.If(condition, _real(factor), z3.RealVal(0)) for factor, condition in pairs]
        solver = z3.Solver()
        # Work, not time: a verdict does not depend on the machine.
        solver.set("rlimit", _WORK)
        difference = z3.Sum(weights)
        solver.add(*assumptions, *ranges_of_places(difference), difference != 0)
        outcome = solver.check()
        if outcome != z3.unsat:
            point = f", as at {solver.model()}" if outcome == z3.sat else ""
            return f"the factors of {'·'.join(key)} differ{point}"
    return None


_WORK = 20_000_000

_MOST_VALUES = 256
"""The most values of the indices that no equation determines."""


def _real(number: Fraction) -> Any:
    return z3.RealVal(str(number))


def _canonical(summand: Summand) -> list[_Free] | None:
    """Eliminates the bound indices; those of a known size that remain take each of their values."""
    accesses = sorted(summand.accesses, key=_name)
    ranges = [z3.And(index >= 0, index < size) for index, size in summand.bound]
    condition, equations = z3.And(summand.condition, *ranges), []
    for place, access in enumerate(accesses):
        for axis, index in enumerate(access.index):
            equations.append((z3.Int(f"{_name(access)}@{place}.{axis}"), index))
    bound = [index for index, _ in summand.bound]
    solved = True
    while bound and solved:
        solved = False
        for variable in list(bound):
            solution = solve(variable, [*equations, *equations_of(condition)])
            if solution is None:
                continue
            pair = (variable, z3.simplify(solution))
            equations = [(n, z3.substitute(_as_term(i), pair)) for n, i in equations]
            condition = z3.substitute(condition, pair)
            bound.remove(variable)
            solved = True
    places = dict(
        zip(
            ((p, axis) for p, access in enumerate(accesses) for axis in range(len(access.index))),
            (index for _, index in equations),
            strict=True,
        )
    )
    sizes = {str(index): size for index, size in summand.bound}
    lengths = [sizes[str(index)] for index in bound]
    if not all(isinstance(size, int) for size in lengths) or math.prod(lengths) > _MOST_VALUES:
        return None
    orders = _orders([_name(access) for access in accesses])
    frees = []
    for values in itertools.product(*map(range, lengths)):
        pairs = [(index, z3.IntVal(v)) for index, v in zip(bound, values, strict=True)]
        at = z3.simplify(z3.substitute(condition, *pairs))
        if not z3.is_false(at):
            key = tuple(map(_name, accesses))
            variables = {
                (place, axis): z3.Int(f"{key[place]}@{place}.{axis}")
                for place, access in enumerate(accesses)
                for axis in range(len(access.index))
            }
            matches = [
                variable == z3.substitute(_as_term(places[entry]), *pairs)
                for entry, variable in variables.items()
            ]
            for order in orders:
                # Conditions are in the variables of the places, too: all of them move.
                moves = [
                    (variables[order[place], axis], variable)
                    for (place, axis), variable in variables.items()
                ]
                # The mean over all orders of equal tensors: one form for a product that has no
                # order.
                factor = summand.factor / len(orders)
                frees.append(_Free(key, factor, z3.substitute(z3.And(at, *matches), *moves)))
    return frees


def _orders(names: Sequence[str]) -> list[tuple[int, ...]]:
    """The orders of factors that exchange equal names: their product has no order."""
    groups = [list(group) for _, group in itertools.groupby(range(len(names)), names.__getitem__)]
    return [
        tuple(itertools.chain(*parts))
        for parts in itertools.product(*map(itertools.permutations, groups))
    ]


def _name(access: Access) -> str:
    return access.tensor if access.power == 1 else f"{access.tensor}^{access.power}"


def _as_term(index: Index) -> Any:
    return z3.IntVal(index) if isinstance(index, int) else index


def equations_of(condition: Any) -> list[tuple[Any, Any]]:
    """Returns the equations of integers in a conjunction."""
    if z3.is_and(condition):
        return [pair for child in condition.children() for pair in equations_of(child)]
    if z3.is_eq(condition) and z3.is_int(condition.arg(0)):
        return [(condition.arg(0), condition.arg(1))]
    return []


def solve(variable: Any, equations: Sequence[tuple[Any, Any]]) -> Any | None:
    """Returns the value of an index that an equation determines in which its factor is 1 or -1."""
    for left, right in equations:
        excess = _as_term(left) - _as_term(right)
        at_zero = z3.simplify(z3.substitute(excess, (variable, z3.IntVal(0))))
        slope = z3.simplify(z3.substitute(excess, (variable, variable + 1)) - excess, som=True)
        linear = z3.simplify(excess - (slope * variable + at_zero), som=True)
        # Only 1 and -1 have inverses among integers.
        if z3.is_int_value(slope) and abs(slope.as_long()) == 1 and _is_zero(linear):
            return at_zero * -slope.as_long()
    return None


def _is_zero(term: Any) -> bool:
    return bool(z3.is_int_value(term) and term.as_long() == 0)

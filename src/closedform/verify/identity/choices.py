"""Choices on a run of steps: those that are made are made, and those that say the same are one.

Choices are comparisons, ``ite``, min, max, absolute values, signs and floors. By themselves they
are atoms to the identity engine, known by how they are written.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from fractions import Fraction

from flint import fmpq

from closedform.verify.identity.normal import float_at
from closedform.verify.terms import build, tree
from closedform.verify.terms.facts import NON_NEGATIVE, NON_POSITIVE
from closedform.verify.terms.tree import RELATIONS, Op, Sign, Term, walk
from closedform.verify.terms.trend import trend

_BY_RANGE = frozenset({Op.MINIMUM, Op.MAXIMUM, Op.ABSOLUTE, Op.LESS, Op.LESS_EQUAL})
_DECISIVE = {
    Op.LESS: {Sign.POSITIVE, *NON_POSITIVE},
    Op.LESS_EQUAL: {Sign.NEGATIVE, *NON_NEGATIVE},
}
_FUNCTIONS = frozenset({Op.MINIMUM, Op.MAXIMUM, Op.ABSOLUTE, Op.SIGN, Op.FLOOR})
_JUNCTIONS = frozenset({Op.AND, Op.OR})
_SHARED = RELATIONS | _FUNCTIONS | _JUNCTIONS | {Op.ITE}


def settle_choices(root: Term, clock: Term, first: int, last: int) -> Term:
    """Returns a term with the choices made that are the same at all steps of a run.

    They are made by the range of what they compare (``trend``), which is defined on the whole run:
    a cosine is from -1 to 1, so ``max(0, 1 + cos(pi u))`` is ``1 + cos(pi u)``.
    """
    if not any(node.op in _BY_RANGE for node in walk(root)):
        return root

    def sign_of(number: Term) -> Sign:
        movement = trend(number, clock, first, last)
        return Sign.ANY if movement is None else movement.sign

    def change(rebuilt: Term) -> Term:
        if rebuilt.op in (Op.MINIMUM, Op.MAXIMUM):
            sign = sign_of(build.subtract(*rebuilt.args))
            if sign is not Sign.ANY:
                # At equality either argument is the value.
                is_first = (sign in NON_NEGATIVE) == (rebuilt.op is Op.MAXIMUM)
                return rebuilt.args[0 if is_first else 1]
        elif rebuilt.op is Op.ABSOLUTE:
            sign = sign_of(*rebuilt.args)
            if sign is not Sign.ANY:
                return rebuilt.args[0] if sign in NON_NEGATIVE else build.negative(*rebuilt.args)
        elif rebuilt.op in (Op.LESS, Op.LESS_EQUAL):
            sign = sign_of(build.subtract(*reversed(rebuilt.args)))
            if sign in _DECISIVE[rebuilt.op]:
                return build.TRUE if sign in NON_NEGATIVE else build.FALSE
        return rebuilt

    return build.rewrite(root, change)


def has_choices(root: Term) -> bool:
    """Returns whether a term holds a choice."""
    return any(node.op in _SHARED for node in walk(root))


def with_shared_choices(
    left: Term,
    right: Term,
    are_same: Callable[[Term, Term], bool],
    is_defined: Callable[[Term], bool],
) -> tuple[Term, Term]:
    """Returns two terms with the choices that say the same written alike.

    1. A comparison is known by the difference of its sides, but for a factor: above 0, of an
       equality any but 0. An ``and`` or ``or`` is known by the set of its parts.
    2. ``ite(a < b, x, y)`` is ``max(x, y)`` or ``min(x, y)`` if ``x - y`` is a rational multiple of
       ``b - a`` and both are defined at every step.
    3. A function is known by its arguments, arguments of min and max in either order and but for a
       factor above 0. It stands for another one only if it is defined at every step: then both
       have its value.

    Args:
        left: A term.
        right: Another one.
        are_same: Whether two numbers are equal wherever they are defined.
        is_defined: Whether a number is defined at every step.
    """
    table = _Table(are_same, is_defined, _generic_points(left, right))
    return build.rewrite(left, table.entry), build.rewrite(right, table.entry)


_Values = tuple[float, ...]


@dataclass(slots=True)
class _Table:
    """The choices of two terms, by kind; values at points only save comparisons."""

    are_same: Callable[[Term, Term], bool]
    is_defined: Callable[[Term], bool]
    points: tuple[Mapping[str, fmpq], ...]
    entries: dict[Op, list[tuple[Term, _Values]]] = field(default_factory=dict)

    def entry(self, node: Term) -> Term:
        """Returns the first node that says what a node says."""
        rebuilt = self._as_extremum(node) if node.op is Op.ITE else node
        if rebuilt.op not in _SHARED:
            return rebuilt
        values = self._values(_measure(rebuilt))
        entries = self.entries.setdefault(rebuilt.op, [])
        for earlier, its_values in entries:
            if earlier == rebuilt or self._say_the_same(earlier, its_values, rebuilt, values):
                return earlier
            if rebuilt.op in (Op.MINIMUM, Op.MAXIMUM):
                factor = _ratio(values, its_values)
                if (
                    factor is not None
                    and factor > 0
                    and self._is_multiple(rebuilt, factor, earlier)
                ):
                    return build.multiply(build.rational(factor), earlier)
        entries.append((rebuilt, values))
        return rebuilt

    def _as_extremum(self, node: Term) -> Term:
        condition, then, otherwise = node.args
        if condition.op not in (Op.LESS, Op.LESS_EQUAL):
            return node
        distance = _measure(condition)
        gain = build.subtract(then, otherwise)
        factor = _ratio(self._values(gain), self._values(distance))
        if factor is None or not (self.is_defined(then) and self.is_defined(otherwise)):
            return node
        if not self.are_same(gain, build.multiply(build.rational(factor), distance)):
            return node
        return (build.maximum if factor > 0 else build.minimum)(then, otherwise)

    def _say_the_same(
        self, first: Term, its_values: _Values, second: Term, values: _Values
    ) -> bool:
        if first.op in _JUNCTIONS:
            return set(first.args) == set(second.args)
        if first.op in RELATIONS:
            factor = _ratio(its_values, values)
            if factor is None or (factor < 0 and first.op is not Op.EQUAL):
                return False
            multiple = build.multiply(build.rational(factor), _measure(second))
            return self.are_same(_measure(first), multiple)
        if _are_apart(its_values, values):
            return False
        if first.op is Op.ITE:
            is_same = first.args[0] == second.args[0] and all(
                map(self.are_same, first.args[1:], second.args[1:])
            )
        else:
            orders = [second.args, second.args[::-1]] if len(second.args) == 2 else [second.args]
            is_same = any(all(map(self.are_same, first.args, order)) for order in orders)
        return is_same and self.is_defined(first)

    def _is_multiple(self, node: Term, factor: fmpq, of: Term) -> bool:
        """Whether the arguments of an extremum are multiples of the arguments of another one."""
        multiples = [build.multiply(build.rational(factor), arg) for arg in of.args]
        orders = multiples, multiples[::-1]
        is_same = any(all(map(self.are_same, node.args, order)) for order in orders)
        return is_same and self.is_defined(of)

    def _values(self, number: Term) -> _Values:
        return tuple(float_at(number, point) for point in self.points)


def _measure(node: Term) -> Term:
    """The number that a choice is first known by: of a comparison what is above 0 or 0."""
    return build.subtract(*reversed(node.args)) if node.op in RELATIONS else node


def _are_apart(first: _Values, second: _Values) -> bool:
    """Whether two numbers surely differ; where one is undefined nothing is sure."""
    return any(
        not (math.isnan(x) or math.isnan(y) or math.isclose(x, y, rel_tol=1e-9, abs_tol=1e-12))
        for x, y in zip(first, second, strict=True)
    )


def _ratio(first: _Values, second: _Values) -> fmpq | None:
    """The rational number, not 0, that one number could be of another; None where none could."""
    quotients = [
        x / y
        for x, y in zip(first, second, strict=True)
        if not (math.isnan(x) or math.isnan(y)) and abs(y) > _TINY and abs(x) > _TINY
    ]
    if not quotients or not math.isclose(min(quotients), max(quotients), rel_tol=1e-9):
        return None
    quotient = min(quotients, key=abs)
    simple = Fraction(quotient).limit_denominator(_LARGEST_DENOMINATOR)
    if not math.isclose(simple, quotient, rel_tol=1e-9):
        return None
    return fmpq(simple.numerator, simple.denominator)


_TINY, _LARGEST_DENOMINATOR = 1e-30, 10**9


def _generic_points(*roots: Term) -> tuple[dict[str, fmpq], ...]:
    """Values of the symbols: whole for integers, of their sign, and different from one another."""

    def value(place: int, symbol: Term, start: int) -> fmpq:
        size = fmpq(2 * place + start, 1 if symbol.value.integer else 7)
        return -size if symbol.value.sign in NON_POSITIVE else size

    symbols = list(enumerate(tree.symbols(*roots).items()))
    return tuple(
        {name: value(place, symbol, start) for place, (name, symbol) in symbols}
        for start in (3, 14)
    )

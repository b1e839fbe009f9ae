"""Interval arithmetic on normal forms, with fractions as ends; None is an open end.

Ends are exact where the function is: a cosine at multiples of a third, a whole power, exp(0). Else
they are those of a ball of ``arb``, which holds the value. So a bound that is attained is shown.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable
from math import isqrt, lcm
from typing import TYPE_CHECKING, cast

from flint import arb, ctx, fmpq

from closedform.verify.checker.polynomials import Monomial, Polynomial, constant_of, plus

if TYPE_CHECKING:
    from closedform.verify.checker.replay import Facts, Replay

End = fmpq | None
Interval = tuple[End, End]
EVERYWHERE: Interval = (None, None)
_NOTHING: Interval = (fmpq(0), fmpq(0))
PRECISION = 96
_MOST_BITS = 400


def integer_bounds(replay: Replay, facts: Facts, symbol: int) -> tuple[int | None, int | None]:
    """Returns the least and the greatest value of an integer symbol by facts about only it."""
    low, high = Intervals(replay, facts).of_term(symbol)
    return None if low is None else int(low.ceil()), None if high is None else int(high.floor())


class Intervals:
    """The intervals of numbers where some facts hold."""

    def __init__(self, replay: Replay, facts: Facts) -> None:
        self.replay = replay
        self.forms = replay.forms
        self._atoms: dict[int, Interval] = {}
        self._terms: dict[int, Interval] = {}
        self._truths: dict[int, bool | None] = {}
        self.is_empty = False
        self._bounds = self._bounds_by(facts)

    def bound_by(self, fact: int) -> tuple[int, Interval] | None:
        """Returns the atom of a symbol and the interval that a fact about only it allows."""
        literal = self.replay.literal(fact)
        if literal is None or literal.relation == "!=":
            return None
        slopes = [(monomial, slope) for monomial, slope in literal.form.items() if monomial]
        if len(slopes) != 1:
            return None
        ((atom, exponent), *further), slope = slopes[0]
        if further or exponent != 1 or self.forms.atoms[atom][0] != "symbol":
            return None
        end = -literal.form.get((), fmpq(0)) / slope
        least, most = end, end
        if self.forms.is_integer(atom):
            is_strict = literal.relation == ">"
            least = fmpq(end.floor()) + 1 if is_strict else fmpq(end.ceil())
            most = fmpq(end.ceil()) - 1 if is_strict else fmpq(end.floor())
        is_equation = literal.relation == "="
        return atom, (
            least if is_equation or slope > 0 else None,
            most if is_equation or slope < 0 else None,
        )

    def _bounds_by(self, facts: Iterable[int]) -> dict[int, Interval]:
        bounds: dict[int, Interval] = {}
        for fact in facts:
            bound = self.bound_by(fact)
            if bound is None:
                continue
            atom, interval = bound
            low, high = bounds[atom] = _common(bounds.get(atom, EVERYWHERE), interval)
            if low is not None and high is not None and low > high:
                self.is_empty = True
                bounds[atom] = EVERYWHERE
        return bounds

    # --- numbers ---------------------------------------------------------------------------------

    def of_term(self, term: int) -> Interval:
        """Returns an interval that holds a number: of its normal form, and of its parts."""
        if term not in self._terms:
            whole = self.of(self.forms.of(term))
            self._terms[term] = _common(whole, self._of_parts(term))
        return self._terms[term]

    def _of_parts(self, term: int) -> Interval:
        """An interval by the intervals of the arguments.

        The normal form multiplies a product of sums out: each monomial then has its extremum at a
        different point.
        """
        op, args, _ = self.replay.terms.nodes[term]
        if op not in _OF_ONE and op not in _OF_TWO:
            return EVERYWHERE
        first, *further = (self.of_term(arg) for arg in args)
        if op in _OF_ONE:
            return _OF_ONE[op](first)
        for interval in further:
            first = _OF_TWO[op](first, interval)
        return _round_ends(first)

    def of(self, form: Polynomial) -> Interval:
        """Returns an interval that holds a polynomial."""
        total = _NOTHING
        self.replay.terms.work += 4 * len(form)
        for monomial, coefficient in form.items():
            total = _plus(total, _times(self._of_monomial(monomial), (coefficient, coefficient)))
        return _round_ends(_common(total, self._of_remainder(form)))

    def _of_remainder(self, form: Polynomial) -> Interval:
        """An interval by ``floor(a) = a - r``: that of t - 25 floor(t/25) is [0, 24]."""
        split = self.remainder_of(form)
        if split is None:
            return EVERYWHERE
        _, slope, replaced, least = split
        return _plus(self.of(replaced), _times((least, fmpq(0)), (slope, slope)))

    def remainder_of(self, form: Polynomial) -> tuple[int, fmpq, Polynomial, fmpq] | None:
        """Returns a floor, its factor, the form with the argument in its place, the least -r."""
        linear = [m for m in form if len(m) == 1 and m[0][1] == 1]
        floors = [m for m in linear if self.forms.atoms[m[0][0]][0] == "floor"]
        if not floors:
            return None
        # The arguments of an atom have smaller numbers, so that the recursion ends. Over integers
        # with the common divisor d, the remainder r is at most (d - 1) / d.
        monomial = max(floors)
        slope, argument = form[monomial], self.forms.arguments[monomial[0][0]][0]
        divisor = lcm(*(int(coefficient.q) for coefficient in argument.values()))
        is_whole = self.forms.is_whole(plus({}, argument, divisor))
        replaced = plus(plus(form, {monomial: slope}, -1), argument, slope)
        return monomial[0][0], slope, replaced, fmpq(1, divisor) - 1 if is_whole else fmpq(-1)

    def _of_monomial(self, monomial: Monomial) -> Interval:
        result: Interval = (fmpq(1), fmpq(1))
        for atom, exponent in monomial:
            result = _times(result, _whole_power(self._of_atom(atom), exponent))
        return result

    def _of_atom(self, atom: int) -> Interval:
        if atom not in self._atoms:
            self._atoms[atom] = _round_ends(self._make(atom))
        return self._atoms[atom]

    def _make(self, atom: int) -> Interval:
        op, _ = self.forms.atoms[atom]
        term = self.forms.terms_of_atoms[atom]
        _, args, value = self.replay.terms.nodes[term]
        self.replay.terms.work += 10
        if op == "symbol":
            return self._bounds.get(atom, EVERYWHERE)
        if op == "pi":
            return fmpq(314_159_265, 100_000_000), fmpq(314_159_266, 100_000_000)
        if op == "ite":
            return self._of_choice(term)
        if op == "lookup":
            return self._of_table(self.of_term(args[0]), cast("tuple[fmpq, ...]", value))
        return self._of_parts(term)

    def _of_table(self, index: Interval, table: tuple[fmpq, ...]) -> Interval:
        low, high = index
        if low is None or high is None or low < 0 or high > len(table) - 1:
            return EVERYWHERE
        entries = table[int(low.floor()) : int(high.ceil()) + 1]
        return min(entries), max(entries)

    def _of_choice(self, term: int) -> Interval:
        """The hull of the values that a chain of choices may have."""
        nodes = self.replay.terms.nodes
        ends: list[Interval] = []
        while nodes[term][0] == "ite":
            condition, then, otherwise = nodes[term][1]
            truth = self.truth(condition)
            if truth is not False:
                ends.append(self.of_term(then))
            if truth is True:
                return _hull(ends)
            term = otherwise
        return _hull([*ends, self.of_term(term)])

    # --- truths ----------------------------------------------------------------------------------

    def truth(self, truth: int) -> bool | None:
        """Returns whether a truth holds everywhere here or nowhere; None where that is open."""
        if truth not in self._truths:
            self._truths[truth] = self._decide(truth)
        return self._truths[truth]

    def _decide(self, truth: int) -> bool | None:
        op, args, _ = self.replay.terms.nodes[truth]
        if op in ("true", "false"):
            return op == "true"
        if op == "not":
            inner = self.truth(args[0])
            return None if inner is None else not inner
        if op in ("and", "or"):
            parts = [self.truth(arg) for arg in args]
            decisive = op == "or"
            if decisive in parts:
                return decisive
            return None if None in parts else not decisive
        form = self.forms.difference(args[1], args[0])
        number = constant_of(form)
        low, high = (number, number)
        if number is None:
            left, right = map(self.of_term, args)
            low, high = _common(self.of(form), _plus(right, _opposite(left)))
        if op == "=":
            if low == high == 0 and low is not None:
                return True
            is_apart = (low is not None and low > 0) or (high is not None and high < 0)
            return False if is_apart else None
        if low is not None and (low > 0 if op == "<" else low >= 0):
            return True
        return False if high is not None and (high <= 0 if op == "<" else high < 0) else None


def _plus(first: Interval, second: Interval) -> Interval:
    (a, b), (c, d) = first, second
    return None if a is None or c is None else a + c, None if b is None or d is None else b + d


def _common(first: Interval, second: Interval) -> Interval:
    lows = [low for low, _ in (first, second) if low is not None]
    highs = [high for _, high in (first, second) if high is not None]
    return max(lows, default=None), min(highs, default=None)


def _hull(intervals: list[Interval]) -> Interval:
    lows = [low for low, _ in intervals]
    highs = [high for _, high in intervals]
    return (
        None if None in lows else min(low for low in lows if low is not None),
        None if None in highs else max(high for high in highs if high is not None),
    )


def _round_ends(interval: Interval) -> Interval:
    """An interval with ends of few bits that holds this one."""
    low, high = interval
    if low is not None and _bits(low) > _MOST_BITS:
        low = _ends_of(low)[0]
    if high is not None and _bits(high) > _MOST_BITS:
        high = _ends_of(high)[1]
    return low, high


def _bits(number: fmpq) -> int:
    return int(number.p).bit_length() + int(number.q).bit_length()


def _ends_of(number: fmpq | arb) -> Interval:
    """The ends of a ball as fractions; none where it has none."""
    with ctx.workprec(PRECISION):
        ball = arb(number)
        if not ball.is_finite():
            return EVERYWHERE
        return _dyadic(ball.lower()), _dyadic(ball.upper())


def _dyadic(number: arb) -> fmpq | None:
    """The fraction of a finite end; None, an open one, where it has too many bits."""
    whole, shift = map(int, number.mid().man_exp())
    return None if whole.bit_length() + abs(shift) > 2**20 else fmpq(whole) * fmpq(2) ** shift


def _times(left: Interval, right: Interval) -> Interval:
    """The products of two intervals; an open end times 0 is 0."""
    if left == _NOTHING or right == _NOTHING:
        return fmpq(0), fmpq(0)
    (a, b), (c, d) = left, right
    if a is not None and b is not None and c is not None and d is not None:
        corners = (a * c, a * d, b * c, b * d)
        return min(corners), max(corners)
    if a is not None and c is not None and a >= 0 and c >= 0:
        return a * c, None if b is None or d is None else b * d
    if b is not None and b <= 0:
        return _opposite(_times(_opposite(left), right))
    if d is not None and d <= 0:
        return _opposite(_times(left, _opposite(right)))
    return EVERYWHERE


def _whole_power(base: Interval, exponent: int) -> Interval:
    low, high = base
    if exponent == 1:
        return base
    if exponent % 2 or (low is not None and low >= 0):
        return None if low is None else low**exponent, None if high is None else high**exponent
    if high is not None and high <= 0:
        return high**exponent, None if low is None else low**exponent
    if low is None or high is None:
        return fmpq(0), None
    return fmpq(0), max(low**exponent, high**exponent)


def _inverse(number: Interval) -> Interval:
    low, high = number
    if low is not None and low > 0:
        return fmpq(0) if high is None else 1 / high, 1 / low
    if high is not None and high < 0:
        return 1 / high, fmpq(0) if low is None else 1 / low
    return EVERYWHERE


def _cosine(turn: Interval) -> Interval:
    low, high = turn
    if low is None or high is None or high - low >= 2:
        return fmpq(-1), fmpq(1)
    ends = [*_cosine_at(low), *_cosine_at(high)]
    least, most = min(ends), max(ends)
    for whole in range(int(low.ceil()), int(high.floor()) + 1):
        most = fmpq(1) if whole % 2 == 0 else most
        least = fmpq(-1) if whole % 2 else least
    return max(least, fmpq(-1)), min(most, fmpq(1))


_COSINES = {0: fmpq(1), 2: fmpq(1, 2), 3: fmpq(0), 4: fmpq(-1, 2), 6: fmpq(-1), 8: fmpq(-1, 2),
            9: fmpq(0), 10: fmpq(1, 2)}  # fmt: skip
"""The rational cosines, by sixths of a half turn."""


def _cosine_at(turn: fmpq) -> tuple[fmpq, fmpq]:
    sixths = turn * 6
    if sixths.q == 1 and int(sixths.p) % 12 in _COSINES:
        exact = _COSINES[int(sixths.p) % 12]
        return exact, exact
    with ctx.workprec(PRECISION):
        low, high = _ends_of(arb(turn).cos_pi())
    return fmpq(-1) if low is None else low, fmpq(1) if high is None else high


def _exponential(number: Interval) -> Interval:
    low, high = number
    return _exp_at(low)[0] if low is not None else fmpq(0), (
        None if high is None else _exp_at(high)[1]
    )


_LARGEST = 10_000
"""Beyond it the exponential is between 0 and no end."""


def _exp_at(number: fmpq) -> Interval:
    if number == 0:
        return fmpq(1), fmpq(1)
    if number > _LARGEST:
        return fmpq(1), None
    if number < -_LARGEST:
        return fmpq(0), fmpq(1, 2**64)
    with ctx.workprec(PRECISION):
        return _ends_of(arb(number).exp())


def _log_at(number: fmpq) -> Interval:
    if number == 1:
        return fmpq(0), fmpq(0)
    with ctx.workprec(PRECISION):
        return _ends_of(arb(number).log())


def _logarithm(number: Interval) -> Interval:
    low, high = number
    if low is None or low <= 0:
        return EVERYWHERE
    return _log_at(low)[0], None if high is None else _log_at(high)[1]


_QUARTER = fmpq(11, 7)
"""A number above pi/2."""


def _atan_at(number: fmpq) -> Interval:
    if number == 0:
        return fmpq(0), fmpq(0)
    with ctx.workprec(PRECISION):
        return _ends_of(arb(number).atan())


def _arctangent(number: Interval) -> Interval:
    low, high = number
    return (
        -_QUARTER if low is None else _atan_at(low)[0],
        _QUARTER if high is None else _atan_at(high)[1],
    )


def _floor(number: Interval) -> Interval:
    low, high = number
    return None if low is None else fmpq(low.floor()), None if high is None else fmpq(high.floor())


def _power(base: Interval, exponent: Interval) -> Interval:
    """The power of a base that is not below 0: monotone in both, so extreme at corners."""
    (a, b), (x, y) = base, exponent
    if a is None or a < 0 or x is None or (a == 0 and x <= 0):
        return EVERYWHERE
    corners = [(p, q) for p in (a, b) if p is not None for q in (x, y) if q is not None]
    low, high = _hull([_power_at(p, q) for p, q in corners])
    # Towards an open end it grows without an end, or falls towards 0.
    if (b is None and x < 0) or (y is None and a < 1):
        low = fmpq(0)
    if (b is None and (y is None or y > 0)) or (y is None and (b is None or b > 1)):
        high = None
    return fmpq(0) if low is None else max(low, fmpq(0)), high


_MOST_EXACT = 4096


def _power_at(base: fmpq, exponent: fmpq) -> Interval:
    if base == 1 or exponent == 0:
        return fmpq(1), fmpq(1)
    if base == 0:
        return fmpq(0), fmpq(0)
    if exponent.q == 1 and abs(int(exponent.p)) * _bits(base) <= _MOST_EXACT:
        exact = base ** int(exponent.p)
        return exact, exact
    if exponent == fmpq(1, 2):
        root = fmpq(isqrt(int(base.p)), isqrt(int(base.q)))
        if root**2 == base:
            return root, root
    with ctx.workprec(PRECISION):
        number = arb(exponent) * arb(base).log()
    low, high = _ends_of(number)
    if low is None or high is None:
        return fmpq(0), None
    return _exp_at(low)[0], _exp_at(high)[1]


def _least(first: Interval, second: Interval) -> Interval:
    highs = [end for end in (first[1], second[1]) if end is not None]
    return _hull([first, second])[0], min(highs, default=None)


def _opposite(number: Interval) -> Interval:
    low, high = number
    return None if high is None else -high, None if low is None else -low


def _greatest(first: Interval, second: Interval) -> Interval:
    return _opposite(_least(_opposite(first), _opposite(second)))


def _size(number: Interval) -> Interval:
    least, most = _greatest(number, _opposite(number))
    return fmpq(0) if least is None else max(least, fmpq(0)), most


def _sign(number: Interval) -> Interval:
    low, high = number
    least = -1 if low is None or low < 0 else int(low > 0)
    return fmpq(least), fmpq(1 if high is None or high > 0 else -int(high < 0))


_OF_ONE: dict[str, Callable[[Interval], Interval]] = {
    "cospi": _cosine,
    "sinpi": lambda turn: _cosine(_plus(turn, (fmpq(-1, 2), fmpq(-1, 2)))),
    "exp": _exponential,
    "log": _logarithm,
    "atan": _arctangent,
    "floor": _floor,
    "abs": _size,
    "sign": _sign,
}
_OF_TWO: dict[str, Callable[[Interval, Interval], Interval]] = {
    "+": _plus,
    "*": _times,
    "/": lambda above, below: _times(above, _inverse(below)),
    "^": _power,
    "min": _least,
    "max": _greatest,
}

"""Constants: exact numbers whose rounded floats are the constants of a graph.

A graph has floats where its source has exact numbers: 1/10, pi/196000, log(999/1000). Each float is
the rounding of infinitely many exact numbers. ``Constants`` chooses one of them: a number of the
source, or the simplest rational that rounds to the float, or the simplest rational multiple of pi
or of another irrational number of the source, or the root of the simplest rational; if none is
simple, the shortest decimal.

The search proves nothing and need not: ball arithmetic checks that the number is in the interval
of the reals that round to the float (``rounding_interval``). The proof about a graph is then: with
each float constant replaced by a number at most half a unit in the last place away, the graph
equals its source. If no number of the source is found for a constant, another number of its
interval may be chosen; then the proof fails, and the verdict is UNKNOWN, never PROVED.

A number that is stored in two floats, its rounding and the rest, is in a much narrower interval
(``Constants.pair``; ``with_split_constants`` finds such pairs in a graph).
"""

from __future__ import annotations

from bisect import bisect_left, bisect_right
from collections.abc import Callable, Iterable, Iterator
from fractions import Fraction
from math import isqrt

import numpy as np
from flint import arb, fmpq

from closedform.ir import DType, Graph, Node
from closedform.ir import Op as GraphOp
from closedform.language.balls import bounds
from closedform.verify.terms import build
from closedform.verify.terms.evaluate import value as value_of
from closedform.verify.terms.fractions import bits, simplest_between
from closedform.verify.terms.from_graph import Constant
from closedform.verify.terms.limits import LIMITS
from closedform.verify.terms.tree import TRUTHS, Op, Term, walk

# Families of numbers of one size are distinguished by the bits of numerator and denominator. A
# number of neither family has about 53 bits in both (float64); fewer bits are not an accident.
_FEW_BITS = {DType.F64: 40, DType.F32: 18}
_MOST_BITS = {DType.F64: 48, DType.F32: 22}


def rounding_interval(number: float, dtype: DType) -> tuple[fmpq, fmpq]:
    """Returns the least and the greatest real that round to a float, both ends included.

    A float32 may have been rounded twice, to float64 first: its ends are half a unit of float64
    further out.

    Example:
        >>> rounding_interval(1.0, DType.F64)
        (18014398509481983/18014398509481984, 9007199254740993/9007199254740992)
    """
    value = dtype.numpy.type(number)
    ends = []
    for direction in (-np.inf, np.inf):
        with np.errstate(over="ignore"):
            neighbor = float(np.nextafter(value, value.dtype.type(direction)))
        is_largest = np.isinf(neighbor)  # its interval is as wide as on the other side
        if is_largest:
            neighbor = float(np.nextafter(value, value.dtype.type(-direction)))
        half = (build.exact(neighbor) - build.exact(float(value))) / 2
        end = build.exact(float(value)) + (-half if is_largest else half)
        if dtype is not DType.F64:
            # Exporters round a Fraction to float64 and that to float32.
            further = build.exact(float(np.spacing(np.float64(abs(number))))) / 2
            end += further if direction > 0 else -further
        ends.append(end)
    return ends[0], ends[1]


class Constants:
    """Exact numbers for the float constants of a graph; ``constants(value, dtype)`` is a term.

    ``constants.pair(low, high, dtype)`` is that of two floats, a rational number.

    Args:
        sources: Terms in which the numbers are looked for: the source of the graph.
        numbers: More numbers, such as the ends of the lines of the source.
        longest: Whether the number of the most digits is chosen where several are found, such as
            1/30 and 0.03333333333333333. Hyperparameters that were computed with floats, such as
            0.003 / 10 = 0.00030000000000000003, have many digits, and so has what is made of them.
        check: Called before each number is looked for; it may raise.

    Example:
        >>> from math import pi
        >>> constants = Constants()
        >>> constants(0.1, DType.F64), constants(pi / 196000, DType.F64)
        (1/10, (1/196000 * pi))
    """

    def __init__(
        self,
        sources: Iterable[Term] = (),
        numbers: Iterable[fmpq] = (),
        *,
        longest: bool = False,
        check: Callable[[], None] = lambda: None,
    ) -> None:
        self._longest = longest
        self._check = check
        self._known: dict[tuple[float, DType], Term] = {}
        self._irrationals: list[tuple[Term, fmpq, fmpq]] = []
        rationals, irrationals = _numbers(sources)
        exact_numbers = {*rationals, *numbers}
        self._rationals = sorted(exact_numbers | {-number for number in exact_numbers})
        self._operands = sorted({*self._rationals, fmpq(2)})
        for term in (build.PI, *irrationals, *(build.multiply(build.PI, x) for x in irrationals)):
            check()
            ends = enclosure(term)
            # Only numbers of known sign may divide the interval.
            if ends is not None and (ends[0] > 0 or ends[1] < 0):
                self._irrationals.append((term, *ends))

    def __call__(self, number: float, dtype: DType) -> Term:
        """Returns an exact number that rounds to a float; one of 16 bits is what it holds."""
        if dtype not in _FEW_BITS:
            return build.rational(number)
        key = number, dtype
        if key not in self._known:
            self._check()
            self._known[key] = self._recover(number, dtype)
        return self._known[key]

    def pair(self, low: float, high: float, dtype: DType) -> fmpq | None:
        """Returns the number that a rounded number and what rounding took from it stand for.

        It is ``high`` as it is held and a number that rounds to ``low``. None if ``low`` is not
        what rounding to ``high`` can take, or if no number of the source and none of few bits is
        found: then they are two constants.

        Example:
            >>> Constants().pair(-5.551115123125783e-18, 0.1, DType.F64)
            1/10
        """
        kind = dtype.numpy.type
        # Only a rest below half a unit of ``high`` disappears in the sum.
        if low == 0 or kind(low) + kind(high) != kind(high):
            return None
        high_value = build.exact(high)
        ends = rounding_interval(low, dtype)
        return self._rational(high_value + ends[0], high_value + ends[1], dtype)

    def _rational(self, low: fmpq, high: fmpq, dtype: DType) -> fmpq | None:
        """The simplest number of the source in an interval, or one of few bits."""
        simplest = simplest_between(low, high)
        candidates = _between(self._rationals, low, high)
        # Lowerings fold constants: 2 * height, end - start and 1 / steps are in no source.
        if not candidates and (self._longest or bits(simplest) > _FEW_BITS[dtype]):
            candidates = self._sums_and_products(low, high)
        if not candidates and bits(simplest) <= _FEW_BITS[dtype]:
            # Sums and products are looked for only where a proof without them fails.
            candidates = [simplest]
        choose = max if self._longest else min
        return choose(candidates, key=bits) if candidates else None

    def _recover(self, number: float, dtype: DType) -> Term:
        low, high = rounding_interval(number, dtype)
        rational = self._rational(low, high, dtype)
        if rational is not None:
            return build.rational(rational)
        simplest = simplest_between(low, high)
        multiples = [
            (bits(simplest_factor), position, build.multiply(build.rational(factor), term))
            for position, (term, simplest_factor, factor) in enumerate(self._multiples(low, high))
        ]
        plain = (bits(simplest), len(multiples), build.rational(simplest))
        candidates = [plain, _root(low, high, len(multiples) + 1), *multiples]
        short = [entry for entry in candidates if entry[0] <= _FEW_BITS[dtype]]
        best = min(candidates)
        if self._longest and short:
            # pi / 400 is also a 112th of pi * 0.280000000000000005. Angles have multiples of pi,
            # the first place, and whole numbers of steps; other constants have what is long.
            best = min(short, key=lambda entry: (entry[1] > 0, -_all_bits(entry[2])))
        # 53 bits in an interval of relative width 2**-53 are chance: no number of that length is
        # evidence.
        return best[2] if best[0] <= _MOST_BITS[dtype] else shortest_decimal(number, dtype)

    def _sums_and_products(self, low: fmpq, high: fmpq) -> list[fmpq]:
        """The result of one operation on two rational numbers of the source, or on one and 2."""
        if len(self._rationals) > 2 * LIMITS.combined_constants:
            return []
        combinations: set[fmpq] = set()
        for first in self._operands:
            combinations.update(
                first + second for second in _between(self._operands, low - first, high - first)
            )
            if first != 0:
                ends = sorted((low / first, high / first))
                combinations.update(first * second for second in _between(self._operands, *ends))
                ends = sorted((low * first, high * first))
                combinations.update(second / first for second in _between(self._operands, *ends))
        return sorted(combinations)

    def _multiples(self, low: fmpq, high: fmpq) -> Iterator[tuple[Term, fmpq, fmpq]]:
        """The multiple of each irrational number that is surely in an interval.

        Each comes with the simplest factor, and with that which is chosen.
        """
        for term, *ends in self._irrationals:
            quotients = [(low / end, high / end) for end in ends]
            # Inside for both ends of the enclosure, so for the irrational number itself.
            least = max(min(pair) for pair in quotients)
            greatest = min(max(pair) for pair in quotients)
            if least <= greatest:
                simplest = simplest_between(least, greatest)
                has_choice = self._longest and term != build.PI
                factors = _between(self._rationals, least, greatest) if has_choice else []
                yield term, simplest, max(factors, key=bits, default=simplest)


def _all_bits(number: Term) -> int:
    """The bits of all rational numbers in a term, and one for each operation."""
    return sum(bits(node.value) if build.is_rational(node) else 1 for node in walk(number))


def _root(low: fmpq, high: fmpq, place: int) -> tuple[int, int, Term]:
    """The square root of the simplest rational whose root is in an interval, and its bits."""
    size = sorted((abs(low), abs(high)))
    square = simplest_between(size[0] * size[0], size[1] * size[1])
    root = build.square_root(build.rational(square))
    return bits(square), place, root if low > 0 else build.negative(root)


def shortest_decimal(number: float, dtype: DType) -> Term:
    """Returns the decimal of the fewest digits that rounds to a float, the one that its repr shows.

    A subnormal number has fewer bits, so that the digits of its repr may be off by 40 %, and is the
    number that it holds.

    Example:
        >>> shortest_decimal(0.30000000000000004, DType.F64)
        7500000000000001/25000000000000000
    """
    if abs(number) < float(dtype.limits.tiny):
        return build.rational(number)
    return build.rational(Fraction(str(dtype.numpy.type(number))))


def _between(numbers: list[fmpq], low: fmpq, high: fmpq) -> list[fmpq]:
    return numbers[bisect_left(numbers, low) : bisect_right(numbers, high)]


def _numbers(sources: Iterable[Term]) -> tuple[dict[fmpq, None], dict[Term, None]]:
    """The rational numbers of some terms, and the irrational ones that a lowering makes of them."""
    rationals: dict[fmpq, None] = {}
    irrationals: dict[Term, None] = {}
    constant: dict[Term, bool] = {}
    for node in walk(*sources):
        is_leaf = node.op in (Op.SYMBOL, Op.UNDEFINED, Op.TRUE, Op.FALSE, Op.OPAQUE)
        constant[node] = not is_leaf and all(constant[arg] for arg in node.args)
        if build.is_rational(node):
            rationals[node.value] = None
        elif constant[node] and node.op not in TRUTHS:
            number = _product_of_roots(node)
            if number is None:
                irrationals[node] = None
            else:
                rationals[number] = None
        elif node.op is Op.MULTIPLY:
            factors = [arg for arg in node.args if constant[arg]]
            if len(factors) > 1:
                irrationals[build.multiply(*factors)] = None
                square = _square_of_roots(factors)
                if square is not None:  # a lowering puts it under the root of another factor
                    rationals[square] = None
        elif node.op is Op.DIVIDE and node.args[1] in irrationals:
            irrationals[build.divide(build.ONE, node.args[1])] = None
        elif node.op is Op.POWER and constant[node.args[0]]:
            irrationals[build.log(node.args[0])] = None
        elif node.op is Op.POWER and constant[node.args[1]]:
            base, exponent = node.args
            factors = [arg for arg in base.args if constant[arg]] if base.op is Op.MULTIPLY else []
            irrationals.update(dict.fromkeys(build.power(arg, exponent) for arg in factors))
        elif node.op is Op.LOOKUP:
            rationals.update(dict.fromkeys(node.value))
    return rationals, irrationals


def _product_of_roots(node: Term) -> fmpq | None:
    """The rational number that a product of roots is, 100 of those of 10 and 1000; or None."""
    square = _square_of_roots(node.args) if node.op is Op.MULTIPLY else None
    if square is None:
        return None
    above, below = isqrt(int(square.p)), isqrt(int(square.q))
    if fmpq(above**2, below**2) != square:
        return None
    negatives = sum(build.is_rational(factor) and factor.value < 0 for factor in node.args)
    return fmpq(-above if negatives % 2 else above, below)


def _square_of_roots(factors: Iterable[Term]) -> fmpq | None:
    """The square of a product of rational numbers and their roots; None of other factors."""
    square = fmpq(1)
    for factor in factors:
        if build.is_rational(factor):
            square *= factor.value**2
        elif factor.op is Op.POWER and factor.args[1] == build.HALF:
            if not build.is_rational(factor.args[0]) or factor.args[0].value < 0:
                return None
            square *= factor.args[0].value
        else:
            return None
    return square


def with_split_constants(constants: Constants, graph: Graph) -> Constant:
    """Returns the reading of the constants of a graph in which two parts make one number.

    A lowering may compensate the rounding of a constant ``c``: it adds the rest ``low = c - fl(c)``
    first and ``high = fl(c)`` after it. In such a sum, ``(x + low) + high``, the high part
    represents exactly the number that it stores, and the low part the difference from ``c``. Each
    is within half a unit in its last place, like every constant, so a proof with them is not weaker
    than one without, and for ``c`` it is stronger: half a unit of the low part.

    A float represents one number in the whole graph. Where the high part represents another number
    elsewhere, or the low part belongs to two numbers, a proof fails, and the verdict is UNKNOWN.

    Args:
        constants: The exact number of a single float, and of two that make one number.
        graph: The graph.
    """
    parts: dict[tuple[float, DType], Term] = {}
    for low, high, dtype in _sums(graph):
        number = constants.pair(low, high, dtype)
        if number is not None:
            high_value = build.exact(high)
            parts[high, dtype] = build.rational(high_value)
            parts[low, dtype] = build.rational(number - high_value)

    def reading(number: float, dtype: DType) -> Term:
        part = parts.get((number, dtype))
        return constants(number, dtype) if part is None else part

    return reading


def _sums(graph: Graph) -> Iterator[tuple[float, float, DType]]:
    """The constants of each ``(x + low) + high``, and their dtype."""
    for node in graph.nodes:
        outer = _with_constant(graph, node)
        inner = None if outer is None else _with_constant(graph, outer[0])
        if outer is not None and inner is not None:
            yield inner[1], outer[1], node.type.dtype


def _with_constant(graph: Graph, node: Node) -> tuple[Node, float] | None:
    """A term and the float constant that is added to it."""
    if node.op is not GraphOp.ADD or not node.type.dtype.is_float:
        return None
    first, second = (graph.nodes[operand] for operand in node.operands)
    for part, rest in ((first, second), (second, first)):
        if part.op is GraphOp.CONST and part.array().size == 1:
            return rest, float(part.array().item())
    return None


def enclosure(term: Term) -> tuple[fmpq, fmpq] | None:
    """Returns a lower and an upper bound of a number; None if it is not defined or not decided."""
    value = value_of(term, {}, LIMITS.constant_precision)
    if isinstance(value, fmpq):
        return value, value
    return bounds(value) if isinstance(value, arb) else None

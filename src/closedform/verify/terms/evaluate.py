"""Exact values of terms: a fraction where the value is rational, else a ball that encloses it.

``value`` and ``holds`` evaluate at one point, branch by branch, and an ``Evaluator`` at many.
``compile_steps`` makes a function of the step, for the values of one term at many steps. All take
the meaning of each operation from one table.

Nothing is guessed. A comparison that a ball cannot decide is undecided and is evaluated again with
more digits. The result of an operation outside its domain is ``Undefined``, neither a value nor an
error. Only the branch that is taken is evaluated; in ``and`` and ``or`` a decisive part
outweighs an undefined one, as in the language. Opaque functions of tensors take tensors
with one element.
"""

from __future__ import annotations

import math
from collections import Counter
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, replace
from typing import Any

from flint import arb, ctx, fmpq, fmpz

from closedform.effort import spend
from closedform.errors import VerificationError
from closedform.language.balls import ball_precision, whole_number
from closedform.verify.terms import exact_zero
from closedform.verify.terms import tensor_functions as functions
from closedform.verify.terms.build import is_satisfied, rational, subtract
from closedform.verify.terms.limits import LIMITS
from closedform.verify.terms.linear import LinearForm, linear_forms
from closedform.verify.terms.tree import RELATIONS, Op, Term, walk

# Bits, each four times those before: most comparisons are decided at 64, and one that 1024 bits
# leave open is probably an equality.
PRECISIONS = (64, 256, 1024)
# Units of work for one operation on fractions or balls.
_STEP = 3
# A bound on the bits of a step, for the length of fractions only.
_STEP_BITS = 64
# The exponential of a larger number stays undecided.
_LARGEST_EXPONENT = fmpq(2) ** 64


@dataclass(frozen=True, slots=True)
class Undefined:
    """The result of an operation outside its domain, on the path that is taken."""

    reason: str

    def __bool__(self) -> bool:
        raise TypeError("Undefined has no truth value")


class _Undecided:
    """The result that a ball is too wide for; asked again with more digits."""


_UNDECIDED = _Undecided()
_FAILURES = (Undefined, _Undecided)
Result = Any  # fmpq, arb, bool, Undefined or _Undecided


def value(term: Term, point: Mapping[str, Any], precision: int = 128) -> Any:
    """Returns the value of a term at one point; see ``Evaluator.value``."""
    return Evaluator(term).value(point, precision)


def holds(
    goal: Term, point: Mapping[str, fmpq], precisions: tuple[int, ...] = PRECISIONS
) -> bool | Undefined | None:
    """Returns whether a truth holds at one point; see ``Evaluator.holds``."""
    return Evaluator(goal).holds(point, precisions)


def text_of(number: fmpq | arb | Undefined, digits: int = 12) -> str:
    """Returns a value as text: a fraction of up to so many digits, any other number to 12."""
    if isinstance(number, Undefined):
        return f"undefined ({number.reason})"
    if isinstance(number, fmpq) and max(abs(number.p), number.q) < 10**digits:
        return str(number)
    return str(arb(number).str(12, radius=False))


class Evaluator:
    """A term with its parts numbered, for its values at one point or at many.

    A part is numbered when it is first needed: one of many branches costs nothing until it is
    taken. Equal parts have one number, by which their results are found: hashes of terms took a
    third of the time of a search for counterexamples.

    Args:
        root: The term.
    """

    __slots__ = ("_nodes", "_numbers", "_operands")

    def __init__(self, root: Term) -> None:
        self._numbers: dict[Term, int] = {root: 0}
        self._nodes: list[Term] = [root]
        self._operands: list[tuple[int, ...] | None] = [None]

    def value(self, point: Mapping[str, Any], precision: int = 128) -> Any:
        """Returns the exact fraction, a ball around the value, or Undefined.

        Where the ball stays too wide to decide a comparison in it, at 16 times the precision, it is
        the ball around all numbers. A point may hold balls, too: then the result holds the values
        at all numbers in them.
        """
        for bits in (precision, 4 * precision, 16 * precision):
            result = self._evaluate_at(point, bits)
            if result is not _UNDECIDED:
                return result
        return arb(0, float("inf"))

    def holds(
        self, point: Mapping[str, fmpq], precisions: tuple[int, ...] = PRECISIONS
    ) -> bool | Undefined | None:
        """Returns whether a truth holds at a point; Undefined; None where balls leave it open."""
        for bits in precisions:
            result = self._evaluate_at(point, bits)
            if result is not _UNDECIDED:
                return result if isinstance(result, Undefined) else bool(result)
        return None

    def _evaluate_at(self, point: Mapping[str, Any], bits: int) -> Result:
        with ball_precision(bits):
            return self._evaluate(point)

    def _evaluate(self, point: Mapping[str, Any]) -> Result:
        """Evaluates with a stack: missing operands of a part are pushed until none is missing."""
        # A stack and not recursion: sums of thousands of terms exceed Python's limit.
        nodes, operands, choice = self._nodes, self._operands, Op.ITE
        results: list[Result] = [None] * len(nodes)
        pending = [0]
        visits = 0
        while pending:
            visits += 1
            number = pending[-1]
            if results[number] is not None:
                pending.pop()
                continue
            node, args = nodes[number], operands[number]
            if args is None:
                args = self._number_operands(number)
                results.extend([None] * (len(nodes) - len(results)))
            if node.op is choice:
                missing, result = _step_choice(args, results)
            else:
                missing = [arg for arg in args if results[arg] is None]
                result = None if missing else _apply(node, [results[arg] for arg in args], point)
            if missing:
                pending.extend(missing)
            else:
                results[number] = result
                pending.pop()
        spend(_STEP * visits)
        return results[0]

    def _number_operands(self, number: int) -> tuple[int, ...]:
        numbers, nodes = self._numbers, self._nodes
        for node in nodes[number].args:
            if node not in numbers:
                numbers[node] = len(nodes)
                nodes.append(node)
                self._operands.append(None)
        args = tuple(numbers[node] for node in nodes[number].args)
        self._operands[number] = args
        return args


_JUNCTIONS = frozenset({Op.AND, Op.OR})


def _apply(node: Term, args: Sequence[Result], point: Mapping[str, Any]) -> Result:
    """The result of an operation, other than a choice, whose operands have results."""
    if node.op in _JUNCTIONS:
        return _join(node, args)
    failures = [arg for arg in args if isinstance(arg, _FAILURES)]
    if failures:
        # Undefined first: more digits do not change it.
        return next((arg for arg in failures if isinstance(arg, Undefined)), failures[0])
    return _check_size(_HANDLERS[node.op](node, args, point))


def apply_operation(node: Term, args: Sequence[Result]) -> Result:
    """Returns the result of an elementwise operation for the results of its operands.

    An operand may be ``Undefined`` or undecided; the branch that is not taken counts for nothing.
    """
    if node.op is Op.ITE:
        condition = args[0]
        if isinstance(condition, _FAILURES):
            return condition
        return args[1 if condition else 2]
    return _apply(node, args, {})


def is_decided(result: Result) -> bool:
    """Whether a result is a number, a ball or a truth."""
    return not isinstance(result, _FAILURES)


def greater(left: Result, right: Result) -> Result:
    """Returns the greater one of two numbers, or a ball around it."""
    for result in (left, right):
        if not is_decided(result):
            return result
    order = _compare(left, right)
    if isinstance(order, _Undecided):
        return _ball(left).max(_ball(right))
    return left if order >= 0 else right


def total_of(numbers: Sequence[Result]) -> Result:
    """Returns the sum of some numbers."""
    for number in numbers:
        if not is_decided(number):
            return number
    return _check_size(_add(_NO_TERM, list(numbers), {})) if numbers else fmpq(0)


def product_of(left: Result, right: Result) -> Result:
    """Returns the product of two numbers."""
    for number in (left, right):
        if not is_decided(number):
            return number
    return _check_size(_multiply(_NO_TERM, [left, right], {}))


_NO_TERM = Term(Op.UNDEFINED)


def _check_size(result: Result) -> Result:
    """A result, of which fractions are short and balls finite.

    A square of a square has four times the bits: after 30 of them a fraction would fill the memory.
    """
    if isinstance(result, fmpq):
        return arb(result) if result.height_bits() > LIMITS.number_bits else result
    return _UNDECIDED if isinstance(result, arb) and not result.is_finite() else result


def _step_choice(args: tuple[int, ...], results: Sequence[Result]) -> tuple[Sequence[int], Result]:
    """The operand of a choice that is needed next, or none and the result."""
    truth = results[args[0]]
    if truth is None:
        return args[:1], None
    if isinstance(truth, _FAILURES):
        return (), truth
    branch = args[1 if truth else 2]
    result = results[branch]
    return ((branch,), None) if result is None else ((), result)


def _join(node: Term, results: Sequence[Result]) -> Result:
    decisive = node.op is Op.OR
    # Three-valued logic: a decisive part outweighs an undefined one, whatever the order of the
    # parts.
    if decisive in results:
        return decisive
    # Undecided first: with more digits that part may turn out to be decisive.
    for kind in (_Undecided, Undefined):
        for result in results:
            if isinstance(result, kind):
                return result
    return not decisive


# --- arithmetic on fractions and balls -----------------------------------------------------------


def _ball(number: fmpq | arb) -> arb:
    return number if isinstance(number, arb) else arb(number)


def _sign(number: fmpq | arb) -> int | _Undecided:
    if isinstance(number, fmpq):  # comparing fractions costs more than looking at one numerator
        return 0 if not number else 1 if number.p > 0 else -1
    if number > 0:
        return 1
    if number < 0:
        return -1
    return 0 if number == 0 else _UNDECIDED


def _add(_: Term, args: Sequence[Any], __: Any) -> Result:
    total = args[0]
    for arg in args[1:]:
        are_alike = isinstance(total, arb) == isinstance(arg, arb)
        total = total + arg if are_alike else _ball(total) + _ball(arg)
    return total


def _multiply(_: Term, args: Sequence[Any], __: Any) -> Result:
    product = args[0]
    for arg in args[1:]:
        # 0 times a ball is exactly 0, also a ball that is not finite by too few digits.
        if _is_zero(product) or _is_zero(arg):
            product = fmpq(0)
        elif isinstance(product, arb) == isinstance(arg, arb):
            product = product * arg
        else:
            product = _ball(product) * _ball(arg)
    return product


def _is_zero(number: fmpq | arb) -> bool:
    return isinstance(number, fmpq) and number == 0


def _divide(node: Term, args: Sequence[Any], _: Any) -> Result:
    above, below = args
    below_sign = _sign(below)
    if below_sign == 0:
        return Undefined(f"division by zero: {node.args[1]} is 0")
    # The divisor may be 0: neither a value nor Undefined yet.
    if below_sign is _UNDECIDED:
        return _UNDECIDED
    if isinstance(above, fmpq) and isinstance(below, fmpq):
        return above / below
    return fmpq(0) if _is_zero(above) else _ball(above) / _ball(below)


def _power(node: Term, args: Sequence[Any], _: Any) -> Result:
    base, exponent = args
    if isinstance(exponent, fmpq) and exponent.q == 1:
        return _whole_power(node, base, int(exponent.p))
    base_sign = _sign(base)
    if base_sign is _UNDECIDED:
        return _UNDECIDED
    if base_sign == -1:
        return Undefined(f"a power of a negative number: {node.args[0]} is below 0")
    if base_sign == 0:
        exponent_sign = _sign(exponent)
        if exponent_sign == 1:
            return fmpq(0)
        return _UNDECIDED if exponent_sign is _UNDECIDED else Undefined("0 to a power below 0")
    if isinstance(base, fmpq) and isinstance(exponent, fmpq):
        # An exact root stays a fraction, of which comparisons are decided without digits.
        root = _exact_root(base, int(exponent.q))
        if root is not None:
            return _whole_power(node, root, int(exponent.p))
        if exponent == fmpq(1, 2):
            return arb(base).sqrt()
    return _exponential(_ball(base).log() * _ball(exponent))


def _whole_power(node: Term, base: Any, exponent: int) -> Result:
    if exponent == 0:
        return fmpq(1)
    base_sign = _sign(base)
    if exponent < 0:
        if base_sign == 0:
            return Undefined(f"0 to a power below 0: {node.args[0]} is 0")
        if base_sign is _UNDECIDED:
            return _UNDECIDED
    if isinstance(base, fmpq):
        bits = max(int(base.p).bit_length(), int(base.q).bit_length())
        if base in (0, 1, -1) or (bits - 1) * abs(exponent) < LIMITS.number_bits:
            # For 0, 1 and -1 only the parity of the exponent matters, however long it is.
            small = exponent if base not in (0, 1, -1) else exponent % 2 or 2
            return base**small if small > 0 else 1 / base**-small
    # arb takes exponents of a machine word; beyond, by way of the logarithm.
    if abs(exponent) < 2**62:
        return _ball(base) ** fmpz(exponent)
    if base_sign is _UNDECIDED:
        return _UNDECIDED
    size = _exponential(abs(_ball(base)).log() * exponent)
    return -size if base_sign == -1 and exponent % 2 and isinstance(size, arb) else size


def _exact_root(number: fmpq, degree: int) -> fmpq | None:
    """The rational ``degree``-th root of a number above 0, if it has one."""
    # Only perfect 65th powers and higher ones would have such a root.
    if degree > 64:
        return None
    roots = [fmpz(part).root(degree) for part in (number.p, number.q)]
    if roots[0] ** degree == number.p and roots[1] ** degree == number.q:
        return fmpq(roots[0], roots[1])
    return None


def _exponential(ball: arb) -> Result:
    return ball.exp() if abs(ball) < arb(_LARGEST_EXPONENT) else _UNDECIDED


# Niven's theorem: the cosines of rational angles that are rational are 0, ±1/2 and ±1.
_COSINES = {
    fmpq(0): fmpq(1),
    fmpq(1, 3): fmpq(1, 2),
    fmpq(1, 2): fmpq(0),
    fmpq(2, 3): fmpq(-1, 2),
    fmpq(1): fmpq(-1),
    fmpq(4, 3): fmpq(-1, 2),
    fmpq(3, 2): fmpq(0),
    fmpq(5, 3): fmpq(1, 2),
}


def _cosine(turns: Any) -> Result:
    if isinstance(turns, arb):
        return turns.cos_pi()
    if turns.q > 3:
        return arb.cos_pi_fmpq(turns)
    angle = turns - 2 * fmpq((turns / 2).floor())
    return _COSINES[angle]


def _sine(turns: Any) -> Result:
    # sin(x) = cos(x - pi/2): one table serves both.
    return turns.sin_pi() if isinstance(turns, arb) else _cosine(turns - fmpq(1, 2))


def _exp(_: Term, args: Sequence[Any], __: Any) -> Result:
    return fmpq(1) if _is_zero(args[0]) else _exponential(_ball(args[0]))


def _log(node: Term, args: Sequence[Any], _: Any) -> Result:
    number = args[0]
    number_sign = _sign(number)
    if number_sign is _UNDECIDED:
        return _UNDECIDED
    if number_sign != 1:
        return Undefined(f"log of a number that is not above 0: {node.args[0]}")
    return fmpq(0) if isinstance(number, fmpq) and number == 1 else _ball(number).log()


def _atan(_: Term, args: Sequence[Any], __: Any) -> Result:
    return fmpq(0) if _is_zero(args[0]) else _ball(args[0]).atan()


def _floor(node: Term, args: Sequence[Any], point: Mapping[str, fmpq]) -> Result:
    number = args[0]
    if isinstance(number, fmpq):
        return fmpq(number.floor())
    whole = whole_number(number.floor())
    if whole is not None:
        return fmpq(whole)
    # A ball around an integer, such as that of log(8)/log(2), always holds numbers below it.
    middle = whole_number((number.mid() + arb(0.5)).floor())
    if middle is None:
        return _UNDECIDED
    difference = subtract(node.args[0], rational(middle))
    return fmpq(middle) if _is_zero_by_theorem(difference, number - middle, point) else _UNDECIDED


def _is_zero_by_theorem(number: Term, ball: arb, point: Mapping[str, fmpq]) -> bool:
    """Whether a number is exactly 0; asked where a narrow ball around it holds 0."""
    is_narrow = ball.contains(0) and ball.abs_upper() < arb(2) ** -(ctx.prec // 3)
    return is_narrow and exact_zero.is_zero(number, point, value)


def _extreme(node: Term, args: Sequence[Any], _: Any) -> Result:
    left, right = args
    # Equal terms compare equal, even if their ball is too wide to show it.
    if node.args[0] == node.args[1]:
        return left
    order = _compare(left, right)
    if isinstance(order, _Undecided):
        lower = node.op is Op.MINIMUM
        return _ball(left).min(_ball(right)) if lower else _ball(left).max(_ball(right))
    return left if (order <= 0) == (node.op is Op.MINIMUM) else right


def _compare(left: Any, right: Any) -> int | _Undecided:
    if isinstance(left, fmpq) and isinstance(right, fmpq):
        return _sign(left - right)
    return _sign(_ball(left) - _ball(right))


def _relation(node: Term, args: Sequence[Any], point: Mapping[str, fmpq]) -> Result:
    order = 0 if node.args[0] == node.args[1] else _compare(*args)
    if isinstance(order, _Undecided):
        difference = subtract(*node.args)
        order = 0 if _is_zero_by_theorem(difference, args[0] - args[1], point) else order
    return order if isinstance(order, _Undecided) else is_satisfied(node.op, -order)


def _lookup(node: Term, args: Sequence[Any], _: Any) -> Result:
    index = args[0]
    if isinstance(index, arb):
        return _UNDECIDED
    if index.q != 1 or not 0 <= index < len(node.value):
        return Undefined(f"no entry {index} in a table of {len(node.value)}")
    return node.value[int(index.p)]


def _opaque(node: Term, args: Sequence[Any], point: Any) -> Result:
    """A function of tensors whose elements are all equal; without a shape, of one element."""
    if isinstance(node.value, functions.TensorFunction):
        factor = node.value.factor
        return _UNDECIDED if factor is None else _multiply(node, [fmpq(factor), *args], point)
    if node.value in functions.OF_ONE_ELEMENT:
        return args[0]
    return _multiply(node, args, point) if node.value == functions.MATMUL else _UNDECIDED


def _sign_of(node: Term, args: Sequence[Any], point: Mapping[str, fmpq]) -> Result:
    sign = _sign(args[0])
    if isinstance(sign, _Undecided) and _is_zero_by_theorem(node.args[0], args[0], point):
        return fmpq(0)
    return sign if isinstance(sign, _Undecided) else fmpq(sign)


def _symbol(node: Term, _: Any, point: Mapping[str, fmpq]) -> Result:
    if node.value.name not in point:
        raise VerificationError(
            f"{node.value.name} has no value among {', '.join(sorted(point)) or 'none'}",
            hint="give every symbol one",
        )
    return point[node.value.name]


_HANDLERS: Mapping[Op, Callable[[Term, Sequence[Any], Mapping[str, fmpq]], Result]] = {
    Op.RATIONAL: lambda node, args, point: node.value,
    Op.SYMBOL: _symbol,
    Op.PI: lambda node, args, point: arb.pi(),
    Op.UNDEFINED: lambda node, args, point: Undefined("no branch holds"),
    Op.ADD: _add,
    Op.MULTIPLY: _multiply,
    Op.DIVIDE: _divide,
    Op.POWER: _power,
    Op.COSPI: lambda node, args, point: _cosine(args[0]),
    Op.SINPI: lambda node, args, point: _sine(args[0]),
    Op.EXP: _exp,
    Op.LOG: _log,
    Op.ATAN: _atan,
    Op.FLOOR: _floor,
    Op.MINIMUM: _extreme,
    Op.MAXIMUM: _extreme,
    Op.ABSOLUTE: lambda node, args, point: abs(args[0]),
    Op.SIGN: _sign_of,
    Op.LOOKUP: _lookup,
    Op.OPAQUE: _opaque,
    Op.TRUE: lambda node, args, point: True,
    Op.FALSE: lambda node, args, point: False,
    Op.LESS: _relation,
    Op.LESS_EQUAL: _relation,
    Op.EQUAL: _relation,
    Op.NOT: lambda node, args, point: not args[0],
}


# --- one term at many steps ----------------------------------------------------------------------

PointFunction = Callable[[int], Any]


class UndecidedError(ValueError):
    """A ball is too wide to decide, or the term has no value: ``value`` tells which."""


def compile_steps(root: Term, clock: Term) -> PointFunction:
    """Returns a term as a function of the step; balls have the precision of the current context.

    The term is walked once and sums of multiples are combined exactly, which makes a million steps
    a matter of seconds. A part that occurs twice is evaluated once for a step. The function raises
    ``UndecidedError`` where ``value`` must decide.

    Args:
        root: A term in only the clock.
        clock: The symbol of the step.
    """
    forms = linear_forms(root)
    sums = {
        node: form for node, form in forms.items() if node == clock or node not in form.multiples
    }
    uses = Counter(
        arg
        for node in walk(root)
        for arg in (sums[node].other_coefficients(clock) if node in sums else node.args)
    )
    parts: dict[Term, _Part] = {}
    for node in walk(root):
        if node in sums:
            part = _compile_sum(sums[node], clock, parts)
        else:
            part = _compile_operation(node, clock, [parts[arg] for arg in node.args])
        parts[node] = _remember(part) if uses[node] > 1 and part.bits is None else part
    return parts[root].at


@dataclass(frozen=True, slots=True)
class _Part:
    """A term as a function of the step.

    Attributes:
        at: The function.
        is_exact: Whether all that it returns is exact.
        bits: A bound on the bits of numerator and denominator of a term that is linear in the
            clock; None for other terms.
    """

    at: PointFunction
    is_exact: bool
    bits: int | None = None


def _remember(part: _Part) -> _Part:
    """Returns a part that is evaluated once where it is asked several times for one step."""
    at = part.at
    latest: tuple[int | None, Any] = (None, None)

    def value_at(step: int) -> Any:
        nonlocal latest
        # One tuple, so that threads that share the function read a step with its value.
        pair = latest
        if pair[0] != step:
            latest = pair = step, at(step)
        return pair[1]

    return replace(part, at=value_at)


# Of exact operands these have exact values; the others may have balls.
_EXACT = frozenset(
    {Op.MULTIPLY, Op.DIVIDE, Op.MINIMUM, Op.MAXIMUM, Op.ABSOLUTE, Op.ITE, Op.FLOOR, Op.SIGN}
)
# Their values at a point where they jump are decided by theorems.
_JUMPS = RELATIONS | {Op.FLOOR, Op.SIGN}
_ALWAYS_EXACT = frozenset({Op.FLOOR, Op.SIGN, Op.LOOKUP})


def _compile_sum(form: LinearForm, clock: Term, parts: Mapping[Term, _Part]) -> _Part:
    """A constant and multiples of other parts; balls are added where one of these is a ball."""
    slope = form.slope(clock)
    line = _line(slope, form.constant)
    further_terms = [
        (multiple, parts[atom]) for atom, multiple in form.other_coefficients(clock).items()
    ]
    if not further_terms:
        numbers = (slope.p, slope.q, form.constant.p, form.constant.q)
        bits = _STEP_BITS + sum(int(number).bit_length() for number in numbers)
        return _Part(line, is_exact=True, bits=bits)
    if all(part.is_exact for _, part in further_terms):
        exact_parts = [(multiple, part.at) for multiple, part in further_terms]
        return _Part(
            lambda step: line(step) + sum(m * at(step) for m, at in exact_parts), is_exact=True
        )
    balls = [(arb(multiple), part.at) for multiple, part in further_terms]
    if slope != 0:
        return _Part(
            lambda step: sum((m * _ball(at(step)) for m, at in balls), arb(line(step))),
            is_exact=False,
        )
    constant = arb(form.constant)
    if len(balls) == 1:
        ((factor, single),) = balls
        return _Part(lambda step: constant + factor * _ball(single(step)), is_exact=False)
    return _Part(lambda step: sum((m * _ball(at(step)) for m, at in balls), constant), False)


def _line(slope: fmpq, constant: fmpq) -> PointFunction:
    if slope == 0:
        return lambda _: constant
    divisor = math.lcm(int(slope.q), int(constant.q))
    rise, start = int((slope * divisor).p), int((constant * divisor).p)
    return lambda step: fmpq(rise * step + start, divisor)


def _compile_operation(node: Term, clock: Term, args: list[_Part]) -> _Part:
    functions = [arg.at for arg in args]
    if node.op is Op.ITE:
        test, then, otherwise = functions
        are_exact = args[1].is_exact and args[2].is_exact
        return _Part(lambda step: then(step) if test(step) else otherwise(step), are_exact)
    if node.op in (Op.AND, Op.OR):
        junction = all if node.op is Op.AND else any
        return _Part(lambda step: junction(at(step) for at in functions), is_exact=True)
    direct = _compile_direct(node, args)
    if direct is not None:
        return direct
    handler, name = _HANDLERS[node.op], clock.value.name
    are_exact = node.op in _EXACT and all(arg.is_exact for arg in args)

    def at(step: int) -> Any:
        point = {name: fmpq(step)} if node.op in _JUMPS else {}
        return _require_decided(handler(node, [function(step) for function in functions], point))

    return _Part(at, are_exact or node.op in _ALWAYS_EXACT)


def _compile_direct(node: Term, args: list[_Part]) -> _Part | None:
    """The operations that schedules are made of, by one call of flint; None for all others.

    What is not defined becomes a ball that is not finite, or a ZeroDivisionError.
    """
    first = args[0].at if args else _line(fmpq(0), fmpq(0))
    are_exact = all(arg.is_exact for arg in args)
    if node.op in _DIRECT:
        of_exact, of_ball = _DIRECT[node.op]
        if are_exact:
            return _Part(lambda step: of_exact(first(step)), node.op is Op.FLOOR)
        return None if of_ball is None else _Part(lambda step: of_ball(_ball(first(step))), False)
    if node.op is Op.DIVIDE and are_exact:
        below = args[1].at
        return _Part(lambda step: first(step) / below(step), is_exact=True)
    if node.op is Op.MULTIPLY and len(args) == 2:
        second = args[1].at
        if are_exact:
            return _Part(lambda step: first(step) * second(step), is_exact=True)
        return _Part(lambda step: _ball(first(step)) * _ball(second(step)), is_exact=False)
    return _compile_power(node, args) if node.op is Op.POWER else None


_DIRECT: Mapping[Op, tuple[Callable[[Any], Any], Callable[[Any], Any] | None]] = {
    Op.COSPI: (arb.cos_pi_fmpq, arb.cos_pi),
    Op.SINPI: (arb.sin_pi_fmpq, arb.sin_pi),
    Op.EXP: (lambda number: arb(number).exp(), arb.exp),
    Op.LOG: (lambda number: arb(number).log(), arb.log),
    Op.ATAN: (lambda number: arb(number).atan(), arb.atan),
    Op.FLOOR: (lambda number: fmpq(number.floor()), None),
}


def _compile_power(node: Term, args: list[_Part]) -> _Part | None:
    """A whole power of a line; one with a constant base above 0, or an exponent that is not whole.

    All others are left to the handler.
    """
    base, exponent = node.args
    of_base, of_exponent = args[0].at, args[1].at
    if base.op is Op.RATIONAL and base.value > 0:
        logarithm = arb(base.value).log()
        return _Part(lambda step: (logarithm * _ball(of_exponent(step))).exp(), is_exact=False)
    if exponent.op is not Op.RATIONAL:
        return None
    if exponent.value.q == 1:
        whole, bits = int(exponent.value.p), args[0].bits
        is_short = bits is not None and 0 < whole * bits < LIMITS.number_bits
        return _Part(lambda step: of_base(step) ** whole, is_exact=True) if is_short else None
    if exponent.value == fmpq(1, 2):
        return _Part(lambda step: _ball(of_base(step)).sqrt(), is_exact=False)
    rate = arb(exponent.value)
    return _Part(lambda step: (_ball(of_base(step)).log() * rate).exp(), is_exact=False)


def _require_decided(result: Result) -> Any:
    if isinstance(result, _FAILURES):
        raise UndecidedError
    return result

"""Values of terms at a point: a fraction where it is rational, else a ball that holds the value.

Nothing is guessed. A comparison that a ball cannot decide is undecided and is asked again with
more digits; an operation outside its domain gives ``Undefined``, which is no value and no error.
Only the branch that is taken is evaluated; in ``and`` and ``or`` a part that decides outweighs an
undefined one, as in the language. Opaque functions of tensors are read on tensors of one element.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

from flint import arb, ctx, fmpq, fmpz

from closedform.errors import VerificationError
from closedform.verify.terms import tensor_functions as functions
from closedform.verify.terms.tree import Op, Term

PRECISIONS = (64, 256, 1024)
# Rational powers of more bits than this become balls; larger arguments of exp stay undecided.
_MOST_BITS = 20_000
_LARGEST_EXPONENT = fmpq(2) ** 40


@dataclass(frozen=True, slots=True)
class Undefined:
    """The result of an operation outside its domain, on the path that is taken."""

    reason: str

    def __bool__(self) -> bool:
        raise TypeError("undefined is no truth value")


class _Undecided:
    """The result that a ball is too wide for; asked again with more digits."""


_UNDECIDED = _Undecided()
Result = Any  # fmpq, arb, bool, Undefined or _Undecided


def value(term: Term, point: Mapping[str, Any], precision: int = 128) -> Any:
    """Returns the exact fraction, a ball around the value, or Undefined.

    Where the ball stays too wide to decide a comparison in it, at 16 times the precision, it is
    the ball around all numbers. A point may hold balls, too: then the result holds the values at
    all numbers in them.
    """
    for bits in (precision, 4 * precision, 16 * precision):
        result = _evaluate_at(term, point, bits)
        if result is not _UNDECIDED:
            return result
    return arb(0, float("inf"))


def holds(
    goal: Term, point: Mapping[str, fmpq], precisions: tuple[int, ...] = PRECISIONS
) -> bool | Undefined | None:
    """Returns whether a truth holds at a point; Undefined; or None where balls do not decide it."""
    for bits in precisions:
        result = _evaluate_at(goal, point, bits)
        if result is not _UNDECIDED:
            return result if isinstance(result, Undefined) else bool(result)
    return None


def _evaluate_at(term: Term, point: Mapping[str, Any], bits: int) -> Result:
    with ctx.workprec(bits):
        return _evaluate(term, point)


def _evaluate(root: Term, point: Mapping[str, Any]) -> Result:
    """Evaluates by a stack: what a node needs next is pushed until nothing is missing."""
    done: dict[Term, Result] = {}
    pending = [root]
    while pending:
        node = pending[-1]
        if node in done:
            pending.pop()
            continue
        missing, result = _step(node, done, point)
        if missing:
            pending.extend(missing)
        else:
            done[node] = result
            pending.pop()
    return done[root]


def _step(
    node: Term, done: dict[Term, Result], point: Mapping[str, Any]
) -> tuple[Sequence[Term], Result]:
    """The arguments that are needed next, or none and the result."""
    if node.op is Op.ITE:
        return _step_choice(node, done)
    if node.op in (Op.AND, Op.OR):
        return _step_junction(node, done)
    missing = [arg for arg in node.args if arg not in done]
    if missing:
        return missing, None
    args = [done[arg] for arg in node.args]
    for kind in (Undefined, _Undecided):
        for arg in args:
            if isinstance(arg, kind):
                return (), arg
    return (), _checked(_HANDLERS[node.op](node, args, point))


def _checked(result: Result) -> Result:
    return _UNDECIDED if isinstance(result, arb) and not result.is_finite() else result


def _step_choice(node: Term, done: dict[Term, Result]) -> tuple[Sequence[Term], Result]:
    condition = node.args[0]
    if condition not in done:
        return (condition,), None
    taken = done[condition]
    if isinstance(taken, Undefined | _Undecided):
        return (), taken
    branch = node.args[1 if taken else 2]
    return ((), done[branch]) if branch in done else ((branch,), None)


def _step_junction(node: Term, done: dict[Term, Result]) -> tuple[Sequence[Term], Result]:
    missing = [arg for arg in node.args if arg not in done]
    if missing:
        return missing, None
    results = [done[arg] for arg in node.args]
    decisive = node.op is Op.OR
    if decisive in results:
        return (), decisive
    for kind in (_Undecided, Undefined):
        for result in results:
            if isinstance(result, kind):
                return (), result
    return (), not decisive


# --- arithmetic on fractions and balls -----------------------------------------------------------


def _ball(number: fmpq | arb) -> arb:
    return number if isinstance(number, arb) else arb(number)


def _sign(number: fmpq | arb) -> int | _Undecided:
    if number > 0:
        return 1
    if number < 0:
        return -1
    return 0 if number == 0 else _UNDECIDED


def _add(_: Term, args: list[Any], __: Any) -> Result:
    total = args[0]
    for arg in args[1:]:
        same = isinstance(total, arb) == isinstance(arg, arb)
        total = total + arg if same else _ball(total) + _ball(arg)
    return total


def _multiply(_: Term, args: list[Any], __: Any) -> Result:
    product = args[0]
    for arg in args[1:]:
        if _is_zero(product) or _is_zero(arg):
            product = fmpq(0)
        elif isinstance(product, arb) == isinstance(arg, arb):
            product = product * arg
        else:
            product = _ball(product) * _ball(arg)
    return product


def _is_zero(number: fmpq | arb) -> bool:
    return isinstance(number, fmpq) and number == 0


def _divide(node: Term, args: list[Any], _: Any) -> Result:
    above, below = args
    below_sign = _sign(below)
    if below_sign == 0:
        return Undefined(f"division by zero: {node.args[1]} is 0")
    if below_sign is _UNDECIDED:
        return _UNDECIDED
    if isinstance(above, fmpq) and isinstance(below, fmpq):
        return above / below
    return fmpq(0) if _is_zero(above) else _ball(above) / _ball(below)


def _power(node: Term, args: list[Any], _: Any) -> Result:
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
        if base in (0, 1, -1) or (bits - 1) * abs(exponent) < _MOST_BITS:
            small = exponent if base not in (0, 1, -1) else exponent % 2 or 2
            return base**small if small > 0 else 1 / base**-small
    if abs(exponent) < 2**62:
        return _ball(base) ** fmpz(exponent)
    if base_sign is _UNDECIDED:
        return _UNDECIDED
    size = _exponential(abs(_ball(base)).log() * exponent)
    return -size if base_sign == -1 and exponent % 2 and isinstance(size, arb) else size


def _exact_root(number: fmpq, degree: int) -> fmpq | None:
    """The rational ``degree``-th root of a number above 0, if it has one."""
    if degree > 64:
        return None
    roots = [fmpz(part).root(degree) for part in (number.p, number.q)]
    if roots[0] ** degree == number.p and roots[1] ** degree == number.q:
        return fmpq(roots[0], roots[1])
    return None


def _exponential(ball: arb) -> Result:
    return ball.exp() if abs(ball) < arb(_LARGEST_EXPONENT) else _UNDECIDED


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
    reduced = turns - 2 * fmpq((turns / 2).floor())
    known = _COSINES.get(reduced)
    return arb.cos_pi_fmpq(reduced) if known is None else known


def _sine(turns: Any) -> Result:
    return turns.sin_pi() if isinstance(turns, arb) else _cosine(turns - fmpq(1, 2))


def _exp(_: Term, args: list[Any], __: Any) -> Result:
    return fmpq(1) if _is_zero(args[0]) else _exponential(_ball(args[0]))


def _log(node: Term, args: list[Any], _: Any) -> Result:
    number = args[0]
    number_sign = _sign(number)
    if number_sign is _UNDECIDED:
        return _UNDECIDED
    if number_sign != 1:
        return Undefined(f"log of a number that is not above 0: {node.args[0]}")
    return fmpq(0) if isinstance(number, fmpq) and number == 1 else _ball(number).log()


def _floor(node: Term, args: list[Any], point: Mapping[str, fmpq]) -> Result:
    if isinstance(args[0], fmpq):
        return fmpq(args[0].floor())
    whole = args[0].floor().unique_fmpz()
    if whole is not None:
        return fmpq(whole)
    inner = node.args[0]
    if inner.op is Op.DIVIDE and all(arg.op is Op.LOG for arg in inner.args):
        number, base = (_evaluate(arg.args[0], point) for arg in inner.args)
        if isinstance(number, fmpq) and isinstance(base, fmpq) and base > 1:
            return _whole_log(number, base, args[0])
    return _UNDECIDED


def _whole_log(number: fmpq, base: fmpq, estimate: arb) -> Result:
    """The greatest n with ``base^n <= number``, by exact comparison near a ball that is narrow."""
    guess = int(estimate.mid().floor().unique_fmpz() or 0)
    bits = max(int(base.p).bit_length(), int(base.q).bit_length())
    if not estimate.rad() < arb(1) or bits * (abs(guess) + 2) > _MOST_BITS:
        return _UNDECIDED
    return fmpq(max(n for n in range(guess - 2, guess + 3) if base**n <= number))


def _extreme(node: Term, args: list[Any], _: Any) -> Result:
    left, right = args
    if node.args[0] == node.args[1]:
        return left
    order = _compare(left, right)
    if isinstance(order, _Undecided):
        lower = node.op is Op.MINIMUM
        return _ball(left).min(_ball(right)) if lower else _ball(left).max(_ball(right))
    return left if (order <= 0) == (node.op is Op.MINIMUM) else right


def _compare(left: Any, right: Any) -> int | _Undecided:
    if isinstance(left, fmpq) and isinstance(right, fmpq):
        return (left > right) - (left < right)
    return _sign(_ball(left) - _ball(right))


def _relation(node: Term, args: list[Any], _: Any) -> Result:
    order = 0 if node.args[0] == node.args[1] else _compare(*args)
    if not isinstance(order, _Undecided):
        return {Op.LESS: order < 0, Op.LESS_EQUAL: order <= 0, Op.EQUAL: order == 0}[node.op]
    return _UNDECIDED


def _lookup(node: Term, args: list[Any], _: Any) -> Result:
    index = args[0]
    if isinstance(index, arb):
        return _UNDECIDED
    if index.q != 1 or not 0 <= index < len(node.value):
        return Undefined(f"no entry {index} in a table of {len(node.value)}")
    return node.value[int(index.p)]


def _opaque(node: Term, args: list[Any], point: Any) -> Result:
    """A function of tensors whose elements are all equal; without a shape, of one element."""
    if isinstance(node.value, functions.TensorFunction):
        factor = node.value.factor
        return _UNDECIDED if factor is None else _multiply(node, [fmpq(factor), *args], point)
    if node.value in functions.OF_ONE_ELEMENT:
        return args[0]
    return _multiply(node, args, point) if node.value == functions.MATMUL else _UNDECIDED


def _sign_of(_: Term, args: list[Any], __: Any) -> Result:
    found = _sign(args[0])
    return found if isinstance(found, _Undecided) else fmpq(found)


def _symbol(node: Term, _: Any, point: Mapping[str, fmpq]) -> Result:
    if node.value.name not in point:
        raise VerificationError(
            f"{node.value.name} has no value among {', '.join(sorted(point)) or 'none'}",
            hint="give every symbol one",
        )
    return point[node.value.name]


_HANDLERS: Mapping[Op, Callable[[Term, list[Any], Mapping[str, fmpq]], Result]] = {
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

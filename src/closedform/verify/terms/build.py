"""The constructors of terms, and substitution, which builds with them.

They fold rational constants and nothing else: no operation that may be undefined is ever lost.
"""

from __future__ import annotations

from collections.abc import Callable, Hashable, Iterable, Mapping, Sequence
from fractions import Fraction
from typing import Any

from flint import fmpq

from closedform.errors import VerificationError
from closedform.language.symbols import InternalName
from closedform.verify.terms.tree import Declared, Op, Sign, Term, fold, show, walk


def exact(value: Any, denominator: int = 1) -> fmpq:
    """Returns a rational number of any Python kind as an exact fraction.

    A float is the dyadic number that it holds; a SymPy Rational and a Fraction are themselves.
    """
    if isinstance(value, fmpq):
        return value / denominator
    if isinstance(value, float):
        value = Fraction(value)
    if hasattr(value, "numerator") and not callable(value.numerator):
        return fmpq(int(value.numerator), int(value.denominator) * denominator)
    return fmpq(int(value.p), int(value.q) * denominator)


def rational(value: Any, denominator: int = 1) -> Term:
    """Returns the constant ``value / denominator``."""
    return Term(Op.RATIONAL, (), exact(value, denominator))


ZERO, ONE, TWO = rational(0), rational(1), rational(2)
MINUS_ONE, HALF = rational(-1), rational(1, 2)
PI = Term(Op.PI)
UNDEFINED = Term(Op.UNDEFINED)
TRUE, FALSE = Term(Op.TRUE), Term(Op.FALSE)


def symbol(name: str, *, integer: bool = False, sign: Sign = Sign.ANY) -> Term:
    """Returns a symbol; its declaration is an assumption of every proof that it takes part in."""
    return Term(Op.SYMBOL, (), Declared(name, integer, sign))


def own_symbol(name: str, *, integer: bool = False, sign: Sign = Sign.ANY) -> Term:
    """Returns a symbol of the prover, which differs from every symbol of a schedule or a file.

    Example:
        >>> own_symbol("x") == symbol("x"), str(own_symbol("x"))
        (False, 'x')
    """
    return Term(Op.SYMBOL, (), Declared(InternalName(name, "prover"), integer, sign))


def is_rational(node: Term) -> bool:
    """Whether a term is a rational constant."""
    return node.op is Op.RATIONAL


def add(*terms: Term) -> Term:
    """Returns a sum; its rational constants are one, and a zero is left out."""
    # Only constants are folded: x - x stays, since x may be undefined.
    constant = sum((node.value for node in terms if is_rational(node)), fmpq(0))
    rest = tuple(node for node in terms if not is_rational(node))
    if constant != 0 or not rest:
        rest = (*rest, rational(constant))
    return rest[0] if len(rest) == 1 else Term(Op.ADD, rest)


def multiply(*terms: Term) -> Term:
    """Returns a product; its rational constants are one. ``0 * x`` stays: x may be undefined."""
    constant = fmpq(1)
    for node in terms:
        if is_rational(node):
            constant *= node.value
    rest = tuple(node for node in terms if not is_rational(node))
    if constant != 1 or not rest:
        rest = (rational(constant), *rest)
    return rest[0] if len(rest) == 1 else Term(Op.MULTIPLY, rest)


def negative(node: Term) -> Term:
    """Returns ``-node``."""
    return multiply(MINUS_ONE, node)


def subtract(left: Term, right: Term) -> Term:
    """Returns ``left - right``."""
    return add(left, negative(right))


def divide(left: Term, right: Term) -> Term:
    """Returns ``left / right``; by a rational constant other than 0 it is a product."""
    if is_rational(right) and right.value != 0:
        return multiply(rational(1 / right.value), left)
    return Term(Op.DIVIDE, (left, right))


def power(base: Term, exponent: Term) -> Term:
    """Returns ``base ^ exponent``; a negative whole exponent makes it a quotient.

    Rational constants are worked out where the exponent is whole and small.
    """
    if not is_rational(exponent):
        return Term(Op.POWER, (base, exponent))
    number = exponent.value
    if number == 1:
        return base
    if number < 0 and number.q == 1:
        return divide(ONE, power(base, rational(-number)))
    # Larger powers stay as they are: the digits of their numbers grow with the exponent.
    if is_rational(base) and number.q == 1 and number <= 64:
        return rational(base.value ** int(number.p))
    return Term(Op.POWER, (base, exponent))


def square_root(node: Term) -> Term:
    """Returns ``node ^ (1/2)``."""
    return power(node, HALF)


def cospi(node: Term) -> Term:
    """Returns ``cos(pi * node)``."""
    return Term(Op.COSPI, (node,))


def sinpi(node: Term) -> Term:
    """Returns ``sin(pi * node)``."""
    return Term(Op.SINPI, (node,))


def exp(node: Term) -> Term:
    """Returns ``e ^ node``."""
    return ONE if node == ZERO else Term(Op.EXP, (node,))


def log(node: Term) -> Term:
    """Returns the natural logarithm."""
    return ZERO if node == ONE else Term(Op.LOG, (node,))


def atan(node: Term) -> Term:
    """Returns the arctangent, between ``-pi/2`` and ``pi/2``."""
    return ZERO if node == ZERO else Term(Op.ATAN, (node,))


def floor(node: Term) -> Term:
    """Returns the greatest integer that is not above ``node``."""
    return rational(fmpq(node.value.floor())) if is_rational(node) else Term(Op.FLOOR, (node,))


def floor_divide(left: Term, right: Term) -> Term:
    """Returns ``floor(left / right)``."""
    return floor(divide(left, right))


def floor_modulo(left: Term, right: Term) -> Term:
    """Returns ``left - right * floor(left / right)``."""
    return add(left, multiply(MINUS_ONE, right, floor_divide(left, right)))


def minimum(*terms: Term) -> Term:
    """Returns the least of its terms, two by two."""
    return _fold_constants(terms, Op.MINIMUM, min)


def maximum(*terms: Term) -> Term:
    """Returns the greatest of its terms, two by two."""
    return _fold_constants(terms, Op.MAXIMUM, max)


def _fold_constants(terms: tuple[Term, ...], op: Op, choose: Callable[..., Any]) -> Term:
    result = terms[0]
    for node in terms[1:]:
        constants = is_rational(result) and is_rational(node)
        result = (
            rational(choose(result.value, node.value)) if constants else Term(op, (result, node))
        )
    return result


def absolute(node: Term) -> Term:
    """Returns ``|node|``."""
    return rational(abs(node.value)) if is_rational(node) else Term(Op.ABSOLUTE, (node,))


def sign(node: Term) -> Term:
    """Returns -1, 0 or 1."""
    if is_rational(node):
        return rational((node.value > 0) - (node.value < 0))
    return Term(Op.SIGN, (node,))


def ite(condition: Term, then: Term, otherwise: Term) -> Term:
    """Returns ``then`` where the condition holds, else ``otherwise``; only one is evaluated."""
    if condition.op is Op.TRUE:
        return then
    return otherwise if condition.op is Op.FALSE else Term(Op.ITE, (condition, then, otherwise))


def alternatives(node: Term) -> list[tuple[Term, Term]]:
    """Returns conditions that cover everything, each with the value of a choice where it holds.

    Args:
        node: An ite, a minimum, a maximum, an absolute value or a sign.
    """
    match node.op:
        case Op.ITE:
            condition, then, otherwise = node.args
            return [(condition, then), (negate(condition), otherwise)]
        case Op.MINIMUM:
            left, right = node.args
            return [(less_equal(left, right), left), (less(right, left), right)]
        case Op.MAXIMUM:
            left, right = node.args
            return [(less_equal(right, left), left), (less(left, right), right)]
        case Op.ABSOLUTE:
            (number,) = node.args
            return [(less_equal(ZERO, number), number), (less(number, ZERO), negative(number))]
        case _:
            (number,) = node.args
            at_zero = equal(number, ZERO), ZERO
            return [(less(ZERO, number), ONE), (less(number, ZERO), MINUS_ONE), at_zero]


def as_choice(node: Term) -> Term:
    """Returns a minimum, a maximum, an absolute value or a sign as a choice by its conditions."""
    *branches, (_, result) = alternatives(node)
    for condition, value in reversed(branches):
        result = ite(condition, value, result)
    return result


def lookup(table: Sequence[Any], index: Term) -> Term:
    """Returns ``table[index]`` of a table of rational numbers; the index is an integer in it."""
    return Term(Op.LOOKUP, (index,), tuple(exact(value) for value in table))


def opaque(name: Hashable, *args: Term) -> Term:
    """Returns a function of which only this is known: equal arguments give equal values."""
    return Term(Op.OPAQUE, args, name)


def less(left: Term, right: Term) -> Term:
    """Returns ``left < right``."""
    return _relation(Op.LESS, left, right)


def less_equal(left: Term, right: Term) -> Term:
    """Returns ``left <= right``."""
    return _relation(Op.LESS_EQUAL, left, right)


def equal(left: Term, right: Term) -> Term:
    """Returns ``left = right``."""
    return _relation(Op.EQUAL, left, right)


def _relation(op: Op, left: Term, right: Term) -> Term:
    if is_rational(left) and is_rational(right):
        return TRUE if is_satisfied(op, right.value - left.value) else FALSE
    return Term(op, (left, right))


def is_satisfied(op: Op, difference: fmpq | int) -> bool:
    """Returns whether ``0 op difference`` holds."""
    if op is Op.EQUAL:
        return bool(difference == 0)
    return bool(difference > 0 if op is Op.LESS else difference >= 0)


def both(*goals: Term) -> Term:
    """Returns the conjunction of any number of goals; of none it is true."""
    return _junction(goals, Op.AND, TRUE, FALSE)


def either(*goals: Term) -> Term:
    """Returns the disjunction of any number of goals; of none it is false."""
    return _junction(goals, Op.OR, FALSE, TRUE)


def _junction(goals: Iterable[Term], op: Op, neutral: Term, decisive: Term) -> Term:
    flat: dict[Term, None] = {}
    for goal in goals:
        # One level is enough: goals are built by these constructors, so they are flat already.
        flat.update(dict.fromkeys(goal.args if goal.op is op else (goal,)))
    flat.pop(neutral, None)
    if decisive in flat:
        return decisive
    if not flat:
        return neutral
    return next(iter(flat)) if len(flat) == 1 else Term(op, tuple(flat))


def negate(goal: Term) -> Term:
    """Returns the negation, pushed inwards: only ``not(a = b)`` keeps a not."""
    match goal.op:
        case Op.TRUE:
            return FALSE
        case Op.FALSE:
            return TRUE
        case Op.NOT:
            return goal.args[0]
        case Op.LESS:
            return less_equal(goal.args[1], goal.args[0])
        case Op.LESS_EQUAL:
            return less(goal.args[1], goal.args[0])
        case Op.AND:
            return either(*(negate(part) for part in goal.args))
        case Op.OR:
            return both(*(negate(part) for part in goal.args))
        case Op.EQUAL:
            return Term(Op.NOT, (goal,))
        case _:
            raise VerificationError(f"only a truth has a negation, got the number {show(goal)}")


def substitute(root: Term, replacements: Mapping[Term, Term]) -> Term:
    """Returns the term with each key replaced by its value, all at once, outermost first."""
    results: dict[Term, Term] = dict(replacements)
    for node in walk(root, skip=replacements):
        args = tuple(results[arg] for arg in node.args)
        # By identity, which costs nothing; what did not change is shared.
        is_unchanged = all(new is old for new, old in zip(args, node.args, strict=True))
        results[node] = node if is_unchanged else rebuild(node, args)
    return results[root]


def rewrite(root: Term, change: Callable[[Term], Term]) -> Term:
    """Returns the term with each node changed, over arguments that are changed before it.

    Example:
        >>> x = symbol("x")
        >>> rewrite(add(x, floor(x)), lambda node: ONE if node == x else node)
        2
    """
    return fold(root, lambda node, args: change(rebuild(node, tuple(args)) if args else node))


def rebuild(node: Term, args: tuple[Term, ...]) -> Term:
    """Returns the term of the same kind over other arguments, by its constructor."""
    make = _CONSTRUCTORS.get(node.op)
    return Term(node.op, args, node.value) if make is None else make(*args)


_CONSTRUCTORS: Mapping[Op, Callable[..., Term]] = {
    Op.ADD: add,
    Op.MULTIPLY: multiply,
    Op.DIVIDE: divide,
    Op.POWER: power,
    Op.EXP: exp,
    Op.LOG: log,
    Op.ATAN: atan,
    Op.FLOOR: floor,
    Op.MINIMUM: minimum,
    Op.MAXIMUM: maximum,
    Op.ABSOLUTE: absolute,
    Op.SIGN: sign,
    Op.ITE: ite,
    Op.LESS: less,
    Op.LESS_EQUAL: less_equal,
    Op.EQUAL: equal,
    Op.AND: both,
    Op.OR: either,
    Op.NOT: negate,
}

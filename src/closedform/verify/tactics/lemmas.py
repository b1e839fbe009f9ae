"""Lemmas for the order solver on cos, powers, exp, log and floor: true statements, as terms.

A lemma is instantiated for each such function that a question holds, and for each pair of the same
kind. Being terms, the same lemmas are audited with ball arithmetic (its test).
A symbol of a declared integer may be read as any real in a question: a lemma never says that an
argument is whole, only that a floor is. Where a function is undefined nothing is said of it that
the value 0 does not satisfy.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping

from closedform.verify.terms.build import (
    HALF,
    MINUS_ONE,
    ONE,
    TWO,
    ZERO,
    add,
    both,
    cospi,
    either,
    equal,
    is_rational,
    less,
    less_equal,
    multiply,
    negate,
    negative,
    power,
    rational,
    subtract,
)
from closedform.verify.terms.limits import LIMITS
from closedform.verify.terms.tree import Op, Term

THREE_HALVES = rational(3, 2)
MINUS_HALF = rational(-1, 2)


def implies(*parts: Term) -> Term:
    """Returns ``(first and second and …) => last``."""
    *conditions, conclusion = parts
    return either(*(negate(condition) for condition in conditions), conclusion)


def _cosine(c: Term) -> Iterator[Term]:
    """Range, zeros, signs and strictness on one turn; for sin(pi u) by its cosine."""
    u = c.args[0]
    yield less_equal(MINUS_ONE, c)
    yield less_equal(c, ONE)
    yield implies(equal(u, ZERO), equal(c, ONE))
    yield implies(equal(u, ONE), equal(c, MINUS_ONE))
    yield implies(equal(u, TWO), equal(c, ONE))
    yield implies(equal(u, HALF), equal(c, ZERO))
    yield implies(less(MINUS_ONE, u), less(u, ONE), less(MINUS_ONE, c))
    yield implies(less(ZERO, u), less(u, TWO), less(c, ONE))
    yield implies(less(MINUS_HALF, u), less(u, HALF), less(ZERO, c))
    yield implies(less(HALF, u), less(u, THREE_HALVES), less(c, ZERO))


def _sine(s: Term) -> Iterator[Term]:
    """``sin(pi u) = cos(pi (u - 1/2))``, which has the lemmas."""
    yield equal(s, cospi(subtract(s.args[0], HALF)))


def _exponential(e: Term) -> Iterator[Term]:
    """Sign, tangent at 0 from below, its reciprocal from above."""
    u = e.args[0]
    yield less(ZERO, e)
    yield less_equal(add(ONE, u), e)
    yield implies(less(u, ZERO), less(e, ONE))
    yield implies(less(ZERO, u), less(ONE, e))
    yield implies(equal(u, ZERO), equal(e, ONE))
    # From 1 - u <= exp(-u).
    yield implies(less(u, ONE), less_equal(multiply(e, subtract(ONE, u)), ONE))


def _logarithm(logarithm: Term) -> Iterator[Term]:
    """Sign on both sides of 1, the tangent at 1 from above, its mirror from below."""
    u = logarithm.args[0]
    yield implies(less(ONE, u), less(ZERO, logarithm))
    yield implies(equal(u, ONE), equal(logarithm, ZERO))
    yield implies(less(ZERO, u), less(u, ONE), less(logarithm, ZERO))
    yield implies(less(ZERO, u), less_equal(logarithm, subtract(u, ONE)))
    # log(1/u) <= 1/u - 1, times u.
    yield implies(less(ZERO, u), less_equal(subtract(u, ONE), multiply(u, logarithm)))


def _floor(whole: Term) -> Iterator[Term]:
    """The definition, and its part that holds without integers: the order to -1, 0 and 1."""
    u = whole.args[0]
    yield less_equal(whole, u)
    yield less(u, add(whole, ONE))
    # Over the reals a floor is any number in (u - 1, u]: its order to 0 and 1 has to be stated.
    for bound in (ZERO, ONE):
        yield implies(less_equal(bound, u), less_equal(bound, whole))
        yield implies(less(u, bound), less_equal(whole, subtract(bound, ONE)))
    if u.op is Op.DIVIDE and all(arg.op is Op.LOG for arg in u.args):
        number, base = (arg.args[0] for arg in u.args)
        under = power(base, whole)
        inside = both(less_equal(under, number), less(number, multiply(base, under)))
        yield implies(less(ONE, base), less(ZERO, number), inside)


def _square_root(root: Term) -> Iterator[Term]:
    base = root.args[0]
    yield less_equal(ZERO, root)
    yield implies(less_equal(ZERO, base), equal(multiply(root, root), base))


def _power(p: Term) -> Iterator[Term]:
    """Sign, the cases 0 and 1, the side of 1, Bernoulli's inequalities."""
    b, e = p.args
    if e == HALF:
        yield from _square_root(p)
        return
    # b**e is convex in b for e >= 1 and e <= 0, so above its tangent at 1, and concave in between.
    tangent = add(ONE, multiply(e, subtract(b, ONE)))
    yield implies(less(ZERO, b), less(ZERO, p))
    yield implies(equal(b, ZERO), less(ZERO, e), equal(p, ZERO))
    yield implies(equal(e, ZERO), equal(p, ONE))
    yield implies(equal(e, ONE), equal(p, b))
    yield implies(equal(b, ONE), equal(p, ONE))
    yield implies(less_equal(ZERO, b), less_equal(b, ONE), less(ZERO, e), between(ZERO, p, ONE))
    yield implies(less(ZERO, b), less(b, ONE), less(ZERO, e), less(p, ONE))
    yield implies(less(ONE, b), less(ZERO, e), less(ONE, p))
    yield implies(less(ZERO, b), less(b, ONE), less(e, ZERO), less(ONE, p))
    yield implies(less(ONE, b), less(e, ZERO), less(p, ONE))
    yield implies(less(ZERO, b), less_equal(ONE, e), less_equal(tangent, p))
    yield implies(less(ZERO, b), less_equal(e, ZERO), less_equal(tangent, p))
    yield implies(less(ZERO, b), between(ZERO, e, ONE), less_equal(p, tangent))
    yield implies(between(ZERO, b, ONE), less_equal(ONE, e), less_equal(p, b))


def between(low: Term, middle: Term, high: Term) -> Term:
    """Returns ``low <= middle and middle <= high``."""
    return both(less_equal(low, middle), less_equal(middle, high))


def _same_argument(f: Term, g: Term) -> Iterator[Term]:
    """Equal arguments give equal values."""
    pairs = zip(f.args, g.args, strict=True)
    yield implies(*(equal(left, right) for left, right in pairs), equal(f, g))


def _cosines(f: Term, g: Term) -> Iterator[Term]:
    """Even; falling on [0, 1], rising on [1, 2]."""
    yield from _same_argument(f, g)
    yield implies(equal(f.args[0], negative(g.args[0])), equal(f, g))
    for c, d in ((f, g), (g, f)):
        a, b = c.args[0], d.args[0]
        yield implies(less_equal(ZERO, a), less(a, b), less_equal(b, ONE), less(d, c))
        yield implies(less_equal(ONE, a), less(a, b), less_equal(b, TWO), less(c, d))


def _increasing(f: Term, g: Term) -> Iterator[Term]:
    """Exp is strictly increasing, log is so above 0."""
    yield from _same_argument(f, g)
    for low, high in ((f, g), (g, f)):
        a, b = low.args[0], high.args[0]
        domain = (less(ZERO, a),) if low.op is Op.LOG else ()
        yield implies(*domain, less(a, b), less(low, high))


def _floors(f: Term, g: Term) -> Iterator[Term]:
    """Floor is increasing."""
    for low, high in ((f, g), (g, f)):
        yield implies(less_equal(low.args[0], high.args[0]), less_equal(low, high))


def _powers(f: Term, g: Term) -> Iterator[Term]:
    """Monotone in the base where the exponents are one, in the exponent where the bases are."""
    yield from _same_argument(f, g)
    for low, high in ((f, g), (g, f)):
        (a, x), (b, y) = low.args, high.args
        if x == y:
            yield implies(
                less_equal(ZERO, a), less_equal(a, b), less(ZERO, x), less_equal(low, high)
            )
            yield implies(less_equal(ZERO, a), less(a, b), less(ZERO, x), less(low, high))
            yield implies(less(ZERO, a), less_equal(a, b), less(x, ZERO), less_equal(high, low))
        if a == b:
            step = both(less(ZERO, a), equal(y, add(x, ONE)))
            yield implies(less_equal(ONE, a), less_equal(x, y), less_equal(low, high))
            yield implies(
                less(ZERO, a), less_equal(a, ONE), less_equal(x, y), less_equal(high, low)
            )
            yield implies(less(ZERO, a), less(a, ONE), less(x, y), less(high, low))
            yield implies(less(ONE, a), less(x, y), less(low, high))
            yield implies(step, equal(high, multiply(a, low)))


_SINGLE: Mapping[Op, Callable[[Term], Iterator[Term]]] = {
    Op.COSPI: _cosine,
    Op.SINPI: _sine,
    Op.EXP: _exponential,
    Op.LOG: _logarithm,
    Op.FLOOR: _floor,
    Op.POWER: _power,
}

_PAIRS: Mapping[Op, Callable[[Term, Term], Iterator[Term]]] = {
    Op.COSPI: _cosines,
    Op.EXP: _increasing,
    Op.LOG: _increasing,
    Op.FLOOR: _floors,
    Op.POWER: _powers,
}


def is_product(node: Term) -> bool:
    """Whether a power has a whole exponent that is small enough to be written as a product."""
    if node.op is not Op.POWER or not is_rational(node.args[1]):
        return False
    exponent = node.args[1].value
    return bool(exponent.q == 1 and 0 <= exponent <= LIMITS.product_factors)


def is_function(node: Term) -> bool:
    """Whether a term is a function that the order solver knows by lemmas only."""
    return node.op in _SINGLE and not is_product(node)


def lemmas_of(node: Term) -> list[Term]:
    """Returns the facts about one such function."""
    return list(_SINGLE[node.op](node))


def lemmas_of_pair(left: Term, right: Term) -> list[Term]:
    """Returns the facts about two functions; none where they are of different kinds."""
    make = _PAIRS.get(left.op)
    if make is None or left.op is not right.op:
        return []
    return list(make(left, right))

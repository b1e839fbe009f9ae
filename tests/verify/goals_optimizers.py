"""Goals about optimizers, element by element, with symbolic hyperparameters."""

from collections.abc import Iterator
from typing import Any

from sympy import Abs, Max, Rational, sign, sqrt
from sympy import Piecewise as Pw

from closedform.language import hyper, t
from closedform.verify.terms.build import (
    ONE,
    ZERO,
    both,
    equal,
    ite,
    less,
    less_equal,
    maximum,
    minimum,
    multiply,
)
from closedform.verify.terms.definedness import obligations
from closedform.verify.terms.sympy_io import term
from closedform.verify.terms.tree import Term
from closedform.verify.terms.verdict import Status
from tests.verify.goals import PROVED, REFUTED, Goal, at, at_most, below, same, terms_of

p, g, mm, vv, vm, b1, b2, eps, lr, wd, mu, da, buf, B1, B2 = (
    hyper(name)
    for name in (
        *("p", "g", "mm", "vv", "vm", "b1", "b2", "eps", "lr", "wd", "mu", "da", "buf"),
        *("B1", "B2"),
    )
)
RI, RT, em, ep, smin, smax, pst, pv, mp, mu_now, mun, a = (
    hyper(name)
    for name in ("RI", "RT", "em", "ep", "smin", "smax", "pst", "pv", "mp", "mu_now", "mun", "a")
)

BETAS = (b1 >= 0, b1 < 1, b2 >= 0, b2 < 1)
POSITIVE_BETAS = (b1 > 0, b1 < 1, b2 > 0, b2 < 1)
STATE = (
    *BETAS,
    *(vv >= 0, eps > 0, lr > 0, B1 > 0, B1 < 1, B2 > 0, B2 < 1, B1 <= b1, B2 <= b2),
)
M1 = b1 * mm + (1 - b1) * g
V1 = b2 * vv + (1 - b2) * g**2


def optimizer_goals() -> Iterator[Goal]:
    """All goals about update rules."""
    yield from _adam_bias()
    yield from _adam_forms()
    yield from _amsgrad_and_lion()
    yield from _sgd()
    yield from _radam()
    yield from _rprop()
    yield from _others()
    yield from _definedness()


def _goal(name: str, goal: Term, assume: tuple[Any, ...], expected: Status = PROVED) -> Goal:
    return Goal(name, goal, terms_of(assume), expected)


def _adam_bias() -> Iterator[Goal]:
    def mean(step: Any) -> Any:
        return g * (1 - b1**step)

    def square(step: Any) -> Any:
        return g**2 * (1 - b2**step)

    stepped = (*POSITIVE_BETAS, t >= 1)
    yield _goal("adam: average begins at 0", same(mean(0), 0), POSITIVE_BETAS)
    yield _goal(
        "adam: average of a constant gradient",
        same(b1 * mean(t) + (1 - b1) * g, mean(t + 1)),
        POSITIVE_BETAS,
    )
    yield _goal("adam: corrected average", same(mean(t) / (1 - b1**t), g), stepped)
    yield _goal("adam: corrected square", same(square(t) / (1 - b2**t), g**2), stepped)
    yield _goal(
        "adam: step is at most lr",
        at_most(Abs(lr * g / (sqrt(g**2) + eps)), lr),
        (lr >= 0, eps > 0),
    )
    yield _goal("adam: running product", same(b1**t * b1, b1 ** (t + 1)), POSITIVE_BETAS)
    yield _goal("adam: product one earlier", same(b1 * b1 ** (t - 1), b1**t), stepped)


def _adam(epsilon: Any, *, is_torch: bool, decay: Any = 0, l2: Any = 0) -> Any:
    """One step of Adam in the form of torch, or of the reference system."""
    gradient = g + l2 * p
    mean = b1 * mm + (1 - b1) * gradient
    square = b2 * vv + (1 - b2) * gradient**2
    if is_torch:
        corrected = mean / (sqrt(square) / sqrt(1 - B2) + epsilon)
        return p * (1 - lr * decay) - lr / (1 - B1) * corrected
    update = mean / (sqrt(square) + epsilon) * (sqrt(1 - B2) / (1 - B1)) + p * decay
    return p - lr * update


def _adam_forms() -> Iterator[Goal]:
    ratio = (sqrt(V1) + eps * sqrt(1 - B2)) / (sqrt(V1) + eps)
    reference = M1 / (sqrt(V1) + eps) * (sqrt(1 - B2) / (1 - B1))
    torch = M1 / (1 - B1) / (sqrt(V1) / sqrt(1 - B2) + eps)
    yield _goal(
        "adamw at no decay is adam",
        same(_adam(eps, is_torch=True, decay=wd).subs(wd, 0), _adam(eps, is_torch=True)),
        STATE,
    )
    yield _goal(
        "adamw in both forms",
        same(
            _adam(eps, is_torch=True, decay=wd),
            _adam(eps * sqrt(1 - B2), is_torch=False, decay=wd),
        ),
        (*STATE, wd >= 0),
    )
    yield _goal(
        "adam with one epsilon in both forms",
        same(_adam(eps, is_torch=False), _adam(eps, is_torch=True)),
        STATE,
        REFUTED,
    )
    yield _goal(
        "adam: the law of epsilon",
        same(_adam(eps, is_torch=False), _adam(eps / sqrt(1 - B2), is_torch=True)),
        STATE,
    )
    yield _goal("adam: the ratio of updates", same(reference, ratio * torch), STATE)
    yield _goal(
        "adam: the ratio's bounds",
        both(at_most(sqrt(1 - B2), ratio), at_most(ratio, 1)),
        STATE,
    )


def _definedness() -> Iterator[Goal]:
    """Every operation of the steps of Adam is defined, in both forms, with any decay."""
    for is_torch in (True, False):
        step = _adam(eps, is_torch=is_torch, decay=wd, l2=a)
        for found in obligations(term(step)):
            name = f"adam: defined {found.text}"
            yield Goal(name, found.goal, (*terms_of(STATE), *found.path), PROVED)


def _amsgrad_and_lion() -> Iterator[Goal]:
    lion = p * (1 - lr * wd) - lr * sign(M1)
    rate = lr / (sqrt(Max(vm, V1)) + eps)
    rated = (*BETAS, vv >= 0, eps > 0, lr > 0)
    yield _goal("amsgrad: maximum rises", at_most(vm, Max(vm, V1)), (*BETAS, vv >= 0))
    yield _goal("adam: square stays at least 0", at_most(0, V1), (*BETAS, vv >= 0))
    yield _goal("amsgrad: rate falls", at_most(rate, lr / (sqrt(vm) + eps)), (*rated, vm >= 0))
    yield _goal(
        "adam: rate falls", at_most(lr / (sqrt(V1) + eps), lr / (sqrt(vv) + eps)), rated, REFUTED
    )
    decayed = (*BETAS, lr >= 0, wd >= 0)
    yield _goal("lion: bounded with decay", at_most(Abs(lion - p), lr * (1 + wd * Abs(p))), decayed)
    yield _goal("lion: bounded without decay", at_most(Abs(lion - p), lr), decayed, REFUTED)
    yield _goal(
        "lion: stays in its box",
        at_most(Abs(lion), 1 / wd),
        (*BETAS, lr > 0, wd > 0, lr * wd <= 1, p <= 1 / wd, p >= -1 / wd),
    )


def _sgd() -> Iterator[Goal]:
    first = mu * buf + (1 - da) * g
    nesterov, plain = p - lr * (g + mu * first), p - lr * g
    heavy = p - lr * first
    damped = (da > 0, da < 1)

    def buffer(step: Any) -> Any:
        return g * (1 - mu**step) / (1 - mu)

    yield _goal("sgd: nesterov at no momentum", same(at(nesterov, {mu: 0}), plain), ())
    yield _goal("sgd: no momentum", same(at(heavy, {mu: 0, da: 0}), plain), ())
    yield _goal("sgd: no momentum, dampened", same(at(heavy, {mu: 0}), plain), damped, REFUTED)
    begun = (da >= 0, da < 1, mu > 0)
    yield _goal("sgd: first step, dampened", same(at(heavy, {buf: 0}), plain), begun, REFUTED)
    yield _goal("sgd: first step", same(at(heavy, {buf: 0, da: 0}), plain), (mu > 0,))
    yield _goal(
        "sgd: buffer of a constant gradient",
        same(mu * buffer(t) + g, buffer(t + 1)),
        (mu > 0, mu < 1),
    )


def _radam() -> Iterator[Goal]:
    limit = 2 / (1 - b2) - 1
    length = limit - 2 * t * b2**t / (1 - b2**t)
    radicand = (RT - 4) * (RT - 2) * RI / ((RI - 4) * (RI - 2) * RT)
    composed = radicand.xreplace({RT: length, RI: limit})
    inside = (b2 > 0, b2 < 1, t >= 1)
    apart = (RT > 5, RT <= RI)
    yield _goal(
        "radam: radicand is above 0",
        both(below(0, radicand), below(0, (RI - 4) * (RI - 2) * RT)),
        apart,
    )
    yield _goal("radam: length is at most its limit", at_most(length, limit), inside)
    yield _goal("radam: rectification is at most 1", at_most(sqrt(radicand), 1), apart)
    yield _goal("radam: radicand over t", below(0, composed), (*inside, length > 5))
    yield _goal(
        "radam: radicand where not taken",
        at_most(0, composed),
        (b2 > Rational(9, 10), b2 < 1, t >= 1),
        REFUTED,
    )
    taken = Pw((sqrt(composed), length > 5), (1, True))
    for found in obligations(term(taken)):
        given = (*terms_of(inside), *found.path)
        yield Goal(f"radam: defined {found.text}", found.goal, given, PROVED)
    yield _goal("radam: first length", same(at(length, {t: 1}), 1), (b2 > 0, b2 < 1))
    yield _goal(
        "radam: taken only for large beta", below(Rational(2, 3), b2), (*inside, length > 5)
    )


def _rprop() -> Iterator[Goal]:
    product = g * pv
    torch = term(Pw((ep, product > 0), (em, product < 0), (1, True)))
    up, down = term(ep), term(em)
    first = ite(less(ZERO, term(product)), up, term(product))
    second = ite(less(first, ZERO), down, first)
    factor = ite(equal(second, ZERO), ONE, second)
    low, high = term(smin), term(smax)
    step = minimum(maximum(multiply(term(pst), factor), low), high)
    masked = ite(equal(factor, down), ZERO, ONE)
    mask = term(Pw((0, product < 0), (1, True)))
    etas = (em > 0, em < 1, ep > 1)
    sizes = (smin > 0, smax >= smin, pst > 0)
    yield _goal(
        "rprop: step is inside its limits",
        both(less_equal(low, step), less_equal(step, high)),
        (*etas, *sizes),
    )
    yield _goal("rprop: both forms", equal(factor, torch), (*etas, *sizes))
    yield _goal(
        "rprop: both forms at eta 0",
        equal(factor, torch),
        (em >= 0, em < 1, ep > 1, *sizes),
        REFUTED,
    )
    yield _goal("rprop: both masks", equal(masked, mask), (*etas, *sizes))
    yield _goal(
        "rprop: both masks at eta 1",
        equal(masked, mask),
        (em > 0, em <= 1, ep > 1, *sizes),
        REFUTED,
    )


def _others() -> Iterator[Goal]:
    mean, square = a * mm + (1 - a) * g, a * vv + (1 - a) * g**2
    decayed = 1 - 1 / t ** Rational(4, 5)
    yield _goal(
        "nadam: the doubled factor",
        same(mp * mu_now * mu_now * mun, mp * mu_now * mun),
        (mp > 0, mu_now > 0, mu_now < 1, mun > 0),
        REFUTED,
    )
    yield _goal(
        "rmsprop: variance stays at least 0",
        at_most(0, square - mean**2),
        (a >= 0, a <= 1, vv >= mm**2),
    )
    yield _goal(
        "adafactor: decay is in [0, 1)",
        both(at_most(0, decayed), below(decayed, 1)),
        (t >= 1,),
    )
    yield _goal(
        "adagrad: rate falls",
        at_most(lr / (sqrt(vv + g**2) + eps), lr / (sqrt(vv) + eps)),
        (vv >= 0, eps > 0, lr > 0),
    )
    yield _goal(
        "adam: equal betas bound the update",
        at_most(at(M1, {b1: b2}) ** 2, V1),
        (b2 >= 0, b2 < 1, vv >= mm**2),
    )

"""Instances of the solver's lemmas, evaluated with fractions and balls."""

from __future__ import annotations

import random
from collections import Counter
from collections.abc import Callable, Iterable, Iterator
from dataclasses import dataclass, field

from flint import fmpq

from closedform.verify.tactics.lemmas import lemmas_of, lemmas_of_pair
from closedform.verify.terms.build import HALF, cospi, divide, exp, floor, log, power, sinpi, symbol
from closedform.verify.terms.evaluate import Undefined, holds
from closedform.verify.terms.tree import Term

U, V, B, P = (symbol(name) for name in ("u", "v", "b", "p"))
SPECIAL = [fmpq(n, 2) for n in (-4, -3, -2, -1, 0, 1, 2, 3, 4)]

# The instances: pairs of one kind, with shared and with different arguments.
FUNCTIONS: dict[str, tuple[Term, Term]] = {
    "cosine": (cospi(U), cospi(V)),
    "sine": (sinpi(U), sinpi(V)),
    "exp": (exp(U), exp(V)),
    "log": (log(U), log(V)),
    "floor": (floor(U), floor(V)),
    "floor of a logarithm": (floor(divide(log(U), log(B))), floor(divide(log(V), log(B)))),
    "root": (power(U, HALF), power(V, HALF)),
    "power, one exponent": (power(U, P), power(V, P)),
    "power, one base": (power(B, U), power(B, V)),
    "power": (power(B, U), power(P, V)),
}


@dataclass(slots=True)
class Audit:
    """The results of the instances; ``violations`` must stay empty."""

    checked: int = 0
    outcomes: Counter[str] = field(default_factory=Counter)
    violations: list[str] = field(default_factory=list)


def _number(chance: random.Random) -> fmpq:
    if chance.random() < 0.4:
        return chance.choice(SPECIAL)
    return fmpq(chance.randint(-60, 60), chance.choice((1, 3, 7, 16, 20)))


def _positive(chance: random.Random) -> fmpq:
    return abs(_number(chance)) + fmpq(1, 40) if chance.random() < 0.8 else _number(chance)


def points(chance: random.Random) -> Iterator[dict[str, fmpq]]:
    """Points for ever: signs mixed, often equal, whole, or one apart."""
    while True:
        draw = _number if chance.random() < 0.5 else _positive
        point = {name: draw(chance) for name in ("u", "v", "p")}
        point["b"] = _positive(chance)
        if chance.random() < 0.2:
            point["v"] = point["u"]
        elif chance.random() < 0.2:
            point["v"] = point["u"] + 1
        yield point


def audit(
    functions: Iterable[tuple[str, tuple[Term, Term]]],
    instances: int,
    seed: int,
    lemmas: Callable[[Term, Term], list[Term]] | None = None,
) -> Audit:
    """Evaluates lemmas of pairs of functions at random points, at least so many instances."""
    made = lemmas or (lambda f, g: [*lemmas_of(f), *lemmas_of_pair(f, g)])
    stated = [(name, made(*pair)) for name, pair in functions]
    result = Audit()
    for point in points(random.Random(seed)):
        for name, each in stated:
            for lemma in each:
                found = holds(lemma, point, (64, 256))
                result.checked += 1
                outcome = "undefined" if isinstance(found, Undefined) else str(found)
                result.outcomes[outcome] += 1
                if found is False:
                    result.violations.append(f"{name}: {lemma} at {point}")
        if result.checked >= instances:
            return result
    raise AssertionError("points never end")

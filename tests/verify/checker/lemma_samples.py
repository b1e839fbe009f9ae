"""Functions with the lemmas that the checker states about them, as terms that can be evaluated."""

import random
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from typing import cast

from flint import fmpq

from closedform.verify.checker.replay import Replay
from closedform.verify.search.statements import statement_of
from closedform.verify.terms.build import (
    HALF,
    PI,
    absolute,
    add,
    atan,
    cospi,
    divide,
    equal,
    exp,
    floor,
    log,
    lookup,
    maximum,
    minimum,
    multiply,
    power,
    rational,
    sign,
    sinpi,
    subtract,
    symbol,
)
from closedform.verify.terms.tree import TRUTHS, Op, Term

U, V, B, P = (symbol(name) for name in ("u", "v", "b", "p"))
SPECIAL = [fmpq(n, 2) for n in (-4, -3, -2, -1, 0, 1, 2, 3, 4)]

# The instances: pairs of one kind, with shared and with different arguments.
FUNCTIONS: dict[str, tuple[Term, Term]] = {
    "cosine": (cospi(U), cospi(V)),
    "sine": (sinpi(U), sinpi(V)),
    "exp": (exp(U), exp(V)),
    "log": (log(U), log(V)),
    "atan": (atan(U), atan(V)),
    "floor": (floor(U), floor(V)),
    "floor of a logarithm": (floor(divide(log(U), log(B))), floor(divide(log(V), log(B)))),
    "root": (power(U, HALF), power(V, HALF)),
    "power, one exponent": (power(U, P), power(V, P)),
    "power, one base": (power(B, U), power(B, V)),
    "power": (power(B, U), power(P, V)),
}

K = symbol("k", integer=True)
T = symbol("T", integer=True)
SHARE = divide(U, V)
# The divisor is a sum with fractions, the dividend has the variable of the divisor.
OF_SUM = divide(add(U, multiply(rational(3), V)), add(multiply(HALF, V), B))
PERIOD = divide(add(U, multiply(rational(2), V)), V)
HALF_PERIOD = divide(add(U, V), V)

SAMPLES: dict[str, tuple[Term, ...]] = {
    **FUNCTIONS,
    "cosine of a double": (cospi(multiply(rational(2), U)), cospi(U)),
    "cosine of a period": (cospi(PERIOD), cospi(SHARE)),
    "cosine of half a period": (cospi(HALF_PERIOD), cospi(SHARE)),
    "cosine of a folded period": (
        cospi(SHARE),
        cospi(divide(subtract(multiply(rational(2), K, V), U), V)),
    ),
    "cosine of a folded half period": (
        cospi(SHARE),
        cospi(divide(subtract(multiply(add(K, K, rational(1)), V), U), V)),
    ),
    "cosine of an integer": (cospi(K), cospi(add(U, K))),
    "cosine of a quotient": (cospi(OF_SUM), cospi(SHARE)),
    "floor of a quotient": (floor(SHARE), floor(OF_SUM)),
    "floor of a quotient with a falling divisor": (
        floor(divide(U, subtract(rational(2), multiply(V, B)))),
        floor(divide(add(U, multiply(K, V)), V)),
    ),
    "floor of a quotient with inverses": (
        floor(divide(U, add(V, divide(rational(1), B)))),
        floor(divide(U, power(V, rational(2)))),
    ),
    "floor of a difference": (floor(subtract(SHARE, rational(1))), floor(divide(K, T))),
    "floor of an integer": (floor(K), floor(add(K, U))),
    "floor of two quotients": (floor(add(divide(U, V), divide(B, P))), floor(U)),
    "power, a whole exponent": (power(U, K), power(U, add(K, rational(2)))),
    "power as an exponential": (power(B, U), exp(V)),
    "pi": (PI,),
    "quotient": (SHARE,),
    "inverse": (divide(rational(1), U),),
    "table": (lookup((3, -1, 2), K),),
    "minimum": (minimum(U, V),),
    "maximum": (maximum(U, V),),
    "absolute value": (absolute(U),),
    "sign": (sign(U),),
}
"""One function, or two of which the lemmas about pairs hold, too."""


@dataclass(frozen=True, slots=True)
class Sample:
    """Functions in the table of the checker.

    Attributes:
        replay: The checker.
        functions: The numbers of the functions there.
        lemmas: The functions that a lemma is about, and its place in their list of lemmas.
    """

    replay: Replay
    functions: tuple[int, ...]
    lemmas: tuple[tuple[tuple[int, ...], int], ...]

    def truth(self, functions: Sequence[int], place: int) -> int:
        """Returns a lemma."""
        lemmas = self.replay.lemmas
        stated = lemmas.of(*functions) if len(functions) == 1 else lemmas.of_pair(*functions)
        return stated[place]


def sample_of(functions: Sequence[Term]) -> Sample:
    """Returns functions with all lemmas about each of them and about the two."""
    statement = statement_of(equal(functions[0], functions[-1]))
    replay = Replay()
    places: list[int] = []
    replay.terms.read(statement["nodes"], places)
    left, right = replay.terms.nodes[places[statement["goal"]]][1]
    numbers = (left, right)[: len(functions)]
    counts = {(number,): len(replay.lemmas.of(number)) for number in numbers}
    if len(numbers) == 2:
        counts[numbers] = len(replay.lemmas.of_pair(*numbers))  # type: ignore[index]
    lemmas = tuple((about, place) for about, count in counts.items() for place in range(count))
    return Sample(replay, numbers, lemmas)


def tree_of(replay: Replay, term: int) -> Term:
    """Returns a term of the checker as a term of the prover, which can be evaluated."""
    nodes: dict[int, Term] = {}
    for below in replay.terms.below(term):
        op, args, value = replay.terms.nodes[below]
        if op == "symbol":
            name, is_integer, _ = cast("tuple[str, bool, str]", value)
            nodes[below] = symbol(name.removeprefix("user: "), integer=is_integer)
        else:
            nodes[below] = Term(Op(op), tuple(nodes[arg] for arg in args), value)
    return nodes[term]


def premises_and_conclusion(lemma: Term) -> tuple[tuple[Term, ...], Term]:
    """Returns the opposites of the premises of a lemma, and its conclusion."""
    assert lemma.op in TRUTHS
    return (lemma.args[:-1], lemma.args[-1]) if lemma.op is Op.OR else ((), lemma)


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

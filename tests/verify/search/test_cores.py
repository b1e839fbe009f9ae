"""Cores of contradictions: each contradicts itself, and its products hold for all numbers."""

import math
import random
from collections.abc import Mapping

import pytest
from flint import fmpq

from closedform.effort import METER, Effort
from closedform.verify.checker.polynomials import Monomial, Polynomial
from closedform.verify.checker.replay import Literal, Replay
from closedform.verify.search.cores import Core, find_core
from closedform.verify.search.solver import Solver

UNITS = 300_000
SYMBOLS = ("x", "y", "z")


class Truths:
    """Relations of polynomials over three symbols, as terms of the checker."""

    def __init__(self, *, integers: bool = False) -> None:
        self.replay = Replay()
        self.terms = self.replay.terms
        self.symbols = [self.terms.declare(name, integer=integers) for name in SYMBOLS]

    def polynomial(self, rows: Mapping[tuple[int, int, int], int]) -> int:
        """The sum of ``number x^i y^j z^k``."""
        parts = [
            self.terms.multiply(
                self.terms.rational(number),
                *(s for s, e in zip(self.symbols, exponents, strict=True) for _ in range(e)),
            )
            for exponents, number in rows.items()
        ]
        return self.terms.add(*parts)

    def above(self, rows: Mapping[tuple[int, int, int], int]) -> int:
        """That a polynomial is above 0."""
        return self.terms.less(self.terms.rational(0), self.polynomial(rows))

    def core(self, *truths: int) -> Core | None:
        return find_core(self.replay, Solver(), truths, [], Effort.of(UNITS))


X, Y, XY, ONE = (1, 0, 0), (0, 1, 0), (1, 1, 0), (0, 0, 0)


def test_a_product_of_two_inequalities_is_found() -> None:
    truths = Truths()
    facts = [truths.above({X: 1}), truths.above({Y: 1}), truths.above({XY: -1})]
    core = truths.core(*facts)
    assert core is not None
    assert sorted(core.truths) == sorted(facts)
    assert core.products


def test_a_fact_that_is_not_needed_is_left_out() -> None:
    truths = Truths()
    idle = truths.above({(0, 0, 1): 1, ONE: 7})
    core = truths.core(truths.above({X: 1}), idle, truths.above({X: -1}))
    assert core is not None
    assert idle not in core.truths


def test_each_part_of_a_disjunction_is_excluded() -> None:
    truths = Truths()
    either = truths.terms.make("or", (truths.above({X: -1}), truths.above({XY: -1})))
    facts = [truths.above({X: 1}), truths.above({Y: 1})]
    core = truths.core(*facts, either)
    assert core is not None
    assert either in core.truths
    assert truths.core(facts[0], either) is None


def test_inequalities_between_integers_are_rounded() -> None:
    for integers in (True, False):
        truths = Truths(integers=integers)
        core = truths.core(truths.above({X: 1}), truths.above({X: -2, ONE: 1}))
        assert (core is not None) is integers


def test_a_factor_above_zero_keeps_an_order() -> None:
    truths = Truths()
    facts = [
        truths.above({X: 1}),
        truths.above({Y: 1, (0, 0, 1): -1}),
        truths.above({(1, 0, 1): 1, XY: -1}),
    ]
    assert truths.core(*facts) is not None
    assert truths.core(*facts[1:]) is None


def test_numbers_beyond_floats_are_multiplied() -> None:
    truths = Truths()
    large = 2**700
    facts = [
        truths.above({X: 1, ONE: -large}),
        truths.above({Y: 1, ONE: -large}),
        truths.above({ONE: large**2, XY: -1}),
    ]
    core = truths.core(*facts)
    assert core is not None
    assert core.products


def value(form: Polynomial, point: Mapping[int, fmpq]) -> fmpq:
    total = fmpq(0)
    for monomial, number in form.items():
        total += number * math.prod((point[atom] ** e for atom, e in monomial), start=fmpq(1))
    return total


def holds(literal: Literal, point: Mapping[int, fmpq]) -> bool:
    number = value(literal.form, point)
    return {
        ">": number > 0, ">=": number >= 0, "=": number == 0, "!=": number != 0
    }[literal.relation]  # fmt: skip


def drawn_relation(truths: Truths, chance: random.Random) -> int:
    exponents = [
        tuple(chance.choice((0, 0, 1, 1, 2)) for _ in SYMBOLS) for _ in range(chance.randint(1, 3))
    ]
    rows = {(a, b, c): chance.choice((-3, -2, -1, 1, 2, 5)) for a, b, c in exponents}
    number = truths.polynomial({**rows, ONE: chance.randint(-2, 2)})
    zero = truths.terms.rational(0)
    make = chance.choice((truths.terms.less, truths.terms.less_equal, truths.terms.equal))
    return make(zero, number)


@pytest.mark.parametrize("seed", range(40))
def test_no_point_satisfies_a_core(seed: int) -> None:
    """Random relations: at no drawn point do all of a core hold; its products hold at all."""
    chance = random.Random(seed)
    truths = Truths()
    relations = [drawn_relation(truths, chance) for _ in range(5)]
    core = truths.core(*relations)
    atoms: list[Monomial] = [
        next(iter(truths.replay.forms.of(symbol))) for symbol in truths.symbols
    ]
    for _ in range(300):
        point = {
            monomial[0][0]: fmpq(chance.randint(-8, 8), chance.choice((1, 2, 3)))
            for monomial in atoms
        }
        if core is not None:
            literals = [truths.replay.relation(truth) for truth in core.truths]
            assert not all(holds(literal, point) for literal in literals)
            for item in core.products:
                if all(holds(premise, point) for premise in item.premises):
                    assert holds(item.conclusion, point)


def test_random_relations_have_cores() -> None:
    """Without this the test above could pass by finding none."""
    cores = 0
    for seed in range(40):
        chance = random.Random(seed)
        truths = Truths()
        cores += truths.core(*(drawn_relation(truths, chance) for _ in range(5))) is not None
    assert cores >= 10


@pytest.mark.parametrize("seed", range(6))
def test_the_effort_ends_a_search(seed: int) -> None:
    chance = random.Random(seed)
    truths = Truths()
    relations = [drawn_relation(truths, chance) for _ in range(24)]
    before = METER.work
    find_core(truths.replay, Solver(), relations, [], Effort.of(UNITS))
    # One question of z3 and one list of products are not interrupted.
    assert METER.work - before < 3 * UNITS

"""Questions to z3 as text: numbers are printed and read exactly, answers are reproducible."""

import random

import pytest
from flint import fmpq

from closedform.effort import METER, Effort
from closedform.verify.checker.polynomials import UNIT
from closedform.verify.checker.replay import Literal
from closedform.verify.search.solver import Solver, print_number, print_relation

X = ((0, 1),)
UNITS = 100_000


@pytest.mark.parametrize("digits", [1, 3, 40])
@pytest.mark.parametrize("sort", ["Real", "Int"])
def test_numbers_are_printed_and_read_exactly(digits: int, sort: str) -> None:
    chance = random.Random(digits)
    with Solver().question("QF_LIRA") as question:
        expected = {}
        for place in range(30):
            divisor = 1 if sort == "Int" else chance.randint(1, 10**digits)
            number = fmpq(chance.randint(-(10**digits), 10**digits), divisor)
            expected[f"n{place}"] = number
            question.declare(f"n{place}", sort)
            question.state(f"(= n{place} {print_number(number)})")
        assert question.check(Effort.of(UNITS), UNITS)
        assert question.values() == expected


@pytest.mark.parametrize(
    ("relation", "at_half"), [(">", False), (">=", True), ("=", True), ("!=", False)]
)
def test_relations_are_printed(relation: str, at_half: bool) -> None:
    # 2 x - 1 at x = 1/2
    literal = Literal(relation, {X: fmpq(2), UNIT: fmpq(-1)})
    with Solver().question() as question:
        question.declare("x")
        question.state(print_relation(literal, lambda _: "x"))
        question.state("(= x (/ 1.0 2.0))")
        assert question.check(Effort.of(UNITS), UNITS) is at_half


def test_a_core_has_the_names_of_the_truths() -> None:
    with Solver().question() as question:
        question.declare("x")
        question.state("(> x 0.0)", "positive")
        question.state("(< x 9.0)", "bounded")
        question.state("(< x (- 1.0))", "negative")
        assert question.check(Effort.of(UNITS), UNITS) is False
        assert question.core() == {"positive", "negative"}


def test_popped_truths_are_forgotten() -> None:
    with Solver().question() as question:
        question.declare("x")
        question.state("(> x 0.0)")
        question.push()
        question.state("(< x 0.0)")
        assert question.check(Effort.of(UNITS), UNITS) is False
        question.pop()
        assert question.check(Effort.of(UNITS), UNITS) is True


def test_questions_of_one_solver_cost_the_same_each_time() -> None:
    def costs() -> list[int]:
        solver, units = Solver(), []
        for _ in range(3):
            before = METER.work
            with solver.question() as question:
                question.declare("x")
                question.state("(> (* 2.0 x) 1.0)")
                assert question.check(Effort.of(UNITS), UNITS)
            units.append(METER.work - before)
        return units

    first = costs()
    # A context costs work only where it is made.
    assert first[0] > first[1]
    assert costs() == first


def test_models_have_nothing_of_earlier_questions() -> None:
    solver, units = Solver(), []
    for place in range(4):
        before = METER.work
        with solver.question() as question:
            question.declare(f"x{place}")
            question.state(f"(> x{place} 1.0)", f"truth_{place}")
            assert question.check(Effort.of(UNITS), UNITS)
            assert [*question.values()] == [f"x{place}"]
        units.append(METER.work - before)
    # Each constant of a model that is read is work.
    assert units[1] == units[2] == units[3]

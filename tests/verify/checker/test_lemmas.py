"""The lemmas of the checker, evaluated at random points; Rocq proves them (``test_rocq``)."""

import itertools
import random
from collections import Counter
from collections.abc import Iterator, Sequence
from functools import cache

import pytest
from flint import fmpq

from closedform.verify.checker.lemmas import Lemmas
from closedform.verify.checker.polynomials import Polynomial, plus
from closedform.verify.terms.evaluate import Evaluator
from closedform.verify.terms.tree import Term
from tests.support.sampling import is_exhaustive
from tests.verify.checker.lemma_samples import (
    SAMPLES,
    points,
    premises_and_conclusion,
    sample_of,
    tree_of,
)

POINTS = 3_000 if is_exhaustive() else 200
PRECISIONS = 64, 256

Key = tuple[tuple[str, ...], int, int]
"""The functions, the place of a lemma, and the length of a list that is longer than others."""


def points_with_integers(seed: int) -> Iterator[dict[str, fmpq]]:
    """The points of the samples, with values for the integers."""
    chance = random.Random(seed)
    for point in points(chance):
        yield {**point, "k": fmpq(chance.randint(-3, 4)), "T": fmpq(chance.randint(-3, 5))}


def instances(opposites: Sequence[Term], conclusion: Term, count: int) -> Counter[bool | None]:
    """How often a conclusion holds, fails or is open at the points at which the premises hold."""
    refuted_premises = [Evaluator(opposite) for opposite in opposites]
    evaluator = Evaluator(conclusion)
    results: Counter[bool | None] = Counter()
    for point in itertools.islice(points_with_integers(seed=38), count):
        if all(premise.holds(point, PRECISIONS) is False for premise in refuted_premises):
            result = evaluator.holds(point, PRECISIONS)
            results[result if isinstance(result, bool) else None] += 1
    return results


@cache
def stated_lemmas(name: str) -> list[tuple[tuple[str, ...], int, int, Term]]:
    """Of each lemma of a sample the functions, its place, the length of the list, and the lemma."""
    sample = sample_of(SAMPLES[name])
    lengths = Counter(about for about, _ in sample.lemmas)
    nodes = sample.replay.terms.nodes
    return [
        (
            tuple(nodes[function][0] for function in about),
            place,
            lengths[about],
            tree_of(sample.replay, sample.truth(about, place)),
        )
        for about, place in sample.lemmas
    ]


@pytest.mark.parametrize("name", SAMPLES)
def test_lemmas_hold(name: str) -> None:
    for _, place, _, lemma in stated_lemmas(name):
        results = instances(*premises_and_conclusion(lemma), POINTS)
        assert not results[False], (place, lemma)


def test_each_lemma_holds_with_its_premises() -> None:
    """No lemma is true at the points of all samples only because its premises are false."""
    shortest: dict[tuple[str, ...], int] = {}
    for name in SAMPLES:
        for functions, _, length, _ in stated_lemmas(name):
            shortest[functions] = min(length, shortest.get(functions, length))
    is_met: dict[Key, bool] = {}
    for name in SAMPLES:
        for functions, place, length, lemma in stated_lemmas(name):
            key = functions, place, length if place >= shortest[functions] else 0
            if not is_met.get(key):
                is_met[key] = bool(instances(*premises_and_conclusion(lemma), 200)[True])
    assert [key for key, holds in is_met.items() if not holds] == []


@pytest.mark.parametrize(
    ("name", "place", "premise"),
    [
        ("floor of a quotient", 6, 0),
        ("floor of a quotient", 7, 0),
        ("floor of a logarithm", 8, 0),
        ("floor of a logarithm", 9, 0),
        ("cosine of a quotient", 10, 1),
        ("cosine of a quotient", 11, 1),
        ("cosine of a quotient", 12, 1),
        ("cosine of a quotient", 13, 1),
    ],
)
def test_a_lemma_without_a_premise_fails(name: str, place: int, premise: int) -> None:
    lemma = next(
        lemma
        for functions, at, _, lemma in stated_lemmas(name)
        if len(functions) == 1 and at == place
    )
    opposites, conclusion = premises_and_conclusion(lemma)
    other_opposites = [*opposites[:premise], *opposites[premise + 1 :]]
    assert instances(other_opposites, conclusion, 300)[False]


@pytest.mark.parametrize("place", [-3, -2])
def test_a_difference_of_angles_needs_a_cosine_of_one(place: int) -> None:
    lemmas = [
        lemma
        for functions, _, _, lemma in stated_lemmas("cosine of an integer")
        if len(functions) == 2
    ]
    opposites, conclusion = premises_and_conclusion(lemmas[place])
    assert len(opposites) == 1
    assert instances(opposites, conclusion, 300)[True]
    assert instances((), conclusion, 300)[False]


@pytest.mark.parametrize("name", ["cosine of half a period", "cosine of a folded half period"])
def test_a_half_turn_for_a_turn_is_found(name: str, monkeypatch: pytest.MonkeyPatch) -> None:
    """The lemmas about turns fail where the checker counts half turns."""
    half_turns = Lemmas.half_turns

    def turns(self: Lemmas, a: int, b: int, sign: int) -> tuple[list[int], Polynomial]:
        nonzero, half = half_turns(self, a, b, sign)
        return nonzero, plus(half, half)

    monkeypatch.setattr(Lemmas, "half_turns", turns)
    sample = sample_of(SAMPLES[name])
    assert any(
        instances(
            *premises_and_conclusion(tree_of(sample.replay, sample.truth(about, place))), 200
        )[False]
        for about, place in sample.lemmas
        if len(about) == 2
    )


def test_a_wrong_dividend_is_found(monkeypatch: pytest.MonkeyPatch) -> None:
    """The lemmas about quotients fail where the checker takes the divisor for the dividend."""
    quotient = Lemmas._quotient
    monkeypatch.setattr(Lemmas, "_quotient", lambda self, u: quotient(self, u)[::-1])
    sample = sample_of(SAMPLES["floor of a quotient"])
    failures = [
        place
        for about, place in sample.lemmas
        if instances(
            *premises_and_conclusion(tree_of(sample.replay, sample.truth(about, place))), 300
        )[False]
    ]
    assert set(failures) == {6, 7}

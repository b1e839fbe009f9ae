"""Rewritten steps of all rules of the library, and all edits of some of them.

``make compare`` runs this file.
"""

from collections import Counter

import pytest

from closedform.errors import ClosedFormError
from closedform.referee.judgement import judge_step
from closedform.verify.terms.verdict import Status
from tests.referee import foreign
from tests.referee.rewrites import COUNTERS, exported, rewritten
from tests.referee.test_rewrites import PARAMS, RULES
from tests.test_library import OPTIMIZERS

pytestmark = pytest.mark.packages()
HIDDEN = "its own floats may be infinite or NaN in front of a maximum or divisor"
OPEN = {
    "adafactor": HIDDEN,
    "came": HIDDEN,
    "d_adapt_adam": HIDDEN,
    "prodigy": HIDDEN,
    "ademamix": "a schedule of a rate of decay as a choice within a power",
    "dion": "positions are not evaluated exactly, so that no renaming is proposed",
    "nadam": "a product of schedules in a state",
    "radam": "a root of a rational function of powers of the step",
    "d_adapt_sgd": "the estimate of a distance as a choice that the prover does not decide",
    "dowg": "a square that is multiplied out within a sum of elements",
    "kron": "positions are not evaluated exactly, so that no renaming is proposed",
    "schedule_free_radam": "a root of a rational function of powers of the step",
    "shampoo": "positions are not evaluated exactly, so that no renaming is proposed",
    "soap": "positions are not evaluated exactly, so that no renaming is proposed",
    "soap_fixed": "positions are not evaluated exactly, so that no renaming is proposed",
    "spam": "the momentum is reset at multiples of a step that the prover does not decide",
}
"""Rules of which a rewritten step may be UNKNOWN, with the reason."""


@pytest.mark.parametrize("name", sorted(OPTIMIZERS))
@pytest.mark.parametrize("seed", [10, 11])
def test_the_same_function_in_other_words(name: str, seed: int) -> None:
    rule = OPTIMIZERS[name]()
    try:
        model, ports = exported(rule, PARAMS)
    except ClosedFormError:  # a rule of matrices
        model, ports = exported(rule, {"w": (2, 3), "v": (3, 2)})
    kind = sorted(COUNTERS)[(seed + len(name)) % len(COUNTERS)]
    verdict = judge_step(rewritten(model, ports, seed, kind), rule, ports=ports).verdict
    assert not verdict.refuted
    assert verdict.proved or name in OPEN, verdict


@pytest.mark.parametrize("name", RULES)
@pytest.mark.parametrize("seed", range(40))
def test_many_words_of_a_few_rules(name: str, seed: int) -> None:
    rule = RULES[name]()
    model, ports = exported(rule, PARAMS)
    kind = sorted(COUNTERS)[seed % len(COUNTERS)]
    verdict = judge_step(rewritten(model, ports, seed, kind), rule, ports=ports).verdict
    assert verdict.proved, verdict


@pytest.mark.parametrize("name", RULES)
def test_no_edit_is_proved(name: str) -> None:
    rule = RULES[name]()
    model, ports = exported(rule, PARAMS)
    counts: Counter[str] = Counter()
    for seed in range(3):
        file = rewritten(model, ports, seed)
        for description, edited in foreign.edits(file):
            try:
                verdict = judge_step(edited, rule, ports=ports).verdict
            except ClosedFormError:
                counts["refused"] += 1
                continue
            counts[str(verdict.status)] += 1
            assert not verdict.proved or foreign.are_same(file, edited, ports), description
    print(name, dict(counts))
    assert counts[Status.REFUTED] > counts[Status.UNKNOWN]

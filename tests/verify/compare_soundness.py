"""Random goals, claims, sums and conditions, judged by evaluation. For `make compare`."""

import pytest

from tests.verify.claims import conditions, drawn, sums
from tests.verify.test_soundness import judged


@pytest.mark.parametrize(
    ("clock_only", "depth", "goals"),
    [(True, 3, 2000), (True, 4, 600), (False, 2, 800), (False, 3, 400)],
)
def test_no_proof_is_contradicted(clock_only: bool, depth: int, goals: int) -> None:
    counts = judged(goals, 100 + depth, clock_only=clock_only, depth=depth)
    print(f"{goals} goals of depth {depth}, clock only {clock_only}: {dict(counts)}")
    assert sum(counts.values()) == goals
    assert counts["PROVED"] > goals / 20


@pytest.mark.parametrize("seed", range(100, 104))
def test_no_wrong_sum_is_proved(seed: int) -> None:
    counts = sums.judged(100, seed)
    print(f"sums, seed {seed}: {dict(counts)}")
    assert counts["right PROVED"] > 5 * counts["right UNKNOWN"]


@pytest.mark.parametrize("seed", range(100, 104))
def test_conditions_have_one_meaning(seed: int) -> None:
    counts = conditions.judged(250, seed)
    print(f"conditions, seed {seed}: {dict(counts)}")
    assert counts["same values in onnxruntime"] == counts["finite PROVED"] > 50
    assert counts["refused"] == counts["finite REFUTED"] > 50


@pytest.mark.parametrize("seed", range(100, 145))
def test_no_verdict_on_a_claim_is_contradicted(seed: int) -> None:
    counts = drawn.judged(12, seed)
    assert sum(counts.values()) == 144

"""Some thousand random goals: no proof that an exact evaluation contradicts. For `make compare`."""

import pytest

from tests.verify.tactics.test_soundness import judged


@pytest.mark.parametrize(
    ("clock_only", "depth", "goals"),
    [(True, 3, 2000), (True, 4, 600), (False, 2, 800), (False, 3, 400)],
)
def test_no_proof_is_contradicted(clock_only: bool, depth: int, goals: int) -> None:
    counts = judged(goals, 100 + depth, clock_only=clock_only, depth=depth)
    print(f"{goals} goals of depth {depth}, clock only {clock_only}: {dict(counts)}")
    assert sum(counts.values()) == goals
    assert counts["PROVED"] > goals / 20

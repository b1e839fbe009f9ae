"""100,000 and more instances of the solver's lemmas. For `make compare`."""

from tests.verify.audit import FUNCTIONS, audit

INSTANCES = 500_000


def test_lemmas_hold_at_many_points() -> None:
    found = audit(FUNCTIONS.items(), INSTANCES, seed=7)
    print(f"{found.checked} instances: {dict(found.outcomes)}, {len(found.violations)} violations")
    assert found.checked >= INSTANCES
    assert found.violations == []

"""How many examples hypothesis draws, and cases that are left to `make compare`.

See tests/conftest.py for how cases are sampled.
"""

from collections.abc import Collection, Iterable
from typing import Any

import hypothesis
import pytest

FEWEST = 10


def is_exhaustive() -> bool:
    """Whether all cases are run; tests/conftest.py loads the profile before any test module."""
    settings = hypothesis.settings.default
    assert settings is not None
    return settings.max_examples >= 100


def marking_slow(names: Iterable[str], slow: Collection[str]) -> list[Any]:
    """Returns the names as parameters; the slow ones are run with `--exhaustive` only."""
    parameters = [
        pytest.param(name, marks=pytest.mark.exhaustive if name in slow else ()) for name in names
    ]
    # A name that is no longer among them would be left out for nothing.
    assert set(slow) <= {parameter.values[0] for parameter in parameters}
    return parameters


def examples(count: int) -> int:
    """Returns `count` with `--exhaustive`, and without it the part that `make test` draws."""
    settings = hypothesis.settings.default
    assert settings is not None
    return max(FEWEST, count * settings.max_examples // 100)

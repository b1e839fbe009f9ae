"""How many examples hypothesis draws; see tests/conftest.py for how cases are sampled."""

import hypothesis

FEWEST = 10


def is_exhaustive() -> bool:
    """Whether all cases are run; tests/conftest.py loads the profile before any test module."""
    settings = hypothesis.settings.default
    assert settings is not None
    return settings.max_examples >= 100


def examples(count: int) -> int:
    """Returns `count` with `--exhaustive`, and without it the part that `make test` draws."""
    settings = hypothesis.settings.default
    assert settings is not None
    return max(FEWEST, count * settings.max_examples // 100)

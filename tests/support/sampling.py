"""How many examples hypothesis draws; see tests/conftest.py for how cases are sampled."""

import hypothesis

FEWEST = 10


def examples(count: int) -> int:
    """Returns `count` with `--exhaustive`, and without it the part that `make test` draws."""
    settings = hypothesis.settings.default
    assert settings is not None
    return max(FEWEST, count * settings.max_examples // 100)

"""The warning of an export that is not proved, expected where a test says so."""

from collections.abc import Iterator
from contextlib import contextmanager

import pytest

from closedform.errors import UnprovedWarning


@contextmanager
def expect_unproved(is_unproved: bool = True) -> Iterator[None]:
    """Fails if no export in the block is unproved; with False it changes nothing."""
    if not is_unproved:
        yield
        return
    with pytest.warns(UnprovedWarning):
        yield

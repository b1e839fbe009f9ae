"""Fixtures of the tests of optimizers in torch."""

from __future__ import annotations

from collections.abc import Iterator
from typing import TYPE_CHECKING

import pytest

if TYPE_CHECKING:
    from tests.support.compiled_once import Compilations


@pytest.fixture(scope="session")
def compilations() -> Compilations:
    """The compilations of the session."""
    from tests.support.compiled_once import Compilations

    return Compilations()


@pytest.fixture(scope="module", autouse=True)
def _compiled_once(compilations: Compilations) -> Iterator[None]:
    with compilations.used():
        yield

"""Fixtures of the tests of optimizers in torch."""

from collections.abc import Iterator

import pytest

from tests.support.compiled_once import Compilations


@pytest.fixture(scope="session")
def compilations() -> Compilations:
    """The compilations of the session."""
    return Compilations()


@pytest.fixture(scope="module", autouse=True)
def _compiled_once(compilations: Compilations) -> Iterator[None]:
    with compilations.used():
        yield

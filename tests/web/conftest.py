"""Fixtures of the tests of pages."""

from importlib.util import find_spec

# Tests of files that need no torch run without it.
if find_spec("torch") is not None:
    from tests.support.torch_exporter import operators_are_listed_once

    __all__ = ["operators_are_listed_once"]

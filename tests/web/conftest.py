"""Fixtures of the tests of pages."""

from tests.support.torch_exporter import operators_are_listed_once

__all__ = ["operators_are_listed_once"]

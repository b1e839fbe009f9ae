"""The internal test tables of the torch wheel, which take a base class from expecttest."""

import importlib
import importlib.util
import sys
import types
import unittest
import warnings
from typing import Any


def torch_testing(name: str) -> Any:
    """Returns the module ``torch.testing._internal.<name>``, without its warnings."""
    if "expecttest" not in sys.modules and importlib.util.find_spec("expecttest") is None:
        base = types.ModuleType("expecttest")
        base.TestCase = unittest.TestCase  # type: ignore[attr-defined]
        sys.modules["expecttest"] = base
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        return importlib.import_module(f"torch.testing._internal.{name}")

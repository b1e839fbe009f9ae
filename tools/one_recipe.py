"""One recipe, a cosine with a warmup, as the config of each framework.

tools/build_frameworks.py compares its curves; it is a counterexample of several frameworks, too.
"""

from __future__ import annotations

from collections.abc import Mapping
from importlib import import_module
from pathlib import Path

from closedform.language import Schedule
from closedform.schedules import constant, cosine, linear
from tools.sections import ROOT

TESTS = ROOT / "tests" / "frameworks"


def name_of(path: Path) -> str:
    """The name of the framework whose folder of tests has a file."""
    name: str = import_module(f"closedform.frameworks.{path.parent.name}").FRAMEWORK.name
    return name


CONFIGS: Mapping[str, str] = {
    name_of(path): path.read_text(encoding="utf-8") for path in TESTS.glob("*/one_recipe.yaml")
}
"""The recipe in the form of each framework."""

ONE_RECIPE = "a line from 0 to 1 in 4 updates, a cosine to 0.1 at update 10, then 0.1"
"""The recipe in words."""


def recipe(end: int = 10, low: float = 0.1) -> Schedule:
    """The cosine with peak 1, a warmup of 4 updates, and the minimum from update ``end`` on."""
    fall = cosine(1, low, end - 4).then(constant(low), at=end - 4)
    return linear(0, 1, 4).then(fall, at=4)

"""Schedulers that a config names by the import path of their class."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

import sympy as sp

from closedform.errors import nearest
from closedform.frameworks.torch.schedules import SCHEDULES
from closedform.language import Schedule
from closedform.recipes import kit

PACKAGES = ("torch.optim.lr_scheduler", "torch.optim")
"""The modules that have the classes."""


def class_of(origin: kit.RawSection, key: str) -> str:
    """Returns the class of an import path of torch.

    Raises:
        ConfigError: The path is of another package, or torch has no such class.
    """
    path = str(origin.text(key))
    module, _, name = path.rpartition(".")
    if module not in PACKAGES:
        raise origin.error(
            f"the scheduler must be a class of {PACKAGES[0]}, got {path!r:.80}",
            key,
            hint="write its formula as a Schedule of the library",
        )
    if name not in SCHEDULES:
        raise origin.error(f"torch has no scheduler {name!r:.60}", key, nearest(name, SCHEDULES))
    return name


def of_class(
    origin: kit.RawSection,
    name: str,
    arguments: Mapping[str, Any],
    rate: sp.Expr,
    as_implemented: bool,
) -> Schedule:
    """Returns the schedule of a class of torch, with an error's place.

    Raises:
        ConfigError: An argument is missing, unknown or not valid.
    """
    with origin.locate_errors():
        return kit.class_schedule(
            "torch", SCHEDULES, name, arguments, base=rate, as_implemented=as_implemented
        )

"""The optimizers of Composer and llm-foundry that are their own."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from functools import partial
from types import MappingProxyType
from typing import Any

from closedform.language import UpdateRule
from closedform.optimizers import decoupled_adamw, decoupled_lionw, decoupled_sgdw
from closedform.recipes import kit

RULES: Mapping[str, Callable[..., UpdateRule]] = MappingProxyType(
    {
        "DecoupledAdamW": decoupled_adamw,
        "DecoupledLionW": decoupled_lionw,
        "DecoupledSGDW": decoupled_sgdw,
    }
)
"""The rules of the library by the names of their classes."""


def rules_from(initial_lr: Any) -> Mapping[str, Callable[..., UpdateRule]]:
    """Returns the rules for a rate before the schedule; 0 for a decay that does not follow it."""
    return {name: partial(make, initial_lr=initial_lr) for name, make in RULES.items()}


_INITIAL = kit.parameters(initial_lr=None)
OPTIMIZERS = {
    name: kit.OptimizerEntry(name, (*kit.parameters_of(make), *_INITIAL), kit.passed_to(make))
    for name, make in RULES.items()
}
"""Entries of ``frameworks.optimizer``; ``initial_lr`` is an entry of the param group."""

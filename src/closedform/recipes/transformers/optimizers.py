"""The optimizers of TrainingArguments by ``optim``."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from closedform.recipes.recipe import OptimizerPlan
from closedform.recipes.rules import planned
from closedform.recipes.section import Section

_ADAM = ("betas", "eps", "weight_decay")

RULES: Mapping[str, tuple[str, tuple[str, ...]]] = {
    **dict.fromkeys(
        (
            "adamw_torch",
            "adamw_torch_fused",
            "adamw_torch_npu_fused",
            "adamw_torch_xla",
            "paged_adamw_32bit",
        ),
        ("adamw", _ADAM),
    ),
    "adagrad": ("adagrad", ("weight_decay",)),
    "lion_32bit": ("lion", ("betas", "weight_decay")),
    "paged_lion_32bit": ("lion", ("betas", "weight_decay")),
    "rmsprop": ("rmsprop", ("weight_decay",)),
    "schedule_free_adamw": ("schedule_free_adamw", _ADAM),
    "schedule_free_radam": ("schedule_free_radam", _ADAM),
    "schedule_free_sgd": ("schedule_free_sgd", ("weight_decay",)),
    "sgd": ("sgd", ("weight_decay",)),
    "stable_adamw": ("stable_adamw", _ADAM),
}
"""``optim`` -> the rule of the library, and the arguments that it takes."""


def optimizer_plan(
    section: Section,
    beta2: float = 0.999,
    weight_decay: float = 0.0,
    key: str = "optim",
    default: str = "adamw_torch",
) -> OptimizerPlan:
    """Returns the optimizer of a section with the keys of TrainingArguments.

    Of one whose states have few bits, or that the library does not have, the plan has the name
    alone; its rule is refused when it is asked for.

    Args:
        section: The section.
        beta2: The default of ``adam_beta2``.
        weight_decay: The default of ``weight_decay``.
        key: The key of the optimizer's name.
        default: The default of that name.

    Raises:
        ConfigError: A value is not valid.
    """
    name = section.text(key, default)
    if section.flag("adafactor", False):
        name = "adafactor"
    rule, taken = RULES.get(name, (name, ()))
    values: dict[str, Any] = {
        "betas": (section.number("adam_beta1", 0.9), section.number("adam_beta2", beta2)),
        "eps": section.number("adam_epsilon", 1e-8),
        "weight_decay": section.number("weight_decay", weight_decay),
    }
    where = section.document.place(section.at(key))
    made = rule if name in RULES else None
    arguments = {one: values[one] for one in taken}
    return planned(name, arguments, made, where, by_name=False)

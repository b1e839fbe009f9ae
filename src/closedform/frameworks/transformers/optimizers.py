"""The optimizers of TrainingArguments by ``optim``."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from closedform.recipes import kit

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


def _deepspeed(section: kit.RawSection, key: str, default: None) -> kit.Document | None:
    """The DeepSpeed config that an argument names or holds; None if it cannot be read."""
    value = section.value(key, default)
    if isinstance(value, Mapping):
        return kit.Document({**value}, section.document.place(section.at(key)))
    return kit.named_document(section.document, value) if isinstance(value, str) else None


class Adam(kit.Section):
    """The keys of TrainingArguments that decide the optimizer, but for its name."""

    adafactor: bool = False
    adam_beta1: kit.Momentum = 0.9
    adam_beta2: kit.Momentum = 0.999
    adam_epsilon: kit.Epsilon = 1e-8
    deepspeed: kit.Document | None = kit.read_by(_deepspeed, None)
    weight_decay: kit.WeightDecay = 0


class Optimizer(Adam):
    """The keys of TrainingArguments that decide the optimizer."""

    optim: str = "adamw_torch"


def optimizer_plan(arguments: Adam, key: str = "optim") -> kit.OptimizerPlan:
    """Returns the optimizer of values with the keys of ``Adam``.

    Of one whose states have few bits, or that the library does not have, the plan has the name
    alone; its rule is refused when it is asked for.

    Args:
        arguments: The values.
        key: The key of the optimizer's name.
    """
    name = "adafactor" if arguments.adafactor else getattr(arguments, key)
    rule, names = RULES.get(name, (None, ()))
    values: dict[str, Any] = {
        "betas": (arguments.adam_beta1, arguments.adam_beta2),
        "eps": arguments.adam_epsilon,
        "weight_decay": arguments.weight_decay,
    }
    where = arguments.origin.document.place(arguments.origin.at(key))
    return kit.plan_optimizer(
        name, {entry: values[entry] for entry in names}, rule, where, by_name=False
    )

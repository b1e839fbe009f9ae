"""The schedulers of ModelGenerator, which LightningCLI configs name by their class path.

Each takes the curve of transformers' Trainer; the warmup is a number of updates or a part of the
run, rounded down.
"""

from __future__ import annotations

from closedform.frameworks import transformers
from closedform.language import Schedule, exact_number
from closedform.recipes import kit

CURVES = {
    "CosineWithWarmup": "cosine",
    "ConstantWithWarmup": "constant_with_warmup",
    "LinearWithWarmup": "linear",
}
"""The classes, and the curves of transformers that they take."""


class Arguments(kit.Section, irrelevant="last_epoch verbose"):
    warmup_ratio: kit.RunRatio | None = None
    num_warmup_steps: kit.Steps | None = kit.integer(None, least=0)


def warmup_updates(values: Arguments, total: int) -> int:
    """Returns the updates of the warmup.

    Raises:
        ConfigError: Neither ``warmup_ratio`` nor ``num_warmup_steps`` is given.
    """
    if values.num_warmup_steps is not None:
        return int(values.num_warmup_steps)
    if values.warmup_ratio is None:
        raise values.error("warmup_ratio or num_warmup_steps must be given")
    return int(float(values.warmup_ratio) * total)


def rate(context: kit.Context, values: Arguments, name: str) -> Schedule:
    """Returns the schedule of a class, from the fact ``num_training_steps`` and the base rate."""
    (total,) = context.numbers.require("total_updates", where=context.where)
    config = {
        "learning_rate": exact_number(context.base, "base"),
        "max_steps": int(total),
        "warmup_steps": warmup_updates(values, int(total)),
        "lr_scheduler_type": CURVES[name],
    }
    return kit.class_schedule(
        "transformers", transformers.FRAMEWORK.schedules, CURVES[name], config
    )

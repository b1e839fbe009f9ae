"""The schedulers of ModelGenerator, which LightningCLI configs name by their class path.

Each takes the curve of transformers' Trainer; the warmup is a number of updates or a part of the
run, rounded down.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import Any

from closedform.errors import DefinitionError
from closedform.language import Schedule
from closedform.recipes import transformers
from closedform.recipes.build import built
from closedform.recipes.checks import count, number
from closedform.recipes.entries import Context, ScheduleEntry, parameters

_CURVES = {
    "CosineWithWarmup": "cosine",
    "ConstantWithWarmup": "constant_with_warmup",
    "LinearWithWarmup": "linear",
}


def warmup_updates(given: Mapping[str, Any], total: int, where: str) -> int:
    """Returns the updates of the warmup.

    Raises:
        DefinitionError: Neither ``warmup_ratio`` nor ``num_warmup_steps`` is given.
    """
    steps, ratio = given["num_warmup_steps"], given["warmup_ratio"]
    if steps is not None:
        return int(count(0)(steps, "num_warmup_steps", where))
    if ratio is None:
        raise DefinitionError("warmup_ratio or num_warmup_steps must be given", where=where)
    number(ratio, "warmup_ratio", where)
    return int(ratio * total)


def _builder(curve: str) -> Callable[[Mapping[str, Any], Context], Schedule]:
    def build(given: Mapping[str, Any], context: Context) -> Schedule:
        total = count(0)(context.fact("num_training_steps"), "num_training_steps", context.where)
        config = {
            "learning_rate": context.base,
            "max_steps": total,
            "warmup_steps": warmup_updates(given, total, context.where),
            "lr_scheduler_type": curve,
        }
        return built("transformers", transformers.FRAMEWORK.schedules, curve, config)

    return build


_PARAMETERS = parameters(
    warmup_ratio=None, num_warmup_steps=None, last_epoch=-1, verbose="deprecated"
)
SCHEDULES = {
    name: ScheduleEntry(name, (), _PARAMETERS, _builder(curve)) for name, curve in _CURVES.items()
}

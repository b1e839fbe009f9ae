"""nanoGPT: the learning rate of ``train.py``."""

from __future__ import annotations

from closedform.language import Schedule
from closedform.recipes.clock import Clock, Unit
from closedform.recipes.defects import Defect, DefectKind
from closedform.recipes.entries import Context
from closedform.recipes.framework import Framework
from closedform.recipes.intervals import by_intervals, quotient
from closedform.recipes.keys import Keys, Values, flag, irrelevant, number, section_entries
from closedform.schedules.blends import along_cosine

CLOCK = Clock(Unit.UPDATE)
CONFIG = Keys(
    learning_rate=number(6e-4),
    max_iters=irrelevant(),
    warmup_iters=number(2000),
    lr_decay_iters=number(600_000),
    min_lr=number(6e-5),
    decay_lr=flag(True),
)


def _rate(context: Context, config: Values) -> Schedule:
    count = CLOCK.count(context.numbers)
    peak, warmup, total = config.learning_rate, config.warmup_iters, config.lr_decay_iters
    if not config.decay_lr:
        return by_intervals("get_lr", (lambda: peak, None))
    return by_intervals(
        "get_lr",
        (lambda: peak * (count.n + 1) / (warmup + 1), count.first_from(warmup)),
        (
            lambda: along_cosine(peak, config.min_lr, quotient(count.n - warmup, total - warmup)),
            count.first_after(total),
        ),
        (lambda: config.min_lr, None),
    )


FRAMEWORK = Framework(
    "nanogpt",
    section_entries({"get_lr": _rate}, {"": CONFIG}),
    versions=("3adf61e154c3",),
    upstream="train.py",
    clock=CLOCK,
    defects={
        "division-by-zero": Defect(
            "a warmup as long as the decay divides by zero at the end of both",
            "train.py:239",
            kind=DefectKind.CONVENTION,
        )
    },
)

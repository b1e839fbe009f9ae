"""nanoGPT: the learning rate of ``train.py``."""

from __future__ import annotations

from closedform.language import Schedule
from closedform.recipes import kit
from closedform.schedules.blends import along_cosine

CLOCK = kit.Clock(kit.Unit.UPDATE)


class Config(kit.Section, irrelevant="max_iters"):
    learning_rate: kit.Rate = 6e-4
    warmup_iters: kit.RealSteps = 2000
    lr_decay_iters: kit.RealSteps = 600_000
    min_lr: kit.EndRate = 6e-5
    decay_lr: bool = True


def _rate(context: kit.Context, config: Config) -> Schedule:
    count = CLOCK.count(context.numbers)
    peak, warmup, total = config.learning_rate, config.warmup_iters, config.lr_decay_iters
    if not config.decay_lr:
        return kit.by_intervals("get_lr", (lambda: peak, None))
    return kit.by_intervals(
        "get_lr",
        (lambda: peak * (count.n + 1) / (warmup + 1), count.first_from(warmup)),
        (
            lambda: along_cosine(
                peak, config.min_lr, kit.quotient(count.n - warmup, total - warmup)
            ),
            count.first_after(total),
        ),
        (lambda: config.min_lr, None),
    )


FRAMEWORK = kit.Framework(
    "nanogpt",
    kit.section_entries({"get_lr": _rate}, {"": Config}),
    versions=("3adf61e154c3",),
    repository="https://github.com/karpathy/nanoGPT",
    tier=kit.Tier.FROZEN,
    upstream="train.py",
    clock=CLOCK,
    defects={
        "division-by-zero": kit.Defect(
            "a warmup as long as the decay divides by zero at the end of both",
            "train.py:239",
            kind=kit.DefectKind.CONVENTION,
        )
    },
)

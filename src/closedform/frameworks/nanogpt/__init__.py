"""nanoGPT: the learning rate of ``train.py``."""

from __future__ import annotations

from closedform.frameworks.nanogpt import curves
from closedform.language import Schedule, t
from closedform.recipes import kit
from closedform.schedules import constant

CLOCK = kit.Clock(kit.Unit.UPDATE)


class Config(kit.Section, irrelevant="max_iters"):
    learning_rate: kit.Rate = 6e-4
    warmup_iters: kit.RealSteps = 2000
    lr_decay_iters: kit.RealSteps = 600_000
    min_lr: kit.EndRate = 6e-5
    decay_lr: bool = True


def _rate(context: kit.Context, config: Config) -> Schedule:
    if not config.decay_lr:
        return constant(config.learning_rate).rename("get_lr")
    return kit.curve("get_lr", curves.get_lr, t, config)


FRAMEWORK = kit.Framework(
    "nanogpt",
    kit.section_entries({"get_lr": _rate}, {"": Config}),
    versions=("3adf61e154c3",),
    repository="https://github.com/karpathy/nanoGPT",
    tier=kit.Tier.FROZEN,
    upstream="train.py",
    clock=CLOCK,
    defects={
        "division-by-zero": kit.Convention(
            "a warmup as long as the decay divides by zero at the end of both",
            "train.py:239",
        )
    },
)

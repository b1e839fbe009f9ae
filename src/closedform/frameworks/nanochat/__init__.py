"""nanochat: the schedules of its base training, ``scripts/base_train.py``."""

from __future__ import annotations

import sympy as sp

from closedform.language import Schedule, exact_number
from closedform.recipes import kit
from closedform.schedules.blends import along_cosine, along_line

CLOCK = kit.Clock(kit.Unit.UPDATE)


class Config(kit.Section):
    warmup_steps: kit.RealSteps
    warmdown_ratio: kit.RunRatio
    final_lr_frac: kit.RateRatio


_RAMP = sp.Integer(400)
_MOMENTUM = tuple(sp.Rational(hundredths, 100) for hundredths in (85, 97, 90))


def _warmdown(context: kit.Context, config: Config) -> tuple[sp.Expr, sp.Expr]:
    """The length of the run and of its warmdown, which is rounded in floats."""
    (total,) = context.numbers.require("total_updates", where=context.where)
    return total, sp.Integer(round(float(config.warmdown_ratio) * int(total)))


def _multiplier(context: kit.Context, config: Config) -> Schedule:
    count, warmup = CLOCK.count(context.numbers), config.warmup_steps
    total, length = _warmdown(context, config)
    return kit.by_intervals(
        "get_lr_multiplier",
        (lambda: (count.n + 1) / warmup, count.first_from(warmup)),
        (lambda: sp.S.One, count.first_after(total - length)),
        (
            lambda: along_line(
                config.final_lr_frac, sp.S.One, kit.quotient(total - count.n, length)
            ),
            None,
        ),
    )


def _momentum(context: kit.Context, config: Config) -> Schedule:
    count = CLOCK.count(context.numbers)
    total, length = _warmdown(context, config)
    low, high, last = _MOMENTUM
    return kit.by_intervals(
        "get_muon_momentum",
        (lambda: along_line(low, high, count.n / _RAMP), count.first_from(_RAMP)),
        (lambda: high, count.first_from(total - length)),
        (lambda: along_line(high, last, kit.quotient(count.n - total + length, length)), None),
    )


def _weight_decay(context: kit.Context, config: Config) -> Schedule:
    total, _ = _warmdown(context, config)
    first = exact_number(context.fact("weight_decay_scaled"))
    n = CLOCK.count(context.numbers).n
    return kit.by_intervals(
        "get_weight_decay", (lambda: along_cosine(first, sp.S.Zero, n / total), None)
    )


_CURVES = {
    "get_lr_multiplier": _multiplier,
    "get_muon_momentum": _momentum,
    "get_weight_decay": _weight_decay,
}
FRAMEWORK = kit.Framework(
    "nanochat",
    kit.section_entries(_CURVES, {"": Config}),
    versions=("92d63d4e8bb4",),
    repository="https://github.com/karpathy/nanochat",
    tier=kit.Tier.OFFICIAL,
    upstream="scripts/base_train.py",
    clock=CLOCK,
    defects={
        "momentum-never-falls": kit.Defect(
            "a run of at most 400 updates never begins the fall of the momentum",
            "scripts/base_train.py:375",
            kind=kit.DefectKind.CONVENTION,
            classes=("get_muon_momentum",),
        )
    },
)

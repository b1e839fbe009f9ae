"""nanochat: the schedules of its base training, ``scripts/base_train.py``."""

from __future__ import annotations

from collections.abc import Mapping

from closedform.frameworks.nanochat import curves
from closedform.language import Schedule, exact_number, t
from closedform.recipes import kit

CLOCK = kit.Clock(kit.Unit.UPDATE)


class Config(kit.Section):
    warmup_steps: kit.RealSteps
    warmdown_ratio: kit.RunRatio
    final_lr_frac: kit.RateRatio


_CURVES: Mapping[str, kit.CurveFunction] = {
    "get_lr_multiplier": curves.multiplier,
    "get_muon_momentum": curves.momentum,
    "get_weight_decay": curves.weight_decay,
}


def _curve(context: kit.Context, config: Config) -> Schedule:
    (total,) = context.numbers.require("total_updates", where=context.where)
    name = context.path[-1]
    # The length of the warmdown is rounded in floats.
    numbers = {"total": total, "warmdown": round(float(config.warmdown_ratio) * int(total))}
    if name == "get_weight_decay":
        numbers["decay"] = exact_number(context.fact("weight_decay_scaled"))
    return kit.curve(name, _CURVES[name], t, config, **numbers)


FRAMEWORK = kit.Framework(
    "nanochat",
    kit.section_entries(dict.fromkeys(_CURVES, _curve), {"": Config}),
    versions=("92d63d4e8bb4",),
    repository="https://github.com/karpathy/nanochat",
    upstream="scripts/base_train.py",
    clock=CLOCK,
    defects={
        "momentum-never-falls": kit.Convention(
            "a run of at most 400 updates never begins the fall of the momentum",
            "scripts/base_train.py:375",
            classes=("get_muon_momentum",),
        )
    },
)

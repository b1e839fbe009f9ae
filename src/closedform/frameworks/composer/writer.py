"""The writer of Composer's recipes, in batches."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

import sympy as sp

from closedform.recipes import kit

_SHAPES = {
    kit.CurveName.CONSTANT: ("constant", "constant_with_warmup"),
    kit.CurveName.LINEAR: ("linear_decay", "linear_decay_with_warmup"),
    kit.CurveName.COSINE: ("cosine_decay", "cosine_decay_with_warmup"),
    kit.CurveName.POWER: ("polynomial", "polynomial_with_warmup"),
}


def written_schedulers(form: kit.WarmupDecayForm) -> Iterator[tuple[str, dict[str, Any]]]:
    """Yields the names of schedulers with their arguments: a warmup begins at 0."""
    if form.curve in (kit.CurveName.STEPS, kit.CurveName.EXPONENTIAL) or form.cycles > 1:
        yield from _others(form)
        return
    if form.curve not in _SHAPES:
        return
    plain, warmed = _SHAPES[form.curve]
    arguments: dict[str, Any] = {}
    if form.curve is not kit.CurveName.CONSTANT:
        arguments["alpha_f"] = form.low_ratio
        if kit.nearest_integer(form.end) != form.total:
            arguments["t_max"] = f"{kit.nearest_integer(form.end)}ba"
    if form.curve is kit.CurveName.POWER:
        arguments["power"] = kit.native(form.power)
    if form.rise is None:
        yield plain, arguments
        return
    for length in dict.fromkeys(
        (kit.nearest_integer(form.warmup()), kit.nearest_integer(form.warmup(1)))
    ):
        yield warmed, {"t_warmup": f"{length}ba", **arguments}


def _others(form: kit.WarmupDecayForm) -> Iterator[tuple[str, dict[str, Any]]]:
    """Steps, an exponential, and a cosine in cycles."""
    if form.curve is kit.CurveName.STEPS:
        marks = [f"{first}ba" for first in form.milestones]
        steps = {"milestones": marks, "gamma": kit.native(form.gamma)}
        if form.rise is None:
            yield "multistep", steps
        else:
            yield (
                "multistep_with_warmup",
                {"t_warmup": f"{kit.nearest_integer(form.warmup())}ba", **steps},
            )
    elif form.rise is None and form.curve is kit.CurveName.EXPONENTIAL:
        gamma = (form.low / form.peak) ** (sp.S.One / (form.end - form.begin))
        number = float(sp.N(gamma, 30))
        yield "exponential", {"gamma": number, "decay_period": "1ba"}
    elif form.rise is None and form.begin == 0:
        length = f"{kit.nearest_integer(form.end - form.begin)}ba"
        yield "cosine_warmrestart", {"t_0": length, "alpha_f": kit.native(form.low / form.peak)}


def clipping_entry(made: kit.Optimizer) -> dict[str, Any]:
    """Returns the section of the clipping, empty without one."""
    if made.clipping is None:
        return {}
    clipping = {"clipping_type": "norm", "clipping_threshold": kit.native(made.clipping)}
    return {"algorithms": {"gradient_clipping": clipping}}


def _configs(form: kit.WarmupDecayForm, made: kit.Optimizer) -> Iterator[kit.Config]:
    for name, arguments in written_schedulers(form):
        yield {
            "optimizers": {made.name or "adamw": made.keywords(form.peak)},
            "schedulers": [{name: arguments}],
            "max_duration": f"{form.total}ba",
            **clipping_entry(made),
        }


_RULES = ("adam", "adamw", "decoupled_adamw", "decoupled_sgdw", "sgd")
WRITER = kit.Writer(".yaml", _configs, {}, _RULES)

"""The writer of Composer's recipes, in batches."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from typing import Any

import sympy as sp

from closedform.recipes.forms import (
    Config,
    CurveName,
    Optimizer,
    WarmupDecayForm,
    Writer,
    native,
    whole,
)

_SHAPES = {
    CurveName.CONSTANT: ("constant", "constant_with_warmup"),
    CurveName.LINEAR: ("linear_decay", "linear_decay_with_warmup"),
    CurveName.COSINE: ("cosine_decay", "cosine_decay_with_warmup"),
    CurveName.POWER: ("polynomial", "polynomial_with_warmup"),
}


def written_schedulers(form: WarmupDecayForm) -> Iterator[tuple[str, dict[str, Any]]]:
    """Yields the names of schedulers with their arguments: a warmup begins at 0."""
    if form.curve in (CurveName.STEPS, CurveName.EXPONENTIAL) or form.cycles > 1:
        yield from _others(form)
        return
    if form.curve not in _SHAPES:
        return
    plain, warmed = _SHAPES[form.curve]
    arguments: dict[str, Any] = {}
    if form.curve is not CurveName.CONSTANT:
        arguments["alpha_f"] = native(form.low / form.peak) if form.peak != 0 else 0.0
        if whole(form.end) != form.total:
            arguments["t_max"] = f"{whole(form.end)}ba"
    if form.curve is CurveName.POWER:
        arguments["power"] = native(form.power)
    if form.rise is None:
        yield plain, arguments
        return
    for length in dict.fromkeys((whole(form.warmup()), whole(form.warmup(1)))):
        yield warmed, {"t_warmup": f"{length}ba", **arguments}


def _others(form: WarmupDecayForm) -> Iterator[tuple[str, dict[str, Any]]]:
    """Steps, an exponential, and a cosine in cycles."""
    if form.curve is CurveName.STEPS:
        values = [value for _, value in form.marks]
        gamma = native(values[1] / values[0]) if values[0] != 0 else 0.0
        steps = {"milestones": [f"{first}ba" for first, _ in form.marks[1:]], "gamma": gamma}
        if form.rise is None:
            yield "multistep", steps
        else:
            yield "multistep_with_warmup", {"t_warmup": f"{whole(form.warmup())}ba", **steps}
    elif form.rise is None and form.curve is CurveName.EXPONENTIAL:
        gamma = (form.low / form.peak) ** (sp.S.One / (form.end - form.begin))
        number = float(sp.N(gamma, 30))
        yield "exponential", {"gamma": number, "decay_period": "1ba"}
    elif form.rise is None and form.begin == 0:
        length = f"{whole(form.end - form.begin)}ba"
        yield "cosine_warmrestart", {"t_0": length, "alpha_f": native(form.low / form.peak)}


def clipping_entry(made: Optimizer) -> dict[str, Any]:
    """Returns the section of the clipping, empty without one."""
    if made.clipping is None:
        return {}
    clipping = {"clipping_type": "norm", "clipping_threshold": native(made.clipping)}
    return {"algorithms": {"gradient_clipping": clipping}}


def _configs(form: WarmupDecayForm, made: Optimizer, facts: Mapping[str, Any]) -> Iterator[Config]:
    del facts
    for name, arguments in written_schedulers(form):
        yield {
            "optimizers": {made.name or "adamw": made.keywords(form.peak)},
            "schedulers": [{name: arguments}],
            "max_duration": f"{form.total}ba",
            **clipping_entry(made),
        }


_RULES = ("adam", "adamw", "decoupled_adamw", "decoupled_sgdw", "sgd")
WRITER = Writer(".yaml", _configs, {}, _RULES)

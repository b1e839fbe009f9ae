"""The writer of big_vision's configs: a Python file whose ``get_config`` returns a mapping."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from typing import Any

import sympy as sp

from closedform.recipes.forms import Config, Curve, Form, Optimizer, Writer, literal, native, whole

_NAMES = {
    "adafactor": "big_vision.scale_by_adafactor",
    "lion": "scale_by_lion",
    "sgd": "big_vision.sgd",
}


def _schedule(form: Form) -> Iterator[dict[str, Any]]:
    warmup = native(form.warmup())
    section: dict[str, Any] = {"warmup_steps": warmup} if warmup else {}
    has_whole_run = whole(form.end) == form.total
    match form.curve:
        case Curve.COSINE if form.low == 0 and has_whole_run:
            yield {**section, "decay_type": "cosine"}
        case Curve.LINEAR | Curve.POWER if has_whole_run and not form.has_plateau:
            low = native(form.low / form.peak) if form.peak != 0 else 0.0
            curve = {"decay_type": "polynomial", "end": low, "power": native(form.power)}
            yield {**section, **curve}
        case Curve.LINEAR if form.low == 0 and has_whole_run:
            # A constant rate times a cooldown at the end.
            cooldown = {"cooldown_steps": form.total - whole(form.begin)}
            yield {**section, **cooldown, "decay_type": "stair"}
        case Curve.CONSTANT:
            yield {**section, "decay_type": "stair"}
        case Curve.STEPS:
            steps = [first for first, _ in form.marks[1:]]
            mults = [native(value / form.peak) for _, value in form.marks[1:]]
            yield {**section, "decay_type": "stair", "steps": steps, "mults": mults}
        case Curve.INVERSE_ROOT | Curve.SEQUENCE:
            yield from _root(form, section)
        case _:
            return


def _root(form: Form, section: dict[str, Any]) -> Iterator[dict[str, Any]]:
    """An inverse root after the warmup, perhaps with a cooldown to 0 at the end."""
    if form.curve is Curve.INVERSE_ROOT:
        scale = form.end
        shift = -form.begin - whole(form.warmup())
        yield {
            **section,
            "decay_type": "rsqrt",
            "timescale": native(scale),
            "shift": native(shift + scale * 0),
        }


def _configs(form: Form, made: Optimizer, facts: Mapping[str, Any]) -> Iterator[Config]:
    del facts
    options: dict[str, Any] = {}
    if made.betas():
        options = {"b1": made.betas()[0], "b2": made.betas()[1]}
        if "eps" in made.values:
            options["eps"] = native(made.values["eps"])
    config: dict[str, Any] = {
        "total_steps": form.total,
        "input": {"batch_size": 1},
        "optax_name": _NAMES.get(made.argument(made.name), "scale_by_adam"),
        "optax": options | made.arguments("lr", "weight_decay"),
        "lr": native(form.peak),
        "wd": native(_decay(form, made)),
    }
    if made.clipping is not None:
        config["grad_clip_norm"] = native(made.clipping)
    for key in ("lr_mults", "wd_mults"):
        mults = [
            (pattern, native(one.factor))
            for one in made.groups
            for pattern in one.patterns
            if one.name.endswith(f"({key})") and one.factor is not None
        ]
        if mults and key == "lr_mults":
            config[key] = [list(pair) for pair in mults]
    for section in _schedule(form):
        frozen = [
            pattern
            for one in made.groups
            if one.factor == 0 and not one.name.endswith("_mults)")
            for pattern in one.patterns
        ]
        schedule: Any = section
        if frozen:
            schedule = [*([one, None] for one in frozen), [".*", section]]
        yield {**config, "schedule": schedule}


def _decay(form: Form, made: Optimizer) -> Any:
    """The weight decay that the schedule multiplies."""
    changing = made.schedules.get("weight_decay")
    if changing is not None:
        return changing.peak
    return made.weight_decay or sp.S.Zero if form.curve is Curve.CONSTANT else sp.S.Zero


def _text(config: Config) -> str:
    lines = [f"  config.{key} = {literal(value)}\n" for key, value in config.items()]
    return (
        "import ml_collections as mlc\n\n\n"
        "def get_config(arg=None):\n"
        "  config = mlc.ConfigDict()\n" + "".join(lines) + "  return config\n"
    )


WRITER = Writer(".py", _configs, {}, ("adam", "sgd", "lion"), text=_text)

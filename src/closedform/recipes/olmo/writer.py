"""The writer of OLMo's configs, whose clock counts the update itself."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from typing import Any

from closedform.recipes.forms import Config, Curve, Form, Optimizer, Writer, native, whole

_NAMES = {
    Curve.CONSTANT: "constant_with_warmup",
    Curve.COSINE: "cosine_with_warmup",
    Curve.LINEAR: "linear_with_warmup",
}


def _configs(form: Form, made: Optimizer, facts: Mapping[str, Any]) -> Iterator[Config]:
    if form.curve not in _NAMES:
        return
    optimizer: dict[str, Any] = {
        "name": "lionw" if made.name == "lion" else "adamw",
        "weight_decay": native(made.weight_decay or 0),
    }
    if "betas" in made.values:
        optimizer["betas"] = [native(beta) for beta in made.values["betas"]]
    if "eps" in made.values:
        optimizer["eps"] = native(made.values["eps"])
    more = {} if made.clipping is None else {"max_grad_norm": native(made.clipping)}
    spared = " ".join(pattern for one in made.groups for pattern in one.patterns)
    optimizer["decay_norm_and_bias"] = "norm" not in spared and "bias" not in spared
    optimizer["decay_embeddings"] = "embed" not in spared
    clipping: dict[str, Any] = {}
    limit = made.schedules.get("clipping")
    if limit is not None and len(limit.marks) == 2:
        (_, first), (mark, last) = limit.marks
        more = {"max_grad_norm": native(last)}
        clipping = {"grad_clip_warmup_steps": mark, "grad_clip_warmup_factor": native(first / last)}
    for section, peak in _schedulers(form, facts.get("tokens_per_update")):
        yield {
            "optimizer": {**optimizer, "learning_rate": native(peak)},
            "scheduler": {**section, **_scaled(clipping, section, facts)},
            "max_duration": form.total,
            **more,
        }


def _scaled(clipping: Config, section: Config, facts: Mapping[str, Any]) -> Config:
    """The warmup of the clipping in the unit of the scheduler."""
    each = int(facts.get("tokens_per_update", 1)) if section.get("units") == "tokens" else 1
    key = "grad_clip_warmup_steps"
    return {**clipping, key: clipping[key] * each} if clipping else {}


def _schedulers(form: Form, tokens: Any) -> Iterator[tuple[dict[str, Any], Any]]:
    """The section of the scheduler, and the rate of the optimizer."""
    has_rise = form.rise is not None
    # The clock counts t + 1.
    begin, end = form.warmup(1) if has_rise else form.begin + 1, form.end + 1
    section: dict[str, Any] = {"name": _NAMES[form.curve]}
    if has_rise:
        # A rise from 0 would begin below it: the clock counts the first update.
        section["warmup_min_lr"] = native(max(form.at(1), form.at(1) * 0))
    if form.curve is Curve.CONSTANT:
        yield {**section, "t_warmup": whole(begin) if has_rise else 0}, form.peak
        return
    if not has_rise and form.curve is Curve.LINEAR:
        # The line goes on to where the clock is 0.
        peak = form.peak + (form.peak - form.low) * begin / (form.end - form.begin)
        yield _lasting({**section, "t_warmup": 0}, form, peak, end), peak
    yield _lasting({**section, "t_warmup": max(0, whole(begin))}, form, form.peak, end), form.peak
    if tokens is not None and not (begin.is_Integer and end.is_Integer):
        counted = {**section, "units": "tokens", "t_warmup": max(0, whole(begin * tokens))}
        counted["alpha_f"] = _part(form, form.peak)
        yield {**counted, "t_max": whole(end * tokens)}, form.peak


def _part(form: Form, peak: Any) -> Any:
    return native(form.low / peak) if peak != 0 else 0.0


def _lasting(section: dict[str, Any], form: Form, peak: Any, end: Any) -> dict[str, Any]:
    section["alpha_f"] = _part(form, peak)
    return section if whole(end) == form.total else {**section, "t_max": whole(end)}


WRITER = Writer(".yaml", _configs, {"tokens_per_update": None}, ("adamw", "lion"))

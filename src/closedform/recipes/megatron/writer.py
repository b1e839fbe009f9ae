"""The writer of Megatron's flags: in iterations, or in samples where they are not whole."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from typing import Any

import sympy as sp

from closedform.recipes.forms import Config, Curve, Form, Optimizer, Writer, native, whole

_STYLES = {Curve.LINEAR: "linear", Curve.COSINE: "cosine", Curve.CONSTANT: "constant"}


def _optimizer(made: Optimizer) -> dict[str, Any]:
    flags: dict[str, Any] = {"clip-grad": native(made.clipping or 0)}
    if made.weight_decay is not None:
        flags["weight-decay"] = native(made.weight_decay)
    if "betas" in made.values:
        prefix = "lion" if made.name == "lion" else "adam"
        for index, beta in enumerate(made.values["betas"], 1):
            flags[f"{prefix}-beta{index}"] = native(beta)
    if made.name == "lion":
        return {**flags, "optimizer": "lion"}
    if made.name == "sgd":
        return {**flags, "optimizer": "sgd", "sgd-momentum": native(made.values["momentum"])}
    return {**flags, "adam-eps": native(made.values.get("eps", 1e-8))}


def _configs(form: Form, made: Optimizer, facts: Mapping[str, Any]) -> Iterator[Config]:
    if form.curve not in _STYLES:
        return
    batch = sp.Integer(facts.get("global_batch_size", 1))
    lengths = {"train": sp.Integer(form.total), "lr-decay": form.end, "lr-warmup": form.warmup()}
    style = {"lr-decay-style": _STYLES[form.curve]}
    if form.curve is Curve.CONSTANT:
        lengths["lr-decay"] = max(lengths["train"], lengths["lr-warmup"] + 1)
    elif form.has_plateau:
        lengths["lr-wsd-decay"] = form.end - form.begin
        style = {"lr-decay-style": "WSD", "lr-wsd-decay-style": _STYLES[form.curve]}
    rates = {"lr": native(form.peak), "min-lr": native(form.low), **style}
    if form.rise is not None and form.at() != 0:
        rates["lr-warmup-init"] = native(form.at())
    shared = {**rates, **_optimizer(made)}
    if "global_batch_size" in facts:
        shared["global-batch-size"] = int(batch)
    for unit, factor in (("iters", sp.S.One), ("samples", batch)):
        scaled = {key: length * factor for key, length in lengths.items()}
        is_last = unit == "samples"
        lasting = {key: one for key, one in scaled.items() if key != "lr-warmup"}
        flags = {**shared, **{f"{key}-{unit}": whole(one) for key, one in lasting.items()}}
        warmup = scaled["lr-warmup"]
        if not is_last and not all(length.is_Integer for length in lasting.values()):
            continue
        if warmup.is_Integer or is_last:
            yield {**flags, f"lr-warmup-{unit}": whole(warmup)}
        if not warmup.is_Integer:
            yield {**flags, "lr-warmup-fraction": native(warmup / scaled["lr-decay"])}


WRITER = Writer(".args", _configs, {"global_batch_size": 1}, ("adamw", "lion", "sgd"))

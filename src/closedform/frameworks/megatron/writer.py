"""The writer of Megatron's flags: in iterations, or in samples where they are not whole."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

import sympy as sp

from closedform.recipes import kit

_STYLES = {
    kit.CurveName.LINEAR: "linear",
    kit.CurveName.COSINE: "cosine",
    kit.CurveName.CONSTANT: "constant",
}
_TAILS = {**_STYLES, kit.CurveName.EXPONENTIAL: "exponential", kit.CurveName.ROOT: "minus_sqrt"}
"""The decays after a constant phase."""


def _optimizer(optimizer: kit.Optimizer) -> dict[str, Any]:
    flags: dict[str, Any] = {"clip-grad": kit.native(optimizer.clipping or 0)}
    if optimizer.weight_decay is not None:
        flags["weight-decay"] = kit.native(optimizer.weight_decay)
    changing = optimizer.schedules.get("weight_decay")
    if changing is not None and changing.curve in (
        kit.CurveName.LINEAR,
        kit.CurveName.COSINE,
        kit.CurveName.CONSTANT,
    ):
        first, last = changing.peak, changing.low
        style = changing.curve.value
        if changing.rise is not None:
            # An increase is all rise.
            first, last, style = changing.rise.start, changing.peak, "linear"
        flags |= {
            "weight-decay-incr-style": style,
            "start-weight-decay": kit.native(first),
            "end-weight-decay": kit.native(last),
        }
    if "betas" in optimizer.values:
        prefix = "lion" if optimizer.name == "lion" else "adam"
        for index, beta in enumerate(optimizer.values["betas"], 1):
            flags[f"{prefix}-beta{index}"] = kit.native(beta)
    if optimizer.name == "lion":
        return {**flags, "optimizer": "lion"}
    if optimizer.name == "sgd":
        return {
            **flags,
            "optimizer": "sgd",
            "sgd-momentum": kit.native(optimizer.values["momentum"]),
        }
    return {**flags, "adam-eps": kit.native(optimizer.values.get("eps", 1e-8))}


def _groups(form: kit.WarmupDecayForm, optimizer: kit.Optimizer) -> dict[str, Any]:
    """The rate of embeddings and output layers."""
    for group in optimizer.groups:
        peak = group.peak(form.peak)
        if group.name not in ("decoupled_lr", kit.Role.EMBEDDING_AND_OUTPUT) or peak is None:
            continue
        low = form.low * group.factor if group.form is None else group.form.low
        return {"decoupled-lr": kit.native(peak), "decoupled-min-lr": kit.native(low)}
    return {}


def _inverse_root(form: kit.WarmupDecayForm, optimizer: kit.Optimizer) -> Iterator[kit.Config]:
    """The root of the warmup over the update, at least the minimum."""
    if form.begin != 0 or form.rise is None:
        return
    flags = {"lr": kit.native(form.peak), "min-lr": kit.native(form.after or form.low)}
    if "global_batch_size" in optimizer.facts:
        flags["global-batch-size"] = int(optimizer.facts["global_batch_size"])
    yield {
        **flags,
        **_optimizer(optimizer),
        "lr-decay-style": "inverse-square-root",
        "train-iters": form.total,
        "lr-decay-iters": form.total,
        "lr-warmup-iters": kit.nearest_integer(form.warmup()),
    }


def _configs(form: kit.WarmupDecayForm, optimizer: kit.Optimizer) -> Iterator[kit.Config]:
    if form.curve is kit.CurveName.INVERSE_ROOT:
        yield from _inverse_root(form, optimizer)
        return
    if form.curve not in _TAILS:
        return
    batch = sp.Integer(optimizer.facts.get("global_batch_size", 1))
    lengths = {"train": sp.Integer(form.total), "lr-decay": form.end, "lr-warmup": form.warmup()}
    style = {"lr-decay-style": _TAILS[form.curve]}
    if form.curve is kit.CurveName.CONSTANT:
        lengths["lr-decay"] = max(lengths["train"], lengths["lr-warmup"] + 1)
    elif form.has_plateau or form.curve not in _STYLES:
        lengths["lr-wsd-decay"] = form.end - form.begin
        style = {"lr-decay-style": "WSD", "lr-wsd-decay-style": _TAILS[form.curve]}
    rates = {"lr": kit.native(form.peak), "min-lr": kit.native(form.low), **style}
    if form.rise is not None and form.at() != 0:
        rates["lr-warmup-init"] = kit.native(form.at())
    common_flags = {**rates, **_optimizer(optimizer), **_groups(form, optimizer)}
    if "global_batch_size" in optimizer.facts:
        common_flags["global-batch-size"] = int(batch)
    for unit, factor in (("iters", sp.S.One), ("samples", batch)):
        lengths_in_unit = {key: length * factor for key, length in lengths.items()}
        is_last = unit == "samples"
        lasting = {key: length for key, length in lengths_in_unit.items() if key != "lr-warmup"}
        flags = {
            **common_flags,
            **{f"{key}-{unit}": kit.nearest_integer(length) for key, length in lasting.items()},
        }
        warmup = lengths_in_unit["lr-warmup"]
        if not is_last and not all(length.is_Integer for length in lasting.values()):
            continue
        if warmup.is_Integer or is_last:
            yield {**flags, f"lr-warmup-{unit}": kit.nearest_integer(warmup)}
        if not warmup.is_Integer:
            yield {**flags, "lr-warmup-fraction": kit.native(warmup / lengths_in_unit["lr-decay"])}


WRITER = kit.Writer(".args", _configs, {"global_batch_size": 1}, ("adamw", "lion", "sgd"))

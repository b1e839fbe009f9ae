"""The writer of axolotl's configs: transformers' schedulers, and cosines of its own."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from typing import Any

from closedform.recipes.forms import Config, Curve, Form, Optimizer, Writer, native, whole
from closedform.recipes.transformers.writer import kinds

_OPTIMIZERS = {"adamw": "adamw_torch", "sgd": "sgd", "lion": "lion_pytorch"}


def _configs(form: Form, made: Optimizer, facts: Mapping[str, Any]) -> Iterator[Config]:
    del facts
    warmup = whole(form.warmup()) if form.rise is not None else 0
    end = form.total
    if form.curve in (Curve.LINEAR, Curve.COSINE) and form.after is None:
        end = whole(form.end)
    shared: dict[str, Any] = {
        "learning_rate": native(form.peak),
        "max_steps": end,
        "micro_batch_size": 1,
        # A warmup of one update would become one of two.
        "warmup_steps": warmup,
        "optimizer": made.argument(_OPTIMIZERS.get(made.name, "adamw_torch")),
        "weight_decay": native(made.weight_decay or 0),
        "max_grad_norm": native(made.clipping or 0),
    }
    for index, beta in enumerate(made.betas(), 1):
        shared[f"adam_beta{index}"] = beta
    if "eps" in made.values:
        shared["adam_epsilon"] = native(made.values["eps"])
    for key in ("embedding",):
        rates = [one.factor for one in made.groups if one.name == key and one.factor is not None]
        if rates:
            shared[f"{key}_lr"] = native(rates[0] * form.peak)
    for section in _schedulers(form, warmup):
        yield {**shared, **section}


def _schedulers(form: Form, warmup: int) -> Iterator[dict[str, Any]]:
    is_quadratic = form.rise is not None and form.rise.curve is Curve.POWER
    if form.curve is Curve.COSINE:
        cosine: dict[str, Any] = {"lr_scheduler": "cosine"}
        ratio = native(form.low / form.peak) if form.peak != 0 else 0.0
        if is_quadratic:
            yield {**cosine, "lr_quadratic_warmup": True}
            return
        if form.after is not None and form.total:
            length = native((form.end) / form.total)
            ended = {"cosine_min_lr_ratio": ratio, "cosine_constant_lr_ratio": length}
            yield {**cosine, **ended, "max_steps": form.total}
        if ratio:
            yield {**cosine, "cosine_min_lr_ratio": ratio}
    for name, arguments in kinds(form, warmup):
        section: dict[str, Any] = {"lr_scheduler": name}
        if arguments:
            section["lr_scheduler_kwargs"] = arguments
        yield section


WRITER = Writer(".yaml", _configs, {}, ("adamw", "sgd"))

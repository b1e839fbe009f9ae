"""The writer of gpt-neox's YAML configs, whose warmup is a part of the decay."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from typing import Any

from closedform.recipes.forms import Config, Curve, Form, Optimizer, Writer, native, whole

_STYLES = {Curve.LINEAR: "linear", Curve.COSINE: "cosine", Curve.CONSTANT: "constant"}
_TYPES = {"adamw": "Adam", "lion": "Lion", "sgd": "SGD"}


def _configs(form: Form, made: Optimizer, facts: Mapping[str, Any]) -> Iterator[Config]:
    del facts
    if form.curve not in _STYLES:
        return
    params = {"lr": native(form.peak), **made.hyperparameters()}
    end = form.total if form.curve is Curve.CONSTANT else whole(form.end)
    warmup = form.warmup() if form.rise is not None else 0
    low, is_line = form.low, form.curve is Curve.LINEAR
    if is_line and form.low != 0:
        # The line goes to 0, and is cut off at the minimum.
        end = whole(form.begin + (form.end - form.begin) * form.peak / (form.peak - form.low))
    yield {
        "optimizer": {"type": _TYPES.get(made.name, "Adam"), "params": params},
        "train_iters": form.total,
        "lr_decay_iters": end,
        "lr_decay_style": _STYLES[form.curve],
        "warmup": native(warmup / end) if warmup else 0.0,
        "min_lr": 0.0 if form.curve is Curve.CONSTANT else native(low),
        "weight_decay": native(made.weight_decay or 0),
        "gradient_clipping": native(made.clipping or 0),
    }


WRITER = Writer(".yaml", _configs, {}, ("adamw", "lion", "sgd"))

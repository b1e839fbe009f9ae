"""The writer of torchtune's YAML configs: its one schedule is a cosine over the run."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from typing import Any

from closedform.recipes.forms import RUN, Config, Curve, Form, Optimizer, Writer, native, whole


def _configs(form: Form, made: Optimizer, facts: Mapping[str, Any]) -> Iterator[Config]:
    del facts
    if form.curve not in (Curve.COSINE, Curve.CONSTANT) or form.has_plateau:
        return
    optimizer: dict[str, Any] = {
        "_component_": f"torch.optim.{made.class_name}",
        **made.keywords(form.peak),
    }
    config: dict[str, Any] = {"optimizer": optimizer, "epochs": 1}
    if made.clipping is not None:
        config["clip_grad_norm"] = native(made.clipping)
    if form.curve is Curve.CONSTANT and form.rise is None:
        yield config
        return
    warmup = whole(form.warmup())
    scheduler: dict[str, Any] = {
        "_component_": "torchtune.training.lr_schedulers.get_cosine_schedule_with_warmup",
        "num_warmup_steps": warmup,
    }
    if form.curve is Curve.COSINE and whole(form.end) != form.total:
        scheduler["num_cycles"] = native((form.total - warmup) / (2 * (form.end - form.begin)))
    yield {**config, "lr_scheduler": scheduler}


WRITER = Writer(".yaml", _configs, {"total_updates": RUN}, ("adam", "adamw", "sgd"))

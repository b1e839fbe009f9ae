"""The writer of litgpt's YAML configs: pretraining counts micro-batches, finetuning updates."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from typing import Any

import sympy as sp

from closedform.recipes.forms import Config, Curve, Form, Optimizer, Writer, native, whole


def _configs(form: Form, made: Optimizer, facts: Mapping[str, Any]) -> Iterator[Config]:
    if form.curve not in (Curve.COSINE, Curve.CONSTANT) or form.has_plateau:
        return
    path = f"torch.optim.{made.class_name}"
    optimizer = {"class_path": path, "init_args": made.keywords(form.peak)}
    has_end = form.curve is Curve.COSINE
    if has_end and form.low == 0 and form.rise is not None and form.rise.start == 0:
        # A warmup that is longer than the run: the cosine falls backwards.
        ends = (whole(form.end), whole(2 * form.begin - form.end))
        if form.total in ends and made.clipping is None:
            finetune = {"max_steps": form.total, "lr_warmup_steps": whole(form.warmup())}
            yield {"optimizer": optimizer, "train": finetune}
    yield {"optimizer": optimizer, "train": _pretrain(form, made, facts)}


def _pretrain(form: Form, made: Optimizer, facts: Mapping[str, Any]) -> dict[str, Any]:
    # The rate of an update is that of its last micro-batch: the line is 0 one part before update 0.
    each = 1
    if form.rise is not None and form.rise.slope != 0:
        before = form.rise.start / form.rise.slope
        each = max(1, whole(1 / (1 - before))) if before < 1 else 1
    elif form.curve is Curve.COSINE and form.begin < 0:
        each = max(1, whole(1 / (1 + form.begin)))
    length = int(facts.get("sequence_length", 1))
    world = int(facts.get("world_size", 1))
    end = sp.Integer(form.total) if form.curve is Curve.CONSTANT else form.end + 1 - sp.S.One / each
    train: dict[str, Any] = {
        "global_batch_size": each * world,
        "micro_batch_size": 1,
        "max_seq_length": length,
        "max_tokens": whole(end * each) * length * world,
        "lr_warmup_steps": 0,
        "min_lr": native(form.low),
    }
    if form.rise is not None and form.rise.slope != 0:
        train["lr_warmup_steps"] = whole(form.peak / form.rise.slope)
    # It always clips: a norm that is never reached is none.
    train["max_norm"] = native(made.clipping) if made.clipping is not None else 1e9
    return train


WRITER = Writer(
    ".yaml", _configs, {"world_size": 1, "sequence_length": 1}, ("adam", "adamw", "sgd")
)

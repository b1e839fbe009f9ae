"""The writer of LightningCLI's configs: schedulers by epochs, or by updates."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

import sympy as sp

from closedform.recipes import kit

_OWN = {
    kit.CurveName.COSINE: "CosineWithWarmup",
    kit.CurveName.CONSTANT: "ConstantWithWarmup",
    kit.CurveName.LINEAR: "LinearWithWarmup",
}
"""The schedulers of ModelGenerator, by their curve."""
_MODULE = "modelgenerator.lr_schedulers"


def _configs(form: kit.WarmupDecayForm, optimizer: kit.Optimizer) -> Iterator[kit.Config]:
    path = f"torch.optim.{optimizer.class_name}"
    optimizer_block = {"class_path": path, "init_args": optimizer.keywords(form.peak)}
    trainer: dict[str, Any] = {"max_steps": form.total, **optimizer.clip("gradient_clip_val")}
    if form.curve is kit.CurveName.CONSTANT and form.rise is None:
        yield {"trainer": trainer, "optimizer": optimizer_block}
        return
    for name, arguments in _by_epochs(form):
        block = {"class_path": f"torch.optim.lr_scheduler.{name}", "init_args": arguments}
        yield {"trainer": trainer, "optimizer": optimizer_block, "lr_scheduler": block}
    if form.stride == 1 and form.curve in _OWN and not form.has_plateau:
        arguments = {"num_warmup_steps": kit.nearest_integer(form.warmup())}
        block = {"class_path": f"{_MODULE}.{_OWN[form.curve]}", "init_args": arguments}
        inner = {"optimizer": optimizer_block, "lr_scheduler": block}
        model = {"class_path": "modelgenerator.tasks.MLM", "init_args": inner}
        yield {"trainer": trainer, "model": model}


def _by_epochs(form: kit.WarmupDecayForm) -> Iterator[tuple[str, dict[str, Any]]]:
    """Torch's schedulers, which are stepped after each epoch."""
    stride = form.stride
    if form.rise is not None:
        return
    match form.curve:
        case kit.CurveName.COSINE if form.cycles == 1 and form.begin == 0:
            curve = {
                "T_max": kit.nearest_integer(form.end / stride),
                "eta_min": kit.native(form.low),
            }
            yield "CosineAnnealingLR", curve
        case kit.CurveName.STEPS:
            marks = [kit.native(sp.Integer(first) / stride) for first in form.milestones]
            yield "MultiStepLR", {"milestones": marks, "gamma": kit.native(form.gamma)}
        case kit.CurveName.EXPONENTIAL:
            gamma = (form.low / form.peak) ** (sp.Integer(stride) / (form.end - form.begin))
            yield "ExponentialLR", {"gamma": float(sp.N(gamma, 30))}
        case kit.CurveName.LINEAR if form.begin == 0 and form.peak != 0:
            factor = kit.native(form.low / form.peak)
            length = kit.nearest_integer(form.end / stride)
            line = {"start_factor": 1.0, "end_factor": factor, "total_iters": length}
            yield "LinearLR", line
        case kit.CurveName.POWER if form.begin == 0 and form.low == 0:
            yield (
                "PolynomialLR",
                {
                    "total_iters": kit.nearest_integer(form.end / stride),
                    "power": kit.native(form.power),
                },
            )
        case _:
            return


WRITER = kit.Writer(".yaml", _configs, {"updates_per_epoch": kit.RUN}, ("adam", "adamw", "sgd"))

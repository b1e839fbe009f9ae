"""sentence-transformers: the arguments of ``fit``, as a mapping or as a call in a Python file."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

import sympy as sp

from closedform.frameworks.transformers.schedules import ScheduleNumbers, schedule_by_name
from closedform.language import Schedule
from closedform.recipes import kit
from closedform.schedules import constant

CLOCK = kit.Clock(kit.Unit.UPDATE)
CURVES: Mapping[str, str] = {
    "constantlr": "constant",
    "warmupconstant": "constant_with_warmup",
    "warmuplinear": "linear",
    "warmupcosine": "cosine",
    "warmupcosinewithhardrestarts": "cosine_with_restarts",
}
"""Lower case name -> the function of transformers."""


class OptimizerParams(kit.ClassSection):
    lr: kit.Rate = 2e-5


class Fit(kit.OpenSection, irrelevant="optimizer_class use_amp"):
    epochs: kit.RealEpochs = 1
    steps_per_epoch: int | None = None
    scheduler: str = "WarmupLinear"
    warmup_steps: kit.RealSteps = 10_000
    optimizer_params: OptimizerParams
    weight_decay: kit.WeightDecay = 0.01
    max_grad_norm: kit.Norm = 1


_FILE = "sentence_transformers/sentence_transformer/fit_mixin.py"
DEFECTS: Mapping[str, kit.Note[[Fit, Any, Any]]] = {
    "shortest-data-set": kit.Convention(
        "an epoch has the batches of the shortest data set, without the rest of its data",
        f"{_FILE}:329",
        lambda fit, sizes, batch: (
            sizes is not None and (len({*sizes}) > 1 or any(size % batch for size in sizes))
        ),
    ),
    "warmup-is-no-ratio": kit.Convention(
        "a fraction of warmup_steps is that part of one update, not of the run",
        f"{_FILE}:414",
        lambda fit, sizes, batch: 0 < fit.warmup_steps < 1,
        classes=tuple(CURVES)[1:],
    ),
    "warmup-of-10000": kit.Convention(
        "the default warmup has 10000 updates, more than most runs",
        f"{_FILE}:167",
        lambda fit, sizes, batch: "warmup_steps" not in fit and fit.scheduler != "constantlr",
        classes=tuple(CURVES)[1:],
    ),
}


def _updates(context: kit.Context, fit: Fit) -> int:
    facts, steps = context.facts, fit.steps_per_epoch
    sizes, batch = facts.get("dataset_sizes"), facts.get("batch_size")
    if batch is None:
        batch = context.numbers.global_batch_size
    if sizes is None and context.numbers.dataset_size is not None:
        sizes = [context.numbers.dataset_size]
    if not steps and sizes is not None and batch is not None:
        steps = min(size // batch for size in sizes)
    elif not steps:
        steps = context.numbers.updates_per_epoch
    if steps is not None:
        return int(steps * fit.epochs)
    if context.numbers.total_updates is not None:
        return context.numbers.total_updates
    raise kit.missing_facts(
        "dataset_sizes, batch_size",
        context.where,
        "give them, or updates_per_epoch, or total_updates",
    )


def _rate(context: kit.Context, fit: Fit) -> Schedule:
    name, rate, where = fit.scheduler.lower(), fit.optimizer_params.lr, context.where
    kit.refuse_unless(name in CURVES, f"there is no scheduler {fit.scheduler!r:.60}", where)
    total = sp.Integer(0 if CURVES[name].startswith("constant") else _updates(context, fit))
    run = ScheduleNumbers(rate, rate, fit.warmup_steps, total, context)
    return schedule_by_name(CURVES[name], kit.RawSection(fit.origin.document, {}), run)


def _call(document: kit.Document) -> kit.ConfigCall | None:
    """The call of ``fit`` in a Python file."""
    if document.syntax is not kit.Syntax.PYTHON:
        return None
    fits = (call for value in document.values for call in kit.calls(value, "fit"))
    return next((call for call in fits if "train_objectives" in call.kwargs), None)


def _matches(document: kit.Document) -> bool:
    content = document.content
    is_mapping = "epochs" in content and "warmup_steps" in content
    is_named = str(content.get("scheduler", "")).lower() in CURVES
    return _call(document) is not None or (
        is_mapping and (is_named or "optimizer_params" in content)
    )


def _read(reading: kit.Reading) -> kit.Recipe:
    call = _call(reading.document)
    origin = (
        kit.document_section(reading.document)
        if call is None
        else kit.RawSection(reading.document, call.kwargs, call.name)
    )
    fit = Fit.read(origin)
    context = reading.context
    with origin.locate_errors():
        rate = _rate(context, fit)
        updates = _updates(context, fit)
    parameters = fit.optimizer_params.origin
    names = [
        name
        for name in ("betas", "eps")
        if name in parameters and not kit.is_open(parameters.value(name))
    ]
    arguments = {name: parameters.value(name) for name in names}
    is_adam = "optimizer_class" not in origin
    plan = kit.plan_optimizer(
        "AdamW" if is_adam else "optimizer_class",
        {**arguments, "weight_decay": fit.weight_decay} if is_adam else {},
        "adamw" if is_adam else None,
        origin.document.place(origin.at("optimizer_class")),
        by_name=False,
    )
    schedules = {"lr": rate, "weight_decay": constant(fit.weight_decay)}
    group = kit.ParamGroup(schedules, plan, kit.Role.DEFAULT)
    sizes, batch = context.facts.get("dataset_sizes"), context.facts.get("batch_size")
    return reading.recipe(
        [group, group.without_decay(("bias", "LayerNorm.bias", "LayerNorm.weight"))],
        horizon=updates,
        clipping=kit.Clipping(fit.max_grad_norm),
        accumulation=1,
        values=(fit, sizes, batch),
    )


FRAMEWORK = kit.Framework(
    "sentence-transformers",
    kit.section_entries(dict.fromkeys(CURVES, _rate), {"": Fit}, lambda fit: fit.scheduler.lower()),
    versions=("85ec64559f44",),
    repository="https://github.com/huggingface/sentence-transformers",
    upstream=_FILE,
    clock=CLOCK,
    defects=DEFECTS,
    reader=kit.Reader(_read, _matches),
    facts=("batch_size", "dataset_sizes"),
)

"""lightning-hydra-template: optimizer and scheduler of its module, as Hydra's nodes of classes.

The module steps the scheduler once for each epoch, whatever the unit of its arguments is.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any, Literal

import sympy as sp

from closedform.frameworks.torch.paths import class_of, of_class
from closedform.frameworks.torch.schedules import SCHEDULES
from closedform.language import Schedule, exact_number, floor_div, t
from closedform.recipes import kit
from closedform.schedules import constant

CLOCK = kit.Clock(kit.Unit.EPOCH, is_stepped=True)
OF_UPDATES = kit.Clock(kit.Unit.UPDATE)
METRIC = "ReduceLROnPlateau"
MOST_CHANGES = 1000
"""The changes of a plateau that are modelled."""


class Model(kit.OpenSection):
    optimizer: kit.ClassSection
    scheduler: Any = None
    compile: Any = None


class Trainer(kit.OpenSection):
    max_epochs: kit.Epochs | None = None
    accumulate_grad_batches: kit.Accumulation = 1
    gradient_clip_val: kit.Norm | None = None
    gradient_clip_algorithm: Literal["norm", "value"] = "norm"


class Plateau(kit.Section):
    mode: Literal["min", "max"] = "min"
    factor: kit.Number = 0.1
    patience: int = kit.integer(10, least=0)
    threshold: kit.Number = 1e-4
    threshold_mode: Literal["rel", "abs"] = "rel"
    cooldown: int = kit.integer(0, least=0)
    min_lr: kit.EndRate = 0
    eps: kit.Epsilon = 1e-8


_MODULE = "src/models/mnist_module.py"
DEFECTS: Mapping[str, kit.Note[[Any, Any]]] = {
    "by-epoch": kit.Convention(
        "the scheduler is stepped after every epoch, whatever the unit of its arguments is",
        f"{_MODULE}:209",
        lambda name, interval: bool(name) and interval == "epoch",
    ),
    "rises-again": kit.Convention(
        "the cosine rises again after T_max epochs",
        "torch/optim/lr_scheduler.py: CosineAnnealingLR",
        lambda name, interval: name == "CosineAnnealingLR",
        classes=("CosineAnnealingLR",),
    ),
    "small-changes": kit.Convention(
        "a change of the rate of at most eps is not made",
        "torch/optim/lr_scheduler.py: ReduceLROnPlateau",
        lambda name, interval: name == METRIC,
        classes=(METRIC,),
    ),
}


def _arguments(node: kit.RawSection) -> dict[str, Any]:
    """The arguments of a node that Hydra makes a partial call, which the module completes."""
    if not node.flag("_partial_", False):
        raise node.error(
            "the class is called without the module's arguments", hint="give _partial_: true"
        )
    if "_args_" in node:
        raise node.error("arguments without a name are not read", "_args_", "give them by name")
    return {key: value for key, value in node.content.items() if not str(key).startswith("_")}


def _plateau(
    context: kit.Context, node: kit.RawSection, arguments: Mapping[str, Any], rate: sp.Expr
) -> Schedule:
    """The rate under a loss that never changes."""
    params = Plateau.read(kit.RawSection(node.document, arguments, node.path))
    if context.facts.get("constant_loss") is None:
        raise kit.missing_facts(
            "constant_loss",
            context.where,
            f"the values of {METRIC} depend on the loss: give a constant one, or use its "
            "update rule, closedform.frameworks.metric_rule",
        )
    loss = exact_number(context.facts["constant_loss"], "the fact constant_loss")
    kit.refuse_unless(
        params.factor < 1, f"factor must be below 1, got {params.factor}", context.where
    )
    span = params.threshold * (loss if params.threshold_mode == "rel" else 1)
    improves = loss < loss - span if params.mode == "min" else loss > loss + span
    if improves:
        return constant(rate)
    # Epoch 0 is the best; the rate changes after more than patience bad epochs, and holds from the
    # next epoch on.
    begin, period = params.patience + 2, params.patience + 1 + params.cooldown
    if params.eps <= 0 and params.min_lr <= 0:
        factor = params.factor ** (floor_div(t - begin, period) + 1)
        return kit.by_intervals(METRIC, (rate, begin), (rate * factor, None))
    values = [rate]
    while True:
        value = sp.Max(values[-1] * params.factor, params.min_lr)
        # torch makes only changes that are larger than eps, so the rate stays from here on.
        if values[-1] - value <= params.eps:
            break
        values.append(value)
        kit.refuse_unless(len(values) < MOST_CHANGES, "the rate changes too often", context.where)
    stages = [(value, begin + index * period) for index, value in enumerate(values[:-1])]
    return kit.by_intervals(METRIC, *stages, (values[-1], None))


def _name(model: Model) -> str:
    """The class of the scheduler, empty for none."""
    if model.scheduler is None:
        return ""
    node = model.origin.section("scheduler")
    path = str(node.text("_target_"))
    return METRIC if path.rpartition(".")[2] == METRIC else class_of(node, "_target_")


def _learning_rate(context: kit.Context, model: Model) -> Schedule:
    optimizer = model.origin.section("optimizer")
    # The default of torch's Adam, the template's optimizer.
    rate = exact_number(optimizer.number("lr", 1e-3))
    if model.scheduler is None:
        return constant(rate)
    node, name = model.origin.section("scheduler"), _name(model)
    arguments = _arguments(node)
    if name == METRIC:
        return _plateau(context, node, arguments, rate)
    return of_class(node, name, arguments, rate, context.as_implemented)


def _rate(context: kit.Context, model: Model, trainer: Trainer) -> Schedule:
    del trainer
    return _learning_rate(context, model)


def _model(config: Mapping[str, Any]) -> Any:
    return config["model"] if isinstance(config.get("model"), Mapping) else config


def _matches(document: kit.Document) -> bool:
    if document.python is not None:
        return False
    model = _model(document.content)
    optimizer = model.get("optimizer")
    return isinstance(optimizer, Mapping) and {"_target_", "_partial_"} <= set(optimizer)


def _epochs(trainer: Trainer, facts: kit.Facts) -> int | None:
    """The epochs of the run, None if they are not known."""
    epochs = trainer.max_epochs
    if epochs is None and facts.epochs is not None:
        epochs = int(facts.epochs)
    return None if epochs is None or epochs < 0 else int(epochs)


def _read(reading: kit.Reading) -> kit.Recipe:
    config = kit.document_section(kit.interpolate(kit.in_sections(reading.document)))
    is_whole = isinstance(config.content.get("model"), Mapping)
    model = Model.read(config.section("model") if is_whole else config)
    trainer = Trainer.read(config.section("trainer"))
    interval = reading.facts.framework_facts.get("interval", "epoch")
    if interval not in ("epoch", "step"):
        raise config.error(f"the fact interval must be epoch or step, got {interval!r:.40}")
    with model.origin.locate_errors("scheduler"):
        rate = _learning_rate(reading.context, model)
    node = model.origin.section("optimizer")
    optimizer = kit.class_optimizer(
        kit.RawSection(node.document, _arguments(node), node.path), node.text("_target_")
    )
    facts, horizon = reading.facts, _epochs(trainer, reading.facts)
    # A fork of the template may step its scheduler at updates; the fact interval says so.
    if interval == "step":
        length = facts.updates_per_epoch
        is_known = horizon is not None and length is not None
        horizon = (horizon or 0) * (length or 0) if is_known else facts.total_updates
    limit = trainer.gradient_clip_val
    clipping = None
    if limit is not None and limit > 0:
        clipping = kit.Clipping(limit, kit.ClippingKind(trainer.gradient_clip_algorithm))
    return reading.recipe(
        [optimizer.group(rate)],
        clock=CLOCK if interval == "epoch" else OF_UPDATES,
        horizon=horizon,
        clipping=clipping,
        accumulation=trainer.accumulate_grad_batches,
        values=(_name(model), interval),
    )


FRAMEWORK = kit.Framework(
    "lightning-hydra",
    kit.section_entries(
        dict.fromkeys((*SCHEDULES, METRIC, "constant"), _rate),
        {"model": Model, "trainer": Trainer},
        lambda model, trainer: _name(model) or "constant",
    ),
    versions=("bddbc24b82ab",),
    repository="https://github.com/ashleve/lightning-hydra-template",
    upstream=_MODULE,
    clock=CLOCK,
    defects=DEFECTS,
    reader=kit.Reader(_read, _matches),
    facts=("constant_loss", "interval"),
)

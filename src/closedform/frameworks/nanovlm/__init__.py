"""nanoVLM: the learning rates of its three param groups, from the fields of ``TrainConfig``."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import replace
from fractions import Fraction

import sympy as sp

from closedform.frameworks.curves import along_cosine
from closedform.language import Schedule
from closedform.recipes import kit
from closedform.schedules import constant

CLOCK = kit.Clock(kit.Unit.UPDATE)


class Config(kit.OpenSection):
    gradient_accumulation_steps: kit.Accumulation = kit.integer(8, least=1)
    lr_language_backbone: kit.Rate = 5e-5
    lr_mp: kit.Rate = 0.00512
    lr_vision_backbone: kit.Rate = 5e-5
    max_grad_norm: kit.Norm = 1
    max_training_steps: kit.Steps = 40000


GROUPS = {
    "lr_mp": "MP.*",
    "lr_vision_backbone": "vision_encoder.*",
    "lr_language_backbone": "decoder.*",
}
"""The param groups by the keys of their rates, with the modules that they cover."""

DEFECTS: Mapping[str, kit.Note[[Config]]] = {
    "short-run": kit.Defect(
        "the warmup of 3 % of the run is not rounded: where it is not a whole number of updates, "
        "its last update is above the rate, 33 times for a run of one update",
        "train.py:254",
        lambda config: 3 * config.max_training_steps % 100 != 0,
        documented="a warmup that ends at the rate",
    ),
}


def _rate(context: kit.Context, config: Config, name: str) -> Schedule:
    rate, total = getattr(config, name), config.max_training_steps
    warmup, last = sp.Rational(3 * total, 100), Fraction(total * 0.03)

    def value(n: float) -> sp.Expr:
        if n < last:
            part = (n + 1) / warmup
            return rate * (part if context.as_implemented else min(1, part))
        if n > total:
            return rate / 10
        return along_cosine(rate, rate / 10, (n - warmup) / (total - warmup))

    return kit.curve("get_lr", value)


def _of_class(context: kit.Context, config: Config) -> Schedule:
    name = context.facts.get("group", "lr_mp")
    message = f"there is no group {name!r:.60}: they are {', '.join(GROUPS)}"
    kit.refuse_unless(name in GROUPS, message, context.where)
    return _rate(context, config, name)


def _matches(document: kit.Document) -> bool:
    names = set(document.content)
    if document.python is not None:
        names |= kit.python_text.defined_names(document.python, "TrainConfig")
    return "lr_mp" in names or {"lr_vision_backbone", "lr_language_backbone"} <= names


def _read(reading: kit.Reading) -> kit.Recipe:
    document = reading.document
    if document.python is not None:
        body = kit.python_text.run_class(document.python, "TrainConfig", document.source)
        if body is not None:
            document = replace(document, content={**document.content, **body.names})
    config = Config.read_whole(document)
    plan = kit.plan_optimizer("AdamW", {}, where=document.source)
    with config.origin.locate_errors():
        groups = [
            kit.ParamGroup(
                {"lr": _rate(reading.context, config, name), "weight_decay": constant(0.01)},
                plan,
                kit.Role.NAMED,
                name,
                (pattern,),
            )
            for name, pattern in GROUPS.items()
            if getattr(config, name) > 0
        ]
    if not groups:
        raise config.error("no part of the model has a rate above 0, so that none is trained")
    clip = config.max_grad_norm
    return reading.recipe(
        groups,
        horizon=config.max_training_steps,
        clipping=None if clip is None else kit.Clipping(clip),
        accumulation=config.gradient_accumulation_steps,
        values=(config,),
        derived={"total_updates": config.max_training_steps},
    )


FRAMEWORK = kit.Framework(
    "nanovlm",
    kit.section_entries({"get_lr": _of_class}, {"": Config}, defects=DEFECTS),
    versions=("4e0c09618461",),
    repository="https://github.com/huggingface/nanoVLM",
    upstream="train.py, models/config.py",
    clock=CLOCK,
    defects=DEFECTS,
    reader=kit.Reader(_read, _matches),
)

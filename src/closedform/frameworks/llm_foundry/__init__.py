"""llm-foundry: Composer's schedulers and optimizers, by the names of its registries."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import replace
from typing import Any

from closedform.frameworks.composer import ENTRIES
from closedform.frameworks.composer.reader import (
    Config,
    decoupled,
    find_class,
    recipe,
    schedulers,
)
from closedform.frameworks.composer.schedules import CLOCK, DEFECTS
from closedform.frameworks.composer.writer import clipping_entry, written_schedulers
from closedform.recipes import kit

_SCHEDULERS = {
    "constant_with_warmup": "ConstantWithWarmupScheduler",
    "cosine_with_warmup": "CosineAnnealingWithWarmupScheduler",
    "linear_decay_with_warmup": "LinearWithWarmupScheduler",
    "inv_sqrt_with_warmup": "InverseSquareRootWithWarmupScheduler",
}
_OPTIMIZERS = {
    "decoupled_adamw": "DecoupledAdamW",
    "decoupled_lionw": "DecoupledLionW",
    "clip_lion": "DecoupledClipLion",
    "adalr_lion": "DecoupledAdaLRLion",
    "no_op": "NoOp",
}


class _Group(kit.ClassSection):
    param_str_match: str


class _Optimizer(kit.ClassSection, irrelevant="disable_grad"):
    name: str
    param_groups: tuple[_Group, ...]


class _Config(Config):
    optimizer: kit.RawSection
    scheduler: tuple[Any, ...] = schedulers(_SCHEDULERS)

    @property
    def schedulers(self) -> tuple[Any, ...]:
        return self.scheduler


def _parameters(document: kit.Document) -> kit.Document:
    """The config in the key ``parameters`` of a run config of MosaicML's ``mcli``, if it is one."""
    parameters = document.content.get("parameters")
    return replace(document, content=parameters) if isinstance(parameters, dict) else document


def _matches(document: kit.Document) -> bool:
    content = _parameters(document).content
    optimizer, scheduler = content.get("optimizer"), content.get("scheduler")
    if not isinstance(optimizer, dict) or not isinstance(scheduler, dict):
        return False
    has_names = {"lr", "name"} <= set(optimizer) and {"name", "t_warmup"} <= set(scheduler)
    return has_names and "max_duration" in content


def _read(reading: kit.Reading) -> kit.Recipe:
    config = _Config.read_whole(kit.interpolate(_parameters(reading.document)))
    optimizer = _Optimizer.read(config.optimizer)
    path = find_class(config.optimizer, optimizer.name, _OPTIMIZERS)

    def build(place: kit.RawSection) -> kit.ClassOptimizer:
        left_out = (*_Optimizer.spellings(), *_Group.spellings())
        return kit.class_optimizer(place, path, left_out, rules=decoupled(place))

    optimizers = [("", build(config.optimizer))]
    for group in optimizer.param_groups:
        content = {**config.optimizer.content, **group.origin.content}
        place = replace(group.origin, content=content)
        optimizers.append((group.param_str_match, build(place)))
    return recipe(reading, config, config.scheduler, optimizers)


_WRITTEN = {
    "constant": "constant_with_warmup",
    "linear_decay": "linear_decay_with_warmup",
    "cosine_decay": "cosine_with_warmup",
}


def _configs(form: kit.WarmupDecayForm, optimizer: kit.Optimizer) -> Iterator[kit.Config]:
    for name, arguments in written_schedulers(form):
        options = optimizer.keywords(form.peak)
        if optimizer.name != "decoupled_adamw":
            # DecoupledAdamW does not multiply its weight decay by the rate.
            options["weight_decay"] = kit.native((optimizer.weight_decay or 0) * form.peak)
        label = name.removesuffix("_with_warmup")
        yield {
            "optimizer": {"name": "decoupled_adamw", **options},
            "scheduler": {"name": _WRITTEN.get(label, label), "t_warmup": "0ba", **arguments},
            "max_duration": f"{form.total}ba",
            "global_train_batch_size": 1,
            **clipping_entry(optimizer),
        }


# A config has one scheduler.
_OF_LISTS = {"last-scheduler-wins": replace(DEFECTS["last-scheduler-wins"], applies=None)}
FRAMEWORK = kit.Framework(
    "llm-foundry",
    ENTRIES,
    versions=("8c8dd48f7216",),
    repository="https://github.com/mosaicml/llm-foundry",
    upstream="llmfoundry/optim/scheduler.py",
    clock=CLOCK,
    defects={**DEFECTS, **_OF_LISTS},
    reader=kit.Reader(_read, _matches),
    writer=kit.Writer(".yaml", _configs, {}, ("adamw", "decoupled_adamw")),
)

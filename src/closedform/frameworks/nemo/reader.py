"""The reader of NeMo's YAML configs: ``model.optim`` with its ``sched``, and ``trainer``."""

from __future__ import annotations

from collections.abc import Callable, Collection, Mapping
from dataclasses import replace
from types import MappingProxyType
from typing import Any, Literal

from closedform.errors import nearest
from closedform.frameworks.nemo.schedules import (
    POLICIES,
    Lengths,
    Outer,
    Sched,
    is_left_out,
    rate,
)
from closedform.language import Schedule, UpdateRule, exact_number, floor_div, t
from closedform.recipes import kit
from closedform.schedules import step_decay

_CLASSES: Mapping[str, str] = MappingProxyType(
    {
        "adadelta": "Adadelta",
        "adafactor": "Adafactor",
        "adagrad": "Adagrad",
        "adam": "Adam",
        "adamax": "Adamax",
        "adamw": "AdamW",
        "adan": "Adan",
        "distributed_fused_adam": "FusedAdam",
        "fused_adam": "FusedAdam",
        "lamb": "LAMB",
        "mcore_distributed_optim": "FusedAdam",
        "megatron_fused_adam": "FusedAdam",
        "novograd": "NovoGrad",
        "rmsprop": "RMSprop",
        "rprop": "Rprop",
        "sgd": "SGD",
        # Registered by models, and by a package.
        "muadam": "MuAdam",
        "muadamw": "MuAdamW",
        "musgd": "MuSGD",
        "radam": "RAdam",
    }
)
"""The optimizers of NeMo's registry."""


def _plain(section: kit.RawSection, key: str, default: object) -> int | None:
    """An integer; None for a value of another type, or one that the file does not determine."""
    value = section.content.get(key, default)
    return value if isinstance(value, int) else None


class _Optim(
    kit.ClassSection,
    irrelevant="cls bucket_cap_mb contiguous_grad_buffer contiguous_param_buffer "
    "grad_sync_dtype overlap_grad_sync overlap_param_sync param_sync_dtype",
):
    name: str = "adam"
    _target_: str | None = None
    sched: kit.RawSection
    args: kit.RawSection


class _Place(kit.ClassSection):
    optim: kit.RawSection
    optim_param_groups: kit.RawSection


class _Trainer(kit.ClassSection):
    max_steps: kit.Steps | None = kit.read_by(_plain, -1)
    max_epochs: kit.Epochs | None = kit.read_by(_plain, None)
    accumulate_grad_batches: kit.Accumulation | None = kit.read_by(_plain, None)
    gradient_clip_val: kit.Norm = 0


class _Config(kit.ClassSection):
    model: kit.RawSection
    trainer: _Trainer


_MISTAKEN = ("lr_scheduler", "optimiser", "sched", "scheduler")
"""Keys next to ``optim`` that NeMo does not read; a model has many others."""


class _Adam(kit.ClassSection):
    optimizer: Literal["adam"] = "adam"
    lr: kit.Rate
    adam_beta1: kit.Momentum = 0.9
    adam_beta2: kit.Momentum = 0.999
    adam_eps: kit.Epsilon = 1e-8
    weight_decay: kit.WeightDecay = 0.01


class _Module(kit.Section, irrelevant="_target_ no_weight_decay_cond scale_lr_cond lr_mult"):
    config: _Adam
    lr_scheduler: kit.RawSection


class _Target(kit.ClassSection, irrelevant="interval frequency"):
    """The keys of a scheduler module of ``nemo.lightning`` that its policy does not have."""

    _target_: str
    max_steps: kit.Steps = 10


_RULES: Mapping[str, Callable[..., UpdateRule]] = MappingProxyType({"FusedAdam": kit.fused_adam})


class StepLR(Outer):
    step_size: int
    gamma: kit.Number = 0.1


class ExponentialLR(Outer):
    gamma: kit.Number


_Schedule = StepLR | ExponentialLR | Sched
_OF_TORCH: Mapping[str, type[StepLR] | type[ExponentialLR]] = {
    "StepLR": StepLR,
    "ExponentialLR": ExponentialLR,
}
_LOSS = "ReduceLROnPlateau"
_LIGHTNING: Mapping[str, Mapping[str, Any]] = MappingProxyType(
    {
        "CosineAnnealing": {"warmup_steps": 750, "constant_steps": 80_000, "min_lr": 6e-5},
        "InverseSquareRootAnnealing": {"min_lr": 0.0},
        "NoamAnnealing": {"warmup_steps": 750, "min_lr": 0.0},
        "NoamHoldAnnealing": {"decay_rate": 0.5, "min_lr": 0.0},
        "PolynomialDecayAnnealing": {"min_lr": 0.0, "power": 1.0, "cycle": False},
        "PolynomialHoldDecayAnnealing": {"min_lr": 0.0, "power": 1.0, "cycle": False},
        "SquareAnnealing": {"min_lr": 1e-5},
        "SquareRootAnnealing": {"min_lr": 0.0},
        "WarmupAnnealing": {"warmup_steps": 750, "min_lr": 0.0},
        "WarmupHoldPolicy": {"warmup_steps": 750, "min_lr": 0.0},
        "WarmupPolicy": {"warmup_steps": 750, "min_lr": 0.0},
    }
)
"""The defaults of the scheduler modules of ``nemo.lightning`` that differ from the classes'."""


def _matches(document: kit.Document) -> bool:
    """Whether a config has NeMo's ``optim``, with a schedule in it or next to a trainer."""
    schedulers = {"sched", "lr_scheduler"}
    content = document.content
    for place in (content.get("model"), content):
        optim = place.get("optim") if isinstance(place, dict) else None
        if isinstance(optim, dict) and ("trainer" in content or schedulers & {*optim}):
            return True
    return False


def _read(reading: kit.Reading) -> kit.Recipe:
    config = _Config.read_whole(kit.interpolate(reading.document))
    outer = config.model if "optim" in config.model else config.origin
    place = _Place.read(outer)
    for name in _MISTAKEN:
        if name in outer:
            raise outer.error(f"unknown key {name!r}", hint="did you mean 'optim'?")
    if "lr_scheduler" in place.optim or "config" in place.optim:
        return _lightning(reading, place.optim, config.trainer)
    optim = _Optim.read(place.optim)
    optimizers = {"": _optimizer(optim)}
    for name, content in place.optim_param_groups.content.items():
        if not isinstance(content, Mapping):
            raise place.error(f"the param group {name} must be a mapping", "optim_param_groups")
        inner = place.optim_param_groups.section(name)
        group = replace(inner, content={**place.optim.content, **inner.content})
        optimizers[str(name)] = _optimizer(_Optim.read(group))
    rates = [exact_number(optimizer.lr) for optimizer in optimizers.values()]
    steps = _plain(optim.sched, "max_steps", None)
    lengths = (steps, config.trainer.max_steps)
    total = _total(steps, config.trainer, reading)
    sched = None
    if optim.sched.content and not is_left_out(lengths):
        sched = _sched(optim.sched, total, reading)
    return _recipe(reading, config.trainer, optimizers, total, (sched, rates, lengths))


def _recipe(
    reading: kit.Reading,
    trainer: _Trainer,
    optimizers: Mapping[str, kit.ClassOptimizer],
    total: int | None,
    values: tuple[_Schedule | None, Collection[Any], Lengths],
) -> kit.Recipe:
    sched, rates, _ = values
    groups = []
    for index, (name, optimizer) in enumerate(optimizers.items()):
        schedule = None if sched is None else _rate(reading, sched, list(rates), index)
        groups.append(optimizer.group(schedule, name=name, patterns=(f"{name}.*",) if name else ()))
    threshold = trainer.gradient_clip_val
    return reading.recipe(
        groups,
        horizon=total,
        clipping=kit.Clipping(threshold) if threshold else None,
        accumulation=trainer.accumulate_grad_batches,
        values=values,
    )


def _arguments(outer: kit.RawSection) -> kit.RawSection:
    """The arguments of a class within ``args``."""
    inner = outer.section("args")
    return inner.section("params") if "params" in inner else inner


def _optimizer(optim: _Optim) -> kit.ClassOptimizer:
    path, place = optim._target_, optim.origin
    if path is None:
        if optim.name.lower() not in _CLASSES:
            hint = nearest(optim.name, _CLASSES)
            raise optim.error(f"NeMo has no optimizer {optim.name!r}", "name", hint)
        path = _CLASSES[optim.name.lower()]
    if "args" in optim:
        params = _arguments(place)
        place = replace(params, content={**params.content, "lr": place.value("lr")})
    return kit.class_optimizer(place, path, (*_Optim.keys, "params"), rules=_RULES)


def _total(steps: int | None, trainer: _Trainer, reading: kit.Reading) -> int | None:
    """The updates of the run: of the trainer, else of ``sched``, else of the facts."""
    limit, facts = trainer.max_steps, reading.facts
    if limit is not None and limit >= 0:
        return int(limit)
    if steps is not None and steps >= 0 and (limit is not None or "max_steps" not in trainer):
        return steps
    if facts.total_updates is not None:
        return facts.total_updates
    epochs, length = trainer.max_epochs, facts.updates_per_epoch
    return epochs * int(length) if epochs and epochs > 0 and length is not None else None


def _sched(origin: kit.RawSection, total: int | None, reading: kit.Reading) -> _Schedule:
    """The values of a section ``sched``, with the length of the run."""
    name = origin.text("name")
    if name == _LOSS:
        raise origin.error(f"{_LOSS} depends on the loss, not on the update only", "name")
    if name in _OF_TORCH:
        return _OF_TORCH[name].read(replace(origin, content={"max_steps": -1, **origin.content}))
    if name not in POLICIES:
        raise origin.error(
            f"NeMo has no scheduler {name!r}; a model's own code may have it",
            "name",
            nearest(name, [*POLICIES, *_OF_TORCH, _LOSS]),
        )
    place = origin
    if "args" in origin:
        Outer.check(origin)
        place = _arguments(origin)
    _, keys = POLICIES[name]
    keys.check(place)
    if place.integer("last_epoch", -1) != -1:
        raise place.error("a run that goes on from last_epoch is not read", "last_epoch")
    total = reading.value_or_fact(total, "total_updates")
    return keys.read(replace(place, content={**place.content, "name": name, "max_steps": total}))


def _rate(reading: kit.Reading, sched: _Schedule, rates: list[Any], index: int) -> Schedule:
    """The schedule of a param group; of torch's own classes, StepLR counts updates."""
    if isinstance(sched, StepLR):
        return step_decay(rates[index], sched.gamma, sched.step_size)
    if isinstance(sched, ExponentialLR):
        (length,) = reading.facts.require("updates_per_epoch", where=reading.document.source)
        factor = sched.gamma ** floor_div(t, length)
        return Schedule(factor, name=sched.name).scale(rates[index])
    groups = [{"lr": rate} for rate in rates]
    context = reading.context.with_facts(param_groups=groups, group_index=index)
    with sched.origin.locate_errors():
        return rate(context, sched, rates[0])


def _lightning(reading: kit.Reading, optim: kit.RawSection, trainer: _Trainer) -> kit.Recipe:
    """The modules of ``nemo.lightning``: an optimizer's config and a scheduler, each a target."""
    module = _Module.read(optim)
    adam, sched, total = module.config, None, None
    arguments = {
        "lr": adam.lr,
        "betas": [adam.adam_beta1, adam.adam_beta2],
        "eps": adam.adam_eps,
        "weight_decay": adam.weight_decay,
    }
    place = replace(adam.origin, content=arguments)
    optimizer = kit.class_optimizer(place, "FusedAdam", rules=_RULES)
    if module.lr_scheduler.content:
        target = _Target.read(module.lr_scheduler)
        label, total = target._target_.rpartition(".")[2], target.max_steps
        name = label.removesuffix("Scheduler")
        if name not in _LIGHTNING:
            modules = [f"{kind}Scheduler" for kind in _LIGHTNING]
            raise target.error(
                f"there is no scheduler module {label!r}", "_target_", nearest(label, modules)
            )
        written = {
            key: value for key, value in target.origin.content.items() if key not in _Target.keys
        }
        content = {**_LIGHTNING[name], **written, "name": name, "max_steps": total}
        _, keys = POLICIES[name]
        sched = keys.read(replace(target.origin, content=content))
    horizon = trainer.max_steps if (trainer.max_steps or 0) > 0 else total
    return _recipe(
        reading, trainer, {"": optimizer}, horizon, (sched, [optimizer.lr], (None, None))
    )


READER = kit.Reader(_read, _matches)

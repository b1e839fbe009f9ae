"""The reader of NeMo's YAML configs: ``model.optim`` with its ``sched``, and ``trainer``."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from types import MappingProxyType
from typing import Any

from closedform.errors import nearest
from closedform.language import Schedule, UpdateRule, floor_div, t
from closedform.recipes.build import built
from closedform.recipes.document import Document, interpolated
from closedform.recipes.documents.values import Unresolved
from closedform.recipes.nemo.schedules import ARGUMENTS, CLOCK, SCHEDULES, Chosen
from closedform.recipes.optimizer_classes import ClassOptimizer, class_optimizer, fused_adam
from closedform.recipes.reader import Reader, Reading
from closedform.recipes.recipe import Clipping, ParamGroup, Recipe
from closedform.recipes.section import Section, whole
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

_MISTAKEN = ("lr_scheduler", "optimiser", "sched", "scheduler")
"""Keys beside ``optim`` that NeMo does not read; a model has many others of its own."""

_EXECUTION = (
    "bucket_cap_mb",
    "contiguous_grad_buffer",
    "contiguous_param_buffer",
    "grad_sync_dtype",
    "overlap_grad_sync",
    "overlap_param_sync",
    "param_sync_dtype",
)
_OPTIM = ("name", "cls", "_target_", "sched", "args", "lr_scheduler", "config")
_RULES: Mapping[str, Callable[..., UpdateRule]] = MappingProxyType({"FusedAdam": fused_adam})
_OUTSIDE = (
    "name",
    "monitor",
    "reduce_on_plateau",
    "t_max_epochs",
    "t_accumulate_grad_batches",
    "t_limit_train_batches",
    "t_num_workers",
    "max_steps",
    "last_epoch",
)
"""Keys of ``sched`` that its classes are not given, or given by NeMo."""

_OF_TORCH: Mapping[str, tuple[str, ...]] = MappingProxyType(
    {"StepLR": ("step_size", "gamma"), "ExponentialLR": ("gamma",)}
)
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
"""The defaults of the scheduler modules of ``nemo.lightning``, where they are those of no class."""

_LIGHTNING_STEPS = 10
_MODULE = ("_target_", "no_weight_decay_cond", "scale_lr_cond", "lr_mult")


def _matches(document: Document) -> bool:
    content = document.content
    for place in (content.get("model"), content):
        optim = place.get("optim") if isinstance(place, dict) else None
        if isinstance(optim, dict) and ("sched" in optim or "lr_scheduler" in optim):
            return True
        if isinstance(optim, dict) and "trainer" in content:
            return True
    return False


def _read(reading: Reading) -> Recipe:
    document = interpolated(reading.document)
    config = whole(document)
    model = config.section("model")
    place = model if "optim" in model else config
    for name in _MISTAKEN:
        if name in place:
            raise place.error(f"unknown key {name!r}", hint="did you mean 'optim'?")
    optim, trainer = place.section("optim"), config.section("trainer")
    if "lr_scheduler" in optim or "config" in optim:
        return _lightning(reading, optim, trainer)
    made = _optimizer(optim)
    sched = optim.section("sched")
    rates = {"": made}
    for name, own in place.section("optim_param_groups").content.items():
        if not isinstance(own, Mapping):
            raise place.error(f"the param group {name} must be a mapping", "optim_param_groups")
        section = Section(
            document, {**optim.content, **own}, place.at(f"optim_param_groups.{name}")
        )
        rates[str(name)] = _optimizer(section)
    total = _total(sched, trainer, reading)
    groups = []
    for index, (name, one) in enumerate(rates.items()):
        rate = None
        if sched.content:
            bases = [each.lr for each in rates.values()]
            rate = _rate(sched, trainer, bases, index, total, reading)
        groups.append(one.group(rate, name=name, patterns=(f"{name}.*",) if name else ()))
    chosen = _chosen(sched, trainer, [own.lr for own in rates.values()])
    return _recipe(reading, groups, total, trainer, chosen)


def _recipe(
    reading: Reading,
    groups: list[ParamGroup],
    total: int | None,
    trainer: Section,
    chosen: Chosen,
) -> Recipe:
    threshold = trainer.number("gradient_clip_val", 0.0)
    accumulation = trainer.content.get("accumulate_grad_batches")
    return reading.recipe(
        groups,
        clock=CLOCK,
        horizon=total,
        clipping=Clipping(threshold) if threshold else None,
        accumulation=accumulation if isinstance(accumulation, int) else None,
        values=(chosen,),
    )


def _chosen(sched: Section, trainer: Section, rates: list[Any]) -> Chosen:
    if not sched.content:
        return Chosen(None)
    name, inner = sched.content.get("name"), sched
    if "args" in sched:
        inner = sched.section("args")
        inner = inner.section("params") if "params" in inner else inner
    keys = [key for key in inner.content if key in inner]
    is_made = not _is_left_out(sched, trainer)
    return Chosen(name if isinstance(name, str) else None, keys, rates, is_made)


def _optimizer(optim: Section) -> ClassOptimizer:
    left_out: tuple[str, ...] = (*_OPTIM, *_EXECUTION)
    name = optim.text("name", "adam")
    if "_target_" in optim:
        path = optim.text("_target_")
    elif name.lower() in _CLASSES:
        path = _CLASSES[name.lower()]
    else:
        raise optim.error(f"NeMo has no optimizer {name!r}", "name", nearest(name, _CLASSES))
    if "args" in optim:
        inner = optim.section("args")
        params = inner.section("params") if "params" in inner else inner
        content = {**params.content, "lr": optim.value("lr")}
        optim = Section(optim.document, content, params.path)
        left_out = (*left_out, "params")
    return class_optimizer(optim, path, left_out, rules=_RULES)


def _total(sched: Section, trainer: Section, reading: Reading) -> int | None:
    """The updates of the run: of the trainer, else of ``sched``, else of the facts."""
    steps = trainer.content.get("max_steps", -1)
    if isinstance(steps, int) and steps >= 0:
        return steps
    own = sched.content.get("max_steps")
    if isinstance(own, int) and own >= 0 and not isinstance(steps, Unresolved):
        return own
    facts = reading.facts
    if facts.total_updates is not None:
        return int(facts.total_updates)
    epochs = trainer.content.get("max_epochs")
    if isinstance(epochs, int) and epochs > 0 and facts.updates_per_epoch is not None:
        return epochs * int(facts.updates_per_epoch)
    return None


def _is_left_out(sched: Section, trainer: Section) -> bool:
    """Whether NeMo makes no scheduler: -1 in ``sched``, and no number of updates in the trainer."""
    steps = trainer.content.get("max_steps", -1)
    return sched.content.get("max_steps") == -1 and steps == -1


def _rate(
    sched: Section,
    trainer: Section,
    rates: list[Any],
    index: int,
    total: int | None,
    reading: Reading,
) -> Schedule | None:
    if _is_left_out(sched, trainer):
        return None
    name = sched.text("name")
    if name == _LOSS:
        raise sched.error(f"{_LOSS} depends on the loss, not on the update alone", "name")
    if name in _OF_TORCH:
        return _of_torch(sched, name, rates[index], reading)
    if name not in SCHEDULES:
        raise sched.error(
            f"NeMo has no scheduler {name!r}; a model's own code may have it",
            "name",
            nearest(name, [*SCHEDULES, *_OF_TORCH, _LOSS]),
        )
    section, known = sched, (*ARGUMENTS[name], *_OUTSIDE)
    if "args" in sched:
        inner = sched.section("args")
        section = inner.section("params") if "params" in inner else inner
        sched.check((*_OUTSIDE, "iters_per_batch", "args"))
    section.check(known)
    if section.integer("last_epoch", -1) != -1:
        raise section.error("a run that goes on from last_epoch is not read", "last_epoch")
    if total is None:
        (needed,) = reading.facts.require("total_updates", where=sched.document.source)
        total = int(needed)
    return _built(section, name, rates, index, total, reading)


def _built(
    section: Section, name: str, rates: list[Any], index: int, total: int, reading: Reading
) -> Schedule:
    given = {key: _option(section, key) for key in ARGUMENTS[name] if key in section}
    arguments = {
        "lr": rates[0],
        "sched": {**given, "name": name, "max_steps": total},
    }
    facts = {"param_groups": [{"lr": rate} for rate in rates], "group_index": index}
    with section.located():
        return built(
            "nemo",
            SCHEDULES,
            name,
            arguments,
            facts=facts,
            as_implemented=reading.as_implemented,
        )


def _option(section: Section, key: str) -> Any:
    return section.flag(key) if key == "cycle" else section.number(key)


def _of_torch(sched: Section, name: str, rate: Any, reading: Reading) -> Schedule:
    """Torch's own classes: StepLR counts updates, ExponentialLR epochs."""
    sched.check((*_OF_TORCH[name], *_OUTSIDE))
    gamma = sched.number("gamma", 0.1) if name == "StepLR" else sched.number("gamma")
    if name == "StepLR":
        return step_decay(rate, gamma, sched.integer("step_size"))
    (length,) = reading.facts.require("updates_per_epoch", where=sched.document.source)
    return Schedule(gamma ** floor_div(t, length), name=name).scale(rate)


def _lightning(reading: Reading, optim: Section, trainer: Section) -> Recipe:
    """The modules of ``nemo.lightning``: an optimizer's config and a scheduler, each a target."""
    optim.check((*_MODULE, "config", "lr_scheduler"))
    given = optim.section("config")
    arguments: dict[str, Any] = {
        "lr": given.number("lr"),
        "betas": [given.number("adam_beta1", 0.9), given.number("adam_beta2", 0.999)],
        "eps": given.number("adam_eps", 1e-8),
        "weight_decay": given.number("weight_decay", 0.01),
    }
    name = given.text("optimizer", "adam")
    if name != "adam":
        raise given.error(f"the optimizer must be adam here, got {name!r}", "optimizer")
    made = class_optimizer(
        Section(optim.document, arguments, given.path), "FusedAdam", (), rules=_RULES
    )
    sched, rate, total = optim.section("lr_scheduler"), None, None
    chosen = Chosen(None)
    steps = trainer.content.get("max_steps")
    if sched.content:
        target = sched.text("_target_").rpartition(".")[2]
        kind = target.removesuffix("Scheduler")
        if kind not in _LIGHTNING:
            raise sched.error(
                f"there is no scheduler module {target!r}",
                "_target_",
                nearest(target, [f"{one}Scheduler" for one in _LIGHTNING]),
            )
        sched.check((*ARGUMENTS[kind], "_target_", "max_steps", "interval", "frequency", "monitor"))
        total = int(sched.integer("max_steps", _LIGHTNING_STEPS))
        content = {**_LIGHTNING[kind], **sched.content}
        section = Section(optim.document, content, sched.path)
        rate = _built(section, kind, [made.lr], 0, total, reading)
        chosen = Chosen(kind, [key for key in content if key in section], [made.lr])
    horizon = steps if isinstance(steps, int) and steps > 0 else total
    group = made.group(rate)
    return _recipe(reading, [group], horizon, trainer, chosen)


READER = Reader(_read, _matches)

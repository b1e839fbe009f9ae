"""The reader of Composer's YAML recipes, and the steps that it shares with that of llm-foundry."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import replace
from types import MappingProxyType
from typing import Any, Literal

from closedform.errors import nearest
from closedform.frameworks.composer.optimizers import rules_from
from closedform.frameworks.composer.schedules import CLASSES, rate
from closedform.frameworks.composer.times import Duration, trainer
from closedform.language import Schedule, UpdateRule, exact_number
from closedform.recipes import kit

_NAMES: Mapping[str, str] = MappingProxyType(
    {
        "step": "StepScheduler",
        "multistep": "MultiStepScheduler",
        "exponential": "ExponentialScheduler",
        "linear_decay": "LinearScheduler",
        "cosine_decay": "CosineAnnealingScheduler",
        "cosine_warmrestart": "CosineAnnealingWarmRestartsScheduler",
        "constant": "ConstantScheduler",
        "polynomial": "PolynomialScheduler",
        "polynomial_with_warmup": "PolynomialWithWarmupScheduler",
        "multistep_with_warmup": "MultiStepWithWarmupScheduler",
        "constant_with_warmup": "ConstantWithWarmupScheduler",
        "linear_decay_with_warmup": "LinearWithWarmupScheduler",
        "cosine_decay_with_warmup": "CosineAnnealingWithWarmupScheduler",
    }
)
_OPTIMIZERS: Mapping[str, str] = MappingProxyType(
    {
        "adam": "Adam",
        "adamw": "AdamW",
        "decoupled_adamw": "DecoupledAdamW",
        "radam": "RAdam",
        "sgd": "SGD",
        "decoupled_sgdw": "DecoupledSGDW",
        "rmsprop": "RMSprop",
    }
)


def find_class(place: kit.RawSection, name: str, names: Mapping[str, str]) -> str:
    """Returns the class of a name of a registry; the name of the class is taken as well.

    Raises:
        ConfigError: There is none.
    """
    if name not in names and name not in names.values():
        raise place.error(f"there is no {name!r} here", hint=nearest(name, names))
    return names.get(name, name)


def _entry(config: kit.RawSection, key: str) -> tuple[str, kit.RawSection]:
    """The name and the arguments of a mapping of a name to its arguments, or with a name in it."""
    entry = config.value(key)
    if isinstance(entry, list | tuple):
        if len(entry) != 1:
            raise config.error(f"{key} must hold one entry, got {len(entry)}", key)
        return _entry(config.entries(key, entry), f"{key}[0]")
    if isinstance(entry, Mapping) and "name" in entry:
        return config.section(key).text("name"), config.section(key)
    return config.name_and_arguments(key)


def schedulers(names: Mapping[str, str]) -> Any:
    """Returns a key that holds a scheduler, or several as a list or a mapping.

    Args:
        names: The names of the schedulers; those of their classes are taken as well.
    """

    def read(config: kit.RawSection, key: str, default: object) -> tuple[kit.Section, ...]:
        entries = config.value(key, default)
        if isinstance(entries, Mapping):
            entries = (
                [entries] if "name" in entries else [{name: entries[name]} for name in entries]
            )
        if not isinstance(entries, list | tuple):
            raise config.error(f"{key} must be a list or a mapping", key)
        place = config.entries(key, entries)
        return tuple(_scheduler(*_entry(place, entry), names) for entry in place.content)

    return kit.read_by(read, ())


def _scheduler(name: str, arguments: kit.RawSection, names: Mapping[str, str]) -> kit.Section:
    label = find_class(arguments, name, names)
    _, keys = CLASSES[label]
    return keys.read(replace(arguments, content={**arguments.content, "name": label}))


class _Clipping(kit.Section):
    clipping_type: Literal["norm", "value"]
    clipping_threshold: kit.Norm


class Algorithms(kit.ClassSection):
    gradient_clipping: _Clipping | None


class Config(Duration, kit.OpenSection):
    """The keys of the trainer, which the configs of llm-foundry have as well."""

    ssr: kit.Number | None = None
    train_batch_size: kit.BatchSize | None = kit.integer(None, may_be_open=True)
    global_train_batch_size: kit.BatchSize | None = kit.integer(None, may_be_open=True)
    max_seq_len: kit.SequenceLength | None = kit.integer(None, may_be_open=True)
    algorithms: Algorithms
    grad_clip_norm: kit.Norm = 0
    grad_accum: Any = None


class Optimizer(kit.Section):
    lr: kit.Rate


class Arguments(Duration):
    """The arguments of ``frameworks.schedule``."""

    optimizer: Optimizer
    schedulers: tuple[Any, ...] = schedulers({name: name for name in CLASSES})


def class_rate(context: kit.Context, arguments: Arguments) -> Schedule:
    """Returns the schedule of the arguments of ``frameworks.schedule``."""
    return rate(context, arguments, arguments.schedulers, arguments.optimizer.lr)


class _Config(Config):
    optimizers: Any = None
    schedulers: tuple[Any, ...] = schedulers(_NAMES)


def decoupled(place: kit.RawSection) -> Mapping[str, Callable[..., UpdateRule]]:
    """Returns the optimizers whose weight decay follows the schedule, but not the rate."""
    return rules_from(exact_number(place.number("lr", 1e-3), "lr"))


def _matches(document: kit.Document) -> bool:
    return "max_duration" in document.content and "schedulers" in document.content


def _read(reading: kit.Reading) -> kit.Recipe:
    config = _Config.read_whole(kit.interpolate(reading.document))
    name, place = _entry(config.origin, "optimizers")
    path = find_class(place, name, _OPTIMIZERS)
    optimizer = kit.class_optimizer(place, path, rules=decoupled(place))
    return recipe(reading, config, config.schedulers, [("", optimizer)])


def recipe(
    reading: kit.Reading,
    config: Config,
    members: Sequence[Any],
    optimizers: Sequence[tuple[str, kit.ClassOptimizer]],
) -> kit.Recipe:
    """Returns the recipe of a config.

    Args:
        reading: The config and its facts.
        config: The values of the trainer.
        members: The values of the schedulers.
        optimizers: The param groups, by the patterns of their parameters, and their optimizers.
    """
    if config.ssr is not None and "scale_schedule_ratio" not in config:
        config = config.replace(scale_schedule_ratio=config.ssr)
    facts = reading.facts
    samples = config.train_batch_size or config.global_train_batch_size or facts.global_batch_size
    length, tokens = config.max_seq_len or facts.sequence_length, facts.tokens_per_update
    if tokens is None and length and samples:
        tokens = int(length) * int(samples)
    context = reading.context.with_facts(global_batch_size=samples, tokens_per_update=tokens)
    horizon = None
    if config.max_duration is not None:
        with config.origin.locate_errors("max_duration"):
            run = trainer(config, context)
            horizon = run.first_from(run.length)
    groups = []
    for name, optimizer in optimizers:
        with config.origin.locate_errors("schedulers"):
            base = exact_number(optimizer.lr)
            schedule = rate(context, config, members, base) if members else None
        groups.append(optimizer.group(schedule, name=name, patterns=(name,) if name else ()))
    return reading.recipe(
        groups,
        horizon=horizon,
        clipping=_clipping(config),
        accumulation=config.grad_accum if isinstance(config.grad_accum, int) else None,
        values=(config,),
    )


def _clipping(config: Config) -> kit.Clipping | None:
    clipping = config.algorithms.gradient_clipping
    if clipping is not None:
        return kit.Clipping(clipping.clipping_threshold, kit.ClippingKind(clipping.clipping_type))
    return kit.Clipping(config.grad_clip_norm) if config.grad_clip_norm > 0 else None


READER = kit.Reader(_read, _matches)

"""torchtitan: the warmup, the stable phase and the decay of ``lr_scheduler``, and its configs.

A config is TOML, or a ``Trainer.Config(…)`` in Python. One in TOML belongs to the commits that have
its keys: ``training.warmup_steps`` until March 2025, ``training.batch_size`` until June 2025,
``lr_scheduler.lr_min`` until July 2025.
"""

from __future__ import annotations

import ast
import itertools
import math
import re
import string
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from typing import Any, Literal

import sympy as sp

from closedform.frameworks.curves import along_cosine, along_line
from closedform.language import Schedule, exact_number
from closedform.recipes import kit

VERSIONS = ("b5bcd76c6", "f7084fc78", "3b85aa31f", "0da8901b1", "e846b6946", "1ec2ece51")
"""The commits whose formulas are known: the first two, and the last two, have the same one."""
NEWEST, WITH_LR_MIN, WITH_BATCH_SIZE, _, WITHOUT_SECTION, _ = VERSIONS
_RECENT, _EARLY, _FIRST = VERSIONS[:2], VERSIONS[2:4], VERSIONS[4:]
# offset=1: the warmup is (t + 1) / W.
CLOCK = kit.Clock(kit.Unit.UPDATE, offset=1)

_DECAYS: Mapping[str, kit.CurveFunction] = {
    "linear": lambda done, length: 1 - done / length,
    "sqrt": lambda done, length: 1 - math.sqrt(done) / math.sqrt(length),
    "cosine": lambda done, length: along_cosine(1, 0, done / length),
}


class Scheduler(kit.Section):
    warmup_steps: kit.RealSteps = 200
    total_steps: kit.Steps | None = None
    decay_ratio: kit.RunRatio | None = None
    decay_type: str = kit.choice(*_DECAYS, default="linear")
    lr_min: kit.EndRate | None = None  # The name of min_lr_factor until July 2025.
    min_lr_factor: kit.RateRatio | None = None


class Training(kit.OpenSection, irrelevant="batch_size"):
    steps: kit.Steps = 10_000
    max_norm: kit.Norm = 1.0
    global_batch_size: kit.BatchSize | None = None
    num_tokens_per_train_step: kit.Tokens | None = None
    warmup_steps: kit.RealSteps = 200


ADAM: Mapping[str, Any] = {"lr": 8e-4, "betas": (0.9, 0.95), "eps": 1e-8, "weight_decay": 0.1}


class _Execution(kit.Section, irrelevant="implementation early_step_in_backward"):
    pass


class Optimizer(_Execution, irrelevant="lr eps weight_decay fused"):
    """The optimizer before param groups; the ignored ones are arguments of its class."""

    name: Literal["AdamW", "Adam"] = "AdamW"
    beta1: kit.Momentum = ADAM["betas"][0]
    beta2: kit.Momentum = ADAM["betas"][1]


class Group(kit.Section):
    pattern: str
    optimizer_name: str
    optimizer_kwargs: kit.ClassSection


class Container(kit.Section, irrelevant="implementation optimizer_factory_kwargs_by_name"):
    param_groups: tuple[Group, ...]


class Config(kit.OpenSection):
    optimizer: Any = None
    lr_scheduler: Scheduler
    training: Training


@dataclass(frozen=True, slots=True)
class Phases:
    """The lengths of a schedule in updates.

    Attributes:
        warmup: The updates of the warmup.
        begin: The updates before the decay.
        decay: The updates of the decay.
    """

    warmup: kit.Steps
    begin: int
    decay: int


def _phases(scheduler: Scheduler, total: int, version: str) -> Phases:
    warmup = int(scheduler.warmup_steps)
    if warmup < 0 or total <= 0:
        raise scheduler.error(
            f"warmup_steps must be at least 0 and the run above 0, got {warmup} and {total}"
        )
    if version in _FIRST:
        # The first versions had no stable phase: the decay begins at the warmup's end.
        return Phases(warmup, warmup, max(1, total - warmup))
    is_early = version in _EARLY
    # Early versions did not cut the warmup to the run.
    warmup = warmup if is_early else min(warmup, total)
    decay = total - warmup
    if scheduler.decay_ratio is not None:
        # Python's round goes half to even, on the product in floats.
        decay = min(round(total * float(scheduler.decay_ratio)), decay)
    if decay < 0:
        raise scheduler.error(
            f"the run of {total} updates must be longer than warmup_steps {warmup}"
        )
    # S = T + 1 - W - D in the recent formula: the last update of the run is one step short of the
    # minimum.
    return Phases(warmup, total - decay if is_early else total + 1 - decay, decay)


def _scheduled(
    context: kit.Context, scheduler: Scheduler, phases: Phases, rate: sp.Expr
) -> Schedule:
    low = scheduler.lr_min if scheduler.min_lr_factor is None else scheduler.min_lr_factor
    kind = scheduler.decay_type
    rise, length, start = phases.warmup, phases.decay, phases.begin
    if context.version not in _RECENT:
        # Until June 2025 LambdaLR had (t + 1) / (W + 1): see "one-update-more".
        if context.as_implemented:
            rise += 1
        if context.version != WITH_BATCH_SIZE:
            start += 1
        elif context.as_implemented:
            length += 1

    def value(updates: float) -> Any:
        if updates < phases.warmup:
            return rate * (updates + 1) / rise
        if updates < phases.begin:
            return rate
        if length == 0:
            raise AssertionError("AssertionError: decay_steps is 0")
        return rate * along_line(low or 0, 1, _DECAYS[kind](updates + 1 - start, length))

    return kit.curve(f"lr_scheduler-{kind}", value)


def _rate(context: kit.Context, scheduler: Scheduler) -> Schedule:
    total = scheduler.total_steps
    total = context.fact("training_steps") if total is None else total
    rate = context.of_group("lr", context.fact("optimizer_lr"))
    return _scheduled(context, scheduler, _phases(scheduler, int(total), context.version), rate)


DEFECTS: Mapping[str, kit.Note[[Scheduler, Any]]] = {
    "last-update-above-minimum": kit.Convention(
        "the last update of the run stops one step short of the minimum",
        "torchtitan/components/optimizer/lr_scheduler.py:125",
        lambda scheduler, phases: phases.decay > 0,
        versions=_RECENT,
    ),
    "decay-over-no-update": kit.Convention(
        "a decay over 0 updates raises AssertionError in the second update after the run",
        "torchtitan/components/optimizer/lr_scheduler.py:168",
        lambda scheduler, phases: phases.decay == 0,
        versions=_RECENT,
    ),
    "one-update-more": kit.Defect(
        "until June 2025, the divisor of the warmup is one update longer than it: the peak is "
        "reached only in a stable phase",
        "torchtitan/components/lr_scheduler.py:149",
        lambda scheduler, phases: phases.warmup > 0,
        documented="the rate rises to the peak in warmup_steps updates",
        versions=VERSIONS[2:],
    ),
    "one-update-more-of-decay": kit.Defect(
        "until June 2025, the divisor of the decay is one update longer than it: the minimum is "
        "not reached in the run",
        "torchtitan/components/lr_scheduler.py:155",
        lambda scheduler, phases: phases.decay > 0,
        documented="the rate falls to the minimum in the updates of the decay",
        versions=(WITH_BATCH_SIZE,),
    ),
}


def _matches(document: kit.Document) -> bool:
    if document.python is not None:
        return any(_trainers(document)) or "config.optimizer" in document.content
    training = document.content.get("training")
    has_keys = isinstance(training, dict) and "steps" in training
    return has_keys and bool({"optimizer", "lr_scheduler"} & set(document.content))


def _read(reading: kit.Reading) -> kit.Recipe:
    config = Config.read_whole(_as_toml(reading.document))
    scheduler, training = config.lr_scheduler, config.training
    reading = replace(reading, version=_version(training, scheduler, reading.version))
    if "lr_min" in scheduler and "min_lr_factor" in scheduler:
        raise scheduler.error("lr_min and min_lr_factor are two names of one value", "lr_min")
    if reading.version in _FIRST:
        scheduler = scheduler.replace(warmup_steps=training.warmup_steps)
    total = training.steps if scheduler.total_steps is None else scheduler.total_steps
    phases = _phases(scheduler, total, reading.version)
    groups = []
    with scheduler.origin.locate_errors():
        for optimizer, names in _groups(config):
            rate = _scheduled(reading.context, scheduler, phases, exact_number(optimizer.lr))
            groups.append(optimizer.group(rate, **names))
    return reading.recipe(
        groups,
        horizon=training.steps,
        clipping=kit.Clipping(training.max_norm),
        accumulation=_accumulation(training, reading),
        values=(scheduler, phases),
        derived={"total_updates": training.steps},
    )


def _version(training: Training, scheduler: Any, version: str) -> str:
    """The version that has the keys of a config; the one that is asked for where it has them."""
    if version != NEWEST:
        return version
    if "warmup_steps" in training:
        return WITHOUT_SECTION
    if "batch_size" in training:
        return WITH_BATCH_SIZE
    return WITH_LR_MIN if "lr_min" in scheduler else NEWEST


def _accumulation(training: Training, reading: kit.Reading) -> int | None:
    """1 unless the config asks for a size of all micro-batches of an update."""
    sizes = (training.global_batch_size, training.num_tokens_per_train_step)
    is_asked_for = any(size is not None and size >= 0 for size in sizes)
    return reading.facts.gradient_accumulation if is_asked_for else 1


def _trainers(document: kit.Document) -> list[kit.ConfigCall]:
    return [
        call
        for call in kit.calls(document.values)
        if call.name.endswith("Config") and {"optimizer", "lr_scheduler"} & set(call.kwargs)
    ]


def _as_toml(document: kit.Document) -> kit.Document:
    """The arguments of the ``Trainer.Config(…)`` of a Python file; a TOML config as it is.

    Raises:
        ConfigError: The file has none, or several.
    """
    if document.python is None:
        return document
    trainers = _trainers(document)
    if len(trainers) > 1:
        names = ", ".join(call.name for call in trainers)
        raise document.error(f"one Trainer.Config must be in the file, got {names}", "")
    if not trainers:
        raise document.error(
            "the file changes a config that is made elsewhere, which has the schedule and the run",
            "",
            hint="give the file of the whole Trainer.Config",
        )
    content = {key: _attribute(value, document) for key, value in trainers[0].kwargs.items()}
    return replace(document, content=content)


def _attribute(value: Any, document: kit.Document) -> Any:
    """A call whose arguments may be the ``.param_groups`` of another call."""
    if not isinstance(value, kit.ConfigCall):
        return value
    kwargs = dict(value.kwargs)
    groups = kwargs.get("param_groups")
    if isinstance(groups, kit.Unresolved) and groups.text.endswith(".param_groups"):
        source = groups.text.removesuffix(".param_groups")
        try:
            kwargs["param_groups"] = kit.python_text.literal(
                ast.parse(source, mode="eval").body, document.content, document.source
            )
        except (SyntaxError, ValueError, RecursionError, MemoryError):
            return value
    return replace(value, kwargs=kwargs)


def _groups(config: Config) -> list[tuple[kit.ClassOptimizer, dict[str, Any]]]:
    """The optimizers of the param groups with their names, that of all other parameters first."""
    call = config.optimizer
    if isinstance(call, kit.ConfigCall) and isinstance(
        call.kwargs.get("param_groups"), kit.ConfigCall
    ):
        call = call.kwargs["param_groups"]
    if isinstance(call, kit.ConfigCall) and call.name.endswith("default_adamw"):
        arguments = {**({"lr": call.args[0]} if call.args else {}), **call.kwargs}
        place = kit.RawSection(config.origin.document, arguments, "optimizer")
        return [(kit.class_optimizer(place, "AdamW", (), ADAM), {})]
    place = config.origin.section("optimizer")
    if "param_groups" not in place:
        # The container of a file in Python has these keys, but not param groups.
        content = {key: place.content[key] for key in place.content if key not in Container.keys}
        return [(_former(replace(place, content=content)), {})]
    optimizers = []
    for group in Container.read(place).param_groups:
        names = {
            "name": "" if group.pattern == ".*" else group.pattern,
            "patterns": (group.pattern,),
        }
        place = group.optimizer_kwargs.origin
        optimizers.append((kit.class_optimizer(place, group.optimizer_name), names))
    return sorted(optimizers, key=lambda optimizer: optimizer[1]["name"] != "")


def _former(place: kit.RawSection) -> kit.ClassOptimizer:
    """The optimizer by the fields of the time before param groups."""
    optimizer = Optimizer.read(place)
    defaults = {**ADAM, "betas": (optimizer.beta1, optimizer.beta2)}
    left_out = ("name", "beta1", "beta2", *_Execution.keys)
    return kit.class_optimizer(place, optimizer.name, left_out, defaults)


_MINIMUM = dict.fromkeys(VERSIONS[1:4], "lr_min")
_TYPES = {
    kit.CurveName.LINEAR: "linear",
    kit.CurveName.COSINE: "cosine",
    kit.CurveName.CONSTANT: "linear",
}


def _configs(form: kit.WarmupDecayForm, made: kit.Optimizer) -> Iterator[kit.Config]:
    if form.curve not in _TYPES:
        return
    # The rise counts t + 1: its value is 0 one update before the first.
    warmup = kit.nearest_integer(form.warmup(CLOCK.offset))
    section: dict[str, Any] = {
        "warmup_steps": warmup,
        "decay_type": _TYPES[form.curve],
        "min_lr_factor": form.low_ratio,
    }
    end = form.total
    if form.curve is kit.CurveName.CONSTANT:
        section["decay_ratio"] = 0.0
    else:
        end = kit.nearest_integer(form.end)
        decay = kit.nearest_integer(form.end - form.begin)
        if decay != end - warmup:
            section["decay_ratio"] = decay / end
    if end != form.total:
        section["total_steps"] = end
    optimizer: dict[str, Any] = {
        "name": "Adam" if made.name == "adam" else "AdamW",
        "lr": kit.native(form.peak),
        "weight_decay": kit.native(made.weight_decay or 0),
        "eps": kit.native(made.values.get("eps", 1e-8)),
    }
    for index, beta in enumerate(made.values.get("betas", ()), 1):
        optimizer[f"beta{index}"] = kit.native(beta)
    groups = [group for group in made.groups if _NAMES.issuperset("".join(group.patterns))]
    if groups and made.version not in VERSIONS[1:]:
        yield from _with_groups(form, made, groups, section)
    training: dict[str, Any] = {"steps": form.total}
    training |= made.clip("max_norm")
    shared = {"optimizer": optimizer, "training": training}
    if made.version in VERSIONS[1:]:
        yield from _earlier_configs(form, shared, section, made.version)
    else:
        yield {**shared, "lr_scheduler": section}


_NAMES = frozenset("._" + string.ascii_letters + string.digits)
"""The characters of names of parameters: patterns of only these are names."""


def _with_groups(
    form: kit.WarmupDecayForm,
    made: kit.Optimizer,
    groups: Sequence[kit.GroupDifference],
    section: Mapping[str, Any],
) -> Iterator[kit.Config]:
    """The config with param groups, of which a parameter has the first that its name matches."""
    name = "Adam" if made.name == "adam" else "AdamW"
    common: dict[str, Any] = {"eps": kit.native(made.values.get("eps", 1e-8))}
    if "betas" in made.values:
        common["betas"] = made.betas()
    entries = []
    for group in groups:
        peak = group.peak(form.peak)
        if peak is None or group.is_special or not group.patterns:
            return
        decay = made.weight_decay if group.weight_decay is None else group.weight_decay
        names = "|".join(re.escape(pattern) for pattern in group.patterns)
        entries.append((f"^({names})$", peak, decay))
    entries.append((".*", form.peak, made.weight_decay))
    training: dict[str, Any] = {"steps": form.total}
    training |= made.clip("max_norm")
    param_groups = [
        {
            "pattern": pattern,
            "optimizer_name": name,
            "optimizer_kwargs": {
                "lr": kit.native(peak),
                "weight_decay": kit.native(decay or 0),
                **common,
            },
        }
        for pattern, peak, decay in entries
    ]
    yield {
        "optimizer": {"param_groups": param_groups},
        "training": training,
        "lr_scheduler": dict(section),
    }


def _earlier_configs(
    form: kit.WarmupDecayForm, shared: Mapping[str, Any], section: Mapping[str, Any], version: str
) -> Iterator[kit.Config]:
    """The configs of a version before June 2025, whose divisors differ by one update."""
    low = section["min_lr_factor"]
    optimizer = dict(shared["optimizer"])
    if form.rise is not None and not form.has_plateau and form.rise.start > 0:
        # The peak is not reached.
        optimizer["lr"] = kit.native(form.rise.start * (form.rise.end + 1))
    # Candidates, which are read back: the start of the rise, and the shift of the divisor.
    for warmup, shift in itertools.product((0, 1), (0, -1, 1)):
        length = form.rise.end - warmup if form.rise is not None else 0
        end = (
            form.total
            if form.curve is kit.CurveName.CONSTANT
            else kit.nearest_integer(form.end) + shift
        )
        if end < 1:
            continue
        training = {**shared["training"], "steps": end}
        scheduler = {"decay_type": section["decay_type"]}
        if version in _FIRST:
            training["warmup_steps"] = length
        else:
            scheduler |= {"warmup_steps": length, _MINIMUM[version]: low}
            if form.has_plateau:
                scheduler["decay_ratio"] = kit.nearest_integer(form.end - form.begin + shift) / end
        yield {"optimizer": optimizer, "training": training, "lr_scheduler": scheduler}


FRAMEWORK = kit.Framework(
    "torchtitan",
    kit.section_entries(
        {f"lr_scheduler-{decay}": _rate for decay in _DECAYS},
        {"": Scheduler},
        style=lambda scheduler: f"lr_scheduler-{scheduler.decay_type}",
    ),
    versions=VERSIONS,
    repository="https://github.com/pytorch/torchtitan",
    upstream="torchtitan/components/optimizer/lr_scheduler.py",
    clock=CLOCK,
    defects=DEFECTS,
    reader=kit.Reader(_read, _matches),
    writer=kit.Writer(".toml", _configs, {}, ("adam", "adamw")),
)

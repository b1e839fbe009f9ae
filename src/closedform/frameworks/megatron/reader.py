"""The reader of Megatron's flags, on a command line or in YAML, and of Megatron-Bridge's."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from types import MappingProxyType
from typing import Any

import sympy as sp

from closedform.frameworks.megatron.ramp import BatchStage, along_samples, read_ramp, updates_of
from closedform.frameworks.megatron.schedules import CLOCK, Flags, decay, rate
from closedform.language import Schedule
from closedform.recipes import kit

ARGUMENTS = "MODEL_ARGS"
"""The key of the flags in the YAML files of Megatron's tests."""

_SECTIONS = ("train", "optimizer", "scheduler")
"""The sections of Megatron-Bridge."""

_CONFIGS = ("TrainingConfig", "OptimizerConfig", "SchedulerConfig")
_MUON = "distributed_muon_with_cosine_annealing"
_WEIGHT_DECAY = {"start_weight_decay": 0.033, "end_weight_decay": 0.033, "weight_decay": 0.1}
_ADAM = {**_WEIGHT_DECAY, "adam_beta2": 0.95, "lr_decay_style": "cosine", "lr": 1e-4}
_MADE: Mapping[str, Mapping[str, Any]] = MappingProxyType(
    {
        "distributed_fused_adam_with_cosine_annealing": {**_ADAM, "lr_warmup_iters": 2000},
        "distributed_fused_adam_with_cosine_annealing_samples": _ADAM,
        _MUON: {
            **_WEIGHT_DECAY,
            "lr": 1e-4,
            "lr_decay_iters": 2000,
            "lr_decay_style": "cosine",
            "lr_warmup_iters": 2000,
            "optimizer": "dist_muon",
        },
    }
)
"""Functions of Megatron-Bridge that make the configs of optimizer and scheduler, with defaults."""

_RENAMED = {"max_lr": "lr", "min_lr": "min-lr"}
_SAMPLES = ("train_samples", "lr_decay_samples", "lr_warmup_samples", "lr_wsd_decay_samples")


@dataclass(frozen=True, slots=True)
class MegatronRun:
    """The batch sizes and the length of a run.

    Attributes:
        batch: The batch size of the flags in iterations.
        stages: The stages of a batch size that grows, empty for a constant one.
        updates: The updates of the run.
    """

    batch: int
    stages: tuple[BatchStage, ...]
    updates: int


def _matches(document: kit.Document) -> bool:
    content = document.content
    if document.python is not None:
        return any(
            call.name.rpartition(".")[2] in ("SchedulerConfig", *_MADE)
            for call in kit.calls(document.values)
        )
    if ARGUMENTS in content:
        return True
    if isinstance(content.get("scheduler"), dict) and isinstance(content.get("train"), dict):
        return "train_iters" in content["train"] or "train_samples" in content["train"]
    # On a command line, underscores mean ms-swift.
    is_line = document.syntax is kit.Syntax.ARGUMENTS
    names = {str(key) if is_line else str(key).replace("_", "-") for key in content}
    return "lr" in names and bool(
        names & {"train-iters", "train-samples", "global-batch-size", "lr-warmup-samples"}
    )


def _normal(content: Mapping[str, Any]) -> dict[str, Any]:
    """The flags without their first dashes, and with dashes for underscores.

    Names in capitals are variables of a shell script.
    """
    return {
        str(key).lstrip("-").replace("_", "-"): value
        for key, value in content.items()
        if not str(key).isupper()
    }


def _flags(document: kit.Document) -> kit.RawSection:
    """The flags of a command line, of ``MODEL_ARGS``, or of the sections of Megatron-Bridge."""
    if document.python is not None:
        return _from_python(document)
    config = kit.document_section(document)
    if ARGUMENTS in config:
        flags = config.section(ARGUMENTS)
        return kit.RawSection(document, _normal(flags.content), ARGUMENTS)
    if any(isinstance(config.content.get(name), Mapping) for name in _SECTIONS):
        contents: dict[str, Any] = {}
        for name in _SECTIONS:
            contents |= _normal(config.section(name).content)
        return kit.RawSection(document, contents)
    return kit.RawSection(document, _normal(config.content))


def _is_bridge(document: kit.Document) -> bool:
    content = document.content
    return document.python is not None or isinstance(content.get("scheduler"), Mapping)


def _from_python(document: kit.Document) -> kit.RawSection:
    """The fields of Megatron-Bridge's config classes, or of the functions that make two of them."""
    flags: dict[str, Any] = {}
    for call in kit.calls(document.values):
        name = call.name.rpartition(".")[2]
        if name in _MADE:
            flags |= {**_MADE[name], **{_RENAMED.get(k, k): v for k, v in call.kwargs.items()}}
            if flags.get("min-lr") is None and "lr" in flags and name != _MUON:
                flags["min-lr"] = _tenth(flags["lr"])
        elif name in _CONFIGS:
            flags |= call.kwargs
    if not flags:
        raise document.error(
            "the file calls none of Megatron-Bridge's config classes", "", ", ".join(_CONFIGS)
        )
    flags.pop("precision", None)
    return kit.RawSection(document, _normal(flags))


def _tenth(rate: Any) -> Any:
    return rate / 10 if isinstance(rate, int | float) else rate


def _read(reading: kit.Reading) -> kit.Recipe:
    flags = Flags.read(_flags(reading.document))
    if "rampup_batch_size" in flags and "step_batch_size_schedule" in flags:
        raise flags.error("only one of the ramps of the batch size may be given")
    has_length = flags.train_iters is not None or flags.train_samples is not None
    run, flags_of_run = _run(flags, reading.facts)
    if _is_bridge(reading.document):
        flags_of_run = by_bridge(flags_of_run, run)
    derived_facts = {"total_updates": run.updates} if has_length else {}
    return recipe_of(reading, flags_of_run, run, CLOCK, (flags,), derived_facts)


def recipe_of(
    reading: kit.Reading,
    flags: Flags,
    run: MegatronRun,
    clock: kit.Clock,
    values: Sequence[object],
    derived_facts: Mapping[str, Any] | None = None,
) -> kit.Recipe:
    """Returns the recipe of flags that have the numbers of their run.

    Args:
        reading: The input of the reader.
        flags: The flags, with the length of the run and the batch size.
        run: The run.
        clock: The clock of the framework that passes the flags to Megatron.
        values: The arguments of the conditions of its defects.
        derived_facts: As in ``Reading.recipe``.
    """
    plan = _optimizer(flags)
    context = reading.context
    schedules = {
        "lr": _build_schedule(rate, context, flags, run, "lr"),
        "weight_decay": _build_schedule(decay, context, flags, run, "weight_decay"),
    }
    group = kit.ParamGroup(schedules, plan, kit.Role.DEFAULT)
    return reading.recipe(
        [
            group,
            group.without_decay(("*.bias", "one dimension")),
            *_decoupled_groups(flags, run, context, group),
        ],
        clock=clock,
        horizon=run.updates,
        clipping=kit.Clipping(flags.clip_grad) if flags.clip_grad > 0 else None,
        accumulation=None,
        values=values,
        derived=derived_facts,
    )


def _run(flags: Flags, facts: kit.Facts) -> tuple[MegatronRun, Flags]:
    """The length of the run and its batch sizes, and the flags with both."""
    missing: list[str] = []

    def value_or_fact(name: str, fact: str) -> Any:
        value, fact_value = getattr(flags, name), getattr(facts, fact)
        if value is None:
            value = fact_value
            if fact_value is None:
                missing.append(fact)
        elif fact == "global_batch_size" and fact_value not in (None, value):
            raise flags.error(f"{name} is {value}, but the fact {fact} is {fact_value}", name)
        return value

    grows = "step_batch_size_schedule" in flags
    if grows and "global_batch_size" in flags:
        raise flags.error(
            "step-batch-size-schedule and global-batch-size exclude each other",
            "global_batch_size",
        )
    length = value_or_fact("seq_length", "sequence_length") if grows else 0
    batch = 0 if grows else value_or_fact("global_batch_size", "global_batch_size")
    in_samples = "train_samples" in flags or (
        "train_iters" not in flags and any(getattr(flags, name) for name in _SAMPLES)
    )
    samples, iterations = flags.train_samples, 0
    if not in_samples or (samples is None and flags.train_iters is None):
        iterations = value_or_fact("train_iters", "total_updates")
    if missing:
        facts.require(*missing, where=flags.origin.document.source)
    stages: tuple[BatchStage, ...] = ()
    if grows:
        with flags.origin.locate_errors("step-batch-size-schedule"):
            stages = read_ramp(flags.step_batch_size_schedule or "", int(length), "")
        batch = stages[-1].batch
    flags = flags.replace(global_batch_size=1 if stages else int(batch))
    if not in_samples:
        if stages:
            raise flags.error("a batch size that grows needs train-samples", "train_iters")
        return MegatronRun(int(batch), (), int(iterations)), flags.replace(
            train_iters=int(iterations)
        )
    samples = int(iterations) * int(batch) if samples is None else samples
    updates = updates_of(stages, samples) if stages else samples // int(batch)
    return MegatronRun(int(batch), stages, updates), flags.replace(
        train_samples=samples, train_iters=None
    )


def by_bridge(flags: Flags, run: MegatronRun) -> Flags:
    """Returns the flags by the rules of Megatron-Bridge.

    Its horizon may be another one, and a warmup that is longer is cut.

    Raises:
        ConfigError: The flags contradict each other.
    """
    changes: dict[str, Any] = {}
    if flags.max_steps is not None:
        if flags.max_steps < run.updates:
            raise flags.error(f"max_steps must be at least train_iters {run.updates}", "max_steps")
        changes["lr_decay_iters"] = flags.max_steps
    unit = "iters" if flags.train_iters is not None else "samples"
    train, length, warmup, tail = (
        f"{name}_{unit}" for name in ("train", "lr_decay", "lr_warmup", "lr_wsd_decay")
    )
    total = changes.get(length) or getattr(flags, length) or getattr(flags, train)
    if flags.lr_decay_style == "WSD" and getattr(flags, tail) is None:
        changes[tail] = total
    scale = run.batch if unit == "iters" else 1
    if getattr(flags, warmup) * scale >= total * scale:
        changes[warmup] = sp.Rational(total * scale - 1, scale)
    first, last = flags.start_weight_decay, flags.end_weight_decay
    if flags.weight_decay_incr_style == "constant" and (first, last) != (None, None):
        # Written over the weight decay of the optimizer at every update.
        if first != last:
            raise flags.error(
                f"a constant weight decay must begin as it ends, got {first} and {last}"
            )
        changes |= {"start_weight_decay": None, "end_weight_decay": None, "weight_decay": first}
    return flags.replace(**changes)


def _build_schedule(
    curve: kit.ScheduleOfSections,
    context: kit.Context,
    flags: Flags,
    run: MegatronRun,
    key: str,
) -> Schedule:
    with flags.origin.locate_errors("lr" if key == "lr" else "weight-decay"):
        schedule = curve(context, flags)
        return along_samples(schedule, run.stages) if run.stages else schedule


def _decoupled_groups(
    flags: Flags, run: MegatronRun, context: kit.Context, default: kit.ParamGroup
) -> list[kit.ParamGroup]:
    """The group of the input and output layers, where it has its own rate."""
    if flags.decoupled_lr is None:
        return []
    ends = {"max_lr": flags.decoupled_lr, "min_lr": flags.decoupled_min_lr}
    ends = {name: end for name, end in ends.items() if end is not None}
    context = replace(context, facts={**context.facts, "param_group": ends})
    schedules = {**default.schedules, "lr": _build_schedule(rate, context, flags, run, "lr")}
    patterns = ("is_embedding_or_output_parameter",)
    role = kit.Role.EMBEDDING_AND_OUTPUT
    return [kit.ParamGroup(schedules, default.optimizer, role, "decoupled_lr", patterns)]


def _optimizer(flags: Flags) -> kit.OptimizerPlan:
    name, source = flags.optimizer, flags.origin.document.source
    if name == "adam":
        arguments = {
            "betas": (flags.adam_beta1, flags.adam_beta2),
            "eps": flags.adam_eps,
            "adam_w_mode": flags.decoupled_weight_decay,
        }
        return kit.plan_optimizer(name, arguments, kit.fused_adam, source)
    if name == "sgd":
        return kit.plan_optimizer(name, {"momentum": flags.sgd_momentum}, None, source)
    if name == "lion":
        return kit.plan_optimizer(
            name, {"betas": (flags.lion_beta1, flags.lion_beta2)}, None, source
        )
    # Their steps depend on how the matrices are split over processes.
    return kit.plan_optimizer(f"megatron {name}", {}, None, source)


READER = kit.Reader(_read, _matches)

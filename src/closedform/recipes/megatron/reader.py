"""The reader of Megatron's flags, on a command line or in YAML, and of Megatron-Bridge's."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass
from types import MappingProxyType
from typing import Any

from closedform.errors import nearest
from closedform.language import Schedule, UpdateRule
from closedform.recipes.build import built
from closedform.recipes.clock import Clock, Unit
from closedform.recipes.document import Document, Form
from closedform.recipes.documents.values import Unresolved
from closedform.recipes.megatron.ramp import Stage, along_samples, read_ramp, updates_of
from closedform.recipes.megatron.schedules import FLAGS, SCHEDULES
from closedform.recipes.optimizer_classes import fused_adam
from closedform.recipes.reader import Reader, Reading
from closedform.recipes.recipe import Clipping, OptimizerPlan, ParamGroup, Recipe, Role
from closedform.recipes.rules import planned
from closedform.recipes.section import Section, calls, whole

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
_OPTIMIZERS = ("adam", "sgd", "muon", "dist_muon", "lion", "soap", "adaptive_muon")
_PLAIN = tuple(flag.removeprefix("--") for flag in FLAGS)
_RATES = ("decoupled-lr", "decoupled-min-lr", "step-batch-size-schedule", "optimizer")
_MOMENTS = ("adam-beta1", "adam-beta2", "adam-eps", "sgd-momentum", "lion-beta1", "lion-beta2")
_IGNORED = (
    "adaptive-muon-beta2",
    "apply-wd-to-qk-layernorm",
    "cuda-graph-warmup-steps",
    "decoupled-weight-decay",
    "dino-warmup-teacher-temp",
    "dino-warmup-teacher-temp-epochs",
    "dist-ckpt-optim-fully-reshardable",
    "distrib-optim-fully-reshardable-mem-efficient",
    "ft-num-warmup-iters",
    "grpo-kl-beta",
    "head-lr-mult",
    "load-optim",
    "lr-mult-router",
    "muon-momentum",
    "muon-scalar-optimizer",
    "no-load-optim",
    "no-save-optim",
    "no-weight-decay-cond-type",
    "num-distributed-optimizer-instances",
    "optimizer-cpu-offload",
    "optimizer-cuda-graph",
    "optimizer-offload-fraction",
    "overlap-cpu-optimizer-d2h-h2d",
    "overlap-param-gather-with-optimizer-step",
    "overlap-p2p-communication-warmup-flush",
    "override-opt-param-scheduler",
    "rl-offload-optimizer-during-inference",
    "router-beta",
    "save-optim",
    "soap-shampoo-beta",
    "tau-decay",
    "use-checkpoint-opt-param-scheduler",
    "use-distributed-optimizer",
    "use-layer-wise-distributed-optimizer",
    "use-precision-aware-optimizer",
    "use-torch-optimizer-for-cpu-offload",
    "yarn-beta-fast",
    "yarn-beta-slow",
)
"""Flags near the optimizer that do not change the schedules."""

_KNOWN = (*_PLAIN, *_RATES, *_MOMENTS, *_IGNORED)
_SAMPLES = ("train-samples", "lr-decay-samples", "lr-warmup-samples", "lr-wsd-decay-samples")
_NOTES: Mapping[str, str] = MappingProxyType(
    {
        "weight-decay-of-scheduler": (
            "the scheduler's start_weight_decay replaces the optimizer's weight_decay"
        ),
        "inverse-square-root-falls": (
            "inverse-square-root falls to the minimum at once after the horizon"
        ),
        "constant-has-no-end": "constant ignores the horizon and the minimum",
        "warmup-start-ignored": "the warmup start is ignored without a warmup",
        "from-checkpoint": "a checkpoint that is loaded replaces the numbers of the schedules",
        "ramp-ignored": "rampup-batch-size has no effect since April 2026",
        "own-multiplier": "lr-mult-router is a multiplier of a test's own training script",
    }
)


@dataclass(frozen=True, slots=True)
class Run:
    """The batch sizes and the length of a run.

    Attributes:
        batch: The batch size of the flags in iterations.
        stages: The stages of a batch size that grows, empty for a constant one.
        updates: The updates of the run.
    """

    batch: int
    stages: tuple[Stage, ...]
    updates: int


def _matches(document: Document) -> bool:
    content = document.content
    if document.python is not None:
        return any(
            one.name.rpartition(".")[2] in ("SchedulerConfig", *_MADE)
            for one in calls(document.values)
        )
    if ARGUMENTS in content:
        return True
    if isinstance(content.get("scheduler"), dict) and isinstance(content.get("train"), dict):
        return "train_iters" in content["train"] or "train_samples" in content["train"]
    # On a command line, underscores are those of ms-swift.
    is_line = document.form is Form.ARGUMENTS
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


def _flags(document: Document) -> Section:
    """The flags of a command line, of ``MODEL_ARGS``, or of the sections of Megatron-Bridge."""
    if document.python is not None:
        return _from_python(document)
    config = whole(document)
    if ARGUMENTS in config:
        flags = config.section(ARGUMENTS)
        return Section(document, _normal(flags.content), ARGUMENTS)
    if any(isinstance(config.content.get(name), Mapping) for name in _SECTIONS):
        merged: dict[str, Any] = {}
        for name in _SECTIONS:
            merged |= _normal(config.section(name).content)
        return Section(document, merged)
    return Section(document, _normal(config.content))


def _is_bridge(document: Document) -> bool:
    content = document.content
    return document.python is not None or isinstance(content.get("scheduler"), Mapping)


def _from_python(document: Document) -> Section:
    """The fields of Megatron-Bridge's config classes, or of the functions that make two of them."""
    merged: dict[str, Any] = {}
    for one in calls(document.values):
        name = one.name.rpartition(".")[2]
        if name in _MADE:
            merged |= {**_MADE[name], **{_RENAMED.get(k, k): v for k, v in one.kwargs.items()}}
            if merged.get("min-lr") is None and "lr" in merged and name != _MUON:
                merged["min-lr"] = _tenth(merged["lr"])
        elif name in _CONFIGS:
            merged |= one.kwargs
    if not merged:
        raise document.error(
            "the file calls none of Megatron-Bridge's config classes", "", ", ".join(_CONFIGS)
        )
    merged.pop("precision", None)
    return Section(document, _normal(merged))


def _tenth(rate: Any) -> Any:
    return rate / 10 if isinstance(rate, int | float) else rate


def _read(reading: Reading) -> Recipe:
    flags = _flags(reading.document)
    flags.check_related(_KNOWN)
    if "rampup-batch-size" in flags and "step-batch-size-schedule" in flags:
        raise flags.error("only one of the ramps of the batch size may be given")
    given = {flag: _flag(flags, flag) for flag in FLAGS}
    run = _run(flags, given, reading)
    if _is_bridge(reading.document):
        _bridge(flags, given, run)
    plan = _optimizer(flags)
    schedules = {
        "lr": _schedule(flags, given, run, str(given["--lr-decay-style"]), "lr", {}),
        "weight_decay": _weight_decay(flags, given, run),
    }
    group = ParamGroup(schedules, plan, Role.DEFAULT)
    groups = [group, group.without_decay(("*.bias", "one dimension"))]
    groups += _decoupled(flags, given, run, schedules, plan)
    threshold = flags.number("clip-grad", 1.0)
    return Recipe(
        reading.document.name,
        reading.framework or "megatron",
        tuple(groups),
        horizon=run.updates,
        version=reading.version,
        source=reading.document.source,
        facts=reading.facts,
        clock=Clock(Unit.SAMPLE),
        clipping=Clipping(threshold) if threshold > 0 else None,
        notes=_notes(flags, given),
        derived={"total_updates": run.updates} if _has_length(flags) else {},
    )


def _has_length(flags: Section) -> bool:
    return any(
        flags.content.get(name) is not None and not isinstance(flags.content[name], Unresolved)
        for name in ("train-iters", "train-samples")
    )


def _flag(flags: Section, flag: str) -> Any:
    """The value of a flag, its default where it is absent; texts and numbers as they are."""
    name = flag.removeprefix("--")
    default = FLAGS[flag]
    if name in ("global-batch-size", "train-iters", "train-samples"):
        return None
    if isinstance(default, str):
        return flags.text(name, default)
    return flags.number(name, default)


def _run(flags: Section, given: dict[str, Any], reading: Reading) -> Run:
    """The length of the run and its batch sizes; both are written into the flags."""
    facts = reading.facts
    missing: list[str] = []

    def of_file(name: str, fact: str) -> Any:
        found = flags.content.get(name)
        known = getattr(facts, fact)
        if isinstance(found, Unresolved) or found is None:
            if known is None:
                missing.append(fact)
            return known
        number = flags.integer(name)
        if fact == "global_batch_size" and known not in (None, number):
            raise flags.error(f"{name} is {number}, but the fact {fact} is {known}", name)
        return number

    stages: tuple[Stage, ...] = ()
    if "step-batch-size-schedule" in flags:
        if "global-batch-size" in flags:
            raise flags.error(
                "step-batch-size-schedule and global-batch-size exclude each other",
                "global-batch-size",
            )
        length = of_file("seq-length", "sequence_length")
    else:
        batch = of_file("global-batch-size", "global_batch_size")
    in_samples = "train-samples" in flags or (
        "train-iters" not in flags and any(flags.content.get(name) for name in _SAMPLES)
    )
    samples: Any = None
    iterations: Any = None
    if in_samples and _has_length(flags):
        samples = flags.integer("train-samples")
    else:
        iterations = of_file("train-iters", "total_updates")
    if missing:
        facts.require(*missing, where=flags.document.source)
    if "step-batch-size-schedule" in flags:
        with flags.located("step-batch-size-schedule"):
            stages = read_ramp(str(flags.value("step-batch-size-schedule")), int(length), "")
        batch = stages[-1].batch
    if in_samples and samples is None:
        samples = int(iterations) * int(batch)
    given["--global-batch-size"] = 1 if stages else int(batch)
    if not in_samples:
        given["--train-iters"] = int(iterations)
        if stages:
            raise flags.error("a batch size that grows needs train-samples", "train-iters")
        return Run(int(batch), stages, int(iterations))
    given["--train-samples"] = int(samples)
    updates = updates_of(stages, int(samples)) if stages else int(samples) // int(batch)
    return Run(int(batch), stages, updates)


def _bridge(flags: Section, given: dict[str, Any], run: Run) -> None:
    """The rules of Megatron-Bridge that differ: a horizon of its own, a warmup that is cut."""
    longest = flags.integer("max-steps", None)
    if longest is not None:
        if longest < run.updates:
            raise flags.error(f"max_steps must be at least train_iters {run.updates}", "max-steps")
        given["--lr-decay-iters"] = longest
    unit = "iters" if given["--train-iters"] is not None else "samples"
    total = given[f"--lr-decay-{unit}"] or given[f"--train-{unit}"]
    if given["--lr-decay-style"] == "WSD" and given[f"--lr-wsd-decay-{unit}"] is None:
        given[f"--lr-wsd-decay-{unit}"] = total
    scale = run.batch if unit == "iters" else 1
    warmup = given[f"--lr-warmup-{unit}"] * scale
    if warmup >= total * scale:
        given[f"--lr-warmup-{unit}"] = (total * scale - 1) / scale
    if given["--weight-decay-incr-style"] == "constant":
        start, end = given["--start-weight-decay"], given["--end-weight-decay"]
        given["--start-weight-decay"] = given["--end-weight-decay"] = None
        if start is not None or end is not None:
            # Written over the weight decay of the optimizer at every update.
            if start != end:
                raise flags.error(
                    f"a constant weight decay must begin as it ends, got {start} and {end}"
                )
            given["--weight-decay"] = start


def _schedule(
    flags: Section,
    given: Mapping[str, Any],
    run: Run,
    name: str,
    key: str,
    group: Mapping[str, Any],
) -> Schedule:
    if name not in SCHEDULES:
        known = [one for one in SCHEDULES if one.startswith("wd-") == (key != "lr")]
        raise flags.error(f"there is no style {name!r}", "lr-decay-style", nearest(name, known))
    with flags.located("lr" if key == "lr" else "weight-decay"):
        made = built("megatron", SCHEDULES, name, given, key=key, facts={"param_group": group})
        return along_samples(made, run.stages) if run.stages else made


def _weight_decay(flags: Section, given: Mapping[str, Any], run: Run) -> Schedule:
    name = f"wd-{given['--weight-decay-incr-style']}"
    return _schedule(flags, given, run, name, "weight_decay", {})


def _decoupled(
    flags: Section,
    given: Mapping[str, Any],
    run: Run,
    schedules: Mapping[str, Schedule],
    plan: OptimizerPlan,
) -> list[ParamGroup]:
    """The group of the input and output layers, where it has a rate of its own."""
    if "decoupled-lr" not in flags:
        return []
    group = {"max_lr": flags.number("decoupled-lr")}
    if "decoupled-min-lr" in flags:
        group["min_lr"] = flags.number("decoupled-min-lr")
    rate = _schedule(flags, given, run, str(given["--lr-decay-style"]), "lr", group)
    patterns = ("is_embedding_or_output_parameter",)
    role = Role.EMBEDDING_AND_OUTPUT
    return [ParamGroup({**schedules, "lr": rate}, plan, role, "decoupled_lr", patterns)]


def _optimizer(flags: Section) -> OptimizerPlan:
    name = flags.text("optimizer", "adam")
    if name not in _OPTIMIZERS:
        raise flags.error(
            f"there is no optimizer {name!r}", "optimizer", nearest(name, _OPTIMIZERS)
        )
    rule: Callable[..., UpdateRule] | None = None
    arguments: dict[str, Any] = {}
    if name == "adam":
        rule = fused_adam
        arguments = {
            "betas": (flags.number("adam-beta1", 0.9), flags.number("adam-beta2", 0.999)),
            "eps": flags.number("adam-eps", 1e-8),
            "adam_w_mode": flags.flag("decoupled-weight-decay", True),
        }
    elif name == "sgd":
        arguments = {"momentum": flags.number("sgd-momentum", 0.9)}
    elif name == "lion":
        arguments = {"betas": (flags.number("lion-beta1", 0.95), flags.number("lion-beta2", 0.98))}
    else:
        # Their steps depend on how the matrices are split over processes.
        return planned(f"megatron {name}", {}, None, flags.document.source)
    return planned(name, arguments, rule, flags.document.source)


def _notes(flags: Section, given: Mapping[str, Any]) -> dict[str, str]:
    style = given["--lr-decay-style"]
    has_warmup = any(
        given[flag] for flag in FLAGS if flag.startswith("--lr-warmup") and flag[12:] != "init"
    )
    own, first = (flags.value(f"{name}weight-decay") for name in ("", "start-"))
    concerned = {
        "weight-decay-of-scheduler": own is not None and first not in (None, own),
        "inverse-square-root-falls": style == "inverse-square-root",
        "constant-has-no-end": style == "constant",
        "warmup-start-ignored": bool(given["--lr-warmup-init"]) and not has_warmup,
        "from-checkpoint": bool(flags.value("use-checkpoint-opt-param-scheduler", False)),
        "ramp-ignored": "rampup-batch-size" in flags,
        "own-multiplier": "lr-mult-router" in flags,
    }
    return {name: _NOTES[name] for name, is_so in concerned.items() if is_so}


READER = Reader(_read, _matches)

"""NeMo-RL: the schedulers of its policy workers, torch's by name or those of Megatron-Bridge.

A scheduler is stepped once for each training step; all updates of one share a rate.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

import sympy as sp

from closedform.frameworks.megatron.reader import MegatronRun, by_bridge, recipe_of
from closedform.frameworks.megatron.schedules import STYLES, Flags, decay
from closedform.frameworks.megatron.schedules import rate as rate_of_flags
from closedform.frameworks.torch.paths import class_of, of_class
from closedform.frameworks.torch.schedules import SCHEDULES
from closedform.language import Schedule, exact_number
from closedform.recipes import kit
from closedform.schedules import constant

CLOCK = kit.Clock(kit.Unit.TRAINING_STEP, is_stepped=True)
ALGORITHMS = ("grpo", "ppo", "sft", "distillation", "dpo", "rm")
PAIRED = ("dpo", "rm")
"""Algorithms whose batches are pairs: they double the batch, and the scheduler's iterations."""


class Policy(kit.OpenSection):
    megatron_cfg: Any = None
    max_grad_norm: kit.Norm | None = None
    optimizer: Any = None
    scheduler: Any = None
    train_global_batch_size: Any = None


DEFECTS: Mapping[str, kit.Note[[Flags | None, Any, Any]]] = {
    "warmup-is-cut": kit.Convention(
        "a warmup that is not shorter than the decay is cut to one sample less",
        "megatron/bridge/training/optim.py (067f987df)",
        lambda flags, marks, lengths: (
            flags is not None
            and flags.lr_warmup_iters >= (flags.lr_decay_iters or flags.train_iters)
        ),
        classes=tuple(f"megatron-{style}" for style in STYLES),
    ),
    "milestone-in-the-warmup": kit.Convention(
        "a milestone cuts the scheduler before it: the rate jumps",
        "nemo_rl/models/policy/workers/dtensor_policy_worker.py:515",
        lambda flags, marks, lengths: any(
            length is not None and mark < length
            for mark, length in zip(marks, lengths, strict=False)
        ),
        classes=("list",),
    ),
}


def _kwargs(entry: kit.RawSection) -> Mapping[str, Any]:
    if "kwargs" not in entry.content:
        raise entry.error("kwargs is missing", hint="give the arguments of the class")
    return entry.section("kwargs").content


def _list(origin: kit.RawSection) -> tuple[list[dict[str, Any]], list[Any]]:
    """The schedulers of a list, and the milestones of the entry that has no name."""
    members, marks = [], None
    for entry in origin.sections("scheduler"):
        if "name" in entry:
            members.append({"class": class_of(entry, "name"), "kwargs": _kwargs(entry)})
        elif "milestones" in entry.content:
            marks = entry.value("milestones", [])
        else:
            raise entry.error("a scheduler must have a name, or milestones", hint="give name")
    if marks is None:
        raise origin.error("a list of schedulers needs an entry with milestones", "scheduler")
    return members, marks


def _rate_of_optimizer(policy: kit.RawSection) -> sp.Expr:
    return exact_number(policy.section("optimizer").section("kwargs").number("lr", 1e-3))


def _of_torch(policy: kit.RawSection, as_implemented: bool) -> Schedule:
    rate, scheduler = _rate_of_optimizer(policy), policy.value("scheduler")
    if scheduler is None:
        return constant(rate)
    if isinstance(scheduler, list | tuple):
        members, marks = _list(policy)
        arguments = {"schedulers": members, "milestones": marks}
        return of_class(policy, "SequentialLR", arguments, rate, as_implemented)
    entry = policy.section("scheduler")
    return of_class(entry, class_of(entry, "name"), _kwargs(entry), rate, as_implemented)


def _of_class(context: kit.Context, policy: Policy) -> Schedule:
    return _of_torch(policy.origin, context.as_implemented)


def _flags(config: kit.RawSection, iterations: int) -> tuple[Flags, MegatronRun]:
    """The flags of Megatron-Bridge and the run, in training steps."""
    policy = config.section("policy")
    bridge = policy.section("megatron_cfg")
    algorithm = _algorithm(config)
    content: dict[str, Any] = {}
    for name in ("optimizer", "scheduler"):
        for key, value in bridge.section(name).content.items():
            if algorithm in PAIRED and "iters" in key and value is None:
                raise bridge.section(name).error(
                    f"{algorithm} doubles {key}, which must be a number, got None",
                    key,
                    hint="leave it out",
                )
            content[str(key).replace("_", "-")] = value
    batch = policy.integer("train_global_batch_size") * (2 if algorithm in PAIRED else 1)
    flags = Flags.read(kit.RawSection(config.document, content, bridge.path))
    flags = flags.replace(global_batch_size=batch, train_iters=iterations, train_samples=None)
    part = flags.lr_warmup_fraction
    if part is not None and part >= 1 and not flags.lr_warmup_iters:
        flags = flags.replace(lr_warmup_fraction=None, lr_warmup_iters=part * iterations)
    return flags, MegatronRun(batch, (), iterations)


def _algorithm(config: kit.RawSection) -> str:
    return next((name for name in ALGORITHMS if name in config), "")


def _iterations(config: kit.RawSection, context: kit.Context) -> int | None:
    """The training steps of the run: the fact, or the least of the config's limits."""
    algorithm, facts = config.section(_algorithm(config)), context.numbers
    steps: int | None = algorithm.integer("max_num_steps", None)
    epochs: int | None = algorithm.integer("max_num_epochs", None)
    training_steps: int | None = context.facts.get("training_steps")
    if training_steps is None and facts.total_updates is not None:
        training_steps = int(facts.total_updates) // (facts.updates_per_training_step or 1)
    if training_steps is None and facts.updates_per_epoch is not None:
        training_steps = int(facts.updates_per_epoch) * (epochs or 1)
    if training_steps is None:
        return None if epochs is not None else steps
    return training_steps if steps is None else min(steps, training_steps)


def _require_iterations(config: kit.RawSection, context: kit.Context) -> int:
    iterations = _iterations(config, context)
    if iterations is None:
        raise kit.missing_facts(
            "training_steps",
            context.where,
            "give them, or the batches of an epoch as updates_per_epoch",
        )
    return iterations


def _of_megatron(context: kit.Context, policy: Policy) -> Schedule:
    config = policy.origin
    flags, run = _flags(config, _require_iterations(config, context))
    curve = decay if context.key == "weight_decay" else rate_of_flags
    return curve(context, by_bridge(flags, run))


def _config(document: kit.Document) -> kit.RawSection:
    return kit.document_section(kit.interpolate(kit.in_sections(document)))


def _matches(document: kit.Document) -> bool:
    policy = document.content.get("policy")
    if any(str(key).startswith("policy.") for key in document.content):
        policy = {} if policy is None else policy
    return isinstance(policy, dict) and any(
        str(key).partition(".")[0] in ALGORITHMS for key in document.content
    )


def _read(reading: kit.Reading) -> kit.Recipe:
    config, context = _config(reading.document), reading.context
    policy = Policy.read(config.section("policy"))
    backend = reading.facts.framework_facts.get("backend")
    bridge = policy.origin.section("megatron_cfg")
    if backend == "megatron" or (backend is None and bridge.flag("enabled", False)):
        flags, run = _flags(config, _require_iterations(config, context))
        values = (flags, (), ())
        return recipe_of(reading, by_bridge(flags, run), run, CLOCK, values)
    optimizer = policy.origin.section("optimizer")
    rate = _of_torch(policy.origin, reading.as_implemented)
    marks: list[Any] = []
    lengths: list[Any] = []
    if isinstance(policy.scheduler, list | tuple):
        members, marks = _list(policy.origin)
        lengths = [member["kwargs"].get("total_iters") for member in members]
        lengths = [
            length if member["class"] == "LinearLR" else None
            for length, member in zip(lengths, members, strict=True)
        ]
    starts = [0, *marks]
    durations = [mark - start for start, mark in zip(starts, marks, strict=False)]
    group = kit.class_optimizer(optimizer.section("kwargs"), optimizer.text("name")).group(rate)
    clipping = policy.max_grad_norm
    return reading.recipe(
        [group],
        horizon=_iterations(config, context),
        clipping=None if clipping is None else kit.Clipping(clipping),
        accumulation=None,
        values=(None, durations, lengths),
    )


class _Algorithms(kit.OpenSection):
    policy: Any = None
    grpo: Any = None
    ppo: Any = None
    sft: Any = None
    distillation: Any = None
    dpo: Any = None
    rm: Any = None


FRAMEWORK = kit.Framework(
    "nemo-rl",
    {
        **kit.section_entries(
            dict.fromkeys((*SCHEDULES, "list", "constant"), _of_class), {"": Policy}
        ),
        **kit.section_entries(
            {f"megatron-{style}": _of_megatron for style in STYLES}, {"": _Algorithms}
        ),
    },
    versions=("7ea279abfbeb",),
    repository="https://github.com/NVIDIA-NeMo/RL",
    upstream="nemo_rl/models/policy/workers/dtensor_policy_worker.py, nemo_rl/models/megatron",
    clock=CLOCK,
    defects=DEFECTS,
    reader=kit.Reader(_read, _matches),
    facts=("backend", "training_steps"),
)

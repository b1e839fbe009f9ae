"""open-instruct: fine-tuning and DPO, whose schedules accelerate steps once for each process; GRPO.

The schedulers are transformers', or those of OLMo-core in the trainers that are built on it.
"""

from __future__ import annotations

import math
from collections.abc import Mapping
from dataclasses import dataclass, replace

import sympy as sp

from closedform.frameworks.diffusers.process_steps import CLOCK, run_of
from closedform.frameworks.olmo_core import schedules as olmo_core
from closedform.frameworks.transformers.schedules import schedule_by_name
from closedform.language import Schedule
from closedform.recipes import kit
from closedform.schedules import constant

OF_UPDATES = kit.Clock(kit.Unit.UPDATE)
"""The clock of GRPO."""

CURVES = (
    *("linear", "cosine", "cosine_with_restarts", "polynomial"),
    *("constant", "constant_with_warmup", "inverse_sqrt"),
)
OF_OLMO = kit.Clock(kit.Unit.UPDATE, offset=1)
_OLMO: Mapping[str, tuple[str, Mapping[str, float]]] = {
    "cosine": ("CosWithWarmup", {}),
    "linear": ("LinearWithWarmup", {"alpha_f": 0.0}),
    "constant": ("ConstantWithWarmup", {}),
}
"""The schedulers of OLMo-core by ``lr_scheduler_type``, with their arguments."""


class _Base(kit.OpenSection, irrelevant="fused_optimizer"):
    learning_rate: kit.Rate = 2e-5
    lr_scheduler_type: str = kit.choice(*CURVES, default="linear")
    warmup_ratio: kit.RunRatio = 0
    weight_decay: kit.WeightDecay = 0


class Tuning(_Base, irrelevant="dpo_beta"):
    warmup_ratio: kit.RunRatio = 0.03
    final_lr_ratio: kit.RateRatio | None = None
    max_train_steps: kit.Steps | None = kit.integer(None, least=1)
    num_train_epochs: kit.Epochs | None = kit.integer(None, least=1)
    num_epochs: kit.Epochs | None = kit.integer(None, least=1)
    gradient_accumulation_steps: kit.Accumulation = kit.integer(1, least=1)
    clip_grad_norm: kit.Norm = -1
    max_grad_norm: kit.Norm = -1
    use_8bit_optimizer: bool = False


class GRPO(_Base, irrelevant="beta warmup_steps num_warmup_steps"):
    num_epochs: kit.Epochs = kit.integer(1, least=1)
    num_mini_batches: int = kit.integer(1, least=1)
    max_grad_norm: kit.Norm = 1
    total_episodes: kit.Samples | None = kit.integer(None, least=1)
    num_unique_prompts_rollout: int | None = kit.integer(None, least=1)
    num_samples_per_prompt_rollout: int | None = kit.integer(None, least=1)
    set_weight_decay_on_bias_and_norm: bool = True


_SPARED = ("bias", "layer_norm.weight")


@dataclass(frozen=True, slots=True)
class RunNumbers:
    """The numbers of a run.

    Attributes:
        processes: The processes.
        updates: The updates of the run.
        steps: The steps of the scheduler in the run, as the script plans them.
        is_olmo: Whether the trainer is one of OLMo-core.
    """

    processes: int
    updates: int
    steps: int
    is_olmo: bool = False


DEFECTS: Mapping[str, kit.Note[[_Base, RunNumbers]]] = {
    "unfinished-decay": kit.Defect(
        "an accumulation that does not divide the batches of a process leaves the schedule "
        "unfinished, or past its end",
        "open_instruct/finetune.py:695",
        lambda arguments, plan: (
            plan.steps != plan.updates * plan.processes
            and arguments.lr_scheduler_type not in ("constant", "constant_with_warmup")
        ),
        documented="a decay to the end of the run",
        classes=tuple(name for name in CURVES if not name.startswith("constant")),
    ),
    "warmup-of-constant": kit.Convention(
        "constant ignores warmup_ratio",
        "src/transformers/optimization.py:1014",
        lambda arguments, plan: (
            not plan.is_olmo
            and arguments.lr_scheduler_type == "constant"
            and arguments.warmup_ratio > 0
        ),
        classes=("constant", "grpo-constant"),
    ),
    "rises-again": kit.Convention(
        "the cosine rises again after the run",
        "src/transformers/optimization.py:140",
        lambda arguments, plan: not plan.is_olmo and arguments.lr_scheduler_type == "cosine",
        classes=("cosine", "grpo-cosine"),
    ),
}


def _plan(context: kit.Context, arguments: Tuning) -> RunNumbers:
    accumulation, most = arguments.gradient_accumulation_steps, arguments.max_train_steps
    facts, epochs = context.numbers, arguments.num_train_epochs or arguments.num_epochs or 2
    if _is_olmo(context):
        if most is None:
            (batches,) = facts.require("updates_per_epoch", where=context.where)
            most = int(batches) * epochs
        return RunNumbers(1, most, most, is_olmo=True)
    if most is not None:
        processes = int(facts.world_size or 1)
        return RunNumbers(processes, most, most * processes)
    fact_names = ("world_size", "micro_batches_per_epoch")
    processes, batches = (int(value) for value in facts.require(*fact_names, where=context.where))
    updates = epochs * -(-math.ceil(batches / processes) // accumulation)
    steps = epochs * -(-batches // accumulation)
    return RunNumbers(processes, updates, steps)


def _build_schedule(
    context: kit.Context, arguments: _Base, plan: RunNumbers, ratio: sp.Expr | None = None
) -> Schedule:
    """The schedule of ``get_scheduler``, where the line may end at a part of the rate."""
    kit.refuse_unless(plan.updates > 0, "the run has no update", context.where)
    total = plan.steps if context.as_implemented else plan.updates * plan.processes
    warmup = int(total * float(arguments.warmup_ratio))
    rate = arguments.learning_rate
    run = run_of(context, rate, warmup, total, plan.processes)
    if ratio is not None:
        run = replace(run, total=(total - ratio * warmup) / (1 - ratio))
    origin = arguments.origin
    return schedule_by_name(
        arguments.lr_scheduler_type, kit.RawSection(origin.document, {}, origin.path), run
    )


def _is_olmo(context: kit.Context) -> bool:
    trainer = context.facts.get("trainer", "transformers")
    kit.refuse_unless(
        trainer in ("transformers", "olmo-core"),
        f"the fact trainer must be transformers or olmo-core, got {trainer!r:.40}",
        context.where,
    )
    return bool(trainer == "olmo-core")


def _of_olmo(context: kit.Context, arguments: _Base, total: int) -> Schedule:
    """The schedule of a trainer of OLMo-core, which counts the update itself."""
    kind = arguments.lr_scheduler_type
    kit.refuse_unless(kind in _OLMO, f"OLMo-core has no scheduler {kind!r} here", context.where)
    name, more = _OLMO[kind]
    warmup = int(total * float(arguments.warmup_ratio))
    config = {
        "optim": {"lr": arguments.learning_rate},
        "scheduler": {"class": name, "warmup_steps": warmup, **more},
    }
    return kit.class_schedule(
        "olmo_core", olmo_core.SCHEDULES, name, config, facts={"max_steps": total}
    )


def _of_tuning(context: kit.Context, arguments: Tuning) -> Schedule:
    if _is_olmo(context):
        return _of_olmo(context, arguments, _plan(context, arguments).updates)
    ratio, where = arguments.final_lr_ratio, context.where
    if ratio is not None:
        is_line = arguments.lr_scheduler_type == "linear"
        kit.refuse_unless(is_line, "final_lr_ratio is for linear only", where)
        kit.refuse_unless(
            0 <= ratio < 1,
            f"final_lr_ratio must be in [0, 1), where 1 divides by zero, got {ratio}",
            where,
        )
    return _build_schedule(context, arguments, _plan(context, arguments), ratio)


def _plan_of_grpo(context: kit.Context, arguments: GRPO) -> RunNumbers:
    prompts, samples = (
        arguments.num_unique_prompts_rollout,
        arguments.num_samples_per_prompt_rollout,
    )
    steps = context.facts.get("num_training_steps")
    if steps is None and arguments.total_episodes and prompts and samples:
        steps = arguments.total_episodes // (prompts * samples)
    if steps is None:
        raise kit.missing_facts(
            "num_training_steps",
            context.where,
            "give the training steps of GRPO, or total_episodes in the config",
        )
    updates = int(steps) * arguments.num_epochs * arguments.num_mini_batches
    return RunNumbers(1, updates, updates, _is_olmo(context))


def _of_grpo(context: kit.Context, arguments: GRPO) -> Schedule:
    plan = _plan_of_grpo(context, arguments)
    if _is_olmo(context):
        return _of_olmo(context, arguments, plan.updates)
    return _build_schedule(context, arguments, plan)


_MARKS = (
    *("dataset_local_cache_dir", "dataset_mixer_list", "dataset_skip_cache", "final_lr_ratio"),
    *("mixer_list", "num_mini_batches", "num_unique_prompts_rollout", "use_flash_attn"),
    "try_launch_beaker_eval_jobs",
)
"""Keys that other trainers with the arguments of transformers do not have."""

_OF_GRPO = ("num_mini_batches", "num_unique_prompts_rollout", "total_episodes")


def _matches(document: kit.Document) -> bool:
    content = document.content
    if document.python is not None:
        return False
    return document.program in ("grpo_fast", "dpo_tune_cache") or (
        any(key in content for key in _MARKS)
        and any(key in content for key in ("learning_rate", "lr_scheduler_type", "warmup_ratio"))
    )


def _read(reading: kit.Reading) -> kit.Recipe:
    content, context = reading.document.content, reading.context
    is_grpo = any(key in content for key in _OF_GRPO) or "num_training_steps" in context.facts
    arguments = (GRPO if is_grpo else Tuning).read_whole(reading.document)
    accumulation, is_compressed, limit = None, False, arguments.max_grad_norm
    with arguments.origin.locate_errors():
        if isinstance(arguments, GRPO):
            plan, rate = _plan_of_grpo(context, arguments), _of_grpo(context, arguments)
            is_split = arguments.set_weight_decay_on_bias_and_norm
        else:
            plan, rate = _plan(context, arguments), _of_tuning(context, arguments)
            is_split, is_compressed = True, arguments.use_8bit_optimizer
            accumulation = arguments.gradient_accumulation_steps
            limit = arguments.clip_grad_norm if arguments.clip_grad_norm > 0 else limit
    name = "AdamW8bit" if is_compressed else "adamw"
    source = arguments.origin.document.source
    optimizer = kit.plan_optimizer(name, {}, None, source, by_name=not is_compressed)
    schedules = {"lr": rate, "weight_decay": constant(arguments.weight_decay)}
    group = kit.ParamGroup(schedules, optimizer, kit.Role.DEFAULT)
    return reading.recipe(
        [group, *([group.without_decay(_SPARED)] if is_split else [])],
        clock=OF_OLMO if _is_olmo(context) else OF_UPDATES if is_grpo else CLOCK,
        horizon=plan.updates,
        clipping=kit.Clipping(limit) if limit > 0 else None,
        accumulation=accumulation,
        values=(arguments, plan),
        derived={"total_updates": plan.updates},
    )


FRAMEWORK = kit.Framework(
    "open-instruct",
    {
        **kit.section_entries(
            dict.fromkeys(CURVES, _of_tuning),
            {"": Tuning},
            lambda arguments: str(arguments.lr_scheduler_type),
        ),
        **kit.section_entries(
            {f"grpo-{name}": _of_grpo for name in CURVES},
            {"": GRPO},
            lambda arguments: f"grpo-{arguments.lr_scheduler_type}",
        ),
    },
    versions=("e6c3044aa620",),
    repository="https://github.com/allenai/open-instruct",
    upstream="open_instruct/finetune.py, dpo_tune_cache.py and grpo_fast.py",
    clock=CLOCK,
    defects=DEFECTS,
    reader=kit.Reader(_read, _matches),
    facts=("num_training_steps", "trainer"),
)

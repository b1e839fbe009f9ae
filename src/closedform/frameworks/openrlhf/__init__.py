"""OpenRLHF: transformers' schedulers over the updates of its trainers, from their command lines."""

from __future__ import annotations

import math
from collections.abc import Mapping
from typing import Any, Literal

import sympy as sp

from closedform.frameworks.transformers.schedules import CURVES, ScheduleNumbers, schedule_by_name
from closedform.frameworks.transformers.schedules import DEFECTS as TRAINER_DEFECTS
from closedform.language import Schedule
from closedform.recipes import kit
from closedform.schedules import constant

CLOCK = kit.Clock(kit.Unit.UPDATE)
TO_ALL = "c3188af3^"
"""The version that passes the minimum to every scheduler."""

_WITH_MINIMUM = ("cosine_with_min_lr", "cosine_warmup_with_min_lr")


class _Scheduler(kit.Section):
    lr_scheduler: str = kit.choice(*CURVES, default="cosine_with_min_lr")
    lr_warmup_ratio: kit.RunRatio = 0.03
    min_lr_ratio: kit.RateRatio = 0.1
    optim: Literal["adam", "muon"] = "adam"


class Run(_Scheduler):
    """The numbers of a schedule."""

    lr: kit.Rate
    muon_lr: kit.Rate = 0.02
    batch_size: kit.BatchSize = kit.integer(128, least=1)
    max_epochs: kit.RealEpochs = 1
    n_samples_per_prompt: int = 1
    num_episodes: int = 1

    @property
    def lr_scheduler_type(self) -> str:
        """The name by which the defects of the Trainer know the scheduler."""
        return self.lr_scheduler


class Adam(kit.Section):
    lr: kit.Rate | None = None
    betas: kit.Momenta = (0.9, 0.95)
    eps: kit.Epsilon = 1e-8
    weight_decay: kit.WeightDecay = 0


class Muon(kit.Section, irrelevant="ns_steps nesterov no_nesterov"):
    lr: kit.Rate = 0.02
    momentum: kit.Momentum = 0.95


class Model(_Scheduler, kit.OpenSection):
    """The flags of a model, which have its name as a prefix in PPO."""

    max_norm: kit.Norm = 1
    adam: Adam
    muon: Muon


class Train(kit.OpenSection):
    batch_size: kit.BatchSize = kit.integer(128, least=1)
    max_epochs: kit.RealEpochs | None = None
    num_episodes: int = 1


class Rollout(kit.OpenSection):
    n_samples_per_prompt: int = 1


_SPARED = ("bias", "layer_norm.weight", "layernorm.weight", "norm.weight", "ln_f.weight")
_RATES = {"train_sft": 5e-6, "train_dpo": 1e-5, "train_rm": 9e-6, "actor": 1e-6, "critic": 9e-6}

_STRATEGY = "openrlhf/utils/deepspeed/deepspeed.py"
DEFECTS: Mapping[str, kit.Note[[Any]]] = {
    "minimum-of-few": kit.Convention(
        "min_lr_ratio counts only for the schedulers whose names have min_lr",
        f"{_STRATEGY}:373",
        lambda run: "min_lr_ratio" in run and run.lr_scheduler not in _WITH_MINIMUM,
        classes=tuple(name for name in CURVES if name not in _WITH_MINIMUM),
        versions=("3c3be6234e0c",),
    ),
    "minimum-to-all": kit.Convention(
        "the minimum is passed to every scheduler, and most refuse it",
        f"{_STRATEGY} (before c3188af3)",
        versions=(TO_ALL,),
    ),
    "constant-without-warmup": kit.Convention(
        "constant ignores the warmup",
        "src/transformers/optimization.py:1014",
        lambda run: run.lr_scheduler == "constant" and run.lr_warmup_ratio > 0,
        classes=("constant",),
    ),
    "clipping-after-muon": kit.Convention(
        "the clipping is that of Muon's orthogonal update, not of the gradient",
        f"{_STRATEGY}:328",
        lambda run: run.optim == "muon",
        classes=(),
    ),
    "run-without-updates": kit.Convention(
        "a run of no whole batch has a schedule of 0 updates: a cosine alternates",
        "openrlhf/cli/train_sft.py:103",
        classes=_WITH_MINIMUM,
    ),
    **{
        name: TRAINER_DEFECTS[name]
        for name in (
            "cosine-1",
            "cosine_with_min_lr-1",
            "cosine_warmup_with_min_lr-1",
            "cosine_warmup_with_min_lr-2",
            "inverse_sqrt-1",
        )
        if not TRAINER_DEFECTS[name].versions
    },
}


def _total(context: kit.Context, run: Run) -> int:
    """The updates of the run: those of its data, or the fact."""
    facts, where = context.facts, context.where
    prompts, size = facts.get("prompts_len"), facts.get("dataset_len")
    if prompts is not None:
        samples = prompts * run.n_samples_per_prompt // run.batch_size
        kit.refuse_unless(run.max_epochs == int(run.max_epochs), "max_epochs must be whole", where)
        return int(samples * run.num_episodes * int(run.max_epochs))
    if size is not None:
        batches: int = size // run.batch_size
        return math.ceil(float(run.max_epochs) * batches)
    if context.numbers.total_updates is None:
        raise kit.missing_facts(
            "total_updates",
            where,
            "give it, or the samples as dataset_len, in PPO the prompts as prompts_len",
        )
    return int(context.numbers.total_updates)


def _rate(context: kit.Context, run: Run) -> Schedule:
    default = run.muon_lr if run.optim == "muon" else run.lr
    group = context.facts.get("group", run.optim)
    kit.refuse_unless(group in ("adam", "muon"), f"there is no group {group!r:.40}", context.where)
    total, name = _total(context, run), run.lr_scheduler
    has_minimum = name in _WITH_MINIMUM or context.version == TO_ALL
    kwargs = {"min_lr_rate": run.min_lr_ratio} if has_minimum else {}
    numbers_of_run = ScheduleNumbers(
        run.muon_lr if group == "muon" else run.lr,
        default,
        sp.Integer(math.ceil(total * float(run.lr_warmup_ratio))),
        sp.Integer(total),
        context,
    )
    origin = run.origin
    return schedule_by_name(
        name, kit.RawSection(origin.document, kwargs, origin.path), numbers_of_run
    )


def _matches(document: kit.Document) -> bool:
    names = [str(key) for key in document.content]
    models = ("adam.", "muon.", "actor.", "critic.", "rollout.")
    is_run = any(name.startswith(("train.", "rollout.")) for name in names)
    return is_run and document.python is None and any(name.startswith(models) for name in names)


def _model(reading: kit.Reading, config: kit.RawSection) -> tuple[str, Model]:
    """The name and the flags of the model that is read: the fact ``role``, or else the actor."""
    role = reading.facts.framework_facts.get("role")
    is_ppo = any(name in config for name in ("actor", "critic", "rollout"))
    if role is None:
        role = "actor" if is_ppo else "sft"
    if role not in ("actor", "critic", "sft"):
        raise config.error(f"the fact role must be actor, critic or sft, got {role!r:.40}")
    if role == "sft":
        return reading.document.program, Model.read(config)
    return role, Model.read(config.section(role))


def _read(reading: kit.Reading) -> kit.Recipe:
    config = kit.document_section(kit.in_sections(reading.document))
    name, model = _model(reading, config)
    train, rollout = Train.read(config.section("train")), Rollout.read(config.section("rollout"))
    rate = model.adam.lr
    if rate is None and name in _RATES:
        rate = sp.Rational(str(_RATES[name]))
    if rate is None:
        raise model.error("the trainer's default of adam.lr is not known", hint="give adam.lr")
    epochs = train.max_epochs
    if epochs is None:
        epochs = sp.Integer(2 if name == "train_sft" else 1)
    numbers = {
        "lr": rate,
        "muon_lr": model.muon.lr,
        "batch_size": train.batch_size,
        "max_epochs": epochs,
        "num_episodes": train.num_episodes,
        "n_samples_per_prompt": rollout.n_samples_per_prompt,
    }
    scheduler = {name: getattr(model, name) for name in _Scheduler.keys}
    run = Run.of(model.origin, {**scheduler, **numbers})
    context = _with_samples(reading.context, config, name)
    with model.origin.locate_errors():
        total = _total(context, run)
        kit.refuse_unless(total > 0, "the run has no update: give more samples", context.where)
        names = ("muon", "adam") if run.optim == "muon" else ("adam",)
        groups = [_group(context.with_facts(group=group), run, model, group) for group in names]
    if run.optim == "adam" and model.adam.weight_decay != 0:
        groups.append(groups[0].without_decay(_SPARED))
    return reading.recipe(
        groups,
        horizon=total,
        clipping=kit.Clipping(model.max_norm) if model.max_norm > 0 else None,
        accumulation=None,
        values=(run,),
        derived={"total_updates": total},
    )


def _with_samples(context: kit.Context, config: kit.RawSection, model: str) -> kit.Context:
    """The context with the samples that are used, at most those that the flags allow."""
    key = "prompts_len" if model in ("actor", "critic") else "dataset_len"
    size = context.facts.get(key, context.facts.get("dataset_size"))
    if size is None:
        return context
    most = config.section("data").integer("max_samples", size)
    return context.with_facts(**{key: min(size, most)})


def _group(context: kit.Context, run: Run, model: Model, name: str) -> kit.ParamGroup:
    adam, source = model.adam, run.origin.document.source
    schedules = {"lr": _rate(context, run), "weight_decay": constant(adam.weight_decay)}
    if run.optim == "adam":
        plan = kit.plan_optimizer("adamw", {"betas": adam.betas, "eps": adam.eps}, None, source)
        return kit.ParamGroup(schedules, plan, kit.Role.DEFAULT)
    arguments: Mapping[str, Any] = {"momentum": model.muon.momentum}
    if name == "muon":
        # DeepSpeed's Muon splits its matrices over processes.
        plan = kit.plan_optimizer("deepspeed muon", arguments, None, source, by_name=False)
        return kit.ParamGroup(schedules, plan, kit.Role.DEFAULT, name)
    plan = kit.plan_optimizer("adam", {"betas": adam.betas, "eps": adam.eps}, None, source)
    return kit.ParamGroup(schedules, plan, kit.Role.NAMED, name, ("not of two dimensions",))


FRAMEWORK = kit.Framework(
    "openrlhf",
    kit.section_entries(
        dict.fromkeys(CURVES, _rate), {"": Run}, lambda run: str(run.lr_scheduler), DEFECTS
    ),
    versions=("3c3be6234e0c", TO_ALL),
    repository="https://github.com/OpenRLHF/OpenRLHF",
    upstream=_STRATEGY,
    clock=CLOCK,
    defects=DEFECTS,
    reader=kit.Reader(_read, _matches),
    facts=("dataset_len", "prompts_len", "role"),
)

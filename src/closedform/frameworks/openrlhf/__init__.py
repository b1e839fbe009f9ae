"""OpenRLHF: transformers' schedulers over the updates of its trainers, from their command lines."""

from __future__ import annotations

import math
from collections.abc import Mapping
from typing import Any

import sympy as sp

from closedform.errors import MissingFactsError
from closedform.frameworks.transformers.schedules import CURVES, ScheduleNumbers, schedule_by_name
from closedform.frameworks.transformers.schedules import DEFECTS as TRAINER_DEFECTS
from closedform.language import Schedule
from closedform.recipes.checks import refuse_unless
from closedform.recipes.clock import Clock, Unit
from closedform.recipes.defects import Defect, DefectKind
from closedform.recipes.document import Document, in_sections
from closedform.recipes.entries import Context
from closedform.recipes.framework import Framework
from closedform.recipes.keys import (
    Keys,
    OpenKeys,
    Values,
    choice,
    integer,
    irrelevant,
    number,
    numbers,
    section,
    section_entries,
)
from closedform.recipes.reader import Reader, Reading
from closedform.recipes.recipe import Clipping, ParamGroup, Recipe, Role
from closedform.recipes.rules import plan_optimizer
from closedform.recipes.section import Section, whole
from closedform.schedules import constant

CLOCK = Clock(Unit.UPDATE)
TO_ALL = "c3188af3^"
"""The version that passes the minimum to every scheduler."""

_WITH_MINIMUM = ("cosine_with_min_lr", "cosine_warmup_with_min_lr")
_SCHEDULER = {
    "lr_scheduler": choice(*CURVES, default="cosine_with_min_lr"),
    "lr_warmup_ratio": number(0.03),
    "min_lr_ratio": number(0.1),
    "optim": choice("adam", "muon", default="adam"),
}
RUN = Keys(
    **_SCHEDULER,
    lr=number(),
    muon_lr=number(0.02),
    batch_size=integer(128, least=1),
    max_epochs=number(1),
    n_samples_per_prompt=integer(1),
    num_episodes=integer(1),
)
"""The numbers of a schedule."""

MODEL = OpenKeys(
    **_SCHEDULER,
    max_norm=number(1),
    adam=section(
        Keys(
            lr=number(None),
            betas=numbers((0.9, 0.95)),
            eps=number(1e-8),
            weight_decay=number(0),
        )
    ),
    muon=section(
        Keys(
            lr=number(0.02),
            momentum=number(0.95),
            ns_steps=irrelevant(),
            nesterov=irrelevant(),
            no_nesterov=irrelevant(),
        )
    ),
)
"""The flags of a model, which have its name as a prefix in PPO."""

TRAIN = OpenKeys(batch_size=integer(128, least=1), max_epochs=number(None), num_episodes=integer(1))
ROLLOUT = OpenKeys(n_samples_per_prompt=integer(1))
_SPARED = ("bias", "layer_norm.weight", "layernorm.weight", "norm.weight", "ln_f.weight")
_RATES = {"train_sft": 5e-6, "train_dpo": 1e-5, "train_rm": 9e-6, "actor": 1e-6, "critic": 9e-6}

_STRATEGY = "openrlhf/utils/deepspeed/deepspeed.py"
DEFECTS = {
    "minimum-of-few": Defect(
        "min_lr_ratio counts only for the schedulers whose names have min_lr",
        f"{_STRATEGY}:373",
        lambda run: "min_lr_ratio" in run and run.lr_scheduler not in _WITH_MINIMUM,
        kind=DefectKind.CONVENTION,
        classes=tuple(name for name in CURVES if name not in _WITH_MINIMUM),
        versions=("3c3be6234e0c",),
    ),
    "minimum-to-all": Defect(
        "the minimum is passed to every scheduler, and most refuse it",
        f"{_STRATEGY} (before c3188af3)",
        kind=DefectKind.CONVENTION,
        versions=(TO_ALL,),
    ),
    "constant-without-warmup": Defect(
        "constant ignores the warmup",
        "src/transformers/optimization.py:1014",
        lambda run: run.lr_scheduler == "constant" and run.lr_warmup_ratio > 0,
        kind=DefectKind.CONVENTION,
        classes=("constant",),
    ),
    "clipping-after-muon": Defect(
        "the clipping is that of Muon's orthogonal update, not of the gradient",
        f"{_STRATEGY}:328",
        lambda run: run.optim == "muon",
        kind=DefectKind.CONVENTION,
        classes=(),
    ),
    "run-without-updates": Defect(
        "a run of no whole batch has a schedule of 0 updates: a cosine alternates",
        "openrlhf/cli/train_sft.py:103",
        kind=DefectKind.CONVENTION,
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


def _total(context: Context, run: Values) -> int:
    """The updates of the run: those of its data, or the fact."""
    facts, where = context.facts, context.where
    prompts, size = facts.get("prompts_len"), facts.get("dataset_len")
    if prompts is not None:
        samples = prompts * run.n_samples_per_prompt // run.batch_size
        refuse_unless(run.max_epochs == int(run.max_epochs), "max_epochs must be whole", where)
        return int(samples * run.num_episodes * int(run.max_epochs))
    if size is not None:
        batches: int = size // run.batch_size
        return math.ceil(float(run.max_epochs) * batches)
    if context.numbers.total_updates is None:
        raise MissingFactsError(
            "missing facts: total_updates",
            where=where,
            hint="give it, or the samples as dataset_len, in PPO the prompts as prompts_len",
        )
    return int(context.numbers.total_updates)


def _rate(context: Context, run: Values) -> Schedule:
    default = run.muon_lr if run.optim == "muon" else run.lr
    group = context.facts.get("group", run.optim)
    refuse_unless(group in ("adam", "muon"), f"there is no group {group!r:.40}", context.where)
    total, name = _total(context, run), run.lr_scheduler
    has_minimum = name in _WITH_MINIMUM or context.version == TO_ALL
    kwargs = {"min_lr_rate": run.min_lr_ratio} if has_minimum else {}
    numbers_of_run = ScheduleNumbers(
        run.muon_lr if group == "muon" else run.lr,
        default,
        sp.Integer(math.ceil(total * float(run.lr_warmup_ratio))),
        sp.Integer(total),
        context.where,
        as_implemented=context.as_implemented,
    )
    origin = run.origin
    return schedule_by_name(name, Section(origin.document, kwargs, origin.path), numbers_of_run)


def _matches(document: Document) -> bool:
    names = [str(key) for key in document.content]
    models = ("adam.", "muon.", "actor.", "critic.", "rollout.")
    is_run = any(name.startswith(("train.", "rollout.")) for name in names)
    return is_run and document.python is None and any(name.startswith(models) for name in names)


def _model(reading: Reading, config: Section) -> tuple[str, Values]:
    """The name and the flags of the model that is read: the fact ``role``, or else the actor."""
    role = reading.facts.framework_facts.get("role")
    is_ppo = any(name in config for name in ("actor", "critic", "rollout"))
    if role is None:
        role = "actor" if is_ppo else "sft"
    if role not in ("actor", "critic", "sft"):
        raise config.error(f"the fact role must be actor, critic or sft, got {role!r:.40}")
    if role == "sft":
        return reading.document.program, MODEL.read(config)
    return role, MODEL.read(config.section(role))


def _read(reading: Reading) -> Recipe:
    config = whole(in_sections(reading.document))
    name, model = _model(reading, config)
    train, rollout = TRAIN.read(config.section("train")), ROLLOUT.read(config.section("rollout"))
    rate = model.adam.lr
    if rate is None and name in _RATES:
        rate = sp.Rational(str(_RATES[name]))
    if rate is None:
        raise model.error("the trainer's default of adam.lr is not known", hint="give adam.lr")
    epochs = train.max_epochs
    if epochs is None:
        epochs = sp.Integer(2 if name == "train_sft" else 1)
    run = model.replace(
        lr=rate,
        muon_lr=model.muon.lr,
        batch_size=train.batch_size,
        max_epochs=epochs,
        num_episodes=train.num_episodes,
        n_samples_per_prompt=rollout.n_samples_per_prompt,
        lr_scheduler_type=model.lr_scheduler,
    )
    context = _with_samples(reading.context, config, name)
    with model.origin.locate_errors():
        total = _total(context, run)
        refuse_unless(total > 0, "the run has no update: give more samples", context.where)
        names = ("muon", "adam") if run.optim == "muon" else ("adam",)
        groups = [_group(context.with_facts(group=group), run, group) for group in names]
    if run.optim == "adam" and run.adam.weight_decay != 0:
        groups.append(groups[0].without_decay(_SPARED))
    return reading.recipe(
        groups,
        clock=CLOCK,
        horizon=total,
        clipping=Clipping(model.max_norm) if model.max_norm > 0 else None,
        accumulation=None,
        values=(run,),
        derived={"total_updates": total},
    )


def _with_samples(context: Context, config: Section, model: str) -> Context:
    """The context with the samples that are used, at most those that the flags allow."""
    key = "prompts_len" if model in ("actor", "critic") else "dataset_len"
    size = context.facts.get(key, context.facts.get("dataset_size"))
    if size is None:
        return context
    most = config.section("data").integer("max_samples", size)
    return context.with_facts(**{key: min(size, most)})


def _group(context: Context, run: Values, name: str) -> ParamGroup:
    adam, source = run.adam, run.origin.document.source
    schedules = {"lr": _rate(context, run), "weight_decay": constant(adam.weight_decay)}
    if run.optim == "adam":
        plan = plan_optimizer("adamw", {"betas": adam.betas, "eps": adam.eps}, None, source)
        return ParamGroup(schedules, plan, Role.DEFAULT)
    arguments: Mapping[str, Any] = {"momentum": run.muon.momentum}
    if name == "muon":
        # DeepSpeed's Muon splits its matrices over processes.
        plan = plan_optimizer("deepspeed muon", arguments, None, source, by_name=False)
        return ParamGroup(schedules, plan, Role.DEFAULT, name)
    plan = plan_optimizer("adam", {"betas": adam.betas, "eps": adam.eps}, None, source)
    return ParamGroup(schedules, plan, Role.NAMED, name, ("not of two dimensions",))


FRAMEWORK = Framework(
    "openrlhf",
    section_entries(
        dict.fromkeys(CURVES, _rate), {"": RUN}, lambda run: str(run.lr_scheduler), DEFECTS
    ),
    versions=("3c3be6234e0c", TO_ALL),
    upstream=_STRATEGY,
    clock=CLOCK,
    defects=DEFECTS,
    reader=Reader(_read, _matches),
    facts=("dataset_len", "prompts_len", "role"),
)

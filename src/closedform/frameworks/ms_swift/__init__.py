"""ms-swift: TrainingArguments with other defaults, and Megatron's arguments with underscores."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import replace

from closedform.frameworks import megatron, transformers
from closedform.frameworks.megatron.schedules import CLOCK, STYLES, Flags, rate
from closedform.frameworks.megatron.schedules import decay as weight_decay
from closedform.frameworks.transformers.arguments import Arguments, TrainerProgram, read_arguments
from closedform.frameworks.transformers.schedules import CURVES, OF_LOSS
from closedform.language import exact_number
from closedform.recipes import kit

_MUON = "muon_"


class _Megatron(
    Flags,
    irrelevant="beta fipo_decay_rate multi_turn_scheduler nccl_comm_warmup offload_optimizer",
):
    """The flags of Megatron-LM, with other defaults and with underscores."""

    spell = staticmethod(kit.Section.spell)
    lr_decay_style: str = kit.choice(*STYLES, default="cosine")
    global_batch_size: kit.BatchSize = 16
    weight_decay: kit.WeightDecay = 0.1
    adam_beta2: kit.Momentum = 0.95
    optimizer: str = "adam"
    vit_lr: kit.Rate | None = None
    aligner_lr: kit.Rate | None = None


_SEVERAL = ("lr", "min_lr", "micro_batch_size", "global_batch_size", "train_iters")


def _rate(section: kit.RawSection, class_name: str = "") -> float:
    """The default: lower where all parameters are trained."""
    del class_name
    kind = section.value("tuner_type") or section.value("train_type") or "lora"
    return 1e-5 if kind == "full" else 1e-4


def _is_megatron(section: kit.RawSection) -> bool:
    return any(key in section for key in _SEVERAL) and "learning_rate" not in section


def _own_keys(section: kit.RawSection) -> bool:
    return any(key in section for key in ("tuner_type", "train_type", "vit_lr", "aligner_lr"))


_GROUP_RATES = ("vit_lr", "aligner_lr")


class _Arguments(
    Arguments,
    irrelevant="adalora_beta1 adalora_beta2 chord_mu_decay_steps chord_mu_warmup_steps "
    "fipo_decay_rate lorap_lr_ratio loraplus_lr_ratio multi_turn_scheduler "
    "offload_optimizer optimizer rlsd_lambda_decay_steps rlsd_lambda_warmup_steps "
    "sdar_gate_beta",
):
    learning_rate: kit.Rate | None = None
    lr_scheduler_type: str = kit.choice(*CURVES, *OF_LOSS, default="cosine")
    weight_decay: kit.WeightDecay = 0.1
    adam_beta2: kit.Momentum = 0.95
    use_galore: bool = False
    vit_lr: kit.Rate | None = None
    aligner_lr: kit.Rate | None = None


_PROGRAM = TrainerProgram("ms-swift", _own_keys, _Arguments, _rate, _GROUP_RATES, ("use_galore",))


def _matches(document: kit.Document) -> bool:
    section = kit.document_section(document)
    if document.syntax not in (kit.Syntax.ARGUMENTS, kit.Syntax.MAPPING):
        return False
    of_megatron = "lr" in section and any(key in section for key in _SEVERAL[2:])
    return _own_keys(section) or of_megatron


def _read(reading: kit.Reading) -> kit.Recipe:
    section = kit.document_section(reading.document)
    if _is_megatron(section):
        return _read_megatron(reading)
    return read_arguments(replace(reading, defects=transformers.FRAMEWORK.defects), _PROGRAM)


def _read_megatron(reading: kit.Reading) -> kit.Recipe:
    section = kit.document_section(reading.document)
    content = {
        key: value for key, value in section.content.items() if not str(key).startswith(_MUON)
    }
    flags = _Megatron.read(kit.RawSection(section.document, content))
    total = reading.value_or_fact(flags.train_iters, "total_updates")
    lr = exact_number(_rate(section)) if flags.lr is None else flags.lr
    flags = flags.replace(train_iters=total, train_samples=None, lr=lr)
    with section.locate_errors("weight_decay_incr_style"):
        decay = weight_decay(reading.context, flags)
    plan = _plan(flags)
    groups = []
    for name in ("", *_GROUP_RATES):
        peak = getattr(flags, name) if name else flags.lr
        if peak is None:
            continue
        context = replace(reading.context, facts={"param_group": {"max_lr": peak}})
        with section.locate_errors("lr_decay_style"):
            schedules = {"lr": rate(context, flags), "weight_decay": decay}
        groups.append(kit.ParamGroup(schedules, plan, kit.Role.of(name), name))
    return replace(reading, defects=megatron.FRAMEWORK.defects).recipe(
        groups,
        clock=CLOCK,
        horizon=total,
        clipping=kit.Clipping(flags.clip_grad) if flags.clip_grad > 0 else None,
        accumulation=None,
        values=(flags,),
        derived={"lr": flags.lr, "weight_decay": flags.weight_decay},
    )


def _plan(flags: _Megatron) -> kit.OptimizerPlan:
    name = flags.optimizer
    where = flags.origin.document.place("optimizer")
    decay = flags.weight_decay
    if name == "sgd":
        arguments = {"momentum": flags.sgd_momentum, "weight_decay": decay}
        return kit.plan_optimizer("sgd", arguments, where=where)
    if name != "adam":
        return kit.plan_optimizer(name, {}, None, where, by_name=False)
    betas = (flags.adam_beta1, flags.adam_beta2)
    arguments = {"betas": betas, "eps": flags.adam_eps, "weight_decay": decay}
    return kit.plan_optimizer("adamw", arguments, where=where)


def _configs(form: kit.WarmupDecayForm, optimizer: kit.Optimizer) -> Iterator[kit.Config]:
    if transformers.FRAMEWORK.writer is None or megatron.FRAMEWORK.writer is None:
        return
    yield from transformers.FRAMEWORK.writer.configs(form, optimizer)
    rates = {
        group.name: kit.native(peak)
        for group in optimizer.groups
        if group.name in _GROUP_RATES and (peak := group.peak(form.peak)) is not None
    }
    for config in megatron.FRAMEWORK.writer.configs(form, optimizer):
        flags = {key.replace("-", "_"): value for key, value in config.items()}
        if "train_iters" in flags:
            yield {**flags, **rates}


FRAMEWORK = kit.Framework(
    "ms-swift",
    {},
    versions=transformers.FRAMEWORK.versions,
    repository="https://github.com/modelscope/ms-swift",
    commit="3602360a5623",
    upstream=f"{transformers.FRAMEWORK.upstream}; {megatron.FRAMEWORK.upstream}",
    clock=transformers.FRAMEWORK.clock,
    defects={**transformers.FRAMEWORK.defects, **megatron.FRAMEWORK.defects},
    reader=kit.Reader(_read, _matches),
    writer=kit.Writer(".args", _configs, {"global_batch_size": 1}, ("adamw", "sgd")),
)

"""The reader of ms-swift's command lines: ``swift sft`` and ``megatron sft``."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from closedform.errors import ArgumentError
from closedform.language import Schedule
from closedform.recipes.build import built
from closedform.recipes.clock import Clock, Unit
from closedform.recipes.document import Document, Form
from closedform.recipes.megatron.schedules import FLAGS, SCHEDULES
from closedform.recipes.reader import Reader, Reading
from closedform.recipes.recipe import Clipping, OptimizerPlan, ParamGroup, Recipe, Role
from closedform.recipes.rules import planned
from closedform.recipes.section import Section, whole
from closedform.recipes.transformers.arguments import Variant, read_arguments

_KNOWN = (
    "adalora_beta1",
    "adalora_beta2",
    "chord_mu_decay_steps",
    "chord_mu_warmup_steps",
    "fipo_decay_rate",
    "lorap_lr_ratio",
    "loraplus_lr_ratio",
    "multi_turn_scheduler",
    "offload_optimizer",
    "optimizer",
    "rlsd_lambda_decay_steps",
    "rlsd_lambda_warmup_steps",
    "sdar_gate_beta",
)
_OF_MEGATRON = (
    "adam_beta1",
    "adam_beta2",
    "adam_eps",
    "aligner_lr",
    "apply_wd_to_qk_layernorm",
    "beta",
    "fipo_decay_rate",
    "multi_turn_scheduler",
    "nccl_comm_warmup",
    "offload_optimizer",
    "optimizer",
    "optimizer_cpu_offload",
    "optimizer_cuda_graph",
    "optimizer_offload_fraction",
    "overlap_cpu_optimizer_d2h_h2d",
    "overlap_param_gather_with_optimizer_step",
    "sgd_momentum",
    "use_distributed_optimizer",
    "use_precision_aware_optimizer",
    "vit_lr",
    "muon_momentum",
)
_MUON = "muon_"
_DEFAULTS: Mapping[str, Any] = {
    "lr_decay_style": "cosine",
    "global_batch_size": 16,
    "weight_decay": 0.1,
}
"""The defaults that differ from those of Megatron-LM."""

_SEVERAL = ("lr", "min_lr", "micro_batch_size", "global_batch_size", "train_iters")


def _rate(section: Section, class_name: str = "") -> float:
    """The default: lower where all parameters are trained."""
    del class_name
    kind = section.value("tuner_type") or section.value("train_type") or "lora"
    return 1e-5 if kind == "full" else 1e-4


def _is_megatron(section: Section) -> bool:
    return any(key in section for key in _SEVERAL) and "learning_rate" not in section


def _own_keys(section: Section) -> bool:
    return any(key in section for key in ("tuner_type", "train_type", "vit_lr", "aligner_lr"))


_VARIANT = Variant(
    "ms-swift",
    _own_keys,
    known=_KNOWN,
    rate=_rate,
    scheduler="cosine",
    weight_decay=0.1,
    beta2=0.95,
    group_rates=("vit_lr", "aligner_lr"),
    switches=("use_galore",),
)


def _matches(document: Document) -> bool:
    section = whole(document)
    if document.form not in (Form.ARGUMENTS, Form.MAPPING):
        return False
    of_megatron = "lr" in section and any(key in section for key in _SEVERAL[2:])
    return _own_keys(section) or of_megatron


def _read(reading: Reading) -> Recipe:
    section = whole(reading.document)
    return _read_megatron(reading) if _is_megatron(section) else read_arguments(reading, _VARIANT)


def _read_megatron(reading: Reading) -> Recipe:
    section = whole(reading.document)
    flags = {flag.removeprefix("--").replace("-", "_"): flag for flag in FLAGS}
    muon = [key for key in section.content if str(key).startswith(_MUON)]
    section.check_related({*flags, *_OF_MEGATRON, *muon})
    total = section.integer("train_iters", None)
    if total is None:
        total = reading.facts.total_updates
    if total is None:
        raise ArgumentError(
            "missing facts: total_updates",
            where=reading.document.source,
            hint="the config has no train_iters; give the updates of the run",
        )
    config: dict[str, Any] = {
        "--lr": section.number("lr", _rate(section)),
        "--train-iters": int(total),
    }
    for key, flag in flags.items():
        default = _DEFAULTS.get(key, FLAGS[flag])
        if flag not in config:
            is_text = isinstance(default, str)
            config[flag] = (section.text if is_text else section.number)(key, default)

    def schedule(name: str, key: str, group: Mapping[str, Any]) -> Schedule:
        with section.located("lr_decay_style" if key == "lr" else "weight_decay_incr_style"):
            return built("megatron", SCHEDULES, name, config, key=key, facts={"param_group": group})

    style = config["--weight-decay-incr-style"]
    decay = schedule(f"wd-{style}", "weight_decay", {})
    plan = _plan(section)
    rates = {key: section.number(key) for key in _VARIANT.group_rates if key in section}
    peaks = {"": {}, **{key: {"max_lr": peak} for key, peak in rates.items()}}
    groups = []
    for name, peak in peaks.items():
        lr = schedule(config["--lr-decay-style"], "lr", peak)
        groups.append(ParamGroup({"lr": lr, "weight_decay": decay}, plan, Role.of(name), name))
    clip = section.number("clip_grad", 1.0)
    return Recipe(
        name=reading.document.name,
        framework="ms-swift",
        version=reading.version,
        source=reading.document.source,
        param_groups=tuple(groups),
        horizon=int(total),
        clock=Clock(Unit.SAMPLE),
        clipping=Clipping(clip) if clip > 0 else None,
        derived={"lr": config["--lr"], "weight_decay": config["--weight-decay"]},
    )


def _plan(section: Section) -> OptimizerPlan:
    name = section.text("optimizer", "adam")
    where = section.document.place(section.at("optimizer"))
    decay = section.number("weight_decay", 0.1)
    if name == "sgd":
        momentum = section.number("sgd_momentum", 0.9)
        return planned("sgd", {"momentum": momentum, "weight_decay": decay}, where=where)
    if name != "adam":
        return planned(name, {}, None, where, by_name=False)
    betas = (section.number("adam_beta1", 0.9), section.number("adam_beta2", 0.95))
    arguments = {"betas": betas, "eps": section.number("adam_eps", 1e-8), "weight_decay": decay}
    return planned("adamw", arguments, where=where)


READER = Reader(_read, _matches)

"""The reader of MaxText's configs: YAML files and ``key=value`` words, over ``base.yml``."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from closedform.recipes.build import built
from closedform.recipes.document import Document
from closedform.recipes.maxtext.schedules import SCHEDULES
from closedform.recipes.reader import Reader, Reading
from closedform.recipes.recipe import Clipping, OptimizerPlan, ParamGroup, Recipe, Role
from closedform.recipes.rules import planned
from closedform.recipes.section import Section
from closedform.schedules import constant

_FRAMEWORK = "maxtext"
_RATE: Mapping[str, Any] = {
    "learning_rate": 3e-5,
    "lr_schedule_type": "cosine",
    "wsd_decay_style": "linear",
    "warmup_steps_fraction": 0.1,
    "wsd_decay_steps_fraction": 0.1,
    "learning_rate_final_fraction": 0.1,
    "learning_rate_schedule_steps": -1,
}
"""The options of the rate, with the values of ``base.yml``."""
_TEXTS = ("lr_schedule_type", "wsd_decay_style")
_FORMER = {"cosine_learning_rate_final_fraction": "learning_rate_final_fraction"}
"""Former names of options."""
_OTHERS: tuple[str, ...] = (
    "adam_b1",
    "adam_b2",
    "adam_eps",
    "adam_eps_root",
    "adam_weight_decay",
    "adamw_mask",
    "beta_fast",
    "beta_slow",
    "decay_end_step",
    "diloco_outer_lr",
    "diloco_outer_momentum",
    "distill_alpha_schedule",
    "distill_beta",
    "distill_beta_end",
    "distill_beta_schedule",
    "distill_temperature_schedule",
    "enable_model_warmup",
    "local_use_splash_scheduler",
    "muon_beta",
    "muon_consistent_rms",
    "muon_weight_decay",
    "opt_type",
    "optimizer_memory_host_offload",
    "shard_optimizer_over_data",
    "use_batch_split_schedule",
    "use_splash_scheduler",
    "skip_step_interval",
    "skip_step_on_spikes",
    "skip_step_scaling_factor",
)
"""Options of ``base.yml`` whose names are like those of an optimizer."""
_OWN = ("learning_rate_schedule_steps", "warmup_steps_fraction", "per_device_batch_size")
_NOTES = {
    "zero-after-schedule": "the run is longer than its schedule: the rate is 0 after its end",
    "skipped-steps": "updates with a spike of the loss are skipped, and count as updates",
}


def matches(document: Document) -> bool:
    """Returns whether a config has keys that only MaxText has."""
    found = document.content
    return any(key in found for key in _OWN) and ("learning_rate" in found or "steps" in found)


def read(reading: Reading) -> Recipe:
    """Returns the recipe of a config.

    Raises:
        ConfigError: A key is unknown, or a value is not valid.
        ArgumentError: The number of updates is missing.
    """
    content = dict(reading.document.content)
    for former, name in _FORMER.items():
        if former in content:
            content.setdefault(name, content.pop(former))
    # Words in capitals are variables of a shell.
    content = {key: value for key, value in content.items() if not str(key).isupper()}
    silent = {key: value for key, value in reading.facts.defaults.items() if key not in content}
    top = Section(reading.document, {**silent, **content})
    top.check_related({*_RATE, *_OTHERS})
    options = {
        key: (top.text if key in _TEXTS else top.number)(key, default)
        for key, default in _RATE.items()
    }
    options["learning_rate_schedule_steps"] = top.integer("learning_rate_schedule_steps", -1)
    steps = _steps(reading, top, options["learning_rate_schedule_steps"])
    kind = options["lr_schedule_type"]
    name = f"wsd-{options['wsd_decay_style']}" if kind == "wsd" else kind
    with top.located("lr_schedule_type"):
        rate = built(_FRAMEWORK, SCHEDULES, name, {**options, "steps": steps})
    plan, decay = _optimizer(top)
    groups = [ParamGroup({"lr": rate, "weight_decay": constant(decay)}, plan, Role.DEFAULT)]
    mask = top.value("adamw_mask", [])
    if isinstance(mask, list | tuple) and mask:
        groups.append(groups[0].without_decay(str(pattern) for pattern in mask))
    threshold = top.number("gradient_clipping_threshold", 1.0)
    total = options["learning_rate_schedule_steps"]
    notes = []
    if total not in (-1, None) and steps > total:
        notes.append("zero-after-schedule")
    if top.flag("skip_step_on_spikes", False):
        notes.append("skipped-steps")
    return Recipe(
        name=reading.document.name,
        framework=_FRAMEWORK,
        param_groups=tuple(groups),
        horizon=steps,
        version=reading.version,
        source=reading.document.source,
        clipping=Clipping(threshold) if threshold > 0 else None,
        accumulation=top.integer("gradient_accumulation_steps", 1),
        notes={name: _NOTES[name] for name in notes},
        derived={"lr": options["learning_rate"]},
    )


def _steps(reading: Reading, top: Section, schedule: int) -> int:
    """The updates of the run: ``steps``, or those of the schedule where it is -1."""
    given: int | None = top.integer("steps", None)
    if given is None:
        (found,) = reading.facts.require("total_updates", where=reading.document.place("steps"))
        return int(found)
    return schedule if given == -1 else given


def _optimizer(top: Section) -> tuple[OptimizerPlan, Any]:
    """The optimizer, and its weight decay."""
    name = top.text("opt_type", "adamw")
    place = top.document.place("opt_type")
    if name == "sgd":
        return planned("sgd", {}, where=place), 0
    if name == "muon":
        arguments = {"momentum": top.number("muon_beta", 0.95)}
        return planned("muon", arguments, where=place), top.number("muon_weight_decay", 0)
    betas = top.number("adam_b1", 0.9), top.number("adam_b2", 0.95)
    arguments = {"betas": betas, "eps": top.number("adam_eps", 1e-8)}
    if top.number("adam_eps_root", 0.0):
        arguments["eps_root"] = top.number("adam_eps_root")
    return planned(name, arguments, where=place), top.number("adam_weight_decay", 0.1)


READER = Reader(read, matches)

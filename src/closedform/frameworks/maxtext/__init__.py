"""MaxText: its learning rate, and its configs: YAML files and ``key=value`` words."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from typing import Any, Literal

from closedform.frameworks.maxtext import curves
from closedform.language import Schedule, t
from closedform.recipes import kit
from closedform.schedules import constant

CLOCK = kit.Clock(kit.Unit.UPDATE)


class Config(
    kit.OpenSection,
    irrelevant="beta_fast beta_slow decay_end_step diloco_outer_lr diloco_outer_momentum "
    "distill_alpha_schedule distill_beta distill_beta_end distill_beta_schedule "
    "distill_temperature_schedule enable_model_warmup local_use_splash_scheduler "
    "muon_consistent_rms optimizer_memory_host_offload shard_optimizer_over_data "
    "skip_step_interval skip_step_scaling_factor use_batch_split_schedule "
    "use_splash_scheduler",
):
    """The options, with the values of ``base.yml``.

    The names of those that are not read are like those of an optimizer.
    """

    learning_rate: kit.Rate = 3e-5
    lr_schedule_type: Literal["cosine", "wsd"] = "cosine"
    wsd_decay_style: Literal["linear", "cosine"] = "linear"
    warmup_steps_fraction: kit.RunRatio = 0.1
    wsd_decay_steps_fraction: kit.RunRatio = 0.1
    learning_rate_final_fraction: kit.RateRatio = 0.1
    learning_rate_schedule_steps: kit.Steps = -1
    steps: kit.Steps | None = None
    opt_type: str = "adamw"
    adam_b1: kit.Momentum = 0.9
    adam_b2: kit.Momentum = 0.95
    adam_eps: kit.Epsilon = 1e-8
    adam_eps_root: kit.Epsilon = 0
    adam_weight_decay: kit.WeightDecay = 0.1
    adamw_mask: Any = ()
    muon_beta: kit.Momentum = 0.95
    muon_weight_decay: kit.WeightDecay = 0
    gradient_clipping_threshold: kit.Norm = 1.0
    gradient_accumulation_steps: kit.Accumulation = 1
    skip_step_on_spikes: bool = False


_FORMER = {"cosine_learning_rate_final_fraction": "learning_rate_final_fraction"}
"""Former names of options."""
_OWN = ("learning_rate_schedule_steps", "warmup_steps_fraction", "per_device_batch_size")

DEFECTS: Mapping[str, kit.Note[[Config]]] = {
    "zero-after-schedule": kit.Convention(
        "a run that is longer than its schedule goes on at rate 0",
        "src/maxtext/utils/maxtext_utils.py:2346",
        lambda config: (config.steps or 0) > config.learning_rate_schedule_steps,
    ),
    "last-update-final": kit.Convention(
        "the last update has the final rate, so that the decay is one update shorter",
        "src/maxtext/utils/maxtext_utils.py:2302",
        lambda config: _phases(config)[1] > 1,
    ),
    "peak-after-line": kit.Defect(
        "a linear decay of one update leaves the rate at the peak",
        "src/maxtext/utils/maxtext_utils.py:2340",
        lambda config: _kind(config) == "wsd-linear" and _phases(config)[1] == 1,
        documented="the final rate, which a cosine of one update has",
        classes=("wsd-linear",),
    ),
    "skipped-steps": kit.Convention(
        "updates with a spike of the loss are skipped, and count as updates",
        "src/maxtext/optimizers/optimizers.py:231",
        lambda config: config.skip_step_on_spikes,
        classes=(),
    ),
}


def _kind(config: Config) -> str:
    is_stable = config.lr_schedule_type == "wsd"
    return f"wsd-{config.wsd_decay_style}" if is_stable else str(config.lr_schedule_type)


def _phases(config: Config) -> tuple[int, int]:
    """The updates of the warmup and of the decay, rounded down in floats as MaxText does."""
    total: int = config.learning_rate_schedule_steps
    warmup = int(total * float(config.warmup_steps_fraction))
    if config.lr_schedule_type == "cosine":
        return warmup, total - warmup
    return warmup, int(total * float(config.wsd_decay_steps_fraction))


def _with_lengths(context: kit.Context, config: Config) -> Config:
    """The options with the lengths of the run and of the schedule: -1 stands for the other one."""
    steps, total = config.steps, config.learning_rate_schedule_steps
    if steps is None:
        run = context.facts.get("steps")
        facts = context.numbers if run is None else kit.Facts(total_updates=run)
        (fact,) = facts.require("total_updates", where=config.origin.document.place("steps"))
        steps = int(fact)
    if steps == total == -1:
        raise config.error("steps and learning_rate_schedule_steps must not both be -1", "steps")
    return config.replace(
        steps=total if steps == -1 else steps,
        learning_rate_schedule_steps=steps if total == -1 else total,
    )


_KINDS = ("cosine", "wsd-linear", "wsd-cosine")


def _rate(context: kit.Context, config: Config) -> Schedule:
    config = _with_lengths(context, config)
    kind, peak = _kind(config), config.learning_rate
    parts = config.warmup_steps_fraction, config.wsd_decay_steps_fraction
    if config.lr_schedule_type == "wsd" and sum(map(float, parts)) > 1:
        raise config.error(
            "warmup_steps_fraction and wsd_decay_steps_fraction must not exceed 1 together, got "
            f"{float(parts[0])} and {float(parts[1])}",
            "wsd_decay_steps_fraction",
        )
    warmup, length = _phases(config)
    last = peak * config.learning_rate_final_fraction
    if context.as_implemented and DEFECTS["peak-after-line"].concerns(context.version, config):
        last = peak
    lengths = {"warmup": warmup, "length": length, "total": config.learning_rate_schedule_steps}
    lengths |= {"end": config.steps or 0}
    return kit.curve(kind, curves.rate, t, style=kind, peak=peak, last=last, **lengths)


def _matches(document: kit.Document) -> bool:
    content = document.content
    return any(key in content for key in _OWN) and (
        "learning_rate" in content or "steps" in content
    )


def _options(reading: kit.Reading) -> kit.RawSection:
    """The options under their present names, over those of the facts."""
    # Words in capitals are variables of a shell.
    content = {
        key: value for key, value in reading.document.content.items() if not str(key).isupper()
    }
    former = {name: content.pop(key) for key, name in _FORMER.items() if key in content}
    return kit.RawSection(reading.document, {**reading.facts.defaults, **former, **content})


def _read(reading: kit.Reading) -> kit.Recipe:
    options = Config.read(_options(reading))
    config = _with_lengths(reading.context, options)
    with options.origin.locate_errors("lr_schedule_type"):
        rate = _rate(reading.context, config)
    plan, decay = _optimizer(config)
    group = kit.ParamGroup({"lr": rate, "weight_decay": constant(decay)}, plan, kit.Role.DEFAULT)
    mask = config.adamw_mask
    no_decay = [str(pattern) for pattern in mask] if isinstance(mask, list | tuple) else []
    threshold = config.gradient_clipping_threshold
    return reading.recipe(
        [group, *([group.without_decay(no_decay)] if no_decay else [])],
        horizon=config.steps,
        clipping=kit.Clipping(threshold) if threshold > 0 else None,
        accumulation=config.gradient_accumulation_steps,
        values=(config,),
        derived={"lr": config.learning_rate},
    )


def _optimizer(config: Config) -> tuple[kit.OptimizerPlan, Any]:
    """The optimizer, and its weight decay."""
    name = config.opt_type
    place = config.origin.document.place("opt_type")
    if name == "sgd":
        return kit.plan_optimizer("sgd", {}, where=place), 0
    if name == "muon":
        plan = kit.plan_optimizer("muon", {"momentum": config.muon_beta}, where=place)
        return plan, config.muon_weight_decay
    arguments = {"betas": (config.adam_b1, config.adam_b2), "eps": config.adam_eps}
    if config.adam_eps_root:
        arguments["eps_root"] = config.adam_eps_root
    return kit.plan_optimizer(name, arguments, where=place), config.adam_weight_decay


def _part(length: int, total: int) -> float:
    """The simplest part of the run that is rounded down to a length."""
    for digits in range(1, 17):
        part = round(length / total, digits)
        if int(total * part) == length:
            return part
    return (length + 0.5) / total


def _configs(form: kit.WarmupDecayForm, optimizer: kit.Optimizer) -> Iterator[kit.Config]:
    """The phases of a config are parts of the schedule, rounded down."""
    if form.curve not in (kit.CurveName.COSINE, kit.CurveName.LINEAR, kit.CurveName.CONSTANT):
        return
    beta1, beta2 = optimizer.betas() or [0.9, 0.95]
    config: dict[str, Any] = {
        "opt_type": "sgd" if optimizer.name == "sgd" else "adamw",
        "learning_rate": kit.native(form.peak),
        "learning_rate_final_fraction": form.low_ratio,
        "steps": form.total,
        "adam_b1": beta1,
        "adam_b2": beta2,
        "adam_eps": kit.native(optimizer.values.get("eps", 1e-8)),
        "adam_weight_decay": kit.native(optimizer.weight_decay or 0),
        "gradient_clipping_threshold": kit.native(optimizer.clipping or 0),
    }
    groups = [group for group in optimizer.groups if group.weight_decay == 0]
    if no_decay := [pattern for group in groups for pattern in group.patterns]:
        config["adamw_mask"] = no_decay
    warmup = kit.nearest_integer(form.warmup())
    # The last update of the decay has the final rate.
    total = (
        form.total if form.curve is kit.CurveName.CONSTANT else kit.nearest_integer(form.end) + 1
    )
    if total < 1:
        return
    config["learning_rate_schedule_steps"] = total
    config["warmup_steps_fraction"] = _part(warmup, total)
    if form.curve is kit.CurveName.COSINE and not form.has_plateau:
        yield {**config, "lr_schedule_type": "cosine"}
        return
    decay = 0 if form.curve is kit.CurveName.CONSTANT else total - kit.nearest_integer(form.begin)
    style = "cosine" if form.curve is kit.CurveName.COSINE else "linear"
    part = {"wsd_decay_steps_fraction": _part(decay, total), "wsd_decay_style": style}
    yield {**config, "lr_schedule_type": "wsd", **part}


FRAMEWORK = kit.Framework(
    "maxtext",
    kit.section_entries(dict.fromkeys(_KINDS, _rate), {"": Config}, style=_kind),
    versions=("e591f30cbbf2",),
    repository="https://github.com/AI-Hypercomputer/maxtext",
    upstream="src/maxtext/utils/maxtext_utils.py, src/maxtext/configs/base.yml",
    clock=CLOCK,
    defects=DEFECTS,
    reader=kit.Reader(_read, _matches),
    writer=kit.Writer(".yaml", _configs, {}, ("adamw", "sgd")),
)

"""OLMo: the schedulers of its config, whose clock counts the update itself, in steps or tokens."""

from __future__ import annotations

import math
from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass, replace
from typing import Any

from closedform.frameworks.olmo import curves
from closedform.frameworks.olmo_core import FRAMEWORK as OLMO_CORE
from closedform.frameworks.olmo_core import reader as olmo_core
from closedform.language import Schedule, UpdateRule, exact_number
from closedform.optimizers import adamw, lion
from closedform.recipes import kit

# offset=1: OLMo sets the rate of step t + 1 before it runs.
CLOCKS = {
    "steps": kit.Clock(kit.Unit.UPDATE, offset=1),
    "tokens": kit.Clock(kit.Unit.TOKEN, offset=1),
}
RULES: Mapping[str, tuple[str, Callable[..., UpdateRule]]] = {
    "adamw": ("AdamW", adamw),
    "lionw": ("LionW", lion),
    "decoupled_lionw": ("LionW", lion),
}


class Optimizer(
    kit.Section,
    irrelevant="no_decay_norm_and_bias selective_updates metrics_log_interval "
    "record_update_metrics",
):
    name: str = kit.choice(*RULES, default="lionw")
    learning_rate: kit.Rate = 1e-4
    weight_decay: kit.WeightDecay = 0.01
    betas: kit.Momenta = (0.9, 0.95)
    eps: kit.Epsilon = 1e-5
    decay_norm_and_bias: bool = False
    decay_embeddings: bool = False


class Scheduler(kit.Section):
    name: str = kit.choice(*curves.STYLES, default="cosine_with_warmup")
    units: str = kit.choice(*CLOCKS, default="steps")
    t_warmup: kit.RealSteps = 100
    t_max: kit.RealSteps | None = None
    alpha_f: kit.RateRatio = 0.1
    warmup_min_lr: kit.StartRate | None = None
    grad_clip_warmup_steps: kit.RealSteps | None = None
    grad_clip_warmup_factor: kit.Number | None = None


class Model(kit.OpenSection):
    max_sequence_length: kit.SequenceLength | None = None


class Config(kit.OpenSection, irrelevant="reset_optimizer_state save_optimizer_state"):
    optimizer: Optimizer
    scheduler: Scheduler
    max_duration: Any = 10_000
    global_train_batch_size: kit.BatchSize = 512
    model: Model
    max_grad_norm: kit.Norm | None = None
    max_grad_norm_ratio: kit.Number | None = None
    stop_at: kit.Steps | None = None


@dataclass(frozen=True, slots=True)
class OlmoRun:
    """The length of a run.

    Attributes:
        clock: The clock of the scheduler.
        facts: The facts, with the tokens of an update where the config determines them.
        updates: The updates of the run, None if they are not known.
        end: The end of the run by the clock, None if it is not known.
    """

    clock: kit.Clock
    facts: kit.Facts
    updates: int | None
    end: int | None


def _run(config: Config, facts: kit.Facts) -> OlmoRun:
    clock = CLOCKS[config.scheduler.units]
    length = config.model.max_sequence_length or facts.sequence_length
    tokens = facts.tokens_per_update
    if tokens is None and length is not None:
        tokens = config.global_train_batch_size * length
    facts = replace(facts, tokens_per_update=tokens)
    updates, run_tokens = _length(config, facts)
    if clock.unit is kit.Unit.UPDATE:
        return OlmoRun(clock, facts, updates, updates)
    if run_tokens is None and updates is not None and tokens is not None:
        run_tokens = updates * tokens
    return OlmoRun(clock, facts, updates, run_tokens)


def _length(config: Config, facts: kit.Facts) -> tuple[int | None, int | None]:
    """The updates of the run, and its tokens where they are given."""
    duration = str(config.max_duration).strip()
    unit = next((unit for unit in ("T", "ep") if duration.endswith(unit)), "")
    try:
        # 2e12T is 2·10¹² tokens, 3ep three epochs; Python takes underscores in numbers, as
        # upstream.
        amount = int(float(duration.removesuffix(unit).replace("_", "")))
    except (ValueError, OverflowError) as error:
        raise config.error(
            f"max_duration must be a number, or one with T or ep, got {config.max_duration!r:.40}",
            "max_duration",
        ) from error
    # A fact of the user wins over the duration, except for the tokens of a horizon.
    tokens = amount if unit == "T" else None
    if facts.total_updates is not None:
        return facts.total_updates, tokens
    if unit == "":
        return amount, None
    if unit == "ep":
        updates_per_epoch = facts.updates_per_epoch
        return None if updates_per_epoch is None else amount * int(updates_per_epoch), None
    # The last update may have more tokens than are left.
    per_update = facts.tokens_per_update
    return None if per_update is None else math.ceil(exact_number(amount) / per_update), tokens


def _plan(config: Config, run: OlmoRun, context: kit.Context) -> dict[str, Any]:
    scheduler, peak = config.scheduler, config.optimizer.learning_rate
    first, end = scheduler.warmup_min_lr, scheduler.t_max
    if end is None and run.end is None:
        fact = "updates_per_epoch" if str(config.max_duration).endswith("ep") else None
        run.facts.require(fact or "tokens_per_update", where=context.where)
    # int() as upstream: a t_warmup of 1e3 is a float in YAML.
    lengths = {"warmup": int(scheduler.t_warmup), "total": run.end if end is None else int(end)}
    rates = {"first": peak / 10 if first is None else first, "low": peak * scheduler.alpha_f}
    return {"style": scheduler.name, "peak": peak, **rates, **lengths}


def _rate(context: kit.Context, config: Config) -> Schedule:
    run = _run(config, context.numbers)
    count = run.clock.position(run.facts)
    return kit.curve(config.scheduler.name, curves.rate, count, **_plan(config, run, context))


def _bolt_on_warmup(context: kit.Context, config: Config) -> Schedule:
    """A warmup from 0 to where the inner schedule is at its end; 0 before its start."""
    run, bolt = _run(config, context.numbers), context.fact("bolt_on_warmup")
    begin, end = exact_number(bolt["warmup_start"]), exact_number(bolt["warmup_end"])
    if begin > end:
        raise config.error(f"warmup_end must not be before warmup_start {begin}, got {end}")
    numbers, count = _plan(config, run, context), run.clock.position(run.facts)
    name = "bolt_on_warmup"
    return kit.curve(name, curves.bolt_on_warmup, count, begin=begin, end=end, numbers=numbers)


DEFECTS: Mapping[str, kit.Note[[Config, Any]]] = {
    "starts-at-a-tenth": kit.Convention(
        "without warmup_min_lr the warmup begins at a tenth of the rate",
        "olmo/optim.py:688",
        lambda config, run: (
            config.scheduler.t_warmup > 0
            and "warmup_min_lr" not in config.scheduler
            and config.scheduler.name != "constant"
        ),
    ),
    "warmup-past-the-end": kit.Convention(
        "a warmup past the end of the run rises beyond it, and the rate falls at once",
        "olmo/optim.py:702",
        lambda config, run: (
            run.end is not None
            and "t_max" not in config.scheduler
            and config.scheduler.t_warmup > run.end
        ),
    ),
    "zero-for-ever": kit.Defect(
        "inverse_sqrt_with_warmup without a warmup is 0 for ever",
        "olmo/optim.py:739",
        lambda config, run: (
            config.scheduler.name == "inverse_sqrt_with_warmup" and config.scheduler.t_warmup == 0
        ),
        classes=("inverse_sqrt_with_warmup",),
    ),
}


def _matches(document: kit.Document) -> bool:
    optimizer = document.content.get("optimizer")
    scheduler = document.content.get("scheduler")
    if "trainer" in document.content:  # levanter has the same section for its optimizer
        return False
    return (isinstance(optimizer, dict) and "learning_rate" in optimizer) or (
        isinstance(scheduler, dict) and "t_warmup" in scheduler and "units" in scheduler
    )


def _read(reading: kit.Reading) -> kit.Recipe:
    if reading.document.python is not None or "train_module" in reading.document.content:
        return olmo_core.read(replace(reading, framework="olmo_core", defects=OLMO_CORE.defects))
    config = Config.read_whole(kit.interpolate(reading.document))
    optimizer = config.optimizer
    run = _run(config, reading.facts)
    with config.scheduler.origin.locate_errors():
        rate = _rate(reading.context, config)
    group = _optimizer(optimizer).group(rate)
    no_decay = tuple(
        name
        for name, is_decayed in (
            ("norm and bias", optimizer.decay_norm_and_bias),
            ("embeddings", optimizer.decay_embeddings),
        )
        if not is_decayed
    )
    ends = [length for length in (run.updates, config.stop_at) if length is not None]
    return reading.recipe(
        [group, *([group.without_decay(no_decay)] if no_decay else [])],
        clock=run.clock,
        horizon=None if run.updates is None else min(ends),
        clipping=_clipping(config, run),
        accumulation=None,
        values=(config, run),
    )


def _optimizer(optimizer: Optimizer) -> kit.ClassOptimizer:
    name, rule = RULES[optimizer.name]
    content = {
        "lr": optimizer.learning_rate,
        "weight_decay": optimizer.weight_decay,
        "betas": list(optimizer.betas),
        **({"eps": optimizer.eps} if rule is adamw else {}),
    }
    origin = optimizer.origin
    return kit.class_optimizer(
        kit.RawSection(origin.document, content, origin.path), name, (), rules={name: rule}
    )


def _clipping(config: Config, run: OlmoRun) -> kit.Clipping | None:
    """The clipping, larger by a factor over the first updates."""
    scheduler, threshold = config.scheduler, config.max_grad_norm
    if config.max_grad_norm_ratio is not None or threshold is None:
        return None
    steps, factor = scheduler.grad_clip_warmup_steps, scheduler.grad_clip_warmup_factor
    if steps is None or factor is None:
        return kit.Clipping(threshold)
    last = int(steps)

    def value(n: float) -> Any:
        return threshold * factor if n <= last else threshold

    return kit.Clipping(kit.curve("clipping", value, run.clock.position(run.facts)))


_WRITTEN = {
    kit.CurveName.CONSTANT: "constant_with_warmup",
    kit.CurveName.COSINE: "cosine_with_warmup",
    kit.CurveName.LINEAR: "linear_with_warmup",
}


def _configs(form: kit.WarmupDecayForm, optimizer: kit.Optimizer) -> Iterator[kit.Config]:
    if form.curve not in _WRITTEN:
        return
    section: dict[str, Any] = {
        "name": "lionw" if optimizer.name == "lion" else "adamw",
        "weight_decay": kit.native(optimizer.weight_decay or 0),
    }
    if "betas" in optimizer.values:
        section["betas"] = [kit.native(beta) for beta in optimizer.values["betas"]]
    if "eps" in optimizer.values:
        section["eps"] = kit.native(optimizer.values["eps"])
    more = {} if optimizer.clipping is None else {"max_grad_norm": kit.native(optimizer.clipping)}
    no_decay_patterns = " ".join(
        pattern for group in optimizer.groups for pattern in group.patterns
    )
    section["decay_norm_and_bias"] = (
        "norm" not in no_decay_patterns and "bias" not in no_decay_patterns
    )
    section["decay_embeddings"] = "embed" not in no_decay_patterns
    clipping: dict[str, Any] = {}
    limit = optimizer.schedules.get("clipping")
    if limit is not None and len(limit.marks) == 2:
        (_, first), (mark, last) = limit.marks
        more = {"max_grad_norm": kit.native(last)}
        clipping = {
            "grad_clip_warmup_steps": mark,
            "grad_clip_warmup_factor": kit.native(first / last),
        }
    for scheduler, peak in _schedulers(form, optimizer.facts.get("tokens_per_update")):
        yield {
            "optimizer": {**section, "learning_rate": kit.native(peak)},
            "scheduler": {**scheduler, **_scale_clipping(clipping, scheduler, optimizer.facts)},
            "max_duration": form.total,
            **more,
        }


def _scale_clipping(
    clipping: kit.Config, section: kit.Config, facts: Mapping[str, Any]
) -> kit.Config:
    """The warmup of the clipping in the unit of the scheduler."""
    unit = int(facts.get("tokens_per_update", 1)) if section.get("units") == "tokens" else 1
    key = "grad_clip_warmup_steps"
    return {**clipping, key: clipping[key] * unit} if clipping else {}


def _schedulers(form: kit.WarmupDecayForm, tokens: Any) -> Iterator[tuple[dict[str, Any], Any]]:
    """The section of the scheduler, and the rate of the optimizer."""
    has_rise = form.rise is not None
    # The clock counts t + 1.
    begin, end = form.warmup(1) if has_rise else form.begin + 1, form.end + 1
    section: dict[str, Any] = {"name": _WRITTEN[form.curve]}
    if has_rise:
        # A rise from 0 would begin below it: the clock counts the first update.
        section["warmup_min_lr"] = kit.native(max(form.at(1), form.at(1) * 0))
    if form.curve is kit.CurveName.CONSTANT:
        yield {**section, "t_warmup": kit.nearest_integer(begin) if has_rise else 0}, form.peak
        return
    if not has_rise and form.curve is kit.CurveName.LINEAR:
        # The line goes on to where the clock is 0.
        peak = form.peak + (form.peak - form.low) * begin / (form.end - form.begin)
        yield _lasting({**section, "t_warmup": 0}, form, peak, end), peak
    yield (
        _lasting({**section, "t_warmup": max(0, kit.nearest_integer(begin))}, form, form.peak, end),
        form.peak,
    )
    if tokens is not None and not (begin.is_Integer and end.is_Integer):
        token_section = {
            **section,
            "units": "tokens",
            "t_warmup": max(0, kit.nearest_integer(begin * tokens)),
        }
        token_section["alpha_f"] = _part(form, form.peak)
        yield {**token_section, "t_max": kit.nearest_integer(end * tokens)}, form.peak


def _part(form: kit.WarmupDecayForm, peak: Any) -> Any:
    return kit.native(form.low / peak) if peak != 0 else 0.0


def _lasting(
    section: dict[str, Any], form: kit.WarmupDecayForm, peak: Any, end: Any
) -> dict[str, Any]:
    section["alpha_f"] = _part(form, peak)
    return (
        section
        if kit.nearest_integer(end) == form.total
        else {**section, "t_max": kit.nearest_integer(end)}
    )


_LAYOUT = {"": Config}
FRAMEWORK = kit.Framework(
    "olmo",
    {
        **kit.section_entries(
            dict.fromkeys(curves.STYLES, _rate), _LAYOUT, lambda config: str(config.scheduler.name)
        ),
        **kit.section_entries({"bolt_on_warmup": _bolt_on_warmup}, _LAYOUT),
    },
    versions=("59a53e3f68e5",),
    repository="https://github.com/allenai/OLMo",
    tier=kit.Tier.FROZEN,
    upstream="olmo/optim.py, olmo/train.py",
    clock=CLOCKS["steps"],
    defects=DEFECTS,
    reader=kit.Reader(_read, _matches),
    writer=kit.Writer(".yaml", _configs, {"tokens_per_update": None}, ("adamw", "lion")),
)

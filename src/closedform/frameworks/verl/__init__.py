"""verl: the schedules of its FSDP and Megatron workers and of its SFT trainer.

The workers step their scheduler once for each training step: all updates of one share a rate. The
configs are Hydra's, as YAML or as ``key=value`` words.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from typing import Any, Literal

import sympy as sp

from closedform.frameworks.megatron.schedules import STYLES, MegatronNumbers, check, learning_rate
from closedform.language import Schedule, exact_number
from closedform.recipes import kit

# A training step of PPO has several updates, all with one rate (verl#3674).
CLOCK = kit.Clock(kit.Unit.TRAINING_STEP, is_stepped=True)
OF_UPDATES = kit.Clock(kit.Unit.UPDATE)
WITH_WARMUP_STYLE = "9d7cba4e1"
"""The version whose key was warmup_style."""

_STYLE_NAME = "inverse_square_root"
"""The name that the configuration file offers, and that Megatron does not know."""


class _Optimizer(kit.Section, irrelevant="_target_ total_training_steps"):
    lr: kit.Rate = 1e-3
    betas: kit.Momenta = (0.9, 0.999)
    clip_grad: kit.Norm = 1
    grad_clip: kit.Norm | None = None
    lr_warmup_steps: kit.Steps = -1
    lr_warmup_steps_ratio: kit.RunRatio = 0
    optimizer: str = "AdamW"
    override_optimizer_config: Any = None
    weight_decay: kit.WeightDecay = 0.01


class _Torch(_Optimizer):
    optimizer_impl: str = "torch.optim"


class FSDP(_Torch):
    lr_scheduler_type: Literal["constant", "cosine"] = "constant"
    min_lr_ratio: kit.RateRatio = 0
    num_cycles: kit.Number = 0.5
    warmup_style: Literal["constant", "cosine"] | None = None


class Megatron(_Optimizer, irrelevant="weight_decay_incr_style"):
    lr_decay_steps: kit.Steps | None = None
    lr_decay_style: str = "constant"
    lr_warmup_init: kit.StartRate = 0
    lr_wsd_decay_steps: kit.Steps | None = None
    lr_wsd_decay_style: str = "exponential"
    min_lr: kit.EndRate = 0
    optimizer: str = "adam"
    use_checkpoint_opt_param_scheduler: bool = False


class SFT(_Torch):
    lr: kit.Rate = 1e-5
    betas: kit.Momenta = (0.9, 0.95)
    lr_scheduler: Literal["cosine", "wsd"] = "cosine"
    lr_warmup_steps_ratio: kit.RunRatio = 0.1


class Trainer(kit.OpenSection):
    total_epochs: kit.Epochs | None = None
    total_training_steps: kit.Steps | None = None


class Data(kit.OpenSection):
    train_batch_size: kit.BatchSize | None = None


EPOCHS, SFT_EPOCHS = 30, 4
"""The epochs of a run by default."""

_FSDP = ("actor", "critic", "engine")
"""The parts with the schedules of FSDP: two workers, and the engine."""

_COMMENT = "verl/trainer/config/actor/actor.yaml:151"


@dataclass(frozen=True, slots=True)
class VerlRun:
    """The length of a run, in training steps.

    Attributes:
        part: The worker or trainer.
        length: The training steps of all epochs, or those that the config gives.
        most: The training steps at which the SFT trainer ends the run, None for no limit.
    """

    part: str
    length: int
    most: int | None = None

    @property
    def end(self) -> int:
        """The training steps of the run."""
        return self.length if self.most is None else min(self.most, self.length)


DEFECTS: Mapping[str, kit.Note[[Any, VerlRun]]] = {
    "zero-warmup-steps": kit.Defect(
        "the FSDP workers take lr_warmup_steps of 0 as no warmup",
        "verl/workers/fsdp_workers.py:584",
        lambda optim, run: (
            run.part in ("actor", "critic")
            and optim.lr_warmup_steps == 0
            and int(float(optim.lr_warmup_steps_ratio) * run.length) > 0
        ),
        documented="a warmup of lr_warmup_steps_ratio of the run",
        classes=("fsdp-constant", "fsdp-cosine"),
    ),
    "null-warmup-steps": kit.Convention(
        f"lr_warmup_steps of null is refused, though {_COMMENT} delegates it to the ratio",
        "verl/workers/engine/fsdp/transformer_impl.py:399",
        classes=("fsdp-constant", "fsdp-cosine"),
    ),
    "first-step-without-rate": kit.Convention(
        "with a warmup the whole first training step, all of its updates, has rate 0",
        "verl/workers/fsdp_workers.py:592",
        lambda optim, run: run.part in _FSDP and _warmup(run, optim) > 0,
        classes=("fsdp-constant", "fsdp-cosine"),
    ),
    "without-horizon": kit.Convention(
        "a run of -1 training steps, which were never set, lets the cosine alternate between the "
        "rate and its minimum",
        "verl/utils/torch_functional.py:746",
        lambda optim, run: run.part in _FSDP and run.length < 0,
        classes=("fsdp-cosine",),
    ),
    "rises-again": kit.Convention(
        "the cosine rises again after the run",
        "verl/utils/torch_functional.py:747",
        lambda optim, run: run.part in _FSDP and _style(optim) == "cosine",
        classes=("fsdp-cosine", "sft-cosine"),
    ),
    "warmup-style-wins": kit.Convention(
        "the deprecated warmup_style replaces lr_scheduler_type",
        "verl/workers/config/optimizer.py:96",
        lambda optim, run: run.part in _FSDP and optim.warmup_style is not None,
        classes=("fsdp-constant", "fsdp-cosine"),
        versions=("b178a3cd56f5",),
    ),
    "type-without-effect": kit.Convention(
        "lr_scheduler_type has no effect, and the warmup begins at min_lr_ratio",
        "verl/workers/fsdp_workers.py, verl/utils/torch_functional.py:545",
        lambda optim, run: run.part in _FSDP,
        classes=("fsdp-constant", "fsdp-cosine"),
        versions=(WITH_WARMUP_STYLE,),
    ),
    "style-name": kit.Defect(
        f"{_STYLE_NAME}, which the configuration file offers, is refused after the warmup",
        "verl/trainer/config/optim/megatron.yaml:32",
        lambda optim, run: run.part == "megatron" and optim.lr_decay_style == _STYLE_NAME,
        classes=(f"megatron-{_STYLE_NAME}",),
    ),
    "betas-of-megatron": kit.Convention(
        "betas do not reach the Megatron optimizer",
        "verl/utils/megatron/optimizer.py:25",
        lambda optim, run: run.part == "megatron" and "betas" in optim,
        classes=(),
    ),
    "horizon-of-epochs": kit.Defect(
        "the SFT trainer's schedule has the length of all epochs, also where total_training_steps "
        "ends the run before",
        "verl/trainer/fsdp_sft_trainer.py:351",
        lambda optim, run: run.part == "sft" and run.end != run.length,
        documented="a schedule of total_training_steps updates",
        classes=("sft-cosine", "sft-wsd"),
    ),
}


def _style(optim: FSDP) -> str:
    return str(optim.warmup_style or optim.lr_scheduler_type)


def _warmup(run: VerlRun, optim: _Optimizer, is_documented: bool = False) -> int:
    """The training steps of the warmup of the FSDP workers, or of the engine."""
    steps = optim.lr_warmup_steps
    # The workers delegate below 0 only, the engine from 0 on (verl-fsdp-cosine-016, -017).
    delegates = steps <= 0 if run.part == "engine" or is_documented else steps < 0
    return int(float(optim.lr_warmup_steps_ratio) * run.length) if delegates else int(steps)


def _factor(
    name: str, rate: sp.Expr, warmup: int, first: sp.Expr, factor: kit.CurveFunction
) -> Schedule:
    """A warmup from a part of the rate, and a factor after it."""

    def value(n: float) -> Any:
        if n < warmup:
            # max(1, W) as in verl/utils/torch_functional.py.
            return rate * (first + (1 - first) * n / max(1, warmup))
        return rate * factor(n)

    return kit.curve(name, value)


def _of_fsdp(context: kit.Context, optim: FSDP, run: VerlRun) -> Schedule:
    where, low = context.where, optim.min_lr_ratio
    is_old, rate = context.version == WITH_WARMUP_STYLE, optim.lr
    has_null = optim.origin.content.get("lr_warmup_steps", -1) is None
    # null cannot be compared with 0: the workers raise.
    kit.refuse_unless(
        not has_null or not context.as_implemented, "lr_warmup_steps must be an integer", where
    )
    # At 9d7cba4e1 warmup_style was the key, and lr_scheduler_type had no effect.
    style = (optim.warmup_style or "constant") if is_old else _style(optim)
    warmup = _warmup(run, optim, not context.as_implemented)
    if style == "constant":
        return _factor(style, rate, warmup, sp.S.Zero, lambda n: 1)
    kit.refuse_unless(0 <= low <= 1, f"min_lr_ratio must be in [0, 1], got {low}", where)
    length, cycles = max(1, run.length - warmup), optim.num_cycles
    # That version's warmup starts at min_lr_ratio of the rate.
    first = low if is_old else sp.S.Zero

    def factor(n: float) -> Any:
        wave = math.cos(2 * math.pi * cycles * ((n - warmup) / length))
        # (1 - r)/2·cos + (1 + r)/2, cut at r: for num_cycles 0.5 it is at r at the end, and climbs
        # later.
        return max(low, (1 - low) / 2 * wave + (1 + low) / 2)

    return _factor(style, rate, warmup, first, factor)


def _of_megatron(context: kit.Context, optim: Megatron, run: VerlRun) -> Schedule:
    # The decay is the run by default, in training steps: the scheduler gets increment 1, not
    # samples.
    decay = run.length if optim.lr_decay_steps is None else optim.lr_decay_steps
    content, steps = optim.origin.content, optim.lr_warmup_steps
    is_absent = content.get("lr_warmup_steps", -1) is None
    has_ratio = content.get("lr_warmup_steps_ratio", 0) is not None
    kit.refuse_unless(has_ratio or not is_absent, "lr_warmup_steps is missing", context.where)
    if has_ratio and (is_absent or steps <= 0):
        steps = int(float(optim.lr_warmup_steps_ratio) * decay)
    tail = optim.lr_wsd_decay_steps
    plan = MegatronNumbers(
        optim.lr_decay_style,
        optim.lr,
        optim.min_lr,
        optim.lr_warmup_init,
        sp.Integer(steps),
        sp.Integer(decay),
        None if tail is None else sp.Integer(tail),
        optim.lr_wsd_decay_style,
    )
    check(plan, context.where)
    return learning_rate(plan)


def _of_sft(context: kit.Context, optim: SFT, run: VerlRun) -> Schedule:
    # total_training_steps ends the run and not the schedule.
    total = run.length if context.as_implemented else run.end
    warmup = int(total * float(optim.lr_warmup_steps_ratio))
    rest = max(0, total - warmup)
    # int(0.9 (T - W)) of flat rate.
    is_wsd = optim.lr_scheduler == "wsd"
    flat = int(rest * 0.9) if is_wsd else 0
    begin, length = warmup + flat, max(1, rest - flat)

    def factor(n: float) -> Any:
        if is_wsd and n < begin:
            return 1
        return 0 if is_wsd and n >= total else (1 + math.cos(math.pi * (n - begin) / length)) / 2

    return _factor(optim.lr_scheduler, optim.lr, warmup, sp.S.Zero, factor)


_CURVES: Mapping[str, tuple[type[_Optimizer], Callable[..., Schedule]]] = {
    **dict.fromkeys(_FSDP, (FSDP, _of_fsdp)),
    "megatron": (Megatron, _of_megatron),
    "sft": (SFT, _of_sft),
}


def _of_class(context: kit.Context, optim: _Optimizer) -> Schedule:
    default = "megatron" if context.path[-1].startswith("megatron") else "actor"
    part = context.facts.get("part", default)
    kit.refuse_unless(part in (*_FSDP, "megatron"), f"there is no part {part!r:.40}", context.where)
    return _CURVES[part][1](context, optim, VerlRun(part, context.fact("total_training_steps")))


def _of_trainer(context: kit.Context, optim: SFT, trainer: Trainer) -> Schedule:
    (batches,) = context.numbers.require("updates_per_epoch", where=context.where)
    length = int(batches) * (trainer.total_epochs or SFT_EPOCHS)
    return _of_sft(context, optim, VerlRun("sft", length, trainer.total_training_steps))


def _sections(document: kit.Document) -> kit.RawSection:
    return kit.document_section(kit.interpolate(kit.in_sections(document)))


def _matches(document: kit.Document) -> bool:
    names = {str(key) for key in document.content}
    if document.python is not None:
        return False
    if any(name.startswith(("actor_rollout_ref.", "critic.optim.")) for name in names):
        return True
    sections = [document.content.get(name) for name in ("optim", "trainer")]
    return "actor_rollout_ref" in names or (
        (any(name.startswith("optim.") for name in names) or isinstance(sections[0], dict))
        and (
            any(name in names for name in ("trainer.total_epochs", "trainer.total_training_steps"))
            or (
                isinstance(sections[1], dict)
                and any(name in sections[1] for name in ("total_epochs", "total_training_steps"))
            )
        )
    )


def _place(reading: kit.Reading, config: kit.RawSection) -> tuple[str, kit.RawSection]:
    """The part that is read, and the section of its worker, with ``optim``."""
    part = reading.facts.framework_facts.get("part")
    actor = config.section("actor_rollout_ref").section("actor")
    is_tuned = "optim" in config
    optim = config.section("optim").content
    if part is None and is_tuned:
        is_engine = any(key in optim for key in ("lr_scheduler_type", "min_lr_ratio"))
        part = "sft" if "lr_scheduler" in optim else "engine" if is_engine else None
        if part is None:
            raise kit.missing_facts(
                "part",
                config.document.source,
                "give sft for the SFT trainer of FSDP, engine for the SFT trainer of engines",
            )
    program = f"{config.text('config-name', '')} {actor.text('strategy', '')}"
    is_megatron = "megatron" in program
    if part is None:
        part = "megatron" if is_megatron else "actor"
    if part == "fsdp":
        part = "sft" if "lr_scheduler" in optim else "engine" if is_tuned else "actor"
    if part not in _CURVES:
        names = ", ".join(("fsdp", *_CURVES))
        raise config.error(f"the fact part must be one of {names}, got {part!r:.40}")
    if is_tuned:
        return part, config
    return part, config.section("critic") if part == "critic" else actor


_RATES = {"actor": 1e-6, "critic": 1e-5, "megatron": 1e-6}


def _length(reading: kit.Reading, part: str, config: kit.RawSection) -> VerlRun:
    facts, trainer = reading.facts, Trainer.read(config.section("trainer"))
    total = facts.framework_facts.get("total_training_steps")
    if total is None and facts.total_updates is not None:
        total = facts.total_updates // (facts.updates_per_training_step or 1)
    batches = facts.updates_per_epoch
    batch = Data.read(config.section("data")).train_batch_size
    if batches is None and facts.dataset_size is not None and batch is not None:
        batches = facts.dataset_size // batch
    most = trainer.total_training_steps
    if None not in (most, total) and most != total:
        raise trainer.error(
            f"total_training_steps is {most}, but the fact is {total}", "total_training_steps"
        )
    epochs = trainer.total_epochs or (SFT_EPOCHS if "optim" in config else EPOCHS)
    length = None if batches is None else batches * epochs
    if part != "sft" or length is None:
        length = next((steps for steps in (most, total, length) if steps is not None), None)
    if length is None:
        raise kit.missing_facts(
            "total_training_steps",
            config.document.source,
            "give them, or the batches of an epoch as updates_per_epoch",
        )
    return VerlRun(part, int(length), most)


def _read(reading: kit.Reading) -> kit.Recipe:
    config = _sections(reading.document)
    part, worker = _place(reading, config)
    run = _length(reading, part, config)
    keys, curve = _CURVES[part]
    optim = keys.read(worker.section("optim"))
    if "lr" not in optim and part in _RATES and worker is not config:
        optim = optim.replace(lr=exact_number(_RATES[part]))
    with optim.origin.locate_errors():
        rate = curve(reading.context, optim, run)
    clipping = optim.clip_grad if optim.grad_clip is None else optim.grad_clip
    if part in ("actor", "critic"):
        clipping = exact_number(worker.number("grad_clip", 1))
    group = _optimizer(part, optim).group(rate)
    return reading.recipe(
        [
            group,
            *([group.without_decay(("*.bias", "one dimension"))] if part == "megatron" else []),
        ],
        clock=OF_UPDATES if part == "sft" else CLOCK,
        horizon=run.end,
        clipping=kit.Clipping(clipping),
        accumulation=None,
        values=(optim, run),
    )


def _optimizer(part: str, optim: _Optimizer) -> kit.ClassOptimizer:
    further = optim.origin.section("override_optimizer_config")
    content = {"lr": optim.lr, "weight_decay": optim.weight_decay}
    if not isinstance(optim, _Torch):
        # Its betas do not come to Megatron's optimizer.
        rules = {"adam": kit.fused_adam}
        return kit.class_optimizer(
            kit.RawSection(further.document, content, further.path), optim.optimizer, rules=rules
        )
    if "adam" in optim.optimizer.lower():
        content["betas"] = list(optim.betas)
    path = f"{optim.optimizer_impl}.{optim.optimizer}"
    content |= further.content
    return kit.class_optimizer(kit.RawSection(further.document, content, further.path), path)


FRAMEWORK = kit.Framework(
    "verl",
    {
        **kit.section_entries(
            {f"fsdp-{name}": _of_class for name in ("constant", "cosine")}, {"optim": FSDP}
        ),
        **kit.section_entries(
            {f"megatron-{name}": _of_class for name in (*STYLES, _STYLE_NAME)}, {"optim": Megatron}
        ),
        **kit.section_entries(
            {f"sft-{name}": _of_trainer for name in ("cosine", "wsd")},
            {"optim": SFT, "trainer": Trainer},
            lambda optim, trainer: f"sft-{optim.lr_scheduler}",
        ),
    },
    versions=("b178a3cd56f5", WITH_WARMUP_STYLE),
    repository="https://github.com/volcengine/verl",
    upstream="verl/utils/torch_functional.py, verl/utils/megatron/optimizer.py",
    clock=CLOCK,
    defects=DEFECTS,
    reader=kit.Reader(_read, _matches),
    facts=("part", "total_training_steps"),
)

"""The schedules of Megatron-LM, from its command line flags.

The clock counts samples: an update adds the global batch size, and flags in iterations are
multiplied by it. The curves are those of ``OptimizerParamScheduler``, which NeMo Automodel shares.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, fields

import sympy as sp

from closedform.frameworks.megatron import curves
from closedform.language import Schedule, exact_number, t
from closedform.recipes import kit

# num_steps of OptimizerParamScheduler grows by the global batch size at each step.
CLOCK = kit.Clock(kit.Unit.SAMPLE)
STYLES, TAILS = curves.STYLES, curves.TAILS
WEIGHT_DECAY_STYLES = ("constant", "linear", "cosine")
OPTIMIZERS = ("adam", "sgd", "muon", "dist_muon", "lion", "soap", "adaptive_muon")


class Flags(
    kit.FlagSection,
    irrelevant="adaptive_muon_beta2 apply_wd_to_qk_layernorm cuda_graph_warmup_steps "
    "dino_warmup_teacher_temp dino_warmup_teacher_temp_epochs "
    "dist_ckpt_optim_fully_reshardable "
    "distrib_optim_fully_reshardable_mem_efficient ft_num_warmup_iters grpo_kl_beta "
    "head_lr_mult load_optim lr_mult_router muon_momentum muon_scalar_optimizer "
    "no_load_optim no_save_optim no_weight_decay_cond_type "
    "num_distributed_optimizer_instances optimizer_cpu_offload optimizer_cuda_graph "
    "optimizer_offload_fraction overlap_cpu_optimizer_d2h_h2d "
    "overlap_p2p_communication_warmup_flush "
    "overlap_param_gather_with_optimizer_step override_opt_param_scheduler "
    "rampup_batch_size rl_offload_optimizer_during_inference router_beta save_optim "
    "soap_shampoo_beta tau_decay use_distributed_optimizer "
    "use_layer_wise_distributed_optimizer use_precision_aware_optimizer "
    "use_torch_optimizer_for_cpu_offload yarn_beta_fast yarn_beta_slow",
):
    """The flags near the optimizer and its schedules, with the defaults of Megatron-LM."""

    lr: kit.Rate | None = None
    lr_decay_style: str = kit.choice(*STYLES, default="linear")
    global_batch_size: kit.BatchSize | None = kit.integer(None, may_be_open=True)
    min_lr: kit.EndRate = 0
    train_iters: kit.Steps | None = kit.integer(None, may_be_open=True)
    train_samples: kit.Samples | None = kit.integer(None, may_be_open=True)
    lr_decay_iters: kit.RealSteps | None = None
    lr_decay_samples: kit.RealSamples | None = None
    lr_warmup_iters: kit.RealSteps = 0
    lr_warmup_samples: kit.RealSamples = 0
    lr_warmup_fraction: kit.RunRatio | None = None
    lr_warmup_init: kit.StartRate = 0
    lr_wsd_decay_iters: kit.RealSteps | None = None
    lr_wsd_decay_samples: kit.RealSamples | None = None
    lr_wsd_decay_style: str = "exponential"
    weight_decay: kit.WeightDecay = 0.01
    weight_decay_incr_style: str = kit.choice(*WEIGHT_DECAY_STYLES, default="constant")
    start_weight_decay: kit.WeightDecay | None = None
    end_weight_decay: kit.WeightDecay | None = None
    adam_beta1: kit.Momentum = 0.9
    adam_beta2: kit.Momentum = 0.999
    adam_eps: kit.Epsilon = 1e-8
    clip_grad: kit.Norm = 1
    decoupled_lr: kit.Rate | None = None
    decoupled_min_lr: kit.EndRate | None = None
    decoupled_weight_decay: bool = True
    lion_beta1: kit.Momentum = 0.95
    lion_beta2: kit.Momentum = 0.98
    max_steps: kit.Steps | None = None
    optimizer: str = kit.choice(*OPTIMIZERS, default="adam")
    seq_length: kit.SequenceLength | None = kit.integer(None, may_be_open=True)
    sgd_momentum: kit.Momentum = 0.9
    step_batch_size_schedule: str | None = None
    use_checkpoint_opt_param_scheduler: bool = False


def _has_warmup(flags: Flags) -> bool:
    return bool(flags.lr_warmup_iters or flags.lr_warmup_samples or flags.lr_warmup_fraction)


_SCHEDULER = "megatron/core/optimizer_param_scheduler.py"
DEFECTS: Mapping[str, kit.Note[[Flags]]] = {
    "weight-decay-of-scheduler": kit.Convention(
        "the scheduler's start_weight_decay replaces the optimizer's weight_decay",
        f"{_SCHEDULER}:300",
        lambda flags: (
            "weight_decay" in flags and flags.start_weight_decay not in (None, flags.weight_decay)
        ),
        classes=(),
    ),
    "inverse-square-root-falls": kit.Convention(
        "inverse-square-root falls to the minimum at once after the horizon",
        f"{_SCHEDULER}:240",
        lambda flags: flags.lr_decay_style == "inverse-square-root",
        classes=("inverse-square-root",),
    ),
    "inverse-square-root-of-samples": kit.Convention(
        "inverse-square-root without a warmup divides by the root of the number of samples",
        f"{_SCHEDULER}:245",
        lambda flags: flags.lr_decay_style == "inverse-square-root" and not _has_warmup(flags),
        classes=("inverse-square-root",),
    ),
    "constant-has-no-end": kit.Convention(
        "constant ignores the horizon and the minimum",
        f"{_SCHEDULER}:236",
        lambda flags: flags.lr_decay_style == "constant",
        classes=("constant",),
    ),
    "warmup-start-ignored": kit.Convention(
        "the warmup start is ignored without a warmup",
        f"{_SCHEDULER}:230",
        lambda flags: bool(flags.lr_warmup_init) and not _has_warmup(flags),
        classes=STYLES,
    ),
    "tail-in-the-warmup": kit.Convention(
        "a WSD decay that would begin inside the warmup starts late: the rate jumps",
        f"{_SCHEDULER}:263",
        classes=("WSD",),
    ),
    "from-checkpoint": kit.Convention(
        "a checkpoint that is loaded replaces the numbers of the schedules",
        f"{_SCHEDULER}:338",
        lambda flags: flags.use_checkpoint_opt_param_scheduler,
        classes=(),
    ),
    "ramp-ignored": kit.Defect(
        "rampup-batch-size has no effect since April 2026",
        "megatron/training/config/training_config.py:20",
        lambda flags: "rampup_batch_size" in flags,
        classes=(),
    ),
    "own-multiplier": kit.Convention(
        "lr-mult-router is a multiplier of the training script of elastification",
        "megatron/elastification/arguments.py:99",
        lambda flags: "lr_mult_router" in flags,
        classes=(),
    ),
}


@dataclass(frozen=True, slots=True)
class MegatronNumbers:
    """The numbers of a schedule, lengths in the unit that it counts.

    Attributes:
        style: One of ``STYLES``; another one fails where the warmup ends.
        peak: The largest rate.
        low: The smallest rate.
        first: The rate at the start of the warmup.
        warmup: The length of the warmup.
        total: The length of the schedule.
        tail: The length of the last decay of WSD; None if not given.
        tail_style: One of ``TAILS``; another one fails where the decay begins.
        per_update: How much an update adds.
    """

    style: str
    peak: sp.Expr
    low: sp.Expr
    first: sp.Expr
    warmup: sp.Expr
    total: sp.Expr
    tail: sp.Expr | None
    tail_style: object
    per_update: sp.Expr = sp.S.One


def check(plan: MegatronNumbers, where: str) -> None:
    """Raises DefinitionError if the constructor of the scheduler would refuse the numbers."""
    kit.refuse_unless(plan.low >= 0, f"the minimum must be at least 0, got {plan.low}", where)
    kit.refuse_unless(
        plan.peak >= plan.low,
        f"the minimum {plan.low} must not be above the peak {plan.peak}",
        where,
    )
    kit.refuse_unless(
        plan.first <= plan.peak,
        f"the first rate {plan.first} must not be above the peak {plan.peak}",
        where,
    )
    kit.refuse_unless(plan.total > 0, f"the horizon must be above 0, got {plan.total}", where)
    kit.refuse_unless(
        plan.warmup < plan.total,
        f"the warmup {plan.warmup} must be shorter than the horizon {plan.total}",
        where,
    )
    kit.refuse_unless(
        plan.style != "WSD" or plan.tail is not None, "WSD needs the length of its decay", where
    )


def learning_rate(plan: MegatronNumbers) -> Schedule:
    """Returns the learning rate of a plan that is checked."""
    numbers = {field.name: getattr(plan, field.name) for field in fields(plan)}
    return kit.curve(plan.style, curves.learning_rate, t * plan.per_update, **numbers)


def weight_decay(
    style: str, first: sp.Expr, last: sp.Expr, total: sp.Expr, per_update: sp.Expr
) -> Schedule:
    """Returns the weight decay of a style: constant, linear or cosine, ``last`` after ``total``."""
    numbers = {"style": style, "first": first, "last": last, "total": total}
    return kit.curve(style, curves.weight_decay, t * per_update, **numbers)


@dataclass(frozen=True, slots=True)
class _Lengths:
    """Lengths in samples."""

    batch: sp.Expr
    run: sp.Expr
    decay: sp.Expr
    warmup: sp.Expr
    tail: sp.Expr | None


def _lengths(flags: Flags, context: kit.Context) -> _Lengths:
    size = flags.global_batch_size
    facts = context.numbers if size is None else kit.Facts(global_batch_size=size)
    batch = CLOCK.per_update(facts)
    if (flags.train_iters is None) == (flags.train_samples is None):
        raise flags.error("exactly one of --train-iters and --train-samples must be given")
    by_unit = {
        "iters": (
            flags.train_iters,
            flags.lr_decay_iters,
            flags.lr_warmup_iters,
            flags.lr_wsd_decay_iters,
        ),
        "samples": (
            flags.train_samples,
            flags.lr_decay_samples,
            flags.lr_warmup_samples,
            flags.lr_wsd_decay_samples,
        ),
    }
    # Iterations and samples exclude each other in Megatron's arguments.py.
    unit, absent = by_unit if flags.train_samples is None else reversed(by_unit)
    if by_unit[absent][1] is not None or by_unit[absent][2]:
        raise flags.error(f"a run in {unit} must have its decay and warmup in {unit}")
    factor = batch if unit == "iters" else sp.S.One
    total, length, rise, last = by_unit[unit]
    run = total * factor
    decay = run if length is None else length * factor
    warmup = rise * factor
    part = flags.lr_warmup_fraction
    if part is not None:
        if warmup != 0:
            raise flags.error(
                f"only one of --lr-warmup-fraction and --lr-warmup-{unit} may be given"
            )
        # The warmup is not rounded to whole updates. A product that is whole in floats counts as it
        # is: the update at its end is in the warmup. Otherwise that update has the peak either way.
        in_floats = float(part) * float(decay)
        warmup = sp.Integer(int(in_floats)) if in_floats.is_integer() else part * decay
    return _Lengths(batch, run, decay, warmup, None if last is None else last * factor)


def rate(context: kit.Context, flags: Flags) -> Schedule:
    """Returns the learning rate; the fact ``param_group`` may have ``max_lr`` and ``min_lr``."""
    lengths = _lengths(flags, context)
    if flags.lr is None:
        raise flags.error("lr is missing", "lr")

    def plan(highest: sp.Expr, lowest: sp.Expr) -> MegatronNumbers:
        return MegatronNumbers(
            flags.lr_decay_style,
            highest,
            lowest,
            flags.lr_warmup_init,
            lengths.warmup,
            lengths.decay,
            lengths.tail,
            flags.lr_wsd_decay_style,
            lengths.batch,
        )

    # The flags are checked, not the group: a group's rates are taken as they are.
    check(plan(flags.lr, flags.min_lr), context.where)
    group = context.facts.get("param_group", {})
    peak, low = group.get("max_lr", flags.lr), group.get("min_lr", flags.min_lr)
    return learning_rate(plan(exact_number(peak), exact_number(low)))


def decay(context: kit.Context, flags: Flags) -> Schedule:
    """Returns the weight decay; the fact ``param_group`` may have its ends and ``wd_mult``."""
    style = flags.weight_decay_incr_style
    lengths = _lengths(flags, context)
    first, last = flags.start_weight_decay, flags.end_weight_decay
    if style == "constant":
        if first is not None or last is not None:
            raise flags.error(
                "a constant weight decay takes no --start-weight-decay and --end-weight-decay"
            )
        first = last = flags.weight_decay
    if first is None or last is None:
        raise flags.error(
            f"a {style} weight decay needs --start-weight-decay and --end-weight-decay"
        )
    if not 0 <= first <= last:
        raise flags.error(f"the weight decay must not fall or be negative, got {first} to {last}")
    group = context.facts.get("param_group", {})
    first, last = (exact_number(group.get(*end)) for end in (("start_wd", first), ("end_wd", last)))
    schedule = weight_decay(style, first, last, lengths.run, lengths.batch)
    return schedule.scale(exact_number(group.get("wd_mult", 1)))


SCHEDULES = {
    **kit.section_entries(
        dict.fromkeys(STYLES, rate),
        {"": Flags},
        lambda flags: str(flags.lr_decay_style),
        DEFECTS,
    ),
    **kit.section_entries(
        {f"wd-{name}": decay for name in WEIGHT_DECAY_STYLES},
        {"": Flags},
        lambda flags: f"wd-{flags.weight_decay_incr_style}",
        DEFECTS,
    ),
}

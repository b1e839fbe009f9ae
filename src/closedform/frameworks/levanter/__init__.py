"""levanter: its ``optimizer`` section, a warmup, cycles of a stable phase and a decay, a cooldown.

The configs are YAML; their lengths up to 1 are parts of the run.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass
from itertools import accumulate, pairwise
from types import new_class
from typing import Any

import sympy as sp

from closedform.language import Schedule, t
from closedform.recipes import kit
from closedform.schedules import constant
from closedform.schedules.blends import along_cosine, along_line

CLOCK = kit.Clock(kit.Unit.UPDATE)


class Shape(kit.Section):
    type: str


class Cosine(Shape):
    exponent: kit.Number = 1


class InvSqrt(Shape):
    timescale: kit.Number = 10_000


class Power(Shape):
    # a = 4.6 and b = -0.51 are the fit of "Power scheduler" (Shen et al. 2024,
    # arXiv:2408.13359), for all batch sizes and lengths.
    batch_size: kit.Number
    seq_length: kit.Number
    a: kit.Number = 4.6
    b: kit.Number = -0.51


_SHAPES: Mapping[str, type[Shape]] = {
    "constant": Shape,
    "cosine": Cosine,
    "linear": Shape,
    "inv_sqrt": InvSqrt,
    "inv": Shape,
    "power": Power,
}


def _or_list(key: kit.Key) -> Any:
    """A key that holds a value as ``key`` reads it, or a list of whole numbers."""

    def read(place: kit.RawSection, name: str, default: Any) -> Any:
        is_list = isinstance(place.value(name), list | tuple)
        return (kit.integers() if is_list else key).read(place, name, default)

    return kit.read_by(read, key.default)


class Rate(kit.Section):
    learning_rate: kit.Rate = 6e-4
    min_lr_ratio: kit.RateRatio = 0.1
    warmup: kit.Number = 0.01
    # None for decay: the whole rest of the cycle.
    decay: kit.Number | None = None
    rewarmup: kit.Number = 0
    cooldown: kit.Number | None = None
    cycle_length: kit.Number | tuple[int, ...] | None = _or_list(kit.number(None))
    cycles: int | tuple[int, ...] | None = _or_list(kit.integer(None))
    lr_schedule: Shape = kit.variants(_SHAPES, "cosine")


class Optimizer(Rate, irrelevant="weight_decay_modules default_weight_decay_mask"):
    type: str = "adam"
    weight_decay: kit.WeightDecay = 0.1
    haps: Any = None


class _Clipped(Optimizer):
    # sophia-h clips entries by clip_threshold instead of the norm.
    max_grad_norm: kit.Norm = 1


class _Undecayed(_Clipped):
    # OptimizerConfig of levanter has 0; its other classes, such as AdamConfig, declare 0.1.
    weight_decay: kit.WeightDecay = 0


class _Lion(_Clipped, irrelevant="epsilon"):
    beta1: kit.Momentum = 0.9
    beta2: kit.Momentum = 0.95


class _Adam(_Lion, irrelevant="nesterov update_rms_clipping clip_update_norm adamc_weight_decay"):
    epsilon: kit.Epsilon = 1e-8
    skip_bad_steps: Any = False


class _Mini(_Undecayed, irrelevant="lr"):
    pass


class _Muon(_Mini):
    adam_lr: kit.Rate = 6e-4


class _Scion(_Mini):
    scion_to_signum_lr: kit.Rate = 0.25


_ARGUMENTS: Mapping[str, str] = {
    "adam": "",
    "adopt": "beta1 beta2 epsilon schedule_list",
    "cautious": "beta1 beta2 epsilon gamma adamc_weight_decay",
    "kron": "beta1 normalize_grads preconditioner_update_probability "
    "update_prob_flat_start max_size_triangular min_ndim_triangular "
    "memory_save_mode preconditioner_lr preconditioner_init_scale mu_dtype "
    "precond_dtype precond_update_precision precond_grads_precision "
    "lax_map_scanned_layers lax_map_batch_size params_sharding "
    "preconditioner_sharding merge_small_dims target_merged_dim_size "
    "partition_grads_into_blocks block_size",
    "lion": "",
    "mars": "beta1 beta2 epsilon gamma",
    "mini": "beta1 beta2 epsilon nesterov",
    "muon": "beta1 beta2 epsilon momentum nesterov backend_steps muon_epsilon use_kimi_scaling",
    "rmsprop": "beta1 beta2 eps",
    "scion": "momentum backend_steps beta1 scion_epsilon",
    "soap": "beta1 beta2 epsilon shampoo_beta schedule_list precondition_frequency "
    "max_precond_dim one_diag mu_dtype precond_dtype merge_small_dims "
    "target_merged_dim_size partition_grads_into_blocks block_size",
    "sophia-h": "beta1 beta2 epsilon clip_threshold rng_seed gamma update_interval",
}
"""The optimizers, and the options that are passed on to their rules."""
_BASES: Mapping[str, type[Optimizer]] = {
    "adam": _Adam,
    "lion": _Lion,
    "mini": _Mini,
    "muon": _Muon,
    "scion": _Scion,
    "soap": _Undecayed,
    "sophia-h": Optimizer,
}
_SECOND = {"muon": ("adam_lr", "adamw"), "scion": ("scion_to_signum_lr", "signum")}
"""Optimizers with a second group: the option of its rate, and the name of the group."""


def _optimizer_class(kind: str) -> type[Optimizer]:
    options = {"irrelevant": _ARGUMENTS[kind]}
    return new_class(kind, (_BASES.get(kind, _Clipped),), options)


class Trainer(kit.OpenSection):
    num_train_steps: kit.Steps | None = None


class Config(kit.OpenSection):
    optimizer: Optimizer = kit.variants(
        {kind: _optimizer_class(kind) for kind in _ARGUMENTS}, "adam"
    )
    trainer: Trainer


@dataclass(frozen=True, slots=True)
class Span:
    """A decay of the rate.

    Attributes:
        shape: The options of its shape.
        peak: The rate before it.
        low: The least rate.
        warmup: The updates of the warmup before it.
        length: Its updates.
    """

    shape: Any
    peak: sp.Expr
    low: sp.Expr
    warmup: kit.Steps
    length: int


def _cosine(span: Span, j: sp.Expr) -> sp.Expr:
    if span.length <= 0:
        raise kit.UndefinedError(f"the cosine needs a decay above 0 updates, got {span.length}")
    # A peak of 0 has the constant 0: the ratio would be 0/0.
    ratio = span.low / span.peak if span.peak else sp.S.Zero
    # optax.cosine_decay_schedule: the exponent is on the cosine, before the minimum is mixed in.
    wave = along_cosine(sp.S.One, sp.S.Zero, sp.Min(1, j / span.length)) ** span.shape.exponent
    return span.peak * along_line(ratio, sp.S.One, wave)


def _line(span: Span, j: sp.Expr) -> sp.Expr:
    if span.length <= 0:
        # A decay of no updates is dropped by optax, whose linear_schedule with 0 steps is constant
        # at its first value.
        return span.peak
    return along_line(span.peak, span.low, sp.Min(1, j / span.length))


def _inverse_root(span: Span, j: sp.Expr) -> sp.Expr:
    # The updates of the warmup count; timescale is 10,000 whatever the warmup is (config.py:68).
    # max(·, 1): the sum is 0 at the first update of a run without a warmup.
    root = sp.sqrt(span.shape.timescale) / sp.sqrt(sp.Max(j + span.warmup, 1))
    return sp.Max(span.low, span.peak * sp.Min(1, root))


def _inverse(span: Span, j: sp.Expr) -> sp.Expr:
    if span.low == 0:
        raise kit.UndefinedError("division by zero")
    if span.length == 0:
        return span.low
    # max(j, 1): the first update of the decay is below the peak already.
    # p / ((p/m - 1) j/D + 1) is m at j = D, so that no minimum is needed there; it holds after D.
    part = sp.Min(1, 1 / ((span.peak / span.low - 1) * sp.Max(j, 1) / span.length + 1))
    return sp.Max(span.low, span.peak * part)


def _power(span: Span, j: sp.Expr) -> sp.Expr:
    shape = span.shape
    if not shape.a > 0 > shape.b:
        raise kit.UndefinedError("power expects a > 0 and b < 0")
    # Tokens count from the start of the decay, not of the run.
    tokens = j * shape.batch_size * shape.seq_length
    if tokens == 0:
        # tokens is symbolic in t except where the next warmup asks for the value at the end of the
        # decay.
        raise kit.UndefinedError("ZeroDivisionError: 0 to a negative power")
    # At 0 tokens the power is infinite, and the rate is the peak.
    rate = sp.Min(span.peak, shape.batch_size * shape.a * sp.Max(tokens, 1) ** shape.b)
    return sp.Piecewise((span.peak, sp.Le(tokens, 0)), (rate, True))


_DECAYS: Mapping[str, Callable[[Span, sp.Expr], sp.Expr]] = {
    "constant": lambda span, j: span.peak,
    "cosine": _cosine,
    "linear": _line,
    "inv_sqrt": _inverse_root,
    "inv": _inverse,
    "power": _power,
}
"""From a decay and the updates since its start to the rate."""


def _length(optimizer: Rate, key: str, total: int) -> int:
    """A part of a length up to 1, or a whole number of updates."""
    length = getattr(optimizer, key)
    if length < 0 or (length > 1 and not length.is_Integer):
        message = f"{key} must be a fraction in [0, 1] or a whole number of updates, got {length}"
        raise optimizer.error(message, key)
    # Upstream takes int() of a product of floats.
    # 1 is a fraction, too: a warmup of one update cannot be asked for.
    return int(float(length) * total) if length <= 1 else int(length)


def _points(optimizer: Rate, total: int) -> list[int]:
    """The ends of the cycles, from 0 on."""
    length, cycles = optimizer.cycle_length, optimizer.cycles
    if length is not None and cycles is not None:
        raise optimizer.error("only one of cycle_length and cycles may be given", "cycles")
    if isinstance(length, tuple):
        points = list(accumulate(length))
        if points and points[-1] > total:
            raise optimizer.error(f"the cycles exceed {total} updates", "cycle_length")
    elif length is not None:
        period = _length(optimizer, "cycle_length", total)
        if period == 0:
            raise optimizer.error("cycle_length is 0: division by zero", "cycle_length")
        # The last cycle takes the updates that do not fill another one.
        points = [index * period for index in range(1, total // period)]
    elif isinstance(cycles, int):
        # int() of total / cycles·i, as upstream: points of 3 cycles in 100 updates are 33 and 66.
        points = [int(total / cycles * (index + 1)) for index in range(cycles - 1)]
    else:
        points = list(cycles or ())
    points = [0, *points]
    return points if points[-1] == total else [*points, total]


def _rate(context: kit.Context, optimizer: Rate) -> Schedule:
    (run,) = context.numbers.require("total_updates", where=context.where)
    if not run.is_Integer:
        raise optimizer.error(f"num_train_steps must be an integer, got {run}")
    shape, peak = optimizer.lr_schedule, optimizer.learning_rate
    low = peak * optimizer.min_lr_ratio
    cooldown = 0 if optimizer.cooldown is None else _length(optimizer, "cooldown", int(run))
    # The cooldown is a part of the whole run, and the cycles share the rest.
    main = int(run) - cooldown
    if main <= 0:
        raise optimizer.error(f"the run must be longer than {cooldown} updates, got {run}")
    stages: list[kit.Stage] = []
    before = sp.S.Zero
    for cycle, (start, end) in enumerate(pairwise(_points(optimizer, main))):
        # Fractions are of the cycle; a warmup of 1 is the whole of it.
        warmup = _length(optimizer, "rewarmup" if cycle else "warmup", end - start)
        rest = end - start - warmup
        decay = rest if optimizer.decay is None else _length(optimizer, "decay", end - start)
        begin = end - decay
        # optax.linear_schedule with 0 updates would be constant at its start; upstream leaves the
        # stage out.
        if warmup != 0:
            stages.append((_rise(before, peak, start, warmup), start + warmup))
        # A stable phase only where warmup and decay leave one.
        if rest != decay:
            stages.append((peak, begin))
        span = Span(shape, peak, low, warmup, decay)
        stages.append((_fall(span, begin), end))
        try:
            # The next warmup begins at the last rate of this decay.
            before = _DECAYS[shape.type](span, sp.Integer(decay))
        except kit.UndefinedError as error:
            raise optimizer.error(str(error), "lr_schedule") from error
    if cooldown:
        stages.append((_rise(before, low, main, cooldown), None))
    else:
        # The last stage goes on past the run.
        stages[-1] = (stages[-1][0], None)
    return kit.by_intervals(shape.type, *_join_stages(stages))


def _join_stages(stages: list[kit.Stage]) -> list[kit.Stage]:
    """The stages as optax joins them: the last one whose boundary is reached decides."""
    ends = [end for _, end in stages]
    # Where a warmup and a decay together exceed their cycle, a later boundary comes first: the
    # minimum of the boundaries that follow is where optax.join_schedules switches.
    return [
        (value, min((later for later in ends[index:] if later is not None), default=None))
        for index, (value, _) in enumerate(stages)
    ]


def _fall(span: Span, begin: int) -> kit.LazyNumber:
    return lambda: _DECAYS[span.shape.type](span, t - begin)


def _rise(first: sp.Expr, last: sp.Expr, begin: int, length: int) -> kit.LazyNumber:
    return lambda: along_line(first, last, sp.Min(1, (t - begin) / sp.Integer(length)))


DEFECTS: Mapping[str, kit.Note[[Rate]]] = {
    "lr-ignored": kit.Defect(
        "the option lr has no effect: learning_rate counts",
        "src/levanter/optim/muon.py:33",
        lambda optimizer: "lr" in optimizer,
    ),
    "one-is-the-whole-run": kit.Convention(
        "a warmup of 1 is the whole run",
        "src/levanter/optim/config.py:390",
        lambda optimizer: optimizer.warmup == 1,
    ),
    "inv-below-peak": kit.Convention(
        "the first update of the decay is below the peak",
        "src/levanter/optim/config.py:380",
        lambda optimizer: optimizer.lr_schedule.type == "inv",
        classes=("inv",),
    ),
    "timescale": kit.Convention(
        "the timescale of inv_sqrt is 10000, whatever the warmup is",
        "src/levanter/optim/config.py:68",
        lambda optimizer: (
            optimizer.lr_schedule.type == "inv_sqrt" and "timescale" not in optimizer.lr_schedule
        ),
        classes=("inv_sqrt",),
    ),
    "default-mask": kit.Convention(
        "without weight_decay_modules, norms, embeddings and biases are not decayed",
        "src/levanter/optim/config.py:148",
        lambda optimizer: (
            bool(getattr(optimizer, "weight_decay", 0))
            and "weight_decay_modules" not in optimizer
            and optimizer.origin.content.get("default_weight_decay_mask") is not False
        ),
        classes=(),
    ),
    "skips-bad-steps": kit.Convention(
        "updates with a large loss or gradient are skipped, and count as updates",
        "src/levanter/optim/config.py:489",
        lambda optimizer: bool(getattr(optimizer, "skip_bad_steps", False)),
    ),
}


def _matches(document: kit.Document) -> bool:
    trainer, optimizer = (document.content.get(key) for key in ("trainer", "optimizer"))
    if not isinstance(optimizer, Mapping) or not isinstance(trainer, Mapping):
        return False
    return "num_train_steps" in trainer


def _read(reading: kit.Reading) -> kit.Recipe:
    config = Config.read_whole(reading.document)
    optimizer = config.optimizer
    if "haps" in optimizer:
        raise optimizer.error("haps is not read", "haps", hint="write cycles")
    total = reading.value_or_fact(config.trainer.num_train_steps, "total_updates")
    context = reading.context.with_facts(total_updates=total)
    decay = constant(optimizer.weight_decay)
    with optimizer.origin.locate_errors():
        rate = _rate(context, optimizer)
    schedules = {"lr": rate, "weight_decay": decay}
    groups = [kit.ParamGroup(schedules, _plan(optimizer), kit.Role.DEFAULT)]
    if optimizer.type in _SECOND:
        option, name = _SECOND[optimizer.type]
        place = optimizer.origin.document.place(optimizer.origin.path)
        with optimizer.origin.locate_errors():
            rate = _rate(context, optimizer.replace(learning_rate=getattr(optimizer, option)))
        schedules = {"lr": rate, "weight_decay": decay}
        groups.append(
            kit.ParamGroup(
                schedules,
                kit.plan_optimizer(name, {}, where=place, by_name=False),
                kit.Role.NAMED,
                name,
            )
        )
    threshold = optimizer.max_grad_norm if isinstance(optimizer, _Clipped) else 0
    if optimizer.origin.content.get("max_grad_norm", threshold) is None:
        threshold = 0  # An explicit null disables clipping; an absent key has the default.
    return reading.recipe(
        groups,
        horizon=total,
        clipping=kit.Clipping(threshold) if threshold else None,
        accumulation=None,  # levanter derives it from the memory of the devices.
        values=(optimizer,),
        derived={"lr": optimizer.learning_rate, "total_updates": total},
    )


def _plan(optimizer: Optimizer) -> kit.OptimizerPlan:
    kind, origin = optimizer.type, optimizer.origin
    place = origin.document.place(origin.path)
    # Arguments of the other optimizers, several of which the library does not have, are kept.
    if not isinstance(optimizer, _Lion):
        allowed = _ARGUMENTS[kind].split()
        options = {key: origin.content[key] for key in origin.content if key in allowed}
        # Levanter's own steps, which were not compared with the rules of these names.
        return kit.plan_optimizer(kind, options, where=place, by_name=False)
    arguments: dict[str, Any] = {"betas": (optimizer.beta1, optimizer.beta2)}
    if isinstance(optimizer, _Adam):
        arguments["eps"] = optimizer.epsilon
    return kit.plan_optimizer("adamw" if kind == "adam" else kind, arguments, where=place)


_WRITTEN = {
    kit.CurveName.LINEAR: "linear",
    kit.CurveName.COSINE: "cosine",
    kit.CurveName.CONSTANT: "constant",
}


def _length_entry(updates: int, total: int) -> Any:
    """A length in updates; 1 would be the whole run, and is written as a part of it."""
    # 1.5 / total: int() of the product is 1, with room for rounding.
    return updates if updates != 1 or total == 1 else 1.5 / total


def _configs(form: kit.WarmupDecayForm, optimizer: kit.Optimizer) -> Iterator[kit.Config]:
    beta1, beta2 = optimizer.betas() or [0.9, 0.95]
    options: dict[str, Any] = {
        "type": optimizer.argument("lion" if optimizer.name == "lion" else "adam"),
        "learning_rate": kit.native(form.peak),
        "weight_decay": kit.native(optimizer.weight_decay or 0),
        "beta1": beta1,
        "beta2": beta2,
        "max_grad_norm": kit.native(optimizer.clipping or 0),
    }
    if optimizer.custom is not None:
        options = {
            key: options[key] for key in ("type", "learning_rate", "weight_decay")
        } | optimizer.arguments()
    elif optimizer.name != "lion":
        options["epsilon"] = kit.native(optimizer.values.get("eps", 1e-8))
    for curve, total in _sections(form):
        yield {"optimizer": {**options, **curve}, "trainer": {"num_train_steps": total}}


def _sections(form: kit.WarmupDecayForm) -> Iterator[tuple[dict[str, Any], int]]:
    warmup = kit.nearest_integer(form.warmup())
    total = form.total
    curve: dict[str, Any] = {
        "warmup": _length_entry(warmup, total),
        "min_lr_ratio": form.low_ratio,
    }
    if form.curve in _WRITTEN:
        curve["lr_schedule"] = _WRITTEN[form.curve]
        if form.curve is kit.CurveName.CONSTANT:
            yield curve, total
            return
        if form.curve is kit.CurveName.LINEAR and form.low == 0 and form.has_plateau:
            yield (
                {
                    **curve,
                    "lr_schedule": "constant",
                    "cooldown": total - kit.nearest_integer(form.begin),
                },
                total,
            )
        decay = kit.nearest_integer(form.end - form.begin)
        if kit.nearest_integer(form.end) != total and not form.has_plateau:
            # The decay ends before the run, and the rate stays at its minimum.
            yield {**curve, "decay": _length_entry(decay, total)}, total
            yield curve, kit.nearest_integer(form.end)
            return
        yield {**curve, "decay": _length_entry(decay, total)} if form.has_plateau else curve, total
    elif form.curve is kit.CurveName.INVERSE_ROOT and form.begin == 0:
        shape = {"type": "inv_sqrt", "timescale": kit.native(form.end)}
        # The floor may be the minimum of the curve, or its value after the end.
        for low in (form.low, form.after or form.low):
            curve["min_lr_ratio"] = kit.native(low / form.peak)
            yield {**curve, "lr_schedule": shape}, total


FRAMEWORK = kit.Framework(
    "levanter",
    kit.section_entries(
        dict.fromkeys(_DECAYS, _rate),
        {"optimizer": Rate},
        style=lambda optimizer: str(optimizer.lr_schedule.type),
        defects=DEFECTS,
    ),
    versions=("9263f81e8b45",),
    repository="https://github.com/stanford-crfm/levanter",
    tier=kit.Tier.FROZEN,
    upstream="src/levanter/optim/config.py",
    clock=CLOCK,
    defects=DEFECTS,
    reader=kit.Reader(_read, _matches),
    writer=kit.Writer(".yaml", _configs, {}, ("adamw", "lion")),
)

"""lingua: the multipliers of its learning rate, and the YAML configs of its apps."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping
from fractions import Fraction

import sympy as sp

from closedform.language import Schedule, floor_div, t
from closedform.recipes import kit
from closedform.schedules import constant
from closedform.schedules.blends import along_cosine, along_line

CLOCK = kit.Clock(kit.Unit.UPDATE)

KINDS = ("constant", "linear", "inv_sqrt", "cosine", "wsd")


class Optim(kit.Section, irrelevant="annealing_step"):
    lr: kit.Rate = 3e-4
    weight_decay: kit.WeightDecay = 0.1
    epsilon: kit.Epsilon = 1e-8
    beta1: kit.Momentum = 0.9
    beta2: kit.Momentum = 0.95
    clip: kit.Norm = 1
    scheduler: str = kit.choice(*KINDS, default="cosine")
    warmup: kit.Steps = 2000
    lr_min_ratio: kit.RateRatio = 0.1
    cycle_length: kit.Number = 1
    cosine_theta: kit.Number = 1
    decay_fraction: kit.RunRatio = 0.1
    exp_factor: kit.Number = 0.5


class Config(kit.OpenSection):
    optim: Optim
    steps: kit.Steps = kit.integer(1000, may_be_open=True)
    grad_acc_steps: kit.Accumulation = 1


class Arguments(kit.OpenSection):
    optim: Optim
    steps: kit.Steps


DEFECTS: Mapping[str, kit.Note[[Config]]] = {
    "warmup-of-constant": kit.Defect(
        "constant ignores the warmup, which is 2000 by default",
        "lingua/optim.py:113",
        lambda config: config.optim.scheduler == "constant" and config.optim.warmup > 0,
        documented="the rate after a warmup from 0",
        classes=("constant",),
    ),
    "mirrored-cycles": kit.Convention(
        "every other cycle of a cosine is a mirror image, and the rate jumps if the length of the "
        "cycle does not divide the run",
        "lingua/optim.py:61",
        lambda config: config.optim.scheduler == "cosine" and config.optim.cycle_length < 1,
        classes=("cosine",),
    ),
    "growing-decays": kit.Convention(
        "the decay of a cycle is a part of all updates up to its end: later decays are longer",
        "lingua/optim.py:87",
        lambda config: config.optim.scheduler == "wsd" and config.optim.cycle_length < 1,
        classes=("wsd",),
    ),
}


def _linear(optim: Optim, total: int) -> Iterator[kit.Stage]:
    position, length = t - optim.warmup, sp.Integer(total - optim.warmup)
    low = optim.lr_min_ratio
    # Update T is on the line still: upstream tests t > T.
    yield lambda: along_line(sp.S.One, low, kit.quotient(position, length)), total + 1
    yield lambda: low, None


def _inverse_root(optim: Optim, total: int) -> Iterator[kit.Stage]:
    del total
    warmup, power = sp.Integer(optim.warmup), optim.exp_factor

    def value() -> sp.Expr:
        if warmup == 0:
            raise kit.UndefinedError("0 is divided by 0")
        # (W / t)^e as a quotient of powers, which is exact at t = W.
        return sp.Max(warmup**power / t**power, optim.lr_min_ratio)

    yield value, None


def _cosine(optim: Optim, total: int) -> Iterator[kit.Stage]:
    cycle, low = optim.cycle_length, optim.lr_min_ratio
    kit.refuse_unless(cycle > 0, f"cycle_length must be above 0, got {cycle}", "cosine")
    # The framework divides the update by this product of floats, which may not be whole.
    period = Fraction(total * float(cycle))
    length, position = sp.Integer(total - optim.warmup), t - optim.warmup

    def wave(first: sp.Expr, last: sp.Expr) -> kit.LazyNumber:
        return lambda: along_cosine(
            first, last, kit.power_quotient(position, length, optim.cosine_theta) / cycle
        )

    edges = [kit.first_from(number * period) for number in range(1, int(total / period) + 1)]
    # The sign of the cosine is the parity of t // (T c): every other cycle is a mirror image.
    for parity, end in enumerate([*edges, total + 1]):
        yield wave(*((sp.S.One, low) if parity % 2 == 0 else (low, sp.S.One))), end
    yield lambda: low, None


def _wsd(optim: Optim, total: int) -> Iterator[kit.Stage]:
    part, cycle, low = optim.decay_fraction, optim.cycle_length, optim.lr_min_ratio
    kit.refuse_unless(part < cycle, f"decay_fraction must be below cycle_length, got {part}", "wsd")
    length = int(total * float(cycle))
    kit.refuse_unless(length > 0, f"a cycle must have an update, got {cycle} of {total}", "wsd")

    def decay_value(end: sp.Expr, decay: sp.Expr) -> sp.Expr:
        if low == 0:
            raise kit.UndefinedError("the minimum is 0, and divides 1")
        progress = (t - end + decay) / decay
        # lingua/optim.py: 1 / (q / r + 1 - q), the reciprocal of a line.
        return 1 / along_line(sp.S.One, 1 / low, progress)

    def of_cycle(end: int, decay: int) -> kit.LazyNumber:
        return lambda: decay_value(sp.Integer(end), sp.Integer(decay))

    def cycles(first: int, last: int, run_end: int) -> Iterator[kit.Stage]:
        for end in range(first, last + length, length):
            # A part of all updates up to the end of the cycle, so that later decays are longer.
            decay = int(end * float(part))
            yield lambda: sp.S.One, min(end - decay + 1, end, run_end)
            yield of_cycle(end, decay), min(end, run_end)

    def of_any_cycle() -> sp.Expr:
        end = length * (floor_div(t, sp.Integer(length)) + 1)
        decay = floor_div(end * part.p, sp.Integer(part.q))
        decreasing = decay_value(end, sp.Max(1, decay))
        return sp.Piecewise((sp.S.One, t <= end - decay), (decreasing, True))

    # The lengths of the decays are rounded in floats, cycle by cycle up to three times the run.
    yield from cycles(length, total, total)
    following = (total // length + 1) * length
    decay = int(following * float(part))
    yield (lambda: sp.S.One) if decay == 0 else of_cycle(total, decay), total + 1
    yield from cycles(following, 3 * total, 3 * total + length)
    yield of_any_cycle, None


_CURVES: Mapping[str, Callable[[Optim, int], Iterator[kit.Stage]]] = {
    "linear": _linear,
    "inv_sqrt": _inverse_root,
    "cosine": _cosine,
    "wsd": _wsd,
}


def _rate(context: kit.Context, optim: Optim, total: int) -> Schedule:
    kind, rate, warmup = optim.scheduler, optim.lr, optim.warmup
    # From 0 at update 0 up to, not including, update W.
    rise = (lambda: rate * t / sp.Integer(warmup), warmup)
    if kind == "constant":
        stages = () if context.as_implemented else (rise,)
        return kit.by_intervals(kind, *stages, (rate, None))

    def times_rate(value: kit.LazyNumber) -> kit.LazyNumber:
        return lambda: rate * value()

    decay = ((times_rate(value), end) for value, end in _CURVES[kind](optim, total))
    return kit.by_intervals(kind, rise, *decay)


def _of_class(context: kit.Context, config: Config) -> Schedule:
    return _rate(context, config.optim, config.steps)


def _matches(document: kit.Document) -> bool:
    optim = document.content.get("optim")
    return (
        isinstance(optim, dict)
        and "lr" in optim
        and set(optim) <= set(Optim.keys)
        and ("steps" in document.content or not {"warmup", "lr_min_ratio"}.isdisjoint(optim))
    )


def _read(reading: kit.Reading) -> kit.Recipe:
    config = Config.read_whole(reading.document)
    optim = config.optim
    total = config.steps
    if "steps" not in config:
        total = reading.facts.framework_facts.get("steps", reading.facts.total_updates or total)
    with optim.origin.locate_errors():
        rate = _rate(reading.context, optim, total)
    arguments = {"betas": (optim.beta1, optim.beta2), "eps": optim.epsilon}
    plan = kit.plan_optimizer("AdamW", arguments, where=config.origin.document.place("optim"))
    schedules = {"lr": rate, "weight_decay": constant(optim.weight_decay)}
    return reading.recipe(
        [kit.ParamGroup(schedules, plan, kit.Role.DEFAULT)],
        horizon=total,
        clipping=kit.Clipping(optim.clip),
        accumulation=config.grad_acc_steps,
        values=(config,),
        derived={"total_updates": total},
    )


FRAMEWORK = kit.Framework(
    "lingua",
    kit.section_entries(
        dict.fromkeys(KINDS, _of_class),
        {"": Arguments},
        style=lambda config: str(config.optim.scheduler),
        defects=DEFECTS,
    ),
    versions=("437d680e5218",),
    repository="https://github.com/facebookresearch/lingua",
    upstream="lingua/optim.py",
    clock=CLOCK,
    defects=DEFECTS,
    reader=kit.Reader(_read, _matches),
    facts=("steps",),
)

"""The reader of PaddleClas' YAML configs, whose schedules are classes of ``paddle.optimizer.lr``.

``Optimizer`` and ``Global.epochs`` are read. The lengths are epochs; the fact ``updates_per_epoch``
makes updates of them. With ``by_epoch`` the scheduler is stepped after each epoch.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any, Literal

from closedform.errors import nearest
from closedform.frameworks.paddle.schedules import SCHEDULES
from closedform.language import Schedule, floor_div, t
from closedform.recipes import kit
from closedform.schedules import constant

NEWEST = "3.3.1"
BEFORE_BASE = "37f9b41baa5a"
"""A commit of PaddleClas before its rates had a base class; the newest read is 0776f1c70030."""
CLOCK, EPOCHS = kit.Clock(kit.Unit.UPDATE), kit.Clock(kit.Unit.EPOCH)


class Rate(kit.Section, irrelevant="last_epoch verbose"):
    name: str | None = None
    warmup_epoch: kit.RealEpochs = 0
    warmup_start_lr: kit.StartRate = 0.0
    by_epoch: bool = False


class Fixed(kit.Section):
    learning_rate: kit.Rate


class Constant(Rate):
    learning_rate: kit.Rate


class Linear(Constant):
    end_lr: kit.EndRate = 0.0
    power: kit.Power = 1.0
    cycle: bool = False


class Cosine(Constant):
    eta_min: kit.EndRate = 0.0


class Step(Constant):
    step_size: int
    gamma: kit.Number


class Piecewise(Rate, irrelevant="learning_rate"):
    decay_epochs: kit.Numbers
    values: kit.Numbers


class MultiStepDecay(Constant):
    milestones: kit.Numbers
    gamma: kit.Number = 0.1


RATES: Mapping[str, type[Constant] | type[Piecewise]] = {
    "Constant": Constant,
    "Linear": Linear,
    "Cosine": Cosine,
    "Step": Step,
    "Piecewise": Piecewise,
    "MultiStepDecay": MultiStepDecay,
}
"""The rates; that of ``Piecewise`` comes from its values."""


class Regularizer(kit.Section):
    name: Literal["L2"] = "L2"
    coeff: kit.Number = 0.0


class _Common(kit.Section, irrelevant="multi_precision"):
    name: str
    lr: Any = None
    regularizer: Regularizer
    weight_decay: kit.WeightDecay = 0.0
    clip_norm: kit.Norm | None = None


class _Spared(kit.Section):
    no_weight_decay_name: Any = ""


class _Adam(kit.Section):
    beta1: kit.Momentum = 0.9
    beta2: kit.Momentum = 0.999
    epsilon: kit.Epsilon = 1e-8


class Momentum(_Spared, _Common):
    momentum: kit.Momentum
    use_nesterov: bool = False


class Adam(_Adam, _Common):
    pass


class AdamW(_Adam, _Spared, _Common, irrelevant="one_dim_param_no_weight_decay"):
    pass


class RMSProp(_Common):
    momentum: kit.Momentum = 0.0
    rho: kit.Momentum = 0.95
    epsilon: kit.Epsilon = 1e-6


OPTIMIZERS: Mapping[str, type[_Common]] = {
    "Momentum": Momentum,
    "SGD": _Common,
    "Adam": Adam,
    "AdamW": AdamW,
    "RMSProp": RMSProp,
}


class _Global(kit.OpenSection):
    epochs: kit.Epochs
    update_freq: kit.Accumulation = 1


class Config(kit.OpenSection):
    Global: _Global
    Optimizer: Any = None


DEFECTS: Mapping[str, kit.Note[[Rate]]] = {
    "warmup-in-updates": kit.Defect(
        "without by_epoch the warmup of warmup_epoch epochs is as many updates",
        "ppcls/optimizer/learning_rate.py:59",
        lambda rate: rate.warmup_epoch > 0 and not rate.by_epoch and rate.name != "Linear",
        documented="a warmup of warmup_epoch epochs",
        versions=(NEWEST,),
    ),
    "warmup-scaled-twice": kit.Defect(
        "with by_epoch the warmup has as many epochs as warmup_epoch epochs have updates",
        "ppcls/optimizer/learning_rate.py:59",
        lambda rate: rate.warmup_epoch > 0 and rate.by_epoch,
        documented="a warmup of warmup_epoch epochs, one value in each",
        versions=(NEWEST,),
    ),
    "decay-starts-anew": kit.Convention(
        "after the warmup, the decay begins at its own start",
        "ppcls/optimizer/learning_rate.py:87",
        lambda rate: rate.warmup_epoch > 0,
        classes=("LinearWarmup",),
    ),
    "zero-at-update-0": kit.Convention(
        "update 0 has the rate 0",
        "paddle/optimizer/lr.py: NoamDecay.get_lr",
        classes=("NoamDecay",),
    ),
    "no-value-after-total-steps": kit.Convention(
        "OneCycleLR raises ValueError after total_steps",
        "paddle/optimizer/lr.py: OneCycleLR.get_lr",
        classes=("OneCycleLR",),
    ),
}


def matches(document: kit.Document) -> bool:
    """Returns whether a config has the sections of PaddleClas."""
    optimizer = document.content.get("Optimizer")
    return isinstance(optimizer, Mapping) and isinstance(optimizer.get("lr"), Mapping)


def read(reading: kit.Reading) -> kit.Recipe:
    """Returns the recipe of a config.

    Raises:
        ConfigError: A key or class is unknown, or a value is not valid.
        ArgumentError: The fact ``updates_per_epoch`` is missing.
    """
    config = Config.read_whole(reading.document)
    place = config.origin.section("Optimizer")
    name = place.text("name")
    if name not in OPTIMIZERS:
        raise place.error(
            f"PaddleClas has no optimizer {name!r}", "name", nearest(name, OPTIMIZERS)
        )
    optimizer, rate = OPTIMIZERS[name].read(place), _rate_of(place.section("lr"))
    (length,) = reading.facts.require("updates_per_epoch", where=reading.document.source)
    epochs, length = config.Global.epochs, int(length)
    if reading.version == BEFORE_BASE:
        rate = rate.replace(by_epoch=False, warmup_start_lr=0)
        rate = rate.replace(eta_min=0) if isinstance(rate, Cosine) else rate
    with rate.origin.locate_errors():
        schedule = _schedule(reading, rate, epochs, length)
    schedules = {"lr": schedule, "weight_decay": constant(_decay(optimizer))}
    groups = [kit.ParamGroup(schedules, _plan(name, optimizer), kit.Role.DEFAULT)]
    if isinstance(optimizer, _Spared) and "no_weight_decay_name" in optimizer:
        groups.append(groups[0].without_decay(str(optimizer.no_weight_decay_name).split()))
    threshold = optimizer.clip_norm
    return reading.recipe(
        groups,
        clock=EPOCHS if rate.by_epoch else CLOCK,
        horizon=epochs * length,
        clipping=None
        if threshold is None
        else kit.Clipping(threshold, kit.ClippingKind.PARAM_NORM),
        accumulation=config.Global.update_freq,
        values=(rate,),
    )


def _rate_of(place: kit.RawSection) -> Constant | Piecewise:
    """The values of a rate; a section without a name has a constant one."""
    if "name" not in place:
        Fixed.check(place)
    name = place.text("name", "Constant")
    if name not in RATES:
        raise place.error(f"PaddleClas has no rate {name!r}", "name", nearest(name, RATES))
    return RATES[name].read(place).replace(name=name)


def _schedule(
    reading: kit.Reading, rate: Constant | Piecewise, epochs: int, length: int
) -> Schedule:
    """The rate in updates."""
    is_new = reading.version != BEFORE_BASE
    # Lengths are computed in floats.
    warmup = min(float(rate.warmup_epoch), epochs) if is_new else float(rate.warmup_epoch)
    rest = epochs - warmup if is_new else epochs
    name, arguments, peak = _curve(rate, rest, 1 if rate.by_epoch else length)
    schedule = (
        constant(peak) if name is None else kit.class_schedule("paddle", SCHEDULES, name, arguments)
    )
    is_in_epochs = not is_new or rate.by_epoch or rate.name == "Linear"
    is_scaled = is_in_epochs or not reading.as_implemented
    # With by_epoch upstream makes updates of the epochs, and the scheduler counts them as epochs.
    is_in_steps = rate.by_epoch and not reading.as_implemented
    scale = 1 if is_in_steps else length
    steps = round(warmup * scale) if is_scaled else int(warmup)
    if steps > 0:
        arguments = {
            "learning_rate": peak if name is None else {"type": name, **arguments},
            "warmup_steps": steps,
            "start_lr": rate.warmup_start_lr,
            "end_lr": peak,
        }
        schedule = kit.class_schedule("paddle", SCHEDULES, "LinearWarmup", arguments)
    if rate.by_epoch:
        return Schedule(schedule.bound.xreplace({t: floor_div(t, length)}), name=schedule.name)
    return schedule


def _curve(
    rate: Constant | Piecewise, rest: float, steps_per_epoch: int
) -> tuple[str | None, dict[str, Any], Any]:
    """The class of paddle with its arguments, None for a constant rate, and the peak."""
    if isinstance(rate, Piecewise):
        marks = [int(float(mark) * steps_per_epoch) for mark in rate.decay_epochs]
        return "PiecewiseDecay", {"boundaries": marks, "values": rate.values}, rate.values[0]
    peak, duration = rate.learning_rate, int(rest * steps_per_epoch)
    common = {"learning_rate": peak}
    match rate:
        case Linear() if duration > 0:
            line = {"end_lr": rate.end_lr, "power": rate.power, "cycle": rate.cycle}
            return "PolynomialDecay", {**common, "decay_steps": duration, **line}, peak
        case Cosine() if duration > 0:
            wave = {"T_max": duration, "eta_min": rate.eta_min}
            return "CosineAnnealingDecay", {**common, **wave}, peak
        case Step():
            steps = {"step_size": rate.step_size * steps_per_epoch, "gamma": rate.gamma}
            return "StepDecay", {**common, **steps}, peak
        case MultiStepDecay():
            marks = [int(float(mark) * steps_per_epoch) for mark in rate.milestones]
            return "MultiStepDecay", {**common, "milestones": marks, "gamma": rate.gamma}, peak
        case _:
            return None, {}, peak


def _decay(optimizer: _Common) -> Any:
    """The weight decay: that of the regularizer goes before ``weight_decay``."""
    regularizer = optimizer.regularizer
    if not regularizer.origin.content:
        return optimizer.weight_decay
    regularizer.require("name")
    return regularizer.coeff


def _plan(name: str, optimizer: _Common) -> kit.OptimizerPlan:
    arguments: dict[str, Any] = {}
    if isinstance(optimizer, Momentum):
        arguments = {"momentum": optimizer.momentum, "nesterov": optimizer.use_nesterov}
    elif isinstance(optimizer, _Adam):
        arguments = {"betas": (optimizer.beta1, optimizer.beta2), "eps": optimizer.epsilon}
    elif isinstance(optimizer, RMSProp):
        arguments = {
            "momentum": optimizer.momentum,
            "alpha": optimizer.rho,
            "eps": optimizer.epsilon,
        }
    place = optimizer.origin.document.place(optimizer.origin.path)
    return kit.plan_optimizer("sgd" if name == "Momentum" else name.lower(), arguments, where=place)

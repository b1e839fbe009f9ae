"""The classes of ``paddle.optimizer.lr`` by name, with their own arguments.

The clock is the number of calls of ``step()``, one an update.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import Any

import sympy as sp

from closedform.errors import DefinitionError
from closedform.frameworks import curves
from closedform.frameworks.torch.products import running_product
from closedform.language import Schedule, floor_div, floor_mod, t
from closedform.recipes import kit
from closedform.schedules import table, warm_restarts
from closedform.schedules.blends import along_cosine, along_line
from closedform.schedules.branches import stepwise

_updates = kit.checks.count(1)


def _numbers(arguments: kit.Arguments, context: kit.Context, *names: str) -> tuple[sp.Expr, ...]:
    return tuple(kit.checks.number(arguments[name], name, context.where) for name in names)


def _whole(expression: sp.Expr, name: str) -> Schedule:
    return Schedule(expression, name=name)


def _curve(make: Callable[..., sp.Expr], *names: str) -> kit.ScheduleBuilder:
    """The builder of one formula of numbers."""

    def build(arguments: kit.Arguments, context: kit.Context) -> Schedule:
        return _whole(make(*_numbers(arguments, context, *names)), context.path[-1])

    return build


def _noam(arguments: kit.Arguments, context: kit.Context) -> Schedule:
    size, warmup, rate = _numbers(arguments, context, "d_model", "warmup_steps", "learning_rate")
    kit.refuse_unless(size > 0, f"d_model must be above 0, got {size}", context.where)
    kit.refuse_unless(warmup > 0, "warmup_steps is 0: division by zero", context.where)
    line = t / warmup ** sp.Rational(3, 2)
    root = 1 / sp.sqrt(sp.Max(1, t))
    return _whole(rate / sp.sqrt(size) * sp.Min(root, line), "NoamDecay")


def _piecewise(arguments: kit.Arguments, context: kit.Context) -> Schedule:
    marks = [
        kit.checks.number(mark, "boundaries", context.where) for mark in arguments["boundaries"]
    ]
    values = [kit.checks.number(value, "values", context.where) for value in arguments["values"]]
    kit.refuse_unless(
        len(values) == len(marks) + 1,
        f"values must be one more than boundaries, got {len(values)} and {len(marks)}",
        context.where,
    )
    return _whole(stepwise(values, marks), "PiecewiseDecay")


def _polynomial(arguments: kit.Arguments, context: kit.Context) -> Schedule:
    rate, length, end, power = _numbers(
        arguments, context, "learning_rate", "decay_steps", "end_lr", "power"
    )
    kit.refuse_unless(length > 0, f"decay_steps must be above 0, got {length}", context.where)
    step = t
    whole = length
    if arguments["cycle"]:
        whole = length * sp.Max(1, -floor_div(-t, length))
    else:
        step = sp.Min(t, length)
    rest = (whole - step) ** power / whole**power
    return _whole(along_line(end, rate, rest), "PolynomialDecay")


def _warmup(arguments: kit.Arguments, context: kit.Context) -> Schedule:
    steps = _updates(arguments["warmup_steps"], "warmup_steps", context.where)
    first, last = _numbers(arguments, context, "start_lr", "end_lr")
    kit.refuse_unless(
        last > first, f"end_lr must be above start_lr {first}, got {last}", context.where
    )
    inner = arguments["learning_rate"]
    if isinstance(inner, Mapping):
        inner_arguments = {key: value for key, value in inner.items() if key != "type"}
        name, kwargs = kit.sub_schedule({"class": inner.get("type"), "kwargs": inner_arguments})
        later = kit.build_schedule(name, kwargs, context)
    else:
        later = _whole(kit.checks.number(inner, "learning_rate", context.where), "rate")
    rise = along_line(first, last, t / sp.Integer(steps))
    curve = later.bound.xreplace({t: t - steps})
    return _whole(stepwise([rise, curve], [steps]), "LinearWarmup")


def _exponential(arguments: kit.Arguments, context: kit.Context) -> Schedule:
    rate, gamma = _numbers(arguments, context, "learning_rate", "gamma")
    kit.refuse_unless(0 < gamma < 1, f"gamma must be in (0, 1), got {gamma}", context.where)
    return _whole(rate * gamma**t, "ExponentialDecay")


def _milestones(arguments: kit.Arguments, context: kit.Context) -> Schedule:
    rate, gamma = _numbers(arguments, context, "learning_rate", "gamma")
    marks = list(
        kit.checks.counted_milestones(arguments["milestones"], "milestones", context.where)
    )
    kit.refuse_unless(marks == sorted(set(marks)), "milestones must increase", context.where)
    kit.refuse_unless(gamma < 1, f"gamma must be below 1, got {gamma}", context.where)
    values = [rate * gamma**index for index in range(len(marks) + 1)]
    return _whole(stepwise(values, marks), "MultiStepDecay")


def _steps(arguments: kit.Arguments, context: kit.Context) -> Schedule:
    rate, gamma = _numbers(arguments, context, "learning_rate", "gamma")
    size = _updates(arguments["step_size"], "step_size", context.where)
    kit.refuse_unless(gamma < 1, f"gamma must be below 1, got {gamma}", context.where)
    return _whole(rate * gamma ** floor_div(t, size), "StepDecay")


def _function(arguments: kit.Arguments, context: kit.Context) -> sp.Expr:
    text = arguments["lr_lambda"]
    where = context.where
    if isinstance(text, str):
        text = {"expr": text}
    return kit.parse_function(text, f"lr_lambda of {where}", variable="epoch")


def _lambda(arguments: kit.Arguments, context: kit.Context) -> Schedule:
    (rate,) = _numbers(arguments, context, "learning_rate")
    return _whole(rate * _function(arguments, context), "LambdaDecay")


def _product(arguments: kit.Arguments, context: kit.Context) -> Schedule:
    (rate,) = _numbers(arguments, context, "learning_rate")
    factor, where = _function(arguments, context), context.where
    try:
        return _whole(rate * running_product(factor, where), "MultiplicativeDecay")
    except DefinitionError:
        return _products(rate, factor, where)


def _products(rate: sp.Expr, factor: sp.Expr, where: str) -> Schedule:
    """The products one by one, where they become 0 in float64 or stay."""
    values, previous = [rate], rate
    for step in range(1, MAX_PRODUCTS):
        previous *= factor.xreplace({t: sp.Integer(step)}).doit()
        values.append(previous)
        if abs(previous) < UNDERFLOW:
            return table([*values, 0])
    last = factor.xreplace({t: sp.Integer(MAX_PRODUCTS)})
    steady = isinstance(factor, sp.Piecewise) and factor.args[-1][0] == 1 == last
    kit.refuse_unless(steady, "the product of lr_lambda has no closed form", where)
    return table(values)


MAX_PRODUCTS = 400
"""The most factors that are multiplied one by one."""

UNDERFLOW = sp.Rational(1, 2**1076)
"""Half of the smallest float64: a product below it is 0 there."""


def _cosine(arguments: kit.Arguments, context: kit.Context) -> Schedule:
    rate, low = _numbers(arguments, context, "learning_rate", "eta_min")
    length = _updates(arguments["T_max"], "T_max", context.where)
    return _whole(along_cosine(rate, low, t / sp.Integer(length)), "CosineAnnealingDecay")


def _one_cycle(arguments: kit.Arguments, context: kit.Context) -> Schedule:
    where = context.where
    peak, divisor, end, part = _numbers(
        arguments, context, "max_learning_rate", "divide_factor", "end_learning_rate", "phase_pct"
    )
    total = _updates(arguments["total_steps"], "total_steps", where)
    kit.refuse_unless(0 <= part <= 1, f"phase_pct must be in [0, 1], got {part}", where)
    first = peak / divisor
    rates, marks = [first, peak, end], [sp.S.Zero, part * total - 1, sp.Integer(total - 1)]
    if arguments["three_phase"]:
        kit.refuse_unless(part < sp.S.Half, "phase_pct must be below 0.5 with three phases", where)
        rates.insert(2, first)
        marks.insert(2, 2 * part * total - 2)
    strategy = arguments["anneal_strategy"]
    kit.refuse_unless(
        strategy in ("cos", "linear"),
        f"anneal_strategy must be cos or linear, got {strategy!r}",
        where,
    )
    along = curves.along_cosine if strategy == "cos" else curves.along_line

    last = len(rates) - 2

    def value(n: float) -> Any:
        if n > total:
            raise ValueError("ValueError: tried to step past total_steps")
        index = next((index for index in range(last) if n <= marks[index + 1]), last)
        length = marks[index + 1] - marks[index]
        if length == 0:
            raise ValueError("ZeroDivisionError: a phase has no updates")
        return along(rates[index], rates[index + 1], (n - marks[index]) / length)

    return kit.curve("OneCycleLR", value)


def _cyclic(arguments: kit.Arguments, context: kit.Context) -> Schedule:
    where = context.where
    low, high, gamma = _numbers(
        arguments, context, "base_learning_rate", "max_learning_rate", "exp_gamma"
    )
    up = _updates(arguments["step_size_up"], "step_size_up", where)
    down = arguments["step_size_down"]
    down = up if down is None else _updates(down, "step_size_down", where)
    mode, whole = arguments["mode"], up + down
    scales = {
        "triangular": sp.S.One,
        "triangular2": sp.Rational(1, 2) ** floor_div(t, whole),
        "exp_range": gamma**t,
    }
    kit.refuse_unless(
        mode in scales, f"mode must be one of {', '.join(scales)}, got {mode!r}", where
    )
    place = floor_mod(t, whole)
    part = sp.Min(place / sp.Integer(up), (whole - place) / sp.Integer(down))
    return _whole(low + (high - low) * part * scales[mode], "CyclicLR")


def _linear(arguments: kit.Arguments, context: kit.Context) -> Schedule:
    rate, first, last = _numbers(arguments, context, "learning_rate", "start_factor", "end_factor")
    total = _updates(arguments["total_steps"], "total_steps", context.where)
    kit.refuse_unless(0 < first <= 1, f"start_factor must be in (0, 1], got {first}", context.where)
    kit.refuse_unless(0 <= last <= 1, f"end_factor must be in [0, 1], got {last}", context.where)
    part = along_line(first, last, sp.Min(1, t / sp.Integer(total)))
    return _whole(rate * part, "LinearLR")


def _restarts(arguments: kit.Arguments, context: kit.Context) -> Schedule:
    rate, low = _numbers(arguments, context, "learning_rate", "eta_min")
    first = _updates(arguments["T_0"], "T_0", context.where)
    growth = _updates(arguments["T_mult"], "T_mult", context.where)
    return warm_restarts(rate, low, first, growth)


_RATE = {"learning_rate": kit.REQUIRED}
_TABLE: Mapping[str, tuple[kit.ScheduleBuilder, Mapping[str, Any]]] = {
    "NoamDecay": (
        _noam,
        {"d_model": kit.REQUIRED, "warmup_steps": kit.REQUIRED, "learning_rate": 1.0},
    ),
    "PiecewiseDecay": (_piecewise, {"boundaries": kit.REQUIRED, "values": kit.REQUIRED}),
    "NaturalExpDecay": (
        _curve(lambda rate, gamma: rate * sp.exp(-gamma * t), "learning_rate", "gamma"),
        {**_RATE, "gamma": kit.REQUIRED},
    ),
    "InverseTimeDecay": (
        _curve(lambda rate, gamma: rate / (1 + gamma * t), "learning_rate", "gamma"),
        {**_RATE, "gamma": kit.REQUIRED},
    ),
    "PolynomialDecay": (
        _polynomial,
        {**_RATE, "decay_steps": kit.REQUIRED, "end_lr": 0.0001, "power": 1.0, "cycle": False},
    ),
    "LinearWarmup": (
        _warmup,
        {**_RATE, "warmup_steps": kit.REQUIRED, "start_lr": kit.REQUIRED, "end_lr": kit.REQUIRED},
    ),
    "ExponentialDecay": (_exponential, {**_RATE, "gamma": kit.REQUIRED}),
    "MultiStepDecay": (_milestones, {**_RATE, "milestones": kit.REQUIRED, "gamma": 0.1}),
    "StepDecay": (_steps, {**_RATE, "step_size": kit.REQUIRED, "gamma": 0.1}),
    "LambdaDecay": (_lambda, {**_RATE, "lr_lambda": kit.REQUIRED}),
    "MultiplicativeDecay": (_product, {**_RATE, "lr_lambda": kit.REQUIRED}),
    "CosineAnnealingDecay": (_cosine, {**_RATE, "T_max": kit.REQUIRED, "eta_min": 0}),
    "OneCycleLR": (
        _one_cycle,
        {
            "max_learning_rate": kit.REQUIRED,
            "total_steps": kit.REQUIRED,
            "divide_factor": 25.0,
            "end_learning_rate": 0.0001,
            "phase_pct": 0.3,
            "anneal_strategy": "cos",
            "three_phase": False,
        },
    ),
    "CyclicLR": (
        _cyclic,
        {
            "base_learning_rate": kit.REQUIRED,
            "max_learning_rate": kit.REQUIRED,
            "step_size_up": kit.REQUIRED,
            "step_size_down": None,
            "mode": "triangular",
            "exp_gamma": 1.0,
        },
    ),
    "LinearLR": (
        _linear,
        {**_RATE, "total_steps": kit.REQUIRED, "start_factor": 1 / 3, "end_factor": 1.0},
    ),
    "CosineAnnealingWarmRestarts": (
        _restarts,
        {**_RATE, "T_0": kit.REQUIRED, "T_mult": 1, "eta_min": 0},
    ),
}
SCHEDULES = {
    name: kit.ScheduleEntry(name, (), kit.parameters(**defaults), build)
    for name, (build, defaults) in _TABLE.items()
}

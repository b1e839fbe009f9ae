"""SpeechBrain: the schedulers of its recipes, from their HyperPyYAML.

A scheduler is called after an update, or after an epoch: update 0 has the rate of the optimizer,
and update t the rate of call t.
"""

from __future__ import annotations

import ast
import math
import operator
import re
import struct
from collections.abc import Callable, Mapping, Sequence
from typing import Any

import sympy as sp

from closedform.frameworks.curves import along_cosine, along_line
from closedform.language import Schedule, exact_number
from closedform.recipes import kit

PACKAGE = "speechbrain.nnet.schedulers"
CLOCK = kit.Clock(kit.Unit.UPDATE)
EPOCHS = kit.Clock(kit.Unit.EPOCH, is_stepped=True)
LONGEST_PRODUCT = 4096
# Each factor is a stage, and by_intervals is linear in their number.
"""The most factors of a CyclicCosineScheduler without a rate that are multiplied."""

# Calls are counted from 1, as update t has the rate of call t.
Curve = kit.CurveFunction
CurveBuilder = Callable[..., Curve | Sequence[sp.Expr]]
"""From the arguments, the rate of update 0 and the place to the curve of calls, or its values."""


def _noam(arguments: NoamScheduler, rate: sp.Expr, where: str) -> Curve:
    del rate, where
    warmup, size, first = arguments.n_warmup_steps, arguments.model_size, arguments.lr_initial

    def value(n: float) -> Any:
        if warmup == 0:
            raise ValueError("0 is raised to a negative power")
        scale = first * math.sqrt(warmup) if size is None else first / math.sqrt(size)
        # Upstream takes the minimum of both, which cross at n = W.
        return scale * n / warmup**1.5 if n < warmup else scale / math.sqrt(n)

    return value


def _noam_interval(arguments: NoamIntervalScheduler, rate: sp.Expr, where: str) -> Curve:
    steps, rates = arguments.anneal_steps, arguments.anneal_rates
    kit.refuse_unless(
        len(steps) == len(rates), "anneal_steps and anneal_rates must have one length", where
    )
    pairs, noam = sorted(zip(steps, rates, strict=True)), _noam(arguments, rate, where)

    def value(n: float) -> Any:
        factor = 1
        for step, ratio in pairs:
            factor = factor * ratio if n > step else factor
        return noam(n) * factor

    return value


def _linear_noam(arguments: LinearNoamScheduler, rate: sp.Expr, where: str) -> Curve:
    del rate, where
    warmup, flat, peak = arguments.n_warmup_steps, arguments.n_keep_steps, arguments.lr_initial

    def value(n: float) -> Any:
        if n < warmup:
            return peak * n / warmup
        return peak if n < warmup + flat else peak * warmup / (n - flat)

    return value


def _linear_warmup(arguments: LinearWarmupScheduler, rate: sp.Expr, where: str) -> Curve:
    del rate, where
    warmup, peak = arguments.num_warmup_steps, arguments.initial_value
    total = arguments.num_training_steps

    def value(n: float) -> Any:
        if n < warmup:
            return peak * n / max(1, warmup)
        # transformers' linear schedule; max(1, ·) allows a warmup of the whole run.
        return peak * max(0, (total - n) / max(1, total - warmup))

    return value


def _inverse_root(arguments: InverseSquareRootScheduler, rate: sp.Expr, where: str) -> Curve:
    del rate, where
    warmup = arguments.warmup_steps
    return lambda n: 1 / math.sqrt(max(n, warmup))


def _cyclic_cosine(
    arguments: CyclicCosineScheduler, rate: sp.Expr, where: str
) -> Curve | Sequence[sp.Expr]:
    warmup, total, peak = arguments.n_warmup_steps, arguments.total_steps, arguments.lr_initial
    kit.refuse_unless(warmup > 0, "n_warmup_steps must be above 0, got 0", where)
    kit.refuse_unless(total != 0, "total_steps must not be 0", where)
    if peak is not None:
        # cos(π (n - W) / T): 1 at n = W, so that the "warmup" is the rising half of the wave and
        # the period is 2 T.
        return lambda n: along_cosine(peak, 0, (n - warmup) / total)
    last = warmup + total
    is_short = total.is_integer and warmup.is_integer and 0 < last <= LONGEST_PRODUCT
    message = "without lr_initial the factors are multiplied: that is known for at most"
    kit.refuse_unless(is_short, f"{message} {LONGEST_PRODUCT} updates", where)
    # float64 as upstream: the product is a running value in the param group, rounded at each call.
    product, values = float(rate), []
    for step in range(1, int(last) + 1):
        product *= 0.5 * (math.cos(math.pi * int(step - warmup) / int(total)) + 1)
        values.append(exact_number(product))
    # At n = W + T the cosine is -1 and the factor 0, from which no product recovers.
    return *values, sp.S.Zero


def _cyclic(arguments: CyclicLRScheduler, rate: sp.Expr, where: str) -> Curve:
    del rate, where
    low, high, size = arguments.base_lr, arguments.max_lr, arguments.step_size
    mode, gamma = arguments.mode, arguments.gamma

    def value(n: float) -> Any:
        if mode not in ("triangular", "triangular2", "exp_range"):
            raise ValueError("there is no such mode")
        cycle = math.floor(n / (2 * size))
        part = max(0, 1 - abs(n / size - 2 * cycle - 1))
        if mode == "triangular":
            return low + (high - low) * part
        return low + (high - low) * part * (2**-cycle if mode == "triangular2" else gamma**n)

    return value


def _exponential(arguments: WarmAndExpDecayLRSchedule, rate: sp.Expr, where: str) -> Curve:
    del rate, where
    peak, warmup, factor = arguments.lr, arguments.n_warmup_steps, arguments.decay_factor
    length = arguments.total_steps - warmup

    def value(n: float) -> Any:
        # Called with n - 1 (see late-by-one in DEFECTS).
        if n - 1 < warmup:
            return peak * (n - 1) / warmup
        # min(peak, ·): before the warmup ends the exponent is negative, and the power above 1.
        return min(peak, peak * factor ** ((n - 1 - warmup) / length))

    return value


def _warm_cool(arguments: WarmCoolDecayLRSchedule, rate: sp.Expr, where: str) -> Curve:
    del rate
    every, base = arguments.decay_every, arguments.decay_factor
    kit.refuse_unless(every != 0, "decay_every must not be 0", where)
    peak, warmup, cool = arguments.lr, arguments.warmup, arguments.cooldown
    # The fall counts from the warmup, the cooldown from 0: base^((T - C)/every) in place of
    # base^((T - C - W)/every).
    begin = arguments.total_steps - cool

    def value(n: float) -> Any:
        if n < warmup:
            return peak * n / warmup
        if n <= begin:
            return peak * base ** ((n - warmup) / every)
        return peak * base ** (begin / every) * (1 - (n - begin) / cool)

    return value


def _tri_stage(arguments: TriStageLRSchedule, rate: sp.Expr, where: str) -> Curve:
    del rate
    peak, warmup, decay = arguments.lr, arguments.warmup_steps, arguments.decay_steps
    kit.refuse_unless(
        warmup != 0 and decay != 0, "warmup_steps and decay_steps must not be 0", where
    )
    begin, last = warmup + arguments.hold_steps, arguments.final_lr_scale
    first = arguments.init_lr_scale * peak

    def value(n: float) -> Any:
        if n < warmup:
            return along_line(first, peak, n / warmup)
        return peak if n < begin else peak * last ** ((n - begin) / decay)

    return value


def _interval(arguments: IntervalScheduler, rate: sp.Expr, where: str) -> Curve:
    del where
    parts, call, last = [], 0, rate
    for entry in arguments.intervals:
        if entry.steps > 0:
            # One entry is used at a call, in the order of the list.
            call = max(kit.first_from(entry.steps), call + 1)
            parts.append((call, last))
            last = entry.lr
    return lambda n: next((value for end, value in parts if n < end), last)


def _table(arguments: LinearScheduler, rate: sp.Expr, where: str) -> Sequence[sp.Expr]:
    """The values of ``torch.linspace`` in binary32, one for an epoch."""
    del rate
    count, first, last = (
        arguments.epoch_count,
        float(arguments.initial_value),
        float(arguments.final_value),
    )
    kit.refuse_unless(count >= 0, f"epoch_count must not be negative, got {count}", where)
    first, last = _single(first), _single(last)
    step = _single(_single(last - first) / (count - 1)) if count > 1 else 0.0
    # torch.linspace fills from both ends: the first half as start + step·i, the second as end -
    # step·(n - 1 - i), so that the last value is exact.
    values = [
        first + step * index
        if index < count // 2 or count == 1
        else last - step * (count - 1 - index)
        for index in range(count)
    ]
    # The index is min(epoch, count - 1): the last value serves two epochs, and the next one raises
    # by its old index, epoch - 1.
    return [exact_number(_single(value)) for value in values[1:] + values[-1:]]


def _single(value: float) -> float:
    """The nearest float of 32 bits."""
    single: float = struct.unpack("f", struct.pack("f", value))[0]
    return single


def _steps(arguments: StepScheduler, rate: sp.Expr, where: str) -> Curve:
    del rate
    first, half = arguments.initial_value, arguments.half_life
    if half:
        is_one = not arguments.decay_factor and not arguments.decay_drop
        message = "half_life must not be given with decay_factor and decay_drop"
        kit.refuse_unless(is_one, message, where)
        # half_life sets decay_drop to 1, so floor() has a whole argument and drops out.
        return lambda n: first * 2 ** (-(n + 1) / half)
    factor, drop = arguments.decay_factor or sp.S.Half, arguments.decay_drop or sp.Integer(2)
    return lambda n: first * factor ** math.floor((n + 1) / drop)


class _Scheduler(kit.Section, irrelevant="class"):
    pass


class _Noam(kit.Section):
    lr_initial: kit.StartRate
    n_warmup_steps: kit.RealSteps


class NoamScheduler(_Scheduler, _Noam):
    model_size: kit.Number | None = None


class NoamIntervalScheduler(NoamScheduler):
    anneal_steps: kit.Numbers
    anneal_rates: kit.Numbers
    model_size: kit.Number | None = None


class LinearNoamScheduler(_Scheduler, _Noam):
    n_keep_steps: kit.RealSteps


class LinearWarmupScheduler(_Scheduler):
    initial_value: kit.Number
    num_warmup_steps: kit.RealSteps
    num_training_steps: kit.RealSteps


class InverseSquareRootScheduler(_Scheduler):
    warmup_steps: kit.RealSteps


class CyclicCosineScheduler(_Scheduler):
    n_warmup_steps: kit.RealSteps
    lr_initial: kit.StartRate | None = None
    total_steps: kit.RealSteps = 100_000


class CyclicLRScheduler(_Scheduler, irrelevant="scale_mode"):
    base_lr: kit.Rate = 0.001
    max_lr: kit.Rate = 0.006
    step_size: kit.RealSteps = 2000
    mode: str = "triangular"
    gamma: kit.Number = 1


class WarmAndExpDecayLRSchedule(_Scheduler):
    lr: kit.Rate
    n_warmup_steps: kit.RealSteps
    total_steps: kit.RealSteps
    decay_factor: kit.Number = 0.1


class WarmCoolDecayLRSchedule(_Scheduler):
    lr: kit.Rate
    warmup: kit.Number
    cooldown: kit.Number
    total_steps: kit.RealSteps
    decay_factor: kit.Number = 0.75
    decay_every: kit.Number = 100_000


class TriStageLRSchedule(_Scheduler):
    lr: kit.Rate
    warmup_steps: kit.RealSteps
    hold_steps: kit.RealSteps
    decay_steps: kit.RealSteps
    total_steps: kit.RealSteps
    init_lr_scale: kit.RateRatio = 0.01
    final_lr_scale: kit.RateRatio = 0.05


class Intervals(kit.Section):
    steps: kit.RealSteps
    lr: kit.Rate


class IntervalScheduler(_Scheduler):
    intervals: tuple[Intervals, ...]


class LinearScheduler(_Scheduler):
    initial_value: kit.Number
    final_value: kit.Number
    epoch_count: kit.Epochs


class StepScheduler(_Scheduler):
    initial_value: kit.Number
    decay_factor: kit.Number | None = None
    decay_drop: kit.Number | None = None
    half_life: kit.Number | None = None


CLASSES: Mapping[str, tuple[CurveBuilder, type[kit.Section]]] = {
    "NoamScheduler": (_noam, NoamScheduler),
    "NoamIntervalScheduler": (_noam_interval, NoamIntervalScheduler),
    "LinearNoamScheduler": (_linear_noam, LinearNoamScheduler),
    "LinearWarmupScheduler": (_linear_warmup, LinearWarmupScheduler),
    "InverseSquareRootScheduler": (_inverse_root, InverseSquareRootScheduler),
    "CyclicCosineScheduler": (_cyclic_cosine, CyclicCosineScheduler),
    "CyclicLRScheduler": (_cyclic, CyclicLRScheduler),
    "WarmAndExpDecayLRSchedule": (_exponential, WarmAndExpDecayLRSchedule),
    "WarmCoolDecayLRSchedule": (_warm_cool, WarmCoolDecayLRSchedule),
    "TriStageLRSchedule": (_tri_stage, TriStageLRSchedule),
    "IntervalScheduler": (_interval, IntervalScheduler),
    "LinearScheduler": (_table, LinearScheduler),
    "StepScheduler": (_steps, StepScheduler),
}
OF_EPOCHS = ("LinearScheduler", "StepScheduler")
OF_LOSS = ("NewBobScheduler", "ReduceLROnPlateau")
_FILE = "speechbrain/nnet/schedulers.py"


def _is(*names: str) -> Callable[[str], bool]:
    return lambda name: name in names


DEFECTS: Mapping[str, kit.Note[...]] = {
    "rate-of-update-0": kit.Convention(
        "update 0 has the rate of the optimizer: a scheduler is called after an update or an epoch",
        f"{_FILE}:502",
        _is(*CLASSES),
    ),
    "group-rates-lost": kit.Defect(
        "a scheduler writes the same rate to all groups, which lose theirs from update 1 on",
        f"{_FILE}:510",
    ),
    "cosine-without-warmup": kit.Defect(
        "CyclicCosineScheduler has no warmup: its top is shifted to it, and its period is twice "
        "total_steps",
        f"{_FILE}:790",
        _is("CyclicCosineScheduler"),
        classes=("CyclicCosineScheduler",),
    ),
    "late-by-one": kit.Convention(
        "WarmAndExpDecayLRSchedule counts calls from 0: update 1 has the rate 0",
        f"{_FILE}:98",
        _is("WarmAndExpDecayLRSchedule"),
        classes=("WarmAndExpDecayLRSchedule",),
    ),
    "cooldown-jumps": kit.Defect(
        "the cooldown begins at another rate than the decay before it ends with, because the one "
        "counts from 0 and the other from the warmup, and is negative after the run",
        f"{_FILE}:1330",
        _is("WarmCoolDecayLRSchedule"),
        classes=("WarmCoolDecayLRSchedule",),
    ),
    "no-floor": kit.Convention(
        "the decay of TriStageLRSchedule has no floor",
        f"{_FILE}:1540",
        _is("TriStageLRSchedule"),
        classes=("TriStageLRSchedule",),
    ),
    "rate-of-the-optimizer-ignored": kit.Convention(
        "InverseSquareRootScheduler does not depend on the rate of the optimizer",
        f"{_FILE}:1250",
        _is("InverseSquareRootScheduler"),
        classes=("InverseSquareRootScheduler",),
    ),
}


def _rate(name: str, arguments: kit.RawSection, rate: sp.Expr, where: str) -> Schedule:
    build, keys = CLASSES[name]
    curve = build(keys.read(arguments), rate, where)
    if callable(curve):
        return kit.curve(name, lambda n: curve(n) if n else rate)
    stages: list[kit.Stage] = [(value, end) for end, value in enumerate((rate, *curve), 1)]
    if name != "LinearScheduler":
        stages[-1] = (stages[-1][0], None)
    return kit.by_intervals(name, *stages, (kit.undefined("the table has no further epoch"), None))


def _class_rate(context: kit.Context, optimizer: Optimizer, annealing: kit.Section) -> Schedule:
    name = context.path[-1]
    path = annealing.origin.text("class", name)
    message = f"the config must ask for {name!r}, got {path!r:.80}"
    kit.refuse_unless(path in (name, f"{PACKAGE}.{name}"), message, context.where)
    # Update 0 has the rate of the group before the first call makes all groups equal.
    return _rate(name, annealing.origin, context.of_group("lr", optimizer.lr), context.where)


_NAME = re.compile(r"<([\w.\[\]]+)>")
_OPERATORS: Mapping[type[ast.operator], Callable[[Any, Any], Any]] = {
    ast.Add: operator.add,
    ast.Sub: operator.sub,
    ast.Mult: operator.mul,
    ast.Div: operator.truediv,
    ast.FloorDiv: operator.floordiv,
}


def _resolve_references(value: Any, content: Mapping[str, Any], depth: int = 0) -> Any:
    """A value with its references and their arithmetic; what is not determined stays open."""
    if isinstance(value, dict):
        return {key: _resolve_references(item, content, depth) for key, item in value.items()}
    if isinstance(value, list):
        return [_resolve_references(item, content, depth) for item in value]
    # Depth 20: a !ref may refer to a !ref; a cycle of them stays open instead of not ending.
    if not isinstance(value, kit.Unresolved) or not value.text.startswith("!ref ") or depth > 20:
        return value
    formula = value.text.removeprefix("!ref ").strip()
    whole = _NAME.fullmatch(formula)
    if whole is not None:
        # A reference without arithmetic may be any value, also a list; arithmetic is for numbers
        # only.
        return _resolve_references(content.get(whole[1], value), content, depth + 1)
    names = {
        match[1]: _resolve_references(content.get(match[1]), content, depth + 1)
        for match in _NAME.finditer(formula)
    }
    try:
        # repr() of the values makes a number a literal again; anything else is a syntax error or
        # not arithmetic, and stays open. Nothing is evaluated by Python.
        tree = ast.parse(_NAME.sub(lambda match: f"({names[match[1]]!r})", formula), mode="eval")
        return _evaluate_arithmetic(tree.body)
    except (SyntaxError, ValueError, ArithmeticError, RecursionError, MemoryError):
        return value


def _evaluate_arithmetic(node: ast.expr) -> Any:
    match node:
        case ast.Constant(value=int() | float() as number):
            return number
        case ast.UnaryOp(op=ast.USub(), operand=operand):
            return -_evaluate_arithmetic(operand)
        case ast.BinOp(left=left, op=op, right=right) if type(op) in _OPERATORS:
            return _OPERATORS[type(op)](_evaluate_arithmetic(left), _evaluate_arithmetic(right))
        case ast.Tuple(elts=items) | ast.List(elts=items):
            return [_evaluate_arithmetic(item) for item in items]
    raise ValueError("not arithmetic")


def _calls(document: kit.Document, package: str) -> dict[str, kit.ConfigCall]:
    return {
        str(key): value
        for key, value in document.content.items()
        if isinstance(value, kit.ConfigCall) and value.name.startswith(package)
    }


def _matches(document: kit.Document) -> bool:
    return bool(_calls(document, PACKAGE))


def _read(reading: kit.Reading) -> kit.Recipe:
    document, facts = reading.document, reading.facts
    schedulers = _calls(document, PACKAGE)
    key = facts.framework_facts.get("scheduler_key")
    if key is None:
        if len(schedulers) != 1:
            names = ", ".join(schedulers) or "none"
            raise kit.missing_facts(
                "scheduler_key", document.source, f"the schedulers of the file are: {names}"
            )
        (key,) = schedulers
    if key not in schedulers:
        raise document.error(f"there is no scheduler of {PACKAGE}", str(key))
    call = schedulers[key]
    name = call.name.rpartition(".")[2]
    arguments = kit.RawSection(
        document, _resolve_references(call.kwargs, document.content), str(key)
    )
    if name in OF_LOSS:
        raise arguments.error(f"{name} is a function of the loss")
    if name not in CLASSES:
        raise arguments.error(f"there is no scheduler {name!r:.60}")
    calls = _calls(document, "torch.optim.")
    optimizers = {
        place: kit.RawSection(
            document, _resolve_references(optimizer.kwargs, document.content), place
        )
        for place, optimizer in calls.items()
    }
    rates = {place: section.content.get("lr") for place, section in optimizers.items()}
    if facts.lr is not None:
        # A file often has several optimizers (an encoder, a decoder): the fact lr selects those
        # with that rate.
        optimizers = {place: optimizers[place] for place in rates if rates[place] == facts.lr}
    elif len(optimizers) != 1 or not isinstance(next(iter(rates.values())), int | float):
        raise kit.missing_facts(
            "lr", document.source, "the file does not determine the rate of the optimizer"
        )
    place, section = next(iter(optimizers.items()), ("", arguments))
    rate = exact_number(facts.lr if facts.lr is not None else section.number("lr"))
    with arguments.locate_errors():
        schedule = _rate(name, arguments, rate, document.source)
    if place:
        group = kit.class_optimizer(section, calls[place].name, defaults={"lr": rate}).group(
            schedule
        )
    # No optimizer in the file: its rate is a fact, its class is not known.
    else:
        plan = kit.plan_optimizer("optimizer", {}, None, document.source, by_name=False)
        group = kit.ParamGroup({"lr": schedule}, plan, kit.Role.DEFAULT)
    accumulation = document.content.get("grad_accumulation_factor")
    clock = EPOCHS if name in OF_EPOCHS else CLOCK
    return reading.recipe(
        [group],
        clock=clock,
        horizon=None if name in OF_EPOCHS else facts.total_updates,
        clipping=None,
        accumulation=accumulation if isinstance(accumulation, int) else None,
        values=(name,),
    )


class Optimizer(kit.Section):
    lr: kit.Rate


FRAMEWORK = kit.Framework(
    "speechbrain",
    kit.section_entries(
        dict.fromkeys(CLASSES, _class_rate),
        {"optimizer": Optimizer, "lr_annealing": kit.ClassSection},
    ),
    versions=("9c826ef3937b",),
    repository="https://github.com/speechbrain/speechbrain",
    upstream=_FILE,
    clock=CLOCK,
    defects=DEFECTS,
    reader=kit.Reader(_read, _matches),
    facts=("scheduler_key",),
)

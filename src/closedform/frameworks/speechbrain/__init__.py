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
from collections.abc import Callable, Mapping
from typing import Any

import sympy as sp

from closedform.errors import MissingFactsError
from closedform.frameworks.transformers.schedules import cosine_wave
from closedform.language import Schedule, exact_number
from closedform.recipes import kit
from closedform.schedules.blends import along_line
from closedform.schedules.branches import stepwise

PACKAGE = "speechbrain.nnet.schedulers"
CLOCK = kit.Clock(kit.Unit.UPDATE)
EPOCHS = kit.Clock(kit.Unit.EPOCH, is_stepped=True)
LONGEST_PRODUCT = 4096
# Each factor is a stage, and by_intervals is linear in their number.
"""The most factors of a CyclicCosineScheduler without a rate that are multiplied."""

Stage = tuple[Callable[[], sp.Expr], int | None]
StageFunction = Callable[..., tuple[Stage, ...]]
"""From the arguments, the rate of update 0 and the place to the stages from call 1 on."""


# Calls are counted from 1, as update t has the rate of call t; marks may be fractions of calls.
def _from(mark: sp.Expr) -> int:
    """The first call from a mark on."""
    return CLOCK.count(_NO_FACTS).first_from(mark)


_NO_FACTS = kit.Context("speechbrain", {}).numbers
N = CLOCK.count(_NO_FACTS).n


def _fails(reason: str) -> Callable[[], sp.Expr]:
    def value() -> sp.Expr:
        raise kit.UndefinedError(reason)

    return value


def _noam(arguments: NoamScheduler, rate: sp.Expr, where: str) -> tuple[Stage, ...]:
    del rate, where
    warmup, size = arguments.n_warmup_steps, arguments.model_size
    if warmup == 0:
        return ((_fails("0 is raised to a negative power"), None),)
    scale = arguments.lr_initial * (sp.sqrt(warmup) if size is None else 1 / sp.sqrt(size))
    # max(1, warmup): the interval of the root begins at the warmup, and call 0 does not happen, but
    # the expression must be finite there.
    root = 1 / sp.sqrt(sp.Max(N, max(sp.S.One, warmup)))
    return (
        # c n W^(-3/2) for n < W; upstream takes the minimum of both branches, which cross at n = W.
        (lambda: scale * N / warmup ** sp.Rational(3, 2), _from(warmup)),
        (lambda: scale * root, None),
    )


def _noam_interval(
    arguments: NoamIntervalScheduler, rate: sp.Expr, where: str
) -> tuple[Stage, ...]:
    steps, rates = arguments.anneal_steps, arguments.anneal_rates
    kit.refuse_unless(
        len(steps) == len(rates), "anneal_steps and anneal_rates must have one length", where
    )
    pairs = sorted(zip(steps, rates, strict=True))
    # Each rate multiplies after its step, n > step, also if the step is a fraction.
    values = [sp.Mul(*(factor for _, factor in pairs[:index])) for index in range(len(pairs) + 1)]
    factor = stepwise(values, [sp.floor(step) + 1 for step, _ in pairs])

    def anneal(value: Callable[[], sp.Expr]) -> Callable[[], sp.Expr]:
        return lambda: value() * factor

    return tuple((anneal(value), end) for value, end in _noam(arguments, rate, where))


def _linear_noam(arguments: LinearNoamScheduler, rate: sp.Expr, where: str) -> tuple[Stage, ...]:
    del rate, where
    warmup, flat, peak = arguments.n_warmup_steps, arguments.n_keep_steps, arguments.lr_initial
    return (
        (lambda: peak * N / warmup, _from(warmup)),
        (lambda: peak, _from(warmup + flat)),
        # Continuous at n = W + keep: peak W / (N - keep) is the peak there.
        (lambda: peak * warmup / (N - flat), None),
    )


def _linear_warmup(
    arguments: LinearWarmupScheduler, rate: sp.Expr, where: str
) -> tuple[Stage, ...]:
    del rate, where
    warmup, total, peak = (
        arguments.num_warmup_steps,
        arguments.num_training_steps,
        arguments.initial_value,
    )
    # transformers' linear schedule with its max(1, ·), which keeps a warmup of the whole run
    # defined.
    rest = sp.Max(0, (total - N) / max(sp.S.One, total - warmup))
    return (lambda: peak * N / max(sp.S.One, warmup), _from(warmup)), (lambda: peak * rest, None)


def _inverse_root(
    arguments: InverseSquareRootScheduler, rate: sp.Expr, where: str
) -> tuple[Stage, ...]:
    del rate, where
    return ((lambda: 1 / sp.sqrt(sp.Max(N, max(sp.S.One, arguments.warmup_steps))), None),)


def _cyclic_cosine(
    arguments: CyclicCosineScheduler, rate: sp.Expr, where: str
) -> tuple[Stage, ...]:
    warmup, total, peak = arguments.n_warmup_steps, arguments.total_steps, arguments.lr_initial
    kit.refuse_unless(warmup > 0, "n_warmup_steps must be above 0, got 0", where)
    kit.refuse_unless(total != 0, "total_steps must not be 0", where)
    if peak is not None:
        # cos(π (n - W) / T): 1 at n = W, so that the "warmup" is the rising half of the wave and
        # the period is 2 T.
        return ((lambda: peak * cosine_wave(sp.S.Half, (N - warmup) / total), None),)
    last = warmup + total
    is_short = total.is_integer and warmup.is_integer and 0 < last <= LONGEST_PRODUCT
    message = "without lr_initial the factors are multiplied: that is known for at most"
    kit.refuse_unless(is_short, f"{message} {LONGEST_PRODUCT} updates", where)
    # float64 as upstream: the product is a running value in the param group, rounded at each call.
    product, stages = float(rate), []
    for step in range(1, int(last) + 1):
        product *= 0.5 * (math.cos(math.pi * int(step - warmup) / int(total)) + 1)
        stages.append((_value(exact_number(product)), step + 1))
    # At n = W + T the cosine is -1 and the factor 0, from which no product recovers.
    return *stages, (_value(sp.S.Zero), None)


def _value(value: sp.Expr) -> Callable[[], sp.Expr]:
    return lambda: value


def _cyclic(arguments: CyclicLRScheduler, rate: sp.Expr, where: str) -> tuple[Stage, ...]:
    del rate, where
    low, high, size = arguments.base_lr, arguments.max_lr, arguments.step_size
    if arguments.mode not in ("triangular", "triangular2", "exp_range"):
        return ((_fails("there is no such mode"), None),)
    cycle = sp.floor(N / (2 * size))
    factor = {
        "triangular": sp.S.One,
        "triangular2": sp.Integer(2) ** -cycle,
        "exp_range": arguments.gamma**N,
    }[arguments.mode]
    part = sp.Max(0, 1 - sp.Abs(N / size - 2 * cycle - 1))
    return ((lambda: low + (high - low) * part * factor, None),)


def _exponential(
    arguments: WarmAndExpDecayLRSchedule, rate: sp.Expr, where: str
) -> tuple[Stage, ...]:
    del rate, where
    peak, warmup, factor = arguments.lr, arguments.n_warmup_steps, arguments.decay_factor
    # Called with n - 1 (see late-by-one in DEFECTS).
    steps, length = N - 1 - warmup, arguments.total_steps - warmup
    return (
        (lambda: peak * (N - 1) / warmup, _from(warmup + 1)),
        # min(peak, ·): before the warmup ends the exponent is negative, and the power above 1.
        (lambda: sp.Min(peak, peak * factor ** kit.quotient(steps, length)), None),
    )


def _warm_cool(arguments: WarmCoolDecayLRSchedule, rate: sp.Expr, where: str) -> tuple[Stage, ...]:
    del rate
    kit.refuse_unless(arguments.decay_every != 0, "decay_every must not be 0", where)
    peak, warmup, cool, base = (
        arguments.lr,
        arguments.warmup,
        arguments.cooldown,
        arguments.decay_factor,
    )
    # The fall counts from the warmup, the cooldown from 0: base^((T - C)/every) in place of
    # base^((T - C - W)/every).
    begin = arguments.total_steps - cool

    def decay_after(steps: sp.Expr) -> sp.Expr:
        return peak * base ** (steps / arguments.decay_every)

    return (
        (lambda: peak * N / warmup, _from(warmup)),
        # floor(begin) + 1: the test of upstream is n > T - cooldown.
        (lambda: decay_after(N - warmup), _from(sp.floor(begin) + 1)),
        (lambda: decay_after(begin) * (1 - kit.quotient(N - begin, cool)), None),
    )


def _tri_stage(arguments: TriStageLRSchedule, rate: sp.Expr, where: str) -> tuple[Stage, ...]:
    del rate
    peak, warmup, decay = arguments.lr, arguments.warmup_steps, arguments.decay_steps
    kit.refuse_unless(
        warmup != 0 and decay != 0, "warmup_steps and decay_steps must not be 0", where
    )
    begin, first = warmup + arguments.hold_steps, arguments.init_lr_scale * peak
    return (
        (lambda: along_line(first, peak, N / warmup), _from(warmup)),
        (lambda: peak, _from(begin)),
        (lambda: peak * arguments.final_lr_scale ** ((N - begin) / decay), None),
    )


def _interval(arguments: IntervalScheduler, rate: sp.Expr, where: str) -> tuple[Stage, ...]:
    del where
    stages: list[Stage] = []
    call, current = 0, rate
    for entry in arguments.intervals:
        if entry.steps > 0:
            # One entry is used at a call, in the order of the list.
            call = max(_from(entry.steps), call + 1)
            stages.append((_value(current), call))
            current = entry.lr
    return *stages, (_value(current), None)


def _table(arguments: LinearScheduler, rate: sp.Expr, where: str) -> tuple[Stage, ...]:
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
    exact = [exact_number(_single(value)) for value in values]
    stages = [(_value(value), epoch) for epoch, value in enumerate(exact[1:], 2)]
    end: Stage = (_fails("the table has no further epoch"), None)
    if not exact:
        return (end,)
    # The index is min(epoch, count - 1): the last value serves two epochs, and the next one raises
    # by its old index, epoch - 1.
    stages[-1:] = [(_value(exact[-1]), count + 1)]
    return *stages, end


def _single(value: float) -> float:
    """The nearest float of 32 bits."""
    single: float = struct.unpack("f", struct.pack("f", value))[0]
    return single


def _steps(arguments: StepScheduler, rate: sp.Expr, where: str) -> tuple[Stage, ...]:
    del rate
    first, half = arguments.initial_value, arguments.half_life
    if half:
        is_one = not arguments.decay_factor and not arguments.decay_drop
        message = "half_life must not be given with decay_factor and decay_drop"
        kit.refuse_unless(is_one, message, where)
        # half_life sets decay_drop to 1, so floor() has a whole argument and drops out.
        return ((lambda: first * sp.Integer(2) ** (-(N + 1) / half), None),)
    factor, drop = arguments.decay_factor or sp.S.Half, arguments.decay_drop or sp.Integer(2)
    return ((lambda: first * factor ** sp.floor((N + 1) / drop), None),)


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


CLASSES: Mapping[str, tuple[StageFunction, type[kit.Section]]] = {
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


DEFECTS: Mapping[str, kit.Defect[...]] = {
    "rate-of-update-0": kit.Defect(
        "update 0 has the rate of the optimizer: a scheduler is called after an update or an epoch",
        f"{_FILE}:502",
        _is(*CLASSES),
        kind=kit.DefectKind.CONVENTION,
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
    "late-by-one": kit.Defect(
        "WarmAndExpDecayLRSchedule counts calls from 0: update 1 has the rate 0",
        f"{_FILE}:98",
        _is("WarmAndExpDecayLRSchedule"),
        kind=kit.DefectKind.CONVENTION,
        classes=("WarmAndExpDecayLRSchedule",),
    ),
    "cooldown-jumps": kit.Defect(
        "the cooldown begins at another rate than the decay before it ends with, because the one "
        "counts from 0 and the other from the warmup, and is negative after the run",
        f"{_FILE}:1330",
        _is("WarmCoolDecayLRSchedule"),
        classes=("WarmCoolDecayLRSchedule",),
    ),
    "no-floor": kit.Defect(
        "the decay of TriStageLRSchedule has no floor",
        f"{_FILE}:1540",
        _is("TriStageLRSchedule"),
        kind=kit.DefectKind.CONVENTION,
        classes=("TriStageLRSchedule",),
    ),
    "rate-of-the-optimizer-ignored": kit.Defect(
        "InverseSquareRootScheduler does not depend on the rate of the optimizer",
        f"{_FILE}:1250",
        _is("InverseSquareRootScheduler"),
        kind=kit.DefectKind.CONVENTION,
        classes=("InverseSquareRootScheduler",),
    ),
}


def _rate(name: str, arguments: kit.RawSection, rate: sp.Expr, where: str) -> Schedule:
    stages, keys = CLASSES[name]
    values = keys.read(arguments)
    return kit.by_intervals(name, (lambda: rate, 1), *stages(values, rate, where))


def _class_rate(context: kit.Context, optimizer: Optimizer, annealing: kit.Section) -> Schedule:
    name = context.path[-1]
    path = annealing.origin.text("class", name)
    message = f"the config must ask for {name!r}, got {path!r:.80}"
    kit.refuse_unless(path in (name, f"{PACKAGE}.{name}"), message, context.where)
    rates, rate = context.facts.get("group_lrs"), optimizer.lr
    if rates is not None:
        # update 0 has the rate of the group before the first call makes all groups equal.
        rate = exact_number(rates[context.facts.get("group_index", 0)])
    return _rate(name, annealing.origin, rate, context.where)


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


def _missing(document: kit.Document, fact: str, hint: str) -> MissingFactsError:
    return MissingFactsError(f"missing facts: {fact}", where=document.source, hint=hint)


def _read(reading: kit.Reading) -> kit.Recipe:
    document, facts = reading.document, reading.facts
    schedulers = _calls(document, PACKAGE)
    key = facts.framework_facts.get("scheduler_key")
    if key is None:
        if len(schedulers) != 1:
            names = ", ".join(schedulers) or "none"
            raise _missing(document, "scheduler_key", f"the schedulers of the file are: {names}")
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
        raise _missing(document, "lr", "the file does not determine the rate of the optimizer")
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
    tier=kit.Tier.OFFICIAL,
    upstream=_FILE,
    clock=CLOCK,
    defects=DEFECTS,
    reader=kit.Reader(_read, _matches),
    facts=("scheduler_key",),
)

"""The scheduler classes of MMEngine, as actions of a chain."""

from __future__ import annotations

import math
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from typing import Any

import sympy as sp

from closedform.errors import DefinitionError
from closedform.frameworks.mmengine.chain import (
    MAX_EXACT_DIGITS,
    ROUNDED_DIGITS,
    Action,
    FactorFunction,
    Phase,
)
from closedform.language import exact_number
from closedform.recipes import kit
from closedform.schedules.blends import along_cosine, along_line

FOREVER = 10**9
"""The default of ``end``, which no run reaches; the polynomial, which is 0 there, ends at it."""
MAX_PHASES = 1000
MAX_TURNS = 50
"""The most turns of a wave after which another scheduler may have changed its minimum."""


@dataclass(frozen=True, slots=True)
class Range:
    """Where a scheduler acts, on its own clock, and on what.

    Attributes:
        begin: As in the config.
        end: As in the config.
        base: The initial value of the param group.
        group_index: The param group.
        where: The place, for errors.
    """

    begin: sp.Expr
    end: sp.Expr
    base: sp.Expr
    group_index: int
    where: str

    @property
    def last(self) -> sp.Expr:
        """The number of the last step."""
        return self.end - self.begin - 1

    def acts(self, step: int) -> bool:
        """Returns whether there is such a step."""
        return bool(sp.ceiling(self.begin) + step < self.end)


@dataclass(frozen=True, slots=True)
class Law:
    """The phases of a class, the step that raises an exception, and a new initial value."""

    phases: tuple[Phase, ...]
    failure: tuple[int, str] | None = None
    initial: sp.Expr | None = None


def _step(given: kit.Arguments, span: Range) -> Law:
    gamma = _number(given["gamma"], "gamma", span.where)
    # j % -k is 0 where j % k is 0: a negative step_size has the same steps.
    size = abs(_whole(given["step_size"], "step_size", span.where))
    if size == 0:
        return Law((), (1, "ZeroDivisionError: step_size is 0"))
    return Law((Phase(0, lambda j: _power(gamma, sp.floor(j / size))),))


def _milestones(given: kit.Arguments, span: Range) -> Law:
    gamma = _number(given["gamma"], "gamma", span.where)
    marks = [_number(mark, "milestones", span.where) for mark in _list(given, "milestones", span)]
    _check_phases(marks, span.where)
    # A milestone that is listed twice multiplies twice.
    whole = sorted({int(mark) for mark in marks if mark.is_Integer and mark >= 0})
    return Law(tuple(Phase(mark, _flat(gamma ** marks.count(mark))) for mark in whole))


def _exponential(given: kit.Arguments, span: Range) -> Law:
    gamma = _number(given["gamma"], "gamma", span.where)
    return Law((Phase(0, lambda j: _power(gamma, j)),))


def _constant(given: kit.Arguments, span: Range) -> Law:
    factor = _factor(given, "factor", span)
    phases = (Phase(0, _flat(factor)),)
    if span.last < 1 or not span.last.is_Integer or span.end >= FOREVER:
        return Law(phases)
    if factor == 0:
        return Law(phases, (int(span.last), "ZeroDivisionError: the factor is 0"))
    # The factor is taken back at the last step, which a run without an end does not reach.
    return Law((*phases, Phase(int(span.last), _flat(1 / factor))))


def _linear(given: kit.Arguments, span: Range) -> Law:
    start, end = _factor(given, "start_factor", span), _factor(given, "end_factor", span)
    if span.last == 0:
        return Law((Phase(0, _flat(start)),))
    # The recursion multiplies by a quotient with start_factor below it.
    failure = (1, "ZeroDivisionError: start_factor is 0") if start == 0 else None
    return Law((Phase(0, lambda j: along_line(start, end, j / span.last)),), failure)


def _cosine(given: kit.Arguments, span: Range) -> Law:
    low, has_ratio = given["eta_min"], given["eta_min_ratio"] is not None
    kit.refuse_unless(
        low is None or not has_ratio, "eta_min and eta_min_ratio exclude each other", span.where
    )
    low = _lowest(given, span) if low is not None or has_ratio else sp.S.Zero
    # `or`: a T_max of 0 counts as none.
    length = abs(_number(given["T_max"] or span.end - span.begin, "T_max", span.where))
    falls = Phase(1, lambda j: _wave(j, length), low)
    if not length.is_Integer:
        return Law((falls,))
    # A T_max shorter than the range goes up again. One step after
    # the minimum the recursion would be 0/0, for which there is a case, as in torch.
    phases, turn = [falls], int(length) + 1
    while span.acts(turn) and len(phases) <= MAX_TURNS:
        phases.append(_after_turn(turn, length, low, span.base))
        turn += 2 * int(length)
    return Law(tuple(phases))


def _after_turn(turn: int, length: sp.Expr, low: sp.Expr, base: sp.Expr) -> Phase:
    """The wave after it was at its minimum: it rises to the initial value, whatever came before."""
    height = _wave(sp.Integer(turn), length)
    return Phase(
        turn, lambda j: _wave(j, length) / height, low, lambda j: (base - low) * _wave(j, length)
    )


def _polynomial(given: kit.Arguments, span: Range) -> Law:
    low, power = _number(given["eta_min"], "eta_min", span.where), given["power"]
    power = _number(power, "power", span.where)
    last = span.last
    failure = None
    if power < 0 and last >= 1 and last.is_Integer:
        failure = (int(last), "ZeroDivisionError: 0 to a negative power")
    # ((last - j) / last)**power as a product of the recursion's quotients.
    return Law((Phase(1, lambda j: (last - j) ** power / last**power, low),), failure)


def _one_cycle(given: kit.Arguments, span: Range) -> Law:
    where = span.where
    peak = given["eta_max"]
    peak = peak[span.group_index] if isinstance(peak, list | tuple) else peak
    high = _number(peak, "eta_max", where)
    divisors = [_number(given[key], key, where) for key in ("div_factor", "final_div_factor")]
    kit.refuse_unless(0 not in divisors, "div_factor and final_div_factor must not be 0", where)
    first = high / divisors[0]
    low = first / divisors[1]
    steps, part = given["total_steps"], given["pct_start"]
    if steps is not None:
        kit.refuse_unless(
            isinstance(steps, int) and steps > 0,
            f"total_steps must be positive, got {steps}",
            where,
        )
    total = exact_number(steps if steps is not None else span.end - span.begin)
    kit.refuse_unless(
        # isinstance(pct_start, float) of upstream: 1 is refused.
        isinstance(part, float) and 0 <= part <= 1,
        f"pct_start must be a float from 0 to 1, got {part!r}",
        where,
    )
    strategy = given["anneal_strategy"]
    kit.refuse_unless(
        strategy in ("cos", "linear"), f"anneal_strategy must be cos or linear: {strategy!r}", where
    )
    along = along_cosine if strategy == "cos" else along_line
    # MMEngine computes the ends in floats and compares steps with them; the curves are exact.
    # The peak is one step before the end of the part, as in torch's OneCycleLR.
    spans = [(part, 1, first, high)]
    if given["three_phase"]:
        spans += [(2 * part, 2, high, first), (1, 1, first, low)]
    else:
        spans += [(1, 1, high, low)]
    phases, begin, start = [], 0, (0.0, sp.S.Zero)
    failure = (int(total) + 1, "ValueError: more steps than total_steps")
    for index, (share, less, before, after) in enumerate(spans):
        end = (float(share * int(total)) - less, exact_number(share) * total - less)
        stop = int(total) + 1 if index == len(spans) - 1 else math.floor(end[0]) + 1
        if stop > begin and end[0] == start[0]:
            failure = (begin, "ZeroDivisionError: a phase has no length")
            break
        if stop > begin:
            curve = _phase(along, before, after, start[1], end[1])
            phases.append(Phase(begin, None, drive=curve))
            begin = stop
        start = end
    return Law(tuple(phases), failure, first)


def _phase(
    along: Callable[[sp.Expr, sp.Expr, sp.Expr], sp.Expr],
    low: sp.Expr,
    high: sp.Expr,
    start: sp.Expr,
    end: sp.Expr,
) -> FactorFunction:
    return lambda j: along(low, high, (j - start) / (end - start))


def _restarts(given: kit.Arguments, span: Range) -> Law:
    kit.refuse_unless(
        (given["eta_min"] is None) != (given["eta_min_ratio"] is None),
        "exactly one of eta_min and eta_min_ratio must be given",
        span.where,
    )
    low = _lowest(given, span)
    periods = [_whole(period, "periods", span.where) for period in _list(given, "periods", span)]
    weights = [
        _number(w, "restart_weights", span.where) for w in _list(given, "restart_weights", span)
    ]
    kit.refuse_unless(
        len(periods) == len(weights), "periods and restart_weights must be as many", span.where
    )
    kit.refuse_unless(min(periods, default=1) > 0, "periods must be above 0", span.where)
    _check_phases(periods, span.where)
    phases, start = [], 0
    for period, weight in zip(periods, weights, strict=True):
        phases.append(Phase(start, None, drive=_flat(span.base * weight)))
        if period > 1:
            phases.append(Phase(start + 1, _wave_from(start, period), low))
        start += period
    # After the periods the value stays.
    return Law((*phases, Phase(start, _flat(sp.S.One))))


def _quadratic(given: kit.Arguments, span: Range) -> Law:
    """MMDetection's quadratic warmup: sums of odd numbers."""
    del given
    length = span.end - span.begin
    kit.refuse_unless(length < FOREVER, "end must be given", span.where)
    unit = span.base / length**2
    # (j + 1)² − 1 = 3 + 5 + … + (2j + 1), on top of the 1 of the first step.
    rises = Phase(1, _flat(sp.S.One), drive=lambda j: unit * ((j + 1) ** 2 - 1))
    return Law((Phase(0, None, drive=_flat(unit)), rises))


def _wave(step: sp.Expr, length: sp.Expr) -> sp.Expr:
    return along_cosine(sp.S.One, sp.S.Zero, step / length)


def _wave_from(start: int, length: int) -> FactorFunction:
    return lambda j: _wave(j - start, sp.Integer(length))


def _flat(value: sp.Expr) -> FactorFunction:
    return lambda j: value


def _power(base: sp.Expr, exponent: sp.Expr) -> sp.Expr:
    """A power; one of many digits is rounded."""
    if exponent.is_Integer and exponent > MAX_EXACT_DIGITS and base not in (0, 1):
        return sp.Rational(str(sp.Pow(base, exponent, evaluate=False).evalf(ROUNDED_DIGITS)))
    return base**exponent


def _factor(given: kit.Arguments, name: str, span: Range) -> sp.Expr:
    factor = _number(given[name], name, span.where)
    kit.refuse_unless(
        0 <= factor <= 1, f"{name} must be from 0 to 1, got {given[name]}", span.where
    )
    return factor


def _lowest(given: kit.Arguments, span: Range) -> sp.Expr:
    if given["eta_min_ratio"] is not None:
        return span.base * _number(given["eta_min_ratio"], "eta_min_ratio", span.where)
    return _number(given["eta_min"], "eta_min", span.where)


def _number(value: object, name: str, where: str) -> sp.Expr:
    return exact_number(value, f"{name} of {where}")


def _whole(value: object, name: str, where: str) -> int:
    found = _number(value, name, where)
    if not found.is_Integer:
        raise DefinitionError(f"{name} must be an integer, got {value!r}", where=where)
    return int(found)


def _list(given: kit.Arguments, name: str, span: Range) -> list[Any]:
    found = given[name]
    if not isinstance(found, list | tuple):
        raise DefinitionError(f"{name} must be a list, got {found!r}", where=span.where)
    return list(found)


def _check_phases(items: list[Any], where: str) -> None:
    kit.refuse_unless(len(items) <= MAX_PHASES, f"more than {MAX_PHASES} steps are not read", where)


@dataclass(frozen=True, slots=True)
class Class:
    """A scheduler class without its parameter.

    Attributes:
        defaults: Its own arguments.
        law: Its builder.
        lengths: Its arguments in epochs, which ``convert_to_iter_based`` multiplies.
    """

    defaults: Mapping[str, Any]
    law: Callable[[kit.Arguments, Range], Law]
    lengths: tuple[str, ...] = ()


_SHARED = {
    "begin": 0,
    "end": FOREVER,
    "by_epoch": True,
    "convert_to_iter_based": False,
    "last_step": -1,
    "verbose": False,
}
CLASSES: Mapping[str, Class] = {
    "Step": Class({"step_size": kit.REQUIRED, "gamma": 0.1}, _step, ("step_size",)),
    "MultiStep": Class({"milestones": kit.REQUIRED, "gamma": 0.1}, _milestones, ("milestones",)),
    "Constant": Class({"factor": 1 / 3}, _constant),
    "Exponential": Class({"gamma": kit.REQUIRED}, _exponential),
    "CosineAnnealing": Class(
        {"T_max": None, "eta_min": None, "eta_min_ratio": None}, _cosine, ("T_max",)
    ),
    "Linear": Class({"start_factor": 1 / 3, "end_factor": 1.0}, _linear),
    "Poly": Class({"eta_min": 0, "power": 1.0}, _polynomial),
    "OneCycle": Class(
        {
            "eta_max": 0,
            "total_steps": None,
            "pct_start": 0.3,
            "anneal_strategy": "cos",
            "div_factor": 25.0,
            "final_div_factor": 1e4,
            "three_phase": False,
        },
        _one_cycle,
        ("total_steps",),
    ),
    "CosineRestart": Class(
        {"periods": kit.REQUIRED, "restart_weights": (1,), "eta_min": None, "eta_min_ratio": None},
        _restarts,
        ("periods",),
    ),
    "QuadraticWarmup": Class({}, _quadratic),
}
"""The classes by the first part of their names."""

SUFFIXES: Mapping[str, str] = {"LR": "lr", "Momentum": "momentum", "WeightDecay": "weight_decay"}
"""The last part of a class name, and what it schedules; ``ParamScheduler`` has an argument."""


def split_name(name: str) -> tuple[str, str | None] | None:
    """Returns the class and what it schedules; None where there is no such class.

    Example:
        >>> split_name("CosineAnnealingMomentum"), split_name("StepParamScheduler")
        (('CosineAnnealing', 'momentum'), ('Step', None))
    """
    for suffix, key in (*SUFFIXES.items(), ("ParamScheduler", None)):
        if name.endswith(suffix) and name.removesuffix(suffix) in CLASSES:
            return name.removesuffix(suffix), key
    return None


@dataclass(frozen=True, slots=True)
class Group:
    """The param group, and the length of an epoch.

    Attributes:
        index: Its position.
        epoch_length: Returns the updates of an epoch.
        has_epochs: Whether epochs end: not in an ``IterBasedTrainLoop``.
        where: The place, for errors.
    """

    index: int
    epoch_length: Callable[[], int]
    has_epochs: bool
    where: str


def build_action(
    name: str, config: kit.Arguments, base: sp.Expr, group: Group
) -> tuple[Action | None, sp.Expr]:
    """Returns the action of a class with its arguments, and the initial value after it.

    Args:
        name: The first part of its name.
        config: Its arguments, without ``type`` and ``param_name``.
        base: The initial value in the param group.
        group: The param group.

    Returns:
        The action, None for one that never acts, and the initial value for the next ones.

    Raises:
        ArgumentError: An argument is unknown or missing.
        DefinitionError: A value is refused by the class.
    """
    kind, where = CLASSES[name], group.where
    given = kit.fill(kit.parameters(**_SHARED, **kind.defaults), config, where)
    # last_step other than -1 resumes a run from the value of a checkpoint, which the config does
    # not have.
    kit.refuse_unless(given["last_step"] == -1, "last_step is not read: it resumes a run", where)
    period, by_epoch = 1, given["by_epoch"] and not given["convert_to_iter_based"]
    if given["convert_to_iter_based"]:
        kit.refuse_unless(given["by_epoch"], "convert_to_iter_based needs by_epoch", where)
        given = _converted(given, kind.lengths, group)
    elif by_epoch and group.has_epochs:
        period = group.epoch_length()
    begin, end = (_number(given[key], key, where) for key in ("begin", "end"))
    kit.refuse_unless(begin < end, f"end must be above begin, got {begin} and {end}", where)
    law = kind.law(given, Range(begin, end, base, group.index, where))
    initial = base if law.initial is None else law.initial
    first = max(0, int(sp.ceiling(begin)))
    stop = None if end >= FOREVER and name != "Poly" else int(sp.ceiling(end))
    # In an IterBasedTrainLoop no epoch ends: an entry by epochs acts once, when it is built.
    if by_epoch and not group.has_epochs:
        if first > 0:
            return None, initial
        stop = 1
    failure = law.failure
    if failure is not None and stop is not None and first + failure[0] >= stop:
        failure = None
    return Action(period, first, stop, law.phases, failure, by_epoch), initial


def _converted(given: kit.Arguments, lengths: tuple[str, ...], group: Group) -> dict[str, Any]:
    """The arguments in updates instead of epochs."""
    length = group.epoch_length()
    made = dict(given)
    for key in ("begin", "end"):
        amount = _number(given[key], key, group.where)
        if amount != FOREVER:
            made[key] = int(given[key] * length)
    for key in lengths:
        value = given[key]
        if isinstance(value, list | tuple):
            made[key] = [_number(item, key, group.where) * length for item in value]
        elif value is not None:
            product = _number(value, key, group.where) * length
            made[key] = int(product) if product.is_Integer else product
    return made

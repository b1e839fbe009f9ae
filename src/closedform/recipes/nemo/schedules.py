"""The learning rate policies of NeMo, from ``{"lr": …, "sched": {"name": …}}``."""

from __future__ import annotations

from collections.abc import Callable, Collection, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

import sympy as sp

from closedform.language import Schedule, t
from closedform.recipes.clock import Clock, Unit
from closedform.recipes.defects import Defect, Kind
from closedform.recipes.entries import (
    REQUIRED,
    Context,
    ScheduleBuilder,
    ScheduleEntry,
    parameters,
)
from closedform.recipes.intervals import (
    UndefinedError,
    by_intervals,
    first_after,
    first_from,
    power_quotient,
    quotient,
)
from closedform.recipes.native import (
    check_name,
    exact,
    group_rate,
    number,
    options,
    refuse_unless,
)
from closedform.schedules.blends import along_cosine, along_line

CLOCK = Clock(Unit.UPDATE)

Arguments = Mapping[str, Any]


@dataclass(frozen=True, slots=True)
class Policy:
    """The numbers of a policy.

    Attributes:
        given: The arguments of its section, defaults filled in.
        rates: The base rate of every param group.
        base: The base rate of this group.
        low: The minimum.
        warmup: The length of the warmup.
        hold: The update at which the hold after the warmup ends, 0 without one.
        constant: The length of the constant phase at the end.
        total: ``max_steps``, None if not given.
        where: The place, for errors.
        as_implemented: Whether a decay that has no hold counts from update 0.
    """

    given: Arguments
    rates: tuple[sp.Expr, ...]
    base: sp.Expr
    low: sp.Expr
    warmup: sp.Expr
    hold: sp.Expr
    constant: sp.Expr
    total: Any
    where: str
    as_implemented: bool

    @property
    def rest(self) -> sp.Expr:
        """The updates after the warmup."""
        return self.total - self.warmup


Curve = Callable[[Policy], sp.Expr]


def _length(given: Arguments, kind: str, where: str) -> sp.Expr:
    """The length of a phase in updates, from its steps or its part of the run."""
    steps, ratio = given.get(f"{kind}_steps"), given.get(f"{kind}_ratio")
    refuse_unless(
        steps is None or ratio is None,
        f"only one of {kind}_steps and {kind}_ratio may be given",
        where,
    )
    if steps is not None:
        return number(steps, f"{kind}_steps", where)
    if ratio is None:
        return sp.S.Zero
    total = given["max_steps"]
    refuse_unless(total is not None, f"{kind}_ratio needs max_steps", where)
    number(ratio, f"{kind}_ratio", where)
    return exact(int(ratio * total))


def _read(given: Arguments, context: Context, defaults: Arguments) -> Policy:
    where = context.where
    section = options(given["sched"], where, {"name": REQUIRED, **defaults})
    check_name(context.path[-1], section["name"], "sched.name", where)
    base = group_rate(context, given["lr"])
    groups: Sequence[Mapping[str, Any]] = context.facts.get("param_groups") or ({},)
    rates = tuple(number(group.get("lr", given["lr"]), "lr", where) for group in groups)
    warmup, hold = _length(section, "warmup", where), _length(section, "hold", where)
    has_hold = any(section.get(f"hold_{form}") is not None for form in ("steps", "ratio"))
    total = section["max_steps"]
    return Policy(
        section,
        rates,
        base,
        number(section["min_lr"], "min_lr", where),
        warmup,
        hold + warmup if has_hold or not context.as_implemented else sp.S.Zero,
        _length(section, "constant", where),
        None if total is None else number(total, "max_steps", where),
        where,
        context.as_implemented,
    )


def _policy(curve: Curve, defaults: Arguments) -> ScheduleBuilder:
    """A warmup, a hold where the class has one, the curve, the minimum after the run."""

    def build(given: Arguments, context: Context) -> Schedule:
        policy = _read(given, context, defaults)
        rise = policy.base * (t + 1) / (policy.warmup + 1)
        stages = [
            (lambda: rise, first_after(policy.warmup) if policy.warmup > 0 else 0),
            (lambda: policy.base, first_from(policy.hold)),
        ]
        if policy.total is None:
            # WarmupPolicy reads max_steps only where it is given: the rate stays.
            after = (lambda: policy.base) if defaults is _OPEN else _no_total
            return by_intervals(context.path[-1], *stages, (after, None))
        return by_intervals(
            context.path[-1],
            *stages,
            (lambda: curve(policy), first_after(policy.total)),
            (lambda: policy.low, None),
        )

    return build


def _no_total() -> sp.Expr:
    raise UndefinedError("TypeError: max_steps is not given")


def _flat(policy: Policy) -> sp.Expr:
    return policy.base


def _square(policy: Policy) -> sp.Expr:
    part = quotient(policy.total - t, policy.rest)
    return sp.Max(policy.base * part**2, policy.low)


def _square_root(policy: Policy) -> sp.Expr:
    # It is implemented to count from update 0, not from the end of the warmup.
    length = policy.total if policy.as_implemented else policy.rest
    root = power_quotient(policy.total - t, length, sp.S.Half)
    return sp.Max(policy.base * root, policy.low)


def _polynomial(policy: Policy, done: sp.Expr, length: sp.Expr) -> sp.Expr:
    power = number(policy.given["power"], "power", policy.where)
    if policy.given["cycle"]:
        length = length * sp.Max(1, sp.ceiling(quotient(done, length)))
    else:
        done = sp.Min(done, length)
    rest = power_quotient(length - done, length, power)
    return (policy.base - policy.low) * rest + policy.low


def _polynomial_decay(policy: Policy) -> sp.Expr:
    return _polynomial(policy, t - policy.warmup, policy.rest)


def _polynomial_hold(policy: Policy) -> sp.Expr:
    length = policy.total - max(policy.warmup, policy.hold)
    return _polynomial(policy, t - policy.hold, length)


def _hold_linear(policy: Policy) -> sp.Expr:
    progress = quotient(t - policy.hold, policy.total - policy.hold)
    return along_line(policy.base, policy.low, progress)


def _hold_root(policy: Policy) -> sp.Expr:
    progress = power_quotient(t - policy.hold, policy.total - policy.hold, sp.S.Half)
    return sp.Max(policy.low, policy.base * (1 - progress))


def _hold_noam(policy: Policy) -> sp.Expr:
    if policy.warmup == 0:
        raise UndefinedError("ValueError: Noam scheduler cannot be used without warmup steps")
    rate = number(policy.given["decay_rate"], "decay_rate", policy.where)
    hold = policy.hold - policy.warmup if policy.hold > 0 else sp.S.Zero
    rise = max(sp.S.One, policy.warmup**rate)
    return sp.Max(policy.base * rise / sp.Max(1, (t - hold) ** rate), policy.low)


def _annealing(policy: Policy) -> sp.Expr:
    # The rate of the first group serves all of them.
    return along_line(policy.rates[0], policy.low, quotient(t - policy.warmup, policy.rest))


def _inverse_root(policy: Policy) -> sp.Expr:
    return policy.base / sp.sqrt((t + 1) / (policy.warmup + 1))


def _cosine(given: Arguments, context: Context) -> Schedule:
    policy = _read(given, context, _STEPPED_CONSTANT)
    if policy.constant != 0:
        return _cosine_to_constant(policy)

    def curve(policy: Policy) -> sp.Expr:
        if min(policy.rates) < policy.low:
            raise UndefinedError("ValueError: an initial rate is below the minimum")
        progress = quotient(t - policy.warmup, policy.rest)
        return along_cosine(policy.base, policy.low, progress)

    return _policy(curve, _STEPPED_CONSTANT)(given, context)


def _cosine_to_constant(policy: Policy) -> Schedule:
    """The other formula, with a constant phase: the rate of the first group serves all."""
    peak, length = policy.rates[0], policy.rest - policy.constant
    refuse_unless(
        peak > policy.low,
        f"min_lr must be below the rate {peak}, got {policy.low}",
        policy.where,
    )

    def fall() -> sp.Expr:
        if min(policy.rates) < policy.low:
            raise UndefinedError("ValueError: an initial rate is below the minimum")
        return along_cosine(peak, policy.low, quotient(t - policy.warmup, length))

    warmup = first_after(policy.warmup) if policy.warmup > 0 else 0
    return by_intervals(
        "CosineAnnealing",
        (lambda: peak * t / policy.warmup, warmup),
        (fall, first_after(policy.warmup + length)),
        (lambda: policy.low, None),
    )


def _noam(given: Arguments, context: Context) -> Schedule:
    policy = _read(given, context, _NOAM)
    refuse_unless(
        min(policy.rates) >= policy.low,
        f"min_lr must not be above the rate, got {policy.low}",
        policy.where,
    )
    size = number(policy.given["d_model"], "d_model", policy.where)
    refuse_unless(size > 0, f"d_model must be above 0, got {size}", policy.where)
    factor = policy.base / sp.sqrt(size)
    step = sp.Max(1, t)
    root = factor / sp.sqrt(step)
    if policy.warmup > 0:
        rise = factor * sp.Min(1 / sp.sqrt(step), step * policy.warmup ** sp.Rational(-3, 2))
    else:
        rise = root
    first = max(2, first_after(policy.warmup)) if policy.warmup >= 1 else 0
    return by_intervals(
        "NoamAnnealing", (lambda: rise, first), (lambda: sp.Max(root, policy.low), None)
    )


def _t5(given: Arguments, context: Context) -> Schedule:
    policy = _read(given, context, _CONSTANT)
    refuse_unless(
        policy.given["constant_steps"] is not None,
        "constant_steps must be given: NeMo raises TypeError without it",
        policy.where,
    )
    refuse_unless(policy.constant > 0, "constant_steps must be above 0", policy.where)
    return by_intervals(
        "T5InverseSquareRootAnnealing",
        (lambda: 1 / sp.sqrt(policy.constant), first_after(policy.constant)),
        (lambda: 1 / sp.sqrt(t), first_after(policy.total)),
        (lambda: policy.low, None),
    )


_LENGTHS = {"warmup_steps": None, "warmup_ratio": None, "max_steps": REQUIRED, "min_lr": 0.0}
_OPEN = {**_LENGTHS, "max_steps": None}
_WITH_HOLD = {**_LENGTHS, "hold_steps": None, "hold_ratio": None}
_STEPPED_CONSTANT = {**_LENGTHS, "constant_steps": None, "constant_ratio": None}
_CONSTANT = {
    "max_steps": REQUIRED,
    "min_lr": 0.0,
    "constant_steps": None,
    "constant_ratio": None,
}
_POWER = {"power": 1.0, "cycle": False}
_NOAM = {**_OPEN, "d_model": REQUIRED}
_SECTIONS = parameters(lr=REQUIRED, sched=REQUIRED)
_CURVES: Mapping[str, tuple[Curve, Arguments]] = {
    "WarmupPolicy": (_flat, _OPEN),
    "WarmupHoldPolicy": (_flat, {**_WITH_HOLD, "max_steps": None}),
    "SquareAnnealing": (_square, {**_LENGTHS, "min_lr": 1e-5}),
    "SquareRootAnnealing": (_square_root, _LENGTHS),
    "NoamHoldAnnealing": (_hold_noam, {**_WITH_HOLD, "decay_rate": 0.5}),
    "WarmupAnnealing": (_annealing, _LENGTHS),
    "InverseSquareRootAnnealing": (_inverse_root, _LENGTHS),
    "PolynomialDecayAnnealing": (_polynomial_decay, {**_LENGTHS, **_POWER}),
    "PolynomialHoldDecayAnnealing": (_polynomial_hold, {**_WITH_HOLD, **_POWER}),
    "WarmupHoldAnnealLinear": (_hold_linear, _WITH_HOLD),
    "WarmupHoldAnnealOneMinusSquareRoot": (_hold_root, _WITH_HOLD),
}
_OTHERS: Mapping[str, tuple[ScheduleBuilder, Arguments]] = {
    "CosineAnnealing": (_cosine, _STEPPED_CONSTANT),
    "NoamAnnealing": (_noam, _NOAM),
    "T5InverseSquareRootAnnealing": (_t5, _CONSTANT),
}
ARGUMENTS: Mapping[str, Arguments] = {
    name: defaults for name, (_, defaults) in (*_CURVES.items(), *_OTHERS.items())
}
"""The keys of ``sched`` by the policy's name, with their defaults."""

SCHEDULES = {
    name: ScheduleEntry(name, (), _SECTIONS, build)
    for name, build in (
        *((name, _policy(curve, defaults)) for name, (curve, defaults) in _CURVES.items()),
        *((name, build) for name, (build, _) in _OTHERS.items()),
    )
}


@dataclass(frozen=True, slots=True)
class Chosen:
    """The policy of a config, as the conditions of the defects have it.

    Attributes:
        name: Its name, None without one.
        keys: The keys that are given to it.
        rates: The rates of the param groups.
        is_made: Whether NeMo makes it.
    """

    name: str | None
    keys: Collection[str] = ()
    rates: Collection[Any] = ()
    is_made: bool = True


def _defect(
    text: str,
    line: int,
    *classes: str,
    concerns: Callable[[Chosen], bool] = lambda chosen: True,
    documented: str | None = None,
    kind: Kind = Kind.CONVENTION,
) -> Defect:
    """A defect of policies, in some of their configs."""

    def applies(chosen: Chosen) -> bool:
        return chosen.is_made and chosen.name in classes and concerns(chosen)

    place = f"nemo/core/optim/lr_scheduler.py:{line}"
    return Defect(text, place, applies, documented, kind, classes)


def _has_rates(chosen: Chosen) -> bool:
    return len(set(chosen.rates)) > 1


DEFECTS = {
    "falls-after-the-run": _defect(
        "falls to min_lr after the run", 79, "WarmupPolicy", "InverseSquareRootAnnealing"
    ),
    "jumps-after-the-warmup": _defect(
        "the decay counts from update 0: the rate jumps after the warmup",
        374,
        "SquareRootAnnealing",
        concerns=lambda chosen: not {"warmup_steps", "warmup_ratio"}.isdisjoint(chosen.keys),
        documented="the square root of the part of the run that is left after the warmup",
        kind=Kind.DEPARTURE,
    ),
    "no-hold": _defect(
        "without a hold, the decay counts from update 0: the rate jumps after the warmup",
        197,
        "PolynomialHoldDecayAnnealing",
        "WarmupHoldAnnealLinear",
        "WarmupHoldAnnealOneMinusSquareRoot",
        concerns=lambda chosen: (
            {"hold_steps", "hold_ratio"}.isdisjoint(chosen.keys)
            and not {"warmup_steps", "warmup_ratio"}.isdisjoint(chosen.keys)
        ),
        documented="a decay from the end of the warmup",
        kind=Kind.DEPARTURE,
    ),
    "first-group-serves-all": _defect(
        "the rate of the first group serves every group",
        367,
        "WarmupAnnealing",
        concerns=_has_rates,
        kind=Kind.DEPARTURE,
    ),
    "first-group-serves-all-with-a-constant": _defect(
        "with constant_steps, the rate of the first group serves every group",
        500,
        "CosineAnnealing",
        concerns=lambda chosen: (
            _has_rates(chosen) and not {"constant_steps", "constant_ratio"}.isdisjoint(chosen.keys)
        ),
        kind=Kind.DEPARTURE,
    ),
    "minimum-raises": _defect(
        "the minimum can raise the rate at the first update after the warmup",
        566,
        "NoamAnnealing",
        concerns=lambda chosen: "min_lr" in chosen.keys,
    ),
    "rate-ignored": _defect(
        "the base rate has no effect", 128, "T5InverseSquareRootAnnealing", kind=Kind.DEPARTURE
    ),
    "constant-ratio-fails": _defect(
        "constant_ratio always raises TypeError",
        128,
        "T5InverseSquareRootAnnealing",
        concerns=lambda chosen: False,
    ),
    "no-scheduler": Defect(
        "with max_steps -1 in sched, NeMo makes no scheduler",
        "nemo/core/optim/lr_scheduler.py:759",
        lambda chosen: not chosen.is_made,
        kind=Kind.CONVENTION,
    ),
}

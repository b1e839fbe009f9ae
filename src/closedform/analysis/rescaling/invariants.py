"""Invariants of a rescaled run: each is a claim about its curves and the old ones.

An invariant says why it cannot be kept, or has claims that the prover decides for all updates.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass
from types import MappingProxyType

import sympy as sp

from closedform.analysis.rescaling.change import (
    MOMENTS,
    RELATIVE,
    Change,
    hyperparameter,
    rule_of,
)
from closedform.analysis.rescaling.clock import between_updates, substitute_clock
from closedform.analysis.rescaling.rules import half_life_moment, sde_moment
from closedform.language import Schedule, t
from closedform.verify.claims.core import Claim
from closedform.verify.claims.values import equal_to

Named = tuple[str, Claim]
"""The curve that a claim is about, such as ``lr`` or ``lr of bias``, and the claim."""


@dataclass(frozen=True, slots=True)
class Invariant:
    """A quantity that rescaling keeps.

    Attributes:
        statement: What is kept.
        is_expected: Whether it is kept where nothing else is said.
        obstacle: Why it cannot be kept; empty where it can.
        claims: The claims that it is kept.
        source: The publication, empty for a definition.
    """

    statement: str
    is_expected: Callable[[Change], bool]
    obstacle: Callable[[Change], str]
    claims: Callable[[Change], Iterator[Named]]
    source: str = ""


def _label(key: str, name: str) -> str:
    return f"{key} of {name}" if name else key


def _rates(change: Change) -> Iterator[tuple[str, Schedule, Schedule, sp.Expr]]:
    """The learning rates: the label, the old one, the new one and the factor by the width."""
    for (old, new, _), width in zip(change.pairs(), change.widths, strict=False):
        if "lr" in old.schedules:
            yield _label("lr", new.name), old.schedules["lr"], new.schedules["lr"], width


# --- curves ---------------------------------------------------------------------------------------


def _warmup_tokens(change: Change) -> Iterator[Named]:
    """During the warmup, the value at the same tokens: g(t) = c f(b (t + o) - o)."""
    clock = change.clock
    shift = (clock.batch - 1) * clock.offset
    if clock.warmup == 0 and change.factors.tokens != 1:
        return
    where = sp.Lt(t, clock.change) if clock.warmup else sp.true
    for label, old, rate, width in _rates(change):
        before = old.scale(change.rate * width)
        if shift.is_Integer and clock.warmup:
            # The updates at which both runs have seen the same tokens; the others are in `shape`.
            claim = equal_to(rate, before, scale=clock.batch, shift=int(shift), where=where)
        else:
            claim = equal_to(
                rate, substitute_clock(between_updates(before), clock.in_warmup), where=where
            )
        yield label, claim


def _shape(change: Change) -> Iterator[Named]:
    """Each curve is the old one at the update that the clock names, times a number."""
    clock = change.clock
    for old, new, factor in change.pairs():
        for key, schedule in old.schedules.items():
            if key == "weight_decay" or key in MOMENTS:
                continue  # The invariants of the timescale and of the moments are about them.
            scale = factor if key == "lr" else sp.S.One
            formula = between_updates(schedule)
            # Written for a clock between updates, it must still be the old curve at the updates.
            if formula != schedule.bound:
                yield _label(key, new.name), equal_to(schedule, formula)
            expected = substitute_clock(formula, clock.after_warmup)
            if not clock.is_uniform:
                before = substitute_clock(formula, clock.in_warmup)
                expected = sp.Piecewise((before, sp.Lt(t, clock.change)), (expected, True))
            expected = scale * expected
            yield _label(key, new.name), equal_to(new.schedules[key], expected)


def _area_obstacle(change: Change) -> str:
    if change.rate != change.factors.batch:
        return (
            f"the rate is multiplied by {change.rate} and the batch size by "
            f"{change.factors.batch}: the linear rule keeps it"
        )
    if any(factor != 1 for factor in change.widths):
        return "the rate changes with the width"
    if not change.clock.is_uniform:
        return (
            "a warmup of the same tokens is another part of the run: it and warmup_tokens "
            f"exclude each other for tokens={change.factors.tokens}"
        )
    return ""


def _area_per_token(change: Change) -> Iterator[Named]:
    """The rate per token is the same function of the part of the run."""
    for label, old, rate, _ in _rates(change):
        before = substitute_clock(between_updates(old), change.clock.after_warmup)
        yield label, equal_to(rate / change.factors.batch, before)


# --- rates ----------------------------------------------------------------------------------------


def _batch_rule(change: Change) -> Iterator[Named]:
    """The rate over the power of the batch size is that of the old run."""
    divisor = change.factors.batch**change.rule.power
    for label, old, rate, width in _rates(change):
        yield label, equal_to(rate / (divisor * width), change.clock.apply(old))


def _critical_obstacle(change: Change) -> str:
    if change.critical is None or change.batch_size is None:
        return "it needs critical_batch and the batch size (the fact global_batch_size)"
    if not change.rule.is_critical:
        return 'the rate has another rule: rule="critical" keeps it'
    return ""


def _critical_batch(change: Change) -> Iterator[Named]:
    """The rate of large batches, e = lr (1 + C / B), is that of the old run."""
    if change.critical is None or change.batch_size is None:
        return
    sizes = change.batch_size, change.batch_size * change.factors.batch
    before, after = (1 + change.critical / size for size in sizes)
    for label, old, rate, width in _rates(change):
        expected = change.clock.apply(old).scale(before)
        yield label, equal_to(rate.scale(after / width), expected)


def _mup(change: Change) -> Iterator[Named]:
    """The rate over its factor by the table of the parametrization is that of the old width."""
    for label, old, rate, width in _rates(change):
        yield label, equal_to(rate / (change.rate * width), change.clock.apply(old))


# --- the weight decay -----------------------------------------------------------------------------


def _has_decay(change: Change) -> bool:
    return any(
        decay is not None and decay.bound != 0
        for decay in (hyperparameter(group, "weight_decay") for group in change.before.param_groups)
    )


def _timescale_obstacle(change: Change) -> str:
    if not _has_decay(change):
        return "there is no weight decay"
    for group in change.before.param_groups:
        rule = rule_of(group)
        for name in RELATIVE if rule is not None else ():
            if rule is not None and name in rule.hyperparameters:
                return f"the weight decay of {rule.name} is relative to {name}"
    return ""


def _timescale(change: Change, speed: sp.Expr) -> Iterator[Named]:
    for old, new, _ in change.pairs():
        decays = [hyperparameter(group, "weight_decay") for group in (old, new)]
        if "lr" not in old.schedules or None in decays or decays[0].bound == 0:  # type: ignore[union-attr]
            continue
        before, after = (
            group.schedules["lr"] * decay
            for group, decay in zip((old, new), decays, strict=True)
            if decay is not None
        )
        yield (
            _label("lr * weight_decay", new.name),
            equal_to(after, change.clock.apply(before).scale(speed)),
        )


def _timescale_tokens(change: Change) -> Iterator[Named]:
    """Lr * weight_decay of an update grows with its tokens."""
    return _timescale(change, change.factors.batch)


def _timescale_run(change: Change) -> Iterator[Named]:
    """Lr * weight_decay of an update grows with the part of the run that it is."""
    return _timescale(change, change.factors.batch / change.factors.tokens)


# --- moments --------------------------------------------------------------------------------------


def _moments(change: Change, moment: Callable[[sp.Expr, sp.Rational], sp.Expr]) -> Iterator[Named]:
    for old, new, _ in change.pairs():
        for key in MOMENTS:
            before, after = hyperparameter(old, key), hyperparameter(new, key)
            if before is not None and after is not None and before.bound != 0:
                expected = moment(change.clock.apply(before).bound, change.factors.batch)
                yield _label(key, new.name), equal_to(after, expected)


def _moments_obstacle(change: Change) -> str:
    for group in change.before.param_groups:
        rule = rule_of(group)
        if rule is None:
            return f"the rule of {group.optimizer.name!r} is not known"
        if rule.name == "sgd" and rule.hyperparameters.get("dampening", 0) == 0:
            return "the momentum of sgd multiplies the rate by 1 / (1 - momentum)"
    return ""


def _has_moments(change: Change) -> bool:
    return any(
        hyperparameter(group, key) is not None
        for group in change.before.param_groups
        for key in MOMENTS
    )


def _half_life_obstacle(change: Change) -> str:
    if change.rule.has_sde_moments:
        return 'rule="sde" has other moments'
    return _moments_obstacle(change) or ("" if _has_moments(change) else "there are no moments")


def _sde_obstacle(change: Change) -> str:
    obstacle = _moments_obstacle(change)
    if obstacle or not change.rule.has_sde_moments:
        return obstacle or 'the moments belong to rule="sde"'
    for group in change.before.param_groups:
        for key in MOMENTS:
            beta = hyperparameter(group, key)
            if beta is None:
                continue
            new = sde_moment(beta.bound, change.factors.batch)
            if t in new.free_symbols:
                return f"{key} changes in the run"
            if new < 0:
                return f"{key} would be 1 - {change.factors.batch} (1 - {beta.bound}) = {new}"
    return ""


def _sde_moments(change: Change) -> Iterator[Named]:
    yield from _moments(change, sde_moment)
    for old, new, _ in change.pairs():
        before, after = hyperparameter(old, "eps"), hyperparameter(new, "eps")
        if before is not None and after is not None:
            yield (
                _label("eps", new.name),
                equal_to(after * sp.sqrt(change.factors.batch), before.bound),
            )


def _half_life_moments(change: Change) -> Iterator[Named]:
    return _moments(change, half_life_moment)


INVARIANTS: Mapping[str, Invariant] = MappingProxyType(
    {
        "warmup_tokens": Invariant(
            "during the warmup, the rate at the same tokens is the same times a number",
            lambda change: True,
            lambda change: change.warmup_problem,
            _warmup_tokens,
        ),
        "shape": Invariant(
            "after the warmup, each curve is the same function of the part of the remaining tokens",
            lambda change: True,
            lambda change: "",
            _shape,
        ),
        "area_per_token": Invariant(
            "the rate per token is the same function of the part of the run",
            lambda change: change.rule.power == 1 and not _area_obstacle(change),
            _area_obstacle,
            _area_per_token,
            "Goyal et al. 2017, arXiv:1706.02677",
        ),
        "batch_rule": Invariant(
            "the rate over the power of the batch size is that of the old run",
            lambda change: not change.rule.is_critical,
            lambda change: (
                "the critical batch size decides, not a power of the batch size"
                if change.rule.is_critical
                else ""
            ),
            _batch_rule,
        ),
        "critical_batch": Invariant(
            "lr * (1 + critical batch / batch) is that of the old run",
            lambda change: change.rule.is_critical,
            _critical_obstacle,
            _critical_batch,
            "McCandlish et al. 2018, arXiv:1812.06162",
        ),
        "timescale_tokens": Invariant(
            "1 / (lr * weight_decay) is the same number of tokens",
            _has_decay,
            _timescale_obstacle,
            _timescale_tokens,
            "Wang and Aitchison 2024, arXiv:2405.13698",
        ),
        "timescale_run": Invariant(
            "1 / (lr * weight_decay) is the same part of the run",
            lambda change: False,
            _timescale_obstacle,
            _timescale_run,
            "Wang and Aitchison 2024, arXiv:2405.13698",
        ),
        "moment_tokens": Invariant(
            "the half-life of each moment is the same number of tokens",
            lambda change: False,
            _half_life_obstacle,
            _half_life_moments,
        ),
        "sde_moments": Invariant(
            "1 - beta over the batch size is that of the old run, and eps times its root",
            lambda change: change.rule.has_sde_moments,
            _sde_obstacle,
            _sde_moments,
            "Malladi et al. 2022, arXiv:2205.10287",
        ),
        "mup": Invariant(
            "the rate over its factor by the width is that of the old width",
            lambda change: change.factors.width != 1,
            lambda change: "" if change.factors.width != 1 else "the width does not change",
            _mup,
            "Yang et al. 2022, arXiv:2203.03466, Table 8",
        ),
    }
)
"""The invariants by name."""

EXCLUSIVE = (("timescale_tokens", "timescale_run"), ("moment_tokens", "sde_moments"))
"""Pairs of invariants of which a changed run keeps one."""

"""Rescaling: the curves of a recipe at another batch size, number of tokens or width."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from dataclasses import dataclass, replace
from typing import Any

import sympy as sp

from closedform.analysis.profile import warmup_length
from closedform.analysis.rescaling.change import (
    MOMENTS,
    Change,
    Factors,
    hyperparameter,
    rule_of,
)
from closedform.analysis.rescaling.clock import RescaledClock
from closedform.analysis.rescaling.invariants import EXCLUSIVE, INVARIANTS
from closedform.analysis.rescaling.rules import (
    BatchRule,
    batch_rule,
    critical_factor,
    half_life_moment,
    positive_ratio,
    rate_factor,
    sde_moment,
)
from closedform.analysis.rescaling.widths import width_factors, with_width_groups
from closedform.analysis.result import Result, plain
from closedform.errors import ArgumentError, DefinitionError, DomainError, nearest
from closedform.language import Schedule, UpdateRule, exact_number, t
from closedform.language.aliases import Number
from closedform.language.exact import to_float
from closedform.language.schedule import whole_steps
from closedform.recipes.clock import Facts
from closedform.recipes.recipe import OptimizerPlan, ParamGroup, Recipe
from closedform.verify.terms.verdict import Status


@dataclass(frozen=True, slots=True)
class Invariance(Result):
    """An invariant of one curve.

    Attributes:
        invariant: Its name in ``INVARIANTS``.
        curve: The curve, such as ``lr`` or ``lr of bias``.
        status: The verdict for all updates: PROVED.
    """

    invariant: str
    curve: str
    status: Status


@dataclass(frozen=True, slots=True)
class Rescaled(Result):
    """A recipe for another batch size, number of tokens or width.

    Attributes:
        recipe: The rescaled recipe.
        before: The recipe that it was made from.
        factors: The factors of the batch size, the tokens and the width.
        rule: The name of the rule of the learning rate.
        rate: The factor of the learning rate by the batch size.
        warmup: The updates of the warmup that keeps its tokens, before and after; None where there
            is none, or it does not keep them.
        invariances: The invariants by curve, each with a proved claim.
        reading: The critical-batch reading, a line for each batch size; empty without one.
    """

    recipe: Recipe
    before: Recipe
    factors: Factors
    rule: str
    rate: sp.Expr
    warmup: tuple[sp.Expr, sp.Expr] | None
    invariances: tuple[Invariance, ...]
    reading: tuple[str, ...] = ()

    def data(self) -> dict[str, Any]:
        """Returns the report as plain data; lengths are those before and after."""
        return {
            "batch": plain(self.factors.batch),
            "tokens": plain(self.factors.tokens),
            "width": plain(self.factors.width),
            "rule": self.rule,
            "rate": plain(self.rate),
            "horizon": [self.before.horizon, self.recipe.horizon],
            "warmup": plain(self.warmup),
            "invariants": plain(self.invariances),
            "reading": plain(self.reading),
        }

    def lines(self) -> list[str]:
        """Returns the report of the change."""
        factors = self.factors
        lines = [
            f"rescaled: batch x {factors.batch}, tokens x {factors.tokens}, "
            f"width x {factors.width}",
            f"updates: {self.before.horizon} -> {self.recipe.horizon}",
            f"learning rate: x {_decimal(self.rate)} by the batch size (rule {self.rule})",
        ]
        if self.warmup is not None:
            lines.append("warmup: {} -> {} updates".format(*self.warmup))
        lines.extend(self.reading)
        for name in dict.fromkeys(entry.invariant for entry in self.invariances):
            entries = [entry for entry in self.invariances if entry.invariant == name]
            curves = ", ".join(entry.curve for entry in entries)
            lines.append(f"{name} ({curves}): {entries[0].status}")
        return lines


def rescale(
    recipe: Recipe,
    *,
    batch: Number = 1,
    tokens: Number = 1,
    width: Number = 1,
    horizon: int | None = None,
    rule: str | None = None,
    keep: Iterable[str] | None = None,
    warmup: int | None = None,
    critical_batch: Number | None = None,
) -> Rescaled:
    r"""Returns a recipe for another batch size, number of tokens or width, and what it keeps.

    Update t of the new run stands for update s(t) of the old one, and has

    .. math:: lr'(t) = c \cdot lr(s(t)) \qquad wd'(t) = \frac{b}{c} \, wd(s(t))

    with c by the rule: 1, b, the root of b, or :math:`(1 + C/B) / (1 + C/(bB))`. During the warmup
    s(t) = b t; after it, s runs to the end of the old run as t runs to the end of the new one.

    Args:
        recipe: The recipe of the run.
        batch: The factor b of the batch size.
        tokens: The factor of the tokens of the run.
        width: The factor of the width of the model; hidden weights get the factor of µP.
        horizon: The updates of the new run, instead of ``tokens``.
        rule: The learning rate by the batch size: ``none``, ``linear``, ``sqrt``, ``sde`` (the
            root, with the moments and eps of Adam) or ``critical``. Needed where ``batch`` is
            not 1.
        keep: The names of the invariants to keep; those that the change can be expected to keep if
            not given (``closedform.analysis.rescaling.INVARIANTS``).
        warmup: The updates of the warmup in the old run; its first rise if not given.
        critical_batch: The critical batch size C in samples, for ``critical`` and for the reading.

    Raises:
        ArgumentError: A name is unknown, ``rule`` is missing, or the run has no horizon.
        DefinitionError: A factor is not a rational number above 0, or a schedule has open
            hyperparameters.
        DomainError: An invariant cannot be kept; the message names it.

    Example:
        >>> from closedform.recipes import load_recipe
        >>> flags = {"lr": 1e-3, "train-iters": 100, "lr-warmup-iters": 8, "weight-decay": 0.1}
        >>> recipe = load_recipe(flags, framework="megatron", facts={"global_batch_size": 8})
        >>> rescaled = rescale(recipe, batch=4, tokens=10, rule="sqrt")
        >>> rescaled.recipe.horizon, rescaled.recipe.schedule().exact(2)
        (250, 1/500)
    """
    batch_factor, width_factor = (
        positive_ratio(*entry) for entry in ((batch, "batch"), (width, "width"))
    )
    token_factor = _token_factor(recipe, batch_factor, tokens, horizon)
    factors = Factors(batch_factor, token_factor, width_factor)
    if rule is None and batch_factor != 1:
        raise ArgumentError(
            "a rule is needed for another batch size, got none",
            where="rescale",
            hint='give rule="sqrt", "linear", "sde", "critical" or "none"',
        )
    name = "none" if rule is None else rule
    chosen = batch_rule(name)
    _check_schedules(recipe)
    names = None if keep is None else _checked_names(keep)
    batch_size = _batch_size(recipe)
    critical = None if critical_batch is None else positive_ratio(critical_batch, "critical_batch")
    rate = _rate(chosen, batch_factor, batch_size, critical)
    has_width = width_factor != 1 and (names is None or "mup" in names)
    run = with_width_groups(recipe) if has_width else recipe
    has_warmup = names is None or "warmup_tokens" in names
    length, problem = _warmup(recipe, warmup) if has_warmup else (0, "")
    if token_factor == 1:
        problem = ""  # One ratio holds for the whole run, wherever the warmup ends.
    clock = _clock(recipe, factors, length)
    widths = width_factors(run, width_factor) if has_width else (sp.S.One,) * len(run.param_groups)
    draft = Change(run, run, factors, clock, chosen, rate, widths, problem, batch_size, critical)
    invariant_names = _invariant_names(draft, names)
    change = replace(draft, after=_rescaled_recipe(draft, invariant_names))
    invariances = tuple(_prove(change, invariant_names))
    return Rescaled(
        change.after,
        recipe,
        factors,
        name,
        rate,
        (sp.Integer(length), clock.change) if length else None,
        invariances,
        _reading(batch_size, critical, batch_factor),
    )


# --- arguments ------------------------------------------------------------------------------------


def _token_factor(
    recipe: Recipe, batch: sp.Rational, tokens: Number, horizon: int | None
) -> sp.Rational:
    factor = positive_ratio(tokens, "tokens")
    if horizon is None:
        return factor
    if factor != 1:
        raise ArgumentError("one of tokens and horizon must be given, got both", where="rescale")
    updates = whole_steps(horizon, "horizon")
    return updates * batch / _run_length(recipe)


def _run_length(recipe: Recipe) -> sp.Integer:
    if recipe.horizon is None:
        raise ArgumentError(
            "the updates of the run are needed, and the recipe has no horizon",
            where=recipe.source,
            hint="give the fact total_updates when reading",
        )
    return sp.Integer(recipe.horizon)


def _check_schedules(recipe: Recipe) -> None:
    for group in recipe.param_groups:
        for key, schedule in group.schedules.items():
            if schedule.open:
                raise DefinitionError(
                    f"{key} has open hyperparameters {[symbol.name for symbol in schedule.open]}",
                    where=recipe.source,
                    hint="give them with bind()",
                )


def _checked_names(keep: Iterable[str]) -> tuple[str, ...]:
    names = tuple(keep) if not isinstance(keep, str) else (keep,)
    for name in names:
        if name not in INVARIANTS:
            raise ArgumentError(
                f"there is no invariant {name!r}", where="rescale", hint=nearest(name, INVARIANTS)
            )
    return names


def _batch_size(recipe: Recipe) -> sp.Expr | None:
    size = recipe.facts.global_batch_size
    return None if size is None else exact_number(size, "global_batch_size")


def _rate(
    rule: BatchRule, ratio: sp.Rational, batch: sp.Expr | None, critical: sp.Expr | None
) -> sp.Expr:
    if not rule.is_critical:
        return rate_factor(rule, ratio)
    if batch is None or critical is None:
        missing = "critical_batch" if critical is None else "the fact global_batch_size"
        raise ArgumentError(
            f'rule="critical" needs the critical batch size and the batch size, missing {missing}',
            where="rescale",
        )
    return critical_factor(ratio, batch, critical)


def _warmup(recipe: Recipe, warmup: int | None) -> tuple[int, str]:
    """The updates of the warmup, and why they are not known."""
    if warmup is not None:
        return int(whole_steps(warmup, "warmup")), ""
    schedule = recipe.schedules.get("lr")
    if schedule is None:
        return 0, "the recipe has no learning rate"
    length = warmup_length(schedule, recipe.horizon)
    if length is None:
        return 0, "the first rise ends at no milestone of the formula: give warmup=UPDATES"
    return length, ""


def _clock(recipe: Recipe, factors: Factors, warmup: int) -> RescaledClock:
    offset = max(recipe.clock.offset, 0)
    end = sp.Integer(warmup + offset if warmup else 0)
    ratio = factors.batch / factors.tokens
    if not end or factors.tokens == 1:
        return RescaledClock(factors.batch, ratio, end, offset)
    total = _run_length(recipe)
    if not (end < total and end < total * factors.tokens):
        raise DomainError(
            f"the invariant 'warmup_tokens' cannot be kept: the warmup of {warmup} updates is not "
            f"shorter than the run of {total} updates, times {factors.tokens}",
            where=recipe.source,
            hint="name the invariants to keep without it: keep=(…)",
        )
    # After the warmup, s(t) is the line through (end / b, end) and (T tokens / b, T).
    rest = factors.batch * (total - end) / (total * factors.tokens - end)
    return RescaledClock(factors.batch, rest, end, offset)


# --- the recipe -----------------------------------------------------------------------------------


def _invariant_names(change: Change, names: tuple[str, ...] | None) -> tuple[str, ...]:
    if names is None:
        names = tuple(name for name, entry in INVARIANTS.items() if entry.is_expected(change))
    for pair in EXCLUSIVE:
        if set(pair) <= set(names):
            raise DomainError(
                f"the invariant {pair[1]!r} cannot be kept: it and {pair[0]!r} exclude each other",
                where=change.before.source,
            )
    for name in names:
        obstacle = INVARIANTS[name].obstacle(change)
        if obstacle:
            raise DomainError(
                f"the invariant {name!r} cannot be kept: {obstacle}",
                where=change.before.source,
                hint="name the invariants to keep without it: keep=(…)",
            )
    return names


def _rescaled_recipe(change: Change, names: tuple[str, ...]) -> Recipe:
    recipe, factors = change.before, change.factors
    groups = tuple(
        _rescaled_group(change, group, change.rate * change.widths[index], names)
        for index, group in enumerate(recipe.param_groups)
    )
    clipping = recipe.clipping
    if clipping is not None and isinstance(clipping.threshold, Schedule):
        clipping = replace(clipping, threshold=change.clock.apply(clipping.threshold))
    horizon = recipe.horizon
    if horizon is not None:
        # Rounded up: the run sees at least the tokens that were asked for.
        horizon = int(sp.ceiling(horizon * factors.tokens / factors.batch))
    return replace(
        recipe,
        param_groups=groups,
        horizon=horizon,
        facts=_rescaled_facts(recipe, factors, horizon),
        clipping=clipping,
        # Another batch may be made of more micro-batches or larger ones: the recipe does not say.
        accumulation=recipe.accumulation if factors.batch == 1 else None,
        derived={},
        document=None,
    )


def _rescaled_facts(recipe: Recipe, factors: Factors, horizon: int | None) -> Facts:
    facts = recipe.facts
    sizes: dict[str, Any] = {}
    for key in ("global_batch_size", "tokens_per_update"):
        size = getattr(facts, key)
        if size is None:
            sizes[key] = None
            continue
        product = exact_number(size, key) * factors.batch
        if not product.is_Integer:
            raise DomainError(
                f"{key} must be a whole number, got {size} times {factors.batch} = {product}",
                where=recipe.source,
            )
        sizes[key] = int(product)
    return replace(
        Facts(),
        **sizes,
        micro_batch_size=facts.micro_batch_size,
        world_size=facts.world_size,
        dataset_size=facts.dataset_size,
        sequence_length=facts.sequence_length,
        total_updates=horizon if facts.total_updates is not None else None,
        group=facts.group,
        framework_facts=facts.framework_facts,
    )


def _rescaled_group(
    change: Change, group: ParamGroup, rate: sp.Expr, names: tuple[str, ...]
) -> ParamGroup:
    batch = change.factors.batch
    decay_factor: sp.Expr = sp.S.One
    if "timescale_tokens" in names:
        # The timescale 1 / (lr wd) in tokens: Wang and Aitchison (2024), "How to set AdamW's weight
        # decay".
        decay_factor = batch / rate
    elif "timescale_run" in names:
        decay_factor = batch / (change.factors.tokens * rate)
    rule = rule_of(group)
    keys = {*group.schedules, *((*MOMENTS, "weight_decay", "eps") if rule is not None else ())}
    curves: dict[str, Schedule] = {}
    for key in sorted(keys):
        schedule = hyperparameter(group, key)
        if schedule is None:
            continue
        factor = {"lr": rate, "weight_decay": decay_factor}.get(key, sp.S.One)
        if key == "eps" and "sde_moments" in names:
            # The SDE scaling of Malladi et al. (2022) for Adam: eps' = eps / sqrt(b).
            factor = 1 / sp.sqrt(batch)
        curve = change.clock.apply(schedule, factor)
        if key in MOMENTS and schedule.bound != 0:
            curve = _moment(curve, batch, names)
        curves[key] = curve
    changes = {
        key: curve
        for key, curve in curves.items()
        if rule is not None and key in rule.hyperparameters and curve != hyperparameter(group, key)
    }
    schedules = {key: curves[key] for key in group.schedules}
    return replace(group, schedules=schedules, optimizer=_plan(group.optimizer, changes))


def _moment(curve: Schedule, batch: sp.Rational, names: tuple[str, ...]) -> Schedule:
    for name, moment in (("moment_tokens", half_life_moment), ("sde_moments", sde_moment)):
        if name in names:
            return Schedule(moment(curve.bound, batch), name=curve.name, length=curve.length)
    return curve


def _plan(plan: OptimizerPlan, changes: Mapping[str, Schedule]) -> OptimizerPlan:
    """The plan with other hyperparameters; a constant is a number, for the writers of configs."""
    values: dict[str, Any] = {
        key: schedule if t in schedule.bound.free_symbols else schedule.bound
        for key, schedule in changes.items()
    }

    def build(schedules: Mapping[str, Schedule]) -> UpdateRule:
        rule = plan.build(schedules)
        # A schedule of the param group counts before the value that it had here.
        return rule.bind(**{key: schedules.get(key, value) for key, value in values.items()})

    return replace(plan, build=build) if values else plan


# --- the report -----------------------------------------------------------------------------------


def _prove(change: Change, names: tuple[str, ...]) -> Iterable[Invariance]:
    for name in names:
        for curve, claim in INVARIANTS[name].claims(change):
            verdict = claim.verify()
            if not verdict.proved:
                raise DomainError(
                    f"the invariant {name!r} cannot be kept: the claim about {curve} is "
                    f"{verdict.status}: {verdict.reason}",
                    where=change.before.source,
                    hint="name the invariants to keep without it: keep=(…)",
                )
            yield Invariance(name, curve, verdict.status)


def _reading(
    batch: sp.Expr | None, critical: sp.Expr | None, ratio: sp.Rational
) -> tuple[str, ...]:
    """For each batch size, the updates and samples to one loss, over the least ones."""
    if batch is None or critical is None:
        return ()
    # McCandlish et al. 2018, equations 2.7 and 5.1: S / S_min = 1 + C / B, E / E_min = 1 + B / C.
    return tuple(
        f"batch size {size}, critical {critical}: {_decimal(1 + critical / size)} of the fewest "
        f"updates, {_decimal(1 + size / critical)} of the fewest samples"
        for size in dict.fromkeys((batch, batch * ratio))
    )


def _decimal(number: sp.Expr) -> str:
    return str(number) if number.is_Integer else f"{to_float(number):.6g}"

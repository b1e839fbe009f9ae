"""The rules: each yields the findings that it has about a recipe."""

from __future__ import annotations

import math
from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass
from functools import cached_property
from itertools import combinations, pairwise

from closedform.analysis.difference import diff
from closedform.analysis.linting.alternatives import (
    MINIMUM,
    RATE,
    WARMUP_FRACTION,
    WEIGHT_DECAY,
    base_rates,
    settings,
    with_double,
    without_effect,
)
from closedform.analysis.linting.findings import RULES, Finding, Severity
from closedform.analysis.profile import Branch, Profile, warmup_length
from closedform.language import Schedule
from closedform.language.exact import to_float
from closedform.recipes import Recipe
from closedform.recipes.defects import Defect
from closedform.recipes.recipe import ParamGroup, Role, is_constant
from closedform.recipes.registry import FRAMEWORKS

# A difference counts from this part of the peak on: less does not show in a run.
_VISIBLE = 0.01
# Two values of float64 formulas are one if they differ by less than this part.
_SAME = 1e-9
# A length that a fact explains differs from it by the rounding of one update in a hundred.
_EXPLAINED = 0.01
_WRONG_LENGTH = 2
_LARGEST_FRACTION = 0.5


@dataclass(frozen=True, slots=True)
class Rate:
    """The learning rate of a param group."""

    group: ParamGroup
    schedule: Schedule

    def finding(
        self, rule: str, message: str, *updates: int, severity: Severity | None = None
    ) -> Finding:
        """Returns a finding; its evidence is the exact values at some updates."""
        evidence = {update: str(self.schedule.exact(update)) for update in updates}
        severity = severity or RULES[rule][0]
        return Finding(rule, severity, message, "lr", self.group.name, updates[0], evidence)


@dataclass(frozen=True)
class Subject:
    """A recipe, and the profiles of the rates of its groups.

    Attributes:
        recipe: The recipe.
        updates: The updates that are looked at: the updates of the run, if they are determined.
    """

    recipe: Recipe
    updates: int

    @cached_property
    def profiles(self) -> list[tuple[Rate, Profile]]:
        """The rates of the groups; of groups with one rate the first one."""
        profiles: dict[tuple[str, str], tuple[Rate, Profile]] = {}
        for group in self.recipe.param_groups:
            rate = group.schedules.get("lr")
            if rate is None or rate.open:
                continue
            # Groups often differ in their weight decay only: one finding for all that share a rate.
            key = (str(rate.expr), str(rate.hyperparameters))
            if key not in profiles:
                last = rate.last_step
                updates = self.updates if last is None else min(self.updates, last + 1)
                profiles[key] = (Rate(group, rate), Profile.of(rate, updates))
        return list(profiles.values())

    @property
    def has_horizon(self) -> bool:
        """Whether the length of the run is determined."""
        return self.recipe.horizon is not None


Check = Callable[[Subject], Iterator[Finding]]


def _finding(
    rule: str, message: str, *, severity: Severity | None = None, quantity: str = "lr"
) -> Finding:
    """A finding about no update."""
    return Finding(rule, severity or RULES[rule][0], message, quantity)


def _decimal(number: float) -> str:
    return f"{number:.6g}"


# --- the ends of warmup and decay ----------------------------------------------------------------


def check_ends(subject: Subject) -> Iterator[Finding]:
    """``warmup-not-finished``, ``decay-not-started``, ``decay-not-finished``."""
    if not subject.has_horizon:
        return
    last = subject.updates - 1
    for rate, profile in subject.profiles:
        schedule, peak = rate.schedule, profile.peak
        if is_constant(schedule) or peak.high <= 0:
            continue
        if schedule.last_step is not None and schedule.last_step <= last:
            # There is no value to compare with; a run that goes on past it is another rule's.
            continue
        following = to_float(schedule.exact(last + 1))
        if profile.falls == 0 and following > profile.end * (1 + _SAME):
            yield rate.finding(
                "warmup-not-finished",
                f"the run ends after {subject.updates} updates at {_decimal(profile.end)}, where "
                f"the rate still rises: it would be {_decimal(following)} at the next update",
                last,
                last + 1,
            )
            continue
        drop = profile.falls_after() if profile.falls == 0 else None
        # A profile that is cut to its minimum past the end is over at the end.
        if drop is not None and drop.update > last + 1:
            yield rate.finding(
                "decay-not-started",
                f"the rate does not fall within the {subject.updates} updates of the run; it is "
                f"{_decimal(drop.value)} at update {drop.update}",
                last,
                drop.update,
            )
            continue
        turn = None if following > profile.end * (1 + _SAME) else profile.turn_after()
        if turn is not None and profile.end - turn.value > _VISIBLE * peak.high:
            is_cut = turn.update <= last + 2
            if profile.end - turn.value > 2 * profile.branches[-1].change and not is_cut:
                yield rate.finding(
                    "decay-not-finished",
                    f"the last of the {subject.updates} updates has the rate "
                    f"{_decimal(profile.end)}; the decay goes on to {_decimal(turn.value)} "
                    f"at update {turn.update}",
                    last,
                    turn.update,
                )


def check_lengths(subject: Subject) -> Iterator[Finding]:
    """``unit-mismatch`` and ``horizon-mismatch``."""
    yield from _data_length(subject)
    if not subject.has_horizon or not subject.profiles:
        return
    rate, profile = subject.profiles[0]
    if profile.updates < subject.updates:
        yield rate.finding(
            "horizon-mismatch",
            f"the schedule has no value from update {profile.updates} on, the run has "
            f"{subject.updates}",
            profile.updates - 1,
        )
        return
    if is_constant(profile.schedule) or profile.peak.high <= 0:
        return
    end = profile.settled_at()
    turn = None if end is not None else profile.turn_after() or profile.falls_after()
    if turn is not None and profile.end - turn.value > _VISIBLE * profile.peak.high:
        end = turn.update
    if end is None or end <= 0:
        return
    ratio = max(end / subject.updates, subject.updates / end)
    if ratio < _WRONG_LENGTH * (1 - _EXPLAINED):
        return
    reason = _explanation(ratio, _counts(subject.recipe))
    text = (
        f"the schedule ends at update {end}, the run after {subject.updates}: "
        f"{_decimal(ratio)} times {'later' if end > subject.updates else 'earlier'}"
    )
    if reason is not None:
        yield rate.finding("unit-mismatch", f"{text}, which is {reason}", end)
    else:
        # A minimum that is held to the end of the run is common; a rate of 0 trains nothing.
        is_fault = end > subject.updates or profile.end == 0
        severity = Severity.ERROR if is_fault else Severity.NOTE
        yield rate.finding("horizon-mismatch", text, end, severity=severity)


def _data_length(subject: Subject) -> Iterator[Finding]:
    facts, horizon = subject.recipe.facts, subject.recipe.horizon
    if not (facts.epochs and facts.dataset_size and facts.global_batch_size and horizon):
        return
    length = float(facts.epochs) * facts.dataset_size / facts.global_batch_size
    # Each epoch may round its updates.
    if abs(length - horizon) > max(float(facts.epochs), _EXPLAINED * length):
        yield _finding(
            "horizon-mismatch",
            f"the run has {horizon} updates; {facts.epochs} epochs of {facts.dataset_size} samples "
            f"at {facts.global_batch_size} an update are {_decimal(length)}",
        )


def check_fractions(subject: Subject) -> Iterator[Finding]:
    """``warmup-fraction``."""
    recipe, document, run_length = subject.recipe, subject.recipe.document, subject.updates
    if document is None or not subject.has_horizon or recipe.schedule().open:
        return
    for setting in settings(document, WARMUP_FRACTION):
        fraction, alternative = setting.number, None
        if 0 < fraction < _LARGEST_FRACTION:
            # A fraction is what a warmup is twice as long by, if it is twice as large.
            alternative = with_double(recipe, document, setting)
        if alternative is None:
            continue
        warmup, double = (warmup_length(r.schedule(), run_length) for r in (recipe, alternative))
        if not warmup or not double or abs(double - 2 * warmup) > 1:
            continue
        if abs(warmup - fraction * run_length) > max(_WRONG_LENGTH, warmup):
            yield Rate(recipe.param_groups[0], recipe.schedule()).finding(
                "warmup-fraction",
                f"{setting.text} = {_decimal(fraction)} ends the warmup at update {warmup}, a part "
                f"of {_decimal(warmup / fraction)} updates; of the {run_length} of the run it "
                f"would be {_decimal(fraction * run_length)}",
                warmup,
            )


def _counts(recipe: Recipe) -> Mapping[str, float]:
    """The numbers of a run that a unit may have been confused by."""
    facts = recipe.facts
    per_epoch = facts.updates_per_epoch
    if per_epoch is None and facts.dataset_size and facts.global_batch_size:
        per_epoch = math.ceil(facts.dataset_size / facts.global_batch_size)
    counts = {
        "the number of micro-batches of an update": facts.gradient_accumulation
        or recipe.accumulation,
        "the number of processes": facts.world_size,
        "the number of updates of an epoch": per_epoch,
        "the number of micro-batches of an epoch": facts.micro_batches_per_epoch,
        "the number of updates of a training step": facts.updates_per_training_step,
        "the number of epochs": facts.epochs,
        "the number of samples of an update": facts.global_batch_size,
        "the number of tokens of a sample": facts.sequence_length,
    }
    return {name: float(count) for name, count in counts.items() if count and count > 1}


def _explanation(ratio: float, counts: Mapping[str, float]) -> str | None:
    for name, count in counts.items():
        if abs(ratio / count - 1) <= _EXPLAINED:
            return f"{name} ({count:g})"
    # Micro-batches times processes is the usual pair.
    for (first, many), (second, more) in combinations(counts.items(), 2):
        if abs(ratio / (many * more) - 1) <= _EXPLAINED:
            return f"{first} ({many:g}) times {second} ({more:g})"
    return None


# --- values --------------------------------------------------------------------------------------


def check_zeros(subject: Subject) -> Iterator[Finding]:
    """``updates-without-effect``."""
    for rate, profile in subject.profiles:
        if profile.peak.high == 0:
            if rate.group.role is Role.DEFAULT:
                yield rate.finding(
                    "updates-without-effect",
                    "the rate is 0 at every update",
                    0,
                    severity=Severity.ERROR,
                )
            continue
        # A group of the config that is frozen at first is so by design.
        is_designed = rate.group.role in (Role.NAMED, Role.FROZEN)
        at_end = profile.trailing_zeros if subject.has_horizon else 0
        for count, first, place in (
            (profile.leading_zeros, 0, "first"),
            (at_end, subject.updates - at_end, "last"),
        ):
            # One update at 0 is the first of every linear warmup.
            if count >= 2:
                yield rate.finding(
                    "updates-without-effect",
                    f"the {place} {count} updates have the rate 0",
                    first + (place == "first"),
                    severity=Severity.NOTE if is_designed else None,
                )


def check_range(subject: Subject) -> Iterator[Finding]:
    """``negative-rate``, ``above-peak``, ``below-minimum``."""
    for rate, profile in subject.profiles:
        lowest = profile.lowest
        if lowest.low < 0 and profile.schedule.exact(lowest.lowest) < 0:
            yield rate.finding(
                "negative-rate",
                f"the rate is {_decimal(lowest.low)} at update {lowest.lowest}",
                lowest.lowest,
            )
    document = subject.recipe.document
    if document is None or not subject.profiles:
        return
    rate, profile = subject.profiles[0]
    stated_rates = {setting.number: setting for setting in base_rates(document)}
    peak = profile.peak
    if stated_rates and peak.high > max(stated_rates) * (1 + _SAME):
        # A rate that the framework scales as a whole, by the batch, never has the stated value.
        ends = [end for branch in profile.branches for end in (branch.begin, branch.end)]
        top = stated_rates[max(stated_rates)]
        if any(abs(end - top.number) <= 1e-6 * top.number for end in ends):
            yield rate.finding(
                "above-peak",
                f"the rate is {_decimal(peak.high)} at update {peak.highest}; {top.text} is "
                f"{_decimal(top.number)}",
                peak.highest,
            )
    floors = [setting for setting in settings(document, MINIMUM) if setting.number > 0]
    after = [branch for branch in profile.branches if branch.first >= peak.highest] or [peak]
    low = min((branch for branch in (peak, *after)), key=lambda branch: _low_after(branch, peak))
    least = min(floors, key=lambda setting: setting.number, default=None)
    if least is not None and _low_after(low, peak) < least.number * (1 - 1e-6) < peak.high:
        at = low.lowest if low.lowest >= peak.highest else low.last
        yield rate.finding(
            "below-minimum",
            f"the rate is {_decimal(_low_after(low, peak))} at update {at}; {least.text} is "
            f"{_decimal(least.number)}",
            at,
        )


def _low_after(branch: Branch, peak: Branch) -> float:
    """The least value of a branch after the peak."""
    return branch.low if branch.lowest >= peak.highest else branch.end


# --- shape ---------------------------------------------------------------------------------------


def check_shape(subject: Subject) -> Iterator[Finding]:
    """``jump`` and ``rises-after-decay``."""
    for rate, profile in subject.profiles:
        peak = profile.peak.high
        if peak <= 0:
            continue
        yield from _rises(rate, profile, peak)
        yield from _jumps(rate, profile, peak)


def _rises(rate: Rate, profile: Profile, peak: float) -> Iterator[Finding]:
    for branch in profile.branches:
        # Where a floor moves, the formula repeats: a cycle is meant to rise.
        if branch.is_stepped or branch.lowest in (branch.first, branch.last):
            continue
        if branch.begin - branch.low > _VISIBLE * peak and branch.rise > _VISIBLE * peak:
            yield rate.finding(
                "rises-after-decay",
                f"the decay reaches {_decimal(branch.low)} at update {branch.lowest}, and the rate "
                f"rises again to {_decimal(branch.low + branch.rise)} by update {branch.last}",
                branch.lowest,
                branch.last,
            )


def _jumps(rate: Rate, profile: Profile, peak: float) -> Iterator[Finding]:
    fallen = 0.0
    for before, after in pairwise(profile.branches):
        fallen = max(fallen, before.high - before.end)
        gap = abs(after.begin - before.end)
        if before.is_constant and after.is_constant:
            continue  # milestones
        # A branch that is held over epochs changes by as much as an epoch does.
        usual = max(before.change, after.change)
        if gap <= max(2 * usual, _VISIBLE * peak):
            continue
        is_restart = after.begin > before.end and fallen > _VISIBLE * peak
        is_start = before.is_constant and before.end == 0
        is_milestone = after.begin < before.end and before.is_constant
        is_designed = (is_restart and after.begin <= peak * (1 + _SAME)) or is_start or is_milestone
        yield rate.finding(
            "jump",
            f"the rate goes from {_decimal(before.end)} to {_decimal(after.begin)} at update "
            f"{after.first}" + (", a restart" if is_restart else ""),
            after.first,
            before.last,
            severity=Severity.NOTE if is_designed else None,
        )
        if is_restart and not is_designed:
            break


# --- groups and numbers without effect -----------------------------------------------------------


def check_groups(subject: Subject) -> Iterator[Finding]:
    """``unscheduled-group``."""
    default, *further_groups = subject.recipe.param_groups
    rate = default.schedules.get("lr")
    if rate is None or is_constant(rate):
        return
    for group in further_groups:
        schedule = group.schedules.get("lr")
        if (
            schedule is None
            or group.role is Role.FROZEN
            or not is_constant(schedule)
            or schedule.open
        ):
            continue
        value = to_float(schedule.exact(0))
        if value != 0:
            yield Rate(group, schedule).finding(
                "unscheduled-group",
                f"the rate stays at {_decimal(value)}, where that of the default group changes",
                0,
            )


_GROUPS = ("group", "custom_keys", "paramwise", "multipliers", "overrides")
_PLAIN_RATES = ("lr", "learning_rate", "learning-rate")


def check_settings(subject: Subject) -> Iterator[Finding]:
    """``rate-of-the-optimizer-ignored``, ``group-rates-overwritten``, ``weight-decay-…``."""
    for setting in without_effect(subject.recipe, RATE):
        in_group = any(
            isinstance(part, int) or any(word in str(part).lower() for word in _GROUPS)
            for part in setting.path[:-1]
        )
        # A number that states the peak once more does no harm.
        peaks = (profile.peak.high for _, profile in subject.profiles)
        is_peak = any(math.isclose(setting.number, peak, rel_tol=_SAME) for peak in peaks)
        is_plain = setting.name.lower() in _PLAIN_RATES and not in_group
        yield _finding(
            "rate-of-the-optimizer-ignored" if is_plain else "group-rates-overwritten",
            f"{setting.text} = {_decimal(setting.number)} has no effect: with twice the number the "
            "schedules of all groups are the same",
            severity=Severity.NOTE if is_peak else None,
        )
    for setting in without_effect(subject.recipe, WEIGHT_DECAY):
        yield _finding(
            "weight-decay-not-applied",
            f"{setting.text} = {_decimal(setting.number)} has no effect: with twice the number all "
            "groups are the same",
            quantity="weight_decay",
        )


def check_replaced(subject: Subject) -> Iterator[Finding]:
    """``schedule-replaced``."""
    group = subject.recipe.param_groups[0]
    for key, own_schedule in subject.recipe.replaced_schedules.items():
        rate = Rate(group, group.schedules[key])
        (curve,) = diff(rate.schedule, own_schedule, until=subject.updates).curves
        if curve.first_step is not None and curve.first is not None:
            value, own_value = map(_decimal, curve.first)
            yield rate.finding(
                "schedule-replaced",
                f"{key} is {value} at update {curve.first_step}; by the config without the other "
                f"file it would be {own_value}",
                curve.first_step,
            )


def check_defects(subject: Subject) -> Iterator[Finding]:
    """``defect``."""
    framework = FRAMEWORKS.get(subject.recipe.framework)
    if framework is None:  # the notes of a config of no known framework say how it was read
        return
    for name, text in subject.recipe.notes.items():
        is_defect = isinstance(framework.defects.get(name), Defect)
        yield _finding(
            "defect",
            f"{name}: {text}",
            severity=Severity.WARNING if is_defect else Severity.NOTE,
        )


CHECKS: tuple[Check, ...] = (
    check_ends,
    check_lengths,
    check_fractions,
    check_zeros,
    check_range,
    check_shape,
    check_groups,
    check_settings,
    check_replaced,
    check_defects,
)

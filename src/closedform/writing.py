"""Writing a recipe as the native config of another framework, with a verdict that is proved.

The learning rate is recognized as a rise, a plateau and one decay, with exact parameters where they
are simple numbers. The framework's writer makes configs of that form; each is read back by the
framework's reader and compared with the recipe: first at many updates, then by the prover.
"""

from __future__ import annotations

import json
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, field, replace
from enum import StrEnum
from typing import Any, assert_never

import sympy as sp
import yaml

from closedform.difference import diff
from closedform.errors import ArgumentError, ClosedFormError, UnknownNameError, nearest
from closedform.language import Schedule, t
from closedform.language.exact import to_float
from closedform.recipes.forms import Config, Curve, Form, Optimizer, Rise, Writer
from closedform.recipes.frameworks import FRAMEWORKS
from closedform.recipes.intervals import PartialSchedule
from closedform.recipes.load import load_recipe
from closedform.recipes.recipe import ClippingKind, Recipe
from closedform.verify.claims.continuity import cells_of
from closedform.verify.claims.values import equal_to
from closedform.verify.terms.limits import LIMITS
from closedform.verify.terms.verdict import Status

DIGITS = 60
"""The decimal digits that a form is recognized with."""

AFTER = 1000
"""Updates after the run in which the first difference is looked for."""


class Verdict(StrEnum):
    """How well a config has the recipe's schedules."""

    EXACT = "exact"
    UNTIL = "exact until"
    NEAREST = "nearest"
    IMPOSSIBLE = "impossible"


@dataclass(frozen=True, slots=True)
class Written:
    """A recipe in the native config of a framework.

    Attributes:
        framework: The framework.
        text: The config; empty where it is impossible.
        suffix: The ending of its file.
        verdict: ``exact`` is proved for every update; ``exact until`` for those before ``until``;
            ``nearest`` is the closest of the framework's schedules that were tried.
        until: The first update that may differ, None where none does.
        gap: The largest difference of the learning rates in the run, as a part of the largest
            value, None where they are equal.
        at: The update with that difference.
        why: Why it is impossible, or not exact.
        facts: The facts to read the config back with.
        left_out: What of the recipe the config does not have.
        recipe: The recipe as the framework's reader reads the config back.
    """

    framework: str
    text: str
    suffix: str
    verdict: Verdict
    until: int | None = None
    gap: float | None = None
    at: int | None = None
    why: str = ""
    facts: Mapping[str, Any] = field(default_factory=dict)
    left_out: tuple[str, ...] = ()
    recipe: Recipe | None = None


def write_recipe(recipe: Recipe, framework: str, total: int | None = None) -> Written:
    """Returns a recipe as the config of a framework.

    Args:
        recipe: The recipe; its default param group is written.
        framework: A framework that has a writer: ``closedform.writing.writable()``.
        total: The updates of the run; the horizon of the recipe if not given.

    Raises:
        UnknownNameError: There is no such framework, or it has no writer.
        ArgumentError: The recipe has no horizon, and no total is given.

    Example:
        >>> flags = {"lr": 1e-3, "train-iters": 100, "lr-warmup-iters": 10, "min-lr": 1e-4}
        >>> recipe = load_recipe(flags, framework="megatron", facts={"global_batch_size": 8})
        >>> written = write_recipe(recipe, "automodel")
        >>> written.verdict.value, written.recipe.schedule().exact(5)
        ('exact', 1/2000)
    """
    writer = _writer(framework)
    total = recipe.horizon if total is None else total
    if total is None:
        raise ArgumentError(
            "the updates of the run are needed, and the recipe has no horizon",
            where=recipe.source,
            hint="give total, or the fact total_updates when reading",
        )
    total = int(total)
    form = recognized(recipe.schedule(), total)
    optimizer, left_out = _optimizer(recipe, writer)
    if form is None:
        why = "the learning rate is not a rise, a plateau and one decay with a curve that is known"
        return _impossible(framework, writer, why, left_out)
    known = _known_facts(recipe, writer)
    given = {**writer.facts, **known}
    facts = {name: value for name, value in given.items() if value is not None}
    best = _impossible(framework, writer, f"{framework} has no {form.curve} decay", left_out)
    for config in writer.configs(form, optimizer, known):
        found = _tried(recipe, framework, writer, config, facts, total, left_out)
        if _rank(found, total) < _rank(best, total):
            best = found
        if best.verdict is Verdict.EXACT:
            break
    return best


def writable() -> tuple[str, ...]:
    """Returns the frameworks whose configs can be written.

    Example:
        >>> "megatron" in writable()
        True
    """
    return tuple(name for name, one in FRAMEWORKS.items() if one.writer is not None)


def _writer(framework: str) -> Writer:
    found = FRAMEWORKS.get(framework)
    if found is None or found.writer is None:
        raise UnknownNameError(
            f"configs of {framework!r} are not written", hint=nearest(framework, writable())
        )
    return found.writer


def _known_facts(recipe: Recipe, writer: Writer) -> dict[str, Any]:
    """The facts of the recipe that the writer has use for."""
    found = {name: getattr(recipe.facts, name) for name in writer.facts}
    return {name: value for name, value in found.items() if value is not None}


def _impossible(framework: str, writer: Writer, why: str, left_out: tuple[str, ...]) -> Written:
    return Written(framework, "", writer.suffix, Verdict.IMPOSSIBLE, why=why, left_out=left_out)


def _rank(written: Written, total: int) -> tuple[int, float]:
    """The order of verdicts: one that holds until after the run is before all gaps."""
    is_whole = written.until is None or written.until >= total
    match written.verdict:
        case Verdict.EXACT:
            return 0, 0.0
        case Verdict.UNTIL if is_whole:
            return 1, 0.0
        case Verdict.UNTIL | Verdict.NEAREST:
            return 2, written.gap or 0.0
        case Verdict.IMPOSSIBLE:
            return 3, 0.0
        case _:
            assert_never(written.verdict)


def _optimizer(recipe: Recipe, writer: Writer) -> tuple[Optimizer, tuple[str, ...]]:
    """The optimizer for the writer, and what of the recipe is left out."""
    left_out = [
        f"the param group {group.name!r}"
        for group in recipe.param_groups[1:]
        if group.schedules["lr"] is not recipe.schedule()
        and group.schedules["lr"] != recipe.schedule()
    ]
    schedules = recipe.schedules
    decay = None
    if "weight_decay" in schedules:
        decay = schedules["weight_decay"].exact(0)
        if t in schedules["weight_decay"].expr.free_symbols:
            left_out.append("the schedule of the weight decay")
    threshold = None
    if recipe.clipping is not None:
        if recipe.clipping.kind is not ClippingKind.NORM or isinstance(
            recipe.clipping.threshold, Schedule
        ):
            left_out.append("the clipping of gradients")
        else:
            threshold = recipe.clipping.threshold
    name, values = "", {}
    try:
        rule = recipe.optimizer()
    except ClosedFormError:
        left_out.append(f"the optimizer {recipe.param_groups[0].optimizer.name}")
    else:
        name = rule.name
        given = rule.hyperparameters
        if "beta1" in given:
            values["betas"] = (given["beta1"], given["beta2"])
        values |= {key: given[key] for key in ("eps", "momentum") if key in given}
        if name not in writer.optimizers:
            left_out.append(f"the optimizer {name}")
            name, values = "", {}
    return Optimizer(name, values, decay, threshold), tuple(left_out)


def _tried(
    recipe: Recipe,
    framework: str,
    writer: Writer,
    config: Config,
    facts: Mapping[str, Any],
    total: int,
    left_out: tuple[str, ...],
) -> Written:
    """A config, read back and compared; impossible where the framework refuses it."""
    text = rendered(config, writer.suffix)
    try:
        back = load_recipe(config, framework=framework, facts=facts)
    except ClosedFormError as error:
        return _impossible(framework, writer, f"{framework} refuses it: {error.what}", left_out)
    notes = left_out
    both = [one.schedules.get("weight_decay") for one in (recipe, back)]
    if not _are_equal(*both):
        notes = (*notes, "the weight decay")
    if back.horizon is not None and back.horizon != total:
        notes = (*notes, "the length of the run")
    exact = Written(
        framework,
        text,
        writer.suffix,
        Verdict.EXACT,
        facts=dict(facts),
        left_out=tuple(dict.fromkeys(notes)),
        recipe=back,
    )
    return _judged(exact, recipe.schedule(), back.schedule(), total)


def _judged(exact: Written, ours: Schedule, theirs: Schedule, total: int) -> Written:
    """The verdict on two learning rates over a run, and after it where they are one in the run."""
    (found,) = diff(ours, theirs, total).curves
    if found.verdict is Status.PROVED:
        if equal_to(ours, theirs).verify(budget=LIMITS.audit_seconds).proved:
            return exact
        (later,) = diff(ours, theirs, total + AFTER).curves
        why = "after the run the curves differ"
        until = total if later.first_step is None else later.first_step
        return replace(exact, verdict=Verdict.UNTIL, until=until, why=why)
    if found.first_step is None:
        return replace(exact, verdict=Verdict.NEAREST, gap=0.0, at=0, why=found.reason)
    scale = max(abs(to_float(one.exact(found.at or 0))) for one in (ours, theirs))
    largest = max(scale, *(abs(to_float(ours.exact(cell.first))) for cell in cells_of(ours)))
    why = "the framework's curve is another one, or its numbers are whole updates"
    near = replace(
        exact, verdict=Verdict.NEAREST, gap=found.max_gap / largest, at=found.at, why=why
    )
    first = found.first_step
    if 2 * first < total or diff(ours, theirs, first).verdict is not Status.PROVED:
        return near
    why = "the curves differ from there on"
    return replace(near, verdict=Verdict.UNTIL, until=first, why=why)


def _are_equal(ours: Schedule | None, theirs: Schedule | None) -> bool:
    """Whether two weight decays are one; a framework that has none decides nothing."""
    if ours is None or theirs is None:
        return True
    if any(t in one.expr.free_symbols for one in (ours, theirs)):
        return bool(equal_to(ours, theirs).verify(budget=LIMITS.audit_seconds).proved)
    return bool(ours.exact(0) == theirs.exact(0))


# --- text ----------------------------------------------------------------------------------------


def rendered(config: Config, suffix: str) -> str:
    """Returns a config as the text of a file.

    Example:
        >>> print(rendered({"lr": 0.001, "train-iters": 10}, ".args"), end="")
        --lr 0.001
        --train-iters 10
    """
    if suffix == ".args":
        return "".join(f"--{key} {_scalar(value)}\n" for key, value in config.items())
    if suffix == ".json":
        return json.dumps(config, indent=2) + "\n"
    if suffix == ".toml":
        return "\n".join(_toml(config))
    return yaml.safe_dump(dict(config), sort_keys=False)


def _scalar(value: Any) -> str:
    if isinstance(value, bool):
        return "true" if value else "false"
    return json.dumps(value) if isinstance(value, str) and not value.isidentifier() else str(value)


def _toml(config: Config) -> Iterator[str]:
    for name, section in config.items():
        yield f"[{name}]"
        for key, value in section.items():
            yield f"{key} = {json.dumps(value)}"
        yield ""


# --- the form ------------------------------------------------------------------------------------


@dataclass(frozen=True, slots=True)
class _Segment:
    """A part of the values: from ``first`` on, before ``end``, None for no end."""

    first: int
    end: int | None
    curve: Curve
    numbers: tuple[sp.Expr, ...]

    def value(self, step: int) -> sp.Expr:
        if self.curve is Curve.CONSTANT:
            return self.numbers[0]
        if self.curve is Curve.LINEAR:
            return self.numbers[0] + self.numbers[1] * step
        if self.curve is Curve.COSINE:
            middle, size, begin, length = self.numbers
            return middle + size * sp.cos(sp.pi * (step - begin) / length)
        peak, begin, scale = self.numbers
        return peak * sp.sqrt(scale / (step - begin))


def recognized(schedule: Schedule, total: int) -> Form | None:
    """Returns the form of a schedule over a run, None if it is not a rise, a plateau and a decay.

    Example:
        >>> from closedform import schedules
        >>> made = schedules.linear(0, 1, 4).then(schedules.cosine(1, 0, 20))
        >>> form = recognized(made, 24)
        >>> form.curve.value, form.peak, form.begin, form.end, form.warmup()
        ('cosine', 1, 4, 24, 4)
    """
    if schedule.open:
        return None
    return _of_segments(_segments(schedule, total, 3), total) or _of_segments(
        _segments(schedule, total, 1), total
    )


def _of_segments(segments: Sequence[_Segment] | None, total: int) -> Form | None:
    if not segments:
        return None
    rise, rest = _split(segments)
    if not rest:
        return None if rise is None else _only_rising(rise, total)
    peak_segment = rest[0] if rest[0].curve is Curve.CONSTANT else None
    if len(rest) == 1 and peak_segment is not None:
        peak = peak_segment.numbers[0]
        if rise is not None and peak < rise.start + rise.slope * (rise.end - 1):
            return _dropping(rise, peak, total)
        return Form(
            rise,
            peak,
            peak,
            sp.S.Zero,
            sp.Integer(total),
            Curve.CONSTANT,
            peak_segment.first,
            total,
        )
    decay = rest[1] if peak_segment is not None else rest[0]
    after = rest[2:] if peak_segment is not None else rest[1:]
    if decay.curve is Curve.CONSTANT or any(one.curve is not Curve.CONSTANT for one in after):
        return None
    return _with_decay(rise, peak_segment, decay, after, total)


def _only_rising(rise: Rise, total: int) -> Form:
    """A run that ends within its warmup."""
    peak = rise.start + rise.slope * rise.end
    return Form(rise, peak, peak, sp.S.Zero, sp.Integer(total), Curve.CONSTANT, rise.end, total)


def _dropping(rise: Rise, low: sp.Expr, total: int) -> Form:
    """A rise after which the rate falls at once: a decay over one update."""
    last = rise.end - 1
    return Form(
        rise,
        rise.start + rise.slope * last,
        low,
        sp.Integer(last),
        sp.Integer(rise.end),
        Curve.LINEAR,
        rise.end,
        total,
    )


def _split(segments: Sequence[_Segment]) -> tuple[Rise | None, list[_Segment]]:
    """The rise, and the other segments."""
    rest = list(segments)
    begin = 0
    is_point = len(rest) > 1 and rest[0].end == 1 and rest[1].curve is Curve.COSINE
    if is_point and 0 < rest[1].numbers[2] < 1:
        # A rise over a part of one update: its line meets the peak where the decay begins.
        middle, size, meeting, _ = rest[1].numbers
        start = rest[0].value(0)
        return Rise(start, (middle + size - start) / meeting, 0, 1), rest[1:]
    flat_first = (
        len(rest) > 1
        and rest[0].end == 1
        and rest[1].curve is Curve.LINEAR
        and rest[1].numbers[1] > 0
    )
    if flat_first:
        begin, rest = 1, rest[1:]
    if rest[0].curve is Curve.LINEAR and rest[0].numbers[1] > 0:
        end = rest[0].end
        if end is None:
            return None, []
        return Rise(rest[0].numbers[0], rest[0].numbers[1], begin, end), rest[1:]
    return None, rest


def _with_decay(
    rise: Rise | None,
    plateau: _Segment | None,
    decay: _Segment,
    after: Sequence[_Segment],
    total: int,
) -> Form | None:
    if decay.curve is Curve.INVERSE_ROOT:
        peak, begin, scale = decay.numbers
        return Form(rise, peak, sp.S.Zero, begin, scale, decay.curve, decay.first, total)
    if decay.curve is Curve.COSINE:
        middle, size, begin, length = decay.numbers
        return Form(
            rise,
            middle + size,
            middle - size,
            begin,
            begin + length,
            decay.curve,
            decay.first,
            total,
        )
    start, slope = decay.numbers
    # A line without an end may end with the run.
    low = after[0].numbers[0] if after else start + slope * total
    if plateau is not None:
        peak = plateau.numbers[0]
    elif rise is not None:
        # Where the two lines meet.
        meeting = (start - rise.start) / (rise.slope - slope)
        peak = rise.start + rise.slope * meeting
    else:
        peak = start
    begin, end = (peak - start) / slope, (low - start) / slope
    return Form(rise, peak, low, begin, end, decay.curve, decay.first, total)


def _segments(schedule: Schedule, total: int, later: int) -> list[_Segment] | None:
    """The segments of the run and some after it; None if one of the run has another curve."""
    firsts = sorted({max(0, cell.first) for cell in cells_of(schedule)})
    found: list[_Segment] = []
    for index, first in enumerate(firsts):
        end = firsts[index + 1] if index + 1 < len(firsts) else None
        segment = _fitted(schedule, first, end, total, found[-1] if found else None)
        if segment is None:
            if first >= total:
                break
            return None
        is_same = bool(found) and (found[-1].curve, found[-1].numbers) == (
            segment.curve,
            segment.numbers,
        )
        if is_same:
            segment = _Segment(found.pop().first, segment.end, segment.curve, segment.numbers)
        found.append(segment)
        later -= int(first >= total)
        if not later:
            break
    return found


def _fitted(
    schedule: Schedule, first: int, end: int | None, total: int, before: _Segment | None
) -> _Segment | None:
    last = max(total, first + 200) if end is None else end
    if isinstance(schedule, PartialSchedule):
        last = min(last, schedule.end)
    count = last - first
    marks = sorted({0, 1, 2, count // 5, count // 3, count // 2, 4 * count // 5, count - 1})
    steps = [first + mark for mark in marks if 0 <= mark < count]
    try:
        values = {step: _number(schedule.exact(step)) for step in steps}
    except ClosedFormError:
        return None
    if before is not None and count <= 2 and _agrees(before, values):
        return _Segment(first, end, before.curve, before.numbers)
    for curve, fit in _FITS:
        numbers = fit(schedule, values, first, count)
        if numbers is None:
            continue
        segment = _Segment(first, end, curve, numbers)
        if _agrees(segment, values):
            return segment
    return None


def _number(value: sp.Expr) -> sp.Expr:
    """An exact fraction, or many digits."""
    return value if value.is_Rational else value.evalf(DIGITS)


def _agrees(segment: _Segment, values: Mapping[int, sp.Expr]) -> bool:
    scale = max((abs(value) for value in values.values()), default=sp.S.One) or sp.S.One
    return all(
        abs(segment.value(step).evalf(DIGITS) - value) < scale * sp.Float("1e-25", DIGITS)
        for step, value in values.items()
    )


def simple(value: sp.Expr) -> sp.Expr | None:
    """Returns the simplest number that a value of many digits is: a decimal, or a fraction.

    Example:
        >>> simple(sp.Float("0.00065", 60)), simple((sp.Integer(2) / 3).evalf(60))
        (13/20000, 2/3)
    """
    if value.is_Rational:
        return value
    if not value.is_Float:
        return None
    if abs(value) < sp.Float("1e-35", DIGITS):
        return sp.S.Zero
    near = sp.Float("1e-30", DIGITS) * max(abs(value), sp.Float("1e-10", DIGITS))
    decimal = sp.Rational(str(sp.Float(value, 17)))
    if abs(decimal - value) < near:
        return decimal
    fraction = sp.Rational(value).limit_denominator(10**9)
    return fraction if abs(fraction - value) < near else None


Fit = tuple[sp.Expr, ...] | None


def _fit_constant(schedule: Schedule, values: Mapping[int, sp.Expr], first: int, count: int) -> Fit:
    del schedule, count
    found = simple(values[first])
    return None if found is None else (found,)


def _fit_line(schedule: Schedule, values: Mapping[int, sp.Expr], first: int, count: int) -> Fit:
    del schedule
    if count < 2:
        return None
    last = max(values)
    slope = simple((values[last] - values[first]) / (last - first))
    if slope is None:
        return None
    start = simple(values[first] - slope * first)
    return None if start is None else (start, slope)


def _fit_cosine(schedule: Schedule, values: Mapping[int, sp.Expr], first: int, count: int) -> Fit:
    """From values at equal distances: y(c+h) + y(c-h) is k y(c) + d, with k = 2 cos(pi h/L)."""
    distance = (count - 1) // 5
    if distance < 1 or count < 5:
        return None
    del values
    at = [schedule.exact(first + index * distance).evalf(DIGITS) for index in range(5)]
    ends = [at[index - 1] + at[index + 1] for index in (1, 3)]
    if abs(at[1] - at[3]) < sp.Float("1e-40", DIGITS):
        return None
    factor = (ends[0] - ends[1]) / (at[1] - at[3])
    if not -2 < factor < 2:
        return None
    angle = sp.acos(factor / 2).evalf(DIGITS)
    middle = simple((ends[0] - factor * at[1]) / (2 - factor))
    length = simple((sp.pi.evalf(DIGITS) * distance / angle).evalf(DIGITS))
    if middle is None or length is None:
        return None
    theta = (sp.pi * distance / length).evalf(DIGITS)
    real, imaginary = at[1] - middle, (at[0] - at[2]) / (2 * sp.sin(theta).evalf(DIGITS))
    size = simple(sp.sqrt(real**2 + imaginary**2).evalf(DIGITS))
    phase = sp.atan2(imaginary, real).evalf(DIGITS)
    begin = simple((first + distance - phase * length / sp.pi.evalf(DIGITS)).evalf(DIGITS))
    return None if size is None or begin is None else (middle, size, begin, length)


def _fit_inverse_root(
    schedule: Schedule, values: Mapping[int, sp.Expr], first: int, count: int
) -> Fit:
    """The inverse of the square is a line; the scale is that of the peak at the first update."""
    del schedule
    if count < 3 or any(value <= 0 for value in values.values()):
        return None
    last = max(values)
    one, other = (1 / values[step] ** 2 for step in (first, last))
    slope = (other - one) / (last - first)
    if slope <= 0:
        return None
    begin = simple((first - one / slope).evalf(DIGITS))
    peak = simple(values[first])
    if begin is None or peak is None:
        return None
    return peak, begin, first - begin


_FITS = (
    (Curve.CONSTANT, _fit_constant),
    (Curve.LINEAR, _fit_line),
    (Curve.COSINE, _fit_cosine),
    (Curve.INVERSE_ROOT, _fit_inverse_root),
)

"""Writing a recipe as the native config of another framework, with a verdict that is proved.

The learning rate is recognized as a rise, a plateau and one decay, with exact parameters where they
are simple numbers. The framework's writer makes configs of that form; each is read back by the
framework's reader and compared with the recipe: first at many updates, then by the prover.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from dataclasses import dataclass, field, replace
from enum import StrEnum
from typing import Any, assert_never

from closedform.analysis.difference import diff
from closedform.analysis.writing.extension import extension_source, other_rates
from closedform.analysis.writing.python_text import read_back
from closedform.analysis.writing.recognition import recognize_form
from closedform.analysis.writing.table import table_text
from closedform.analysis.writing.texts import render_config
from closedform.effort import Effort
from closedform.errors import ArgumentError, ClosedFormError, UnknownNameError, describe, nearest
from closedform.language import Schedule, UpdateRule, exact_number
from closedform.language.exact import to_float
from closedform.recipes.document import document_of
from closedform.recipes.forms import (
    RUN,
    Config,
    GroupDifference,
    Optimizer,
    WarmupDecayForm,
    Writer,
)
from closedform.recipes.load import load_recipe
from closedform.recipes.recipe import ClippingKind, ParamGroup, Recipe, Role, is_constant
from closedform.recipes.registry import FRAMEWORKS, unknown_framework
from closedform.verify.claims.values import equal_to
from closedform.verify.terms.limits import LIMITS
from closedform.verify.terms.real_line import cells_of
from closedform.verify.terms.verdict import Status

AFTER = 1000
"""Updates after the run in which the first difference is looked for."""


class Verdict(StrEnum):
    """How well a config has the recipe's schedules."""

    EXACT = "exact"
    UNTIL = "exact until"
    NEAREST = "nearest"
    IMPOSSIBLE = "impossible"


class TextKind(StrEnum):
    """The text that a recipe is written as.

    ``config`` is the native config of the framework; ``table`` the values of the run as CSV;
    ``extension`` Python source with the closed form, for the framework's extension point.
    """

    CONFIG = "config"
    TABLE = "table"
    EXTENSION = "extension"


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
        added: The param groups that the framework adds and the recipe does not have.
        version: The version of the framework that it is written for; empty for the newest.
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
    added: tuple[str, ...] = ()
    version: str = ""
    recipe: Recipe | None = None


def write_recipe(
    recipe: Recipe, framework: str, total: int | None = None, kind: str = TextKind.CONFIG
) -> Written:
    """Returns a recipe as the config of a framework, or as a table or source for it.

    A config is read back by the framework's reader, and each of its curves is compared with that of
    the recipe; an extension is read back as expressions, and proved; a table has the values of the
    run as float64 computes them.

    Args:
        recipe: The recipe.
        framework: A framework that has a writer (``closedform.analysis.writing.writable()``). For a
            table any name; for an extension any framework, ``torch`` or ``optax``.
        total: The updates of the run; the horizon of the recipe if not given.
        kind: ``config``, ``table`` or ``extension``.

    Raises:
        UnknownNameError: There is no such framework or kind, or it has no writer.
        ArgumentError: The recipe has no horizon, and no total is given.

    Example:
        >>> flags = {"lr": 1e-3, "train-iters": 100, "lr-warmup-iters": 10, "min-lr": 1e-4}
        >>> recipe = load_recipe(flags, framework="megatron", facts={"global_batch_size": 8})
        >>> written = write_recipe(recipe, "automodel")
        >>> written.verdict.value, written.recipe.schedule().exact(5)
        ('exact', 1/2000)
    """
    if not isinstance(recipe, Recipe):
        raise ArgumentError(
            f"write_recipe takes a Recipe, got {describe(recipe)}",
            hint="load_recipe reads a config",
        )
    check_target(framework, kind)
    if kind != TextKind.CONFIG:
        return written_values(recipe, framework, run_length(recipe, total), TextKind(kind))
    writer = _writer(framework)
    total = run_length(recipe, total)
    form = recognize_form(recipe.schedule(), total)
    optimizer = _optimizer(recipe, framework, writer, total)
    if form is None:
        return _impossible(framework, writer, UNKNOWN_CURVE, ())
    facts_of_recipe = _known_facts(recipe, writer, form)
    all_facts = {**writer.facts, **facts_of_recipe}
    facts = {name: value for name, value in all_facts.items() if value not in (None, RUN)}
    best = _impossible(framework, writer, f"{framework} has no {describe_form(form)}", ())
    for config in writer.configs(form, replace(optimizer, facts=facts_of_recipe)):
        candidate = _try_config(recipe, framework, writer, config, facts, total, optimizer.version)
        if _rank(candidate, total) < _rank(best, total):
            best = candidate
        # Writers yield their likeliest config first: the first exact one ends the search.
        if best.verdict is Verdict.EXACT and not best.left_out:
            break
    return best


def check_target(framework: str, kind: str = TextKind.CONFIG) -> None:
    """Raises the error of ``write_recipe`` for a framework or kind that is not written.

    Raises:
        UnknownNameError: There is no such framework or kind, or it has no writer.
    """
    if kind not in set(TextKind):
        raise UnknownNameError(f"there is no kind {kind!r}", hint=nearest(kind, list(TextKind)))
    if kind == TextKind.CONFIG:
        _writer(framework)
    elif kind == TextKind.EXTENSION and framework not in FRAMEWORKS:
        raise unknown_framework(framework)


def run_length(recipe: Recipe, total: int | None) -> int:
    """Returns the updates of the run.

    Raises:
        ArgumentError: The recipe has no horizon, and no total is given.
    """
    length = recipe.horizon if total is None else total
    if length is None:
        raise ArgumentError(
            "the updates of the run are needed, and the recipe has no horizon",
            where=recipe.source,
            hint="give total=UPDATES, or the fact total_updates when reading",
        )
    return int(length)


UNKNOWN_CURVE = "a part of the learning rate has a curve that is not recognized"


def describe_form(form: WarmupDecayForm) -> str:
    """Returns the name of a form, for messages.

    Example:
        >>> from closedform import schedules
        >>> form = recognize_form(schedules.cosine(1, 0, 20), 20)
        >>> form and describe_form(form)
        'cosine decay'
    """
    rise = ""
    if form.rise is not None and form.rise.curve is not form.rise.curve.LINEAR:
        rise = f" after a {form.rise.curve} warmup"
    cycles = f" of {form.cycles} cycles" if form.cycles > 1 else ""
    epochs = " by epochs" if form.stride > 1 else ""
    return f"{form.curve} decay{epochs}{cycles}{rise}"


def written_values(recipe: Recipe, framework: str, total: int, kind: TextKind) -> Written:
    """Returns the values of a recipe as a table, or as source for an extension point.

    Raises:
        UnknownNameError: There is no such framework.
        ArgumentError: A table would be too long.
    """
    if framework not in FRAMEWORKS:
        raise unknown_framework(framework)
    if kind is TextKind.TABLE:
        why = "the values are those of float64, and the table ends with the run"
        text = table_text(recipe, total)
        left = tuple(f"the param group {name!r}" for name in other_rates(recipe))
        return Written(framework, text, ".csv", Verdict.UNTIL, total, why=why, left_out=left)
    rates = [recipe.schedule(), *other_rates(recipe).values()]
    try:
        text = extension_source(recipe, framework, total)
        proofs = [
            equal_to(rate, read_back(rate)).judge(Effort.of(LIMITS.comparison_work))
            for rate in rates
        ]
    except ClosedFormError as error:
        return Written(framework, "", ".py", Verdict.IMPOSSIBLE, why=error.what)
    driven_keys = [key for key in recipe.changing_schedules if key != "lr"]
    left = tuple(f"the schedule of the {key.replace('_', ' ')}" for key in driven_keys)
    exact = Written(framework, text, ".py", Verdict.EXACT, left_out=left)
    if all(rate.proved for rate in proofs):
        return exact
    return replace(exact, verdict=Verdict.NEAREST, why="the source is not proved equal")


def writable() -> tuple[str, ...]:
    """Returns the frameworks whose configs can be written.

    Example:
        >>> "megatron" in writable()
        True
    """
    return tuple(name for name, entry in FRAMEWORKS.items() if entry.writer is not None)


def _writer(framework: str) -> Writer:
    if framework not in FRAMEWORKS:
        raise unknown_framework(framework, writable())
    entry = FRAMEWORKS[framework]
    if entry.writer is None:
        raise UnknownNameError(
            f"configs of {framework!r} are not written", hint=nearest(framework, writable())
        )
    return entry.writer


def _known_facts(recipe: Recipe, writer: Writer, form: WarmupDecayForm) -> dict[str, Any]:
    """The facts of the recipe that the writer has use for."""
    facts = {name: getattr(recipe.facts, name) for name in writer.facts}
    if writer.facts.get("total_updates") == RUN:
        facts["total_updates"] = form.total
    lengths = {segment.stride for segment in form.segments if segment.stride > 1}
    if writer.facts.get("updates_per_epoch") == RUN and lengths:
        facts["updates_per_epoch"] = lengths.pop()
    return {name: value for name, value in facts.items() if value is not None}


def _impossible(framework: str, writer: Writer, why: str, left_out: tuple[str, ...]) -> Written:
    return Written(framework, "", writer.suffix, Verdict.IMPOSSIBLE, why=why, left_out=left_out)


def _rank(result: Written, total: int) -> tuple[int, float, int]:
    """The order of verdicts: one that holds until after the run is before all gaps."""
    left = len(result.left_out)
    # A config that differs only after the run is as good as an exact one to train with.
    is_whole = result.until is None or result.until >= total
    match result.verdict:
        case Verdict.EXACT:
            return 0, 0.0, left
        case Verdict.UNTIL if is_whole:
            return 1, 0.0, left
        case Verdict.UNTIL | Verdict.NEAREST:
            return 2, result.gap or 0.0, left
        case Verdict.IMPOSSIBLE:
            return 3, 0.0, left
        case _:
            assert_never(result.verdict)


_FALLS_OUT = ("lr", "weight_decay")
"""Hyperparameters of a rule that are schedules of the param group, and compared as such."""


def _optimizer(recipe: Recipe, framework: str, writer: Writer, total: int) -> Optimizer:
    """The optimizer, the param groups and the other schedules for the writer."""
    threshold, changing = None, dict(recipe.schedules)
    limit = recipe.clipping
    if limit is not None and limit.kind is ClippingKind.NORM:
        if isinstance(limit.threshold, Schedule):
            changing["clipping"] = limit.threshold
        else:
            threshold = limit.threshold
    name, values = "", {}
    rule = _rule(recipe)
    if rule is not None and rule.name in writer.optimizers:
        name, hyperparameters = rule.name, rule.hyperparameters
        if "beta1" in hyperparameters and not isinstance(hyperparameters["beta1"], Schedule):
            values["betas"] = (hyperparameters["beta1"], hyperparameters["beta2"])
        for key in ("eps", "momentum", "dampening"):
            if key in hyperparameters and not isinstance(hyperparameters[key], Schedule):
                values[key] = hyperparameters[key]
    forms = {
        key: recognize_form(schedule, total)
        for key, schedule in changing.items()
        if key != "lr" and not is_constant(schedule)
    }
    is_own = not name and recipe.framework == framework
    decay = recipe.schedules.get("weight_decay")
    return Optimizer(
        name,
        values,
        None if decay is None else decay.exact(0),
        threshold,
        groups=tuple(_group(recipe, param_group, total) for param_group in recipe.param_groups[1:]),
        schedules={key: form for key, form in forms.items() if form is not None},
        custom=recipe.param_groups[0].optimizer if is_own else None,
        limit=limit,
        version=recipe.version if recipe.framework == framework else "",
    )


def _rule(recipe: Recipe) -> UpdateRule | None:
    try:
        return recipe.optimizer()
    except ClosedFormError:
        return None


def _group(recipe: Recipe, group: ParamGroup, total: int | None = None) -> GroupDifference:
    first = recipe.param_groups[0]
    factor = _factor(first.schedules["lr"], group.schedules["lr"])
    first_decay, group_decay = (
        param_group.schedules.get("weight_decay") for param_group in (first, group)
    )
    decay = None
    if (
        group_decay is not None
        and first_decay is not None
        and group_decay != first_decay
        and is_constant(group_decay)
    ):
        decay = group_decay.exact(0)
    form = None
    if factor is None and total is not None:
        form = recognize_form(group.schedules["lr"], total)
    is_special = group.optimizer.name != first.optimizer.name
    return GroupDifference(group.name, group.patterns, factor, decay, form, is_special)


def _factor(first: Schedule, second: Schedule) -> Any:
    """The constant that one schedule is a multiple of the other by, None if there is none."""
    if first == second:
        return exact_number(1)
    # The ratio at the first value that is not 0; the quotient of the whole schedules is then
    # compared.
    for step in (0, 1, 2, 10, 100):
        if first.exact(step) != 0:
            ratio = (second.exact(step) / first.exact(step)).cancel()
            if not ratio.is_Rational:
                return None
            return ratio if _are_equal(first.scale(ratio), second) else None
    return None


def _try_config(
    recipe: Recipe,
    framework: str,
    writer: Writer,
    config: Config,
    facts: Mapping[str, Any],
    total: int,
    version: str,
) -> Written:
    """A config, read back and compared; impossible where the framework refuses it."""
    text = render_config(config, writer.suffix) if writer.text is None else writer.text(config)
    try:
        document = document_of(text, writer.suffix, f"<{framework}>")
        back = load_recipe(document, framework, version or None, facts)
    except ClosedFormError as error:
        return _impossible(framework, writer, f"{framework} refuses it: {error.what}", ())
    exact = Written(
        framework,
        text,
        writer.suffix,
        Verdict.EXACT,
        facts=dict(facts),
        left_out=tuple(_left_out(recipe, back, total)),
        added=tuple(_added_groups(recipe, back, total)),
        version=version,
        recipe=back,
    )
    return _judge(exact, recipe.schedule(), back.schedule(), total)


# --- differences besides the learning rate --------------------------------------------------------


def _left_out(recipe: Recipe, back: Recipe, total: int) -> Iterator[str]:
    """Yields the parts of the recipe that the config, as it is read back, does not have."""
    for group in recipe.param_groups[1:]:
        if _is_other(recipe, group) and not any(
            _are_alike(recipe, group, back, param_group, total)
            for param_group in back.param_groups[1:]
        ):
            yield f"the param group {group.name!r}"
    for key, schedule in recipe.schedules.items():
        back_schedule = back.schedules.get(key)
        if key == "lr" or _are_equal(schedule, back_schedule, total):
            continue
        label = key.replace("_", " ")
        yield f"the {label}" if is_constant(schedule) else f"the schedule of the {label}"
    yield from _optimizer_difference(recipe, back)
    if recipe.clipping != back.clipping:
        yield "the clipping of gradients"
    if back.horizon is not None and back.horizon != total:
        yield "the length of the run"


def _added_groups(recipe: Recipe, back: Recipe, total: int) -> Iterator[str]:
    """The param groups that the framework makes, and that the recipe does not have."""
    for group in back.param_groups[1:]:
        if _is_other(back, group) and not any(
            _are_alike(back, group, recipe, param_group, total)
            for param_group in recipe.param_groups[1:]
        ):
            yield f"the param group {group.name!r}"


def _is_other(recipe: Recipe, group: ParamGroup) -> bool:
    """Whether a param group differs from the default one."""
    first = recipe.param_groups[0]
    return group.schedules != first.schedules or group.optimizer.name != first.optimizer.name


def _are_alike(
    recipe: Recipe, group: ParamGroup, other_recipe: Recipe, other_group: ParamGroup, total: int
) -> bool:
    """Whether two param groups differ from their default groups in the same way."""
    is_one_framework = recipe.framework == other_recipe.framework
    roles = {group.role, other_group.role}
    # A role and a name of a config may be one group, two roles or two names are not.
    has_one_kind = roles == {Role.NAMED} or Role.NAMED not in roles
    is_one_role = len(roles) == 1 and roles != {Role.NAMED}
    if is_one_framework and has_one_kind and group.name != other_group.name and not is_one_role:
        return False
    first_group, second_group = _group(recipe, group), _group(other_recipe, other_group)
    is_same = (first_group.weight_decay, first_group.is_special) == (
        second_group.weight_decay,
        second_group.is_special,
    )
    if first_group.factor is not None or second_group.factor is not None:
        return is_same and first_group.factor == second_group.factor
    return is_same and _are_equal(group.schedules["lr"], other_group.schedules["lr"], total)


def _optimizer_difference(recipe: Recipe, back: Recipe) -> Iterator[str]:
    rule, back_rule = _rule(recipe), _rule(back)
    name = recipe.param_groups[0].optimizer.name
    if rule is None or back_rule is None:
        if name != back.param_groups[0].optimizer.name:
            yield f"the optimizer {name}"
        return
    if rule.name != back_rule.name:
        yield f"the optimizer {name}"
        return
    for key, value in rule.hyperparameters.items():
        counterpart = back_rule.hyperparameters.get(key)
        is_constant_number = not isinstance(value, Schedule) and not isinstance(
            counterpart, Schedule
        )
        if key not in _FALLS_OUT and is_constant_number and value != counterpart:
            yield f"the {key} of the optimizer"


def _are_equal(schedule: Schedule, back: Schedule | None, total: int | None = None) -> bool:
    """Whether two schedules are proved to be one, over the run where that is given.

    Of a framework without the value, 0 is what it has.
    """
    if back is None:
        return is_constant(schedule) and schedule.exact(0) == 0
    if is_constant(schedule) and is_constant(back):
        return bool(schedule.exact(0) == back.exact(0))
    if total is not None:
        return diff(schedule, back, total).verdict is Status.PROVED
    return bool(equal_to(schedule, back).judge(Effort.of(LIMITS.comparison_work)).proved)


# --- the verdict ---------------------------------------------------------------------------------


def _judge(exact: Written, schedule: Schedule, back: Schedule, total: int) -> Written:
    """The verdict on two learning rates over a run, and after it where they are one in the run."""
    (difference,) = diff(schedule, back, total).curves
    if difference.verdict is Status.PROVED:
        if equal_to(schedule, back).judge(Effort.of(LIMITS.comparison_work)).proved:
            return exact
        (later,) = diff(schedule, back, total + AFTER).curves
        why = "after the run the curves differ"
        until = total if later.first_step is None else later.first_step
        return replace(exact, verdict=Verdict.UNTIL, until=until, why=why)
    if difference.first_step is None:
        return replace(exact, verdict=Verdict.NEAREST, gap=0.0, at=0, why=difference.reason)
    scale = max(abs(to_float(rate.exact(difference.at or 0))) for rate in (schedule, back))
    largest = max(
        scale, *(abs(to_float(schedule.exact(cell.first))) for cell in cells_of(schedule))
    )
    why = "the framework's curve is another one, or its numbers are whole updates"
    near = replace(
        exact, verdict=Verdict.NEAREST, gap=difference.max_gap / largest, at=difference.at, why=why
    )
    first = difference.first_step
    if 2 * first < total or diff(schedule, back, first).verdict is not Status.PROVED:
        return near
    why = "the curves differ from there on"
    return replace(near, verdict=Verdict.UNTIL, until=first, why=why)

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

from closedform.difference import diff
from closedform.errors import ArgumentError, ClosedFormError, UnknownNameError, nearest
from closedform.language import Schedule, UpdateRule, exact_number
from closedform.language.exact import to_float
from closedform.recipes.forms import Config, Form, Group, Optimizer, Writer
from closedform.recipes.frameworks import FRAMEWORKS
from closedform.recipes.load import load_recipe
from closedform.recipes.recipe import ClippingKind, ParamGroup, Recipe, is_constant
from closedform.verify.claims.continuity import cells_of
from closedform.verify.claims.values import equal_to
from closedform.verify.terms.limits import LIMITS
from closedform.verify.terms.verdict import Status
from closedform.writing.recognition import recognized
from closedform.writing.texts import rendered

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
        added: The param groups that the framework makes beside, and the recipe does not have.
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
    total = run_length(recipe, total)
    form = recognized(recipe.schedule(), total)
    optimizer = _optimizer(recipe, writer, total)
    if form is None:
        return _impossible(framework, writer, UNKNOWN_CURVE, ())
    known = _known_facts(recipe, writer)
    given = {**writer.facts, **known}
    facts = {name: value for name, value in given.items() if value is not None}
    best = _impossible(framework, writer, f"{framework} has no {described(form)}", ())
    for config in writer.configs(form, optimizer, known):
        found = _tried(recipe, framework, writer, config, facts, total)
        if _rank(found, total) < _rank(best, total):
            best = found
        if best.verdict is Verdict.EXACT and not best.left_out:
            break
    return best


def run_length(recipe: Recipe, total: int | None) -> int:
    """Returns the updates of the run.

    Raises:
        ArgumentError: The recipe has no horizon, and no total is given.
    """
    found = recipe.horizon if total is None else total
    if found is None:
        raise ArgumentError(
            "the updates of the run are needed, and the recipe has no horizon",
            where=recipe.source,
            hint="give total, or the fact total_updates when reading",
        )
    return int(found)


UNKNOWN_CURVE = "a part of the learning rate has a curve that is not recognized"


def described(form: Form) -> str:
    """Returns the name of a form, for messages.

    Example:
        >>> from closedform import schedules
        >>> form = recognized(schedules.cosine(1, 0, 20), 20)
        >>> form and described(form)
        'cosine decay'
    """
    rise = ""
    if form.rise is not None and form.rise.curve is not form.rise.curve.LINEAR:
        rise = f" after a {form.rise.curve} warmup"
    repeated = f" of {form.cycles} cycles" if form.cycles > 1 else ""
    epochs = " by epochs" if form.stride > 1 else ""
    return f"{form.curve} decay{epochs}{repeated}{rise}"


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


def _rank(written: Written, total: int) -> tuple[int, float, int]:
    """The order of verdicts: one that holds until after the run is before all gaps."""
    left = len(written.left_out)
    is_whole = written.until is None or written.until >= total
    match written.verdict:
        case Verdict.EXACT:
            return 0, 0.0, left
        case Verdict.UNTIL if is_whole:
            return 1, 0.0, left
        case Verdict.UNTIL | Verdict.NEAREST:
            return 2, written.gap or 0.0, left
        case Verdict.IMPOSSIBLE:
            return 3, 0.0, left
        case _:
            assert_never(written.verdict)


_FALLS_OUT = ("lr", "weight_decay")
"""Hyperparameters of a rule that are schedules of the param group, and compared as such."""


def _optimizer(recipe: Recipe, writer: Writer, total: int) -> Optimizer:
    """The optimizer, the param groups and the other schedules for the writer."""
    threshold = None
    if recipe.clipping is not None and recipe.clipping.kind is ClippingKind.NORM:
        given = recipe.clipping.threshold
        threshold = None if isinstance(given, Schedule) else given
    name, values = "", {}
    rule = _rule(recipe)
    if rule is not None and rule.name in writer.optimizers:
        name, given = rule.name, rule.hyperparameters
        if "beta1" in given and not isinstance(given["beta1"], Schedule):
            values["betas"] = (given["beta1"], given["beta2"])
        for key in ("eps", "momentum", "dampening"):
            if key in given and not isinstance(given[key], Schedule):
                values[key] = given[key]
    changing = {
        key: recognized(made, total)
        for key, made in recipe.schedules.items()
        if key != "lr" and not is_constant(made)
    }
    decay = recipe.schedules.get("weight_decay")
    return Optimizer(
        name,
        values,
        None if decay is None else decay.exact(0),
        threshold,
        groups=tuple(_group(recipe, one) for one in recipe.param_groups[1:]),
        schedules={key: form for key, form in changing.items() if form is not None},
        framework=recipe.framework,
    )


def _rule(recipe: Recipe) -> UpdateRule | None:
    try:
        return recipe.optimizer()
    except ClosedFormError:
        return None


def _group(recipe: Recipe, group: ParamGroup) -> Group:
    first = recipe.param_groups[0]
    factor = _factor(first.schedules["lr"], group.schedules["lr"])
    ours, theirs = (one.schedules.get("weight_decay") for one in (first, group))
    decay = None
    if theirs is not None and ours is not None and theirs != ours and is_constant(theirs):
        decay = theirs.exact(0)
    is_special = factor is None or group.optimizer.name != first.optimizer.name
    return Group(group.name, group.patterns, factor, decay, is_special)


def _factor(first: Schedule, other: Schedule) -> Any:
    """The constant that one schedule is a multiple of the other by, None if there is none."""
    if first == other:
        return exact_number(1)
    for step in (0, 1, 2, 10, 100):
        if first.exact(step) != 0:
            ratio = (other.exact(step) / first.exact(step)).cancel()
            if not ratio.is_Rational:
                return None
            return ratio if _are_equal(first.scale(ratio), other) else None
    return None


def _tried(
    recipe: Recipe,
    framework: str,
    writer: Writer,
    config: Config,
    facts: Mapping[str, Any],
    total: int,
) -> Written:
    """A config, read back and compared; impossible where the framework refuses it."""
    text = rendered(config, writer.suffix)
    try:
        back = load_recipe(config, framework=framework, facts=facts)
    except ClosedFormError as error:
        return _impossible(framework, writer, f"{framework} refuses it: {error.what}", ())
    exact = Written(
        framework,
        text,
        writer.suffix,
        Verdict.EXACT,
        facts=dict(facts),
        left_out=tuple(_left_out(recipe, back, total)),
        added=tuple(_added(recipe, back)),
        recipe=back,
    )
    return _judged(exact, recipe.schedule(), back.schedule(), total)


# --- differences beside the learning rate --------------------------------------------------------


def _left_out(recipe: Recipe, back: Recipe, total: int) -> Iterator[str]:
    """Yields the parts of the recipe that the config, as it is read back, does not have."""
    for group in recipe.param_groups[1:]:
        if _is_other(recipe, group) and not any(
            _are_alike(recipe, group, back, one) for one in back.param_groups[1:]
        ):
            yield f"the param group {group.name!r}"
    for key, ours in recipe.schedules.items():
        theirs = back.schedules.get(key)
        if key == "lr" or _are_equal(ours, theirs, total):
            continue
        said = key.replace("_", " ")
        yield f"the {said}" if is_constant(ours) else f"the schedule of the {said}"
    yield from _optimizer_difference(recipe, back)
    if recipe.clipping != back.clipping:
        yield "the clipping of gradients"
    if back.horizon is not None and back.horizon != total:
        yield "the length of the run"


def _added(recipe: Recipe, back: Recipe) -> Iterator[str]:
    """The param groups that the framework makes, and that the recipe does not have."""
    for group in back.param_groups[1:]:
        if _is_other(back, group) and not any(
            _are_alike(back, group, recipe, one) for one in recipe.param_groups[1:]
        ):
            yield f"the param group {group.name!r}"


def _is_other(recipe: Recipe, group: ParamGroup) -> bool:
    """Whether a param group differs from the default one."""
    first = recipe.param_groups[0]
    return group.schedules != first.schedules or group.optimizer.name != first.optimizer.name


def _are_alike(recipe: Recipe, group: ParamGroup, other: Recipe, one: ParamGroup) -> bool:
    """Whether two param groups differ from their default groups in the same way."""
    if group.name != one.name and recipe.framework == other.framework:
        return False
    ours, theirs = _group(recipe, group), _group(other, one)
    return (ours.factor, ours.weight_decay, ours.is_special) == (
        theirs.factor,
        theirs.weight_decay,
        theirs.is_special,
    )


def _optimizer_difference(recipe: Recipe, back: Recipe) -> Iterator[str]:
    ours, theirs = _rule(recipe), _rule(back)
    name = recipe.param_groups[0].optimizer.name
    if ours is None or theirs is None:
        if name != back.param_groups[0].optimizer.name:
            yield f"the optimizer {name}"
        return
    if ours.name != theirs.name:
        yield f"the optimizer {name}"
        return
    for key, value in ours.hyperparameters.items():
        other = theirs.hyperparameters.get(key)
        is_constant_number = not isinstance(value, Schedule) and not isinstance(other, Schedule)
        if key not in _FALLS_OUT and is_constant_number and value != other:
            yield f"the {key} of the optimizer"


def _are_equal(ours: Schedule, theirs: Schedule | None, total: int | None = None) -> bool:
    """Whether two schedules are proved to be one, over the run where that is given.

    Of a framework without the value, 0 is what it has.
    """
    if theirs is None:
        return is_constant(ours) and ours.exact(0) == 0
    if is_constant(ours) and is_constant(theirs):
        return bool(ours.exact(0) == theirs.exact(0))
    if total is not None:
        return diff(ours, theirs, total).verdict is Status.PROVED
    return bool(equal_to(ours, theirs).verify(budget=LIMITS.audit_seconds).proved)


# --- the verdict ---------------------------------------------------------------------------------


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

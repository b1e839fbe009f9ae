"""The reader of the configs of ModelZoo's trainer: the optimizer and the schedules of a run.

Of a config, ``trainer.init.optimizer``, ``trainer.init.schedulers`` and
``trainer.init.loop.max_steps`` are read. Class names may be in any letter case, scheduler names
without their ``LR``.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, replace
from typing import Any

import sympy as sp

from closedform.errors import UnknownNameError, nearest
from closedform.frameworks.cerebras.optimizers import AS_IMPLEMENTED, OPTIMIZERS
from closedform.frameworks.cerebras.param_groups import configure_param_groups
from closedform.frameworks.cerebras.schedules import SCHEDULES
from closedform.language import Schedule, UpdateRule, exact_number
from closedform.recipes import kit
from closedform.schedules import constant

_SCHEDULED = {"LR": "lr", "WD": "weight_decay"}


class _Loop(kit.ClassSection):
    max_steps: kit.Steps | None = kit.integer(None, least=1)


class _Init(kit.ClassSection):
    loop: _Loop


def matches(document: kit.Document) -> bool:
    """Returns whether a config has the section of ModelZoo's trainer."""
    trainer = document.content.get("trainer")
    return isinstance(trainer, Mapping) and isinstance(trainer.get("init"), Mapping)


def read(reading: kit.Reading) -> kit.Recipe:
    """Returns the recipe of a config, as :func:`closedform.recipes.load_recipe` describes it.

    Where a scheduler drives a key, it takes the place of the optimizer's own number.

    Raises:
        ConfigError: A class or argument is unknown, or a value is not valid. An optimizer that the
            library does not have is refused when it is asked for.
    """
    trainer = kit.document_section(reading.document).section("trainer")
    if "init" not in trainer:
        raise trainer.error(
            "a config must have the section 'trainer.init', got none",
            "init",
            "the form is trainer: init: {optimizer, schedulers, loop}",
        )
    init = trainer.section("init")
    values = _Init.read(init)
    context = replace(reading.context, entries=SCHEDULES)
    specs = _schedulers(init, context)
    name, place = _optimizer(init)
    factors = _factors(place)
    arguments = {
        key: value
        for key, value in place.content.items()
        if key not in ("adjust_learning_rate", "params")
    }

    def group(tag: str | None) -> kit.ParamGroup:
        schedules = {
            spec.key: spec.schedule for spec in specs if spec.tags is None or tag in spec.tags
        }
        plan = _plan(place, name, arguments, schedules, reading.as_implemented)
        if name in OPTIMIZERS:
            rule = plan.build(schedules)  # its arguments are checked at once
            for key in _SCHEDULED.values():
                value = rule.hyperparameters.get(key)
                if key not in schedules and value is not None:
                    schedules[key] = constant(value)
        return kit.ParamGroup(schedules, plan, kit.Role.of(tag or ""), tag or "")

    tags = {tag for spec in specs for tag in spec.tags or () if tag is not None}
    return reading.recipe(
        (group(None), *(group(tag) for tag in sorted(tags))),
        horizon=values.loop.max_steps,
        clipping=None,
        accumulation=None,
        values=(tuple(spec.content for spec in specs), name),
        grouping=LayerGrouping(factors, place.content.get("params")),
    )


@dataclass(frozen=True, slots=True)
class LayerGrouping:
    """The grouping of ModelZoo: no weight decay of biases and norms, factors by layer type.

    Attributes:
        adjust_learning_rate: Layer type -> factor of its learning rate; empty for none.
        params: The groups with tags, None for none.
    """

    adjust_learning_rate: Mapping[str, sp.Expr]
    params: Any = None

    def param_groups(
        self, recipe: kit.Recipe, params: Sequence[str], norms: Sequence[str]
    ) -> list[dict[str, Any]]:
        """Returns the groups of a model; those with a tag have the schedules of their tag."""
        decay = recipe.optimizer().hyperparameters.get("weight_decay", 0)
        config = {"weight_decay": decay, "adjust_learning_rate": self.adjust_learning_rate}
        if self.params is not None:
            config["params"] = self.params
        groups = configure_param_groups(params, norms, config)
        default = recipe.param_groups[0].schedules
        for group in groups:
            for own in recipe.param_groups[1:]:
                if own.name not in group.get("tags", ()):
                    continue
                for key, schedule in own.schedules.items():
                    # Biases and norms stay without weight decay.
                    if schedule is not default.get(key) and group.get(key) != 0:
                        group[key] = schedule
        return groups


READER = kit.Reader(read, matches)


@dataclass(frozen=True, slots=True)
class _Driven:
    """A scheduler of a config: its key, the tags of its groups, None for all, and its schedule."""

    key: str
    tags: kit.Tags
    schedule: Schedule
    content: Mapping[str, Any]


def _schedulers(init: kit.RawSection, context: kit.Context) -> list[_Driven]:
    result: list[_Driven] = []
    content = init.content.get("schedulers")
    if content is None:
        return result
    entries = _members(init, [content] if isinstance(content, Mapping) else content)
    for entry in entries.content:
        _, place = entries.name_and_arguments(entry)
        name, arguments = _scheduler(entries, entry, context)
        if name.endswith("Scheduler"):
            raise entries.error(
                f"{name} does not say what it schedules",
                entry,
                "use the class of that name that ends with LR or WD",
            )
        key = _key(name)
        with entries.locate_errors(entry):
            tags = kit.read_tags(arguments.get("param_group_tags"), "param_group_tags", name)
        if any(
            driven.key == key and (tags is None or driven.tags is None or tags & driven.tags)
            for driven in result
        ):
            raise entries.error(
                f"two schedulers drive {key!r}",
                entry,
                "join them in one SequentialLR or SequentialWD, or give them "
                "param_group_tags with no tag in common",
            )
        schedule = _built(place, name, arguments, context)
        result.append(_Driven(key, tags, schedule, {"class": name, "kwargs": arguments}))
    return result


def _key(name: str) -> str:
    """The quantity of a class: for CosineAnnealingWarmRestarts the learning rate."""
    return _SCHEDULED.get(name[-2:], "lr")


def _members(place: kit.RawSection, items: object) -> kit.RawSection:
    """The list ``schedulers`` of a section, as one whose entries are its items."""
    if not isinstance(items, list):
        got = type(items).__name__
        what = f"schedulers must be a list of one-key mappings, got {got}"
        raise place.error(what, "schedulers")
    return place.entries("schedulers", items)


def _scheduler(
    outer: kit.RawSection,
    key: str,
    context: kit.Context,
    tags: Any = None,
    *,
    is_shown: bool = True,
) -> tuple[str, dict[str, Any]]:
    """Class name and arguments in the framework's form; every leaf is built once to check it.

    The tags of a composite are those of its members. A member over 0 steps is never shown, and not
    built.
    """
    label, place = outer.name_and_arguments(key)
    name = _class_name(label, SCHEDULES, suffix="LR")
    if name is None:
        raise outer.error(f"there is no scheduler {label!r}", key, nearest(label, SCHEDULES))
    arguments = dict(place.content)
    if tags is not None:
        if "param_group_tags" in arguments:
            raise place.error(
                f"a member has tags of its own: {arguments['param_group_tags']!r}",
                hint="give them only to the composite",
            )
        arguments["param_group_tags"] = tags
    tags = arguments.get("param_group_tags")
    match SCHEDULES[name].children:
        case "schedulers":
            return name, {**arguments, **_composite(place, context, name, tags)}
        case "scheduler" if "scheduler" in arguments:
            child, kwargs = _scheduler(place, "scheduler", context, tags)
            return name, {**arguments, "scheduler": {"class": child, "kwargs": kwargs}}
    if is_shown:
        _built(place, name, arguments, context)
    return name, arguments


def _composite(place: kit.RawSection, context: kit.Context, name: str, tags: Any) -> dict[str, Any]:
    """The members of a composite; one of a sequence begins when the lengths before have passed."""
    entries = _members(place, place.content.get("schedulers"))
    if not entries.content:
        raise place.error("schedulers must hold at least one scheduler", "schedulers")
    is_sequence = name.startswith("Sequential")
    specs, milestones, total = [], [], 0
    *_, last = entries.content
    for entry in entries.content:
        is_inner = is_sequence and entry != last
        is_shown = not is_inner or _length(entries.content[entry]) != 0
        member, kwargs = _scheduler(entries, entry, context, tags, is_shown=is_shown)
        specs.append({"class": member, "kwargs": kwargs})
        if is_inner:
            steps = kwargs.get("total_iters")
            if isinstance(steps, bool) or not isinstance(steps, int) or steps < 0:
                raise entries.section(entry).error(
                    f"total_iters must be an integer >= 0 where another one follows, got {steps!r}",
                    member,
                )
            total += steps
            milestones.append(total)
    if not is_sequence:
        return {"schedulers": specs}
    written = place.content.get("milestones", milestones)
    if written != milestones:
        raise place.error(
            f"milestones must be the running sum of total_iters, {milestones}, got {written}",
            hint="leave milestones out",
        )
    return {"schedulers": specs, "milestones": milestones}


def _length(entry: Any) -> Any:
    """The ``total_iters`` of a one-key mapping, None where it has none."""
    arguments = next(iter(entry.values()), None) if isinstance(entry, Mapping) else None
    return arguments.get("total_iters") if isinstance(arguments, Mapping) else None


def _built(
    place: kit.RawSection, name: str, arguments: Mapping[str, Any], context: kit.Context
) -> Schedule:
    with place.locate_errors():
        return kit.build_schedule(name, arguments, replace(context, key=_key(name)))


def _optimizer(init: kit.RawSection) -> tuple[str, kit.RawSection]:
    """Class name and section of the optimizer; an empty name if there is none."""
    if "optimizer" not in init.content:
        return "", kit.RawSection(init.document, {}, init.path)
    label, place = init.name_and_arguments("optimizer")
    return _class_name(label, OPTIMIZERS) or label, place


def _plan(
    place: kit.RawSection,
    name: str,
    arguments: Mapping[str, Any],
    schedules: Mapping[str, Schedule],
    as_implemented: bool,
) -> kit.OptimizerPlan:
    """The optimizer; one that is missing or unknown is refused when it is built."""

    def refuse(driven: Mapping[str, Schedule]) -> UpdateRule:
        if not name:
            raise place.error("a config must have an optimizer, got none")
        raise UnknownNameError(
            f"there is no optimizer {name!r}; there are {', '.join(OPTIMIZERS)}",
            where=place.document.place(place.path),
        )

    if name not in OPTIMIZERS:
        return kit.OptimizerPlan(name, arguments, refuse)
    kwargs = _arguments(place, name, arguments, schedules)
    entry = OPTIMIZERS[name]
    if as_implemented:
        entry = AS_IMPLEMENTED.get(name, entry)
    keys = frozenset(schedules)

    def build(driven: Mapping[str, Schedule]) -> UpdateRule:
        values = {**kwargs, **{key: driven[key] for key in driven if key in keys}}
        with place.locate_errors():
            return entry.build(kit.fill(entry.parameters, values, f"cerebras > {name}"))

    return kit.OptimizerPlan(name, arguments, build)


def _arguments(
    place: kit.RawSection,
    name: str,
    arguments: Mapping[str, Any],
    schedules: Mapping[str, Schedule],
) -> dict[str, Any]:
    kwargs = dict(arguments)
    for key, value in kwargs.items():
        if value is None:
            raise place.error(f"{key} must have a value, got none")
    if "learning_rate" in kwargs:
        if "lr" in kwargs:
            raise place.error("the learning rate is given twice, as lr and learning_rate")
        kwargs["lr"] = kwargs.pop("learning_rate")
    if name == "Adam" and kwargs.pop("correct_bias", True) is not True:
        raise place.error(
            f"Adam always corrects its bias, got correct_bias {arguments['correct_bias']!r}",
            hint="AdamW has a correct_bias",
        )
    if name == "Adam" and "weight_decay" in schedules:
        raise place.error(
            "a weight decay scheduler of Adam would add a decoupled decay to its L2 penalty",
            hint="use AdamW, or take the scheduler out",
        )
    if "lr" not in kwargs and "lr" not in schedules and name == "SGD":
        raise place.error(
            "SGD needs a learning rate, got none", hint="give a scheduler or learning_rate"
        )
    return kwargs


def _factors(place: kit.RawSection) -> dict[str, sp.Expr]:
    """The factors of the learning rate by layer type."""
    factors = place.section("adjust_learning_rate")
    with factors.locate_errors():
        return {
            str(layer): exact_number(factor, f"factor of {layer!r}")
            for layer, factor in factors.content.items()
        }


def _class_name(name: str, known: Iterable[str], suffix: str = "") -> str | None:
    """The class that is meant: exactly, else in any letter case, else without its suffix."""
    by_lower = {candidate.lower(): candidate for candidate in known}
    return by_lower.get(name.lower()) or by_lower.get(name.lower() + suffix.lower())

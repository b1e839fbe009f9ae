"""The reader of the configs of ModelZoo's trainer: the optimizer and the schedules of a run.

Of a config, ``trainer.init.optimizer``, ``trainer.init.schedulers`` and
``trainer.init.loop.max_steps`` are read. Class names may be in any letter case, scheduler names
without their ``LR``.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

import sympy as sp

from closedform.errors import ClosedFormError, ConfigError, UnknownNameError, nearest
from closedform.language import Schedule, UpdateRule, exact_number
from closedform.recipes.build import built
from closedform.recipes.cerebras.optimizers import AS_IMPLEMENTED, OPTIMIZERS
from closedform.recipes.cerebras.param_groups import configure_param_groups
from closedform.recipes.cerebras.schedules import SCHEDULES
from closedform.recipes.document import Document
from closedform.recipes.entries import fill
from closedform.recipes.reader import Reader, Reading
from closedform.recipes.recipe import OptimizerPlan, ParamGroup, Recipe, Role
from closedform.recipes.tags import Tags, read_tags
from closedform.schedules import constant

FRAMEWORK = "cerebras"
"""The framework that the configs are written for."""

_KEYS = {"LR": "lr", "WD": "weight_decay"}
_INIT = "trainer.init"


def matches(document: Document) -> bool:
    """Returns whether a config has the section of ModelZoo's trainer."""
    trainer = document.content.get("trainer")
    return isinstance(trainer, Mapping) and isinstance(trainer.get("init"), Mapping)


def read(reading: Reading) -> Recipe:
    """Returns the recipe of a config, as :func:`closedform.recipes.load_recipe` describes it.

    Where a scheduler drives a key, it takes the place of the optimizer's own number.

    Raises:
        ConfigError: A class or argument is unknown, or a value is not valid. An optimizer that the
            library does not have is refused when it is asked for.
    """
    document = reading.document
    init = _init(document)
    driven = _schedules(document, init, reading.as_implemented)
    class_name, given, path = _optimizer_section(document, init)
    factors = _factors(document, given.pop("adjust_learning_rate", None), path)
    tagged = given.pop("params", None)

    def group(tag: str | None) -> ParamGroup:
        schedules = {one.key: one.schedule for one in driven if one.tags is None or tag in one.tags}
        plan = _plan(document, class_name, given, schedules, path, reading.as_implemented)
        if class_name in OPTIMIZERS:
            rule = plan.build(schedules)  # its arguments are checked at once
            for key in _KEYS.values():
                value = rule.hyperparameters.get(key)
                if key not in schedules and value is not None:
                    schedules[key] = constant(value)
        return ParamGroup(schedules, plan, Role.of(tag or ""), tag or "")

    tags = {tag for one in driven for tag in one.tags or () if tag is not None}
    return Recipe(
        name=document.name,
        framework=FRAMEWORK,
        param_groups=(group(None), *(group(tag) for tag in sorted(tags))),
        horizon=_max_steps(document, init),
        source=document.source,
        grouping=LayerGrouping(factors, tagged),
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
        self, recipe: Recipe, params: Sequence[str], norms: Sequence[str]
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


READER = Reader(read, matches)


def _init(document: Document) -> Mapping[str, Any]:
    section: Any = document.content
    path = ""
    for key in _INIT.split("."):
        path = f"{path}.{key}" if path else key
        if not isinstance(section, Mapping) or key not in section:
            raise document.error(
                f"a config must have the section {_INIT!r}, got none",
                path,
                hint="the form is trainer: init: {optimizer, schedulers, loop}",
            )
        section = section[key]
    if not isinstance(section, Mapping):
        raise _no_mapping(document, section, path)
    return section


def _max_steps(document: Document, init: Mapping[str, Any]) -> int | None:
    loop = init.get("loop", {})
    if not isinstance(loop, Mapping):
        raise _no_mapping(document, loop, f"{_INIT}.loop")
    steps = loop.get("max_steps")
    if steps is None:
        return None
    if isinstance(steps, bool) or not isinstance(steps, int) or steps < 1:
        raise document.error(
            f"max_steps must be an integer >= 1, got {steps!r}", f"{_INIT}.loop.max_steps"
        )
    return steps


def _schedules(document: Document, init: Mapping[str, Any], as_implemented: bool) -> list[_Driven]:
    given = init.get("schedulers")
    path = f"{_INIT}.schedulers"
    if given is None:
        return []
    sections = [given] if isinstance(given, Mapping) else given
    if not isinstance(sections, list):
        raise document.error(
            f"schedulers must be a list of one-key mappings, got {type(given).__name__}", path
        )
    result: list[_Driven] = []
    for index, section in enumerate(sections):
        place = f"{path}[{index}]"
        name, kwargs = _scheduler(document, section, place, as_implemented)
        key = _key(name)
        if key is None:
            raise document.error(
                f"{name} does not say what it schedules",
                place,
                hint="use the class of that name that ends with LR or WD",
            )
        try:
            tags = read_tags(kwargs.get("param_group_tags"), "param_group_tags", name)
        except ClosedFormError as error:
            raise _wrapped(document, error, place) from error
        for other in result:
            if other.key == key and (tags is None or other.tags is None or tags & other.tags):
                raise document.error(
                    f"two schedulers drive {key!r}",
                    place,
                    hint="join them in one SequentialLR or SequentialWD, or give them "
                    "param_group_tags with no tag in common",
                )
        made = _built(document, name, kwargs, f"{place}.{name}", as_implemented)
        result.append(_Driven(key, tags, made))
    return result


def _key(name: str) -> str | None:
    """The quantity of a class: for CosineAnnealingWarmRestarts the learning rate."""
    return None if name.endswith("Scheduler") else _KEYS.get(name[-2:], "lr")


@dataclass(frozen=True, slots=True)
class _Driven:
    """A scheduler of a config: its key, the tags of its groups, None for all, and its schedule."""

    key: str
    tags: Tags
    schedule: Schedule


def _scheduler(
    document: Document,
    section: Any,
    path: str,
    as_implemented: bool,
    tags: Any = None,
    *,
    is_shown: bool = True,
) -> tuple[str, dict[str, Any]]:
    """Class name and arguments in the framework's form; every leaf is built once to check it.

    The tags of a composite are those of its members. A member over 0 steps is never shown, and not
    built.
    """
    given_name, given = _one_key(document, section, path)
    name = _class_name(given_name, SCHEDULES, suffix="LR")
    if name is None:
        raise document.error(
            f"there is no scheduler {given_name!r}", path, hint=nearest(given_name, SCHEDULES)
        )
    path = f"{path}.{given_name}"
    if tags is not None:
        if "param_group_tags" in given:
            raise document.error(
                f"a member has tags of its own: {given['param_group_tags']!r}",
                path,
                hint="give them to the composite alone",
            )
        given["param_group_tags"] = tags
    own = given.get("param_group_tags")
    match SCHEDULES[name].children:
        case "schedulers":
            return name, _members(document, given, path, as_implemented, name, own)
        case "scheduler" if "scheduler" in given:
            inner = f"{path}.scheduler"
            child, kwargs = _scheduler(document, given["scheduler"], inner, as_implemented, own)
            return name, {**given, "scheduler": {"class": child, "kwargs": kwargs}}
    if is_shown:
        _built(document, name, given, path, as_implemented)
    return name, given


def _members(
    document: Document,
    given: dict[str, Any],
    path: str,
    as_implemented: bool,
    composite: str,
    tags: Any,
) -> dict[str, Any]:
    """The arguments of a Sequential: a member begins when the lengths before it have passed."""
    sections = given.get("schedulers")
    if not isinstance(sections, list) or not sections:
        raise document.error(
            f"schedulers must be a list of one-key mappings, got {sections!r}", path
        )
    is_sequence = composite.startswith("Sequential")
    specs, milestones, total = [], [], 0
    for index, section in enumerate(sections):
        place = f"{path}.schedulers[{index}]"
        is_last = index == len(sections) - 1
        is_shown = is_last or not is_sequence or _length(section) != 0
        name, kwargs = _scheduler(document, section, place, as_implemented, tags, is_shown=is_shown)
        specs.append({"class": name, "kwargs": kwargs})
        if is_last or not is_sequence:
            continue
        steps = kwargs.get("total_iters")
        if isinstance(steps, bool) or not isinstance(steps, int) or steps < 0:
            raise document.error(
                f"total_iters must be an integer >= 0 where another one follows, got {steps!r}",
                f"{place}.{name}",
            )
        total += steps
        milestones.append(total)
    if not is_sequence:
        return {**given, "schedulers": specs}
    if given.get("milestones", milestones) != milestones:
        raise document.error(
            f"milestones must be the running sum of total_iters, {milestones}, "
            f"got {given['milestones']}",
            path,
            hint="leave milestones out",
        )
    return {**given, "schedulers": specs, "milestones": milestones}


def _length(section: Any) -> Any:
    """The ``total_iters`` of a one-key mapping, None where it has none."""
    arguments = next(iter(section.values()), None) if isinstance(section, Mapping) else None
    return arguments.get("total_iters") if isinstance(arguments, Mapping) else None


def _optimizer_section(
    document: Document, init: Mapping[str, Any]
) -> tuple[str, dict[str, Any], str]:
    """Class name, arguments and path of the optimizer; an empty name if there is none."""
    path = f"{_INIT}.optimizer"
    if "optimizer" not in init:
        return "", {}, path
    given_name, given = _one_key(document, init["optimizer"], path)
    name = _class_name(given_name, OPTIMIZERS) or given_name
    return name, given, f"{path}.{given_name}"


def _plan(
    document: Document,
    name: str,
    given: Mapping[str, Any],
    schedules: Mapping[str, Schedule],
    path: str,
    as_implemented: bool,
) -> OptimizerPlan:
    """The optimizer; one that is missing or unknown is refused when it is built."""

    def refuse(made: Mapping[str, Schedule]) -> UpdateRule:
        del made
        if not name:
            raise document.error("a config must have an optimizer, got none", _INIT)
        raise UnknownNameError(
            f"there is no optimizer {name!r}; there are {', '.join(OPTIMIZERS)}",
            where=document.place(path),
        )

    if name not in OPTIMIZERS:
        return OptimizerPlan(name, given, refuse)
    kwargs = _arguments(document, name, given, schedules, path)
    entry = OPTIMIZERS[name]
    if as_implemented:
        entry = AS_IMPLEMENTED.get(name, entry)

    driven = frozenset(schedules)

    def build(made: Mapping[str, Schedule]) -> UpdateRule:
        given = {**kwargs, **{key: one for key, one in made.items() if key in driven}}
        try:
            return entry.build(fill(entry.parameters, given, f"{FRAMEWORK} > {name}"))
        except ClosedFormError as error:
            raise _wrapped(document, error, path) from error

    return OptimizerPlan(name, given, build)


def _arguments(
    document: Document,
    name: str,
    given: Mapping[str, Any],
    schedules: Mapping[str, Schedule],
    path: str,
) -> dict[str, Any]:
    kwargs = dict(given)
    for key, value in kwargs.items():
        if value is None:
            raise document.error(f"{key} must have a value, got none", path)
    if "learning_rate" in kwargs:
        if "lr" in kwargs:
            raise document.error("the learning rate is given twice, as lr and learning_rate", path)
        kwargs["lr"] = kwargs.pop("learning_rate")
    if name == "Adam" and kwargs.pop("correct_bias", True) is not True:
        raise document.error(
            f"Adam always corrects its bias, got correct_bias {given['correct_bias']!r}",
            path,
            hint="AdamW has a correct_bias",
        )
    if name == "Adam" and "weight_decay" in schedules:
        raise document.error(
            "a weight decay scheduler of Adam would add a decoupled decay to its L2 penalty",
            path,
            hint="use AdamW, or take the scheduler out",
        )
    if "lr" not in kwargs and "lr" not in schedules and name == "SGD":
        raise document.error(
            "SGD needs a learning rate, got none", path, hint="give a scheduler or learning_rate"
        )
    return kwargs


def _factors(document: Document, given: Any, path: str) -> dict[str, sp.Expr]:
    path = f"{path}.adjust_learning_rate"
    if given is None:
        return {}
    if not isinstance(given, Mapping):
        raise _no_mapping(document, given, path)
    try:
        return {
            str(layer): exact_number(factor, f"factor of {layer!r}")
            for layer, factor in given.items()
        }
    except ClosedFormError as error:
        raise _wrapped(document, error, path) from error


def _built(
    document: Document, name: str, kwargs: Mapping[str, Any], path: str, as_implemented: bool
) -> Schedule:
    key = _KEYS.get(name[-2:], "lr")
    try:
        return built(FRAMEWORK, SCHEDULES, name, kwargs, key=key, as_implemented=as_implemented)
    except ClosedFormError as error:
        raise _wrapped(document, error, path) from error


def _class_name(name: str, known: Iterable[str], suffix: str = "") -> str | None:
    """The class that is meant: exactly, else in any letter case, else without its suffix."""
    by_lower = {candidate.lower(): candidate for candidate in known}
    return by_lower.get(name.lower()) or by_lower.get(name.lower() + suffix.lower())


def _one_key(document: Document, section: Any, path: str) -> tuple[str, dict[str, Any]]:
    if not isinstance(section, Mapping) or len(section) != 1:
        got = list(section) if isinstance(section, Mapping) else type(section).__name__
        raise document.error(
            f"expected a mapping of one class name to its arguments, got {got}", path
        )
    ((name, arguments),) = section.items()
    if not isinstance(name, str):
        raise document.error(f"a class name must be a string, got {name!r}", path)
    if arguments is None:
        return name, {}
    if not isinstance(arguments, Mapping):
        raise _no_mapping(document, arguments, f"{path}.{name}")
    return name, dict(arguments)


def _no_mapping(document: Document, value: Any, path: str) -> ConfigError:
    return document.error(f"expected a mapping, got {type(value).__name__} {value!r:.60}", path)


def _wrapped(document: Document, error: ClosedFormError, path: str) -> ConfigError:
    inner = f"; {error.where}" if error.where else ""
    return ConfigError(error.what, where=f"{document.place(path)}{inner}", hint=error.hint)

"""Recipes: the optimizer of a training config with its schedules inside.

The form is that of ModelZoo's trainer files, of which ``trainer.init.optimizer``,
``trainer.init.schedulers`` and ``trainer.init.loop.max_steps`` are read. Class names may be in any
letter case, scheduler names without their ``LR``.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from os import PathLike
from pathlib import Path
from typing import Any

import sympy as sp

from closedform import dialects
from closedform.config.document import Document, read_document
from closedform.errors import ClosedFormError, ConfigError, nearest
from closedform.language import Group, Schedule, UpdateRule, exact_number, from_param_groups
from closedform.schedules import constant

SYSTEM = "cerebras"
"""The dialect that the configs are written in."""

_KEYS = {"LR": "lr", "WD": "weight_decay"}
_INIT = "trainer.init"


@dataclass(frozen=True, slots=True)
class Recipe:
    """What a config says about optimization.

    Attributes:
        name: The file's name without its ending, or ``recipe`` for a mapping.
        optimizer: The update rule, its schedules inside as hyperparameters.
        schedules: Key of the param group ("lr", "weight_decay") -> schedule.
        max_steps: The number of steps of the run, None if not given.
        adjust_learning_rate: Layer type -> factor of its learning rate; empty for none.
        source: The file, or ``<mapping>``.
    """

    name: str
    optimizer: UpdateRule
    schedules: Mapping[str, Schedule]
    max_steps: int | None = None
    adjust_learning_rate: Mapping[str, sp.Expr] = field(default_factory=dict)
    source: str = "<mapping>"

    def groups(self, params: Sequence[str], norms: Sequence[str] = ()) -> list[Group]:
        """Returns the groups of a model's parameters, as the config's system makes them.

        Biases and parameters of normalization modules have no weight decay; the learning rate of a
        layer type has its factor.

        Args:
            params: Names of the parameters, in the order of the model.
            norms: Names of its normalization modules.

        Raises:
            ConfigError: A layer type is unknown.

        Example:
            >>> optimizer = {"AdamW": {"weight_decay": 0.1, "lr": 1e-3}}
            >>> recipe = load_config({"trainer": {"init": {"optimizer": optimizer}}})
            >>> [(g.params, g.changes) for g in recipe.groups(["w", "bias"])]
            [(('w',), {'weight_decay': 1/10}), (('bias',), {'weight_decay': 0.0})]
        """
        decay = self.optimizer.hyperparameters.get("weight_decay", 0)
        config = {"weight_decay": decay, "adjust_learning_rate": self.adjust_learning_rate}
        made = dialects.configure_param_groups(params, norms, config)
        return from_param_groups(made, self.optimizer)


def load_config(source: str | PathLike[str] | Mapping[str, Any]) -> Recipe:
    """Returns the recipe of a config.

    Where a scheduler drives a key, it takes the place of the optimizer's own number. A learning
    rate without a scheduler is a constant one.

    Args:
        source: The path of a YAML file, or a mapping of its form, which is not changed.

    Raises:
        ConfigError: The file cannot be read, a class or argument is unknown, or a value has no
            meaning. An optimizer that the library does not have is refused; ``load_schedules``
            reads such a config.

    Example:
        >>> recipe = load_config(
        ...     {
        ...         "trainer": {
        ...             "init": {
        ...                 "optimizer": {"AdamW": {"weight_decay": 0.1}},
        ...                 "schedulers": [
        ...                     {
        ...                         "LinearLR": {
        ...                             "initial_learning_rate": 0.0,
        ...                             "end_learning_rate": 1e-3,
        ...                             "total_iters": 10,
        ...                         }
        ...                     }
        ...                 ],
        ...                 "loop": {"max_steps": 100},
        ...             }
        ...         }
        ...     }
        ... )
        >>> recipe.optimizer.name, recipe.schedules["lr"].exact(5), recipe.max_steps
        ('adamw', 1/2000, 100)
    """
    document = read_document(source)
    init = _init(document)
    name, given, path = _optimizer_section(document, init)
    schedules = _schedules(document, init)
    factors = _factors(document, given.pop("adjust_learning_rate", None), path)
    rule = _optimizer(document, name, given, schedules, path)
    if "lr" not in schedules:
        schedules["lr"] = constant(rule.hyperparameters["lr"])
    label = "recipe" if isinstance(source, Mapping) else Path(source).stem
    return Recipe(
        name=label,
        optimizer=rule,
        schedules=schedules,
        max_steps=_max_steps(document, init),
        adjust_learning_rate=factors,
        source=document.source,
    )


def load_schedules(
    source: str | PathLike[str] | Mapping[str, Any],
) -> tuple[dict[str, Schedule], int | None]:
    """Returns the schedules of a config by key, and its number of steps; no optimizer is built.

    Raises:
        ConfigError: As ``load_config``, but for the optimizer.
    """
    document = read_document(source)
    init = _init(document)
    return _schedules(document, init), _max_steps(document, init)


def _init(document: Document) -> Mapping[str, Any]:
    section: Any = document.content
    path = ""
    for key in _INIT.split("."):
        path = f"{path}.{key}" if path else key
        if not isinstance(section, Mapping) or key not in section:
            raise ConfigError(
                f"a config must have the section {_INIT!r}, got none",
                where=document.place(path),
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
        raise ConfigError(
            f"max_steps must be an integer >= 1, got {steps!r}",
            where=document.place(f"{_INIT}.loop.max_steps"),
        )
    return steps


def _schedules(document: Document, init: Mapping[str, Any]) -> dict[str, Schedule]:
    given = init.get("schedulers")
    path = f"{_INIT}.schedulers"
    if given is None:
        return {}
    sections = [given] if isinstance(given, Mapping) else given
    if not isinstance(sections, list):
        raise ConfigError(
            f"schedulers must be a list of one-key mappings, got {type(given).__name__}",
            where=document.place(path),
        )
    result: dict[str, Schedule] = {}
    for index, section in enumerate(sections):
        place = f"{path}[{index}]"
        name, kwargs = _scheduler(document, section, place)
        key = _KEYS.get(name[-2:])
        if key is None:
            raise ConfigError(
                f"{name} does not say what it schedules",
                where=document.place(place),
                hint="use the class of that name that ends with LR or WD",
            )
        if key in result:
            raise ConfigError(
                f"two schedulers drive {key!r}",
                where=document.place(place),
                hint="join them in one SequentialLR or SequentialWD",
            )
        result[key] = _built(document, name, kwargs, f"{place}.{name}")
    return result


def _scheduler(document: Document, section: Any, path: str) -> tuple[str, dict[str, Any]]:
    """Class name and arguments in the dialect's form; every leaf is built once to check it."""
    given_name, given = _one_key(document, section, path)
    entries = dialects.DIALECTS[SYSTEM].schedules
    name = _class_name(given_name, entries, suffix="LR")
    if name is None:
        raise ConfigError(
            f"there is no scheduler {given_name!r}",
            where=document.place(path),
            hint=nearest(given_name, entries),
        )
    path = f"{path}.{given_name}"
    if "param_group_tags" in given:
        raise ConfigError(
            "a recipe holds one schedule for all param groups, got param_group_tags",
            where=document.place(path),
            hint="use closedform.dialects.schedules for schedules by group",
        )
    match entries[name].children:
        case "schedulers":
            return name, _members(document, given, path)
        case "scheduler" if "scheduler" in given:
            child, kwargs = _scheduler(document, given["scheduler"], f"{path}.scheduler")
            return name, {**given, "scheduler": {"class": child, "kwargs": kwargs}}
    _built(document, name, given, path)
    return name, given


def _members(document: Document, given: dict[str, Any], path: str) -> dict[str, Any]:
    """The arguments of a Sequential: a member begins when the lengths before it have passed."""
    sections = given.get("schedulers")
    if not isinstance(sections, list) or not sections:
        raise ConfigError(
            f"schedulers must be a list of one-key mappings, got {sections!r}",
            where=document.place(path),
        )
    specs, milestones, total = [], [], 0
    for index, section in enumerate(sections):
        place = f"{path}.schedulers[{index}]"
        name, kwargs = _scheduler(document, section, place)
        specs.append({"class": name, "kwargs": kwargs})
        if index == len(sections) - 1:
            break
        steps = kwargs.get("total_iters")
        if isinstance(steps, bool) or not isinstance(steps, int) or steps < 1:
            raise ConfigError(
                f"total_iters must be an integer >= 1 where another one follows, got {steps!r}",
                where=document.place(f"{place}.{name}"),
            )
        total += steps
        milestones.append(total)
    if given.get("milestones", milestones) != milestones:
        raise ConfigError(
            f"milestones must be the running sum of total_iters, {milestones}, "
            f"got {given['milestones']}",
            where=document.place(path),
            hint="leave milestones out",
        )
    return {**given, "schedulers": specs, "milestones": milestones}


def _optimizer_section(
    document: Document, init: Mapping[str, Any]
) -> tuple[str, dict[str, Any], str]:
    """Class name, arguments and path of the optimizer."""
    path = f"{_INIT}.optimizer"
    if "optimizer" not in init:
        raise ConfigError(
            "a config must have an optimizer, got none",
            where=document.place(_INIT),
            hint="load_schedules reads the schedules alone",
        )
    given_name, given = _one_key(document, init["optimizer"], path)
    entries = dialects.DIALECTS[SYSTEM].optimizers
    name = _class_name(given_name, entries)
    if name is None:
        raise ConfigError(
            f"there is no optimizer {given_name!r}; there are {', '.join(entries)}",
            where=document.place(path),
            hint="load_schedules reads the schedules alone",
        )
    return name, given, f"{path}.{given_name}"


def _optimizer(
    document: Document,
    name: str,
    given: Mapping[str, Any],
    schedules: Mapping[str, Schedule],
    path: str,
) -> UpdateRule:
    kwargs = dict(given)
    for key, value in kwargs.items():
        if value is None:
            raise ConfigError(f"{key} must have a value, got none", where=document.place(path))
    if "learning_rate" in kwargs:
        if "lr" in kwargs:
            raise ConfigError(
                "the learning rate is given twice, as lr and learning_rate",
                where=document.place(path),
            )
        kwargs["lr"] = kwargs.pop("learning_rate")
    if name == "Adam" and kwargs.pop("correct_bias", True) is not True:
        raise ConfigError(
            f"Adam always corrects its bias, got correct_bias {given['correct_bias']!r}",
            where=document.place(path),
            hint="AdamW has a correct_bias",
        )
    if name == "Adam" and "weight_decay" in schedules:
        raise ConfigError(
            "a weight decay scheduler of Adam would add a decoupled decay to its L2 penalty",
            where=document.place(path),
            hint="use AdamW, or take the scheduler out",
        )
    if "lr" not in kwargs and "lr" not in schedules and name == "SGD":
        raise ConfigError(
            "SGD needs a learning rate, got none",
            where=document.place(path),
            hint="give a scheduler or learning_rate",
        )
    kwargs.update(schedules)
    try:
        return dialects.optimizer(SYSTEM, name, kwargs)
    except ClosedFormError as error:
        raise _wrapped(document, error, path) from error


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


def _built(document: Document, name: str, kwargs: Mapping[str, Any], path: str) -> Schedule:
    try:
        return dialects.schedule(SYSTEM, name, kwargs, key=_KEYS.get(name[-2:], "lr"))
    except ClosedFormError as error:
        raise _wrapped(document, error, path) from error


def _class_name(name: str, known: Iterable[str], suffix: str = "") -> str | None:
    """The class that is meant: exactly, else in any letter case, else without its suffix."""
    by_lower = {candidate.lower(): candidate for candidate in known}
    return by_lower.get(name.lower()) or by_lower.get(name.lower() + suffix.lower())


def _one_key(document: Document, section: Any, path: str) -> tuple[str, dict[str, Any]]:
    if not isinstance(section, Mapping) or len(section) != 1:
        got = list(section) if isinstance(section, Mapping) else type(section).__name__
        raise ConfigError(
            f"expected a mapping of one class name to its arguments, got {got}",
            where=document.place(path),
        )
    ((name, arguments),) = section.items()
    if not isinstance(name, str):
        raise ConfigError(f"a class name must be a text, got {name!r}", where=document.place(path))
    if arguments is None:
        return name, {}
    if not isinstance(arguments, Mapping):
        raise _no_mapping(document, arguments, f"{path}.{name}")
    return name, dict(arguments)


def _no_mapping(document: Document, value: Any, path: str) -> ConfigError:
    return ConfigError(
        f"expected a mapping, got {type(value).__name__} {value!r:.60}", where=document.place(path)
    )


def _wrapped(document: Document, error: ClosedFormError, path: str) -> ConfigError:
    inner = f"; {error.where}" if error.where else ""
    return ConfigError(error.what, where=f"{document.place(path)}{inner}", hint=error.hint)

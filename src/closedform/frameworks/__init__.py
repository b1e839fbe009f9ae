"""The frameworks: their scheduler and optimizer classes, by their names, as schedules and rules.

Each framework is a table from class name to entry: arguments, defaults, builder. Importing this
module imports none of them.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from typing import Any, NoReturn

from closedform.errors import DefinitionError, UnknownNameError, nearest, unknown_attribute
from closedform.language import Schedule, UpdateRule
from closedform.language.aliases import Number
from closedform.recipes.build import class_schedule
from closedform.recipes.entries import (
    REQUIRED,
    Context,
    ScheduleEntry,
    build_rule,
    build_schedule,
    fill,
    find_schedule,
    is_touched,
    own_schedule,
)
from closedform.recipes.formulas import FORMULAS
from closedform.recipes.framework import Framework, Tier
from closedform.recipes.registry import FRAMEWORKS, known_version, unknown_framework
from closedform.recipes.tags import matching_groups, read_tags

__all__ = [
    "FRAMEWORKS",
    "REQUIRED",
    "Names",
    "Tier",
    "known_as",
    "metric_rule",
    "names",
    "notes",
    "optimizer",
    "own_schedule",
    "schedule",
    "schedules",
]


@dataclass(frozen=True, slots=True)
class Names:
    """The class names of a framework."""

    schedules: tuple[str, ...]
    optimizers: tuple[str, ...]


def names(framework: str) -> Names:
    """Returns the class names of a framework that are available here.

    Raises:
        UnknownNameError: There is no such framework.

    Example:
        >>> names("torch").optimizers[:3]
        ('SGD', 'Adam', 'AdamW')
    """
    declaration = _framework(framework)
    return Names(tuple(declaration.schedules), tuple(declaration.optimizers))


def notes(framework: str, name: str) -> tuple[str, ...]:
    """Returns the known defects of a scheduler class: where its values are not the expected ones.

    Raises:
        UnknownNameError: There is no such framework or class.

    Example:
        >>> notes("megatron", "constant")[0]
        'constant ignores the horizon and the minimum'
    """
    declaration = _framework(framework)
    find_schedule(name, Context(framework, declaration.schedules))
    return declaration.notes(name)


def known_as(name: str) -> dict[str, tuple[str, ...]]:
    """Returns the names of a schedule of the library by framework: of what builds it or follows it.

    Example:
        >>> known_as("warm_restarts")["torch"]
        ('CosineAnnealingWarmRestarts',)
    """
    classes = {
        label: tuple(entry.name for entry in framework.schedules.values() if name in entry.builds)
        for label, framework in FRAMEWORKS.items()
    }
    alike = FORMULAS.get(name, {})
    all_names = {
        label: (*classes_of_label, *alike.get(label, ()))
        for label, classes_of_label in classes.items()
    }
    return {label: class_names for label, class_names in all_names.items() if class_names}


def schedule(
    framework: str,
    name: str,
    config: Mapping[str, Any],
    key: str = "lr",
    facts: Mapping[str, Any] | None = None,
    version: str | None = None,
    as_implemented: bool = True,
    base: Number | None = None,
    own: Sequence[ScheduleEntry] = (),
) -> Schedule:
    """Returns the schedule of a scheduler class, or of a scheduler's config.

    Args:
        framework: One of ``FRAMEWORKS``.
        name: The class name, exactly; or a function of the framework that makes one from a config,
            such as ``configure_lr_scheduler`` of cerebras, with ``config`` as the argument.
        config: Its arguments without the optimizer; a sub-schedule is ``{"class": name,
            "kwargs": {…}}``, a function ``{"expr": text}``.
        key: The entry of the param group that is scheduled, named in errors.
        facts: Numbers of the run that the config does not contain, by the framework's own names,
            such as ``{"training_steps": 1000}``; ``param_groups`` and ``group_index`` choose the
            param group.
        version: A version of the framework, where its semantics changed; the newest if not given.
        as_implemented: True for the values that the framework computes, defects included; False
            for its documented formula.
        base: The value of that entry before scheduling; torch's classes need it, cerebras' ignore
            it.
        own: Classes of your own, made by ``own_schedule``, that are found by name as well.

    Raises:
        UnknownNameError: There is no such framework, class or version.
        ArgumentError: An argument or a fact is missing or unknown.
        DefinitionError: The arguments are not valid.

    Example:
        >>> config = {"initial_learning_rate": 1e-3, "end_learning_rate": 0, "total_iters": 100}
        >>> schedule("cerebras", "CosineDecayLR", config).exact(50)
        1/2000
    """
    class_and_config = _class_and_config(framework, name, config, as_implemented, own)
    if class_and_config is None:
        raise DefinitionError("the config asks for no schedule", where=f"{framework} > {name}")
    return class_schedule(
        framework,
        _entries(framework, own),
        *class_and_config,
        key=key,
        base=base,
        facts=facts,
        version=known_version(_framework(framework), version),
        as_implemented=as_implemented,
    )


def schedules(
    framework: str,
    name: str,
    config: Mapping[str, Any],
    groups: Sequence[Mapping[str, Any]],
    key: str = "lr",
    as_implemented: bool = True,
    own: Sequence[ScheduleEntry] = (),
) -> list[Schedule | None]:
    """Returns the schedule of each param group, None where the group is not touched.

    A group's ``tags`` are met with ``param_group_tags`` of a cerebras class, its
    ``adjust_learning_rate`` or else ``adjust_val`` is the factor of a ScalePerParam, and its
    ``initial_<key>`` or else ``<key>`` is the base value of a torch class.

    Args:
        framework: As in :func:`schedule`.
        name: As in :func:`schedule`.
        config: As in :func:`schedule`.
        groups: The param groups, at least one.
        key: As in :func:`schedule`.
        as_implemented: As in :func:`schedule`.
        own: As in :func:`schedule`.

    Raises:
        DefinitionError: There are no groups, or the tags match none; else as :func:`schedule`.

    Example:
        >>> config = {"val": 0.1, "param_group_tags": "a"}
        >>> groups = [{"tags": "a"}, {"tags": ["b"]}]
        >>> schedules("cerebras", "ConstantWD", config, groups, key="weight_decay")
        [<Schedule 'constant': value = 0.1>, None]
    """
    entries = _entries(framework, own)
    if not groups:
        raise DefinitionError(
            "groups must hold at least one param group, got none", where=framework
        )
    class_and_config = _class_and_config(framework, name, config, as_implemented, own)
    if class_and_config is None:
        return [None] * len(groups)
    name, config = class_and_config
    where = f"{framework} > {name}"
    find_schedule(name, Context(framework, entries))
    tags = config.get("param_group_tags") if isinstance(config, Mapping) else None
    matches = matching_groups(read_tags(tags, "param_group_tags", where), groups, where)
    bases = tuple(group.get(f"initial_{key}", group.get(key)) for group in groups)
    common = Context(framework, entries, key=key, bases=bases, as_implemented=as_implemented)
    contexts = [
        replace(common, base=base, group=group, group_index=index)
        for index, (base, group) in enumerate(zip(bases, groups, strict=True))
    ]
    return [
        build_schedule(name, config, context)
        if is_met and is_touched(name, config, context)
        else None
        for context, is_met in zip(contexts, matches, strict=True)
    ]


def metric_rule(
    framework: str,
    name: str,
    config: Mapping[str, Any],
    base: Number | None = None,
    group_index: int = 0,
) -> UpdateRule:
    """Returns the update rule of a scheduler class that is driven by a metric.

    Its parameter is the scheduled value, its gradient the metric: ``OptimizerSession(rule,
    params={"lr": np.array(0.1)})`` runs it, ``session.step({"lr": metric})`` after each epoch.

    Args:
        framework: One of ``FRAMEWORKS``.
        name: The class name, exactly.
        config: Its arguments without the optimizer.
        base: The value before scheduling, where the class has a warmup.
        group_index: The param group, for arguments that are a list with one for each group.

    Raises:
        UnknownNameError: There is no such framework or class.
        ArgumentError: An argument is missing or unknown.
        DefinitionError: The class waits for no metric, or the arguments are not valid.

    Example:
        >>> rule = metric_rule("torch", "ReduceLROnPlateau", {"patience": 3})
        >>> rule.hyperparameters["patience"], list(rule.states)
        (3, ['best', 'num_bad_epochs', 'cooldown_counter'])
    """
    entries = _framework(framework).schedules
    context = Context(framework, entries, base=base, bases=(base,), group_index=group_index)
    return build_rule(name, config, context)


def optimizer(
    framework: str, name: str, config: Mapping[str, Any], as_implemented: bool = True
) -> UpdateRule:
    """Returns the update rule of an optimizer class, its states named as the framework names them.

    Args:
        framework: One with optimizer classes: ``"cerebras"``, ``"composer"``, ``"huggingface"`` or
            ``"torch"``.
        name: The class name, exactly.
        config: Its arguments without the parameters. A hyperparameter may be a Schedule, or None
            for an input of the graph.
        as_implemented: True for the formula that is implemented, defects included: the doubled
            factor of cerebras NAdam, the momentum that cerebras Muon never writes back; False for
            the documented one, where they differ.

    Raises:
        UnknownNameError: There is no such framework or class.
        ArgumentError: An argument is missing or unknown.
        DefinitionError: The arguments are not valid.

    Example:
        >>> rule = optimizer("torch", "AdamW", {"lr": 1e-3})
        >>> list(rule.states), rule.hyperparameters["weight_decay"]
        (['exp_avg', 'exp_avg_sq'], 1/100)
    """
    declaration = _framework(framework)
    if name not in declaration.optimizers:
        raise UnknownNameError(
            f"{framework} has no optimizer {name!r}",
            hint=nearest(str(name), declaration.optimizers),
        )
    entry = declaration.optimizers[name]
    if as_implemented:
        entry = declaration.optimizers_as_implemented.get(name, entry)
    return entry.build(fill(entry.parameters, config, f"{framework} > {name}"))


def _framework(name: str) -> Framework:
    if name not in FRAMEWORKS:
        raise unknown_framework(name)
    return FRAMEWORKS[name]


def _entries(framework: str, own: Sequence[ScheduleEntry]) -> Mapping[str, ScheduleEntry]:
    return {**_framework(framework).schedules, **{entry.name: entry for entry in own}}


def _class_and_config(
    framework: str,
    name: str,
    config: Mapping[str, Any],
    as_implemented: bool,
    own: Sequence[ScheduleEntry],
) -> tuple[str, Mapping[str, Any]] | None:
    """The class and arguments that a config function of the framework comes to; else as given."""
    functions = _framework(framework).functions
    if name not in functions:
        return name, config
    return functions[name](config, as_implemented, own)


def __getattr__(name: str) -> NoReturn:
    raise unknown_attribute(__name__, name, __all__)


def __dir__() -> list[str]:
    return sorted(__all__)

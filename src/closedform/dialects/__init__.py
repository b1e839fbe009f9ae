"""Names and parameter conventions of other systems: their classes, as schedules and rules.

Each system is a table from class name to entry: arguments, defaults, builder.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from typing import Any

from closedform.dialects import (
    cerebras_optimizers,
    cerebras_schedules,
    huggingface_optimizers,
    huggingface_schedules,
    keras_schedules,
    optax_schedules,
    pytorch_accelerated_schedules,
    timm_schedules,
    torch_optimizers,
    torch_schedules,
)
from closedform.dialects.configure import (
    configure_lr_scheduler,
    configure_scheduler,
    configure_scheduler_params,
)
from closedform.dialects.configure_optimizer import configure_optimizer, configure_optimizer_params
from closedform.dialects.entries import (
    REQUIRED,
    Context,
    Dialect,
    Parameter,
    ScheduleEntry,
    build_rule,
    build_schedule,
    fill,
    find_schedule,
    is_touched,
    own_schedule,
)
from closedform.dialects.param_groups import (
    configure_param_groups,
    configure_param_groups_2_2,
    layer_decay_groups,
)
from closedform.dialects.pytorch_accelerated_schedules import wsd_plan
from closedform.dialects.tags import matching_groups, read_tags
from closedform.errors import DefinitionError, UnknownNameError, nearest
from closedform.language import Schedule, UpdateRule

__all__ = [
    "DIALECTS",
    "REQUIRED",
    "Names",
    "configure_lr_scheduler",
    "configure_optimizer",
    "configure_optimizer_params",
    "configure_param_groups",
    "configure_param_groups_2_2",
    "configure_scheduler",
    "configure_scheduler_params",
    "known_as",
    "layer_decay_groups",
    "metric_rule",
    "names",
    "optimizer",
    "own_schedule",
    "schedule",
    "schedules",
    "wsd_plan",
]

DIALECTS = {
    "cerebras": Dialect(
        "cerebras",
        cerebras_schedules.SCHEDULES,
        cerebras_optimizers.OPTIMIZERS,
        cerebras_optimizers.AS_SHIPPED,
    ),
    "huggingface": Dialect(
        "huggingface", huggingface_schedules.SCHEDULES, huggingface_optimizers.OPTIMIZERS
    ),
    "keras": Dialect("keras", keras_schedules.SCHEDULES, {}),
    "optax": Dialect("optax", optax_schedules.SCHEDULES, {}),
    "pytorch_accelerated": Dialect(
        "pytorch_accelerated", pytorch_accelerated_schedules.SCHEDULES, {}
    ),
    "timm": Dialect("timm", timm_schedules.SCHEDULES, {}),
    "torch": Dialect("torch", torch_schedules.SCHEDULES, torch_optimizers.OPTIMIZERS),
}
"""The systems by name."""


_CONFIG_PARAMETERS = {
    "configure_lr_scheduler": (Parameter("config"), Parameter("adjust_learning_rate", None)),
    "configure_scheduler": (Parameter("config"),),
}


@dataclass(frozen=True, slots=True)
class Names:
    """The class names of a system."""

    schedules: tuple[str, ...]
    optimizers: tuple[str, ...]


def names(system: str) -> Names:
    """Returns the class names that a system has here.

    Raises:
        UnknownNameError: There is no such system.

    Example:
        >>> names("torch").optimizers[:3]
        ('SGD', 'Adam', 'AdamW')
    """
    dialect = _dialect(system)
    return Names(tuple(dialect.schedules), tuple(dialect.optimizers))


def known_as(name: str) -> dict[str, tuple[str, ...]]:
    """Returns the classes that build a schedule of the library, by the systems that have any.

    Example:
        >>> known_as("warm_restarts")["torch"]
        ('CosineAnnealingWarmRestarts',)
    """
    classes = {
        system: tuple(entry.name for entry in dialect.schedules.values() if name in entry.builds)
        for system, dialect in DIALECTS.items()
    }
    return {system: found for system, found in classes.items() if found}


def schedule(
    system: str,
    name: str,
    kwargs: Mapping[str, Any],
    key: str = "lr",
    base: Any = None,
    as_shipped: bool = False,
    own: Sequence[ScheduleEntry] = (),
) -> Schedule:
    """Returns the schedule of a scheduler class.

    Args:
        system: One of ``DIALECTS``.
        name: The class name, exactly; or ``configure_lr_scheduler`` or ``configure_scheduler`` of
            cerebras, with ``config`` as the argument.
        kwargs: Its arguments without the optimizer; a sub-schedule is ``{"class": name,
            "kwargs": {…}}``, a function ``{"expr": text}``.
        key: The entry of the param group that is scheduled, named in errors.
        base: The value of that entry before scheduling; torch's classes need it, cerebras' ignore
            it.
        as_shipped: False for the documented formula, True for the defects of the system, too.
        own: Classes of your own, made by ``own_schedule``, that are found by name as well.

    Raises:
        UnknownNameError: There is no such system or class.
        ArgumentError: An argument is missing or unknown.
        DefinitionError: The arguments have no meaning.

    Example:
        >>> kwargs = {"initial_learning_rate": 1e-3, "end_learning_rate": 0, "total_iters": 100}
        >>> schedule("cerebras", "CosineDecayLR", kwargs).exact(50)
        1/2000
    """
    made = _configured(system, name, kwargs, as_shipped, own)
    if made is None:
        raise DefinitionError("the config asks for no schedule", where=f"{system} > {name}")
    entries = _entries(system, own)
    context = Context(system, entries, key=key, base=base, bases=(base,), as_shipped=as_shipped)
    return build_schedule(*made, context)


def schedules(
    system: str,
    name: str,
    kwargs: Mapping[str, Any],
    groups: Sequence[Mapping[str, Any]],
    key: str = "lr",
    as_shipped: bool = False,
    own: Sequence[ScheduleEntry] = (),
) -> list[Schedule | None]:
    """Returns the schedule of each param group, None where the group is not touched.

    A group's ``tags`` are met with ``param_group_tags`` of a cerebras class, its
    ``adjust_learning_rate`` or else ``adjust_val`` is the factor of a ScalePerParam, and its
    ``initial_<key>`` or else ``<key>`` is the base value of a torch class.

    Args:
        system: As in :func:`schedule`.
        name: As in :func:`schedule`.
        kwargs: As in :func:`schedule`.
        groups: The param groups, at least one.
        key: As in :func:`schedule`.
        as_shipped: As in :func:`schedule`.
        own: As in :func:`schedule`.

    Raises:
        DefinitionError: There are no groups, or the tags match none; else as :func:`schedule`.

    Example:
        >>> kwargs = {"val": 0.1, "param_group_tags": "a"}
        >>> groups = [{"tags": "a"}, {"tags": ["b"]}]
        >>> schedules("cerebras", "ConstantWD", kwargs, groups, key="weight_decay")
        [Schedule(value, name='constant', value=1/10), None]
    """
    entries = _entries(system, own)
    if not groups:
        raise DefinitionError("groups must hold at least one param group, got none", where=system)
    made = _configured(system, name, kwargs, as_shipped, own)
    if made is None:
        return [None] * len(groups)
    name, kwargs = made
    where = f"{system} > {name}"
    find_schedule(name, Context(system, entries))
    given = kwargs.get("param_group_tags") if isinstance(kwargs, Mapping) else None
    matches = matching_groups(read_tags(given, "param_group_tags", where), groups, where)
    bases = tuple(group.get(f"initial_{key}", group.get(key)) for group in groups)
    shared = Context(system, entries, key=key, bases=bases, as_shipped=as_shipped)
    contexts = [
        replace(shared, base=base, group=group, group_index=index)
        for index, (base, group) in enumerate(zip(bases, groups, strict=True))
    ]
    return [
        build_schedule(name, kwargs, context)
        if is_met and is_touched(name, kwargs, context)
        else None
        for context, is_met in zip(contexts, matches, strict=True)
    ]


def metric_rule(
    system: str, name: str, kwargs: Mapping[str, Any], base: Any = None, group_index: int = 0
) -> UpdateRule:
    """Returns the update rule of a scheduler class that is driven by a metric.

    Its parameter is the scheduled value, its gradient the metric: ``OptimizerSession(rule,
    params={"lr": np.array(0.1)})`` runs it, ``session.step({"lr": metric})`` after each epoch.

    Args:
        system: One of ``DIALECTS``.
        name: The class name, exactly.
        kwargs: Its arguments without the optimizer.
        base: The value before scheduling, where the class has a warmup.
        group_index: The param group, for arguments that are a list with one for each group.

    Raises:
        UnknownNameError: There is no such system or class.
        ArgumentError: An argument is missing or unknown.
        DefinitionError: The class waits for no metric, or the arguments have no meaning.

    Example:
        >>> rule = metric_rule("torch", "ReduceLROnPlateau", {"patience": 3})
        >>> rule.hyperparameters["patience"], list(rule.states)
        (3, ['best', 'num_bad_epochs', 'cooldown_counter'])
    """
    context = Context(
        system, _dialect(system).schedules, base=base, bases=(base,), group_index=group_index
    )
    return build_rule(name, kwargs, context)


def optimizer(
    system: str, name: str, kwargs: Mapping[str, Any], as_shipped: bool = False
) -> UpdateRule:
    """Returns the update rule of an optimizer class, its states named as that system names them.

    Args:
        system: ``"cerebras"``, ``"torch"`` or ``"huggingface"``.
        name: The class name, exactly.
        kwargs: Its arguments without the parameters. A hyperparameter may be a Schedule, or None
            for an input of the graph.
        as_shipped: Whether to keep a defect that changes the mathematics of the class: the doubled
            factor of cerebras NAdam, the momentum that cerebras Muon never writes back.

    Raises:
        UnknownNameError: There is no such system or class.
        ArgumentError: An argument is missing or unknown.
        DefinitionError: The arguments have no meaning.

    Example:
        >>> rule = optimizer("torch", "AdamW", {"lr": 1e-3})
        >>> list(rule.states), rule.hyperparameters["weight_decay"]
        (['exp_avg', 'exp_avg_sq'], 1/100)
    """
    dialect = _dialect(system)
    if name not in dialect.optimizers:
        raise UnknownNameError(
            f"{system} has no optimizer {name!r}", hint=nearest(str(name), dialect.optimizers)
        )
    entry = dialect.optimizers[name]
    if as_shipped:
        entry = dialect.shipped_optimizers.get(name, entry)
    return entry.build(fill(entry.parameters, kwargs, f"{system} > {name}"))


def _dialect(system: str) -> Dialect:
    if system not in DIALECTS:
        raise UnknownNameError(
            f"there is no system {system!r}", hint=nearest(str(system), DIALECTS)
        )
    return DIALECTS[system]


def _entries(system: str, own: Sequence[ScheduleEntry]) -> Mapping[str, ScheduleEntry]:
    return {**_dialect(system).schedules, **{entry.name: entry for entry in own}}


def _configured(
    system: str,
    name: str,
    kwargs: Mapping[str, Any],
    as_shipped: bool,
    own: Sequence[ScheduleEntry],
) -> tuple[str, Mapping[str, Any]] | None:
    """The class and arguments that a config function of cerebras comes to; else as given."""
    if system != "cerebras" or name not in _CONFIG_PARAMETERS:
        return name, kwargs
    given = fill(_CONFIG_PARAMETERS[name], kwargs, f"{system} > {name}")
    if name == "configure_scheduler":
        return configure_scheduler(given["config"], own)
    return configure_lr_scheduler(
        given["config"], given["adjust_learning_rate"], as_shipped=as_shipped, own=own
    )

"""The flat config forms of cerebras.pytorch 2.3: each becomes a class and its arguments.

``configure_scheduler`` reads the nested form that followed them. The caller's config is never
changed.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from typing import Any

from closedform.errors import ArgumentError, ConfigError, UnknownNameError, nearest
from closedform.frameworks.cerebras.optimizers import OPTIMIZERS
from closedform.frameworks.cerebras.schedules import SCHEDULES
from closedform.recipes import kit

Configured = tuple[str, dict[str, Any]]
"""A class name and its arguments, for ``schedule`` and ``schedules``."""

FRAMEWORK = "cerebras"
_SCHEDULER_ALIASES = {
    "total_iters": ("steps", "decay_steps"),
    "initial_learning_rate": ("learning_rate", "base_lr"),
    "base_lr": ("learning_rate", "initial_learning_rate"),
    "learning_rates": ("values",),
    "milestones": ("boundaries",),
}
_CHAINED = ("chained", "chainedlr")


@kit.locate_errors("cerebras > configure_scheduler_params")
def configure_scheduler_params(
    config: Mapping[str, Any], own: Sequence[kit.ScheduleEntry] = ()
) -> Configured:
    """Returns the class and arguments of a flat config: its ``scheduler`` and the rest.

    The name is that of an LR class in any letter case, with or without its ``LR``. Missing
    arguments are not noticed before the schedule is built.

    Args:
        config: ``scheduler`` and the arguments of that class.
        own: Classes of your own, made by ``own_schedule``.

    Raises:
        UnknownNameError: There is no ``scheduler``.
        ConfigError: The class is unknown, an argument is unknown, in lower case or one of the names
            that it had before.

    Example:
        >>> configure_scheduler_params({"scheduler": "lInEaR", "total_iters": 5})
        ('LinearLR', {'total_iters': 5})
    """
    if not isinstance(config, Mapping):
        raise ConfigError(f"a scheduler must be a mapping, got {config!r}")
    if "scheduler" not in config:
        raise UnknownNameError("the config has no 'scheduler'", hint="name its class there")
    entry = _lr_class(config["scheduler"], own)
    given = {key: value for key, value in config.items() if key != "scheduler"}
    names = [parameter.name for parameter in entry.parameters]
    if entry.name in ("ChainedLR", "ChainedScheduler"):
        raise ConfigError(
            f"{entry.name} cannot be named here: it takes no optimizer",
            hint="set main_scheduler to chained in a list of schedulers",
        )
    for name in names:
        if name.lower() != name and name.lower() in given:
            raise ConfigError(f"{name.lower()!r} is not an argument", hint=f"write {name!r}")
        former = [one for one in _SCHEDULER_ALIASES.get(name, ()) if one not in names]
        _check_former_names(name, former, given)
    for key in given:
        if key not in names:
            raise ConfigError(
                f"{entry.name} has no argument {key!r}", hint=nearest(str(key), names)
            )
    return entry.name, given


@kit.locate_errors("cerebras > configure_lr_scheduler")
def configure_lr_scheduler(
    learning_rate: Any,
    adjust_learning_rate: Mapping[str, Any] | None = None,
    as_implemented: bool = False,
    own: Sequence[kit.ScheduleEntry] = (),
) -> Configured | None:
    """Returns the class and arguments of a learning rate as configs give it; None where it is none.

    Args:
        learning_rate: A number or its text for a constant; a mapping for one scheduler; a list of
            mappings for a sequence, whose milestones are the running sum of ``total_iters``, or,
            where ``main_scheduler`` is ``chained``, a product. None, and what is empty, is none.
        adjust_learning_rate: Layer types and factors. Where it is not empty, the result is wrapped
            in ScalePerParamLR, whose factors are those that the param groups carry; the numbers
            here are not read.
        as_implemented: Whether to refuse a Python int and to take 0.0 for none, against the
            documents.
        own: As in ``configure_scheduler_params``.

    Raises:
        ConfigError: It has none of these forms, values of ``main_scheduler`` differ, a member but
            the last has no ``total_iters``, or a product is to be adjusted.
        ArgumentError: An argument is missing.
        UnknownNameError: A mapping has no ``scheduler``.

    Example:
        >>> configure_lr_scheduler("0.1")
        ('ConstantLR', {'learning_rate': 0.1})
    """
    where = f"{FRAMEWORK} > configure_lr_scheduler"
    if isinstance(learning_rate, bool) or (isinstance(learning_rate, int) and as_implemented):
        raise ConfigError(f"a learning rate must be a float, got {learning_rate!r}")
    if isinstance(learning_rate, int | float | str) and learning_rate != "":
        if as_implemented and learning_rate == 0:
            return None
        number = _number(learning_rate, "a learning rate")
        made: Configured = ("ConstantLR", {"learning_rate": number})
        return _adjusted(made, adjust_learning_rate)
    if learning_rate is None or (not learning_rate and not isinstance(learning_rate, float)):
        return None
    entries = [learning_rate] if isinstance(learning_rate, Mapping) else learning_rate
    if not isinstance(entries, list | tuple) or not all(isinstance(e, Mapping) for e in entries):
        raise ConfigError(
            f"a learning rate must be a number, a scheduler or a list of schedulers, "
            f"got {learning_rate!r}"
        )
    mains = [entry["main_scheduler"] for entry in entries if "main_scheduler" in entry]
    if any(main != mains[0] for main in mains):
        raise ConfigError(f"values of main_scheduler differ: {mains}")
    members = [
        configure_scheduler_params({k: v for k, v in e.items() if k != "main_scheduler"}, own)
        for e in entries
    ]
    for member in members:
        _check(member, own, where)
    if mains and str(mains[0]).lower() in _CHAINED:
        if adjust_learning_rate:
            raise ConfigError(
                "a chained learning rate cannot be adjusted", hint="leave adjust_learning_rate out"
            )
        return "ChainedScheduler", {"schedulers": [_spec(member) for member in members]}
    row = members[0] if len(members) == 1 else _with_milestones(members, "SequentialLR")
    return _adjusted(row, adjust_learning_rate)


@kit.locate_errors("cerebras > configure_scheduler")
def configure_scheduler(
    params: Mapping[str, Any], own: Sequence[kit.ScheduleEntry] = ()
) -> Configured:
    """Returns the class and arguments of the nested form ``{class name: {arguments}}``.

    Names are complete and in their own letter case. Members of a composite are such mappings, too;
    the milestones of a sequence follow from their ``total_iters``; the tags of a composite are
    those of its members.

    Args:
        params: The mapping; only its first key counts.
        own: As in ``configure_scheduler_params``.

    Raises:
        ConfigError: It has not that form, the class is unknown, a member has its own tags, or one
            but the last has no ``total_iters``.
        ArgumentError: The class is a generic one, milestones are given, or an argument is missing
            or unknown.

    Example:
        >>> configure_scheduler({"ConstantWD": {"val": 0.1}})
        ('ConstantWD', {'val': 0.1})
    """
    where = f"{FRAMEWORK} > configure_scheduler"
    made = _nested(params, None, own, where)
    _check(made, own, where)
    return made


def _nested(params: Any, tags: Any, own: Sequence[kit.ScheduleEntry], where: str) -> Configured:
    if not isinstance(params, Mapping) or not params:
        raise ConfigError(f"a scheduler must be {{class name: {{arguments}}}}, got {params!r}")
    name, given = next(iter(params.items()))
    entries = _entries(own)
    if name not in entries:
        raise ConfigError(
            f"{FRAMEWORK} has no scheduler {name!r}", hint=nearest(str(name), entries)
        )
    if name.endswith("Scheduler") and name != "ChainedScheduler" and name in SCHEDULES:
        raise ArgumentError(
            f"{name} is a generic class, which schedules no key",
            hint=f"name its LR or WD class, such as {name.removesuffix('Scheduler')}LR",
        )
    if not isinstance(given, Mapping):
        raise ArgumentError(f"arguments of {name} must be a mapping, got {given!r}")
    kwargs = dict(given)
    if tags is not None:
        if "param_group_tags" in kwargs:
            raise ConfigError(
                f"a member has tags of its own: {kwargs['param_group_tags']!r}",
                where=f"{where} > {name}",
                hint="give them to the composite alone",
            )
        kwargs["param_group_tags"] = tags
    children = entries[name].children
    if children is None or children not in kwargs:
        return name, kwargs
    own_tags = kwargs.get("param_group_tags")
    if children == "scheduler":
        kwargs["scheduler"] = _spec(_nested(kwargs["scheduler"], own_tags, own, where))
        return name, kwargs
    with kit.locate_errors(f"{where} > {name}"):
        specs = kit.sub_schedules(kwargs.pop("schedulers"), "schedulers")
    members = [_nested(spec, own_tags, own, where) for spec in specs]
    if not name.startswith("Sequential"):
        return name, {"schedulers": [_spec(member) for member in members], **kwargs}
    if "milestones" in kwargs:
        raise ArgumentError(
            "milestones follow from total_iters of the members",
            where=f"{where} > {name}",
            hint="leave them out",
        )
    _, sequence = _with_milestones(members, name)
    return name, {**sequence, **kwargs}


def _with_milestones(members: Sequence[Configured], name: str) -> Configured:
    """The sequence whose milestones are the running sum of the lengths of all but the last."""
    marks: list[Any] = []
    for member, kwargs in members[:-1]:
        total = kwargs.get("total_iters")
        if total is None:
            raise ConfigError(
                f"every scheduler but the last needs total_iters, {member} has none",
                hint="the next one begins there",
            )
        marks.append(total + (marks[-1] if marks else 0))
    return name, {"schedulers": [_spec(member) for member in members], "milestones": marks}


def _adjusted(made: Configured, factors: Mapping[str, Any] | None) -> Configured:
    return ("ScalePerParamLR", {"scheduler": _spec(made)}) if factors else made


def _spec(made: Configured) -> dict[str, Any]:
    name, kwargs = made
    return {"class": name, "kwargs": kwargs}


def _check(made: Configured, own: Sequence[kit.ScheduleEntry], where: str) -> None:
    """Refuses names of arguments and forms of members that the constructor would refuse."""
    name, kwargs = made
    context = kit.Context(FRAMEWORK, _entries(own), path=(where.split(" > ")[-1],))
    entry = kit.find_schedule(name, context)
    kit.generic_arguments(entry, kwargs, f"{where} > {name}")
    if entry.children is None:
        return
    inside = kwargs[entry.children]
    for spec in [inside] if entry.children == "scheduler" else inside:
        member, arguments = kit.sub_schedule(spec)
        _check((member, dict(arguments)), own, where)


def _number(value: float | str, name: str) -> float:
    try:
        return float(value)
    except ValueError as error:
        raise ConfigError(f"{name} must be a number, got {value!r}") from error


def _entries(own: Sequence[kit.ScheduleEntry]) -> dict[str, kit.ScheduleEntry]:
    return {**SCHEDULES, **{entry.name: entry for entry in own}}


def _lr_class(name: Any, own: Sequence[kit.ScheduleEntry]) -> kit.ScheduleEntry:
    """The LR class of a name in any letter case, as it is or with LR after it."""
    entries = _entries(own)
    known = {
        key.lower(): entry
        for key, entry in entries.items()
        if not key.endswith(("WD", "Scheduler")) or key in {e.name for e in own}
    }
    lower = str(name).lower()
    for candidate in (lower, f"{lower}lr"):
        if candidate in known:
            return known[candidate]
    raise ConfigError(
        f"{FRAMEWORK} has no learning rate scheduler {name!r}",
        hint=nearest(str(name), [entry.name for entry in known.values()]),
    )


_DEFAULT_RATE = 0.1
_OPTIMIZER_ALIASES = {
    "weight_decay": ("weight_decay_rate",),
    "betas": ("beta1", "beta2"),
    "eps": ("eps1", "eps2"),
    "etas": ("eta1", "eta2"),
    "step_sizes": ("step_size_min", "step_size_max"),
}


@kit.locate_errors("cerebras > configure_optimizer_params")
def configure_optimizer_params(
    optimizer_type: str, kwargs: Mapping[str, Any], as_implemented: bool = False
) -> tuple[str, dict[str, Any]]:
    """Returns the class and arguments of an optimizer config.

    ``learning_rate`` becomes ``lr``, where it is a number or its text; a schedule does not count.
    Without it, ``lr`` is the class's default, or 0.1. Arguments that the class has not are left
    out.

    Args:
        optimizer_type: The class name in any letter case.
        kwargs: The config of the optimizer, which is not changed.
        as_implemented: Whether to ignore a Python int as ``learning_rate``, against the documents.

    Raises:
        ConfigError: The class is unknown, or an argument has a former name.

    Example:
        >>> configure_optimizer_params("sgd", {"learning_rate": "0.3"})
        ('SGD', {'lr': 0.3})
    """
    entry = _optimizer_class(optimizer_type)
    if not isinstance(kwargs, Mapping):
        raise ConfigError(f"an optimizer config must be a mapping, got {kwargs!r}")
    given = dict(kwargs)
    rate = _rate(given.pop("learning_rate", None), as_implemented)
    made: dict[str, Any] = {}
    for parameter in entry.parameters:
        name = parameter.name
        if name in given:
            made[name] = given[name]
        elif name == "lr":
            default = parameter.default
            made[name] = rate if rate is not None else default
            if made[name] is None or isinstance(made[name], kit.Required):
                made[name] = _DEFAULT_RATE
        if name not in given:
            _check_former_names(name, _OPTIMIZER_ALIASES.get(name, ()), given)
    return entry.name, made


def configure_optimizer(
    optimizer_type: str, kwargs: Mapping[str, Any], as_implemented: bool = False
) -> tuple[str, dict[str, Any]]:
    """Returns the class of an optimizer config and the entries of its param groups.

    These are its arguments, defaults filled in; Adam and AdamW hold two entries more, or others.

    Raises:
        ConfigError: As ``configure_optimizer_params``.

    Example:
        >>> configure_optimizer("SGD", {"momentum": 0.9})[1]["lr"]
        0.1
    """
    name, made = configure_optimizer_params(optimizer_type, kwargs, as_implemented)
    defaults = {parameter.name: parameter.default for parameter in OPTIMIZERS[name].parameters}
    entries = {**defaults, **made}
    if name == "AdamW":
        entries["l2_regularization_rate"] = 0.0
    if name == "Adam":
        rate = entries["weight_decay"]
        entries |= {"l2_regularization_rate": rate, "weight_decay": 0.0, "correct_bias": True}
    return name, entries


def _optimizer_class(optimizer_type: str) -> kit.OptimizerEntry:
    known = {name.lower(): entry for name, entry in OPTIMIZERS.items()}
    lower = str(optimizer_type).lower()
    if lower not in known:
        raise ConfigError(
            f"{FRAMEWORK} has no optimizer {optimizer_type!r}",
            hint=nearest(str(optimizer_type), OPTIMIZERS),
        )
    return known[lower]


def _rate(value: Any, as_implemented: bool) -> float | None:
    """The number of a learning rate; None for a schedule, or for none."""
    is_int = isinstance(value, int) and not isinstance(value, bool)
    if not isinstance(value, float | str) and (as_implemented or not is_int):
        return None
    return _number(value, "learning_rate")


def _check_former_names(name: str, former: Iterable[str], given: Mapping[str, Any]) -> None:
    for alias in former:
        if alias in given:
            raise ConfigError(
                f"{alias!r} is no longer the name of an argument", hint=f"write {name!r}"
            )


def _configured_lr_scheduler(
    arguments: Mapping[str, Any], as_implemented: bool, own: Sequence[kit.ScheduleEntry]
) -> Configured | None:
    taken = (kit.Parameter("config"), kit.Parameter("adjust_learning_rate", None))
    values = kit.fill(taken, arguments, f"{FRAMEWORK} > configure_lr_scheduler")
    return configure_lr_scheduler(
        values["config"], values["adjust_learning_rate"], as_implemented=as_implemented, own=own
    )


def _configured_scheduler(
    arguments: Mapping[str, Any], as_implemented: bool, own: Sequence[kit.ScheduleEntry]
) -> Configured:
    del as_implemented
    values = kit.fill((kit.Parameter("config"),), arguments, f"{FRAMEWORK} > configure_scheduler")
    return configure_scheduler(values["config"], own)


FUNCTIONS: Mapping[str, kit.ConfigFunction] = {
    "configure_lr_scheduler": _configured_lr_scheduler,
    "configure_scheduler": _configured_scheduler,
}
"""The functions that ``frameworks.schedule`` takes as the name of a class."""

"""Building a framework's schedule from its entries, for readers."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from closedform.language import Schedule
from closedform.recipes.entries import Context, ScheduleEntry, build_schedule


def class_schedule(
    framework: str,
    entries: Mapping[str, ScheduleEntry],
    name: str,
    config: Mapping[str, Any],
    *,
    key: str = "lr",
    base: Any = None,
    facts: Mapping[str, Any] | None = None,
    version: str = "",
    as_implemented: bool = True,
) -> Schedule:
    """Returns the schedule of an entry, as ``frameworks.schedule`` does.

    Args:
        framework: The name of the framework, for errors.
        entries: Its scheduler classes.
        name: The class.
        config: Its arguments.
        key: The entry of the param group that is scheduled.
        base: Its value before scheduling, for classes that scale it.
        facts: Numbers of the run, by the framework's own names.
        version: One of the framework's versions.
        as_implemented: True for the values that the framework computes, defects included.

    Raises:
        UnknownNameError: There is no such class.
        ArgumentError: An argument or a fact is missing or unknown.
        DefinitionError: The arguments are not valid.

    Example:
        >>> from closedform.frameworks.transformers.schedules import SCHEDULES
        >>> config = {"learning_rate": 1, "max_steps": 4}
        >>> class_schedule("transformers", SCHEDULES, "linear", config).exact(1)
        3/4
    """
    context = Context(
        framework,
        entries,
        key=key,
        base=base,
        bases=(base,),
        as_implemented=as_implemented,
        facts=facts or {},
        version=version,
    )
    return build_schedule(name, config, context)

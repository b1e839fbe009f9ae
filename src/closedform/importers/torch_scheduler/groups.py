"""Param groups, the step and the method of the values of a scheduler."""

from __future__ import annotations

from typing import Any

from torch.optim.lr_scheduler import ChainedScheduler, LRScheduler, SequentialLR

from closedform.importers.python.place import UserValue

COMPOSITES = (SequentialLR, ChainedScheduler)
METHODS = ("_get_lr", "get_updated_values")
"""Methods of schedulers that are not torch's, of the step to the values of all groups."""
BY_A_FUNCTION = "write the schedule as a function of the step, and use closedform.from_python"
TOLERANCE = 1e-9
"""Of the largest value: a recurrence in float64 rounds once or more a step."""


def method_of(scheduler: object) -> str | None:
    """Returns the method of the number of updates, of a class that is not one of torch."""
    # A subclass of torch's class has get_lr, whatever other methods it has.
    if isinstance(scheduler, LRScheduler):
        return None
    return next((name for name in METHODS if hasattr(scheduler, name)), None)


def field_of(scheduler: object) -> str:
    """Returns the entry of the param groups that is scheduled."""
    return str(getattr(scheduler, "param_group_field", "lr"))


def entries_of(scheduler: UserValue) -> list[dict[str, Any]]:
    """Returns copies of the param groups without their parameters."""
    return [
        {
            key: value.copy() if type(value) in (list, dict) else value
            for key, value in group.items()
            if key != "params"
        }
        for group in scheduler.optimizer.param_groups
    ]


def of_group(values: Any, index: int) -> Any:
    """Returns the value of a group, of values for all groups or of one for each."""
    return values[index] if isinstance(values, list | tuple) else values


def last_epoch_of(scheduler: UserValue) -> int:
    """Returns the present step; a ChainedScheduler does not count by itself."""
    if isinstance(scheduler, ChainedScheduler):
        return last_epoch_of(scheduler._schedulers[0])
    return int(scheduler.last_epoch)

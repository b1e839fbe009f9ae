"""Schedulers of torch, and of packages that follow them, as one schedule for each param group.

The schedule is that of a run that goes on from the state in which the scheduler and its optimizer
are: a rate that was edited, or that a resumed optimizer has, is the one that the recurrence begins
with, at the step ``last_epoch``.

The scheduler's own method is traced, with the step as ``last_epoch``. A method that computes the
value from the value before is a recurrence: the closed form is that of ``_get_closed_form_lr``, or
one that ``recurrence`` finds, and an induction proves that the recurrence has its values. What is
composed of other schedulers is composed of their schedules. The result is compared with the
scheduler, run step by step on a separate optimizer.
"""

from __future__ import annotations

from torch.optim.lr_scheduler import LRScheduler

from closedform.importers.python.place import UserValue
from closedform.importers.python.prover import Prover
from closedform.importers.torch_scheduler.groups import METHODS
from closedform.importers.torch_scheduler.reader import Reader
from closedform.importers.torch_scheduler.steps import compare, compare_next, is_as_from_the_first
from closedform.language import Schedule

__all__ = ["is_scheduler", "schedules_of"]


def is_scheduler(source: object) -> bool:
    """Returns whether an object is a scheduler that can be read."""
    return isinstance(source, LRScheduler) or any(hasattr(source, name) for name in METHODS)


def schedules_of(scheduler: UserValue, prover: Prover) -> list[Schedule]:
    """Returns the schedule of each param group, in updates from the first one on.

    Args:
        scheduler: A scheduler of torch, timm, transformers, pytorch-accelerated, or a subclass.
        prover: What decides comparisons.

    Raises:
        TraceError: It depends on a metric, or on random numbers, or its values are given by a
            recurrence without a known closed form, which the message shows.
    """
    count = len(scheduler.optimizer.param_groups)
    schedules = [Reader(prover, index).schedule(scheduler) for index in range(count)]
    if is_as_from_the_first(scheduler):
        compare(scheduler, schedules, prover)
    compare_next(scheduler, schedules, prover)
    return schedules

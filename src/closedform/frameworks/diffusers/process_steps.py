"""Schedulers that accelerate steps once per process: in diffusers, kohya and SimpleTuner.

Their lengths are steps of the scheduler, so update t has the value at ``t * num_processes``.
"""

from __future__ import annotations

import ast
from collections.abc import Mapping
from typing import Any

import sympy as sp

from closedform.frameworks.torch import FRAMEWORK as TORCH
from closedform.frameworks.transformers.schedules import ScheduleNumbers
from closedform.language import Schedule, exact_number, t
from closedform.recipes import kit

CLOCK = kit.Clock(kit.Unit.PROCESS_STEP)
TORCH_PATH = "torch.optim.lr_scheduler"


def piecewise_constant(run: ScheduleNumbers, rules: str) -> Schedule:
    """Returns the multiples of the rate of ``get_piecewise_constant_schedule``.

    Args:
        run: The numbers of the schedule.
        rules: A multiple and the step before which it counts, for each but the last multiple, such
            as ``1:10,0.1``. The last of two multiples with the same step counts.

    Raises:
        DefinitionError: The rules are not of this form.
    """
    # The last multiple has no step: it counts for the rest of the run.
    *parts, last = rules.split(",")
    try:
        pairs = [part.split(":") for part in parts]
        # diffusers/optimization.py at 58eb52c08 fills a dict: the last of two equal steps wins.
        multiples = {int(step): exact_number(float(multiple)) for multiple, step in pairs}
        rest = exact_number(float(last))
    except ValueError:
        message = f"step_rules must be of the form 'multiple:step,...,multiple', got {rules!r:.60}"
        kit.refuse_unless(False, message, run.context.where)
        raise

    def value(n: float) -> Any:
        return run.base * next((multiples[step] for step in sorted(multiples) if n < step), rest)

    return kit.curve("piecewise_constant", value, run.count)


def run_of(
    context: kit.Context, rate: sp.Expr, warmup: int, total: int, processes: int
) -> ScheduleNumbers:
    """Returns the numbers of a schedule of accelerate, lengths in steps of the scheduler."""
    count = CLOCK.position(kit.Facts(world_size=processes))
    return ScheduleNumbers(rate, rate, sp.Integer(warmup), sp.Integer(total), context, count)


def literal_arguments(words: object, name: str, where: str) -> dict[str, Any]:
    """Returns the arguments that words such as ``T_max=100`` state, with Python literals.

    Raises:
        DefinitionError: They are not a list of such words.
    """
    words = [words] if isinstance(words, str) else words
    arguments: dict[str, Any] = {}
    for word in words if isinstance(words, list | tuple) else [words]:
        key, equals, value = word.partition("=") if isinstance(word, str) else ("", "", "")
        kit.refuse_unless(
            equals, f"{name} must hold words such as T_max=100, got {word!r:.60}", where
        )
        try:
            arguments[key] = ast.literal_eval(value)
        except (ValueError, SyntaxError, MemoryError, RecursionError):
            kit.refuse_unless(
                False, f"{key} of {name} must be a Python literal, got {value!r}", where
            )
    return arguments


def of_torch(
    path: str, arguments: Mapping[str, Any], rate: sp.Expr, where: str, processes: int = 1
) -> Schedule:
    """Returns the schedule of a class of torch that takes a number of steps in each update.

    Args:
        path: The name of the class, or its dotted path.
        arguments: Its arguments without the optimizer.
        rate: The rate of the param group.
        where: The place, for errors.
        processes: The steps in an update.

    Raises:
        DefinitionError: The class is one of another package.
        UnknownNameError: torch has no such class.
    """
    package, _, name = path.rpartition(".")
    message = f"only classes of {TORCH_PATH} are known, got {path!r:.80}"
    kit.refuse_unless(package in ("", TORCH_PATH), message, where)
    schedule = kit.class_schedule("torch", TORCH.schedules, name, arguments, base=rate)
    if processes == 1:
        return schedule
    last = schedule.last_step
    return Schedule.of(
        schedule.bound.xreplace({t: processes * t}),
        {},
        name=schedule.name,
        # The last update whose step t * processes has a value.
        domain=() if last is None else (sp.Le(t, last // processes),),
        ending=schedule.ending,
    )

"""Steps of many parameters as one compiled function: first their numbers, then their tensors.

Inductor fuses what it can into the loop over the elements, and would compute a power of a decay
rate, or a schedule, again for every vector of 16. So what depends on no tensor is computed before
(``ir/hoist.py``), and returned: inductor puts into memory what a function returns. All tensors are
read and written once, where they lie.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from itertools import count
from types import FunctionType
from typing import Any

import torch
from torch import Tensor

from closedform.torch.engine.batching import Part, Step, prepared_with, run_steps, steps_of
from closedform.torch.engine.bound_program import Function, Preparer, is_lost
from closedform.torch.engine.tensor_table import Layout, write

PATTERNS = 8
"""How many sets of parameters are compiled as a whole; more are stepped one by one."""

_TITLES = count()
"""Numbers of functions: torch keeps by name which sizes it has seen change."""


def compiled() -> Preparer:
    """Returns what makes calls ready as one compiled function for each sequence of programs."""
    return prepared_with(_function, PATTERNS)


def _function(layout: Layout, numbers: Sequence[Part], tensors: Sequence[Part]) -> Function:
    """Returns a compiled function of the tensors of a layout."""
    steps, lost = steps_of(layout, [*numbers, *tensors], is_lost)
    used, moved = _compact(steps, len(layout.tensors))
    traced = _compiled(moved)

    def run(tensors: list[Tensor]) -> None:
        made = traced(*[tensors[place] for place in used])
        for place, writes in lost.items():
            write(tensors, writes, made[place - len(tensors)])

    return run


def _compact(steps: Sequence[Step], count: int) -> tuple[list[int], list[Step]]:
    """The tensors that steps use, and the steps with places among these; numbers lie behind."""
    used = {place for step in steps for column in step.columns for place, _ in column}
    used |= {place for step in steps for writes in step.outputs for (place, _), _ in writes}
    given = sorted(place for place in used if place < count)
    order = {place: index for index, place in enumerate(given)}
    order |= {place: place - count + len(given) for place in used if place >= count}
    moved = [
        Step(
            program,
            [[(order[place], row) for place, row in column] for column in columns],
            [[((order[place], row), number) for (place, row), number in one] for one in outputs],
        )
        for program, columns, outputs in steps
    ]
    return given, moved


def _compiled(steps: Sequence[Step]) -> Callable[..., list[Tensor]]:
    """Returns a compiled function of tensors that returns what the steps put behind them.

    The steps are in it, and never change. torch counts the compilations of a code object, whoever
    asked for them, and stops at a few: so each function has a code object of its own.
    """

    def traced(*tensors: Tensor) -> list[Tensor]:
        values = list(tensors)
        run_steps(values, steps)
        return values[len(tensors) :]

    title = f"step_{next(_TITLES)}"
    code = traced.__code__.replace(co_name=title)
    own = FunctionType(code, traced.__globals__, title, None, traced.__closure__)
    options: dict[str, Any] = {"guard_filter_fn": _is_of_tensors, "size_asserts": False}
    found: Callable[..., list[Tensor]]
    found = torch.compile(own, fullgraph=True, options=options)  # dynamic=False costs 4 µs a call
    return found


def _is_of_tensors(guards: Sequence[Any]) -> list[bool]:
    """Which guards of a function must be asked: of its tensors and of torch, not of its steps."""
    return [not guard.name or guard.name.startswith("tensors") for guard in guards]

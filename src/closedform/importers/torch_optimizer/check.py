"""A traced rule beside the optimizer that it was traced from."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import numpy as np
import torch

from closedform.errors import TraceError
from closedform.importers.tensors.check import (
    STEPS,
    TOLERANCE,
    Graphs,
    RunningRule,
    graphs_of,
    relative_gap,
    without_rounding,
)
from closedform.importers.tensors.values import Sizes
from closedform.importers.torch_optimizer.subject import InDouble, Path, Subject, gradients
from closedform.importers.torch_optimizer.trace import Slot, Trace
from closedform.ir import naming
from closedform.language.update_rule import UpdateRule
from closedform.options import ModelSpec

_NAMES = ("first", "second", "third")

Compiled = dict[tuple[Sizes, ...], Graphs]
"""The graphs of a rule by the shapes of the parameters."""


def difference(
    rule: UpdateRule,
    subject: Subject,
    shapes: Sequence[Sizes],
    steps: Sequence[int] = range(STEPS),
    seed: int = 0,
    slots: Sequence[Slot] = (),
    counters: dict[Path, int] | None = None,
    compiled: Compiled | None = None,
) -> tuple[float, str, int]:
    """Returns the largest relative difference, its tensor and its step.

    A rule that rounds to 16 bits is compared without its roundings, with an optimizer without them:
    where a sum is beside the middle of two such numbers, its last bits decide.

    Args:
        rule: The rule.
        subject: The optimizer before its first step; it is not changed.
        shapes: The shapes of its parameters, of which there are at most three.
        steps: The steps to compare: 0, 1, …, or later ones at which the clock is set.
        seed: Of the gradients.
        slots: The states of the rule.
        counters: Where the optimizer counts steps, and what it has counted before the first.
        compiled: The graphs of the rule by shapes, where some are known; more are added.

    Raises:
        TraceError: The rule has no graph.
    """
    copy = subject.clone()
    exact = without_rounding(rule)
    known: Compiled = {} if compiled is None else compiled
    key = tuple(shapes)
    if key not in known:
        known[key] = graphs_of(ModelSpec(exact, dict(zip(_NAMES, shapes, strict=False))))
    start = {name: _array(param) for name, param in zip(_NAMES, copy.params, strict=False)}
    running = RunningRule(known[key], start)
    worst = (0.0, "", 0)
    with InDouble(is_exact=exact is not rule):
        for count, time in enumerate(steps):
            if time != count:
                _set_clock(copy, counters or {}, time)
                running.set_clock(time)
            grads = gradients(shapes, seed + 1000 + count)
            copy.step(grads)
            running.step({name: _array(g) for name, g in zip(_NAMES, grads, strict=False)})
            for label, found, expected in _pairs(copy, running.values, slots):
                gap = relative_gap(found, expected)
                if gap > worst[0]:
                    worst = (gap, label, time)
    return worst


def _pairs(
    copy: Subject, values: dict[str, Any], slots: Sequence[Slot]
) -> list[tuple[str, Any, Any]]:
    pairs = [
        (f"param {place + 1}", values[f"param.{name}"], _array(param))
        for place, (name, param) in enumerate(zip(_NAMES, copy.params, strict=False))
    ]
    leaves = copy.leaves()
    for slot in slots:
        key = naming.shared(slot.name) if slot.is_shared else naming.state("first", slot.name)
        if slot.path in leaves and key in values:
            leaf = leaves[slot.path]
            number = _array(leaf) if isinstance(leaf, torch.Tensor) else np.array(float(leaf))
            pairs.append((f"state {slot.name!r}", values[key], number))
    return pairs


def _set_clock(copy: Subject, counters: dict[Path, int], time: int) -> None:
    leaves = copy.leaves()
    for path, start in counters.items():
        if path in leaves:
            leaf = leaves[path]
            if isinstance(leaf, torch.Tensor):
                leaf.fill_(time + start)
            else:
                copy.replace(path, type(leaf)(time + start))


def _array(tensor: torch.Tensor) -> Any:
    return tensor.detach().to(torch.float64).numpy().copy()


def checked(rule: UpdateRule, trace: Trace, found: tuple[float, str, int], where: str) -> None:
    """Raises TraceError if a rule differs from its optimizer."""
    gap, label, step = found
    if not gap <= TOLERANCE:
        raise TraceError(
            f"the traced rule differs from the optimizer by {gap:.3g} of the largest element of "
            f"{label} at step {step}",
            where=where,
            hint="the step does something that the trace does not see",
        )

"""A traced rule beside the optimizer that it was traced from."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace
from typing import Any

import numpy as np
import sympy as sp
import torch

from closedform.compiler import compile_init, compile_step
from closedform.errors import ClosedFormError, TraceError
from closedform.importers.torch_optimizer.subject import InDouble, Path, Subject, gradients
from closedform.importers.torch_optimizer.trace import Slot, Trace
from closedform.importers.torch_optimizer.values import Sizes
from closedform.ir import naming
from closedform.ir.evaluate import evaluate
from closedform.ir.graph import Graph
from closedform.ir.types import DType
from closedform.language.functions import Rounded
from closedform.language.update_rule import UpdateRule
from closedform.options import GraphOptions, ModelSpec

STEPS = 20
# A step in float64 has some hundred roundings of 1.1e-16, and the rule adds in another order; a
# wrong coefficient shows in the third digit.
TOLERANCE = 1e-10
_NAMES = ("first", "second")

Compiled = dict[tuple[Sizes, ...], tuple[Graph, Graph]]
"""The graphs of the start and of a step, by the shapes of the parameters."""


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
        shapes: The shapes of its two parameters.
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
    is_rounded, rule = exact is not rule, exact
    params = dict(zip(_NAMES, shapes, strict=True))
    spec, options = ModelSpec(rule, params), GraphOptions(dtype=DType.F64)
    try:
        known: Compiled = {} if compiled is None else compiled
        key = tuple(shapes)
        if key not in known:
            known[key] = compile_init(spec, options), compile_step(spec, options)
        init, step = known[key]
        start = {f"param.{name}": _array(p) for name, p in zip(_NAMES, copy.params, strict=True)}
        needed = {node.attribute("name") for node in init.inputs}
        values: dict[str, Any] = {
            **start,
            **evaluate(init, {key: value for key, value in start.items() if key in needed}),
        }
        with InDouble(is_exact=is_rounded):
            return _compared(copy, step, values, shapes, steps, seed, slots, counters or {})
    except ClosedFormError as error:
        if isinstance(error, TraceError):
            raise
        raise TraceError(
            f"the rule was traced and has no graph: {error.what}",
            where=error.where,
            hint=error.hint,
        ) from error


def without_rounding(rule: UpdateRule) -> UpdateRule:
    """Returns a rule without roundings to 16 bits; itself if it has none."""
    if not any(expr.has(Rounded) for expr in rule.all_expressions()):
        return rule

    def bare(expr: sp.Basic) -> sp.Basic:
        return expr.replace(Rounded, lambda inner, _: inner)

    return replace(rule, **rule.expressions_by(bare))


def _compared(
    copy: Subject,
    step: Any,
    values: dict[str, Any],
    shapes: Sequence[Sizes],
    steps: Sequence[int],
    seed: int,
    slots: Sequence[Slot],
    counters: dict[Path, int],
) -> tuple[float, str, int]:
    worst = (0.0, "", 0)
    inputs = {node.attribute("name") for node in step.inputs}
    for count, time in enumerate(steps):
        if time != count:
            _set_clock(copy, counters, time)
            values[naming.STEP] = np.array(time)
        grads = gradients(shapes, seed + 1000 + count)
        given = {f"grad.{name}": _array(g) for name, g in zip(_NAMES, grads, strict=True)}
        copy.step(grads)
        known = {**values, **given}
        outputs = evaluate(step, {name: known[name] for name in inputs})
        values |= {name.removeprefix(naming.NEXT): array for name, array in outputs.items()}
        for label, found, expected in _pairs(copy, values, slots):
            gap = _gap(found, expected)
            if gap > worst[0]:
                worst = (gap, label, time)
    return worst


def _pairs(
    copy: Subject, values: dict[str, Any], slots: Sequence[Slot]
) -> list[tuple[str, Any, Any]]:
    pairs = [
        (f"param {place + 1}", values[f"param.{name}"], _array(param))
        for place, (name, param) in enumerate(zip(_NAMES, copy.params, strict=True))
    ]
    leaves = copy.leaves()
    for slot in slots:
        key = naming.shared(slot.name) if slot.is_shared else naming.state("first", slot.name)
        if slot.path in leaves and key in values:
            leaf = leaves[slot.path]
            number = _array(leaf) if isinstance(leaf, torch.Tensor) else np.array(float(leaf))
            pairs.append((f"state {slot.name!r}", values[key], number))
    return pairs


def _gap(found: Any, expected: Any) -> float:
    """The largest difference, in units of the largest element."""
    found, expected = np.broadcast_arrays(found, expected)
    if not found.size:
        return 0.0
    is_same = (found == expected) | (np.isnan(found) & np.isnan(expected))
    if is_same.all():
        return 0.0
    size = float(np.max(np.abs(expected[np.isfinite(expected)]), initial=0.0))
    with np.errstate(invalid="ignore"):
        gap = np.where(is_same, 0.0, np.abs(found - expected))
    largest = float(np.max(gap)) if np.isfinite(gap).all() else np.inf
    return largest / size if size else largest


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

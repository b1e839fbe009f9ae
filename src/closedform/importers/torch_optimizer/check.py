"""A traced rule compared with the optimizer that it was traced from."""

from __future__ import annotations

import math
from collections.abc import Callable, Mapping, Sequence
from typing import Any

import numpy as np
import torch

from closedform.errors import TraceError
from closedform.importers.tensors.check import (
    STEPS,
    TOLERANCE,
    Graphs,
    RuleDeviation,
    RunningRule,
    graphs_of,
    relative_gap,
    without_rounding,
)
from closedform.importers.tensors.values import Sizes
from closedform.importers.torch_optimizer.inputs import Draws, input_values
from closedform.importers.torch_optimizer.layout import Slot
from closedform.importers.torch_optimizer.subject import InDouble, Path, Subject, gradients
from closedform.ir import naming
from closedform.language.functions import RightSingularVectors
from closedform.language.update_rule import UpdateRule
from closedform.options import ModelSpec

_NAMES = ("first", "second", "third")

GraphCache = dict[tuple[Sizes, ...], Graphs]
"""The graphs of a rule by the shapes of the parameters."""


def difference(
    rule: UpdateRule,
    subject: Subject,
    shapes: Sequence[Sizes],
    steps: Sequence[int] = range(STEPS),
    seed: int = 0,
    slots: Sequence[Slot] = (),
    counters: dict[Path, int] | None = None,
    cache: GraphCache | None = None,
    special: Sequence[Mapping[int, str]] | None = None,
) -> RuleDeviation:
    """Returns the largest relative difference, its tensor and its step.

    A rule that rounds to 16 bits is compared without its roundings, with an optimizer without them:
    where a sum is close to the middle of two such numbers, its last bits decide.

    Args:
        rule: The rule.
        subject: The optimizer before its first step; it is not changed.
        shapes: The shapes of its parameters, of which there are at most three.
        steps: The steps to compare: 0, 1, …, or later ones at which the clock is set.
        seed: Of the gradients.
        slots: The states of the rule.
        counters: Where the optimizer counts steps, and what it has counted before the first.
        cache: The graphs of the rule by shapes, where some are known; more are added.
        special: The kinds of special gradients by parameter, for each step in the place of
            ``steps``; a step that raises an exception ends the comparison.

    Raises:
        TraceError: The rule has no graph.
    """
    copy = subject.clone()
    exact = without_rounding(rule)
    graphs: GraphCache = {} if cache is None else cache
    key = tuple(shapes)
    if key not in graphs:
        graphs[key] = graphs_of(ModelSpec(exact, dict(zip(_NAMES, shapes, strict=False))))
    vectors = has_vectors(rule)
    params = dict(zip(_NAMES, copy.params, strict=False))
    start = {name: array_of(param) for name, param in params.items()}
    running = RunningRule(graphs[key], start)
    worst = RuleDeviation()
    draws = Draws(seed + 3000)
    with InDouble(is_exact=exact is not rule), draws, np.errstate(all="ignore"):
        for count, time in enumerate(steps if special is None else range(len(special))):
            if time != count:
                _set_clock(copy, counters or {}, time)
                running.set_clock(time)
            # Other gradients than the traced ones: a constant that was one of their elements shows.
            grads = gradients(shapes, seed + 1000 + count)
            for place, kind in (special[count] if special else {}).items():
                if place < len(grads):
                    grads[place] = SPECIAL[kind](grads[place])
            draws.begin_step()
            try:
                copy.step(grads)
            except (ArithmeticError, ValueError, RuntimeError):
                if special is None:
                    raise
                break  # there is no step to follow
            tensors = input_values(rule.inputs, params, copy.optimizer.state, draws)
            running.step({n: array_of(g) for n, g in zip(params, grads, strict=True)}, tensors)
            # States that a huge or an infinite gradient has reached depend on the order of sums.
            for label, actual, expected in _pairs(copy, running.values, () if special else slots):
                if special is not None:
                    actual, expected = _finite(actual, expected, has_values=_is_finite(copy))
                gap = relative_gap(actual, expected)
                if vectors and not label.startswith("param"):
                    # A pair of singular vectors is determined up to a common sign; LAPACK and numpy
                    # may differ in it.
                    gap = _DECOMPOSED_GAP * min([gap, *_gaps_with_signs(actual, expected)])
                if special is not None:
                    gap *= _SPECIAL_GAP
                if gap > worst.gap:
                    worst = RuleDeviation(gap, label, time)
    return worst


def has_vectors(rule: UpdateRule) -> bool:
    """Returns whether a rule takes singular vectors or eigenvectors."""
    return any(expr.has(RightSingularVectors) for expr in rule.all_expressions())


_SPECIAL_GAP = 1e-5
"""A gap of special gradients by one of normal ones: sums of 1e6 and of 1 lose six digits."""


_DECOMPOSED_GAP = 1e-2
"""A gap of states that singular vectors may enter by one of others.

The least eigenvalue of a matrix of condition 1e7 has an error of 1e-9, in LAPACK, too.
"""


def _gaps_with_signs(actual: Any, expected: Any) -> list[float]:
    """The gaps of two matrices whose rows, or columns, may have other signs: singular vectors."""
    if actual.ndim != 2 or actual.shape != expected.shape:
        return []
    return [
        relative_gap(
            actual * np.where(np.sum(actual * expected, axis, keepdims=True) < 0, -1, 1), expected
        )
        for axis in (0, 1)
    ]


def _is_finite(copy: Subject) -> bool:
    """Whether all tensors that an optimizer stores are finite."""
    tensors = [leaf for leaf in copy.leaves().values() if isinstance(leaf, torch.Tensor)]
    return all(bool(torch.isfinite(tensor).all()) for tensor in tensors)


def _finite(actual: Any, expected: Any, *, has_values: bool) -> tuple[Any, Any]:
    """Two results without the elements that are not finite, if both have some.

    Without values only whether they are finite is compared: where a state is NaN, its sign is that
    of the platform, and ``copysign`` takes it.

    Which ones these are depends on the order of operations: torch forms inf - inf in a ``lerp``,
    and SymPy merges the powers of a quotient of an infinite mean.
    """
    actual, expected = np.broadcast_arrays(actual, expected)
    is_finite = np.isfinite(actual) & np.isfinite(expected)
    if np.isfinite(actual).all() != np.isfinite(expected).all():
        return actual, expected
    if not has_values:
        is_finite = np.zeros_like(is_finite)
    return actual[is_finite], expected[is_finite]


def _with_first(number: float) -> Callable[[torch.Tensor], torch.Tensor]:
    first = torch.tensor(0)
    return lambda gradient: gradient.flatten().index_fill(0, first, number).view_as(gradient)


SPECIAL: Mapping[str, Callable[[torch.Tensor], torch.Tensor]] = {
    "zero": torch.zeros_like,
    "negative zero": lambda gradient: -torch.zeros_like(gradient),
    "zeros of both signs": lambda gradient: gradient * 0,
    "huge": lambda gradient: gradient * 1e6,
    "tiny": lambda gradient: gradient * 1e-30,
    "infinite": _with_first(math.inf),
    "negative infinite": _with_first(-math.inf),
    "NaN": _with_first(math.nan),
}
"""Gradients by kind, from random ones."""

SEQUENCES: Sequence[Sequence[Mapping[int, str]]] = (
    ({0: "zero", 1: "tiny"}, {0: "huge"}, {1: "negative zero"}, {0: "zeros of both signs"}, {}),
    ({}, {0: "infinite"}, {}),
    ({}, {1: "NaN"}, {}),
)
"""Kinds of the gradients of the first parameters in a few steps."""

PLACES = 24
"""The parameters of an optimizer of which all are the same: a place below is found."""


def check_places(subject: Subject, where: str) -> None:
    """Runs an optimizer for equal parameters: their steps are equal, whatever their places.

    Raises:
        TraceError: They are not.
    """
    first, *rest = subject.params
    for param in rest:
        # Of the same shape, values and gradients: only the place differs.
        param.data.copy_(first.data)
        for key, value in subject.optimizer.state[first].items():
            if isinstance(value, torch.Tensor):
                subject.optimizer.state[param][key] = value.clone()
    kinds = (None, "huge", "zero", "tiny", None)
    for sequence in ((*kinds, "infinite"), ("NaN", None)):
        copy = subject.clone()
        for count, kind in enumerate(sequence):
            (gradient,) = gradients([tuple(first.shape)], seed=2000 + count)
            gradient = gradient if kind is None else SPECIAL[kind](gradient)
            try:
                with InDouble(), Draws(count, is_constant=True):
                    copy.step([gradient] * len(copy.params))
            except (ArithmeticError, ValueError, RuntimeError):
                break  # there is no step to follow
            expected = array_of(copy.params[0])
            for place, param in enumerate(copy.params):
                if not relative_gap(array_of(param), expected) <= TOLERANCE:
                    raise TraceError(
                        f"parameter {place + 1} makes another step than parameter 1, which has the "
                        "same value, states and gradient",
                        where=where,
                        hint="a rule is the same for every parameter, whatever its place",
                    )


def _pairs(
    copy: Subject, values: dict[str, Any], slots: Sequence[Slot]
) -> list[tuple[str, Any, Any]]:
    pairs = [
        (f"param {place + 1}", values[f"param.{name}"], array_of(param))
        for place, (name, param) in enumerate(zip(_NAMES, copy.params, strict=False))
    ]
    leaves = copy.leaves()
    for slot in slots:
        key = naming.shared(slot.name) if slot.is_shared else naming.state("first", slot.name)
        if slot.path in leaves and key in values:
            leaf = leaves[slot.path]
            number = array_of(leaf) if isinstance(leaf, torch.Tensor) else np.array(float(leaf))
            value = values[key]
            if slot.mask is not None:
                value = value[copy.masks(0)[slot.mask].numpy()]
            pairs.append((f"state {slot.name!r}", value, number))
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


def array_of(tensor: torch.Tensor) -> Any:
    """Returns the elements of a tensor in float64."""
    return tensor.detach().to(torch.float64).numpy().copy()

"""Whether the graph of a schedule is finite at every step, in floats: shown, or refuted at a step.

One pass of ``obligations.faults`` over all steps decides most graphs. Where it does not, steps are
sampled in the evaluator, which finds a failure if there is one, and the range is partitioned where
conditions change and then in halves, from the first step on. A single step at which the intervals
leave an obligation open is evaluated: it fails there, or is undecided.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field, replace
from enum import StrEnum

import numpy as np
from numpy.typing import NDArray

from closedform.effort import Effort, spend
from closedform.ir.analysis.interval import LEAST_NORMAL
from closedform.ir.analysis.obligations import Fault, ObligationKind, faults
from closedform.ir.analysis.ranges import Ranges
from closedform.ir.evaluate import KERNELS
from closedform.ir.graph import Array, Graph
from closedform.ir.ops import Op
from closedform.ir.types import DType, StepArray

# Bounds of the effort: parts of the range, and units of work. They end a check as OPEN, never as
# MET.
_SEGMENTS = 400
_WORK = 2_000_000
# Units of work: the range of a node and its obligations, the values of a node, elements in a unit.
_PER_RANGE = 30
_PER_NODE = 10
_PER_UNIT = 200
# Samples of a round, failing samples that are examined one by one, and changes of conditions that
# are located.
_ROUND = 256
_CANDIDATES = 8
_CHANGES = 64


class Answer(StrEnum):
    """Whether every obligation is met."""

    MET = "met"
    FAILED = "failed"
    OPEN = "open"


@dataclass(frozen=True, slots=True)
class StepCheck:
    """The result for the steps ``first`` to ``last``.

    Attributes:
        answer: Whether every obligation is met.
        first: The first step.
        last: The last step.
        step: Where it failed, or the first step at which it is open; None where all are met.
        is_first: Whether every obligation is shown to be met at all steps before ``step``.
        fault: The obligation of the lowest node that fails or is open at that step.
        value: The value of an output at that step that is not finite; None where outputs are.
        segments: Into how many ranges of steps the steps were partition.
    """

    answer: Answer
    first: int
    last: int
    step: int | None = None
    is_first: bool = False
    fault: Fault | None = None
    value: float | None = None
    segments: int = 1


def check_steps(
    graph: Graph,
    first: int,
    last: int,
    *,
    segments: int = _SEGMENTS,
    effort: Effort | None = None,
) -> StepCheck:
    """Returns whether a graph of one input, the step, is finite from step ``first`` to ``last``.

    Args:
        graph: The graph.
        first: The first step.
        last: The last step.
        segments: How many ranges of steps are looked at.
        effort: The work that it may do; a fixed amount if None.

    Example:
        >>> from closedform import compile, schedules
        >>> check_steps(compile(schedules.cosine(1, 0, 100)), 0, 2**50).answer
        <Answer.MET: 'met'>
    """
    if not _open(graph, first, last):
        return StepCheck(Answer.MET, first, last)
    effort_left = Effort.of(_WORK) if effort is None else effort
    steps = GraphSteps(graph)
    failed_step = _first_failure(steps, first, last, effort_left)
    partition = Subdivision(steps, segments, effort_left)
    end = last if failed_step is None else failed_step - 1
    open_cell = _first_open(partition, first, end) if first <= end else None
    if open_cell is None and failed_step is None:
        return StepCheck(Answer.MET, first, last, segments=partition.count)
    if open_cell is not None and (failed_step is None or open_cell.is_hard):
        answer = Answer.FAILED if open_cell.is_certain else Answer.OPEN
        return _result(
            steps, answer, first, last, open_cell.step, not partition.is_over, partition.count
        )
    step = last if failed_step is None else failed_step
    return _result(steps, Answer.FAILED, first, last, step, open_cell is None, partition.count)


def first_nonfinite(graph: Graph, first: int, last: int) -> StepCheck | None:
    """Returns a step at which an output is NaN or infinite, the first that is found; None if none.

    It runs the graph at some hundred steps, and proves nothing of the others.
    """
    steps = GraphSteps(graph)
    outputs = [output.index for output in graph.outputs]
    failed_step = _first_at(steps, outputs, first, last, Effort.of(_WORK))
    if failed_step is None:
        return None
    return _result(steps, Answer.FAILED, first, last, failed_step, False, 1)


def _open(graph: Graph, first: int, last: int, *, flushes: bool = True) -> tuple[Fault, ...]:
    spend(_PER_RANGE * len(graph.nodes))
    return faults(graph, Ranges(graph.nodes, last, step_min=first, flushes=flushes))


def _open_at(steps: GraphSteps, step: int) -> tuple[tuple[Fault, ...], tuple[Fault, ...]]:
    """The obligations that are open at a step, and the ones that fail in the evaluator.

    Where none is open without it, a subnormal number that is flushed to zero is what fails.
    """
    open_ = _open(steps.graph, step, step)
    # Nothing open without flushing: the gap between 0 and the least normal number is the only
    # cause.
    is_flushed = bool(open_) and not _open(steps.graph, step, step, flushes=False)
    values = steps.values(np.array([step]), flushes=is_flushed)
    certain = tuple(fault for fault in open_ if _is_certain(values, fault))
    if is_flushed:
        open_, certain = (
            tuple(replace(fault, kind=ObligationKind.SUBNORMAL) for fault in part)
            for part in (open_, certain)
        )
    return open_, certain


def _result(
    steps: GraphSteps, answer: Answer, first: int, last: int, step: int, is_first: bool, count: int
) -> StepCheck:
    open_, certain = _open_at(steps, step)
    values = steps.values(np.array([step]))
    fault = next(iter(certain or open_), None)
    outputs = [float(values[output.index].ravel()[0]) for output in steps.graph.outputs]
    wrong = next((value for value in outputs if not math.isfinite(value)), None)
    return StepCheck(answer, first, last, step, is_first, fault, wrong, count)


def _is_certain(values: Sequence[Array], fault: Fault) -> bool:
    """Whether the evaluator confirms what the intervals of a step leave open."""
    if fault.kind not in (ObligationKind.NAN, ObligationKind.OVERFLOW, ObligationKind.SUBNORMAL):
        return False
    return not bool(np.isfinite(values[fault.index]).all())


# --- the range of steps in parts -----------------------------------------------------------------


@dataclass(frozen=True, slots=True)
class _Found:
    """The first step of a range that is not shown to be finite."""

    step: int
    is_certain: bool = False
    is_hard: bool = False  # also where subnormal numbers are not flushed


def _first_open(partition: Subdivision, first: int, last: int) -> _Found | None:
    """The first step that is not shown to be finite; None if all are."""
    graph = partition.steps.graph
    # A reduction over the axis of the steps makes one step depend on the others: parts show
    # nothing.
    if joins_steps(graph):
        return _Found(first)
    open_cell = partition.first(first, last, lambda low, high: not _open(graph, low, high))
    if open_cell is None:
        return None
    low, high = open_cell
    if low != high:
        return _Found(low)
    _, certain = _open_at(partition.steps, low)
    is_hard = any(fault.kind is not ObligationKind.SUBNORMAL for fault in certain)
    return _Found(low, bool(certain), is_hard)


@dataclass(slots=True)
class Subdivision:
    """A range of steps, subdivided until something is shown of each part.

    Attributes:
        steps: The graph.
        limit: How many parts are looked at.
        effort: The work that it may do.
        count: How many parts were looked at.
        is_over: Whether a limit ended it.
        changes: Steps at which conditions change, where parts begin.
    """

    steps: GraphSteps
    limit: int
    effort: Effort
    count: int = 0
    is_over: bool = False
    changes: list[int] = field(default_factory=list)

    def first(
        self, first: int, last: int, is_shown: Callable[[int, int], bool]
    ) -> tuple[int, int] | None:
        """Returns the first part of which it is not shown; None if it is of all.

        Args:
            first: The first step.
            last: The last step.
            is_shown: Whether it is shown of the steps from the first to the last of a part.
        """
        self.changes = changes_of(self.steps, first, last, self.effort)
        pending = [(first, last)]
        while pending:
            low, high = pending.pop()
            self.count += 1
            if is_shown(low, high):
                continue
            if low == high:
                return low, high
            if self.count >= self.limit or not self.effort.left:
                self.is_over = True
                return low, high
            middle = self._middle(low, high)
            # The lower half is on top of the stack, so the first part that is not shown is the
            # first one of all.
            pending += [(middle, high), (low, middle - 1)]
        return None

    def _middle(self, low: int, high: int) -> int:
        """Where the second half begins: at a change, or such that both differ by one factor."""
        if high + 1 >= 4 * (low + 1):
            # The geometric mean: curves in t change with the ratio of steps, and halves of [0,
            # 2**53] would need dozens of parts before they reach step 1000.
            middle = math.isqrt((low + 1) * (high + 1))
        else:
            middle = (low + high + 1) // 2
        middle = min(max(middle, low + 1), high)
        # At a change of a condition the intervals of both halves decide it, which no other step
        # does.
        inside = [step for step in self.changes if low < step <= high]
        return min(inside, key=lambda step: abs(step - middle)) if inside else middle


def joins_steps(graph: Graph) -> bool:
    """Returns whether the value at one step of an array may depend on another step."""
    return any(
        node.op in (Op.REDUCE_SUM, Op.REDUCE_MAX)
        and any(
            isinstance(graph.nodes[node.operands[0]].type.shape[axis], str)
            for axis in node.attribute("axes")
        )
        for node in graph.nodes
    ) or any(node.op is Op.MATMUL for node in graph.nodes)


# --- evaluation at sampled steps ------------------------------------------------------------------


def node_values(
    graph: Graph,
    inputs: Mapping[str, Array],
    sizes: Mapping[str, int] | None = None,
    *,
    flushes: bool = False,
) -> list[Array]:
    """Returns the values of all nodes.

    Args:
        graph: The graph.
        inputs: Its inputs by name.
        sizes: The sizes of named axes.
        flushes: True to replace subnormal numbers by zero, as some engines do.
    """
    values: list[Array] = []
    with np.errstate(all="ignore"):
        for node in graph.nodes:
            spend(_PER_NODE + (values[-1].size // _PER_UNIT if values else 0))
            dtype = node.type.dtype
            if node.op is Op.INPUT:
                values.append(np.asarray(inputs[node.attribute("name")]).astype(dtype.numpy))
                continue
            operands = tuple(values[operand] for operand in node.operands)
            value = np.asarray(KERNELS[node.op](node, operands, sizes or {}))
            if flushes and dtype.is_float:
                # After each node, as FTZ and DAZ of a CPU act on each operation.
                is_subnormal = np.abs(value) < LEAST_NORMAL[dtype]
                value = np.where(is_subnormal, value.dtype.type(0), value)
            values.append(value)
    return values


class GraphSteps:
    """The values of all nodes at many steps at once.

    A graph of scalars runs on arrays as it is; one that takes an array of steps, too. Any other one
    runs at one step after the other.
    """

    def __init__(self, graph: Graph) -> None:
        self.graph = graph
        dims = {dim for node in graph.inputs for dim in node.type.shape}
        self.axis = next((dim for dim in dims if isinstance(dim, str)), None)
        self.is_array = self.axis is not None or not any(n.type.shape for n in graph.nodes)

    def values(self, steps: StepArray, *, flushes: bool = False) -> list[Array]:
        """Returns the values of the nodes; of a graph that does not run on arrays, at one step.

        Args:
            steps: The steps.
            flushes: True to replace subnormal numbers by zero, as some engines do.
        """
        clock_values = steps if self.is_array else steps.reshape(())
        sizes = {} if self.axis is None else {str(self.axis): len(steps)}
        name = str(self.graph.inputs[0].attribute("name")) if self.graph.inputs else ""
        return node_values(self.graph, {name: clock_values}, sizes, flushes=flushes)

    def nonfinite(self, steps: StepArray, indices: Sequence[int]) -> NDArray[np.bool_]:
        """Returns at which steps one of these nodes is not finite."""
        is_nonfinite = np.zeros(len(steps), np.bool_)
        for index, wide in self._values_at(steps, indices):
            axes = tuple(axis for axis in range(wide.ndim) if axis != 0)
            wrong = ~np.isfinite(wide)
            is_nonfinite[index] |= wrong.any(axis=axes) if wide.ndim else wrong
        return is_nonfinite

    def changes(self, steps: StepArray) -> NDArray[np.bool_]:
        """Returns before which steps, but the first, a condition changes."""
        conditions = [i for i, n in enumerate(self.graph.nodes) if n.type.dtype is DType.BOOL]
        is_change = np.zeros(len(steps) - 1, np.bool_)
        values = self.values(steps)
        for index in conditions:
            value = self._by_step(index, values[index])
            if value.ndim:
                differs = value[1:] != value[:-1]
                is_change |= differs.reshape(len(differs), -1).any(axis=1)
        return is_change

    def _values_at(self, steps: StepArray, indices: Sequence[int]) -> list[tuple[slice, Array]]:
        if self.is_array:
            values = self.values(steps)
            return [(slice(None), self._by_step(index, values[index])) for index in indices]
        rows = []
        for place in range(len(steps)):
            values = self.values(steps[place : place + 1])
            rows += [
                (slice(place, place + 1), values[index].reshape(1, -1).astype(np.float64))
                for index in indices
            ]
        return rows

    def _by_step(self, index: int, value: Array) -> Array:
        """A value with the axis of the steps first; without axes if it is the same at each."""
        # Integers stay integers: float64 does not hold all of int64.
        wide = value if value.dtype.kind in "bi" else value.astype(np.float64)
        shape = self.graph.nodes[index].type.shape
        if self.axis is None or self.axis not in shape:
            return wide if not shape else wide.reshape(-1)[:0]
        return np.moveaxis(wide, shape.index(self.axis), 0)


def _first_failure(steps: GraphSteps, first: int, last: int, effort: Effort) -> int | None:
    """The first step that is found at which an obligation fails in the evaluator."""
    graph = steps.graph
    outputs = [output.index for output in graph.outputs]
    floats = [
        index
        for index, node in enumerate(graph.nodes)
        if node.type.dtype.is_float and node.op is not Op.CONST
    ]
    by_output = _first_at(steps, outputs, first, last, effort)
    end = last if by_output is None else by_output - 1
    if end < first:
        return by_output
    samples = samples_of(first, end)
    wrong = samples[steps.nonfinite(samples, floats)]
    places = np.unique(np.linspace(0, len(wrong) - 1, min(len(wrong), _CANDIDATES)).astype(int))
    for step in wrong[places] if len(wrong) else ():
        _, certain = _open_at(steps, int(step))
        hard = [fault.index for fault in certain if fault.kind is not ObligationKind.SUBNORMAL]
        if hard:
            first_failure = _first_at(steps, hard[:1], first, int(step), effort)
            return int(step) if first_failure is None else first_failure
    return by_output


def _first_at(
    steps: GraphSteps, indices: Sequence[int], first: int, last: int, effort: Effort
) -> int | None:
    """The first step that is found at which a node is not finite: between two samples, again."""
    low, high = first, last
    failing_step = None
    while low <= high:
        samples = samples_of(low, high)
        wrong = np.flatnonzero(steps.nonfinite(samples, indices))
        if not len(wrong):
            return failing_step
        place = int(wrong[0])
        # Each round narrows the gap between the last sample that is finite and the first that is
        # not.
        failing_step, high = int(samples[place]), int(samples[place]) - 1
        low = int(samples[place - 1]) + 1 if place else high + 1
        if not effort.left:
            return failing_step
    return failing_step


def samples_of(first: int, last: int) -> StepArray:
    """Returns all steps of a short range; of a longer one both ends, powers of two, equal parts."""
    if last - first < _ROUND:
        return np.arange(first, last + 1, dtype=np.int64)
    length = last - first
    powers = [2**power for power in range(length.bit_length())]
    # Floats and integers overflow or lose bits at powers of two.
    near = {first + power + offset for power in powers for offset in (-1, 0, 1)}
    # Equal ratios and equal parts: failures of exponentials and of lines.
    ratios = np.exp(np.linspace(0, math.log(length), _ROUND // 4)).astype(np.int64)
    parts = {first + length * part // (_ROUND // 8) for part in range(_ROUND // 8 + 1)}
    start = range(first, first + _ROUND // 4)
    candidates = {*start, *near, *parts, *(first + int(ratio) for ratio in ratios), last}
    return np.array(sorted(step for step in candidates if first <= step <= last), np.int64)


def changes_of(steps: GraphSteps, first: int, last: int, effort: Effort) -> list[int]:
    """Returns steps at which a condition is found to change, at most ``_CHANGES``."""
    if not steps.is_array or first == last:
        return []
    change_steps: list[int] = []
    samples = samples_of(first, last)
    pending = [
        (int(samples[i]), int(samples[i + 1])) for i in np.flatnonzero(steps.changes(samples))
    ]
    while pending and len(change_steps) < _CHANGES and effort.left:
        low, high = pending.pop()
        if high - low == 1:
            change_steps.append(high)
            continue
        inner = samples_of(low, high)
        pending += [
            (int(inner[i]), int(inner[i + 1])) for i in np.flatnonzero(steps.changes(inner))[:4]
        ]
    return change_steps


__all__ = [
    "Answer",
    "GraphSteps",
    "StepCheck",
    "Subdivision",
    "changes_of",
    "check_steps",
    "first_nonfinite",
    "joins_steps",
    "node_values",
    "samples_of",
]

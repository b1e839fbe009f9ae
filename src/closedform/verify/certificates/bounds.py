"""A bound of the error of a graph at every step of a range, by forward error analysis.

For intervals of the step, each node has an enclosure of its real value (with exact operations, and
with the number from which each constant was rounded) and a bound of the distance of the computed
value from it. An operation adds the errors of its operands and its own rounding: half an ulp, or
the error that the op table allows engines. Bounds are computed in float64 and rounded outward, for
all intervals at once; the worst intervals are halved until that gains nothing.

A constant is assumed to be within half an ulp of the intended number, and an integer to be exact.
The real value of the graph is the schedule if the translation is correct: validation proves that.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

from closedform.errors import VerificationError
from closedform.ir.graph import Graph, Node
from closedform.ir.ops import Op
from closedform.verify.certificates.errors import RULES, Enclosure, Floats
from closedform.verify.terms.limits import LIMITS

# A round halves what is within this part of the largest error, until it gains less.
_GAIN = 0.02


@dataclass(frozen=True, slots=True)
class Bound:
    """What is proved of the error at every step of a range.

    Attributes:
        absolute: No error is larger.
        relative: No error is a larger part of the value; None where a value may be zero.
        intervals: How many intervals of the step were looked at.
    """

    absolute: float
    relative: float | None
    intervals: int


def bound_error(graph: Graph, first: int, last: int, starts: Sequence[int] = ()) -> Bound:
    """Returns a bound of the error of the one output of a graph over steps first..last.

    Args:
        graph: Its one input is the step.
        first: The first step.
        last: The last step.
        starts: Steps at which intervals should begin: milestones.

    Raises:
        VerificationError: The graph holds an op whose error has no rule.
    """
    lows, highs = _intervals(first, last, starts)
    result = analyse(graph, lows, highs)
    for _ in range(LIMITS.error_rounds):
        before = float(result.error.max())
        worst = np.flatnonzero((result.error > before * (1 - _GAIN)) | (result.error == before))
        if (highs[worst] == lows[worst]).any() or len(lows) + len(worst) > LIMITS.error_intervals:
            break
        middles = lows[worst] + (highs[worst] - lows[worst]) // 2
        halved = np.concatenate([highs, highs[worst]])
        halved[worst] = middles
        lows, highs = np.concatenate([lows, middles + 1]), halved
        result = analyse(graph, lows, highs)
        if np.isfinite(before) and float(result.error.max()) > before * (1 - _GAIN):
            break
    return Bound(float(result.error.max()), _relative(result), len(lows))


def _relative(result: Enclosure) -> float | None:
    smallest = np.where(result.low > 0, result.low, -result.high)
    if (smallest <= 0).any():
        return None
    return float(np.nextafter((result.error / smallest).max(), np.inf))


def _intervals(
    first: int, last: int, starts: Sequence[int]
) -> tuple[NDArray[np.int64], NDArray[np.int64]]:
    """Intervals of steps: cut at the milestones, short ones first, lengths growing from there."""
    inner = [start for start in starts if first < start <= last]
    marks = [first, *inner[: LIMITS.error_intervals // 4]]
    parts = max(1, min(64, LIMITS.error_intervals // (4 * len(marks))))
    doublings = 64 if len(marks) <= LIMITS.few_milestones else 1
    cuts = {first}
    for start, end in zip(marks, [*marks[1:], last + 1], strict=True):
        length = end - start
        cuts |= {start, *(start + length * part // parts for part in range(parts))}
        cuts |= {start + 2**power for power in range(min(doublings, length.bit_length() - 1))}
    ordered = np.array(sorted(cuts), np.int64)
    return ordered, np.append(ordered[1:] - 1, last)


def analyse(graph: Graph, lows: NDArray[np.int64], highs: NDArray[np.int64]) -> Enclosure:
    """Returns the enclosure of the one output on each interval of steps.

    Args:
        graph: Its one input is the step, an array.
        lows: The first step of each interval.
        highs: The last step of each interval.

    Raises:
        VerificationError: The graph holds an op whose error has no rule.
    """
    known: list[Enclosure] = []
    with np.errstate(all="ignore"):
        for node in graph.nodes:
            known.append(_node(graph, node, known, lows, highs))
    result = known[graph.outputs[0].index]
    shape = lows.shape
    low, high, error = (
        np.broadcast_to(part, shape) for part in (result.low, result.high, result.error)
    )
    # What is unknown may be anything.
    error = np.where(np.isnan(error) | np.isnan(low) | np.isnan(high), np.inf, error)
    return Enclosure(np.nan_to_num(low, nan=-np.inf), np.nan_to_num(high, nan=np.inf), error)


def _node(
    graph: Graph,
    node: Node,
    known: Sequence[Enclosure],
    lows: NDArray[np.int64],
    highs: NDArray[np.int64],
) -> Enclosure:
    if node.op is Op.INPUT:
        low, high = (part.astype(np.float64) for part in (lows, highs))
        return Enclosure(low, high, np.zeros(len(lows)), is_whole=True)
    rule = RULES.get(node.op)
    if rule is None:
        raise VerificationError(
            f"the error of {node.op} has no rule",
            where=f"graph {graph.name!r}",
            hint="a bound is for graphs of schedules",
        )
    operands = [known[index] for index in node.operands]
    sources = [graph.nodes[index] for index in node.operands]
    return rule(node, sources, operands)


__all__ = ["Bound", "Floats", "analyse", "bound_error"]

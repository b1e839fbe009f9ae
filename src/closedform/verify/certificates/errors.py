"""A bound of the error of a graph at every step of a range, by forward error analysis.

For intervals of the step, each node has an enclosure of its real value (with exact operations, and
with the number from which each constant was rounded) and a bound of the distance of the computed
value from it; ``error_rules`` has the rule of each op. The worst intervals are halved until that
gains nothing.

The real value of the graph is the schedule if the translation is correct: validation proves that.

Arrays hold one entry for each interval of the step; tables and comparisons with milestones have a
further axis. In a graph of one step the axis of the intervals comes before those of its tensors, in
one of an array of steps it is the array's.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

from closedform.errors import VerificationError
from closedform.ir.graph import Graph, Node
from closedform.ir.ops import Op
from closedform.verify.certificates.error_rules import RULES, Enclosure, align_ranks
from closedform.verify.terms.limits import LIMITS

# A round halves the ranges within this part of the largest error, until it gains less.
_GAIN = 0.02


@dataclass(frozen=True, slots=True)
class Bound:
    """A proved bound on the error at every step of a range.

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
    lows, highs = first_intervals(first, last, starts)
    result = analyse(graph, lows, highs)
    for _ in range(LIMITS.error_rounds):
        before = float(result.error.max())
        # The second condition is for infinite errors, of which inf > inf is false.
        worst = np.flatnonzero((result.error > before * (1 - _GAIN)) | (result.error == before))
        # A worst interval of one step cannot be halved: the maximum stays.
        if (highs[worst] == lows[worst]).any() or len(lows) + len(worst) > LIMITS.error_intervals:
            break
        middles = lows[worst] + (highs[worst] - lows[worst]) // 2
        ends = np.concatenate([highs, highs[worst]])
        ends[worst] = middles
        lows, highs = np.concatenate([lows, middles + 1]), ends
        result = analyse(graph, lows, highs)
        if np.isfinite(before) and float(result.error.max()) > before * (1 - _GAIN):
            break
    return Bound(float(result.error.max()), _relative(result), len(lows))


def _relative(result: Enclosure) -> float | None:
    smallest = np.where(result.low > 0, result.low, -result.high)
    if (smallest <= 0).any():
        return None
    return float(np.nextafter((result.error / smallest).max(), np.inf))


def first_intervals(
    first: int, last: int, starts: Sequence[int] = ()
) -> tuple[NDArray[np.int64], NDArray[np.int64]]:
    """Returns the first and the last steps of the intervals that are looked at first.

    Intervals of steps: cut at the milestones, short ones first, lengths growing from there.
    """
    inner = [start for start in starts if first < start <= last]
    marks = [first, *inner[: LIMITS.error_intervals // 4]]
    parts = max(1, min(64, LIMITS.error_intervals // (4 * len(marks))))
    doublings = 64 if len(marks) <= LIMITS.few_milestones else 1
    cuts = {first}
    for start, end in zip(marks, [*marks[1:], last + 1], strict=True):
        length = end - start
        cuts |= {start, *(start + length * part // parts for part in range(parts))}
        # Lengths that double: errors change with the binary exponent of the step.
        cuts |= {start + 2**power for power in range(min(doublings, length.bit_length() - 1))}
    firsts = np.array(sorted(cuts), np.int64)
    return firsts, np.append(firsts[1:] - 1, last)


def analyse(graph: Graph, lows: NDArray[np.int64], highs: NDArray[np.int64]) -> Enclosure:
    """Returns the enclosure of the one output on each interval of steps.

    Args:
        graph: Its one input is the step, one or an array.
        lows: The first step of each interval.
        highs: The last step of each interval.

    Raises:
        VerificationError: The graph holds an op whose error has no rule.
    """
    (clock,) = graph.inputs
    steps = Enclosure(
        lows.astype(np.float64), highs.astype(np.float64), np.zeros(len(lows)), is_whole=True
    )
    (result,) = enclosures_of_outputs(graph, {str(clock.attribute("name")): steps}).values()
    shape = lows.shape
    low, high, error = (
        np.broadcast_to(part, shape) for part in (result.low, result.high, result.error)
    )
    return Enclosure(low, high, error)


def enclosures_of_outputs(graph: Graph, inputs: Mapping[str, Enclosure]) -> dict[str, Enclosure]:
    """Returns the enclosure of each output of a graph by name.

    Args:
        graph: The graph.
        inputs: By name, the enclosure of each input: an axis of intervals, then the axes of
            the input, of which one of size 1 stands for all of its elements.

    Raises:
        VerificationError: The graph holds an op whose error has no rule.
    """
    enclosures = enclosures_of_nodes(graph, inputs, frozenset(range(len(graph.nodes))))
    return {output.name: enclosures[output.index] for output in graph.outputs}


def enclosures_of_nodes(
    graph: Graph, inputs: Mapping[str, Enclosure], needed: frozenset[int]
) -> dict[int, Enclosure]:
    """Returns the enclosures of some nodes of a graph, as ``enclosures_of_outputs`` does.

    Args:
        graph: The graph.
        inputs: The enclosures of its inputs by name.
        needed: The nodes, with all nodes that they depend on.
    """
    enclosures: dict[int, Enclosure] = {}
    with np.errstate(all="ignore"):
        for index in sorted(needed):
            enclosures[index] = _node(graph, graph.nodes[index], enclosures, inputs)
    return {index: _with_unknown(enclosure) for index, enclosure in enclosures.items()}


def _with_unknown(result: Enclosure) -> Enclosure:
    """An enclosure in which an unknown value may be anything."""
    # 0 * inf in a rule: a bound that was not found, which must not compare as small.
    is_unknown = np.isnan(result.error) | np.isnan(result.low) | np.isnan(result.high)
    return Enclosure(
        np.nan_to_num(result.low, nan=-np.inf, neginf=-np.inf, posinf=np.inf),
        np.nan_to_num(result.high, nan=np.inf, neginf=-np.inf, posinf=np.inf),
        np.where(is_unknown, np.inf, result.error),
        result.is_whole,
        np.nan_to_num(result.relative, nan=np.inf, posinf=np.inf),
    )


def _node(
    graph: Graph,
    node: Node,
    enclosures: Mapping[int, Enclosure],
    inputs: Mapping[str, Enclosure],
) -> Enclosure:
    if node.op is Op.INPUT:
        return inputs[str(node.attribute("name"))]
    rule = RULES.get(node.op)
    if rule is None:
        raise VerificationError(
            f"the error of {node.op} has no rule",
            where=f"graph {graph.name!r}",
            hint="a bound is for graphs without it",
        )
    operands = [enclosures[index] for index in node.operands]
    sources = [graph.nodes[index] for index in node.operands]
    if len(operands) > 1 and node.op not in (Op.LOOKUP, Op.MATMUL):
        operands = align_ranks(sources, operands)
    return rule(node, sources, operands)

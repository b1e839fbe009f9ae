"""Decisions of a graph in floats: floors, comparisons and casts at which rounding may choose.

``floor(sqrt(t))`` jumps where the root is whole, and a root that is rounded below 4 is floored to
3. A decision holds on an interval of steps where the exact number is farther from every threshold
than its computed value is from it, by the bounds of ``error_rules``; intervals on which that is not
shown are halved, down to single steps. Operands that are exact in floats (integers) leave nothing
open.

>>> import sympy as sp
>>> from closedform import Schedule, compile, t
>>> print(first_open_decision(compile(Schedule(sp.sin(sp.sqrt(t) ** 3) + sp.floor(sp.sin(t))))))
floor of a number that floats round, from t = 0 on
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from functools import reduce

import numpy as np
from numpy.typing import NDArray

from closedform.ir.graph import Graph, Node, Role
from closedform.ir.ops import Op
from closedform.ir.types import LAST_STEP, MAX_STEP
from closedform.verify.certificates.error_rules import Enclosure
from closedform.verify.certificates.errors import enclosures_of_nodes, first_intervals
from closedform.verify.terms.limits import LIMITS

_TEXTS = {
    Op.FLOOR: "floor",
    Op.FLOOR_MOD: "remainder",
    Op.LT: "comparison",
    Op.LE: "comparison",
    Op.EQ: "comparison",
    Op.CAST: "rounding to an integer",
}


@dataclass(frozen=True, slots=True)
class OpenDecision:
    """A decision that rounding may change.

    Attributes:
        node: The index of its node.
        op: The op of its node.
        step: The first step at which it is not shown to be that of the exact number.
    """

    node: int
    op: Op
    step: int

    def __str__(self) -> str:
        return f"{_TEXTS[self.op]} of a number that floats round, from t = {self.step} on"


def first_open_decision(graph: Graph, last: int | None = None) -> OpenDecision | None:
    """Returns the decision of a graph that is open at the earliest step; None where all hold.

    A hyperparameter that is an input is the number of the float that is given, or an integer up to
    2**50 in size: its comparison with a step is exact, and a number that is rounded of both is
    open. Decisions that depend on other inputs are decisions on data: a gradient is a float, and
    its comparison with a threshold is that of floats.

    Args:
        graph: The graph.
        last: The last step at which it is used; the last one at which it may run if not given.
    """
    clock = next((node for node in graph.inputs if node.attribute("role") is Role.STEP), None)
    if clock is None:
        return None
    of_clock = _nodes_of_clock(graph)
    sites = [index for index in sorted(of_clock) if _may_round(graph, index)]
    end = LAST_STEP[clock.type.dtype] if last is None else last
    open_decisions = [_first_open(graph, site, end, of_clock) for site in sites]
    decisions = [decision for decision in open_decisions if decision is not None]
    return min(decisions, key=lambda decision: (decision.step, decision.node), default=None)


def _nodes_of_clock(graph: Graph) -> frozenset[int]:
    """The nodes that depend on the step, on hyperparameters, and on no other input."""
    # None stands for random numbers.
    inputs: list[frozenset[Role | None]] = []
    for node in graph.nodes:
        roles: frozenset[Role | None] = frozenset()
        if node.op is Op.INPUT:
            roles = frozenset({Role(node.attribute("role"))})
        elif node.op is Op.UNIFORM:
            roles = frozenset({None})
        inputs.append(roles.union(*(inputs[operand] for operand in node.operands)))
    # In the graph of a rule this is the role of sums and of states that parameters share, too.
    of_schedule = frozenset({Role.STEP, Role.HYPER} if _is_of_schedule(graph) else {Role.STEP})
    return frozenset(index for index, roles in enumerate(inputs) if roles and roles <= of_schedule)


def _is_of_schedule(graph: Graph) -> bool:
    """Whether all inputs are the step and hyperparameters, which users name without a dot."""
    return all(
        node.attribute("role") in (Role.STEP, Role.HYPER) and "." not in str(node.attribute("name"))
        for node in graph.inputs
    )


def _enclosures_of_hyperparameters(graph: Graph) -> dict[str, Enclosure]:
    """Each hyperparameter as any integer up to the last step in size, or any number."""
    result = {}
    for node in graph.inputs:
        if node.attribute("role") is Role.HYPER:
            is_whole = node.type.dtype.is_integer
            size = np.array(float(MAX_STEP) if is_whole else np.inf)
            enclosure = Enclosure(-size, size, np.array(0.0), is_whole)
            result[str(node.attribute("name"))] = enclosure
    return result


def _may_round(graph: Graph, index: int) -> bool:
    """Whether a node decides on floats."""
    node = graph.nodes[index]
    if node.op not in _TEXTS:
        return False
    source = graph.nodes[node.operands[-1]]
    return source.type.dtype.is_float and not (node.op is Op.CAST and node.type.dtype.is_float)


def _needed(graph: Graph, nodes: Iterable[int]) -> frozenset[int]:
    needed = set(nodes)
    for index in range(max(needed, default=-1), -1, -1):
        if index in needed:
            needed.update(graph.nodes[index].operands)
    return frozenset(needed)


@dataclass(frozen=True, slots=True)
class _Choices:
    """The choices through which a node reaches the outputs, as far as the clock makes them.

    Attributes:
        users: The nodes that lead from the node to the outputs, the last ones first, each with its
            own users in the graph.
        conditions: The conditions of the choices among them that only the clock moves.
    """

    users: Mapping[int, Sequence[int]]
    conditions: frozenset[int]

    @classmethod
    def after(cls, graph: Graph, site: int, of_clock: frozenset[int]) -> _Choices:
        users: dict[int, list[int]] = {site: []}
        for index in range(site + 1, len(graph.nodes)):
            reached = [operand for operand in set(graph.nodes[index].operands) if operand in users]
            for operand in reached:
                users[operand].append(index)
            if reached:
                users[index] = []
        conditions = {graph.nodes[i].operands[0] for i in users if graph.nodes[i].op is Op.WHERE}
        return cls(dict(reversed(users.items())), of_clock & conditions)

    def is_taken(
        self, graph: Graph, enclosures: Mapping[int, Enclosure], site: int
    ) -> NDArray[np.bool_]:
        """Whether the outputs may depend on a node, on each interval."""
        outputs = {output.index for output in graph.outputs}
        is_taken: dict[int, NDArray[np.bool_]] = {}
        for index, users in self.users.items():
            uses = [self._uses(graph, enclosures, user, index) & is_taken[user] for user in users]
            is_taken[index] = reduce(np.logical_or, uses, np.array(index in outputs))
        return is_taken[site]

    def _uses(
        self, graph: Graph, enclosures: Mapping[int, Enclosure], user: int, index: int
    ) -> NDArray[np.bool_]:
        """Whether a node may use the value of an operand: a choice uses one of its branches."""
        condition, *branches = graph.nodes[user].operands
        is_choice = graph.nodes[user].op is Op.WHERE and condition in self.conditions
        if not is_choice or index == condition:
            return np.array(True)
        truth = enclosures[condition]
        # A tensor of conditions may take either branch somewhere.
        is_sure = (truth.error == 0) & (np.ndim(truth.error) <= 1)
        is_never = [is_sure & (truth.high == 0), is_sure & (truth.low == 1)]
        uses = [~never for never, branch in zip(is_never, branches, strict=True) if branch == index]
        return reduce(np.logical_or, uses)


def _first_open(
    graph: Graph, site: int, last: int, of_clock: frozenset[int]
) -> OpenDecision | None:
    choices = _Choices.after(graph, site, of_clock)
    needed = _needed(graph, {site, *choices.conditions})
    (clock,) = (node for node in graph.inputs if node.attribute("role") is Role.STEP)
    name, node = str(clock.attribute("name")), graph.nodes[site]
    hyperparameters = _enclosures_of_hyperparameters(graph)
    lows, highs = first_intervals(0, last)
    for _ in range(LIMITS.decision_rounds):
        # The earliest intervals, in order: the others wait.
        first, second = lows[:_BATCH], highs[:_BATCH]
        steps = Enclosure(
            first.astype(np.float64), second.astype(np.float64), np.zeros(len(first)), is_whole=True
        )
        enclosures = enclosures_of_nodes(graph, {name: steps, **hyperparameters}, needed)
        is_open = _open_intervals(graph, site, enclosures, len(first))
        is_open = is_open & choices.is_taken(graph, enclosures, site)
        first, second = first[is_open], second[is_open]
        if len(first) and first[0] == second[0]:
            return OpenDecision(site, node.op, int(first[0]))
        middles = first + (second - first) // 2
        # Both halves of each interval, one after the other; a single step has one.
        halves = np.column_stack([first, middles + 1]), np.column_stack([middles, second])
        starts, ends = (half.ravel() for half in halves)
        is_some = starts <= ends
        lows = np.concatenate([starts[is_some], lows[_BATCH:]])
        highs = np.concatenate([ends[is_some], highs[_BATCH:]])
        if not len(lows):
            return None
    return OpenDecision(site, node.op, int(lows[0]))


_BATCH = 1024
"""Intervals that are looked at at once."""


def _open_intervals(
    graph: Graph,
    site: int,
    enclosures: Mapping[int, Enclosure],
    count: int,
) -> NDArray[np.bool_]:
    node = graph.nodes[site]
    is_decided: NDArray[np.bool_] = np.asarray(enclosures[site].error == 0)
    if node.op is Op.FLOOR_MOD:
        # A remainder keeps the error of its number where its quotient has one floor.
        is_decided = np.isfinite(enclosures[site].error)
    elif node.op is Op.FLOOR or node.op is Op.CAST:
        operand, source = enclosures[node.operands[0]], graph.nodes[node.operands[0]]
        is_decided = is_decided | _is_beyond_fractions(operand, source)
    is_open = np.atleast_1d(np.logical_not(is_decided))
    # A node without the step is one number for all intervals.
    by_interval = np.broadcast_to(is_open, (count, *is_open.shape[1:]))
    result: NDArray[np.bool_] = np.logical_or.reduce(by_interval.reshape(count, -1), axis=1)
    return result


def _is_beyond_fractions(operand: Enclosure, source: Node) -> NDArray[np.bool_]:
    """Whether a floor is within the rounding of its operand: the numbers have no fractions."""
    is_beyond: NDArray[np.bool_] = operand.least >= 2.0 ** (source.type.dtype.limits.nmant - 2)
    return is_beyond

"""Passes in a row, the graph checked before and after each."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Protocol

from closedform.errors import GraphError
from closedform.ir.check import check
from closedform.ir.graph import Graph
from closedform.ir.passes.algebra import Algebra, Select
from closedform.ir.passes.rewrite import Fold, Share


class Pass(Protocol):
    """A rewriting of graphs that keeps their meaning bit for bit: a frozen dataclass with a name.

    It keeps the inputs (names, types, order) and the names and types of the outputs, returns the
    same object when nothing changes, and never mutates a graph that it has returned.
    """

    @property
    def name(self) -> str:
        """The name in messages."""
        ...

    def __call__(self, graph: Graph) -> Graph:
        """Returns a graph of the same meaning."""
        ...


@dataclass(frozen=True, slots=True)
class Pipeline:
    """Runs passes in order, again until none changes anything.

    Attributes:
        passes: The passes of a round.
        rounds: The number of rounds after which the passes are assumed to undo one another.
    """

    passes: tuple[Pass, ...]
    rounds: int = 50
    name: str = "pipeline"

    def __call__(self, graph: Graph) -> Graph:
        """Returns the rewritten graph; the same object if nothing changes.

        Raises:
            GraphError: The graph is illegal before the first pass or after one (the message names
                it), a pass changes the interface, or the passes do not settle.
        """
        check(graph, "before the first pass")
        idle_passes = 0
        for _ in range(self.rounds):
            for pass_ in self.passes:
                before, graph = graph, _run(pass_, graph)
                idle_passes = idle_passes + 1 if graph is before else 0
                if idle_passes == len(self.passes):
                    return graph
        names = ", ".join(pass_.name for pass_ in self.passes)
        raise GraphError(
            f"the passes {names} still change the graph after {self.rounds} rounds",
            where=f"graph {graph.name!r}",
            hint="two of them undo one another: report it with the text of the graph",
        )


def _run(pass_: Pass, graph: Graph) -> Graph:
    result = pass_(graph)
    if result is graph:
        return graph
    check(result, f"after pass {pass_.name!r}")
    if _interface(result) != _interface(graph):
        raise GraphError(
            "inputs and outputs must keep their names, types and order",
            where=f"graph {graph.name!r}, after pass {pass_.name!r}",
            hint="a pass rewrites the nodes between them",
        )
    return result


def _interface(graph: Graph) -> tuple[object, ...]:
    outputs = tuple((output.name, graph.nodes[output.index].type) for output in graph.outputs)
    return graph.name, graph.inputs, outputs


DEFAULT = Pipeline((Fold(), Algebra(), Select(), Share()), name="default")
"""The passes of every compiled graph."""

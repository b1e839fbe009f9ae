"""Faults planted in the lowering and the passes, and what becomes of the graphs that they make.

A schedule is compiled with the fault in place, and its graph validated without it. What is proved
is evaluated beside the right graph, by the evaluator of the graph language, which shares nothing
with the prover: at every step to 400 and at many more.
"""

from __future__ import annotations

import random
from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from enum import StrEnum
from functools import cache
from types import ModuleType

import numpy as np

from closedform.compiler import compile_schedule
from closedform.ir import DType, Graph, evaluate
from closedform.ir.passes import algebra, fold, rewrite, select, share
from closedform.language import Schedule
from closedform.lowering import (
    arithmetic,
    conditions,
    context,
    guard,
    integers,
    lower,
    piecewise,
    schedule,
    simplify,
    trigonometry,
)
from closedform.lowering.analysis import annotate, domain, interval
from closedform.verify.terms.verdict import Status
from closedform.verify.translation.translation import validate
from tests.support.mutation import Mutant, TooSlowError, at_most, lines_run, mutants_of, planted
from tests.test_library import SCHEDULES

HANDLERS = (arithmetic, conditions, integers, lower, piecewise, trigonometry)
PASSES = (algebra, fold, rewrite, select, share)
FACTS = (annotate, context, domain, guard, interval, schedule, simplify)
MODULES = (*HANDLERS, *PASSES, *FACTS)

STEPS = np.unique(
    [*range(401), *(2**power + offset for power in range(9, 50) for offset in (-1, 0, 1))]
)
# Two graphs of one function round differently; the largest library graph has 40 ops of a few ulp,
# and a phase in float64 is off by t ulp at step t where it is not reduced in integers.
TOLERANCE = 1e-9
COARSE = 1e-4
# Schedules that a mutant is tried on, of those whose compilation runs its line.
TRIED = 4


class Outcome(StrEnum):
    """What became of a mutant, from the worst to the best known."""

    MISSED = "proved, and another function"
    REFUTED = "refuted"
    UNKNOWN = "not proved"
    REJECTED = "not compiled"
    COARSER = "proved, and the same function in float32"
    EQUIVALENT = "proved, and the same function"
    SAME = "the same graph"
    UNREACHED = "not run"


@dataclass(frozen=True)
class Sample:
    """A schedule, its right graph, and the lines that are run when it is compiled."""

    name: str
    schedule: Schedule
    graph: Graph
    lines: frozenset[tuple[str, int]]


@cache
def samples() -> tuple[Sample, ...]:
    """The schedules of the library that compile fast."""
    paths = {str(module.__file__) for module in MODULES}
    found = []
    for name, make in SCHEDULES.items():
        if name == "warm_restarts":  # 0.2 s to compile, and its code is run by others
            continue
        built = make()
        with lines_run(paths) as lines:
            graph = compile_schedule(built)
        found.append(Sample(name, built, graph, frozenset(lines)))
    return tuple(found)


def judge(mutant: Mutant) -> tuple[Outcome, str]:
    """What becomes of the graphs that a mutant makes: the worst outcome, and of which schedule."""
    running = [one for one in samples() if (mutant.path, mutant.line) in one.lines]
    chosen = random.Random(str(mutant)).sample(running, min(TRIED, len(running)))
    outcomes = [(outcome_of(mutant, one), one.name) for one in chosen]
    order = list(Outcome)
    return min(outcomes, key=lambda pair: order.index(pair[0]), default=(Outcome.UNREACHED, ""))


def outcome_of(mutant: Mutant, sample: Sample) -> Outcome:
    """What becomes of one schedule."""
    try:
        with planted(mutant), at_most(5):
            graph = compile_schedule(sample.schedule)
    except (Exception, TooSlowError, RecursionError):  # a fault may raise anything
        return Outcome.REJECTED
    if graph == sample.graph:
        return Outcome.SAME
    status = validate(sample.schedule, graph, budget=2.0).status
    if status is Status.REFUTED:
        return Outcome.REFUTED
    if status is Status.UNKNOWN:
        return Outcome.UNKNOWN
    # What a proof says of float32 holds as well; how far it rounds is the certificate's matter.
    is_coarse = any(node.type.dtype is DType.F32 for node in graph.nodes)
    if not are_one_function(graph, sample.graph, COARSE if is_coarse else TOLERANCE):
        return Outcome.MISSED
    return Outcome.COARSER if is_coarse else Outcome.EQUIVALENT


def are_one_function(graph: Graph, other: Graph, tolerance: float) -> bool:
    """Whether two graphs have the same values, but for rounding."""
    for step in STEPS:
        one, two = (evaluate(each, {"step": int(step)})["value"] for each in (graph, other))
        if not np.isclose(one, two, rtol=tolerance * max(1, int(step) >> 20), atol=1e-300):
            return False
    return True


def drawn(modules: Iterable[ModuleType], count: int, seed: int) -> list[Mutant]:
    """So many mutants of each module, those that no schedule runs left out."""
    lines = frozenset().union(*(one.lines for one in samples()))
    found = []
    for module in modules:
        run = [mutant for mutant in mutants_of(module) if (mutant.path, mutant.line) in lines]
        found += random.Random(seed).sample(run, min(count, len(run)))
    return found


def table(results: Sequence[tuple[Mutant, Outcome, str]]) -> str:
    """The number of mutants by outcome."""
    counts = {outcome: sum(one is outcome for _, one, _ in results) for outcome in Outcome}
    return ", ".join(f"{outcome}: {count}" for outcome, count in counts.items())

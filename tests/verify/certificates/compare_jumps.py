"""2,000 drawn schedules that jump, at 100,000 steps in onnxruntime, torch, C and JAX.

Where an export is PROVED no engine takes another branch than the exact number, at all steps below
100,000 and around powers of 2 up to 2**50; at most one schedule of 20 is open below 100,000. Steps
at which numbers meet thresholds are worked out exactly, up to 300 of a schedule.
"""

import functools
import importlib
from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass

import numpy as np
import pytest
from numpy.typing import NDArray

from closedform import Schedule
from closedform.compiler import compile_schedule
from closedform.exporters.c_header import schedule_header
from closedform.ir.graph import Array, Graph
from closedform.options import ANY_STEPS
from closedform.verify.translation.translation import validate
from tests.support.c_programs import compiled
from tests.support.engines import Arrays, run_jax, run_onnxruntime, run_torch
from tests.support.jumping_schedules import draw
from tests.support.long_floats import LongFloats

pytestmark = pytest.mark.packages()
BLOCK = 100
BLOCKS = [range(first, first + BLOCK) for first in range(0, 2000, BLOCK)]
STEPS = np.arange(100_000)
FAR = np.array(sorted({2**power + shift for power in range(17, 51) for shift in (-1, 0)}), np.int64)

# A level is half of the one before it; a remainder of numbers up to 2**20 has 2**-32 left.
TOLERANCE = 1e-8


MOST_EXACT = 300
"""Exact evaluations of a schedule, a millisecond each: cosines meet thresholds in each period."""


def exact_values(
    schedule: Schedule, steps: NDArray[np.int64]
) -> tuple[NDArray[np.int64], NDArray[np.float64]]:
    """Steps and the exact values at them, rounded.

    By long floats where these are far from all thresholds; of the steps near thresholds as many as
    are worked out, evenly spread.
    """
    numbers = LongFloats(steps)
    with np.errstate(all="ignore"):
        values = numbers.value(schedule.bound).astype(np.float64)
    # Angles and remainders of far steps have no digits left.
    is_open = numbers.is_near | ~np.isfinite(values) | (steps > STEPS[-1])
    places = np.flatnonzero(is_open)
    chosen = places[:: 1 + len(places) // MOST_EXACT]
    values[chosen] = [float(schedule.exact(int(step))) for step in steps[chosen]]
    is_open[chosen] = False
    return steps[~is_open], values[~is_open]


def proved_steps(schedule: Schedule, graph: Graph) -> NDArray[np.int64]:
    """The steps that are compared: those at which the export is proved."""
    verdict = validate(schedule, graph)
    assert not verdict.refuted, (schedule.name, verdict)
    steps = np.concatenate([STEPS, FAR])
    return steps if verdict.proved else steps[steps < (verdict.proved_until or 0)]


@dataclass(frozen=True, slots=True)
class Case:
    """A drawn schedule, its graph, and its exact values at the steps that are compared."""

    schedule: Schedule
    graph: Graph
    steps: NDArray[np.int64]
    expected: NDArray[np.float64]


@functools.lru_cache(maxsize=BLOCK)
def case_of(seed: int) -> Case:
    schedule = draw(seed)
    graph = compile_schedule(schedule, ANY_STEPS)
    steps, expected = exact_values(schedule, proved_steps(schedule, graph))
    return Case(schedule, graph, steps, expected)


Values = Iterator[NDArray[np.float64]]


def _values_by(run: Callable[[Graph, Arrays], dict[str, Array]]) -> Callable[[list[Case]], Values]:
    return lambda cases: (run(case.graph, {"step": case.steps})["value"] for case in cases)


def _values_in_c(cases: list[Case]) -> Values:
    """The functions of one step, all compiled at once."""
    headers = [
        schedule_header(case.schedule, compile_schedule(case.schedule), f"jumps_{place}")
        for place, case in enumerate(cases)
    ]
    library = compiled(headers)
    for header, case in zip(headers, cases, strict=True):
        function = library.function(header.name)
        yield np.array([function(step) for step in case.steps.tolist()])


ENGINES: Mapping[str, Callable[[list[Case]], Values]] = {
    "onnxruntime": _values_by(run_onnxruntime),
    "torch": _values_by(run_torch),
    "C": _values_in_c,
    "jax": _values_by(run_jax),
}


@pytest.mark.parametrize("engine", ENGINES)
@pytest.mark.parametrize("seeds", BLOCKS, ids=lambda seeds: f"{seeds.start}")
def test_an_engine_takes_the_branches_of_exact_numbers(seeds: range, engine: str) -> None:
    if engine == "jax":
        importlib.import_module("jax")
    cases = [case_of(seed) for seed in seeds]
    for case, values in zip(cases, ENGINES[engine](cases), strict=True):
        is_right = np.abs(values - case.expected) <= TOLERANCE * np.abs(case.expected)
        assert is_right.all(), (case.schedule.name, case.steps[~is_right][:5])


@pytest.mark.parametrize("seeds", BLOCKS, ids=lambda seeds: f"{seeds.start}")
def test_few_schedules_are_open(seeds: range) -> None:
    """Products with irrational numbers by remainders, and powers of large integers."""
    graphs = ((schedule, compile_schedule(schedule, ANY_STEPS)) for schedule in map(draw, seeds))
    open_names = [
        schedule.name
        for schedule, graph in graphs
        if len(proved_steps(schedule, graph)) < len(STEPS)
    ]
    assert len(open_names) <= BLOCK // 20, open_names

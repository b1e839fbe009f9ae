"""The steps for which a graph is proved to be its source, where not all of them are decided.

A run of steps that is open as a whole is compared again on its first thousand steps, its first ten
thousand, and so on: floors pass through few levels there, cosines through few turns, and what they
choose between is settled. A short run that stays open is gone through step by step, where a step is
a comparison of two numbers.

The work is counted in comparisons, so the range is the same on every machine.
"""

from __future__ import annotations

from collections.abc import Iterator

from closedform.verify.identity.equality import StepRange, are_equal, is_defined
from closedform.verify.terms.limits import LIMITS
from closedform.verify.terms.partition import SegmentValue, align_segments, as_term, partition

_FIRST_LENGTH, _GROWTH = 1000, 10


def first_open_step(source: SegmentValue, computed: SegmentValue, run: StepRange) -> int:
    """Returns the first step of a run at which a graph is not proved to have its value.

    It is proved at all steps of the run below; the step after the last one says: at all.

    Args:
        source: The value of the source on the run.
        computed: The value of the graph on the run.
        run: The steps, of which not all are proved together.
    """
    comparisons = iter(range(LIMITS.range_comparisons))
    open_step, length = run.first, _FIRST_LENGTH
    while True:
        last = min(run.last, run.first + length - 1)
        steps = StepRange(run.clock, open_step, last)
        open_step = _first_open(source, computed, steps, comparisons)
        if open_step <= last or last == run.last:
            return open_step
        length *= _GROWTH


def _first_open(
    source: SegmentValue, computed: SegmentValue, steps: StepRange, comparisons: Iterator[int]
) -> int:
    """The first step at which a comparison fails, or none is left; else the one after the last."""
    sides = [
        partition(as_term(side, steps.clock), steps.clock, steps.first, steps.last + 1)
        for side in (source, computed)
    ]
    for first, end, (expected, value) in align_segments(*sides):
        run = StepRange(steps.clock, first, end - 1)
        if next(comparisons, None) is None:
            return first
        if are_equal(expected, value, run) is not None and is_defined(value, run):
            continue
        step = _first_open_singly(expected, value, run, comparisons)
        if step < end:
            return step
    return steps.last + 1


def _first_open_singly(
    expected: SegmentValue, value: SegmentValue, run: StepRange, comparisons: Iterator[int]
) -> int:
    """The same, one step after the other."""
    for step in range(run.first, run.last + 1):
        at_step = StepRange(run.clock, step, step)
        if next(comparisons, None) is None:
            return step
        if are_equal(expected, value, at_step) is None or not is_defined(value, at_step):
            return step
    return run.last + 1

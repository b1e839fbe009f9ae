"""Batch sizes that grow in steps: ``--step-batch-size-schedule`` of Megatron-LM.

The clock of Megatron's schedules counts samples, so a schedule is that of a constant batch of one
sample, at the number of samples that update t has seen.
"""

from __future__ import annotations

import re
from dataclasses import dataclass
from itertools import pairwise

import sympy as sp

from closedform.errors import DefinitionError
from closedform.language import Schedule, t
from closedform.schedules.branches import stepwise

_ENTRY = re.compile(r"([0-9.]+(?:[eE][-+]?[0-9]+)?)([KMBTkmbt]?):([0-9.]+)([KMBTkmbt]?)")
_FACTORS = {"": 1, "K": 10**3, "M": 10**6, "B": 10**9, "T": 10**12}
MAX_STEPS = 100


@dataclass(frozen=True, slots=True)
class BatchStage:
    """A part of the run with one batch size.

    Attributes:
        begin: Its first update.
        seen: The samples before it.
        batch: Its batch size.
    """

    begin: int
    samples_before: int
    batch: int

    def update(self, samples: int) -> int:
        """Returns the first update before which that many samples, or more, are seen."""
        return self.begin - min(0, self.samples_before - samples) // self.batch


def read_ramp(text: str, sequence_length: int | None, where: str) -> tuple[BatchStage, ...]:
    """Returns the stages of a schedule such as ``"0:384 200B:768"``.

    A threshold is a number of tokens where the sequence length is known to the calculator, and of
    samples otherwise; an update that begins at or after it has the new batch size.

    Args:
        text: Thresholds and batch sizes, with K, M, B, T for thousands to trillions.
        sequence_length: Tokens in a sample; None for thresholds in samples.
        where: The place, for errors.

    Raises:
        DefinitionError: The text has another form, or its thresholds do not grow from 0.

    Example:
        >>> [stage.begin for stage in read_ramp("0:4 10:8 100:16", None, "here")]
        [0, 3, 14]
    """
    steps: list[tuple[int, int]] = []
    for entry in text.replace(",", " ").split():
        match = _ENTRY.fullmatch(entry)
        if match is None:
            raise DefinitionError(
                f"a step of the batch size must be such as 200B:768, got {entry!r:.40}",
                where=where,
            )
        threshold = int(float(match[1]) * _FACTORS[match[2].upper()])
        batch = int(float(match[3]) * _FACTORS[match[4].upper()])
        steps.append((threshold // (sequence_length or 1), batch))
    steps.sort()
    grows = all(before[0] < after[0] for before, after in pairwise(steps))
    is_valid = bool(steps) and steps[0][0] == 0 and grows and len(steps) <= MAX_STEPS
    if not is_valid or any(batch < 1 for _, batch in steps):
        raise DefinitionError(
            f"thresholds must begin with 0 and grow, batch sizes be above 0, got {text!r:.60}",
            where=where,
        )
    stages = [BatchStage(0, 0, steps[0][1])]
    for threshold, batch in steps[1:]:
        last = stages[-1]
        begin = last.update(threshold)
        stage = BatchStage(begin, last.samples_before + (begin - last.begin) * last.batch, batch)
        if begin == last.begin:
            stages.pop()
        stages.append(stage)
    return tuple(stages)


def updates_of(stages: tuple[BatchStage, ...], samples: int) -> int:
    """Returns the updates after which at least a number of samples is seen.

    Example:
        >>> updates_of(read_ramp("0:4 10:8", None, "here"), 20)
        4
    """
    last = next((stage for stage in reversed(stages) if stage.samples_before < samples), stages[0])
    return last.update(samples)


def along_samples(schedule: Schedule, stages: tuple[BatchStage, ...]) -> Schedule:
    """Returns a schedule in samples as one in updates.

    Raises:
        DefinitionError: The schedule has no value from some sample on.
    """
    if schedule.last_step is not None:
        end = schedule.last_step + 1
        raise DefinitionError(f"sample {end} has no value: {schedule.ending}")
    values = [
        schedule.expr.subs(t, stage.samples_before + stage.batch * (t - stage.begin))
        for stage in stages
    ]
    marks = [sp.Integer(stage.begin) for stage in stages[1:]]
    return Schedule(stepwise(values, marks), name=schedule.name, **dict(schedule.hyperparameters))

"""The tactics beside one prover of points, search and checker, on every recorded goal.

For `make compare`. No verdict may contradict the other one; the goals that only the tactics prove
are counted by their source.
"""

from __future__ import annotations

import time
from collections.abc import Iterator
from pathlib import Path

import pytest

from closedform.verify.tactics.prover import prove
from closedform.verify.terms.verdict import Status
from closedform.verify import prover as one_prover
from tests.verify.goals import PROVED
from tests.verify.proved_goals import SOURCES, ProvedGoal, distinct_goals
from tests.verify.tactics.test_goals import GOALS
from tools.sections import add_figures

FIGURES = Path(__file__).parents[2] / "tools" / "results" / "provers.json"
OPEN = {"table": 17, "theorems": 6, "schedules": 1, "rules": 0, "false": 1}
"""The most goals of each source that one prover may leave open."""


def goals_that_are_false() -> Iterator[ProvedGoal]:
    """The goals of the table that are expected to be refuted."""
    for goal in GOALS:
        if goal.expected is not PROVED:
            yield ProvedGoal(goal.name, goal.goal, goal.assume)


ALL_SOURCES = {**SOURCES, "false": goals_that_are_false}


@pytest.mark.parametrize("source", ALL_SOURCES)
def test_verdicts_agree(source: str) -> None:
    seconds: dict[str, float] = {"tactics": 0.0, "search": 0.0}
    open_goals, contradictions = [], []
    goals = distinct_goals(ALL_SOURCES[source]())
    for goal in goals:
        verdicts = {}
        for name, prover in (("tactics", prove), ("search", one_prover.prove)):
            begun = time.process_time()
            verdicts[name] = prover(goal.goal, assume=goal.assume).status
            seconds[name] += time.process_time() - begun
        if verdicts["search"] is Status.UNKNOWN:
            open_goals.append(goal.name)
        elif verdicts["tactics"] not in (Status.UNKNOWN, verdicts["search"]):
            contradictions.append(goal.name)
    figures = {"goals": len(goals), "open": len(open_goals)}
    times = {f"seconds of the {name}": round(spent, 1) for name, spent in seconds.items()}
    print(f"{source}: {figures}, {times}; open: {open_goals}")
    add_figures(FIGURES, {source: figures | times})
    assert contradictions == []
    assert len(open_goals) <= OPEN[source]

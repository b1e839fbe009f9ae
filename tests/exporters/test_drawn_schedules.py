"""Drawn schedules in six kinds of graphs; tests/exporters/compare_back_ends.py runs 1,000."""

import numpy as np
import pytest
import sympy as sp

from closedform.language import Schedule, t
from tests.exporters.drawn_schedules import (
    drawn_schedule,
    exact_share,
    steps_to,
    values_of_kind,
    wrong_values,
)
from tests.support.graph_kinds import KINDS


@pytest.mark.sample(every=12)
@pytest.mark.parametrize("seed", range(120))
def test_every_kind_of_graph_and_engine(seed: int) -> None:
    schedule = drawn_schedule(seed)
    for kind in KINDS:
        for engine, (steps, results) in values_of_kind(schedule, kind).items():
            assert list(wrong_values(schedule, kind, steps, results)) == [], (engine, kind)


def test_nearly_all_points_are_decided() -> None:
    assert exact_share([drawn_schedule(seed) for seed in range(12)]) >= 0.98


@pytest.mark.parametrize("kind", KINDS)
def test_a_planted_fault_is_seen(kind: str) -> None:
    """A floor that is one off at one step, and a relative error of a hundred roundings."""
    schedule = Schedule(sp.floor(t / 30 + 1) / 7)
    steps = steps_to(2**31 - 1)
    exact = np.array([float(schedule.exact(int(step))) for step in steps])
    assert list(wrong_values(schedule, kind, steps, exact)) == []
    off = exact.copy()
    off[steps.tolist().index(30)] = 1 / 7
    assert len(list(wrong_values(schedule, kind, steps, off))) == 1
    near = {"f64": 2.0**-43, "f32": 2.0**-12, "pairs": 2.0**-22}[kind.split()[0]]
    assert len(list(wrong_values(schedule, kind, steps, exact * (1 + near)))) == len(steps)

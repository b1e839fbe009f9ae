"""The goals of the table are decided as expected; every third one is asked here.

`compare_goals.py` (run by `make compare`) asks all of them and states the figures.
"""

import pytest

from closedform.verify.prover import prove
from tests.verify.goals import Goal, distinct
from tests.verify.goals_equalities import equality_goals
from tests.verify.goals_optimizers import optimizer_goals
from tests.verify.goals_schedules import CASES, schedule_goals

GOALS = distinct((*schedule_goals(), *equality_goals(), *optimizer_goals()))


@pytest.mark.sample(every=3)
@pytest.mark.parametrize("goal", GOALS[::3], ids=lambda goal: goal.name)
def test_goal_is_decided_as_expected(goal: Goal) -> None:
    verdict = prove(goal.goal, assume=goal.assume)
    assert verdict.status is goal.expected, str(verdict)


def test_the_table_has_all_goals() -> None:
    assert len(CASES) == 29
    assert len(GOALS) >= 383

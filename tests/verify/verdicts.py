"""Verdicts as lines of text: what must be the same on every machine, in every order, byte for byte.

``python -m tests.verify.verdicts EVERY SEED`` prints one line for each goal of the prover's table,
each claim about the library's schedules and each translation of them; of every ``EVERY``-th
subject. ``SEED`` shuffles the order in which they are asked; the lines are printed in one order.
"""

import random
import sys
from collections.abc import Callable, Iterator
from functools import partial

from closedform.compiler import compile_schedule
from closedform.effort import METER
from closedform.language import Schedule
from closedform.verify.claims.standard import verify_schedule
from closedform.verify.prover import prove
from closedform.verify.terms.verdict import Verdict
from closedform.verify.translation.translation import validate
from tests.test_library import SCHEDULES
from tests.verify.goals import Goal as TableGoal
from tests.verify.test_goals import GOALS

Lines = Iterator[str]


def line_of(name: str, verdict: Verdict) -> str:
    """A verdict with all that it says, but its time."""
    point = verdict.counterexample
    shown = None if point is None else {key: str(value) for key, value in point.items()}
    parts = (verdict.status.value, verdict.grounds, shown, verdict.samples, verdict.reason)
    return f"{name}: {parts!r}"


def of_goal(goal: TableGoal) -> Lines:
    before = METER.work
    verdict = prove(goal.goal, assume=goal.assume)
    yield f"{line_of(f'goal {goal.name}', verdict)} with {METER.work - before} units of work"


def of_claims(name: str, schedule: Schedule) -> Lines:
    report = verify_schedule(schedule)
    for finding in (*report.findings, *report.floats):
        yield line_of(f"schedule {name}: {finding.claim.sentence}", finding.verdict)


def of_translation(name: str, schedule: Schedule) -> Lines:
    yield line_of(f"translation {name}", validate(schedule, compile_schedule(schedule)))


def subjects() -> Iterator[Callable[[], Lines]]:
    for goal in GOALS:
        yield partial(of_goal, goal)
    for name, make in SCHEDULES.items():
        yield partial(of_claims, name, make())
        yield partial(of_claims, f"open {name}", make().unbind())
        yield partial(of_translation, name, make())


def verdicts(every: int, seed: int) -> list[str]:
    """The lines of every n-th subject, asked in an order that the seed draws."""
    chosen = list(subjects())[::every]
    random.Random(seed).shuffle(chosen)
    return sorted(line for make in chosen for line in make())


if __name__ == "__main__":
    sys.stdout.write("\n".join(verdicts(int(sys.argv[1]), int(sys.argv[2]))) + "\n")

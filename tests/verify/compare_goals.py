"""All goals of the table with the figures: decided, median and worst time. For `make compare`.

No test of `make test`: pytest collects files of this name only when they are named.
"""

import statistics
import time
from collections import Counter

from closedform.verify.prover import prove
from tests.verify.test_goals import GOALS

# The limit of a claim, in seconds; here of this process, so that what else the machine runs
# does not count. z3 works in it.
MEDIAN, WORST = 0.2, 10.0


def test_all_goals_of_the_table() -> None:
    verdicts, seconds = [], []
    for goal in GOALS:
        begun = time.process_time()
        verdicts.append(prove(goal.goal, assume=goal.assume))
        seconds.append(time.process_time() - begun)
    wrong = [
        f"{goal.name}: {verdict}"
        for goal, verdict in zip(GOALS, verdicts, strict=True)
        if verdict.status is not goal.expected
    ]
    counts = Counter(verdict.status.value for verdict in verdicts)
    median, worst = statistics.median(seconds), max(seconds)
    print(f"{len(GOALS)} goals: {dict(counts)}, median {median:.3f} s, worst {worst:.2f} s")
    assert not wrong, "\n".join(wrong)
    assert median <= MEDIAN
    assert worst <= WORST

"""5,000 generated Python functions of the step, each run at 2,000 steps beside its schedule.

A function is wrong where the schedule has another value, and the step is not named in
``trace.comparison.rounded``. The share that is refused, and the share of steps that are named, are
printed and bounded.
"""

import os
import warnings
from collections import Counter

from closedform.errors import TraceError
from tests.importers.test_generated_functions import judged

FUNCTIONS = int(os.environ.get("FUNCTIONS", "5000"))
FIRST = int(os.environ.get("FIRST", "0"))
STEPS = 2000
REFUSED_SHARE = 0.10
NAMED_SHARE = 0.05
"""Of the steps of the functions that are read: most of them lie on floors of decimals."""


def test_generated_functions() -> None:
    refused: Counter[str] = Counter()
    wrong, named, read = [], 0, 0
    for seed in range(FIRST, FIRST + FUNCTIONS):
        with warnings.catch_warnings():
            warnings.simplefilter("ignore")
            try:
                differing, rounded = judged(seed, STEPS)
            except TraceError as error:
                refused[str(error.what)[:60]] += 1
                continue
        read += 1
        named += rounded
        if differing:
            wrong.append((seed, differing[:5]))
    share = sum(refused.values()) / FUNCTIONS
    print(f"{FUNCTIONS} functions, {STEPS} steps each: {len(wrong)} wrong, {share:.1%} refused, ")
    print(f"{named / max(1, read * STEPS):.2%} of the steps named as rounded")
    for reason, count in refused.most_common(12):
        print(f"  {count} refused: {reason}")
    assert wrong == []
    assert share < REFUSED_SHARE
    assert named / max(1, read * STEPS) < NAMED_SHARE

"""More than 1,000 faults planted in the library's expressions; and all theorems, with the times.

No test of ``make test``: it takes minutes. ``make compare`` runs it.
"""

import statistics
import time
from collections.abc import Iterable

from tests.verify.faults import WRONG, Outcome, table
from tests.verify.library_faults import (
    Fault,
    drawn,
    judge,
    schedule_faults,
    source_faults,
    standard,
)
from tools.theorems import THEOREMS

FAULTS, SOURCE_FAULTS, SCHEDULES = 1200, 250, 120
# The limit of a claim, in seconds of this process, in which z3 works.
MEDIAN, WORST = 0.2, 10.0


def test_no_fault_of_an_expression_is_proved_to_be_none() -> None:
    assert ask(drawn(FAULTS, seed=1)) >= 1000


def test_no_fault_of_the_code_is_proved_to_be_none() -> None:
    assert ask(source_faults(SOURCE_FAULTS, seed=1)) >= 100


def ask(faults: Iterable[Fault]) -> int:
    """Judges each and prints the figures; returns how many there were."""
    outcomes: list[Outcome] = []
    wrong, seconds = [], []
    for fault in faults:
        begun = time.process_time()
        outcome, verdict = judge(fault)
        seconds.append(time.process_time() - begun)
        outcomes.append(outcome)
        if outcome in WRONG:
            wrong.append(f"{outcome}: {fault}: {verdict}")
        if outcome is Outcome.UNKNOWN:
            print(f"unknown: {fault}")
    median, worst = statistics.median(seconds), max(seconds)
    print(f"{len(outcomes)} faults: {table(outcomes)}")
    print(f"with the judge's evaluations median {median:.3f} s, worst {worst:.2f} s")
    assert not wrong, "\n".join(wrong)
    return len(outcomes)


def test_standard_claims_of_faulty_schedules_hold_where_they_are_proved() -> None:
    found = [standard(fault) for fault in schedule_faults(SCHEDULES, seed=3)]
    false = [line for _, lines in found for line in lines]
    print(f"{len(found)} faulty schedules: {sum(n for n, _ in found)} standard claims proved")
    print(f"{len(false)} of them false")
    assert not false, "\n".join(false)


def test_theorems_are_decided_in_time() -> None:
    seconds = []
    for theorem in THEOREMS:
        begun = time.process_time()
        assert theorem.claim().verify().status is theorem.expected, theorem.name
        seconds.append(time.process_time() - begun)
    median, worst = statistics.median(seconds), max(seconds)
    print(f"{len(THEOREMS)} theorems: median {median:.3f} s, worst {worst:.2f} s")
    assert median <= MEDIAN
    assert worst <= WORST

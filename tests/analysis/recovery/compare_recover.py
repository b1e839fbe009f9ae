"""Every schedule of the library is recovered from 20 drawn logs with 6 digits.

Prints a table; 95 % must be the drawn schedule, or one that equals it: at every update, also after
the log, or proved at every update of the log. Another one whose values are printed alike is counted
apart, and is not right.
"""

import os
import sys
import time

from closedform import schedules
from closedform.analysis.recovery import recover
from tests.analysis.recovery.draws import (
    ARGUMENTS,
    COMPOSITIONS,
    NOT_DRAWN,
    draw,
    fits_log,
    is_proved_on_log,
    is_right,
)

COUNT = int(os.environ.get("RECOVER_DRAWS", "20"))
NAMES = sorted({*ARGUMENTS, *COMPOSITIONS})
LEAST = 0.95

_BEGUN = time.process_time()


def sweep(names: list[str], count: int) -> tuple[int, int]:
    """The number of right ones, and of all; prints a line for each schedule."""
    right = alike = total = 0
    for name in names:
        good, begun, slowest = 0, time.process_time(), 0.0
        others = []
        for number in range(count):
            drawn = draw(name, number)
            start = time.process_time()
            found = recover(drawn.logged(), digits=6)
            slowest = max(slowest, time.process_time() - start)
            if is_right(drawn, found.schedule) or is_proved_on_log(drawn, found.schedule):
                good += 1
                continue
            is_alike = fits_log(drawn, found.schedule)
            alike += is_alike
            others.append((number, "alike" if is_alike else "wrong", drawn.arguments, found.call))
        seconds = (time.process_time() - begun) / count
        print(f"{name:30} {good:3}/{count}  {seconds:6.2f} s, slowest {slowest:6.2f} s", flush=True)
        for case in others:
            print("    ", *case, flush=True)
        right, total = right + good, total + count
    seconds = time.process_time() - _BEGUN
    print(f"{right} right, {alike} alike in the log, of {total}; {seconds:.0f} s of CPU time")
    return right, total


def test_all_schedules_are_drawn() -> None:
    assert {*ARGUMENTS, *COMPOSITIONS, *NOT_DRAWN} >= set(schedules.__all__)


def test_recovered() -> None:
    right, total = sweep(NAMES, COUNT)
    assert right >= LEAST * total


if __name__ == "__main__":
    sweep(sys.argv[2:] or NAMES, int(sys.argv[1]))

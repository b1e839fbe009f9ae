"""Every schedule of the library is recovered from 20 drawn logs with 6 digits.

Prints a table; 95 % must be the drawn schedule or one whose values are equal at every update.
"""

import os
import sys
import time

from closedform import schedules
from closedform.recovery import recover
from tests.recovery.draws import ARGUMENTS, COMPOSITIONS, NOT_DRAWN, draw, is_right

COUNT = int(os.environ.get("RECOVER_DRAWS", "20"))
NAMES = sorted({*ARGUMENTS, *COMPOSITIONS})
LEAST = 0.95


def sweep(names: list[str], count: int) -> tuple[int, int]:
    """The number of right ones, and of all; prints a line for each schedule."""
    right = total = 0
    for name in names:
        good, begun, slowest = 0, time.process_time(), 0.0
        wrong = []
        for number in range(count):
            drawn = draw(name, number)
            start = time.process_time()
            found = recover(drawn.logged())
            slowest = max(slowest, time.process_time() - start)
            if is_right(drawn, found.schedule):
                good += 1
            else:
                wrong.append((number, dict(drawn.arguments), found.call))
        seconds = (time.process_time() - begun) / count
        print(f"{name:30} {good:3}/{count}  {seconds:6.2f} s, slowest {slowest:6.2f} s", flush=True)
        for case in wrong:
            print("    ", *case, flush=True)
        right, total = right + good, total + count
    return right, total


def test_all_schedules_are_drawn() -> None:
    assert {*ARGUMENTS, *COMPOSITIONS, *NOT_DRAWN} >= set(schedules.__all__)


def test_recovered() -> None:
    right, total = sweep(NAMES, COUNT)
    print(f"{right} of {total}")
    assert right >= LEAST * total


if __name__ == "__main__":
    sweep(sys.argv[2:] or NAMES, int(sys.argv[1]))

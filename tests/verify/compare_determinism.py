"""The library's schedules, goals and claims twice, once beside two busy processes: byte for byte.

No test of `make test`: pytest collects files of this name only when they are named.
"""

import subprocess
import sys
import time

from tests.verify.test_determinism import verdicts_of_process

BUSY = "while True: sum(range(10**6))"


def test_all_verdicts_beside_busy_processes() -> None:
    begun = time.monotonic()
    quiet = verdicts_of_process(0, 0, every=1)
    between = time.monotonic()
    busy = [subprocess.Popen([sys.executable, "-c", BUSY]) for _ in range(2)]
    try:
        beside = verdicts_of_process(1, 1, every=1)
    finally:
        for process in busy:
            process.kill()
            process.wait()
    lines = quiet.splitlines()
    print(
        f"{len(lines)} verdicts in {between - begun:.0f} s, "
        f"{time.monotonic() - between:.0f} s beside two busy processes"
    )
    assert len(lines) > 1000
    assert beside.splitlines() == lines
    assert beside == quiet

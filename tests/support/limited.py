"""A process that does what a test asks for: ``python -m tests.support.limited``."""

import os
import signal
import time
from typing import Any

from closedform.verify.isolation import answer


def work(request: dict[str, Any]) -> Any:
    """Does one thing that a hostile file may bring a checker to."""
    match request["does"]:
        case "echo":
            print("not the answer")
            return request
        case "sleep":
            time.sleep(60)
        case "spin":
            while True:
                pass
        case "memory":
            return len(bytearray(2**32))
        case "signal":
            os.kill(os.getpid(), signal.SIGFPE)
        case "raise":
            raise ValueError("unexpected")
        case "talk":
            return "x" * (17 * 2**20)
    return None


if __name__ == "__main__":
    answer(work)

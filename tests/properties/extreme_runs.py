"""Runs of programs in a process with limits, which forks for each of them."""

import json
import subprocess
import sys
from collections.abc import Iterable, Iterator
from pathlib import Path
from typing import NamedTuple

ROOT = Path(__file__).parents[2]


class Run(NamedTuple):
    """The outcome of a program.

    Attributes:
        outcome: "value", "refused" for a ClosedFormError, "traceback" for another exception,
            "hang" after 10 s of processor time, "abort" where the process ended.
        text: The error's message or traceback, or what was printed.
        seconds: The processor time.
        waited: The wall-clock time.
    """

    outcome: str
    text: str
    seconds: float
    waited: float

    @property
    def is_fault(self) -> bool:
        """Whether it is neither a value nor an error of the library."""
        return self.outcome not in ("value", "refused")


def run_programs(programs: Iterable[str]) -> Iterator[Run]:
    """Yields the outcome of each program, in the order of the programs."""
    command = [sys.executable, "-m", "tests.properties.extreme_process"]
    with subprocess.Popen(
        command, stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True, cwd=ROOT
    ) as process:
        assert process.stdin is not None
        assert process.stdout is not None
        for program in programs:
            process.stdin.write(json.dumps(program) + "\n")
            process.stdin.flush()
            yield Run(**json.loads(process.stdout.readline()))
        process.stdin.close()

"""A process that runs each program in a fork of itself, with limits of time and memory.

The memory is limited by ``RLIMIT_DATA``: torch maps 20 GB of addresses that it never writes to, so
that ``RLIMIT_AS`` would have to be larger than what it should find; the data segment is what a
process may write to.

Each line of the standard input is a program; the answer is a line of JSON.
"""

import io
import json
import os
import resource
import signal
import sys
import time
import traceback
import warnings
from pathlib import Path

import numpy as np  # noqa: F401
import onnxruntime  # noqa: F401
import sympy  # noqa: F401

MEMORY = 2 * 2**30
SECONDS = 10
WAITING = 300
"""Seconds of wall-clock time after which a process waits for something, on a machine at work."""


def data_bytes() -> int:
    """Returns the bytes that this process may write to."""
    for line in Path("/proc/self/status").read_text().splitlines():
        if line.startswith("VmData"):
            return int(line.split()[1]) * 1024
    raise AssertionError("no VmData in /proc/self/status")


def outcome(text: str, prelude: str) -> dict[str, object]:
    """Runs a program; returns its outcome, and the message or traceback of what it raised."""
    from closedform.errors import ClosedFormError

    sys.stdout = sys.stderr = io.StringIO()
    space: dict[str, object] = {"__name__": "extreme"}
    try:
        with warnings.catch_warnings():
            warnings.simplefilter("ignore")
            exec(compile(prelude, "prelude", "exec"), space)
            exec(compile(text, "extreme", "exec"), space)
    except ClosedFormError as error:
        return {"outcome": "refused", "text": str(error)[:2000]}
    except SystemExit as error:
        return {"outcome": "value", "text": str(error)}
    except BaseException:
        return {"outcome": "traceback", "text": traceback.format_exc()[-3500:]}
    return {"outcome": "value", "text": sys.stdout.getvalue()[:500]}


def run(text: str, prelude: str, base: int) -> dict[str, object]:
    """Runs a program in a fork; returns its outcome and its processor time."""
    receiver, sender = os.pipe()
    process = os.fork()
    if process == 0:
        os.close(receiver)
        resource.setrlimit(resource.RLIMIT_CORE, (0, 0))
        resource.setrlimit(resource.RLIMIT_DATA, (base + MEMORY, base + MEMORY))
        resource.setrlimit(resource.RLIMIT_CPU, (SECONDS, SECONDS + 1))
        signal.alarm(WAITING)
        silent = os.open(os.devnull, os.O_RDWR)
        for number in (0, 1, 2):
            os.dup2(silent, number)
        os.write(sender, json.dumps(outcome(text, prelude)).encode())
        os._exit(0)
    os.close(sender)
    before = time.monotonic()
    with os.fdopen(receiver, "rb") as stream:
        answer = stream.read()
    _, status, usage = os.wait4(process, 0)
    seconds = usage.ru_utime + usage.ru_stime
    if not answer:
        code = os.waitstatus_to_exitcode(status)
        name = signal.Signals(-code).name if code < 0 else str(code)
        hung = {"SIGXCPU": "hang", "SIGALRM": "hang", "SIGKILL": "hang"}
        result: dict[str, object] = {"outcome": hung.get(name, "abort"), "text": name}
    else:
        result = json.loads(answer)
    return {**result, "seconds": round(seconds, 2), "waited": round(time.monotonic() - before, 1)}


def main() -> None:
    """Answers requests until the standard input is closed."""
    from tests.properties.extreme_inputs import PRELUDE

    space: dict[str, object] = {}
    exec(compile(PRELUDE, "prelude", "exec"), space)
    for module in json.loads(os.environ.get("EXTREME_IMPORTS", "[]")):
        __import__(module)
    base = data_bytes()
    for line in sys.stdin:
        sys.stdout.write(json.dumps(run(json.loads(line), PRELUDE, base)) + "\n")
        sys.stdout.flush()


if __name__ == "__main__":
    main()

"""Work on files that others wrote, in a separate process with limits that the system enforces.

A file can make any checker run for ever, fill the memory, or stop its process: interval arithmetic
raises SIGFPE on numbers that no exponent holds. The parent process writes a request to the child as
JSON and reads its answer as JSON; what the child does otherwise is a reason, never an error of the
parent.

=================  ==============================================================================
limit              how it is enforced
=================  ==============================================================================
wall-clock time    the parent ends the child
processor time     ``RLIMIT_CPU``, where the platform has it
memory             ``RLIMIT_AS`` of the child, where the platform has it: Linux, not Windows
answer             the parent reads at most ``MOST_ANSWER`` bytes
=================  ==============================================================================
"""

from __future__ import annotations

import json
import os
import signal
import subprocess
import sys
from collections.abc import Callable, Mapping
from typing import Any

from closedform.errors import VerificationError

SECONDS = 60.0
"""Seconds that the verification of a file may take in all, if nothing else is said."""

MEMORY = 2 * 2**30
"""Bytes of memory that it may take, if nothing else is said."""

MOST_ANSWER = 16 * 2**20
_ONE_THREAD = dict.fromkeys(("OMP_NUM_THREADS", "OPENBLAS_NUM_THREADS", "MKL_NUM_THREADS"), "1")


class Ended(Exception):  # noqa: N818 - a result, not an error
    """The process ended without an answer; its text is the reason."""


def run_limited(
    module: str, request: Mapping[str, Any], *, seconds: float = SECONDS, memory: int = MEMORY
) -> Any:
    """Returns the answer of a module to a request, worked out in a separate process.

    Args:
        module: A module that calls ``answer`` when it is run.
        request: Data that JSON holds.
        seconds: The wall-clock seconds that it may take, start included.
        memory: The bytes of memory that it may take.

    Raises:
        Ended: It ended without an answer: by a limit, a signal or an exception.
        VerificationError: A limit is not above 0.
    """
    if not seconds > 0 or not memory > 0:
        raise VerificationError(
            f"limits must be above 0, got {seconds!r} seconds and {memory!r} bytes"
        )
    text = json.dumps({"request": dict(request), "seconds": seconds, "memory": memory})
    command = [sys.executable, "-m", module]
    process = subprocess.Popen(
        command,
        stdin=subprocess.PIPE,
        stdout=subprocess.PIPE,
        stderr=subprocess.DEVNULL,
        env={**os.environ, **_ONE_THREAD},
        start_new_session=os.name == "posix",
    )
    try:
        output, _ = process.communicate(text.encode(), timeout=seconds)
    except subprocess.TimeoutExpired:
        raise Ended(f"it took longer than the limit of {seconds:g} s") from None
    finally:
        process.kill()
        process.communicate()
    if process.returncode != 0:
        raise Ended(_reason(process.returncode, seconds, memory))
    if len(output) > MOST_ANSWER:
        raise Ended(f"its answer has more than {MOST_ANSWER} bytes")
    try:
        return json.loads(output)
    except ValueError:
        raise Ended("its answer is not JSON") from None


def _reason(code: int, seconds: float, memory: int) -> str:
    """Why a process ended that returned this code."""
    if code == _OUT_OF_MEMORY:
        return f"it needed more than the limit of {memory / 2**30:g} GiB of memory"
    if code >= 0:
        return f"its process ended with code {code}"
    name = signal.Signals(-code).name if -code in set(signal.Signals) else str(-code)
    if name in ("SIGXCPU", "SIGKILL"):
        return f"it took longer than the limit of {seconds:g} s ({name})"
    return f"its process was ended by {name}"


_OUT_OF_MEMORY = 77


def answer(work: Callable[[Any], Any]) -> None:
    """Reads a request on standard input, sets the limits, and writes what ``work`` returns.

    What ``work`` prints goes to standard error. The process ends here.
    """
    channel = os.dup(1)
    os.dup2(2, 1)
    message = json.loads(sys.stdin.read())
    set_limits(message["seconds"], message["memory"])
    try:
        output = json.dumps(work(message["request"])).encode()
    except MemoryError:
        os._exit(_OUT_OF_MEMORY)
    with os.fdopen(channel, "wb") as stream:
        stream.write(output)
    os._exit(0)  # libraries loaded by the work have nothing to say at the end


def set_limits(seconds: float, memory: int) -> None:
    """Limits the processor time and the memory of this process, where the platform can."""
    try:
        import resource
    except ImportError:  # Windows: the parent's limit of time is the only one
        return
    for kind, requested in (
        (resource.RLIMIT_CPU, int(seconds) + 1),
        (resource.RLIMIT_AS, int(memory)),
        (resource.RLIMIT_CORE, 0),
    ):
        _, most = resource.getrlimit(kind)
        limit = requested if most == resource.RLIM_INFINITY else min(requested, most)
        resource.setrlimit(kind, (limit, limit))

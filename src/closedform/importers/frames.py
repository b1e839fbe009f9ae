"""Places in the code of others that an exception came from."""

from __future__ import annotations

from collections.abc import Callable


def origin(error: BaseException, where: str, *is_theirs: Callable[[str], bool]) -> str:
    """Returns a place and the file and line of the innermost frame of an exception in their code.

    Args:
        error: The exception.
        where: The place as it is known without the frame.
        *is_theirs: Whether a file is of their code; the first one that some frame satisfies counts.
    """
    frames = []
    trace = error.__traceback__
    while trace is not None:
        frames.append((trace.tb_frame.f_code.co_filename, trace.tb_lineno))
        trace = trace.tb_next
    for is_own in is_theirs:
        for file, line in reversed(frames):
            if is_own(file):
                return f"{where}, {file}:{line}"
    return where

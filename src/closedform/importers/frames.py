"""Places in the code of others that an exception came from."""

from __future__ import annotations

from collections.abc import Callable


def origin(error: BaseException, where: str, *is_theirs: Callable[[str], bool]) -> str:
    """Returns a place and the file and line of the innermost frame of an exception in their code.

    Args:
        error: The exception.
        where: The place as it is known without the frame.
        *is_theirs: Whether a frame, as ``file:line``, is of their code; the first one that some
            frame satisfies counts.
    """
    frames = []
    trace = error.__traceback__
    while trace is not None:
        frames.append(f"{trace.tb_frame.f_code.co_filename}:{trace.tb_lineno}")
        trace = trace.tb_next
    for is_own in is_theirs:
        own_frames = [frame for frame in frames if is_own(frame)]
        if own_frames:
            return f"{where}, {own_frames[-1]}"
    return where

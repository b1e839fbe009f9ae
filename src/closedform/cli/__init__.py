"""The command line ``closedform``.

It needs no extra package; with rich (the extra ``cli``), tables on a terminal are folded to its
width.

=========  =======================================================================================
exit code  when
=========  =======================================================================================
0          done; of ``verify`` and ``diff``: nothing is refuted
1          refuted: a claim has a counterexample, curves differ, a conversion is impossible
2          usage: an option, a name or the value of an argument is wrong, or a file exists already
3          something is UNKNOWN, with ``--strict``
4          a file cannot be read or written, or its content is not valid
5          a step of a file differs from its source at a state that a run need not reach
=========  =======================================================================================
"""

from __future__ import annotations

import gc
import sys
from collections.abc import Sequence

__all__ = ["main"]

_ALLOCATIONS = 300_000
"""New objects between two collections: a short command makes 200,000, most of them by imports, and
they live as long as the process.

With a last collection at the exit, that looks at all of them, collections take a sixth of the time
of a short command."""


def main(arguments: Sequence[str] | None = None) -> None:
    """Runs the command line and exits with its code; the console script ``closedform``.

    Args:
        arguments: The words after ``closedform``; by default from ``sys.argv``.
    """
    thresholds = gc.get_threshold()
    gc.set_threshold(_ALLOCATIONS, *thresholds[1:])
    try:
        from closedform.cli.application import run

        code = run(sys.argv[1:] if arguments is None else list(arguments))
    finally:
        gc.set_threshold(*thresholds)
        gc.freeze()  # the process ends: its memory is returned as a whole
    sys.exit(code)


def __dir__() -> list[str]:
    return sorted(__all__)

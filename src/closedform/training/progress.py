"""The phases of an export with their seconds: a line each on a terminal, and in the log."""

from __future__ import annotations

import contextlib
import logging
import sys
from collections.abc import Iterator
from contextvars import ContextVar

from closedform.effort import Watch

_LOGGER = logging.getLogger("closedform.training")

_IS_SHOWN: ContextVar[bool] = ContextVar("is_shown", default=False)


@contextlib.contextmanager
def show_phases(verbose: bool | None) -> Iterator[None]:
    """Shows the phases within the block on stderr: always, never, or if it is a terminal (None)."""
    is_terminal = sys.stderr is not None and sys.stderr.isatty()
    token = _IS_SHOWN.set(is_terminal if verbose is None else verbose)
    try:
        yield
    finally:
        _IS_SHOWN.reset(token)


@contextlib.contextmanager
def phase(name: str) -> Iterator[None]:
    """Measures the block, and logs or shows its name and its seconds."""
    watch = Watch()
    is_shown = _IS_SHOWN.get()
    if is_shown:
        sys.stderr.write(f"{name} ...")
        sys.stderr.flush()
    try:
        yield
    except BaseException:
        if is_shown:
            sys.stderr.write(" failed\n")
        raise
    if is_shown:
        sys.stderr.write(f" {watch.seconds:.1f} s\n")
    _LOGGER.info("%s: %.1f s", name, watch.seconds)

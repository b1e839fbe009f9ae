"""Comparison of two implementations in one process, alternating (A B A B …): ratio of medians."""

from __future__ import annotations

import gc
import importlib.metadata
import os
import platform
import resource
import statistics
import time
from collections.abc import Callable, Iterable
from dataclasses import dataclass
from pathlib import Path

Task = Callable[[], object]

DECISIONS = Path(__file__).parents[1] / "docs" / "decisions"
DECISIONS_ONLINE = "https://github.com/closedform/closedform/blob/main/docs/decisions"

NOISE = 0.3
"""Relative: the ratio of AdamW was 0.52 and 0.62 in two runs on the same two idle cores."""

INTERPRETED = 0.5
"""Of a Python call of 1 µs beside compiled code: its ratio was 0.084 to 0.115 on one machine."""

COUNTED = 0.01
"""The noise of a ratio of two counts, which rounding of the stored figure makes."""


@dataclass(frozen=True, slots=True)
class Row:
    """A figure and the bar that it must meet.

    Attributes:
        task: The task that is measured.
        figure: A ratio, or a quantity in ``unit``.
        bar: The largest figure that is acceptable; None for a figure without a bar.
        detail: The data of the figure, such as medians and counts.
        unit: The unit; empty for a ratio.
        reason: Why the figure cannot be below the bar on this machine, if it is not.
        noise: How much larger, relatively, the figure may be in another run.
    """

    task: str
    figure: float
    bar: float | None
    detail: str = ""
    unit: str = ""
    reason: str = ""
    noise: float = NOISE

    @property
    def is_met(self) -> bool:
        """Whether the figure is within its bar; True without a bar."""
        return self.bar is None or self.figure <= self.bar

    @property
    def is_noise(self) -> bool:
        """Whether the figure is above its bar, and by no more than it varies between runs."""
        return self.bar is not None and self.bar < self.figure <= self.bar * (1 + self.noise)


def medians(
    *tasks: Task,
    rounds: int = 15,
    warm: int = 3,
    repeat: int = 1,
    least: float = 0.0,
    clock: Callable[[], float] = time.perf_counter,
) -> list[float]:
    """Returns the median time of each task in seconds; every round measures all tasks.

    Args:
        *tasks: The tasks.
        rounds: The number of rounds.
        warm: The number of warmup rounds.
        repeat: The number of calls of a task per measurement.
        least: The minimum duration of all rounds in seconds.
        clock: Returns the time in seconds; ``time.process_time`` on a machine with other load.
    """
    times: list[list[float]] = [[] for _ in tasks]
    for _ in range(warm):
        for task in tasks:
            task()
    gc.collect()
    gc.disable()
    begin = time.perf_counter()
    try:
        while len(times[0]) < rounds or time.perf_counter() - begin < least:
            for task, taken in zip(tasks, times, strict=True):
                start = clock()
                for _ in range(repeat):
                    task()
                taken.append((clock() - start) / repeat)
    finally:
        gc.enable()
    return [statistics.median(taken) for taken in times]


def compiled_files() -> dict[str, str]:
    """Returns an environment whose processes write compiled files, into a folder of their own.

    Without them, each import of SymPy compiles it for seconds.
    """
    others = {key: text for key, text in os.environ.items() if key != "PYTHONDONTWRITEBYTECODE"}
    return {**others, "PYTHONPYCACHEPREFIX": str(Path("build/pycache").absolute())}


def compared(
    task: str,
    bar: float | None,
    ours: float,
    peer: float,
    name: str,
    reason: str = "",
    noise: float = NOISE,
) -> Row:
    """Returns the row of the ratio of two times."""
    detail = f"{readable(ours)}, {name} {readable(peer)}"
    return Row(task, ours / peer, bar, detail, reason=reason, noise=noise)


def readable(seconds: float) -> str:
    """Returns a time with its unit.

    Example:
        >>> readable(0.00123)
        '1.23 ms'
    """
    for unit, size in (("s", 1.0), ("ms", 1e-3), ("µs", 1e-6)):
        if seconds >= size:
            return f"{seconds / size:.3g} {unit}"
    return f"{seconds / 1e-9:.3g} ns"


def resident() -> float:
    """The resident memory of this process in bytes."""
    with open("/proc/self/statm", encoding="ascii") as file:
        return float(file.read().split()[1]) * resource.getpagesize()


def peak() -> float:
    """The peak resident memory of this process in bytes.

    Not ``ru_maxrss``: a child inherits that of the process that started it.
    """
    with open("/proc/self/status", encoding="ascii") as file:
        (line,) = (line for line in file if line.startswith("VmHWM:"))
    return float(line.split()[1]) * 1024


def machine(packages: Iterable[str]) -> str:
    """Returns processor, cores and versions."""
    info = Path("/proc/cpuinfo")
    lines = info.read_text(encoding="utf-8").splitlines() if info.exists() else []
    names = [line.partition(":")[2].strip() for line in lines if line.startswith("model name")]
    processor = f"{names[0] if names else platform.machine()}, {os.cpu_count()} cores"
    versions = ", ".join(f"{name} {importlib.metadata.version(name)}" for name in packages)
    return f"{processor}; Python {platform.python_version()}, {versions}"


def decision(page: str) -> str:
    """Returns a link to a page of ``docs/decisions`` with its title as the text."""
    text = (DECISIONS / f"{page}.md").read_text(encoding="utf-8")
    title = text.partition("\n")[0].removeprefix("# ")
    return f"[{title}]({DECISIONS_ONLINE}/{page}.md)"


def show(rows: Iterable[Row]) -> list[Row]:
    """Prints rows when they are measured, and returns them."""
    shown = []
    for row in rows:
        shown.append(row)
        bar = "" if row.bar is None else f"<= {row.bar:g} {'met' if row.is_met else 'MISSED'}"
        figure = f"{row.figure:.3g}{' ' + row.unit if row.unit else ''}"
        reason = "" if row.is_met else row.reason
        print(f"{row.task:<62}  {figure:>10}  {bar:<15} {row.detail} {reason}".rstrip(), flush=True)
    return shown

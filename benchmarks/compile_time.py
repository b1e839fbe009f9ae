"""Time of importing the package, and of compiling and exporting a schedule and an optimizer.

Prints medians over repetitions with their bars; the exit code is 1 if a median exceeds its bar. The
first repetition is printed as well, because the caches of SymPy are warm in the others.

    python benchmarks/compile_time.py [--repetitions 20] [--profile]
"""

import argparse
import cProfile
import importlib.metadata
import os
import platform
import pstats
import statistics
import subprocess
import sys
import time
from collections.abc import Callable
from dataclasses import dataclass
from functools import partial
from pathlib import Path
from tempfile import TemporaryDirectory

import closedform as cf

PARAMS = {"w1": (64, 128), "b1": (128,), "w2": (128, 10), "b2": (10,)}
PACKAGES = ("sympy", "numpy", "onnx", "onnxruntime")
HELP_RUNS = 10


@dataclass(frozen=True, slots=True)
class Row:
    """Times of one task in milliseconds, and the bar for their median."""

    task: str
    times: list[float]
    bar: float | None = None

    @property
    def median(self) -> float:
        """The median time in milliseconds."""
        return statistics.median(self.times)

    @property
    def is_met(self) -> bool:
        """Whether the median is within its bar; True without a bar."""
        return self.bar is None or self.median <= self.bar


def warmup_cosine() -> cf.Schedule:
    return cf.schedules.linear(0, 3e-4, 2000).then(cf.schedules.cosine(3e-4, 3e-5, 98_000))


def export_schedule(folder: Path) -> None:
    cf.to_onnx(warmup_cosine(), folder / "schedule.onnx")


def export_adamw(folder: Path) -> None:
    rule = cf.optimizers.adamw(lr=warmup_cosine(), betas=(0.9, 0.95), weight_decay=0.1)
    cf.to_onnx(rule, folder, params=PARAMS)


def processor() -> str:
    """The name of the processor, on Linux, and its number of cores."""
    info = Path("/proc/cpuinfo")
    lines = info.read_text(encoding="utf-8").splitlines() if info.exists() else []
    names = [line.partition(":")[2].strip() for line in lines if line.startswith("model name")]
    return f"{names[0] if names else platform.machine()} ({os.cpu_count()} cores)"


def milliseconds(task: Callable[[], object]) -> float:
    start = time.perf_counter()
    task()
    return 1e3 * (time.perf_counter() - start)


def in_process(*arguments: str) -> Callable[[], object]:
    return lambda: subprocess.run([sys.executable, *arguments], check=True, capture_output=True)


def measure(repetitions: int, folder: Path) -> list[Row]:
    processes = (
        ("python, for comparison", ("-c", "pass"), None),
        ("import closedform", ("-c", "import closedform"), None),
        ("import closedform.compiler", ("-c", "import closedform.compiler"), None),
        ("closedform --help", ("-m", "closedform", "--help"), 400.0),
    )
    rows = [
        Row(task, [milliseconds(in_process(*words)) for _ in range(HELP_RUNS)], bar)
        for task, words, bar in processes
    ]
    exports: tuple[tuple[str, Callable[[Path], None], float], ...] = (
        ("compile + export a schedule", export_schedule, 40.0),
        ("compile + export adamw", export_adamw, 150.0),
    )
    for task, export, bar in exports:
        times = [milliseconds(partial(export, folder)) for _ in range(repetitions + 1)]
        rows += [Row(f"{task}, the first time", times[:1]), Row(task, times[1:], bar)]
    return rows


def show(rows: list[Row]) -> None:
    print(f"{'task':<42} {'median ms':>10} {'min':>8} {'max':>8} {'runs':>5}  bar")
    for row in rows:
        times = f"{row.median:>10.1f} {min(row.times):>8.1f} {max(row.times):>8.1f}"
        bar = "" if row.bar is None else f"<= {row.bar:.0f} {'met' if row.is_met else 'MISSED'}"
        print(f"{row.task:<42} {times} {len(row.times):>5}  {bar}".rstrip())


def profile(folder: Path) -> None:
    for task in (export_schedule, export_adamw):
        task(folder)
        profiler = cProfile.Profile()
        profiler.runcall(task, folder)
        print(f"\nwhere the time of {task.__name__} goes:")
        pstats.Stats(profiler).strip_dirs().sort_stats("cumulative").print_stats(30)


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__.partition("\n")[0])
    parser.add_argument("--repetitions", type=int, default=20)
    parser.add_argument("--profile", action="store_true")
    options = parser.parse_args()
    print(f"Python {platform.python_version()} on {processor()}, closedform {cf.__version__}")
    print(", ".join(f"{name} {importlib.metadata.version(name)}" for name in PACKAGES))
    with TemporaryDirectory() as folder:
        rows = measure(max(options.repetitions, 20), Path(folder))
        show(rows)
        if options.profile:
            profile(Path(folder))
    return 0 if all(row.is_met for row in rows) else 1


if __name__ == "__main__":
    sys.exit(main())

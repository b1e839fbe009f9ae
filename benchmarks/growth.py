"""Growth of the compile time with milestones, branches and tensors; times of the compiler.

python -m benchmarks.growth
"""

from __future__ import annotations

import resource
import statistics
import subprocess
import sys
import tempfile
import time
from collections.abc import Callable, Iterator
from functools import partial
from itertools import chain
from pathlib import Path

import closedform as cf
from benchmarks._side_by_side import (
    COUNTED,
    Row,
    compared,
    compiled_files,
    decision,
    machine,
    medians,
    show,
)
from closedform.language import Schedule
from closedform.schedules.examples import EXAMPLES


def milestones(count: int) -> Schedule:
    return cf.schedules.multi_step(0.1, 0.999, [10 * (place + 1) for place in range(count)])


def branches(count: int) -> Schedule:
    values = [0.1 + place % 7 for place in range(count + 1)]
    return cf.schedules.piecewise_constant(values, [10 * (place + 1) for place in range(count)])


def seconds(task: Callable[[], object]) -> float:
    start = time.perf_counter()
    task()
    return time.perf_counter() - start


def growth(what: str, make: Callable[[int], object], small: int, large: int) -> Iterator[Row]:
    """Ratio of the times of a large and a small instance, relative to linear growth."""
    make(small)
    once = min(seconds(lambda: make(small)) for _ in range(3))
    many = seconds(lambda: make(large))
    detail = f"{once:.3g} s -> {many:.3g} s; 1 is linear growth"
    yield Row(f"{what}, {small:,} -> {large:,}: time", many / once / (large / small), 1, detail)


def grown() -> Iterator[Row]:
    """Milestones, branches and tensors."""
    many = seconds(lambda: cf.compile(milestones(10_000)))
    reason = (
        "10,000 powers are exact, with numerators of up to 30,000 digits, and each condition "
        "narrows eight times"
    )
    yield Row("10,000 milestones, made and compiled", many, 5, unit="s", reason=reason)
    counts = [len(cf.compile(milestones(n)).nodes) for n in (20, 1000)]
    nodes = f"{counts[0]} -> {counts[1]}"
    yield Row("milestones: nodes", counts[1] / counts[0], 1, nodes, noise=COUNTED)
    yield from growth("branches", lambda n: cf.compile(branches(n)), 10, 10_000)
    rule = cf.optimizers.adamw(1e-3)

    def tensors(count: int) -> object:
        shapes = {f"w{place}": (16, 1 + place % 50) for place in range(count)}
        with tempfile.TemporaryDirectory() as folder:
            return cf.to_onnx(rule, folder, params=shapes)

    yield from growth("tensors, export", tensors, 10, 10_000)


def imports() -> Iterator[Row]:
    """A fresh process: import closedform compared with import sympy, the help, one schedule.

    CPU time.
    """
    environment = compiled_files()

    def process(*words: str) -> Callable[[], object]:
        return lambda: subprocess.run(
            [sys.executable, *words], check=True, capture_output=True, env=environment
        )

    tasks = (
        process("-c", "import closedform; closedform.schedules.cosine"),
        process("-c", "import sympy"),
        process("-m", "closedform", "--help"),
        process("-m", "closedform", "show", "cosine", "--start", "1", "--end", "0", "--steps", "9"),
        process("-c", "import gc; gc.disable(); import sympy"),
        process("-c", "import gc; gc.disable(); import sympy, sympy.tensor.tensor"),
    )
    ours, sympy, told, shown, bare, tensors = medians(*tasks, rounds=11, warm=1, clock=children)
    what = "import closedform and its schedules / import sympy"
    yield compared(what, 1.05, ours, sympy, "sympy", "20 modules of schedules")
    yield Row("closedform --help", told * 1e3, 150, unit="ms")
    detail = f"import sympy {sympy * 1e3:.0f} ms, without garbage collections {bare * 1e3:.0f} ms"
    reason = (
        f"SymPy is {tensors * 1e3:.0f} ms of it: its first sum imports its tensors and permutation "
        f"groups, {(tensors - bare) * 1e3:.0f} ms"
    )
    yield Row("closedform show cosine", shown * 1e3, 400, detail, "ms", reason)


def children() -> float:
    """Returns the CPU time of all processes that were started and have ended."""
    used = resource.getrusage(resource.RUSAGE_CHILDREN)
    return used.ru_utime + used.ru_stime


def library() -> Iterator[Row]:
    """Compile and export of every schedule of the library, without and with validation."""
    for is_validated, bar in ((False, 40), (True, 150)):
        times = []
        with tempfile.TemporaryDirectory() as folder:
            path = Path(folder) / "lr.onnx"
            for example in EXAMPLES.values():
                schedule = example.make()
                if isinstance(schedule, Schedule):
                    export = partial(cf.to_onnx, schedule, path, validate=is_validated)
                    times.append(seconds(export))
        what = "compile + export a schedule" + (", validated" if is_validated else "")
        detail = f"{len(times)} schedules, longest {max(times) * 1e3:.0f} ms"
        yield Row(f"{what}, median", statistics.median(times) * 1e3, bar, detail, "ms")


SUMMARY = (
    "The import of SymPy takes most of the time of the import and of the first command. Milestones "
    f"are exact fractions, compiled in linear time ({decision('milestones')})."
)
"""The paragraph below the table of results."""

PARTS = (imports, library, grown)
"""The functions whose rows ``make bench`` measures."""


if __name__ == "__main__":
    print(machine(("closedform", "sympy", "onnx")))
    show(chain.from_iterable(part() for part in PARTS))

"""A search for operators of exported steps whose results depend on the number of threads.

Every entry of the zoo, and every function of torch between two layers, is exported and run on a
large batch; each kind of node is then run 60 times with two threads, and with all, on the values
that it has there, and compared with its run on one thread.

python -m tests.training.compare_threads [entry…]
"""

import math
import sys
import warnings
from collections import defaultdict
from collections.abc import Iterator

import torch

from closedform.errors import ExportError, SessionError
from closedform.runtime.onnx_session import open_session
from closedform.training.to_onnx.trace import trace
from tests.support.thread_search import SMALLEST, NodeRun, largest_difference, node_runs
from tests.training.functions import FUNCTIONS
from tests.training.methods import METHODS
from tests.training.situations import SITUATIONS
from tests.training.zoo import ZOO, Entry, after, vectors
from tests.training.zoo_check import ROWS, feeds_of, initialize_lazy

ENTRIES = {
    **ZOO,
    **SITUATIONS,
    **METHODS,
    **{name: Entry(after(function), vectors()) for name, function in FUNCTIONS.items()},
}

REPETITIONS = 60

ROUNDING = 1e-5
"""Sums of up to 10^6 numbers in another order, relative to the largest value."""

FEW_ROWS, MANY_ROWS = 64, 16_384

MOST_ELEMENTS = 1 << 22
"""Of a node that is run 60 times."""


def runs_of(entry: Entry) -> Iterator[NodeRun]:
    """Yields the nodes of the step of an entry with their operands for a large batch."""
    torch.manual_seed(0)
    model = entry.model()
    example = entry.batch(ROWS)
    initialize_lazy(model, example)
    entry.prepare(model)
    traced = trace(model, entry.loss, example, **entry.options, check=False)
    step = open_session(traced.step)
    few = node_runs(traced.step, feeds_of(step, traced, model, entry, FEW_ROWS))
    largest = max(run.size for run in few)
    # A loss may compare all rows with all others: sizes grow with the square of the rows.
    factor = math.isqrt(8 * MOST_ELEMENTS // largest)
    rows = min(FEW_ROWS * factor, MANY_ROWS)
    yield from node_runs(traced.step, feeds_of(step, traced, model, entry, rows))


def search(names: list[str]) -> dict[str, list[str]]:
    """Prints the operators with the kinds that were run; returns those that depend on threads."""
    examined: dict[tuple[object, ...], int] = {}
    kinds: dict[str, int] = defaultdict(int)
    sizes: dict[str, int] = defaultdict(int)
    rounded: dict[str, float] = defaultdict(float)
    dependent: dict[str, list[str]] = defaultdict(list)
    for name in names:
        try:
            for run in runs_of(ENTRIES[name]):
                operator = run.node.op_type
                # A larger run of a kind replaces a smaller one.
                if run.size > MOST_ELEMENTS or run.size <= 4 * examined.get(run.kind, 0):
                    continue
                kinds[operator] += run.kind not in examined
                examined[run.kind] = run.size
                sizes[operator] = max(sizes[operator], run.size)
                for threads in (2, None):
                    from_one, apart = largest_difference(run, threads, REPETITIONS)
                    rounded[operator] = max(rounded[operator], from_one)
                    if apart or from_one > ROUNDING:
                        text = f"{name}: {from_one:.0e} from one thread, {apart:.0e} between runs"
                        dependent[operator].append(text)
        except (ExportError, SessionError) as error:
            print(f"{name}: {str(error)[:100]}", flush=True)
    for operator in sorted(kinds):
        size = sizes[operator]
        note = "" if size >= SMALLEST else ", too small to be divided"
        print(
            f"{operator:24} {kinds[operator]:4} kinds, up to {size} elements{note}; "
            f"{rounded[operator]:.0e} from one thread",
            flush=True,
        )
        for text in dependent[operator][:5]:
            print(f"    DEPENDS ON THREADS: {text}", flush=True)
    return {operator: texts for operator, texts in dependent.items() if texts}


def test_no_operator_depends_on_the_threads() -> None:
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        assert not search(list(ENTRIES))


if __name__ == "__main__":
    warnings.simplefilter("ignore")
    sys.exit(bool(search(sys.argv[1:] or list(ENTRIES))))

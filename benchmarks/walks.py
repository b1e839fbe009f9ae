"""How many files of closedform a call runs through: what a newcomer reads to follow it.

Each walk runs twice with different values, so that imports and caches that do not depend on the
values are warm, and `sys.setprofile` records the second run. It counts functions, not lines, so
the figures are the same on each machine. Caches keep results of earlier calls, so the figures are
those of a fresh process. `python -m benchmarks.walks --json` prints the calls of each file.

tests/test_walks.py holds each walk to its bar.
"""

import argparse
import json
import sys
from collections import Counter
from collections.abc import Callable
from dataclasses import replace
from pathlib import Path
from types import FrameType

import closedform as cf
from closedform import recipes

PACKAGE = Path(cf.__file__).parent

Call = Callable[[], object]


def files_of(call: Call) -> Counter[str]:
    """The calls of functions per file of closedform that `call` makes."""
    counts: Counter[str] = Counter()
    prefix = f"{PACKAGE}/"
    comparisons = 0

    def profile(frame: FrameType, event: str, _: object) -> None:
        nonlocal comparisons
        # Keys of caches are compared with those of other steps in this process, if hashes agree.
        if frame.f_code.co_name in ("__eq__", "__hash__"):
            comparisons += {"call": 1, "return": -1}.get(event, 0)
        if event == "call" and not comparisons:
            name = frame.f_code.co_filename
            if name.startswith(prefix):
                counts[name.removeprefix(prefix)] += 1

    previous = sys.getprofile()
    sys.setprofile(profile)
    try:
        call()
    finally:
        sys.setprofile(previous)
    return counts


def export_of_a_schedule(peak: float) -> Call:
    """`to_onnx(schedule)` for a warmup and a cosine."""
    warmup = cf.schedules.linear(0, peak, 20)
    schedule = warmup.then(cf.schedules.cosine(peak, peak / 10, 80))
    return lambda: cf.to_onnx(schedule)


def _megatron(peak: float, warmup: int) -> dict[str, object]:
    return {
        "lr": peak,
        "min_lr": 0.0,
        "lr_decay_style": "cosine",
        "lr_warmup_iters": warmup,
        "train_iters": 100,
        "global_batch_size": 8,
        "optimizer": "adam",
        "weight_decay": 0.1,
    }


def two_recipes(peak: float) -> Call:
    """Two configs of one framework, read and compared: they differ in the warmup."""

    def compare() -> object:
        first, second = (
            recipes.load_recipe(_megatron(peak, warmup), "megatron") for warmup in (10, 11)
        )
        return cf.diff(first, second)

    return compare


def equal_recipes(peak: float) -> Call:
    """Configs of two frameworks, read, compared, and proved equal after their warmup."""
    transformers = {
        "learning_rate": peak,
        "lr_scheduler_type": "cosine",
        "warmup_steps": 10,
        "max_steps": 100,
        "weight_decay": 0.1,
    }

    def compare() -> object:
        first = recipes.load_recipe(_megatron(peak, 10), "megatron")
        return cf.diff(first, recipes.load_recipe(transformers, "transformers"))

    return compare


def first_step_of_torch(rate: float) -> Call:
    """The construction of a torch optimizer from a new rule, and its first step on a CPU."""
    import torch

    from closedform.torch import Optimizer

    parameter = torch.nn.Parameter(torch.ones(3))
    parameter.grad = torch.full((3,), 0.5)
    # The kernels of a rule are cached, and equal hashes are compared: a name that no other rule of
    # the process has makes the count independent of the steps before it.
    rule = replace(cf.optimizers.adamw(rate), name=f"walk_{rate}".replace(".", "_"))
    return lambda: Optimizer([parameter], rule).step()


WALKS: dict[str, Callable[[float], Call]] = {
    "to_onnx(schedule)": export_of_a_schedule,
    "two recipes and diff": two_recipes,
    "equal recipes and diff": equal_recipes,
    "first step of torch": first_step_of_torch,
}
WARM, MEASURED = 0.25, 0.125  # exact in binary, and different


def walk(build: Callable[[float], Call]) -> Counter[str]:
    """The files of the call that `build` returns, measured after a run with another value."""
    build(WARM)()
    return files_of(build(MEASURED))


def main(arguments: list[str]) -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--json", action="store_true", help="print the calls of each file as JSON")
    options = parser.parse_args(arguments)
    counts = {name: walk(build) for name, build in WALKS.items()}
    if options.json:
        print(json.dumps(counts))
        return
    for name, calls in counts.items():
        print(f"{name:24}{len(calls):4} files {sum(calls.values()):6} calls")


if __name__ == "__main__":
    main(sys.argv[1:])

"""Calls run through few files, so that a newcomer can follow them."""

from collections.abc import Callable

import pytest

import closedform as cf
from benchmarks import walks

# The files of each walk, which may only fall. An export reads its file back with the reader of all
# files and proves it, which is half of its files. Decisions of floats, limits of numbers and states
# that are made at the first step brought one to five files each.
MOST_FILES = {
    "to_onnx(schedule)": 67,
    "two recipes and diff": 52,
    # The checker and the search are among them: each question is answered by a replayed proof.
    "equal recipes and diff": 98,
    "first step of torch": 53,
}


def test_every_walk_has_a_bound() -> None:
    assert MOST_FILES.keys() == walks.WALKS.keys()


@pytest.mark.parametrize("name", MOST_FILES)
def test_a_walk_is_not_longer(name: str) -> None:
    counts = walks.walk(walks.WALKS[name])
    assert len(counts) <= MOST_FILES[name], "\n".join(sorted(counts))


def test_a_first_step_counts_the_same_files_after_steps_of_its_rule() -> None:
    import torch

    from closedform.torch import Optimizer

    fresh = walks.files_of(walks.first_step_of_torch(0.375))
    for rate in (0.4375, cf.schedules.cosine(0.4375, 0, 10)):
        parameter = torch.nn.Parameter(torch.ones(3))
        parameter.grad = torch.ones(3)
        Optimizer([parameter], cf.optimizers.adamw(rate)).step()
    assert walks.files_of(walks.first_step_of_torch(0.4375)).keys() == fresh.keys()


def test_a_walk_counts_files_of_the_package_only() -> None:
    def call() -> None:
        ",".join(walks.WALKS)

    assert walks.files_of(call) == {}
    build: Callable[[], object] = walks.export_of_a_schedule(0.5)
    assert walks.files_of(build)["exporters/onnx_model.py"] > 0

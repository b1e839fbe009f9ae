"""Files of the schedules of transformers: each is proved equal to its schedule.

For `make compare`.
"""

import json
import statistics
import time
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest
import torch
import transformers

import closedform as cf
from closedform.verify.translation.verdicts import KEY

pytestmark = pytest.mark.packages()
LENGTHS = ((100, 1000), (37, 1213), (0, 500), (1, 17), (2000, 150_000))
MILLISECONDS = 100
Case = tuple[str, Callable[..., Any], tuple[int, ...], dict[str, Any]]


def cases() -> Iterator[Case]:
    library = transformers.optimization
    for warmup, total in LENGTHS:
        both = warmup, total
        cosine = library.get_cosine_schedule_with_warmup
        for cycles in (0.5, 1.5, 2):
            yield f"cosine {cycles}", cosine, both, {"num_cycles": cycles}
        restarts = library.get_cosine_with_hard_restarts_schedule_with_warmup
        for cycles in (1, 3, 7):
            yield f"restarts {cycles}", restarts, both, {"num_cycles": cycles}
        floor = library.get_cosine_with_min_lr_schedule_with_warmup
        yield "floor by rate", floor, both, {"min_lr_rate": 0.1}
        yield "floor", floor, both, {"min_lr": 1e-5}
        begun = library.get_cosine_with_min_lr_schedule_with_warmup_lr_rate
        yield "floor and start", begun, both, {"min_lr_rate": 0.1, "warmup_lr_rate": 0.01}
        yield "floor, one more", begun, both, {"min_lr_rate": 0.1}
        yield "linear", library.get_linear_schedule_with_warmup, both, {}
        polynomial = library.get_polynomial_decay_schedule_with_warmup
        yield "polynomial", polynomial, both, {"power": 2.0}
        yield "inverse root", library.get_inverse_sqrt_schedule, (warmup,), {}
        yield "constant", library.get_constant_schedule_with_warmup, (warmup,), {}
        for up in ("linear", "cosine", "1-sqrt"):
            for down in ("linear", "cosine", "1-sqrt"):
                kinds = {"warmup_type": up, "decay_type": down}
                stages = {"num_stable_steps": total, "min_lr_ratio": 0.1}
                decay = total // 5
                yield f"{up}, {down}", library.get_wsd_schedule, (warmup, decay), kinds | stages


CASES = {f"{name} {lengths}": case for case in cases() for name, _, lengths, _ in [case]}
TIMES: list[float] = []


@pytest.mark.parametrize("name", CASES)
def test_a_file_is_proved(name: str, tmp_path: Path) -> None:
    _, make, lengths, options = CASES[name]
    optimizer = torch.optim.SGD([torch.nn.Parameter(torch.zeros(1))], lr=3e-4)
    schedule = cf.from_torch(make(optimizer, *lengths, **options))
    assert isinstance(schedule, cf.Schedule)
    began = time.process_time()
    model = cf.to_onnx(schedule, tmp_path / "schedule.onnx")
    TIMES.append(1000 * (time.process_time() - began))
    (entry,) = (json.loads(each.value) for each in model.metadata_props if each.key == KEY)
    assert entry["status"] == "PROVED", entry["reason"]


def test_an_export_is_short() -> None:
    print(f"{len(TIMES)} exports, median {statistics.median(TIMES):.0f} ms of processor time")
    assert statistics.median(TIMES) <= MILLISECONDS

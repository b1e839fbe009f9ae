"""Architectures and methods of training: equal to torch, or refused with a way out, in each dtype.

Those of timm are left out where torchvision cannot be imported, and those of peft without it. An
interrupted run goes on where it stopped: build/results has the results by case.
"""

from collections.abc import Callable
from pathlib import Path

import pytest
import torch

from tests.support.stored_results import StoredResults
from tests.training.architectures import ARCHITECTURES
from tests.training.methods import METHODS
from tests.training.zoo_check import check, check_in_16_bits

# peft 0.21 reads an attribute that transformers 5.23 deprecates.
pytestmark = [
    pytest.mark.packages(),
    pytest.mark.filterwarnings("ignore:`is_gradient_checkpointing`:FutureWarning"),
]

STEPS = 4
CASES = {**ARCHITECTURES, **METHODS}
NARROW = {"float16": torch.float16, "bfloat16": torch.bfloat16}
RESULTS = StoredResults(
    "architectures",
    [
        "src/closedform/training",
        *(f"tests/training/{name}.py" for name in ("architectures", "methods", "zoo", "zoo_check")),
    ],
    ["torch", "onnxruntime", "onnxscript", "transformers", "timm", "peft"],
)


@pytest.mark.parametrize("name", CASES)
def test_an_architecture_equals_torch_or_is_refused(name: str, tmp_path: Path) -> None:
    _compare(f"float32 {name}", lambda: check(CASES[name], tmp_path, STEPS), name)


@pytest.mark.parametrize("dtype", NARROW)
@pytest.mark.parametrize("name", CASES)
def test_an_architecture_in_16_bits_equals_torch_or_is_refused(name: str, dtype: str) -> None:
    _compare(f"{dtype} {name}", lambda: check_in_16_bits(CASES[name], NARROW[dtype]), name)


def _compare(case: str, compute: Callable[[], str], name: str) -> None:
    try:
        CASES[name].model()
    except ModuleNotFoundError as error:
        pytest.skip(str(error))
    print(f"\n{case}: {RESULTS.result(case, compute)}")


def test_the_results_are_counted() -> None:
    counts = RESULTS.counts(lambda case, result: f"{case.split()[0]} {result.split()[0]}")
    print("", *(f"{kind} {count}" for kind, count in sorted(counts.items())), sep="\n")

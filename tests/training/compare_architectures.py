"""Architectures of transformers, timm and peft: equal to torch, or refused by name.

Those of timm are left out where torchvision cannot be imported, and those of peft without it.
"""

from __future__ import annotations

from pathlib import Path

import pytest

from tests.training.architectures import ARCHITECTURES
from tests.training.zoo_check import check, check_in_half

STEPS = 4


def _skip_without_package(name: str) -> None:
    try:
        ARCHITECTURES[name].model()
    except ModuleNotFoundError as error:
        pytest.skip(str(error))


@pytest.mark.parametrize("name", ARCHITECTURES)
def test_an_architecture_equals_torch_or_is_refused(name: str, tmp_path: Path) -> None:
    _skip_without_package(name)
    print(f"\n{name}: {check(ARCHITECTURES[name], tmp_path, STEPS)}")


@pytest.mark.parametrize("name", list(ARCHITECTURES)[::3])
def test_an_architecture_in_float16_equals_torch_or_is_refused(name: str) -> None:
    _skip_without_package(name)
    print(f"\n{name}: {check_in_half(ARCHITECTURES[name])}")

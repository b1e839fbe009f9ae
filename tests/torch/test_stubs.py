"""The types of the generated classes: those of the tables, seen by type checkers and by help."""

import importlib
import inspect
from pathlib import Path

import pytest
from mypy import api

from closedform.errors import ArgumentError
from closedform.frameworks import FRAMEWORKS
from closedform.schedules import linear
from closedform.torch import optim
from closedform.torch.compat.arguments import ARGUMENTS
from tests.torch.training import parameters
from tools.build_stubs import FOLDER, MODULES, stub_text

SYSTEMS = ("cerebras", "pytorch_accelerated", "timm", "torch")

WRONG = """
import closedform.torch
import torch
from closedform.torch import cerebras, lr_scheduler, optim, timm

params = [torch.zeros(3)]
good = optim.AdamW(params, lr=1e-3, betas=(0.9, 0.99))
rates = lr_scheduler.CosineAnnealingLR(good, T_max=10)
optim.AdamW(params, learning_rate=1)  # 1
optim.AdamW(params, betas=0.9)  # 2
optim.SGD(params, 0.1, nesterov="yes")  # 3
optim.AdamX(params)  # 4
optim.Adam()  # 5
lr_scheduler.StepLR(good)  # 6
lr_scheduler.OneCycleLR(good, max_lr="0.1")  # 7
lr_scheduler.MultiStepLR(good, milestones=3)  # 8
timm.CosineLRScheduler(good, warmup=5)  # 9
cerebras.CosineDecayLR(good, 1e-3, 0, "100")  # 10
closedform.torch.optim.AdamW(params, learning_rate=1)  # 11
reveal_type(good.param_groups)
"""


@pytest.mark.parametrize("module", MODULES)
def test_stubs_are_written_from_the_classes(module: str) -> None:
    assert (FOLDER / f"{module}.pyi").read_text(encoding="utf-8") == stub_text(module), (
        "run `make stubs`"
    )


def test_wrong_uses_are_found_by_a_type_checker(tmp_path: Path) -> None:
    path = tmp_path / "wrong.py"
    path.write_text(WRONG, encoding="utf-8")
    output, problems, _ = api.run([str(path), "--strict", "--no-error-summary"])
    assert not problems
    lines = WRONG.splitlines()
    wrong = {number for number, line in enumerate(lines, 1) if "  # " in line}
    errors = [line for line in output.splitlines() if ": error:" in line]
    assert {int(line.split(":")[1]) for line in errors} == wrong
    assert "Any]]" in next(line for line in output.splitlines() if "Revealed type" in line)


@pytest.mark.parametrize("system", SYSTEMS)
def test_every_argument_has_a_type_and_a_description(system: str) -> None:
    framework = FRAMEWORKS[system]
    parameters_of_classes = [
        *(entry.parameters for entry in framework.schedules.values()),
        *(entry.parameters for entry in framework.optimizers.values()),
    ]
    names = {parameter.name for group in parameters_of_classes for parameter in group}
    assert names <= set(ARGUMENTS)


def test_help_lists_the_arguments() -> None:
    text = inspect.getdoc(optim.AdamW) or ""
    assert "The optimizer ``AdamW`` of torch" in text
    assert "    betas: Coefficients of the first and second moment." in text
    parameter = inspect.signature(optim.AdamW).parameters["lr"]
    assert (parameter.annotation, parameter.default) == ("float | Tensor", 0.001)


def test_a_schedule_is_not_an_argument_of_a_drop_in() -> None:
    with pytest.raises(ArgumentError, match=r"lr must be a number, got schedule 'linear'.*drive"):
        optim.AdamW(parameters(), lr=linear(0, 1, 10))  # type: ignore[arg-type]


def test_stubs_have_no_any() -> None:
    for module in MODULES:
        assert "Any" not in (FOLDER / f"{module}.pyi").read_text(encoding="utf-8")
        assert importlib.import_module(f"closedform.torch.{module}")


@pytest.mark.parametrize("module", MODULES)
def test_a_module_lists_its_generated_classes(module: str) -> None:
    """Pyright reports a class that ``__all__`` does not have as private."""
    source = FOLDER.with_name(f"{module}.py").read_text(encoding="utf-8")
    assert "    __all__ += classes.__all__\n" in source
    namespace = FOLDER.with_name("__init__.py").read_text(encoding="utf-8")
    assert f"from closedform.torch import {module} as {module}\n" in namespace

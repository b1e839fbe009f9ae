"""The names that the frameworks and ``load_recipe`` had before resolve, with a warning."""

import importlib
from typing import Any

import pytest

import closedform as cf
from closedform import frameworks
from closedform.frameworks import cerebras, pytorch_accelerated

OF_0_2 = ("FRAMEWORK", "dynamic_loss_scaling")
"""Names of cerebras that ``frameworks`` never had."""
LINEAR = {"initial_learning_rate": 1, "end_learning_rate": 0, "total_iters": 4}


def test_dialects_is_the_module_of_frameworks() -> None:
    with pytest.deprecated_call(match=r"use closedform\.frameworks"):
        assert cf.__getattr__("dialects") is frameworks


@pytest.mark.parametrize("name", [*sorted({*frameworks.__all__} - {"FRAMEWORKS"}), "DIALECTS"])
def test_names_of_dialects(name: str) -> None:
    module = importlib.import_module("closedform.dialects")
    with pytest.deprecated_call(match=rf"closedform\.dialects\.{name} is deprecated"):
        found = getattr(module, name)
    assert found is getattr(frameworks, name.replace("DIALECTS", "FRAMEWORKS"))


@pytest.mark.parametrize(
    ("home", "name"),
    [
        *((cerebras, name) for name in cerebras.__all__ if name not in OF_0_2),
        (pytorch_accelerated, "wsd_plan"),
    ],
)
def test_functions_of_one_framework_have_left_frameworks(home: Any, name: str) -> None:
    with pytest.deprecated_call(match=rf"use {home.__name__}\.{name}"):
        assert getattr(frameworks, name) is getattr(home, name)


@pytest.mark.parametrize(
    ("module", "old", "new"),
    [
        ("closedform", "load_config", "load_recipe"),
        ("closedform.config", "load_config", "load_recipe"),
        ("closedform.config", "load_schedules", "load_schedules"),
        ("closedform.config", "Recipe", "Recipe"),
        ("closedform.config", "Document", "Document"),
        ("closedform.config", "read_document", "read_document"),
    ],
)
def test_names_of_config(module: str, old: str, new: str) -> None:
    with pytest.deprecated_call(match=rf"{module}\.{old} is deprecated"):
        found = getattr(importlib.import_module(module), old)
    assert found is getattr(importlib.import_module("closedform.recipes"), new)


@pytest.mark.parametrize(
    ("function", "arguments"),
    [
        (frameworks.schedule, {"system": "cerebras", "name": "LinearLR", "kwargs": LINEAR}),
        (frameworks.optimizer, {"framework": "torch", "name": "SGD", "kwargs": {"lr": 1}}),
        (
            frameworks.schedule,
            {"framework": "cerebras", "name": "LinearLR", "config": LINEAR, "as_shipped": True},
        ),
        (cerebras.configure_lr_scheduler, {"learning_rate": 0.5, "as_shipped": True}),
        (pytorch_accelerated.wsd_plan, {"kwargs": {"total_steps": 100}, "as_shipped": True}),
    ],
)
def test_old_keywords(function: Any, arguments: dict[str, Any]) -> None:
    with pytest.deprecated_call(match="is deprecated and will be removed"):
        assert function(**arguments) is not ...


def test_a_keyword_by_both_of_its_names() -> None:
    function: Any = pytorch_accelerated.wsd_plan
    with pytest.raises(TypeError, match="got both 'kwargs' and 'config'"):
        function(kwargs={}, config={})

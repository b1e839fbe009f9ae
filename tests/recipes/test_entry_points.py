"""Frameworks of other packages: built, installed with pip, read by the command line."""

import json
import os
import subprocess
import sys
import zipfile
from importlib.metadata import EntryPoint
from pathlib import Path
from types import ModuleType

import pytest

from closedform.errors import ConfigError
from closedform.recipes import registry
from closedform.recipes.registry import ENTRY_POINTS, FRAMEWORKS

PROJECT = """\
[build-system]
requires = ["setuptools"]
build-backend = "setuptools.build_meta"

[project]
name = "mylab-recipes"
version = "1.0"

[project.entry-points."closedform.frameworks"]
mylab = "mylab_recipes:FRAMEWORK"

[tool.setuptools]
py-modules = ["mylab_recipes"]
"""
MODULE = '''\
"""The learning rate of mylab: a line from "lr" to 0 over "updates" updates."""

from closedform.recipes.clock import Clock, Unit
from closedform.recipes.framework import Framework
from closedform.recipes.reader import Reader, Reading
from closedform.recipes.recipe import ParamGroup, Recipe, Role
from closedform.recipes.rules import plan_optimizer
from closedform.schedules import linear


def read(reading: Reading) -> Recipe:
    content = reading.document.content
    schedules = {"lr": linear(content["lr"], 0, content["updates"])}
    group = ParamGroup(schedules, plan_optimizer("sgd", {}), Role.DEFAULT)
    return reading.recipe(
        (group,),
        clock=Clock(Unit.UPDATE),
        horizon=content["updates"],
        clipping=None,
        accumulation=None,
        values=(),
    )


FRAMEWORK = Framework(
    "mylab",
    {},
    reader=Reader(read, lambda document: "mylab" in document.content),
    upstream="train.py",
    clock=Clock(Unit.UPDATE),
    defects={},
)
'''


def run(words: list[str], folder: Path, **variables: str) -> subprocess.CompletedProcess[str]:
    environment = {**os.environ, **variables}
    return subprocess.run(
        words, cwd=folder, env=environment, capture_output=True, text=True, check=False
    )


def test_an_installed_package_adds_a_framework(tmp_path: Path) -> None:
    (tmp_path / "pyproject.toml").write_text(PROJECT, encoding="utf-8")
    (tmp_path / "mylab_recipes.py").write_text(MODULE, encoding="utf-8")
    target = tmp_path / "site"
    words = ["-m", "pip", "install", "-q", "--no-deps", "--no-build-isolation", "--no-index"]
    built = run([sys.executable, *words, "--target", str(target), "."], tmp_path)
    assert built.returncode == 0, built.stderr
    folder = tmp_path / "configs"  # the build leaves metadata of the package beside its sources
    folder.mkdir()
    config = folder / "config.json"
    config.write_text(json.dumps({"mylab": 1, "lr": 0.5, "updates": 10}), encoding="utf-8")
    path = os.pathsep.join([str(target), *filter(None, [os.environ.get("PYTHONPATH")])])
    show = [sys.executable, "-m", "closedform", "show", "config.json"]
    shown = run(show, folder, PYTHONPATH=path)
    assert shown.returncode == 0, shown.stderr
    assert "mylab" in shown.stdout
    words = [sys.executable, "-m", "closedform", "list", "mylab", "--json"]
    origin = json.loads(run(words, folder, PYTHONPATH=path).stdout)
    assert (origin["repository"], origin["commit"], origin["tier"]) == ("", "", "community")
    code = "import closedform as cf; print(cf.load_recipe('config.json').schedule().exact(4))"
    value = run([sys.executable, "-c", code], folder, PYTHONPATH=path)
    assert value.stdout.strip() == "3/10", value.stderr
    without = run(show, folder)
    assert without.returncode == 4, without.stdout
    assert "not recognized" in without.stderr  # the config is of no framework that is installed


def test_packages_in_a_zip_file_are_looked_at(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    with zipfile.ZipFile(tmp_path / "packages.zip", "w") as archive:
        archive.writestr("mylab-1.0.dist-info/METADATA", "Name: mylab\nVersion: 1.0\n")
        points = f"[{ENTRY_POINTS}]\nmylab = mylab_recipes:FRAMEWORK\n"
        archive.writestr("mylab-1.0.dist-info/entry_points.txt", points)
    assert [*registry._declared()] == []
    monkeypatch.syspath_prepend(tmp_path / "packages.zip")
    assert [point.value for point in registry._declared()] == ["mylab_recipes:FRAMEWORK"]


def test_metadata_is_not_imported_where_no_package_declares_a_framework() -> None:
    code = "import sys; from closedform.recipes.registry import FRAMEWORKS; print(len(FRAMEWORKS))"
    code += "; print('importlib.metadata' in sys.modules)"
    shown = run([sys.executable, "-c", code], Path.cwd())
    assert shown.stdout.split() == [str(len(FRAMEWORKS)), "False"], shown.stderr


LOOK_UP = registry._entry_points.__wrapped__
"""Without the cache."""


def register(monkeypatch: pytest.MonkeyPatch, *points: tuple[str, str]) -> None:
    listed = [EntryPoint(name, value, ENTRY_POINTS) for name, value in points]
    monkeypatch.setattr(registry, "_declared", lambda: listed)
    monkeypatch.setattr(registry, "_entry_points", LOOK_UP)


def test_names_of_closedform_stay(monkeypatch: pytest.MonkeyPatch) -> None:
    own, count = FRAMEWORKS["torch"], len(FRAMEWORKS)
    names = ("mylab_recipes", "other_recipes")
    register(monkeypatch, *(("torch", f"{name}:FRAMEWORK") for name in names))
    assert FRAMEWORKS["torch"] is own
    assert len([*FRAMEWORKS]) == len(FRAMEWORKS) == count


def test_an_entry_point_that_is_not_a_framework_is_named(monkeypatch: pytest.MonkeyPatch) -> None:
    module = ModuleType("mylab_recipes")
    module.FRAMEWORK = 3  # type: ignore[attr-defined]
    monkeypatch.setitem(sys.modules, "mylab_recipes", module)
    register(monkeypatch, ("mylab", "mylab_recipes:FRAMEWORK"))
    assert "mylab" in FRAMEWORKS
    assert FRAMEWORKS.module("mylab") == "mylab_recipes"
    with pytest.raises(ConfigError, match="'mylab' must be a Framework of this name, got 3"):
        FRAMEWORKS["mylab"]


def test_a_name_that_two_packages_declare_is_an_error(monkeypatch: pytest.MonkeyPatch) -> None:
    ours, theirs = ("mylab", "mylab_recipes:FRAMEWORK"), ("mylab", "other_recipes:FRAMEWORK")
    register(monkeypatch, ours, ours)  # one package on two entries of sys.path
    assert "mylab" in FRAMEWORKS
    register(monkeypatch, ours, theirs)
    with pytest.raises(ConfigError, match="two packages declare the framework 'mylab'") as raised:
        FRAMEWORKS["mylab"]
    assert raised.value.where == "mylab_recipes:FRAMEWORK and other_recipes:FRAMEWORK"

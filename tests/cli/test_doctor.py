"""``closedform doctor``, judged by the metadata of the installed packages."""

import importlib.metadata
import importlib.util
import json
from importlib.machinery import ModuleSpec

import pytest

from closedform.cli import doctor
from closedform.errors import install_hint
from tests.support.commands import CliRunner


def test_versions_are_those_of_the_installation() -> None:
    data = json.loads(CliRunner().invoke(["doctor", "--json"]).stdout)
    entries = {entry["name"]: entry for entry in data["packages"]}
    assert {"sympy", "onnx", "onnxruntime", "z3-solver", "rich", "torch", "mlx"} <= set(entries)
    for name in ("sympy", "numpy", "onnx"):
        assert entries[name]["version"] == importlib.metadata.version(name)
    assert (entries["matplotlib"]["extra"], entries["z3-solver"]["extra"]) == ("plot", "")
    assert "ruff" not in entries


def test_a_missing_package_has_the_command_that_installs_it(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    find_spec = importlib.util.find_spec

    def find(name: str, package: str | None = None) -> ModuleSpec | None:
        return None if name == "matplotlib" else find_spec(name, package)

    monkeypatch.setattr(importlib.util, "find_spec", find)
    monkeypatch.setattr(doctor, "_version", lambda name: None)
    monkeypatch.setenv("CC", "nosuch-compiler")
    result = CliRunner().invoke(["doctor"])
    assert result.exit_code == 0
    assert f"missing: {install_hint('plot')}" in result.stdout
    assert "no compiler: install one, or set CC" in result.stdout

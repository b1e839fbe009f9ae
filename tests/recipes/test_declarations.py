"""The declarations of the frameworks: one call of Recipe, one table of keys, sources of defects."""

import ast
from collections import Counter
from collections.abc import Iterator
from pathlib import Path

import pytest

from closedform import frameworks
from closedform.recipes.registry import _MODULES
from tests.support.pages import ROOT

SOURCE = ROOT / "src" / "closedform"
KEYS = {"Keys", "OpenKeys", "ClassKeys", "FlagKeys"}
LITERALS_PER_KEY = 1.5
"""Writers state a key once; megatron has three front ends with 1.9."""


def files(name: str) -> list[Path]:
    """The files of a framework."""
    return sorted((SOURCE / "frameworks" / _MODULES[name]).glob("*.py"))


def trees(name: str) -> list[ast.Module]:
    return [ast.parse(path.read_text(encoding="utf-8")) for path in files(name)]


def test_recipes_are_made_in_one_place() -> None:
    """``Reading.recipe`` fills in the notes, the facts and the version."""
    modules = [path for name in _MODULES for path in files(name)]
    assert not [path.name for path in modules if " Recipe(" in path.read_text(encoding="utf-8")]
    (call,) = [
        node
        for node in ast.walk(
            ast.parse((SOURCE / "recipes" / "reader.py").read_text(encoding="utf-8"))
        )
        if isinstance(node, ast.Call)
        and isinstance(node.func, ast.Name)
        and node.func.id == "Recipe"
    ]
    assert call.keywords


@pytest.mark.parametrize("name", _MODULES)
def test_each_defect_has_a_text_and_a_source(name: str) -> None:
    declaration = frameworks.FRAMEWORKS[name]
    assert declaration.upstream
    for label, defect in declaration.defects.items():
        assert label == label.lower()
        assert defect.text == defect.text.strip().rstrip(".") != ""
        assert defect.upstream
        # A framework that shares the reader of another one has its defects without its classes.
        unknown = set(defect.classes or ()) - set(declaration.schedules)
        assert not declaration.schedules or not unknown, label


def declared_keys(tree: ast.Module) -> Iterator[str]:
    """The names of the keys that a module declares: keywords of Keys, and dicts of keys."""
    tuples = {
        target.id: [item.value for item in node.value.elts if isinstance(item, ast.Constant)]
        for node in tree.body
        if isinstance(node, ast.Assign) and isinstance(node.value, ast.Tuple)
        for target in node.targets
        if isinstance(target, ast.Name)
    }
    for node in ast.walk(tree):
        if not isinstance(node, ast.Call):
            continue
        if isinstance(node.func, ast.Name) and node.func.id in KEYS:
            yield from (keyword.arg for keyword in node.keywords if keyword.arg)
        elif isinstance(node.func, ast.Attribute) and node.func.attr == "fromkeys":
            first, *rest = node.args
            if (
                rest
                and isinstance(rest[0], ast.Call)
                and getattr(rest[0].func, "id", "") == "ignored"
            ):
                names = tuples.get(getattr(first, "id", ""), [])
                items = first.elts if isinstance(first, ast.Tuple) else []
                yield from (str(name) for name in names)
                yield from (str(item.value) for item in items if isinstance(item, ast.Constant))


def test_keys_are_written_about_once() -> None:
    """String literals that are the name of a declared key, in the framework's own modules."""
    literals, keys = Counter[str](), Counter[str]()
    for name in _MODULES:
        modules = trees(name)
        names = {key for tree in modules for key in declared_keys(tree)}
        keys[name] = len(names)
        literals[name] = sum(
            isinstance(node, ast.Constant)
            and isinstance(node.value, str)
            and node.value.replace("-", "_") in names
            for tree in modules
            for node in ast.walk(tree)
        )
    assert keys.total() > 100
    by_framework = {name: round(literals[name] / keys[name], 2) for name in keys if keys[name]}
    assert literals.total() <= LITERALS_PER_KEY * keys.total(), by_framework

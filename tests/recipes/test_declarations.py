"""The declarations of the frameworks: one call of Recipe, one table of keys, sources of defects."""

import ast
import importlib
import re
from collections import Counter
from collections.abc import Iterator, Mapping
from pathlib import Path

import pytest

from closedform import frameworks
from closedform.recipes import kit
from closedform.recipes.registry import _MODULES
from closedform.recipes.section import Key, is_section
from tests.support.pages import ROOT

SOURCE = ROOT / "src" / "closedform"
WITHOUT_KEYS = {"mmengine"}
"""Its configs name classes, whose arguments are the parameters of entries."""
LITERALS_PER_KEY = 1.1
"""Writers state a key once; megatron has three front ends with 1.9."""


def files(name: str) -> list[Path]:
    """The files of a framework."""
    return sorted((SOURCE / "frameworks" / _MODULES[name]).glob("*.py"))


def trees(name: str) -> list[ast.Module]:
    return [ast.parse(path.read_text(encoding="utf-8")) for path in files(name)]


def test_recipes_are_made_in_one_place() -> None:
    """``Reading.recipe`` fills in the notes, the facts and the version."""
    calls = re.compile(r"\bRecipe\(")
    modules = [path for name in _MODULES for path in files(name)]
    assert not [path for path in modules if calls.search(path.read_text(encoding="utf-8"))]
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


def test_frameworks_import_the_machine_by_one_module() -> None:
    """Each takes it from ``kit``, whose names are all used."""
    text = "".join(path.read_text(encoding="utf-8") for name in _MODULES for path in files(name))
    imports = re.findall(r"^ *(?:from|import) closedform\.recipes\b.*", text, re.MULTILINE)
    assert set(imports) == {"from closedform.recipes import kit"}
    names = {name for name in vars(kit) if not name.startswith("_")}
    assert names == set(re.findall(r"\bkit\.([A-Za-z]\w*)", text))


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


@pytest.mark.parametrize("name", _MODULES)
def test_each_framework_says_where_its_formulas_come_from(name: str) -> None:
    declaration = frameworks.FRAMEWORKS[name]
    assert re.fullmatch(r"https://github\.com/[\w-]+/[\w.-]+", declaration.repository)
    assert re.fullmatch(r"[0-9a-f]{7,40}|\d+(\.\d+)*", declaration.commit)
    assert declaration.tier is not frameworks.Tier.COMMUNITY


def test_the_commit_is_the_newest_version_where_no_other_is_declared() -> None:
    """The versions of programs that take the arguments of transformers are its versions."""
    other = {
        name
        for name, declaration in frameworks.FRAMEWORKS.items()
        if declaration.versions and declaration.commit != declaration.versions[0]
    }
    assert other == {"alignment-handbook", "llama-factory", "ms-swift", "trl"}


def declared_keys(declaration: object) -> Iterator[tuple[str, Key]]:
    """The names and keys within a section, a table of keys, or a tuple of them."""
    if is_section(declaration):
        declaration = declaration.keys
    if isinstance(declaration, Key):
        yield from declared_keys(declaration.inner)
    elif isinstance(declaration, Mapping):
        for name, entry in declaration.items():
            if isinstance(entry, Key):
                yield name, entry
            yield from declared_keys(entry)
    elif isinstance(declaration, tuple):
        for entry in declaration:
            yield from declared_keys(entry)


def keys_of(name: str) -> set[tuple[str, int]]:
    """The names of the keys in the modules of a framework, each with the identity of its key."""
    modules = [importlib.import_module(module_name(path)) for path in files(name)]
    return {
        (key_name, id(key))
        for module in modules
        for declaration in vars(module).values()
        for key_name, key in declared_keys(declaration)
    }


def module_name(path: Path) -> str:
    return ".".join(path.relative_to(SOURCE.parent).with_suffix("").parts).removesuffix(".__init__")


def test_keys_are_written_about_once() -> None:
    """String literals that are the name of a key, in the modules of the framework that has it."""
    keys = {name: keys_of(name) for name in _MODULES}
    literals = Counter[str]()
    for name in _MODULES:
        names = {key_name.replace("-", "_") for key_name, _ in keys[name]}
        literals[name] = sum(text.replace("-", "_") in names for text in string_literals(name))
    # Frameworks that build on another one share its keys, which it declares once.
    all_keys = set().union(*keys.values())
    assert literals.total() <= LITERALS_PER_KEY * len(all_keys), literals.most_common(9)


def test_the_keys_of_each_reader_are_found() -> None:
    readers = {name for name in _MODULES if frameworks.FRAMEWORKS[name].reader is not None}
    assert {name for name in readers if not keys_of(name)} == WITHOUT_KEYS


def string_literals(name: str) -> Iterator[str]:
    """The strings in the modules of a framework, other than keys that a section declares."""
    for tree in trees(name):
        nodes = list(ast.walk(tree))
        declared = {
            id(part)
            for node in nodes
            if isinstance(node, ast.ClassDef)
            for keyword in node.keywords
            for part in ast.walk(keyword)
        }
        for node in nodes:
            match node:
                case ast.Constant(value=str(text)) if id(node) not in declared:
                    yield text


def facts_read(tree: ast.Module) -> Iterator[str]:
    """The literal names of facts that a module reads from something that is named facts.

    ``context.fact("nc")``, ``context.facts.get("nc")``, ``facts["nc"]`` and ``"nc" in facts``;
    ``context.of_group("lr", base)`` reads those of the param groups.
    """
    for node in ast.walk(tree):
        match node:
            case ast.Call(func=ast.Attribute(attr="of_group")):
                yield from ("group_lrs", "param_groups", "group_index")
            case ast.Call(
                func=ast.Attribute(attr="fact"), args=[ast.Constant(value=str(name)), *_]
            ):
                yield name
            case ast.Call(
                func=ast.Attribute(attr="get", value=source),
                args=[ast.Constant(value=str(name)), *_],
            ) if ast.unparse(source).endswith("facts"):
                yield name
            case ast.Subscript(value=source, slice=ast.Constant(value=str(name))) if ast.unparse(
                source
            ).endswith("facts"):
                yield name
            case ast.Compare(
                left=ast.Constant(value=str(name)),
                ops=[ast.In() | ast.NotIn()],
                comparators=[source],
            ) if ast.unparse(source).endswith("facts"):
                yield name


def imported_frameworks(tree: ast.Module) -> Iterator[str]:
    """The frameworks that a module of a framework builds on."""
    for node in ast.walk(tree):
        match node:
            case ast.ImportFrom(module="closedform.frameworks", names=names):
                yield from (alias.name for alias in names)
            case ast.ImportFrom(module=str(module)) if module.startswith("closedform.frameworks."):
                yield module.split(".")[2]


@pytest.mark.parametrize("name", [name for name in _MODULES if frameworks.FRAMEWORKS[name].facts])
def test_each_fact_is_read(name: str) -> None:
    """A literal name among the facts is read; others are of the tuple that the reader has."""
    sources = [*trees(name)]
    by_module = {module: framework for framework, module in _MODULES.items()}
    modules = {module for tree in trees(name) for module in imported_frameworks(tree)}
    for module in modules & by_module.keys():  # frameworks.curves is of none
        sources += trees(by_module[module])
    read = {fact for tree in sources for fact in facts_read(tree)}
    (declared,) = [
        keyword.value
        for tree in trees(name)
        for node in ast.walk(tree)
        if isinstance(node, ast.Call) and ast.unparse(node.func) == "kit.Framework"
        for keyword in node.keywords
        if keyword.arg == "facts"
    ]
    literals = (
        {entry.value for entry in declared.elts if isinstance(entry, ast.Constant)}
        if isinstance(declared, ast.Tuple)
        else set()
    )
    assert literals <= read, f"no code reads {literals - read}"

"""The rules of the architecture, checked by reading the syntax trees of src.

Each rule is a function from a `Source` to the violations that it finds there; `VIOLATIONS` plants
one for each rule and each clause of it, and `ALLOWED` shows code that no rule may report. The
import graph is built whole, with the imports inside functions, and has no list of exceptions.
"""

import ast
import itertools
import re
import subprocess
import sys
from collections.abc import Callable, Iterator
from functools import cache
from pathlib import Path

import networkx as nx
import pytest

from tests.support.import_graph import (
    LAYERS,
    PACKAGE,
    Import,
    Source,
    graph_of_sources,
    import_graph,
    imports_of,
    nodes_of,
    read,
    sources,
)
from tools import build_architecture

HEAVY = ("torch", "onnx", "onnxruntime", "sympy", "z3")
CYCLES = [["closedform.language.compose", "closedform.language.schedule"]]
"""Methods such as ``Schedule.then`` call the functions of compose, which make schedules."""

# --- layers ------------------------------------------------------------------------------------


MOST_HEIGHTS = 12


# A file of exporters/ is named for a target: it imports the target's package and no other's.
TARGETS = ("onnx", "torch", "c", "jax", "mlx")

# --- banned names ------------------------------------------------------------------------------

# Dotted names after resolving imports; a last part alone (".parse_expr") bans it on any object.
BANNED_NAMES = {
    "eval": "builds code from text",
    "exec": "builds code from text",
    "builtins.eval": "builds code from text",
    "builtins.exec": "builds code from text",
    ".sympify": "evaluates strings; sympy.core.sympify._sympify refuses them",
    ".parse_expr": "evaluates strings",
    "yaml.load": "builds objects; drive a SafeLoader itself, or call yaml.safe_load",
    "yaml.load_all": "builds objects",
    "yaml.full_load": "builds objects",
    "yaml.unsafe_load": "builds objects",
}
# S.Half is a number, but S(x) is sympify(x).
BANNED_CALLS = {"sympy.S": "evaluates strings; write sp.Integer or sp.Rational"}
# Modules that read a clock, and the files that may import them: no decision depends on the machine.
CLOCKS = frozenset({"time", "datetime", "timeit"})
CLOCK_FILES = {
    "effort.py": "the limit of wall-clock time that a caller asks for, and times that are told",
    "importers/python/purity.py": "the types of datetime; a function that calls now() is refused",
}
# The one file that decides the package of a file of code, and names of paths that others compare.
CODE_FILES = "code_files.py"
CODE_PATHS = frozenset({"co_filename", "file_name", "__file__", "getfile", "getsourcefile"})
COMPARING_METHODS = frozenset(
    {"startswith", "endswith", "removeprefix", "partition", "split", "find", "match", "search"}
)
PACKAGE_FOLDERS = re.compile(
    r"site-packages|dist-packages|/(torch|jax|jaxlib|optax|numpy|sympy|closedform)/"
)
# A ball may have any exponent: FLINT ends the process where the fraction of one fills the memory.
FRACTIONS_OF_BALLS = frozenset({"unique_fmpz", "man_exp", "fmpq", "fmpz"})
FRACTION_FILES = {
    "language/balls.py": "measures the exponents first",
    "verify/checker/intervals.py": "so does the second checker, which shares no file with it",
}
BANNED_PACKAGES = frozenset({"pickle", "cloudpickle", "dill", "marshal", "shelve"})


Rule = Callable[[Source], list[str]]


# Each worker collects the tests of all files: names need no syntax trees, which take 5 s.
FOLDERS = sorted({path.parent for path in PACKAGE.rglob("*.py")})
PACKAGES = [".".join(("closedform", *path.relative_to(PACKAGE).parts)) for path in FOLDERS]


def import_aliases(source: Source) -> dict[str, str]:
    """The full names of the file's names: `sympy` for `sp`, `yaml.load` for `load`."""
    known: dict[str, str] = {}
    for node in nodes_of(source, ast.Import, ast.ImportFrom):
        match node:
            case ast.Import(names=names):
                known.update({alias.asname: alias.name for alias in names if alias.asname})
            case ast.ImportFrom(module=str(module), names=names):
                known.update({a.asname or a.name: f"{module}.{a.name}" for a in names})
    return known


@cache
def names_read(source: Source) -> tuple[tuple[str, int, bool], ...]:
    """Each name or attribute that is read, whole (`sympy.sympify`): line, and whether called."""
    known = import_aliases(source)
    called = {id(node.func) for node in nodes_of(source, ast.Call)}
    found = []
    names: Iterator[ast.Name | ast.Attribute] = itertools.chain(
        nodes_of(source, ast.Name), nodes_of(source, ast.Attribute)
    )
    for node in names:
        if isinstance(node.ctx, ast.Load):
            first, dot, rest = dotted(node).partition(".")
            found.append((known.get(first, first) + dot + rest, node.lineno, id(node) in called))
    return tuple(found)


def dotted(node: ast.expr) -> str:
    """A name with its attributes; of another expression only the attributes, `().x`."""
    parts = []
    while isinstance(node, ast.Attribute):
        parts.append(node.attr)
        node = node.value
    parts.append(node.id if isinstance(node, ast.Name) else "()")
    return ".".join(reversed(parts))


# --- the import graph --------------------------------------------------------------------------


def cycles(files: tuple[Source, ...]) -> list[list[str]]:
    """The strongly connected components of two files and more, largest first."""
    found = nx.strongly_connected_components(import_graph(files))
    return sorted((sorted(one) for one in found if len(one) > 1), key=len, reverse=True)


def test_import_cycles_are_those_that_are_explained() -> None:
    assert cycles(sources()) == CYCLES


def cycles_of_parts(graph: nx.DiGraph, package: str) -> list[list[str]]:
    """The cycles among the files and folders of a package, each folder taken as a whole.

    Two files of one folder may import each other, as everywhere.
    """
    parts = nx.DiGraph()
    depth = package.count(".") + 2
    for pair in graph.edges:
        if all(module.startswith(f"{package}.") for module in pair):
            importer, imported = (".".join(module.split(".")[:depth]) for module in pair)
            if importer != imported:
                parts.add_edge(importer, imported)
    cycles_in_package = [sorted(part) for part in nx.strongly_connected_components(parts)]
    return sorted(
        cycle for cycle in cycles_in_package if len(cycle) > (1 if has_folder(graph, cycle) else 2)
    )


def has_folder(graph: nx.DiGraph, parts: list[str]) -> bool:
    """Whether a part of a package has modules below it."""
    return any(module.startswith(f"{part}.") for module in graph for part in parts)


def test_the_picture_shows_the_imports() -> None:
    assert build_architecture.FILE.read_text("utf-8") == build_architecture.draw(), (
        "run `python -m tools architecture`"
    )


def test_there_are_at_most_twelve_heights() -> None:
    assert len({layer.height for layer in LAYERS.values()}) <= MOST_HEIGHTS


@pytest.mark.parametrize("package", PACKAGES)
def test_parts_of_a_package_have_no_cycle(package: str) -> None:
    assert cycles_of_parts(graph_of_sources(), package) == []


def test_a_cycle_of_folders_is_found(tmp_path: Path) -> None:
    texts = {
        "ir/a/x.py": "from closedform.ir.b.x import f",
        "ir/b/y.py": "from closedform.ir.a.y import f",
        "ir/c.py": "from closedform.ir.a.x import f",
        "ir/a/y.py": "",
        "ir/b/x.py": "",
    }
    graph = import_graph(tuple(plant(tmp_path, name, text) for name, text in texts.items()))
    assert cycles_of_parts(graph, "closedform.ir") == [["closedform.ir.a", "closedform.ir.b"]]


@pytest.mark.parametrize(
    "closing", ["import closedform.ir.a", "def f():\n    import closedform.ir.a"]
)
def test_a_cycle_is_found_through_imports_inside_functions(tmp_path: Path, closing: str) -> None:
    texts = {
        "ir/a.py": "from closedform.ir import b",
        "ir/b.py": "def f():\n    from closedform.ir.c import x",
        "ir/c.py": closing,
        "ir/d.py": "if TYPE_CHECKING:\n    import closedform.ir.e",
        "ir/e.py": "import closedform.ir.d",
    }
    files = tuple(plant(tmp_path, name, text) for name, text in texts.items())
    assert cycles(files) == [["closedform.ir.a", "closedform.ir.b", "closedform.ir.c"]]


# --- the rules: from a source to its violations ------------------------------------------------


def check_import(source: Source, found: Import) -> str | None:
    """The violation of one import, or None."""
    where = f"{source.name}:{found.line}: imports {found.module}"
    own = LAYERS[source.layer]
    if found.package == "closedform":
        other = LAYERS.get(found.layer)
        if found.is_typing or other == own:
            return None
        if other is not None and other.height < own.height:
            return None
        return f"{where}; imports go downward, and {source.layer} is not above {found.layer}"
    if found.package in sys.stdlib_module_names or found.package in own.packages:
        return None
    if found.is_typing and source.layer in ("delegation", "language"):
        return None
    return f"{where}; {source.layer} may not import this package"


def check_layers(source: Source) -> list[str]:
    if source.layer not in LAYERS:
        return [f"{source.name}: the layer {source.layer} has no row in LAYERS"]
    found = [check_import(source, one) for one in imports_of(source)]
    return list(dict.fromkeys(one for one in found if one))


def check_targets(source: Source) -> list[str]:
    """An exporter of one target imports neither the package nor the files of another."""
    target = source.name.removeprefix("exporters/").split("_")[0]
    if source.layer != "exporters" or target not in TARGETS:
        return []
    others = tuple(other for other in TARGETS if other != target)
    return list(
        dict.fromkeys(
            f"{source.name}:{found.line}: a file exports to one target, but it imports {other}"
            for found in imports_of(source)
            for other in others
            if found.package == other or found.module.startswith(f"closedform.exporters.{other}_")
        )
    )


def check_relative(source: Source) -> list[str]:
    return [
        f"{source.name}:{node.lineno}: a relative import; imports are absolute"
        for node in nodes_of(source, ast.ImportFrom)
        if node.level > 0
    ]


def check_stars(source: Source) -> list[str]:
    # The generated classes exist for type checkers only, which need their names in the module.
    return [
        f"{source.name}:{node.lineno}: a star import"
        for node in nodes_of(source, ast.ImportFrom)
        if any(alias.name == "*" for alias in node.names)
        and not str(node.module).startswith("closedform.torch.classes.")
    ]


def reason_for_ban(name: str, *, is_called: bool) -> str | None:
    if is_called and name in BANNED_CALLS:
        return BANNED_CALLS[name]
    return BANNED_NAMES.get(name) or BANNED_NAMES.get("." + name.split(".")[-1])


def check_banned(source: Source) -> list[str]:
    names = [
        f"{source.name}:{line}: {name} is banned: it {reason}"
        for name, line, is_called in names_read(source)
        if (reason := reason_for_ban(name, is_called=is_called))
    ]
    packages = [
        f"{source.name}:{found.line}: {found.package} is banned: it runs what it reads"
        for found in imports_of(source)
        if found.package in BANNED_PACKAGES
    ]
    return names + packages


def check_clock(source: Source) -> list[str]:
    if source.name in CLOCK_FILES:
        return []
    return [
        f"{source.name}:{found.line}: {found.package} reads a clock; count work with "
        "closedform.effort, or tell a time with its Watch"
        for found in imports_of(source)
        if found.package in CLOCKS
    ]


def check_fractions(source: Source) -> list[str]:
    if source.name in FRACTION_FILES:
        return []
    return [
        f"{source.name}:{node.lineno}: .{node.func.attr}() of a ball has no limit of digits; "
        "call language/balls.py"
        for node in nodes_of(source, ast.Call)
        if isinstance(node.func, ast.Attribute)
        and node.func.attr in FRACTIONS_OF_BALLS
        and not node.args
    ]


def check_print(source: Source) -> list[str]:
    if source.layer == "cli":
        return []
    return [
        f"{source.name}:{line}: print outside cli; return or raise instead"
        for name, line, _ in names_read(source)
        if name in {"print", "builtins.print", "rich.print"}
    ]


def check_assert(source: Source) -> list[str]:
    return [
        f"{source.name}:{node.lineno}: an assert statement; raise a kind of ClosedFormError, "
        "or end a match in assert_never"
        for node in nodes_of(source, ast.Assert)
    ]


def public_definitions(
    node: ast.Module | ast.ClassDef, prefix: str = ""
) -> Iterator[tuple[str, ast.ClassDef | ast.FunctionDef | ast.AsyncFunctionDef]]:
    """Classes and functions of a module, and methods of its classes, whose names are public."""
    for child in node.body:
        if not isinstance(child, ast.ClassDef | ast.FunctionDef | ast.AsyncFunctionDef):
            continue
        if child.name.startswith("_") or is_documented_elsewhere(child):
            continue
        yield prefix + child.name, child
        if isinstance(child, ast.ClassDef):
            yield from public_definitions(child, f"{prefix}{child.name}.")


def is_documented_elsewhere(node: ast.ClassDef | ast.FunctionDef | ast.AsyncFunctionDef) -> bool:
    """Overloads, overrides and setters share the docstring of their first definition.

    A section of a config is documented by its keys.
    """
    if isinstance(node, ast.ClassDef) and node.bases and not node.decorator_list:
        return all(isinstance(part, ast.AnnAssign | ast.Pass) for part in node.body)
    marks = {ast.unparse(mark).split(".")[-1] for mark in node.decorator_list}
    return bool(marks & {"overload", "override", "setter", "deleter"})


def check_docstrings(source: Source) -> list[str]:
    module = [] if ast.get_docstring(source.tree) else [f"{source.name}: no module docstring"]
    return module + [
        f"{source.name}:{node.lineno}: {name} has no docstring"
        for name, node in public_definitions(source.tree)
        if not ast.get_docstring(node)
    ]


def code_paths_read(node: ast.AST) -> bool:
    return any(
        isinstance(inner, ast.Attribute) and inner.attr in CODE_PATHS for inner in ast.walk(node)
    )


def names_of_code_paths(source: Source) -> set[str]:
    """The variables that the path of a code object is assigned to, not its place in a package."""
    return {
        target.id
        for node in nodes_of(source, ast.Assign)
        if code_paths_read(node.value) and ".parts_of(" not in ast.unparse(node.value)
        for target in node.targets
        if isinstance(target, ast.Name)
    }


def check_code_paths(source: Source) -> list[str]:
    """The package of a file of code is decided by `closedform.code_files`, not by its text."""
    if source.name == CODE_FILES:
        return []
    reads_paths = any(f".{name}" in source.text for name in CODE_PATHS)
    names = names_of_code_paths(source) if reads_paths else set()
    classes: tuple[type[ast.expr], ...] = (
        (ast.Constant, ast.Call, ast.Compare) if reads_paths else (ast.Constant,)
    )

    def is_path(node: ast.AST) -> bool:
        return code_paths_read(node) or any(
            isinstance(inner, ast.Name) and inner.id in names for inner in ast.walk(node)
        )

    lines = []
    for node in nodes_of(source, *classes):
        match node:
            case ast.Constant(value=str(text)) if PACKAGE_FOLDERS.search(text):
                lines.append(node.lineno)
            case ast.Call(func=ast.Attribute(value=value, attr=method)) if (
                method in COMPARING_METHODS and is_path(value)
            ):
                lines.append(node.lineno)
            case ast.Compare(ops=[ast.Eq() | ast.NotEq()]) if is_path(node):
                lines.append(node.lineno)
            case ast.Compare(ops=[ast.In() | ast.NotIn()], comparators=[container]) if is_path(
                container
            ):
                lines.append(node.lineno)
    return [
        f"{source.name}:{line}: the path of code is compared as text; ask closedform.code_files"
        for line in lines
    ]


RULES: tuple[Rule, ...] = (
    check_code_paths,
    check_layers,
    check_targets,
    check_relative,
    check_stars,
    check_banned,
    check_clock,
    check_fractions,
    check_print,
    check_assert,
    check_docstrings,
)


@pytest.mark.parametrize("rule", RULES, ids=lambda rule: rule.__name__)
def test_src_follows(rule: Rule) -> None:
    found = [violation for source in sources() for violation in rule(source)]
    assert not found, "\n" + "\n".join(found)


def test_every_layer_exists() -> None:
    assert {source.layer for source in sources()} == set(LAYERS)


def test_import_is_light() -> None:
    code = f"import sys, closedform; print([m for m in {HEAVY} if m in sys.modules])"
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True)
    assert done.stdout.strip() == "[]", f"import closedform loads {done.stdout.strip()}"


# --- the rules' own tests ----------------------------------------------------------------------

# (rule, file, text, part of the message). One row a clause.
VIOLATIONS: list[tuple[Rule, str, str, str]] = [
    (check_layers, "ir/a.py", "import sympy as sp", "a.py:1: imports sympy"),
    (check_layers, "ir/a.py", "from onnx import helper", "imports onnx;"),
    (check_layers, "ir/a.py", "def f():\n    import torch", "a.py:2: imports torch"),
    (check_layers, "ir/a.py", "if TYPE_CHECKING:\n    import sympy", "a.py:2: imports sympy"),
    (check_layers, "ir/a.py", "import_module('torch')", "imports torch"),
    (check_layers, "ir/a.py", "importlib.import_module('torch.nn')", "imports torch.nn"),
    (check_layers, "ir/a.py", "from closedform.language import t", "ir is not above language"),
    (check_layers, "ir/a.py", "from closedform import lowering", "ir is not above lowering"),
    (check_layers, "ir/a.py", "import closedform", "ir is not above __init__"),
    (check_layers, "ir/a.py", "from closedform import t", "ir is not above __init__"),
    (check_layers, "ir/passes/a.py", "import sympy.core", "imports sympy.core"),
    (check_layers, "language/a.py", "import numpy as np", "imports numpy"),
    (check_layers, "language/a.py", "from closedform.ir import ops", "not above ir"),
    (check_layers, "language/a.py", "def f():\n    import closedform.compiler", "above compiler"),
    (check_layers, "language/schedule.py", "def f():\n    import closedform.api", "above api"),
    (check_layers, "schedules/a.py", "import closedform.optimizers", "above optimizers"),
    (check_layers, "optimizers/a.py", "import closedform.transforms", "above transforms"),
    (check_layers, "errors.py", "import sympy", "imports sympy"),
    (check_layers, "lowering/a.py", "import onnx", "imports onnx"),
    (check_layers, "options.py", "import closedform.compiler", "above compiler"),
    (check_layers, "compiler.py", "def f():\n    import closedform.verify", "above verify"),
    (check_layers, "exporters/a.py", "def f():\n    import closedform.verify", "above verify"),
    (check_layers, "importers/a.py", "import closedform.verify.terms", "above verify"),
    (check_layers, "runtime/a.py", "def f():\n    import torch", "imports torch"),
    (check_layers, "verify/a.py", "import torch", "imports torch"),
    (check_layers, "verify/a.py", "import closedform.torch", "above torch"),
    (check_layers, "torch/a.py", "from closedform import cli", "above cli"),
    (check_layers, "__init__.py", "def f():\n    import closedform.cli", "above cli"),
    (check_layers, "cellar/a.py", "", "the layer cellar has no row"),
    (check_targets, "exporters/onnx_a.py", "import closedform.exporters.torch_ops", "target"),
    (check_targets, "exporters/torch_a.py", "from closedform.exporters import onnx_ops", "target"),
    (check_targets, "exporters/onnx_a.py", "def f():\n    import torch", "a.py:2: a file exports"),
    (check_code_paths, "ir/a.py", "x = '/torch/' in frame", "a.py:1: the path of code is compared"),
    (check_code_paths, "ir/a.py", "x = 'lib/site-packages'", "path of code"),
    (check_code_paths, "ir/a.py", "x = f.co_filename.startswith(a)", "path of code"),
    (check_code_paths, "ir/a.py", "x = f.f_code.co_filename == torch.__file__", "path of code"),
    (check_code_paths, "ir/a.py", "x = part in frame.file_name", "path of code"),
    (check_code_paths, "ir/a.py", "p = str(c.co_filename)\nx = p.partition('y')", "a.py:2: the"),
    (check_relative, "ir/a.py", "from . import ops", "a.py:1: a relative import"),
    (check_stars, "ir/a.py", "from math import *", "a.py:1: a star import"),
    (check_banned, "ir/a.py", "x = eval('1')", "a.py:1: eval is banned"),
    (check_banned, "ir/a.py", "exec('1')", "exec is banned"),
    (check_banned, "ir/a.py", "import builtins as b\nb.eval('1')", "builtins.eval is banned"),
    (check_banned, "ir/a.py", "list(map(eval, x))", "eval is banned"),
    (check_banned, "language/a.py", "import sympy as sp\nsp.sympify(x)", "a.py:2: sympy.sympify"),
    (check_banned, "language/a.py", "from sympy import sympify as s\ns(x)", "sympy.sympify is"),
    (check_banned, "language/a.py", "import sympy as sp\nsp.S('1/3')", "sympy.S is banned"),
    (check_banned, "language/a.py", "sympy.parsing.sympy_parser.parse_expr(x)", "parse_expr is"),
    (check_banned, "language/a.py", "parse_expr(x)", "parse_expr is banned"),
    (check_banned, "recipes/a.py", "import yaml\nyaml.load(x)", "yaml.load is banned"),
    (check_banned, "recipes/a.py", "from yaml import load\nload(x)", "yaml.load is banned"),
    (check_banned, "recipes/a.py", "import yaml as y\ny.unsafe_load(x)", "yaml.unsafe_load is"),
    (check_banned, "runtime/a.py", "import pickle\npickle.load(f)", "pickle is banned"),
    (check_banned, "runtime/a.py", "from pickle import load", "pickle is banned"),
    (check_clock, "verify/a.py", "import time\ntime.monotonic()", "a.py:1: time reads a clock"),
    (check_clock, "ir/a.py", "def f():\n    from time import perf_counter", "a.py:2: time reads"),
    (check_fractions, "verify/a.py", "x = value.mid().fmpq()", "a.py:1: .fmpq() of a ball"),
    (check_fractions, "laws/a.py", "x.unique_fmpz()", "a.py:1: .unique_fmpz() of a ball"),
    (check_clock, "api/c.py", "from datetime import datetime", "datetime reads a clock"),
    (check_print, "ir/a.py", "print(1)", "a.py:1: print outside cli"),
    (check_print, "ir/a.py", "from rich import print\nprint(1)", "a.py:2: print outside cli"),
    (check_assert, "ir/a.py", "def f(x):\n    assert x > 0", "a.py:2: an assert statement"),
    (check_docstrings, "ir/a.py", "x = 1", "ir/a.py: no module docstring"),
    (check_docstrings, "ir/a.py", "'''M.'''\ndef f(): ...", "a.py:2: f has no docstring"),
    (check_docstrings, "ir/a.py", "'''M.'''\nclass A: ...", "a.py:2: A has no docstring"),
    (check_docstrings, "ir/a.py", "'''M.'''\nclass A(B): x = 1", "a.py:2: A has no docstring"),
    (
        check_docstrings,
        "ir/a.py",
        "'''M.'''\nclass A:\n    '''A.'''\n    def f(self): ...",
        "a.py:4: A.f has no docstring",
    ),
]

# (file, text): no rule reports it.
ALLOWED = [
    ("frameworks/a.py", "'''M.'''\nclass A(kit.Section):\n    lr: kit.Rate"),
    ("verify/a.py", "from flint import fmpq\nx = fmpq()"),
    ("ir/a.py", "import numpy as np\nimport math\nfrom closedform.ir.ops import Op"),
    ("ir/a.py", "from closedform.errors import ClosedFormError\nfrom closedform import errors"),
    ("ir/a.py", "from typing import assert_never\ndef _f(x):\n    assert_never(x)"),
    ("ir/a.py", "# eval(x), print(x)\ns = 'sympify(x)'\ndef _f():\n    'Never calls exec(x).'"),
    ("ir/a.py", "def _f(): ...\nclass _A:\n    def f(self): ..."),
    ("ir/a.py", "def _f():\n    def g(): ...\n    return g"),
    ("ir/a.py", "class A:\n    'A.'\n    def __len__(self): ...\n    @overload\n    def f(): ..."),
    ("torch/a.py", "import torch\nfrom closedform.runtime.sessions import OptimizerSession"),
    ("torch/a.py", "def _f(model):\n    model.eval()"),
    ("language/a.py", "import sympy as sp\nclass _F(sp.Function):\n    def eval(cls, x): ..."),
    ("language/a.py", "import sympy as sp\nx = sp.Integer(1)\ny = sp.S.Half"),
    ("language/schedule.py", "if TYPE_CHECKING:\n    from closedform.verify.claims import Claim"),
    ("language/schedule.py", "if TYPE_CHECKING:\n    import numpy.typing as npt"),
    ("recipes/a.py", "import yaml\nyaml.safe_load(x)"),
    ("lowering/a.py", "import closedform.language\nimport closedform.ir\nimport sympy as sp"),
    ("exporters/onnx_a.py", "import onnx\nfrom closedform.exporters import onnx_ops"),
    ("exporters/torch_a.py", "import torch.nn\nfrom closedform.ir.graph import Graph"),
    (
        "api/onnx.py",
        "def _f():\n    from closedform.exporters import torch_module\n    import onnx",
    ),
    ("cli/a.py", "import closedform as cf\nimport rich\nprint(cf.cli)"),
    ("__main__.py", "from closedform.cli import main"),
    ("effort.py", "import time"),
    ("importers/a.py", "file = code.co_filename\nx = file in files_of('jax')\ns = f'{file}:1'"),
]


def plant(folder: Path, name: str, text: str) -> Source:
    path = folder / name
    path.parent.mkdir(parents=True, exist_ok=True)
    path.write_text(text, encoding="utf-8")
    return read(path, folder)


@pytest.mark.parametrize(("rule", "name", "text", "message"), VIOLATIONS)
def test_a_planted_violation_is_reported(
    tmp_path: Path, rule: Rule, name: str, text: str, message: str
) -> None:
    found = rule(plant(tmp_path, name, text))
    assert len(found) == 1, found
    assert message in found[0]


@pytest.mark.parametrize(("name", "text"), ALLOWED)
def test_allowed_code_is_not_reported(tmp_path: Path, name: str, text: str) -> None:
    source = plant(tmp_path, name, f"'''A module.'''\n{text}")
    assert list(itertools.chain.from_iterable(rule(source) for rule in RULES)) == []


def test_every_rule_has_a_planted_violation() -> None:
    assert {rule for rule, *_ in VIOLATIONS} == set(RULES)

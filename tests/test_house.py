"""The rules of the house, held by reading the syntax trees of src.

Each rule is a function from a `Source` to the faults it finds there; `FAULTS` plants one fault for
each rule and each clause of it, and `INNOCENT` shows what the rules must not mistake for one.
"""

import ast
import subprocess
import sys
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from functools import cache
from pathlib import Path

import pytest

PACKAGE = Path(__file__).parents[1] / "src" / "closedform"
HEAVY = ("torch", "onnx", "onnxruntime", "sympy")

# --- what each room may import ---------------------------------------------------------------

BASE = frozenset({"errors", "deprecation"})
AUTHORS = BASE | {"language"}
LIBRARY = AUTHORS | {"schedules", "optimizers", "transforms"}
COMPILER = AUTHORS | {"lowering", "ir", "exporters", "version"}
OUTER = {"plotting", "runtime", "torch", "training", "verify", "web"}
ALL_BUT_CLI = LIBRARY | COMPILER | {"recipes", "compiler", "importers", "model_files"} | OUTER
ARRAYS = frozenset({"numpy", "ml_dtypes"})
EXACT = frozenset({"sympy", "mpmath"})


@dataclass(frozen=True, slots=True)
class Room:
    """The rooms of the house and the packages from outside that a room may import."""

    rooms: frozenset[str]
    packages: frozenset[str] = frozenset()


# A room is a folder or a file of src/closedform. It may always import itself and the standard
# library. torch is in none of these rows but torch's own: see also EXPORTER_BACKENDS.
ROOMS = {
    "errors": Room(frozenset()),
    "deprecation": Room(frozenset()),
    "version": Room(frozenset()),
    "language": Room(BASE, frozenset({"sympy"})),
    "schedules": Room(AUTHORS, frozenset({"sympy"})),
    "optimizers": Room(AUTHORS, frozenset({"sympy"})),
    "transforms": Room(AUTHORS, frozenset({"sympy"})),
    "recipes": Room(LIBRARY, frozenset({"sympy", "yaml"})),
    "dialects": Room(BASE),
    "config": Room(BASE),
    "lowering": Room(AUTHORS | {"ir"}, EXACT | ARRAYS),
    "ir": Room(BASE, ARRAYS),
    "exporters": Room(BASE | {"ir"}, ARRAYS),
    "importers": Room(BASE | {"exporters", "ir"}, ARRAYS | {"onnx"}),
    "compiler": Room(COMPILER, EXACT | ARRAYS),
    "model_files": Room(COMPILER | {"compiler"}, EXACT | ARRAYS),
    "plotting": Room(AUTHORS, frozenset({"numpy", "sympy", "matplotlib"})),
    "runtime": Room(COMPILER | {"compiler", "model_files"}, ARRAYS | {"onnx", "onnxruntime"}),
    "torch": Room(
        COMPILER | {"compiler", "recipes", "runtime"}, ARRAYS | {"onnx", "sympy", "torch"}
    ),
    "training": Room(
        COMPILER | {"compiler", "runtime", "torch"},
        ARRAYS | {"onnx", "safetensors", "rich", "torch"},
    ),
    "web": Room(ALL_BUT_CLI - {"torch"}, frozenset({"sympy"})),
    "verify": Room(
        ALL_BUT_CLI - {"torch"}, EXACT | ARRAYS | {"flint", "z3", "onnx", "onnxruntime"}
    ),
    "cli": Room(
        ALL_BUT_CLI | {"cli", ""},
        EXACT
        | ARRAYS
        | {"typer", "click", "rich", "yaml", "matplotlib", "onnx", "onnxruntime", "safetensors"},
    ),
    "__init__": Room(ALL_BUT_CLI | {"deprecation"}, ARRAYS | {"sympy"}),
    "__main__": Room(frozenset({"cli"})),
}

# In exporters/, a file named for a backend imports that backend and no file of the other.
EXPORTER_BACKENDS = {"onnx": "torch", "torch": "onnx"}

# (file, import): why. Such an import stands inside a function or under TYPE_CHECKING, never at
# the top, so that the room below still loads without it.
LOCAL_IMPORTS = {
    ("language/schedule.py", "closedform.compiler"): "lr(t) evaluates the compiled graph",
    ("language/schedule.py", "closedform.verify"): "lr.verify()",
    ("language/schedule.py", "numpy"): "lr(np.arange(n)) takes and gives arrays",
    ("language/schedule.py", "closedform.plotting"): "lr.plot(), an extra",
    ("language/update_rule.py", "closedform.compiler"): "a rule shows and checks its graph",
    ("language/update_rule.py", "closedform.verify"): "rule.verify()",
    ("compiler.py", "onnx"): "to_onnx gives a ModelProto",
    ("compiler.py", "closedform.verify"): "to_onnx validates what it writes",
    ("compiler.py", "closedform.model_files"): "to_onnx writes the files of a rule",
    ("model_files.py", "onnx"): "write_rule gives ModelProtos",
    ("model_files.py", "closedform.verify"): "write_rule validates what it writes",
    ("compiler.py", "torch"): "to_torch gives an nn.Module, an extra",
    ("training/export.py", "torch"): "the model to trace is an nn.Module, an extra",
    ("training/export.py", "closedform.verify"): "export validates the update that it writes",
    ("training/export.py", "closedform.torch"): "torch traces the model; a session needs none",
}

# language and ir meet in lowering; these show the whole way or stand above it.
MEETING_ROOMS = frozenset(
    {
        "lowering",
        "compiler",
        "model_files",
        "runtime",
        "training",
        "verify",
        "web",
        "cli",
        "__init__",
    }
)

# --- what is banned everywhere ----------------------------------------------------------------

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
BANNED_PACKAGES = frozenset({"pickle", "cloudpickle", "dill", "marshal", "shelve"})


@dataclass(frozen=True, slots=True)
class Source:
    """A file of src, named by its path from the package: `ir/ops.py`."""

    name: str
    text: str
    tree: ast.Module

    @property
    def room(self) -> str:
        return self.name.split("/")[0].removesuffix(".py")


@dataclass(frozen=True, slots=True)
class Import:
    """One imported module, or name of a module: both `closedform.ir` and `closedform.ir.ops`."""

    module: str
    line: int
    is_deferred: bool  # inside a function, or under TYPE_CHECKING

    @property
    def package(self) -> str:
        return self.module.split(".")[0]

    @property
    def room(self) -> str:
        """The room of closedform that is meant; "" for the package's own public names."""
        return self.module.split(".")[1] if "." in self.module else ""


Rule = Callable[[Source], list[str]]


def read(path: Path, package: Path) -> Source:
    text = path.read_text(encoding="utf-8")
    return Source(path.relative_to(package).as_posix(), text, ast.parse(text, str(path)))


@cache
def house() -> tuple[Source, ...]:
    return tuple(read(path, PACKAGE) for path in sorted(PACKAGE.rglob("*.py")))


def is_type_checking(test: ast.expr) -> bool:
    return ast.unparse(test) in {"TYPE_CHECKING", "typing.TYPE_CHECKING"}


def with_deferral(node: ast.AST, *, deferred: bool = False) -> Iterator[tuple[ast.AST, bool]]:
    """All nodes below `node`, each with whether it runs later than the import of its file."""
    for child in ast.iter_child_nodes(node):
        is_function = isinstance(child, ast.FunctionDef | ast.AsyncFunctionDef | ast.Lambda)
        is_typing = isinstance(child, ast.If) and is_type_checking(child.test)
        inner = deferred or is_function or is_typing
        yield child, inner
        yield from with_deferral(child, deferred=inner)


def modules_of(node: ast.AST) -> list[str]:
    """The modules that one import statement or one call of import_module names."""
    match node:
        case ast.Import(names=names):
            return [alias.name for alias in names]
        case ast.ImportFrom(module="closedform", names=names, level=0):
            return [f"closedform.{a.name}" if a.name in ROOMS else "closedform" for a in names]
        case ast.ImportFrom(module=str(module), level=0):
            return [module]
        case ast.Call(
            func=ast.Name(id="import_module" | "__import__") | ast.Attribute(attr="import_module"),
            args=[ast.Constant(value=str(module)), *_],
        ):
            return [module]
        case _:
            return []


def imports_of(source: Source) -> list[Import]:
    return [
        Import(module, getattr(node, "lineno", 0), is_deferred)
        for node, is_deferred in with_deferral(source.tree)
        for module in modules_of(node)
    ]


def import_aliases(source: Source) -> dict[str, str]:
    """What a name of the file stands for: `sp` for `sympy`, `load` for `yaml.load`."""
    known: dict[str, str] = {}
    for node in ast.walk(source.tree):
        match node:
            case ast.Import(names=names):
                known.update({alias.asname: alias.name for alias in names if alias.asname})
            case ast.ImportFrom(module=str(module), names=names):
                known.update({a.asname or a.name: f"{module}.{a.name}" for a in names})
    return known


def names_read(source: Source) -> Iterator[tuple[str, int, bool]]:
    """Each name or attribute that is read, whole (`sympy.sympify`): line, and whether called."""
    known = import_aliases(source)
    called = {id(node.func) for node in ast.walk(source.tree) if isinstance(node, ast.Call)}
    for node in ast.walk(source.tree):
        if isinstance(node, ast.Name | ast.Attribute) and isinstance(node.ctx, ast.Load):
            first, dot, rest = ast.unparse(node).partition(".")
            yield known.get(first, first) + dot + rest, node.lineno, id(node) in called


# --- the rules: from a source to its faults --------------------------------------------------


def check_import(source: Source, found: Import) -> str | None:
    """What is wrong with one import by the table of rooms, or None."""
    where = f"{source.name}:{found.line}: imports {found.module}"
    for file, module in LOCAL_IMPORTS:
        if file == source.name and f"{found.module}.".startswith(f"{module}."):
            return None if found.is_deferred else f"{where} at the top; it must be local"
    allowed = ROOMS[source.room]
    if found.package == "closedform":
        is_known = found.room in allowed.rooms or (found.room and found.room == source.room)
        return None if is_known else f"{where}; {source.room} may not: data goes down the house"
    if found.package in sys.stdlib_module_names or found.package in allowed.packages:
        return None
    backend = source.name.removeprefix("exporters/").split("_")[0]
    if source.room == "exporters" and backend in EXPORTER_BACKENDS and found.package == backend:
        return None
    return f"{where}; {source.room} may not import this package"


def check_rooms(source: Source) -> list[str]:
    if source.room not in ROOMS:
        return [f"{source.name}: the room {source.room} has no row in ROOMS of test_house.py"]
    faults = [check_import(source, found) for found in imports_of(source)]
    return [fault for fault in faults if fault]


def check_backends(source: Source) -> list[str]:
    """An exporter of one backend imports no file of the other's."""
    backend = source.name.removeprefix("exporters/").split("_")[0]
    if source.room != "exporters" or backend not in EXPORTER_BACKENDS:
        return []
    other = f"closedform.exporters.{EXPORTER_BACKENDS[backend]}_"
    return [
        f"{source.name}:{node.lineno}: one backend a file, but it imports {other}*"
        for node in ast.walk(source.tree)
        if isinstance(node, ast.Import | ast.ImportFrom) and names_backend(node, other)
    ]


def names_backend(node: ast.Import | ast.ImportFrom, prefix: str) -> bool:
    parent = f"{node.module}." if isinstance(node, ast.ImportFrom) else ""
    names = [f"{parent}{alias.name}" for alias in node.names]
    return any(name.startswith(prefix) for name in names)


def check_meeting(source: Source) -> list[str]:
    rooms = {i.room: i.line for i in imports_of(source) if i.package == "closedform"}
    if source.room in MEETING_ROOMS | {"language", "ir"} or not {"language", "ir"} <= rooms.keys():
        return []
    return [
        f"{source.name}:{rooms['ir']}: imports language and ir together; only lowering may "
        "(and compiler.py, verify, cli)"
    ]


def check_relative(source: Source) -> list[str]:
    return [
        f"{source.name}:{node.lineno}: a relative import; imports are absolute"
        for node in ast.walk(source.tree)
        if isinstance(node, ast.ImportFrom) and node.level > 0
    ]


def check_stars(source: Source) -> list[str]:
    return [
        f"{source.name}:{node.lineno}: a star import"
        for node in ast.walk(source.tree)
        if isinstance(node, ast.ImportFrom) and any(alias.name == "*" for alias in node.names)
    ]


def reason_for_ban(name: str, *, is_called: bool) -> str | None:
    if is_called and name in BANNED_CALLS:
        return BANNED_CALLS[name]
    return BANNED_NAMES.get(name) or BANNED_NAMES.get("." + name.split(".")[-1])


def check_banned(source: Source) -> list[str]:
    faults = [
        f"{source.name}:{line}: {name} is banned: it {reason}"
        for name, line, is_called in names_read(source)
        if (reason := reason_for_ban(name, is_called=is_called))
    ]
    packages = [
        f"{source.name}:{found.line}: {found.package} is banned: it runs what it reads"
        for found in imports_of(source)
        if found.package in BANNED_PACKAGES
    ]
    return faults + packages


def check_print(source: Source) -> list[str]:
    if source.room == "cli":
        return []
    return [
        f"{source.name}:{line}: print outside cli; return or raise what is to be said"
        for name, line, _ in names_read(source)
        if name in {"print", "builtins.print", "rich.print"}
    ]


def check_assert(source: Source) -> list[str]:
    return [
        f"{source.name}:{node.lineno}: an assert statement; raise a kind of ClosedFormError, "
        "or end a match in assert_never"
        for node in ast.walk(source.tree)
        if isinstance(node, ast.Assert)
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
    """Overloads, overrides and setters say nothing that their first definition does not."""
    marks = {ast.unparse(mark).split(".")[-1] for mark in node.decorator_list}
    return bool(marks & {"overload", "override", "setter", "deleter"})


def check_docstrings(source: Source) -> list[str]:
    module = [] if ast.get_docstring(source.tree) else [f"{source.name}: no module docstring"]
    return module + [
        f"{source.name}:{node.lineno}: {name} has no docstring"
        for name, node in public_definitions(source.tree)
        if not ast.get_docstring(node)
    ]


RULES: tuple[Rule, ...] = (
    check_rooms,
    check_backends,
    check_meeting,
    check_relative,
    check_stars,
    check_banned,
    check_print,
    check_assert,
    check_docstrings,
)


@pytest.mark.parametrize("rule", RULES, ids=lambda rule: rule.__name__)
def test_house_keeps(rule: Rule) -> None:
    faults = [fault for source in house() for fault in rule(source)]
    assert not faults, "\n" + "\n".join(faults)


def test_import_is_light() -> None:
    code = f"import sys, closedform; print([m for m in {HEAVY} if m in sys.modules])"
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True)
    assert done.stdout.strip() == "[]", f"import closedform loads {done.stdout.strip()}"


def test_allowed_local_imports_have_reasons() -> None:
    assert all(reason for reason in LOCAL_IMPORTS.values())
    assert {file.split("/")[0].removesuffix(".py") for file, _ in LOCAL_IMPORTS} <= ROOMS.keys()


# --- the rules' own tests ---------------------------------------------------------------------

# (rule, file, text, what the fault must say). One row a clause.
FAULTS: list[tuple[Rule, str, str, str]] = [
    (check_rooms, "ir/a.py", "import sympy as sp", "a.py:1: imports sympy"),
    (check_rooms, "ir/a.py", "from onnx import helper", "imports onnx;"),
    (check_rooms, "ir/a.py", "import numpy, onnxruntime", "imports onnxruntime"),
    (check_rooms, "ir/a.py", "def f():\n    import torch", "a.py:2: imports torch"),
    (check_rooms, "ir/a.py", "from closedform.language import t", "imports closedform.language"),
    (check_rooms, "ir/a.py", "from closedform import lowering", "imports closedform.lowering"),
    (check_rooms, "ir/a.py", "import closedform", "imports closedform;"),
    (check_rooms, "ir/a.py", "from closedform import t", "imports closedform;"),
    (check_rooms, "ir/a.py", "if TYPE_CHECKING:\n    import sympy", "a.py:2: imports sympy"),
    (check_rooms, "ir/a.py", "import_module('torch')", "imports torch"),
    (check_rooms, "ir/a.py", "importlib.import_module('torch.nn')", "imports torch.nn"),
    (check_rooms, "ir/passes/a.py", "import sympy.core", "imports sympy.core"),
    (check_rooms, "language/a.py", "import numpy as np", "imports numpy"),
    (check_rooms, "language/a.py", "from closedform.ir import ops", "imports closedform.ir"),
    (check_rooms, "language/a.py", "from closedform.schedules import linear", "schedules"),
    (check_rooms, "language/a.py", "def f():\n    import closedform.compiler", "compiler"),
    (check_rooms, "language/schedule.py", "import closedform.compiler", "must be local"),
    (check_rooms, "language/schedule.py", "def f():\n    import closedform.ir", "closedform.ir"),
    (check_rooms, "schedules/a.py", "import numpy", "imports numpy"),
    (check_rooms, "schedules/a.py", "import closedform.optimizers", "imports"),
    (check_rooms, "optimizers/a.py", "import closedform.lowering", "imports"),
    (check_rooms, "transforms/a.py", "import closedform.ir.ops", "imports closedform.ir.ops"),
    (check_rooms, "recipes/a.py", "import torch", "imports torch"),
    (check_rooms, "recipes/a.py", "import numpy", "imports numpy"),
    (check_rooms, "config.py", "import torch", "imports torch"),
    (check_rooms, "errors.py", "import sympy", "imports sympy"),
    (check_rooms, "lowering/a.py", "import onnx", "imports onnx"),
    (check_rooms, "exporters/a.py", "import onnx", "imports onnx"),
    (check_rooms, "exporters/onnx_a.py", "import torch", "imports torch"),
    (check_rooms, "exporters/onnx_a.py", "import closedform.language", "closedform.language"),
    (check_rooms, "exporters/torch_a.py", "import onnx", "imports onnx"),
    (check_rooms, "runtime/a.py", "def f():\n    import torch", "imports torch"),
    (check_rooms, "compiler.py", "import torch", "must be local"),
    (check_rooms, "verify/a.py", "import torch", "imports torch"),
    (check_rooms, "verify/a.py", "import closedform.torch", "imports closedform.torch"),
    (check_rooms, "verify/a.py", "import closedform.cli.main", "imports closedform.cli"),
    (check_rooms, "torch/a.py", "from closedform import cli", "imports closedform.cli"),
    (check_rooms, "__init__.py", "def f():\n    import closedform.cli", "closedform.cli"),
    (check_rooms, "cellar/a.py", "", "the room cellar has no row"),
    (check_backends, "exporters/onnx_a.py", "import closedform.exporters.torch_ops", "backend"),
    (check_backends, "exporters/torch_a.py", "from closedform.exporters import onnx_ops", "back"),
    (check_backends, "exporters/torch_a.py", "from closedform.exporters.onnx_ops import X", "one"),
    (
        check_meeting,
        "torch/a.py",
        "import closedform.language\nimport closedform.ir.ops",
        "a.py:2: imports language and ir together",
    ),
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
    (check_banned, "config.py", "import yaml\nyaml.load(x)", "yaml.load is banned"),
    (check_banned, "config.py", "from yaml import load\nload(x)", "yaml.load is banned"),
    (check_banned, "config.py", "import yaml as y\ny.unsafe_load(x)", "yaml.unsafe_load is"),
    (check_banned, "runtime/a.py", "import pickle\npickle.load(f)", "pickle is banned"),
    (check_banned, "runtime/a.py", "from pickle import load", "pickle is banned"),
    (check_print, "ir/a.py", "print(1)", "a.py:1: print outside cli"),
    (check_print, "ir/a.py", "from rich import print\nprint(1)", "a.py:2: print outside cli"),
    (check_assert, "ir/a.py", "def f(x):\n    assert x > 0", "a.py:2: an assert statement"),
    (check_docstrings, "ir/a.py", "x = 1", "ir/a.py: no module docstring"),
    (check_docstrings, "ir/a.py", "'''M.'''\ndef f(): ...", "a.py:2: f has no docstring"),
    (check_docstrings, "ir/a.py", "'''M.'''\nclass A: ...", "a.py:2: A has no docstring"),
    (
        check_docstrings,
        "ir/a.py",
        "'''M.'''\nclass A:\n    '''A.'''\n    def f(self): ...",
        "a.py:4: A.f has no docstring",
    ),
]

# (file, text): no rule reports it.
INNOCENT = [
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
    ("language/schedule.py", "def _f():\n    from closedform.compiler import compile_schedule"),
    ("language/schedule.py", "if TYPE_CHECKING:\n    import numpy.typing as npt"),
    ("recipes/a.py", "import yaml\nyaml.safe_load(x)"),
    ("lowering/a.py", "import closedform.language\nimport closedform.ir\nimport sympy as sp"),
    ("exporters/onnx_a.py", "import onnx\nfrom closedform.exporters import onnx_ops"),
    ("exporters/torch_a.py", "import torch.nn\nfrom closedform.ir.graph import Graph"),
    (
        "compiler.py",
        "def _f():\n    from closedform.exporters import torch_module\n    import torch",
    ),
    ("cli/a.py", "import closedform as cf\nimport typer\nprint(cf.cli)"),
    ("__main__.py", "from closedform.cli import main"),
]


def plant(folder: Path, name: str, text: str) -> Source:
    path = folder / name
    path.parent.mkdir(parents=True, exist_ok=True)
    path.write_text(text, encoding="utf-8")
    return read(path, folder)


@pytest.mark.parametrize(("rule", "name", "text", "message"), FAULTS)
def test_planted_fault_is_reported(
    tmp_path: Path, rule: Rule, name: str, text: str, message: str
) -> None:
    faults = rule(plant(tmp_path, name, text))
    assert len(faults) == 1, faults
    assert message in faults[0]


@pytest.mark.parametrize(("name", "text"), INNOCENT)
def test_innocent_source_is_not_reported(tmp_path: Path, name: str, text: str) -> None:
    source = plant(tmp_path, name, f"'''What it holds.'''\n{text}")
    assert [fault for rule in RULES for fault in rule(source)] == []


def test_every_rule_has_a_planted_fault() -> None:
    assert {rule for rule, *_ in FAULTS} == set(RULES)

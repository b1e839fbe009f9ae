"""The import graph of src/closedform: its files, their imports, and the layers they belong to.

``from closedform.ir import ops`` in ``language/a.py`` is the edge from ``closedform.language.a``
to ``closedform.ir.ops``. Imports inside functions count; those for type checkers do not.
"""

import ast
from collections import defaultdict
from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from functools import cache
from pathlib import Path
from typing import Any, TypeVar

import networkx as nx

PACKAGE = Path(__file__).parents[2] / "src" / "closedform"


ARRAYS = frozenset({"numpy", "ml_dtypes"})


EXACT = frozenset({"sympy", "mpmath"})


@dataclass(frozen=True, slots=True)
class Layer:
    """A folder or file of src/closedform: its height, its group, and the packages it may import.

    A layer imports layers of lower height, and its group: packages of one height that are not one
    group do not import each other.
    """

    height: int
    group: str
    packages: frozenset[str] = frozenset()


def in_order(*rows: Mapping[str, frozenset[str]]) -> dict[str, Layer]:
    """Layers from the lowest to the highest row; names joined by spaces are one group."""
    return {
        name: Layer(height, group, packages)
        for height, row in enumerate(rows)
        for group, packages in row.items()
        for name in group.split()
    }


# The standard library may be imported everywhere, torch only where it is named.
LAYERS = in_order(
    {
        "alignment code_files delegation deprecation docstrings effort errors files magnitude "
        "markup "
        "version": frozenset()
    },
    {"ir": ARRAYS, "language": EXACT | {"flint"}},
    {
        "expr": frozenset(),
        "optimizers": frozenset({"sympy"}),
        "options": frozenset(),
        "schedules": frozenset({"sympy"}),
    },
    {"lowering compiler": EXACT | ARRAYS | {"flint"}},
    {
        "exporters": ARRAYS | {"sympy", "onnx", "torch", "jax", "keras", "mlx", "optax"},
        "transforms": frozenset({"sympy"}),
    },
    {
        "importers": ARRAYS | {"jax", "onnx", "sympy", "torch"},
        # Logs of a million rows are arrays.
        "recipes frameworks scaling units": frozenset({"numpy", "sympy", "tensorboard", "yaml"}),
    },
    {"verify": EXACT | ARRAYS | {"flint", "z3", "onnx", "onnxruntime"}},
    {
        "analysis laws": ARRAYS | {"sympy", "flint", "yaml"},
        "referee": ARRAYS | {"sympy", "flint", "onnx", "onnxruntime"},
        "runtime": ARRAYS | {"onnx", "onnxruntime"},
    },
    {
        "plotting": frozenset({"numpy", "sympy", "matplotlib"}),
        "torch": ARRAYS | {"lightning", "onnx", "onnxscript", "sympy", "torch", "transformers"},
        "training": ARRAYS | {"onnx", "onnxscript", "rich", "safetensors", "sympy", "torch"},
    },
    {
        "api": ARRAYS | {"jax", "keras", "sympy", "onnx", "optax", "torch"},
        "web": frozenset({"sympy"}),
    },
    {"__init__": ARRAYS | {"sympy"}},
    {
        "cli __main__ pytest": EXACT
        | ARRAYS
        | {"rich", "yaml", "matplotlib", "onnx", "onnxruntime", "safetensors", "pytest"},
    },
)


@dataclass(frozen=True, slots=True)
class Source:
    """A file of src, named by its path from the package: `ir/ops.py`."""

    name: str
    text: str
    tree: ast.Module

    @property
    def layer(self) -> str:
        return self.name.split("/")[0].removesuffix(".py")

    @property
    def module(self) -> str:
        """Its dotted name, `closedform.ir.ops`; a package's is that of its `__init__`."""
        parts = ["closedform", *self.name.removesuffix(".py").split("/")]
        return ".".join(parts[:-1] if parts[-1] == "__init__" else parts)


@dataclass(frozen=True, slots=True)
class Import:
    """One imported module, or name of a module: both `closedform.ir` and `closedform.ir.ops`."""

    module: str
    line: int
    is_typing: bool  # under TYPE_CHECKING

    @property
    def package(self) -> str:
        return self.module.split(".")[0]

    @property
    def layer(self) -> str:
        """The layer of closedform that is imported; "" for the package's own public names."""
        return self.module.split(".")[1] if "." in self.module else "__init__"


def read(path: Path, package: Path) -> Source:
    text = path.read_text(encoding="utf-8")
    return Source(path.relative_to(package).as_posix(), text, ast.parse(text, str(path)))


@cache
def sources() -> tuple[Source, ...]:
    return tuple(read(path, PACKAGE) for path in sorted(PACKAGE.rglob("*.py")))


def is_type_checking(test: ast.expr) -> bool:
    match test:
        case ast.Name("TYPE_CHECKING") | ast.Attribute(ast.Name("typing"), "TYPE_CHECKING"):
            return True
    return False


Node = TypeVar("Node", bound=ast.AST)


@cache
def nodes_by_class(source: Source) -> Mapping[type[ast.AST], list[Any]]:
    """All nodes of a file, functions included, by their class: the rules share the one walk."""
    nodes = defaultdict(list)
    for node in ast.walk(source.tree):
        nodes[type(node)].append(node)
    return nodes


def nodes_of(source: Source, *classes: type[Node]) -> Iterator[Node]:
    """The nodes of a file that are of some classes, class by class."""
    for cls in classes:
        yield from nodes_by_class(source).get(cls, ())


def typing_nodes(source: Source) -> set[int]:
    """The ids of the nodes that TYPE_CHECKING guards."""
    return {
        id(node)
        for guard in nodes_of(source, ast.If)
        if is_type_checking(guard.test)
        for statement in guard.body
        for node in ast.walk(statement)
    }


def modules_of(node: ast.AST) -> list[str]:
    """The modules that one import statement or one call of import_module names."""
    match node:
        case ast.Import(names=names):
            return [alias.name for alias in names]
        case ast.ImportFrom(module="closedform", names=names, level=0):
            return [f"closedform.{a.name}" if a.name in LAYERS else "closedform" for a in names]
        case ast.ImportFrom(module=str(module), names=names, level=0):
            if module.startswith("closedform."):
                return [f"{module}.{alias.name}" for alias in names]
            return [module]
        case ast.Call(
            func=ast.Name(id="import_module" | "__import__") | ast.Attribute(attr="import_module"),
            args=[ast.Constant(value=str(module)), *_],
        ):
            return [module]
        case _:
            return []


@cache
def imports_of(source: Source) -> tuple[Import, ...]:
    typing = typing_nodes(source)
    nodes: Iterator[Any] = nodes_of(source, ast.Import, ast.ImportFrom, ast.Call)
    return tuple(
        Import(module, node.lineno, id(node) in typing)
        for node in nodes
        for module in modules_of(node)
    )


def import_graph(files: tuple[Source, ...]) -> nx.DiGraph:
    """Modules and their imports, those inside functions included, type checking left out."""
    by_module = {source.module: source for source in files}
    graph = nx.DiGraph()
    graph.add_nodes_from(by_module)
    for source in files:
        for found in imports_of(source):
            target = found.module
            while target not in by_module and "." in target:
                target = target.rpartition(".")[0]
            if target in by_module and target != source.module and not found.is_typing:
                graph.add_edge(source.module, target)
    return graph


@cache
def graph_of_sources() -> nx.DiGraph:
    return import_graph(sources())

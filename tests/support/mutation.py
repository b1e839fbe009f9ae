"""Planted faults: every small change of the code of a module, one at a time.

A mutant is a function of src with one node of its syntax tree changed: a comparison, an operator, a
constant, an op of a graph, the order of two arguments, a condition. It is planted by giving the
functions that stand for it the changed code object, so that tables and other modules that hold them
use it as well; leaving the block puts the old code back.
"""

import __future__

import ast
import contextlib
import copy
import gc
import signal
import sys
import warnings
from collections.abc import Iterator
from dataclasses import dataclass
from functools import cache
from pathlib import Path
from types import CodeType, FrameType, FunctionType, ModuleType
from typing import Any

COMPARISONS: dict[type[ast.cmpop], type[ast.cmpop]] = {
    ast.Lt: ast.LtE,
    ast.LtE: ast.Lt,
    ast.Gt: ast.GtE,
    ast.GtE: ast.Gt,
    ast.Eq: ast.NotEq,
    ast.NotEq: ast.Eq,
    ast.Is: ast.IsNot,
    ast.IsNot: ast.Is,
    ast.In: ast.NotIn,
    ast.NotIn: ast.In,
}
OPERATORS: dict[type[ast.operator], type[ast.operator]] = {
    ast.Add: ast.Sub,
    ast.Sub: ast.Add,
    ast.Mult: ast.Add,
    ast.Div: ast.Mult,
    ast.FloorDiv: ast.Mult,
    ast.Mod: ast.Mult,
}
GRAPH_OPS = {
    "ADD": "SUB",
    "SUB": "ADD",
    "MUL": "ADD",
    "DIV": "MUL",
    "NEG": "ABS",
    "ABS": "NEG",
    "MIN": "MAX",
    "MAX": "MIN",
    "FLOOR_DIV": "FLOOR_MOD",
    "FLOOR_MOD": "FLOOR_DIV",
    "FLOOR": "NEG",
    "SIN": "COS",
    "COS": "SIN",
    "EXP": "SQRT",
    "SQRT": "EXP",
    "LOG": "EXP",
    "LT": "LE",
    "LE": "LT",
    "AND": "OR",
    "OR": "AND",
}
SYMPY_NAMES = {
    "Lt": "Le",
    "Le": "Lt",
    "Gt": "Ge",
    "Ge": "Gt",
    "Eq": "Ne",
    "Ne": "Eq",
    "Min": "Max",
    "Max": "Min",
    "And": "Or",
    "Or": "And",
    "floor": "ceiling",
    "ceiling": "floor",
    "sin": "cos",
    "cos": "sin",
}


# First arguments that no other one can stand for: exchanged they raise at once.
CONTEXTS = ("low", "rewriter", "node", "self", "Op.", "table")


@dataclass(frozen=True, slots=True)
class Mutant:
    """One changed function.

    Attributes:
        module: The module it is in, and its file.
        function: Its name there, with the names around it.
        line: The line that is changed.
        what: The old text and the new one.
        place: The statement of the module, the node in it, and the variant of its change.
    """

    module: str
    path: str
    function: str
    line: int
    what: str
    place: tuple[int, int, int]

    def __str__(self) -> str:
        return f"{self.module}:{self.line} {self.function}: {self.what}"

    def code(self) -> CodeType:
        """The changed code of the function."""
        statement, number, variant = self.place
        tree = ast.parse(Path(self.path).read_text(encoding="utf-8"))
        node = next(n for i, n in enumerate(ast.walk(tree.body[statement])) if i == number)
        assert _change(node, variant)
        tree.body = [tree.body[statement]]
        flags = __future__.annotations.compiler_flag
        with warnings.catch_warnings():
            warnings.simplefilter("ignore", SyntaxWarning)  # `x is (literal)` may be a fault, too
            code = compile(tree, self.path, "exec", flags=flags)
        return _code_of(code, self.function, self.line)


class TooSlowError(Exception):
    """A block ran longer than it may: a mutant that does not end."""


@cache
def mutants_of(module: ModuleType) -> tuple[Mutant, ...]:
    """Returns every mutant of a module, in the order of its lines."""
    path = str(module.__file__)
    tree = ast.parse(Path(path).read_text(encoding="utf-8"))
    found = []
    for statement, top in enumerate(tree.body):
        if not isinstance(top, ast.FunctionDef | ast.ClassDef):
            continue
        owners = _owners(top)
        for number, node in enumerate(ast.walk(top)):
            owner = owners.get(id(node))
            if owner is None or not isinstance(node, CHANGED):
                continue
            for variant in (0, 1):
                changed = copy.deepcopy(node)
                if _change(changed, variant) and ast.unparse(changed) != ast.unparse(node):
                    what = f"{ast.unparse(node)} -> {ast.unparse(changed)}"
                    place = statement, number, variant
                    found.append(Mutant(module.__name__, path, owner, node.lineno, what, place))
    return tuple(sorted(found, key=lambda mutant: (mutant.line, mutant.what)))


def _owners(top: ast.AST) -> dict[int, str]:
    """The function whose body holds a node, by the id of the node; docstrings have none."""
    owners: dict[int, str] = {}

    def visit(node: ast.AST, names: tuple[str, ...], in_function: bool) -> None:
        if in_function:
            owners[id(node)] = ".".join(names)
        if isinstance(node, ast.FunctionDef):
            inner = (*names, *(("<locals>",) if in_function else ()), node.name)
            for part in node.body:
                if not (isinstance(part, ast.Expr) and isinstance(part.value, ast.Constant)):
                    visit(part, inner, True)
        elif isinstance(node, ast.ClassDef):
            for part in node.body:
                if isinstance(part, ast.FunctionDef):
                    visit(part, (*names, node.name), in_function)
        elif isinstance(node, ast.AnnAssign):
            if node.value is not None:
                visit(node.value, names, in_function)
        else:
            for child in ast.iter_child_nodes(node):
                visit(child, names, in_function)

    visit(top, (), False)
    return owners


CHANGED = (
    ast.Compare,
    ast.BinOp,
    ast.UnaryOp,
    ast.BoolOp,
    ast.Constant,
    ast.Attribute,
    ast.IfExp,
    ast.Call,
)
"""The nodes of which `_change` has a variant: only those are copied."""


def _change(node: ast.AST, variant: int) -> bool:
    """Changes a node in place; False if it has no such variant."""
    match node:
        case ast.Compare(ops=[op, *_]) if variant == 0 and type(op) in COMPARISONS:
            node.ops[0] = COMPARISONS[type(op)]()
        case ast.BinOp(op=op) if variant == 0 and type(op) in OPERATORS:
            node.op = OPERATORS[type(op)]()
        case ast.UnaryOp(op=ast.USub()) if variant == 0:
            node.op = ast.UAdd()
        case ast.BoolOp() if variant == 0:
            node.op = ast.Or() if isinstance(node.op, ast.And) else ast.And()
        case ast.Constant(value=bool()) if variant == 0:
            node.value = not node.value
        case ast.Constant(value=int()) if variant < 2:
            node.value = int(node.value) + (1, -1)[variant]  # type: ignore[arg-type]
        case ast.Attribute(value=ast.Name(id="Op"), attr=name) if variant == 0:
            node.attr = GRAPH_OPS.get(name, name)
        case ast.Attribute(value=ast.Name(id="sp"), attr=name) if variant == 0:
            node.attr = SYMPY_NAMES.get(name, name)
        case ast.IfExp() if variant == 0:
            node.body, node.orelse = node.orelse, node.body
        case ast.Call(args=args) if variant < 2 and len(args) > 1 + variant:
            first = -2 if variant == 0 else 0
            if ast.unparse(args[first]).startswith(CONTEXTS):
                return False
            args[first], args[first + 1] = args[first + 1], args[first]
        case _:
            return False
    return True


def _code_of(code: CodeType, name: str, line: int) -> CodeType:
    """The code object of a qualified name that holds a line, in that of a module."""
    pending, found = [code], []
    while pending:
        current = pending.pop()
        if current.co_qualname == name and current.co_firstlineno <= line:
            found.append(current)
        pending += [constant for constant in current.co_consts if isinstance(constant, CodeType)]
    return max(found, key=lambda one: one.co_firstlineno)


def _functions(module: str) -> list[FunctionType]:
    """The functions of a module that exist now, also in tables and closures."""
    return [
        function
        for function in gc.get_objects()
        if type(function) is FunctionType  # isinstance would ask lazy proxies of other packages
        and function.__module__ == module
    ]


# The functions of a module and of its classes exist from its import on: one search finds them.
_lasting_functions = cache(_functions)


@contextlib.contextmanager
def planted(mutant: Mutant) -> Iterator[int]:
    """Plants a mutant; gives the number of functions that bear it."""
    code = mutant.code()
    is_local = "<locals>" in mutant.function
    functions = _functions(mutant.module) if is_local else _lasting_functions(mutant.module)
    bearers = [
        function
        for function in functions
        if function.__qualname__ == mutant.function
        and function.__code__.co_freevars == code.co_freevars
    ]
    old = [function.__code__ for function in bearers]
    for function in bearers:
        function.__code__ = code
    try:
        yield len(bearers)
    finally:
        for function, before in zip(bearers, old, strict=True):
            function.__code__ = before


@contextlib.contextmanager
def at_most(seconds: float) -> Iterator[None]:
    """Ends the block with TooSlowError after so many seconds; for the main thread."""

    def end(_: int, __: FrameType | None) -> None:
        raise TooSlowError

    before = signal.signal(signal.SIGALRM, end)
    signal.setitimer(signal.ITIMER_REAL, seconds)
    try:
        yield
    finally:
        signal.setitimer(signal.ITIMER_REAL, 0)
        signal.signal(signal.SIGALRM, before)


@contextlib.contextmanager
def lines_run(paths: set[str]) -> Iterator[set[tuple[str, int]]]:
    """Collects the lines of some files that are run in the block."""
    seen: set[tuple[str, int]] = set()

    def trace(frame: FrameType, event: str, _: Any) -> Any:
        if frame.f_code.co_filename not in paths:
            return None
        if event == "line":
            seen.add((frame.f_code.co_filename, frame.f_lineno))
        return trace

    before = sys.gettrace()
    sys.settrace(trace)
    try:
        yield seen
    finally:
        sys.settrace(before)

"""Python configs as syntax trees: assignments, literals and calls. Nothing is run.

Assignments to names, entries and arguments, and the methods of dicts and lists are modelled as
Python runs them, with objects that several names share. A statement that is not modelled leaves
open whatever it could change: the names that it binds, and the objects that it mentions. Code that
may change any name (``exec``, ``globals()``) is refused.
"""

from __future__ import annotations

import ast
import warnings
from collections.abc import Callable, Iterable, Mapping
from dataclasses import dataclass, field
from typing import Any

from closedform.errors import ConfigError
from closedform.recipes.documents.limits import MAX_NODES, TOO_LARGE
from closedform.recipes.documents.python.evaluator import Evaluator, FinalValues, unchanged
from closedform.recipes.documents.python.statements import StatementReader
from closedform.recipes.documents.values import Unresolved


@dataclass
class PythonText:
    """The statements of a module, read in their order.

    Attributes:
        tree: The module.
        names: Each name that is assigned, also dotted as in ``config.lr = 0.1``, with its last
            value; an import is a :class:`Reference`.
        expressions: The values of the statements that are an expression, and calls whose result is
            assigned to several names at once.
        convert: A reader's conversion of assigned values, such as of calls that it knows.
    """

    tree: ast.Module
    names: dict[str, Any] = field(default_factory=dict)
    expressions: list[Any] = field(default_factory=list)
    convert: Callable[[Any], Any] = unchanged


def parsed_python(text: str, source: str) -> PythonText:
    r"""Returns the assignments and expressions of a Python file.

    Raises:
        ConfigError: It is not Python, too large, or has code that may change any name.

    Example:
        >>> parsed_python("a = dict(lr=3 * 1e-4)\nSGD(a['lr'])", "<text>").expressions
        [ConfigCall(name='SGD', args=(0.00030000000000000003,), kwargs={}, scope='')]
    """
    try:
        with warnings.catch_warnings():
            # Python warns of escapes and numbers such as "\\d" and 1or, which it reads.
            warnings.simplefilter("ignore")
            tree = ast.parse(text)
    except (SyntaxError, ValueError, RecursionError, MemoryError) as error:
        raise ConfigError(f"this is not Python: {error}", where=source) from error
    # A value of one node, such as 0.1, takes several nodes of syntax: target, assignment, constant.
    if sum(1 for _ in ast.walk(tree)) > 10 * MAX_NODES:
        raise ConfigError(TOO_LARGE, where=source)
    module = PythonText(tree)
    _run(tree.body, module, source)
    return module


def run_function(module: PythonText, name: str, source: str) -> PythonText | None:
    """Returns the names of a function's body, called with its defaults; None without a function.

    An argument without a default is unresolved; ``return`` is the value that it returns.

    Args:
        module: The module.
        name: The function, or a method of a class: ``Exp.__init__``.
        source: The file, for errors.

    Raises:
        ConfigError: As :func:`parsed_python`.
    """
    definition = _definition(module, name)
    if not isinstance(definition, ast.FunctionDef):
        return None
    frame = PythonText(module.tree, dict(module.names), convert=module.convert)
    arguments = [*definition.args.posonlyargs, *definition.args.args]
    defaults = definition.args.defaults
    for index, argument in enumerate(arguments):
        # Defaults belong to the last arguments.
        place = index - len(arguments) + len(defaults)
        default = literal(defaults[place], module.names, source) if place >= 0 else None
        frame.names[argument.arg] = Unresolved(argument.arg) if place < 0 else default
    for argument in definition.args.kwonlyargs:
        frame.names[argument.arg] = Unresolved(argument.arg)
    # The class of a method is what runs now, so that a mention of it runs no other code.
    outer = [part for part in module.tree.body if getattr(part, "name", "") != name.split(".")[0]]
    _run(definition.body, frame, source, outer if "." in name else module.tree.body)
    return frame


def run_class(module: PythonText, name: str, source: str) -> PythonText | None:
    """Returns the names of a class's body, such as the fields of a dataclass; None without it.

    Raises:
        ConfigError: As :func:`parsed_python`.
    """
    definition = _definition(module, name)
    if not isinstance(definition, ast.ClassDef):
        return None
    body = PythonText(module.tree, dict(module.names), convert=module.convert)
    _run(definition.body, body, source, module.tree.body)
    return body


def defined_names(module: PythonText, name: str) -> frozenset[str]:
    """Returns the functions that a class defines, and its fields; empty without the class."""
    definition = _definition(module, name)
    if not isinstance(definition, ast.ClassDef):
        return frozenset()
    fields = (
        statement.target.id
        for statement in definition.body
        if isinstance(statement, ast.AnnAssign) and isinstance(statement.target, ast.Name)
    )
    functions = (part.name for part in definition.body if isinstance(part, ast.FunctionDef))
    return frozenset((*fields, *functions))


def imported_modules(module: PythonText) -> frozenset[str]:
    """Returns the modules from which the statements at the top import names."""
    return frozenset(
        statement.module
        for statement in module.tree.body
        if isinstance(statement, ast.ImportFrom) and statement.module is not None
    )


def _definition(module: PythonText, name: str) -> ast.stmt | None:
    """The last definition of a dotted name, unless an assignment hides it."""
    *outer, last = name.split(".")
    body = module.tree.body
    if name.partition(".")[0] in module.names:
        return None
    for part in outer:
        classes = [
            statement
            for statement in body
            if isinstance(statement, ast.ClassDef) and statement.name == part
        ]
        body = classes[-1].body if classes else []
    definitions = [
        statement
        for statement in body
        if isinstance(statement, ast.FunctionDef | ast.ClassDef) and statement.name == last
    ]
    return definitions[-1] if definitions else None


def literal(
    node: ast.expr, names: Mapping[str, Any], source: str = "<text>", depth: int = 0
) -> Any:
    """Returns the value of an expression.

    Numbers, texts, lists, dicts, ``dict(…)``, arithmetic, comparisons and known names are
    computed; a call of anything else is a :class:`Call`, the rest an :class:`Unresolved`.

    Args:
        node: The expression.
        names: The values of names, also of dotted ones.
        source: The file, for errors.
        depth: The depth of the expression in a larger one.

    Raises:
        ConfigError: It is nested too deeply, or computes too large a value.

    Example:
        >>> literal(ast.parse("[2 * n, f(n)]", mode="eval").body, {"n": 3})
        [6, ConfigCall(name='f', args=(3,), kwargs={}, scope='')]
    """
    return Evaluator(dict(names), source).value(node, depth)


def _run(
    body: list[ast.stmt], module: PythonText, source: str, outer: Iterable[ast.stmt] = ()
) -> None:
    """Reads statements into a module; each name has the value that it has at the end."""
    reader = StatementReader(module.names, source, module.convert)
    for statement in outer:
        if isinstance(statement, ast.FunctionDef | ast.AsyncFunctionDef | ast.ClassDef):
            # Functions around it: a call of one may change what it mentions.
            reader.definitions[statement.name] = statement
    try:
        reader.run(body)
        final = FinalValues(reader)
        names = {name: final.of_name(name) for name in module.names}
        module.expressions[:] = [final.value(value) for value in reader.expressions]
    except RecursionError as error:  # Python 3.12 parses what is nested more deeply
        raise ConfigError(TOO_LARGE, where=source) from error
    module.names.update(names)

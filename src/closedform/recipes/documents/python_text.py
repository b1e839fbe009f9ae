"""Python configs as syntax trees: assignments, literals and calls. Nothing is run.

Assignments to names, entries and arguments, and the methods of dicts and lists are modelled as
Python runs them, with objects that several names share. A statement that is not modelled leaves
open whatever it could change: the names that it binds, and the objects that it mentions. Code that
may change any name (``exec``, ``globals()``) is refused.
"""

from __future__ import annotations

import ast
import operator
import warnings
from collections.abc import Callable, Container, Iterable, Iterator, Mapping
from dataclasses import dataclass, field
from typing import Any

from closedform.errors import ConfigError
from closedform.recipes.documents.limits import MAX_DEPTH, MAX_NODES, TOO_LARGE, checked_keys
from closedform.recipes.documents.values import ConfigCall, Reference, Unresolved

# 2**10**9 would fill the memory; configs have numbers of tokens, below 64 bits.
MAX_BITS = 4096
"""The most binary digits of an integer that is computed."""

_BINARY: Mapping[type[ast.operator], Callable[[Any, Any], Any]] = {
    ast.Add: operator.add,
    ast.Sub: operator.sub,
    ast.Mult: operator.mul,
    ast.Div: operator.truediv,
    ast.FloorDiv: operator.floordiv,
    ast.Mod: operator.mod,
    ast.Pow: operator.pow,
}
_COMPARE: Mapping[type[ast.cmpop], Callable[[Any, Any], bool]] = {
    ast.Eq: operator.eq,
    ast.NotEq: operator.ne,
    ast.Lt: operator.lt,
    ast.LtE: operator.le,
    ast.Gt: operator.gt,
    ast.GtE: operator.ge,
    ast.Is: operator.is_,
    ast.IsNot: operator.is_not,
    ast.In: lambda value, items: value in items,
    ast.NotIn: lambda value, items: value not in items,
}
_FUNCTIONS: Mapping[str, Callable[..., Any]] = {
    "abs": abs,
    "bool": bool,
    "float": float,
    "int": int,
    "len": len,
    "max": max,
    "min": min,
    "round": round,
}
"""The functions that are computed where all their arguments are numbers."""
_PURE = frozenset(
    {*_FUNCTIONS, "dict", "format", "isinstance", "list", "print", "range", "repr"}
) | {
    "str",
    "tuple",
    "type",
}
"""Functions that change none of their arguments."""
_OPEN = frozenset(
    {"__import__", "__builtins__", "compile", "delattr", "eval", "exec", "globals", "locals"}
) | {"setattr", "vars"}
"""Names through which code may change any name."""
_OPEN_ATTRIBUTES = frozenset(
    {"__builtins__", "__dict__", "__globals__", "__import__", "_getframe", "currentframe", "exec"}
) | {"f_builtins", "f_globals", "f_locals", "globals", "locals", "modules", "setattr"}
_OPEN_MODULES = ("__main__", "builtins")
"""Attributes, such as ``sys.modules``, and modules through which code may change any name."""
_COPIES = ("copy.deepcopy", "deepcopy")
MAX_WORK = 20_000_000
"""The most visits of objects and names in the search for the effects of unknown code."""


def _identity(value: Any) -> Any:
    return value


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
    convert: Callable[[Any], Any] = _identity


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
    return _Interpreter(dict(names), source).value(node, depth)


def _run(
    body: list[ast.stmt], module: PythonText, source: str, outer: Iterable[ast.stmt] = ()
) -> None:
    """Reads statements into a module; each name has the value that it has at the end."""
    interpreter = _Interpreter(module.names, source, module.convert)
    for statement in outer:
        if isinstance(statement, ast.FunctionDef | ast.AsyncFunctionDef | ast.ClassDef):
            # Functions around it: a call of one may change what it mentions.
            interpreter.definitions[statement.name] = statement
    try:
        interpreter.run(body)
        final = _Final(interpreter)
        names = {name: final.of_name(name) for name in module.names}
        module.expressions[:] = [final.value(value) for value in interpreter.expressions]
    except RecursionError as error:  # Python 3.12 parses what is nested more deeply
        raise ConfigError(TOO_LARGE, where=source) from error
    module.names.update(names)


_Definition = ast.FunctionDef | ast.AsyncFunctionDef | ast.ClassDef | ast.Lambda


class _Interpreter:
    """The values of names while statements are read.

    Dicts and lists are objects that several names may share, as in Python; the arguments of a
    :class:`Call` are those that it was called with.

    Attributes:
        names: The values by name.
        source: The file, for errors.
        expressions: The values of the statements that are an expression.
        definitions: The functions and classes of the file.
    """

    def __init__(
        self,
        names: dict[str, Any],
        source: str,
        convert: Callable[[Any], Any] = _identity,
    ) -> None:
        self.names = names
        self.source = source
        self.convert = convert
        self.expressions: list[Any] = []
        self.definitions: dict[str, _Definition] = {}
        self.paths: dict[str, str] = {}  # of names that are an entry of an unknown object
        self.line = 0
        # After max = …, max(…) calls that.
        self._bound: set[str] = set()  # names that hide a builtin
        self._dotted: dict[str, set[str]] = {}  # dotted names by their first part
        for name in names:
            if "." in name:
                self._dotted.setdefault(name.partition(".")[0], set()).add(name)
        self._unknown: dict[int, tuple[Any, str]] = {}  # objects that may have changed, and why
        self._taken: dict[
            int, tuple[Any, list[ConfigCall]]
        ] = {}  # objects, and calls that have them
        self._hidden: dict[int, _Definition] = {}  # code that any statement may run
        self._work = 0

    # --- statements ------------------------------------------------------------------------------

    def run(self, body: Iterable[ast.stmt], depth: int = 0) -> bool:
        """Reads statements up to a ``return``, and returns whether there was one.

        Raises:
            ConfigError: A value is too large, the statements are nested too deeply, or code may
                change any name.
        """
        if depth > MAX_DEPTH:
            raise ConfigError(TOO_LARGE, where=self.source)
        for statement in body:
            self.line = statement.lineno
            # Lambdas and functions that were passed on may run at any later statement.
            self._disturb_hidden()
            if self._run_statement(statement, depth):
                return True
        return False

    def _run_statement(self, statement: ast.stmt, depth: int) -> bool:
        match statement:
            case ast.Assign(targets=targets, value=value):
                result = self.convert(self._evaluate(value))
                for target in targets:
                    self._assign(target, result, value)
                    if isinstance(target, ast.Tuple) and isinstance(result, ConfigCall):
                        self.expressions.append(result)
            case ast.AnnAssign(target=target, annotation=annotation, value=value):
                if value is not None:
                    self._assign(target, self.convert(self._evaluate(value)), value)
                self._disturb_annotation(annotation)
            case ast.AugAssign():
                self._augment(statement)
            case ast.Expr(value=value):
                self.expressions.append(self._evaluate(value))
            case ast.Import() | ast.ImportFrom():
                self._import(statement)
            case ast.If(test=test, body=body, orelse=orelse):
                condition = self._evaluate(test)
                if not _is_open(condition):
                    return self.run(body if condition else orelse, depth + 1)
                if _is_main(test) and not orelse:
                    # A config is imported; as a script, it is used here.
                    self._forget(_bindings(statement), statement)
                else:
                    self._disturb(statement)
            case ast.With(
                items=[ast.withitem(context_expr=context, optional_vars=None)], body=body
            ) if _is_read_base(context):
                return self.run(body, depth + 1)
            case ast.FunctionDef() | ast.AsyncFunctionDef() | ast.ClassDef():
                self._define(statement)
            case ast.Delete(targets=targets):
                for target in targets:
                    self._delete(target, statement)
            case ast.Return(value=value):
                self.names["return"] = None if value is None else self._evaluate(value)
                return True
            case ast.Pass():
                pass
            case _:
                self._disturb(statement)
        return False

    def _evaluate(self, node: ast.expr) -> Any:
        """The value of an expression of a statement; names that it binds are left open."""
        self._forget(_bindings(node), node)
        return self.value(node)

    def _import(self, statement: ast.Import | ast.ImportFrom) -> None:
        for alias in statement.names:
            package = statement.module if isinstance(statement, ast.ImportFrom) else alias.name
            # import builtins gives access to all names by attributes.
            if package in _OPEN_MODULES:
                raise self._open_error(package, statement.lineno)
            if isinstance(statement, ast.ImportFrom):
                name = f"{'.' * statement.level}{statement.module or ''}.{alias.name}"
                bound = alias.asname or alias.name
            else:
                name = alias.name if alias.asname else alias.name.partition(".")[0]
                bound = alias.asname or name
            if alias.name == "*":
                self._forget(tuple(self.names), statement)
            if isinstance(statement, ast.ImportFrom) or bound in self.names:
                self._bind(bound, Reference(name))
            self._bound.add(bound)
            self.definitions.pop(bound, None)

    def _define(self, statement: ast.FunctionDef | ast.AsyncFunctionDef | ast.ClassDef) -> None:
        name = statement.name
        if name in self.names:
            self._forget((name,), statement)
        self._bound.add(name)
        parts = [*statement.decorator_list]
        if isinstance(statement, ast.ClassDef):
            parts += [*statement.bases, *(keyword.value for keyword in statement.keywords)]
            self._disturb_body(statement, set())
        else:
            arguments = statement.args
            parts += [*arguments.defaults, *filter(None, arguments.kw_defaults)]
            for argument in (*arguments.posonlyargs, *arguments.args, *arguments.kwonlyargs):
                self._disturb_annotation(argument.annotation)
            for extra in (arguments.vararg, arguments.kwarg):
                self._disturb_annotation(None if extra is None else extra.annotation)
            self._disturb_annotation(statement.returns)
        for part in parts:
            self._evaluate(part)
        self.definitions[name] = statement
        if statement.decorator_list:
            self._hide(statement)

    def _augment(self, statement: ast.AugAssign) -> None:
        target = statement.target
        before = self.value(_as_expression(target))
        value = self._evaluate(statement.value)
        match before, statement.op, value:
            # In place, for all names that share the object.
            case list(), ast.Add(), list() | tuple():
                before.extend(value)
                self._check_length(before)
            case dict(), ast.BitOr(), dict():
                before.update(value)
            case list() | dict(), _, _:
                self._leave_open(before, statement)
        if isinstance(before, list | dict):
            self._leave_calls_open(before, statement)
            return
        result = _arithmetic(statement.op, before, value, _expression(statement), self.source)
        self._assign(target, result, statement.value)

    # --- assignments -----------------------------------------------------------------------------

    def _bind(self, name: str, value: Any) -> None:
        self.names[name] = value
        self._bound.add(name)
        self.definitions.pop(name, None)
        self.paths.pop(name, None)
        # A new value of cfg makes cfg.lr obsolete.
        for entry in self._dotted.pop(name, ()):
            self.names.pop(entry, None)

    def _assign(self, target: ast.expr, value: Any, node: ast.expr) -> None:
        match target:
            case ast.Name(id=name):
                self._bind(name, value)
                path = dotted_name(node)
                if path is not None and isinstance(value, Reference | Unresolved):
                    self.paths[name] = self._path(path)
                if isinstance(node, ast.Lambda):
                    self.definitions[name] = node
            case ast.Tuple(elts=items) | ast.List(elts=items):
                is_starred = any(isinstance(item, ast.Starred) for item in items)
                if is_starred or not isinstance(value, list | tuple) or len(value) != len(items):
                    for container in _containers(value):
                        self._leave_open(container, target)
                    self._forget(_bindings(target), target)
                    for item in items:
                        if not isinstance(item, ast.Name):
                            self._disturb(item)
                    return
                for item, part in zip(items, tuple(value), strict=True):
                    self._assign(item, part, item)
            case ast.Attribute(value=outer, attr=key):
                self._store(target, outer, key, value)
            case ast.Subscript(value=outer, slice=index):
                self._store(target, outer, self.value(index), value)
            case _:
                self._disturb(target)

    def _store(self, target: ast.expr, outer: ast.expr, key: Any, value: Any) -> None:
        """Sets an entry of an object, or an argument of a call."""
        owner, path = self.value(outer), dotted_name(outer)
        name = f"{path}.{key}" if path is not None and isinstance(key, str) else None
        if name is not None and name.partition(".")[0] in self.definitions:
            self._disturb(target)
            return
        if isinstance(owner, Reference | Unresolved) and name is not None:
            self._store_unknown(owner, name, value)
            return
        is_entry = isinstance(owner, dict) and _is_hashable(key)
        is_item = isinstance(owner, list) and isinstance(key, int)
        if isinstance(owner, ConfigCall) and isinstance(key, str):
            owner.kwargs[key] = value
        elif is_entry or (is_item and _has_item(owner, key)):
            owner[key] = value
        else:
            self._leave_open(owner, target)
            self._disturb(outer)
            return
        self._leave_calls_open(owner, target)
        if name is not None:
            self._set_dotted(name, value)

    def _set_dotted(self, name: str, value: Any) -> None:
        checked_keys(name, f"{self.source}, line {self.line}")
        self.names[name] = value
        self._dotted.setdefault(name.partition(".")[0], set()).add(name)

    def _path(self, name: str) -> str:
        """The name of an entry of an unknown object, by the first name of that object."""
        root, dot, rest = name.partition(".")
        return f"{self.paths.get(root, root)}{dot}{rest}"

    def _store_unknown(self, owner: Any, name: str, value: Any) -> None:
        """Sets an entry of an object that another file defines; others may have it, too."""
        path, root = self._path(name), name.partition(".")[0]
        self._set_dotted(name, value)
        # The loop below is quadratic over a file of assignments: it is paid from the same budget.
        self._spend(len(self.names))
        for entry_name, content in tuple(self.names.items()):
            if entry_name == name or entry_name.partition(".")[0] == root:
                continue
            shares = self._path(entry_name)
            is_same = content is owner or f"{path}.".startswith(f"{shares}.")
            if "." not in entry_name and isinstance(content, Reference | Unresolved) and is_same:
                self._forget((entry_name,), None)

    def _delete(self, target: ast.expr, statement: ast.stmt) -> None:
        if isinstance(target, ast.Name):
            self._bind(target.id, None)
            del self.names[target.id]
            return
        if isinstance(target, ast.Subscript):
            owner, key = self.value(target.value), self.value(target.slice)
            is_entry = isinstance(owner, dict) and _is_hashable(key) and key in owner
            is_item = isinstance(owner, list) and isinstance(key, int)
            if is_entry or (is_item and _has_item(owner, key)):
                del owner[key]
                self._leave_calls_open(owner, statement)
                return
        self._disturb(target)

    # --- possible changes ------------------------------------------------------------------------

    def _reason(self, name: str, node: ast.AST | None) -> str:
        line = getattr(node, "lineno", self.line)
        return f"{name}, which line {line} may change" + (f": {_text(node)}" if node else "")

    def _forget(self, names: Iterable[str], node: ast.AST | None) -> None:
        """Leaves the values of names open."""
        for name in names:
            self._bind(name, Unresolved(self._reason(name, node)))

    def _leave_open(self, value: Any, node: ast.AST | None) -> None:
        """Leaves an object open, and those in it."""
        for part in _parts(value):
            self._spend(1)
            if id(part) not in self._unknown and not isinstance(part, Unresolved):
                self._unknown[id(part)] = part, self._reason("its value", node)

    def _leave_calls_open(self, owner: Any, node: ast.AST) -> None:
        """Leaves the calls open that got an object before it changed: either value is possible."""
        _, calls = self._taken.get(id(owner), (owner, []))
        for call in calls:
            self._leave_open(call, node)

    def _spend(self, work: int) -> None:
        self._work += work
        if self._work > MAX_WORK:
            raise ConfigError(TOO_LARGE, where=f"{self.source}, line {self.line}")

    def _hide(self, definition: _Definition) -> None:
        """Remembers code that a statement may run from now on."""
        self._hidden[id(definition)] = definition
        self._disturb_body(definition, set())

    def _disturb_hidden(self) -> None:
        for definition in tuple(self._hidden.values()):
            self._disturb_body(definition, set())

    def _disturb_annotation(self, node: ast.expr | None) -> None:
        """An annotation is evaluated; most only name types."""
        if node is not None and any(
            isinstance(part, ast.Call | ast.NamedExpr) for part in ast.walk(node)
        ):
            self._disturb(node)

    def _disturb(self, node: ast.AST) -> None:
        """Leaves open what code could change that is run any number of times, or in part."""
        self._forget(_bindings(node), node)
        entries = [
            (part, root)
            for part in ast.walk(node)
            if isinstance(part, ast.Attribute | ast.Subscript) and isinstance(part.ctx, ast.Store)
            if (root := _root_of_entry(part)) is not None
        ]
        roots = {id(root) for _, root in entries}
        self._disturb_mentioned(node, node, set(), roots)
        for part, root in entries:
            key = part.attr if isinstance(part, ast.Attribute) else self.value(part.slice)
            self._store(part, part.value, key, Unresolved(self._reason(f"{root.id}.{key}", node)))

    def _disturb_body(self, definition: _Definition, seen_ids: set[int]) -> None:
        """The same of a function or class that may be called."""
        if id(definition) in seen_ids:
            return
        seen_ids.add(id(definition))
        for part in ast.walk(definition):
            if isinstance(part, ast.Global | ast.Nonlocal):
                self._forget(part.names, part)
        self._disturb_mentioned(definition, definition, seen_ids)

    def _disturb_mentioned(
        self,
        node: ast.AST,
        cause: ast.AST,
        seen_ids: set[int],
        roots: Container[int] = (),
    ) -> None:
        """Leaves the objects open that code mentions, except as the root of a known entry."""
        for part in ast.walk(node):
            self._spend(1)
            if isinstance(part, _Definition) and part is not node:
                self._hidden[id(part)] = part
            if isinstance(part, ast.Import | ast.ImportFrom | ast.Attribute):
                self._refuse_open(part)
            if not isinstance(part, ast.Name):
                continue
            self._refuse_open(part)
            if id(part) in roots:
                continue
            if part.id in self.definitions:
                self._disturb_body(self.definitions[part.id], seen_ids)
            value = self.names.get(part.id)
            self._leave_open(value, cause)
            for inner in _parts(value):
                self._leave_calls_open(inner, cause)
            for entry in self._dotted.get(part.id, ()):
                self.names[entry] = Unresolved(self._reason(entry, cause))

    def _refuse_open(self, node: ast.Name | ast.Attribute | ast.Import | ast.ImportFrom) -> None:
        """Refuses code that may change any name."""
        match node:
            # An assignment to such a name, as of a field of a dataclass, runs nothing.
            case ast.Name(id=name, ctx=ast.Load()) if name in _OPEN and name not in self._bound:
                raise self._open_error(name, node.lineno)
            case ast.Attribute(attr=name) if name in _OPEN_ATTRIBUTES:
                raise self._open_error(name, node.lineno)
            case ast.ImportFrom(module=str() as name) if name in _OPEN_MODULES:
                raise self._open_error(name, node.lineno)
            case ast.Import(names=aliases):
                for alias in aliases:
                    if alias.name in _OPEN_MODULES:
                        raise self._open_error(alias.name, node.lineno)

    def _open_error(self, name: str, line: int) -> ConfigError:
        return ConfigError(
            f"{name} may change any name, so that the file does not determine their values",
            where=f"{self.source}, line {line}",
            hint="write the values into the file",
        )

    def is_unknown(self, value: Any) -> str | None:
        """Returns why an object may have changed; None where its value is known."""
        entry = self._unknown.get(id(value))
        return None if entry is None else entry[1]

    def _unless_unknown(self, value: Any, node: ast.AST) -> Any:
        reason = self.is_unknown(value)
        return value if reason is None else Unresolved(f"{_text(node)} ({reason})")

    def _check_length(self, value: list[Any] | dict[Any, Any]) -> None:
        if len(value) > MAX_NODES:
            raise ConfigError(TOO_LARGE, where=f"{self.source}, line {self.line}")

    # --- expressions -----------------------------------------------------------------------------

    def value(self, node: ast.expr, depth: int = 0) -> Any:
        """Returns the value of an expression, after what it changes.

        Raises:
            ConfigError: It is nested too deeply, or computes too large a value.
        """
        if depth > MAX_DEPTH:
            line = getattr(node, "lineno", 0)
            raise ConfigError(TOO_LARGE, where=f"{self.source}, line {line}")

        def inner(part: ast.expr) -> Any:
            return self.value(part, depth + 1)

        return self._unless_unknown(self._value(node, inner, depth), node)

    def _value(self, node: ast.expr, inner: Callable[[ast.expr], Any], depth: int) -> Any:
        match node:
            case ast.Constant(value=value):
                is_plain = isinstance(value, int | float | str | None)
                return value if is_plain else Unresolved(_text(node))
            case ast.Tuple(elts=items) | ast.List(elts=items) | ast.Set(elts=items):
                if any(isinstance(item, ast.Starred) for item in items):
                    return self._left_open(node)
                parts = [inner(item) for item in items]
                return tuple(parts) if isinstance(node, ast.Tuple) else parts
            case ast.Dict(keys=keys, values=values):
                entries = _dict(keys, values, inner, node)
                return self._left_open(node) if isinstance(entries, Unresolved) else entries
            case ast.Name() | ast.Attribute():
                return self._name_value(node, inner)
            case ast.Subscript(value=value, slice=index):
                result = _item(inner(value), inner(index), node)
                return self._left_open(node) if isinstance(result, Unresolved) else result
            case ast.UnaryOp(op=op, operand=operand):
                return _unary(op, inner(operand), node)
            case ast.BinOp(left=left, op=op, right=right):
                operands = inner(left), inner(right)
                result = _arithmetic(op, *operands, node, self.source)
                is_open = isinstance(result, Unresolved)
                if is_open and any(isinstance(value, dict | list | tuple) for value in operands):
                    return self._left_open(node)
                return result
            case ast.Compare(left=left, ops=[op], comparators=[right]) if type(op) in _COMPARE:
                return self._compare(op, (inner(left), inner(right)), node)
            case ast.IfExp(test=test, body=body, orelse=other):
                condition = inner(test)
                if not _is_open(condition):
                    return inner(body if condition else other)
            case ast.BoolOp(op=op, values=values):
                return self._boolean(values, isinstance(op, ast.And), node, inner)
            case ast.Call():
                return self._call(node, inner)
            case ast.ListComp(elt=item, generators=[ast.comprehension() as generator]):
                return self._comprehension(item, generator, node, depth)
            case ast.JoinedStr():
                if not any(isinstance(part, ast.Call) for part in ast.walk(node)):
                    return Unresolved(_text(node))
        return self._left_open(node)

    def _compare(self, op: ast.cmpop, operands: tuple[Any, Any], node: ast.expr) -> Any:
        """A comparison of known values; ``is`` only with None, True or False."""
        is_identity = isinstance(op, ast.Is | ast.IsNot)
        # Whether equal numbers or strings are identical depends on the interpreter.
        if is_identity and not any(value is None or isinstance(value, bool) for value in operands):
            return Unresolved(_text(node))
        for part in _parts(operands):
            if _is_open(part) or self.is_unknown(part) is not None:
                return Unresolved(_text(node))
        return _compute(_COMPARE[type(op)], operands, node)

    def _left_open(self, node: ast.expr) -> Unresolved:
        """An unknown value, whose expression may have changed the objects that it mentions."""
        if dotted_name(node) is None:
            self._disturb(node)
        return Unresolved(_text(node))

    def _name_value(self, node: ast.Name | ast.Attribute, inner: Callable[[ast.expr], Any]) -> Any:
        name = dotted_name(node) or ""
        self._refuse_open(node)
        root = name.partition(".")[0]
        if root in self.definitions:
            self._hide(self.definitions[root])
        if root in _OPEN and root not in self._bound:
            raise self._open_error(root, node.lineno)
        if not name and isinstance(node, ast.Attribute):
            owner = inner(node.value)
            value = _entries(owner).get(node.attr) if isinstance(owner, ConfigCall | dict) else None
            return self._left_open(node) if value is None else value
        value = self._dotted_value(name)
        if value is not _MISSING:
            return value
        if isinstance(node, ast.Attribute):
            owner = inner(node.value)
            if isinstance(owner, dict | list) and hasattr(type(owner), node.attr):
                self._leave_open(owner, node)  # a method that may be called later
        return Unresolved(_text(node))

    def _dotted_value(self, name: str) -> Any:
        """The value of a dotted name, within dicts and calls, or as it was assigned."""
        outer, _, keys = name.partition(".")
        value = self.names.get(outer, _MISSING)
        for key in keys.split(".") if keys else ():
            if self.is_unknown(value) is not None:
                return value
            if not isinstance(value, dict | ConfigCall):
                return self.names.get(name, _MISSING)
            value = _entries(value).get(key, _MISSING)
        return value

    def _boolean(
        self, parts: list[ast.expr], is_and: bool, node: ast.expr, inner: Callable[[ast.expr], Any]
    ) -> Any:
        """The value of ``and`` or ``or``, if every operand up to the deciding one is known."""
        value: Any = None
        for part in parts:
            value = inner(part)
            if part is parts[-1]:
                break
            if _is_open(value):
                return self._left_open(node)
            if bool(value) is not is_and:
                break
        return value

    def _comprehension(
        self, item: ast.expr, generator: ast.comprehension, node: ast.expr, depth: int
    ) -> Any:
        items = self.value(generator.iter, depth + 1)
        is_short = isinstance(items, list | tuple) and len(items) <= MAX_DEPTH
        target = generator.target
        if not isinstance(target, ast.Name) or generator.ifs or generator.is_async or not is_short:
            return self._left_open(node)
        outer_names = {
            key: self.names[key] for key in self.names if key.partition(".")[0] == target.id
        }
        results = []
        for value in items:
            self._bind(target.id, value)
            results.append(self.value(item, depth + 1))
        self._bind(target.id, None)
        del self.names[target.id]
        self.names.update(outer_names)
        return results

    # --- calls -----------------------------------------------------------------------------------

    def _call(self, node: ast.Call, inner: Callable[[ast.expr], Any]) -> Any:
        if any(isinstance(argument, ast.Starred) for argument in node.args):
            return self._left_open(node)
        name = dotted_name(node.func) or _text(node.func)
        if isinstance(node.func, ast.Name):
            self._refuse_open(node.func)
        owner = self._owner(node.func, inner)
        args = tuple(inner(argument) for argument in node.args)
        kwargs: dict[str, Any] = {}
        for keyword in node.keywords:
            value = inner(keyword.value)
            if keyword.arg is not None:
                kwargs[keyword.arg] = value
            elif isinstance(value, dict):
                kwargs.update(value)
            else:
                return self._left_open(node)
        if isinstance(owner, dict | list) and isinstance(node.func, ast.Attribute):
            return self._method(owner, node.func.attr, args, kwargs, node)
        if name not in self._bound:
            result = self._builtin(name, args, kwargs, node)
            if result is not _MISSING:
                return result
        if name in _COPIES and len(args) == 1 and not kwargs:
            return _Final(self).value(args[0])
        return self._unknown_call(node, name, owner, args, kwargs)

    def _owner(self, function: ast.expr, inner: Callable[[ast.expr], Any]) -> Any:
        """The object that a method belongs to; None of a function."""
        if isinstance(function, ast.Attribute):
            return inner(function.value)
        if not isinstance(function, ast.Name):
            inner(function)
        return None

    def _builtin(
        self, name: str, args: tuple[Any, ...], kwargs: dict[str, Any], node: ast.Call
    ) -> Any:
        """The value of a function of Python; ``_MISSING`` where it is not known."""
        if name == "dict" and not args:
            return kwargs
        if name == "dict" and len(args) == 1 and isinstance(args[0], dict):
            return {**args[0], **kwargs}
        is_sequence = len(args) == 1 and not kwargs and isinstance(args[0], list | tuple)
        if name in ("list", "tuple") and is_sequence:
            return list(args[0]) if name == "list" else tuple(args[0])
        is_plain = all(isinstance(value, int | float) for value in args)
        if name in _FUNCTIONS and args and is_plain and not kwargs:
            return _compute(_FUNCTIONS[name], args, node)
        return (
            ConfigCall(name, args, kwargs)
            if name in _PURE - {"list", "tuple", "dict"}
            else _MISSING
        )

    def _method(
        self,
        owner: dict[Any, Any] | list[Any],
        method: str,
        args: tuple[Any, ...],
        kwargs: dict[str, Any],
        node: ast.Call,
    ) -> Any:
        """The value of a method of a dict or list, which changes it as in Python."""
        result: Any = None
        is_known = not kwargs and not any(_is_open(argument) for argument in args[:1])
        match owner, method, args:
            case dict(), "update", () | (dict(),):
                owner.update(*args, **kwargs)
            case dict(), "get" | "setdefault" | "pop", (key, *rest) if (
                is_known
                and _is_hashable(key)
                and len(rest) <= 1
                and (rest or key in owner or method == "get")
            ):
                if method == "setdefault":
                    result = owner.setdefault(key, *rest)
                else:
                    result = owner.get(key, *rest) if method == "get" else owner.pop(key, *rest)
            case dict() | list(), "copy", () if not kwargs:
                return owner.copy()
            case dict() | list(), "clear", () if not kwargs:
                owner.clear()
            case list(), "append", (item,) if not kwargs:
                owner.append(item)
            case list(), "extend", (list() | tuple() as items,) if not kwargs:
                owner.extend(items)
            case list(), "insert", (int() as place, item) if not kwargs:
                owner.insert(place, item)
            case list(), "pop", () | (int(),) if not kwargs and _has_item(owner, *args):
                result = owner.pop(*args)
            case list(), "reverse", () if not kwargs:
                owner.reverse()
            case _:
                self._disturb(node)
                self._leave_open(owner, node)
                return Unresolved(_text(node))
        self._check_length(owner)
        if method != "get":
            self._leave_calls_open(owner, node)
        return result

    def _unknown_call(
        self,
        node: ast.Call,
        name: str,
        owner: Any,
        args: tuple[Any, ...],
        kwargs: dict[str, Any],
    ) -> ConfigCall:
        """A call of a function that is not known, which may change dicts and lists that it gets.

        The object of a class, which is a call itself, is as it was constructed.
        """
        self._disturb_hidden()
        if name in self.definitions:
            self._hide(self.definitions[name])
            for argument in (*args, *kwargs.values()):
                self._leave_open(argument, node)
        for part in ast.walk(node):
            if isinstance(part, ast.Lambda):
                self._hide(part)
        # The arguments as they are now: later changes of a list are not the call's.
        final = _Final(self)
        call = ConfigCall(
            name,
            tuple(final.value(argument) for argument in args),
            {key: final.value(argument) for key, argument in kwargs.items()},
        )
        # A method may change the object that it is called on.
        if isinstance(owner, ConfigCall):
            self._unknown.setdefault(id(owner), (owner, self._reason("its value", node)))
        # detectron2's LazyCall makes a config of the call and runs nothing.
        if name.startswith(("L(", "LazyCall(")):
            return call
        for part in ast.walk(node):
            if isinstance(part, ast.Name):
                for entry in self._dotted.get(part.id, ()):
                    if not isinstance(self.names.get(part.id), ConfigCall | dict):
                        self.names[entry] = Unresolved(self._reason(entry, node))
        for argument in (*args, *kwargs.values()):
            for container in _containers(argument):
                self._leave_open(container, node)
                self._note_taken(container, call)
        for container in _containers([*call.args, *call.kwargs.values()]):
            self._note_taken(container, call)
        return call

    def _note_taken(self, container: Any, call: ConfigCall) -> None:
        self._taken.setdefault(id(container), (container, []))[1].append(call)


_MISSING = object()


class _Final:
    """Copies of values, with what may have changed left open.

    Raises:
        ConfigError: A value is too large, or contains itself.
    """

    def __init__(self, interpreter: _Interpreter) -> None:
        self.interpreter = interpreter
        self._sizes = 0
        self._active: set[int] = set()

    def of_name(self, name: str) -> Any:
        """Returns the value of a name, or of a dotted name where it has one."""
        root = self.interpreter.names.get(name.partition(".")[0])
        value = self.interpreter.names[name]
        if "." in name and isinstance(root, dict | ConfigCall):
            entry = self.interpreter._dotted_value(name)
            value = Unresolved(name) if entry is _MISSING else entry
        return self.value(value)

    def value(self, value: Any) -> Any:
        """Returns a copy of a value."""
        reason = self.interpreter.is_unknown(value)
        if reason is not None:
            return Unresolved(reason)
        if not isinstance(value, dict | list | tuple | ConfigCall):
            return value
        self._sizes += 1
        # a = []; a.append(a) contains itself.
        is_cycle = id(value) in self._active
        if self._sizes > MAX_NODES or len(self._active) > MAX_DEPTH or is_cycle:
            raise ConfigError(TOO_LARGE, where=self.interpreter.source)
        self._active.add(id(value))
        result: Any
        match value:
            case dict():
                result = {key: self.value(item) for key, item in value.items()}
            case list():
                result = [self.value(item) for item in value]
            case ConfigCall(name=name, args=args, kwargs=kwargs, scope=scope):
                inner = tuple(self.value(item) for item in args)
                keywords = {key: self.value(item) for key, item in kwargs.items()}
                result = ConfigCall(name, inner, keywords, scope)
            case _:
                result = tuple(self.value(item) for item in value)
        self._active.discard(id(value))
        return result


def _parts(value: Any) -> Iterator[Any]:
    """The mutable or unknown objects that a value reaches, itself included."""
    pending, seen_ids = [value], set()
    while pending:
        part = pending.pop()
        if id(part) in seen_ids:
            continue
        seen_ids.add(id(part))
        match part:
            case dict():
                pending.extend(part.values())
            case list() | tuple():
                pending.extend(part)
            case ConfigCall():
                pending.extend((*part.args, *part.kwargs.values()))
            case Reference() | Unresolved():
                pass
            case _:
                continue
        yield part


def _containers(value: Any) -> Iterator[Any]:
    """The dicts and lists that a value reaches, except through a call."""
    pending, seen_ids = [value], set()
    while pending:
        part = pending.pop()
        if id(part) in seen_ids or not isinstance(part, dict | list | tuple):
            continue
        seen_ids.add(id(part))
        pending.extend(part.values() if isinstance(part, dict) else part)
        if not isinstance(part, tuple):
            yield part


def _bindings(node: ast.AST) -> list[str]:
    """The names that code binds where it stands, in the order of its text."""
    names: list[str] = []
    pending: list[ast.AST] = [node]
    while pending:
        part = pending.pop()
        match part:
            case ast.Name(id=name, ctx=ast.Store() | ast.Del()):
                names.append(name)
            case (
                ast.FunctionDef(name=name)
                | ast.AsyncFunctionDef(name=name)
                | ast.ClassDef(name=name)
            ):
                names.append(name)
                pending.extend(part.decorator_list)
                continue
            case ast.Import(names=aliases) | ast.ImportFrom(names=aliases):
                names += [alias.asname or alias.name.partition(".")[0] for alias in aliases]
            case ast.ExceptHandler(name=str() as name):
                names.append(name)
            case ast.MatchAs(name=str() as name) | ast.MatchStar(name=str() as name):
                names.append(name)
            case ast.MatchMapping(rest=str() as name):
                names.append(name)
            # Its arguments are bound within it.
            case ast.Lambda():
                continue
            case ast.ListComp() | ast.SetComp() | ast.GeneratorExp() | ast.DictComp():
                # PEP 572: a walrus in a comprehension binds in the scope around it.
                walrus = (inner for inner in ast.walk(part) if isinstance(inner, ast.NamedExpr))
                names += [inner.target.id for inner in walrus]
                continue
        pending.extend(ast.iter_child_nodes(part))
    return names


def _root_of_entry(target: ast.Attribute | ast.Subscript) -> ast.Name | None:
    """The name ``a`` of ``a.b["c"].d``; None where a key is not written as a text."""
    outer: ast.expr = target
    while not isinstance(outer, ast.Name):
        match outer:
            case (
                ast.Attribute(value=inner)
                | ast.Subscript(value=inner, slice=ast.Constant(value=str()))
            ):
                outer = inner
            case _:
                return None
    return outer


def _is_main(test: ast.expr) -> bool:
    """Whether a condition is ``__name__ == "__main__"``."""
    return isinstance(test, ast.Compare) and _text(test) == "__name__ == '__main__'"


def _is_read_base(context: ast.expr) -> bool:
    """Whether a context is that of MMEngine, which its imports of other configs stand in."""
    if not isinstance(context, ast.Call) or context.args or context.keywords:
        return False
    return (dotted_name(context.func) or "").rpartition(".")[2] == "read_base"


def _is_hashable(key: Any) -> bool:
    try:
        hash(key)
    except TypeError:
        return False
    return not _is_open(key)


def _has_item(owner: list[Any], place: int = -1) -> bool:
    return -len(owner) <= place < len(owner)


def _expression(statement: ast.AugAssign) -> ast.expr:
    return ast.BinOp(left=_as_expression(statement.target), op=statement.op, right=statement.value)


def dotted_name(node: ast.expr) -> str | None:
    """Returns ``a.b.c`` of a name or attribute; None for another expression."""
    match node:
        case ast.Name(id=name):
            return name
        case ast.Attribute(value=value, attr=attribute):
            outer = dotted_name(value)
            return None if outer is None else f"{outer}.{attribute}"
    return None


def _text(node: ast.AST) -> str:
    text = " ".join(ast.unparse(node).split())
    return text if len(text) <= 80 else f"{text[:79]}…"


def _as_expression(target: ast.expr) -> ast.expr:
    return ast.parse(ast.unparse(target), mode="eval").body


def _entries(value: Any) -> Mapping[str, Any]:
    """The entries of a dict, or the arguments of a call; none of anything else."""
    if isinstance(value, ConfigCall):
        return value.kwargs
    return value if isinstance(value, dict) else {}


def _is_open(value: Any) -> bool:
    """Whether the truth of a value is not known."""
    return isinstance(value, Unresolved | ConfigCall | Reference)


def _dict(
    keys: list[ast.expr | None],
    values: list[ast.expr],
    inner: Callable[[ast.expr], Any],
    node: ast.expr,
) -> Any:
    result: dict[Any, Any] = {}
    for key, value in zip(keys, values, strict=True):
        name = None if key is None else inner(key)
        item = inner(value)
        # {**other} has no key.
        if key is None:
            if not isinstance(item, dict):
                return Unresolved(_text(node))
            result.update(item)
            continue
        if not isinstance(name, str | int | float | tuple):
            return Unresolved(_text(node))
        try:
            result[name] = item
        except TypeError:
            return Unresolved(_text(node))
    return result


def _item(value: Any, index: Any, node: ast.expr) -> Any:
    if isinstance(value, dict | list | tuple) and isinstance(index, str | int):
        try:
            return value[index]  # type: ignore[index]
        except (LookupError, TypeError):
            return Unresolved(_text(node))
    return Unresolved(_text(node))


def _unary(op: ast.unaryop, value: Any, node: ast.expr) -> Any:
    if isinstance(op, ast.Not) and not _is_open(value):
        return not value
    if isinstance(value, int | float) and isinstance(op, ast.USub | ast.UAdd):
        return -value if isinstance(op, ast.USub) else value
    return Unresolved(_text(node))


def _arithmetic(op: ast.operator, left: Any, right: Any, node: ast.expr, source: str) -> Any:
    if type(op) not in _BINARY:
        return Unresolved(_text(node))
    are_numbers = all(isinstance(value, int | float) for value in (left, right))
    is_sum = isinstance(op, ast.Add)
    is_concatenation = is_sum and type(left) is type(right) and isinstance(left, str | list | tuple)
    if not are_numbers and not is_concatenation:
        return Unresolved(_text(node))
    if is_concatenation and len(left) + len(right) > MAX_NODES:
        raise ConfigError(TOO_LARGE, where=source)
    if isinstance(op, ast.Pow) and _power_bits(left, right) > MAX_BITS:
        raise ConfigError(f"the power {_text(node)} is too large", where=source)
    return _compute(_BINARY[type(op)], (left, right), node)


def _power_bits(base: Any, exponent: Any) -> int:
    """About how many binary digits an integer power has; 0 for others."""
    if not isinstance(base, int) or not isinstance(exponent, int):
        return 0
    return abs(exponent) * max(1, abs(base)).bit_length()


def _compute(function: Callable[..., Any], arguments: tuple[Any, ...], node: ast.expr) -> Any:
    """The value of plain arguments; unresolved where Python raises an exception."""
    if any(isinstance(value, Unresolved | ConfigCall | Reference) for value in arguments):
        return Unresolved(_text(node))
    try:
        value = function(*arguments)
    # round(nan) raises ValueError, 1.0 // 0 and 10.0**400 an ArithmeticError.
    except (ArithmeticError, TypeError, ValueError):
        return Unresolved(_text(node))
    # Products of large integers grow without a power.
    is_large = isinstance(value, int) and value.bit_length() > MAX_BITS
    return Unresolved(_text(node)) if is_large or isinstance(value, complex) else value

"""Values of expressions of Python, with what unknown code may change left open."""

from __future__ import annotations

import ast
from collections.abc import Callable, Container, Iterable
from typing import Any

from closedform.errors import ConfigError
from closedform.recipes.documents.limits import MAX_DEPTH, MAX_NODES, TOO_LARGE, checked_keys
from closedform.recipes.documents.python.objects import reachable_containers, reachable_objects
from closedform.recipes.documents.python.operations import (
    COMPARISONS,
    COPIES,
    MISSING,
    OPEN_ATTRIBUTES,
    OPEN_MODULES,
    OPEN_NAMES,
    arithmetic_value,
    builtin_value,
    computed_value,
    dict_value,
    entries_of,
    has_item,
    is_hashable,
    is_open,
    item_value,
    method_value,
    unary_value,
)
from closedform.recipes.documents.python.syntax import (
    bound_names,
    dotted_name,
    root_of_entry,
    source_text,
)
from closedform.recipes.documents.values import ConfigCall, PythonValue, Reference, Unresolved

MAX_WORK = 20_000_000
"""The most visits of objects and names in the search for the effects of unknown code."""

Definition = ast.FunctionDef | ast.AsyncFunctionDef | ast.ClassDef | ast.Lambda


def unchanged(value: PythonValue) -> PythonValue:
    """Returns an assigned value as it is: no reader converts it."""
    return value


class Evaluator:
    """The values of names and expressions while statements are read.

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
        convert: Callable[[Any], Any] = unchanged,
    ) -> None:
        self.names = names
        self.source = source
        self.convert = convert
        self.expressions: list[Any] = []
        self.definitions: dict[str, Definition] = {}
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
        self._hidden: dict[int, Definition] = {}  # code that any statement may run
        self._work = 0

    def _bind(self, name: str, value: PythonValue) -> None:
        self.names[name] = value
        self._bound.add(name)
        self.definitions.pop(name, None)
        self.paths.pop(name, None)
        # A new value of cfg makes cfg.lr obsolete.
        for entry in self._dotted.pop(name, ()):
            self.names.pop(entry, None)

    def _store(
        self, target: ast.expr, outer: ast.expr, key: PythonValue, value: PythonValue
    ) -> None:
        """Sets an entry of an object, or an argument of a call."""
        owner, path = self.value(outer), dotted_name(outer)
        name = f"{path}.{key}" if path is not None and isinstance(key, str) else None
        if name is not None and name.partition(".")[0] in self.definitions:
            self._disturb(target)
            return
        if isinstance(owner, Reference | Unresolved) and name is not None:
            self._store_unknown(owner, name, value)
            return
        is_entry = isinstance(owner, dict) and is_hashable(key)
        is_item = isinstance(owner, list) and isinstance(key, int)
        if isinstance(owner, ConfigCall) and isinstance(key, str):
            owner.kwargs[key] = value
        elif is_entry or (is_item and has_item(owner, key)):
            owner[key] = value
        else:
            self._leave_open(owner, target)
            self._disturb(outer)
            return
        self._leave_calls_open(owner, target)
        if name is not None:
            self._set_dotted(name, value)

    def _set_dotted(self, name: str, value: PythonValue) -> None:
        checked_keys(name, f"{self.source}, line {self.line}")
        self.names[name] = value
        self._dotted.setdefault(name.partition(".")[0], set()).add(name)

    def _path(self, name: str) -> str:
        """The name of an entry of an unknown object, by the first name of that object."""
        root, dot, rest = name.partition(".")
        return f"{self.paths.get(root, root)}{dot}{rest}"

    def _store_unknown(self, owner: PythonValue, name: str, value: PythonValue) -> None:
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

    # --- possible changes ------------------------------------------------------------------------

    def _reason(self, name: str, node: ast.AST | None) -> str:
        line = getattr(node, "lineno", self.line)
        return f"{name}, which line {line} may change" + (f": {source_text(node)}" if node else "")

    def _forget(self, names: Iterable[str], node: ast.AST | None) -> None:
        """Leaves the values of names open."""
        for name in names:
            self._bind(name, Unresolved(self._reason(name, node)))

    def _leave_open(self, value: PythonValue, node: ast.AST | None) -> None:
        """Leaves an object open, and those in it."""
        for part in reachable_objects(value):
            self._spend(1)
            if id(part) not in self._unknown and not isinstance(part, Unresolved):
                self._unknown[id(part)] = part, self._reason("its value", node)

    def _leave_calls_open(self, owner: PythonValue, node: ast.AST) -> None:
        """Leaves the calls open that got an object before it changed: either value is possible."""
        _, calls = self._taken.get(id(owner), (owner, []))
        for call in calls:
            self._leave_open(call, node)

    def _spend(self, work: int) -> None:
        self._work += work
        if self._work > MAX_WORK:
            raise ConfigError(TOO_LARGE, where=f"{self.source}, line {self.line}")

    def _hide(self, definition: Definition) -> None:
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
        self._forget(bound_names(node), node)
        entries = [
            (part, root)
            for part in ast.walk(node)
            if isinstance(part, ast.Attribute | ast.Subscript) and isinstance(part.ctx, ast.Store)
            if (root := root_of_entry(part)) is not None
        ]
        roots = {id(root) for _, root in entries}
        self._disturb_mentioned(node, node, set(), roots)
        for part, root in entries:
            key = part.attr if isinstance(part, ast.Attribute) else self.value(part.slice)
            self._store(part, part.value, key, Unresolved(self._reason(f"{root.id}.{key}", node)))

    def _disturb_body(self, definition: Definition, seen_ids: set[int]) -> None:
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
            if isinstance(part, Definition) and part is not node:
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
            for inner in reachable_objects(value):
                self._leave_calls_open(inner, cause)
            for entry in self._dotted.get(part.id, ()):
                self.names[entry] = Unresolved(self._reason(entry, cause))

    def _refuse_open(self, node: ast.Name | ast.Attribute | ast.Import | ast.ImportFrom) -> None:
        """Refuses code that may change any name."""
        match node:
            # An assignment to such a name, as of a field of a dataclass, runs nothing.
            case ast.Name(id=name, ctx=ast.Load()) if (
                name in OPEN_NAMES and name not in self._bound
            ):
                raise self._open_error(name, node.lineno)
            case ast.Attribute(attr=name) if name in OPEN_ATTRIBUTES:
                raise self._open_error(name, node.lineno)
            case ast.ImportFrom(module=str() as name) if name in OPEN_MODULES:
                raise self._open_error(name, node.lineno)
            case ast.Import(names=aliases):
                for alias in aliases:
                    if alias.name in OPEN_MODULES:
                        raise self._open_error(alias.name, node.lineno)

    def _open_error(self, name: str, line: int) -> ConfigError:
        return ConfigError(
            f"{name} may change any name, so that the file does not determine their values",
            where=f"{self.source}, line {line}",
            hint="write the values into the file",
        )

    def is_unknown(self, value: PythonValue) -> str | None:
        """Returns why an object may have changed; None where its value is known."""
        entry = self._unknown.get(id(value))
        return None if entry is None else entry[1]

    def _unless_unknown(self, value: PythonValue, node: ast.AST) -> PythonValue:
        reason = self.is_unknown(value)
        return value if reason is None else Unresolved(f"{source_text(node)} ({reason})")

    def _check_length(self, value: list[Any] | dict[Any, Any]) -> None:
        if len(value) > MAX_NODES:
            raise ConfigError(TOO_LARGE, where=f"{self.source}, line {self.line}")

    # --- expressions -----------------------------------------------------------------------------

    def value(self, node: ast.expr, depth: int = 0) -> PythonValue:
        """Returns the value of an expression, after what it changes.

        Raises:
            ConfigError: It is nested too deeply, or computes too large a value.
        """
        if depth > MAX_DEPTH:
            line = getattr(node, "lineno", 0)
            raise ConfigError(TOO_LARGE, where=f"{self.source}, line {line}")

        def inner(part: ast.expr) -> PythonValue:
            return self.value(part, depth + 1)

        return self._unless_unknown(self._value(node, inner, depth), node)

    def _value(self, node: ast.expr, inner: Callable[[ast.expr], Any], depth: int) -> PythonValue:
        match node:
            case ast.Constant(value=value):
                is_plain = isinstance(value, int | float | str | None)
                return value if is_plain else Unresolved(source_text(node))
            case ast.Tuple(elts=items) | ast.List(elts=items) | ast.Set(elts=items):
                if any(isinstance(item, ast.Starred) for item in items):
                    return self._left_open(node)
                parts = [inner(item) for item in items]
                return tuple(parts) if isinstance(node, ast.Tuple) else parts
            case ast.Dict(keys=keys, values=values):
                entries = dict_value(keys, values, inner, node)
                return self._left_open(node) if isinstance(entries, Unresolved) else entries
            case ast.Name() | ast.Attribute():
                return self._name_value(node, inner)
            case ast.Subscript(value=value, slice=index):
                result = item_value(inner(value), inner(index), node)
                return self._left_open(node) if isinstance(result, Unresolved) else result
            case ast.UnaryOp(op=op, operand=operand):
                return unary_value(op, inner(operand), node)
            case ast.BinOp(left=left, op=op, right=right):
                operands = inner(left), inner(right)
                result = arithmetic_value(op, *operands, node, self.source)
                is_unresolved = isinstance(result, Unresolved)
                if is_unresolved and any(
                    isinstance(value, dict | list | tuple) for value in operands
                ):
                    return self._left_open(node)
                return result
            case ast.Compare(left=left, ops=[op], comparators=[right]) if type(op) in COMPARISONS:
                return self._compare(op, (inner(left), inner(right)), node)
            case ast.IfExp(test=test, body=body, orelse=other):
                condition = inner(test)
                if not is_open(condition):
                    return inner(body if condition else other)
            case ast.BoolOp(op=op, values=values):
                return self._boolean(values, isinstance(op, ast.And), node, inner)
            case ast.Call():
                return self._call(node, inner)
            case ast.ListComp(elt=item, generators=[ast.comprehension() as generator]):
                return self._comprehension(item, generator, node, depth)
            case ast.JoinedStr():
                if not any(isinstance(part, ast.Call) for part in ast.walk(node)):
                    return Unresolved(source_text(node))
        return self._left_open(node)

    def _compare(self, op: ast.cmpop, operands: tuple[Any, Any], node: ast.expr) -> PythonValue:
        """A comparison of known values; ``is`` only with None, True or False."""
        is_identity = isinstance(op, ast.Is | ast.IsNot)
        # Whether equal numbers or strings are identical depends on the interpreter.
        if is_identity and not any(value is None or isinstance(value, bool) for value in operands):
            return Unresolved(source_text(node))
        for part in reachable_objects(operands):
            if is_open(part) or self.is_unknown(part) is not None:
                return Unresolved(source_text(node))
        return computed_value(COMPARISONS[type(op)], operands, node)

    def _left_open(self, node: ast.expr) -> Unresolved:
        """An unknown value, whose expression may have changed the objects that it mentions."""
        if dotted_name(node) is None:
            self._disturb(node)
        return Unresolved(source_text(node))

    def _name_value(
        self, node: ast.Name | ast.Attribute, inner: Callable[[ast.expr], Any]
    ) -> PythonValue:
        name = dotted_name(node) or ""
        self._refuse_open(node)
        root = name.partition(".")[0]
        if root in self.definitions:
            self._hide(self.definitions[root])
        if root in OPEN_NAMES and root not in self._bound:
            raise self._open_error(root, node.lineno)
        if not name and isinstance(node, ast.Attribute):
            owner = inner(node.value)
            value = (
                entries_of(owner).get(node.attr) if isinstance(owner, ConfigCall | dict) else None
            )
            return self._left_open(node) if value is None else value
        value = self._dotted_value(name)
        if value is not MISSING:
            return value
        if isinstance(node, ast.Attribute):
            owner = inner(node.value)
            if isinstance(owner, dict | list) and hasattr(type(owner), node.attr):
                self._leave_open(owner, node)  # a method that may be called later
        return Unresolved(source_text(node))

    def _dotted_value(self, name: str) -> PythonValue:
        """The value of a dotted name, within dicts and calls, or as it was assigned."""
        outer, _, keys = name.partition(".")
        value = self.names.get(outer, MISSING)
        for key in keys.split(".") if keys else ():
            if self.is_unknown(value) is not None:
                return value
            if not isinstance(value, dict | ConfigCall):
                return self.names.get(name, MISSING)
            value = entries_of(value).get(key, MISSING)
        return value

    def _boolean(
        self, parts: list[ast.expr], is_and: bool, node: ast.expr, inner: Callable[[ast.expr], Any]
    ) -> PythonValue:
        """The value of ``and`` or ``or``, if every operand up to the deciding one is known."""
        value: PythonValue = None
        for part in parts:
            value = inner(part)
            if part is parts[-1]:
                break
            if is_open(value):
                return self._left_open(node)
            if bool(value) is not is_and:
                break
        return value

    def _comprehension(
        self, item: ast.expr, generator: ast.comprehension, node: ast.expr, depth: int
    ) -> PythonValue:
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

    def _call(self, node: ast.Call, inner: Callable[[ast.expr], Any]) -> PythonValue:
        if any(isinstance(argument, ast.Starred) for argument in node.args):
            return self._left_open(node)
        name = dotted_name(node.func) or source_text(node.func)
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
            result = builtin_value(name, args, kwargs, node)
            if result is not MISSING:
                return result
        if name in COPIES and len(args) == 1 and not kwargs:
            return FinalValues(self).value(args[0])
        return self._unknown_call(node, name, owner, args, kwargs)

    def _owner(self, function: ast.expr, inner: Callable[[ast.expr], Any]) -> PythonValue:
        """The object that a method belongs to; None of a function."""
        if isinstance(function, ast.Attribute):
            return inner(function.value)
        if not isinstance(function, ast.Name):
            inner(function)
        return None

    def _method(
        self,
        owner: dict[Any, Any] | list[Any],
        method: str,
        args: tuple[Any, ...],
        kwargs: dict[str, Any],
        node: ast.Call,
    ) -> PythonValue:
        """The value of a method of a dict or list, which changes it as in Python."""
        result = method_value(owner, method, args, kwargs)
        if result is MISSING:
            self._disturb(node)
            self._leave_open(owner, node)
            return Unresolved(source_text(node))
        self._check_length(owner)
        if method not in ("get", "copy"):
            self._leave_calls_open(owner, node)
        return result

    def _unknown_call(
        self,
        node: ast.Call,
        name: str,
        owner: PythonValue,
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
        final = FinalValues(self)
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
            for container in reachable_containers(argument):
                self._leave_open(container, node)
                self._note_taken(container, call)
        for container in reachable_containers([*call.args, *call.kwargs.values()]):
            self._note_taken(container, call)
        return call

    def _note_taken(self, container: PythonValue, call: ConfigCall) -> None:
        self._taken.setdefault(id(container), (container, []))[1].append(call)


class FinalValues:
    """Copies of values, with what may have changed left open.

    Raises:
        ConfigError: A value is too large, or contains itself.
    """

    def __init__(self, evaluator: Evaluator) -> None:
        self.evaluator = evaluator
        self._sizes = 0
        self._active: set[int] = set()

    def of_name(self, name: str) -> PythonValue:
        """Returns the value of a name, or of a dotted name where it has one."""
        root = self.evaluator.names.get(name.partition(".")[0])
        value = self.evaluator.names[name]
        if "." in name and isinstance(root, dict | ConfigCall):
            entry = self.evaluator._dotted_value(name)
            value = Unresolved(name) if entry is MISSING else entry
        return self.value(value)

    def value(self, value: PythonValue) -> PythonValue:
        """Returns a copy of a value."""
        reason = self.evaluator.is_unknown(value)
        if reason is not None:
            return Unresolved(reason)
        if not isinstance(value, dict | list | tuple | ConfigCall):
            return value
        self._sizes += 1
        # a = []; a.append(a) contains itself.
        is_cycle = id(value) in self._active
        if self._sizes > MAX_NODES or len(self._active) > MAX_DEPTH or is_cycle:
            raise ConfigError(TOO_LARGE, where=self.evaluator.source)
        self._active.add(id(value))
        result: PythonValue
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

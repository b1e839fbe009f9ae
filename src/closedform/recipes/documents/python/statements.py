"""Statements of Python, read in their order."""

from __future__ import annotations

import ast
from collections.abc import Iterable
from typing import Any

from closedform.errors import ConfigError
from closedform.recipes.documents.limits import MAX_DEPTH, TOO_LARGE
from closedform.recipes.documents.python.evaluator import Evaluator
from closedform.recipes.documents.python.objects import reachable_containers
from closedform.recipes.documents.python.operations import (
    OPEN_MODULES,
    arithmetic_value,
    has_item,
    is_hashable,
    is_open,
)
from closedform.recipes.documents.python.syntax import (
    as_expression,
    augmented_expression,
    bound_names,
    dotted_name,
    is_main,
    is_read_base,
)
from closedform.recipes.documents.values import ConfigCall, Reference, Unresolved


class StatementReader(Evaluator):
    """The names and expressions of statements that are read in their order."""

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
                if not is_open(condition):
                    return self.run(body if condition else orelse, depth + 1)
                if is_main(test) and not orelse:
                    # A config is imported; as a script, it is used here.
                    self._forget(bound_names(statement), statement)
                else:
                    self._disturb(statement)
            case ast.With(
                items=[ast.withitem(context_expr=context, optional_vars=None)], body=body
            ) if is_read_base(context):
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
        self._forget(bound_names(node), node)
        return self.value(node)

    def _import(self, statement: ast.Import | ast.ImportFrom) -> None:
        for alias in statement.names:
            package = statement.module if isinstance(statement, ast.ImportFrom) else alias.name
            # import builtins gives access to all names by attributes.
            if package in OPEN_MODULES:
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
        before = self.value(as_expression(target))
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
        result = arithmetic_value(
            statement.op, before, value, augmented_expression(statement), self.source
        )
        self._assign(target, result, statement.value)

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
                    for container in reachable_containers(value):
                        self._leave_open(container, target)
                    self._forget(bound_names(target), target)
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

    def _delete(self, target: ast.expr, statement: ast.stmt) -> None:
        if isinstance(target, ast.Name):
            self._bind(target.id, None)
            del self.names[target.id]
            return
        if isinstance(target, ast.Subscript):
            owner, key = self.value(target.value), self.value(target.slice)
            is_entry = isinstance(owner, dict) and is_hashable(key) and key in owner
            is_item = isinstance(owner, list) and isinstance(key, int)
            if is_entry or (is_item and has_item(owner, key)):
                del owner[key]
                self._leave_calls_open(owner, statement)
                return
        self._disturb(target)

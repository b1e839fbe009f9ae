"""Python configs as syntax trees: assignments, literals and calls, of which none is run."""

from __future__ import annotations

import ast
import operator
import warnings
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field, replace
from typing import Any

from closedform.errors import ConfigError
from closedform.recipes.documents.limits import MAX_DEPTH, MAX_NODES, TOO_LARGE
from closedform.recipes.documents.values import Call, Reference, Unresolved

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


def _unchanged(value: Any) -> Any:
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
        convert: What a reader makes of an assigned value, such as of a call that it knows.
    """

    tree: ast.Module
    names: dict[str, Any] = field(default_factory=dict)
    expressions: list[Any] = field(default_factory=list)
    convert: Callable[[Any], Any] = _unchanged


def parsed_python(text: str, source: str) -> PythonText:
    r"""Returns the assignments and expressions of a Python file.

    Raises:
        ConfigError: It is not Python, or too large.

    Example:
        >>> parsed_python("a = dict(lr=3 * 1e-4)\nSGD(a['lr'])", "<text>").expressions
        [Call(name='SGD', args=(0.00030000000000000003,), kwargs={}, scope='')]
    """
    try:
        with warnings.catch_warnings():
            # Python warns of escapes and numbers such as "\\d" and 1or, which it reads.
            warnings.simplefilter("ignore")
            tree = ast.parse(text)
    except (SyntaxError, ValueError, RecursionError, MemoryError) as error:
        raise ConfigError(f"this is not Python: {error}", where=source) from error
    if sum(1 for _ in ast.walk(tree)) > 10 * MAX_NODES:
        raise ConfigError(TOO_LARGE, where=source)
    module = PythonText(tree)
    try:
        run_statements(tree.body, module, source)
    except RecursionError as error:  # Python 3.12 parses what is nested more deeply
        raise ConfigError(TOO_LARGE, where=source) from error
    return module


def run_statements(body: list[ast.stmt], module: PythonText, source: str, depth: int = 0) -> bool:
    """Reads statements into ``module``, up to a ``return``; the branch of a known condition alone.

    Names that are assigned under an unknown condition or in a loop are unresolved. Definitions are
    left out.

    Returns:
        Whether a ``return`` was reached; its value is the name ``return``.

    Raises:
        ConfigError: A value is too large, or the statements are nested too deeply.
    """
    if depth > MAX_DEPTH:
        raise ConfigError(TOO_LARGE, where=source)
    for statement in body:
        match statement:
            case ast.Assign(targets=targets, value=value):
                found = module.convert(literal(value, module.names, source))
                for target in targets:
                    _assign(target, found, module.names)
                    if isinstance(target, ast.Tuple) and isinstance(found, Call):
                        module.expressions.append(found)
            case ast.AnnAssign(target=target, value=ast.expr() as value):
                _assign(target, module.convert(literal(value, module.names, source)), module.names)
            case ast.AugAssign(target=target, op=op, value=value):
                both = ast.BinOp(left=_loaded(target), op=op, right=value)
                _assign(target, literal(both, module.names, source), module.names)
            case ast.Expr(value=value):
                module.expressions.append(_called(literal(value, module.names, source), module))
            case ast.ImportFrom(module=package, names=names, level=level):
                for one in names:
                    name = f"{'.' * level}{package or ''}.{one.name}"
                    module.names[one.asname or one.name] = Reference(name)
            case ast.If(test=test, body=inner, orelse=other):
                condition = literal(test, module.names, source)
                if _is_open(condition):
                    _forget([*inner, *other], module.names)
                elif run_statements(inner if condition else other, module, source, depth + 1):
                    return True
            case ast.With(body=inner):
                if run_statements(inner, module, source, depth + 1):
                    return True
            case ast.For() | ast.While() | ast.Try():
                _forget([statement], module.names)
            case ast.Return(value=value):
                module.names["return"] = None if value is None else literal(value, module.names)
                return True
    return False


def run_function(module: PythonText, name: str, source: str) -> PythonText | None:
    """Returns the names of a function's body, called with its defaults; None without a function.

    An argument without a default is unresolved; ``return`` is the value that it returns.

    Raises:
        ConfigError: As :func:`run_statements`.
    """
    for statement in module.tree.body:
        if isinstance(statement, ast.FunctionDef) and statement.name == name:
            break
    else:
        return None
    made = PythonText(module.tree, dict(module.names), convert=module.convert)
    given = [*statement.args.posonlyargs, *statement.args.args]
    defaults = statement.args.defaults
    for index, argument in enumerate(given):
        place = index - len(given) + len(defaults)
        known = literal(defaults[place], module.names, source) if place >= 0 else None
        made.names[argument.arg] = Unresolved(argument.arg) if place < 0 else known
    run_statements(statement.body, made, source)
    return made


_MUTATORS = ("append", "clear", "extend", "insert", "pop", "remove", "setdefault")


def _called(value: Any, module: PythonText) -> Any:
    """The value of a statement that is a call: ``a.update(…)`` and the like change ``a``."""
    if isinstance(value, Call):
        target, _, method = value.name.rpartition(".")
        root = target.partition(".")[0]
        if root in module.names and method == "update" and len(value.args) <= 1:
            changes = value.args[0] if value.args else {}
            known = _entries(module.names.get(target, _walked(target, module.names)))
            if isinstance(changes, dict):
                _set(target, {**known, **changes, **value.kwargs}, module.names)
        elif root in module.names and method in _MUTATORS:
            _set(target, Unresolved(f"{value.name}(…)"), module.names)
    return value


def _forget(body: list[ast.stmt], names: dict[str, Any]) -> None:
    """Makes the names unresolved that statements assign which are not read."""
    for statement in body:
        for node in ast.walk(statement):
            match node:
                case ast.Assign(targets=targets):
                    for target in targets:
                        _assign(target, Unresolved(_text(target)), names)
                case ast.AugAssign(target=target) | ast.AnnAssign(target=target):
                    _assign(target, Unresolved(_text(target)), names)


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
        [6, Call(name='f', args=(3,), kwargs={}, scope='')]
    """
    if depth > MAX_DEPTH:
        raise ConfigError(TOO_LARGE, where=f"{source}, line {getattr(node, 'lineno', 0)}")

    def inner(part: ast.expr) -> Any:
        return literal(part, names, source, depth + 1)

    match node:
        case ast.Constant(value=value):
            return value if isinstance(value, int | float | str | None) else Unresolved(_text(node))
        case ast.Tuple(elts=items) | ast.List(elts=items) | ast.Set(elts=items):
            if any(isinstance(item, ast.Starred) for item in items):
                return Unresolved(_text(node))
            made = [inner(item) for item in items]
            return tuple(made) if isinstance(node, ast.Tuple) else made
        case ast.Dict(keys=keys, values=values):
            return _dict(keys, values, inner, node)
        case ast.Name() | ast.Attribute():
            return _named(node, names)
        case ast.Subscript(value=value, slice=index):
            return _item(inner(value), inner(index), node)
        case ast.UnaryOp(op=op, operand=operand):
            return _unary(op, inner(operand), node)
        case ast.BinOp(left=left, op=op, right=right):
            return _arithmetic(op, inner(left), inner(right), node, source)
        case ast.Compare(left=left, ops=[op], comparators=[right]) if type(op) in _COMPARE:
            return _computed(_COMPARE[type(op)], (inner(left), inner(right)), node)
        case ast.IfExp(test=test, body=body, orelse=other):
            condition = inner(test)
            if not _is_open(condition):
                return inner(body if condition else other)
        case ast.BoolOp(op=op, values=values):
            return _joined([inner(one) for one in values], isinstance(op, ast.And), node)
        case ast.Call():
            return _call(node, inner, names)
        case ast.ListComp(elt=item, generators=[ast.comprehension() as one]):
            return _comprehension(item, one, names, source, depth, node)
    return Unresolved(_text(node))


def dotted(node: ast.expr) -> str | None:
    """Returns ``a.b.c`` of a name or attribute; None for another expression."""
    match node:
        case ast.Name(id=name):
            return name
        case ast.Attribute(value=value, attr=attribute):
            outer = dotted(value)
            return None if outer is None else f"{outer}.{attribute}"
    return None


def _text(node: ast.AST) -> str:
    text = ast.unparse(node)
    return text if len(text) <= 80 else f"{text[:79]}…"


def _loaded(target: ast.expr) -> ast.expr:
    return ast.parse(ast.unparse(target), mode="eval").body


def _assign(target: ast.expr, value: Any, names: dict[str, Any]) -> None:
    match target:
        case ast.Tuple(elts=items) | ast.List(elts=items):
            parts = value if isinstance(value, tuple | list) else []
            for index, item in enumerate(items):
                is_known = len(parts) == len(items)
                _assign(item, parts[index] if is_known else Unresolved(_text(item)), names)
            return
        case ast.Subscript(value=outer, slice=ast.Constant(value=str() as key)):
            name = dotted(outer)
            name = None if name is None else f"{name}.{key}"
        case _:
            name = dotted(target)
    if name is not None:
        _set(name, value, names)


def _set(name: str, value: Any, names: dict[str, Any]) -> None:
    names[name] = value
    # config.lr = 0.1 where config is a dict or a call: its entry or argument changes as well.
    root, _, keys = name.partition(".")
    if keys and isinstance(names.get(root), dict | Call):
        names[root] = _with_entry(names[root], keys.split("."), value)


def _entries(value: Any) -> Mapping[str, Any]:
    """The entries of a dict, or the arguments of a call; none of anything else."""
    if isinstance(value, Call):
        return value.kwargs
    return value if isinstance(value, dict) else {}


def _with_entry(outer: Any, keys: list[str], value: Any) -> Any:
    """A copy of a dict or call with another entry, which may be within an inner one."""
    known = _entries(outer)
    if len(keys) > 1:
        value = _with_entry(known.get(keys[0]), keys[1:], value)
    changed = {**known, keys[0]: value}
    return replace(outer, kwargs=changed) if isinstance(outer, Call) else changed


def _named(node: ast.expr, names: Mapping[str, Any]) -> Any:
    name = dotted(node)
    if name is None:
        return Unresolved(_text(node))
    if name in names:
        return names[name]
    found = _walked(name, names)
    return Unresolved(_text(node)) if found is None else found


def _walked(name: str, names: Mapping[str, Any]) -> Any:
    """The value of a dotted name within dicts and calls; None where there is none."""
    outer, _, keys = name.partition(".")
    found = names.get(outer)
    for key in keys.split(".") if keys else [""]:
        found = _entries(found).get(key)
    return found


def _joined(values: list[Any], is_and: bool, node: ast.expr) -> Any:
    """The value of ``and`` or ``or``, where all before the one that decides are known."""
    for value in values:
        if _is_open(value):
            return Unresolved(_text(node))
        if bool(value) is not is_and:
            return value
    return values[-1]


def _is_open(value: Any) -> bool:
    """Whether the truth of a value is not known."""
    return isinstance(value, Unresolved | Call | Reference)


def _dict(
    keys: list[ast.expr | None],
    values: list[ast.expr],
    inner: Callable[[ast.expr], Any],
    node: ast.expr,
) -> Any:
    made: dict[Any, Any] = {}
    for key, value in zip(keys, values, strict=True):
        found = inner(value)
        if key is None:
            if not isinstance(found, dict):
                return Unresolved(_text(node))
            made.update(found)
            continue
        name = inner(key)
        if not isinstance(name, str | int | float | tuple):
            return Unresolved(_text(node))
        try:
            made[name] = found
        except TypeError:
            return Unresolved(_text(node))
    return made


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
    numbers = all(isinstance(value, int | float) for value in (left, right))
    is_sum = isinstance(op, ast.Add)
    joined = is_sum and type(left) is type(right) and isinstance(left, str | list | tuple)
    if not numbers and not joined:
        return Unresolved(_text(node))
    if joined and len(left) + len(right) > MAX_NODES:
        raise ConfigError(TOO_LARGE, where=source)
    if isinstance(op, ast.Pow) and _power_bits(left, right) > MAX_BITS:
        raise ConfigError(f"the power {_text(node)} is too large", where=source)
    return _computed(_BINARY[type(op)], (left, right), node)


def _power_bits(base: Any, exponent: Any) -> int:
    """About how many binary digits an integer power has; 0 for others."""
    if not isinstance(base, int) or not isinstance(exponent, int):
        return 0
    return abs(exponent) * max(1, abs(base)).bit_length()


def _computed(function: Callable[..., Any], arguments: tuple[Any, ...], node: ast.expr) -> Any:
    """The value of plain arguments; unresolved where Python raises an exception."""
    if any(isinstance(value, Unresolved | Call | Reference) for value in arguments):
        return Unresolved(_text(node))
    try:
        value = function(*arguments)
    except (ArithmeticError, TypeError, ValueError):
        return Unresolved(_text(node))
    is_large = isinstance(value, int) and value.bit_length() > MAX_BITS
    return Unresolved(_text(node)) if is_large or isinstance(value, complex) else value


def _call(node: ast.Call, inner: Callable[[ast.expr], Any], names: Mapping[str, Any]) -> Any:
    if any(isinstance(one, ast.Starred) for one in node.args):
        return Unresolved(_text(node))
    name = dotted(node.func) or _text(node.func)
    args = tuple(inner(one) for one in node.args)
    kwargs: dict[str, Any] = {}
    for one in node.keywords:
        value = inner(one.value)
        if one.arg is not None:
            kwargs[one.arg] = value
        elif isinstance(value, dict):
            kwargs.update(value)
        else:
            return Unresolved(_text(node))
    if name == "dict" and not args:
        return kwargs
    if name == "dict" and len(args) == 1 and isinstance(args[0], dict):
        return {**args[0], **kwargs}
    is_sequence = len(args) == 1 and not kwargs and isinstance(args[0], list | tuple)
    if name in ("list", "tuple") and is_sequence:
        return list(args[0]) if name == "list" else tuple(args[0])
    is_plain = all(isinstance(value, int | float) for value in args)
    if name in _FUNCTIONS and args and is_plain and not kwargs and name not in names:
        return _computed(_FUNCTIONS[name], args, node)
    return Call(name, args, kwargs)


def _comprehension(
    item: ast.expr,
    one: ast.comprehension,
    names: Mapping[str, Any],
    source: str,
    depth: int,
    node: ast.expr,
) -> Any:
    found = literal(one.iter, names, source, depth + 1)
    is_short = isinstance(found, list | tuple) and len(found) <= MAX_DEPTH
    if not isinstance(one.target, ast.Name) or one.ifs or one.is_async or not is_short:
        return Unresolved(_text(node))
    name = one.target.id
    return [literal(item, {**names, name: value}, source, depth + 1) for value in found]

"""Reads names and positions from syntax trees of Python."""

from __future__ import annotations

import ast

from closedform.errors import shortened


def dotted_name(node: ast.expr) -> str | None:
    """Returns ``a.b.c`` of a name or attribute; None for another expression."""
    match node:
        case ast.Name(id=name):
            return name
        case ast.Attribute(value=value, attr=attribute):
            outer = dotted_name(value)
            return None if outer is None else f"{outer}.{attribute}"
    return None


def source_text(node: ast.AST) -> str:
    """Returns the code of a node in a line, cut after 80 characters."""
    try:
        text = ast.unparse(node)
    except ValueError:  # from hexadecimal digits: Python writes no more than 4,300 decimal ones
        return "an integer of more than 4,300 digits"
    return shortened(" ".join(text.split()), 80)


def bound_names(node: ast.AST) -> list[str]:
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


def root_of_entry(target: ast.Attribute | ast.Subscript) -> ast.Name | None:
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


def as_expression(target: ast.expr) -> ast.expr:
    """Returns the target of an assignment as an expression that reads it."""
    return ast.parse(ast.unparse(target), mode="eval").body


def augmented_expression(statement: ast.AugAssign) -> ast.expr:
    """Returns ``a + b`` of ``a += b``."""
    return ast.BinOp(left=as_expression(statement.target), op=statement.op, right=statement.value)


def is_main(test: ast.expr) -> bool:
    """Whether a condition is ``__name__ == "__main__"``."""
    return isinstance(test, ast.Compare) and source_text(test) == "__name__ == '__main__'"


def is_read_base(context: ast.expr) -> bool:
    """Whether a context is that of MMEngine, which its imports of other configs stand in."""
    if not isinstance(context, ast.Call) or context.args or context.keywords:
        return False
    return (dotted_name(context.func) or "").rpartition(".")[2] == "read_base"

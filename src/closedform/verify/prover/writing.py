"""SymPy expressions of terms, for people to read."""

from __future__ import annotations

from collections.abc import Callable, Hashable, Mapping
from typing import Any

import sympy as sp

from closedform.errors import VerificationError
from closedform.language import FloorDiv, MatMul, ReduceMax, ReduceSum, Transpose
from closedform.verify.prover.tree import Op, Sign, Term, show, walk


def to_sympy(root: Term) -> sp.Basic:
    """Returns the SymPy expression of a term, for people to read: ``term`` of it means the same.

    Floors are FloorDiv and branches an unevaluated Piecewise, so SymPy rewrites none of them.

    Example:
        >>> from closedform.verify.prover.terms import ONE, UNDEFINED, ite, less, rational, symbol
        >>> to_sympy(ite(less(symbol("t", integer=True), rational(3)), ONE, UNDEFINED))
        Piecewise((1, t < 3))
    """
    done: dict[Term, Any] = {}
    links = _links(root)
    for node in walk(root):
        if node not in links:
            done[node] = _write(node, [done.get(arg) for arg in node.args], done)
    result = done[root]
    if result is None:
        raise VerificationError("undefined alone has no SymPy expression")
    return result


_ASSUMPTIONS = {
    Sign.ANY: {},
    Sign.POSITIVE: {"positive": True},
    Sign.NONNEGATIVE: {"nonnegative": True},
    Sign.NEGATIVE: {"negative": True},
    Sign.NONPOSITIVE: {"nonpositive": True},
}


def _write_symbol(node: Term) -> sp.Symbol:
    declared = node.value
    return sp.Symbol(
        declared.name, real=True, integer=declared.integer or None, **_ASSUMPTIONS[declared.sign]
    )


def _links(root: Term) -> set[Term]:
    """The choices that are only met as the last part of another one: links of a chain."""
    links: set[Term] = set()
    others = {root}
    for node in walk(root):
        is_choice = node.op is Op.ITE
        others.update(node.args[:2] if is_choice else node.args)
        if is_choice and node.args[2].op is Op.ITE:
            links.add(node.args[2])
    return links - others


def _write_branches(node: Term, done: dict[Term, Any]) -> sp.Piecewise:
    """A chain of choices as one Piecewise; an undefined end leaves it without a last branch."""
    pairs = []
    while node.op is Op.ITE:
        condition, then, node = node.args
        pairs.append((done[then], done[condition]))
    if node.op is not Op.UNDEFINED:
        pairs.append((done[node], sp.true))
    return sp.Piecewise(*pairs, evaluate=False)


def _write_table(node: Term, index: sp.Expr) -> sp.Piecewise:
    pairs = [
        (sp.Rational(int(value.p), int(value.q)), sp.Eq(index, position, evaluate=False))
        for position, value in enumerate(node.value)
    ]
    return sp.Piecewise(*pairs, evaluate=False)


def _write_floor(node: Term, args: list[Any], done: dict[Term, Any]) -> sp.Expr:
    inner = node.args[0]
    if inner.op is Op.DIVIDE:
        return FloorDiv(*(done[arg] for arg in inner.args))
    return FloorDiv(args[0], sp.Integer(1))


_FUNCTIONS: Mapping[Hashable, Any] = {
    "reduce_sum": ReduceSum,
    "reduce_max": ReduceMax,
    "transpose": Transpose,
    "matmul": MatMul,
}

_WRITERS: Mapping[Op, Callable[..., Any]] = {
    Op.ADD: sp.Add,
    Op.MULTIPLY: sp.Mul,
    Op.DIVIDE: lambda a, b: a / b,
    Op.POWER: sp.Pow,
    Op.COSPI: lambda a: sp.cos(sp.pi * a),
    Op.SINPI: lambda a: sp.sin(sp.pi * a),
    Op.EXP: sp.exp,
    Op.LOG: sp.log,
    Op.MINIMUM: lambda a, b: sp.Min(a, b, evaluate=False),
    Op.MAXIMUM: lambda a, b: sp.Max(a, b, evaluate=False),
    Op.ABSOLUTE: lambda a: sp.Abs(a, evaluate=False),
    Op.SIGN: lambda a: sp.sign(a, evaluate=False),
    Op.LESS: lambda a, b: sp.Lt(a, b, evaluate=False),
    Op.LESS_EQUAL: lambda a, b: sp.Le(a, b, evaluate=False),
    Op.EQUAL: lambda a, b: sp.Eq(a, b, evaluate=False),
    Op.AND: lambda *args: sp.And(*args, evaluate=False),
    Op.OR: lambda *args: sp.Or(*args, evaluate=False),
    Op.NOT: lambda a: sp.Not(a, evaluate=False),
}

_CONSTANTS: Mapping[Op, Any] = {
    Op.PI: sp.pi,
    Op.TRUE: sp.true,
    Op.FALSE: sp.false,
    Op.UNDEFINED: None,
}


def _write(node: Term, args: list[Any], done: dict[Term, Any]) -> Any:
    if node.op in _CONSTANTS:
        return _CONSTANTS[node.op]
    match node.op:
        case Op.RATIONAL:
            return sp.Rational(int(node.value.p), int(node.value.q))
        case Op.SYMBOL:
            return _write_symbol(node)
        case Op.ITE:
            return _write_branches(node, done)
        case Op.LOOKUP:
            return _write_table(node, args[0])
        case Op.FLOOR:
            return _write_floor(node, args, done)
        case Op.OPAQUE if node.value in _FUNCTIONS:
            return _FUNCTIONS[node.value](*args)
        case Op.OPAQUE:
            raise VerificationError(f"{node.value} of a tensor has no SymPy expression")
    if any(arg is None for arg in args):
        raise VerificationError(f"{show(node)} has no SymPy expression, its part is undefined")
    return _WRITERS[node.op](*args)

"""A small expression language for functions of the step: ``0.5*(1 + cos(pi*t/100))``.

Python's operators and comparisons, the names ``t`` and ``pi``, and the functions of a table.
Python's parser gives the syntax tree; this module can only build SymPy nodes from it, and refuses
every other node. Nothing is evaluated.
"""

from __future__ import annotations

import ast
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from fractions import Fraction

import sympy as sp

from closedform.errors import DefinitionError, nearest
from closedform.language import exact_number, floor_div, floor_mod, t
from closedform.magnitude import power_bits

MAX_CHARACTERS = 2000
MAX_NODES = 400
# A power of two numbers is computed at once; this many binary digits are still quick.
MAX_POWER_DIGITS = 4096


def _where(condition: sp.Basic, value: sp.Expr, otherwise: sp.Expr) -> sp.Expr:
    return sp.Piecewise((value, condition), (otherwise, True))


def _divide(left: sp.Expr, right: sp.Expr) -> sp.Expr:
    if right == 0:
        raise DefinitionError("a function of the step divides by 0", hint="check the divisor")
    return left / right


def _power(base: sp.Expr, exponent: sp.Expr) -> sp.Expr:
    # SymPy computes powers of rational numbers at once, with all their digits.
    if base.is_Rational and exponent.is_Rational:
        sizes = [Fraction(int(number.p), int(number.q)) for number in (base, exponent)]
        if power_bits(*sizes) > MAX_POWER_DIGITS:
            raise DefinitionError(
                f"the power {base}**{exponent} is too large", hint="write it as a smaller number"
            )
    return base**exponent


_BINARY: Mapping[type[ast.operator], Callable[[sp.Expr, sp.Expr], sp.Expr]] = {
    ast.Add: lambda a, b: a + b,
    ast.Sub: lambda a, b: a - b,
    ast.Mult: lambda a, b: a * b,
    ast.Div: _divide,
    ast.FloorDiv: floor_div,
    ast.Mod: floor_mod,
    ast.Pow: _power,
}
_COMPARE: Mapping[type[ast.cmpop], Callable[[sp.Expr, sp.Expr], sp.Basic]] = {
    ast.Lt: sp.Lt,
    ast.LtE: sp.Le,
    ast.Gt: sp.Gt,
    ast.GtE: sp.Ge,
    ast.Eq: sp.Eq,
    ast.NotEq: sp.Ne,
}
# Name -> (function, fewest arguments, most arguments)
_FUNCTIONS: Mapping[str, tuple[Callable[..., sp.Expr], int, int]] = {
    "cos": (sp.cos, 1, 1),
    "sqrt": (sp.sqrt, 1, 1),
    "exp": (sp.exp, 1, 1),
    "log": (sp.log, 1, 1),
    "floor": (lambda x: floor_div(x, 1), 1, 1),
    "min": (sp.Min, 1, 16),
    "max": (sp.Max, 1, 16),
    "where": (_where, 3, 3),
}
_NAMES: Mapping[str, sp.Expr] = {"t": t, "pi": sp.pi}


def parse_function(
    spec: object,
    where: str,
    variable: str = "t",
    names: Mapping[str, sp.Expr] | None = None,
) -> sp.Expr:
    """Returns the expression of ``{"expr": text}``, or of a SymPy expression itself.

    Args:
        spec: The mapping with the text, or an expression in the clock t.
        where: The argument that it is, for errors.
        variable: The name that the clock has in the text.
        names: Further names, with their values.

    Raises:
        DefinitionError: It has not that form, or the text is outside of the language.

    Example:
        >>> parse_function({"expr": "where(t < 10, t/10, 1.0)"}, "lr_lambda")
        Piecewise((t/10, t < 10), (1, True))
    """
    if isinstance(spec, sp.Expr):
        return spec
    if not isinstance(spec, Mapping) or set(spec) != {"expr"} or not isinstance(spec["expr"], str):
        raise DefinitionError(f'a function must be {{"expr": text}}, got {spec!r}', where=where)
    text = spec["expr"]
    if len(text) > MAX_CHARACTERS:
        raise DefinitionError(
            f"an expression must have at most {MAX_CHARACTERS} characters, got {len(text)}",
            where=where,
        )
    try:
        tree = ast.parse(text.strip(), mode="eval")
    except (SyntaxError, ValueError, RecursionError, MemoryError) as error:
        raise DefinitionError(f"cannot read the expression {text!r}", where=where) from error
    # Limits come before any SymPy node: building one may evaluate it.
    if sum(1 for _ in ast.walk(tree)) > MAX_NODES:
        raise DefinitionError(f"an expression must have at most {MAX_NODES} parts", where=where)
    try:
        _rename(tree, variable)
        result = _Reader(_NAMES if names is None else {**_NAMES, **names}).number(tree.body)
    except RecursionError as error:
        raise DefinitionError("an expression is nested too deeply", where=where) from error
    except DefinitionError as error:
        raise DefinitionError(error.what, where=f"{where}: {text!r}", hint=error.hint) from error
    # SymPy returns these for log(0) or sqrt(-1) instead of raising an exception.
    if result.has(sp.zoo, sp.nan, sp.oo, sp.I):
        raise DefinitionError(f"the expression {text!r} is not finite and real", where=where)
    return result


def _rename(tree: ast.Expression, variable: str) -> None:
    """Renames the clock, which the text calls ``variable``, to t."""
    if variable == "t":
        return
    for node in ast.walk(tree):
        if isinstance(node, ast.Name) and node.id == "t":
            raise DefinitionError("unknown name 't'", hint=f"did you mean {variable!r}?")
        if isinstance(node, ast.Name) and node.id == variable:
            node.id = "t"


@dataclass(frozen=True, slots=True)
class _Reader:
    """Reader of syntax trees.

    Attributes:
        names: The values of names.
    """

    names: Mapping[str, sp.Expr]

    def number(self, node: ast.expr) -> sp.Expr:
        match node:
            # True and False are ints in Python, but not numbers of a schedule.
            case ast.Constant(value=int() | float() as value) if not isinstance(value, bool):
                return exact_number(value, "a number")
            case ast.Name(id=name):
                if name not in self.names:
                    raise DefinitionError(f"unknown name {name!r}", hint=nearest(name, self.names))
                return self.names[name]
            case ast.UnaryOp(op=ast.USub(), operand=operand):
                return -self.number(operand)
            case ast.UnaryOp(op=ast.UAdd(), operand=operand):
                return self.number(operand)
            case ast.BinOp(left=left, op=op, right=right) if type(op) in _BINARY:
                return _BINARY[type(op)](self.number(left), self.number(right))
            case ast.Call(func=ast.Name(id=name), args=args, keywords=[]):
                return self._call(name, args)
            case ast.IfExp(test=test, body=body, orelse=otherwise):
                return _where(self._condition(test), self.number(body), self.number(otherwise))
        raise DefinitionError(
            f"{ast.unparse(node)!r} is not a number of the expression language",
            hint="it has t, pi, numbers, + - * / // % **, comparisons and " + ", ".join(_FUNCTIONS),
        )

    def _call(self, name: str, args: list[ast.expr]) -> sp.Expr:
        if name not in _FUNCTIONS:
            raise DefinitionError(f"unknown function {name!r}", hint=nearest(name, _FUNCTIONS))
        function, fewest, most = _FUNCTIONS[name]
        if not fewest <= len(args) <= most:
            counts = str(fewest) if fewest == most else f"{fewest} to {most}"
            raise DefinitionError(f"{name} takes {counts} arguments, got {len(args)}")
        if name == "where":
            return function(self._condition(args[0]), self.number(args[1]), self.number(args[2]))
        return function(*(self.number(arg) for arg in args))

    def _condition(self, node: ast.expr) -> sp.Basic:
        match node:
            case ast.Compare(left=left, ops=ops, comparators=rights):
                operands = [self.number(operand) for operand in (left, *rights)]
                parts = [
                    _COMPARE[type(op)](operands[index], operands[index + 1])
                    for index, op in enumerate(ops)
                    if type(op) in _COMPARE
                ]
                if len(parts) == len(ops):
                    return sp.And(*parts)
            case ast.BoolOp(op=ast.And(), values=values):
                return sp.And(*(self._condition(value) for value in values))
            case ast.BoolOp(op=ast.Or(), values=values):
                return sp.Or(*(self._condition(value) for value in values))
            case ast.UnaryOp(op=ast.Not(), operand=operand):
                return sp.Not(self._condition(operand))
        raise DefinitionError(
            f"{ast.unparse(node)!r} is not a condition", hint="write a comparison such as t < 10"
        )

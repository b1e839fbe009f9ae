"""One step at a time: a graph of scalars as a Python function.

``evaluate`` runs each node as an array operation, which costs microseconds a node for a single
number. A graph from one step to one float64 is written here as the syntax tree of a function on
Python's own numbers, one assignment a node. Its values are as in ``evaluate``, bit for bit:

1. Sums, products, quotients and square roots of Python floats follow IEEE 754, as in NumPy.
   ``exp``, ``log``, ``cos``, ``sin`` and ``pow`` call NumPy, whose results differ from ``math``.
2. Each form of the table covers the common operands of its op. It raises ``UncommonError`` for the
   others, such as an integer that wraps or a division by zero, and the caller evaluates the graph.
3. Operands that a single side of a ``where`` needs are computed only where that side is selected.
4. The number of constants that a step has reached, which is a sum over a table of comparisons in
   the graph, is found by bisection.

The functions are built from syntax trees; no text is compiled.
"""

from __future__ import annotations

import ast
import bisect
import math
import types
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any

import numpy as np

from closedform.ir.graph import Graph, Node
from closedform.ir.ops import Op
from closedform.ir.types import DType

ScalarFunction = Callable[[int], float]

_DEEPEST = 200
"""Levels of nested branches; operands of deeper ones are computed in any case."""

_HANDLED = frozenset({DType.F64, DType.I64, DType.BOOL})


class UncommonError(Exception):
    """An operand is outside what a form covers: evaluate the graph."""


def scalar_function(graph: Graph) -> ScalarFunction | None:
    """Returns the function of one step that a graph computes, or None for another kind of graph.

    Args:
        graph: A graph that ``check`` accepts. It is covered if its inputs are one step of i64 and
            its outputs one float64, and its other values are scalars or tables of constants. A
            named size, such as that of ``step: i64[n]``, is taken to be 1.

    The function takes an int in 0..2**53, which it does not check, and returns a float, or raises
    ``UncommonError``.
    """
    if not _is_covered(graph):
        return None
    writer = _Writer(graph)
    body = writer.body()
    return None if body is None else _function(graph.name, body)


def _is_covered(graph: Graph) -> bool:
    nodes = graph.nodes
    return (
        len(graph.inputs) == len(graph.outputs) == 1
        and nodes[0].type.dtype is DType.I64
        and nodes[graph.outputs[0].index].type.dtype is DType.F64
        and all(node.type.dtype in _HANDLED for node in nodes)
    )


def _is_one(node: Node) -> bool:
    """Whether a value is one number, named sizes being 1."""
    return all(isinstance(dim, str) or dim == 1 for dim in node.type.shape)


def _function(name: str, body: list[ast.stmt]) -> ScalarFunction:
    arguments = ast.arguments([], [ast.arg(_name(0))], None, [], [], None, [])
    # The name is only shown in tracebacks; no text of the graph is parsed.
    definition = ast.FunctionDef(name, arguments, body, [], None)
    module = ast.fix_missing_locations(ast.Module([definition], []))
    code = compile(module, f"<graph {name}>", "exec")
    function_code = next(
        constant for constant in code.co_consts if isinstance(constant, types.CodeType)
    )
    # __builtins__ has float and int only: a function cannot reach anything else.
    return types.FunctionType(function_code, dict(_NAMES))


# Forms: expressions in the operands a, b, c.


def _uncommon(*_: object) -> Any:
    raise UncommonError


def _lesser(a: float, b: float) -> float:
    """The smaller of two floats that compare equal, or NaN."""
    if a != b:
        return math.nan
    return a if math.copysign(1, a) < 0 else b


def _greater(a: float, b: float) -> float:
    """The larger of two floats that compare equal, or NaN."""
    if a != b:
        return math.nan
    return b if math.copysign(1, a) < 0 else a


def _floor_mod(a: float, b: float) -> float:
    if b == 0 or not math.isfinite(a):
        raise UncommonError
    remainder = math.fmod(a, b)
    is_off = remainder != 0 and (remainder < 0) != (math.copysign(1, b) < 0)
    return remainder + b if is_off else remainder


_NAMES: Mapping[str, object] = {
    "__builtins__": {"float": float, "int": int},
    "uncommon": _uncommon,
    "lesser": _lesser,
    "greater": _greater,
    "floor_mod": _floor_mod,
    "bisect_left": bisect.bisect_left,
    "bisect_right": bisect.bisect_right,
    "root": math.sqrt,
    "ln": math.log,
    "exp": np.exp,
    "log": np.log,
    "cos": np.cos,
    "sin": np.sin,
    "atan": np.arctan,
    "power": np.power,
    "inf": math.inf,
    "LOW": -(2**63),
    "HIGH": 2**63 - 1,
}
"""The names in the forms; NumPy's functions are called where they raise no floating-point flag."""

# Python's integers do not wrap; one outside int64 is left to NumPy, which does.
_WHOLE = "r if LOW <= (r := {}) <= HIGH else uncommon()"

FLOATS: Mapping[Op, str] = {
    Op.ADD: "a + b",
    Op.SUB: "a - b",
    Op.MUL: "a * b",
    Op.NEG: "-a",
    # abs(-0.0) is 0.0: the comparison with 0.0 takes both zeros.
    Op.ABS: "a if a > 0.0 else 0.0 if a == 0.0 else -a",
    # Python raises ZeroDivisionError where IEEE 754 has an infinity or NaN.
    Op.DIV: "a / b if b else uncommon()",
    Op.FLOOR_MOD: "floor_mod(a, b)",
    Op.MIN: "a if a < b else b if b < a else lesser(a, b)",
    Op.MAX: "a if a > b else b if b > a else greater(a, b)",
    # math.floor returns an integer, which loses -0.0 and is long for large floats.
    Op.FLOOR: "a // 1.0 if -inf < a < inf else uncommon()",
    Op.SQRT: "root(a) if a >= 0.0 else uncommon()",
    # exp overflows at 709.8 and is subnormal below -708.4: within 700, NumPy raises no flag and
    # warns of nothing.
    Op.EXP: "float(exp(a)) if -700.0 < a < 700.0 else uncommon()",
    Op.LOG: "float(log(a)) if 0.0 < a < inf else uncommon()",
    Op.COS: "float(cos(a)) if -inf < a < inf else uncommon()",
    Op.SIN: "float(sin(a)) if -inf < a < inf else uncommon()",
    Op.ATAN: "float(atan(a)) if -inf < a < inf else uncommon()",
    Op.POW: "float(power(a, b)) if a > 0.0 and -700.0 < b * ln(a) < 700.0 else uncommon()",
    Op.LT: "a < b",
    Op.LE: "a <= b",
    Op.EQ: "a == b",
}
"""The forms of ops whose operands are floats."""

INTEGERS: Mapping[Op, str] = {
    Op.ADD: _WHOLE.format("a + b"),
    Op.SUB: _WHOLE.format("a - b"),
    Op.MUL: _WHOLE.format("a * b"),
    Op.NEG: _WHOLE.format("-a"),
    Op.ABS: _WHOLE.format("a if a > 0 else -a"),
    Op.FLOOR_DIV: _WHOLE.format("a // b if b else uncommon()"),
    Op.FLOOR_MOD: "a % b if b else uncommon()",
    Op.MIN: "a if a < b else b",
    Op.MAX: "a if a > b else b",
    Op.LT: "a < b",
    Op.LE: "a <= b",
    Op.EQ: "a == b",
}
"""The forms of ops whose operands are integers."""

BOOLS: Mapping[Op, str] = {
    Op.AND: "a and b",
    Op.OR: "a or b",
    Op.NOT: "not a",
}
"""The forms of ops whose operands are truth values."""

CASTS: Mapping[tuple[DType, DType], str] = {
    (DType.BOOL, DType.I64): "int(a)",
    (DType.BOOL, DType.F64): "float(a)",
    (DType.I64, DType.BOOL): "a != 0",
    (DType.I64, DType.F64): "float(a)",
    (DType.F64, DType.BOOL): "a != 0.0",
    # -LOW is 2**63, a float64; HIGH is not: compared with it, 2**63 would pass.
    (DType.F64, DType.I64): "int(a) if LOW <= a < -LOW else uncommon()",
}
"""The forms of casts by dtype of the operand and of the result."""

FORMS: Mapping[DType, Mapping[Op, str]] = {
    DType.F64: FLOATS,
    DType.I64: INTEGERS,
    DType.BOOL: BOOLS,
}
"""The forms by dtype of the first operand."""

_SAME = frozenset({Op.RESHAPE, Op.BROADCAST_TO, Op.TRANSPOSE, Op.REDUCE_SUM, Op.REDUCE_MAX})
"""Ops that leave a single number unchanged."""


@dataclass(slots=True)
class _Block:
    """Statements that run under the same conditions.

    Attributes:
        parent: The block around it; None for the function.
        depth: Its number of conditions.
        statements: What it holds.
    """

    parent: _Block | None = None
    depth: int = 0
    statements: list[ast.stmt] = field(default_factory=list)

    def path(self) -> Iterator[_Block]:
        """This block and those around it, from the inside out."""
        block: _Block | None = self
        while block is not None:
            yield block
            block = block.parent


def _join(first: _Block | None, second: _Block) -> _Block:
    """The innermost block around both."""
    if first is None or first is second:
        return second
    around = {id(block) for block in first.path()}
    return next(block for block in second.path() if id(block) in around)


class _Writer:
    """Writes the statements of one graph."""

    def __init__(self, graph: Graph) -> None:
        self.graph = graph
        self.counts = _counts(graph)
        self.values: dict[int, ast.expr] = {0: _read(0)}
        self.sides: dict[int, tuple[_Block, _Block]] = {}
        self.places: dict[int, _Block] = {}

    def body(self) -> list[ast.stmt] | None:
        """The statements; None if a node has no form."""
        top = _Block()
        result = self.graph.outputs[0].index
        self._place(result, top)
        for index, node in enumerate(self.graph.nodes):
            if index in self.places and node.op is not Op.INPUT and not self._write(index, node):
                return None
        if result not in self.values:
            return None
        top.statements.append(ast.Return(self.values[result]))
        return top.statements

    def _place(self, result: int, top: _Block) -> None:
        """Finds the block of each node: the innermost one around all of its uses."""
        self.places[result] = top
        # From the result down: all uses of a node have been seen when it is reached.
        for index in range(result, -1, -1):
            block = self.places.get(index)
            if block is None:
                continue
            for operand, blocks in self._uses(index, block):
                self.places[operand] = _join(self.places.get(operand), blocks)

    def _uses(self, index: int, block: _Block) -> list[tuple[int, _Block]]:
        """The operands of a node, and the block in which each is needed."""
        node = self.graph.nodes[index]
        if index in self.counts:
            return [(self.counts[index].operand, block)]
        if node.op is not Op.WHERE or not _is_one(node) or block.depth >= _DEEPEST:
            return [(operand, block) for operand in node.operands]
        yes, no = (_Block(block, block.depth + 1) for _ in range(2))
        self.sides[index] = (yes, no)
        return list(zip(node.operands, (block, yes, no), strict=True))

    def _write(self, index: int, node: Node) -> bool:
        """Writes one node; False if it has no form."""
        if node.op is Op.CONST:
            self.values[index] = ast.Constant(_constant(node))
            return True
        if not _is_one(node) or any(operand not in self.values for operand in node.operands):
            expression = self._count_expression(index)
        elif node.op is Op.WHERE:
            return self._where(index, node)
        elif node.op is Op.LOOKUP:
            expression = self._lookup(node)
        elif node.op in _SAME:
            self.values[index] = self.values[node.operands[0]]
            return True
        else:
            expression = self._form(node)
        if expression is None:
            return not _is_one(node)
        self._assign(index, expression, self.places[index])
        return True

    def _assign(self, index: int, value: ast.expr, block: _Block) -> None:
        block.statements.append(ast.Assign([ast.Name(_name(index), ast.Store())], value))
        self.values[index] = _read(index)

    def _form(self, node: Node) -> ast.expr | None:
        operands = [self.values[operand] for operand in node.operands]
        source = self.graph.nodes[node.operands[0]].type.dtype
        if node.op is Op.CAST:
            text = "a" if source is node.type.dtype else CASTS[source, node.type.dtype]
        else:
            form = FORMS[source].get(node.op)
            if form is None:
                return None
            text = form
        return _fill_form(text, operands)

    def _lookup(self, node: Node) -> ast.expr | None:
        table, place = (self.values[operand] for operand in node.operands)
        if not isinstance(table, ast.Constant) or not isinstance(table.value, tuple):
            return None
        size = ast.Constant(len(table.value))
        return _fill_form("a[b] if 0 <= b < c else uncommon()", [table, place, size])

    def _count_expression(self, index: int) -> ast.expr | None:
        count = self.counts.get(index)
        if count is None:
            return None
        marks: Any = count.marks
        operands = [ast.Constant(marks), self.values[count.operand]]
        return _fill_form(f"{count.function}(a, b)", operands)

    def _where(self, index: int, node: Node) -> bool:
        condition, yes, no = (self.values[operand] for operand in node.operands)
        block = self.places[index]
        sides = self.sides.get(index)
        if sides is None or not (sides[0].statements or sides[1].statements):
            self._assign(index, ast.IfExp(condition, yes, no), block)
            return True
        for side, value in zip(sides, (yes, no), strict=True):
            self._assign(index, value, side)
        block.statements.append(ast.If(condition, sides[0].statements, sides[1].statements))
        return True


@dataclass(frozen=True, slots=True)
class _Count:
    """The number of marks that a value has reached."""

    function: str
    marks: tuple[int, ...]
    operand: int


def _counts(graph: Graph) -> dict[int, _Count]:
    """The nodes that count over a table of integers: ``reduce_sum(cast(le(marks, x)))``."""
    counts: dict[int, _Count] = {}
    for index, node in enumerate(graph.nodes):
        if node.op is not Op.REDUCE_SUM or not _is_one(node) or node.type.dtype is not DType.I64:
            continue
        cast = graph.nodes[node.operands[0]]
        if cast.op is not Op.CAST:
            continue
        test = graph.nodes[cast.operands[0]]
        if test.op not in (Op.LE, Op.LT):
            continue
        marks, value = (graph.nodes[operand] for operand in test.operands)
        if marks.op is Op.CONST and marks.type.dtype is DType.I64 and _is_one(value):
            # A mark is counted where mark <= value: those to the right of it are not.
            function = "bisect_right" if test.op is Op.LE else "bisect_left"
            # Counting does not depend on the order of the marks.
            table = tuple(sorted(int(mark) for mark in marks.array().reshape(-1)))
            counts[index] = _Count(function, table, test.operands[1])
    return counts


def _name(index: int) -> str:
    return f"v{index}"


def _read(index: int) -> ast.expr:
    return ast.Name(_name(index), ast.Load())


def _constant(node: Node) -> Any:
    """A number, or the tuple of the numbers of a table."""
    numbers = node.array().reshape(-1).tolist()
    return numbers[0] if _is_one(node) else tuple(numbers)


def _fill_form(form: str, operands: Sequence[ast.expr]) -> ast.expr:
    """The syntax tree of a form of this file with the operands in place of a, b, c."""
    names = dict(zip("abc", operands, strict=False))
    tree = ast.parse(form, mode="eval")
    for node in ast.walk(tree):
        for label, part in ast.iter_fields(node):
            if isinstance(part, ast.Name):
                setattr(node, label, names.get(part.id, part))
            elif isinstance(part, list):
                part[:] = [
                    names.get(item.id, item) if isinstance(item, ast.Name) else item
                    for item in part
                ]
    return tree.body

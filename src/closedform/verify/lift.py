"""Lift: a graph read back as terms, one row for each op of the graph language.

A graph is read over the exact numbers: floats do not round, a cast between floats is nothing, one
to an integer truncates. An integer that may leave its dtype is undefined where it does. How far
rounding goes is for the certificate of numerics to say.

Tensors are read elementwise. The term of a tensor is that of each of its elements, in symbols that
stand for one element of an input, so all tensors that meet in a node must have one shape or be
scalars. Sums over a tensor, products of matrices and transposes are opaque functions of the term of
their operand. Where elements differ by their place (tables, and what is compared with a table) a
value is a ``Row``, a term for each place along the last axis.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass
from typing import Any

from closedform.errors import VerificationError
from closedform.ir import STEP_MAX, DType, Graph, Node, Op, Role, Shape, ranges
from closedform.ir.interval import full
from closedform.language import t
from closedform.verify import terms
from closedform.verify.tables import element, is_integer, total
from closedform.verify.terms import Term

Constant = Callable[[float, DType], Term]
"""The exact number that a float constant stands for."""


@dataclass(frozen=True, slots=True)
class Row:
    """A value whose elements differ by their place along the last axis."""

    terms: tuple[Term, ...]


Lifted = Term | Row
Lift = Callable[["Lifter", Node, tuple[Lifted, ...]], Lifted]


def as_stored(value: float, _: DType) -> Term:
    """Returns the dyadic number that a float constant holds."""
    return terms.rational(value)


def lift_graph(
    graph: Graph,
    *,
    constant: Constant = as_stored,
    symbols: Mapping[str, Term] | None = None,
    last: int = STEP_MAX,
) -> dict[str, Term]:
    """Returns the term of each output, by name.

    Args:
        graph: A graph whose types are right.
        constant: What a float constant stands for; the number it holds, if not given.
        symbols: Terms of inputs by name. The step is ``t``, an integer that is not negative; any
            other input is a real or integer symbol of its name, if not given.
        last: The last step at which the graph may run.

    Raises:
        VerificationError: An operation is not elementwise, no scalar and no known reduction.

    Example:
        >>> from closedform import compile, schedules
        >>> lift_graph(compile(schedules.linear(0, 1, 4)))["value"]
        ite(t < 4, (1/4 * t), 1)
    """
    lifter = Lifter(graph, constant, {**_inputs(graph), **(symbols or {})}, last)
    return {output.name: lifter.result(output.index) for output in graph.outputs}


def _inputs(graph: Graph) -> dict[str, Term]:
    return {
        node.attribute("name"): terms.term(t)
        if node.attribute("role") == Role.STEP
        else terms.symbol(node.attribute("name"), integer=node.type.dtype.is_integer)
        for node in graph.inputs
    }


_WRAPPING = frozenset({Op.ADD, Op.SUB, Op.MUL, Op.NEG, Op.ABS, Op.REDUCE_SUM})


def _within(value: Lifted, dtype: DType) -> Lifted:
    """An integer where it fits its dtype, undefined where it would wrap."""
    if isinstance(value, Row):
        return Row(tuple(_fitting(term, dtype) for term in value.terms))
    return _fitting(value, dtype)


def _fitting(value: Term, dtype: DType) -> Term:
    low, high = (terms.rational(end) for end in full(dtype).ends)
    fits = terms.both(terms.less_equal(low, value), terms.less_equal(value, high))
    return terms.ite(fits, value, terms.UNDEFINED)


class Lifter:
    """The terms of the nodes of one graph, in order."""

    def __init__(
        self, graph: Graph, constant: Constant, symbols: Mapping[str, Term], last: int
    ) -> None:
        self.graph = graph
        self.constant = constant
        self.symbols = symbols
        self.values: list[Lifted] = []
        for node, interval in zip(graph.nodes, ranges(graph, last), strict=True):
            operands = tuple(self.values[operand] for operand in node.operands)
            if node.op in ELEMENTWISE:
                self._check_shapes(node, operands)
            value = LIFTS[node.op](self, node, operands)
            dtype = node.type.dtype
            may_wrap = node.op in _WRAPPING and dtype.is_integer and interval == full(dtype)
            self.values.append(_within(value, dtype) if may_wrap else value)

    def result(self, index: int) -> Term:
        """Returns the term of a node that is an output."""
        value = self.values[index]
        if isinstance(value, Row):
            raise self.error(self.graph.nodes[index], "its elements differ by their place")
        return value

    def type_of(self, node: Node, position: int) -> Any:
        """Returns the type of an operand."""
        return self.graph.nodes[node.operands[position]].type

    def error(self, node: Node, why: str) -> VerificationError:
        """Returns an error that names the node."""
        index = self.graph.nodes.index(node)
        return VerificationError(
            f"{node.op} of {node.type} cannot be lifted: {why}",
            where=f"node %{index} of graph {self.graph.name!r}",
            hint="schedules and elementwise rules with sums over whole tensors can",
        )

    def _check_shapes(self, node: Node, operands: tuple[Lifted, ...]) -> None:
        """Each operand is a scalar, of the shape of the result, or a column beside a row."""
        shape = node.type.shape
        has_row = any(isinstance(operand, Row) for operand in operands)
        for position, operand in enumerate(operands):
            own: Shape = self.type_of(node, position).shape
            is_column = has_row and own == (*shape[:-1], 1)
            if isinstance(operand, Row):
                fits = own[-1] == shape[-1]
            else:
                fits = is_column or all(dim == 1 for dim in own) or (own == shape and not has_row)
            if not fits:
                raise self.error(
                    node, f"an operand of shape {list(own)} is broadcast along an axis"
                )


def _each(make: Callable[..., Term]) -> Lift:
    """The lift of an elementwise op; beside a row, what is no row is the same at each place."""

    def lift(_: Lifter, node: Node, operands: tuple[Lifted, ...]) -> Lifted:
        rows = [operand for operand in operands if isinstance(operand, Row)]
        if not rows:
            return make(*operands)
        count = max(len(row.terms) for row in rows)
        columns = [
            operand.terms if isinstance(operand, Row) else (operand,) * count
            for operand in operands
        ]
        return Row(tuple(make(*places) for places in zip(*columns, strict=True)))

    return lift


def _input(lifter: Lifter, node: Node, _: tuple[Lifted, ...]) -> Lifted:
    return lifter.symbols[node.attribute("name")]


def _const(lifter: Lifter, node: Node, _: tuple[Lifted, ...]) -> Lifted:
    array = node.array()
    flat = array.ravel()
    if not array.size:
        raise lifter.error(node, "it is empty")
    if flat.tobytes() == flat[:1].tobytes() * flat.size:
        return _number(lifter, node, flat[0])
    if array.ndim != 1:
        raise lifter.error(node, "it is a constant of several values and axes")
    return Row(tuple(_number(lifter, node, item) for item in flat))


def _number(lifter: Lifter, node: Node, item: Any) -> Term:
    dtype = node.type.dtype
    if dtype is DType.BOOL:
        return terms.TRUE if item else terms.FALSE
    if dtype.is_integer:
        return terms.rational(int(item))
    if not abs(float(item)) < float("inf"):
        raise lifter.error(node, f"the constant {float(item)} is no number")
    return lifter.constant(float(item), dtype)


def _truncated(operand: Term) -> Term:
    """The integer towards zero; the integer itself where the term shows that it is one."""
    if is_integer(operand):
        return operand
    below = terms.less(operand, terms.ZERO)
    downward = terms.floor(operand)
    return terms.ite(below, terms.negative(terms.floor(terms.negative(operand))), downward)


def _cast(lifter: Lifter, node: Node, operands: tuple[Lifted, ...]) -> Lifted:
    source, target = lifter.type_of(node, 0).dtype, node.type.dtype
    if source is DType.BOOL and target is not DType.BOOL:
        return _each(lambda x: terms.ite(x, terms.ONE, terms.ZERO))(lifter, node, operands)
    if target is DType.BOOL and source is not DType.BOOL:
        return _each(lambda x: terms.negate(terms.equal(x, terms.ZERO)))(lifter, node, operands)
    if target.is_integer and source.is_float:
        return _each(_truncated)(lifter, node, operands)
    return operands[0]


def select(condition: Term, then: Term, other: Term) -> Term:
    """Returns the choice between two terms; that of the lesser or greater one is their extremum."""
    if condition.op is terms.Op.LESS:
        if condition.args == (then, other):
            return terms.minimum(then, other)
        if condition.args == (other, then):
            return terms.maximum(then, other)
    return terms.ite(condition, then, other)


def turns(angle: Term) -> Term:
    """Returns an angle divided by pi; pi is cancelled where it is a factor, not by simplifying."""
    found = _without_pi(angle)
    return terms.divide(angle, terms.PI) if found is None else found


def _without_pi(angle: Term) -> Term | None:
    if angle.op is terms.Op.PI:
        return terms.ONE
    if angle.op is terms.Op.MULTIPLY:
        for position, factor in enumerate(angle.args):
            rest = _without_pi(factor)
            if rest is not None:
                return terms.multiply(*angle.args[:position], rest, *angle.args[position + 1 :])
    if angle.op is terms.Op.DIVIDE:
        above = _without_pi(angle.args[0])
        return None if above is None else terms.divide(above, angle.args[1])
    return None


def _reduce_sum(lifter: Lifter, node: Node, operands: tuple[Lifted, ...]) -> Lifted:
    (operand,) = operands
    shape: Shape = lifter.type_of(node, 0).shape
    axes = node.attribute("axes")
    if isinstance(operand, Row):
        if axes != (len(shape) - 1,):
            raise lifter.error(node, "a row is summed over another axis than its own")
        return total(operand.terms)
    if not axes or all(shape[axis] == 1 for axis in axes):
        return operand
    if len(axes) < len(shape):
        raise lifter.error(node, "the sum leaves an axis, or is over an axis of equal elements")
    return terms.opaque("reduce_sum", operand)


def _lookup(lifter: Lifter, node: Node, operands: tuple[Lifted, ...]) -> Lifted:
    table, index = operands
    if isinstance(index, Row):
        raise lifter.error(node, "its index is a row")
    if lifter.graph.nodes[node.operands[0]].op is not Op.CONST:
        raise lifter.error(node, "its table is no constant of one axis")
    if not isinstance(table, Row):
        return table
    return element(table.terms, index)


def _matmul(_: Lifter, __: Node, operands: tuple[Lifted, ...]) -> Lifted:
    return terms.opaque("matmul", *_plain(operands))


def _plain(operands: tuple[Lifted, ...]) -> list[Term]:
    rows = [operand for operand in operands if isinstance(operand, Row)]
    if rows:
        raise VerificationError("a constant table is no operand of a matrix operation")
    return [operand for operand in operands if isinstance(operand, Term)]


def _transpose(lifter: Lifter, node: Node, operands: tuple[Lifted, ...]) -> Lifted:
    order = node.attribute("permutation")
    if order == tuple(range(len(order))):
        return operands[0]
    last = len(order) - 1
    if order != (*range(last - 1), last, last - 1):
        raise lifter.error(node, "it is no exchange of the last two axes")
    return terms.opaque("transpose", *_plain(operands))


def _reshape(lifter: Lifter, node: Node, operands: tuple[Lifted, ...]) -> Lifted:
    """Axes of size 1 come and go; anything else would move elements."""
    before: Shape = lifter.type_of(node, 0).shape
    if [dim for dim in before if dim != 1] != [dim for dim in node.type.shape if dim != 1]:
        raise lifter.error(node, f"it moves the elements of shape {list(before)}")
    if isinstance(operands[0], Row) and before[-1:] != node.type.shape[-1:]:
        raise lifter.error(node, "it moves the elements of a row")
    return operands[0]


def _broadcast_to(lifter: Lifter, node: Node, operands: tuple[Lifted, ...]) -> Lifted:
    before: Shape = lifter.type_of(node, 0).shape
    is_row = isinstance(operands[0], Row)
    if is_row or not (before == node.type.shape or all(dim == 1 for dim in before)):
        raise lifter.error(node, f"an operand of shape {list(before)} is broadcast along an axis")
    return operands[0]


ELEMENTWISE: Mapping[Op, Callable[..., Term]] = {
    Op.ADD: terms.add,
    Op.SUB: terms.subtract,
    Op.MUL: terms.multiply,
    Op.NEG: terms.negative,
    Op.ABS: terms.absolute,
    Op.DIV: terms.divide,
    Op.FLOOR_DIV: terms.floor_divide,
    Op.FLOOR_MOD: terms.floor_modulo,
    Op.MIN: terms.minimum,
    Op.MAX: terms.maximum,
    Op.FLOOR: terms.floor,
    Op.SQRT: terms.square_root,
    Op.EXP: terms.exp,
    Op.LOG: terms.log,
    Op.COS: lambda angle: terms.cospi(turns(angle)),
    Op.SIN: lambda angle: terms.sinpi(turns(angle)),
    Op.POW: terms.power,
    Op.LT: terms.less,
    Op.LE: terms.less_equal,
    Op.EQ: terms.equal,
    Op.AND: terms.both,
    Op.OR: terms.either,
    Op.NOT: terms.negate,
    Op.WHERE: select,
}
"""The ops that are computed element by element, and the constructors that mean the same."""

LIFTS: Mapping[Op, Lift] = {
    **{op: _each(make) for op, make in ELEMENTWISE.items()},
    Op.INPUT: _input,
    Op.CONST: _const,
    Op.CAST: _cast,
    Op.REDUCE_SUM: _reduce_sum,
    Op.MATMUL: _matmul,
    Op.TRANSPOSE: _transpose,
    Op.RESHAPE: _reshape,
    Op.BROADCAST_TO: _broadcast_to,
    Op.LOOKUP: _lookup,
}
"""How each op of the graph language is read."""

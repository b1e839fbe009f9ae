"""The terms of a graph: one rule for each op of the graph language.

A graph is read over the exact numbers: floats do not round. An integer that may leave its dtype is
undefined where it does; ``conversions`` says how casts are read. The certificate of numerics
measures the effect of rounding.

A rule that leaves out an operand loses nothing: the value is undefined where the operand is
(``GraphReader._read``). NaN is not a number, and where a choice takes it the choice has no value.

Tensors are read elementwise. The term of a tensor is that of each of its elements, in symbols for
one element of each input; a tensor that is broadcast is read at its last axes. Sums and maxima,
matrix products, transposes and changes of shape are opaque functions of the term of their operand,
named by its shape (``tensor_functions``). Where elements depend on their position (tables, and
comparisons with a table), a value is a ``Row``: a term for each position along the last axis. A
``Column`` is a tensor with one more axis of size 1 after the others, for an operation with a row.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np

from closedform.errors import VerificationError
from closedform.ir import STEP_MAX, DType, Graph, Node, Op, Role, Shape, ranges
from closedform.ir.analysis.interval import Interval, full
from closedform.language import t
from closedform.verify.terms import build, conversions, sympy_io, tree
from closedform.verify.terms import tensor_functions as functions
from closedform.verify.terms.definedness import is_partial, missing_parts, with_domain
from closedform.verify.terms.limits import LIMITS
from closedform.verify.terms.tables import element, total
from closedform.verify.terms.tree import Term

Constant = Callable[[float, DType], Term]
"""From a float constant to the exact number that it represents."""


@dataclass(frozen=True, slots=True)
class Row:
    """A value whose elements depend on their position along the last axis."""

    terms: tuple[Term, ...]


@dataclass(frozen=True, slots=True)
class Column:
    """A tensor with an axis of size 1 after the axes of its term."""

    term: Term


TermValue = Term | Row | Column
STORED = frozenset({DType.BF16, DType.F16})
"""Storage dtypes: a cast to one of these rounds, as the source says."""

OpReader = Callable[["GraphReader", Node, tuple[TermValue, ...]], TermValue]


def as_stored(value: float, _: DType) -> Term:
    """Returns the dyadic number that a float constant holds."""
    return build.rational(value)


def terms_of_graph(
    graph: Graph,
    *,
    constant: Constant = as_stored,
    symbols: Mapping[str, Term] | None = None,
    last: int = STEP_MAX,
    is_strict: bool = False,
) -> dict[str, Term]:
    """Returns the term of each output, by name.

    Args:
        graph: A graph whose types are right.
        constant: The exact number of a float constant; by default the number that it holds.
        symbols: Terms of inputs by name. The step is ``t``, an integer that is not negative; any
            other input is a real or integer symbol of its name, if not given.
        last: The last step at which the graph may run.
        is_strict: Whether what is computed from an integer that a float may not hold is undefined
            where a small relative error makes a large one.

    Raises:
        VerificationError: A table is not used as a table, or a constant is not a number.

    Example:
        >>> from closedform import compile, schedules
        >>> terms_of_graph(compile(schedules.linear(0, 1, 4)))["value"]
        ite(t < 4, (1/4 * t), 1)
    """
    terms_by_name = {**_inputs(graph), **(symbols or {})}
    for node in graph.inputs:
        name = str(node.attribute("name"))
        terms_by_name[name] = conversions.number_in(terms_by_name[name], node.type.dtype)
    reader = GraphReader(graph, constant, terms_by_name, last, is_strict=is_strict)
    return {output.name: reader.result(output.index) for output in graph.outputs}


def _inputs(graph: Graph) -> dict[str, Term]:
    return {
        node.attribute("name"): sympy_io.term(t)
        if node.attribute("role") == Role.STEP
        else build.symbol(node.attribute("name"), integer=node.type.dtype.is_integer)
        for node in graph.inputs
    }


_WRAPPING = frozenset({Op.ADD, Op.SUB, Op.MUL, Op.NEG, Op.ABS, Op.FLOOR_DIV, Op.REDUCE_SUM})
"""Ops of integers whose result may not fit its dtype."""


def _check_digits(node: Node, value: TermValue) -> None:
    """Raises VerificationError if a constant has more digits than are read."""
    if isinstance(value, Term) and build.is_rational(value):
        number = value.value
        if max(number.p.bit_length(), number.q.bit_length()) > LIMITS.constant_bits:
            raise VerificationError(
                f"{node.op} of constants is a number of more than 4,200 digits",
                hint="write powers of constants as one constant",
            )


# Not FLOOR and not comparisons: there a relative error of 2**-53 may change the result by 1.
_CONTINUOUS = frozenset({Op.ADD, Op.SUB, Op.EXP, Op.POW, Op.COS, Op.SIN, Op.ATAN})
"""Ops that a small error of a small operand changes little."""


_LAZY = frozenset({Op.AND, Op.OR, Op.WHERE})
"""Ops that have a value where some operands have none: the others decide it."""


_LINEAR = frozenset({Op.ADD, Op.SUB, Op.MUL, Op.DIV, Op.NEG, Op.FLOOR})
"""Ops that make a multiple of an integer of another one, apart from constants."""


def _change_terms(value: TermValue, change: Callable[[Term], Term]) -> TermValue:
    """A value with each of its terms changed."""
    match value:
        case Row():
            return Row(tuple(change(operand) for operand in value.terms))
        case Column():
            return Column(change(value.term))
        case _:
            return change(value)


def _term(value: Term | Column) -> Term:
    return value.term if isinstance(value, Column) else value


class GraphReader:
    """The terms of the nodes of one graph, in order.

    Attributes:
        values: The value of each node.
        exact: The same where no coarse number is taken (``conversions``); undefined elsewhere.
    """

    def __init__(
        self,
        graph: Graph,
        constant: Constant,
        symbols: Mapping[str, Term],
        last: int,
        *,
        is_strict: bool = False,
    ) -> None:
        self.graph = graph
        self.constant = constant
        self.symbols = symbols
        self.is_strict = is_strict
        self.intervals = ranges(graph, last)
        self.values: list[TermValue] = []
        self.exact: list[TermValue] = []
        self._counted: set[int] = set()  # the floats that are multiples of integers
        self._bits: dict[int, int] = {}  # the bits of the coarse numbers
        for node, interval in zip(graph.nodes, self.intervals, strict=True):
            self._add(node, interval)

    def _add(self, node: Node, interval: Interval) -> None:
        places = node.operands
        coarse = [self.values[place] is not self.exact[place] for place in places]
        exact = self._read(node, self._exact_operands(node), interval)
        value = exact
        bits = []
        if any(coarse):
            operands = [
                (self.intervals[place], is_coarse)
                for place, is_coarse in zip(places, coarse, strict=True)
            ]
            if conversions.keeps_relative_error(node, operands):
                value = self._read(node, tuple(self.values[place] for place in places), interval)
                bits = [self._bits[place] for place in places if place in self._bits]
        if self.is_strict and self._rounds_integers(node):
            bits.append(node.type.dtype.row.precision)
            exact = _change_terms(exact, lambda operand: conversions.exact_in(operand, min(bits)))
        # Small integers are exact in the float, so the value is exact for them.
        is_coarse = bool(bits) and not conversions.is_small(interval, min(bits))
        if is_coarse and node.type.dtype.is_float:
            self._bits[len(self.values)] = min(bits)
        else:
            exact = value
        if self.is_strict and self._is_counted(node):
            self._counted.add(len(self.values))
        _check_digits(node, value)
        self.values.append(value)
        self.exact.append(exact)

    def _exact_operands(self, node: Node) -> tuple[TermValue, ...]:
        """The operands where they are exact or, for a continuous op, where they are small."""
        exact_operands = []
        for place in node.operands:
            value, exact = self.values[place], self.exact[place]
            is_taken = value is not exact and node.op in _CONTINUOUS
            if is_taken and isinstance(value, Term) and isinstance(exact, Term):
                size = turns(value) if node.op in (Op.COS, Op.SIN) else value
                exact = conversions.where_small(size, self._bits[place], value, exact)
            exact_operands.append(exact)
        return tuple(exact_operands)

    def _read(self, node: Node, operands: tuple[TermValue, ...], interval: Interval) -> TermValue:
        """The value of a node by its rule, undefined where it does not fit its dtype.

        It is undefined where an operand is, whatever the rule makes of it.
        """
        if node.op is not Op.WHERE and any(
            operand == build.UNDEFINED and self.graph.nodes[place].op is Op.CONST
            for place, operand in zip(node.operands, operands, strict=True)
        ):
            raise self.error(node, "it computes with the constant NaN")
        value = GRAPH_RULES[node.op](self, node, operands)
        if node.op not in _LAZY:
            value = self._with_domain(node, value, operands)
        dtype = node.type.dtype
        if not dtype.is_integer or interval != full(dtype) or not self._may_not_fit(node):
            return value
        return _change_terms(value, lambda operand: conversions.fitting(operand, dtype))

    def _with_domain(
        self, node: Node, value: TermValue, operands: tuple[TermValue, ...]
    ) -> TermValue:
        """A value that is undefined where an operand is; of a row position by position."""
        terms = [
            operand.terms if isinstance(operand, Row) else (_term(operand),) for operand in operands
        ]
        if not isinstance(value, Row):
            all_terms = [entry for entries in terms for entry in entries]
            return _change_terms(value, lambda entry: self._keep(node, entry, all_terms))
        count = len(value.terms)
        columns = [entries if len(entries) == count else entries * count for entries in terms]
        return Row(
            tuple(
                self._keep(node, entry, [column[place] for column in columns])
                for place, entry in enumerate(value.terms)
            )
        )

    def _keep(self, node: Node, value: Term, operands: Sequence[Term]) -> Term:
        if value.op not in tree.TRUTHS:
            return with_domain(value, operands)
        if missing_parts([value], operands):
            raise self.error(node, "it leaves out an operand that may have no value")
        return value

    def _may_not_fit(self, node: Node) -> bool:
        return node.op in _WRAPPING or (node.op is Op.CAST and self.type_of(node, 0).dtype.is_float)

    def _rounds_integers(self, node: Node) -> bool:
        """Whether a node is a conversion that may change an integer, or a multiple of one."""
        if node.op is not Op.CAST:
            return False
        (place,) = node.operands
        source, target = self.type_of(node, 0).dtype, node.type.dtype
        is_counted = source.is_integer or place in self._counted
        if not is_counted or not conversions.rounds_integers(source, target):
            return False
        return not conversions.is_small(self.intervals[place], target.row.precision)

    def _is_counted(self, node: Node) -> bool:
        """Whether a float is made of an integer by only constant factors and summands."""
        if not node.type.dtype.is_float:
            return False
        if node.op is Op.CAST:
            return self.type_of(node, 0).dtype.is_integer or node.operands[0] in self._counted
        if node.op not in _LINEAR or self._counted.isdisjoint(node.operands):
            return False
        return all(
            place in self._counted or self.graph.nodes[place].op is Op.CONST
            for place in node.operands
        )

    def result(self, index: int) -> Term:
        """Returns the term of a node that is an output."""
        return self.plain(self.graph.nodes[index], self.values[index])

    def plain(self, node: Node, value: TermValue, shape: Shape | None = None) -> Term:
        """Returns a value that is not a row as a term.

        Args:
            node: The node, for errors.
            value: The value.
            shape: Its shape; that of the node if not given.
        """
        match value:
            case Row():
                raise self.error(node, "its elements depend on their position")
            case Column():
                full_shape = node.type.shape if shape is None else shape
                return functions.reshape(value.term, full_shape[:-1], full_shape)
            case _:
                return value

    def operand(self, node: Node, position: int, operands: tuple[TermValue, ...]) -> Term:
        """Returns an operand of a function of whole tensors."""
        if isinstance(operands[position], Row):
            raise self.error(node, "an operand depends on its position")
        return self.plain(node, operands[position], self.type_of(node, position).shape)

    def type_of(self, node: Node, position: int) -> Any:
        """Returns the type of an operand."""
        return self.graph.nodes[node.operands[position]].type

    def error(self, node: Node, why: str) -> VerificationError:
        """Returns an error that names the node."""
        index = self.graph.nodes.index(node)
        return VerificationError(
            f"{node.op} of {node.type} cannot be read as a term: {why}",
            where=f"node %{index} of graph {self.graph.name!r}",
            hint="a table is compared with a number or a column, summed, or looked up",
        )


def select(condition: Term, then: Term, otherwise: Term) -> Term:
    """Returns the choice between two terms, as an extremum or a sign where it is one.

    A choice by whether a value is NaN is the branch for numbers, where the value is one.
    """
    is_positive = condition.op in (tree.Op.EQUAL, tree.Op.AND)
    tested_numbers = _tested_numbers(build.negate(condition) if is_positive else condition)
    if tested_numbers is not None:
        return with_domain(then if is_positive else otherwise, tested_numbers)
    if then == otherwise:
        return with_domain(then, [condition])
    if condition.op is tree.Op.LESS:
        # where(a < b, a, b) is min(a, b): the prover knows bounds of extrema without splitting.
        if condition.args == (then, otherwise):
            return build.minimum(then, otherwise)
        if condition.args == (otherwise, then):
            return build.maximum(then, otherwise)
        number, bound = condition.args
        is_sign = bound == build.ZERO and then == build.rational(-1)
        if is_sign and otherwise == build.ite(build.less(bound, number), build.ONE, bound):
            return build.sign(number)
    return build.ite(condition, then, otherwise)


def _tested_numbers(condition: Term) -> list[Term] | None:
    """The numbers x of a condition ``x != x or …``, which none makes true; None of any other."""
    parts = condition.args if condition.op is tree.Op.OR else (condition,)
    numbers: list[Term] = []
    for part in parts:
        comparison = part.args[0] if part.op is tree.Op.NOT else part
        if comparison is part or comparison.args[0] != comparison.args[1]:
            return None
        numbers.append(comparison.args[0])
    return numbers


def _equal(left: Term, right: Term) -> Term:
    """A comparison of a value with itself tests for NaN: it holds wherever the value is one."""
    return build.TRUE if left == right and not is_partial(left) else build.equal(left, right)


def turns(angle: Term) -> Term:
    """Returns an angle divided by pi; pi is cancelled where it is a factor, not by simplifying."""
    # Cosines are in half turns here (cospi), so that rational angles are exact.
    factor = _without_pi(angle)
    return build.divide(angle, build.PI) if factor is None else factor


def _without_pi(angle: Term) -> Term | None:
    if angle.op is tree.Op.PI:
        return build.ONE
    if angle.op is tree.Op.MULTIPLY:
        for position, factor in enumerate(angle.args):
            rest = _without_pi(factor)
            if rest is not None:
                return build.multiply(*angle.args[:position], rest, *angle.args[position + 1 :])
    if angle.op is tree.Op.DIVIDE:
        above = _without_pi(angle.args[0])
        return None if above is None else build.divide(above, angle.args[1])
    return None


ELEMENTWISE: Mapping[Op, Callable[..., Term]] = {
    Op.ADD: build.add,
    Op.SUB: build.subtract,
    Op.MUL: build.multiply,
    Op.NEG: build.negative,
    Op.ABS: build.absolute,
    Op.DIV: build.divide,
    Op.FLOOR_DIV: build.floor_divide,
    Op.FLOOR_MOD: build.floor_modulo,
    Op.MIN: build.minimum,
    Op.MAX: build.maximum,
    Op.FLOOR: build.floor,
    Op.SQRT: build.square_root,
    Op.EXP: build.exp,
    Op.LOG: build.log,
    Op.COS: lambda angle: build.cospi(turns(angle)),
    Op.SIN: lambda angle: build.sinpi(turns(angle)),
    Op.ATAN: build.atan,
    Op.POW: build.power,
    Op.LT: build.less,
    Op.LE: build.less_equal,
    Op.EQ: _equal,
    Op.AND: build.both,
    Op.OR: build.either,
    Op.NOT: build.negate,
    Op.WHERE: select,
}
"""The elementwise ops, and the constructors of their terms."""


def _elementwise(make: Callable[..., Term]) -> OpReader:
    """The rule of an elementwise op; with a row, other operands are the same at each position."""

    def rule(reader: GraphReader, node: Node, operands: tuple[TermValue, ...]) -> TermValue:
        if any(isinstance(operand, Row) for operand in operands):
            return _beside_row(reader, node, operands, make)
        if not any(isinstance(operand, Column) for operand in operands):
            return make(*operands)
        shapes = [reader.type_of(node, place).shape for place in range(len(operands))]
        are_columns = all(
            isinstance(operand, Column) or _is_scalar(shape)
            for operand, shape in zip(operands, shapes, strict=True)
        )
        if are_columns and len({shape for shape in shapes if not _is_scalar(shape)}) == 1:
            return Column(
                make(*(value.term if isinstance(value, Column) else value for value in operands))
            )
        return make(*(reader.operand(node, place, operands) for place in range(len(operands))))

    return rule


def _comparison(make: Callable[..., Term]) -> OpReader:
    """The rule of a comparison; of one number in two ways to compute it a float decides."""
    rule = _elementwise(make)

    def compare(reader: GraphReader, node: Node, operands: tuple[TermValue, ...]) -> TermValue:
        first, second = node.operands
        is_float = reader.type_of(node, 0).dtype.is_float
        if is_float and first != second and operands[0] == operands[1]:
            raise reader.error(
                node,
                "over the real numbers its operands are equal, and floats may round them apart",
            )
        return rule(reader, node, operands)

    return compare


def _is_scalar(shape: Shape) -> bool:
    return all(size == 1 for size in shape)


def _beside_row(
    reader: GraphReader, node: Node, operands: tuple[TermValue, ...], make: Callable[..., Term]
) -> Row:
    """An elementwise op with a row: scalars and columns are the same at each of its positions."""
    count = node.type.shape[-1]
    columns: list[tuple[Term, ...]] = []
    for position, operand in enumerate(operands):
        operand_shape: Shape = reader.type_of(node, position).shape
        if isinstance(operand, Row):
            columns.append(operand.terms)
            fits = len(operand.terms) == count
        else:
            is_column = isinstance(operand, Column)
            term = operand.term if isinstance(operand, Column) else operand
            columns.append((term,) * int(count) if isinstance(count, int) else ())
            fits = is_column or _is_scalar(operand_shape)
        if not fits:
            raise reader.error(
                node,
                f"an operand of shape {list(operand_shape)} is broadcast along an axis of a row",
            )
    return Row(tuple(make(*places) for places in zip(*columns, strict=True)))


def _input(reader: GraphReader, node: Node, _: tuple[TermValue, ...]) -> TermValue:
    return reader.symbols[node.attribute("name")]


def _const(reader: GraphReader, node: Node, _: tuple[TermValue, ...]) -> TermValue:
    array = node.array()
    flat = array.ravel()
    if not array.size:
        raise reader.error(node, "it is empty")
    # Bytes, so that NaN is equal to itself, and 0 is not -0.
    if flat.tobytes() == flat[:1].tobytes() * flat.size:
        is_nan = node.type.dtype.is_float and np.isnan(flat[0])
        return build.UNDEFINED if is_nan else _number(reader, node, flat[0])
    is_line = array.ndim > 1 and max(array.shape) == array.size
    if is_line and np.array_equal(flat, np.arange(array.size)):
        return functions.positions(array.shape, array.shape.index(array.size))
    if array.ndim != 1:
        raise reader.error(node, "it is a constant of several values and axes")
    return Row(tuple(_number(reader, node, item) for item in flat))


def _number(reader: GraphReader, node: Node, item: Any) -> Term:
    dtype = node.type.dtype
    if dtype is DType.BOOL:
        return build.TRUE if item else build.FALSE
    if dtype.is_integer:
        return build.rational(int(item))
    if not abs(float(item)) < float("inf"):
        raise reader.error(node, f"the constant {float(item)} is not a number")
    return reader.constant(float(item), dtype)


def _cast(reader: GraphReader, node: Node, operands: tuple[TermValue, ...]) -> TermValue:
    source, target = reader.type_of(node, 0).dtype, node.type.dtype
    if source is DType.BOOL and target is not DType.BOOL:
        return _elementwise(lambda x: select(x, build.ONE, build.ZERO))(reader, node, operands)
    if target is DType.BOOL and source is not DType.BOOL:
        return _elementwise(lambda x: build.negate(build.equal(x, build.ZERO)))(
            reader, node, operands
        )
    if target.is_integer and source.is_float:
        return _elementwise(conversions.truncate)(reader, node, operands)
    if target in STORED and source is not target:
        return _elementwise(lambda x: functions.round_to(x, target))(reader, node, operands)
    fits = reader.intervals[node.operands[0]].is_within(full(target))
    if conversions.is_narrower(source, target) and not fits:
        return _elementwise(lambda x: conversions.wrap_integer(x, target))(reader, node, operands)
    return operands[0]


def _reduction(kind: str) -> OpReader:
    """The rule of a reduction; the sum of a row is that of its terms."""

    def rule(reader: GraphReader, node: Node, operands: tuple[TermValue, ...]) -> TermValue:
        shape: Shape = reader.type_of(node, 0).shape
        axes, is_last = node.attribute("axes"), node.attribute("axes") == (len(shape) - 1,)
        if isinstance(operands[0], Row):
            if not is_last or kind != functions.REDUCE_SUM:
                raise reader.error(node, "a row is reduced by another op than its sum")
            row_sum = total(operands[0].terms)
            return Column(row_sum) if node.attribute("keepdims") else row_sum
        if isinstance(operands[0], Column) and is_last:
            return operands[0] if node.attribute("keepdims") else operands[0].term
        operand = reader.operand(node, 0, operands)
        return functions.reduce_axes(
            kind, operand, shape, axes, keepdims=node.attribute("keepdims")
        )

    return rule


def _lookup(reader: GraphReader, node: Node, operands: tuple[TermValue, ...]) -> TermValue:
    table, index = operands
    if isinstance(index, Row):
        raise reader.error(node, "its index is a row")
    if reader.graph.nodes[node.operands[0]].op is not Op.CONST:
        raise reader.error(node, "its table is not a constant of one axis")
    size = reader.type_of(node, 0).shape[0]
    # A constant of equal entries is one number.
    entries = table.terms if isinstance(table, Row) else (_term(table),) * int(size)
    return element(entries, reader.operand(node, 1, operands))


def _matmul(reader: GraphReader, node: Node, operands: tuple[TermValue, ...]) -> TermValue:
    left, right = (reader.operand(node, place, operands) for place in (0, 1))
    return functions.product(
        left, right, (reader.type_of(node, 0).shape, reader.type_of(node, 1).shape)
    )


def _transpose(reader: GraphReader, node: Node, operands: tuple[TermValue, ...]) -> TermValue:
    shape: Shape = reader.type_of(node, 0).shape
    return functions.transpose(
        reader.operand(node, 0, operands), shape, node.attribute("permutation")
    )


def _reshape(reader: GraphReader, node: Node, operands: tuple[TermValue, ...]) -> TermValue:
    before: Shape = reader.type_of(node, 0).shape
    after: Shape = node.type.shape
    (operand,) = operands
    if isinstance(operand, Row):
        has_new_ones = _is_scalar(before[:-1]) and _is_scalar(after[:-1])
        if before[-1:] != after[-1:] or not has_new_ones:
            raise reader.error(node, "it moves the elements of a row")
        return operand
    if isinstance(operand, Column) and before == (*after, 1):
        return operand.term
    if after == (*before, 1):
        return Column(reader.operand(node, 0, operands))
    return functions.reshape(reader.operand(node, 0, operands), before, after)


def _broadcast_to(reader: GraphReader, node: Node, operands: tuple[TermValue, ...]) -> TermValue:
    if isinstance(operands[0], Row):
        raise reader.error(node, "a row is broadcast")
    return reader.operand(node, 0, operands)


def _slice(reader: GraphReader, node: Node, operands: tuple[TermValue, ...]) -> TermValue:
    axis, start, stop = (node.attribute(name) for name in ("axis", "start", "stop"))
    shape = reader.type_of(node, 0).shape
    return functions.slice_of(reader.operand(node, 0, operands), shape, (axis, start, stop))


def _concat(reader: GraphReader, node: Node, operands: tuple[TermValue, ...]) -> TermValue:
    places = range(len(operands))
    terms = [reader.operand(node, place, operands) for place in places]
    shapes = [reader.type_of(node, place).shape for place in places]
    return functions.concat(terms, shapes, node.attribute("axis"))


def _uniform(reader: GraphReader, node: Node, operands: tuple[TermValue, ...]) -> TermValue:
    step = reader.operand(node, 1, operands)
    return functions.uniform(step, reader.type_of(node, 0).shape, node.attribute("seed"))


GRAPH_RULES: Mapping[Op, OpReader] = {
    **{op: _elementwise(make) for op, make in ELEMENTWISE.items()},
    **{op: _comparison(ELEMENTWISE[op]) for op in (Op.LT, Op.LE, Op.EQ)},
    Op.INPUT: _input,
    Op.CONST: _const,
    Op.CAST: _cast,
    Op.REDUCE_SUM: _reduction(functions.REDUCE_SUM),
    Op.REDUCE_MAX: _reduction(functions.REDUCE_MAX),
    Op.MATMUL: _matmul,
    Op.TRANSPOSE: _transpose,
    Op.RESHAPE: _reshape,
    Op.BROADCAST_TO: _broadcast_to,
    Op.SLICE: _slice,
    Op.CONCAT: _concat,
    Op.LOOKUP: _lookup,
    Op.UNIFORM: _uniform,
}
"""The rule of each op of the graph language."""

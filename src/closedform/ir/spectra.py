"""Norms of matrices: bounds on products of a matrix with itself, by its singular values.

Elements say little of products: each product of n x n matrices may grow n times. A polynomial in a
matrix X and its transpose, such as ``a*X + (b*X*X' + c*(X*X')^2)*X``, has the singular values
``a*s + b*s^3 + c*s^5`` of those s of X, and no element is larger than the largest of them. A node
is such a polynomial of a base, exactly, and rounding adds a matrix whose Frobenius norm is bounded:

- a product of inner size k adds ``k * eps`` times the product of the Frobenius norms,
- a sum, a scaling or a conversion adds ``eps`` times the Frobenius norm of the result,

and each factor of a product passes its own error on, times the norm of the other one. A base is a
matrix that is multiplied by its transpose. Its norm is that of the polynomial that it is of another
base, or its Frobenius norm, which is 1 but for rounding where it was divided by that.
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass, field

import numpy as np

from closedform.ir.arithmetic import LEAST_NORMAL
from closedform.ir.graph import Node
from closedform.ir.interval import Interval
from closedform.ir.ops import Op
from closedform.ir.types import DType

_POINTS = 4096
_DEGREE = 16
# The relative error of the sums and products below, in float64.
_SLACK = 1 + 2.0**-40

# Forms of a matrix other than its base B of m rows and n columns, by their rows and columns.
_Form = tuple[str, str]
_PLAIN: _Form = ("m", "n")


@dataclass(frozen=True, slots=True)
class _Spectrum:
    """A polynomial of a base, and how far a node is from it.

    Attributes:
        base: The node that it is a polynomial of.
        form: Whether it has the rows and columns of the base, or others.
        coefficients: Of the powers of a singular value.
        error: The Frobenius norm of the difference at most.
    """

    base: int
    form: _Form
    coefficients: tuple[float, ...]
    error: float


@dataclass(slots=True)
class Spectra:
    """The norms of the matrices of a graph, which are added from its first node on.

    Attributes:
        nodes: The nodes.
        bases: Matrices that are multiplied by their transpose.
        norms: Bounds on the largest singular value of bases.
        known: The polynomials by node.
    """

    nodes: Sequence[Node]
    bases: frozenset[int] = field(init=False)
    norms: dict[int, float] = field(default_factory=dict)
    known: dict[int, _Spectrum] = field(default_factory=dict)

    def __post_init__(self) -> None:
        self.bases = frozenset(
            base
            for node in self.nodes
            if node.op is Op.MATMUL
            for base in [_squared(self.nodes, node)]
            if base is not None
        )

    def bound(self, index: int, ranges: Sequence[Interval]) -> float | None:
        """Returns a bound on the size of the elements of a matrix; None where none is known.

        Args:
            index: The node; those before it were asked for.
            ranges: The intervals of the nodes up to this one.
        """
        if not self._is_matrix(index):
            return None
        found = self._polynomial(index, ranges)
        norm = None if found is None else self._norm(found)
        if index in self.bases:
            whole = _norm_of_quotient(self.nodes, index, ranges)
            frobenius = self._most(index, ranges) * math.sqrt(self._count(index))
            norm = min(each for each in (norm, whole, frobenius) if each is not None)
            found = _Spectrum(index, _PLAIN, (0.0, 1.0), 0.0) if math.isfinite(norm) else None
            self.norms[index] = norm
        if found is not None and norm is not None and math.isfinite(norm):
            self.known[index] = found
            return norm
        return None

    def _is_matrix(self, index: int) -> bool:
        kind = self.nodes[index].type
        if kind.dtype not in _COMPUTED:
            return False
        return len(kind.shape) == 2 and all(isinstance(dim, int) for dim in kind.shape)

    def _count(self, index: int) -> int:
        return math.prod(int(dim) for dim in self.nodes[index].type.shape)

    @staticmethod
    def _most(index: int, ranges: Sequence[Interval]) -> float:
        interval = ranges[index]
        most = float(max(abs(interval.low), abs(interval.high)))
        return math.inf if interval.maybe_nan else most

    def _polynomial(self, index: int, ranges: Sequence[Interval]) -> _Spectrum | None:
        node = self.nodes[index]
        match node.op:
            case Op.TRANSPOSE:
                found = self.known.get(node.operands[0])
                swapped = None if found is None else (found.form[1], found.form[0])
                return None if found is None or swapped is None else _with(found, form=swapped)
            case Op.CAST:
                return self._rounded(index, self.known.get(node.operands[0]))
            case Op.MUL:
                return self._rounded(index, self._scaled(node, ranges))
            case Op.ADD | Op.SUB:
                return self._rounded(index, self._added(node))
            case Op.MATMUL:
                return self._multiplied(node)
            case _:
                return None

    def _scaled(self, node: Node, ranges: Sequence[Interval]) -> _Spectrum | None:
        for matrix, scalar in (node.operands, node.operands[::-1]):
            found, factor = self.known.get(matrix), ranges[scalar]
            is_one = not self.nodes[scalar].type.shape and factor.low == factor.high
            if found is not None and is_one and math.isfinite(factor.low):
                number = float(factor.low)
                coefficients = tuple(number * each for each in found.coefficients)
                error = abs(number) * found.error * _SLACK
                return _Spectrum(found.base, found.form, coefficients, error)
        return None

    def _added(self, node: Node) -> _Spectrum | None:
        one, other = (self.known.get(operand) for operand in node.operands)
        if one is None or other is None or (one.base, one.form) != (other.base, other.form):
            return None
        sign = 1.0 if node.op is Op.ADD else -1.0
        size = max(len(one.coefficients), len(other.coefficients))
        first, second = (
            each.coefficients + (0.0,) * (size - len(each.coefficients)) for each in (one, other)
        )
        coefficients = tuple(a + sign * b for a, b in zip(first, second, strict=True))
        return _Spectrum(one.base, one.form, coefficients, (one.error + other.error) * _SLACK)

    def _multiplied(self, node: Node) -> _Spectrum | None:
        one, other = (self.known.get(operand) for operand in node.operands)
        if one is None or other is None or one.base != other.base:
            return None
        if one.form[1] != other.form[0]:
            return None
        size = len(one.coefficients) + len(other.coefficients) - 1
        if size > _DEGREE:
            return None
        coefficients = tuple(np.convolve(one.coefficients, other.coefficients).tolist())
        inner = int(self.nodes[node.operands[0]].type.shape[-1])
        error = self._exact_norm(one) * other.error + one.error * self._exact_norm(other)
        rounding = inner * float(np.finfo(node.type.dtype.numpy).eps)
        if rounding > 0.1:
            return None
        rounding *= 1.25 * self._frobenius(one) * self._frobenius(other)
        lost = LEAST_NORMAL[node.type.dtype] * inner * math.prod(map(int, node.type.shape))
        error = (error + one.error * other.error + rounding + lost) * _SLACK
        return _Spectrum(one.base, (one.form[0], other.form[1]), coefficients, error)

    def _rounded(self, index: int, found: _Spectrum | None) -> _Spectrum | None:
        """With the error of one rounding of each element."""
        if found is None:
            return None
        dtype = self.nodes[index].type.dtype
        if dtype not in _COMPUTED:
            return None
        eps = float(np.finfo(dtype.numpy).eps)
        lost = LEAST_NORMAL[dtype] * self._count(index)
        return _with(found, error=(found.error + eps * self._frobenius(found) + lost) * _SLACK)

    def _exact_norm(self, found: _Spectrum) -> float:
        """The largest value of the polynomial in size, at points and by its slope between them."""
        most = self.norms[found.base]
        if not math.isfinite(most) or most > 2.0**20:
            return math.inf
        at = np.linspace(0.0, most, _POINTS)
        values = np.abs(np.polynomial.polynomial.polyval(at, found.coefficients))
        slope = sum(
            power * abs(number) * most ** (power - 1)
            for power, number in enumerate(found.coefficients)
            if power
        )
        return float((values.max() + slope * most / (_POINTS - 1)) * _SLACK)

    def _norm(self, found: _Spectrum) -> float:
        return (self._exact_norm(found) + found.error) * _SLACK

    def _frobenius(self, found: _Spectrum) -> float:
        rank = min(int(dim) for dim in self.nodes[found.base].type.shape)
        return (math.sqrt(rank) * self._exact_norm(found) + found.error) * _SLACK


_COMPUTED = frozenset({DType.F32, DType.F64})


def _with(found: _Spectrum, *, form: _Form | None = None, error: float | None = None) -> _Spectrum:
    return _Spectrum(
        found.base,
        found.form if form is None else form,
        found.coefficients,
        found.error if error is None else error,
    )


def _squared(nodes: Sequence[Node], node: Node) -> int | None:
    """The matrix that a product multiplies by its transpose, on either side."""
    one, other = node.operands
    if nodes[other].op is Op.TRANSPOSE and nodes[other].operands[0] == one:
        return one
    if nodes[one].op is Op.TRANSPOSE and nodes[one].operands[0] == other:
        return other
    return None


def _norm_of_quotient(
    nodes: Sequence[Node], index: int, ranges: Sequence[Interval]
) -> float | None:
    """The Frobenius norm of a matrix divided by its own, at most; None for other nodes.

    Squares that are subnormal may be lost from the norm; the divisor is at least a number.
    """
    node = nodes[index]
    if node.op is not Op.DIV:
        return None
    matrix, divisor = node.operands
    least = float(ranges[divisor].low)
    count = math.prod(int(dim) for dim in nodes[matrix].type.shape)
    if least <= 0 or not _is_norm(nodes, ranges, divisor, matrix):
        return None
    dtype = node.type.dtype
    rounding = (count + 8) * float(np.finfo(dtype.numpy).eps)
    if rounding > 0.1:
        return None
    lost = count * LEAST_NORMAL[dtype] / least**2
    return math.sqrt((1 + 2.5 * rounding) + lost) * (1 + rounding) * _SLACK


def _is_norm(nodes: Sequence[Node], ranges: Sequence[Interval], index: int, of: int) -> bool:
    """Whether a value is at least the root of the sum of all squares of a matrix, rounded."""
    node = nodes[index]
    match node.op:
        case Op.MAX:
            return any(_is_norm(nodes, ranges, each, of) for each in node.operands)
        case Op.ADD:
            one, other = node.operands
            return any(
                ranges[rest].low >= 0 and _is_norm(nodes, ranges, each, of)
                for each, rest in ((one, other), (other, one))
            )
        case Op.RESHAPE | Op.BROADCAST_TO:
            return _is_norm(nodes, ranges, node.operands[0], of)
        case Op.SQRT:
            total = nodes[node.operands[0]]
            is_whole = total.op is Op.REDUCE_SUM and set(total.attribute("axes")) == {0, 1}
            if not is_whole:
                return False
            square = nodes[total.operands[0]]
            return square.op is Op.MUL and square.operands == (of, of)
        case _:
            return False


__all__ = ["Spectra"]

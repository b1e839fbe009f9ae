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

from closedform.ir.analysis.interval import LEAST_NORMAL, Interval
from closedform.ir.graph import Node
from closedform.ir.ops import Op
from closedform.ir.types import DType

# Points at which a polynomial is evaluated, and its highest degree: a step of Newton-Schulz of
# degree 5 starts from a new base.
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
    spectra: dict[int, _Spectrum] = field(default_factory=dict)

    def __post_init__(self) -> None:
        self.bases = frozenset(
            base
            for node in self.nodes
            if node.op is Op.MATMUL
            for base in [_squared_matrix(self.nodes, node)]
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
        spectrum = self._polynomial(index, ranges)
        norm = None if spectrum is None else self._norm(spectrum)
        if index in self.bases:
            whole = _norm_of_quotient(self.nodes, index, ranges)
            frobenius = self._most(index, ranges) * math.sqrt(self._count(index))
            # The node becomes a base, a polynomial of itself without error: degrees and errors
            # start anew.
            norm = min(limit for limit in (norm, whole, frobenius) if limit is not None)
            spectrum = _Spectrum(index, _PLAIN, (0.0, 1.0), 0.0) if math.isfinite(norm) else None
            self.norms[index] = norm
        if spectrum is not None and norm is not None and math.isfinite(norm):
            self.spectra[index] = spectrum
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
                spectrum = self.spectra.get(node.operands[0])
                swapped_form = None if spectrum is None else (spectrum.form[1], spectrum.form[0])
                return (
                    None
                    if spectrum is None or swapped_form is None
                    else _with(spectrum, form=swapped_form)
                )
            case Op.CAST:
                return self._with_rounding(index, self.spectra.get(node.operands[0]))
            case Op.MUL:
                return self._with_rounding(index, self._scaled_spectrum(node, ranges))
            case Op.ADD | Op.SUB:
                return self._with_rounding(index, self._sum_spectrum(node))
            case Op.MATMUL:
                return self._product_spectrum(node)
            case _:
                return None

    def _scaled_spectrum(self, node: Node, ranges: Sequence[Interval]) -> _Spectrum | None:
        for matrix, scalar in (node.operands, node.operands[::-1]):
            spectrum, factor = self.spectra.get(matrix), ranges[scalar]
            is_one = not self.nodes[scalar].type.shape and factor.low == factor.high
            if spectrum is not None and is_one and math.isfinite(factor.low):
                number = float(factor.low)
                coefficients = tuple(number * coefficient for coefficient in spectrum.coefficients)
                error = abs(number) * spectrum.error * _SLACK
                return _Spectrum(spectrum.base, spectrum.form, coefficients, error)
        return None

    def _sum_spectrum(self, node: Node) -> _Spectrum | None:
        left, right = (self.spectra.get(operand) for operand in node.operands)
        if left is None or right is None or (left.base, left.form) != (right.base, right.form):
            return None
        sign = 1.0 if node.op is Op.ADD else -1.0
        size = max(len(left.coefficients), len(right.coefficients))
        first, second = (
            spectrum.coefficients + (0.0,) * (size - len(spectrum.coefficients))
            for spectrum in (left, right)
        )
        coefficients = tuple(a + sign * b for a, b in zip(first, second, strict=True))
        return _Spectrum(left.base, left.form, coefficients, (left.error + right.error) * _SLACK)

    def _product_spectrum(self, node: Node) -> _Spectrum | None:
        left, right = (self.spectra.get(operand) for operand in node.operands)
        if left is None or right is None or left.base != right.base:
            return None
        # Only X X' and X' X have inner factors V'V = I or U'U = I.
        if left.form[1] != right.form[0]:
            return None
        size = len(left.coefficients) + len(right.coefficients) - 1
        if size > _DEGREE:
            return None
        # The product of polynomials; the singular vectors between two factors of one base cancel.
        coefficients = tuple(np.convolve(left.coefficients, right.coefficients).tolist())
        inner = int(self.nodes[node.operands[0]].type.shape[-1])
        # A B - (A + E)(B + F): by the spectral norm of one factor and the Frobenius norm of the
        # error of the other.
        error = self._exact_norm(left) * right.error + left.error * self._exact_norm(right)
        rounding = inner * float(np.finfo(node.type.dtype.numpy).eps)
        if rounding > 0.1:
            return None
        rounding *= 1.25 * self._frobenius(left) * self._frobenius(right)
        underflow = LEAST_NORMAL[node.type.dtype] * inner * math.prod(map(int, node.type.shape))
        error = (error + left.error * right.error + rounding + underflow) * _SLACK
        return _Spectrum(left.base, (left.form[0], right.form[1]), coefficients, error)

    def _with_rounding(self, index: int, spectrum: _Spectrum | None) -> _Spectrum | None:
        """With the error of one rounding of each element."""
        if spectrum is None:
            return None
        dtype = self.nodes[index].type.dtype
        if dtype not in _COMPUTED:
            return None
        eps = float(np.finfo(dtype.numpy).eps)
        underflow = LEAST_NORMAL[dtype] * self._count(index)
        return _with(
            spectrum, error=(spectrum.error + eps * self._frobenius(spectrum) + underflow) * _SLACK
        )

    def _exact_norm(self, spectrum: _Spectrum) -> float:
        """The largest value of the polynomial in size, at points and by its slope between them."""
        most = self.norms[spectrum.base]
        # (2**20)**15 is far from the largest float64, so no term of the polynomial overflows.
        if not math.isfinite(most) or most > 2.0**20:
            return math.inf
        at = np.linspace(0.0, most, _POINTS)
        values = np.abs(np.polynomial.polynomial.polyval(at, spectrum.coefficients))
        slope = sum(
            power * abs(number) * most ** (power - 1)
            for power, number in enumerate(spectrum.coefficients)
            if power
        )
        # Mean value theorem: between two points the value changes by at most the slope times their
        # distance.
        return float((values.max() + slope * most / (_POINTS - 1)) * _SLACK)

    def _norm(self, spectrum: _Spectrum) -> float:
        return (self._exact_norm(spectrum) + spectrum.error) * _SLACK

    def _frobenius(self, spectrum: _Spectrum) -> float:
        # The Frobenius norm is at most sqrt(rank) times the spectral norm.
        rank = min(int(dim) for dim in self.nodes[spectrum.base].type.shape)
        return (math.sqrt(rank) * self._exact_norm(spectrum) + spectrum.error) * _SLACK


_COMPUTED = frozenset({DType.F32, DType.F64})


def _with(
    spectrum: _Spectrum, *, form: _Form | None = None, error: float | None = None
) -> _Spectrum:
    return _Spectrum(
        spectrum.base,
        spectrum.form if form is None else form,
        spectrum.coefficients,
        spectrum.error if error is None else error,
    )


def _squared_matrix(nodes: Sequence[Node], node: Node) -> int | None:
    """The matrix that a product multiplies by its transpose, on either side."""
    left, right = node.operands
    if nodes[right].op is Op.TRANSPOSE and nodes[right].operands[0] == left:
        return left
    if nodes[left].op is Op.TRANSPOSE and nodes[left].operands[0] == right:
        return right
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
    underflow = count * LEAST_NORMAL[dtype] / least**2
    return math.sqrt((1 + 2.5 * rounding) + underflow) * (1 + rounding) * _SLACK


def _is_norm(nodes: Sequence[Node], ranges: Sequence[Interval], index: int, of: int) -> bool:
    """Whether a value is at least the root of the sum of all squares of a matrix, rounded."""
    node = nodes[index]
    match node.op:
        # A max with a floor, and a sum with an epsilon >= 0, only enlarge the divisor.
        case Op.MAX:
            return any(_is_norm(nodes, ranges, operand, of) for operand in node.operands)
        case Op.ADD:
            left, right = node.operands
            return any(
                ranges[addend].low >= 0 and _is_norm(nodes, ranges, operand, of)
                for operand, addend in ((left, right), (right, left))
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

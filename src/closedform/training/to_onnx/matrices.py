"""Decompositions of small matrices as products and sums: a step for each row, without a loop.

Each operator computes what LAPACK does (pivots of the first largest entry, reflections with its
signs), so that the gradients that torch records hold. Sizes are static.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import Any

import torch

from closedform.training.to_onnx.arrays import NARROW
from closedform.training.to_onnx.operators import ATEN

Tensor = torch.Tensor

LARGEST = 64
"""The most rows or columns: an export writes some ten operators for each."""


def _size(matrix: Tensor, axis: int, name: str) -> int:
    """A size of a matrix as a number; a free one is fixed, which the trace reports by its name."""
    count = int(matrix.shape[axis])
    if count > LARGEST:
        raise NotImplementedError(f"{name} of more than {LARGEST} rows or columns")
    return count


def _order(matrix: Tensor, name: str) -> int:
    """The size of a square matrix."""
    return _size(matrix, -1, name)


def _info(is_wrong: Tensor) -> Tensor:
    """LAPACK's report: the number of the first entry of a diagonal that is wrong, or 0."""
    if not is_wrong.shape[-1]:
        return torch.zeros(is_wrong.shape[:-1], dtype=torch.int32)
    first = is_wrong.to(torch.int32).argmax(-1) + 1
    return torch.where(is_wrong.any(-1), first, 0).to(torch.int32)


def _diagonal(matrix: Tensor) -> Tensor:
    height, width = (int(size) for size in matrix.shape[-2:])
    count = min(height, width)
    matrix = matrix.narrow(-2, 0, count).narrow(-1, 0, count)
    return torch.where(torch.eye(count, dtype=torch.bool), matrix, 0.0).sum(-1)


def _column(values: Tensor) -> Tensor:
    return values.unsqueeze(-1)


def _exchange(order: Tensor, first: int, second: Tensor) -> Tensor:
    """A permutation with the entry at one place and that at another exchanged."""
    places = torch.arange(order.shape[-1])
    here = order.narrow(-1, first, 1)
    there = order.gather(-1, second)
    return torch.where(places == first, there, torch.where(places == second, here, order))


def _rows(matrix: Tensor, order: Tensor) -> Tensor:
    """The rows of a matrix in an order."""
    return matrix.gather(-2, _column(order).expand(matrix.shape))


def lu_factors(matrix: Tensor, *, pivot: bool = True) -> tuple[Tensor, Tensor, Tensor]:
    """Returns L and U in one matrix, the pivots as LAPACK counts them, and the order of rows.

    The pivot of a column is its first largest entry. A column of zeros is left unchanged.
    """
    height, width = (_size(matrix, axis, "the LU decomposition") for axis in (-2, -1))
    if 0 in matrix.shape[:-2]:
        pivots = torch.zeros((*matrix.shape[:-2], min(height, width)), dtype=torch.int32)
        return matrix.clone(), pivots, torch.zeros(matrix.shape[:-1], dtype=torch.int64)
    rows, columns = torch.arange(height), torch.arange(width)
    order = rows.expand(matrix.shape[:-1])
    places: list[Tensor] = []
    for k in range(min(height, width)):
        place = torch.full((*matrix.shape[:-2], 1), k, dtype=torch.int64)
        # The last row has no other candidate for its pivot.
        if pivot and k < height - 1:
            below = matrix.select(-1, k).narrow(-1, k, height - k).abs()
            place = below.argmax(-1, keepdim=True) + k
            # Rows are exchanged by a gather: an export has no writes in place.
            swap = _exchange(rows.expand(matrix.shape[:-1]), k, place)
            matrix, order = _rows(matrix, swap), order.gather(-1, swap)
        places.append(place + 1)
        top = matrix.narrow(-2, k, 1)
        number = top.narrow(-1, k, 1)
        # getrf goes on after a zero pivot, with a column of zeros in L.
        factor = matrix.narrow(-1, k, 1) / torch.where(number == 0, 1.0, number)
        is_below = _column(rows > k)
        factor = torch.where(is_below, factor, 0.0)
        matrix = matrix - factor * torch.where(columns > k, top, 0.0)
        # L below the diagonal, U on and above it, as LAPACK packs both into one matrix.
        matrix = torch.where(is_below & (columns == k), factor, matrix)
    pivots = torch.cat(places, -1) if places else order.narrow(-1, 0, 0)
    return matrix, pivots.to(torch.int32), order


def _order_of(pivots: Tensor, height: int) -> Tensor:
    """The order of rows that pivots lead to."""
    order = torch.arange(height).expand(*pivots.shape[:-1], height)
    for k in range(int(pivots.shape[-1])):
        # Pivots of LAPACK count from 1, and each exchanges two rows in turn.
        order = _exchange(order, k, pivots.narrow(-1, k, 1).to(torch.int64) - 1)
    return order


def _permutation(order: Tensor, dtype: torch.dtype) -> Tensor:
    """The matrix P with A = P·L·U for rows of A in this order."""
    places = torch.arange(order.shape[-1])
    return (order.unsqueeze(-2) == _column(places)).to(dtype)


def _parts(factors: Tensor) -> tuple[Tensor, Tensor]:
    """L and U of factors in one matrix."""
    height, width = (int(size) for size in factors.shape[-2:])
    count = min(height, width)
    lower = factors.narrow(-1, 0, count).tril(-1) + torch.eye(height, count, dtype=factors.dtype)
    return lower, factors.narrow(-2, 0, count).triu()


def triangular(
    matrix: Tensor, right: Tensor, *, upper: bool, left: bool = True, unitriangular: bool = False
) -> Tensor:
    """Returns the solution of A·X = B, or X·A = B, for a triangular A, row by row."""
    if not left:
        # X·A = B is Aᵀ·Xᵀ = Bᵀ, and the transpose of an upper triangle is a lower one.
        solution = triangular(matrix.mT, right.mT, upper=not upper, unitriangular=unitriangular)
        return solution.mT
    count = _order(matrix, "the solution of a triangular system")
    batch = torch.broadcast_shapes(matrix.shape[:-2], right.shape[:-2])
    right = right.expand(*batch, *right.shape[-2:])
    matrix = matrix.expand(*batch, *matrix.shape[-2:])
    rows: dict[int, Tensor] = {}
    for i in reversed(range(count)) if upper else range(count):
        row = right.narrow(-2, i, 1)
        if rows:
            # The rows that are solved are neighbours, in front (lower) or behind (upper).
            first = min(rows)
            above = torch.cat([rows[j] for j in sorted(rows)], -2)
            row = row - matrix.narrow(-2, i, 1).narrow(-1, first, len(rows)) @ above
        if not unitriangular:
            row = row / matrix.narrow(-2, i, 1).narrow(-1, i, 1)
        rows[i] = row
    return torch.cat([rows[i] for i in range(count)], -2) if rows else right.clone()


def _solve_with_factors(
    factors: Tensor, order: Tensor, right: Tensor, *, adjoint: bool = False
) -> Tensor:
    """The solution of A·X = B, or Aᵀ·X = B, with the factors of A."""
    permutation = _permutation(order, factors.dtype)
    if adjoint:
        # Aᵀ·X = B with A = P·L·U is Uᵀ·Lᵀ·(Pᵀ·X) = B.
        below = triangular(factors.mT, right, upper=False)
        return permutation @ triangular(factors.mT, below, upper=True, unitriangular=True)
    below = triangular(factors, permutation.mT @ right, upper=False, unitriangular=True)
    return triangular(factors, below, upper=True)


def _lu_factor(matrix: Tensor, *, pivot: bool = True, check_errors: bool = False) -> Any:
    del check_errors
    factors, pivots, _ = lu_factors(matrix, pivot=pivot)
    return factors, pivots, _info(_diagonal(factors) == 0)


def _lu(matrix: Tensor, *, pivot: bool = True) -> Any:
    factors, _, order = lu_factors(matrix, pivot=pivot)
    lower, upper = _parts(factors)
    # Without pivots torch.linalg.lu returns an empty P.
    permutation = _permutation(order, matrix.dtype) if pivot else matrix.new_empty(0)
    return permutation, lower, upper


def _lu_unpack(
    factors: Tensor, pivots: Tensor, unpack_data: bool = True, unpack_pivots: bool = True
) -> Any:
    empty = torch.zeros(0, dtype=factors.dtype)
    lower, upper = _parts(factors) if unpack_data else (empty, empty)
    if not unpack_pivots:
        return empty, lower, upper
    order = _order_of(pivots, int(factors.shape[-2]))
    return _permutation(order, factors.dtype), lower, upper


def _lu_solve(
    factors: Tensor, pivots: Tensor, right: Tensor, *, left: bool = True, adjoint: bool = False
) -> Tensor:
    order = _order_of(pivots, int(factors.shape[-1]))
    if left:
        return _solve_with_factors(factors, order, right, adjoint=adjoint)
    return _solve_with_factors(factors, order, right.mT, adjoint=not adjoint).mT


def _solve(matrix: Tensor, right: Tensor, *, left: bool = True, check_errors: bool = False) -> Any:
    del check_errors
    factors, pivots, order = lu_factors(matrix)
    # torch.linalg.solve tells a batch of vectors from a matrix by this rule
    # (native/LinearAlgebraUtils.h, linalg_solve_is_vector_rhs).
    is_vector = right.dim() == 1 or (
        right.dim() == matrix.dim() - 1 and right.shape == matrix.shape[:-1]
    )
    columns = _column(right) if is_vector else right
    if left:
        solution = _solve_with_factors(factors, order, columns)
    else:
        solution = _solve_with_factors(factors, order, columns.mT, adjoint=True).mT
    solution = solution.squeeze(-1) if is_vector else solution
    return solution, factors, pivots, _info(_diagonal(factors) == 0)


def _inverse(matrix: Tensor, *, check_errors: bool = False) -> Any:
    del check_errors
    factors, _, order = lu_factors(matrix)
    unit = torch.eye(matrix.shape[-1], dtype=matrix.dtype)
    inverse = _solve_with_factors(factors, order, unit.expand(matrix.shape))
    return inverse, _info(_diagonal(factors) == 0)


def _sign_of(order: Tensor) -> Tensor:
    """The sign of a permutation: that of its inversions."""
    later = _column(order) > order.unsqueeze(-2)
    # The sign is −1 to the number of pairs that are out of order.
    inversions = later.to(torch.int64).triu(1).sum((-2, -1))
    return 1 - 2 * (inversions % 2)


def _factors_of_determinant(matrix: Tensor) -> tuple[Tensor, Tensor, Tensor]:
    """The factors of the transpose, where torch takes those; its gradient counts on them."""
    return lu_factors(matrix.mT if matrix.is_contiguous() else matrix)


def _determinant(matrix: Tensor) -> Any:
    factors, pivots, order = _factors_of_determinant(matrix)
    entries, count = _diagonal(factors), _order(matrix, "the determinant")
    value = _sign_of(order).to(matrix.dtype)
    for k in range(count):
        value = value * entries.select(-1, k)
    return value, factors, pivots


def _log_determinant(matrix: Tensor) -> Any:
    factors, pivots, order = _factors_of_determinant(matrix)
    entries = _diagonal(factors)
    sign = _sign_of(order).to(matrix.dtype)
    for k in range(_order(matrix, "the determinant")):
        sign = sign * entries.select(-1, k).sign()
    return sign, entries.abs().log().sum(-1), factors, pivots


def _cholesky(matrix: Tensor, upper: bool = False) -> Tensor:
    """Returns L with A = L·Lᵀ, from the lower triangle of A; or its transpose, from the upper one.

    It is NaN where A is not positive definite.
    """
    # torch reads one triangle only: a matrix that is not symmetric has no error.
    if upper:
        return _cholesky(matrix.mT).mT
    count = _order(matrix, "the Cholesky decomposition")
    columns: list[Tensor] = []
    rows = torch.arange(count)
    for k in range(count):
        column = matrix.narrow(-1, k, 1)
        if columns:
            before = torch.cat(columns, -1)
            column = column - before @ before.narrow(-2, k, 1).mT
        # The root of a negative pivot is NaN, which reaches all later columns.
        column = column / column.narrow(-2, k, 1).sqrt()
        columns.append(torch.where(_column(rows >= k), column, 0.0))
    return torch.cat(columns, -1) if columns else matrix.clone()


def _cholesky_ex(matrix: Tensor, *, upper: bool = False, check_errors: bool = False) -> Any:
    del check_errors
    factor = _cholesky(matrix, upper)
    return factor, _info(~(_diagonal(factor) > 0))


def _cholesky_solve(right: Tensor, factor: Tensor, upper: bool = False) -> Tensor:
    lower = factor.mT if upper else factor
    return triangular(lower.mT, triangular(lower, right, upper=False), upper=True)


def _cholesky_inverse(factor: Tensor, upper: bool = False) -> Tensor:
    unit = torch.eye(factor.shape[-1], dtype=factor.dtype).expand(factor.shape)
    return _cholesky_solve(unit, factor.triu() if upper else factor.tril(), upper)


def _triangular_solve(
    right: Tensor,
    matrix: Tensor,
    upper: bool = True,
    transpose: bool = False,
    unitriangular: bool = False,
) -> Any:
    # Aᵀ's other triangle is read: upper exchanges its meaning.
    system = matrix.mT if transpose else matrix
    solution = triangular(system, right, upper=upper != transpose, unitriangular=unitriangular)
    return solution, matrix.expand(*solution.shape[:-2], *matrix.shape[-2:]).clone()


def _solve_triangular(
    matrix: Tensor, right: Tensor, *, upper: bool, left: bool = True, unitriangular: bool = False
) -> Tensor:
    return triangular(matrix, right, upper=upper, left=left, unitriangular=unitriangular)


def _qr(matrix: Tensor, mode: str = "reduced") -> Any:
    """Returns Q and R by Householder's reflections I − τ·v·vᵀ, with the signs of LAPACK."""
    height, width = (_size(matrix, axis, "the QR decomposition") for axis in (-2, -1))
    count = min(height, width)
    rows = _column(torch.arange(height))
    unit = torch.eye(height, dtype=matrix.dtype)
    product = unit.expand(*matrix.shape[:-2], height, height)
    for k in range(min(count, height - 1)):
        column = torch.where(rows >= k, matrix.narrow(-1, k, 1), 0.0)
        first = column.narrow(-2, k, 1)
        rest = torch.where(rows > k, column, 0.0)
        largest = column.abs().amax((-2, -1), keepdim=True)
        scaled_column = column / torch.where(largest == 0, 1.0, largest)
        norm = largest * (scaled_column * scaled_column).sum(-2, keepdim=True).sqrt()
        # Scaled by the largest entry above, as dnrm2 does: squares neither overflow nor vanish.
        is_done = rest.abs().amax((-2, -1), keepdim=True) == 0
        # larfg: β = −sign(α)·‖x‖, so that α − β has no cancellation.
        target = torch.where(first < 0, norm, -norm)
        target = torch.where(is_done, 1.0, target)
        rate = torch.where(is_done, 0.0, (target - first) / target)
        divisor = torch.where(is_done, 1.0, first - target)
        direction = torch.where(rows == k, 1.0, rest / divisor)
        matrix = matrix - rate * direction @ (direction.mT @ matrix)
        product = product - (product @ direction) @ (rate * direction.mT)
    if mode == "complete":
        return product, matrix.triu()
    upper = matrix.narrow(-2, 0, count).triu()
    if mode == "r":
        return torch.zeros(0, dtype=matrix.dtype), upper
    return product.narrow(-1, 0, count), upper


def _reflect(vectors: Tensor, rates: Tensor, right: Tensor, *, transpose: bool = False) -> Tensor:
    """Q·B, or Qᵀ·B, for the product Q of reflections I − τ·v·vᵀ.

    Each v is a column with 1 in its place and what is below.
    """
    height = _size(vectors, -2, "a product of reflections")
    rows = _column(torch.arange(height))
    places = range(_size(rates, -1, "a product of reflections"))
    for k in places if transpose else reversed(places):
        column = vectors.narrow(-1, k, 1)
        direction = torch.where(rows > k, column, torch.where(rows == k, 1.0, 0.0))
        rate = _column(rates.narrow(-1, k, 1))
        right = right - rate * direction @ (direction.mT @ right)
    return right


def product_of_reflections(vectors: Tensor, rates: Tensor) -> Tensor:
    """Returns the first columns of the product of reflections."""
    unit = torch.eye(*map(int, vectors.shape[-2:]), dtype=vectors.dtype)
    return _reflect(vectors, rates, unit.expand(vectors.shape))


def product_with_reflections(
    vectors: Tensor, rates: Tensor, right: Tensor, left: bool = True, transpose: bool = False
) -> Tensor:
    """Returns Q·B, Qᵀ·B, B·Q or B·Qᵀ for the product Q of reflections."""
    if left:
        return _reflect(vectors, rates, right, transpose=transpose)
    return _reflect(vectors, rates, right.mT, transpose=not transpose).mT


def _no_check(info: Tensor, api_name: str, *, is_matrix: bool) -> None:
    """An error that depends on data: the result of a singular matrix has infinite entries or NaN.

    LAPACK's report is computed, and can be read from the operators that return it.
    """


_COEFFICIENTS = 12
"""The degree of the polynomial of an exponential, for matrices of a norm of at most 1."""

_SQUARINGS = 20
"""At most: an entry e^(2^20) is infinite in each dtype."""


def matrix_exponential(matrix: Tensor) -> Tensor:
    """Returns exp A by Taylor's polynomial of A/2ˢ, squared s times, for norms of up to 2²⁰."""
    _order(matrix, "the exponential")
    if matrix.dtype in NARROW:  # its powers of two are beyond float16
        raise NotImplementedError("the exponential of a matrix in 16 bits")
    unit = torch.eye(matrix.shape[-1], dtype=matrix.dtype)
    if not matrix.shape[-1]:
        return matrix.clone()
    # The 1-norm, by columns; s is chosen by it without a gradient.
    norm = matrix.detach().abs().sum(-2).amax(-1).unsqueeze(-1).unsqueeze(-1)
    scale = torch.ones_like(norm)
    for k in range(_SQUARINGS):
        scale = torch.where(norm > 2.0**k, 2.0 ** -(k + 1), scale)
    small = matrix * scale
    total = unit + small / _COEFFICIENTS
    # Horner's scheme for Σ Aᵏ/k!.
    for k in range(_COEFFICIENTS - 1, 0, -1):
        total = unit + small @ total / k
    for k in range(_SQUARINGS):
        # exp A = (exp A/2ˢ)^(2ˢ): a squaring for each halving above.
        total = torch.where(norm > 2.0**k, total @ total, total)
    return total


def _of_real(decomposition: Callable[..., Any]) -> Callable[..., Any]:
    """A decomposition of real numbers only; others are refused by the name of the operator."""

    def compute(*arguments: Any, **options: Any) -> Any:
        tensors = [argument for argument in arguments if isinstance(argument, Tensor)]
        if any(tensor.is_complex() for tensor in tensors):
            return NotImplemented
        return decomposition(*arguments, **options)

    return compute


def real(form: Callable[..., Any], name: str) -> Callable[..., Any]:
    """Returns a form for real numbers, which raises NotImplementedError for complex ones."""

    def compute(*arguments: Any, **options: Any) -> Any:
        if any(isinstance(value, Tensor) and value.is_complex() for value in arguments):
            raise NotImplementedError(f"{name} of complex numbers")
        return form(*arguments, **options)

    return compute


_REAL: Mapping[Any, Callable[..., Any]] = {
    ATEN.linalg_lu_factor_ex.default: _lu_factor,
    ATEN.linalg_lu.default: _lu,
    ATEN.lu_unpack.default: _lu_unpack,
    ATEN.linalg_lu_solve.default: _lu_solve,
    ATEN.linalg_solve_triangular.default: _solve_triangular,
    ATEN.triangular_solve.default: _triangular_solve,
    ATEN._linalg_solve_ex.default: _solve,
    ATEN.linalg_inv_ex.default: _inverse,
    ATEN._linalg_det.default: _determinant,
    ATEN._linalg_slogdet.default: _log_determinant,
    ATEN.linalg_cholesky_ex.default: _cholesky_ex,
    ATEN.cholesky.default: _cholesky,
    ATEN.cholesky_solve.default: _cholesky_solve,
    ATEN._cholesky_solve_helper.default: _cholesky_solve,
    ATEN.cholesky_inverse.default: _cholesky_inverse,
    ATEN.linalg_qr.default: _qr,
    ATEN._linalg_check_errors.default: _no_check,
}

MATRICES: Mapping[Any, Callable[..., Any]] = {
    operator: _of_real(decomposition) for operator, decomposition in _REAL.items()
}
"""Decompositions by the operator that they replace."""

"""Identity matrices, diagonals, triangles and decompositions of torch.

Decompositions have the fixed numbers of operations of :mod:`closedform.language.matrices`.
Signs of singular vectors are chosen by LAPACK, and so are vectors of equal values: a step in which
they matter differs from its rule, which the comparison with the optimizer shows.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from typing import Any

import sympy as sp

from closedform.errors import TraceError
from closedform.importers.tensors.values import Value, shape_expressions
from closedform.importers.torch_optimizer.algebra import TorchAlgebra
from closedform.importers.torch_optimizer.storages import View
from closedform.language.functions import positions
from closedform.language.matrices import (
    identity,
    is_diagonal,
    orthogonal_factor,
    right_singular_vectors,
)
from closedform.language.rotations import LEAST

OperatorRule = Callable[..., "Value | Sequence[Value | None] | None"]
ViewRule = Callable[..., Sequence[View]]


def _eye(algebra: TorchAlgebra, rows: int, columns: int | None = None, **_: Any) -> Value:
    sizes = (rows, rows if columns is None else columns)
    ones = algebra.whole(Value(sp.Integer(1)), sizes)
    return algebra.define(identity(ones.expr), sizes, "identity")


def _triangle(is_inside: Callable[[sp.Expr, sp.Expr], sp.Basic]) -> Callable[..., Value]:
    """The rule of a triangle: the elements whose column compares so with the row's diagonal."""

    def rule(algebra: TorchAlgebra, a: Any, diagonal: int = 0) -> Value:
        value = algebra.whole(a, tuple(a.shape))
        algebra.is_structural = True  # Rows and columns need two axes.
        row, column = positions(value.expr, -2) + diagonal, positions(value.expr, -1)
        triangle = sp.Piecewise((value.expr, is_inside(column, row)), (0, True))
        return algebra.define(triangle, value.shape, "triangle")

    return rule


_upper_triangle = _triangle(sp.Ge)


def _diagonal(
    algebra: TorchAlgebra, a: Any, offset: int = 0, dim1: int = 0, dim2: int = 1
) -> list[View]:
    """The diagonal of square matrices on the last two axes, in both directions."""
    sizes = tuple(a.shape)
    rank = len(sizes)
    axes = {dim1 % rank, dim2 % rank}
    if offset or axes != {rank - 2, rank - 1} or sizes[-1] != sizes[-2]:
        raise TraceError(
            f"diagonal {offset} of the axes {dim1} and {dim2} of a tensor of shape {list(sizes)} "
            "has no expression: only the main diagonal of square matrices on the last two axes has"
        )

    def read(value: Value) -> Value:
        if value.shape == ():
            return value
        whole = algebra.whole(value, sizes)
        chosen = sp.Piecewise((whole.expr, is_diagonal(whole.expr)), (0, True))
        masked = algebra.define(chosen, sizes, "diagonal")
        return algebra.reduce("sum", masked, sizes, [rank - 1])

    def write(old: Value, new: Value) -> Value:
        whole = algebra.whole(old, sizes)
        entries = new
        if new.shape:
            entries = algebra.reshape(new, sizes[:-1], (*sizes[:-1], 1))
        chosen = sp.Piecewise((entries.expr, is_diagonal(whole.expr)), (whole.expr, True))
        return algebra.define(chosen, sizes, "diagonal")

    return [View("diagonal", read, write)]


def _diagonal_matrix(
    algebra: TorchAlgebra, a: Any, offset: int = 0, dim1: int = -2, dim2: int = -1
) -> Value:
    """The diagonal matrix of a vector."""
    size = a.shape[-1]
    if offset or a.dim() != 1 or {dim1 % 2, dim2 % 2} != {0, 1}:
        raise TraceError(
            f"diagonal {offset} of the axes {dim1} and {dim2} made of a tensor of shape "
            f"{list(a.shape)} has no expression: only the main diagonal made of a vector has"
        )
    ones = algebra.whole(Value(sp.Integer(1)), (size, size))
    column = algebra.reshape(algebra.whole(a, (size,)), (size,), (size, 1))
    matrix = sp.Piecewise((column.expr, is_diagonal(ones.expr)), (0, True))
    return algebra.define(matrix, (size, size), "diagonal")


def _factors(algebra: TorchAlgebra, a: Any, mode: str = "reduced") -> list[Value]:
    """The factors Q and R of matrices that have no more columns than rows."""
    rows, columns = _sizes_of_matrix(a, "a QR decomposition")
    if mode != "reduced" or columns > rows:
        raise TraceError(
            f"a QR decomposition of {rows} rows and {columns} columns with mode={mode!r} has no "
            "expression: only that of no more columns than rows with mode='reduced' has"
        )
    matrix = algebra.whole(a, (rows, columns))
    sizes = shape_expressions(algebra.axes, (rows, columns))
    factor = algebra.define(orthogonal_factor(matrix.expr, *sizes), (rows, columns), "orthogonal")
    transposed = algebra.permute(factor, (rows, columns), (1, 0))
    triangle = algebra.matmul(transposed, (columns, rows), matrix, (rows, columns))
    return [factor, _upper_triangle(algebra, triangle)]


def _singular_values(
    algebra: TorchAlgebra, a: Any, full_matrices: bool = False, *_: Any, **__: Any
) -> list[Value]:
    """U, the singular values and the transposed V of a matrix."""
    rows, columns = _sizes_of_matrix(a, "a singular value decomposition")
    if full_matrices and rows != columns:
        raise TraceError("a singular value decomposition with full_matrices has no expression")
    matrix = algebra.whole(a, (rows, columns))
    if columns > rows:
        matrix = algebra.permute(matrix, (rows, columns), (1, 0))
        left, values, right = _tall_decomposition(algebra, matrix, columns, rows)
        return [
            algebra.permute(right, (rows, rows), (1, 0)),
            values,
            algebra.permute(left, (columns, rows), (1, 0)),
        ]
    return _tall_decomposition(algebra, matrix, rows, columns)


def _tall_decomposition(
    algebra: TorchAlgebra, matrix: Value, rows: int, columns: int
) -> list[Value]:
    sizes = shape_expressions(algebra.axes, (rows, columns))
    square = (columns, columns)
    vectors = algebra.define(right_singular_vectors(matrix.expr, *sizes), square, "singular")
    turned = algebra.matmul(matrix, (rows, columns), vectors, square)
    values = algebra.norm(turned, (rows, columns), 2, [0])
    lengths = algebra.reshape(values, (columns,), (1, columns))
    left = algebra.map(lambda x, s: x / sp.Max(s, LEAST), turned, lengths, name="quotient")
    return [left, values, algebra.permute(vectors, square, (1, 0))]


def _eigenvectors(algebra: TorchAlgebra, a: Any, *_: Any, **__: Any) -> list[Value]:
    """The eigenvalues of a symmetric matrix, the smallest first, and their vectors."""
    rows, columns = _sizes_of_matrix(a, "an eigendecomposition")
    square = (rows, columns)
    matrix = algebra.whole(a, square)
    sizes = shape_expressions(algebra.axes, square)
    totals = algebra.norm(matrix, square, 1, [1])
    bound = algebra.reduce("max", totals, (rows,), None)
    # The eigenvalues of bI - A are b - λ >= 0, the largest of them that of the smallest λ.
    unit = algebra.define(identity(matrix.expr), square, "identity")
    shifted = algebra.map(lambda x, b, i: b * i - x, matrix, bound, unit, name="shifted")
    vectors = algebra.define(right_singular_vectors(shifted.expr, *sizes), square, "singular")
    turned = algebra.matmul(matrix, square, vectors, square)
    products = algebra.map(lambda x, y: x * y, turned, vectors, name="product")
    return [algebra.reduce("sum", products, square, [0]), vectors]


def _sizes_of_matrix(a: Any, name: str) -> tuple[int, int]:
    if a.dim() != 2:
        raise TraceError(f"{name} of a tensor of {a.dim()} axes has no expression")
    rows, columns = a.shape
    return rows, columns


RULES: Mapping[str, OperatorRule] = {
    "eye": _eye,
    "diag_embed": _diagonal_matrix,
    "tril": _triangle(sp.Le),
    "triu": _upper_triangle,
    "linalg_qr": _factors,
    "_linalg_svd": _singular_values,
    "_linalg_eigh": _eigenvectors,
}
VIEWS: Mapping[str, ViewRule] = {"diagonal": _diagonal}

REFUSED: Mapping[str, str] = {
    "linalg_eig": "an eigendecomposition of a matrix that is not symmetric has no expression"
}
"""Operators that are refused, with the reason."""


def refusal(name: str) -> TraceError:
    """Returns the error for an operator without a rule."""
    return TraceError(REFUSED.get(name, "the operation has no expression in the language"))

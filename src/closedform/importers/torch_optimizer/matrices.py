"""Identity matrices, diagonals and triangles of torch, and why decompositions are refused."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from typing import Any

import sympy as sp

from closedform.errors import TraceError
from closedform.importers.tensors.values import Value
from closedform.importers.torch_optimizer.algebra import TorchAlgebra
from closedform.importers.torch_optimizer.storages import View
from closedform.language.functions import positions
from closedform.language.matrices import identity, is_diagonal

OperatorRule = Callable[..., "Value | Sequence[Value | None] | None"]
ViewRule = Callable[..., Sequence[View]]


def _eye(algebra: TorchAlgebra, rows: int, columns: int | None = None, **_: Any) -> Value:
    sizes = (rows, rows if columns is None else columns)
    ones = algebra.whole(Value(sp.Integer(1)), sizes)
    return algebra.define(identity(ones.expr), sizes, "identity")


def _triangle(is_inside: Callable[[sp.Expr, sp.Expr], sp.Basic]) -> OperatorRule:
    def rule(algebra: TorchAlgebra, a: Any, diagonal: int = 0) -> Value:
        value = algebra.whole(a, tuple(a.shape))
        algebra.is_structural = True
        row, column = positions(value.expr, -2) + diagonal, positions(value.expr, -1)
        triangle = sp.Piecewise((value.expr, is_inside(column, row)), (0, True))
        return algebra.define(triangle, value.shape, "triangle")

    return rule


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


RULES: Mapping[str, OperatorRule] = {
    "eye": _eye,
    "tril": _triangle(sp.Le),
    "triu": _triangle(sp.Ge),
}
VIEWS: Mapping[str, ViewRule] = {"diagonal": _diagonal}

_OF_EIGENVECTORS = (
    "{name} has no expression: its iteration ends by the values of the matrix, and LAPACK chooses "
    "the signs of the vectors"
)
REFUSED: Mapping[str, str] = {
    "_linalg_eigh": _OF_EIGENVECTORS.format(name="an eigendecomposition"),
    "_linalg_svd": _OF_EIGENVECTORS.format(name="a singular value decomposition"),
    "linalg_eig": _OF_EIGENVECTORS.format(name="an eigendecomposition"),
}
"""Operators that are refused, with the reason."""


def refusal(name: str) -> TraceError:
    """Returns the error for an operator without a rule."""
    return TraceError(REFUSED.get(name, "the operation has no expression in the language"))

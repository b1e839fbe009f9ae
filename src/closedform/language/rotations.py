"""Singular vectors by a fixed number of sweeps of Jacobi's rotations."""

from __future__ import annotations

from collections.abc import Iterator

import sympy as sp

from closedform.errors import DefinitionError
from closedform.language.functions import matmul, positions, reduce_max, reduce_sum, transpose
from closedform.language.integers import floor_mod
from closedform.language.symbols import local

Definitions = dict[str, sp.Expr]

MOST_ROTATED = 32
"""The most columns whose singular vectors are unrolled: 372 rounds of rotations."""

LEAST = sp.Rational(1, 2**126)
"""The least normal number of float32: no divisor is smaller."""


def sweeps(columns: int) -> int:
    """Returns the number of sweeps for a matrix.

    After them columns are orthogonal to rounding for condition numbers up to 1e8: measured with
    random matrices and with geometric singular values, of 2 to 32 columns, which need at most 3 to
    10 of them.
    """
    return 6 + -(-columns // 6)


def pairs_of_rounds(like: sp.Expr, columns: int) -> Iterator[sp.Basic]:
    """Yields the conditions of being a pair of columns, for each round of a sweep.

    The rounds of a tournament: in each of them every column has one partner, or none if their
    number is odd, and after all of them each two have met.

    Args:
        like: A tensor of shape [n, n].
        columns: The number n.
    """
    row, column = positions(like, -2), positions(like, -1)
    # The circle method of round-robin tournaments: columns i and j meet in round (i + j) mod count.
    # An even number of columns has a last one outside the circle, which meets the i with 2i = round
    # mod count; count is odd, so there is exactly one.
    count = columns - 1 + columns % 2
    for place in range(count):
        # A mask over [n, n] in place of a gather: the IR has no indexing, and a product with the
        # mask exchanges all pairs of a round at once.
        is_pair = sp.And(sp.Eq(floor_mod(row + column, count), place), sp.Ne(row, column))
        if columns % 2:
            yield is_pair
            continue
        is_last = [
            sp.And(sp.Eq(first, count), sp.Eq(floor_mod(2 * second, count), place), second < count)
            for first, second in ((row, column), (column, row))
        ]
        yield sp.Or(sp.And(is_pair, row < count, column < count), *is_last)


def scaled_to_one(x: sp.Expr) -> sp.Expr:
    """Returns a matrix over its largest size: squares of small numbers would underflow."""
    return x / sp.Max(reduce_max(sp.Abs(x), (-2, -1), keepdims=True), LEAST)


def right_singular_vectors(prefix: str, x: sp.Expr, rows: int, columns: int) -> Definitions:
    """Returns definitions of the right singular vectors of a matrix, largest value first.

    Raises:
        DefinitionError: It has more columns than rows, or than are unrolled.
    """
    if columns > MOST_ROTATED or columns > rows:
        raise DefinitionError(
            f"a singular value decomposition takes up to {MOST_ROTATED} columns and no more than "
            f"rows, got {rows} rows and {columns} columns",
            where=f"definition {prefix!r}",
        )
    definitions: Definitions = {
        f"{prefix}_x": scaled_to_one(x),
        # Only the shape [n, n] of X'X is used, never its elements: its condition number is the
        # square of that of X.
        f"{prefix}_like": matmul(transpose(local(f"{prefix}_x")), local(f"{prefix}_x")),
    }
    like = local(f"{prefix}_like")
    row, column = positions(like, -2), positions(like, -1)
    definitions[f"{prefix}_v"] = mask(sp.Eq(row, column))
    rounds = list(pairs_of_rounds(like, columns)) if columns > 1 else []
    for place, is_pair in enumerate(rounds):
        definitions[f"{prefix}_p{place}"] = mask(is_pair)
        # 1 for the first column of a pair, -1 for the second one, 0 without a partner.
        order = mask(row > column) - mask(row < column)
        definitions[f"{prefix}_u{place}"] = reduce_sum(
            local(f"{prefix}_p{place}") * order, (-2,), keepdims=True
        )
    matrix, vectors = local(f"{prefix}_x"), local(f"{prefix}_v")
    # A fixed number of sweeps and no test of convergence: the graph has no loop.
    for sweep in range(sweeps(columns)):
        for place in range(len(rounds)):
            name = f"{prefix}_{sweep}_{place}"
            partner = local(f"{prefix}_p{place}")
            definitions |= _rotation(name, matrix, partner, local(f"{prefix}_u{place}"))
            for part, before in (("x", matrix), ("v", vectors)):
                partner_columns = local(f"{name}m") if part == "x" else matmul(before, partner)
                definitions[f"{name}{part}"] = before * local(f"{name}c") - partner_columns * local(
                    f"{name}s"
                )
            matrix, vectors = local(f"{name}x"), local(f"{name}v")
    definitions[f"{prefix}_sizes"] = reduce_sum(matrix**2, (-2,), keepdims=True)
    order = descending_order(local(f"{prefix}_sizes"), like, f"{prefix}_order")
    return {**definitions, **order, prefix: matmul(vectors, local(f"{prefix}_order"))}


def _rotation(name: str, matrix: sp.Expr, partner: sp.Expr, order: sp.Expr) -> Definitions:
    """Definitions of cosine and sine for each column: both of a pair become orthogonal.

    The rotation by the smaller angle, or, where the first column would be the shorter one, that and
    a quarter turn: sorted columns converge faster.
    """
    size, partner_size, product, gap = (local(f"{name}{part}") for part in ("d", "e", "o", "g"))
    tangent, cosine = local(f"{name}t"), local(f"{name}k")
    direction = sp.Piecewise((1, gap > 0), (-1, gap < 0), (order, True))
    is_turned = local(f"{name}w")
    return {
        f"{name}m": matmul(matrix, partner),
        f"{name}d": reduce_sum(matrix**2, (-2,), keepdims=True),
        f"{name}e": reduce_sum(local(f"{name}m") ** 2, (-2,), keepdims=True),
        f"{name}o": reduce_sum(matrix * local(f"{name}m"), (-2,), keepdims=True),
        f"{name}g": partner_size - size,
        # tan of the angle, as the smaller root of t² + (gap / product) t - 1: both summands of the
        # divisor are >= 0, so nothing cancels (Golub and Van Loan, Matrix Computations, 4th
        # edition, 8.5). ``gap`` and ``direction`` change sign with the column and ``product`` does
        # not, so that the two columns of a pair compute opposite angles without seeing each other.
        # LEAST makes 0 of 0 / 0.
        f"{name}t": 2
        * product
        * direction
        / (sp.Abs(gap) + sp.sqrt(gap**2 + 4 * product**2) + LEAST),
        f"{name}k": 1 / sp.sqrt(1 + tangent**2),
        # Products with 0 and 1, not choices: of a choice in a choice a proof has two cases.
        f"{name}w": mask(order * gap > 0),
        f"{name}c": (1 - is_turned) * cosine - is_turned * order * tangent * cosine,
        f"{name}s": (1 - is_turned) * tangent * cosine + is_turned * order * cosine,
    }


def descending_order(values: sp.Symbol, like: sp.Expr, prefix: str) -> Definitions:
    """Returns definitions of the permutation matrix that sorts columns by values, largest first.

    The product of x and the matrix has the columns of x in that order; equal values keep theirs.

    Args:
        values: A value for each column, of shape [1, n], none of them NaN.
        like: A tensor of shape [n, n].
        prefix: The beginning of the names.
    """
    # Counting instead of sorting: n² comparisons, but no sort, whose order of equal values and of
    # NaN differs between onnxruntime, torch and XLA.
    column = transpose(values)
    is_before = sp.Or(
        column > values,
        sp.And(sp.Eq(column, values), positions(like, -2) < positions(like, -1)),
    )
    place = reduce_sum(mask(is_before), (-2,), keepdims=True)
    column_place = transpose(local(f"{prefix}_place"))
    return {
        f"{prefix}_place": place,
        prefix: mask(sp.Eq(column_place, positions(like, -1))),
    }


def mask(condition: sp.Basic) -> sp.Expr:
    """Returns 1 where a condition holds, and 0 elsewhere."""
    return sp.Piecewise((1, condition), (0, True))

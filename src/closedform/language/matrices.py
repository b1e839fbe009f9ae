"""Linear algebra composed of products, sums and comparisons of places: no loop and no new op.

Functions of one expression return an expression. Those with intermediate values return definitions
of a rule by name; each name begins with a prefix, and the last one is the result.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Mapping

import sympy as sp

from closedform.errors import DefinitionError
from closedform.language.functions import (
    OrthogonalFactor,
    RightSingularVectors,
    TriangularInverse,
    broadcast_to,
    matmul,
    permute,
    positions,
    reduce_max,
    reduce_sum,
    reshape,
    transpose,
)
from closedform.language.rotations import LEAST, Definitions, mask, scaled_to_one
from closedform.language.rotations import descending_order as descending_order
from closedform.language.rotations import right_singular_vectors as _right_singular_vectors
from closedform.language.shapes import IS_SINGLE
from closedform.language.symbols import local, operand

SINGLE_STEPS = 28
"""The most steps of an inverse root in float32, which holds condition numbers up to 2²⁴.

A bound by sums in a row is at most √n times the largest: ln(2²⁴ √n) + 5 is 27.4 for n = 10⁵.
"""

MOST_COLUMNS = 128
"""The most columns of a QR decomposition that is unrolled: 4,000 operations."""


def is_diagonal(x: sp.Expr) -> sp.Basic:
    """Returns the condition of being on the diagonal of the last two axes."""
    return sp.Eq(positions(x, -2), positions(x, -1))


def identity(x: sp.Expr) -> sp.Expr:
    """Returns the identity matrix of the shape of a tensor's last two axes.

    Example:
        >>> from closedform.language import GRAD
        >>> identity(GRAD)
        Piecewise((1, Eq(Positions(grad, -2), Positions(grad, -1))), (0, True))
    """
    return sp.Piecewise((1, is_diagonal(x)), (0, True))


def diagonal(x: sp.Expr) -> sp.Expr:
    """Returns the diagonal of square matrices as columns, of shape [n, 1]."""
    return reduce_sum(sp.Piecewise((x, is_diagonal(x)), (0, True)), (-1,), keepdims=True)


def trace(x: sp.Expr) -> sp.Expr:
    """Returns the sum of the diagonal of square matrices, of shape [1, 1]."""
    return reduce_sum(sp.Piecewise((x, is_diagonal(x)), (0, True)), (-2, -1), keepdims=True)


def upper_triangle(x: sp.Expr) -> sp.Expr:
    """Returns matrices with 0 below the diagonal."""
    return sp.Piecewise((x, positions(x, -2) <= positions(x, -1)), (0, True))


def largest_row_sum(x: sp.Expr) -> sp.Expr:
    """Returns the largest sum of sizes in a row, of shape [1, 1]: a bound of the eigenvalues."""
    return reduce_max(reduce_sum(sp.Abs(x), (-1,), keepdims=True), (-2, -1), keepdims=True)


def inverse_root(
    x: sp.Expr, order: int, prefix: str, *, steps: int, norm: sp.Expr | None = None
) -> Definitions:
    r"""Returns definitions of the inverse p-th root of positive definite matrices.

    .. math::
        M_0 = A / \ell, \quad X_0 = \ell^{-1/p} I, \quad
        T = \tfrac{1}{p} ((p + 1) I - M_k), \quad
        X_{k+1} = X_k T, \quad M_{k+1} = T^p M_k

    An eigenvalue μ < 1 of M grows by at least (1 + (1 - μ) / p)^p, about e for a small one, and
    within 1 / 2 of 1 its distance e from 1 becomes at most (p + 1) e² / 2: for a condition number κ
    the relative error is below the rounding of float64 after ln κ + 6 steps of the coupled
    iteration of Iannazzo (2006), which is stable. In float32 at most ``SINGLE_STEPS`` are made.

    Args:
        x: The matrices A, symmetric.
        order: The order p >= 1.
        prefix: The beginning of the names.
        steps: The number of steps.
        norm: A bound λ of the largest eigenvalue, of shape [1, 1]; the largest sum of sizes in a
            row by default.
    """
    bound = largest_row_sum(x) if norm is None else norm
    # A / bound has its eigenvalues in (0, 1], where the iteration converges monotonically; outside
    # of (0, p + 1) it need not converge.
    definitions: Definitions = {f"{prefix}_bound": bound, f"{prefix}_unit": identity(x)}
    unit, size = local(f"{prefix}_unit"), local(f"{prefix}_bound")
    matrix, root = x / size, unit * size ** sp.Rational(-1, order)
    for step in range(1, steps + 1):
        factor = f"{prefix}_t{step}"
        definitions[f"{prefix}_m{step - 1}"] = matrix
        before = local(f"{prefix}_m{step - 1}")
        definitions[factor] = (order + 1) * unit / order - before / order
        power: sp.Expr = local(factor)
        # T^p M by the binary digits of p, as powers of one matrix commute: 2 log2 p products, not
        # p.
        remaining, place = order, 1
        parts: list[sp.Expr] = []
        while remaining:
            if remaining % 2:
                parts.append(power)
            remaining //= 2
            if remaining:
                definitions[f"{factor}_{2**place}"] = matmul(power, power)
                power = local(f"{factor}_{2**place}")
                place += 1
        matrix = before
        for part in parts:
            matrix = matmul(part, matrix)
        # X_0 is a multiple of the identity: the product of the first step is a scaling.
        definitions[f"{prefix}_{step}"] = (
            local(factor) * size ** sp.Rational(-1, order)
            if step == 1
            else matmul(root, local(factor))
        )
        root = local(f"{prefix}_{step}")
    if steps > SINGLE_STEPS:
        # After convergence each further step of float32 only adds its rounding, about 2**-24 times
        # the condition number.
        single = local(f"{prefix}_{SINGLE_STEPS}")
        definitions[prefix] = sp.Piecewise((single, IS_SINGLE), (root, True))
    return definitions


def triangular_inverse(x: sp.Expr, size: sp.Expr | int) -> sp.Expr:
    r"""Returns the inverse of an upper triangular matrix, exact but for rounding: a definition.

    Blocks on the diagonal are inverted together, and each two of them become one of twice the size:

    .. math::
        \begin{pmatrix} U & W \\ 0 & V \end{pmatrix}^{-1} =
        \begin{pmatrix} U^{-1} & -U^{-1} W V^{-1} \\ 0 & V^{-1} \end{pmatrix}

    so that all products cost a third of one product of two full matrices. The blocks of an odd size
    b of the beginning are inverted by the ⌈log₂ b⌉ steps of Newton's iteration from the inverse of
    the diagonal, which end at the inverse, since the residual is nilpotent.

    Args:
        x: The matrix, of shape [n, n].
        size: The number n, an integer or an expression in the sizes of the parameter.
    """
    return TriangularInverse(x, operand(size, "triangular_inverse"))


def orthogonal_factor(x: sp.Expr, rows: sp.Expr | int, columns: sp.Expr | int) -> sp.Expr:
    """Returns the factor Q of the QR decomposition, of the shape of a matrix: a definition.

    Householder's reflections, column after column, with the signs of LAPACK: orthogonal to rounding
    for any matrix, dependent columns too. Each column takes about ten operations on the matrix, so
    that it is for up to a few hundred columns.

    Args:
        x: The matrix, with at least as many rows as columns.
        rows: Their number, an integer or an expression in the sizes of the parameter.
        columns: Their number.
    """
    sizes = (operand(size, "orthogonal_factor") for size in (rows, columns))
    return OrthogonalFactor(x, *sizes)


def right_singular_vectors(x: sp.Expr, rows: sp.Expr | int, columns: sp.Expr | int) -> sp.Expr:
    r"""Returns the matrix V of the decomposition U S Vᵀ, the largest value first: a definition.

    Sweeps of Jacobi's rotations of pairs of columns (Hestenes 1958), a fixed number of them, after
    which the columns of X V = U S are orthogonal to rounding: their lengths are the singular
    values. The rotations decide on signs, not LAPACK, and vectors of equal values are any
    basis. The eigenvectors of a symmetric matrix are the singular vectors of A + bI with a bound b
    of the sizes of the eigenvalues.

    Args:
        x: The matrix, with at least as many rows as columns.
        rows: Their number, an integer or an expression in the sizes of the parameter.
        columns: Their number, at most 32.
    """
    sizes = (operand(size, "right_singular_vectors") for size in (rows, columns))
    return RightSingularVectors(x, *sizes)


def spectral_norm(x: sp.Expr, prefix: str, *, steps: int) -> Definitions:
    r"""Returns definitions of an estimate of the largest singular value, of shape [1, 1].

    .. math::
        v_0 = 1, \quad u_k = A v_k / \lVert A v_k \rVert, \quad
        v_{k+1} = A^\top u_k / \lVert A^\top u_k \rVert, \quad \sigma = u_n^\top A v_n

    The power iteration: σ is at most the norm, and its distance from it falls by the fourth power
    of the quotient of the two largest singular values at each step. The vectors are the definitions
    ``{prefix}_u`` and ``{prefix}_v``, of shape [rows, 1] and [columns, 1]. A matrix of zeros has
    vectors of zeros.

    Args:
        x: The matrices A.
        prefix: The beginning of the names.
        steps: The number n >= 1 of steps.
    """
    matrix = local(f"{prefix}_scaled")
    largest = reduce_max(sp.Abs(x), (-2, -1), keepdims=True)
    definitions: Definitions = {
        f"{prefix}_largest": largest,
        # Squares of small numbers underflow; the vectors do not depend on the scale.
        f"{prefix}_scaled": x / sp.Max(local(f"{prefix}_largest"), LEAST),
    }
    product: sp.Expr = reduce_sum(matrix, (-1,), keepdims=True)  # of the vector of ones
    for step in range(steps):
        definitions |= _unit_vector(f"{prefix}_{step}l", product)
        left = local(f"{prefix}_{step}l")
        definitions |= _unit_vector(f"{prefix}_{step + 1}", matmul(transpose(matrix), left))
        product = matmul(matrix, local(f"{prefix}_{step + 1}"))
    right = local(f"{prefix}_{steps}")
    definitions |= {f"{prefix}_v": right} | _unit_vector(f"{prefix}_u", product)
    estimate = reduce_sum(local(f"{prefix}_u") * matmul(matrix, right), (-2, -1), keepdims=True)
    return {**definitions, prefix: local(f"{prefix}_largest") * estimate}


def _unit_vector(name: str, x: sp.Expr) -> Definitions:
    vector = local(f"{name}_long")
    length = sp.sqrt(reduce_sum(vector**2, (-2, -1), keepdims=True))
    return {f"{name}_long": x, name: vector / sp.Max(length, LEAST)}


def _triangular_inverse(prefix: str, x: sp.Expr, size: int) -> Definitions:
    if not size:
        return {prefix: x}
    block = size
    # The odd part of the size: from there on, every level joins two blocks of equal size.
    while block % 2 == 0:
        block //= 2
    count = size // block
    blocks = _diagonal_blocks(x, count, block)
    definitions: Definitions = {f"{prefix}_blocks": blocks}
    now = local(f"{prefix}_blocks")
    definitions[f"{prefix}_0"] = sp.Piecewise((1 / diagonal(now), is_diagonal(now)), (0, True))
    inverse = local(f"{prefix}_0")
    for step in range(1, math.ceil(math.log2(block)) + 1):
        # The residual is nilpotent and becomes its square.
        definitions[f"{prefix}_r{step}"] = 2 * inverse - matmul(inverse, matmul(now, inverse))
        inverse = local(f"{prefix}_r{step}")
    level = 0
    while block < size:
        level += 1
        count //= 2
        pairs = _diagonal_blocks(x, count, 2 * block)
        name = f"{prefix}_l{level}"
        definitions[f"{name}_pairs"] = reshape(pairs, (count, 2, block, 2, block))
        # The block at the right above: places 0 and 1 of the axes of the pair.
        pair = local(f"{name}_pairs")
        # A product with a mask and a sum take the place of a slice; an infinite element makes NaN
        # of it, as it would of the inverse.
        corner = reduce_sum(pair * mask(_at(pair, {1: 0, 3: 1})), (1, 3))
        halves = reshape(inverse, (count, 2, block, block))
        definitions[f"{name}_halves"] = halves
        half = local(f"{name}_halves")
        first, second = (reduce_sum(half * mask(_at(half, {1: place})), (1,)) for place in (0, 1))
        definitions[f"{name}_product"] = -matmul(matmul(first, corner), second)
        # Axes: the pair, the block row, the row in it, the block column, the column in it.
        whole = (count, 2, block, 2, block)
        wide = broadcast_to(reshape(half, (count, 2, block, 1, block)), whole)
        product = broadcast_to(
            reshape(local(f"{name}_product"), (count, 1, block, 1, block)), whole
        )
        is_corner = positions(pair, 1) < positions(pair, 3)
        is_block = sp.Eq(positions(pair, 1), positions(pair, 3))
        definitions[f"{name}_joined"] = wide * mask(is_block) + product * mask(is_corner)
        block *= 2
        definitions[f"{prefix}_{level}"] = reshape(local(f"{name}_joined"), (count, block, block))
        inverse = local(f"{prefix}_{level}")
    definitions[prefix] = reshape(inverse, (size, size))
    return definitions


def _at(x: sp.Expr, places: Mapping[int, int]) -> sp.Basic:
    return sp.And(*(sp.Eq(positions(x, axis), place) for axis, place in places.items()))


def _diagonal_blocks(x: sp.Expr, count: int, block: int) -> sp.Expr:
    """The blocks on the diagonal of a matrix, of shape [count, block, block]."""
    if count == 1:
        return reshape(x, (1, block, block))
    # Axes [block row, block column, row, column]: the sum over the block column leaves the
    # diagonal.
    grid = permute(reshape(x, (count, block, count, block)), (0, 2, 1, 3))
    is_block = sp.Eq(positions(grid, 0), positions(grid, 1))
    return reduce_sum(grid * mask(is_block), (1,))


def _orthogonal_factor(prefix: str, x: sp.Expr, rows: int, columns: int) -> Definitions:
    """Definitions of Q of a QR decomposition by Householder reflections ``I - b v v'``.

    Those of column i have its number and a letter: x the column from the diagonal on, h its head, s
    the squares below it, g the sign, a the new element of the diagonal, v and b the reflection.
    """
    if columns > MOST_COLUMNS or columns > rows:
        raise DefinitionError(
            f"a QR decomposition takes up to {MOST_COLUMNS} columns and no more than rows, got "
            f"{rows} rows and {columns} columns",
            where=f"definition {prefix!r}",
        )
    definitions: Definitions = {f"{prefix}_scaled": scaled_to_one(x)}  # Q has no scale
    reflections: list[tuple[sp.Symbol, sp.Symbol]] = []
    x = remaining = local(f"{prefix}_scaled")
    # The last column of a square matrix has nothing below its diagonal; LAPACK's dlarfg leaves it
    # unchanged too, so the signs agree.
    for place in range(min(columns, rows - 1)):
        name = f"{prefix}_{place}"
        row, is_column = positions(x, -2), sp.Eq(positions(x, -1), place)
        # Products with 0 and 1, not choices: of a choice in a choice a proof has two cases.
        definitions[f"{name}x"] = reduce_sum(
            remaining * mask(sp.And(is_column, row >= place)), (-1,), keepdims=True
        )
        column = local(f"{name}x")
        diagonal_place, is_below = mask(sp.Eq(row, place)), mask(row > place)
        definitions[f"{name}h"] = reduce_sum(column * diagonal_place, (-2,), keepdims=True)
        definitions[f"{name}s"] = reduce_sum(column**2 * is_below, (-2,), keepdims=True)
        head, below = local(f"{name}h"), local(f"{name}s")
        # The new element of the diagonal has the other sign, as in LAPACK.
        definitions[f"{name}g"] = 1 - 2 * mask(head >= 0)
        definitions[f"{name}a"] = local(f"{name}g") * sp.sqrt(head**2 + below)
        target = local(f"{name}a")
        definitions[f"{name}v"] = column - diagonal_place * target
        # 2 / v'v, since v'v = 2 |x| (|x| + |x_0|); a column that is 0 below stays as it is.
        definitions[f"{name}b"] = mask(below > 0) / sp.Max(target * (target - head), LEAST)
        normal, factor = local(f"{name}v"), local(f"{name}b")
        reflections.append((normal, factor))
        definitions[name] = _reflected(remaining, normal, factor)
        remaining = local(name)
    # Q = H_0 H_1 … applied to the first columns of the identity from the right, as in dorg2r: all
    # products have [rows, columns] elements, never [rows, rows].
    basis: sp.Expr = identity(x)
    for place, (normal, factor) in reversed(list(enumerate(reflections))):
        definitions[f"{prefix}_q{place}"] = _reflected(basis, normal, factor)
        basis = local(f"{prefix}_q{place}")
    return {**definitions, prefix: basis}


def _reflected(x: sp.Expr, normal: sp.Symbol, factor: sp.Symbol) -> sp.Expr:
    # The product of vector and matrix first: rows × columns operations, where v v' would take rows²
    # × columns.
    return x - normal * (factor * matmul(transpose(normal), x))


WHOLE_DEFINITIONS = (TriangularInverse, OrthogonalFactor, RightSingularVectors)
"""Functions that are a whole definition of a rule, not a part of one."""

_EXPANSIONS: Mapping[type[sp.Basic], Callable[..., Definitions]] = {
    TriangularInverse: _triangular_inverse,
    OrthogonalFactor: _orthogonal_factor,
    RightSingularVectors: _right_singular_vectors,
}


def expanded(definitions: Mapping[str, sp.Expr], where: str) -> Definitions:
    """Returns definitions in which a factor of a matrix is replaced by its steps.

    Raises:
        DefinitionError: Such a function is a part of a definition, or has more columns than are
            unrolled.
    """
    results: Definitions = {}
    for name, expr in definitions.items():
        expansion = _EXPANSIONS.get(expr.func)
        if expansion is not None:
            x, *sizes = expr.args
            results |= expansion(name, x, *map(int, sizes))
            continue
        if expr.has(*_EXPANSIONS):
            raise DefinitionError(
                f"a matrix factor must be a whole definition, got {expr}",
                where=where,
                hint="name it in definitions and use local(name)",
            )
        results[name] = expr
    return results


def last_name(definitions: Mapping[str, sp.Expr]) -> sp.Symbol:
    """Returns the symbol of the last definition."""
    return local(list(definitions)[-1])

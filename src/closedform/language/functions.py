"""Functions of tensors.

They are not SymPy products, since a scalar product commutes and a matrix product must not.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import sympy as sp
from sympy.core.symbol import Str

from closedform.errors import DefinitionError
from closedform.language.aliases import Operand
from closedform.language.settled import RealValued
from closedform.language.symbols import operand

STORED = ("bf16", "f16")
"""Dtypes that tensors are rounded to, and are not computed in."""

STORED_STATES = (*STORED, "i8")
"""Dtypes that a state may be stored in: ``"i8"`` has the integers from -128 to 127."""

ROUNDED = (*STORED, "f32")
"""Dtypes that a value of a rule may be rounded to."""


class AllBut(sp.Tuple):
    """All axes of a tensor but one, whatever its rank."""

    def _sympystr(self, printer: Any) -> str:
        return f"AllBut({printer._print(self.args[0])})"


# No eval and no fdiff: SymPy must neither rewrite nor differentiate these; translations match their
# arguments by position.
class _TensorFunction(RealValued, sp.Function):
    """A function of tensors, inert; arguments after the first ones are its static structure."""

    is_elementwise = False  # see sympy_corrections

    # SymPy's Function is complex by default: sqrt(sum**2) would not become Abs(sum).
    def _eval_is_real(self) -> bool:
        return True

    # Printers choose by the name of a class, and SymPy has a MatMul and a Transpose, too.
    def _sympystr(self, printer: Any) -> str:
        return f"{type(self).__name__}({', '.join(printer._print(arg) for arg in self.args)})"

    def _latex(self, printer: Any, exp: str | None = None) -> str:
        body = self._formula(printer)
        return body if exp is None else rf"\left({body}\right)^{{{exp}}}"

    def _formula(self, printer: Any) -> str:
        name = type(self).__name__
        inside = ", ".join(printer._print(arg) for arg in self.args)
        return rf"\operatorname{{{name}}}\left({inside}\right)"


class _Reduction(_TensorFunction):
    """A function of the elements along some axes."""

    nargs = (1, 3)
    symbol = ""

    def _formula(self, printer: Any) -> str:
        axes = ", ".join(str(axis) for axis in self.args[1].args) if len(self.args) > 1 else ""
        but = r"\ne " if axes and isinstance(self.args[1], AllBut) else ""
        below = f"_{{{but}{axes}}}" if axes else ""
        return rf"{self.symbol}{below}\left({printer._print(self.args[0])}\right)"


Axes = Sequence[int] | AllBut
"""The extent of a reduction."""


class ReduceSum(_Reduction):
    """Sum of a tensor over all its axes or over ``axes``, with or without the reduced axes."""

    symbol = r"\operatorname{sum}"


class ReduceMean(_Reduction):
    """Mean of a tensor over all its axes or over ``axes``, with or without the reduced axes."""

    symbol = r"\operatorname{mean}"


class ReduceMax(_Reduction):
    """Maximum of a tensor over all axes or over ``axes``, with or without the reduced axes."""

    symbol = r"\max"


class MatMul(_TensorFunction):
    """Matrix product over the last two axes."""

    nargs = 2

    def _formula(self, printer: Any) -> str:
        left, right = (printer._print(arg) for arg in self.args)
        return rf"\left({left}\right) \left({right}\right)"


class Transpose(_TensorFunction):
    """A tensor with its last two axes exchanged."""

    nargs = 1

    def _formula(self, printer: Any) -> str:
        return rf"\left({printer._print(self.args[0])}\right)^{{\top}}"


class Permute(_TensorFunction):
    """A tensor with its axes in another order."""

    nargs = 2


class BroadcastTo(_TensorFunction):
    """A tensor broadcast to a shape of the given sizes."""

    nargs = 2


class ExpandDims(_TensorFunction):
    """A tensor with an axis of size 1 more, at a place counted in the result."""

    nargs = 2


class Reshape(_TensorFunction):
    """A tensor with the same elements in a shape of the given sizes."""

    nargs = 2


class LikeParam(_TensorFunction):
    """A tensor with the same elements in the shape of the parameter."""

    nargs = 1


class Block(_TensorFunction):
    """A block of a tensor of the parameter's shape: its place among the blocks, their layout."""

    nargs = 3


class LikeBlock(_TensorFunction):
    """A tensor with the same elements in the shape of a block of the parameter."""

    nargs = 3


class Joined(_TensorFunction):
    """A tensor of the parameter's shape from its blocks; the last argument is their layout."""


class Positions(_TensorFunction):
    """The places of a tensor's elements along an axis, of size 1 along the others."""

    nargs = 2

    def _formula(self, printer: Any) -> str:
        return (
            rf"\operatorname{{index}}_{{{self.args[1]}}}\left({printer._print(self.args[0])}\right)"
        )


class TriangularInverse(_TensorFunction):
    """The inverse of an upper triangular matrix of a size, a whole definition of a rule."""

    nargs = 2

    def _formula(self, printer: Any) -> str:
        return rf"\left({printer._print(self.args[0])}\right)^{{-1}}"


class OrthogonalFactor(_TensorFunction):
    """The factor Q of the QR decomposition of a matrix of a size, a whole definition of a rule."""

    nargs = 3

    def _formula(self, printer: Any) -> str:
        return rf"\operatorname{{Q}}\left({printer._print(self.args[0])}\right)"


class RightSingularVectors(_TensorFunction):
    """The singular vectors V of a matrix of a size, a whole definition of a rule."""

    nargs = 3

    def _formula(self, printer: Any) -> str:
        return rf"\operatorname{{V}}\left({printer._print(self.args[0])}\right)"


class Uniform(_TensorFunction):
    """A random number in [0, 1) for each element of a tensor, by a seed, the step and its place."""

    nargs = 2


WHOLE_TENSOR = (
    *(ReduceSum, ReduceMean, ReduceMax, MatMul, Transpose, Permute, BroadcastTo, ExpandDims),
    *(Reshape, LikeParam, Block, LikeBlock, Joined, Positions),
    *(TriangularInverse, OrthogonalFactor, RightSingularVectors, Uniform),
)
"""Functions whose elements depend on more than the elements of their operands at one place."""


class Rounded(_TensorFunction):
    """A tensor rounded to a stored dtype, in the dtype that it had."""

    nargs = 2


def reduce_sum(x: Operand, axes: Axes | None = None, keepdims: bool = False) -> sp.Expr:
    """Returns the sum of a tensor over some axes.

    Args:
        x: The tensor.
        axes: The axes, -1 for the last, or ``all_but(axis)``; None for all.
        keepdims: Whether they stay, with size 1.

    Raises:
        DefinitionError: The axes are not integers, or an axis is repeated.

    Example:
        >>> from closedform.language import GRAD
        >>> reduce_sum(GRAD), reduce_sum(GRAD**2, (-1,))
        (ReduceSum(grad), ReduceSum(grad**2, (-1,), False))
    """
    return _reduction(ReduceSum, "reduce_sum", x, axes, keepdims)


def reduce_mean(x: Operand, axes: Axes | None = None, keepdims: bool = False) -> sp.Expr:
    """Returns the mean of a tensor over some axes: the sum divided by the number of elements.

    Args, Raises: as in :func:`reduce_sum`. The mean of no elements is 0.
    """
    return _reduction(ReduceMean, "reduce_mean", x, axes, keepdims)


def reduce_max(x: Operand, axes: Axes | None = None, keepdims: bool = False) -> sp.Expr:
    """Returns the largest element of a tensor over some axes; NaN where one is NaN.

    Args, Raises: as in :func:`reduce_sum`. The maximum of no elements is 0, as their mean.
    """
    return _reduction(ReduceMax, "reduce_max", x, axes, keepdims)


def all_but(axis: int) -> AllBut:
    """Returns all axes but one, for a reduction or ``Without``: of a tensor of any rank.

    A tensor without that axis has all its axes among them.

    Raises:
        DefinitionError: It is not an integer.

    Example:
        >>> from closedform.language import GRAD
        >>> reduce_max(GRAD, all_but(0))
        ReduceMax(grad, AllBut(0), False)
    """
    return AllBut(_integer(axis, "the axis of all_but"))


def _reduction(
    kind: type[sp.Function], name: str, x: Operand, axes: Axes | None, keepdims: bool
) -> sp.Expr:
    argument = operand(x, name)
    if axes is None:
        if keepdims:
            raise DefinitionError(f"{name} keeps axes that are named, got none", hint="name axes")
        return kind(argument)
    with_axes = sp.true if keepdims else sp.false
    if isinstance(axes, AllBut):
        return kind(argument, axes, with_axes)
    axis_numbers = [_integer(axis, f"an axis of {name}") for axis in axes]
    if len(set(axis_numbers)) != len(axis_numbers):
        raise DefinitionError(f"{name} must name each axis once, got {tuple(axes)}")
    return kind(argument, sp.Tuple(*axis_numbers), with_axes)


def matmul(a: Operand, b: Operand) -> sp.Expr:
    """Returns the matrix product of two tensors over their last two axes."""
    return MatMul(operand(a, "matmul"), operand(b, "matmul"))


def transpose(x: Operand) -> sp.Expr:
    """Returns a tensor with its last two axes exchanged."""
    return Transpose(operand(x, "transpose"))


def permute(x: Operand, order: Sequence[int]) -> sp.Expr:
    """Returns a tensor with its axes in another order, as ``numpy.transpose``.

    Args:
        x: The tensor.
        order: For each axis of the result the axis of ``x``, counted from the first as 0.

    Raises:
        DefinitionError: The order is not one of the axes 0, 1, ….

    Example:
        >>> from closedform.language import GRAD
        >>> permute(GRAD, (2, 0, 1))
        Permute(grad, (2, 0, 1))
    """
    axes = [_integer(axis, "an axis of permute") for axis in order]
    if sorted(axes) != list(range(len(axes))):
        raise DefinitionError(f"permute must order the axes 0 to {len(axes) - 1}, got {order}")
    return Permute(operand(x, "permute"), sp.Tuple(*axes))


def broadcast_to(x: Operand, sizes: Sequence[Operand]) -> sp.Expr:
    """Returns a tensor broadcast to a shape, as ``numpy.broadcast_to``.

    Args:
        x: The tensor or number.
        sizes: Integers or expressions in the symbols of the shape, such as ``axis_size(0)``.
    """
    dimensions = [operand(size, "a size of broadcast_to") for size in sizes]
    return BroadcastTo(operand(x, "broadcast_to"), sp.Tuple(*dimensions))


def expand_dims(x: Operand, axis: int) -> sp.Expr:
    """Returns a tensor with an axis of size 1 more; -1 makes it the last one."""
    return ExpandDims(operand(x, "expand_dims"), _integer(axis, "the axis of expand_dims"))


def reshape(x: Operand, sizes: Sequence[Operand]) -> sp.Expr:
    """Returns a tensor with the same elements in another shape.

    Args:
        x: The tensor.
        sizes: Integers or expressions in the symbols of the shape, such as ``axis_size(0)``.
    """
    dimensions = [operand(size, "a size of reshape") for size in sizes]
    return Reshape(operand(x, "reshape"), sp.Tuple(*dimensions))


def like_param(x: Operand) -> sp.Expr:
    """Returns a tensor with the same elements in the shape of the parameter."""
    return LikeParam(operand(x, "like_param"))


def positions(x: Operand, axis: int) -> sp.Expr:
    """Returns the numbers 0, 1, … of a tensor's places along an axis, of size 1 along the others.

    They depend on the shape of the tensor and not on its elements. ``Eq`` of the
    places along the last two axes is the diagonal, see ``closedform.language.matrices``.

    Args:
        x: A tensor of two axes or more.
        axis: The axis, -1 for the last.

    Raises:
        DefinitionError: The axis is not an integer.

    Example:
        >>> from closedform.language import GRAD
        >>> positions(GRAD, -1)
        Positions(grad, -1)
    """
    return Positions(operand(x, "positions"), _integer(axis, "the axis of positions"))


def rounded(x: Operand, dtype: str) -> sp.Expr:
    """Returns a tensor rounded to the numbers of a dtype, "bf16", "f16" or "f32".

    Raises:
        DefinitionError: It is not such a dtype.
    """
    if dtype not in ROUNDED:
        raise DefinitionError(f"rounded needs one of {ROUNDED}, got {dtype!r}")
    # Str, not Symbol: free_symbols would list the dtype as a hyperparameter.
    return Rounded(operand(x, "rounded"), Str(dtype))


def uniform(x: Operand, seed: int = 0) -> sp.Expr:
    """Returns random numbers of the shape of a tensor, multiples of 2**-16 in [0, 1).

    They are a function of the seed, the step and the place of an element in the tensor, the same
    in every engine: see :mod:`closedform.ir.draws`. Tensors of one shape have the same numbers.

    Args:
        x: The tensor; its values have no influence.
        seed: An integer in [0, 2**32).

    Raises:
        DefinitionError: It is not such an integer.

    Example:
        >>> from closedform.language import PARAM
        >>> uniform(PARAM, 1)
        Uniform(param, 1)
    """
    if isinstance(seed, bool) or not isinstance(seed, int) or not 0 <= seed < 2**32:
        raise DefinitionError(f"the seed must be an integer in [0, 2**32), got {seed!r}")
    # The seed is a 32-bit word of the counter-based generator.
    return Uniform(operand(x, "uniform"), sp.Integer(seed))


def _integer(value: object, name: str) -> sp.Integer:
    # True is an int for Python, and SymPy's Integer(True) is 1.
    if isinstance(value, bool) or not isinstance(value, int):
        raise DefinitionError(f"{name} must be an integer, got {value!r}")
    return sp.Integer(value)

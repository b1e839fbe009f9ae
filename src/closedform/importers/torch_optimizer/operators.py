"""The operations of torch by name of their aten operator, as rules on values.

Operators in place, with an output argument, and of lists (``_foreach_…``) have the rule of the
operator that they are named after.
"""

from __future__ import annotations

import functools
import math
from collections.abc import Callable, Mapping, Sequence
from typing import Any

import sympy as sp
import torch

from closedform.errors import TraceError
from closedform.importers.tensors.algebra import Algebra, as_number, stack_values, truth
from closedform.importers.tensors.comparisons import (
    atan2,
    comparison,
    copysign,
    is_finite,
    is_infinite,
    is_nan,
    is_of_data,
)
from closedform.importers.tensors.values import OPAQUE, Value
from closedform.importers.torch_optimizer import matrices
from closedform.importers.torch_optimizer.algebra import TorchAlgebra
from closedform.importers.torch_optimizer.storages import View
from closedform.language.elementary import ELEMENTARY
from closedform.language.integers import floor_mod
from closedform.language.shapes import IS_SINGLE

OperatorRule = Callable[..., "Value | Sequence[Value | None] | None"]
ViewRule = Callable[..., Sequence[View]]


def _elementwise(function: Callable[..., sp.Basic], name: str) -> OperatorRule:
    def rule(algebra: TorchAlgebra, *operands: Any, **_: Any) -> Value:
        return algebra.map(function, *operands, name=name)

    return rule


def _of_numbers(kind: Callable[..., sp.Expr], x: sp.Expr, y: sp.Expr) -> sp.Expr:
    """The extremum of two numbers, or the one of them that is a number."""
    # torch.fmax and fmin, unlike maximum and minimum, return the operand that is not NaN.
    return sp.Piecewise((y, is_nan(x)), (x, is_nan(y)), (kind(x, y), True))


def _is_zero(algebra: TorchAlgebra, number: Any) -> bool:
    is_number = isinstance(number, int | float) and number == 0
    return is_number and algebra.value(number).expr == 0


def _subtract_itself(algebra: TorchAlgebra, a: Any) -> Value:
    """A tensor less itself: 0, and NaN where it is not finite, which SymPy would not keep."""
    # An opaque name keeps SymPy from cancelling x - x to 0.
    opposite = algebra.map(lambda x: -x, a, name=OPAQUE)
    return algebra.map(lambda x, y: x + y, a, opposite, name=OPAQUE)


def _is_same(algebra: TorchAlgebra, a: Any, b: Any) -> bool:
    if not isinstance(a, torch.Tensor) or not isinstance(b, torch.Tensor):
        return False
    value = algebra.value(a)
    return value == algebra.value(b) and value.items is None and is_of_data(value.expr)


def _add(algebra: TorchAlgebra, a: Any, b: Any, alpha: Any = 1) -> Value:
    if _is_zero(algebra, alpha):
        # 0·b is NaN where b is not finite.
        b, alpha = _subtract_itself(algebra, b), 1
    return algebra.map(lambda x, y, k: x + k * y, a, b, alpha, name="sum")


def _sub(algebra: TorchAlgebra, a: Any, b: Any, alpha: Any = 1) -> Value:
    if _is_same(algebra, a, b) and type(alpha) is int and alpha == 1:
        return _subtract_itself(algebra, a)
    return algebra.map(lambda x, y, k: x - k * y, a, b, alpha, name="difference")


def _mul(algebra: TorchAlgebra, a: Any, b: Any) -> Value:
    first, second = algebra.value(a), algebra.value(b)
    # A product of masks stays a mask, which where() and indices take.
    if first.is_bool and second.is_bool and isinstance(a, torch.Tensor) and a.dtype == torch.bool:
        return algebra.map(sp.And, first, second, name="mask", is_boolean=True)
    for number, tensor in ((a, b), (b, a)):
        if _is_zero(algebra, number) and isinstance(tensor, torch.Tensor):
            return _subtract_itself(algebra, tensor)
    return algebra.map(lambda x, y: x * y, a, b, name="product")


def _div(algebra: TorchAlgebra, a: Any, b: Any, rounding_mode: str | None = None) -> Value:
    if rounding_mode is None and _is_same(algebra, a, b):
        # x/x is NaN for 0 and infinity, where SymPy writes 1.
        reciprocal = algebra.map(lambda x: 1 / x, a, name=OPAQUE)
        return algebra.map(lambda x, y: x * y, a, reciprocal, name="quotient")
    if rounding_mode is None:
        return algebra.map(lambda x, y: x / y, a, b, name="quotient")
    if rounding_mode == "floor":
        # torch corrects this by the remainder: the two differ where x/y rounds up to an integer.
        return algebra.map(lambda x, y: sp.floor(x / y), a, b, name="quotient")
    raise TraceError(f"div with rounding_mode={rounding_mode!r} has no expression")


def _with_factor(function: Callable[..., sp.Expr], name: str) -> OperatorRule:
    def rule(algebra: TorchAlgebra, a: Any, b: Any, c: Any, value: Any = 1) -> Value:
        return algebra.map(function, a, b, c, value, name=name)

    return rule


def _lerp(algebra: TorchAlgebra, a: Any, b: Any, weight: Any) -> Value:
    # torch 2.13 (ATen/native/Lerp.h) takes end - (end - start)·(1 - weight) for weights from 0.5:
    # equal up to rounding.
    if not algebra.value(weight).expr.is_Rational:
        return algebra.map(lambda x, y, w: x + w * (y - x), a, b, weight, name="lerp")
    # SymPy would distribute a number, and an infinity less itself is NaN.
    gap = algebra.map(lambda x, y: y - x, a, b, name=OPAQUE)
    return algebra.map(lambda x, y, w: x + w * y, a, gap, weight, name="lerp")


def _clamp(algebra: TorchAlgebra, a: Any, min: Any = None, max: Any = None) -> Value:
    result = algebra.value(a)
    if min is not None:
        # min before max, as torch does: where min > max, the result is max.
        result = algebra.map(sp.Max, result, min, name="clamped")
    if max is not None:
        result = algebra.map(sp.Min, result, max, name="clamped")
    return result


def _where(algebra: TorchAlgebra, condition: Any, a: Any, b: Any) -> Value:
    mask = algebra.value(condition)

    def choose(x: sp.Expr, y: sp.Expr, c: sp.Basic) -> sp.Basic:
        return sp.Piecewise((as_number(x), truth(c)), (as_number(y), True))

    return algebra.map(choose, a, b, mask, name="where", is_boolean=True)


def _index_put(
    algebra: TorchAlgebra, a: Any, indices: Sequence[Any], values: Any, accumulate: bool = False
) -> Value:
    """``a[mask] = number``, or elements of ``a[mask]`` changed one by one."""
    # Elements at places differ from parameter to parameter; a mask chooses elements by value.
    mask = _mask(a, indices)
    source = algebra.value(values)
    shapes = ((), _whole_shape(algebra, a))
    if mask is None or accumulate or (values.numel() != 1 and source.shape not in shapes):
        raise TraceError("elements of a tensor are changed by an index that is not a mask")
    return _where(algebra, mask, source, a)


def _index(algebra: TorchAlgebra, a: Any, indices: Sequence[Any]) -> Value:
    """``a[mask]``, in the shape of a: elementwise functions of it may be written to ``a[mask]``."""
    if _mask(a, indices) is None:
        raise TraceError("elements of a tensor are taken by an index that is not a mask")
    value = algebra.real(a)
    # A number is that of each element, whichever are selected.
    return value if value.shape == () else algebra.whole(value, _whole_shape(algebra, a))


def _whole_shape(algebra: TorchAlgebra, a: Any) -> tuple[int, ...]:
    """The shape of a tensor; of elements that a mask has selected, that of what they are of."""
    value, sizes = algebra.value(a), _sizes(a)
    offset = len(sizes) - len(value.shape)
    is_broadcast = offset >= 0 and all(
        n in (1, size) for n, size in zip(value.shape, sizes[offset:], strict=True)
    )
    return sizes if is_broadcast else value.shape


def _mask(a: Any, indices: Sequence[Any]) -> Any:
    (mask,) = indices if len(indices) == 1 else (None,)
    is_mask = mask is not None and mask.dtype == torch.bool and mask.shape == a.shape
    return mask if is_mask else None


def _comparison(kind: Callable[..., sp.Basic]) -> OperatorRule:
    return _elementwise(functools.partial(comparison, kind), "mask")


def _logical(function: Callable[..., sp.Basic]) -> OperatorRule:
    def rule(algebra: TorchAlgebra, *operands: Any) -> Value:
        return algebra.map(
            lambda *parts: function(*map(truth, parts)), *operands, name="mask", is_boolean=True
        )

    return rule


def _bitwise(rule: OperatorRule) -> OperatorRule:
    """The rule of an operator on bits, which is a logical one for truth values."""

    def apply(algebra: TorchAlgebra, *operands: Any) -> Value | Sequence[Value | None] | None:
        if any(getattr(operand, "dtype", torch.bool) != torch.bool for operand in operands):
            raise TraceError("bits of an integer have no expression")
        return rule(algebra, *operands)

    return apply


def _truth_as_number(algebra: TorchAlgebra, a: Any) -> Value:
    """1 where a tensor is true, 0 elsewhere, by a separate name."""
    return algebra.map(as_number, algebra.truth(a), name="mask", is_boolean=True)


def _not(algebra: TorchAlgebra, a: Any) -> Value:
    # SymPy's negation of a comparison is its opposite, and both are false for NaN.
    return algebra.map(lambda x: sp.Eq(x, 0), _truth_as_number(algebra, a), name="mask")


def _xor(algebra: TorchAlgebra, a: Any, b: Any) -> Value:
    return algebra.map(
        sp.Ne, _truth_as_number(algebra, a), _truth_as_number(algebra, b), name="mask"
    )


# Exact integers: the shortest decimal of the largest number of float32 is above it.
LARGEST = sp.Piecewise(
    (sp.Integer(int(torch.finfo(torch.float32).max)), IS_SINGLE),
    (sp.Integer(int(torch.finfo(torch.float64).max)), True),
)
"""The largest number of the dtype of the parameters."""


def _nan_to_num(
    algebra: TorchAlgebra, a: Any, nan: Any = None, posinf: Any = None, neginf: Any = None
) -> Value:
    """As in torch, an infinity without a replacement becomes the largest number of its sign."""
    above = LARGEST if posinf is None else algebra.value(posinf).expr
    below = -LARGEST if neginf is None else algebra.value(neginf).expr

    def replace_special(x: sp.Expr) -> sp.Expr:
        # NaN first: in it each of the other comparisons is false.
        number = algebra.value(0 if nan is None else nan).expr
        is_above, is_below = (sp.And(is_infinite(x), has_sign) for has_sign in (x > 0, x < 0))
        return sp.Piecewise((number, is_nan(x)), (above, is_above), (below, is_below), (x, True))

    return algebra.map(replace_special, a, name="finite")


# --- reductions ------------------------------------------------------------------------------


def _sizes(operand: Any) -> tuple[int, ...]:
    return tuple(operand.shape)


def _axes(dim: Any) -> list[int] | None:
    if dim is None:
        return None
    return [dim] if isinstance(dim, int) else list(dim)


def _over_axes(reduce: Callable[..., Value]) -> OperatorRule:
    """The rule of a reduction of the algebra over some axes, None for all."""

    def rule(
        algebra: TorchAlgebra, a: Any, dim: Any = None, keepdim: bool = False, **_: Any
    ) -> Value:
        return reduce(algebra, a, _sizes(a), _axes(dim), keepdim)

    return rule


def _reduction(kind: str) -> OperatorRule:
    return _over_axes(lambda algebra, *args: algebra.reduce(kind, *args))


_mean, _amax, _amin = _reduction("mean"), _reduction("max"), _over_axes(Algebra.minimum)


def _extremum(kind: type[sp.Expr], name: str, over_axes: OperatorRule) -> OperatorRule:
    """The extremum of two tensors, or of the elements of one over an axis or all."""

    def rule(algebra: TorchAlgebra, a: Any, dim: Any = None, keepdim: bool = False) -> Any:
        if isinstance(dim, torch.Tensor):
            return algebra.map(kind, a, dim, name=name)
        result = over_axes(algebra, a, dim, keepdim)
        # The indices have no value; a step that reads them is refused.
        return result if dim is None else (result, None)

    return rule


def _norm(
    algebra: TorchAlgebra, a: Any, ord: Any = 2, dim: Any = None, keepdim: bool = False, **_: Any
) -> Value:
    return algebra.norm(a, _sizes(a), ord, _axes(dim), keepdim)


def _variance(
    algebra: TorchAlgebra, a: Any, dim: Any = None, correction: Any = 1, keepdim: bool = False
) -> Value:
    # correction=None is Bessel's 1 in torch.
    degree = 1 if correction is None else correction
    return algebra.variance(a, _sizes(a), _axes(dim), degree, keepdim)


def _deviation(algebra: TorchAlgebra, *args: Any, **options: Any) -> Value:
    return algebra.map(sp.sqrt, _variance(algebra, *args, **options), name="deviation")


def _with_mean(rule: OperatorRule) -> OperatorRule:
    def pair(algebra: TorchAlgebra, a: Any, dim: Any = None, **options: Any) -> list[Any]:
        mean = _mean(algebra, a, dim, options.get("keepdim", False))
        return [rule(algebra, a, dim, **options), mean]

    return pair


def _softmax(algebra: TorchAlgebra, a: Any, dim: int, *_: Any) -> Value:
    # Less the largest element, as torch's kernel: exp does not overflow.
    largest = algebra.reduce("max", a, _sizes(a), [dim], keepdims=True)
    powers = algebra.map(lambda x, m: sp.exp(x - m), a, largest, name="exp")
    total = algebra.reduce("sum", powers, _sizes(a), [dim], keepdims=True)
    return algebra.map(lambda x, s: x / s, powers, total, name="softmax")


def _softplus(algebra: TorchAlgebra, a: Any, beta: Any = 1, threshold: Any = 20) -> Value:
    return algebra.map(
        # The threshold is on beta·x, and softplus is x above it.
        lambda x, b, h: sp.Piecewise((x, b * x > h), (sp.log(1 + sp.exp(b * x)) / b, True)),
        a,
        beta,
        threshold,
        name="softplus",
    )


def _count_nonzero(algebra: TorchAlgebra, a: Any, dim: Any = None) -> Value:
    truth_numbers = algebra.map(as_number, algebra.truth(a), name="some", is_boolean=True)
    return algebra.reduce("sum", truth_numbers, _sizes(a), _axes(dim))


# --- products --------------------------------------------------------------------------------


def _mm(algebra: TorchAlgebra, a: Any, b: Any) -> Value:
    return algebra.matmul(a, _sizes(a), b, _sizes(b))


def _plus_product(product_of: Callable[[TorchAlgebra, Any, Any], Value]) -> OperatorRule:
    """The rule of ``beta * c + alpha * product``; with beta = 0 the values of c are not read."""

    def rule(algebra: TorchAlgebra, c: Any, a: Any, b: Any, beta: Any = 1, alpha: Any = 1) -> Value:
        product = product_of(algebra, a, b)
        if _is_zero(algebra, beta):
            return algebra.map(lambda y, m: m * y, product, alpha, name="addmm")
        return algebra.map(lambda x, y, k, m: k * x + m * y, c, product, beta, alpha, name="addmm")

    return rule


def _mv(algebra: TorchAlgebra, a: Any, b: Any) -> Value:
    rows, columns = _sizes(a)
    # The expression of a product of matrices has two axes in each factor.
    column = algebra.reshape(algebra.whole(b, (columns,)), (columns,), (columns, 1))
    product = algebra.matmul(a, (rows, columns), column, (columns, 1))
    return algebra.reshape(product, (rows, 1), (rows,))


def _outer(algebra: TorchAlgebra, a: Any, b: Any) -> Value:
    (rows,) = _sizes(a)
    column = algebra.reshape(algebra.whole(a, (rows,)), (rows,), (rows, 1))
    return algebra.map(lambda x, y: x * y, column, b, name="product")


def _dot(algebra: TorchAlgebra, a: Any, b: Any) -> Value:
    product = algebra.map(lambda x, y: x * y, a, b, name="product")
    return algebra.reduce("sum", product, _sizes(a), None)


# --- new tensors -----------------------------------------------------------------------------


def _fill(number: int) -> OperatorRule:
    return lambda algebra, *_, **__: Value(sp.Integer(number))


def _full(algebra: TorchAlgebra, _: Any, fill_value: Any, **__: Any) -> Value:
    return algebra.value(fill_value)


def _to_copy(algebra: TorchAlgebra, a: Any, dtype: torch.dtype | None = None, **_: Any) -> Value:
    return algebra.cast(a, dtype, a.dtype)


def _copy(algebra: TorchAlgebra, a: Any, source: Any, *_: Any) -> Value:
    # copy_ rounds to the dtype of its target, not to that of its source.
    source_dtype = source.dtype if isinstance(source, torch.Tensor) else a.dtype
    return algebra.cast(source, a.dtype, source_dtype)


def _stack(algebra: TorchAlgebra, tensors: Sequence[Any], dim: int = 0) -> Value:
    if any(tensor.numel() != 1 for tensor in tensors):
        raise TraceError("stack of tensors with more than one element has no expression")
    # Lists of numbers have values one by one, such as norms that an optimizer stacks before their
    # norm.
    return stack_values(list(map(algebra.element, tensors)))


def _cat(algebra: TorchAlgebra, tensors: Sequence[Any], dim: int = 0) -> Value:
    items: list[Value] = []
    for tensor in tensors:
        value = algebra.value(tensor)
        if value.items is not None:
            items.extend(value.items)
        elif tensor.dim() == 1 and tensor.numel() == 1:
            items.append(algebra.element(value))
        else:
            raise TraceError(f"cat of a tensor of shape {list(tensor.shape)} has no expression")
    return stack_values(items)


RULES: Mapping[str, OperatorRule] = {
    **matrices.RULES,
    **{
        function.torch: _elementwise(function.form, "root" if name == "sqrt" else name)
        for name, function in ELEMENTARY.items()
    },
    "add": _add,
    **dict.fromkeys(("sub", "subtract"), _sub),
    "rsub": lambda algebra, a, b, alpha=1: _sub(algebra, b, a, alpha),
    **dict.fromkeys(("mul", "multiply"), _mul),
    **dict.fromkeys(("div", "true_divide", "divide"), _div),
    "floor_divide": lambda algebra, a, b: _div(algebra, a, b, "floor"),
    "remainder": _elementwise(floor_mod, "remainder"),
    "pow": _elementwise(lambda x, y: x**y, "power"),
    "maximum": _elementwise(sp.Max, "maximum"),
    "minimum": _elementwise(sp.Min, "minimum"),
    "fmax": _elementwise(lambda x, y: _of_numbers(sp.Max, x, y), "maximum"),
    "fmin": _elementwise(lambda x, y: _of_numbers(sp.Min, x, y), "minimum"),
    "atan2": _elementwise(atan2, "angle"),
    "hypot": _elementwise(lambda x, y: sp.sqrt(x**2 + y**2), "hypot"),
    "copysign": _elementwise(copysign, "copysign"),
    "addcmul": _with_factor(lambda x, y, z, k: x + k * y * z, "addcmul"),
    "addcdiv": _with_factor(lambda x, y, z, k: x + k * y / z, "addcdiv"),
    "lerp": _lerp,
    **dict.fromkeys(("clamp", "clip"), _clamp),
    "clamp_min": lambda algebra, a, min: _clamp(algebra, a, min=min),
    "clamp_max": lambda algebra, a, max: _clamp(algebra, a, max=max),
    "where": _where,
    "masked_fill": lambda algebra, a, mask, value: _where(algebra, mask, value, a),
    "index": _index,
    "index_put": _index_put,
    "nan_to_num": _nan_to_num,
    "neg": _elementwise(lambda x: -x, "negative"),
    "abs": _elementwise(sp.Abs, "size"),
    **dict.fromkeys(("sign", "sgn"), _elementwise(sp.sign, "sign")),
    "reciprocal": _elementwise(lambda x: 1 / x, "reciprocal"),
    "square": _elementwise(lambda x: x**2, "square"),
    "relu": _elementwise(lambda x: sp.Max(x, 0), "relu"),
    "threshold": lambda algebra, a, threshold, value: algebra.map(
        lambda x, h, v: sp.Piecewise((x, x > h), (v, True)), a, threshold, value, name="threshold"
    ),
    "softplus": _softplus,
    "_softmax": _softmax,
    "floor": _elementwise(sp.floor, "floor"),
    "ceil": _elementwise(sp.ceiling, "ceil"),
    "isnan": _elementwise(is_nan, "mask"),
    "isinf": _elementwise(is_infinite, "mask"),
    "isfinite": _elementwise(is_finite, "mask"),
    "lt": _comparison(sp.Lt),
    "le": _comparison(sp.Le),
    "gt": _comparison(sp.Gt),
    "ge": _comparison(sp.Ge),
    "eq": _comparison(sp.Eq),
    "ne": _comparison(sp.Ne),
    "logical_and": _logical(sp.And),
    "logical_or": _logical(sp.Or),
    "logical_not": _not,
    "logical_xor": _xor,
    **dict.fromkeys(("bitwise_and", "__and__"), _bitwise(_logical(sp.And))),
    **dict.fromkeys(("bitwise_or", "__or__"), _bitwise(_logical(sp.Or))),
    "bitwise_not": _bitwise(_not),
    **dict.fromkeys(("bitwise_xor", "__xor__"), _bitwise(_xor)),
    "sum": _reduction("sum"),
    "mean": _mean,
    "amax": _amax,
    "amin": _amin,
    "max": _extremum(sp.Max, "maximum", _amax),
    "min": _extremum(sp.Min, "minimum", _amin),
    **dict.fromkeys(("norm", "linalg_vector_norm"), _norm),
    "var": _variance,
    "std": _deviation,
    "std_mean": _with_mean(_deviation),
    "var_mean": _with_mean(_variance),
    "any": _over_axes(Algebra.is_some),
    "all": _over_axes(Algebra.is_every),
    "count_nonzero": _count_nonzero,
    **dict.fromkeys(("mm", "bmm", "matmul"), _mm),
    **dict.fromkeys(("addmm", "baddbmm"), _plus_product(_mm)),
    "addmv": _plus_product(lambda algebra, a, b: _mv(algebra, a, b)),
    "addr": _plus_product(lambda algebra, a, b: _outer(algebra, a, b)),
    "mv": _mv,
    **dict.fromkeys(("dot", "vdot"), _dot),
    **dict.fromkeys(("zeros", "zeros_like", "new_zeros", "zero"), _fill(0)),
    **dict.fromkeys(("ones", "ones_like", "new_ones"), _fill(1)),
    # fill_(a, number) and full(size, number) both have the number second.
    **dict.fromkeys(("full", "full_like", "new_full", "fill"), _full),
    "scalar_tensor": lambda algebra, number, **_: algebra.value(number),
    # lift_fresh is the operator that torch.tensor(number) ends with.
    "lift_fresh": lambda algebra, a: algebra.value(a),
    **dict.fromkeys(("clone", "contiguous"), lambda algebra, a, **_: algebra.value(a)),
    "_to_copy": _to_copy,
    "copy": _copy,
    "stack": _stack,
    "cat": _cat,
}
"""The rule of each operator whose result is a new value."""

UNINITIALIZED = frozenset({"empty", "empty_like", "new_empty", "empty_strided"})
"""Operators whose results have no value until they are written."""


# --- views -----------------------------------------------------------------------------------


def _view_itself(algebra: TorchAlgebra, a: Any, *_: Any, **__: Any) -> list[View]:
    return [View("detach", lambda value: value, lambda _, new: new)]


def _view(algebra: TorchAlgebra, a: Any, size: Any, **_: Any) -> list[View]:
    sizes = _sizes(a)
    product = math.prod(n for n in size if n != -1)
    target = tuple(math.prod(sizes) // product if n == -1 else n for n in size)
    return [
        View(
            "view",
            lambda value: algebra.reshape(value, sizes, target),
            lambda _, new: algebra.reshape(new, target, sizes),
        )
    ]


def _permute(algebra: TorchAlgebra, a: Any, dims: Sequence[int]) -> list[View]:
    sizes = _sizes(a)
    order = [dim % len(sizes) for dim in dims]
    # A write to the view is a write to the source in the inverse order.
    inverse = [order.index(axis) for axis in range(len(order))]
    new_shape = tuple(sizes[axis] for axis in order)
    return [
        View(
            "permute",
            lambda value: algebra.permute(value, sizes, order),
            lambda _, new: algebra.permute(new, new_shape, inverse),
        )
    ]


def _transpose(algebra: TorchAlgebra, a: Any, dim0: int, dim1: int) -> list[View]:
    order = list(range(a.dim()))
    if order:
        order[dim0], order[dim1] = order[dim1], order[dim0]
    return _permute(algebra, a, order)


def _t(algebra: TorchAlgebra, a: Any) -> list[View]:
    return _permute(algebra, a, list(range(a.dim()))[::-1])


def _unsqueeze(algebra: TorchAlgebra, a: Any, dim: int) -> list[View]:
    sizes = list(a.shape)
    place = dim % (len(sizes) + 1)
    return _axes_changed(algebra, a, lambda shape: (*shape[:place], 1, *shape[place:]), "unsqueeze")


def _squeeze(algebra: TorchAlgebra, a: Any, dim: Any = None) -> list[View]:
    sizes = _sizes(a)
    places = range(len(sizes)) if dim is None else [d % len(sizes) for d in _axes(dim) or ()]
    dropped_axes = {place for place in places if sizes[place] == 1}
    return _axes_changed(
        algebra,
        a,
        lambda shape: tuple(size for place, size in enumerate(shape) if place not in dropped_axes),
        "squeeze",
    )


def _axes_changed(
    algebra: TorchAlgebra, a: Any, change: Callable[[tuple[int, ...]], tuple[int, ...]], name: str
) -> list[View]:
    """A view with axes of size 1 more or less; a value that is broadcast stays so."""
    sizes = _sizes(a)
    target = change(sizes)

    def read(value: Value) -> Value:
        if value.items is not None or value.shape in ((), sizes):
            return algebra.reshape(value, sizes, target)
        # A value of fewer axes is broadcast: its axes are the last ones.
        full_shape = (1,) * (len(sizes) - len(value.shape)) + value.shape
        return algebra.reshape(value, value.shape, change(full_shape))

    return [View(name, read, lambda _, new: algebra.reshape(new, target, sizes))]


def _expand(algebra: TorchAlgebra, a: Any, size: Any, **_: Any) -> list[View]:
    # No write: several elements of the result are one element of the storage.
    return [View("expand", lambda value: value, None)]


def _select(algebra: TorchAlgebra, a: Any, dim: int, index: int) -> list[View]:
    sizes = _sizes(a)

    def read(value: Value) -> Value:
        if value.items is not None:
            return value.items[index]
        if value.shape == ():
            return value
        if sizes[dim] == 1:
            left = tuple(size for axis, size in enumerate(sizes) if axis != dim % len(sizes))
            return algebra.reshape(value, value.shape, left)
        raise TraceError(f"element {index} along an axis of a tensor has no expression")

    def write(old: Value, new: Value) -> Value:
        if old.items is not None:
            return stack_values([*old.items[:index], new, *old.items[index + 1 :]])
        if sizes[dim] == 1:
            return algebra.reshape(new, new.shape, sizes) if new.shape else new
        raise TraceError(f"element {index} along an axis of a tensor is changed in place")

    return [View("select", read, write)]


def _slice(
    algebra: TorchAlgebra, a: Any, dim: int = 0, start: Any = None, end: Any = None, step: int = 1
) -> list[View]:
    size = a.shape[dim]
    # range resolves negative and too large bounds, such as the 2**63 - 1 that aten has for an open
    # end.
    places = range(size)[slice(start, end, step)]
    ends = [str(start or 0), "" if end is None or end > size else str(end)]
    spelling = ":".join([*ends, *([str(step)] if step != 1 else [])])

    def read(value: Value) -> Value:
        if len(places) == size or value.shape == ():
            return value
        if value.items is not None:
            return stack_values([value.items[place] for place in places])
        raise TraceError(f"a slice {spelling} of an axis of a tensor has no expression")

    def write(_: Value, new: Value) -> Value:
        if len(places) == size:
            return new
        raise TraceError(f"a slice {spelling} of a tensor is changed in place")

    return [View("slice", read, write)]


def _unbind(algebra: TorchAlgebra, a: Any, dim: int = 0) -> list[View]:
    return [view for index in range(a.shape[dim]) for view in _select(algebra, a, dim, index)]


VIEWS: Mapping[str, ViewRule] = {
    **matrices.VIEWS,
    # detach and alias share the storage: a write to the result is a write to the source.
    **dict.fromkeys(("detach", "alias"), _view_itself),
    **dict.fromkeys(("view", "_unsafe_view", "reshape"), _view),
    "permute": _permute,
    "transpose": _transpose,
    **dict.fromkeys(("t", "numpy_T"), _t),
    "unsqueeze": _unsqueeze,
    "squeeze": _squeeze,
    "expand": _expand,
    "select": _select,
    "slice": _slice,
    "unbind": _unbind,
}
"""The rule of each operator whose result shares the storage of its operand."""

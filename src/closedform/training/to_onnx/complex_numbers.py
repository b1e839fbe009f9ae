"""Complex numbers as pairs of real tensors: a traced graph is run once more with these."""

from __future__ import annotations

import math
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

import torch
from torch.utils import _pytree as pytree

from closedform.errors import TrainingExportError
from closedform.training.to_onnx.operators import ATEN, PRIMS
from closedform.training.to_onnx.places import operator_of, place_of


@dataclass(frozen=True, slots=True)
class Pair:
    """The real and imaginary parts of a tensor, or of a number."""

    real: Any
    imaginary: Any


def has_complex(graph_module: torch.fx.GraphModule) -> bool:
    """Returns whether a value of a traced graph is complex."""
    return any(
        isinstance(value, torch.Tensor) and value.is_complex()
        for node in graph_module.graph.nodes
        for value in pytree.tree_leaves((node.meta.get("val"), _constant(graph_module, node)))
    )


def _constant(graph_module: torch.nn.Module, node: torch.fx.Node) -> Any:
    if node.op != "get_attr":
        return None
    value: Any = graph_module
    for name in str(node.target).split("."):
        value = getattr(value, name)
    return value


class RealInterpreter(torch.fx.Interpreter):
    """Runs a graph with pairs in place of complex tensors.

    Args:
        graph_module: The graph.
        where: The model, named in errors.
    """

    def __init__(self, graph_module: torch.fx.GraphModule, where: str) -> None:
        super().__init__(graph_module)
        self._where = where
        self.extra_traceback = False
        self._constants = {
            node.target: Pair(value.real.clone(), value.imag.clone())
            for node in graph_module.graph.nodes
            for value in [_constant(graph_module, node)]
            if isinstance(value, torch.Tensor) and value.is_complex()
        }

    def run_node(self, n: torch.fx.Node) -> Any:
        """Returns the value of a node.

        Raises:
            ExportError: An operator has no form for complex numbers.
        """
        if n.op == "get_attr" and n.target in self._constants:
            return self._constants[n.target]
        if n.op != "call_function":
            return super().run_node(n)
        args, kwargs = self.fetch_args_kwargs_from_env(n)
        args, kwargs = pytree.tree_map_only(complex, _parts, (args, kwargs))
        value = n.meta.get("val")
        is_complex = isinstance(value, torch.Tensor) and value.is_complex()
        is_given = any(isinstance(v, Pair) for v in pytree.tree_leaves((args, kwargs)))
        if not is_complex and not is_given:
            return super().run_node(n)
        with self._set_current_node(n):
            if n.target in _BY_PARTS:
                return _by_parts(n.target, args, kwargs)
            if n.target in _FORMS:
                result = _FORMS[n.target](*args, **kwargs)
                if result is not NotImplemented:
                    return result
        raise TrainingExportError(
            f"{operator_of(n)} has no form for complex numbers, in {place_of(n)}",
            where=self._where,
            hint="compute with their real and imaginary parts",
        )


def _parts(value: Any) -> Pair:
    if isinstance(value, Pair):
        return value
    if isinstance(value, complex):
        return Pair(value.real, value.imag)
    return Pair(value, torch.zeros_like(value) if isinstance(value, torch.Tensor) else 0.0)


def _real_dtype(dtype: torch.dtype | None) -> torch.dtype | None:
    return None if dtype is None else dtype.to_real()


def _by_parts(operator: Any, args: Any, kwargs: Any) -> Any:
    """An operator that is linear, of both parts."""
    flat, spec = pytree.tree_flatten((args, kwargs))
    is_many = any(isinstance(value, Pair) for value in flat)
    results = []
    for part in ("real", "imaginary"):
        part_leaves = [
            getattr(_parts(value), part)
            if isinstance(value, Pair)
            or (
                is_many
                and isinstance(value, torch.Tensor)
                and operator in _SUMS
                and value.is_floating_point()
            )
            else _real_dtype(value)
            if isinstance(value, torch.dtype)
            else value
            for value in flat
        ]
        own_args, own_kwargs = pytree.tree_unflatten(part_leaves, spec)
        results.append(operator(*own_args, **own_kwargs))
    if isinstance(results[0], list | tuple):
        return [Pair(*parts) for parts in zip(*results, strict=True)]
    return Pair(*results)


def _sum_of(sign: int) -> Callable[..., Any]:
    def total(first: Any, second: Any, *, alpha: Any = 1) -> Any:
        a, b = _parts(first), _parts(second)
        parts = [x + sign * alpha * y for x, y in ((a.real, b.real), (a.imaginary, b.imaginary))]
        return Pair(*parts)

    return total


def _product(first: Any, second: Any) -> Pair:
    if not isinstance(second, Pair):
        a = _parts(first)
        return Pair(a.real * second, a.imaginary * second)
    if not isinstance(first, Pair):
        return _product(second, first)
    a, b = _parts(first), _parts(second)
    return Pair(
        a.real * b.real - a.imaginary * b.imaginary, a.real * b.imaginary + a.imaginary * b.real
    )


def _quotient(first: Any, second: Any) -> Pair:
    if not isinstance(second, Pair):
        a = _parts(first)
        return Pair(a.real / second, a.imaginary / second)
    b = _parts(second)
    # a/b = a·conj(b) / |b|².
    size = b.real * b.real + b.imaginary * b.imaginary
    above = _product(_parts(first), Pair(b.real, -b.imaginary))
    return Pair(above.real / size, above.imaginary / size)


def _conjugate(value: Pair) -> Pair:
    return Pair(value.real, -value.imaginary)


def _size(value: Pair) -> torch.Tensor:
    return torch.hypot(value.real, value.imaginary)


def _direction(value: Pair) -> Pair:
    size = _size(value)
    # torch.sgn of 0 is 0.
    safe = torch.where(size == 0, 1.0, size)
    return Pair(value.real / safe, value.imaginary / safe)


def _exponential(value: Pair) -> Pair:
    size = torch.exp(value.real)
    return Pair(size * torch.cos(value.imaginary), size * torch.sin(value.imaginary))


def _power(value: Any, exponent: Any) -> Any:
    if not isinstance(value, Pair) or exponent not in (1, 2, 3):
        return NotImplemented
    result = value
    for _ in range(int(exponent) - 1):
        result = _product(result, value)
    return result


def _matrix_product(operator: Any) -> Callable[..., Any]:
    def product(first: Any, second: Any) -> Pair:
        a, b = _parts(first), _parts(second)
        if not isinstance(second, Pair):
            return Pair(operator(a.real, second), operator(a.imaginary, second))
        if not isinstance(first, Pair):
            return Pair(operator(first, b.real), operator(first, b.imaginary))
        return Pair(
            operator(a.real, b.real) - operator(a.imaginary, b.imaginary),
            operator(a.real, b.imaginary) + operator(a.imaginary, b.real),
        )

    return product


def _cast(value: Any, *, dtype: torch.dtype | None = None, **_: Any) -> Any:
    pair = _parts(value)
    if dtype is not None and not dtype.is_complex:
        return pair.real.to(dtype)
    real = _real_dtype(dtype) or pair.real.dtype
    return Pair(pair.real.to(real), pair.imaginary.to(real))


def _fill(size: Any, value: Any = 0.0, *, dtype: torch.dtype | None = None, **_: Any) -> Pair:
    parts, real = _parts(value), _real_dtype(dtype)
    return Pair(
        torch.full(size, parts.real, dtype=real), torch.full(size, parts.imaginary, dtype=real)
    )


def _filled_like(value: Any, number: Any = 0.0, **_: Any) -> Pair:
    parts, value_parts = _parts(number), _parts(value)
    return Pair(
        torch.full_like(value_parts.real, parts.real),
        torch.full_like(value_parts.real, parts.imaginary),
    )


def _scalar(number: Any, *, dtype: torch.dtype | None = None, **_: Any) -> Pair:
    return _fill((), number, dtype=dtype)


def _is_equal(first: Any, second: Any) -> torch.Tensor:
    a, b = _parts(first), _parts(second)
    result: torch.Tensor = (a.real == b.real) & (a.imaginary == b.imaginary)
    return result


_LONGEST = 8192
"""The longest Fourier transform, a product with two matrices of that many rows."""


def _rotations(rows: int, columns: int, length: int, dtype: torch.dtype) -> tuple[Any, Any]:
    """Cosines and sines of 2π·row·column / length, computed in float64."""
    if length > _LONGEST:
        raise NotImplementedError(f"a Fourier transform of {length} values (at most {_LONGEST})")
    places = torch.arange(rows).unsqueeze(1) * torch.arange(columns) % length
    angles = places.double() * (2 * math.pi / length)
    # An angle of 180° has a sine of 0: the sign of a rounding would be a half turn of a phase.
    sines = torch.where(2 * places % length == 0, 0.0, torch.sin(angles))
    return torch.cos(angles).to(dtype), sines.to(dtype)


def _along(value: torch.Tensor, axis: int, matrix: torch.Tensor) -> torch.Tensor:
    return (value.movedim(axis, -1) @ matrix).movedim(-1, axis)


def _normalization_factor(lengths: Sequence[int], normalization: int) -> float:
    count = math.prod(lengths)
    return {0: 1.0, 1: 1 / math.sqrt(count), 2: 1 / count}[normalization]


def _transform(value: Pair, axis: int, *, forward: bool) -> Pair:
    length = int(value.real.shape[axis])
    cosine, sine = _rotations(length, length, length, value.real.dtype)
    sine = sine if forward else -sine
    real = _along(value.real, axis, cosine) + _along(value.imaginary, axis, sine)
    return Pair(real, _along(value.imaginary, axis, cosine) - _along(value.real, axis, sine))


def _scale(value: Pair, factor: float) -> Pair:
    if factor == 1.0:
        return value
    return Pair(value.real * factor, value.imaginary * factor)


def _of_complex(value: Any, axes: Sequence[int], normalization: int, forward: bool) -> Pair:
    result = _parts(value)
    for axis in axes:
        result = _transform(result, axis, forward=forward)
    return _scale(
        result, _normalization_factor([int(result.real.shape[a]) for a in axes], normalization)
    )


def _of_real(
    value: torch.Tensor, axes: Sequence[int], normalization: int, is_onesided: bool
) -> Pair:
    *other_axes, last = axes
    length = int(value.shape[last])
    lengths = [int(value.shape[axis]) for axis in axes]
    columns = length // 2 + 1 if is_onesided else length
    cosine, sine = _rotations(length, columns, length, value.dtype)
    result = Pair(_along(value, last, cosine), 0 - _along(value, last, sine))
    for axis in other_axes:
        result = _transform(result, axis, forward=True)
    return _scale(result, _normalization_factor(lengths, normalization))


def _to_real(value: Any, axes: Sequence[int], normalization: int, size: Any) -> torch.Tensor:
    result = _parts(value)
    *other_axes, last = axes
    for axis in other_axes:
        result = _transform(result, axis, forward=False)
    length = int(size)
    rows = length // 2 + 1
    cosine, sine = _rotations(rows, length, length, result.real.dtype)
    # The other half of the spectrum is conjugate: its terms double those between the ends.
    weights = torch.full((rows, 1), 2.0, dtype=result.real.dtype)
    places = torch.arange(rows).unsqueeze(1)
    is_end = (places == 0) | (2 * places == length)
    weights = torch.where(is_end, 1.0, weights)
    real = _along(result.real.narrow(last, 0, rows), last, cosine * weights)
    real = real - _along(result.imaginary.narrow(last, 0, rows), last, sine * weights)
    # torch normalizes by the length of the real signal, not by the half spectrum's.
    lengths = [*(int(result.real.shape[axis]) for axis in other_axes), length]
    return real * _normalization_factor(lengths, normalization)


def _pair(real: torch.Tensor, imaginary: torch.Tensor) -> Pair:
    """The parts of one shape: torch.complex broadcasts them."""
    return Pair(*torch.broadcast_tensors(real, imaginary))


def _polar(size: torch.Tensor, angle: torch.Tensor) -> Pair:
    return Pair(size * torch.cos(angle), size * torch.sin(angle))


def _of_pairs(value: torch.Tensor) -> Pair:
    return Pair(value.select(-1, 0), value.select(-1, 1))


_SUMS = frozenset(
    {
        ATEN.cat.default,
        ATEN.stack.default,
        ATEN.where.self,
        ATEN.slice_scatter.default,
        ATEN.select_scatter.default,
        ATEN.index_put.default,
        ATEN.copy.default,
    }
)
"""Operators of several tensors, in which a real tensor has an imaginary part of 0."""

_BY_PARTS = _SUMS | frozenset(
    getattr(getattr(ATEN, name), overload)
    for name, overload in (
        ("view", "default"),
        ("reshape", "default"),
        ("_unsafe_view", "default"),
        ("permute", "default"),
        ("transpose", "int"),
        ("t", "default"),
        ("expand", "default"),
        ("slice", "Tensor"),
        ("select", "int"),
        ("unsqueeze", "default"),
        ("squeeze", "default"),
        ("squeeze", "dim"),
        ("squeeze", "dims"),
        ("clone", "default"),
        ("detach", "default"),
        ("alias", "default"),
        ("lift_fresh_copy", "default"),
        ("index", "Tensor"),
        ("index_select", "default"),
        ("gather", "default"),
        ("neg", "default"),
        ("sum", "default"),
        ("sum", "dim_IntList"),
        ("mean", "default"),
        ("mean", "dim"),
        ("cumsum", "default"),
        ("slice_backward", "default"),
        ("select_backward", "default"),
        ("constant_pad_nd", "default"),
        ("flip", "default"),
        ("roll", "default"),
        ("repeat", "default"),
        ("diagonal", "default"),
        ("split", "Tensor"),
        ("split_with_sizes", "default"),
        ("unbind", "int"),
        ("as_strided", "default"),
    )
)
"""Operators that are linear in one argument, so that they act on each part."""

_FORMS: Mapping[Any, Callable[..., Any]] = {
    ATEN.add.Tensor: _sum_of(1),
    ATEN.sub.Tensor: _sum_of(-1),
    ATEN.mul.Tensor: _product,
    ATEN.mul.Scalar: _product,
    ATEN.div.Tensor: _quotient,
    ATEN.div.Scalar: _quotient,
    ATEN.reciprocal.default: lambda value: _quotient(1.0, value),
    ATEN._conj.default: _conjugate,
    ATEN._conj_physical.default: _conjugate,
    ATEN.conj_physical.default: _conjugate,
    PRIMS.conj_physical.default: _conjugate,
    PRIMS.conj.default: _conjugate,
    ATEN.resolve_conj.default: lambda value: value,
    ATEN.abs.default: _size,
    ATEN.sgn.default: _direction,
    ATEN.angle.default: lambda value: torch.atan2(value.imaginary, value.real),
    ATEN.real.default: lambda value: value.real,
    ATEN.imag.default: lambda value: value.imaginary,
    ATEN.view_as_real.default: lambda value: torch.stack([value.real, value.imaginary], -1),
    ATEN.view_as_real_copy.default: lambda value: torch.stack([value.real, value.imaginary], -1),
    ATEN.view_as_complex.default: _of_pairs,
    ATEN.view_as_complex_copy.default: _of_pairs,
    ATEN.complex.default: _pair,
    ATEN.polar.default: _polar,
    ATEN.exp.default: _exponential,
    ATEN.pow.Tensor_Scalar: _power,
    ATEN.sym_size.int: lambda value, axis: value.real.shape[axis],
    ATEN.eq.Tensor: _is_equal,
    ATEN.eq.Scalar: _is_equal,
    ATEN.mm.default: _matrix_product(ATEN.mm.default),
    ATEN.bmm.default: _matrix_product(ATEN.bmm.default),
    ATEN._to_copy.default: _cast,
    PRIMS.convert_element_type.default: lambda value, dtype: _cast(value, dtype=dtype),
    ATEN.full.default: _fill,
    ATEN.zeros.default: _fill,
    ATEN.full_like.default: _filled_like,
    ATEN.zeros_like.default: _filled_like,
    ATEN.scalar_tensor.default: _scalar,
    PRIMS.scalar_tensor.default: _scalar,
    ATEN._fft_r2c.default: _of_real,
    ATEN._fft_c2c.default: _of_complex,
    ATEN._fft_c2r.default: _to_real,
}
"""Forms of other operators: of pairs, or with pairs as results."""

"""Integer inputs that a forward reads as indices or labels, and how large these may be."""

from __future__ import annotations

import math
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, replace
from typing import Any

import torch
from torch.utils._python_dispatch import TorchDispatchMode
from torch.utils.weak import WeakIdKeyDictionary

from closedform.training.index_ranges import Cut, IndexRange, Step, preimage
from closedform.training.to_onnx.operators import ATEN
from closedform.training.to_onnx.size_formulas import UnwrittenError, formula


@dataclass(frozen=True, slots=True)
class _InputPart:
    """A part of an input: a tensor that has no values but these.

    Attributes:
        input: The name of the input.
        cuts: The slices that led to it.
        axes: Its axes as axes of the input, None for new ones; None if they are mixed.
        free: Values of the input that other operators have taken out.
        pads: How many entries an axis has in addition, at its end.
        steps: The arithmetic that led to it.
    """

    input: str
    cuts: tuple[Cut, ...]
    axes: tuple[int | None, ...] | None
    free: tuple[int, ...] = ()
    pads: tuple[tuple[int, int], ...] = ()
    steps: tuple[Step, ...] = ()

    def values_of_input(self, value: int) -> tuple[int, ...] | None:
        """Returns the values of the input that lead to a value, one or none; None for several."""
        low, high = preimage((value, value), self.steps)
        # A value that a clamp takes out has equal, infinite bounds.
        if low > high or (low == high and math.isinf(low)):
            return ()
        return (int(low),) if low == high else None


@dataclass(frozen=True, slots=True)
class _Claim:
    """A comparison of a part with a number: a tensor of booleans."""

    part: _InputPart
    relation: str
    number: int


class IndexReads(TorchDispatchMode):
    """Records ranges of the inputs that operators read as indices.

    Values are followed through arithmetic with numbers; those of several inputs have no range.

    Args:
        inputs: Tensors of integers by the names of the batch.
        names: Names of free sizes by their symbols in the trace.
    """

    def __init__(self, inputs: Mapping[str, torch.Tensor], names: Mapping[str, str]) -> None:
        super().__init__()  # type: ignore[no-untyped-call]
        self._names = names
        # By identity and weakly: equal tensors are different reads, and an id may be used again
        # after a tensor is freed.
        self._parts: Any = WeakIdKeyDictionary()
        self._claims: Any = WeakIdKeyDictionary()
        # A dict as an ordered set.
        self._found: dict[IndexRange, None] = {}
        for name, tensor in inputs.items():
            self._parts[tensor] = _InputPart(name, (), tuple(range(tensor.dim())))

    @property
    def ranges(self) -> tuple[IndexRange, ...]:
        """The ranges in the order of the reads, without those that others imply."""
        return tuple(self._found)

    def __torch_dispatch__(
        self, function: Any, types: Any, args: Any = (), kwargs: Any = None
    ) -> Any:
        result = function(*args, **(kwargs or {}))
        self._record(function, args, kwargs or {}, result)
        return result

    def _record(self, function: Any, args: Any, kwargs: Any, result: Any) -> None:
        if function in _READS:
            read = _READS[function](*args)
            if read is not None:
                self._add(read)
        # A list of indices, one for each axis, such as x[i, :, j].
        elif function in _MANY:
            for axis, index in _by_axis(args[1]):
                # Lists of indices count from the end in torch, unlike gather and index_select.
                self._add(_Read(index, args[0].shape[axis], is_from_end=True))
        elif function in _SAME and (part := self._part(args[0])) is not None:
            self._follow(part, function, args, result)
        elif function in _ARITHMETIC:
            self._compute(_ARITHMETIC[function](*args, **kwargs), result)
        elif function in _COMPARISONS and (part := self._part(args[0])) is not None:
            if isinstance(args[1], int):
                self._claims[result] = _Claim(part, _COMPARISONS[function], args[1])
        elif function is ATEN.all.default and isinstance(args[0], torch.Tensor):
            if args[0] in self._claims:
                self._claims[result] = self._claims[args[0]]
        elif function is ATEN._assert_async.msg and args[0] in self._claims:
            self._assert(self._claims[args[0]])
        elif function is ATEN.masked_fill.Scalar:
            self._replace(args[0], args[1], "eq", result)
        elif function is ATEN.where.self:
            # where(mask, other, value): value is replaced where the mask is false, hence "ne".
            self._replace(args[1], args[0], "ne", result)

    def _part(self, tensor: object) -> _InputPart | None:
        part: _InputPart | None = (
            self._parts.get(tensor) if isinstance(tensor, torch.Tensor) else None
        )
        return part

    def _add(self, read: _Read) -> None:
        part = self._part(read.index)
        size = self._size(read.size)
        if part is None or size is None:
            return
        # A value that is allowed after arithmetic is one of the input only where the arithmetic
        # maps a single value to it.
        of_read: list[int] = []
        for value in read.free:
            values = part.values_of_input(value)
            if values is None:
                return
            of_read += values
        free = tuple(dict.fromkeys((*of_read, *part.free)))
        self._found[
            IndexRange(part.input, size, read.low, read.is_from_end, free, part.cuts, part.steps)
        ] = None

    def _size(self, size: Any) -> str | None:
        """A size as a formula of the names of the free sizes."""
        if isinstance(size, int):
            return str(size)
        try:
            return formula(size.node.expr, self._names)
        except UnwrittenError:
            return None

    def _assert(self, claim: _Claim) -> None:
        """An assertion that a comparison holds everywhere, as ``one_hot`` makes two of them."""
        if claim.relation == "lt":
            part = claim.part
            size = str(claim.number)
            entry = IndexRange(part.input, size, 0, False, part.free, part.cuts, part.steps)
            self._found[entry] = None

    def _replace(self, value: object, mask: object, relation: str, result: torch.Tensor) -> None:
        """A replacement of all entries of a value by another, such as a padding by −100."""
        part, claim = self._part(value), self._claims.get(mask)
        if part is None or claim is None or (claim.part, claim.relation) != (part, relation):
            return
        numbers = part.values_of_input(claim.number)
        # An expanded part has other entries than the input.
        is_whole = isinstance(value, torch.Tensor) and value.shape == result.shape
        if is_whole and numbers is not None:
            self._parts[result] = replace(part, free=(*part.free, *numbers))

    def _compute(self, arithmetic: _Computed | None, result: torch.Tensor) -> None:
        """Follows a part through arithmetic with numbers, where its shape stays."""
        # Floats are not indices; a quotient of integers is one.
        if arithmetic is None or result.dtype.is_floating_point:
            return
        part = self._part(arithmetic.value)
        if part is not None and arithmetic.value.shape == result.shape:
            self._parts[result] = replace(part, steps=(*part.steps, *arithmetic.steps))

    def _follow(self, part: _InputPart, function: Any, args: Any, result: Any) -> None:
        many = result if isinstance(result, list | tuple) else [result]
        for place, tensor in enumerate(many):
            if tensor.dtype.is_floating_point or tensor.dtype is torch.bool:
                continue
            following = _SAME[function](part, tensor, place, *args)
            if following is not None:
                self._parts[tensor] = following


@dataclass(frozen=True, slots=True)
class _Read:
    """A tensor that is read as indices into an axis.

    Attributes:
        index: The tensor.
        size: The size of the axis.
        free: Further values that are allowed.
        is_from_end: Whether negative values count from the end.
        low: The least value, if none counts from the end.
    """

    index: Any
    size: Any
    free: tuple[int, ...] = ()
    is_from_end: bool = False
    low: int = 0


def _embedding(weight: Any, index: Any, *_: Any) -> _Read:
    # padding_idx of an embedding is an index like all others.
    return _Read(index, weight.shape[0])


def _along(value: Any, axis: int, index: Any, *_: Any) -> _Read | None:
    # A scalar has no axis: torch accepts index 0 then.
    return _Read(index, value.shape[axis]) if value.dim() else None


def _from_end_along(value: Any, axis: int, index: Any, *_: Any) -> _Read | None:
    return _Read(index, value.shape[axis], is_from_end=True) if value.dim() else None


def _flat(value: Any, index: Any, *_: Any) -> _Read:
    return _Read(index, value.numel(), is_from_end=True)


def _likelihood(
    # ignore_index is torch's default of −100, the only value outside of the range.
    value: Any,
    target: Any,
    weight: Any = None,
    reduction: int = 1,
    ignore_index: int = -100,
) -> _Read:
    del weight, reduction
    return _Read(target, value.shape[1 if value.dim() > 1 else 0], (ignore_index,))


def _margin(value: Any, target: Any, *_: Any) -> _Read:
    return _Read(target, value.shape[-1])


_READS: Mapping[Any, Callable[..., _Read | None]] = {
    ATEN.embedding.default: _embedding,
    ATEN.nll_loss_forward.default: _likelihood,
    ATEN.nll_loss2d_forward.default: _likelihood,
    ATEN.multi_margin_loss.default: _margin,
    **dict.fromkeys(
        (
            ATEN.index_select.default,
            ATEN.gather.default,
            ATEN.scatter.src,
            ATEN.scatter.value,
            ATEN.scatter.reduce,
            ATEN.scatter.value_reduce,
            ATEN.scatter_add.default,
            ATEN.scatter_reduce.two,
            ATEN.index_add.default,
            ATEN.index_copy.default,
        ),
        _along,
    ),
    ATEN.index_fill.int_Scalar: _from_end_along,
    ATEN.index_fill.int_Tensor: _from_end_along,
    ATEN.take.default: _flat,
    ATEN.put.default: _flat,
}
"""Operators that read indices, as torch checks them."""


@dataclass(frozen=True, slots=True)
class _Computed:
    """Steps of arithmetic on the values of a tensor."""

    value: torch.Tensor
    steps: tuple[Step, ...]


def _sum(first: Any, second: Any, alpha: Any = 1) -> _Computed | None:
    # type(…) is int: bool is a subclass of int, and a symbolic number is not an int.
    if type(second) is int and type(alpha) is int:
        return _Computed(first, (("add", second * alpha),))
    if type(first) is int and alpha == 1:
        return _Computed(second, (("add", first),))
    return None


def _difference(first: Any, second: Any, alpha: Any = 1) -> _Computed | None:
    if type(second) is int and type(alpha) is int:
        return _Computed(first, (("add", -second * alpha),))
    if type(first) is int and alpha == 1:
        # n − x: −x + n, in two steps whose inverses are known.
        return _Computed(second, (("multiply", -1), ("add", first)))
    return None


def _reversed_difference(value: Any, number: Any, alpha: Any = 1) -> _Computed | None:
    return _difference(number, value) if type(number) is int and alpha == 1 else None


def _product(first: Any, second: Any) -> _Computed | None:
    value, number = (second, first) if type(first) is int else (first, second)
    # A product with 0 has one value, which the trace has read with the example.
    return _Computed(value, (("multiply", number),)) if type(number) is int and number else None


def _negative(value: Any) -> _Computed:
    return _Computed(value, (("multiply", -1),))


def _quotient(value: Any, divisor: Any, *, rounding_mode: str = "floor") -> _Computed | None:
    # Truncation rounds towards 0, and a negative divisor reverses the order: preimages are written
    # for floors only.
    if rounding_mode != "floor" or type(divisor) is not int or divisor <= 0:
        return None
    return _Computed(value, (("floor_divide", divisor),))


def _clamp(value: Any, low: Any = None, high: Any = None, **bounds: Any) -> _Computed | None:
    bounds_by_kind = {
        "clip_low": bounds.get("min", low),
        "clip_high": bounds.get("max", high),
    }
    if any(type(bound) not in (int, type(None)) for bound in bounds_by_kind.values()):
        return None
    steps = ((kind, bound) for kind, bound in bounds_by_kind.items() if bound is not None)
    return _Computed(value, tuple(steps))


def _clamp_max(value: Any, high: Any) -> _Computed | None:
    return _clamp(value, None, high)


_ARITHMETIC: Mapping[Any, Callable[..., _Computed | None]] = {
    **dict.fromkeys((ATEN.add.Tensor, ATEN.add.Scalar), _sum),
    **dict.fromkeys((ATEN.sub.Tensor, ATEN.sub.Scalar), _difference),
    **dict.fromkeys((ATEN.rsub.Tensor, ATEN.rsub.Scalar), _reversed_difference),
    **dict.fromkeys((ATEN.mul.Tensor, ATEN.mul.Scalar), _product),
    **dict.fromkeys(
        (
            ATEN.floor_divide.default,
            ATEN.floor_divide.Scalar,
            ATEN.div.Tensor_mode,
            ATEN.div.Scalar_mode,
        ),
        _quotient,
    ),
    ATEN.neg.default: _negative,
    ATEN.clamp.default: _clamp,
    ATEN.clamp_min.default: _clamp,
    ATEN.clamp_max.default: _clamp_max,
    ATEN.relu.default: lambda value: _clamp(value, 0),
}
"""Monotone functions of integers, with the numbers that they compute with."""

_MANY = frozenset({ATEN.index.Tensor, ATEN.index_put.default, ATEN._unsafe_index.Tensor})
"""Operators with a list of indices, one for each axis."""


def _by_axis(indices: Sequence[Any]) -> list[tuple[int, torch.Tensor]]:
    """The indices by their axes; a mask would take several axes."""
    index_of_axis = [(axis, index) for axis, index in enumerate(indices) if index is not None]
    # uint8 indices are masks in torch, deprecated since 1.2.
    masks = (torch.bool, torch.uint8)
    return [] if any(index.dtype in masks for _, index in index_of_axis) else index_of_axis


_COMPARISONS: Mapping[Any, str] = {
    ATEN.eq.Scalar: "eq",
    ATEN.ne.Scalar: "ne",
    ATEN.lt.Scalar: "lt",
}


def _whole(part: _InputPart, result: torch.Tensor, place: int, *_: Any) -> _InputPart:
    del place
    is_same = part.axes is not None and len(part.axes) == result.dim()
    return part if is_same else replace(part, axes=None)


def _mix(part: _InputPart, result: torch.Tensor, *_: Any) -> _InputPart:
    del result
    return replace(part, axes=None)


def _sorted(part: _InputPart, result: torch.Tensor, place: int, *_: Any) -> _InputPart | None:
    return _mix(part, result) if place == 0 else None  # the other result has places


def _permute(
    part: _InputPart, result: Any, place: int, value: Any, order: Sequence[int]
) -> _InputPart:
    del result, place, value
    return replace(part, axes=None if part.axes is None else tuple(part.axes[i] for i in order))


def _transpose(part: _InputPart, result: Any, place: int, value: Any, *axes: int) -> _InputPart:
    order = list(range(result.dim()))
    if result.dim() > 1:
        first, second = axes or (0, 1)
        order[first], order[second] = order[second], order[first]
    return _permute(part, result, place, value, order)


def _unsqueeze(part: _InputPart, result: Any, place: int, value: Any, axis: int) -> _InputPart:
    del place, value
    if part.axes is None:
        return part
    axes = list(part.axes)
    # A negative axis counts the axes of the result.
    axes.insert(axis % result.dim(), None)
    return replace(part, axes=tuple(axes))


def _cut(part: _InputPart, axis: int, start: Any, stop: Any, step: Any) -> _InputPart | None:
    """A slice of a part; None where its place in the input is not a number."""
    if part.axes is None:
        return None
    of = part.axes[axis]
    if of is None or any(type(bound) not in (int, type(None)) for bound in (start, stop, step)):
        return None
    pad = dict(part.pads).get(of, 0)
    if start is not None and start < 0 and pad:
        # A negative start with padding at the end counts from the padded end: that place in the
        # input depends on its length.
        return None
    if stop is not None:
        if stop < 0 and pad:
            stop = stop + pad if stop + pad < 0 else None
        # torch writes an open end as the largest int64.
        # 2**63 − 1, with room for arithmetic on it.
        elif stop > 2**62:
            stop = None
    if (start or 0, stop, step or 1) == (0, None, 1):
        return part
    return replace(part, cuts=(*part.cuts, (of, start, stop, step or 1)))


def _slice(
    part: _InputPart,
    result: Any,
    place: int,
    value: Any,
    axis: int = 0,
    start: Any = None,
    stop: Any = None,
    step: Any = 1,
) -> _InputPart | None:
    del result, place
    return _cut(part, axis % value.dim(), start, stop, step)


def _select(
    part: _InputPart, result: Any, place: int, value: Any, axis: int, index: Any
) -> _InputPart | None:
    del result, place
    axis %= value.dim()
    # index + 1 would be 0 for −1, an empty slice.
    slice_part = _cut(part, axis, index, None if index == -1 else index + 1, 1)
    return _without(slice_part, axis)


def _without(part: _InputPart | None, axis: int) -> _InputPart | None:
    if part is None or part.axes is None:
        return part
    return replace(part, axes=part.axes[:axis] + part.axes[axis + 1 :])


def _split(
    part: _InputPart, result: Any, place: int, value: Any, size: Any, axis: int = 0
) -> _InputPart | None:
    del result
    axis %= value.dim()
    sizes = [size] * (place + 1) if isinstance(size, int) else list(size)
    if not all(type(length) is int for length in sizes[: place + 1]):
        return None
    # split with one number has equal parts except for the last.
    start = sum(sizes[:place])
    return _cut(part, axis, start, start + sizes[place], 1)


def _unbind(
    part: _InputPart, result: Any, place: int, value: Any, axis: int = 0
) -> _InputPart | None:
    del result
    axis %= value.dim()
    return _without(_cut(part, axis, place, place + 1, 1), axis)


def _pad(
    part: _InputPart, result: Any, place: int, value: Any, pads: Sequence[Any], *_: Any
) -> _InputPart | None:
    """A padding at the end with other values, which the trace has checked with the example."""
    del place, value
    # pads of constant_pad_nd: pairs from the last axis on, (before, after). Padding in front would
    # move all places.
    if part.axes is None or any(type(pad) is not int or pad < 0 for pad in pads) or any(pads[::2]):
        return None
    pads_of_axis = [
        (part.axes[result.dim() - 1 - i], pad) for i, pad in enumerate(pads[1::2]) if pad
    ]
    if part.pads or any(axis is None for axis, _ in pads_of_axis):
        return None
    return replace(part, pads=tuple((axis, pad) for axis, pad in pads_of_axis if axis is not None))


_SAME: Mapping[Any, Callable[..., _InputPart | None]] = {
    **dict.fromkeys(
        (
            ATEN.clone.default,
            ATEN.detach.default,
            ATEN.alias.default,
            ATEN._to_copy.default,
            ATEN.lift_fresh_copy.default,
            ATEN.contiguous.default,
            ATEN.expand.default,
        ),
        _whole,
    ),
    **dict.fromkeys(
        (
            ATEN.view.default,
            ATEN._unsafe_view.default,
            ATEN.reshape.default,
            ATEN.squeeze.default,
            ATEN.squeeze.dim,
            ATEN.squeeze.dims,
            ATEN.repeat.default,
        ),
        _mix,
    ),
    **dict.fromkeys((ATEN.sort.default, ATEN.sort.stable), _sorted),
    ATEN.permute.default: _permute,
    ATEN.transpose.int: _transpose,
    ATEN.t.default: _transpose,
    ATEN.unsqueeze.default: _unsqueeze,
    ATEN.slice.Tensor: _slice,
    ATEN.select.int: _select,
    ATEN.split.Tensor: _split,
    ATEN.split_with_sizes.default: _split,
    ATEN.unbind.int: _unbind,
    ATEN.constant_pad_nd.default: _pad,
}
"""Operators whose results have only values of their first argument."""

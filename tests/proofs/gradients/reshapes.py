"""Reshape on tensors of index sums: axes in groups with equal numbers of elements."""

from collections.abc import Callable, Mapping, Sequence
from typing import Any

from onnx import NodeProto

from closedform.errors import VerificationError
from tests.proofs.gradients.index_sums import (
    Index,
    plain,
)
from tests.proofs.gradients.tensors import (
    Indices,
    Tensor,
    are_equal_sizes,
    as_index,
    integers,
    is_one,
)


def _reshape(node: NodeProto, operands: Sequence[Tensor], _: Any) -> Tensor:
    operand = operands[0]
    shape = list(integers(operands[1]))
    shape = [operand.shape[axis] if size == 0 else size for axis, size in enumerate(shape)]
    if shape.count(-1) == 1:
        shape = _with_rest(operand.shape, shape)
    groups = _groups(list(operand.shape), shape)

    def at(index: Indices) -> Any:
        place: list[Index] = []
        for sources, targets, offset in groups:
            part = index[offset : offset + len(targets)]
            place += _split(_flat(part, targets), sources, part, targets)
        return operand.at(tuple(place))

    return Tensor(tuple(shape), at, operand.is_real)


def _with_rest(sizes: Indices, shape: list[Index]) -> list[Index]:
    """A shape whose size -1 is the product of the sizes that it lacks."""
    rest, numerator, denominator = list(sizes), 1, 1
    for size in shape:
        match = next((s for s in rest if are_equal_sizes(s, size)), None)
        if match is not None:
            rest.remove(match)
        elif not (isinstance(size, int) and size == -1):
            denominator = denominator * size
    result: Index = 1
    for size in rest:
        if isinstance(size, int):
            numerator *= size
        else:
            result = size if is_one(result) else result * size
    if not isinstance(denominator, int) or numerator % denominator:
        raise VerificationError("this Reshape is not read")
    whole = plain(result * (numerator // denominator))
    return [whole if isinstance(size, int) and size == -1 else size for size in shape]


def _groups(
    sources: list[Index], targets: list[Index]
) -> list[tuple[list[Index], list[Index], int]]:
    """The axes of both shapes in groups with equal numbers of elements."""
    groups, offset = [], 0
    while sources or targets:
        if sources and targets and are_equal_sizes(sources[0], targets[0]):
            above, below = 1, 1
        else:
            pairs = (
                (above, axes - above)
                for axes in range(1, len(sources) + len(targets) + 1)
                for above in range(max(0, axes - len(targets)), min(axes, len(sources)) + 1)
            )
            above, below = next(
                (
                    pair
                    for pair in pairs
                    if _have_equal_counts(sources[: pair[0]], targets[: pair[1]])
                ),
                (0, 0),
            )
        if not above + below:
            raise VerificationError("this Reshape is not read")
        groups.append((sources[:above], targets[:below], offset))
        sources, targets, offset = sources[above:], targets[below:], offset + below
    return groups


def _have_equal_counts(sources: Sequence[Index], targets: Sequence[Index]) -> bool:
    return are_equal_sizes(_count(sources), _count(targets))


def _count(sizes: Sequence[Index]) -> Index:
    """The product of sizes, in one order of its factors."""
    number, factors = 1, []
    for size in sizes:
        if isinstance(size, int):
            number *= size
        else:
            factors.append(size)
    result: Index = number
    for factor in sorted(factors, key=str):
        result = factor if is_one(result) else result * factor
    return plain(result) if factors else number


def _flat(index: Sequence[Index], sizes: Sequence[Index]) -> Index:
    flat: Index = 0
    for i, size in zip(index, sizes, strict=True):
        flat = i if isinstance(flat, int) and flat == 0 else flat * size + i
    return flat


def _split(
    flat: Index, sizes: Sequence[Index], index: Sequence[Index], targets: Sequence[Index]
) -> list[Index]:
    """The index of a place in row-major order."""
    large = [size for size in sizes if not is_one(size)]
    large_targets = [size for size in targets if not is_one(size)]
    if [*map(str, map(plain, large))] == [*map(str, map(plain, large_targets))]:
        rest = iter([i for i, size in zip(index, targets, strict=True) if not is_one(size)])
        return [0 if is_one(size) else next(rest) for size in sizes]
    result: list[Index] = []
    for size in reversed(sizes[1:]):
        result.append(as_index(flat) % size)
        flat = as_index(flat) / size
    return [flat, *reversed(result)] if sizes else []


RESHAPES: Mapping[str, Callable[..., Tensor]] = {
    "Reshape": _reshape,
}
"""The operator Reshape by name."""

"""Functions of torch whose count of entries is a free size.

torch declares these counts as integers, which would fix the size to that of the example: numbers
between two ends, windows, frequencies, indices of triangles, and one-hot rows.
"""

from __future__ import annotations

import math
from collections.abc import Callable
from typing import Any

import torch
from torch._subclasses.fake_tensor import DataDependentOutputException
from torch.fx.experimental.symbolic_shapes import GuardOnDataDependentSymNode
from torch.nn import functional
from torch.overrides import TorchFunctionMode

from closedform.errors import TrainingExportError
from closedform.training.to_onnx.places import Places

End = Any
"""A number, a symbol of a trace, or a tensor without axes."""

Count = Any
"""An integer, or a symbol of a trace."""


class FreeCounts(TorchFunctionMode):
    """Computes entries from their places where the count is a symbol of a trace.

    Integers that are spaced, whose roundings differ between processors, are left to torch.

    Args:
        where: The model, named in errors.
        places: The place that runs, for errors.
    """

    def __init__(self, where: str, places: Places) -> None:
        super().__init__()
        self._where, self._places = where, places

    def __torch_function__(
        self, function: Any, types: Any, args: Any = (), kwargs: Any = None
    ) -> Any:
        keywords = kwargs or {}
        form = _FORMS.get(function)
        is_left = function in _SPACED and not _has_real_result(args, keywords)
        if form is not None and not is_left and _has_symbol(args, keywords):
            return form(*args, **keywords)
        if function is not functional.one_hot:
            return function(*args, **keywords)
        try:
            return function(*args, **keywords)
        except (DataDependentOutputException, GuardOnDataDependentSymNode) as error:
            raise TrainingExportError(
                "one_hot without num_classes has as many columns as the largest label of a batch, "
                f"in {self._places.here()}",
                where=self._where,
                hint="give it the number of classes: one_hot(labels, num_classes)",
            ) from error


def _has_symbol(args: Any, keywords: Any) -> bool:
    return any(isinstance(value, torch.SymInt) for value in (*args, *keywords.values()))


def _has_real_result(args: Any, keywords: Any) -> bool:
    """Whether linspace or logspace returns neither complex numbers nor integers."""
    bounds = *args[:2], keywords.get("start"), keywords.get("end")
    is_complex = any(
        isinstance(bound, complex) or (isinstance(bound, torch.Tensor) and bound.is_complex())
        for bound in bounds
    )
    dtype = keywords.get("dtype")
    return not is_complex and (dtype is None or dtype.is_floating_point)


def evenly_spaced(
    start: End, end: End, steps: Count, *, dtype: torch.dtype | None = None, **_: object
) -> torch.Tensor:
    """Returns start + i·(end - start)/(steps - 1) for i < steps; one step is the start.

    The second half is computed from the end, as by torch, so that it ends there exactly. As in
    torch, ends that are tensors get no gradient.
    """
    dtype = dtype or torch.get_default_dtype()
    first, last = (
        end.detach().to(dtype) if isinstance(end, torch.Tensor) else end for end in (start, end)
    )
    places = torch.arange(steps, dtype=dtype)
    back = places.flip(0)
    gap = (last - first) / places[-1].clamp(min=1)
    return torch.where(places <= back, first + places * gap, last - back * gap)


def logarithmically_spaced(
    start: End,
    end: End,
    steps: Count,
    base: float = 10.0,
    *,
    dtype: torch.dtype | None = None,
    **_: object,
) -> torch.Tensor:
    """Returns base to the powers of ``evenly_spaced``."""
    return torch.pow(base, evenly_spaced(start, end, steps, dtype=dtype))


Shape = Callable[[torch.Tensor, torch.Tensor], torch.Tensor]
"""A window at the places k, given its last place N - 1 on both sides."""


def _window(
    shape: Shape, count: Count, is_periodic: bool, dtype: torch.dtype | None
) -> torch.Tensor:
    """A window of N places: of one more without the last if it is periodic; 1 for one entry."""
    places = torch.arange(count, dtype=dtype or torch.get_default_dtype())
    last = places[-1]
    end = last + 1 if is_periodic else last.clamp(min=1)
    return torch.where(last > 0, shape(places, end), 1.0)


def _cosines(*factors: float) -> Shape:
    """The sum of aᵢ·cos(2πik/(N - 1))."""

    def shape(places: torch.Tensor, end: torch.Tensor) -> torch.Tensor:
        angle = places * (2 * math.pi / end)
        terms = [factor * torch.cos(i * angle) for i, factor in enumerate(factors[1:], 1)]
        return torch.stack(terms).sum(0) + factors[0]

    return shape


def hann_window(
    window_length: Count, periodic: bool = True, *, dtype: torch.dtype | None = None, **_: object
) -> torch.Tensor:
    """Returns 0.5 - 0.5·cos(2πk/(N - 1))."""
    return _window(_cosines(0.5, -0.5), window_length, periodic, dtype)


def hamming_window(
    window_length: Count,
    periodic: bool = True,
    alpha: float = 0.54,
    beta: float = 0.46,
    *,
    dtype: torch.dtype | None = None,
    **_: object,
) -> torch.Tensor:
    """Returns α - β·cos(2πk/(N - 1))."""
    return _window(_cosines(alpha, -beta), window_length, periodic, dtype)


def blackman_window(
    window_length: Count, periodic: bool = True, *, dtype: torch.dtype | None = None, **_: object
) -> torch.Tensor:
    """Returns 0.42 - 0.5·cos(2πk/(N - 1)) + 0.08·cos(4πk/(N - 1))."""
    return _window(_cosines(0.42, -0.5, 0.08), window_length, periodic, dtype)


def bartlett_window(
    window_length: Count, periodic: bool = True, *, dtype: torch.dtype | None = None, **_: object
) -> torch.Tensor:
    """Returns 1 - |2k/(N - 1) - 1|."""

    def shape(places: torch.Tensor, end: torch.Tensor) -> torch.Tensor:
        rise = places * (2 / end)
        return torch.where(2 * places <= end, rise, 2 - rise)

    return _window(shape, window_length, periodic, dtype)


def kaiser_window(
    window_length: Count,
    periodic: bool = True,
    beta: float = 12.0,
    *,
    dtype: torch.dtype | None = None,
    **_: object,
) -> torch.Tensor:
    """Returns I₀(β·√(1 - (2k/(N - 1) - 1)²))/I₀(β)."""

    def shape(places: torch.Tensor, end: torch.Tensor) -> torch.Tensor:
        offset = places * (2 / end) - 1
        numbers = beta * torch.sqrt((1 - offset * offset).clamp(min=0))
        bound = torch.special.i0(torch.full((), beta, dtype=torch.float64)).to(numbers.dtype)
        values: torch.Tensor = torch.special.i0(numbers) / bound
        return values

    return _window(shape, window_length, periodic, dtype)


def fft_frequencies(
    n: Count, d: float = 1.0, *, dtype: torch.dtype | None = None, **_: object
) -> torch.Tensor:
    """Returns k/(n·d) for the places k of a transform, the second half of them negative."""
    places = torch.arange(n, dtype=dtype or torch.get_default_dtype())
    count = places[-1] + 1
    return torch.where(2 * places < count, places, places - count) / (count * d)


def real_fft_frequencies(
    n: Count, d: float = 1.0, *, dtype: torch.dtype | None = None, **_: object
) -> torch.Tensor:
    """Returns k/(n·d) for the places k of a transform of real numbers."""
    places = torch.arange(n, dtype=dtype or torch.get_default_dtype())
    return places[: n // 2 + 1] / ((places[-1] + 1) * d)


def lower_indices(
    row: Count, col: Count, offset: int = 0, *, dtype: torch.dtype = torch.int64, **_: object
) -> torch.Tensor:
    """Returns the rows and columns of the entries on and below a diagonal, row by row."""
    rows = torch.arange(row)
    counts = (rows + (offset + 1)).clamp(min=0).clamp(max=col)
    return _listed(counts, torch.zeros_like(rows), _triangle(row, col, offset)).to(dtype)


def upper_indices(
    row: Count, col: Count, offset: int = 0, *, dtype: torch.dtype = torch.int64, **_: object
) -> torch.Tensor:
    """Returns the rows and columns of the entries on and above a diagonal, row by row."""
    rows = torch.arange(row)
    starts = (rows + offset).clamp(min=0).clamp(max=col)
    # The other entries are on or below the diagonal before it.
    total = row * col - _triangle(row, col, offset - 1)
    return _listed(col - starts, starts, total).to(dtype)


def _triangle(row: Count, col: Count, offset: int) -> Count:
    """The number of entries on and below a diagonal.

    Row r has min(max(r + offset + 1, 0), col) of them.
    """

    def sum_to(length: Count) -> Count:
        partial_row = torch.sym_min(torch.sym_max(length, 0), col)
        return partial_row * (partial_row + 1) // 2 + torch.sym_max(length - col, 0) * col

    return sum_to(row + offset) - sum_to(offset)


def _listed(counts: torch.Tensor, starts: torch.Tensor, total: Count) -> torch.Tensor:
    """The rows and columns of ``counts[r]`` entries in each row r, from ``starts[r]`` on.

    A row begins where the rows before it end: the number of beginnings up to a place is its row.
    """
    ends = counts.cumsum(0)
    marks = torch.zeros_like(torch.arange(total + 1))
    rows = marks.scatter_add(0, ends, torch.ones_like(ends)).cumsum(0)[:total]
    columns = torch.arange(total) - (ends - counts - starts)[rows]
    return torch.stack([rows, columns])


def one_hot(tensor: torch.Tensor, num_classes: Count = -1) -> torch.Tensor:
    """Returns rows of zeros with a one at the place of each label."""
    places = tensor.unsqueeze(-1)
    # A scatter reads its indices, whose range is checked as that of the labels of torch.
    rows = torch.zeros((*tensor.shape, num_classes), dtype=torch.int64)
    return rows.scatter(-1, places, 1)


_FORMS: dict[Any, Callable[..., torch.Tensor]] = {
    torch.linspace: evenly_spaced,
    torch.logspace: logarithmically_spaced,
    torch.hann_window: hann_window,
    torch.hamming_window: hamming_window,
    torch.blackman_window: blackman_window,
    torch.bartlett_window: bartlett_window,
    torch.kaiser_window: kaiser_window,
    torch.fft.fftfreq: fft_frequencies,
    torch.fft.rfftfreq: real_fft_frequencies,
    torch.tril_indices: lower_indices,
    torch.triu_indices: upper_indices,
    functional.one_hot: one_hot,
}

_SPACED = frozenset({torch.linspace, torch.logspace})

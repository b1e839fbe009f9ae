"""Numbers between two ends, as many as a free size: ``torch.linspace`` and ``torch.logspace``.

torch declares their count as an integer, which would fix the size to that of the example.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import torch
from torch.overrides import TorchFunctionMode

End = Any
"""A number, a symbol of a trace, or a tensor without axes."""


class SpacedNumbers(TorchFunctionMode):
    """Computes the numbers from their places where the count is a symbol of a trace.

    Integers, whose roundings differ between processors, are left to torch.
    """

    def __torch_function__(
        self, function: Any, types: Any, args: Any = (), kwargs: Any = None
    ) -> Any:
        form = _FORMS.get(function)
        if form is not None and _has_symbolic_count(*args, **(kwargs or {})):
            return form(*args, **(kwargs or {}))
        return function(*args, **(kwargs or {}))


def _has_symbolic_count(
    start: Any, end: Any, steps: Any, *_: Any, dtype: torch.dtype | None = None, **__: Any
) -> bool:
    is_real = not any(
        isinstance(bound, complex) or (isinstance(bound, torch.Tensor) and bound.is_complex())
        for bound in (start, end)
    )
    is_float = dtype is None or dtype.is_floating_point
    return isinstance(steps, torch.SymInt) and is_real and is_float


def evenly_spaced(
    start: End, end: End, steps: Any, *, dtype: torch.dtype | None = None, **_: object
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
    steps: Any,
    base: float = 10.0,
    *,
    dtype: torch.dtype | None = None,
    **_: object,
) -> torch.Tensor:
    """Returns base to the powers of ``evenly_spaced``."""
    return torch.pow(base, evenly_spaced(start, end, steps, dtype=dtype))


_FORMS: dict[Any, Callable[..., torch.Tensor]] = {
    torch.linspace: evenly_spaced,
    torch.logspace: logarithmically_spaced,
}

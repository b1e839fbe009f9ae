"""The effect of roundings on the results of a step: torch compared with float64 and with itself."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from typing import Any

import numpy as np
import torch
from torch.overrides import TorchFunctionMode
from torch.utils import _pytree as pytree
from torch.utils._python_dispatch import TorchDispatchMode

from closedform.ir.graph import Array
from closedform.training.to_onnx.arrays import NARROW
from closedform.training.to_onnx.onnx_program import Tensors

TOLERANCE: Mapping[torch.dtype, float] = {
    torch.float64: 1e-8,
    torch.float32: 1e-3,
    torch.float16: 2e-2,
    torch.bfloat16: 2e-2,
}
"""The largest difference of a result, relative to its largest value, that is not looked into. Sums
in another order differ by some hundred roundings (in 16 bits, where they are summed in float32, by
some); another formula, or a size of the example, by a part of the value."""

DRAWS = 4
"""How much farther than torch another order of the same operations may carry a result. Both are
draws of the same errors, of which the largest of a tensor is compared."""

LARGEST = 2**30
"""Bytes of parameters, buffers and batch of which a second step in float64 is done."""


@dataclass(frozen=True, slots=True)
class Rounding:
    """The errors of torch in a dtype.

    Attributes:
        reference: Results by name: in float64, or of torch itself.
        errors: The largest distance of torch from the reference, by name.
        is_exact: Whether the reference is in float64.
    """

    reference: Mapping[str, Array]
    errors: Mapping[str, float]
    is_exact: bool

    def excess(self, name: str, result: Array, tolerance: float, scale: float) -> str | None:
        """Returns what is wrong with a result that errs more than torch does, or None.

        Args:
            name: The name of the result.
            result: The result of the graph.
            tolerance: The tolerance of its dtype.
            scale: The value that differences are relative to.
        """
        reference = self.reference[name]
        error = distance(result, reference) / scale
        in_torch = self.errors[name] / scale
        if error <= DRAWS * in_torch + tolerance:
            return None
        if self.is_exact:
            return f"it is {error:.2g} off from float64, torch {in_torch:.2g}"
        return f"a rounding of the inputs changes torch's by {in_torch:.2g}"


_CHUNK = 2**18
"""Elements that are compared at once: in float64 all of a tensor would take twice its memory."""


def distance(first: Array, second: Array) -> float:
    """Returns the largest difference; infinite for another shape, or where one is not finite."""
    if first.shape != second.shape:
        return np.inf
    flat, reference = first.reshape(-1), second.reshape(-1)
    largest = 0.0
    for start in range(0, flat.size, _CHUNK):
        parts = (array[start : start + _CHUNK].astype(np.float64) for array in (flat, reference))
        with np.errstate(invalid="ignore"):
            # ∞ − ∞ is NaN, which counts as an infinite difference below.
            differences = np.abs(np.subtract(*parts))
        largest = max(largest, float(np.nan_to_num(differences, nan=np.inf).max(initial=0)))
    return largest


def measure(
    run: Mapping[str, Array],
    exact: Mapping[str, Array] | None,
    perturbed_runs: Sequence[Mapping[str, Array]],
) -> Rounding:
    """Returns the errors of torch.

    Where numbers cancel by chance, as in a net whose weights are all equal, torch may have no error
    at all where another order of its sums has one: its results for perturbed inputs count, too.

    Args:
        run: The results of torch by name.
        exact: Those in float64; None if torch cannot compute them.
        perturbed_runs: Those for inputs that are changed by a rounding.
    """
    reference = run if exact is None else exact
    errors = {
        name: max(distance(results[name], value) for results in (run, *perturbed_runs))
        for name, value in reference.items()
    }
    return Rounding(reference, errors, exact is not None)


def perturb(tensors: Tensors, generator: torch.Generator) -> Tensors:
    """Returns tensors whose floats are a rounding away, up or down."""

    def of(tensor: torch.Tensor) -> torch.Tensor:
        if not tensor.is_floating_point():
            return tensor
        # eps relative to the number: one or two units in the last place.
        signs = torch.rand(tensor.shape, generator=generator, dtype=torch.float64).sub(0.5).sign()
        rounding = torch.finfo(tensor.dtype).eps
        return (tensor * (1 + rounding * signs)).to(tensor.dtype)

    return {name: of(tensor) for name, tensor in tensors.items()}


_SHORT = (torch.float32, *NARROW)


def _widen(value: Any) -> Any:
    if isinstance(value, torch.Tensor):
        return value.double() if value.dtype in _SHORT else value
    return torch.float64 if isinstance(value, torch.dtype) and value in _SHORT else value


@contextmanager
def in_float64() -> Iterator[None]:
    """Runs operators in float64 where a model has constants, or casts, of fewer bits.

    A tensor that an operator writes to, or has a view of, is passed unchanged.
    """
    operators: TorchDispatchMode = _WideOperators()  # type: ignore[no-untyped-call]
    with _WideFunctions(), operators:
        yield


class _WideFunctions(TorchFunctionMode):
    """Widens operands of functions that compare their dtypes before they call an operator."""

    def __torch_function__(
        self, function: Any, types: Any, args: Any = (), kwargs: Any = None
    ) -> Any:
        arguments = args, kwargs or {}
        args, kwargs = pytree.tree_map(_widen, arguments) if function in _COMPARING else arguments
        return function(*args, **kwargs)


_COMPARING = frozenset(
    {
        *(torch.conv1d, torch.conv2d, torch.conv3d),
        *(torch.conv_transpose1d, torch.conv_transpose2d, torch.conv_transpose3d),
    }
)


class _WideOperators(TorchDispatchMode):
    def __torch_dispatch__(
        self, function: Any, types: Any, args: Any = (), kwargs: Any = None
    ) -> Any:
        aliased_names = {
            argument.name for argument in function._schema.arguments if argument.alias_info
        }
        names = (argument.name for argument in function._schema.arguments)
        args = [
            value if name in aliased_names else pytree.tree_map(_widen, value)
            for name, value in zip(names, args, strict=False)
        ]
        kwargs = {
            name: value if name in aliased_names else pytree.tree_map(_widen, value)
            for name, value in (kwargs or {}).items()
        }
        result = function(*args, **kwargs)
        return result if aliased_names else pytree.tree_map(_widen, result)

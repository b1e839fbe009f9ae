"""Tensors that a step takes in addition to the gradient: masks of the constructor, random numbers.

Neither is a function of gradients and states, so a rule has them as inputs: a mask is what the
optimizer stores, a random tensor of the shape of a parameter is what its step draws. Both have the
same form in every step, so the rule is exact for whatever is passed.
"""

from __future__ import annotations

import math
from collections.abc import Iterable, Mapping, Sequence
from typing import Any

import torch
from torch.utils._python_dispatch import TorchDispatchMode

from closedform.errors import TraceError
from closedform.importers.tensors.values import Sizes
from closedform.ir import naming

NORMAL, UNIFORM = "normal", "uniform"

DISTRIBUTIONS: Mapping[str, str] = {
    "normal_": NORMAL,
    "randn": NORMAL,
    "randn_like": NORMAL,
    "rand": UNIFORM,
    "rand_like": UNIFORM,
    "uniform_": UNIFORM,
}
"""Operators whose results are a shift and a scale of standard numbers, by their distribution."""


def is_mask(value: object, shape: Sizes) -> bool:
    """Whether a state that a constructor has made is a mask of a parameter of this shape."""
    is_of_truths = isinstance(value, torch.Tensor) and value.dtype == torch.bool
    return is_of_truths and tuple(value.shape) == shape  # type: ignore[attr-defined]


def random_mask(shape: Sizes, generator: torch.Generator) -> torch.Tensor:
    """Returns a mask of a parameter that selects about half of the elements.

    Their number is the size of no axis, so that the shape of a tensor shows that it holds them.
    """
    size = math.prod(shape)
    sizes = {0, 1, size, *shape}
    count = next((n for n in range(size // 2 + 1, size) if n not in sizes), size)
    mask = torch.zeros(size, dtype=torch.bool)
    mask[torch.randperm(size, generator=generator)[:count]] = True
    return mask.reshape(shape)


def shift_and_scale(name: str, args: Sequence[Any], options: Mapping[str, Any]) -> tuple[Any, Any]:
    """Returns the numbers m and s of the result m + s·z of an operator of standard numbers z."""
    if not name.endswith("_"):
        return 0.0, 1.0
    keys = ("mean", "std") if name == "normal_" else ("from", "to")
    given = {"mean": 0.0, "std": 1.0, "from": 0.0, "to": 1.0, **options}
    given |= dict(zip(keys, args[1:], strict=False))
    first, second = (given[key] for key in keys)
    return (first, second) if name == "normal_" else (first, second - first)


class Draws(TorchDispatchMode):
    """Draws the random numbers of steps from a separate generator, and keeps them.

    Args:
        seed: Of the generator.
        is_constant: Whether all tensors of a distribution and a shape are equal, so that parameters
            of equal states take equal steps.
    """

    def __init__(self, seed: int, *, is_constant: bool = False) -> None:
        super().__init__()  # type: ignore[no-untyped-call]
        self.generator = torch.Generator().manual_seed(seed)
        self.is_constant = is_constant
        self._constants: dict[tuple[str, Sizes], torch.Tensor] = {}
        self._of_step: dict[tuple[str, Sizes], list[torch.Tensor]] = {}

    def __torch_dispatch__(self, func: Any, types: Any, args: Any = (), kwargs: Any = None) -> Any:
        """Runs one operator."""
        name = func._schema.name.removeprefix("aten::")
        options = dict(kwargs or {})
        if name not in DISTRIBUTIONS:
            return func(*args, **options)
        return self.run(func, name, args, options)

    def begin_step(self) -> None:
        """Forgets the numbers of the step before."""
        self._of_step.clear()

    def run(self, func: Any, name: str, args: Sequence[Any], options: Mapping[str, Any]) -> Any:
        """Runs an operator of random numbers."""
        result = func(*args, **options)
        numbers = self.numbers(DISTRIBUTIONS[name], tuple(result.shape))
        self._of_step.setdefault((DISTRIBUTIONS[name], tuple(result.shape)), []).append(numbers)
        shift, scale = shift_and_scale(name, args, options)
        return result.copy_(shift + scale * numbers)

    def numbers(self, kind: str, shape: Sizes) -> torch.Tensor:
        """Returns standard numbers of a distribution."""
        if self.is_constant and (kind, shape) in self._constants:
            return self._constants[kind, shape]
        draw = torch.randn if kind == NORMAL else torch.rand
        numbers = draw(shape, generator=self.generator, dtype=torch.float64)
        self._constants[kind, shape] = numbers
        return numbers

    def of_step(self, label: str, shape: Sizes) -> torch.Tensor:
        """Returns the numbers of an input of a rule, whose parameter is the only one of its shape.

        Those that the step has not drawn are other ones, which the rule does not take.
        """
        kind, _, count = label.partition("_")
        place = int(count or 1) - 1
        numbers = self._of_step.get((kind, shape), [])
        return numbers[place] if place < len(numbers) else self.numbers(kind, shape)


def input_label(kind: str, count: int) -> str:
    """Returns the name of the input for the tensors that a step draws, of which the first is 1."""
    return kind if count == 1 else f"{kind}_{count}"


def mask_label(key: Any) -> str:
    """Returns the name of the input for a mask, the name of the state.

    Raises:
        TraceError: It is not a name, or is one of random numbers.
    """
    is_name = isinstance(key, str) and key.isidentifier()
    if not is_name or key.partition("_")[0] in (NORMAL, UNIFORM):
        raise TraceError(
            f"the mask {key!r} has a name that is not one of an input",
            hint=f"name it by an identifier that does not begin with {NORMAL} or {UNIFORM}",
        )
    return str(key)


def input_values(
    labels: Iterable[str],
    params: Mapping[str, torch.Tensor],
    states: Mapping[Any, Mapping[str, Any]],
    draws: Draws,
) -> dict[str, Any]:
    """Returns the inputs of a rule for a step that an optimizer has taken, by name.

    Args:
        labels: Their names in the rule.
        params: The parameters by name.
        states: What the optimizer stores for each.
        draws: The random numbers of the step.
    """
    values: dict[str, Any] = {}
    for label in labels:
        for name, param in params.items():
            mask = states[param].get(label) if param in states else None
            value = draws.of_step(label, tuple(param.shape)) if mask is None else mask
            values[naming.tensor_input(name, label)] = value.to(torch.float64).numpy().copy()
    return values

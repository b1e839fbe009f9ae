"""A recurrence over the places of padded sequences: all sizes are static."""

from __future__ import annotations

from collections.abc import Callable

import torch

from closedform.training.from_onnx.values import FixedSizeError

Tensor = torch.Tensor
States = tuple[Tensor, ...]
Cell = Callable[[Tensor, States], States]
"""The next states of a place, given its input and the states before; the first is the output."""


def scan(
    cell: Cell,
    inputs: Tensor,
    states: States,
    lengths: Tensor | None = None,
    *,
    is_reverse: bool = False,
) -> tuple[Tensor, States]:
    """Returns the outputs ``[time, rows, …]`` and the last states of a recurrence.

    Where a sequence has ended, its states stay and its outputs are 0. A recurrence in reverse
    starts at the last place of each sequence.

    Args:
        cell: The recurrence.
        inputs: The inputs ``[time, rows, …]``.
        states: The initial states ``[rows, …]``.
        lengths: The lengths of the sequences ``[rows]``; None for all places.
        is_reverse: Whether it runs from the last place to the first.

    Raises:
        FixedSizeError: The number of places is a free size, which a graph without loops has to
            know.
    """
    count = inputs.shape[0]
    if isinstance(count, torch.SymInt):
        raise FixedSizeError(f"the length of its sequence is a free size, {int(count)} here")
    outputs: list[Tensor] = []
    for place in reversed(range(count)) if is_reverse else range(count):
        following = cell(inputs[place], states)
        output = following[0]
        if lengths is not None:
            is_inside = (lengths > place).unsqueeze(-1)
            following = tuple(
                torch.where(is_inside, after, before)
                for after, before in zip(following, states, strict=True)
            )
            output = torch.where(is_inside, output, 0.0)
        states = following
        outputs.append(output)
    return torch.stack(outputs[::-1] if is_reverse else outputs), states

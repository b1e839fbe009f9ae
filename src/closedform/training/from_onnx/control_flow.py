"""Branches and loops of ONNX as a graph without control flow."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence

import numpy as np
import torch

from closedform.errors import TrainingExportError
from closedform.training.from_onnx.values import (
    ANOTHER_SOURCE,
    FixedSizeError,
    Items,
    OnnxValue,
    as_tensor,
)

BRANCH, LOOP = "If", "Loop"
"""The operators that run a graph within."""

MOST_ITERATIONS = 256
"""Of a loop: each one is written out."""

Tensor = torch.Tensor
NamedValues = Mapping[str, "OnnxValue | None"]


def guard_operands(values: NamedValues, is_taken: Tensor) -> dict[str, OnnxValue | None]:
    """Returns the values that a branch reads, with gradients only where it is taken.

    A branch that is not taken may have infinite derivatives: its gradient is replaced by 0 on the
    way out, which a product with 0 would turn into NaN.
    """
    return {
        name: torch.where(is_taken, value, value.detach())
        if isinstance(value, Tensor) and value.requires_grad
        else value
        for name, value in values.items()
    }


def select_branch(
    condition: Tensor, then: Sequence[OnnxValue | None], otherwise: Sequence[OnnxValue | None]
) -> list[OnnxValue | None]:
    """Returns the results of one of two branches that both have run.

    Raises:
        ExportError: The results of the branches differ in shape or type.
    """
    is_then = condition.reshape(())
    results: list[OnnxValue | None] = []
    for place, (first, second) in enumerate(zip(then, otherwise, strict=True)):
        if first is None or second is None or isinstance(first, Items) or isinstance(second, Items):
            raise TrainingExportError(
                f"its condition depends on data, and its result {place} is not a tensor",
                hint="export the model without the branch, or make the condition a constant",
            )
        one, two = as_tensor(first), as_tensor(second)
        if one.dtype != two.dtype or one.shape != two.shape:
            texts = [f"{str(value.dtype)[6:]} {list(value.shape)}" for value in (one, two)]
            raise TrainingExportError(
                f"its condition depends on data, and its result {place} is {texts[0]} in one branch"
                f" and {texts[1]} in the other",
                hint="export the model without the branch, or make the condition a constant",
            )
        results.append(torch.where(is_then, one, two))
    return results


def unroll_loop(
    body: Callable[[Sequence[OnnxValue | None]], list[OnnxValue | None]],
    operands: Sequence[OnnxValue | None],
) -> list[OnnxValue | None]:
    """Returns the results of a loop whose number of iterations is known.

    Args:
        body: One iteration: the condition, the carried values and the scanned values, given the
            number of the iteration, the condition and the carried values.
        operands: The trip count, the condition, and the carried values.

    Raises:
        ExportError: The number of iterations depends on data or is too large.
        FixedSizeError: It depends on a free size.
    """
    count = None if operands[0] is None else _known_number(operands[0], "its trip count")
    # onnxruntime 1.31 reads the condition of the body even where the loop is given none.
    is_running = operands[1] is None or bool(_known_number(operands[1], "its condition"))
    carried = list(operands[2:])
    scanned: list[list[OnnxValue | None]] = []
    done = 0
    while is_running and (count is None or done < count):
        if done == MOST_ITERATIONS:
            raise TrainingExportError(
                f"it has more than {MOST_ITERATIONS} iterations, each of which is written out",
                hint="export the model without the loop, such as for one length",
            )
        condition, *results = body([np.asarray(done, np.int64), np.asarray(True), *carried])
        is_running = bool(_known_number(condition, "its condition"))
        carried = results[: len(carried)]
        scanned.append(results[len(carried) :])
        done += 1
    return [*carried, *_stacked(scanned)]


def _stacked(scanned: Sequence[Sequence[OnnxValue | None]]) -> list[OnnxValue | None]:
    columns = list(zip(*scanned, strict=True))
    if any(value is None or isinstance(value, Items) for column in columns for value in column):
        raise TrainingExportError("its scanned results must be tensors", hint=ANOTHER_SOURCE)
    return [
        torch.stack([as_tensor(value) for value in column if value is not None])
        for column in columns
    ]


def _known_number(value: OnnxValue | None, name: str) -> int:
    """A number or a truth value that is known during a trace."""
    if not isinstance(value, np.ndarray):
        raise TrainingExportError(
            f"{name} depends on data: a graph that is trained has no control flow",
            hint="export the model without the loop, such as for one length",
        )
    number = value.reshape(-1)[0]
    if not isinstance(number, int | np.integer | np.bool_):
        # Read as a number, so that the trace knows which size it is.
        raise FixedSizeError(f"{name} is a free size, {int(number)} here")
    return int(number)

"""The plan of pytorch-accelerated's WSDLrScheduler: its length, checkpoints and decay phases."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, replace
from typing import Any

import sympy as sp

from closedform.errors import ArgumentError, DefinitionError
from closedform.recipes.entries import Context, fill, find_schedule

_LARGEST_RATIO = sp.Rational(1, 3)


def checkpoint_steps(total_steps: int, num_checkpoints: int = 3) -> list[int]:
    """Returns the implemented ends of the periods: a quarter of the run, doubled each time.

    Args:
        total_steps: The number of steps N of the run, at least 1.
        num_checkpoints: How many are wanted; with more than three, N itself is the last one.

    Example:
        >>> checkpoint_steps(100, 1), checkpoint_steps(100, 2), checkpoint_steps(103, 4)
        ([100], [25, 50], [25, 50, 100, 103])
    """
    if num_checkpoints == 1:
        return [total_steps]
    marks: list[int] = []
    for index in range(num_checkpoints):
        marks.append(min(total_steps // 4 * 2**index, total_steps))
        if marks[-1] == total_steps or marks[-1] == 0:
            break
    return marks


@dataclass(frozen=True, slots=True)
class WsdPlan:
    """The plan that the arguments of a WSDLrScheduler define.

    Attributes:
        total_steps: The number of steps of the run.
        num_warmup_steps: The number of steps of the warmup.
        decay_phase_ratio: The part of each period in which it decays.
        lr_min: The end of a decay, as a part of the base value.
        warmup_starting_lr: The value at step 0, where there is a warmup.
        use_inverse_sqrt_decay: The shape: 1 - sqrt(p), or inverse proportional.
        num_checkpoints: The number of checkpoints that was asked for.
        is_continuation_from_checkpoint: Whether the warmup is left out.
    """

    total_steps: int
    num_warmup_steps: int
    decay_phase_ratio: sp.Rational
    lr_min: sp.Expr
    warmup_starting_lr: sp.Expr
    use_inverse_sqrt_decay: bool
    num_checkpoints: int
    is_continuation_from_checkpoint: bool

    @property
    def checkpoint_steps(self) -> tuple[int, ...]:
        """The steps at which periods end."""
        return tuple(checkpoint_steps(self.total_steps, self.num_checkpoints))

    def get_checkpoint_steps(self) -> list[int]:
        """Returns the steps at which periods end."""
        return list(self.checkpoint_steps)

    def get_phase_info(self, num_updates: int) -> dict[str, int]:
        """Returns the period of a step; a checkpoint belongs to the period that ends there.

        Beyond the last checkpoint it is the last period.
        """
        found = [info for info in self.get_decay_info() if info["period_end"] >= num_updates]
        return found[0] if found else self.get_decay_info()[-1]

    def get_decay_info(self) -> list[dict[str, int]]:
        """Returns for each period its start, its end, its decay's length and first step."""
        starts = (0, *self.checkpoint_steps)
        return [
            {
                "period_start": start,
                "period_end": stop,
                "decay_steps": (steps := int(self.decay_phase_ratio * (stop - start))),
                "pre_decay_step": stop - steps,
            }
            for start, stop in zip(starts, self.checkpoint_steps, strict=False)
        ]


def read_plan(given: Mapping[str, Any], context: Context) -> WsdPlan:
    """Returns the plan of checked arguments, after the state of a first run was loaded if any was.

    As documented, a continuation has its own arguments and no warmup. As implemented, loading a
    state overwrites all of them, including the switch itself, except the length of a continuation.

    Raises:
        ArgumentError: The length is missing, or given twice.
        DefinitionError: The ratio is too large for several checkpoints, the run too short for
            them, or ``continuation`` has another form.
    """
    plan = _plan(given, context)
    loaded = given["continuation"]
    if loaded is None:
        return plan
    if not isinstance(loaded, Mapping) or not isinstance(loaded.get("first"), Mapping):
        raise DefinitionError(
            f'continuation must be {{"first": {{…}}, "load_state": bool}}, got {loaded!r}',
            where=context.where,
        )
    if not context.as_implemented or not loaded.get("load_state", True):
        return plan
    entry = find_schedule("WSDLrScheduler", context)
    first = _plan(fill(entry.parameters, loaded["first"], f"{context.where} > first"), context)
    if not plan.is_continuation_from_checkpoint:
        return first
    return replace(first, total_steps=plan.total_steps)


def _plan(given: Mapping[str, Any], context: Context) -> WsdPlan:
    total = _total(given, context)
    warmup = given["num_warmup_steps"]
    plan = WsdPlan(
        total_steps=total,
        num_warmup_steps=total // 100 if warmup is None else warmup,
        decay_phase_ratio=given["decay_phase_ratio"],
        lr_min=given["lr_min"],
        warmup_starting_lr=given["warmup_starting_lr"],
        use_inverse_sqrt_decay=given["use_inverse_sqrt_decay"],
        num_checkpoints=given["num_checkpoints"],
        is_continuation_from_checkpoint=given["is_continuation_from_checkpoint"],
    )
    if plan.num_checkpoints > 1 and plan.decay_phase_ratio > _LARGEST_RATIO:
        raise DefinitionError(
            f"decay_phase_ratio must be at most 1/3 with several checkpoints, got "
            f"{plan.decay_phase_ratio}",
            where=context.where,
        )
    if plan.checkpoint_steps[0] == 0:
        raise DefinitionError(
            f"total_steps must be at least 4 for several checkpoints, got {total}",
            where=context.where,
        )
    if not plan.use_inverse_sqrt_decay and plan.lr_min == 0:
        raise DefinitionError(
            "lr_min must be above 0 where use_inverse_sqrt_decay is False, got 0",
            where=context.where,
            hint="the inverse of the rate rises along a line; it cannot reach infinity",
        )
    return plan


def _total(given: Mapping[str, Any], context: Context) -> int:
    """The length: of epochs times steps per epoch, or given itself."""
    epochs, per_epoch = given["num_epochs"], given["num_update_steps_per_epoch"]
    total = given["total_steps"]
    if epochs is not None and per_epoch is not None:
        if total is not None:
            raise DefinitionError(
                f"total_steps must be left out where epochs and steps per epoch are given, "
                f"got {total}",
                where=context.where,
            )
        return int(epochs * per_epoch)
    if total is None:
        raise ArgumentError(
            "missing argument 'total_steps'",
            where=context.where,
            hint="give it, or num_epochs and num_update_steps_per_epoch",
        )
    return int(total)

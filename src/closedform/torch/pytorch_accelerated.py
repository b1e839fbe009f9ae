"""The schedulers of pytorch_accelerated, with its clock and methods.

Its clock counts ``step()`` calls from -1: construction sets the value of step 0, and the first
``step()`` sets it again.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from enum import Enum
from functools import partial
from typing import Any, TypeVar, cast

from torch.optim import Optimizer

from closedform.frameworks import FRAMEWORKS
from closedform.frameworks.pytorch_accelerated import wsd_plan
from closedform.torch.compat.namespaces import Argument
from closedform.torch.compat.schedulers import NamedScheduler, scheduler_class

__all__ = ["CosineLrScheduler", "Placeholder", "WSDLrScheduler"]

_SYSTEM = "pytorch_accelerated"


class Placeholder(Enum):
    """Values that the Trainer fills in when training starts, identified by these names."""

    NUM_EPOCHS = "trainer.run_config.num_epochs"
    NUM_UPDATE_STEPS_PER_EPOCH = "trainer.run_config.num_update_steps_per_epoch"
    PER_PROCESS_NUM_UPDATE_STEPS_PER_EPOCH = "trainer.run_config.num_local_update_steps_per_epoch"


class _StatefulScheduler(NamedScheduler):
    """The clock of pytorch_accelerated, and the methods of its base classes."""

    def _initial_step(self) -> None:
        self._step_count = 0
        # Version 0.1.61 counts from -1 (scheduler_base.py), so that the first step(), after the
        # first update, writes step 0 again.
        self._write(max(self.last_epoch, 0))

    @property
    def base_lr_values(self) -> list[Any]:
        """The value of each group before scheduling."""
        return self.base_lrs

    def step_update(self, num_updates: int) -> None:
        """Writes the values of a step without moving the clock."""
        self._write(num_updates)

    def get_updated_values(self, num_updates: int) -> list[float]:
        """Returns the value of each group at a step."""
        return [float(entry.values.at(num_updates)) for entry in self._entries]  # type: ignore[arg-type]

    def get_current_step(self) -> int:
        """Returns the number of ``step()`` calls minus one."""
        return self.last_epoch

    def step(self, epoch: int | None = None) -> None:
        """Moves the clock and writes the values, before or after the optimizer's step."""
        self._step_count += 1
        self._update_lr(epoch)


_Made = TypeVar("_Made", bound=_StatefulScheduler)


class _Cosine(_StatefulScheduler):
    @classmethod
    def create_scheduler_fn(
        cls,
        total_num_epochs: int | Placeholder = Placeholder.NUM_EPOCHS,
        num_update_steps_per_epoch: int | Placeholder = Placeholder.NUM_UPDATE_STEPS_PER_EPOCH,
        **kwargs: Argument,
    ) -> partial[Any]:
        """Returns the class with these arguments, for the Trainer to call with the optimizer."""
        factory: Callable[..., Any] = cls
        return partial(
            factory,
            total_num_epochs=total_num_epochs,
            num_update_steps_per_epoch=num_update_steps_per_epoch,
            **kwargs,
        )


class _Wsd(_StatefulScheduler):
    """Warmup, stable, decay: its periods and checkpoints, and its continuation of another run."""

    def _keep_arguments(self) -> None:
        super()._keep_arguments()
        self._plan = wsd_plan(self.kwargs, self.as_implemented)
        self.total_steps = self._plan.total_steps
        self.num_warmup_steps = self._plan.num_warmup_steps
        self.checkpoint_steps = self.get_checkpoint_steps()

    def get_checkpoint_steps(self) -> list[int]:
        """Returns the steps of the checkpoints."""
        return self._plan.get_checkpoint_steps()

    def get_decay_info(self) -> list[dict[str, int]]:
        """Returns the start, end, decay length and first decay step of each period."""
        return self._plan.get_decay_info()

    def get_phase_info(self, num_updates: int) -> dict[str, int]:
        """Returns the period of a step."""
        return self._plan.get_phase_info(num_updates)

    def get_current_phase_info(self) -> dict[str, int]:
        """Returns the period of the current step."""
        return self.get_phase_info(self.last_epoch)

    def load_state_dict(self, state_dict: Mapping[str, Any], on_mismatch: str = "error") -> None:
        """Loads the clock; a continuation of another run starts at its own step 0.

        As documented, a continuation uses its own arguments, without warmup and with a new stable
        phase. The state of the same schedule resumes it.
        """
        is_fresh = self._plan.is_continuation_from_checkpoint and (
            state_dict.get("digest") != self._digest()
        )
        if not is_fresh:
            super().load_state_dict(state_dict, on_mismatch)
            return
        self.last_epoch = -1
        self._initial_step()

    @classmethod
    def create_scheduler_fn(
        cls,
        total_num_epochs: int | Placeholder = Placeholder.NUM_EPOCHS,
        num_update_steps_per_epoch: int
        | Placeholder = Placeholder.PER_PROCESS_NUM_UPDATE_STEPS_PER_EPOCH,
        num_warmup_epochs: int | None = None,
        **kwargs: Argument,
    ) -> partial[Any]:
        """Returns a function that the Trainer calls with the optimizer.

        Args:
            total_num_epochs: The number of epochs.
            num_update_steps_per_epoch: The number of updates in each, for one process.
            num_warmup_epochs: The length of the warmup; None for a hundredth of all steps.
            **kwargs: The other arguments of the class.
        """
        factory: Callable[..., Any] = cls._after_epochs
        return partial(
            factory,
            num_epochs=total_num_epochs,
            num_update_steps_per_epoch=num_update_steps_per_epoch,
            num_warmup_epochs=num_warmup_epochs,
            **kwargs,
        )

    @classmethod
    def _after_epochs(
        cls, optimizer: Optimizer, num_warmup_epochs: int | None, **kwargs: Any
    ) -> NamedScheduler:
        warmup = num_warmup_epochs
        if warmup is not None:
            warmup = warmup * kwargs["num_update_steps_per_epoch"]
        return cls(optimizer, num_warmup_steps=warmup, **kwargs)


def _subclass(name: str, base: type[_Made]) -> type[_Made]:
    entry = FRAMEWORKS[_SYSTEM].schedules[name]
    return cast("type[_Made]", scheduler_class(_SYSTEM, entry, "lr", __name__, base))


CosineLrScheduler = _subclass("CosineLrScheduler", _Cosine)
WSDLrScheduler = _subclass("WSDLrScheduler", _Wsd)


def __dir__() -> list[str]:
    return sorted(__all__)

"""Watch a run: compare the param groups of an optimizer with a recipe before each step."""

from __future__ import annotations

import sys
import warnings
from collections.abc import Mapping, Sequence
from typing import TYPE_CHECKING, Any

from closedform.analysis.watching.causes import RunNumbers
from closedform.analysis.watching.watch import Departure, Watch, stop
from closedform.errors import ArgumentError, DepartureWarning
from closedform.language import Schedule
from closedform.recipes import Recipe
from closedform.recipes.clock import Facts

if TYPE_CHECKING:
    from torch.optim import Optimizer

ACTIONS = ("stop", "warn")


class Watcher:
    """The comparison of a run with its recipe, update by update.

    Attributes:
        update: The update that comes next.
        departure: The first departure, with its likely causes; None so far.
    """

    def __init__(
        self,
        recipe: Recipe | Schedule,
        *,
        numbers: RunNumbers,
        groups: Sequence[int | str] | None = None,
        action: str = "stop",
        evidence: int = 0,
    ) -> None:
        if action not in ACTIONS:
            raise ArgumentError(
                f"action must be one of {', '.join(ACTIONS)}, got {action!r}", where="watch"
            )
        if isinstance(evidence, bool) or not isinstance(evidence, int) or evidence < 0:
            raise ArgumentError(
                f"evidence must be an integer of at least 0, got {evidence!r}", where="watch"
            )
        self.recipe, self.numbers, self.assigned = recipe, numbers, groups
        self.action, self.evidence = action, evidence
        self.update = self._first = numbers.start
        self.departure: Departure | None = None
        self._is_reported = False
        self._watch: Watch | None = None
        self._handle: Any = None

    def begin(self, groups: Sequence[Mapping[str, Any]]) -> None:
        """Reads the recipe for the param groups of a run."""
        self._watch = Watch(self.recipe, groups, self.numbers, self.assigned)

    def check(self, groups: Sequence[Mapping[str, Any]], update: int | None = None) -> None:
        """Compares the values of an update; ``update`` is the next one if it is not given.

        Raises:
            DepartureError: A value departs from the recipe, with the action "stop".
        """
        if self._watch is None:
            self.begin(groups)
        at = self.update if update is None else update
        self.update = at + 1
        departures = self._watch.check(at, groups)  # type: ignore[union-attr]
        if self._is_reported or (not departures and self.departure is None):
            return
        if self.departure is None:
            self.departure = departures[0]
        if at < self.departure.update + self.evidence:
            return
        self._report(at)

    def _report(self, update: int) -> None:
        if self.departure is None or self._watch is None:
            return
        self.departure = self._watch.explain(self.departure, self._first, update)
        self._is_reported = True
        if self.action == "stop":
            stop(self.departure)
        warnings.warn(str(self.departure), DepartureWarning, stacklevel=4)

    def remove(self) -> None:
        """Ends the watch of an optimizer; a departure whose evidence is not complete is reported.

        Raises:
            DepartureError: As ``check``.
        """
        if self._handle is not None:
            self._handle.remove()
            self._handle = None
        if not self._is_reported:
            self._report(self.update - 1)


def watch(
    optimizer: Optimizer,
    recipe: Recipe | Schedule,
    *,
    groups: Sequence[int | str] | None = None,
    start: int | None = None,
    facts: Mapping[str, Any] | None = None,
    action: str = "stop",
    evidence: int = 0,
) -> Watcher:
    """Compares the param groups of an optimizer with a recipe before each of its steps.

    The rate, the weight decay and the momentum of every group are compared, as far as the recipe
    has them. At the first value that departs the run stops with a message that names the likely
    cause: an offset by one, a scheduler that is stepped per micro-batch or per process, a warmup in
    other units, the horizon of another run, a wrong step after resuming, a group without schedule.
    Each cause is decided by evaluating the recipe under it for all updates that were seen.

    Args:
        optimizer: A torch optimizer, or the wrapper of one by another package.
        recipe: The recipe, or the schedule of the rate of every group.
        groups: The param group of the recipe for each one of the optimizer, by name or position. If
            not given, the one at the same position, or with the same values.
        start: The update that comes next; if not given, that of the optimizer's state, else 0.
        facts: Numbers of the run, such as ``{"gradient_accumulation": 4, "world_size": 2}``, which
            decide between causes; those that accelerate knows are added.
        action: "stop" raises an error, "warn" warns once and goes on.
        evidence: Further updates that are seen before the cause is named: a single value may have
            several.

    Returns:
        The watcher, whose ``remove()`` ends the watch.

    Raises:
        ArgumentError: An argument is not valid, or no key of a group is in the recipe.
        DepartureError: In a step of the optimizer, where a value departs.
    """
    recorded_facts = Facts.of(facts or {})
    processes, accumulation = _of_accelerate()
    numbers = RunNumbers(
        accumulation=_count(recorded_facts.gradient_accumulation) or accumulation,
        processes=_count(recorded_facts.world_size) or processes,
        updates_per_epoch=_count(recorded_facts.updates_per_epoch),
        horizon=_count(recorded_facts.total_updates),
        start=_steps_done(optimizer) if start is None else start,
    )
    watcher = Watcher(recipe, numbers=numbers, groups=groups, action=action, evidence=evidence)
    inner = getattr(optimizer, "optimizer", optimizer)
    watcher.begin(inner.param_groups)

    def before_step(stepping_optimizer: Optimizer, args: Any, kwargs: Any) -> None:
        del args, kwargs
        watcher.check(stepping_optimizer.param_groups)

    watcher._handle = inner.register_step_pre_hook(before_step)
    return watcher


def trainer_callback(
    recipe: Recipe | Schedule,
    *,
    groups: Sequence[int | str] | None = None,
    action: str = "stop",
    evidence: int = 0,
) -> Any:
    """Returns a callback for transformers' Trainer that watches its run, as ``watch`` does.

    The Trainer supplies the update, the accumulation and the number of processes.

    Args:
        recipe: The recipe, such as ``load_recipe(arguments.to_dict(), framework="transformers")``.
        groups: As for ``watch``.
        action: As for ``watch``.
        evidence: As for ``watch``.
    """
    from transformers import TrainerCallback

    class WatchCallback(TrainerCallback):  # type: ignore[misc]
        """Compares each update of a Trainer with a recipe."""

        watcher: Watcher | None = None

        def on_pre_optimizer_step(
            self, args: Any, state: Any, control: Any, **objects: Any
        ) -> None:
            """Compares the values of the update that comes next."""
            del control
            if self.watcher is None:
                numbers = RunNumbers(
                    accumulation=int(args.gradient_accumulation_steps),
                    processes=int(args.world_size),
                    horizon=int(state.max_steps),
                    start=int(state.global_step),
                )
                self.watcher = Watcher(
                    recipe, numbers=numbers, groups=groups, action=action, evidence=evidence
                )
            # trainer.py of transformers calls this right before optimizer.step(), and raises
            # global_step after it.
            self.watcher.check(objects["optimizer"].param_groups, int(state.global_step))

        def on_train_end(self, args: Any, state: Any, control: Any, **objects: Any) -> None:
            """Reports a departure whose evidence is not complete."""
            del args, state, control, objects
            if self.watcher is not None:
                self.watcher.remove()

    return WatchCallback()


def lightning_callback(
    recipe: Recipe | Schedule,
    *,
    groups: Sequence[int | str] | None = None,
    action: str = "stop",
    evidence: int = 0,
) -> Any:
    """Returns a callback for Lightning's Trainer that watches its run, as ``watch`` does.

    Args:
        recipe: The recipe, or the schedule of the rate.
        groups: As for ``watch``.
        action: As for ``watch``.
        evidence: As for ``watch``.
    """
    base = _lightning_base()

    class WatchCallback(base):  # type: ignore[misc, valid-type]
        """Compares each update of a Trainer with a recipe."""

        watcher: Watcher | None = None

        def on_before_optimizer_step(self, trainer: Any, module: Any, optimizer: Any) -> None:
            """Compares the values of the update that comes next."""
            del module
            if self.watcher is None:
                numbers = RunNumbers(
                    accumulation=int(trainer.accumulate_grad_batches),
                    processes=int(trainer.world_size),
                    start=int(trainer.global_step),
                )
                self.watcher = Watcher(
                    recipe, numbers=numbers, groups=groups, action=action, evidence=evidence
                )
            self.watcher.check(optimizer.param_groups, int(trainer.global_step))

        def on_train_end(self, trainer: Any, module: Any) -> None:
            """Reports a departure whose evidence is not complete."""
            del trainer, module
            if self.watcher is not None:
                self.watcher.remove()

    return WatchCallback()


def _lightning_base() -> Any:
    """The class of callbacks of the Lightning that the program has imported."""
    # Two packages of the same code: a Callback of one is not a subclass of the other's.
    if "pytorch_lightning" in sys.modules and "lightning" not in sys.modules:
        return sys.modules["pytorch_lightning"].Callback
    from lightning.pytorch import Callback

    return Callback


def _of_accelerate() -> tuple[int | None, int | None]:
    """The processes and the accumulation of accelerate, where the program uses it."""
    # Not imported here: a program without accelerate has neither processes nor accumulation of it.
    state = sys.modules.get("accelerate.state")
    # AcceleratorState() would start the process group where there is none.
    if state is None or not state.AcceleratorState._shared_state:
        return None, None
    processes = int(state.AcceleratorState().num_processes)
    gradients = state.GradientState()
    return processes, int(gradients.num_steps) if gradients.initialized else None


def _steps_done(optimizer: Any) -> int:
    """The number of updates in an optimizer's state, such as a loaded one; 0 if it is new."""
    inner = getattr(optimizer, "optimizer", optimizer)
    steps = [state["step"] for state in inner.state.values() if "step" in state]
    # The largest: a parameter without gradients is behind.
    return int(max(map(float, steps), default=0))


def _count(number: Any) -> int | None:
    return None if number is None else int(number)

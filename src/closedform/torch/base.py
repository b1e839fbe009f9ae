"""What the optimizers of this package are besides torch's: state made ahead, hooks of zero_grad."""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections import OrderedDict
from collections.abc import Callable, Iterable, Iterator, Mapping
from contextlib import contextmanager
from typing import Any

import torch
from torch import Tensor
from torch.utils.hooks import RemovableHandle

from closedform.errors import ArgumentError, ClosedFormError, DefinitionError

STEP = "step"
"""The state that counts the steps of a parameter."""

MODE = "train_mode"
"""The entry of a group that is False while its parameters are at the point of evaluation."""

KEPT = "training_point"
"""The state that holds the point of training meanwhile."""


def is_training(group: Mapping[str, Any]) -> bool:
    """Returns whether a group, or a saved one, is at the point of training."""
    return bool(group.get(MODE, True))


class OptimizerBase(torch.optim.Optimizer, ABC):
    """The base of optimizers whose whole state is there before the first step.

    A subclass overrides ``preinitialize``, which makes all state, ``step``, which makes none, and
    ``state_names_to_sparsify``.

    Args:
        params: Parameters, named parameters, or param groups.
        defaults: The entries of a group that does not give them.
        enable_global_step: Whether each parameter counts its steps in the state ``step``.
    """

    def __init__(
        self, params: Iterable[Any], defaults: dict[str, Any], enable_global_step: bool = False
    ) -> None:
        self._enable_global_step = enable_global_step
        self._zero_grad_pre_hooks: OrderedDict[int, Callable[..., Any]] = OrderedDict()
        self._zero_grad_post_hooks: OrderedDict[int, Callable[..., Any]] = OrderedDict()
        super().__init__(params, defaults)
        self.preinitialize()
        if enable_global_step:
            for parameter in self._parameters():
                self.state[parameter].setdefault(
                    STEP, torch.zeros((), dtype=torch.float32, device=parameter.device)
                )

    def _parameters(self) -> list[Tensor]:
        return [parameter for group in self.param_groups for parameter in group["params"]]

    @abstractmethod
    def preinitialize(self) -> None:
        """Makes the state of every parameter that has none."""

    @abstractmethod
    def step(self, closure: Callable[[], Any] | None = None) -> Any:
        """Does one step; no state is made here."""

    @abstractmethod
    def state_names_to_sparsify(self) -> list[str]:
        """Returns the names of the states that are masked together with a sparse parameter."""

    def increment_global_step(self, p: Tensor) -> Tensor:
        """Adds 1 to the step of a parameter, and returns it as float32.

        Raises:
            ArgumentError: The optimizer was made without ``enable_global_step``.
        """
        if not self._enable_global_step:
            raise ArgumentError(
                "the optimizer counts no steps",
                where=type(self).__name__,
                hint="make it with enable_global_step=True",
            )
        step: Tensor = self.state[p][STEP]
        step += 1
        return step.to(torch.float32)

    def visit_state(self, fn: Callable[[Any], Any]) -> None:
        """Calls a function on every state of every parameter; what it returns takes its place.

        None leaves the state as it is.
        """
        for states in self.state.values():
            for name, value in states.items():
                made = fn(value)
                if made is not None:
                    states[name] = made

    def apply(self, f: Any) -> Any:
        """Returns f(self), or f.apply(self) where f is no function."""
        return f(self) if callable(f) else f.apply(self)

    def register_zero_grad_pre_hook(self, hook: Callable[..., Any]) -> RemovableHandle:
        """Registers ``hook(optimizer, args, kwargs)``, called before gradients are cleared.

        It returns None, or new args and kwargs as a pair.
        """
        return _registered(self._zero_grad_pre_hooks, hook)

    def register_zero_grad_post_hook(self, hook: Callable[..., Any]) -> RemovableHandle:
        """Registers ``hook(optimizer, args, kwargs)``, called after gradients were cleared."""
        return _registered(self._zero_grad_post_hooks, hook)

    def zero_grad(self, *args: Any, **kwargs: Any) -> None:
        """Clears the gradients, between the hooks.

        Raises:
            DefinitionError: A pre-hook returned neither None nor a pair.
        """
        for hook in self._zero_grad_pre_hooks.values():
            made = hook(self, args, kwargs)
            if made is None:
                continue
            if not isinstance(made, tuple) or len(made) != 2 or not isinstance(made[1], Mapping):
                raise DefinitionError(
                    f"a hook before zero_grad must return None or (args, kwargs), got {made!r}",
                    where=type(self).__name__,
                )
            args, kwargs = made[0], dict(made[1])
        super().zero_grad(*args, **kwargs)
        for hook in self._zero_grad_post_hooks.values():
            hook(self, args, kwargs)

    def __getstate__(self) -> dict[str, Any]:
        return {**super().__getstate__(), "_enable_global_step": self._enable_global_step}

    def __setstate__(self, state: dict[str, Any]) -> None:
        super().__setstate__(state)
        for name in ("_zero_grad_pre_hooks", "_zero_grad_post_hooks"):
            self.__dict__.setdefault(name, OrderedDict())


def _registered(
    hooks: OrderedDict[int, Callable[..., Any]], hook: Callable[..., Any]
) -> RemovableHandle:
    handle = RemovableHandle(hooks)
    hooks[handle.id] = hook
    return handle


def place(group: Mapping[str, Any], group_index: int, index: int) -> str:
    """Returns how errors name a parameter: its name where it has one, its place, its shape."""
    shape = list(group["params"][index].shape)
    names = group.get("param_names")
    name = f"parameter {index}" if names is None else f"parameter {names[index]!r}"
    return f"param group {group_index}, {name} of shape {shape}"


@contextmanager
def located(where: str) -> Iterator[None]:
    """Adds to errors from within where they are, before what they say of it themselves."""
    try:
        yield
    except ClosedFormError as error:
        inner = where if error.where is None else f"{where}: {error.where}"
        raise type(error)(error.what, where=inner, hint=error.hint) from error

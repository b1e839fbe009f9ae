"""The optimizer API of cerebras.pytorch: state created in advance, and hooks of ``zero_grad``."""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections import OrderedDict
from collections.abc import Callable, Mapping
from typing import Any, Protocol, TypeVar

import torch
from torch import Tensor
from torch.nn.parameter import is_lazy
from torch.optim.optimizer import ParamsT
from torch.utils.hooks import RemovableHandle

from closedform.errors import ArgumentError, DefinitionError
from closedform.torch.compat.optimizers import NamedOptimizer
from closedform.torch.states import STEP

T = TypeVar("T")
Result = TypeVar("Result", covariant=True)

CallArguments = tuple[tuple[Any, ...], dict[str, Any]]
"""Positional and keyword arguments."""

PreHook = Callable[[Any, tuple[Any, ...], dict[str, Any]], CallArguments | None]
"""``hook(optimizer, args, kwargs)``, called before; it may return new arguments."""

PostHook = Callable[[Any, tuple[Any, ...], dict[str, Any]], object]
"""``hook(optimizer, args, kwargs)``, called afterwards."""


class Applicable(Protocol[Result]):
    """An object that is applied to an optimizer, such as a sparsity algorithm."""

    def apply(self, optimizer: Optimizer, /) -> Result:
        """Applies it."""


class Optimizer(torch.optim.Optimizer, ABC):
    """The base of optimizers with all state created before the first step.

    A subclass overrides ``preinitialize``, which creates all state, ``step``, which creates none,
    and ``state_names_to_sparsify``.

    Args:
        params: Parameters, named parameters, or param groups.
        defaults: The entries of a group that does not give them.
        enable_global_step: Whether the state ``step`` counts the steps of each parameter.
    """

    def __init__(
        self, params: ParamsT, defaults: dict[str, Any], enable_global_step: bool = False
    ) -> None:
        super().__init__(params, defaults)
        self.preinitialize()
        if enable_global_step:
            for group in self.param_groups:
                for param in group["params"]:
                    zero = torch.zeros((), dtype=torch.float32, device=param.device)
                    self.state[param].setdefault(STEP, zero)

    @abstractmethod
    def preinitialize(self) -> None:
        """Creates the state of every parameter that has none."""

    @abstractmethod
    def step(self, closure: Callable[[], Any] | None = None) -> Any:
        """Performs one step, without creating state."""

    @abstractmethod
    def state_names_to_sparsify(self) -> list[str]:
        """Returns the names of the states that are masked together with a sparse parameter."""

    def increment_global_step(self, p: Tensor) -> Tensor:
        """Adds 1 to the step of a parameter, and returns it as float32.

        Raises:
            ArgumentError: The optimizer was constructed without ``enable_global_step``.
        """
        if STEP not in self.state[p]:
            raise ArgumentError(
                "the optimizer does not count steps",
                where=type(self).__name__,
                hint="construct it with enable_global_step=True",
            )
        step: Tensor = self.state[p][STEP]
        step += 1
        return step.to(torch.float32)

    def visit_state(self, fn: Callable[[Any], Any]) -> None:
        """Replaces every state of every parameter by ``fn(state)``, unless that is None."""
        for states in self.state.values():
            for name, value in states.items():
                replacement = fn(value)
                if replacement is not None:
                    states[name] = replacement

    def apply(self, f: Callable[[Optimizer], T] | Applicable[T]) -> T:
        """Returns ``f(self)``, or ``f.apply(self)`` if f is not callable."""
        return f(self) if callable(f) else f.apply(self)

    def register_zero_grad_pre_hook(self, hook: PreHook) -> RemovableHandle:
        """Registers ``hook(optimizer, args, kwargs)``, called before gradients are cleared.

        It returns None, or new args and kwargs as a pair.
        """
        return self._register("_zero_grad_pre_hooks", hook)

    def register_zero_grad_post_hook(self, hook: PostHook) -> RemovableHandle:
        """Registers ``hook(optimizer, args, kwargs)``, called after gradients are cleared."""
        return self._register("_zero_grad_post_hooks", hook)

    def zero_grad(self, *args: Any, **kwargs: Any) -> None:
        """Clears the gradients, between the hooks.

        Raises:
            DefinitionError: A pre-hook returned neither None nor a pair.
        """
        for hook in self._hooks("_zero_grad_pre_hooks").values():
            replacement = hook(self, args, kwargs)
            if replacement is None:
                continue
            if (
                not isinstance(replacement, tuple)
                or len(replacement) != 2
                or not isinstance(replacement[1], Mapping)
            ):
                raise DefinitionError(
                    "a hook before zero_grad must return None or (args, kwargs), got "
                    f"{replacement!r}",
                    where=type(self).__name__,
                )
            args, kwargs = replacement[0], dict(replacement[1])
        super().zero_grad(*args, **kwargs)
        for hook in self._hooks("_zero_grad_post_hooks").values():
            hook(self, args, kwargs)

    def _hooks(self, name: str) -> OrderedDict[int, Callable[..., Any]]:
        """The hooks of one kind; copies and pickles of an optimizer have none."""
        hooks: OrderedDict[int, Callable[..., Any]]
        hooks = self.__dict__.setdefault(name, OrderedDict())
        return hooks

    def _register(self, name: str, hook: Callable[..., Any]) -> RemovableHandle:
        hooks = self._hooks(name)
        handle = RemovableHandle(hooks)
        hooks[handle.id] = hook
        return handle


class NamedCerebrasOptimizer(NamedOptimizer, Optimizer):
    """An optimizer class of cerebras, with the API of its base."""

    def preinitialize(self) -> None:
        """Does nothing: ``add_param_group`` creates all state."""

    def _begin_states(self, index: int) -> None:
        params = enumerate(self.param_groups[index]["params"])
        lacking = [pair for pair in params if not self._has_states(pair[1])]
        for number, param in lacking:
            if is_lazy(param):
                raise ArgumentError(
                    f"parameter {number} is not initialized, and its states are made in advance",
                    where=self._place(index),
                    hint="run the model once before the optimizer is made",
                )
        if lacking:
            self._make_states(index, lacking)

    def state_names_to_sparsify(self) -> list[str]:
        """Returns the names of the states that have the shape of their parameter."""
        names: dict[str, None] = {}
        for index in range(len(self.param_groups)):
            rule = self._rule_of(index)
            names |= {name: None for name, spec in rule.states.items() if spec.shape == "param"}
        return list(names)

"""Plain steps, which the sandbox takes first: none of them leaves a trace in the user's code.

A trace begins with a few plain steps, to see what the optimizer stores. A copy takes each of them
in the sandbox, where a change of anything outside of the optimizer is refused.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

import torch
from torch.overrides import TorchFunctionMode

from closedform.errors import TraceError
from closedform.importers.tensors.values import Sizes
from closedform.importers.torch_optimizer.decisions import Run
from closedform.importers.torch_optimizer.environment import Environment
from closedform.importers.torch_optimizer.inputs import Draws
from closedform.importers.torch_optimizer.reported import Reported
from closedform.importers.torch_optimizer.subject import (
    Form,
    InDouble,
    Subject,
    gradients,
    is_number,
    number_of,
    stepped_error,
    subject_of,
)


def take_step(subject: Subject, grads: Sequence[torch.Tensor], seed: int) -> None:
    """Takes a plain step, once a copy has taken it in the sandbox.

    Args:
        subject: The optimizer.
        grads: The gradients.
        seed: Of the random numbers that the step draws.

    Raises:
        TraceError: The step uses, or changes, something outside of the optimizer.
        Exception: Whatever the step raises.
    """
    rehearsal = subject.clone()
    run = Run(hypers=())
    # The lists of a plain step have plain lengths: no tensor belongs to one parameter.
    precision = Reported(subject.form.dtype, run, is_only=True)
    environment = Environment(run, lambda _: None, precision)
    with environment.enter(rehearsal.optimizer), _Writes(environment), InDouble(), Draws(seed):
        try:
            rehearsal.step(grads)
        finally:
            try:
                environment.end_run(type(rehearsal.optimizer))
            except TraceError as refusal:
                # As an exception of the step: it may be on its way to one, and take another form.
                raise TraceError(refusal.what, where=refusal.where, hint=refusal.hint) from refusal
    with InDouble(), Draws(seed):
        subject.step(grads)


class _Writes(TorchFunctionMode):
    """Refuses an operation in place on a tensor outside of the optimizer, at its line."""

    def __init__(self, environment: Environment) -> None:
        super().__init__()
        self.environment = environment

    def __torch_function__(self, func: Any, types: Any, args: Any = (), kwargs: Any = None) -> Any:
        """Runs one function of torch."""
        result = func(*args, **(kwargs or {}))
        self.environment.check_tensors()
        return result


def check_states(
    optimizer: torch.optim.Optimizer, place: int, shapes: Sequence[Sizes], form: Form
) -> None:
    """Refuses an optimizer whose states are those after some of its steps.

    States of a constructor are those with which a first step begins: the step cannot be taken
    without them, or it does the same without them.

    Args:
        optimizer: The optimizer.
        place: The place of the param group.
        shapes: Two shapes on which a step can be tried.
        form: The form in which it can be.

    Raises:
        TraceError: Steps make the states that it has.
    """
    params = optimizer.param_groups[place]["params"]
    states = [optimizer.state.get(param, {}) for param in params]
    keys = {key for state in states for key, value in state.items() if not _is_zero(value)}
    if not keys:
        return
    subjects = [
        subject_of(optimizer, place, shapes, 9, form, with_states=has_states)
        for has_states in (False, True)
    ]
    new_states: list[Mapping[Any, Any]] = []
    for subject in subjects:
        try:
            take_step(subject, gradients(shapes, seed=9), seed=9)
        except Exception:  # whatever a step raises that misses the states of the constructor
            return
        new_states.append(subject.optimizer.state[subject.params[0]])
    # A count of 0 is that of a constructor, whatever the other states are.
    counts = {k for k, v in new_states[0].items() if is_number(v) and number_of(v) == 1}
    if not keys <= new_states[0].keys() or (counts and not keys & counts):
        return
    are_alike = all(_are_same(state, states[0]) for state in states)
    is_same_step = torch.equal(subjects[0].params[0], subjects[1].params[0])
    if not are_alike or not is_same_step or not _are_same(*new_states):
        raise stepped_error(optimizer, place, next(iter(keys)))


def _are_same(state: Mapping[Any, Any], second_state: Mapping[Any, Any]) -> bool:
    """Whether two parameters have the same states, with one value in each tensor of a shape."""
    return state.keys() == second_state.keys() and all(
        map(_is_same, state.values(), second_state.values())
    )


def _is_same(value: Any, second: Any) -> bool:
    if not isinstance(value, torch.Tensor) or not isinstance(second, torch.Tensor):
        return type(value) is type(second) and bool(value == second)
    if value.shape == second.shape:
        return torch.equal(value, second)
    return torch.equal(value.unique(), second.unique())


def _is_zero(value: Any) -> bool:
    if isinstance(value, torch.Tensor):
        return value.dtype == torch.bool or not bool(value.detach().any())
    return not isinstance(value, int | float) or not value

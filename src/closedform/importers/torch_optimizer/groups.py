"""Param groups are traced one by one: an optimizer of several ones runs with all of them, too."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import torch

from closedform.errors import ClosedFormError, TraceError
from closedform.importers.tensors.check import TOLERANCE, RunningRule, graphs_of, relative_gap
from closedform.importers.tensors.values import Sizes
from closedform.importers.torch_optimizer.check import array_of
from closedform.importers.torch_optimizer.inputs import Draws, input_values
from closedform.importers.torch_optimizer.subject import (
    Form,
    InDouble,
    Subject,
    gradients,
    subject_of,
)
from closedform.ir import naming
from closedform.language.groups import Group
from closedform.language.model import GlobalSum
from closedform.language.update_rule import UpdateRule
from closedform.options import ModelSpec

_STEPS = 4


def check_groups(
    optimizer: torch.optim.Optimizer,
    rules: Sequence[UpdateRule],
    shapes: Sequence[Sizes],
    forms: Sequence[Form],
) -> None:
    """Runs an optimizer with all its param groups, to compare it with the rules of single groups.

    Args:
        optimizer: The optimizer.
        rules: The rules of its groups.
        shapes: A shape for which each was traced.
        forms: The form in which each was traced.

    Raises:
        TraceError: A group makes another step where the others are there.
    """
    subjects = [
        subject_of(optimizer, k, (shape, shape), 30 + k, form)
        for k, (shape, form) in enumerate(zip(shapes, forms, strict=True))
    ]
    where = type(optimizer).__name__
    is_of_all = any(e.has(GlobalSum) for rule in rules for e in rule.all_expressions())
    if is_of_all:
        place = _differing_from_rules(subjects, rules, shapes)
    else:
        for place, subject in enumerate(subjects):
            _perturb(subject.group, place)
        place = _differing_from_each(subjects, shapes)
    if place is not None:
        raise TraceError(
            f"param group {place} makes another step with the other groups than without them",
            where=where,
            hint="a rule takes the numbers of one param group, and sums over the whole model",
        )


def _perturb(group: dict[str, Any], place: int) -> None:
    """Changes the hyperparameters, so that two groups differ in them."""
    factor = 1 - (place + 1) / 64
    for key, value in group.items():
        if type(value) is float:
            group[key] = value * factor
        elif type(value) is tuple and all(type(number) is float for number in value):
            group[key] = tuple(number * factor for number in value)


def _joint(subjects: Sequence[Subject]) -> Subject:
    """An optimizer with the param groups of all, in the form of the first."""
    copies = [subject.clone() for subject in subjects]
    optimizer = copies[0].optimizer
    for copy in copies[1:]:
        optimizer.param_groups.append(copy.group)
        for param in copy.params:
            if param in copy.optimizer.state:
                optimizer.state[param] = copy.optimizer.state[param]
    params = tuple(param for copy in copies for param in copy.params)
    return Subject(optimizer, params, subjects[0].form)


def _differing_from_each(subjects: Sequence[Subject], shapes: Sequence[Sizes]) -> int | None:
    """The first group that differs from the same one by itself."""
    joint = _joint(subjects)
    lone_copies = [subject.clone() for subject in subjects]
    for step in range(_STEPS):
        grads = _gradients(shapes, step)
        _step(joint, grads, step)
        for place, copy in enumerate(lone_copies):
            pair = slice(2 * place, 2 * place + 2)
            with InDouble(), Draws(step, is_constant=True):
                copy.step(grads[pair])
            for param, expected in zip(joint.params[pair], copy.params, strict=True):
                if not relative_gap(array_of(param), array_of(expected)) <= TOLERANCE:
                    return place
    return None


def _differing_from_rules(
    subjects: Sequence[Subject], rules: Sequence[UpdateRule], shapes: Sequence[Sizes]
) -> int | None:
    """The first group that differs from the rules in one model."""
    names = [f"p{k}_{i}" for k in range(len(rules)) for i in range(2)]
    sizes = {name: shapes[k // 2] for k, name in enumerate(names)}
    groups = [Group(f"p{k}_*", rule=rule) for k, rule in enumerate(rules) if k]
    try:
        graphs = graphs_of(ModelSpec(rules[0], sizes, groups=groups))
    except ClosedFormError as error:
        raise TraceError(
            f"the rules of the param groups are not the rules of one model: {error.what}",
            hint="trace an optimizer of one param group",
        ) from error
    joint = _joint(subjects)
    params = dict(zip(names, joint.params, strict=True))
    running = RunningRule(graphs, {name: array_of(param) for name, param in params.items()})
    for step in range(_STEPS):
        grads = _gradients(shapes, step)
        draws = _step(joint, grads, step)
        tensors: dict[str, Any] = {}
        for k, rule in enumerate(rules):
            pair = {name: params[name] for name in names[2 * k : 2 * k + 2]}
            tensors |= input_values(rule.inputs, pair, joint.optimizer.state, draws)
        running.step({name: array_of(g) for name, g in zip(names, grads, strict=True)}, tensors)
        for index, (name, param) in enumerate(params.items()):
            values = running.values[naming.param(name)]
            if not relative_gap(values, array_of(param)) <= TOLERANCE:
                return index // 2
    return None


def _gradients(shapes: Sequence[Sizes], step: int) -> list[torch.Tensor]:
    """Gradients of two parameters of each group."""
    return [g for k, s in enumerate(shapes) for g in gradients((s, s), seed=500 + 10 * step + k)]


def _step(joint: Subject, grads: Sequence[torch.Tensor], step: int) -> Draws:
    """Takes a step, and returns the random numbers that it draws."""
    draws = Draws(step, is_constant=True)
    try:
        with InDouble(), draws:
            joint.step(grads)
    except (ArithmeticError, LookupError, RuntimeError, TypeError, ValueError) as error:
        raise TraceError(
            f"the step raises {type(error).__name__} with all param groups: {error}",
            where=type(joint.optimizer).__name__,
        ) from error
    return draws

"""Initial states of optimizers, and states of state dicts, checked before they are loaded."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping, Sequence, Set
from functools import lru_cache
from typing import Any

import torch
from torch import Tensor
from torch.nn.parameter import is_lazy

from closedform.errors import ClosedFormError, StateError, nearest
from closedform.ir.naming import SHARED
from closedform.ir.types import MAX_STEP
from closedform.language import Schedule, UpdateRule, t
from closedform.language.symbols import internal_symbol
from closedform.runtime.state_layouts import POWERS, step_of_powers
from closedform.torch.engine.flat import is_flat, packed_zeros
from closedform.torch.engine.kernels import (
    COMPUTE_DTYPES,
    is_joint,
    real_view,
    starts_at_zero,
    state_maker,
    state_names,
)
from closedform.torch.param_groups import is_training, locate_errors, place
from closedform.torch.shards import is_dtensor, is_redistributable, redistributed_like

STEP = "step"
"""The state that counts the steps of a parameter."""

FLOAT32_STEPS = 2**24
"""The first number of steps from which float32 does not count on: 2**24 + 1 is 2**24 there."""

TRAINING_POINT = "training_point"
"""The state that holds a parameter's value for training while it is at the point of evaluation."""

_PENALTY = "l2_regularization_rate"
"""The entry of cerebras's Adam that holds its weight decay."""

Groups = Sequence[tuple[str, dict[str, Any], tuple[str, ...]]]
RuleOf = Callable[[int, Mapping[str, Any]], UpdateRule]
StatesOf = Callable[[int, Mapping[str, Any]], frozenset[str]]


def adapted_states(
    state_dict: Any, groups: Groups, rule_of: RuleOf, states_of: StatesOf
) -> list[tuple[Tensor, dict[str, Tensor]]]:
    """Returns the states of each parameter that has some in a state dict that matches the groups.

    Args:
        state_dict: The state dict.
        groups: The name, group and required entries of each group that it is loaded into.
        rule_of: Returns the rule of a group, from its index and saved entries.
        states_of: Returns the states that the group would have with other values of its entries,
            which are loaded for a later change of the entries.

    Raises:
        StateError: It is not a state dict, or does not match.
    """
    if not isinstance(state_dict, Mapping) or not {"state", "param_groups"} <= set(state_dict):
        got = sorted(state_dict) if isinstance(state_dict, Mapping) else type(state_dict).__name__
        raise StateError(
            f"a state dict of an optimizer has 'state' and 'param_groups', got {got}",
            hint="load a result of state_dict()",
        )
    saved_groups = state_dict["param_groups"]
    if len(saved_groups) != len(groups):
        raise StateError(
            f"the state has {len(saved_groups)} param groups, the optimizer has {len(groups)}",
            where=groups[0][0],
        )
    matching: list[tuple[Tensor, Mapping[str, Any], dict[str, Tensor]]] = []
    for index, ((where, group, keys), saved_group) in enumerate(
        zip(groups, saved_groups, strict=True)
    ):
        _check_group(group, keys, saved_group, where)
        rule = rule_of(index, saved_group)
        make = _first_states(rule)
        owner = where.split(",", maxsplit=1)[0]
        for number, (key, parameter) in enumerate(
            zip(saved_group["params"], group["params"], strict=True)
        ):
            spot = f"{owner}, {place(group, index, number)}"
            # torch.optim has no entry for a parameter that never had a gradient.
            saved_states = state_dict["state"].get(key) or {}
            present = {name: value for name, value in saved_states.items() if value is not None}
            if not present:
                continue
            if is_lazy(parameter):
                raise StateError(
                    "the parameter is not initialized, and the state dict has states for it",
                    where=spot,
                    hint="run the model once, or load its state dict, before load_state_dict",
                )
            saved_state = _with_step(present, rule, spot)
            first = make(parameter)
            # Saved in evaluation: the parameter itself is at the point of evaluation.
            if not is_training(saved_group):
                first[TRAINING_POINT] = parameter.detach().clone()
            if saved_state.keys() - first.keys():
                for name in saved_state.keys() & states_of(index, saved_group) - first.keys():
                    first[name] = saved_state[name]
            first = _check_states(saved_state, first, rule, spot)
            matching.append((parameter, saved_state, first))
    # Everything is checked: redistribution below may wait for other processes.
    return [
        (parameter, _load_states(saved_state, first)) for parameter, saved_state, first in matching
    ]


def in_order_of_names(
    saved_groups: Sequence[Any], groups: Sequence[Mapping[str, Any]], owner: str
) -> list[Any]:
    """Returns saved groups with their parameters in the order of the optimizer's, by their names.

    Where both sides have names, and the same ones in each group, parameters are matched by name.
    Without names, or with other names, they are matched by their order, as in torch.

    Args:
        saved_groups: The groups of a state dict.
        groups: The groups of the optimizer.
        owner: The class of the optimizer, for errors.

    Raises:
        StateError: Some names are the same, at another place, and others are not.
    """
    names_or_none = [*map(_names, saved_groups), *map(_names, groups)]
    all_names = [group_names for group_names in names_or_none if group_names is not None]
    if len(all_names) < len(names_or_none):
        return list(saved_groups)
    saved_names, names = all_names[: len(saved_groups)], all_names[len(saved_groups) :]
    if len(names) == len(saved_names) and all(
        set(pair[0]) == set(pair[1]) for pair in zip(names, saved_names, strict=True)
    ):
        return list(map(_with_order, saved_groups, names))
    places = {name: (i, j) for i, group in enumerate(names) for j, name in enumerate(group)}
    for i, group_names in enumerate(saved_names):
        for j, name in enumerate(group_names):
            if places.get(name, (i, j)) != (i, j):
                group_index, index = places[name]
                raise StateError(
                    f"parameter {name!r} is parameter {j} of param group {i} in the state dict, "
                    f"and parameter {index} of param group {group_index} here, beside other names",
                    where=owner,
                    hint="give the saved groups the names of these parameters in 'param_names', "
                    "or leave 'param_names' out of them to load in order",
                )
    return list(saved_groups)


def _names(group: Any) -> list[str] | None:
    """The names of the parameters of a group; None if it has none, or not one for each."""
    if not isinstance(group, Mapping) or not isinstance(group.get("param_names"), list | tuple):
        return None
    names, params = list(group["param_names"]), list(group.get("params", ()))
    # Names in the place of numbers are in order: torch.distributed.checkpoint puts them there.
    is_by_name = any(isinstance(param, str) for param in params)
    return None if is_by_name or len(set(names)) != len(params) else names


def _with_order(group: Mapping[str, Any], names: Sequence[str]) -> dict[str, Any]:
    """A saved group with its parameters in the order of these names."""
    keys = dict(zip(group["param_names"], group["params"], strict=True))
    return {**group, "params": [keys[name] for name in names], "param_names": list(names)}


def _first_states(rule: UpdateRule) -> Callable[[Tensor], dict[str, Tensor]]:
    """The function from a parameter to its step and states before its first step."""
    make = state_maker(rule)

    def first(parameter: Tensor) -> dict[str, Tensor]:
        step = torch.zeros((), dtype=torch.int64, device=parameter.device)
        return {STEP: step, **make(parameter)}

    return first


def packed_zero_states(
    rule: UpdateRule, params: Sequence[Tensor]
) -> list[dict[str, Tensor]] | None:
    """Returns the first states of parameters that are stepped as one vector, if all are zero.

    They are as ``first_states`` and ``pack_states`` make them, in half the time.
    """
    dtypes = {param.dtype for param in params}
    is_plain_group = len(dtypes) == 1 and not any(map(is_dtensor, params))
    if not is_plain_group or not starts_at_zero(rule) or not all(map(is_flat, params)):
        return None
    full = [name for name, spec in rule.states.items() if spec.shape == "param"]
    scalars = [name for name in rule.states if name not in full]
    zero_states = packed_zeros(params, COMPUTE_DTYPES[dtypes.pop()], scalars, full)
    steps = torch.zeros(len(params), dtype=torch.int64).unbind()
    order = (STEP, *rule.states)
    return [
        {name: step if name == STEP else zeros[name] for name in order}
        for zeros, step in zip(zero_states, steps, strict=True)
    ]


def first_states(
    rule: UpdateRule, group: Mapping[str, Any], index: int, owner: str, numbers: Sequence[int]
) -> list[dict[str, Tensor]]:
    """Returns the states before the first step of some parameters of a group.

    Args:
        rule: The rule of the group.
        group: The group.
        index: Its index.
        owner: The class of the optimizer, for errors.
        numbers: The indices of the parameters in the group.

    Raises:
        DefinitionError: The rule does not apply to the shape of a parameter.
    """
    states = []
    make = _first_states(rule)
    for number in numbers:
        try:
            states.append(make(group["params"][number]))
        except ClosedFormError:
            with locate_errors(f"{owner}, {place(group, index, number)}"):
                raise
    return states


def check_shapes(rule: UpdateRule, group: Mapping[str, Any], index: int, owner: str) -> None:
    """Raises DefinitionError if a rule does not apply to the shape of a parameter of a group."""
    names_of = state_names(rule)
    for number, parameter in enumerate(group["params"]):
        if is_lazy(parameter):
            continue
        try:
            names_of(tuple(real_view(parameter.detach()).shape))
        except ClosedFormError:
            with locate_errors(f"{owner}, {place(group, index, number)}"):
                raise


def check_state_shapes(
    rule: UpdateRule,
    group: Mapping[str, Any],
    states_by_param: Mapping[Tensor, Mapping[str, Tensor]],
    index: int,
    owner: str,
) -> None:
    """Raises StateError if a parameter has been given another shape than its states have."""
    names = [name for name, spec in rule.states.items() if spec.shape == "param"]
    for number, parameter in enumerate(group["params"]):
        states = states_by_param.get(parameter, {})
        for name in names:
            if name in states and states[name].shape != parameter.shape:
                raise StateError(
                    f"state {name!r} has shape {list(states[name].shape)}, that the parameter had",
                    where=f"{owner}, {place(group, index, number)}",
                    hint="make the optimizer after the parameter has its shape, or remove its "
                    "entry from the optimizer's state: it then starts anew",
                )


def saved_states(state_dict: Mapping[str, Any], timeless: Set[Any]) -> dict[str, Any]:
    """Returns a state dict in the form of torch's optimizers: their steps, and no empty states.

    torch's foreach functions take steps of float32 and float64. A step is a float32 tensor on the
    CPU, or on the parameter's device for the capturable and the fused form; from 2**24 on, where
    float32 does not count any more, a float64 tensor.

    Args:
        state_dict: The state dict of torch.
        timeless: The keys of parameters whose steps are not saved.
    """
    counts = _counts([states for states in state_dict["state"].values() if _has_step(states)])
    is_on_device = {
        key: bool(group.get("capturable") or group.get("fused"))
        for group in state_dict["param_groups"]
        for key in group["params"]
    }
    states_by_key = {}
    for key, states in state_dict["state"].items():
        if _has_step(states):
            device = states[STEP].device if is_on_device.get(key) else torch.device("cpu")
            states = {**states, STEP: _saved_step(next(counts), device)}
        if key in timeless:
            states = {name: value for name, value in states.items() if name != STEP}
        if states or not isinstance(states, Mapping):
            states_by_key[key] = states
    return {**state_dict, "state": states_by_key}


def _has_step(states: Any) -> bool:
    return isinstance(states, Mapping) and isinstance(states.get(STEP), Tensor)


def _counts(states: Sequence[Mapping[str, Tensor]]) -> Iterator[int]:
    """The number of steps of each parameter, with one transfer from each device."""
    rows_by_device: dict[torch.device, list[int]] = {}
    for row, states_of_param in enumerate(states):
        rows_by_device.setdefault(states_of_param[STEP].device, []).append(row)
    counts = [0] * len(states)
    for rows in rows_by_device.values():
        column = torch.stack([states[row][STEP].detach().reshape(()).double() for row in rows])
        for row, count in zip(rows, column.tolist(), strict=True):
            counts[row] = int(count)
    return iter(counts)


def _saved_step(count: int, device: torch.device) -> Tensor:
    """A number of steps as torch's optimizers store it."""
    is_wide = torch.get_default_dtype() == torch.float64 or count >= FLOAT32_STEPS
    return torch.tensor(
        float(count), dtype=torch.float64 if is_wide else torch.float32, device=device
    )


def completed_states(
    rule: UpdateRule,
    group: Mapping[str, Any],
    index: int,
    owner: str,
    present_states: Mapping[int, Mapping[str, Tensor]],
    *,
    may_restart: bool,
) -> list[dict[str, Tensor]]:
    """Returns the states of some parameters of a group, with first ones for those they lack.

    If all parameters step together, the step and the model's states are taken from another one.

    Args:
        rule: The rule of the group.
        group: The group.
        index: Its index.
        owner: The class of the optimizer, for errors.
        present_states: The states that each of them has, by its index in the group.
        may_restart: Whether a parameter that has none of the states starts again at step 0.
    """
    completions = []
    common: dict[str, Tensor] = {}
    if is_joint(rule):
        for states_of_param in present_states.values():
            common.update(
                (k, v) for k, v in states_of_param.items() if k == STEP or k.startswith(SHARED)
            )
    made_states = first_states(rule, group, index, owner, list(present_states))
    for first, states_of_param in zip(made_states, present_states.values(), strict=True):
        # A clone: each parameter counts up its step in place.
        copies = {name: common[name].clone() for name in first if name in common}
        present = dict(states_of_param)
        if (
            may_restart
            and not copies
            and first.keys() - {STEP}
            and not _states_in(first, states_of_param)
        ):
            present.pop(STEP, None)
        completions.append({**first, **copies, **present})
    return completions


def _states_in(first: Mapping[str, Tensor], saved_states: Mapping[str, Tensor]) -> bool:
    return any(name in saved_states for name in first if name != STEP)


def _check_group(
    group: Mapping[str, Any], keys: Sequence[str], saved_group: Mapping[str, Any], where: str
) -> None:
    missing = [key for key in ("params", *keys) if key not in saved_group]
    if missing:
        raise StateError(
            f"the saved group has no {missing[0]!r}",
            where=where,
            hint="is it the state of another kind of optimizer?",
        )
    penalty = saved_group.get(_PENALTY, 0)
    if penalty and _PENALTY not in keys:
        raise StateError(
            f"the saved group has {_PENALTY} = {penalty}, which this optimizer does not have",
            where=where,
            hint="it is the argument weight_decay of Adam in cerebras: rename it to weight_decay",
        )
    if len(saved_group["params"]) != len(group["params"]):
        raise StateError(
            f"the saved group has {len(saved_group['params'])} parameters, the optimizer's group "
            f"has {len(group['params'])}",
            where=where,
        )


def _with_step(saved_states: Mapping[str, Any], rule: UpdateRule, where: str) -> Mapping[str, Any]:
    """The states of a parameter, with the step instead of cerebras's powers of the betas."""
    if STEP in saved_states or not any(key in saved_states for key in POWERS):
        return saved_states
    numbers = []
    for name in ("beta1", "beta2"):
        beta = rule.hyperparameters.get(name, 0)
        if isinstance(beta, Schedule):
            raise StateError(
                f"{name} is a schedule, so its powers do not determine the step",
                where=where,
                hint=f"replace them by the state {STEP!r}",
            )
        numbers.append(float(beta))
    hint = f"replace them by the state {STEP!r}"
    rest = {name: value for name, value in saved_states.items() if name not in POWERS}
    return {**rest, STEP: step_of_powers(saved_states, numbers, where, hint=hint)}


def _check_states(
    saved_states: Mapping[str, Any], first: dict[str, Tensor], rule: UpdateRule, where: str
) -> dict[str, Tensor]:
    """The initial states of a parameter with the saved step, if the saved states match them."""
    for name in saved_states:
        if name not in first:
            raise StateError(f"unknown state {name!r}", where=where, hint=nearest(name, first))
    for name, start in first.items():
        if name == STEP:
            continue
        value = saved_states.get(name)
        if not isinstance(value, Tensor):
            raise StateError(f"state {name!r} is missing", where=where)
        if value.shape != start.shape:
            raise StateError(
                f"state {name!r} must have shape {list(start.shape)}, got {list(value.shape)}",
                where=where,
            )
        if not is_redistributable(value, start):
            raise StateError(
                f"state {name!r} and its parameter are on different device meshes",
                where=where,
                hint="load it with torch.distributed.checkpoint, or as a full tensor",
            )
    return {**first, STEP: _step(saved_states.get(STEP), rule, first[STEP].device, where)}


def _load_states(saved_states: Mapping[str, Any], first: dict[str, Tensor]) -> dict[str, Tensor]:
    """The saved states of a parameter as new tensors, with the placements and dtypes needed."""
    tensors = {}
    for name, start in first.items():
        value = start
        if name != STEP and name in saved_states:
            # A copy in the layout of the initial state: the loaded dict is not shared.
            source = redistributed_like(saved_states[name].detach().to(start.device), start)
            value = torch.empty_like(start).copy_(source)
        tensors[name] = value
    return tensors


def _step(value: Any, rule: UpdateRule, device: torch.device, where: str) -> Tensor:
    if value is None:
        if not is_timeless(rule):
            raise StateError(
                f"state {STEP!r} is missing",
                where=where,
                hint="this rule depends on the number of steps",
            )
        # All steps after the first are alike for such a rule.
        value = 1
    count = torch.as_tensor(value).detach()
    if count.numel() != 1 or count.is_complex():
        raise StateError(f"state {STEP!r} must be one number, got {value!r}", where=where)
    number = count.item()
    if not (0 <= number <= MAX_STEP and number == number // 1):
        raise StateError(
            f"state {STEP!r} must be an integer in 0..{MAX_STEP}, got {number}", where=where
        )
    # torch.optim saves a tensor of float32, the former AdamW of transformers an int.
    return count.reshape(()).to(device, torch.int64, copy=True)


@lru_cache(128)
def is_timeless(rule: UpdateRule) -> bool:
    """Returns whether all steps after the first are the same function of the states."""
    later = internal_symbol("later", "a later step", integer=True, positive=True)
    parts = rule.all_expressions()
    return not any(part.xreplace({t: later}).has(later) for part in parts)

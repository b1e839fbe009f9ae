"""States of an optimizer in the checkpoints of DeepSpeed and Megatron, both ways, by names.

Both index the states of a parameter by its name and keep those of the parameter's shape, next to
its value in float32. Which states there are is not a table: a rule declares them, and torch's
classes have the same names (``exp_avg`` of Lion, ``momentum_buffer`` of Muon).

Example:
    >>> import torch
    >>> from closedform import optimizers
    >>> from closedform.torch import Optimizer
    >>> model = torch.nn.Linear(2, 1, bias=False)
    >>> optimizer = Optimizer(model.parameters(), optimizers.lion(0.1))
    >>> model.weight.grad = torch.ones(1, 2)
    >>> optimizer.step()
    >>> states = megatron_states(optimizer, model.named_parameters())
    >>> list(states), states["optimizer.state.exp_avg.weight"].shape
    (['optimizer.state.fp32_param.weight', 'optimizer.state.exp_avg.weight'], torch.Size([1, 2]))
"""

from __future__ import annotations

import pickle
from collections.abc import Iterable, Mapping
from pathlib import Path
from typing import Any

import torch
from torch import Tensor

from closedform.errors import StateError, nearest
from closedform.runtime.state_layouts import MASTER
from closedform.torch.engine.kernels import state_names
from closedform.torch.optimizer import Optimizer
from closedform.torch.shards import is_dtensor
from closedform.torch.states import STEP

NamedParameters = Iterable[tuple[str, Tensor]]
StatesByName = dict[str, dict[str, Any]]

VALUE = "fp32"
"""DeepSpeed's name of the value of a parameter."""
MEGATRON_VALUE = "fp32_param"
"""Megatron's."""
_PREFIX = "optimizer.state."
_VERSION = "0.19.6"
"""The version of DeepSpeed whose format this is; its loader asks for one."""


def write_universal_checkpoint(
    folder: Path | str, optimizer: torch.optim.Optimizer, named_parameters: NamedParameters
) -> None:
    """Writes the states of an optimizer as a universal checkpoint of DeepSpeed.

    The folder gets ``zero/NAME/STATE.pt`` for each parameter and state, ``fp32.pt`` and ``step.pt``
    next to them, and ``zero/optimizer_state.pt`` with the groups. What else such a checkpoint has,
    the files ``mp_rank_…_model_states.pt``, is of the model and the engine.

    Args:
        folder: The folder of the checkpoint, of any step: ``global_step100``, for one.
        optimizer: The optimizer, of closedform or torch.
        named_parameters: The parameters by name, such as ``model.named_parameters()``.

    Raises:
        StateError: A parameter has no name or no states, or a state has not its shape: DeepSpeed
            has no place for the factors of Adafactor and the matrices of SOAP. Or it is a DTensor.

    Source: ``merge_tp_slices`` of deepspeed/checkpoint/ds_to_universal.py and
    ``load_hp_checkpoint_state`` of universal_checkpoint.py, DeepSpeed 0.19.6 (edaa7221).
    """
    zero = Path(folder) / "zero"
    states_by_name = _states_by_name(optimizer, named_parameters)
    if any(is_dtensor(states[VALUE]) for states in states_by_name.values()):
        raise StateError("a file of a parameter holds all of it", hint="gather the DTensors before")
    for name, states in states_by_name.items():
        (zero / name).mkdir(parents=True, exist_ok=True)
        for key, value in states.items():
            # Concatenated along axis 0 where the loader has several tensor-parallel ranks.
            stored = value if key == STEP else {"param": value, "cat_dim": 0}
            torch.save(stored, zero / name / f"{key}.pt")
    groups = [
        {key: value for key, value in group.items() if key != "params" and _is_plain(value)}
        for group in optimizer.param_groups
    ]
    steps = [{STEP: states[STEP]} for states in states_by_name.values() if STEP in states]
    # The stages 1 and 2 read the groups at the top, and stage 3 those below, with the step.
    stage_3 = {"state": dict(enumerate(steps[:1])), "param_groups": groups}
    content = {"ds_version": _VERSION, "param_groups": groups, "optimizer_state_dict": stage_3}
    torch.save(content, zero / "optimizer_state.pt")


def read_universal_checkpoint(
    folder: Path | str, optimizer: torch.optim.Optimizer, named_parameters: NamedParameters
) -> None:
    """Loads a universal checkpoint of DeepSpeed into an optimizer and its parameters.

    Nothing but tensors and numbers is read from the files (``weights_only``).

    Args:
        folder: The folder that has ``zero/NAME/STATE.pt``.
        optimizer: The optimizer, of closedform or torch.
        named_parameters: The parameters by name.

    Raises:
        StateError: A parameter or state is missing or of another shape, or a file holds objects.
    """
    zero = Path(folder) / "zero"
    files = sorted(zero.glob("**/*.pt")) if zero.is_dir() else []
    states_by_name: StatesByName = {}
    for file in files:
        name = file.parent.relative_to(zero).as_posix()
        if name != ".":
            states_by_name.setdefault(name, {})[file.stem] = _read(file)
    if not states_by_name:
        raise StateError(
            f"there is no zero/NAME/{VALUE}.pt in {str(folder)!r}",
            hint="convert the checkpoint with ds_to_universal.py of DeepSpeed",
        )
    _load(optimizer, named_parameters, states_by_name)


def megatron_states(
    optimizer: torch.optim.Optimizer, named_parameters: NamedParameters
) -> dict[str, Tensor]:
    """Returns the states by the keys that Megatron's checkpoints have, of the model's shapes.

    A key is ``optimizer.state.STATE.NAME``, with ``fp32_param`` for the value. They are those of
    ``torch_dist`` files, which ``torch.distributed.checkpoint`` writes and reads. The step is not
    among them: Megatron keeps it in the groups.

    Args:
        optimizer: The optimizer, of closedform or torch.
        named_parameters: The parameters by the names that Megatron has for them.

    Raises:
        StateError: As by :func:`write_universal_checkpoint`.

    Source: ``sharded_param_state_fs_model_space`` of megatron/core/optimizer/distrib_optimizer.py
    and ``sharded_state_dict`` of optimizer.py (d98e8a64).
    """
    return {
        f"{_PREFIX}{MEGATRON_VALUE if key == VALUE else key}.{name}": value
        for name, states in _states_by_name(optimizer, named_parameters).items()
        for key, value in states.items()
        if key != STEP
    }


def load_megatron_states(
    optimizer: torch.optim.Optimizer,
    named_parameters: NamedParameters,
    states: Mapping[str, Tensor],
    step: int,
) -> None:
    """Loads states by Megatron's keys into an optimizer and its parameters.

    Args:
        optimizer: The optimizer, of closedform or torch.
        named_parameters: The parameters by Megatron's names.
        states: By ``optimizer.state.STATE.NAME``; other keys are left out. The value is that of
            ``fp32_param``, or of ``param`` as the fully reshardable form has it.
        step: The number of updates.

    Raises:
        StateError: A parameter or state is missing, or of another shape.
    """
    states_by_name: StatesByName = {}
    for key, value in states.items():
        state_name, _, name = key.removeprefix(_PREFIX).partition(".")
        if key.startswith(_PREFIX) and name:
            is_value = state_name in (MEGATRON_VALUE, "param")
            entry = states_by_name.setdefault(name, {STEP: torch.tensor(float(step))})
            entry[VALUE if is_value else state_name] = value
    _load(optimizer, named_parameters, states_by_name)


def _states_by_name(
    optimizer: torch.optim.Optimizer, named_parameters: NamedParameters
) -> StatesByName:
    """The value, the step and the states of each parameter."""
    saved_states = optimizer.state_dict()["state"]
    states_by_name = {}
    for index, (name, param, _) in enumerate(_parameters(optimizer, named_parameters)):
        states = dict(saved_states.get(index, {}))
        if not states:
            raise StateError(f"parameter {name!r} has no states", hint="take a step before")
        value = states.pop(MASTER, param).detach().float()
        for key, state in states.items():
            if key != STEP and state.shape != param.shape:
                raise StateError(
                    f"state {key!r} of parameter {name!r} has shape {list(state.shape)}, and these "
                    f"checkpoints have a place only for states of its shape {list(param.shape)}",
                    hint="keep it in a state dict",
                )
        states_by_name[name] = {VALUE: value, **states}
    return states_by_name


def _load(
    optimizer: torch.optim.Optimizer,
    named_parameters: NamedParameters,
    states_by_name: Mapping[str, Mapping[str, Any]],
) -> None:
    """Loads values, steps and states by name; nothing is changed unless all are there."""
    values: list[tuple[Tensor, Tensor]] = []
    states_by_index = {}
    for index, (name, param, names) in enumerate(_parameters(optimizer, named_parameters)):
        if name not in states_by_name:
            raise StateError(
                f"there are no states of parameter {name!r}", hint=nearest(name, states_by_name)
            )
        states = dict(states_by_name[name])
        for key in (VALUE, *names):
            if key not in states and key != MASTER:
                raise StateError(
                    f"state {key!r} of parameter {name!r} is missing", hint=nearest(key, states)
                )
        for key, state in states.items():
            if key != STEP:
                states[key] = _shaped_like(state, param, f"state {key!r} of parameter {name!r}")
        value = states.pop(VALUE)
        values.append((param, value))
        states_by_index[index] = {**states, **({MASTER: value} if MASTER in names else {})}
    groups = optimizer.state_dict()["param_groups"]
    optimizer.load_state_dict({"state": states_by_index, "param_groups": groups})
    with torch.no_grad():
        for param, value in values:
            param.copy_(value)


def _parameters(
    optimizer: torch.optim.Optimizer, named_parameters: NamedParameters
) -> list[tuple[str, Tensor, tuple[str, ...]]]:
    """The name and states of each parameter in the order of the optimizer."""
    names = {id(param): name for name, param in named_parameters}
    parameters = []
    for index, group in enumerate(optimizer.param_groups):
        names_of = (
            state_names(optimizer._rule_of(index)) if isinstance(optimizer, Optimizer) else None
        )
        for number, param in enumerate(group["params"]):
            if id(param) not in names:
                raise StateError(
                    f"parameter {number} of param group {index} has no name",
                    hint="give all of model.named_parameters()",
                )
            # An optimizer of torch declares no states: those that it has are known.
            states = (
                optimizer.state.get(param, {}) if names_of is None else names_of(tuple(param.shape))
            )
            parameters.append((names[id(param)], param, tuple(states)))
    return parameters


def _shaped_like(state: Any, param: Tensor, subject: str) -> Tensor:
    """A state with the shape of its parameter; ZeRO stage 3 stores it flat."""
    is_flat = isinstance(state, Tensor) and state.shape == (param.numel(),)
    if not is_flat and (not isinstance(state, Tensor) or state.shape != param.shape):
        got = list(state.shape) if isinstance(state, Tensor) else type(state).__name__
        raise StateError(f"{subject} must have shape {list(param.shape)}, got {got}")
    return state.reshape(param.shape)


def _read(file: Path) -> Any:
    """The tensor or number in a file."""
    try:
        content = torch.load(file, map_location="cpu", weights_only=True)
    except pickle.UnpicklingError as error:
        raise StateError(
            f"{str(file)!r} holds more than tensors and numbers",
            hint="merge its sub-parameters before, or convert it without tensor parallelism",
        ) from error
    return content["param"] if isinstance(content, Mapping) and "param" in content else content


def _is_plain(value: object) -> bool:
    """Whether a value of a group is of numbers and strings."""
    if isinstance(value, tuple | list):
        return all(map(_is_plain, value))
    return value is None or isinstance(value, bool | int | float | str)

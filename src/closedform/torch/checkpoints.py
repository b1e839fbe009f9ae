"""States of an optimizer in the checkpoints of DeepSpeed and Megatron, both ways, by names.

Both index the states of a parameter by its name and keep states of the parameter's shape, next to
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

from collections.abc import Iterable, Iterator, Mapping
from pathlib import Path
from typing import Any

import torch
from torch import Tensor

from closedform.errors import StateError, nearest
from closedform.runtime.state_layouts import MASTER
from closedform.torch.optimizer import Optimizer
from closedform.torch.shards import is_dtensor
from closedform.torch.states import STEP

NamedParameters = Iterable[tuple[str, Tensor]]
StatesByName = dict[str, dict[str, Any]]

VALUE = "fp32"
"""DeepSpeed's name of the value of a parameter."""
MEGATRON_VALUE = "fp32_param"
"""Megatron's."""
_VALUES = {MEGATRON_VALUE: VALUE, "param": VALUE}
_PREFIX = "optimizer.state."
_VERSION = "0.19.6"
"""The version of DeepSpeed whose format this is; its loader asks for one."""


def write_universal(
    folder: Path | str, optimizer: torch.optim.Optimizer, named_parameters: NamedParameters
) -> None:
    """Writes the states of an optimizer as a universal checkpoint of DeepSpeed.

    The folder gets ``zero/NAME/STATE.pt`` for each parameter and state, ``fp32.pt`` and ``step.pt``
    next to them, and ``zero/optimizer_state.pt`` with the groups. What else such a checkpoint has
    is of the model and the engine.

    Args:
        folder: The folder of the checkpoint; it is made.
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
            # A copy: a part of a vector would be saved with all of it. The loader cuts a parameter
            # along the axis "cat_dim" for its tensor-parallel ranks.
            content = value.clone() if key == STEP else {"param": value.clone(), "cat_dim": 0}
            torch.save(content, zero / name / f"{key}.pt")
    # Not the parameters, tensors and schedules of a group, which its optimizer has.
    groups = [
        {key: value for key, value in group.items() if isinstance(value, int | float | str | tuple)}
        for group in optimizer.param_groups
    ]
    steps = [{STEP: states[STEP]} for states in states_by_name.values() if STEP in states]
    # The stages 1 and 2 read the groups at the top, and stage 3 those below, with the step.
    stage_3 = {"state": dict(enumerate(steps[:1])), "param_groups": groups}
    content = {"ds_version": _VERSION, "param_groups": groups, "optimizer_state_dict": stage_3}
    torch.save(content, zero / "optimizer_state.pt")


def read_universal(
    folder: Path | str, optimizer: torch.optim.Optimizer, named_parameters: NamedParameters
) -> None:
    """Loads a universal checkpoint of DeepSpeed into an optimizer and its parameters.

    Nothing but tensors and numbers is read from the files (``weights_only``).

    Args:
        folder: The folder that has ``zero/NAME/STATE.pt``.
        optimizer: The optimizer, of closedform or torch.
        named_parameters: The parameters by name.

    Raises:
        StateError: A parameter, its value or a state that the rule declares is missing or of
            another shape, or a file holds objects. (torch's optimizers declare no states.)
    """
    zero = Path(folder) / "zero"
    states_by_name: StatesByName = {}
    # A name with a slash is a folder in a folder.
    for file in zero.glob("*/**/*.pt"):
        name = file.parent.relative_to(zero).as_posix()
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
    its files in the format of ``torch.distributed.checkpoint``, which writes and reads them. The
    step is not among them: Megatron keeps it in the groups.

    Args:
        optimizer: The optimizer, of closedform or torch.
        named_parameters: The parameters by the names that Megatron has for them.

    Raises:
        StateError: As by :func:`write_universal`.

    Source: megatron/core/optimizer/distrib_optimizer.py:2044 and optimizer.py:1199 (d98e8a64).
    """
    return {
        f"{_PREFIX}{MEGATRON_VALUE if key == VALUE else key}.{name}": value
        for name, states in _states_by_name(optimizer, named_parameters).items()
        for key, value in states.items()
        if key != STEP
    }


def load_megatron(
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
            entry = states_by_name.setdefault(name, {STEP: torch.tensor(float(step))})
            entry[_VALUES.get(state_name, state_name)] = value
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
    for index, (name, param, has_master) in enumerate(_parameters(optimizer, named_parameters)):
        if name not in states_by_name:
            raise StateError(
                f"there are no states of parameter {name!r}", hint=nearest(name, states_by_name)
            )
        states = dict(states_by_name[name])
        # The optimizer looks for the states that its rule declares.
        if VALUE not in states:
            raise StateError(f"the value {VALUE!r} of parameter {name!r} is missing")
        for key, state in states.items():
            if key != STEP:
                states[key] = _shaped_like(state, param, f"state {key!r} of parameter {name!r}")
        value = states.pop(VALUE)
        values.append((param, value))
        states_by_index[index] = {**states, **({MASTER: value} if has_master else {})}
    groups = optimizer.state_dict()["param_groups"]
    optimizer.load_state_dict({"state": states_by_index, "param_groups": groups})
    with torch.no_grad():
        for param, value in values:
            param.copy_(value)


def _parameters(
    optimizer: torch.optim.Optimizer, named_parameters: NamedParameters
) -> Iterator[tuple[str, Tensor, bool]]:
    """The name of each parameter in the order of the optimizer, and whether it has a master."""
    names = {id(param): name for name, param in named_parameters}
    for index, group in enumerate(optimizer.param_groups):
        has_master = isinstance(optimizer, Optimizer) and MASTER in optimizer._rule_of(index).states
        for number, param in enumerate(group["params"]):
            if id(param) not in names:
                raise StateError(
                    f"parameter {number} of param group {index} has no name",
                    hint="give all of model.named_parameters()",
                )
            yield names[id(param)], param, has_master


def _shaped_like(state: Any, param: Tensor, subject: str) -> Tensor:
    """A state with the shape of its parameter; ZeRO stage 3 stores it flat."""
    shape = getattr(state, "shape", None)
    if shape not in (param.shape, (param.numel(),)):
        got = type(state).__name__ if shape is None else list(shape)
        raise StateError(f"{subject} must have shape {list(param.shape)}, got {got}")
    return torch.reshape(state, param.shape)


def _read(file: Path) -> Any:
    """The tensor or number in a file."""
    try:
        content = torch.load(file, map_location="cpu", weights_only=True)
    except Exception as error:  # a damaged archive, or what its unpickler refuses to make
        raise StateError(
            f"{str(file)!r} holds other than tensors and numbers",
            hint="merge its sub-parameters before, or convert it without tensor parallelism",
        ) from error
    return content["param"] if isinstance(content, Mapping) and "param" in content else content

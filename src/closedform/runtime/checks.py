"""Checks of what a session is given: tensors, hyperparameters, state dicts."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

import numpy as np

from closedform.errors import SessionError, StateError
from closedform.lowering.domain import MAX_STEP
from closedform.runtime.buffers import Array, check_array, check_names
from closedform.runtime.layout import STEP, Layout
from closedform.runtime.onnx_session import Port

_STATE_KEYS = ("rule", "step", "params", "states")


def checked_tensors(
    grads: Mapping[str, Array | None],
    inputs: Mapping[str, Mapping[str, Array | None]],
    layout: Layout,
    where: str,
) -> dict[str, Array | None]:
    """Returns the gradients and other tensors of a step by input name, if each fits.

    A parameter whose gradient is None needs no other tensors.

    Raises:
        SessionError: One is missing, unknown or does not fit.
    """
    check_names(grads, layout.params, "gradient", where)
    checked: dict[str, Array | None] = {}
    for name, port in layout.params.items():
        what = f"the gradient of {name!r}"
        checked[f"grad.{name}"] = _checked_tensor(grads[name], port, what, where)
    check_names(inputs, layout.inputs, "input", where)
    for label, ports in layout.inputs.items():
        check_names(inputs[label], ports, f"parameter of input {label!r}", where)
        for name, port in ports.items():
            given = inputs[label][name]
            if given is None and grads[name] is not None:
                raise SessionError(
                    f"the {label} of {name!r} is None, and its gradient is not",
                    where=where,
                    hint="give both, or None for both",
                )
            checked[port.name] = _checked_tensor(given, port, f"the {label} of {name!r}", where)
    return checked


def _checked_tensor(given: object, port: Port, what: str, where: str) -> Array | None:
    if given is None:
        return None
    array = check_array(given, port, what, where)
    if not (array.flags.c_contiguous and array.flags.aligned):
        raise SessionError(
            f"{what} must be C-contiguous, got strides {list(array.strides)}",
            where=where,
            hint="pass numpy.ascontiguousarray(…)",
        )
    return array


def hyper_values(
    hyper: Mapping[str, float], needed: Mapping[str, Port], optional: Mapping[str, Port], where: str
) -> dict[str, Array]:
    """The hyperparameters as arrays of their dtypes, all checked."""
    known = {**needed, **optional}
    expected = {**needed, **{name: known[name] for name in hyper if name in known}}
    check_names(hyper, expected, "hyperparameter", where)
    values = {}
    for name, value in hyper.items():
        array = np.asarray(value)
        dtype = known[name].dtype
        kinds = "iuf" if dtype.kind == "f" else "iu"
        if array.ndim or array.dtype.kind not in kinds:
            raise SessionError(
                f"hyperparameter {name!r} must be a number ({known[name]}), got {value!r}",
                where=where,
            )
        values[name] = array.astype(dtype)
    return values


def checked_state(state_dict: Mapping[str, Any], layout: Layout, where: str) -> dict[str, Array]:
    """The arrays of a state dict by input name, if each fits.

    The step is at most ``MAX_STEP``: no graph is made for a later one.
    """
    keys = dict.fromkeys((*_STATE_KEYS, *(("shared",) if layout.shared else ())))
    check_names(state_dict, keys, "key", f"state dict for {where}", StateError)
    if state_dict["rule"] != layout.rule:
        raise StateError(
            f"the state dict belongs to rule {state_dict['rule']!r}",
            where=where,
            hint="load it into a session of that rule",
        )
    step = state_dict["step"]
    top = min(int(np.iinfo(layout.step.dtype).max), MAX_STEP)
    if isinstance(step, bool) or not isinstance(step, int | np.integer) or not 0 <= step <= top:
        raise StateError(f"'step' must be an integer in 0..{top}, got {step!r}", where=where)
    params = _checked_mapping(state_dict["params"], "'params'", where)
    states = _checked_mapping(state_dict["states"], "'states'", where)
    found = {STEP: np.asarray(step, layout.step.dtype)}
    check_names(params, layout.params, "parameter", where, StateError)
    for name, port in layout.params.items():
        found[port.name] = check_array(params[name], port, f"parameter {name!r}", where, StateError)
    check_names(states, layout.states, "state", where, StateError)
    for state, ports in layout.states.items():
        by_name = _checked_mapping(states[state], f"state {state!r}", where)
        check_names(by_name, ports, f"parameter of state {state!r}", where, StateError)
        for name, port in ports.items():
            what = f"state {state!r} of {name!r}"
            found[port.name] = check_array(by_name[name], port, what, where, StateError)
    shared = _checked_mapping(state_dict.get("shared", {}), "'shared'", where)
    check_names(shared, layout.shared, "state of the model", where, StateError)
    for name, port in layout.shared.items():
        what = f"state {name!r} of the model"
        found[port.name] = check_array(shared[name], port, what, where, StateError)
    return found


def _checked_mapping(value: object, what: str, where: str) -> Mapping[str, Any]:
    if not isinstance(value, Mapping):
        raise StateError(f"{what} must be a mapping, got {type(value).__name__}", where=where)
    return value

"""Validation of a session's input: parameters, gradients, hyperparameters, state dicts."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any, Protocol

import numpy as np

from closedform.errors import ClosedFormError, SessionError, StateError, nearest
from closedform.ir import naming
from closedform.ir.graph import Array
from closedform.ir.naming import STEP
from closedform.ir.steps import last_step
from closedform.ir.types import DType
from closedform.runtime.onnx_session import Port
from closedform.runtime.step_ports import StepPorts

_STATE_KEYS = ("rule", "step", "params", "states")


def check_names(
    values: object,
    expected: Mapping[str, object],
    kind: str,
    where: str,
    error: type[ClosedFormError] = SessionError,
    *,
    is_complete: bool = True,
) -> None:
    """Raises ``error`` if a name is unknown, or missing from values that are to be complete.

    ``kind`` says what the names are of.
    """
    if not isinstance(values, Mapping):
        raise error(
            f"expected a mapping from name to {kind}, got {type(values).__name__}",
            where=where,
            hint=f"give {{name: …}} for {', '.join(map(repr, list(expected)[:6])) or 'none'}",
        )
    for name in values:
        if name not in expected:
            hint = nearest(str(name), expected) if expected else "there are none"
            raise error(f"unknown {kind} {name!r}", where=where, hint=hint)
    missing = [name for name in expected if name not in values]
    if missing and is_complete:
        names = ", ".join(repr(name) for name in missing[:6])
        more = f" and {len(missing) - 6} more" if len(missing) > 6 else ""
        raise error(f"{kind} {names}{more} missing", where=where, hint="give one for each name")


def check_array(
    array: object,
    port: Port,
    description: str,
    where: str,
    error: type[ClosedFormError] = SessionError,
) -> Array:
    """Returns ``array`` if it has the dtype and shape of the port; raises ``error`` if not.

    A dynamic size of the port matches any.
    """
    if not isinstance(array, np.ndarray):
        raise error(
            f"{description} must be a NumPy array {port}, got {type(array).__name__}",
            where=where,
            hint="pass numpy.asarray(…), or tensor.detach().cpu().numpy()",
        )
    check_stored(array, port, description, where, error)
    return array


class _Typed(Protocol):
    """Something with a dtype and a shape: an array, or the place of one in a file."""

    @property
    def dtype(self) -> np.dtype[Any]: ...

    @property
    def shape(self) -> tuple[int, ...]: ...


def check_stored(
    array: _Typed,
    port: Port,
    description: str,
    where: str,
    error: type[ClosedFormError] = SessionError,
) -> None:
    """Raises ``error`` if an array has another dtype or shape than the port; it is not read.

    A dynamic size of the port matches any.
    """
    if array.dtype != port.dtype:
        raise error(
            f"{description} must be {port}, got dtype {array.dtype}",
            where=where,
            hint=f"convert it with .astype({str(port.dtype)!r})",
        )
    fits = len(array.shape) == len(port.shape) and all(
        size in (None, length) for size, length in zip(port.shape, array.shape, strict=True)
    )
    if not fits:
        raise error(f"{description} must be {port}, got shape {list(array.shape)}", where=where)


def common_dtype(params: Mapping[str, Array], where: str, storage_dtype: str | None = None) -> str:
    """Returns the compute dtype of parameters that share one dtype, as the compiler names it.

    A rule that stores its parameters in 16 bits (``storage_dtype``) computes in f32.

    Raises:
        SessionError: There are no parameters, or they are not arrays of one supported dtype.
    """
    compute = {np.dtype(np.float32): "f32", np.dtype(np.float64): "f64"}
    if storage_dtype is not None:
        compute = {DType(storage_dtype).numpy: "f32"}
    if not isinstance(params, Mapping):
        raise SessionError(
            f"parameters must be a mapping of names to arrays, got {type(params).__name__}",
            where=where,
            hint='give {"w": array}',
        )
    if not params:
        raise SessionError("an optimizer needs at least one parameter, got none", where=where)
    for name, array in params.items():
        if not isinstance(array, np.ndarray) or array.dtype not in compute:
            is_array = isinstance(array, np.ndarray)
            got = f"dtype {array.dtype}" if is_array else f"a {type(array).__name__}"
            raise SessionError(
                f"parameter {name!r} must be a NumPy array of {' or '.join(map(str, compute))}, "
                f"got {got}",
                where=where,
                hint=_conversion(array, storage_dtype),
            )
    dtypes = {array.dtype for array in params.values()}
    if len(dtypes) > 1:
        listing = ", ".join(f"{name!r} {array.dtype}" for name, array in params.items())
        raise SessionError(
            f"the parameters must share one dtype, got {listing}",
            where=where,
            hint="use one session per dtype",
        )
    return compute[dtypes.pop()]


def _conversion(array: object, storage_dtype: str | None) -> str:
    """How to convert a parameter to the dtype that its rule takes."""
    if storage_dtype is not None:
        return f"convert it with .astype({str(DType(storage_dtype).numpy)!r})"
    advice = "convert it with numpy.asarray(…, numpy.float32)"
    for dtype in (DType.BF16, DType.F16):
        if isinstance(array, np.ndarray) and array.dtype == dtype.numpy:
            return f"{advice}, or wrap the rule: transforms.master_weights(rule, {str(dtype)!r})"
    return advice


def checked_tensors(
    grads: Mapping[str, Array | None],
    inputs: Mapping[str, Mapping[str, Array | None]],
    ports: StepPorts,
    where: str,
) -> dict[str, Array | None]:
    """Returns the gradients and other tensors of a step by input name.

    A parameter whose gradient is None needs no other tensors.

    Raises:
        SessionError: A tensor is missing, unknown or does not fit.
    """
    check_names(grads, ports.params, "gradient", where)
    tensors: dict[str, Array | None] = {}
    for name, port in ports.params.items():
        description = f"the gradient of {name!r}"
        tensors[naming.grad(name)] = _checked_tensor(grads[name], port, description, where)
    check_names(inputs, ports.inputs, "input", where)
    for label, by_name in ports.inputs.items():
        check_names(inputs[label], by_name, f"parameter of input {label!r}", where)
        for name, port in by_name.items():
            array = inputs[label][name]
            if array is None and grads[name] is not None:
                raise SessionError(
                    f"the {label} of {name!r} is None, but its gradient is not",
                    where=where,
                    hint="give both, or None for both",
                )
            tensors[port.name] = _checked_tensor(array, port, f"the {label} of {name!r}", where)
    return tensors


def _checked_tensor(value: object, port: Port, description: str, where: str) -> Array | None:
    if value is None:
        return None
    array = check_array(value, port, description, where)
    # onnxruntime is given the address and the shape, not the strides.
    if not (array.flags.c_contiguous and array.flags.aligned):
        raise SessionError(
            f"{description} must be C-contiguous, got strides {list(array.strides)}",
            where=where,
            hint="pass numpy.ascontiguousarray(…)",
        )
    return array


def hyper_values(
    hyper: Mapping[str, float],
    required_ports: Mapping[str, Port],
    optional: Mapping[str, Port],
    where: str,
) -> dict[str, Array]:
    """Returns the hyperparameters as arrays of the dtypes of their inputs.

    Raises:
        SessionError: A hyperparameter is missing, unknown or not a number of that kind.
    """
    ports = {**required_ports, **optional}
    expected = {**required_ports, **{name: ports[name] for name in hyper if name in ports}}
    check_names(hyper, expected, "hyperparameter", where)
    return {name: _hyper_value(value, ports[name], where) for name, value in hyper.items()}


def _hyper_value(value: float, port: Port, where: str) -> Array:
    """A hyperparameter in the dtype of its input; an integer input takes only integers."""
    array = np.asarray(value)
    # numpy's kinds: signed, unsigned, float. A float for an integer input would be cut off.
    kinds = "iuf" if port.dtype.kind == "f" else "iu"
    if array.ndim or array.dtype.kind not in kinds:
        raise SessionError(
            f"hyperparameter {port.name!r} must be a number ({port}), got {value!r}", where=where
        )
    return array.astype(port.dtype)


def checked_step(step: object, port: Port, where: str) -> Array:
    """Returns the number of steps of a saved state in the dtype of its input.

    Raises:
        StateError: It is not an integer from 0 to ``MAX_STEP``, or to the last one of the dtype.
    """
    # astype would wrap a larger step around without an error.
    top = last_step(port.dtype)
    got = int(step) if isinstance(step, np.integer) else step
    # True is an int, and 3.0 is not one.
    if isinstance(step, bool) or not isinstance(step, int | np.integer) or not 0 <= step <= top:
        raise StateError(f"'step' must be an integer in 0..{top}, got {got!r}", where=where)
    return np.asarray(step, port.dtype)


def checked_state(
    state_dict: Mapping[str, object], ports: StepPorts, where: str
) -> dict[str, Array]:
    """Returns the arrays of a state dict by input name.

    The step is at most ``MAX_STEP``; graphs are not compiled for larger steps.

    Raises:
        StateError: The state dict belongs to another rule or to other parameters.
    """
    keys = dict.fromkeys((*_STATE_KEYS, *(("shared",) if ports.shared else ())))
    check_names(state_dict, keys, "key", f"state dict for {where}", StateError)
    if state_dict["rule"] != ports.rule:
        raise StateError(
            f"the state dict belongs to rule {state_dict['rule']!r}",
            where=where,
            hint="load it into a session of that rule",
        )
    arrays = {STEP: checked_step(state_dict["step"], ports.step, where)}

    def read(values: Any, expected: Mapping[str, Port], kind: str, of: str) -> None:
        check_names(values, expected, kind, where, StateError)
        for name, port in expected.items():
            arrays[port.name] = check_array(values[name], port, of.format(name), where, StateError)

    read(state_dict["params"], ports.params, "parameter", "parameter {!r}")
    states: Any = state_dict["states"]
    check_names(states, ports.states, "state", where, StateError)
    for state, by_param in ports.states.items():
        of_state = f"state {state!r} of {{!r}}"
        read(states[state], by_param, f"parameter of state {state!r}", of_state)
    read(state_dict.get("shared", {}), ports.shared, "state of the model", "model state {!r}")
    return arrays

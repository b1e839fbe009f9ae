"""The start of an optimizer session: what parameters it takes, and its first states."""

from __future__ import annotations

from collections.abc import Mapping

import numpy as np

from closedform.errors import SessionError
from closedform.ir.types import DType
from closedform.runtime.binding import run_into
from closedform.runtime.buffers import Array, fixed_shape
from closedform.runtime.layout import Layout
from closedform.runtime.onnx_session import OnnxSession


def common_dtype(params: Mapping[str, Array], where: str, stored: str | None = None) -> str:
    """The dtype that parameters of one dtype are computed in, in the words of the compiler.

    A rule that stores its parameters in 16 bits computes in f32.
    """
    words = {np.dtype(np.float32): "f32", np.dtype(np.float64): "f64"}
    if stored is not None:
        words = {DType(stored).numpy: "f32"}
    if not isinstance(params, Mapping):
        raise SessionError(
            f"parameters must be a mapping of names to arrays, got {type(params).__name__}",
            where=where,
            hint='give {"w": array}',
        )
    if not params:
        raise SessionError("an optimizer needs parameters, got none", where=where)
    for name, array in params.items():
        if not isinstance(array, np.ndarray) or array.dtype not in words:
            is_array = isinstance(array, np.ndarray)
            got = f"dtype {array.dtype}" if is_array else f"a {type(array).__name__}"
            raise SessionError(
                f"parameter {name!r} must be a NumPy array of {' or '.join(map(str, words))}, "
                f"got {got}",
                where=where,
                hint=_advice(array, stored),
            )
    dtypes = {array.dtype for array in params.values()}
    if len(dtypes) > 1:
        listed = ", ".join(f"{name!r} {array.dtype}" for name, array in params.items())
        raise SessionError(
            f"the parameters must share one dtype, got {listed}",
            where=where,
            hint="use a session for each dtype",
        )
    return words[dtypes.pop()]


def _advice(array: object, stored: str | None) -> str:
    """How a parameter comes to have the dtype that its rule is for."""
    if stored is not None:
        return f"convert it with .astype({str(DType(stored).numpy)!r})"
    advice = "convert it with numpy.asarray(…, numpy.float32)"
    for word in (DType.BF16, DType.F16):
        if isinstance(array, np.ndarray) and array.dtype == word.numpy:
            return f"{advice}, or wrap the rule: transforms.master_weights(rule, {str(word)!r})"
    return advice


def fill_states(init: OnnxSession, layout: Layout, arrays: Mapping[str, Array], where: str) -> None:
    """Runs the model of the start on the parameters and writes the clock and the states."""
    for name in init.inputs:
        if name not in arrays or not name.startswith("param."):
            raise SessionError(
                f"the init model has an input {name!r} that is no parameter of the step model",
                where=where,
                hint="export both models of the rule again, together",
            )
    wanted = [port for port in layout.carried if not port.name.startswith("param.")]
    for port in wanted:
        start = init.outputs.get(port.name)
        if start is None or start.shape != port.shape or start.dtype.kind != port.dtype.kind:
            got = "none" if start is None else str(start)
            raise SessionError(
                f"output {port.name!r} of the init model must be {port}, got {got}",
                where=where,
                hint="export both models of the rule again, together",
            )
    starts = {
        port.name: np.empty(fixed_shape(port), init.outputs[port.name].dtype) for port in wanted
    }
    run_into(init, {name: arrays[name] for name in init.inputs}, starts)
    for name, value in starts.items():
        np.copyto(arrays[name], value, casting="same_kind")

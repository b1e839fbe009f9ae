"""Models in onnxruntime: loading, options, and what a model says about its inputs and outputs."""

from __future__ import annotations

import os
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np
import onnxruntime as ort
from onnx import ModelProto

from closedform.errors import SessionError
from closedform.exporters.onnx_model import serialize, to_model
from closedform.ir.graph import Graph
from closedform.ir.types import DType

ModelSource = str | os.PathLike[str] | bytes | ModelProto | Graph

CPU = ("CPUExecutionProvider",)

_DTYPES: dict[str, type[np.generic]] = {
    "tensor(bool)": np.bool_,
    "tensor(int32)": np.int32,
    "tensor(int64)": np.int64,
    "tensor(float16)": np.float16,
    "tensor(bfloat16)": DType.BF16.numpy.type,
    "tensor(float)": np.float32,
    "tensor(double)": np.float64,
}


@dataclass(frozen=True, slots=True)
class Port:
    """An input or output of a model: its name, dtype and shape; None is a size that is free."""

    name: str
    dtype: np.dtype[Any]
    shape: tuple[int | None, ...]

    def __str__(self) -> str:
        sizes = ",".join("n" if size is None else str(size) for size in self.shape)
        return f"{self.dtype}[{sizes}]"


@dataclass(frozen=True, slots=True)
class OnnxSession:
    """A model that is ready to run.

    Attributes:
        raw: The session of onnxruntime.
        name: Name of the graph.
        inputs: Inputs that every run must give, by name.
        optional: Inputs with a default, by name.
        outputs: Outputs by name.
    """

    raw: Any
    name: str
    inputs: dict[str, Port]
    optional: dict[str, Port]
    outputs: dict[str, Port]


def open_session(
    source: ModelSource,
    *,
    providers: Sequence[str] | None = None,
    threads: int | None = None,
    is_optimized: bool = True,
) -> OnnxSession:
    """Returns a session for a model.

    Args:
        source: A path, the bytes of a model, a ModelProto, or a graph, which is exported first.
        providers: Execution providers of onnxruntime in order of preference; the CPU if None.
        threads: Threads within an op; onnxruntime's own choice if None.
        is_optimized: Whether onnxruntime may fold and fuse (its "basic" level, which keeps values).

    Raises:
        SessionError: The file does not exist, onnxruntime refuses the model, a provider is
            missing, or an input or output has a dtype that no array has.
    """
    where, model = _model_bytes(source)
    chosen = list(CPU if providers is None else providers)
    available = ort.get_available_providers()
    for provider in chosen:
        if provider not in available:
            raise SessionError(
                f"onnxruntime has no provider {provider!r} here",
                where=where,
                hint=f"it has {', '.join(available)}",
            )
    options = ort.SessionOptions()
    options.log_severity_level = 4  # what goes wrong is raised
    options.intra_op_num_threads = 0 if threads is None else checked_threads(threads, where)
    level = ort.GraphOptimizationLevel
    options.graph_optimization_level = (
        level.ORT_ENABLE_BASIC if is_optimized else level.ORT_DISABLE_ALL
    )
    try:
        raw = ort.InferenceSession(model, options, providers=chosen)
    except Exception as error:  # onnxruntime's errors share no other base
        raise SessionError(
            f"onnxruntime refuses the model: {error}",
            where=where,
            hint="export it again, with opset=21 or lower",
        ) from error
    return OnnxSession(
        raw=raw,
        name=str(raw.get_modelmeta().graph_name),
        inputs=_ports(raw.get_inputs(), where),
        optional=_ports(raw.get_overridable_initializers(), where),
        outputs=_ports(raw.get_outputs(), where),
    )


def checked_threads(threads: int, where: str = "") -> int:
    """Returns the number of threads, or raises SessionError if it is none."""
    if isinstance(threads, bool) or not isinstance(threads, int) or threads < 1:
        raise SessionError(f"threads must be at least 1, got {threads!r}", where=where)
    return threads


def _model_bytes(source: ModelSource) -> tuple[str, bytes]:
    """The bytes of a model, and where they come from as errors say it."""
    if isinstance(source, bytes):
        return "model in memory", source
    if isinstance(source, ModelProto):
        return f"model {source.graph.name!r}", serialize(source)
    if isinstance(source, Graph):
        return f"graph {source.name!r}", serialize(to_model(source))
    if not isinstance(source, str | os.PathLike):
        raise SessionError(
            f"a model is a path, bytes, a ModelProto or a Graph, got {type(source).__name__}"
        )
    path = Path(source)
    where = f"file {str(path)!r}"
    try:
        return where, path.read_bytes()
    except OSError as error:
        reason = error.strerror or str(error)
        raise SessionError(f"cannot read the model: {reason}", where=where) from error


def _ports(arguments: Sequence[Any], where: str) -> dict[str, Port]:
    ports: dict[str, Port] = {}
    for argument in arguments:
        if argument.type not in _DTYPES:
            raise SessionError(
                f"{argument.name!r} is a {argument.type}, for which NumPy has no dtype",
                where=where,
                hint="cast it to f32 inside the graph",
            )
        shape = tuple(size if isinstance(size, int) else None for size in argument.shape)
        ports[argument.name] = Port(argument.name, np.dtype(_DTYPES[argument.type]), shape)
    return ports

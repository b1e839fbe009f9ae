"""Models in onnxruntime: loading, the ports of a model, and runs on memory owned by the caller."""

from __future__ import annotations

import ctypes
import math
import os
import warnings
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import numpy as np
import onnxruntime as ort
from onnx import ModelProto

from closedform.errors import SessionError, ThreadsWarning
from closedform.exporters.onnx_model import serialize, to_model
from closedform.files import check_regular
from closedform.ir.graph import Array, Graph
from closedform.ir.types import ELEMENT_TYPES, DType
from closedform.runtime.shared_places import node_with_shared_places

ModelSource = str | os.PathLike[str] | bytes | ModelProto | Graph

CPU = ("CPUExecutionProvider",)

_DTYPES = {f"tensor({row.runtime})": row.numpy for row in ELEMENT_TYPES}

_ELEMENT_TYPES = {DType.BF16.numpy: DType.BF16.row.number}
"""The element type that onnxruntime expects for a dtype that NumPy itself does not have."""


_NOT_A_MODEL = ("INVALID_PROTOBUF", "No graph was found")
"""Parts of onnxruntime's errors about bytes that are not a model."""


@dataclass(frozen=True, slots=True)
class Port:
    """An input or output of a model: name, dtype and shape; a size of None is dynamic.

    ``symbols`` holds the names of dynamic sizes, by axis, and None for the others.
    """

    name: str
    dtype: np.dtype[Any]
    shape: tuple[int | None, ...]
    symbols: tuple[str | None, ...] = field(default=(), compare=False)

    def __str__(self) -> str:
        sizes = ",".join("n" if size is None else str(size) for size in self.shape)
        return f"{self.dtype}[{sizes}]"


@dataclass(frozen=True, slots=True)
class OnnxSession:
    """A model that is ready to run.

    Attributes:
        raw: The ``onnxruntime.InferenceSession``.
        name: The name of the graph.
        inputs: The required inputs by name.
        optional: The inputs that have a default, by name.
        outputs: The outputs by name.
    """

    raw: Any
    name: str
    inputs: dict[str, Port]
    optional: dict[str, Port]
    outputs: dict[str, Port]

    @property
    def metadata(self) -> dict[str, str]:
        """The metadata of the file."""
        return dict(self.raw.get_modelmeta().custom_metadata_map)


def open_session(
    source: ModelSource,
    *,
    providers: Sequence[str] | None = None,
    threads: int | None = None,
    is_optimized: bool = True,
    has_memory_pattern: bool = True,
    is_resident: bool = True,
) -> OnnxSession:
    """Returns a session for a model.

    Args:
        source: A path, a serialized model, a ModelProto, or a Graph, which is exported first.
        providers: Execution providers of onnxruntime in order of preference; the CPU if None.
        threads: Threads within one operator; chosen by onnxruntime if None. One, with a warning,
            for a model whose values depend on the threads on a CPU.
        is_optimized: Whether onnxruntime may fold and fuse nodes (its "basic" level, which does not
            change values).
        has_memory_pattern: Whether onnxruntime allocates the memory of all runs after the first as
            one block, in addition to that of the first run.
        is_resident: Whether onnxruntime keeps memory between runs, and its threads wait actively
            for the next run; without, it takes no memory or time between its runs.

    Raises:
        SessionError: The file does not exist, onnxruntime cannot load the model, a provider is not
            available, or an input or output has a dtype that NumPy does not have.
    """
    where, model = _model_bytes(source)
    provider_names = list(CPU if providers is None else providers)
    available = ort.get_available_providers()
    for provider in provider_names:
        if provider not in available:
            raise SessionError(
                f"execution provider {provider!r} is not available",
                where=where,
                hint=f"available are {', '.join(available)}",
            )
    options = ort.SessionOptions()
    options.log_severity_level = 4  # errors are raised, not logged
    options.intra_op_num_threads = _threads_for(model, provider_names, threads, where)
    options.enable_mem_pattern = has_memory_pattern
    if not is_resident:
        options.enable_cpu_mem_arena = False
        options.add_session_config_entry("session.intra_op.allow_spinning", "0")
    level = ort.GraphOptimizationLevel
    options.graph_optimization_level = (
        level.ORT_ENABLE_BASIC if is_optimized else level.ORT_DISABLE_ALL
    )
    try:
        raw = ort.InferenceSession(model, options, providers=provider_names)
    except Exception as error:  # onnxruntime's errors share no other base
        if any(sign in str(error) for sign in _NOT_A_MODEL):
            raise SessionError(
                "it is not an ONNX model", where=where, hint="to_onnx writes one, of any schedule"
            ) from error
        raise SessionError(
            f"onnxruntime cannot load the model: {error}",
            where=where,
            hint="export it again with opset=21 or lower",
        ) from error
    return OnnxSession(
        raw=raw,
        name=str(raw.get_modelmeta().graph_name),
        inputs=_ports(raw.get_inputs(), where),
        optional=_ports(raw.get_overridable_initializers(), where),
        outputs=_ports(raw.get_outputs(), where),
    )


def _threads_for(model: bytes, providers: Sequence[str], threads: int | None, where: str) -> int:
    """The number of threads for a model; 0 lets onnxruntime choose."""
    count = 0 if threads is None else checked_threads(threads, where)
    if count == 1 or providers[0] not in CPU:
        return count
    node = node_with_shared_places(model)
    if node is None:
        return count
    warnings.warn(
        f"the ScatterND of {node.output[0]!r} may add two rows to one place, which onnxruntime "
        f"does from several threads without a lock ({where}): it runs on one thread; export the "
        "model again, or write ScatterElements",
        ThreadsWarning,
        stacklevel=3,
    )
    return 1


def checked_threads(threads: int, where: str = "") -> int:
    """Returns the number of threads; raises SessionError if it is not a positive integer."""
    if isinstance(threads, bool) or not isinstance(threads, int) or threads < 1:
        raise SessionError(f"threads must be at least 1, got {threads!r}", where=where)
    return threads


def _model_bytes(source: ModelSource) -> tuple[str, bytes]:
    """The source as error messages name it, and the serialized model."""
    if isinstance(source, bytes):
        return "model in memory", source
    if isinstance(source, ModelProto):
        return f"model {source.graph.name!r}", serialize(source)
    if isinstance(source, Graph):
        return f"graph {source.name!r}", serialize(to_model(source))
    if not isinstance(source, str | os.PathLike):
        raise SessionError(
            f"expected a path, bytes, a ModelProto or a Graph, got {type(source).__name__}"
        )
    path = Path(source)
    where = f"file {str(path)!r}"
    check_regular(path, SessionError)
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
                f"{argument.name!r} has type {argument.type}, which has no NumPy dtype",
                where=where,
                hint="cast it to f32 inside the graph",
            )
        shape = tuple(size if isinstance(size, int) else None for size in argument.shape)
        symbols = tuple(size if isinstance(size, str) else None for size in argument.shape)
        ports[argument.name] = Port(argument.name, _DTYPES[argument.type], shape, symbols)
    return ports


class SessionBinding:
    """A session bound to the arrays that its runs read and write.

    Args:
        session: The model.
        inputs: The arrays that every run reads in place, by input name.
        outputs: The arrays that every run writes, by output name.
        allocated: The outputs that every run allocates, such as those with free sizes.
        values: Inputs that are values of onnxruntime, as ``take_allocated`` returns them.

    onnxruntime stores addresses, not references; the binding keeps the arrays alive.
    """

    def __init__(
        self,
        session: OnnxSession,
        inputs: Mapping[str, Array],
        outputs: Mapping[str, Array],
        allocated: Sequence[str] = (),
        values: Mapping[str, Any] | None = None,
    ) -> None:
        self._raw = session.raw
        self._values = values or {}
        self._inputs, self._outputs, self._allocated = inputs, outputs, tuple(allocated)
        self._bind()

    def _bind(self) -> None:
        self._binding = self._raw.io_binding()
        for name, array in self._inputs.items():
            _bind_array(self._binding.bind_input, name, array)
        for name, value in self._values.items():
            self._binding.bind_ortvalue_input(name, value)
        for name, array in self._outputs.items():
            _bind_array(self._binding.bind_output, name, array)
        self._bind_allocated()
        # The address and shape of each other input at its last run: an array at the same address
        # need not be bound again, since an input has one dtype.
        self._bound: dict[str, tuple[int, tuple[int, ...]]] = {}

    def run(self, feeds: Mapping[str, Array]) -> None:
        """Runs the model.

        Args:
            feeds: All other inputs by name, contiguous; those with a default may be omitted.
        """
        if not self._bound.keys() <= feeds.keys():
            self._bind()
        for name, array in feeds.items():
            place = array.ctypes.data, array.shape
            if self._bound.get(name) != place:
                _bind_array(self._binding.bind_input, name, array)
                self._bound[name] = place
        self.repeat()

    def repeat(self) -> None:
        """Runs the model on the arrays of the last run."""
        self._raw.run_with_iobinding(self._binding)

    def _bind_allocated(self) -> None:
        # A second run would write into the values of the first, and fail for other sizes.
        for name in self._allocated:
            self._binding.bind_output(name, "cpu")

    def take_allocated(self) -> dict[str, Any]:
        """Returns the outputs that the last run allocated, which the binding no longer holds."""
        if not self._allocated:
            return {}
        # In onnxruntime 1.29 the values of a binding are references that the next bind_output
        # empties; those of another vector share their memory.
        bound = self._binding.get_outputs_as_ortvaluevector()
        outputs = type(bound)()
        for value in bound:
            outputs.push_back(value)
        values = [ort.OrtValue(value) for value in outputs][len(self._outputs) :]
        self._bind_allocated()
        return dict(zip(self._allocated, values, strict=True))


def run_into(
    session: OnnxSession, feeds: Mapping[str, Array], outputs: Mapping[str, Array]
) -> None:
    """Runs a model on contiguous arrays by input name and writes into arrays by output name.

    Unlike ``onnxruntime.InferenceSession.run`` it accepts bfloat16.
    """
    SessionBinding(session, feeds, outputs).run({})


def run_on(session: OnnxSession, feeds: Mapping[str, Array]) -> list[Array]:
    """Returns the outputs, which may have dynamic sizes, for inputs as in ``run_into``."""
    binding = session.raw.io_binding()
    for name, array in feeds.items():
        _bind_array(binding.bind_input, name, array)
    # An output of onnxruntime's own is copied for its caller: twice the memory for a moment.
    outputs: dict[str, Array | None] = {
        name: None if None in port.shape else np.empty([n or 0 for n in port.shape], port.dtype)
        for name, port in session.outputs.items()
    }
    for name, result in outputs.items():
        if result is None:
            binding.bind_output(name, "cpu")
        else:
            _bind_array(binding.bind_output, name, result)
    session.raw.run_with_iobinding(binding)
    values = zip(binding.get_outputs(), session.outputs.values(), outputs.values(), strict=True)
    return [_array_of(value, port) if result is None else result for value, port, result in values]


def _array_of(value: Any, port: Port) -> Array:
    """A copy of a tensor of onnxruntime, which itself makes no array of bfloat16."""
    if port.dtype not in _ELEMENT_TYPES:
        array: Array = value.numpy()
        return array
    shape = tuple(value.shape())
    size = math.prod(shape) * port.dtype.itemsize
    return np.frombuffer(bytearray(ctypes.string_at(value.data_ptr(), size)), port.dtype).reshape(
        shape
    )


def _bind_array(bind: Callable[..., None], name: str, array: Array) -> None:
    # onnxruntime gets an address, and reads the elements in the order of C.
    if not array.flags.c_contiguous:
        raise SessionError(
            f"the array of {name!r} must be C-contiguous, got strides {list(array.strides)}",
            hint="pass numpy.ascontiguousarray(…)",
        )
    element = _ELEMENT_TYPES.get(array.dtype, array.dtype)
    bind(name, "cpu", 0, element, array.shape, array.ctypes.data)

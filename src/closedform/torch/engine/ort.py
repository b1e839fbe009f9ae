"""Kernels of onnxruntime, bound to the memory of torch's tensors."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any

import torch
from torch import Tensor

from closedform.errors import ArgumentError, SessionError
from closedform.ir.graph import Graph
from closedform.language import UpdateRule
from closedform.runtime.onnx_session import OnnxSession, open_session
from closedform.torch.engine.kernels import GRAPH_DTYPES, NamedArguments, step_graph

_PROVIDERS = {"cpu": "CPUExecutionProvider", "cuda": "CUDAExecutionProvider"}
_ORT_DTYPES = {torch.float32: "float32", torch.float64: "float64", torch.int64: "int64"}


@dataclass(slots=True)
class OrtKernel:
    """A step as a session of onnxruntime.

    Inputs are read in place. onnxruntime does not specify the order of its writes, so results go
    to buffers of the kernel first, and are then copied to the tensors.
    """

    raw: Any
    buffers: dict[str, Tensor]
    bindings: dict[int, tuple[Any, list[int]]] = field(default_factory=dict)

    def run(self, arguments: NamedArguments) -> None:
        """Performs the step."""
        reads = {name: value.contiguous() for name, value in arguments.reads.items()}
        addresses = [value.data_ptr() for value in reads.values()]
        key = next(iter(arguments.writes.values()))[0].data_ptr()
        known = self.bindings.get(key)
        if known is None or known[1] != addresses:
            known = self._bound(reads), addresses
            self.bindings[key] = known
        device = arguments.reads["step"].device
        if device.type == "cuda":
            torch.cuda.current_stream(device).synchronize()
        self.raw.run_with_iobinding(known[0])
        known[0].synchronize_outputs()
        for name, targets in arguments.writes.items():
            for target in targets:
                target.copy_(self.buffers[name])

    def _bound(self, reads: Mapping[str, Tensor]) -> Any:
        binding = self.raw.io_binding()
        for name, value in reads.items():
            _bind(binding.bind_input, name, value)
        for name, value in self.buffers.items():
            _bind(binding.bind_output, name, value)
        return binding


def ort_kernel(
    rule: UpdateRule,
    params: Sequence[Tensor],
    arguments: NamedArguments,
    providers: Sequence[str] | None,
) -> OrtKernel:
    """Returns the kernel of a rule for parameters of these shapes and dtypes, in onnxruntime.

    Raises:
        SessionError: onnxruntime has no provider for the parameter's device, or not the requested
            one.
    """
    session = open_session(
        step_graph(rule, params), providers=_requested(params[0].device, providers)
    )
    return _kernel(session, rule.name, arguments, providers)


def graph_runner(graph: Graph, providers: Sequence[str] | None) -> Callable[[NamedArguments], None]:
    """Returns what runs a graph in onnxruntime, on other tensors each time."""
    kernels: list[OrtKernel] = []

    def run(arguments: NamedArguments) -> None:
        if not kernels:
            wanted = _requested(arguments.reads["step"].device, providers)
            session = open_session(graph, providers=wanted)
            kernels.append(_kernel(session, graph.name, arguments, providers))
        kernels[0].run(arguments)
        kernels[0].bindings.clear()  # each stage of a step has tensors of its own

    return run


def _kernel(
    session: OnnxSession, rule: str, arguments: NamedArguments, providers: Sequence[str] | None
) -> OrtKernel:
    """The kernel of a session, for tensors like these.

    Raises:
        SessionError: The session does not use the first provider that was requested.
    """
    first = _requested(arguments.reads["step"].device, providers)[0]
    if session.raw.get_providers()[0] != first:
        raise SessionError(
            f"onnxruntime fell back to {session.raw.get_providers()[0]}, expected {first}",
            where=f"rule {rule!r}",
        )
    buffers = {
        name: torch.empty_like(targets[0], memory_format=torch.contiguous_format)
        for name, targets in arguments.writes.items()
    }
    return OrtKernel(session.raw, buffers)


def _requested(device: torch.device, providers: Sequence[str] | None) -> list[str]:
    """The providers given, or that of a device."""
    return [_PROVIDERS[device.type]] if providers is None else list(providers)


def check_ort_support(param: Tensor, providers: Sequence[str] | None, where: str) -> None:
    """Raises ArgumentError for a parameter whose dtype or device onnxruntime does not support."""
    if param.dtype not in GRAPH_DTYPES:
        raise ArgumentError(
            f"onnxruntime steps parameters of float32 and float64, got {param.dtype}",
            where=where,
            hint='use backend="eager"',
        )
    wanted = _PROVIDERS.get(param.device.type)
    if wanted is None or (providers is not None and wanted not in providers):
        listed = list(_PROVIDERS.values()) if providers is None else list(providers)
        raise ArgumentError(
            f"none of the providers {listed} reads the memory of device {param.device}",
            where=where,
            hint='use backend="eager", or move the parameter',
        )


def _bind(bind: Any, name: str, value: Tensor) -> None:
    """Binds the memory of a tensor; an empty tensor has none, and any address is valid."""
    address = value.data_ptr() or _ANY_ADDRESS.data_ptr()
    device = value.device
    bind(name, device.type, device.index or 0, _ORT_DTYPES[value.dtype], value.shape, address)


_ANY_ADDRESS = torch.zeros(1)

"""One step of one parameter, in three engines: torch, torch.compile, onnxruntime.

A kernel is made for a rule, a shape and a dtype. It reads the parameter, its gradient and its
states where they lie, and writes the results into the same tensors.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from functools import partial
from typing import Any

import torch
from torch import Tensor

from closedform.compiler import compile_init, compile_step
from closedform.errors import ArgumentError, SessionError
from closedform.exporters.torch_module import GraphProgram, to_module
from closedform.language import UpdateRule
from closedform.runtime.onnx_session import open_session

BACKENDS = ("eager", "compile", "onnxruntime")
NAME = "p"
"""The name of the parameter in the graph of a kernel."""

COMPUTED = {
    torch.float64: torch.float64,
    torch.float32: torch.float32,
    torch.bfloat16: torch.float32,
    torch.float16: torch.float32,
}
"""The dtypes that parameters may have, and those that their steps are computed in."""

_WORDS = {torch.float32: "f32", torch.float64: "f64"}
_PROVIDERS = {"cpu": "CPUExecutionProvider", "cuda": "CUDAExecutionProvider"}
_ORT_DTYPES = {torch.float32: "float32", torch.float64: "float64", torch.int64: "int64"}


@dataclass(frozen=True, slots=True)
class Job:
    """What a kernel works on, as its graph names it.

    Attributes:
        reads: Each input by name: the step, hyperparameters, parameter, gradient and states.
        writes: Each output by name; all but hyperparameters and gradient are written in place.
    """

    reads: Mapping[str, Tensor]
    writes: Mapping[str, Tensor]


def make_job(
    step: Tensor,
    hypers: Mapping[str, Tensor],
    param: Tensor,
    grad: Tensor,
    states: Mapping[str, Tensor],
) -> Job:
    """Returns the job of one parameter."""
    carried = {"step": step, f"param.{NAME}": param}
    carried |= {f"state.{NAME}.{name}": value for name, value in states.items()}
    reads = {**carried, **hypers, f"grad.{NAME}": grad}
    return Job(reads, {f"next.{name}": value for name, value in carried.items()})


def initial_states(rule: UpdateRule, param: Tensor) -> dict[str, Tensor]:
    """Returns the states of a parameter before its first step, on its device."""
    dtype = COMPUTED[param.dtype]
    graph = compile_init(rule, {NAME: tuple(param.shape)}, dtype=_WORDS[dtype])
    program = to_module(graph)
    made = program(*(param.detach().to(dtype) for _ in program.input_names))
    values = made if isinstance(made, tuple) else (made,)
    prefix = f"state.{NAME}."
    return {
        name.removeprefix(prefix): value.to(param.device)
        for name, value in zip(program.output_names, values, strict=True)
        if name.startswith(prefix)
    }


@dataclass(slots=True)
class TorchKernel:
    """A step as a torch program.

    Attributes:
        program: The step graph in torch.
        computed: The dtype that it computes in.
    """

    program: GraphProgram
    computed: torch.dtype

    def call(self, job: Job) -> tuple[GraphProgram, list[Tensor], list[Tensor]]:
        """Returns the program, what it reads and what it writes, in its order."""
        reads = [self._read(name, job.reads[name]) for name in self.program.input_names]
        return self.program, reads, [job.writes[name] for name in self.program.output_names]

    def _read(self, name: str, value: Tensor) -> Tensor:
        return value.to(self.computed) if name.startswith(("param.", "grad.")) else value


@dataclass(slots=True)
class OnnxKernel:
    """A step as a session of onnxruntime, bound to the memory of torch's tensors.

    Inputs are read where they lie. onnxruntime does not say in which order it writes, so results
    go to memory of the kernel's own first, and then into the tensors themselves.
    """

    raw: Any
    scratch: dict[str, Tensor]
    bindings: dict[int, tuple[Any, list[int]]] = field(default_factory=dict)

    def run(self, job: Job) -> None:
        """Does the step of one parameter."""
        reads = {name: value.contiguous() for name, value in job.reads.items()}
        addresses = [value.data_ptr() for value in reads.values()]
        key = id(job.reads[f"param.{NAME}"])
        known = self.bindings.get(key)
        if known is None or known[1] != addresses:
            known = self._bound(reads), addresses
            self.bindings[key] = known
        device = job.reads["step"].device
        if device.type == "cuda":
            torch.cuda.current_stream(device).synchronize()
        self.raw.run_with_iobinding(known[0])
        known[0].synchronize_outputs()
        for name, target in job.writes.items():
            target.copy_(self.scratch[name])

    def _bound(self, reads: Mapping[str, Tensor]) -> Any:
        binding = self.raw.io_binding()
        for name, value in reads.items():
            _bind(binding.bind_input, name, value)
        for name, value in self.scratch.items():
            _bind(binding.bind_output, name, value)
        return binding


def torch_kernel(rule: UpdateRule, param: Tensor) -> TorchKernel:
    """Returns the kernel of a rule for parameters like this one, in torch."""
    dtype = COMPUTED[param.dtype]
    graph = compile_step(rule, {NAME: tuple(param.shape)}, dtype=_WORDS[dtype])
    return TorchKernel(to_module(graph), dtype)


def onnx_kernel(
    rule: UpdateRule, param: Tensor, writes: Mapping[str, Tensor], providers: Sequence[str] | None
) -> OnnxKernel:
    """Returns the kernel of a rule for parameters like this one, in onnxruntime.

    Raises:
        SessionError: onnxruntime has no provider for the parameter's device, or not the one that
            is asked for.
    """
    graph = compile_step(rule, {NAME: tuple(param.shape)}, dtype=_WORDS[param.dtype])
    wanted = [_PROVIDERS[param.device.type]] if providers is None else list(providers)
    session = open_session(graph, providers=wanted)
    if session.raw.get_providers()[0] != wanted[0]:
        raise SessionError(
            f"onnxruntime fell back to {session.raw.get_providers()[0]}, expected {wanted[0]}",
            where=f"rule {rule.name!r}",
        )
    scratch = {name: torch.empty_like(value) for name, value in writes.items()}
    return OnnxKernel(session.raw, {k: v.contiguous() for k, v in scratch.items()})


def check_onnx(param: Tensor, providers: Sequence[str] | None, where: str) -> None:
    """Raises ArgumentError for a parameter whose step onnxruntime cannot do where it lies."""
    if param.dtype not in _WORDS:
        raise ArgumentError(
            f"onnxruntime steps parameters of float32 and float64, got {param.dtype}",
            where=where,
            hint='take backend="eager"',
        )
    wanted = _PROVIDERS.get(param.device.type)
    if wanted is None or (providers is not None and wanted not in providers):
        listed = list(_PROVIDERS.values()) if providers is None else list(providers)
        raise ArgumentError(
            f"no provider of {listed} reads the memory of device {param.device}",
            where=where,
            hint='take backend="eager", or move the parameter',
        )


def run_torch(calls: Sequence[tuple[Any, list[Tensor], list[Tensor]]]) -> None:
    """Does the steps of several parameters; this is what torch.compile gets."""
    for program, reads, writes in calls:
        results = program(*reads)
        for target, result in zip(writes, results, strict=True):
            target.copy_(result)


compiled = partial(torch.compile, run_torch, fullgraph=True, dynamic=False)
"""Makes the compiled form of ``run_torch``."""


def _bind(bind: Any, name: str, value: Tensor) -> None:
    """Binds memory; a tensor without elements has none, and any address will do."""
    address = value.data_ptr() or _NOTHING.data_ptr()
    device = value.device
    bind(name, device.type, device.index or 0, _ORT_DTYPES[value.dtype], value.shape, address)


_NOTHING = torch.zeros(1)

"""One step of one parameter, in three engines: torch, torch.compile, onnxruntime.

A kernel is made for a rule, a shape and a dtype. It reads the parameter, its gradient and its
states where they lie, and writes the results into the same tensors.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any

import sympy as sp
import torch
from torch import Tensor

from closedform.compiler import compile_init, compile_step
from closedform.errors import ArgumentError, SessionError
from closedform.exporters.torch_module import GraphProgram, to_module
from closedform.ir.naming import GRAD, NEXT, PARAM, SHARED
from closedform.language import UpdateRule
from closedform.language.model import GlobalSum
from closedform.options import GraphOptions, ModelSpec
from closedform.runtime.onnx_session import OnnxSession, open_session
from closedform.torch.distributed.shards import full_states, is_spread, local, spread_like
from closedform.torch.engine.bound_program import Call

BACKENDS = ("eager", "compile", "onnxruntime")
NAME = "p"
"""The name of a parameter in the graph of a kernel, before its number."""

"""What the names of states of the whole model begin with."""

COMPUTED = {
    torch.float64: torch.float64,
    torch.float32: torch.float32,
    torch.bfloat16: torch.float32,
    torch.float16: torch.float32,
}
"""The dtypes that parameters may have, and those that their steps are computed in."""

WORDS = {torch.float32: "f32", torch.float64: "f64"}
"""The dtypes that are computed in, as graphs name them."""

_PROVIDERS = {"cpu": "CPUExecutionProvider", "cuda": "CUDAExecutionProvider"}
_ORT_DTYPES = {torch.float32: "float32", torch.float64: "float64", torch.int64: "int64"}


@dataclass(frozen=True, slots=True)
class Job:
    """What a kernel works on, as its graph names it.

    Attributes:
        reads: Each input by name: the step, hyperparameters, parameters, gradients and states.
        writes: Each output by name, and where it goes: the tensors that were read; a number of the
            whole model goes to every parameter.
    """

    reads: Mapping[str, Tensor]
    writes: Mapping[str, tuple[Tensor, ...]]

    def call(self, program: GraphProgram) -> Call:
        """Returns a program, what it reads and what it writes, in its order."""
        reads = [self.reads[name] for name in program.input_names]
        return Call(program, reads, [self.writes[name] for name in program.output_names])


"""A parameter and its gradient among the tensors of a member."""

Member = Mapping[str, Tensor]
"""A parameter, its gradient, and its states by name, the step among them."""


def is_joint(rule: UpdateRule) -> bool:
    """Returns whether all parameters step together: by sums over them, or states of the model."""
    has_sums = any(expr.atoms(GlobalSum) for expr in rule.all_expressions())
    return has_sums or bool(rule.shared) or rule.advances != sp.true


def make_job(hypers: Mapping[str, Tensor], members: Sequence[Member]) -> Job:
    """Returns the job of one parameter, or of several that step together."""
    reads = dict(hypers)
    writes: dict[str, tuple[Tensor, ...]] = {}
    for number, member in enumerate(members):
        for name, value in member.items():
            whole = _label(name, number)
            reads.setdefault(whole, value)
            if name != GRAD:
                writes[f"{NEXT}{whole}"] = (*writes.get(f"{NEXT}{whole}", ()), value)
    return Job(reads, writes)


def _label(name: str, number: int) -> str:
    """How a graph names a tensor of a member."""
    return f"{name}{NAME}{number}" if name in (PARAM, GRAD) else state_label(name, number)


def state_label(name: str, number: int = 0) -> str:
    """Returns how a graph names a state of a parameter: the clock and those of the model alike."""
    is_common = name == "step" or name.startswith(SHARED)
    return name if is_common else f"state.{NAME}{number}.{name}"


def initial_states(rule: UpdateRule, param: Tensor) -> dict[str, Tensor]:
    """Returns the states of a parameter before its first step, on its device.

    Those of the whole model are among them, named ``shared.<name>``: each parameter has its own
    copy, and all are written alike. Those of a spread parameter are spread as it is, or whole in
    every process where they have another shape.
    """
    dtype, part = COMPUTED[param.dtype], local(param.detach())
    fixed = rule.for_shape(tuple(param.shape))
    spec = ModelSpec(fixed, {NAME: tuple(part.shape)})
    graph = compile_init(spec, GraphOptions(dtype=WORDS[dtype]))
    program = to_module(graph)
    made = program(*(part.to(dtype) for _ in program.input_names))
    values = made if isinstance(made, tuple) else (made,)
    prefix = f"state.{NAME}."
    found = {
        name.removeprefix(prefix): value.to(part.device)
        for name, value in zip(program.output_names, values, strict=True)
        if name.startswith((prefix, SHARED))
    }
    if not is_spread(param):
        return found
    spread = {
        name: spread_like(value, param)
        for name, value in found.items()
        if name in fixed.states and fixed.states[name].shape == "param"
    }
    return {**found, **spread, **full_states(fixed, param, dtype)}


Slot = tuple[int, str]
"""The place of a member, or -1 for hyperparameters, and a name there."""


@dataclass(frozen=True, slots=True)
class TorchKernel:
    """A step as a torch program.

    Attributes:
        program: The step graph in torch.
        reads: Where each input comes from.
        writes: Where each output goes.
    """

    program: GraphProgram
    reads: tuple[Slot, ...]
    writes: tuple[tuple[Slot, ...], ...]

    def call(self, hypers: Mapping[str, Tensor], members: Sequence[Member]) -> Call:
        """Returns the program, what it reads and what it writes, in its order."""
        tables = [*members, hypers]
        reads = [tables[place][name] for place, name in self.reads]
        writes = [[tables[place][name] for place, name in group] for group in self.writes]
        return Call(self.program, reads, writes, hypers)


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
        key = next(iter(job.writes.values()))[0].data_ptr()
        known = self.bindings.get(key)
        if known is None or known[1] != addresses:
            known = self._bound(reads), addresses
            self.bindings[key] = known
        device = job.reads["step"].device
        if device.type == "cuda":
            torch.cuda.current_stream(device).synchronize()
        self.raw.run_with_iobinding(known[0])
        known[0].synchronize_outputs()
        for name, targets in job.writes.items():
            for target in targets:
                target.copy_(self.scratch[name])

    def _bound(self, reads: Mapping[str, Tensor]) -> Any:
        binding = self.raw.io_binding()
        for name, value in reads.items():
            _bind(binding.bind_input, name, value)
        for name, value in self.scratch.items():
            _bind(binding.bind_output, name, value)
        return binding


def torch_kernel(rule: UpdateRule, members: Sequence[Member]) -> TorchKernel:
    """Returns the kernel of a rule for parameters like these, in torch."""
    params = [member[PARAM] for member in members]
    dtype = COMPUTED[params[0].dtype]
    spec = ModelSpec(rule, _shapes(params))
    program = to_module(compile_step(spec, GraphOptions(dtype=WORDS[dtype])))
    slots: dict[str, tuple[Slot, ...]] = {}
    for place, member in enumerate(members):
        for name in member:
            label = _label(name, place)
            slots[label] = (*slots.get(label, ()), (place, name))
    reads = tuple(slots.get(name, ((-1, name),))[0] for name in program.input_names)
    writes = tuple(slots[name.removeprefix(NEXT)] for name in program.output_names)
    return TorchKernel(program, reads, writes)


def onnx_kernel(
    rule: UpdateRule, params: Sequence[Tensor], job: Job, providers: Sequence[str] | None
) -> OnnxKernel:
    """Returns the kernel of a rule for parameters like these, in onnxruntime.

    Raises:
        SessionError: onnxruntime has no provider for the parameter's device, or not the one that
            is asked for.
    """
    spec = ModelSpec(rule, _shapes(params))
    graph = compile_step(spec, GraphOptions(dtype=WORDS[params[0].dtype]))
    session = open_session(graph, providers=providers_for(params[0].device, providers))
    return bound_kernel(session, rule.name, job, providers)


def providers_for(device: torch.device, providers: Sequence[str] | None) -> list[str]:
    """Returns what onnxruntime is asked for: the providers given, or that of a device."""
    return [_PROVIDERS[device.type]] if providers is None else list(providers)


def bound_kernel(
    session: OnnxSession, rule: str, job: Job, providers: Sequence[str] | None
) -> OnnxKernel:
    """Returns the kernel of a session of a rule for jobs like this one.

    Raises:
        SessionError: The session has another provider than the first that is asked for.
    """
    first = providers_for(job.reads["step"].device, providers)[0]
    if session.raw.get_providers()[0] != first:
        raise SessionError(
            f"onnxruntime fell back to {session.raw.get_providers()[0]}, expected {first}",
            where=f"rule {rule!r}",
        )
    scratch = {
        name: torch.empty_like(targets[0], memory_format=torch.contiguous_format)
        for name, targets in job.writes.items()
    }
    return OnnxKernel(session.raw, scratch)


def _shapes(params: Sequence[Tensor]) -> dict[str, tuple[int, ...]]:
    return {f"{NAME}{number}": tuple(param.shape) for number, param in enumerate(params)}


def check_onnx(param: Tensor, providers: Sequence[str] | None, where: str) -> None:
    """Raises ArgumentError for a parameter whose step onnxruntime cannot do where it lies."""
    if param.dtype not in WORDS:
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


def _bind(bind: Any, name: str, value: Tensor) -> None:
    """Binds memory; a tensor without elements has none, and any address will do."""
    address = value.data_ptr() or _NOTHING.data_ptr()
    device = value.device
    bind(name, device.type, device.index or 0, _ORT_DTYPES[value.dtype], value.shape, address)


_NOTHING = torch.zeros(1)

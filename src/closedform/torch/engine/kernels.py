"""Kernels: the step of one parameter, or of several that step together, for fixed shapes.

A kernel is made for a rule, shapes and a dtype. It reads the parameter, its gradient and its states
in place, and writes the results into the same tensors.
"""

from __future__ import annotations

from collections.abc import Callable, Collection, Mapping, Sequence
from dataclasses import dataclass, replace
from functools import cached_property, lru_cache
from typing import Any

import sympy as sp
import torch
from torch import Tensor

from closedform.compiler import compile_init, compile_step
from closedform.exporters.torch_module import GraphProgram, to_module
from closedform.ir.graph import Graph, input_names
from closedform.ir.naming import GRAD, NEXT, PARAM, SHARED, SIZE
from closedform.ir.naming import size as size_name
from closedform.ir.types import Shape
from closedform.language import PARAM as PARAM_SYMBOL
from closedform.language import UpdateRule
from closedform.language.functions import WHOLE_TENSOR, MatMul, ReduceMean, ReduceSum
from closedform.language.model import GlobalSum
from closedform.language.shapes import RANK, SHAPE_SYMBOLS, Sizes
from closedform.lowering.sums import narrow_rule
from closedform.options import GraphOptions, ModelSpec
from closedform.torch.engine.compiled import compiled_kernel
from closedform.torch.engine.flat import FlatKernel, flat_kernel
from closedform.torch.engine.programs import BoundProgram
from closedform.torch.shards import dtensor_like, is_dtensor, local, other_states

BACKENDS = ("eager", "compile")

LABEL = "p"
"""The name of a parameter in the graph of a kernel, before its number."""

COMPUTE_DTYPES = {
    torch.float64: torch.float64,
    torch.float32: torch.float32,
    torch.bfloat16: torch.float32,
    torch.float16: torch.float32,
}
"""The dtypes of parameters, and the dtype in which each is stepped."""

GRAPH_DTYPES = {torch.float32: "f32", torch.float64: "f64"}
"""The dtypes of steps, as graphs name them."""

ANY_SHAPE = (2,)
"""The shape for which the graph of all shapes is compiled, for a rule that has one graph."""

_AXIS = "n"
"""The name of a size in a graph for all sizes, before the number of its axis."""

MAX_SHAPES = 256
"""For how many shapes a kernel keeps the tensors of their sizes."""

_SIZES = SHAPE_SYMBOLS - {RANK}
# Sums, means and products have graphs with named sizes; singular vectors do not.
_NEED_SIZES = tuple(set(WHOLE_TENSOR) - {ReduceSum, ReduceMean, MatMul})

ParamTensors = Mapping[str, Tensor]
"""A parameter (``PARAM``), its gradient (``GRAD``), and its states by name, with the step."""

TensorKey = tuple[int, str]
"""The index of a parameter, or -1 for hyperparameters, and a name among its tensors."""


@dataclass(frozen=True, slots=True)
class NamedArguments:
    """The tensors of a kernel, as its graph names them.

    Attributes:
        reads: Each input by name: the step, hyperparameters, parameters, gradients and states.
        writes: The tensors that each output is written to, by name; a model-wide state is written
            to the copy of every parameter.
    """

    reads: Mapping[str, Tensor]
    writes: Mapping[str, tuple[Tensor, ...]]

    def bind(self, program: GraphProgram) -> BoundProgram:
        """Returns a program with these tensors, in its order."""
        reads = [self.reads[name] for name in program.input_names]
        return BoundProgram(program, reads, [self.writes[name] for name in program.output_names])


@lru_cache(128)
def is_joint(rule: UpdateRule) -> bool:
    """Returns whether all parameters step together: by sums over them, or states of the model."""
    has_sums = any(expr.atoms(GlobalSum) for expr in rule.all_expressions())
    return has_sums or bool(rule.shared) or rule.advances != sp.true


def _label(name: str, number: int) -> str:
    """The name of a parameter's tensor in a graph."""
    return f"{name}{LABEL}{number}" if name in (PARAM, GRAD) else state_label(name, number)


def state_label(name: str, number: int = 0) -> str:
    """Returns the name of a state in a graph; parameters share the clock and model-wide states."""
    is_common = name == "step" or name.startswith(SHARED)
    return name if is_common else f"state.{LABEL}{number}.{name}"


def real_view(value: Tensor) -> Tensor:
    """Returns a complex tensor as its real and imaginary parts, in its memory; a real one itself.

    The parts are the last axis. A gradient may be a conjugate that is not computed yet.
    """
    return torch.view_as_real(value.resolve_conj()) if value.is_complex() else value


def state_maker(rule: UpdateRule) -> Callable[[Tensor], dict[str, Tensor]]:
    """Returns the function from a parameter to its states before its first step, on its device.

    Model-wide states are included as ``shared.<name>``: each parameter has a copy, and all copies
    are equal. The states of a DTensor are distributed like it, or replicated if they have another
    shape. The states of a complex parameter are complex, as in torch: the states of its real and
    of its imaginary part.
    """
    is_zero = starts_at_zero(rule)
    is_zero_by_rank = not is_zero and has_zeros(rule) and has_graph_by_rank(rule)
    names_of = state_names(rule)
    has_shape = {name: spec.shape == "param" for name, spec in rule.states.items()}

    def make(param: Tensor) -> dict[str, Tensor]:
        if param.is_complex():
            parts = real_view(param.detach())
            return {
                # A scalar state, such as the step, has no parts.
                name: torch.view_as_complex(value) if value.shape == parts.shape else value
                for name, value in make(parts).items()
            }
        # States of 16-bit parameters are float32: squares of gradients underflow in float16.
        dtype, device = COMPUTE_DTYPES[param.dtype], param.device
        if is_zero_by_rank and not is_dtensor(param):
            shape = tuple(param.shape)
            return {
                name: _zeros_like(param, rule.state_shape(name, shape), dtype)
                for name in names_of(shape)
            }
        if not is_zero or is_dtensor(param):
            return _initial_states(rule, param)
        return {
            name: torch.zeros_like(param, dtype=dtype, requires_grad=False)
            if is_full
            else torch.zeros((), dtype=dtype, device=device)
            for name, is_full in has_shape.items()
        }

    return make


def _initial_states(rule: UpdateRule, param: Tensor) -> dict[str, Tensor]:
    dtype, part = COMPUTE_DTYPES[param.dtype], local(param.detach())
    shaped_rule, program = _initial_program(rule, tuple(param.shape), tuple(part.shape), dtype)
    # The only input of an initial state is the parameter: Lookahead and averages start there.
    outputs = program(*(part.to(dtype) for _ in program.input_names))
    values = outputs if isinstance(outputs, tuple) else (outputs,)
    prefix = f"state.{LABEL}."
    states = {
        name.removeprefix(prefix): _laid_out_like(part, value.to(part.device))
        for name, value in zip(program.output_names, values, strict=True)
        if name.startswith((prefix, SHARED))
    }
    if not is_dtensor(param):
        return states
    part_states = {
        name: dtensor_like(value, param)
        for name, value in states.items()
        if name in shaped_rule.states and shaped_rule.states[name].shape == "param"
    }
    return {**states, **part_states, **other_states(shaped_rule, param, dtype)}


@lru_cache(128)
def _initial_program(
    rule: UpdateRule, shape: tuple[int, ...], part: tuple[int, ...], dtype: torch.dtype
) -> tuple[UpdateRule, GraphProgram]:
    """The rule for a shape, and the first states of a part of a parameter of that shape."""
    shaped_rule = part_rule = rule.for_shape(shape)
    if part != shape:  # a part has no states of other shapes, such as a number of whole blocks
        states = {
            name: replace(spec, next=sp.Integer(0))
            for name, spec in shaped_rule.states.items()
            if spec.shape in ("param", "scalar")
        }
        part_rule = narrow_rule(shaped_rule, PARAM_SYMBOL, states, {})
    spec = ModelSpec(part_rule, {LABEL: part})
    return shaped_rule, to_module(compile_init(spec, GraphOptions(dtype=GRAPH_DTYPES[dtype])))


@lru_cache(128)
def starts_at_zero(rule: UpdateRule) -> bool:
    """Returns whether all states are 0 before the first step, for parameters of all shapes."""
    has_shapes = any(spec.shape not in ("param", "scalar") for spec in rule.states.values())
    return has_zeros(rule) and not has_shapes and rule.is_for_all_shapes


def has_zeros(rule: UpdateRule) -> bool:
    """Returns whether all states are 0 before the first step, in the dtype that is computed in."""
    is_plain_rule = rule.is_in_one_dtype and not rule.shared
    return is_plain_rule and all(spec.initial == 0 for spec in rule.states.values())


def state_names(rule: UpdateRule) -> Callable[[tuple[int, ...]], tuple[str, ...]]:
    """Returns the function from the shape of a parameter to its states by the rule."""
    names_of_all = tuple(rule.states) if rule.is_for_all_shapes else None
    is_by_rank = names_of_all is None and has_graph_by_rank(rule)
    cache: dict[Shape, tuple[str, ...]] = {}

    def names(shape: tuple[int, ...]) -> tuple[str, ...]:
        if names_of_all is not None:
            return names_of_all
        # Whether a state exists may depend on the rank (Adafactor's factors), not on the sizes.
        key = named_sizes(shape) if is_by_rank else shape
        if key not in cache:
            cache[key] = tuple(rule.for_shape(key).states)
        return cache[key]

    return names


def _zeros_like(param: Tensor, shape: Shape, dtype: torch.dtype) -> Tensor:
    """A state of zeros; in the memory format of its parameter, if it has the same shape."""
    sizes = [int(size) for size in shape]
    if list(param.shape) == sizes:
        return torch.zeros_like(param, dtype=dtype, requires_grad=False)
    return torch.zeros(sizes, dtype=dtype, device=param.device)


def _laid_out_like(param: Tensor, value: Tensor) -> Tensor:
    """A state in the memory format of its parameter, if it has the same shape."""
    # A channels_last parameter is stepped in place with states of the same strides.
    if value.shape != param.shape or param.is_contiguous():
        return value
    return torch.empty_like(param, dtype=value.dtype).copy_(value)


@lru_cache(128)
def step_graph(rule: UpdateRule, shapes: tuple[Shape, ...], dtype: torch.dtype) -> Graph:
    """Returns the step of a rule for parameters of these shapes and this dtype.

    A named size that a mean divides by is an input of the graph, ``size.<name>``.
    """
    params = {f"{LABEL}{number}": shape for number, shape in enumerate(shapes)}
    options = GraphOptions(dtype=GRAPH_DTYPES[COMPUTE_DTYPES[dtype]])
    return compile_step(ModelSpec(rule, params), options, takes_sizes=True)


def has_one_graph(rule: UpdateRule) -> bool:
    """Returns whether the graph of a parameter of rank 1 steps parameters of all shapes."""
    is_whole = any(expr.has(*WHOLE_TENSOR) for expr in rule.all_expressions())
    has_shapes = any(spec.shape not in ("param", "scalar") for spec in rule.states.values())
    return rule.is_for_all_shapes and not (is_whole or has_shapes or is_joint(rule))


@lru_cache(128)
def has_graph_by_rank(rule: UpdateRule) -> bool:
    """Returns whether parameters of one rank and any sizes have one graph.

    That is so if the rule looks only at the rank, and at whole tensors through sums, means and
    products.
    """
    conditions = [rule.requires, *(spec.exists for spec in rule.states.values())]
    parts = [*rule.all_expressions(), *conditions]
    has_sizes = any(part.free_symbols & _SIZES for part in parts)
    has_others = any(part.has(*_NEED_SIZES) for part in parts)
    has_shapes = any(isinstance(spec.shape, Sizes) for spec in rule.states.values())
    return not (has_sizes or has_others or has_shapes or is_joint(rule))


def graph_shape(rule: UpdateRule, shape: tuple[int, ...]) -> Shape:
    """Returns the shape for which the graph of a parameter of this shape is compiled.

    Other parameters share it: all, or all of the same rank, or all of the same shape.
    """
    if has_one_graph(rule):
        return ANY_SHAPE
    return named_sizes(shape) if has_graph_by_rank(rule) else shape


def named_sizes(shape: Sequence[int]) -> tuple[str, ...]:
    """Returns a shape of the same rank, with a name for each size."""
    return tuple(f"{_AXIS}{axis}" for axis in range(len(shape)))


def _size_tensors(param: Tensor) -> Mapping[str, Tensor]:
    """The tensor of each size of a parameter, as a graph for named sizes takes it."""
    return {
        # float64 holds sizes up to 2**53; float32 only up to 2**24.
        size_name(name): torch.tensor(float(size), dtype=torch.float64, device=param.device)
        for name, size in zip(named_sizes(param.shape), param.shape, strict=True)
    }


@dataclass(frozen=True)
class TorchKernel:
    """A step as a torch program.

    Attributes:
        graph: The step graph.
        reads: The tensor of each input.
        writes: The tensors of each output.
        is_for_all_shapes: Whether the graph steps parameters of all shapes.
        sizes: The tensors of the sizes that the graph takes, by shape and device, of the newest
            ``MAX_SHAPES``; None if it takes none.
    """

    graph: Graph
    reads: tuple[TensorKey, ...]
    writes: tuple[tuple[TensorKey, ...], ...]
    is_for_all_shapes: bool = False
    sizes: dict[tuple[Any, ...], Mapping[str, Tensor]] | None = None

    @cached_property
    def program(self) -> GraphProgram:
        """The graph in torch; a trace needs it to be made before."""
        return to_module(self.graph)

    @cached_property
    def flat(self) -> FlatKernel | None:
        """The programs that step several parameters as one vector, if that is possible."""
        return flat_kernel(self.graph, f"{LABEL}0") if self.is_for_all_shapes else None

    @cached_property
    def compiled_flat(self) -> FlatKernel | None:
        """The same, compiled by ``torch.compile``."""
        return compiled_kernel(self.graph, f"{LABEL}0") if self.is_for_all_shapes else None

    def sizes_of(self, param: Tensor) -> Mapping[str, Tensor]:
        """Returns the tensors of the sizes of a parameter; a trace needs them to be made before."""
        if self.sizes is None:
            return {}
        key = *param.shape, param.device
        tensors = self.sizes.get(key)
        if tensors is None:
            if len(self.sizes) >= MAX_SHAPES:
                # The oldest entry: dicts keep the order of insertion.
                del self.sizes[next(iter(self.sizes))]
            tensors = self.sizes[key] = _size_tensors(param)
        return tensors

    def bind(self, hypers: Mapping[str, Tensor], params: Sequence[ParamTensors]) -> BoundProgram:
        """Returns the program with the tensors of parameters, in the order of the graph."""
        tables = [*params, hypers]
        if self.sizes is not None:  # A graph that takes sizes steps one parameter.
            tables[-1] = {**hypers, **self.sizes_of(params[0][PARAM])}
        reads = [tables[index][name] for index, name in self.reads]
        writes = [[tables[index][name] for index, name in group] for group in self.writes]
        return BoundProgram(self.program, reads, writes, hypers)


def torch_kernel(
    graph: Graph, names: Sequence[Collection[str]], *, is_for_all_shapes: bool
) -> TorchKernel:
    """Returns the kernel of a graph for parameters with tensors of these names, in torch."""
    keys: dict[str, tuple[TensorKey, ...]] = {}
    for index, names_of_param in enumerate(names):
        for name in names_of_param:
            label = _label(name, index)
            keys[label] = (*keys.get(label, ()), (index, name))
    reads = tuple(keys.get(name, ((-1, name),))[0] for name in input_names(graph))
    writes = tuple(keys[output.name.removeprefix(NEXT)] for output in graph.outputs)
    has_sizes = any(name.startswith(SIZE) for name in input_names(graph))
    return TorchKernel(graph, reads, writes, is_for_all_shapes, {} if has_sizes else None)

"""Graph -> torch module: a torch.fx program without parameters, buffers or control flow."""

from __future__ import annotations

import math
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any, Self

import numpy as np
import torch
from torch import Tensor, fx, nn
from torch._C._functorch import is_functorch_wrapped_tensor
from torch.fx.node import Argument
from torch.utils._python_dispatch import _get_current_dispatch_mode

from closedform.errors import ExportError, SessionError, nearest
from closedform.exporters.torch_ops import TORCH_DTYPES, TORCH_OPS, Site, device_of
from closedform.ir.graph import Graph, Node, Role, input_names
from closedform.ir.ops import MOVES, Op
from closedform.ir.steps import checked_steps, last_step

_INTEGER_DTYPES = frozenset(
    {
        torch.uint8,
        torch.uint16,
        torch.uint32,
        torch.uint64,
        torch.int8,
        torch.int16,
        torch.int32,
        torch.int64,
    }
)

TYPE = "closedform_type"
"""Where the meta data of a node have the TensorType of its value, if it is one of the graph."""

_VIEWS = MOVES - {Op.CONCAT} | {Op.INPUT}


@dataclass(frozen=True, slots=True)
class FxProgram:
    """The torch.fx graph of a graph, to be read: no Python code is generated for it.

    Attributes:
        source: The graph.
        graph: The graph in torch.fx.
        input_names: Names of the inputs, in order.
        input_dtypes: The dtypes of the inputs.
        output_names: Names of the outputs, in order.
    """

    source: Graph
    graph: fx.Graph
    input_names: tuple[str, ...]
    input_dtypes: tuple[torch.dtype, ...]
    output_names: tuple[str, ...]


class GraphProgram(fx.GraphModule):
    """A torch module that computes a graph; made by `to_module`.

    It takes the inputs of the graph in order, as tensors of exactly the declared dtypes, and
    returns one tensor, or a tuple of tensors where the graph has several outputs; no output shares
    memory with an input or another output. Constants are made on the device of the first input;
    the module holds no parameter and no buffer, and ``.half()``, ``.to()`` and
    ``state_dict()`` have nothing to change. Copies and pickles carry the graph and build the
    program again.

    Attributes:
        source: The graph.
        input_names: Names of the inputs, in order.
        input_dtypes: The dtypes of the inputs.
        output_names: Names of the outputs, in order.
    """

    source: Graph
    input_names: tuple[str, ...]
    input_dtypes: tuple[torch.dtype, ...]
    output_names: tuple[str, ...]

    def __init__(self, graph: Graph) -> None:
        fx_program = to_fx(graph)
        super().__init__(nn.Module(), fx_program.graph, class_name=type(self).__name__)
        self.source = graph
        self.input_names = fx_program.input_names
        self.input_dtypes = fx_program.input_dtypes
        self.output_names = fx_program.output_names

    def __reduce__(self) -> tuple[Callable[[Graph], GraphProgram], tuple[Graph]]:
        return to_module, (self.source,)

    def __deepcopy__(self, memo: dict[int, Any]) -> GraphProgram:
        return to_module(self.source)

    def __copy__(self) -> GraphProgram:
        return to_module(self.source)


def to_fx(graph: Graph) -> FxProgram:
    """Returns the torch.fx graph of a graph."""
    return FxProgram(
        graph,
        _program(graph),
        input_names(graph),
        tuple(TORCH_DTYPES[node.type.dtype] for node in graph.inputs),
        tuple(output.name for output in graph.outputs),
    )


def to_module(graph: Graph) -> GraphProgram:
    """Returns a torch module that computes the graph.

    Raises:
        ExportError: The graph has no output.
    """
    if not graph.outputs:
        raise ExportError(
            "the graph has no output", where=f"graph {graph.name!r}", hint="name a value as one"
        )
    return GraphProgram(graph)


def _program(graph: Graph) -> fx.Graph:
    """Writes the graph node by node; inputs come first, then the device, then the rest."""
    program = fx.Graph()
    values: list[fx.Node] = []
    device: fx.Node | None = None
    needs_device = any(node.op is Op.CONST for node in graph.nodes)
    for node in graph.nodes:
        if device is None and node.op is not Op.INPUT and needs_device and values:
            device = device_of(values[0], program)
        operands = tuple(values[operand] for operand in node.operands)
        value = TORCH_OPS[node.op](Site(graph, program, node, device), operands)
        value.meta[TYPE] = node.type
        values.append(value)
    results = _fresh_outputs(graph, program, values)
    program.output(results[0] if len(results) == 1 else results)
    # Such as the device of the first input where no constant is left.
    program.eliminate_dead_code()
    program.lint()
    return program


def _fresh_outputs(
    graph: Graph, program: fx.Graph, values: Sequence[fx.Node]
) -> tuple[fx.Node, ...]:
    """The outputs, cloned where two would share memory with each other or with an input."""
    results: list[fx.Node] = []
    for output in graph.outputs:
        value = values[output.index]
        # A caller may write to an output in place, as optimizers do.
        if _may_alias(graph, graph.nodes[output.index]) or value in results:
            layout: dict[str, Argument] = {"memory_format": torch.contiguous_format}
            value = program.call_function(torch.clone, (value,), layout)
            value.meta[TYPE] = graph.nodes[output.index].type
        results.append(value)
    return tuple(results)


def _may_alias(graph: Graph, node: Node) -> bool:
    """True where torch may return a tensor that shares memory with an operand."""
    if node.op is Op.CAST:
        return graph.nodes[node.operands[0]].type == node.type
    if node.op in (Op.REDUCE_SUM, Op.REDUCE_MAX):
        return not node.attribute("axes")
    return node.op in _VIEWS


class ScheduleModule(nn.Module):
    """A schedule as a torch module: integer steps of any shape in, values of that shape out.

    It is computed in the dtypes of the graph. ``.to(dtype)``, ``.half()``, ``.float()`` and so on,
    also of a module that contains it, choose the dtype to which values are rounded at the end.

    Args:
        graph: A graph with one step input of shape ``("n",)``, one output of that shape, and
            otherwise only hyper inputs of rank 0.
        defaults: Values of hyper inputs that a call may leave out.

    Raises:
        ExportError: The graph is of another form.
    """

    def __init__(self, graph: Graph, defaults: Mapping[str, float] | None = None) -> None:
        super().__init__()
        _check_schedule_graph(graph)
        self.program = to_module(graph)
        self.defaults = dict(defaults or {})
        hypers = [node for node in graph.inputs if node.attribute("role") == Role.HYPER]
        self.hyper_dtypes = {
            str(node.attribute("name")): TORCH_DTYPES[node.type.dtype] for node in hypers
        }
        step = next(node for node in graph.inputs if node.attribute("role") == Role.STEP)
        self.step_name = str(step.attribute("name"))
        self.step_dtype = TORCH_DTYPES[step.type.dtype]
        self.value_dtype = TORCH_DTYPES[graph.nodes[graph.outputs[0].index].type.dtype]

    def _apply(self, fn: Callable[[Tensor], Tensor], recurse: bool = True) -> Self:
        # nn.Module.to, half and float call _apply; an empty tensor tells what they do to a dtype.
        self.value_dtype = fn(torch.empty(0, dtype=self.value_dtype)).dtype
        super()._apply(fn, recurse)  # type: ignore[no-untyped-call]
        return self

    def forward(self, step: Tensor, **hyper: Tensor | float) -> Tensor:
        """Returns the value at each step.

        Args:
            step: Steps done so far, of any integer dtype and any shape.
            **hyper: Values of the hyper inputs; those with a default may be left out.

        Raises:
            SessionError: The steps are not integers or outside of 0 to the last step of the graph,
                or a hyper input is missing or unknown. Where torch traces or compiles, and on other
                devices than the CPU, the value outside is NaN instead.
        """
        if not isinstance(step, Tensor) or step.dtype not in _INTEGER_DTYPES:
            got = step.dtype if isinstance(step, Tensor) else type(step).__name__
            raise SessionError(
                f"step must be an integer tensor, got {got}",
                where=f"schedule {self.program.source.name!r}",
                hint="pass torch.tensor(step) or step.long()",
            )
        feeds = self._hyper_values(hyper, step.device)
        is_outside = outside_domain(step, self.step_dtype, f"schedule {self.program.source.name!r}")
        # The graph has one axis; the shape of the steps is given back below.
        feeds[self.step_name] = step.to(self.step_dtype).reshape(-1)
        value: Tensor = self.program(*(feeds[name] for name in self.program.input_names))
        value = value.to(self.value_dtype)
        # clone: elements of an expanded tensor share memory.
        is_constant = value.dim() == 0
        value = value.expand(step.shape).clone() if is_constant else value.reshape(step.shape)
        return value if is_outside is None else torch.where(is_outside, math.nan, value)

    def _hyper_values(
        self, hyper: Mapping[str, Tensor | float], device: torch.device
    ) -> dict[str, Tensor]:
        where = f"schedule {self.program.source.name!r}"
        for name in hyper:
            if name not in self.hyper_dtypes:
                hint = nearest(name, self.hyper_dtypes) if self.hyper_dtypes else "it has none"
                raise SessionError(f"unknown hyper input {name!r}", where=where, hint=hint)
        values = {}
        for name, dtype in self.hyper_dtypes.items():
            if name not in hyper and name not in self.defaults:
                raise SessionError(f"hyper input {name!r} is missing", where=where)
            value = hyper.get(name, self.defaults.get(name))
            values[name] = torch.as_tensor(value, dtype=dtype, device=device)
        return values


def outside_domain(step: Tensor, dtype: torch.dtype, where: str) -> Tensor | None:
    """Returns where steps are outside of the domain; None where they have values and are in it.

    Args:
        step: Of an integer dtype.
        dtype: The dtype of the step of the graph.
        where: What takes the step, for errors.

    Raises:
        SessionError: A step that has a value is outside.
    """
    last = last_step(np.dtype(str(dtype).removeprefix("torch.")))
    if _has_values(step):
        checked_steps(step.numpy(), last, where)
        return None
    # Unsigned types of 16 bits and more have few operators: steps of them are read as int64.
    wide = step.long()
    return (wide < 0) | (wide > last)


def _has_values(step: Tensor) -> bool:
    """Whether the values of a tensor can be read without waiting for a device."""
    if torch.compiler.is_compiling():
        return False
    if torch.jit.is_tracing():  # type: ignore[attr-defined,no-untyped-call]
        return False
    if type(step) is not Tensor or step.device.type != "cpu" or is_functorch_wrapped_tensor(step):
        return False
    return _get_current_dispatch_mode() is None  # make_fx and export record operators


def _check_schedule_graph(graph: Graph) -> None:
    where = f"graph {graph.name!r}"
    hint = "compile the schedule with step_shape=('n',)"
    roles = [node.attribute("role") for node in graph.inputs]
    if roles.count(Role.STEP) != 1 or set(roles) - {Role.STEP, Role.HYPER}:
        role_names = ", ".join(str(role) for role in roles)
        raise ExportError(
            f"a schedule has one step input and else only hyper inputs, got roles {role_names}",
            where=where,
        )
    step = graph.inputs[roles.index(Role.STEP)].type
    if step.rank != 1 or not isinstance(step.shape[0], str):
        raise ExportError(
            f"the step input must be a vector of a named size, got {step}", where=where, hint=hint
        )
    if len(graph.outputs) != 1:
        raise ExportError(f"a schedule has one output, got {len(graph.outputs)}", where=where)
    value = graph.nodes[graph.outputs[0].index].type
    if value.shape not in (step.shape, ()):
        raise ExportError(f"the output must have shape [{step.shape[0]}], got {value}", where=where)

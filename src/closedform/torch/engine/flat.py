"""The step of an elementwise rule on the CPU: small parameters are stepped as one vector.

torch spends about a microsecond on each op of each tensor. Small parameters of a group, with their
gradients, are therefore copied to one vector; their states are created as parts of one; and each op
runs once. Large parameters are stepped separately, tile by tile, so that intermediate values
stay in the cache. Which parameters have a gradient is not part of the work that is remembered: one
without it is stepped with zeros, and its previous states are restored. Of a DTensor, the local part
is stepped.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from functools import lru_cache
from itertools import compress
from typing import Any, NamedTuple, Protocol, TypeVar

import torch
from torch import Tensor

from closedform.exporters.torch_module import to_fx
from closedform.ir.graph import Graph
from closedform.ir.naming import GRAD, NEXT, PARAM
from closedform.ir.program import NUMBER, hoist
from closedform.torch.engine.moves import Move, separate
from closedform.torch.engine.programs import in_dtype
from closedform.torch.engine.tensor_program import InplaceProgram, NodeValues, TensorProgram
from closedform.torch.shards import dtensor_like, is_dtensor, is_plain, local

SMALL = 2**14
"""The most elements of a parameter that is stepped with others."""

JOINED = 2**16
"""The most elements that are stepped as one vector."""

# Without tiles, AdamW on 4 tensors of 1M elements takes 1.75 times the CPU time: each op streams
# through memory. SGD, which has two ops, takes 0.9 times.
TILE = 2**17
"""The most elements of a large parameter that are stepped at once."""

ParamStates = Mapping[str, Tensor]
Item = TypeVar("Item")


@dataclass(frozen=True, slots=True)
class ProgramFactory:
    """How the programs of a step are made; each writes a state over the one before, where it can.

    Attributes:
        numbers: Makes the program of a graph of scalars, some of which rarely change.
        vectors: Makes the program of a graph of vectors and numbers; None if it is not elementwise.
        is_in_one_pass: Whether a program reads and writes its vectors once, and needs no tiles.
    """

    numbers: Callable[[Graph, Sequence[str]], NumberProgram]
    vectors: Callable[[Graph], VectorProgram | None]
    is_in_one_pass: bool


_CACHED = 128


class Hypers(Protocol):
    """The hyperparameters of a group as tensors, and how often they have changed."""

    inputs: dict[str, Tensor]
    version: int


class VectorProgram(Protocol):
    """Computes the next parameter and states from vectors and numbers.

    ``step`` needs an input for each output.
    """

    input_names: tuple[str, ...]
    input_dtypes: tuple[torch.dtype, ...]
    output_names: tuple[str, ...]

    def start(self, rare: ParamStates) -> NodeValues:
        """Returns what is computed once, from inputs that rarely change."""

    def run(self, start: NodeValues, inputs: Sequence[Tensor | None]) -> list[Tensor]:
        """Returns the outputs; one that was computed in place is the input itself."""

    def step(self, inputs: list[Any]) -> None:
        """Writes the outputs over the inputs, which are given in order."""


class NumberProgram(VectorProgram, Protocol):
    """Computes the numbers of a step."""

    varying: tuple[str, ...]


@dataclass(frozen=True, slots=True)
class FlatKernel:
    """The step of an elementwise rule as programs on numbers and on vectors.

    Attributes:
        scalars: Computes the numbers of a step, for each parameter; None if there are none.
        batch: Steps several parameters as one vector.
        single: Steps one parameter.
        names: The name of each label among the tensors of a parameter.
        tile: The most elements of one parameter that are stepped at once; None for all.
    """

    scalars: NumberProgram | None
    batch: VectorStep
    single: VectorProgram
    names: Mapping[str, str]
    tile: int | None


class VectorStep(NamedTuple):
    """The step of a vector, given the numbers of a step.

    Attributes:
        program: Computes the next parameter and states; None if there is only a move.
        move: The last op on the parameter, if the program computes its operand instead.
    """

    program: VectorProgram | None
    move: Move | None


@lru_cache(_CACHED)
def flat_kernel(graph: Graph, label: str) -> FlatKernel | None:
    """Returns the programs of the step graph of a parameter; None if it is not elementwise.

    Args:
        graph: The graph, for a parameter of rank 1.
        label: The name of the parameter in it.
    """
    return build_kernel(graph, label, _CALLED)


def build_kernel(graph: Graph, label: str, factory: ProgramFactory) -> FlatKernel | None:
    """Returns the programs of the step graph of a parameter; None if it is not elementwise.

    Args:
        graph: The graph, for a parameter of rank 1.
        label: The name of the parameter in it.
        factory: Makes the programs.
    """
    first, second = hoist(graph)
    if not second.outputs or any(node.type.shape for node in first.nodes):
        return None
    single = factory.vectors(second)
    if single is None or not _writes_over_inputs(single):
        return None
    prefix = f"state.{label}."
    input_labels = {node.attribute("name") for node in graph.inputs}
    names = {str(name): _name(str(name), prefix) for name in input_labels}
    rest_and_move = separate(second, f"{PARAM}{label}")
    rest, move = (second, None) if rest_and_move is None else rest_and_move
    program = single if rest is second else None if rest is None else factory.vectors(rest)
    scalars = None
    if first.outputs:
        hypers = [str(node.attribute("name")) for node in graph.inputs]
        rare = [name for name in hypers if name not in ("step",) and not name.startswith("state.")]
        scalars = factory.numbers(first, rare)
    tile = None if factory.is_in_one_pass else TILE
    return FlatKernel(scalars, VectorStep(program, move), single, names, tile)


def _writes_over_inputs(program: VectorProgram) -> bool:
    """Whether each output is the next value of an input."""
    return {name.removeprefix(NEXT) for name in program.output_names} <= {*program.input_names}


def _called_vectors(graph: Graph) -> TensorProgram | None:
    program = inplace(graph)
    return TensorProgram(program) if program.is_elementwise else None


_CALLED = ProgramFactory(
    lambda graph, rare: TensorProgram(inplace(graph), rare), _called_vectors, is_in_one_pass=False
)
"""Makes programs whose ops are called one by one."""


def inplace(graph: Graph) -> InplaceProgram:
    """Returns a program that writes each state over the one before, where it can."""
    program = to_fx(graph)
    overwritable = {
        program.input_names.index(name.removeprefix(NEXT)): index
        for index, name in enumerate(program.output_names)
        if name.removeprefix(NEXT) in program.input_names
    }
    return InplaceProgram(program, overwritable)


def _name(label: str, prefix: str) -> str:
    for name in (PARAM, GRAD):
        if label.startswith(name):
            return name
    return label.removeprefix(prefix)


def segments(sizes: Sequence[int]) -> list[range]:
    """Returns the runs of parameters that are stepped as one vector, in order.

    Args:
        sizes: The number of elements of each parameter.
    """
    runs: list[range] = []
    start, total = 0, 0
    for index, size in enumerate(sizes):
        is_large = size > SMALL
        if index > start and (is_large or total + size > JOINED):
            runs.append(range(start, index))
            start, total = index, 0
        total += size
        if is_large:
            runs.append(range(start, index + 1))
            start, total = index + 1, 0
    if start < len(sizes):
        runs.append(range(start, len(sizes)))
    return runs


def is_flat(param: Tensor) -> bool:
    """Returns whether a tensor, or its local part, may be stepped as a part of a vector."""
    if is_dtensor(param):
        param = local(param.detach())
    is_real_on_cpu = param.is_cpu and not param.is_complex()
    return is_real_on_cpu and is_plain(param) and param.is_contiguous()


def pack_states(params: Sequence[Tensor], states: Sequence[dict[str, Tensor]]) -> None:
    """Makes the states of parameters that are stepped as one vector parts of one vector."""
    rows = [row for row, param in enumerate(params) if is_flat(param)]
    for run in segments([local(params[row].detach()).numel() for row in rows]):
        members = [rows[index] for index in run]
        # One parameter needs no vector.
        if len(members) < 2:
            continue
        for name, first in states[members[0]].items():
            columns = [states[row].get(name, first) for row in members]
            pairs = zip(columns, (params[row] for row in members), strict=True)
            if not all(
                column.shape == param.shape and column.dtype == first.dtype and is_flat(column)
                for column, param in pairs
            ):
                continue
            own_columns = [local(column) for column in columns]
            parts = _flat_vector(own_columns).split([column.numel() for column in own_columns])
            for row, part, column in zip(members, parts, own_columns, strict=True):
                if name in states[row]:
                    states[row][name] = dtensor_like(part.view(column.shape), params[row])


def packed_zeros(
    params: Sequence[Tensor], dtype: torch.dtype, scalars: Sequence[str], names: Sequence[str]
) -> list[dict[str, Tensor]]:
    """Returns zero states, laid out as by ``pack_states``: the states of a run are one vector.

    Args:
        params: Parameters of one dtype that may be stepped as parts of a vector.
        dtype: The dtype of the states.
        scalars: The names of the states of rank 0.
        names: The names of the states of the shape of the parameter.
    """
    states: list[dict[str, Tensor]] = [{} for _ in params]
    for name in scalars:
        for state, scalar in zip(
            states, torch.zeros(len(params), dtype=dtype).unbind(), strict=True
        ):
            state[name] = scalar
    sizes, shapes = [param.numel() for param in params], [param.shape for param in params]
    for run in segments(sizes):
        part = slice(run.start, run.stop)
        for name in names:
            vector = torch.zeros(sum(sizes[part]), dtype=dtype)
            for state, row, shape in zip(
                states[part], vector.split(sizes[part]), shapes[part], strict=True
            ):
                state[name] = row.view(shape)
    return states


def adjacent(tensors: Sequence[Tensor]) -> Tensor | None:
    """Returns contiguous tensors that follow each other in memory as one vector, if they do."""
    # The data_ptr() of an empty tensor is 0, wherever its neighbours are.
    nonempty = [tensor for tensor in tensors if tensor.numel()]
    if not nonempty:
        return None
    end, total = nonempty[0].data_ptr(), 0
    storage, dtype = nonempty[0].untyped_storage().data_ptr(), nonempty[0].dtype
    for tensor in nonempty:
        if tensor.data_ptr() != end or tensor.dtype != dtype or not tensor.is_contiguous():
            return None
        # Two allocations may lie next to each other; a vector must not reach beyond its storage.
        if tensor.untyped_storage().data_ptr() != storage:
            return None
        total += tensor.numel()
        end += tensor.numel() * tensor.element_size()
    return nonempty[0].as_strided((total,), (1,))


class StateColumn:
    """A state of several parameters, as one vector.

    Args:
        tensors: The state of each parameter.
        dtype: The dtype in which it is computed.
    """

    def __init__(self, tensors: Sequence[Tensor], dtype: torch.dtype) -> None:
        self.tensors = list(tensors)
        self._dtype = dtype
        self._vector = adjacent(tensors)
        self._is_scalar = all(not tensor.dim() for tensor in tensors)

    @property
    def vector(self) -> Tensor | None:
        """The memory of the states, if they are adjacent and in the dtype of the computation."""
        is_own = self._vector is not None and self._vector.dtype is self._dtype
        return self._vector if is_own else None

    def is_vector(self, tensor: Tensor) -> bool:
        """Returns whether a tensor is the memory of the states."""
        return tensor is self._vector

    def load(self) -> Tensor:
        """Returns the values; they are those in memory if the tensors are adjacent."""
        if self._vector is not None:
            return in_dtype(self._vector, self._dtype)
        return in_dtype(_flat_vector(self.tensors), self._dtype)

    def store(self, value: Tensor) -> None:
        """Writes the values, or one value for all."""
        if self._vector is not None:
            if value is not self._vector:
                # One value for all may have been written over the first element of the vector.
                is_inside = value.data_ptr() == self._vector.data_ptr()
                self._vector.copy_(value.clone() if is_inside else value)
            return
        sizes = [tensor.numel() for tensor in self.tensors]
        parts = value.expand(sum(sizes)).split(sizes)
        shaped_parts = [
            part.view(tensor.shape) for part, tensor in zip(parts, self.tensors, strict=True)
        ]
        torch._foreach_copy_(self.tensors, shaped_parts)


def _flat_vector(tensors: Sequence[Tensor]) -> Tensor:
    """One vector of the elements of some tensors."""
    vector: Tensor = torch._C._nn.flatten_dense_tensors(list(tensors))
    return vector


def _are_rows(tensors: Sequence[Tensor]) -> bool:
    """Whether tensors can be concatenated along their first axis."""
    return (
        all(tensor.dim() for tensor in tensors)
        and len({tensor.shape[1:] for tensor in tensors}) == 1
    )


class FlatStep:
    """The step of parameters of one group and dtype.

    Args:
        kernel: The programs.
        group: The group, whose hyperparameters are read at each step.
        params: The parameters; of a DTensor, the local part is stepped.
        states: Their states.

    Attributes:
        params: The parameters.
        parts: The local part of each that is a DTensor.
        grads: The gradient of each parameter; None for one that is not stepped. Replaced before
            each run.
    """

    def __init__(
        self,
        kernel: FlatKernel,
        group: Hypers,
        params: Sequence[Tensor],
        states: Sequence[ParamStates],
    ) -> None:
        self.params = params
        self.parts = {param: local(param) for param in params if is_dtensor(param)}
        params = [self.parts.get(param, param) for param in params]
        states = [{name: local(value) for name, value in own.items()} for own in states]
        self.grads: list[Any] = [None] * len(params)
        self._kernel, self._group = kernel, group
        self._count = len(params)
        self._loaded: list[StateColumn | None] = []
        self._stored: list[int | None] = []
        self._differ_by_param = kernel.scalars is not None and any(
            name.startswith(NUMBER) for name in kernel.scalars.varying
        )
        self._start: NodeValues = []
        self._version = -1
        self._factors: list[float] = []
        if kernel.scalars is not None:
            labels = kernel.scalars.input_names
            for label, dtype in zip(labels, kernel.scalars.input_dtypes, strict=True):
                name = None if label in group.inputs else kernel.names[label]
                self._loaded.append(
                    None if name is None else StateColumn([x[name] for x in states], dtype)
                )
            self._stored = [
                None if name.startswith(NUMBER) else labels.index(name.removeprefix(NEXT))
                for name in kernel.scalars.output_names
            ]
        runs = segments([param.numel() for param in params])
        self._batches = [
            _Batch(kernel, run, [params[i] for i in run], [states[i] for i in run])
            for run in runs
            if len(run) > 1
        ]
        # One vector serves all runs of parameters, which are stepped one after the other.
        space = torch.empty(
            max((batch.total for batch in self._batches), default=0), dtype=params[0].dtype
        )
        for batch in self._batches:
            batch.write_through(space)
        rows = [run.start for run in runs if len(run) == 1]
        self._singles = [_Single(kernel, row, params[row], states[row]) for row in rows]

    def run(self) -> None:
        """Performs the step."""
        present = [grad is not None for grad in self.grads]
        if not any(present):
            return
        mask = None if all(present) else truths(present)
        numbers = self._numbers(mask)
        move = self._kernel.batch.move
        factors = [] if move is None else self._factors_of(move, numbers)
        for batch in self._batches:
            batch.run(self.grads, mask, numbers, factors)
        for single in self._singles:
            single.run(self.grads, numbers)

    def _numbers(self, mask: Tensor | None) -> dict[str, Tensor]:
        """Computes the numbers of the step, one for all parameters or one for each."""
        program, group = self._kernel.scalars, self._group
        if program is None:
            return {}
        if self._version != group.version:
            self._start, self._version = program.start(group.inputs), group.version
            self._factors = []
        # Loaded before the program runs, which may write over them.
        before = [None if column is None else column.load() for column in self._loaded]
        inputs = before
        if mask is not None:  # the program may write over what it is given
            inputs = [None if value is None else value.clone() for value in before]
        # Parameters usually count the same steps: their numbers are computed once, then broadcast.
        may_share = self._count > 1 and self._differ_by_param
        if may_share and all(value is None or _is_uniform(value) for value in before):
            inputs = [None if value is None else value[:1] for value in inputs]
        numbers = {}
        results = program.run(self._start, inputs)
        for name, source, result in zip(program.output_names, self._stored, results, strict=True):
            column = None if source is None else self._loaded[source]
            old = None if source is None else before[source]
            if column is None or old is None:
                numbers[name] = result
            else:
                column.store(result if mask is None else torch.where(mask, result, old))
        return numbers

    def _factors_of(self, move: Move, numbers: Mapping[str, Tensor]) -> list[float]:
        """The factor of the move, or one for each parameter; a read of a tensor takes 2 µs."""
        program = self._kernel.scalars
        if move.number is None or program is None:
            return [float(move.sign)]
        if not self._factors or move.number in program.varying:
            # A number that does not vary is read again only after a hyperparameter has changed.
            multipliers = numbers[move.number].view(-1).tolist()
            self._factors = [move.sign * number for number in multipliers]
        return self._factors


def truths(values: Sequence[bool]) -> Tensor:
    """A vector of truth values; ``torch.tensor`` takes 10 times as long."""
    return torch.frombuffer(bytearray(values), dtype=torch.bool)


def _is_uniform(numbers: Tensor) -> bool:
    """Whether all numbers are equal; on the CPU, reading them waits for nothing."""
    values = numbers.tolist()
    return bool(values.count(values[0]) == len(values))


def _select(items: list[Item], mask: Tensor | None) -> list[Item]:
    """The items of the parameters that are stepped."""
    return items if mask is None else list(compress(items, mask.tolist()))


class _Batch:
    """Parameters that are stepped as one vector."""

    def __init__(
        self,
        kernel: FlatKernel,
        run: range,
        params: Sequence[Tensor],
        states: Sequence[ParamStates],
    ) -> None:
        program, self._move = kernel.batch
        self._program = program
        self._start = [] if program is None else program.start({})
        self._params, self._part = list(params), slice(run.start, run.stop)
        self._sizes = [param.numel() for param in params]
        self.total = sum(self._sizes)
        self._repeats = torch.tensor(self._sizes)
        self._columns: dict[str, StateColumn] = {}
        self._own: dict[str, str] = {}
        self._inputs, dtypes = (
            ((), ()) if program is None else (program.input_names, program.input_dtypes)
        )
        self._outputs = () if program is None else program.output_names
        self._labels = [name.removeprefix(NEXT) for name in self._outputs]
        self._dtypes = dict(zip(self._inputs, dtypes, strict=True))
        for label, dtype in self._dtypes.items():
            name = kernel.names.get(label)
            if name in (PARAM, GRAD):
                self._own[name] = label
            elif name is not None:
                self._columns[label] = StateColumn([state[name] for state in states], dtype)
        self._are_rows = _are_rows(params)
        self._parts: list[Tensor] = []
        self._space = self._rows = torch.empty(0)

    def write_through(self, space: Tensor) -> None:
        """Takes a vector through which the parameters are read and written."""
        self._space = space[: self.total]
        parts = self._space.split(self._sizes)
        self._parts = [part.view(p.shape) for part, p in zip(parts, self._params, strict=True)]
        if self._are_rows:
            self._rows = self._space.view(-1, *self._params[0].shape[1:])

    def run(
        self,
        grads: Sequence[Tensor | None],
        mask: Tensor | None,
        numbers: Mapping[str, Tensor],
        factors: list[float],
    ) -> None:
        """Steps the parameters that have a gradient."""
        own_grads = grads[self._part]
        own_mask = None if mask is None else mask[self._part]
        if own_mask is not None and not own_mask.any():
            return
        if own_mask is not None and own_mask.all():
            own_mask = None
        own_numbers = numbers
        if len(own_grads) < len(grads):
            own_numbers = {
                name: x[self._part] if x.numel() > 1 else x for name, x in numbers.items()
            }
            factors = factors[self._part] if len(factors) > 1 else factors
        self._step(own_grads, own_mask, own_numbers, factors)

    def _step(
        self,
        grads: Sequence[Any],
        mask: Tensor | None,
        numbers: Mapping[str, Tensor],
        factors: list[float],
    ) -> None:
        inputs = {label: column.load() for label, column in self._columns.items()}
        before = {} if mask is None else {label: tensor.clone() for label, tensor in inputs.items()}
        inputs |= numbers
        names_per_param = [name for name, tensor in numbers.items() if tensor.numel() > 1]
        if names_per_param:
            # Without output_size, torch sums the repeats first.
            rows = torch.repeat_interleave(self._repeats, output_size=self.total)
            inputs |= {name: numbers[name].index_select(0, rows) for name in names_per_param}
        gradients = list(grads)
        if mask is not None:  # the step of a parameter without a gradient is not used
            pairs = zip(self._params, grads, strict=True)
            gradients = [param if grad is None else grad for param, grad in pairs]
        if GRAD in self._own:
            vector = torch.cat(gradients).view(-1) if self._are_rows else _flat_vector(gradients)
            inputs[self._own[GRAD]] = in_dtype(vector, self._dtypes[self._own[GRAD]])
        if PARAM in self._own:
            inputs[self._own[PARAM]] = in_dtype(self._read(), self._dtypes[self._own[PARAM]])
        results = self._results(inputs)
        element_mask = None
        if mask is not None:
            element_mask = torch.repeat_interleave(mask, self._repeats, output_size=self.total)
        for name, result in zip(self._labels, results, strict=True):
            if name not in self._columns:
                if self._move is None:
                    self._write(result, mask)
            elif element_mask is None:
                self._columns[name].store(result)
            else:
                self._columns[name].store(torch.where(element_mask, result, before[name]))
        if self._move is not None:
            moved_by = self._moved_by(self._move, list(grads), results)
            self._add(moved_by, factors, mask)

    def _results(self, inputs: Mapping[str, Tensor]) -> list[Tensor]:
        """Runs the program."""
        if self._program is None:
            return []
        return self._program.run(self._start, [inputs.get(name) for name in self._inputs])

    def _moved_by(self, move: Move, grad: Any, results: Sequence[Tensor]) -> Any:
        """The tensor of a move; that of the gradient is given."""
        if move.tensor is None:
            return grad
        return results[self._outputs.index(move.tensor)]

    def _split(self, tensor: Tensor) -> list[Any]:
        """The part of a vector that each parameter has."""
        for column in self._columns.values():
            if column.is_vector(tensor):
                return column.tensors
        pairs = zip(tensor.split(self._sizes), self._params, strict=True)
        return [part.view(param.shape) for part, param in pairs]

    def _read(self) -> Tensor:
        """The parameters as one vector, whose memory a step may write its result to."""
        if self._are_rows:
            torch.cat(self._params, out=self._rows)
        else:
            torch._foreach_copy_(self._parts, self._params)
        return self._space

    def _write(self, result: Tensor, mask: Tensor | None) -> None:
        """Writes the parameters."""
        if result is not self._space:
            self._space.copy_(result)
        torch._foreach_copy_(_select(self._params, mask), _select(self._parts, mask))

    def _add(self, tensor: Tensor | list[Any], factors: list[float], mask: Tensor | None) -> None:
        """Moves the parameters by a factor, or one for each, times their parts of a tensor."""
        parts = tensor if isinstance(tensor, list) else self._split(tensor)
        params, parts = _select(self._params, mask), _select(parts, mask)
        if len(factors) == 1:
            torch._foreach_add_(params, parts, alpha=factors[0])
            return
        for param, part, factor in zip(params, parts, _select(factors, mask), strict=True):
            param.add_(part, alpha=factor)


class _Single:
    """A large parameter, which is stepped in tiles of its memory.

    A step of large parameters leaves nothing else in the caches of the processor, so that each line
    of Python takes microseconds: the tiles are made once.
    """

    def __init__(self, kernel: FlatKernel, row: int, param: Tensor, states: ParamStates) -> None:
        program = self._program = kernel.single
        self._row, self._param = row, param
        self._count = 1 if kernel.tile is None else max(1, -(-param.numel() // kernel.tile))
        names = [kernel.names.get(label) for label in program.input_names]
        self._own = names.index(PARAM)
        self._grad = names.index(GRAD) if GRAD in names else None
        self._dtype = program.input_dtypes[self._own]
        self._columns: dict[int, StateColumn] = {}
        self._numbers: list[tuple[int, str]] = []
        for place, (name, dtype) in enumerate(zip(names, program.input_dtypes, strict=True)):
            if name is None:
                self._numbers.append((place, program.input_names[place]))
            elif name not in (PARAM, GRAD):
                self._columns[place] = StateColumn([states[name]], dtype)
        self._tiles: list[list[Any]] = []
        self._copies: dict[int, Tensor] = {}
        self._pointer = -1

    def run(self, grads: Sequence[Tensor | None], numbers: Mapping[str, Tensor]) -> None:
        """Steps the parameter if it has a gradient."""
        grad, row = grads[self._row], self._row
        if grad is None:
            return
        is_moved = self._param.data_ptr() != self._pointer or not self._param.is_contiguous()
        if is_moved or self._copies:
            self._bind()
        gradient = grad.reshape(-1)
        parts = (gradient,) if self._count == 1 else gradient.chunk(self._count)
        for tile, part in zip(self._tiles, parts, strict=True):
            inputs = tile.copy()
            for place, name in self._numbers:
                number = numbers[name]
                inputs[place] = number if number.numel() == 1 else number[row : row + 1]
            if self._grad is not None:
                inputs[self._grad] = in_dtype(part, self._dtype)
            param = inputs[self._own] = in_dtype(tile[self._own], self._dtype)
            self._program.step(inputs)
            if param is not tile[self._own]:
                tile[self._own].copy_(param)
        for place, vector in self._copies.items():
            if place in self._columns:
                self._columns[place].store(vector)
            else:
                self._param.copy_(vector.view(self._param.shape))

    def _bind(self) -> None:
        """Makes the tiles of the parameter and of its states, which are views where possible."""
        self._pointer = self._param.data_ptr()
        vectors = {self._own: self._param.detach().reshape(-1)}
        is_view = vectors[self._own].data_ptr() == self._pointer
        self._copies = {} if is_view else dict(vectors)
        for place, column in self._columns.items():
            vectors[place] = column.load()
            if vectors[place] is not column.vector:
                self._copies[place] = vectors[place]
        parts = {place: vector.chunk(self._count) for place, vector in vectors.items()}
        places = range(len(self._program.input_names))
        self._tiles = [
            [parts[place][number] if place in parts else None for place in places]
            for number in range(self._count)
        ]

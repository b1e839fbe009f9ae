"""The eager step of an elementwise rule on the CPU: small parameters are stepped as one vector.

torch spends about a microsecond on each op of each tensor. Small parameters of a group, with their
gradients, are therefore copied to one vector; their states are created as parts of one; and each op
runs once. Large parameters are stepped by themselves, tile by tile, so that intermediate values
stay in the cache. Which parameters have a gradient is not part of the work that is remembered: one
without it is stepped with zeros, and its previous states are restored.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from functools import lru_cache
from itertools import compress
from typing import Any, Protocol, TypeVar

import torch
from torch import Tensor

from closedform.exporters.torch_module import to_fx
from closedform.ir.graph import Graph
from closedform.ir.hoist import NUMBER, hoist
from closedform.ir.naming import GRAD, NEXT, PARAM
from closedform.torch.distributed.shards import is_plain
from closedform.torch.engine.inplace import InplaceProgram
from closedform.torch.engine.moves import Move, separate
from closedform.torch.engine.programs import in_dtype
from closedform.torch.engine.tensor_program import TensorProgram, Values

SMALL = 2**14
"""The most elements of a parameter that is stepped with others."""

JOINED = 2**16
"""The most elements that are stepped as one vector."""

TILE = 2**17
"""The most elements of a large parameter that are stepped at once."""

States = Mapping[str, Tensor]
Item = TypeVar("Item")

_CACHED = 128


class Hypers(Protocol):
    """The hyperparameters of a group as tensors, and how often they have changed."""

    inputs: dict[str, Tensor]
    version: int


@dataclass(frozen=True, slots=True)
class FlatKernel:
    """The step of an elementwise rule as programs on numbers and on vectors.

    Attributes:
        scalars: Computes the numbers of a step, for each parameter; None if there are none.
        tensors: Computes the next parameter and states from them; None if there is only a move.
        names: The name of each label among the tensors of a parameter.
        move: The last op on the parameter, if ``tensors`` computes its operand instead.
    """

    scalars: TensorProgram | None
    tensors: TensorProgram | None
    names: Mapping[str, str]
    move: Move | None


@lru_cache(_CACHED)
def flat_kernel(graph: Graph, label: str) -> FlatKernel | None:
    """Returns the programs of the step graph of a parameter; None if it is not elementwise.

    Args:
        graph: The graph, for a parameter of rank 1.
        label: The name of the parameter in it.
    """
    first, second = hoist(graph)
    if not second.outputs or any(node.type.shape for node in first.nodes):
        return None
    prefix = f"state.{label}."
    shown = {node.attribute("name") for node in graph.inputs}
    names = {str(name): _name(str(name), prefix) for name in shown}
    separated = separate(second, f"{PARAM}{label}")
    rest, move = (second, None) if separated is None else separated
    source = None if rest is None else _inplace(rest)
    if source is not None and not source.is_elementwise:
        return None
    scalars = None
    if first.outputs:
        hypers = [str(node.attribute("name")) for node in graph.inputs]
        rare = [name for name in hypers if name not in ("step",) and not name.startswith("state.")]
        scalars = TensorProgram(_inplace(first), rare)
    return FlatKernel(scalars, None if source is None else TensorProgram(source), names, move)


def _inplace(graph: Graph) -> InplaceProgram:
    """A program that writes each state over the one before, where it can."""
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
    found: list[range] = []
    start, total = 0, 0
    for index, size in enumerate(sizes):
        is_large = size > SMALL
        if index > start and (is_large or total + size > JOINED):
            found.append(range(start, index))
            start, total = index, 0
        total += size
        if is_large:
            found.append(range(start, index + 1))
            start, total = index + 1, 0
    if start < len(sizes):
        found.append(range(start, len(sizes)))
    return found


def is_flat(param: Tensor) -> bool:
    """Returns whether a parameter may be stepped as a part of a vector."""
    is_real_on_cpu = param.is_cpu and not param.is_complex()
    return is_real_on_cpu and is_plain(param) and param.is_contiguous()


def pack_states(params: Sequence[Tensor], states: Sequence[dict[str, Tensor]]) -> None:
    """Makes the states of parameters that are stepped as one vector parts of one vector."""
    rows = [row for row, param in enumerate(params) if is_flat(param)]
    for run in segments([params[row].numel() for row in rows]):
        members = [rows[index] for index in run]
        if len(members) < 2:
            continue
        for name, first in states[members[0]].items():
            columns = [states[row].get(name, first) for row in members]
            pairs = zip(columns, (params[row] for row in members), strict=True)
            if not all(
                one.shape == param.shape and one.dtype == first.dtype and is_flat(one)
                for one, param in pairs
            ):
                continue
            parts = _joined(columns).split([one.numel() for one in columns])
            for row, part in zip(members, parts, strict=True):
                if name in states[row]:
                    states[row][name] = part.view(params[row].shape)


def packed_zeros(
    params: Sequence[Tensor], dtype: torch.dtype, scalars: Sequence[str], names: Sequence[str]
) -> list[dict[str, Tensor]]:
    """Returns states that are 0, as ``pack_states`` makes them: those of a run are one vector.

    Args:
        params: Parameters of one dtype that may be stepped as parts of a vector.
        dtype: The dtype of the states.
        scalars: The names of the states of rank 0.
        names: The names of the states of the shape of the parameter.
    """
    found: list[dict[str, Tensor]] = [{} for _ in params]
    for name in scalars:
        for one, scalar in zip(found, torch.zeros(len(params), dtype=dtype).unbind(), strict=True):
            one[name] = scalar
    sizes, shapes = [param.numel() for param in params], [param.shape for param in params]
    for run in segments(sizes):
        part = slice(run.start, run.stop)
        for name in names:
            vector = torch.zeros(sum(sizes[part]), dtype=dtype)
            for one, row, shape in zip(
                found[part], vector.split(sizes[part]), shapes[part], strict=True
            ):
                one[name] = row.view(shape)
    return found


def adjacent(tensors: Sequence[Tensor]) -> Tensor | None:
    """Returns contiguous tensors that follow each other in memory as one vector, if they do."""
    found = [one for one in tensors if one.numel()]
    if not found:
        return None
    end, total = found[0].data_ptr(), 0
    storage, dtype = found[0].untyped_storage().data_ptr(), found[0].dtype
    for one in found:
        if one.data_ptr() != end or one.dtype != dtype or not one.is_contiguous():
            return None
        if one.untyped_storage().data_ptr() != storage:
            return None
        total += one.numel()
        end += one.numel() * one.element_size()
    return found[0].as_strided((total,), (1,))


class Column:
    """A state of several parameters, as one vector.

    Args:
        tensors: The state of each parameter.
        dtype: The dtype in which it is computed.
    """

    def __init__(self, tensors: Sequence[Tensor], dtype: torch.dtype) -> None:
        self.tensors = list(tensors)
        self._dtype = dtype
        self._vector = adjacent(tensors)
        self._is_scalar = all(not one.dim() for one in tensors)

    def is_vector(self, tensor: Tensor) -> bool:
        """Returns whether a tensor is the memory of the states."""
        return tensor is self._vector

    def load(self) -> Tensor:
        """Returns the values; they are those in memory if the tensors are adjacent."""
        if self._vector is not None:
            return in_dtype(self._vector, self._dtype)
        return in_dtype(_joined(self.tensors), self._dtype)

    def store(self, value: Tensor) -> None:
        """Writes the values, or one value for all."""
        if self._vector is not None:
            if value is not self._vector:
                self._vector.copy_(value)
            return
        sizes = [one.numel() for one in self.tensors]
        parts = value.expand(sum(sizes)).split(sizes)
        shaped = [part.view(one.shape) for part, one in zip(parts, self.tensors, strict=True)]
        torch._foreach_copy_(self.tensors, shaped)


def _joined(tensors: Sequence[Tensor]) -> Tensor:
    """One vector of the elements of some tensors."""
    vector: Tensor = torch._C._nn.flatten_dense_tensors(list(tensors))
    return vector


def _are_rows(tensors: Sequence[Tensor]) -> bool:
    """Whether tensors can be concatenated along their first axis."""
    return all(one.dim() for one in tensors) and len({one.shape[1:] for one in tensors}) == 1


class FlatStep:
    """The step of parameters of one group and dtype.

    Args:
        kernel: The programs.
        group: The group, whose hyperparameters are read at each step.
        params: The parameters.
        states: Their states.

    Attributes:
        params: The parameters.
        grads: The gradient of each parameter; None for one that is not stepped. Replaced before
            each run.
    """

    def __init__(
        self,
        kernel: FlatKernel,
        group: Hypers,
        params: Sequence[Tensor],
        states: Sequence[States],
    ) -> None:
        self.params = params
        self.grads: list[Any] = [None] * len(params)
        self._kernel, self._group = kernel, group
        self._count = len(params)
        self._loaded: list[Column | None] = []
        self._stored: list[int | None] = []
        self._are_own = kernel.scalars is not None and any(
            name.startswith(NUMBER) for name in kernel.scalars.varying
        )
        self._tensors_start = [] if kernel.tensors is None else kernel.tensors.start({})
        self._start: Values = []
        self._version = -1
        self._factors: list[float] = []
        if kernel.scalars is not None:
            labels = kernel.scalars.input_names
            for label, dtype in zip(labels, kernel.scalars.input_dtypes, strict=True):
                name = None if label in group.inputs else kernel.names[label]
                self._loaded.append(
                    None if name is None else Column([x[name] for x in states], dtype)
                )
            self._stored = [
                None if name.startswith(NUMBER) else labels.index(name.removeprefix(NEXT))
                for name in kernel.scalars.output_names
            ]
        self._segments = [
            _Segment(kernel, run, [params[i] for i in run], [states[i] for i in run])
            for run in segments([param.numel() for param in params])
        ]
        joined = [one for one in self._segments if one.is_joined]
        space = torch.empty(max((one.total for one in joined), default=0), dtype=params[0].dtype)
        for one in joined:
            one.write_through(space)

    def run(self) -> None:
        """Performs the step."""
        present = [grad is not None for grad in self.grads]
        if not any(present):
            return
        mask = None if all(present) else truths(present)
        numbers = self._numbers(mask)
        factors = [] if self._kernel.move is None else self._factors_of(self._kernel.move, numbers)
        for segment in self._segments:
            segment.run(self.grads, mask, numbers, factors, self._tensors_start)

    def _numbers(self, mask: Tensor | None) -> dict[str, Tensor]:
        """Computes the numbers of the step, one for all parameters or one for each."""
        program, group = self._kernel.scalars, self._group
        if program is None:
            return {}
        if self._version != group.version:
            self._start, self._version = program.start(group.inputs), group.version
            self._factors = []
        before = [None if one is None else one.load() for one in self._loaded]
        given = before
        if mask is not None:  # the program may write over what it is given
            given = [None if one is None else one.clone() for one in before]
        may_share = self._count > 1 and self._are_own
        if may_share and all(one is None or _is_uniform(one) for one in before):
            given = [None if one is None else one[:1] for one in given]
        numbers = {}
        results = program.run(self._start, given)
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
            found = numbers[move.number].view(-1).tolist()
            self._factors = [move.sign * number for number in found]
        return self._factors


def truths(values: Sequence[bool]) -> Tensor:
    """A vector of truth values; ``torch.tensor`` takes 10 times as long."""
    return torch.frombuffer(bytearray(values), dtype=torch.bool)


def _is_uniform(numbers: Tensor) -> bool:
    """Whether all numbers are equal; on the CPU, reading them waits for nothing."""
    found = numbers.tolist()
    return bool(found.count(found[0]) == len(found))


def _chosen(items: list[Item], mask: Tensor | None) -> list[Item]:
    """The items of the parameters that are stepped."""
    return items if mask is None else list(compress(items, mask.tolist()))


class _Segment:
    """Parameters that are stepped as one vector, or a large one that is stepped in tiles."""

    def __init__(
        self, kernel: FlatKernel, run: range, params: Sequence[Tensor], states: Sequence[States]
    ) -> None:
        self._program, self._move = kernel.tensors, kernel.move
        self._params, self._part = list(params), slice(run.start, run.stop)
        self._sizes = [param.numel() for param in params]
        self.total = sum(self._sizes)
        self._repeats = torch.tensor(self._sizes)
        self._columns: dict[str, Column] = {}
        self._own: dict[str, str] = {}
        program = kernel.tensors
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
                self._columns[label] = Column([one[name] for one in states], dtype)
        self.is_joined = len(run) > 1
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
        start: Values,
    ) -> None:
        """Steps the parameters that have a gradient."""
        own = grads[self._part]
        own_mask = None if mask is None else mask[self._part]
        if own_mask is not None and not own_mask.any():
            return
        if own_mask is not None and own_mask.all():
            own_mask = None
        taken = numbers
        if len(own) < len(grads):
            taken = {name: x[self._part] if x.numel() > 1 else x for name, x in numbers.items()}
            factors = factors[self._part] if len(factors) > 1 else factors
        if not self.is_joined and own[0] is not None:
            self._run_tiles(own[0], taken, factors, start)
        else:
            self._run_joined(own, own_mask, taken, factors, start)

    def _run_joined(
        self,
        grads: Sequence[Any],
        mask: Tensor | None,
        numbers: Mapping[str, Tensor],
        factors: list[float],
        start: Values,
    ) -> None:
        given = {label: column.load() for label, column in self._columns.items()}
        before = {} if mask is None else {label: one.clone() for label, one in given.items()}
        given |= numbers
        own = [name for name, one in numbers.items() if one.numel() > 1]
        if own:
            rows = torch.repeat_interleave(self._repeats, output_size=self.total)
            given |= {name: numbers[name].index_select(0, rows) for name in own}
        filled = list(grads)
        if mask is not None:  # the step of a parameter without a gradient is not used
            pairs = zip(self._params, grads, strict=True)
            filled = [param if grad is None else grad for param, grad in pairs]
        if GRAD in self._own:
            joined = torch.cat(filled).view(-1) if self._are_rows else _joined(filled)
            given[self._own[GRAD]] = in_dtype(joined, self._dtypes[self._own[GRAD]])
        if PARAM in self._own:
            given[self._own[PARAM]] = in_dtype(self._read(), self._dtypes[self._own[PARAM]])
        results = self._results(start, given)
        wanted = None
        if mask is not None:
            wanted = torch.repeat_interleave(mask, self._repeats, output_size=self.total)
        for name, result in zip(self._labels, results, strict=True):
            if name not in self._columns:
                if self._move is None:
                    self._write(result, mask)
            elif wanted is None:
                self._columns[name].store(result)
            else:
                self._columns[name].store(torch.where(wanted, result, before[name]))
        if self._move is not None:
            moved_by = self._moved_by(self._move, list(grads), results)
            self._add(moved_by, factors, mask)

    def _results(self, start: Values, given: Mapping[str, Tensor]) -> list[Tensor]:
        """Runs the program."""
        if self._program is None:
            return []
        return self._program.run(start, [given.get(name) for name in self._inputs])

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
        torch._foreach_copy_(_chosen(self._params, mask), _chosen(self._parts, mask))

    def _add(self, tensor: Tensor | list[Any], factors: list[float], mask: Tensor | None) -> None:
        """Moves the parameters by a factor, or one for each, times their parts of a tensor."""
        parts = tensor if isinstance(tensor, list) else self._split(tensor)
        params, parts = _chosen(self._params, mask), _chosen(parts, mask)
        if len(factors) == 1:
            torch._foreach_add_(params, parts, alpha=factors[0])
            return
        for param, part, factor in zip(params, parts, _chosen(factors, mask), strict=True):
            param.add_(part, alpha=factor)

    def _run_tiles(
        self, grad: Tensor, numbers: Mapping[str, Tensor], factors: list[float], start: Values
    ) -> None:
        vectors = {label: column.load() for label, column in self._columns.items()}
        (param,) = self._params
        flat = param.reshape(-1)
        own = {PARAM: flat, GRAD: grad.reshape(-1)}
        vectors |= {label: own[name] for name, label in self._own.items()}
        count = max(1, -(-self.total // TILE))
        tiles = {label: vector.chunk(count) for label, vector in vectors.items()}
        params, grads = flat.chunk(count), own[GRAD].chunk(count)
        for index in range(count):
            given = dict(numbers)
            for label, parts in tiles.items():
                given[label] = in_dtype(parts[index], self._dtypes[label])
            results = self._results(start, given)
            for name, result in zip(self._labels, results, strict=True):
                if name in tiles and result is not tiles[name][index]:
                    tiles[name][index].copy_(result)
            if self._move is not None:
                (factor,) = factors
                params[index].add_(self._moved_by(self._move, grads[index], results), alpha=factor)
        for label, column in self._columns.items():
            column.store(vectors[label])
        if flat.data_ptr() != param.data_ptr():
            param.copy_(flat.view(param.shape))

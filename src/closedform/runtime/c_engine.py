"""The engine of compiled C: elementwise rules, updated in place by loops over their arrays.

The rules of the model are one library of C functions (``exporters.c_header``). A part of an array
is the arguments of one call; parts are distributed over threads, which ctypes runs without the
interpreter's lock. An element has the same bits whatever part it belongs to. Partial sums are of
parts of a fixed size, and added in their order.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np

from closedform.errors import ExportError, SessionError
from closedform.exporters.c_function import SIZE, CFunction, Parameter, Passing
from closedform.exporters.c_header import ANY_PARAM, Header, rule_headers
from closedform.ir import naming
from closedform.ir.graph import Array
from closedform.ir.naming import SHARED, STEP, TOTAL
from closedform.ir.types import DType
from closedform.language import PARAM
from closedform.options import GraphOptions, ModelSpec
from closedform.runtime.c_library import CLibrary
from closedform.runtime.double_buffer import read_only
from closedform.runtime.model_ports import Memory, model_ports
from closedform.runtime.onnx_session import Port, checked_threads
from closedform.runtime.tiles import SMALLEST_TILE, TILE_WITH_SUMS, ParamGroup
from closedform.runtime.workers import Tensors, WorkerPool, cores

Numbers = Mapping[str, int | float]


@dataclass(frozen=True, slots=True)
class _Part:
    """Some elements of one parameter.

    Attributes:
        prefix: The prefix of the functions of its rule.
        param: The name of the parameter.
        first: The first element.
        count: The number of elements.
    """

    prefix: str
    param: str
    first: int
    count: int


class CompiledModel:
    """The arrays and the step of a model in C.

    Args:
        spec: The parameters and their rules.
        options: How they are compiled.
        params: The parameters by name. They are copied.
        threads: The number of threads of a step; one per core if None.

    Attributes:
        arrays: The writable arrays by input name.
        ports: The inputs of the step by role.
        views: Read-only views of parameters and states.

    Raises:
        SessionError: A rule is not elementwise, or there is no C compiler.
    """

    alias_hint = "parameters and states are updated in place; copy the array"

    def __init__(
        self,
        spec: ModelSpec,
        options: GraphOptions,
        params: Mapping[str, Array],
        threads: int | None,
    ) -> None:
        rules = {
            f"rule{place}": assignment.rule for place, assignment in enumerate(spec.assignments)
        }
        try:
            headers = rule_headers(rules, options)
        except ExportError as error:
            raise SessionError(
                error.what, where=error.where, hint='run it with backend="onnxruntime"'
            ) from None
        # One library for all rules of the model: their sums are over all parameters.
        self._library = CLibrary(headers)
        self._prefixes = list(rules)
        self._stages = _stages(headers)
        groups = [
            ParamGroup(assignment.rule, {name: params[name] for name in assignment.params})
            for assignment in spec.assignments
        ]
        # The clock is an array like the others, so that views and state dicts hold it.
        self.arrays: dict[str, Array] = {STEP: np.zeros((), np.int64)}
        for group in groups:
            for label, common_state in group.rule.shared.items():
                dtype = np.int64 if common_state.is_counter else np.float64
                self.arrays[naming.shared(label)] = np.array(float(common_state.initial), dtype)
            self.arrays |= _start(group, options.tensor_dtype.numpy)
        tensors = [a for name, a in self.arrays.items() if name != STEP]
        self._memory = Memory(tensors)
        hypers = {
            parameter.port: Port(parameter.port, parameter.dtype.numpy, ())
            for header in headers
            for function in header.functions
            for parameter in function.parameters
            if _is_hyper(parameter)
        }
        self.ports = model_ports(spec.rule.name, groups, tuple(params), self.arrays, hypers, {})
        self.views = self.ports.views(
            {port.name: read_only(self.arrays[port.name]) for port in self.ports.carried_ports}
        )
        workers = cores() if threads is None else checked_threads(threads)
        self._shares = _shares(groups, self._prefixes, workers, has_sums=bool(self._stages))
        self._pool = WorkerPool(len(self._shares))
        largest = max((part.count for share in self._shares for _, part in share), default=0)
        # Zeros of any dtype, as wide as the widest.
        self._zeros = np.zeros(largest if self._stages else 0, options.tensor_dtype.numpy)

    def overlaps(self, array: Array) -> bool:
        """Returns whether a step may write to the memory of this array."""
        return self._memory.overlaps(array)

    def write(self, values: Mapping[str, Array]) -> None:
        """Copies values into the arrays, by input name."""
        for name, value in values.items():
            np.copyto(self.arrays[name], value)

    def step(self, tensors: Tensors, hypers: Mapping[str, Array]) -> None:
        """Performs one step.

        Args:
            tensors: Gradients and other inputs; a parameter whose gradient is None does not change,
                nor do its states.
            hypers: Hyperparameter inputs by name.
        """
        numbers: dict[str, int | float] = {
            name: array.item()
            for name, array in self.arrays.items()
            if name == STEP or name.startswith(SHARED)
        }
        numbers |= {name: array.item() for name, array in hypers.items()}
        for stage in range(self._stages):
            numbers |= self._totals(stage, tensors, numbers)

        def update(share: Sequence[tuple[int, _Part]]) -> None:
            for _, part in share:
                if tensors[naming.grad(part.param)] is not None:
                    self._call(f"{part.prefix}_step", part, tensors, numbers)

        self._pool.map(update, self._shares)
        self._advance(numbers)

    def _totals(self, stage: int, tensors: Tensors, numbers: Numbers) -> dict[str, float]:
        """The sums of a stage over all parts, added in their order."""

        def terms(share: Sequence[tuple[int, _Part]]) -> dict[int, dict[str, float]]:
            totals = {}
            for index, part in share:
                name = f"{part.prefix}_sums_{stage}"
                function = self._library.find_function(name)
                if function is None:
                    continue
                sums = {
                    p.port: np.zeros(()) for p in function.parameters if p.passing is Passing.ADD
                }
                self._call(name, part, tensors, numbers, sums)
                totals[index] = {port: total.item() for port, total in sums.items()}
            return totals

        by_index: dict[int, dict[str, float]] = {}
        for share in self._pool.map(terms, self._shares):
            by_index |= share
        totals: dict[str, float] = {}
        # In the order of the parts, not of the threads that computed them: the sum has the same
        # bits for any number of threads.
        for index in sorted(by_index):
            for port, term in by_index[index].items():
                totals[port] = totals.get(port, 0.0) + term
        return totals

    def _advance(self, numbers: Numbers) -> None:
        """Writes the next clock and the next states of the model."""
        # A rule without a function <name>_next counts each step.
        next_value = int(numbers[STEP]) + 1
        results: dict[str, Array] = {}
        for prefix in self._prefixes:
            function = self._library.find_function(f"{prefix}_next")
            if function is None:
                continue
            for p in function.parameters:
                if p.passing is Passing.RESULT:
                    results[p.port] = np.empty((), p.dtype.numpy)
            arguments = [
                results[p.port].ctypes.data if p.passing is Passing.RESULT else numbers[p.port]
                for p in function.parameters
            ]
            next_value = self._library.function(f"{prefix}_next")(*arguments)
        for port, value in results.items():
            np.copyto(self.arrays[port.removeprefix(naming.NEXT)], value)
        self.arrays[STEP][...] = next_value

    def _call(
        self,
        name: str,
        part: _Part,
        tensors: Tensors,
        numbers: Numbers,
        sums: Mapping[str, Array] | None = None,
    ) -> None:
        """Calls a C function on the elements of a part, if the rule has that function."""
        function = self._library.find_function(name)
        if function is None or not part.count:
            return
        # ctypes releases the interpreter's lock during the call.
        arguments: list[Any] = []
        for parameter in function.parameters:
            if parameter.port == SIZE:
                arguments.append(part.count)
            elif parameter.passing is Passing.VALUE:
                arguments.append(numbers[parameter.port])
            elif parameter.passing is Passing.ADD and sums is not None:
                arguments.append(sums[parameter.port].ctypes.data)
            else:
                arguments.append(self._address(parameter, part, tensors))
        self._library.function(name)(*arguments)

    def _address(self, parameter: Parameter, part: _Part, tensors: Tensors) -> int:
        """The address of the first element of a part in an array."""
        # Once: the name of a parameter may itself contain ".all".
        port = parameter.port.replace(f".{ANY_PARAM}", f".{part.param}", 1)
        array = self.arrays.get(port)
        if array is None:
            array = tensors[port]
        if array is None:  # no gradient: its terms of the sums are those of zeros
            return int(self._zeros.ctypes.data)
        # The address of an element: the C function sees a shorter array.
        return int(array.ctypes.data) + part.first * array.itemsize


def _is_hyper(parameter: Parameter) -> bool:
    is_number = parameter.passing is Passing.VALUE and parameter.port not in (SIZE, STEP)
    return is_number and not parameter.port.startswith((SHARED, TOTAL))


def _stages(headers: Sequence[Header]) -> int:
    """The number of stages of sums."""
    functions: Iterator[CFunction] = (
        function for header in headers for function in header.functions
    )
    places = [
        int(function.name.rpartition("_")[2]) for function in functions if "_sums_" in function.name
    ]
    return max(places, default=-1) + 1


def _start(group: ParamGroup, tensor: np.dtype[Any]) -> dict[str, Array]:
    """The arrays of the parameters and states of a group before the first step."""
    arrays: dict[str, Array] = {}
    for name, array in group.params.items():
        arrays[naming.param(name)] = array.copy(order="C")
        for label, spec in group.rule.states.items():
            dtype = tensor if spec.stored is None else DType(spec.stored).numpy
            arrays[naming.state(name, label)] = (
                array.astype(dtype, order="C")
                if spec.initial == PARAM
                else np.full(array.shape, float(spec.initial), dtype)
            )
    return arrays


def _shares(
    groups: Sequence[ParamGroup], prefixes: Sequence[str], workers: int, *, has_sums: bool
) -> list[list[tuple[int, _Part]]]:
    """The parts of all parameters by their index, for each worker; there is at least one share."""
    total = sum(array.size for group in groups for array in group.params.values())
    # With sums, parts have a fixed size, as the rounding of a sum depends on it.
    largest = TILE_WITH_SUMS if has_sums else max(-(-total // workers), SMALLEST_TILE)
    parts = [
        _Part(
            prefix,
            name,
            first,
            min(largest if group.rule.is_elementwise else array.size, array.size - first),
        )
        for prefix, group in zip(prefixes, groups, strict=True)
        for name, array in group.params.items()
        for first in range(0, array.size, largest if group.rule.is_elementwise else array.size)
    ]
    shares: list[list[tuple[int, _Part]]] = [[] for _ in range(workers)]
    loads = [0] * workers
    for index, part in enumerate(parts):
        least = loads.index(min(loads))
        shares[least].append((index, part))
        loads[least] += part.count
    return [share for share in shares if share] or [[]]

"""Double buffering of the arrays that one step hands to the next.

Invariant: a step reads the current buffer and writes the other one, which then becomes current.
Both directions are bound once, so a step copies nothing, and a step that fails has written only to
the buffer that is not visible. Arrays that no step changes are stored once.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any, TypeVar

import numpy as np
from numpy.typing import NDArray

from closedform.errors import SessionError
from closedform.ir import naming
from closedform.ir.graph import Array
from closedform.ir.naming import STEP
from closedform.runtime.onnx_session import OnnxSession, Port, SessionBinding

T = TypeVar("T")

ALIGNMENT = 64
"""Bytes; a cache line and the widest vector register of a CPU."""


@dataclass(frozen=True, slots=True)
class Buffer:
    """Arrays in one aligned block of memory.

    Attributes:
        block: The memory.
        arrays: The writable arrays by the name of their input.
    """

    block: NDArray[np.uint8]
    arrays: dict[str, Array]


def allocate(ports: Sequence[Port]) -> Buffer:
    """Returns zero-filled arrays for ports with static shapes."""
    offsets: dict[str, int] = {}
    total = 0
    for port in ports:
        offsets[port.name] = total
        # Rounded up, so that each array begins at a cache line.
        total += -(-_byte_count(port) // ALIGNMENT) * ALIGNMENT
    memory = np.zeros(total + ALIGNMENT, np.uint8)
    # numpy's memory need not begin at a cache line: the block begins at the first one.
    block = memory[-memory.ctypes.data % ALIGNMENT :][:total]
    arrays = {
        port.name: block[offsets[port.name] :][: _byte_count(port)]
        .view(port.dtype)
        .reshape(static_shape(port))
        for port in ports
    }
    return Buffer(block, arrays)


def static_shape(port: Port) -> tuple[int, ...]:
    """Returns the shape of a port without dynamic sizes."""
    return tuple(int(size) for size in port.shape if size is not None)


def _byte_count(port: Port) -> int:
    return math.prod(static_shape(port)) * port.dtype.itemsize


def read_only(array: Array) -> Array:
    """Returns a view that cannot be written to."""
    view = array.view()
    view.flags.writeable = False
    return view


class DoubleBuffer:
    """The arrays and the step of a model whose output ``next.x`` replaces its input ``x``.

    Args:
        session: The model of the step.
        carried: The inputs that one step hands to the next, with static shapes.
        where: The name of the model in error messages.
        extra_outputs: Arrays for the other outputs of the step, by output name.

    Attributes:
        current: The index of the buffer that the next step reads, 0 or 1.
        views: Read-only views of both buffers by input name; they are valid until the next step.
    """

    def __init__(
        self,
        session: OnnxSession,
        carried_ports: Sequence[Port],
        where: str,
        extra_outputs: Mapping[str, Array] | None = None,
    ) -> None:
        self._where = where
        changing_ports = [
            port for port in carried_ports if naming.following(port.name) in session.outputs
        ]
        constant = [
            port for port in carried_ports if naming.following(port.name) not in session.outputs
        ]
        stored_once, buffers = (
            allocate(constant).arrays,
            (allocate(changing_ports), allocate(changing_ports)),
        )
        self._blocks = tuple(buffer.block for buffer in buffers)
        self._buffers = tuple({**buffer.arrays, **stored_once} for buffer in buffers)
        self.views = tuple(
            {name: read_only(array) for name, array in arrays.items()} for arrays in self._buffers
        )
        self.current = 0
        self._changing = [port.name for port in changing_ports]
        self.bind(session, extra_outputs or {})

    def bind(
        self,
        session: OnnxSession,
        extra_outputs: Mapping[str, Array],
        allocated_outputs: Sequence[str] = (),
    ) -> None:
        """Lets another session of the step run.

        Args:
            session: Its inputs and outputs are the same, except for the following.
            extra_outputs: As of the class.
            allocated_outputs: Outputs that each run allocates.
        """
        self._bindings = [
            SessionBinding(
                session,
                {name: array for name, array in source.items() if name in session.inputs},
                {
                    **{naming.following(name): target[name] for name in self._changing},
                    **extra_outputs,
                },
                allocated_outputs,
            )
            # Two bindings, one for each direction.
            for source, target in (self._buffers, self._buffers[::-1])
        ]

    def take_allocated(self) -> dict[str, Any]:
        """Returns the outputs that the last run allocated, as values of onnxruntime, by name."""
        return self._bindings[self.current].take_allocated()

    @property
    def arrays(self) -> Mapping[str, Array]:
        """The writable arrays of the current buffer by input name."""
        return self._buffers[self.current]

    @property
    def following(self) -> Mapping[str, Array]:
        """The arrays that a step writes, by output name."""
        target = self._buffers[1 - self.current]
        return {naming.following(name): target[name] for name in self._changing}

    @property
    def current_views(self) -> Mapping[str, Array]:
        """Read-only views of the current buffer by input name."""
        return self.views[self.current]

    def overlaps(self, array: Array) -> bool:
        """Returns whether the next step writes to the memory of this array."""
        # By the bounds of memory, in constant time: shares_memory solves a Diophantine equation.
        return np.may_share_memory(array, self._blocks[1 - self.current])

    def write(self, values: Mapping[str, Array]) -> None:
        """Copies values into the current buffer, by input name."""
        self.fill(values, np.copyto)

    def fill(self, values: Mapping[str, T], put: Callable[[Array, T], None]) -> None:
        """Puts each value into its array of the current buffer, by input name."""
        for name, value in values.items():
            put(self.arrays[name], value)

    def run(self, feeds: Mapping[str, Array], constant_names: Iterable[str] = ()) -> None:
        """Performs one step.

        Args:
            feeds: All other inputs by name, contiguous; those with a default may be omitted.
            constant_names: The names of carried inputs whose values this step must not change.

        Raises:
            SessionError: onnxruntime fails.
        """
        self.compute(feeds)
        following = self._buffers[1 - self.current]
        for name in constant_names:
            # The graph writes all of them; a parameter without a gradient gets its value back.
            np.copyto(following[name], self.arrays[name])
        self.turn()

    def compute(self, feeds: Mapping[str, Array]) -> None:
        """Runs the step without making its results current.

        Raises:
            SessionError: onnxruntime fails.
        """
        try:
            self._bindings[self.current].run(feeds)
        except Exception as error:  # onnxruntime's errors share no other base
            raise SessionError(
                f"onnxruntime failed in step {int(self.arrays[STEP])}: {error}",
                where=self._where,
                hint="the parameters and states are unchanged",
            ) from error

    def turn(self) -> None:
        """Makes the results of the last run current."""
        self.current = 1 - self.current

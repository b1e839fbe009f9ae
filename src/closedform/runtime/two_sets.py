"""Two sets of the arrays that one step hands to the next.

Invariant: a step reads the current set and writes the other one, which then is the current one.
Both ways are bound once, so nothing is copied by a step, and a step that fails has written only to
the set that nobody looks at. What no step changes is held once.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence

import numpy as np

from closedform.errors import SessionError
from closedform.runtime.binding import Binding
from closedform.runtime.buffers import Array, allocate, read_only
from closedform.runtime.layout import NEXT, STEP
from closedform.runtime.onnx_session import OnnxSession, Port


class TwoSets:
    """The arrays and the step of any model whose output ``next.x`` replaces its input ``x``.

    Args:
        session: The model of the step.
        carried: Its inputs that one step hands to the next, without free sizes.
        where: What it is, for errors.
        told: What each step says beside them, by output name: arrays that it writes to.

    Attributes:
        current: Which set is read by the next step, 0 or 1.
        views: Read-only views of both sets by input name; they hold until the next step.
    """

    def __init__(
        self,
        session: OnnxSession,
        carried: Sequence[Port],
        where: str,
        told: Mapping[str, Array] | None = None,
    ) -> None:
        self._where = where
        changed = [port for port in carried if f"{NEXT}{port.name}" in session.outputs]
        kept = [port for port in carried if f"{NEXT}{port.name}" not in session.outputs]
        once, made = allocate(kept).arrays, (allocate(changed), allocate(changed))
        self._blocks = tuple(of.block for of in made)
        self._sets = tuple({**of.arrays, **once} for of in made)
        self.views = tuple(
            {name: read_only(array) for name, array in arrays.items()} for arrays in self._sets
        )
        self.current = 0
        self._ways = [
            Binding(
                session,
                self._sets[current],
                {
                    **{
                        f"{NEXT}{port.name}": self._sets[1 - current][port.name] for port in changed
                    },
                    **(told or {}),
                },
            )
            for current in (0, 1)
        ]

    @property
    def arrays(self) -> Mapping[str, Array]:
        """The writable arrays of the current set by input name."""
        return self._sets[self.current]

    def holds(self, array: Array) -> bool:
        """Returns whether a step writes to this array's memory."""
        return np.may_share_memory(array, self._blocks[1 - self.current])

    def write(self, values: Mapping[str, Array]) -> None:
        """Takes over arrays by input name."""
        for name, value in values.items():
            np.copyto(self.arrays[name], value)

    def run(self, given: Mapping[str, Array], kept: Iterable[str] = ()) -> None:
        """Does one step.

        Args:
            given: All other inputs by name, contiguous; those with a default may be left out.
            kept: Names of carried inputs that stay as they are.

        Raises:
            SessionError: onnxruntime fails.
        """
        try:
            self._ways[self.current].run(given)
        except Exception as error:  # onnxruntime's errors share no other base
            raise SessionError(
                f"onnxruntime failed in step {int(self.arrays[STEP])}: {error}",
                where=self._where,
                hint="the parameters and states are those before the step",
            ) from error
        following = self._sets[1 - self.current]
        for name in kept:
            np.copyto(following[name], self.arrays[name])
        self.current = 1 - self.current

"""Rules on whole tensors, one tensor after the other: one session for each rule and shape."""

from __future__ import annotations

from collections.abc import Mapping

import numpy as np

from closedform.language import PARAM
from closedform.runtime.buffers import Array
from closedform.runtime.in_place import Member
from closedform.runtime.lanes import ALL, Memory, Part, Sessions, Tensors
from closedform.runtime.layout import STATE


class Tensor:
    """One parameter with its states: see ``Part``.

    Args:
        sessions: Those of a parameter of this shape.
        param: The parameter's name.
        current: Its arrays by input name for the parameter ``all``.
    """

    def __init__(
        self,
        sessions: Sessions,
        param: str,
        current: Mapping[str, Array],
    ) -> None:
        self.sessions = sessions
        self._param = param
        self.current = current

    def taken(self, port: str, tensors: Tensors, memory: Memory) -> Array:
        """Returns the gradient or other tensor of an input; zeros where there is none."""
        given = tensors[port.replace(ALL, self._param, 1)]
        if given is not None:
            return given
        zeros = memory.array(port, self.current[f"param.{ALL}"])
        zeros[...] = 0
        return zeros

    def commit(self, results: Mapping[str, Array], tensors: Tensors) -> None:
        """Copies the results into place, unless there is no gradient."""
        if tensors[f"grad.{self._param}"] is not None:
            for name, array in self.current.items():
                np.copyto(array, results[name])


def tensor_parts(
    member: Member, sessions: Mapping[tuple[int, ...], Sessions]
) -> tuple[dict[str, Array], list[Part]]:
    """Returns the arrays of a rule's parameters and states by input name, and its tensors.

    Args:
        member: A rule and its parameters.
        sessions: Those of each shape.
    """
    arrays: dict[str, Array] = {}
    parts: list[Part] = []
    for name, given in member.params.items():
        rule = member.rule.for_shape(given.shape, name)
        own = {f"param.{ALL}": given.copy()}
        for label, spec in rule.states.items():
            shape = tuple(int(size) for size in rule.state_shape(label, given.shape))
            own[f"{STATE}{ALL}.{label}"] = (
                given.copy()
                if spec.initial == PARAM
                else np.full(shape, float(spec.initial), given.dtype)
            )
        parts.append(Tensor(sessions[given.shape], name, own))
        arrays |= {port.replace(f".{ALL}", f".{name}", 1): a for port, a in own.items()}
    return arrays, parts

"""The ports of a model whose arrays a session owns, group by group, and the memory of these."""

from __future__ import annotations

import bisect
from collections.abc import Iterable, Mapping, Sequence

from numpy.lib.array_utils import byte_bounds

from closedform.ir import naming
from closedform.ir.graph import Array
from closedform.ir.naming import SHARED, STEP
from closedform.runtime.onnx_session import Port
from closedform.runtime.step_ports import StepPorts
from closedform.runtime.tiles import ParamGroup


def model_ports(
    rule: str,
    groups: Sequence[ParamGroup],
    order: Sequence[str],
    arrays: Mapping[str, Array],
    hypers: dict[str, Port],
    optional: dict[str, Port],
) -> StepPorts:
    """Returns the inputs of the step of a model by role.

    Args:
        rule: The name of the rule.
        groups: The rules and their parameters.
        order: The names of the parameters in the order of the model.
        arrays: The clock, the states of the model, parameters and states by input name.
        hypers: The required hyperparameter inputs by name.
        optional: The hyperparameter inputs with a default, by name.
    """

    def port(name: str) -> Port:
        return Port(name, arrays[name].dtype, arrays[name].shape)

    params = {name: port(naming.param(name)) for name in order}
    states: dict[str, dict[str, Port]] = {}
    inputs: dict[str, dict[str, Port]] = {}
    for group in groups:
        for label in group.rule.states:
            names = [n for n in group.params if naming.state(n, label) in arrays]
            if names:
                state_ports = {name: port(naming.state(name, label)) for name in names}
                states.setdefault(label, {}).update(state_ports)
        for label in group.rule.inputs:
            inputs.setdefault(label, {}).update(
                {
                    name: Port(naming.tensor_input(name, label), params[name].dtype, array.shape)
                    for name, array in group.params.items()
                }
            )
    model_states = {
        name.removeprefix(SHARED): port(name) for name in arrays if name.startswith(SHARED)
    }
    return StepPorts(rule, port(STEP), params, states, hypers, optional, model_states, inputs)


class Memory:
    """The memory of arrays that do not overlap each other."""

    def __init__(self, arrays: Iterable[Array]) -> None:
        bounds = sorted(byte_bounds(array) for array in arrays if array.size)
        self._starts, self._ends = [start for start, _ in bounds], [end for _, end in bounds]

    def overlaps(self, array: Array) -> bool:
        """Returns whether an array has memory in common with one of them."""
        if array.size == 0:
            return False
        start, end = byte_bounds(array)
        place = bisect.bisect_left(self._ends, start + 1)
        return place < len(self._starts) and self._starts[place] < end

"""The ports of a step model: which inputs are parameters, gradients, states, hyperparameters."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from types import MappingProxyType

from closedform.errors import SessionError
from closedform.ir import naming
from closedform.ir.graph import Array
from closedform.ir.naming import GRAD, INPUT, NEXT, PARAM, SHARED, STATE, STEP
from closedform.runtime.onnx_session import OnnxSession, Port

_HINT = "export the rule with closedform.to_onnx"


@dataclass(frozen=True, slots=True)
class StepViews:
    """Read-only mappings of the arrays of a step model.

    Attributes:
        params: The parameters by name.
        states: The states by state name, then by parameter name.
        shared: The states of the whole model by name.
    """

    params: Mapping[str, Array]
    states: Mapping[str, Mapping[str, Array]]
    shared: Mapping[str, Array]


@dataclass(frozen=True, slots=True)
class StepPorts:
    """The inputs of a step model by role.

    Attributes:
        rule: The name of the rule.
        step: The clock.
        params: The parameters by name.
        states: The states by state name, then by parameter name.
        hypers: The required hyperparameter inputs by name.
        optional: The hyperparameter inputs with a default, by name.
        shared: The states of the whole model by name.
        inputs: The tensors other than gradients that a step takes, by input name, then by
            parameter name.
    """

    rule: str
    step: Port
    params: dict[str, Port]
    states: dict[str, dict[str, Port]]
    hypers: dict[str, Port]
    optional: dict[str, Port]
    shared: dict[str, Port] = field(default_factory=dict)
    inputs: dict[str, dict[str, Port]] = field(default_factory=dict)

    @property
    def carried_ports(self) -> tuple[Port, ...]:
        """The inputs that one step hands to the next: the clock, parameters and states."""
        states = (port for by_name in self.states.values() for port in by_name.values())
        return (self.step, *self.shared.values(), *self.params.values(), *states)

    def views(self, arrays: Mapping[str, Array]) -> StepViews:
        """Returns the arrays, given by input name, as mappings by parameter and state name."""

        def views_by_name(ports: Mapping[str, Port]) -> Mapping[str, Array]:
            return MappingProxyType({name: arrays[port.name] for name, port in ports.items()})

        states = {state: views_by_name(by_param) for state, by_param in self.states.items()}
        return StepViews(
            views_by_name(self.params), MappingProxyType(states), views_by_name(self.shared)
        )


def read_step_ports(session: OnnxSession) -> StepPorts:
    """Returns the ports of a step model.

    A state is ``state.<parameter>.<state>``; parameter names may contain dots, state names do not.

    Raises:
        SessionError: There is no clock or parameter, a gradient or state belongs to no parameter, a
            size is dynamic, or an output does not fit the input that it replaces.
    """
    where = f"step model {session.name!r}"
    inputs = session.inputs
    if STEP not in inputs or inputs[STEP].shape or inputs[STEP].dtype.kind != "i":
        got = inputs.get(STEP, "none")
        raise SessionError(
            f"a step model needs an integer input 'step', got {got}", where=where, hint=_HINT
        )
    params = _strip_prefix(inputs, PARAM)
    grads = _strip_prefix(inputs, GRAD)
    if not params or params.keys() != grads.keys():
        raise SessionError(
            f"a step model needs one gradient per parameter, got parameters {_list_names(params)} "
            f"and gradients {_list_names(grads)}",
            where=where,
            hint=_HINT,
        )
    port_names = {STEP, *(f"{kind}.{name}" for name in params for kind in ("param", "grad"))}
    model_states = _strip_prefix(inputs, SHARED)
    states = _by_param(inputs, STATE, params, "state", where)
    tensor_inputs = _by_param(inputs, INPUT, params, "input", where)
    of_tensors = (*states.values(), *tensor_inputs.values())
    port_names |= {
        port.name for by_name in (model_states, *of_tensors) for port in by_name.values()
    }
    hypers = {name: port for name, port in inputs.items() if name not in port_names}
    parts = (params, states, hypers, session.optional, model_states, tensor_inputs)
    ports = StepPorts(session.name, inputs[STEP], *parts)
    _check_ports(session, ports, grads, where)
    return ports


def _by_param(
    ports: dict[str, Port], prefix: str, params: Mapping[str, Port], kind: str, where: str
) -> dict[str, dict[str, Port]]:
    """Ports of tensors that belong to parameters, by their name, then by parameter name."""
    ports_by_label: dict[str, dict[str, Port]] = {}
    for path, port in _strip_prefix(ports, prefix).items():
        name, _, label = path.rpartition(".")
        if name not in params:
            raise SessionError(
                f"{kind} {port.name!r} belongs to no parameter",
                where=where,
                hint=f"the parameters are {_list_names(dict(params))}",
            )
        ports_by_label.setdefault(label, {})[name] = port
    return ports_by_label


def _strip_prefix(ports: dict[str, Port], prefix: str) -> dict[str, Port]:
    return {
        name.removeprefix(prefix): port for name, port in ports.items() if name.startswith(prefix)
    }


def _list_names(names: dict[str, Port]) -> str:
    return ", ".join(names) or "none"


def _check_ports(
    session: OnnxSession, ports: StepPorts, grads: dict[str, Port], where: str
) -> None:
    for port in ports.carried_ports:
        if None in port.shape:
            raise SessionError(
                f"input {port.name!r} must have a static shape, got {port}", where=where
            )
        follower = session.outputs.get(naming.following(port.name))
        if follower is None or (follower.dtype, follower.shape) != (port.dtype, port.shape):
            got = "none" if follower is None else str(follower)
            raise SessionError(
                f"output '{NEXT}{port.name}' must be {port}, got {got}",
                where=where,
                hint=_HINT,
            )
    for name, grad in grads.items():
        param = ports.params[name]
        if (grad.dtype, grad.shape) != (param.dtype, param.shape):
            raise SessionError(
                f"input {grad.name!r} must be {param}, got {grad}", where=where, hint=_HINT
            )
    for port in (*ports.hypers.values(), *ports.optional.values(), *ports.shared.values()):
        if port.shape:
            raise SessionError(f"input {port.name!r} must have rank 0, got {port}", where=where)

"""What a step model says of itself: which inputs are parameters, gradients and states of whom."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field

from closedform.errors import SessionError
from closedform.runtime.onnx_session import OnnxSession, Port

STEP = "step"
NEXT = "next."
STATE, SHARED, INPUT, TOTAL = "state.", "shared.", "input.", "sum."

_HINT = "export the rule with closedform.to_onnx"


@dataclass(frozen=True, slots=True)
class Layout:
    """The inputs of a step model by what they stand for.

    Attributes:
        rule: Name of the rule.
        step: The clock.
        params: Parameters by name.
        states: States by state name, then by parameter name.
        hypers: Hyperparameter inputs that every step must give, by name.
        optional: Hyperparameter inputs with a default, by name.
        shared: States of the whole model by name.
        inputs: Tensors that a step takes beside gradients by their name, then by parameter name.
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
    def carried(self) -> tuple[Port, ...]:
        """All that one step hands to the next: the clock, parameters, states."""
        states = (port for by_name in self.states.values() for port in by_name.values())
        return (self.step, *self.shared.values(), *self.params.values(), *states)


def read_layout(session: OnnxSession) -> Layout:
    """Returns the layout of a step model.

    A state is ``state.<parameter>.<state>``; parameter names may hold dots, state names do not.

    Raises:
        SessionError: There is no clock or parameter, a gradient or state has no parameter, sizes
            are free, or an output does not fit the input that it replaces.
    """
    where = f"step model {session.name!r}"
    inputs = session.inputs
    if STEP not in inputs or inputs[STEP].shape or inputs[STEP].dtype.kind != "i":
        got = inputs.get(STEP, "none")
        raise SessionError(
            f"a step model has an integer input 'step', got {got}", where=where, hint=_HINT
        )
    params = _named(inputs, "param.")
    grads = _named(inputs, "grad.")
    if not params or params.keys() != grads.keys():
        raise SessionError(
            f"a step model has a gradient for each parameter, got parameters {_listed(params)} "
            f"and gradients {_listed(grads)}",
            where=where,
            hint=_HINT,
        )
    taken = {STEP, *(f"{kind}.{name}" for name in params for kind in ("param", "grad"))}
    shared = _named(inputs, SHARED)
    states = _by_param(inputs, STATE, params, "state", where)
    others = _by_param(inputs, INPUT, params, "input", where)
    of_tensors = (*states.values(), *others.values())
    taken |= {port.name for by_name in (shared, *of_tensors) for port in by_name.values()}
    hypers = {name: port for name, port in inputs.items() if name not in taken}
    known = (params, states, hypers, session.optional, shared, others)
    layout = Layout(session.name, inputs[STEP], *known)
    _check_ports(session, layout, grads, where)
    return layout


def _by_param(
    ports: dict[str, Port], prefix: str, params: Mapping[str, Port], what: str, where: str
) -> dict[str, dict[str, Port]]:
    """Ports of tensors that belong to parameters, by their name, then by parameter name."""
    found: dict[str, dict[str, Port]] = {}
    for path, port in _named(ports, prefix).items():
        name, _, label = path.rpartition(".")
        if name not in params:
            raise SessionError(
                f"{what} {port.name!r} belongs to no parameter",
                where=where,
                hint=f"its parameters are {_listed(dict(params))}",
            )
        found.setdefault(label, {})[name] = port
    return found


def _named(ports: dict[str, Port], prefix: str) -> dict[str, Port]:
    return {
        name.removeprefix(prefix): port for name, port in ports.items() if name.startswith(prefix)
    }


def _listed(names: dict[str, Port]) -> str:
    return ", ".join(names) or "none"


def _check_ports(session: OnnxSession, layout: Layout, grads: dict[str, Port], where: str) -> None:
    for port in layout.carried:
        if None in port.shape:
            raise SessionError(f"input {port.name!r} has a free size: {port}", where=where)
        follower = session.outputs.get(f"{NEXT}{port.name}")
        if follower is None or (follower.dtype, follower.shape) != (port.dtype, port.shape):
            got = "none" if follower is None else str(follower)
            raise SessionError(
                f"output '{NEXT}{port.name}' must be {port}, got {got}", where=where, hint=_HINT
            )
    for name, grad in grads.items():
        param = layout.params[name]
        if (grad.dtype, grad.shape) != (param.dtype, param.shape):
            raise SessionError(
                f"input {grad.name!r} must be {param}, got {grad}", where=where, hint=_HINT
            )
    for port in (*layout.hypers.values(), *layout.optional.values(), *layout.shared.values()):
        if port.shape:
            raise SessionError(f"input {port.name!r} must have rank 0, got {port}", where=where)

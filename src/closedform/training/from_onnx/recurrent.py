"""Recurrent operators, one product for each place of a sequence."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from functools import partial
from typing import Any

import torch
from torch.nn import functional

from closedform.errors import TrainingExportError
from closedform.training.from_onnx.recurrence import States, scan
from closedform.training.from_onnx.values import ANOTHER_SOURCE, NodeCall

Tensor = torch.Tensor
Activation = Callable[[Tensor], Tensor]
Cell = Callable[..., States]
"""The next states, given the product of an input, the states, R, the bias of R and activations."""

ACTIVATIONS: Mapping[str, Activation] = {
    "relu": torch.relu,
    "sigmoid": torch.sigmoid,
    "tanh": torch.tanh,
}
"""The activations without parameters; their names are in any letter case."""


def _rnn(
    _: NodeCall,
    projection: Tensor,
    states: States,
    weight: Tensor,
    bias: Tensor,
    activations: Sequence[Activation],
) -> States:
    (f,) = activations
    return (f(projection + functional.linear(states[0], weight, bias)),)


def _gru(
    call: NodeCall,
    projection: Tensor,
    states: States,
    weight: Tensor,
    bias: Tensor,
    activations: Sequence[Activation],
) -> States:
    (hidden_state,) = states
    f, g = activations
    # ONNX orders the gates of a GRU as z, r, h and of an LSTM as i, o, f, c; torch r, z, n and
    # i, f, g, o.
    update, reset, new = projection.chunk(3, -1)
    weights, biases = weight.chunk(3), bias.chunk(3)
    z = f(update + functional.linear(hidden_state, weights[0], biases[0]))
    r = f(reset + functional.linear(hidden_state, weights[1], biases[1]))
    if call.attributes["linear_before_reset"]:
        inner = r * functional.linear(hidden_state, weights[2], biases[2])
    else:
        inner = functional.linear(r * hidden_state, weights[2], biases[2])
    n = g(new + inner)
    # (1 − z)·n + z·h with one product less.
    return (n + z * (hidden_state - n),)


def _lstm(
    _: NodeCall,
    projection: Tensor,
    states: States,
    weight: Tensor,
    bias: Tensor,
    activations: Sequence[Activation],
    peepholes: Tensor | None = None,
) -> States:
    hidden_state, cell = states
    f, g, h = activations
    inputs, outputs, forget, new = (
        projection + functional.linear(hidden_state, weight, bias)
    ).chunk(4, -1)
    if peepholes is None:
        cell = f(forget) * cell + f(inputs) * g(new)
        return f(outputs) * h(cell), cell
    to_inputs, to_outputs, to_forget = peepholes.chunk(3)
    # The output gate reads the new cell, the others the old one.
    cell = f(forget + to_forget * cell) * cell + f(inputs + to_inputs * cell) * g(new)
    return f(outputs + to_outputs * cell) * h(cell), cell


def _activations(
    call: NodeCall, defaults: Sequence[str], directions: int
) -> list[list[Activation]]:
    """The activations of each direction; by default, the defaults of the operator."""
    attribute = call.attributes["activations"]
    names = [name.decode().lower() for name in attribute or ()] or [*defaults] * directions
    unknown = [name for name in names if name not in ACTIVATIONS]
    if unknown or len(names) != len(defaults) * directions:
        raise TrainingExportError(
            f"its attribute 'activations' must hold {len(defaults) * directions} of "
            f"{', '.join(ACTIVATIONS)}, got {', '.join(names)}",
            hint=ANOTHER_SOURCE,
        )
    functions = [ACTIVATIONS[name] for name in names]
    return [functions[i : i + len(defaults)] for i in range(0, len(functions), len(defaults))]


def _recurrent(
    cell: Cell, count: int, defaults: Sequence[str]
) -> Callable[[NodeCall], tuple[Tensor, ...]]:
    """The operator of a cell with a number of states, and its default activations."""

    def row(call: NodeCall) -> tuple[Tensor, ...]:
        call.refuse(activation_alpha=None, activation_beta=None, clip=None)
        call.refuse(layout=0)
        peepholes = call.optional(7)
        value, inner, outer, bias = (
            call.tensor(),
            call.tensor(1),
            call.tensor(2),
            call.optional(3),
        )
        width, directions = outer.shape[-1], inner.shape[0]
        activations = _activations(call, defaults, int(directions))
        if bias is None:
            bias = torch.zeros(directions, 2 * inner.shape[1], dtype=value.dtype)
        none = torch.zeros((), dtype=value.dtype).expand(directions, value.shape[1], width)
        initial_states = [call.tensor(5 + i) if call.has(5 + i) else none for i in range(count)]
        reverse = {b"forward": (False,), b"reverse": (True,), b"bidirectional": (False, True)}
        sequences, last = [], []
        for direction, is_reverse in enumerate(reverse[call.attributes["direction"]]):
            # B holds Wb and Rb, one after the other.
            of_input, of_state = bias[direction].chunk(2)
            projections = functional.linear(value, inner[direction], of_input)
            of_direction = {
                "weight": outer[direction],
                "bias": of_state,
                "activations": activations[direction],
            }
            if peepholes is not None:
                of_direction["peepholes"] = peepholes[direction]
            outputs, states = scan(
                partial(cell, call, **of_direction),
                projections,
                tuple(state[direction] for state in initial_states),
                call.optional(4),
                is_reverse=is_reverse,
            )
            sequences.append(outputs)
            last.append(states)
        finals = (torch.stack(values) for values in zip(*last, strict=True))
        return torch.stack(sequences, 1), *finals

    return row


_ATTRIBUTES: Mapping[str, Any] = {
    "activation_alpha": None,
    "activation_beta": None,
    "activations": None,
    "clip": None,
    "direction": b"forward",
    "hidden_size": None,
    "layout": 0,
}

RECURRENT: Mapping[str, tuple[Callable[[NodeCall], Any], Mapping[str, Any]]] = {
    "GRU": (_recurrent(_gru, 1, ("sigmoid", "tanh")), {**_ATTRIBUTES, "linear_before_reset": 0}),
    "LSTM": (_recurrent(_lstm, 2, ("sigmoid", "tanh", "tanh")), {**_ATTRIBUTES, "input_forget": 0}),
    "RNN": (_recurrent(_rnn, 1, ("tanh",)), _ATTRIBUTES),
}
"""Rows of operators, with their attributes and defaults."""

"""Packed sequences in a trace: padded sequences with their lengths, whose sizes are static.

torch packs the entries of all sequences one after the other, so that their number depends on the
lengths. Recurrent layers read the padded entries here, and keep a state where its sequence ended.
"""

from __future__ import annotations

import contextlib
from collections.abc import Callable, Iterator, Mapping, Sequence
from functools import partial
from typing import Any, NoReturn
from unittest import mock

import torch
from torch.nn import RNNBase, functional

from closedform.errors import TrainingExportError
from closedform.training.from_onnx.recurrence import States, scan

Tensor = torch.Tensor


class PaddedEntries:
    """The entries of a packed sequence: padded, ``[time, rows, …]``, with their lengths.

    It stands for the tensor in a ``PackedSequence``, of which recurrent layers and
    ``pad_packed_sequence`` read sizes and dtype only. Its other attributes, and functions of torch,
    raise ExportError.
    """

    def __init__(self, padded: Tensor, lengths: Tensor) -> None:
        self.padded, self.lengths = padded, lengths
        self.dtype, self.device = padded.dtype, padded.device

    def dim(self) -> int:
        """Returns the number of axes; time and rows are one."""
        return self.padded.dim() - 1

    def size(self, axis: int) -> int:
        """Returns the size of an axis; the first one depends on the lengths."""
        if axis % self.dim() == 0:
            _refuse("the number of its entries")
        return self.padded.shape[axis % self.dim() + 1]

    def __getattr__(self, name: str) -> NoReturn:
        if name.startswith("__"):
            raise AttributeError(name)
        _refuse(f"its attribute {name!r}")

    @classmethod
    def __torch_function__(
        cls, function: Any, types: Any, args: Any = (), kwargs: Any = None
    ) -> NoReturn:
        del types, args, kwargs
        _refuse(f"{getattr(function, '__name__', function)} of it")


def _refuse(use: str) -> NoReturn:
    raise TrainingExportError(
        f"the entries of a packed sequence have no static size, which {use} needs",
        hint="compute on the padded batch, before pack_padded_sequence or after "
        "pad_packed_sequence(…, total_length=x.shape[1]), and mask the loss",
    )


class _Longest(int):
    """The time axis as the longest length, where ``total_length`` gives no other."""

    def __gt__(self, other: int) -> bool:
        # torch compares total_length with the longest sequence: the session does that, by
        # _claim_at_most.
        return False  # a total_length is compared with the lengths by a session


class _RowCounts:
    """The numbers of rows at each place; that at the first place is the number of sequences."""

    device = torch.device("cpu")

    def __init__(self, entries: PaddedEntries) -> None:
        self._entries = entries

    def __getitem__(self, place: int) -> int:
        if place != 0:
            _refuse("the number of rows at a later place")
        return self._entries.padded.shape[1]

    def size(self, axis: int) -> int:
        del axis
        return _Longest(self._entries.padded.shape[0])

    def __getattr__(self, name: str) -> NoReturn:
        if name.startswith("__"):
            raise AttributeError(name)
        _refuse(f"the attribute {name!r} of its batch_sizes")


def _pack(value: Tensor, lengths: Tensor, batch_first: bool) -> tuple[PaddedEntries, _RowCounts]:
    padded = value.transpose(0, 1) if batch_first else value
    _claim_at_most(lengths, padded.shape[0])
    entries = PaddedEntries(padded, lengths)
    return entries, _RowCounts(entries)


def _claim_at_most(lengths: Tensor, most: int) -> None:
    """Has a session refuse lengths beyond 1..most, as torch does.

    The read at the last place is recorded with its range (``IndexReads``); nothing uses its result,
    so that it is not in the graph.
    """
    # lengths − 1 are indices into `most` places: 1..most are valid.
    torch.zeros(most).index_select(0, lengths - 1)


def _pad(
    entries: PaddedEntries,
    row_counts: _RowCounts,
    batch_first: bool,
    padding_value: float,
    total_length: int,
) -> tuple[Tensor, Tensor]:
    del row_counts
    padded, lengths = entries.padded, entries.lengths
    count = padded.shape[0]
    if isinstance(total_length, _Longest):
        raise TrainingExportError(
            "pad_packed_sequence has no total_length: the longest sequence of a batch would decide "
            "the size of its result",
            hint="pass the padded length: pad_packed_sequence(…, total_length=x.shape[1])",
        )
    if total_length < count:
        _claim_at_most(lengths, total_length)
        padded = padded[:total_length]
    elif total_length > count:
        ends = [0, 0] * (padded.dim() - 1)
        padded = functional.pad(padded, [*ends, 0, total_length - count])
    is_inside = torch.arange(total_length).unsqueeze(-1) < lengths
    is_inside = is_inside.reshape(*is_inside.shape, *[1] * (padded.dim() - 2))
    padded = torch.where(is_inside, padded, padding_value)
    return padded.transpose(0, 1) if batch_first else padded, lengths


def _lstm(projection: Tensor, states: States, weights: Mapping[str, Tensor | None]) -> States:
    hidden_state, cell = states
    # torch's order of gates: input, forget, cell, output (torch.nn.LSTM).
    inputs, forget, new, outputs = (projection + _of_state(hidden_state, weights)).chunk(4, -1)
    cell = forget.sigmoid() * cell + inputs.sigmoid() * new.tanh()
    hidden_state = outputs.sigmoid() * cell.tanh()
    projector = weights["projector"]
    return hidden_state if projector is None else hidden_state @ projector.t(), cell


def _gru(projection: Tensor, states: States, weights: Mapping[str, Tensor | None]) -> States:
    (hidden_state,) = states
    # torch's GRU: the reset gate multiplies the product with the state, bias included, which is
    # linear_before_reset=1 in ONNX.
    gates, new = projection.tensor_split((2 * hidden_state.shape[-1],), -1)
    of_gates, of_new = _of_state(hidden_state, weights).tensor_split(
        (2 * hidden_state.shape[-1],), -1
    )
    reset, update = (gates + of_gates).sigmoid().chunk(2, -1)
    new = (new + reset * of_new).tanh()
    return (new + update * (hidden_state - new),)


def _rnn(activation: Callable[[Tensor], Tensor]) -> Callable[..., States]:
    def cell(projection: Tensor, states: States, weights: Mapping[str, Tensor | None]) -> States:
        return (activation(projection + _of_state(states[0], weights)),)

    return cell


def _of_state(hidden_state: Tensor, weights: Mapping[str, Any]) -> Tensor:
    return functional.linear(hidden_state, weights["outer"], weights["outer_bias"])


_CELLS: Mapping[str, Callable[..., States]] = {
    "lstm": _lstm,
    "gru": _gru,
    "rnn_tanh": _rnn(torch.tanh),
    "rnn_relu": _rnn(torch.relu),
}
"""Cells in torch's order of gates, by the function of torch."""


def recurrent(
    name: str,
    entries: PaddedEntries,
    initial: Any,
    weights: Sequence[Tensor],
    has_biases: bool,
    layers: int,
    dropout: float,
    train: bool,
    bidirectional: bool,
) -> tuple[Any, ...]:
    """Returns the entries of the last layer, and the last states of all layers.

    Args:
        name: The function of torch: ``lstm``, ``gru``, ``rnn_tanh`` or ``rnn_relu``.
        entries: The packed sequence.
        initial: The initial states, of all layers and directions.
        weights: The weights, of all layers and directions.
        has_biases: Whether there are biases.
        layers: The number of layers.
        dropout: The probability of a dropout between layers.
        train: Whether the dropout drops.
        bidirectional: Whether there are two directions.
    """
    states = (initial,) if isinstance(initial, Tensor) else tuple(initial)
    directions = (False, True) if bidirectional else (False,)
    # Each direction of a layer has w_ih, w_hh, then biases, then the projection.
    count = len(weights) // (layers * len(directions))
    value, finals = entries.padded, []
    for layer in range(layers):
        if layer:  # torch drops between layers, neither before the first nor after the last
            value = torch.dropout(value, dropout, train)
        sequences = []
        for direction, is_reverse in enumerate(directions):
            place = layer * len(directions) + direction
            inner, outer, *others = weights[place * count : (place + 1) * count]
            biases = [others.pop(0), others.pop(0)] if has_biases else [None, None]
            of_cell = {
                "outer": outer,
                "outer_bias": biases[1],
                "projector": others[0] if others else None,
            }
            outputs, last = scan(
                partial(_CELLS[name], weights=of_cell),
                functional.linear(value, inner, biases[0]),
                tuple(state[place] for state in states),
                entries.lengths,
                is_reverse=is_reverse,
            )
            sequences.append(outputs)
            finals.append(last)
        value = torch.cat(sequences, -1)
    last_states = (torch.stack(parts) for parts in zip(*finals, strict=True))
    return PaddedEntries(value, entries.lengths), *last_states


@contextlib.contextmanager
def padded_sequences() -> Iterator[None]:
    """Has torch's functions of packed sequences compute on padded ones."""
    sizes = {
        owner: getattr(owner, name) for owner, name in ((RNNBase, _HIDDEN), (torch.nn.LSTM, _CELL))
    }
    with (
        mock.patch.multiple(torch._VF, _pack_padded_sequence=_pack, _pad_packed_sequence=_pad),
        mock.patch.object(RNNBase, _HIDDEN, _size_of_state(sizes[RNNBase])),
        mock.patch.object(torch.nn.LSTM, _CELL, _size_of_state(sizes[torch.nn.LSTM])),
    ):
        yield


_HIDDEN, _CELL = "get_expected_hidden_size", "get_expected_cell_size"


def _size_of_state(function: Callable[..., Any]) -> Callable[..., Any]:
    """The expected size of a state, without torch's conversion of the rows to a Python number."""

    def size(layer: RNNBase, value: Any, row_counts: Any) -> Any:
        if not isinstance(value, PaddedEntries):
            return function(layer, value, row_counts)
        # The sizes of one row, in the place of the conversion int(batch_sizes[0]).
        layers, _, width = function(layer, value.padded, [1])
        return layers, row_counts[0], width

    return size

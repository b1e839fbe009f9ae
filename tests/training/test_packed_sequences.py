"""Packed sequences are trained as padded ones: torch's own packed kernels beside the step."""

import copy
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch
from torch import nn
from torch.nn.utils import rnn

from closedform import optimizers
from closedform.errors import ExportError, SessionError
from closedform.training import TrainSession, export

TIMES, INPUTS, WIDTH = 5, 3, 4

# Sums of some tens of terms in another order, in float32.
TOLERANCE = 1e-5

LAYERS: dict[str, tuple[Any, dict[str, Any]]] = {
    "lstm": (nn.LSTM, {}),
    "lstm, projected, two layers": (nn.LSTM, {"proj_size": 2, "num_layers": 2}),
    "lstm, both directions, without biases": (nn.LSTM, {"bidirectional": True, "bias": False}),
    "gru, both directions, two layers": (nn.GRU, {"bidirectional": True, "num_layers": 2}),
    "rnn": (nn.RNN, {"bidirectional": True}),
    "rnn, relu": (nn.RNN, {"nonlinearity": "relu"}),
}


class Packed(nn.Module):
    """The outputs and the last states of a layer over sequences of several lengths."""

    def __init__(
        self,
        kind: Any,
        *,
        batch_first: bool = True,
        total_length: int | None = TIMES,
        has_initial: bool = False,
        **options: Any,
    ) -> None:
        super().__init__()
        self.layer = kind(INPUTS, WIDTH, batch_first=batch_first, **options)
        self.batch_first, self.total_length = batch_first, total_length
        self.initial = nn.Parameter(torch.randn(WIDTH)) if has_initial else None

    def forward(self, x: torch.Tensor, lengths: torch.Tensor) -> Any:
        x = x if self.batch_first else x.transpose(0, 1)
        packed = rnn.pack_padded_sequence(
            x, lengths, batch_first=self.batch_first, enforce_sorted=False
        )
        initial = None
        if self.initial is not None:
            initial = (self.initial * lengths[:, None].float() / TIMES)[None].tanh()
        output, last = self.layer(packed, initial)
        padded, counts = rnn.pad_packed_sequence(
            output, self.batch_first, padding_value=0.5, total_length=self.total_length
        )
        padded = padded if self.batch_first else padded.transpose(0, 1)
        states = torch.cat(last, -1) if isinstance(last, tuple) else last
        return padded, states, counts.float()


def _loss(output: Any) -> Any:
    padded, states, counts = output
    return (padded**2).mean() + (states**3).sum() + (padded.sum((1, 2)) * counts).mean() / 9


def _batch(rows: int) -> tuple[torch.Tensor, torch.Tensor]:
    return torch.randn(rows, TIMES, INPUTS), torch.randint(1, TIMES + 1, (rows,))


def _check(model: nn.Module, folder: Path) -> TrainSession:
    """Trains in both, and compares losses and parameters."""
    reference = copy.deepcopy(model)
    export(model, _loss, _batch(3), optimizers.sgd(0.1), folder)
    session = TrainSession(folder, threads=1)
    optimizer = torch.optim.SGD(reference.parameters(), 0.1)
    for rows in (3, 2, 5):
        batch = _batch(rows)
        optimizer.zero_grad()
        expected = _loss(reference(*batch))
        expected.backward()
        optimizer.step()
        result = session.step(tuple(value.numpy() for value in batch))
        assert result.loss == pytest.approx(expected.item(), rel=TOLERANCE)
    for name, parameter in reference.named_parameters():
        np.testing.assert_allclose(
            session.params[name], parameter.detach().numpy(), atol=TOLERANCE, rtol=0
        )
    return session


# Its kinds are in the others: two layers and both directions of an LSTM, and a GRU below.
_EXHAUSTIVE = "gru, both directions, two layers"


@pytest.mark.sample(every=3)
@pytest.mark.parametrize(
    "name",
    [
        pytest.param(name, marks=[pytest.mark.exhaustive] if name == _EXHAUSTIVE else [])
        for name in LAYERS
    ],
)
def test_a_packed_layer_equals_torch(name: str, tmp_path: Path) -> None:
    torch.manual_seed(0)
    kind, options = LAYERS[name]
    _check(Packed(kind, **options), tmp_path)


def test_time_comes_first_and_states_are_given(tmp_path: Path) -> None:
    torch.manual_seed(0)
    model = Packed(nn.GRU, batch_first=False, total_length=TIMES + 2, has_initial=True)
    session = _check(model, tmp_path)
    x, lengths = (value.numpy() for value in _batch(3))
    for length in (0, TIMES + 1):
        lengths[1] = length
        with pytest.raises(SessionError, match=rf"'lengths' must have values in 1\.\.{TIMES}"):
            session.step((x, lengths))


def test_a_shorter_total_length_bounds_the_lengths(tmp_path: Path) -> None:
    model = Packed(nn.RNN, total_length=TIMES - 1)
    batch = torch.randn(2, TIMES, INPUTS), torch.tensor([2, TIMES - 1])
    export(model, _loss, batch, optimizers.sgd(0.1), tmp_path)
    session = TrainSession(tmp_path, threads=1)
    expected = _loss(model(*batch)).item()
    assert session.step(tuple(v.numpy() for v in batch)).loss == pytest.approx(
        expected, rel=TOLERANCE
    )
    with pytest.raises(SessionError, match=rf"values in 1\.\.{TIMES - 1}, got {TIMES} in row 1"):
        session.step((batch[0].numpy(), np.array([2, TIMES])))


class Reads(nn.Module):
    """Reads the entries of a packed sequence."""

    def __init__(self, read: Any) -> None:
        super().__init__()
        self.layer, self.read = nn.LSTM(INPUTS, WIDTH, batch_first=True), read

    def forward(self, x: torch.Tensor, lengths: torch.Tensor) -> Any:
        packed = rnn.pack_padded_sequence(x, lengths, batch_first=True, enforce_sorted=False)
        return self.read(self.layer(packed)[0])


@pytest.mark.parametrize(
    ("read", "message"),
    [
        (lambda p: p.data.mean(), "which its attribute 'mean' needs.*mask the loss"),
        (lambda p: torch.tanh(p.data), "which tanh of it needs.*mask the loss"),
        (lambda p: p.data.size(0), "which the number of its entries needs"),
        (lambda p: p.batch_sizes[1], "which the number of rows at a later place needs"),
        (lambda p: p.batch_sizes.sum(), "the attribute 'sum' of its batch_sizes needs"),
        (
            lambda p: rnn.pad_packed_sequence(p, batch_first=True)[0],
            r"has no total_length.*total_length=x\.shape\[1\]",
        ),
    ],
)
def test_entries_without_a_static_size_are_refused(read: Any, message: str, tmp_path: Path) -> None:
    with pytest.raises(ExportError, match=message):
        export(Reads(read), "mse", (*_batch(2), torch.zeros(2)), optimizers.sgd(0.1), tmp_path)


def test_a_free_number_of_places_is_refused(tmp_path: Path) -> None:
    model = Packed(nn.LSTM)
    with pytest.raises(ExportError, match="the size 'time' is not free"):
        export(
            model,
            _loss,
            _batch(3),
            optimizers.sgd(0.1),
            tmp_path,
            dynamic_axes={"x": {0: "batch", 1: "time"}, "lengths": {0: "batch"}},
        )

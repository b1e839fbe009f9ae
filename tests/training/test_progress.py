"""The phases of an export are shown on request; checkpoints are saved while training goes on."""

import logging
import re
from pathlib import Path

import numpy as np
import pytest
import torch
from safetensors.numpy import load_file
from torch import nn
from torch.nn.functional import mse_loss

from closedform import optimizers
from closedform.errors import SessionError
from closedform.training import TrainSession, export

_BATCH = torch.ones(4, 3), torch.ones(4, 2)


def test_phases_are_shown_on_request_and_logged(
    tmp_path: Path, capsys: pytest.CaptureFixture[str], caplog: pytest.LogCaptureFixture
) -> None:
    model, rule = nn.Linear(3, 2), optimizers.adamw(0.1)
    with caplog.at_level(logging.INFO, "closedform.training"):
        export(model, mse_loss, _BATCH, rule, tmp_path)
    assert capsys.readouterr().err == ""  # no terminal
    logged = [message.split(":")[0] for message in caplog.messages]
    step, forward = ["trace", "decompose", "lower"], ["trace", "decompose", "lower"]
    assert logged == [*step, "validate", *forward, "assemble", "write"]
    export(model, mse_loss, _BATCH, rule, tmp_path, verbose=True)
    lines = capsys.readouterr().err.splitlines()
    assert [line.split()[0] for line in lines] == logged
    assert all(re.fullmatch(r"\w+ \.\.\. \d+\.\d s", line) for line in lines)


def test_a_checkpoint_is_saved_while_training_goes_on(tmp_path: Path) -> None:
    export(nn.Linear(3, 2), mse_loss, _BATCH, optimizers.adamw(0.1), tmp_path)
    session, batch = TrainSession(tmp_path), [tensor.numpy() for tensor in _BATCH]
    session.step(batch)
    before = {name: array.copy() for name, array in session._buffer.arrays.items()}
    saved = session.save(tmp_path / "state", background=True)
    session.step(batch)
    saved.result()
    arrays = load_file(tmp_path / "state")
    assert arrays.keys() == before.keys()
    for name, array in before.items():
        assert np.array_equal(arrays[name], array), name
    session.load(tmp_path / "state")
    assert session.t == 1
    with pytest.raises(SessionError, match="cannot write the state"):
        session.save(tmp_path / "none" / "state", background=True).result()

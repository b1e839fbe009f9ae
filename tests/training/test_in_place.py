"""Large parameters are updated in place: the same bits, and a failed step leaves all as it was."""

from __future__ import annotations

import subprocess
import sys
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch
from torch import nn
from torch.nn.functional import cross_entropy

from closedform import optimizers, transforms
from closedform.errors import SessionError, StateError
from closedform.exporters.onnx_weights import StoredTensor
from closedform.language import UpdateRule
from closedform.runtime.onnx_session import run_into
from closedform.training import TrainSession, buckets, export, in_place_step, update_tails
from closedform.training.in_place_step import InPlaceStep

_BATCH = torch.randint(0, 50, (6, 3)), torch.randint(0, 4, (6,))
_MATRICES = {"0.weight", "2.weight", "4.weight"}


def _model() -> nn.Module:
    torch.manual_seed(0)
    return nn.Sequential(
        nn.Embedding(50, 8), nn.Flatten(), nn.Linear(24, 9), nn.BatchNorm1d(9), nn.Linear(9, 4)
    )


# The rule, and the parameters whose update is taken apart.
RULES: dict[str, tuple[Callable[[], UpdateRule], set[str]]] = {
    "sgd": (lambda: optimizers.sgd(0.1), _MATRICES),
    "momentum": (lambda: optimizers.sgd(0.1, momentum=0.9, nesterov=True), _MATRICES),
    "adamw": (lambda: optimizers.adamw(1e-2), _MATRICES),
    "adamw without a rate": (lambda: optimizers.adamw(None), _MATRICES),
    "lion": (lambda: optimizers.lion(1e-3), _MATRICES),
    "clipped, skipped": (
        lambda: transforms.skip_nonfinite(
            transforms.clip_by_global_norm(optimizers.adamw(1e-2), 0.1)
        ),
        _MATRICES,
    ),
    "average": (lambda: transforms.weight_average(optimizers.adamw(1e-2), 0.9), _MATRICES),
    "schedule-free": (lambda: optimizers.schedule_free_adamw(1e-2), _MATRICES),
    "sums over rows": (lambda: optimizers.adafactor(1e-2), set()),
}

IN_EVERY_RUN = {"momentum", "clipped, skipped", "sums over rows"}


def _sessions(
    rule: UpdateRule, folder: Path, monkeypatch: pytest.MonkeyPatch
) -> tuple[TrainSession, TrainSession]:
    """One session in place, in tiles of odd sizes, and one with two sets of arrays."""
    monkeypatch.setattr(buckets, "LIMIT", 30)
    export(_model(), cross_entropy, _BATCH, rule, folder, validate=False)
    whole = TrainSession(folder, threads=1)
    monkeypatch.setattr(update_tails, "SMALLEST", 30)
    monkeypatch.setattr(in_place_step, "TILE", 7)
    return TrainSession(folder, threads=3), whole


def _arrays(session: TrainSession) -> dict[str, Any]:
    return {name: array.copy() for name, array in session._buffer.arrays.items()}


def _assert_equal(first: dict[str, Any], second: dict[str, Any]) -> None:
    assert list(first) == list(second)
    for name, array in first.items():
        assert np.array_equal(array, second[name]), name


@pytest.mark.parametrize(
    "name",
    [
        name if name in IN_EVERY_RUN else pytest.param(name, marks=pytest.mark.exhaustive)
        for name in RULES
    ],
)
def test_steps_in_place_are_those_of_two_sets(
    name: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    make, wanted = RULES[name]
    in_place, whole = _sessions(make(), tmp_path, monkeypatch)
    split = update_tails.split_file(tmp_path / "train.onnx")
    assert {n.removeprefix("param.") for n in (split.tails if split else ())} == wanted
    assert isinstance(in_place._buffer, InPlaceStep) == bool(wanted)
    hyper = {"lr": 0.01} if "without" in name else {}
    batch = [tensor.numpy() for tensor in _BATCH]
    for _ in range(4):
        results = [session.step(batch, **hyper) for session in (in_place, whole)]
        assert results[0] == results[1]
    _assert_equal(_arrays(in_place), _arrays(whole))
    in_place.save(tmp_path / "state")
    whole.load(tmp_path / "state")
    _assert_equal(_arrays(in_place), _arrays(whole))
    assert np.array_equal(in_place.predict(batch[0]), whole.predict(batch[0]))


class _Tied(nn.Module):
    """The table is the embedding and the head: its gradient is a product, and a sum over rows."""

    def __init__(self) -> None:
        super().__init__()
        self.table, self.middle = nn.Embedding(60, 24), nn.Linear(24, 24)

    def forward(self, tokens: torch.Tensor) -> torch.Tensor:
        """Returns scores of the tokens."""
        middle = torch.tanh(self.middle(self.table(tokens).mean(1)))
        return nn.functional.linear(middle, self.table.weight)


def _late(session: TrainSession) -> set[str]:
    assert isinstance(session._buffer, InPlaceStep)
    return set(session._buffer._split.late)


@pytest.mark.parametrize("threads", [1, 3])
def test_gradients_are_late_where_their_factors_are_smaller(
    threads: int, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    torch.manual_seed(0)
    batch = torch.randint(0, 50, (3, 4)), torch.randint(0, 50, (3,))
    monkeypatch.setattr(buckets, "LIMIT", 30)
    export(_Tied(), cross_entropy, batch, optimizers.adamw(1e-2), tmp_path, validate=False)
    whole = TrainSession(tmp_path, threads=threads)
    monkeypatch.setattr(update_tails, "SMALLEST", 100)
    monkeypatch.setattr(in_place_step, "TILE", 50)
    in_place = TrainSession(tmp_path, threads=threads)
    both = {"grad.table.weight", "grad.middle.weight"}
    assert _late(in_place) == both
    draws = np.random.default_rng(0)
    for rows in (3, 5, 3, 400):
        tokens, labels = draws.integers(0, 60, (rows, 4)), draws.integers(0, 60, rows)
        assert in_place.step((tokens, labels)) == whole.step((tokens, labels))
    _assert_equal(_arrays(in_place), _arrays(whole))
    # The first batch decides: the factors of 400 rows are larger than the gradients.
    assert _late(in_place) == both
    in_place.save(tmp_path / "state")
    early = TrainSession(tmp_path, threads=threads)
    early.load(tmp_path / "state")
    for rows in (400, 3):
        tokens = draws.integers(0, 60, (rows, 4))
        for session in (in_place, early):
            session.step((tokens, tokens[:, 0]))
        _assert_equal(_arrays(in_place), _arrays(early))
    assert not _late(early)


def test_gradients_that_a_norm_reads_are_early(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    rule = transforms.clip_by_global_norm(optimizers.adamw(1e-2), 0.1)
    in_place, _ = _sessions(rule, tmp_path, monkeypatch)
    assert not _late(in_place)


_PEAK = """
import sys
import numpy as np
from closedform.training import TrainSession
import closedform.training.update_tails

def status(name):
    with open("/proc/self/status", encoding="ascii") as file:
        (line,) = (line for line in file if line.startswith(name))
    return int(line.split()[1]) * 1024

before = status("VmRSS:")
session = TrainSession(sys.argv[1], threads=1)
for _ in range(3):
    session.step((np.zeros((2, 1024), np.float32), np.zeros(2, np.int64)))
print(status("VmHWM:") - before)
"""


@pytest.mark.skipif(not sys.platform.startswith("linux"), reason="the peak is read from /proc")
def test_the_peak_of_a_session_is_below_four_times_the_weights(tmp_path: Path) -> None:
    model = nn.Sequential(*(nn.Linear(1024, 1024, bias=False) for _ in range(12)))
    batch = torch.zeros(2, 1024), torch.zeros(2, dtype=torch.long)
    export(model, cross_entropy, batch, optimizers.adamw(1e-4), tmp_path, validate=False)
    command = [sys.executable, "-c", _PEAK, str(tmp_path)]
    process = subprocess.run(command, capture_output=True, check=True, text=True)
    weights = sum(4 * parameter.numel() for parameter in model.parameters())
    # Parameters and two states are 3, the largest gradient 1/12; all gradients would be 1.
    assert 3 <= int(process.stdout) / weights <= 3.7


def test_a_tensor_that_nothing_depends_on_is_part_of_the_batch(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(buckets, "LIMIT", 30)
    monkeypatch.setattr(update_tails, "SMALLEST", 30)

    class Selected(nn.Module):
        def __init__(self) -> None:
            super().__init__()
            self.layer = nn.Linear(8, 5)

        def forward(self, x: torch.Tensor, length: torch.Tensor) -> torch.Tensor:
            y: torch.Tensor = self.layer(x)
            return y

    example = torch.randn(2, 8), torch.tensor([4, 4]), torch.tensor([0, 2])
    export(Selected(), cross_entropy, example, optimizers.adamw(0.1), tmp_path)
    session = TrainSession(tmp_path)
    assert isinstance(session._buffer, InPlaceStep)
    batch = {
        name: array.numpy() for name, array in zip(("x", "length", "target"), example, strict=True)
    }
    first = session.step(batch).loss
    assert session.step(tuple(batch.values())).loss < first
    with pytest.raises(SessionError, match="length"):
        session.step({"x": batch["x"], "target": batch["target"]})


def test_a_step_that_fails_leaves_everything(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    in_place, whole = _sessions(optimizers.adamw(1e-2), tmp_path, monkeypatch)
    in_place._check = False
    batch = [tensor.numpy() for tensor in _BATCH]
    for session in (in_place, whole):
        session.step(batch)
    before = _arrays(in_place)
    for tokens, labels in ((batch[0] + 50, batch[1]), (batch[0], batch[1] + 4)):
        with pytest.raises(SessionError, match="the parameters and states are unchanged"):
            in_place.step((tokens, labels))
        _assert_equal(_arrays(in_place), before)
    for session in (in_place, whole):
        session.step(batch)
    _assert_equal(_arrays(in_place), _arrays(whole))


@pytest.mark.parametrize("error", [MemoryError("none left"), KeyboardInterrupt()])
def test_an_interrupted_update_is_an_error_until_a_state_is_loaded(
    error: BaseException, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    in_place, whole = _sessions(optimizers.adamw(1e-2), tmp_path, monkeypatch)
    batch = [tensor.numpy() for tensor in _BATCH]
    in_place.save(tmp_path / "state")
    count = 0

    def fail(*arguments: Any) -> None:
        nonlocal count
        count += 1
        if count == 5:
            raise error
        run_into(*arguments)

    with monkeypatch.context() as patch:
        patch.setattr(in_place_step, "run_into", fail)
        told = "some parameters are of the next step"
        with pytest.raises((SessionError, KeyboardInterrupt)) as raised:
            in_place.step(batch)
    assert told in str(raised.value) or isinstance(error, KeyboardInterrupt)
    for use in (
        lambda: in_place.step(batch),
        lambda: in_place.save(tmp_path / "torn"),
        lambda: in_place.to_onnx(tmp_path / "torn.onnx"),
        lambda: in_place.params,
    ):
        with pytest.raises(SessionError, match=r"a load was interrupted.*load a state"):
            use()
    in_place.load(tmp_path / "state")
    for session in (in_place, whole):
        session.step(batch)
    _assert_equal(_arrays(in_place), _arrays(whole))


def test_a_state_is_read_into_the_arrays_and_an_interrupted_load_is_an_error(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    in_place, _ = _sessions(optimizers.adamw(1e-2), tmp_path, monkeypatch)
    batch = [tensor.numpy() for tensor in _BATCH]
    in_place.step(batch)
    in_place.save(tmp_path / "state")
    saved = _arrays(in_place)
    in_place.step(batch)
    targets = list(in_place._buffer.arrays.values())
    read_into, count = StoredTensor.read_into, 0

    def read_some(place: StoredTensor, array: Any) -> None:
        nonlocal count
        count += 1
        assert array.shape == () or any(np.shares_memory(array, target) for target in targets)
        if count == 5:
            raise OSError("the disk is gone")
        read_into(place, array)

    with monkeypatch.context() as patch:
        patch.setattr(StoredTensor, "read_into", read_some)
        with pytest.raises(StateError, match=r"the disk is gone.*load another state"):
            in_place.load(tmp_path / "state")
    with pytest.raises(SessionError, match=r"a load was interrupted.*load a state"):
        in_place.step(batch)
    in_place.load(tmp_path / "state")
    _assert_equal(_arrays(in_place), saved)

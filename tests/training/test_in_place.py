"""Large parameters are updated in place: the same bits, and a failed step leaves all as it was."""

import random
import subprocess
import sys
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import onnx
import pytest
import torch
from onnx import TensorProto, helper
from torch import nn
from torch.nn.functional import cross_entropy, mse_loss

from closedform import optimizers, transforms
from closedform.errors import SessionError, StateError
from closedform.exporters.onnx_weights import StoredTensor
from closedform.language import UpdateRule
from closedform.runtime.onnx_session import SessionBinding, open_session, run_into
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


def _take_apart(smallest: int, monkeypatch: pytest.MonkeyPatch) -> None:
    """Lets sessions update parameters from this size on in place, in a model of any size."""
    monkeypatch.setattr(update_tails, "SMALLEST", smallest)
    monkeypatch.setattr(update_tails, "SMALLEST_MODEL", smallest)


def _sessions(
    rule: UpdateRule, folder: Path, monkeypatch: pytest.MonkeyPatch
) -> tuple[TrainSession, TrainSession]:
    """One session in place, in tiles of odd sizes, and one with two sets of arrays."""
    monkeypatch.setattr(buckets, "LIMIT", 30)
    export(_model(), cross_entropy, _BATCH, rule, folder, validate=False)
    whole = TrainSession(folder, threads=1)
    _take_apart(30, monkeypatch)
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
        # More rows than are added by a product: ScatterElements.
        self.table, self.middle = nn.Embedding(120, 24), nn.Linear(24, 24)

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
    _take_apart(100, monkeypatch)
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
    _take_apart(30, monkeypatch)

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
    count, repeat = 0, SessionBinding.repeat

    def fail(binding: SessionBinding) -> None:
        nonlocal count
        count += 1
        # The first run is that of the gradients.
        if count == 6:
            raise error
        repeat(binding)

    with monkeypatch.context() as patch:
        patch.setattr(SessionBinding, "repeat", fail)
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


def _drawn_update(seed: int) -> onnx.ModelProto:
    """An update of three tensors by a gradient: sums and products of any of the values before."""
    draw = random.Random(seed)
    names = ["tensor.0", "tensor.1", "tensor.2", "gradient"]
    nodes: list[onnx.NodeProto] = []
    for index in range(10):
        operands = draw.choices(names[-5:] if index % 2 else names, k=2)
        names.append(f"next.{index - 7}" if index > 6 else f"value.{index}")
        nodes.append(helper.make_node(draw.choice(["Add", "Sub", "Mul"]), operands, [names[-1]]))

    def vectors(prefixes: tuple[str, ...]) -> list[onnx.ValueInfoProto]:
        return [
            helper.make_tensor_value_info(name, TensorProto.FLOAT, ["n"])
            for name in names
            if name.startswith(prefixes)
        ]

    graph = helper.make_graph(nodes, "update", vectors(("tensor", "grad")), vectors(("next",)))
    return helper.make_model(graph, opset_imports=[helper.make_opsetid("", 21)], ir_version=10)


def test_results_are_written_over_tensors_that_are_no_longer_read() -> None:
    overwriting = 0
    for seed in range(200):
        model = _drawn_update(seed)
        session = open_session(model, threads=1, is_optimized=False)
        draws = np.random.default_rng(seed)
        arrays = {n: draws.standard_normal(1000, dtype=np.float32) for n in session.inputs}
        expected = dict(zip(session.outputs, session.raw.run(None, arrays), strict=True))
        results = {
            name: arrays[tensor]
            if update_tails.may_overwrite(model.graph.node, tensor, name)
            else np.empty(1000, np.float32)
            for name in session.outputs
            for tensor in [name.replace("next", "tensor")]
        }
        overwriting += sum(any(r is a for a in arrays.values()) for r in results.values())
        run_into(session, arrays, results)
        for name, result in results.items():
            assert np.array_equal(result, expected[name], equal_nan=True), (seed, name)
    assert overwriting > 100


def test_two_of_three_results_of_adamw_are_written_over_their_tensors(tmp_path: Path) -> None:
    model = nn.Linear(1024, 1024, bias=False)
    batch = torch.randn(2, 1024), torch.randn(2, 1024)
    export(model, mse_loss, batch, optimizers.adamw(1e-3), tmp_path, validate=False)
    split = update_tails.split_file(tmp_path / "train.onnx")
    assert split is not None
    (tail,) = split.tails.values()
    # exp_avg + (gradient - exp_avg) / 10 reads its tensor in its last operation.
    assert {tail.results[label] for label in tail.results.keys() - tail.overwriting} == {
        "state.weight.exp_avg"
    }
    # The optimizer of onnxruntime does not remove the copy of an output.
    assert "Identity" not in {n.op_type for n in onnx.load_from_string(tail.model).graph.node}


def test_few_large_parameters_are_stored_twice(tmp_path: Path) -> None:
    for width, is_in_place in ((512, False), (1024, True)):
        model = nn.Linear(width, width, bias=False)
        batch = torch.randn(2, width), torch.randn(2, width)
        export(model, mse_loss, batch, optimizers.sgd(0.1), tmp_path, validate=False)
        assert isinstance(TrainSession(tmp_path)._buffer, InPlaceStep) == is_in_place

"""The model after training: as an ONNX file, in torch, and as one vector."""

import copy
from pathlib import Path
from typing import Any

import numpy as np
import onnxruntime as ort
import pytest
import torch
from torch import nn
from torch.nn import functional

from closedform import optimizers, transforms
from closedform.errors import SessionError, StateError
from closedform.language import UpdateRule
from closedform.language.groups import Group
from closedform.training import TrainSession, export

RATE = 0.01


def _loss(output: torch.Tensor, target: torch.Tensor) -> Any:
    return functional.mse_loss(output, target), {"worst": (output - target).abs().max()}


def _batches(count: int) -> list[tuple[torch.Tensor, torch.Tensor]]:
    draws = torch.Generator().manual_seed(3)
    return [
        (torch.randn(5, 6, generator=draws), torch.randn(5, 3, generator=draws))
        for _ in range(count)
    ]


class Net(nn.Sequential):
    """Two layers with batch normalisation, before which a bias would have no gradient."""

    def __init__(self) -> None:
        super().__init__(nn.Linear(6, 8, bias=False), nn.BatchNorm1d(8), nn.Tanh(), nn.Linear(8, 3))


def _stepped(model: nn.Module, optimizer: torch.optim.Optimizer, batch: Any) -> float:
    optimizer.zero_grad()
    loss, _ = _loss(model(batch[0]), batch[1])
    loss.backward()
    optimizer.step()
    return float(loss.detach())


@pytest.fixture(scope="module")
def exported(tmp_path_factory: pytest.TempPathFactory) -> tuple[Path, nn.Module]:
    torch.manual_seed(0)
    folder, model = tmp_path_factory.mktemp("run"), Net()
    rule = optimizers.adamw(RATE, weight_decay=0.1)
    groups = [Group("*.bias", changes={"weight_decay": 0})]
    export(model, _loss, _batches(1)[0], rule, folder, groups=groups, evaluation_loss=True)
    return folder, model


def _groups(model: nn.Module) -> torch.optim.Optimizer:
    groups: list[dict[str, Any]]
    named = dict(model.named_parameters())
    groups = [
        {"params": [p for n, p in named.items() if not n.endswith(".bias")]},
        {"params": [p for n, p in named.items() if n.endswith(".bias")], "weight_decay": 0.0},
    ]
    return torch.optim.AdamW(groups, lr=RATE, weight_decay=0.1)


def _near(model: nn.Module, session: TrainSession, prefix: str = "") -> None:
    named = {n: p for n, p in model.named_parameters() if n.startswith(prefix)}
    assert named.keys() == session.params.keys()
    for name, parameter in named.items():
        # float32 sums in another order, over some steps of Adam.
        close = pytest.approx(parameter.detach().numpy(), rel=1e-3, abs=1e-5)
        assert session.params[name] == close, name


def test_training_moves_between_torch_and_a_session(exported: tuple[Path, nn.Module]) -> None:
    folder, original = exported
    session, model = TrainSession(folder, threads=1), copy.deepcopy(original)
    optimizer = _groups(model)
    batches = _batches(9)
    for batch in batches[:3]:
        result = session.step([tensor.numpy() for tensor in batch])
        assert result.loss == pytest.approx(_stepped(model, optimizer, batch), rel=1e-5)
        assert result.metrics["worst"].shape == ()
    _near(model, session)
    # From the session to a new model and a new optimizer.
    other = Net()
    own = _groups(other)
    session.to_torch(other, own)
    assert all(
        np.array_equal(session.params[name], value.detach().numpy())
        for name, value in other.named_parameters()
    )
    for batch in batches[3:6]:
        session.step([tensor.numpy() for tensor in batch])
        _stepped(other, own, batch)
    _near(other, session)
    assert own.state[next(other.parameters())]["step"] == session.t == 6
    # And back into another session.
    again = TrainSession(folder, threads=1)
    again.from_torch(other, own)
    assert again.t == 6
    for batch in batches[6:]:
        session.step([tensor.numpy() for tensor in batch])
        again.step([tensor.numpy() for tensor in batch])
    for name, value in session.params.items():
        assert again.params[name] == pytest.approx(value, rel=1e-3, abs=1e-5), name


def test_a_foreign_model_is_refused_whole(exported: tuple[Path, nn.Module]) -> None:
    session = TrainSession(exported[0], threads=1)
    wrong = nn.Sequential(
        nn.Linear(6, 8, bias=False), nn.BatchNorm1d(8), nn.Tanh(), nn.Linear(8, 4)
    )
    first = next(wrong.parameters())
    before = first.detach().clone()
    with pytest.raises(
        StateError, match=r"a tensor '3.weight' of shape \[3, 8\], got one of shape .4, 8"
    ):
        session.to_torch(wrong)
    assert torch.equal(first, before)
    model = Net()
    with pytest.raises(StateError, match=r"the optimizer has no state 'exp_avg' of '0.weight', on"):
        session.from_torch(model, _groups(model))
    assert session.t == 0


def test_the_loss_is_evaluated_without_a_step(exported: tuple[Path, nn.Module]) -> None:
    folder, original = exported
    session, model = TrainSession(folder, threads=1), copy.deepcopy(original).eval()
    (batch,) = _batches(1)
    found = session.evaluate([tensor.numpy() for tensor in batch])
    loss, metrics = _loss(model(batch[0]), batch[1])
    assert found.loss == pytest.approx(loss.item(), rel=1e-5)
    assert found.metrics["worst"] == pytest.approx(metrics["worst"].item(), rel=1e-5)
    assert session.t == 0


def test_parameters_are_one_vector(exported: tuple[Path, nn.Module]) -> None:
    session = TrainSession(exported[0], threads=1)
    vector = session.flat_params()
    wanted = torch.cat([p.detach().flatten() for p in exported[1].parameters()])
    assert np.array_equal(vector, wanted.numpy())
    session.set_flat_params(vector * 2)
    assert np.array_equal(session.params["3.bias"], wanted.numpy()[-3:] * 2)
    with pytest.raises(SessionError, match=r"the vector must be float32\[91\], got shape \[90\]"):
        session.set_flat_params(vector[:-1])


def test_parameters_are_set_by_name(exported: tuple[Path, nn.Module]) -> None:
    session = TrainSession(exported[0], threads=1)
    before = {name: value.copy() for name, value in session.params.items()}
    session.set_params({"3.bias": np.array([1, 2, 3], np.float32)})
    assert session.params["3.bias"].tolist() == [1, 2, 3]
    assert all(np.array_equal(session.params[n], v) for n, v in before.items() if n != "3.bias")
    zeros = np.zeros(3, np.float32)
    with pytest.raises(SessionError, match=r"unknown parameter '3.bais' .*: did you mean '3.bias'"):
        session.set_params({"3.bias": zeros, "3.bais": zeros})
    with pytest.raises(SessionError, match=r"'0.weight' must be float32\[8,6\], got shape \[3\]"):
        session.set_params({"3.bias": zeros, "0.weight": zeros})
    assert session.params["3.bias"].tolist() == [1, 2, 3]


def test_states_and_buffers_are_set_by_name(exported: tuple[Path, nn.Module]) -> None:
    session = TrainSession(exported[0], threads=1)
    mean, moment = np.arange(8, dtype=np.float32), np.ones(3, np.float32)
    session.set_buffers({"1.running_mean": mean})
    session.set_states({"3.bias.exp_avg": moment})
    assert np.array_equal(session.buffers["1.running_mean"], mean)
    assert np.array_equal(session.states["3.bias.exp_avg"], moment)
    with pytest.raises(SessionError, match=r"unknown buffer '3\.bias'"):
        session.set_buffers({"3.bias": moment})
    with pytest.raises(SessionError, match="a mapping from name to buffer, got list"):
        session.set_buffers([mean])  # type: ignore[arg-type]


def _unfrozen(folder: Path, rule: UpdateRule) -> tuple[TrainSession, TrainSession, nn.Sequential]:
    """Sessions that train the head of a model, and all of it, and the model."""
    torch.manual_seed(0)
    model = nn.Sequential(nn.Linear(6, 8), nn.Tanh(), nn.Linear(8, 3))
    example = _batches(1)[0]
    model[0].requires_grad_(False)
    export(model, functional.mse_loss, example, rule, folder / "head")
    model.requires_grad_(True)
    export(model, functional.mse_loss, example, rule, folder / "all")
    return TrainSession(folder / "head"), TrainSession(folder / "all"), model


def test_a_layer_is_unfrozen_on_the_device(tmp_path: Path) -> None:
    head, everything, model = _unfrozen(tmp_path, optimizers.sgd(RATE, momentum=0.9))
    optimizer = torch.optim.SGD(model.parameters(), RATE, momentum=0.9)
    batches = _batches(8)
    for place, batch in enumerate(batches):
        session = head if place < 4 else everything
        if place == 4:
            head.save(tmp_path / "state")
            with pytest.raises(StateError, match=r"'buffer.0.\w+' for 'param.0.\w+'.*strict=False"):
                everything.load(tmp_path / "state")
            assert everything.t == 0
            with pytest.warns(UserWarning, match=r"no 'state.0.\w+.momentum_buffer' and 1 more"):
                mismatch = everything.load(tmp_path / "state", strict=False)
            names = {f"state.0.{name}.momentum_buffer" for name in ("weight", "bias")}
            assert ({*mismatch.missing}, mismatch.unexpected, everything.t) == (names, (), 4)
        session.step([tensor.numpy() for tensor in batch])
        model[0].requires_grad_(place >= 4)
        optimizer.zero_grad()
        functional.mse_loss(model(batch[0]), batch[1]).backward()
        optimizer.step()
    _near(model, everything)
    # And back: what is frozen again keeps its values.
    everything.save(tmp_path / "state")
    mismatch = head.load(tmp_path / "state", strict=False)
    assert (mismatch.missing, {*mismatch.unexpected}, head.t) == ((), names, 8)
    assert np.array_equal(head.buffers["0.weight"], everything.params["0.weight"])


def test_two_models_train_in_turn(tmp_path: Path) -> None:
    torch.manual_seed(0)
    maker, judge = nn.Linear(2, 3), nn.Sequential(nn.Linear(3, 4), nn.Tanh(), nn.Linear(4, 1))
    rule = optimizers.adamw(RATE)

    def hinge(real: torch.Tensor, made: torch.Tensor) -> torch.Tensor:
        return (1 - real).relu().mean() + (1 + made).relu().mean()

    class Game(nn.Module):
        def __init__(self) -> None:
            super().__init__()
            self.maker, self.judge = maker, judge

    class Judged(Game):
        def forward(self, noise: torch.Tensor, real: torch.Tensor) -> torch.Tensor:
            return hinge(self.judge(real), self.judge(self.maker(noise)))

    class Made(Game):
        def forward(self, noise: torch.Tensor) -> Any:
            return -self.judge(self.maker(noise)).mean()

    draws = torch.Generator().manual_seed(1)
    noise, real = (torch.randn(6, 5, n, generator=draws) for n in (2, 3))
    maker.requires_grad_(False)
    export(Judged(), None, (noise[0], real[0]), rule, tmp_path / "judge")
    maker.requires_grad_(True)
    judge.requires_grad_(False)
    export(Made(), None, (noise[0],), rule, tmp_path / "maker")
    judge.requires_grad_(True)
    judging, making = (TrainSession(tmp_path / name) for name in ("judge", "maker"))
    optimizers_of_torch = [torch.optim.AdamW(m.parameters(), RATE) for m in (judge, maker)]
    for z, x in zip(noise, real, strict=True):
        judging.step((z.numpy(), x.numpy()))
        making.set_buffers(judging.params)
        making.step((z.numpy(),))
        judging.set_buffers(making.params)
        for optimizer, step in zip(optimizers_of_torch, (Judged, Made), strict=True):
            maker.zero_grad()
            judge.zero_grad()
            step()(*((z, x) if step is Judged else (z,))).backward()
            optimizer.step()
    _near(Made(), making, "maker.")
    _near(Judged(), judging, "judge.")


def test_nothing_in_the_trained_model_is_unread(
    exported: tuple[Path, nn.Module], tmp_path: Path
) -> None:
    model = TrainSession(exported[0], threads=1).to_onnx(tmp_path / "model.onnx")
    read = {name for node in model.graph.node for name in node.input}
    assert read.issuperset(tensor.name for tensor in model.graph.initializer)


def test_the_trained_model_is_one_file(exported: tuple[Path, nn.Module], tmp_path: Path) -> None:
    session = TrainSession(exported[0], threads=1)
    for batch in _batches(3):
        session.step([tensor.numpy() for tensor in batch])
    session.to_onnx(tmp_path / "model.onnx")
    inference = ort.InferenceSession(tmp_path / "model.onnx")
    assert [value.name for value in inference.get_inputs()] == ["input"]
    rows = _batches(1)[0][0].numpy()
    (output,) = inference.run(None, {"input": rows})
    # Sums of products may be added in another order: some roundings of values below 1.
    assert np.allclose(output, session.predict(rows), rtol=0, atol=4 * np.finfo(np.float32).eps)


@pytest.mark.exhaustive
def test_the_file_has_the_average(tmp_path: Path) -> None:
    torch.manual_seed(0)
    rule = transforms.weight_average(optimizers.sgd(0.1), 0.5)
    export(nn.Linear(6, 3), _loss, _batches(1)[0], rule, tmp_path)
    session = TrainSession(tmp_path)
    for batch in _batches(3):
        session.step([tensor.numpy() for tensor in batch])
    session.to_onnx(tmp_path / "model.onnx")
    inference = ort.InferenceSession(tmp_path / "model.onnx")
    rows = _batches(1)[0][0].numpy()
    (output,) = inference.run(None, {"input": rows})
    assert output == pytest.approx(session.predict(rows), rel=1e-6)
    plain = rows @ session.params["weight"].T + session.params["bias"]
    assert np.abs(output - plain).max() > 1e-3

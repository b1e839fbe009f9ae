"""Training in onnxruntime alone, beside the same loop in torch."""

import copy
import subprocess
import sys
from pathlib import Path
from typing import Any

import numpy as np
import onnx
import pytest
import torch
from onnx import TensorProto
from torch import nn
from torch.nn import functional

from closedform import UpdateRule, optimizers, schedules, transforms
from closedform.errors import ExportError, SessionError, StateError
from closedform.training import StepResult, TrainSession, export
from closedform.training.to_onnx.batch import read_batch
from tests.support.torch_exporter import traced_once
from tests.support.unproved import expect_unproved
from tests.training.models import CASES, STEPS, Case, batches, mlp, vectors

# Two engines add float32 products in different orders; 300 steps carry the difference on. The
# issue's bar for losses and parameters.
TOLERANCE = 1e-4


def write(folder: Path, case: Case, **options: Any) -> nn.Module:
    """Exports a case; returns its model."""
    torch.manual_seed(0)
    model = case.model()
    example = tuple(map(torch.from_numpy, next(batches(case, 1, rows=4))))
    export(model, functional.cross_entropy, example, case.rule, folder, **options)
    return model


_EXPORTED: dict[int, tuple[Case, nn.Module, dict[str, bytes]]] = {}
"""The models and the files of cases, by their id: each case is exported once for all tests."""


def made(folder: Path, case: Case) -> tuple[TrainSession, nn.Module]:
    """A session of an exported case, and its model before the first step."""
    if id(case) not in _EXPORTED:
        with traced_once(case.model):
            model = write(folder, case)
        files = {path.name: path.read_bytes() for path in folder.iterdir()}
        _EXPORTED[id(case)] = case, model, files
    _, model, files = _EXPORTED[id(case)]
    folder.mkdir(parents=True, exist_ok=True)
    for file, data in files.items():
        (folder / file).write_bytes(data)
    return TrainSession(folder, threads=1), copy.deepcopy(model)


def trained_in_torch(model: nn.Module, case: Case, steps: int) -> list[float]:
    optimizer = case.in_torch(model)
    lr: Any = case.rule.hyperparameters["lr"]
    losses = []
    model.train()
    for step, (inputs, targets) in enumerate(batches(case, steps)):
        for group in optimizer.param_groups:
            group["lr"] = lr(step)
        optimizer.zero_grad()
        loss = functional.cross_entropy(model(torch.from_numpy(inputs)), torch.from_numpy(targets))
        loss.backward()
        if case.max_norm is not None:
            nn.utils.clip_grad_norm_(model.parameters(), case.max_norm)
        optimizer.step()
        losses.append(loss.item())
    return losses


@pytest.mark.sample(every=2)
@pytest.mark.parametrize("name", CASES)
def test_300_steps_are_those_of_torch(name: str, tmp_path: Path) -> None:
    case = CASES[name]
    session, model = made(tmp_path, case)
    results = session.fit(batches(case, STEPS), progress=False)
    losses = trained_in_torch(model, case, STEPS)
    assert losses[-1] < losses[0] / 2
    assert [result.loss for result in results] == pytest.approx(losses, rel=TOLERANCE)
    lr: Any = case.rule.hyperparameters["lr"]
    assert [result.learning_rate for result in results] == list(lr(np.arange(STEPS)))
    for parameter, value in model.named_parameters():
        wanted = value.detach().numpy()
        scale = np.abs(wanted).max()
        assert np.abs(session.params[parameter] - wanted).max() <= TOLERANCE * scale, parameter
    for buffer, average in model.named_buffers():
        close = pytest.approx(average.numpy(), rel=TOLERANCE)
        assert session.buffers[buffer] == close, buffer
    inputs, _ = next(batches(case, 1, rows=5))
    model.eval()
    wanted = model(torch.from_numpy(inputs)).detach().numpy()
    assert session.predict(inputs) == pytest.approx(
        wanted, rel=1e-3, abs=1e-3 * float(wanted.std())
    )


def test_a_graph_without_float64_trains_as_well(tmp_path: Path) -> None:
    case = CASES["mlp"]
    with traced_once(case.model), expect_unproved():  # scalars in pairs
        write(tmp_path / "f32", case, scalar_dtype="f32")
    graph = onnx.load(tmp_path / "f32" / "train.onnx").graph
    values = (*graph.input, *graph.output, *graph.value_info)
    assert not [v.name for v in values if v.type.tensor_type.elem_type == TensorProto.DOUBLE]
    assert not [i.name for i in graph.initializer if i.data_type == TensorProto.DOUBLE]
    made(tmp_path / "f64", case)
    sessions = [TrainSession(tmp_path / name, threads=1) for name in ("f32", "f64")]
    losses = [
        [result.loss for result in session.fit(batches(case, 50), progress=False)]
        for session in sessions
    ]
    assert losses[0] == pytest.approx(losses[1], rel=TOLERANCE)


def test_files_are_the_same_each_time_and_say_nothing_of_this_machine(tmp_path: Path) -> None:
    made(tmp_path / "one", CASES["mlp"])
    write(tmp_path / "two", CASES["mlp"])
    for file in ("train.onnx", "init.onnx", "eval.onnx"):
        data = (tmp_path / "one" / file).read_bytes()
        assert data == (tmp_path / "two" / file).read_bytes()
        assert b".py" not in data
        assert b"closedform.torch" not in data


def with_dropout() -> nn.Module:
    """Two layers of dropout; test_decompositions has the dropout inside of attention."""
    return nn.Sequential(
        nn.Linear(64, 40), nn.ReLU(), nn.Dropout(0.25), nn.Dropout(0.1), nn.Linear(40, 10)
    )


DROPOUT = Case(with_dropout, vectors, optimizers.adamw(0.02), CASES["mlp"].in_torch)


def test_dropout_draws_from_the_seed_and_the_step(tmp_path: Path) -> None:
    case = DROPOUT
    session, _ = made(tmp_path, case)
    first = [result.loss for result in session.fit(batches(case, 40), progress=False)]
    again = TrainSession(tmp_path, threads=1).fit(batches(case, 40), progress=False)
    other = TrainSession(tmp_path, seed=1, threads=1).fit(batches(case, 40), progress=False)
    assert [result.loss for result in again] == first
    assert [result.loss for result in other] != first
    assert np.mean(first[-5:]) < first[0] / 2


def test_a_resumed_run_is_the_uninterrupted_one(tmp_path: Path) -> None:
    case = DROPOUT
    whole, _ = made(tmp_path, case)
    whole.fit(batches(case, 12), progress=False)
    half = TrainSession(tmp_path, threads=1)
    seen = list(batches(case, 12))
    half.fit(seen[:5], progress=False)
    half.save(tmp_path / "half.safetensors")
    resumed = TrainSession(tmp_path, threads=1)
    resumed.load(tmp_path / "half.safetensors")
    assert resumed.t == 5
    resumed.fit(seen[5:], progress=False)
    assert resumed.t == whole.t == 12
    for name, value in whole.params.items():
        assert np.array_equal(resumed.params[name], value), name
    for name, value in whole.states.items():
        assert np.array_equal(resumed.states[name], value), name


def test_the_clock_does_not_leave_its_domain(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    case = CASES["mlp"]
    session, _ = made(tmp_path, case)
    monkeypatch.setattr(TrainSession, "t", 2**50)
    with pytest.raises(
        SessionError, match=f"the clock is at {2**50} and ends at {2**50}, the last"
    ):
        session.fit(batches(case, 1), progress=False)


def test_an_interrupted_save_leaves_the_previous_file(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    case = CASES["mlp"]
    session, _ = made(tmp_path, case)
    target = tmp_path / "state.safetensors"
    session.save(target)
    before = target.read_bytes()
    session.fit(batches(case, 1), progress=False)

    def interrupted(descriptor: int) -> None:
        raise OSError("no space left")

    monkeypatch.setattr("os.fsync", interrupted)
    with pytest.raises(SessionError, match=r"cannot write the state: no space left .*state\.safe"):
        session.save(target)
    assert target.read_bytes() == before
    assert sorted(path.name for path in tmp_path.iterdir()) == [
        "eval.onnx",
        "init.onnx",
        "state.safetensors",
        "train.onnx",
    ]


def with_rule(rule: UpdateRule) -> Case:
    return Case(mlp, vectors, rule, CASES["mlp"].in_torch)


def test_a_batch_that_is_not_finite_is_skipped(tmp_path: Path) -> None:
    session, _ = made(tmp_path, with_rule(transforms.skip_nonfinite(optimizers.adamw(0.01))))
    good = list(batches(CASES["mlp"], 2))
    bad = (np.full_like(good[0][0], np.nan), good[0][1])
    session.step(good[0])
    before = {name: value.copy() for name, value in {**session.params, **session.states}.items()}
    result = session.step(bad)
    assert np.isnan(result.loss)
    assert session.t == result.step == 1
    now = {**session.params, **session.states}
    assert all(np.array_equal(now[name], value) for name, value in before.items())
    assert session.shared["skipped_steps"] == 1
    session.step(good[1])
    assert session.t == 2
    session.save(tmp_path / "state")
    again = TrainSession(tmp_path, threads=1)
    again.load(tmp_path / "state")
    assert again.shared["skipped_steps"] == session.shared["skipped_steps"]


def test_an_average_of_the_weights_is_what_is_evaluated(tmp_path: Path) -> None:
    rule = transforms.weight_average(optimizers.sgd(0.1), 0.9)
    session, model = made(tmp_path, with_rule(rule))
    rows = list(batches(CASES["mlp"], 30))
    session.fit(rows, progress=False)
    optimizer = torch.optim.SGD(model.parameters(), 0.1)
    averaged = torch.optim.swa_utils.AveragedModel(
        model, multi_avg_fn=torch.optim.swa_utils.get_ema_multi_avg_fn(0.9)
    )
    for inputs, targets in rows:
        optimizer.zero_grad()
        output = model(torch.from_numpy(inputs))
        functional.cross_entropy(output, torch.from_numpy(targets)).backward()
        optimizer.step()
        averaged.update_parameters(model)
    inputs, _ = rows[0]
    wanted = averaged(torch.from_numpy(inputs)).detach().numpy()
    # float32 of another order, over 30 steps.
    assert session.predict(inputs) == pytest.approx(wanted, rel=1e-4, abs=1e-4)
    plain = model(torch.from_numpy(inputs)).detach().numpy()
    assert np.abs(plain - wanted).max() > 0.05


@pytest.mark.sample(every=2)
@pytest.mark.parametrize(
    "rule",
    [
        optimizers.schedule_free_adamw(0.01),
        optimizers.prodigy(1.0),
        transforms.accumulate(optimizers.adamw(0.01), 2),
        transforms.lookahead(optimizers.sgd(0.1, momentum=0.9)),
    ],
    ids=lambda rule: str(rule.name),
)
def test_rules_with_states_of_the_model_train(rule: UpdateRule, tmp_path: Path) -> None:
    session, _ = made(tmp_path, with_rule(rule))
    losses = [result.loss for result in session.fit(batches(CASES["mlp"], 150), progress=False)]
    assert np.mean(losses[-10:]) < losses[0] / 2
    inputs, _ = next(batches(CASES["mlp"], 1))
    assert np.isfinite(session.predict(inputs)).all()


def test_frozen_parameters_stay(tmp_path: Path) -> None:
    case = CASES["mlp"]
    torch.manual_seed(0)
    model = mlp()
    first = next(iter(model.parameters()))
    first.requires_grad_(False)
    example = tuple(map(torch.from_numpy, next(batches(case, 1, rows=4))))
    export(model, functional.cross_entropy, example, case.rule, tmp_path)
    session = TrainSession(tmp_path)
    session.fit(batches(case, 3), progress=False)
    assert "0.weight" not in session.params
    assert np.array_equal(session.buffers["0.weight"], first.detach().numpy())


def test_hyperparameters_without_a_value_are_inputs(tmp_path: Path) -> None:
    case = with_rule(optimizers.sgd(lr=None))
    session, _ = made(tmp_path, case)
    (batch,) = batches(case, 1)
    before = session.params["0.bias"].copy()
    result = session.step(batch, lr=0.0)
    assert result == StepResult(1, result.loss, None)
    assert np.array_equal(session.params["0.bias"], before)
    session.step(batch, lr=0.5)
    assert not np.array_equal(session.params["0.bias"], before)
    with pytest.raises(SessionError, match=r"^hyperparameter 'lr' missing \(.*train.onnx'\)"):
        session.step(batch)
    with pytest.raises(SessionError, match=r"'lr' must be a number \(float64\[\]\), got 'high'"):
        session.step(batch, lr="high")  # type: ignore[arg-type]
    with pytest.raises(SessionError, match=r"unknown hyperparameter 'rl'.*did you mean 'lr'"):
        session.step(batch, rl=1)
    assert session.t == 2


def test_a_session_needs_no_torch(tmp_path: Path) -> None:
    case = CASES["mlp"]
    made(tmp_path, case)
    code = (
        "import sys, numpy as np\n"
        "from closedform.training import TrainSession\n"
        f"s = TrainSession({str(tmp_path)!r})\n"
        "r = s.step((np.zeros((3, 64), np.float32), np.zeros(3, np.int64)))\n"
        "s.save('s.safetensors'); s.load('s.safetensors')\n"
        "assert s.predict(np.zeros((2, 64), np.float32)).shape == (2, 10)\n"
        "assert 'torch' not in sys.modules, 'torch'\n"
        "print(r.step)"
    )
    run = subprocess.run(
        [sys.executable, "-c", code], capture_output=True, text=True, cwd=tmp_path, check=False
    )
    assert run.stdout.strip() == "1", run.stderr


X = np.zeros((3, 64), np.float32)
Y = np.zeros(3, np.int64)

BAD_BATCHES: dict[str, tuple[Any, str]] = {
    "short": ((X,), r"a batch must have 2 tensors \(input, target\), got 1"),
    "dtype": (
        (X.astype(np.float64), Y),
        r"must be float32\[n,64\], got dtype float64 .* convert it with .astype\('float32'\)",
    ),
    "shape": ((X[:, :63], Y), r"'batch.input' must be float32\[n,64\], got shape \[3, 63\]"),
    "rows": ((X[:2], Y), r"must have one nonzero first size, got \[2, 3\]"),
    "none": ((X[:0], Y[:0]), r"must have one nonzero first size, got \[0\]"),
    "list": (([[0.0] * 64], Y), r"'batch.input' must be a NumPy array float32\[n,64\], got list"),
    "name": (
        {"inptu": X, "target": Y},
        r"unknown tensor 'inptu'.*did you mean 'input'",
    ),
    "missing": ({"input": X}, r"tensor 'target' missing \(the batch, file .*train.onnx'\)"),
    "array": (X, r"a batch must be a tuple of arrays \(input, target\) or .* by name, got ndarray"),
    "nothing": (None, r"a batch must be a tuple of arrays \(input, target\) or .*, got NoneType"),
}


@pytest.mark.parametrize("name", BAD_BATCHES)
def test_a_bad_batch_changes_nothing(name: str, shared: TrainSession) -> None:
    batch, message = BAD_BATCHES[name]
    before = {key: value.copy() for key, value in shared.params.items()}
    with pytest.raises(SessionError, match=message):
        shared.step(batch)
    assert shared.t == 0
    assert all(np.array_equal(shared.params[key], value) for key, value in before.items())


@pytest.mark.parametrize("seed", [-3, "a", True, None])
def test_a_seed_is_a_number(seed: Any, shared: TrainSession) -> None:
    with pytest.raises(SessionError, match=f"seed must be an integer >= 0, got {seed!r} "):
        TrainSession(shared._folder, seed=seed)


@pytest.fixture(scope="module")
def shared(tmp_path_factory: pytest.TempPathFactory) -> TrainSession:
    session, _ = made(tmp_path_factory.mktemp("shared"), CASES["mlp"])
    return session


def test_a_foreign_state_is_refused_whole(shared: TrainSession, tmp_path: Path) -> None:
    from safetensors.numpy import load_file, save_file

    shared.save(tmp_path / "own")
    good = load_file(tmp_path / "own")
    save_file({**good, "param.0.wieght": good["param.0.weight"]}, tmp_path / "named")
    save_file({**good, "param.0.bias": np.zeros(3, np.float32)}, tmp_path / "shaped")
    for step in (-5, 2**62):
        save_file({**good, "step": np.array(step, good["step"].dtype)}, tmp_path / f"step{step}")
    (tmp_path / "text").write_text("no state")
    before = shared.params["0.weight"].copy()
    for file, message in {
        "named": r"unknown array 'param.0.wieght'.*did you mean 'param.0.weight'",
        "shaped": r"'param.0.bias' must be float32\[24\], got shape \[3\]",
        "step-5": r"'step' must be an integer in 0\.\.1125899906842624, got -5",
        f"step{2**62}": r"'step' must be an integer in 0\.\..*, got 4611686018427387904",
        "text": "cannot read the state",
        "nowhere": "cannot read the state",
    }.items():
        with pytest.raises(StateError, match=message):
            shared.load(tmp_path / file)
    assert np.array_equal(shared.params["0.weight"], before)


class Decides(nn.Module):
    """A branch on the data, which no static graph has."""

    def __init__(self) -> None:
        super().__init__()
        self.layer = nn.Linear(64, 10)

    def forward(self, x: torch.Tensor) -> Any:
        return self.layer(x) if x.sum() > 0 else self.layer(-x)


class Unsupported(nn.Module):
    """An operator that ONNX has no form of."""

    def __init__(self) -> None:
        super().__init__()
        self.layer = nn.Linear(64, 10)

    def forward(self, x: torch.Tensor) -> Any:
        # Torch's exporter has no rule for squeeze.dims, either, but takes it apart.
        return torch.linalg.svdvals(self.layer(x)[:, None].squeeze((1,))).sum() * x[:, :10]


class Draws(nn.Module):
    """A random operator without a formula of a fixed number of draws."""

    def __init__(self) -> None:
        super().__init__()
        self.layer = nn.Linear(64, 10)

    def forward(self, x: torch.Tensor) -> Any:
        return self.layer(x) * torch._standard_gamma(torch.ones(10))


def _scalars(output: torch.Tensor, target: torch.Tensor) -> torch.Tensor:
    return functional.cross_entropy(output, target, reduction="none")


EXAMPLE = (torch.zeros(4, 64), torch.zeros(4, dtype=torch.long))
ROW = (torch.zeros(1, 64), torch.zeros(1, dtype=torch.long))
BAD_MODELS: dict[str, tuple[nn.Module, Any, Any, str]] = {
    "decides": (Decides(), functional.cross_entropy, EXAMPLE, "control flow that depends on data"),
    "operator": (
        nn.Sequential(nn.Linear(64, 64), Unsupported()),
        functional.cross_entropy,
        EXAMPLE,
        r"aten._linalg_svd.default of torch.linalg.svdvals has no ONNX form, in 1 \(Unsupp",
    ),
    "random": (
        Draws(),
        functional.cross_entropy,
        EXAMPLE,
        "operator aten._standard_gamma.default is not .*, in _standard_gamma in the model",
    ),
    "loss": (mlp(), _scalars, EXAMPLE, r"the loss must be a scalar tensor, got \[4\]"),
    "row": (mlp(), functional.cross_entropy, ROW, "two rows or more, got 1"),
    "target": (mlp(), functional.cross_entropy, EXAMPLE[:1], "1 targets, got a batch of 1 tensors"),
    "sizes": (
        mlp(),
        functional.cross_entropy,
        (EXAMPLE[0], EXAMPLE[1][:3]),
        r"must have the same first size, got \[4, 3\]",
    ),
    "tensor": (
        mlp(),
        functional.cross_entropy,
        EXAMPLE[0],
        "must be a tuple of tensors, got Tensor",
    ),
    "arrays": (
        mlp(),
        functional.cross_entropy,
        (EXAMPLE[0], np.zeros(4)),
        "must be a tuple of tensors, got tuple of Tensor, ndarray .*torch.from_numpy",
    ),
    "no gradient": (
        mlp(),
        lambda output, target: (output.argmax(1) == target).float().mean(),
        EXAMPLE,
        r"the loss has no gradient in the parameters \(model Sequential\): compute it from",
    ),
    "function": (
        functional.relu,  # type: ignore[dict-item]
        functional.cross_entropy,
        EXAMPLE,
        "model must be a torch.nn.Module, got function",
    ),
    "frozen": (
        nn.Linear(64, 10).requires_grad_(False),
        functional.cross_entropy,
        EXAMPLE,
        "no parameter of the model is trained",
    ),
}


def test_a_loss_of_the_output_alone_takes_no_targets() -> None:
    batch = read_batch(mlp(), lambda output: output.mean(), EXAMPLE[:1], "model")
    assert batch.inputs == list(batch.tensors) == ["input"]


@pytest.mark.parametrize("name", BAD_MODELS)
def test_a_model_without_a_graph_is_rejected(name: str, tmp_path: Path) -> None:
    model, loss, example, message = BAD_MODELS[name]
    with pytest.raises(ExportError, match=message):
        export(model, loss, example, optimizers.sgd(schedules.constant(0.1)), tmp_path / "out")
    assert not (tmp_path / "out").exists()


class Recurrent(nn.Module):
    """A recurrent layer over two places."""

    def __init__(self, kind: Any) -> None:
        super().__init__()
        self.layer = kind(32, 8, batch_first=True)
        self.head = nn.Linear(8, 10)

    def forward(self, x: torch.Tensor) -> Any:
        return self.head(self.layer(x.view(-1, 2, 32))[0][:, -1])


@pytest.mark.sample(every=2)
@pytest.mark.parametrize("kind", [nn.LSTM, nn.GRU])
def test_recurrent_layers_train_as_in_torch(kind: Any, tmp_path: Path) -> None:
    rule = optimizers.sgd(schedules.linear(0.5, 0.1, 10))
    case = Case(lambda: Recurrent(kind), vectors, rule, lambda m: torch.optim.SGD(m.parameters()))
    session, model = made(tmp_path, case)
    results = session.fit(batches(case, 10), progress=False)
    losses = trained_in_torch(model, case, 10)
    assert [result.loss for result in results] == pytest.approx(losses, rel=TOLERANCE)


def test_rule_must_be_an_update_rule(tmp_path: Path) -> None:
    with pytest.raises(ExportError, match="rule must be an UpdateRule, got Schedule"):
        export(mlp(), functional.cross_entropy, EXAMPLE, schedules.constant(1), tmp_path)  # type: ignore[arg-type]

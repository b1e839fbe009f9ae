"""Integer inputs: what torch refuses as an index or a label, a session refuses by row and value."""

import itertools
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import onnxruntime
import pytest
import torch
from torch import nn
from torch.nn import functional

from closedform import optimizers
from closedform.errors import SessionError
from closedform.training import TrainSession, export

SIZE = 5

Read = Callable[["Table", torch.Tensor], torch.Tensor]

READS: dict[str, Read] = {
    "embedding": lambda m, i: m.rows(i).mean(),
    "part": lambda m, i: m.rows(i[:, :-1]).mean(),
    "column": lambda m, i: m.rows(i[:, 1]).mean(),
    "transposed": lambda m, i: m.rows(i.T[1:].int()).mean(),
    "split": lambda m, i: m.rows(i.split([1, 2], 1)[1]).mean(),
    "gather": lambda m, i: m.rows.weight.gather(0, i).mean(),
    "index select": lambda m, i: m.rows.weight.index_select(0, i.reshape(-1)).mean(),
    "index": lambda m, i: m.rows.weight[i[0]].mean(),
    "scatter": lambda m, i: m.rows.weight.scatter(0, i, 1.0).mean(),
    "one hot": lambda m, i: (functional.one_hot(i, SIZE).float() @ m.rows.weight).mean(),
    "labels": lambda m, i: functional.cross_entropy(m.rows.weight[:3], i[0]),
    "shifted labels": lambda m, i: functional.cross_entropy(
        m.rows.weight[:3],
        functional.pad(i, (0, 1), value=-100)[..., 1:].contiguous()[0],
    ),
    "ignored label": lambda m, i: functional.cross_entropy(
        m.rows.weight[:3], i[0], ignore_index=-1
    ),
    "replaced label": lambda m, i: functional.cross_entropy(
        m.rows.weight[:3], i[0].masked_fill(i[0] == 7, -100)
    ),
    "labels from 1": lambda m, i: functional.cross_entropy(m.rows.weight[:3], i[0] - 1),
    "reversed labels": lambda m, i: functional.cross_entropy(m.rows.weight[:3], 4 - i[0]),
    "ignored label, shifted": lambda m, i: functional.cross_entropy(
        m.rows.weight[:3], 1 + i[0], ignore_index=-1
    ),
    "replaced label, shifted": lambda m, i: functional.cross_entropy(
        m.rows.weight[:3], (i[0] + 2).masked_fill(i[0] + 2 == 7, -100)
    ),
    "coarse tokens": lambda m, i: m.rows(i // 2).mean(),
    "multiplied tokens": lambda m, i: m.rows(-2 * i + 2).mean(),
    "clamped tokens": lambda m, i: m.rows((i - 1).clamp(min=0)).mean(),
    "clamped index": lambda m, i: m.rows.weight[i.clamp(max=3)].mean(),
    "sorted tokens": lambda m, i: m.rows(i.sort(-1)[0]).mean(),
    "images": lambda m, i: functional.nll_loss(
        m.rows.weight[None].expand(1, 5, 5), i[:1, :1].expand(1, 5)
    ),
}


class Table(nn.Module):
    """A model that reads a table at the indices of many inputs."""

    rows: nn.Embedding

    def __init__(self) -> None:
        super().__init__()
        self.rows = nn.Embedding(SIZE, SIZE)

    def forward(self, indices: dict[str, torch.Tensor]) -> Any:
        torch.manual_seed(0)
        return torch.stack([READS[name](self, value) for name, value in indices.items()])


def _mean(output: torch.Tensor) -> torch.Tensor:
    return output.mean()


@pytest.fixture(scope="module")
def folder(tmp_path_factory: pytest.TempPathFactory) -> Path:
    path = tmp_path_factory.mktemp("indices")
    example = {"indices": {name: torch.ones(3, 3, dtype=torch.int64) for name in READS}}
    rule = optimizers.sgd(0.0)
    export(Table(), _mean, example, rule, path, dynamic_axes={}, validate=False)
    return path


@pytest.fixture(scope="module")
def session(folder: Path) -> TrainSession:
    return TrainSession(folder, threads=1)


@pytest.mark.sample(every=4)
@pytest.mark.parametrize("name", READS)
def test_values_that_torch_refuses_are_refused(session: TrainSession, name: str) -> None:
    model, refused = Table(), 0
    values = (-102, -100, -6, -5, -2, -1, 0, 1, 2, 4, 5, 7, 9, 10)
    for value, row, column in itertools.product(values, range(3), range(3)):
        batch = {other: np.ones((3, 3), np.int64) for other in READS}
        batch[name][row, column] = value
        try:
            READS[name](model, torch.from_numpy(batch[name]))
        except (IndexError, RuntimeError):
            refused += 1
            with pytest.raises(SessionError, match=f"got {value} in row {row}"):
                session.step({"indices": batch})
        else:
            session.step({"indices": batch})
    assert refused, "no value was out of range: the row is not read"


def test_the_check_can_be_left_out(folder: Path) -> None:
    # Past the end, the runtime itself refuses an index; 4 − (−1) is past the end.
    numbers = {"reversed labels": 1, "multiplied tokens": 1}
    batch = {"indices": {name: np.full((3, 3), numbers.get(name, -1)) for name in READS}}
    with pytest.raises(SessionError, match=r"'indices.embedding' must have values in 0\.\.4"):
        TrainSession(folder, threads=1).predict(*batch["indices"].values())
    TrainSession(folder, threads=1, check=False).step(batch)


class Draws(nn.Module):
    """Draws numbers in evaluation mode, too."""

    def __init__(self) -> None:
        super().__init__()
        self.layer = nn.Linear(4, 3)

    def forward(self, x: torch.Tensor) -> Any:
        y = self.layer(x)
        sizes = torch.rand(2 * x.shape[0] + 1, x.shape[0])
        return y + torch.randn(x.shape[0], 3) + y.new_empty(y.shape).exponential_() + sizes.mean()


def test_a_model_draws_numbers_in_evaluation(tmp_path: Path) -> None:
    example = torch.zeros(4, 4), torch.zeros(4, 3)
    export(Draws(), "mse", example, optimizers.sgd(0.1), tmp_path, evaluation_loss=True)
    session = TrainSession(tmp_path, threads=1)
    x = np.zeros((5, 4), np.float32)
    bias = session.predict(x) - session.predict(x, sample=1)
    assert np.array_equal(session.predict(x), session.predict(x))
    assert (bias != 0).all()
    batch = x, x[:, :3]
    assert session.evaluate(batch).loss == session.evaluate(batch).loss
    assert session.evaluate(batch).loss != session.evaluate(batch, sample=1).loss
    with pytest.raises(SessionError, match="sample must be an integer >= 0, got -1"):
        session.predict(x, sample=-1)

    session.to_onnx(tmp_path / "model.onnx")
    model = onnxruntime.InferenceSession(tmp_path / "model.onnx")
    assert [value.name for value in model.get_inputs()] == ["x"]
    (drawn,) = model.run(None, {"x": np.zeros((4000, 4), np.float32)})
    noise = drawn - session.params["layer.bias"]
    # N(0, 1) + Exp(1) + a mean of uniform numbers: mean 1.5, variance 2; six standard errors.
    assert abs(noise.mean() - 1.5) < 6 * np.sqrt(2 / noise.size)
    assert abs(noise.var() - 2) < 6 * np.sqrt(20 / noise.size)
    assert (model.run(None, {"x": x})[0] != model.run(None, {"x": x})[0]).all()

"""Branches of a model on its sizes: a step is for the sizes that take the branch of the example."""

import math
import random
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch
from torch import nn
from torch.nn import functional

from closedform import optimizers
from closedform.errors import ExportError, SessionError
from closedform.training import TrainSession, export
from tests.training.zoo import Of

ROWS, LENGTH = 4, 6

BRANCHES: dict[str, Callable[[int, int], Any]] = {
    "rows > 5": lambda rows, length: rows > 5,
    "3 <= rows < 9": lambda rows, length: 3 <= rows < 9,
    "rows != 7": lambda rows, length: rows != 7,
    "one row": lambda rows, length: rows == 1,
    "more than one place": lambda rows, length: length > 1,
    "one entry": lambda rows, length: rows * length == 1,
    "even rows": lambda rows, length: rows % 2 == 0,
    "rows below the length": lambda rows, length: rows < length,
    "twice the rows": lambda rows, length: 2 * rows - 3 > length,
    "product": lambda rows, length: rows * length <= 30,
    "square": lambda rows, length: rows**2 > 3 * length,
    "whole windows": lambda rows, length: -(-length // 4) * 4 != length,
    "padding": lambda rows, length: (4 - length % 4) % 4 > 0,
}


def _model(branch: Callable[[int, int], Any]) -> nn.Module:
    def forward(model: Any, x: torch.Tensor) -> Any:
        return model.layer(x) * (2 if branch(x.shape[0], x.shape[1]) else 1)

    return Of(forward, layer=nn.Linear(3, 2))


def _batch(rows: int, length: int) -> tuple[torch.Tensor, torch.Tensor]:
    generator = torch.Generator().manual_seed(rows * 100 + length)
    return torch.randn(rows, length, 3, generator=generator), torch.randn(
        rows, length, 2, generator=generator
    )


FREE = {name: {0: "rows", 1: "length"} for name in ("x", "target")}


@pytest.mark.sample(every=3)
@pytest.mark.parametrize("name", BRANCHES)
def test_sizes_of_the_other_branch_are_refused(name: str, tmp_path: Path) -> None:
    branch = BRANCHES[name]
    torch.manual_seed(0)
    model = _model(branch)
    example = _batch(ROWS, LENGTH)
    export(model, functional.mse_loss, example, optimizers.sgd(0.0), tmp_path, dynamic_axes=FREE)
    session = TrainSession(tmp_path)
    refused = 0
    for rows in range(1, 11):
        for length in range(1, 11):
            x, target = _batch(rows, length)
            arrays = x.numpy(), target.numpy()
            if bool(branch(rows, length)) != bool(branch(ROWS, LENGTH)):
                refused += 1
                with pytest.raises(SessionError, match=r"this step is for sizes with .*, got rows"):
                    session.step(arrays)
                with pytest.raises(SessionError, match="this step is for sizes with"):
                    session.predict(arrays[0])
                continue
            wanted = functional.mse_loss(model(x), target).item()
            # A mean over at most 200 entries in another order.
            assert abs(session.step(arrays).loss - wanted) <= 1e-5 * wanted
            assert np.shape(session.predict(arrays[0])) == (rows, length, 2)
    assert refused, "the table has a branch that no size leaves"


def test_a_branch_that_has_no_text_fixes_the_size(tmp_path: Path) -> None:
    model = _model(lambda rows, length: rows / 3 > 1.5)
    with pytest.raises(ExportError, match=r"'rows' is not free: the model branches on .*line \d+"):
        export(
            model,
            functional.mse_loss,
            _batch(ROWS, LENGTH),
            optimizers.sgd(0.0),
            tmp_path,
            dynamic_axes=FREE,
        )


class _Pyramid(nn.Module):
    """A map and an enlarged one of four times fewer rows and columns, which are joined."""

    def __init__(self) -> None:
        super().__init__()
        self.wide = nn.Conv2d(3, 4, 3, 2, 1)
        self.low = nn.Sequential(nn.Conv2d(4, 4, 3, 2, 1), nn.Conv2d(4, 4, 3, 2, 1))
        self.above, self.joined = nn.Conv2d(4, 4, 3, 1, 1), nn.Conv2d(8, 4, 3, 1, 1)

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        wide = self.wide(x)
        high = functional.interpolate(self.low(wide), scale_factor=4)
        joined: torch.Tensor = self.joined(torch.cat([wide, self.above(high)], 1))
        return joined + high


def _mean_square(output: torch.Tensor) -> torch.Tensor:
    return output.square().mean()


def test_sizes_stay_free_where_maps_have_to_have_one_size(tmp_path: Path) -> None:
    """The gradient has sizes that are numbers by that condition."""
    torch.manual_seed(0)
    model = _Pyramid()
    axes = {"x": {0: "rows", 2: "height", 3: "width"}}
    example = (torch.randn(2, 3, 32, 48),)
    export(model, _mean_square, example, optimizers.sgd(1.0), tmp_path, dynamic_axes=axes)
    for rows, height, width in [(2, 32, 48), (3, 48, 31), (1, 15, 16), (2, 64, 80)]:
        x = torch.randn(rows, 3, height, width)
        session = TrainSession(tmp_path)
        before = {name: value.copy() for name, value in session.params.items()}
        model.zero_grad()
        loss = _mean_square(model(x))
        loss.backward()
        # Float32 sums over at most 5120 places, in another order.
        assert abs(session.step((x.numpy(),)).loss - loss.item()) <= 1e-5 * loss.item()
        for name, parameter in model.named_parameters():
            assert parameter.grad is not None
            step = before[name] - session.params[name]
            np.testing.assert_allclose(step, parameter.grad, rtol=0, atol=2e-5)
    session = TrainSession(tmp_path)
    for height, width in [(36, 48), (32, 34)]:
        x = torch.randn(2, 3, height, width)
        with pytest.raises(RuntimeError):
            model(x)
        with pytest.raises(SessionError, match="this step is for sizes with"):
            session.step((x.numpy(),))


def _slice(seed: int) -> Callable[[torch.Tensor], torch.Tensor]:
    """A part of a tensor by numbers of rows, drawn."""
    draw = random.Random(seed)
    start, stop = (draw.choice([None, *range(-6, 7)]) for _ in range(2))
    step = draw.choice([None, 2, 3])
    return lambda rows: rows[start:stop:step]


PARTS: dict[str, Callable[[torch.Tensor], torch.Tensor]] = {
    "narrow": lambda rows: rows.narrow(0, 1, 3),
    "a row": lambda rows: rows[3:4] + rows[2],
    "the last row but two": lambda rows: rows[-3].unsqueeze(0),
    "largest": lambda rows: rows.topk(3, 0)[0],
    "windows": lambda rows: rows.unfold(0, 3, 2).sum(-1),
    **{f"slice {seed}": _slice(seed) for seed in range(24)},
}


@pytest.mark.sample(every=4)
@pytest.mark.parametrize("name", PARTS)
def test_parts_by_numbers_of_rows_are_those_of_torch_or_refused(name: str, tmp_path: Path) -> None:
    part = PARTS[name]

    def forward(model: Any, x: torch.Tensor) -> Any:
        rows = model.layer(x)
        return rows + part(rows).sum(0) / 8

    torch.manual_seed(0)
    model = Of(forward, layer=nn.Linear(3, 2))
    example = _batch(ROWS, LENGTH)
    rule = optimizers.sgd(0.0)
    try:
        export(model, functional.mse_loss, example, rule, tmp_path, dynamic_axes=FREE)
    except ExportError as error:  # a part of one row, which broadcasts
        message = str(error)
        assert "'rows' is not free" in message
        return
    session = TrainSession(tmp_path)
    for rows in range(1, 11):
        x, target = _batch(rows, LENGTH)
        try:
            expected = functional.mse_loss(model(x), target).item()
        except (RuntimeError, IndexError):  # too few rows
            expected = math.nan
        try:
            loss = session.step((x.numpy(), target.numpy())).loss
        except SessionError as error:
            refusal = str(error)
            # A slice that ends before the end of the example may not in another size.
            assert "this step is for sizes with" in refusal or math.isnan(expected)
            continue
        # A mean over at most 120 entries in another order.
        assert abs(loss - expected) <= 1e-5 * expected, rows

"""Real loops that train something small, save, resume, and equal a run without interruption.

The loops of other packages are in ``compare_clients.py``; timm's own is a protocol, written here.
"""

import copy
import io
from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

import pytest
import torch
from torch import Tensor, nn

import closedform as cf
from closedform.torch import Optimizer, ParamScheduler, cerebras, timm
from tests.torch.training import values

STEPS, BATCH, ACCUMULATED = 12, 8, 2
RATE = cf.schedules.linear(0, 0.05, 3).then(cf.schedules.cosine(0.05, 0.001, 9))


def data() -> list[tuple[Tensor, Tensor]]:
    """Batches of a regression, always the same."""
    generator = torch.Generator().manual_seed(0)
    weights = torch.randn(4, 2, generator=generator)
    inputs = torch.randn(STEPS * ACCUMULATED, BATCH, 4, generator=generator)
    return [(batch, batch @ weights) for batch in inputs]


def model() -> nn.Module:
    torch.manual_seed(0)
    return nn.Sequential(nn.Linear(4, 8), nn.Tanh(), nn.Linear(8, 2))


@dataclass
class Run:
    """A model in training, with all that a checkpoint holds."""

    model: nn.Module
    optimizer: torch.optim.Optimizer
    scheduler: Any
    scaler: torch.amp.GradScaler

    def save(self) -> io.BytesIO:
        parts = (self.model, self.optimizer, self.scheduler, self.scaler)
        file = io.BytesIO()
        torch.save([part.state_dict() for part in parts], file)
        file.seek(0)
        return file

    def load(self, file: io.BytesIO) -> None:
        parts = (self.model, self.optimizer, self.scheduler, self.scaler)
        for part, state in zip(parts, torch.load(file, weights_only=True), strict=True):
            part.load_state_dict(state)


def new_run(make: Callable[[nn.Module], torch.optim.Optimizer]) -> Run:
    built = model()
    optimizer = make(built)
    scaler = torch.amp.GradScaler("cpu", init_scale=2.0**8, growth_interval=5)
    return Run(built, optimizer, ParamScheduler(optimizer, RATE), scaler)


def train(run: Run, first: int, last: int) -> list[float]:
    """Steps of two accumulated batches each; step 7 overflows, so the scaler skips it."""
    batches = data()
    losses = []
    for step in range(first, last):
        run.optimizer.zero_grad()
        total = 0.0
        for inputs, targets in batches[step * ACCUMULATED : (step + 1) * ACCUMULATED]:
            loss = nn.functional.mse_loss(run.model(inputs), targets) / ACCUMULATED
            total += float(loss.detach())
            run.scaler.scale(loss * (torch.inf if step == 7 else 1)).backward()
        scale = run.scaler.get_scale()
        run.scaler.step(run.optimizer)
        run.scaler.update()
        if run.scaler.get_scale() >= scale:
            run.scheduler.step()
        losses.append(total)
    return losses


MAKERS: dict[str, Callable[[nn.Module], torch.optim.Optimizer]] = {
    "torch": lambda built: torch.optim.AdamW(built.parameters(), foreach=False),
    "eager": lambda built: Optimizer(built.named_parameters(), cf.optimizers.adamw()),
    "cerebras": lambda built: cerebras.AdamW(built.parameters()),
    "tensor": lambda built: cerebras.Lion(built.parameters(), lr=torch.tensor(0.1)),
}


@pytest.mark.parametrize("maker", MAKERS)
def test_plain_torch_with_scaler_and_accumulation(maker: str) -> None:
    whole = new_run(MAKERS[maker])
    losses = train(whole, 0, STEPS)
    assert losses[-1] < losses[0]
    assert whole.scheduler.last_epoch == STEPS - 1  # one step was skipped
    for cut in (5, 8):
        first = new_run(MAKERS[maker])
        train(first, 0, cut)
        second = new_run(MAKERS[maker])
        second.load(first.save())
        assert train(second, cut, STEPS) == losses[cut:]
        for one, two in zip(
            values(whole.model.parameters()),
            values(second.model.parameters()),
            strict=True,
        ):
            assert torch.equal(one, two)


@pytest.mark.parametrize("in_epochs", [True, False])
def test_the_loop_of_timm(in_epochs: bool) -> None:
    """An epoch of three updates: step_update after each, step after the epoch with its metric."""
    per_epoch, epochs = 3, 4
    length = epochs if in_epochs else epochs * per_epoch

    def begin() -> tuple[nn.Module, Optimizer, Any]:
        built = model()
        optimizer = Optimizer(built.parameters(), cf.optimizers.sgd(lr=0.05, momentum=0.9))
        scheduler = timm.CosineLRScheduler(
            optimizer, length, lr_min=1e-3, warmup_t=1, warmup_lr_init=0.01, t_in_epochs=in_epochs
        )
        return built, optimizer, scheduler

    def epoch_of(run: tuple[nn.Module, Optimizer, Any], epoch: int) -> list[float]:
        built, optimizer, scheduler = run
        rates = []
        for number, (inputs, targets) in enumerate(data()[:per_epoch]):
            optimizer.zero_grad()
            nn.functional.mse_loss(built(inputs), targets).backward()
            optimizer.step()
            rates.append(optimizer.param_groups[0]["lr"])
            scheduler.step_update(num_updates=epoch * per_epoch + number + 1, metric=1.0)
        scheduler.step(epoch + 1, 0.5)
        return rates

    whole = begin()
    rates = [rate for epoch in range(epochs) for rate in epoch_of(whole, epoch)]
    assert rates[0] == 0.01
    assert len(set(rates)) == length
    first = begin()
    for epoch in range(2):
        epoch_of(first, epoch)
    second = begin()
    for one, two in zip(first, second, strict=True):
        two.load_state_dict(copy.deepcopy(one.state_dict()))
    assert [r for epoch in (2, 3) for r in epoch_of(second, epoch)] == rates[2 * per_epoch :]
    for a, b in zip(whole[0].parameters(), second[0].parameters(), strict=True):
        assert torch.equal(a, b)
    with pytest.raises(AttributeError, match="did you mean 'CosineLRScheduler'"):
        timm.CosineScheduler  # type: ignore[attr-defined]  # noqa: B018
    assert "CosineLRScheduler" in dir(timm)

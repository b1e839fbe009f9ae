"""Three recipes that are often written with LambdaLR, as formulas, in real training runs.

Linear decay, warmup and cosine, and a step decay of the rate with the momentum beside it. The clock
counts epochs: ``scheduler.step()`` comes after each.

The third one is widely copied with a mistake: its lambda returns the rate itself, and LambdaLR
multiplies by the base rate once more, so that 0.001 becomes 0.000001; and the momentum that it
computes goes nowhere, since a lambda returns one number. Here the rate is a factor, and the first
beta has a schedule of its own.
"""

from collections.abc import Sequence

import torch
from sklearn.datasets import load_digits
from torch import nn

import closedform as cf
from closedform.torch import ParamScheduler, lr_scheduler


def data() -> tuple[torch.Tensor, torch.Tensor]:
    digits = load_digits()
    inputs = torch.tensor(digits.data, dtype=torch.float32) / 16
    return inputs, torch.tensor(digits.target)


def network() -> nn.Module:
    torch.manual_seed(0)
    return nn.Sequential(nn.Linear(64, 32), nn.ReLU(), nn.Linear(32, 10))


def train(
    model: nn.Module,
    optimizer: torch.optim.Optimizer,
    schedulers: Sequence[torch.optim.lr_scheduler.LRScheduler],
    epochs: int,
) -> float:
    """Returns the accuracy on every fifth digit, which is excluded from training."""
    inputs, targets = data()
    is_test = torch.arange(len(inputs)) % 5 == 0
    batches = list(zip(inputs[~is_test].split(240), targets[~is_test].split(240), strict=True))
    for _ in range(epochs):
        for batch, labels in batches:
            optimizer.zero_grad()
            nn.functional.cross_entropy(model(batch), labels).backward()
            optimizer.step()
        for scheduler in schedulers:
            scheduler.step()
    with torch.no_grad():
        right = model(inputs[is_test]).argmax(1) == targets[is_test]
    return float(right.float().mean())


def linear_decay() -> float:
    """From 0.01 to 0 in the first 50 of 100 epochs."""
    model = network()
    optimizer = torch.optim.Adam(model.parameters(), lr=0.01)
    return train(
        model, optimizer, [ParamScheduler(optimizer, cf.schedules.linear(0.01, 0, 50))], 100
    )


def warmup_and_cosine() -> float:
    """Warmup to 0.1 in 10 epochs, then cosine decay in 90."""
    model = network()
    optimizer = torch.optim.SGD(model.parameters(), lr=0.1, momentum=0.9)
    schedule = cf.schedules.linear(0, 0.1, 10).then(cf.schedules.cosine(0.1, 0, 90))
    return train(model, optimizer, [ParamScheduler(optimizer, schedule)], 100)


def step_decay_with_momentum() -> float:
    """At epochs 50 and 100 of 150, a tenth of the learning rate, and the first beta minus 0.05."""
    model = network()
    optimizer = torch.optim.AdamW(model.parameters(), lr=0.001, weight_decay=0.01)
    rate = ParamScheduler(optimizer, cf.schedules.multi_step(0.001, 0.1, [50, 100]))
    first_beta = cf.schedules.piecewise_constant([0.9, 0.85, 0.8], [50, 100])
    betas = ParamScheduler(optimizer, (first_beta, None), key="betas")
    accuracy = train(model, optimizer, [rate, betas], 150)
    print("  at the end: lr", rate.get_last_lr()[0], "betas", optimizer.param_groups[0]["betas"])
    return accuracy


def lambda_lr_with_a_rate() -> float:
    """The behavior of the copied code: the base learning rate times the learning rate."""
    model = network()
    optimizer = torch.optim.AdamW(model.parameters(), lr=0.001, weight_decay=0.01)
    rate = cf.schedules.multi_step(0.001, 0.1, [50, 100])  # a learning rate, used as a factor
    scheduler = lr_scheduler.LambdaLR(optimizer, rate)
    print(
        f"  at the start: lr {scheduler.get_last_lr()[0]:.0e}, a thousandth of the intended value"
    )
    accuracy = train(model, optimizer, [scheduler], 150)
    print("  at the end: betas", optimizer.param_groups[0]["betas"])
    return accuracy


def main() -> None:
    for recipe in (
        linear_decay,
        warmup_and_cosine,
        step_decay_with_momentum,
        lambda_lr_with_a_rate,
    ):
        print(f"{recipe.__name__}:")
        print(f"  accuracy {recipe():.1%}")
    optimizer = torch.optim.SGD(network().parameters(), lr=0.1)
    lambdas = lr_scheduler.LambdaLR(optimizer, lambda epoch: 0.95**epoch)
    print("a lambda is traced once, for its formula:", lambdas.schedules[0].bound)


if __name__ == "__main__":
    main()

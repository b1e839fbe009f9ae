"""A custom scheduler and optimizer, derived from the base classes of the reference framework.

The scheduler overrides ``_get_closed_form_lr`` with an expression, and is found by its name in a
config. The optimizer overrides ``preinitialize``, ``step`` and ``state_names_to_sparsify``; as an
update rule it is two expressions, and runs in torch, torch.compile and onnxruntime.
"""

from typing import Any

import sympy as sp
import torch
from torch import nn

from closedform.language import GRAD, PARAM, State, UpdateRule, hyper, state
from closedform.torch import Optimizer, cerebras


class RootDecay(cerebras.LRScheduler):
    """The learning rate divided by the square root of the step, after a warmup."""

    def __init__(self, optimizer: Any, rate: float, warmup: int, total_iters: int = 100) -> None:
        self.rate = rate
        self.warmup = warmup
        super().__init__(optimizer, total_iters=total_iters, last_epoch=-1)

    def _get_closed_form_lr(self) -> Any:
        step, warmup = self.last_epoch, sp.Integer(self.warmup)
        rise, fall = step / warmup, sp.sqrt(warmup / sp.Max(step, warmup))
        return self.rate * sp.Piecewise((rise, step < warmup), (fall, True))


class Momentum(cerebras.Optimizer):
    """Gradient descent with a running mean, in torch operations."""

    def __init__(self, params: Any, lr: float, decay: float = 0.9) -> None:
        super().__init__(params, {"lr": lr, "decay": decay}, enable_global_step=True)

    def preinitialize(self) -> None:
        """Initializes the state before the first step."""
        for group in self.param_groups:
            for param in group["params"]:
                self.state[param]["mean"] = torch.zeros_like(param)

    @torch.no_grad()
    def step(self, closure: Any = None) -> Any:
        """Has no state."""
        for group in self.param_groups:
            for param in group["params"]:
                mean = self.state[param]["mean"]
                mean.mul_(group["decay"]).add_(param.grad)
                param.sub_(group["lr"] * mean)
                self.increment_global_step(param)

    def state_names_to_sparsify(self) -> list[str]:
        """The states that are masked for a sparse parameter."""
        return ["mean"]


MEAN = hyper("decay") * state("mean") + GRAD
MOMENTUM = UpdateRule(
    "momentum",
    PARAM - hyper("lr") * MEAN,
    {"mean": State(MEAN)},
    {"lr": 0.1, "decay": 0.9},
)


def train(make: Any) -> torch.Tensor:
    torch.manual_seed(0)
    model = nn.Linear(3, 1)
    inputs = torch.randn(64, 3)
    optimizer = make(model.parameters())
    config = {"scheduler": "RootDecay", "rate": 0.1, "warmup": 5}
    scheduler = cerebras.configure_lr_scheduler(optimizer, config)
    assert isinstance(scheduler, RootDecay)
    for _ in range(50):
        optimizer.zero_grad()
        (model(inputs) - inputs.sum(1, keepdim=True)).square().mean().backward()
        optimizer.step()
        scheduler.step()
    print(f"  rate after 50 steps {scheduler.get_last_lr()[0]:.4f}", end=", ")
    return model.weight.detach().flatten()


def main() -> None:
    scheduler = RootDecay(Momentum([torch.zeros(1)], lr=1), rate=0.1, warmup=5)
    print("the schedule:", scheduler.schedules[0].bound)
    for name, make in (
        ("in torch operations", lambda params: Momentum(params, lr=0.1)),
        ("as a rule", lambda params: Optimizer(params, MOMENTUM)),
    ):
        print(name)
        print("weights", [round(float(weight), 4) for weight in train(make)])


if __name__ == "__main__":
    main()

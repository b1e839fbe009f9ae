"""Optimizers of torch whose step of a parameter is a function, for the tracer."""

from collections.abc import Callable
from typing import Any

import torch

States = dict[str, Any]
Body = Callable[[torch.Tensor, torch.Tensor, States], None]


class Counting(torch.optim.Optimizer):
    """An optimizer whose step of a parameter is a function of it, its gradient and its states."""

    def __init__(self, params: Any, body: Body) -> None:
        self.body = body
        super().__init__(params, {"lr": 0.125})

    @torch.no_grad()
    def step(self, closure: Any = None) -> None:  # type: ignore[override]
        for group in self.param_groups:
            for param in group["params"]:
                states = self.state[param]
                states["step"] = states.get("step", 0) + 1
                self.body(param, param.grad, states)

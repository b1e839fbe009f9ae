"""Writes ``optimizers_tensor.npz``: trajectories of rules on whole tensors of public packages.

Run as ``make_optimizers_other.py``, whose parameters and gradients it takes; no test runs this.
"""

import sys
from functools import partial
from importlib.metadata import version
from pathlib import Path
from typing import Any

import numpy as np
import pytorch_optimizer
import timm.optim
import torch

sys.path.insert(0, str(Path(__file__).parents[2]))
from tests.reference.make_optimizers_other import torch_trajectory

# id, class, keyword arguments.
TABLE: list[tuple[str, Any, dict[str, Any]]] = [
    ("lars", timm.optim.Lars, {"lr": 0.1, "weight_decay": 0.1, "momentum": 0.8}),
    (
        "lars_nesterov",
        timm.optim.Lars,
        {"lr": 0.1, "momentum": 0.8, "nesterov": True, "always_adapt": True, "trust_coeff": 0.01},
    ),
    (
        "novograd",
        pytorch_optimizer.NovoGrad,
        {"lr": 0.01, "betas": (0.8, 0.9), "weight_decay": 0.1, "foreach": False},
    ),
    (
        "came",
        pytorch_optimizer.CAME,
        {"lr": 0.01, "betas": (0.9, 0.99, 0.999), "weight_decay": 0.1, "foreach": False},
    ),
    (
        "stable_adamw",
        pytorch_optimizer.StableAdamW,
        {"lr": 0.01, "betas": (0.9, 0.99), "weight_decay": 0.1, "foreach": False},
    ),
    ("sm3", pytorch_optimizer.SM3, {"lr": 0.1, "foreach": False}),
]


def main() -> None:
    torch.set_default_dtype(torch.float64)
    trajectories = {
        key: np.stack(list(torch_trajectory(partial(kind, **kwargs))))
        for key, kind, kwargs in TABLE
    }
    print({name: version(name) for name in ("timm", "pytorch_optimizer")})
    np.savez_compressed(
        Path(__file__).parent / "optimizers_tensor.npz", allow_pickle=False, **trajectories
    )


if __name__ == "__main__":
    main()

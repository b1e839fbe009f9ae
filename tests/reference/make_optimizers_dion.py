"""Writes ``optimizers_dion.npz``: 50 steps of Dion as its authors have it, in float64.

Run in an environment with torch, with the folder of a checkout of https://github.com/microsoft/dion
as the argument; no test runs this. Its ``dion_simple.py`` computes without ``torch.compile``, and
QR decompositions in float32 are in float64. The first bases are recorded, since they are drawn.
"""

import importlib
import os
import sys
import types
from pathlib import Path

os.environ["TORCHDYNAMO_DISABLE"] = "1"

import numpy as np
import torch

sys.path.insert(0, str(Path(__file__).parents[2]))
from closedform.importers.torch_optimizer.subject import InDouble
from tests.reference.draws import drawn

HERE = Path(__file__).parent
RECORDED = (1, 2, 3, 10, 25, 50)
NAMES = ("w", "u")
RANK = 2


def main(checkout: str) -> None:
    package = types.ModuleType("dion")  # its __init__ imports Triton
    package.__path__ = [str(Path(checkout) / "dion")]
    sys.modules["dion"] = package
    authors = importlib.import_module("dion.dion_simple")
    torch.set_default_dtype(torch.float64)
    torch.manual_seed(0)
    start, gradients, _ = drawn()
    params = {name: torch.nn.Parameter(torch.tensor(start[name])) for name in NAMES}
    optimizer = authors.Dion(list(params.values()), lr=0.01, weight_decay=0.1, rank=RANK)
    arrays = {}
    for name, param in params.items():
        optimizer._init_opt_state_dion(param, optimizer.state[param])
        arrays[f"{name}/Q"] = optimizer.state[param]["Q"].numpy().copy()
    results = []
    for gradient in gradients:
        for name, param in params.items():
            param.grad = torch.tensor(gradient[name])
        with InDouble():
            optimizer.step()
        results.append({name: param.detach().numpy().copy() for name, param in params.items()})
    for name in NAMES:
        arrays[name] = np.array([results[step - 1][name] for step in RECORDED])
    np.savez_compressed(HERE / "optimizers_dion.npz", allow_pickle=False, **arrays)


if __name__ == "__main__":
    main(sys.argv[1])

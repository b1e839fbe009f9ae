"""Writes ``optimizers_muon.npz``: Muon on blocks of a weight, and on a sphere, as others have it.

Run in an environment with torch, with the folders of checkouts as the arguments; no test runs this:
https://github.com/microsoft/dion at 0a059a4, https://github.com/NVIDIA-NeMo/Emerging-Optimizers at
fd77292, and https://github.com/KellerJordan/modded-nanogpt at f411b3d. What they compute in
bfloat16 is computed in float64 here, but for Emerging-Optimizers, which takes float32 only.
"""

import ast
import importlib
import os
import sys
import typing
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

os.environ["TORCHDYNAMO_DISABLE"] = "1"

import numpy as np
import torch

sys.path.insert(0, str(Path(__file__).parents[2]))
from closedform.importers.torch_optimizer.subject import InDouble
from tests.reference.draws import drawn_matrices

HERE = Path(__file__).parent
SIZES = (6, 2, 2)
SIMPLE = {"coefficient_type": "simple", "fp32_matmul_prec": "highest"}


def quintic(x: torch.Tensor, epsilon: torch.Tensor) -> torch.Tensor:
    """Five steps in the dtype of the tensor: the function that dion takes from its user."""
    x = x.double()
    is_tall = x.size(-2) > x.size(-1)
    x = x.mT if is_tall else x
    x = x / x.norm(dim=(-2, -1), keepdim=True).clamp(min=1e-12)
    for _ in range(5):
        gram = x @ x.mT
        x = 3.4445 * x + (-4.775 * gram + 2.0315 * gram @ gram) @ x
    return x.mT if is_tall else x


def steps_of(
    build: Callable[[list[torch.nn.Parameter]], Any], sizes: tuple[int, ...] = (), radius: float = 0
) -> Iterator[np.ndarray]:
    """The weight after each step, of which blocks may be separate parameters."""
    start, gradients = drawn_matrices()
    start = start * (radius / np.linalg.norm(start)) if radius else start
    values = torch.tensor(start, dtype=torch.get_default_dtype())
    params = [torch.nn.Parameter(part.clone()) for part in values.split(sizes or (len(start),))]
    step = build(params)
    for gradient in gradients:
        parts = torch.tensor(gradient, dtype=values.dtype).split(sizes or (len(start),))
        for param, part in zip(params, parts, strict=True):
            param.grad = part.clone()
        step()
        yield torch.cat([param.detach() for param in params]).double().numpy().copy()


def dion_muon(**options: Any) -> Callable[[list[torch.nn.Parameter]], Any]:
    dion = importlib.import_module("dion")
    settings = {"lr": 0.02, "weight_decay": 0.1, "nesterov": True, "adjust_lr": "rms_norm"}

    def build(params: list[torch.nn.Parameter]) -> Any:
        groups = [{"params": params, **options}]
        return dion.Muon(groups, newton_schulz_func=quintic, **settings).step

    return build


def torch_muon(params: list[torch.nn.Parameter]) -> Any:
    return torch.optim.Muon(params, lr=0.02, adjust_lr_fn="match_rms_adamw").step


def emerging_muon(params: list[torch.nn.Parameter]) -> Any:
    muon = importlib.import_module("emerging_optimizers.orthogonalized_optimizers.muon")

    def orthogonalize(self: Any, _: Any, grad: torch.Tensor, **__: Any) -> torch.Tensor:
        return torch.cat([self.scaled_orthogonalize_fn(part) for part in grad.split(SIZES)])

    # The documented way to split a parameter.
    fused = type("Fused", (muon.Muon,), {"orthogonalize": orthogonalize})
    settings = {"weight_decay": 0.1, "nesterov": True, "extra_scale_factor": 0.2, **SIMPLE}
    return fused(params, 0.02, 0.95, **settings).step


def emerging_hyperball(params: list[torch.nn.Parameter]) -> Any:
    muon = importlib.import_module("emerging_optimizers.orthogonalized_optimizers.muon_hyperball")
    settings = {"hyperball_radius": 3.0, "weight_decay": 0.1, **SIMPLE}
    return muon.MuonHyperball(params, 0.02, 0.95, **settings).step


def track_3(script: Path) -> Callable[[list[torch.nn.Parameter]], Any]:
    names = ("zeropower_via_newtonschulz5", "muon_update", "scale_invariant_update_")
    tree = ast.parse(script.read_text())
    functions = [node for node in tree.body if getattr(node, "name", "") in names]
    space: dict[str, Any] = {"torch": torch, "Tensor": torch.Tensor}
    exec(compile(ast.Module(functions, []), str(script), "exec"), space)

    def build(params: list[torch.nn.Parameter]) -> Any:
        momenta = [torch.zeros_like(param) for param in params]

        def step() -> None:
            for param, momentum in zip(params, momenta, strict=True):
                update = space["muon_update"](param.grad, momentum)
                space["scale_invariant_update_"](param.data, update, 0.018)

        return step

    return build


def main(dion: str, emerging: str, nanogpt: str) -> None:
    sys.path[:0] = [dion, emerging]
    # Emerging-Optimizers is for Python 3.12: its registry has a function with a type parameter.
    if not hasattr(typing, "override"):  # Python 3.11
        typing.override = lambda function: function  # type: ignore[attr-defined]
    folder = Path(nanogpt) / "records/track_3_optimization/results/20260430_muonh"
    arrays = {
        name: np.stack(list(steps_of(build, radius=radius)))
        for name, build, radius in (
            ("emerging_split", emerging_muon, 0),
            ("emerging_hyperball", emerging_hyperball, 3),
        )
    }
    torch.set_default_dtype(torch.float64)
    with InDouble(is_exact=True), torch.no_grad():
        arrays |= {
            name: np.stack(list(steps_of(build, sizes)))
            for name, build, sizes in (
                ("dion_split", dion_muon(split_sizes=SIZES), ()),
                ("dion_heads", dion_muon(num_heads=5), ()),
                ("torch_blocks", torch_muon, SIZES),
                ("track_3", track_3(folder / "train_gpt_simple_muonh.py"), ()),
            )
        }
    np.savez_compressed(HERE / "optimizers_muon.npz", allow_pickle=False, **arrays)


if __name__ == "__main__":
    main(*sys.argv[1:])

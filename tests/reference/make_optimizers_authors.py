"""Writes ``optimizers_authors.npz``: trajectories of rules as their authors or packages have them.

Run in an environment with jax, optax, torch and pytorch_optimizer; no test runs this. Every
optimizer takes 50 steps in float64 on the CPU from the same parameters with the same gradients and
losses; some are recorded.
"""

import json
import sys
from collections.abc import Callable, Mapping, Sequence
from functools import partial
from importlib.metadata import version
from pathlib import Path
from typing import Any
from unittest import mock

import jax
import jax.numpy as jnp
import numpy as np
import optax.contrib
import pytorch_optimizer
import torch
from pytorch_optimizer.optimizer.muon import adamuon

sys.path.insert(0, str(Path(__file__).parents[2]))
from closedform.importers.torch_optimizer.subject import InDouble
from tests.reference.draws import SHAPES, drawn, drawn_noise

HERE = Path(__file__).parent
RECORDED = (1, 2, 3, 10, 25, 50)

Params = Mapping[str, Any]
Run = Callable[[Params, Sequence[Params], Sequence[float]], list[dict[str, Any]]]


def of_optax(make: Callable[[], Any], *, takes_loss: bool = False) -> Run:
    """Runs a transformation of optax."""

    def run(
        start: Params, gradients: Sequence[Params], losses: Sequence[float]
    ) -> list[dict[str, Any]]:
        transformation = make()
        params = {name: jnp.asarray(value) for name, value in start.items()}
        state = transformation.init(params)
        results = []
        for gradient, loss in zip(gradients, losses, strict=True):
            updates = {name: jnp.asarray(value) for name, value in gradient.items()}
            options = {"value": loss} if takes_loss else {}
            updates, state = transformation.update(updates, state, params, **options)
            params = optax.apply_updates(params, updates)
            results.append({name: np.asarray(value) for name, value in params.items()})
        return results

    return run


def of_torch(make: Callable[[list[Any]], Any], *, has_bases: bool = False) -> Run:
    """Runs an optimizer of torch, in which float32 is float64, and random numbers are the drawn.

    The first bases of SOAP, which are eigenvectors, are in the first result.
    """

    def run(
        start: Params, gradients: Sequence[Params], losses: Sequence[float]
    ) -> list[dict[str, Any]]:
        params = {name: torch.nn.Parameter(torch.tensor(value)) for name, value in start.items()}
        optimizer = make(list(params.values()))
        results: list[dict[str, Any]] = []
        for gradient, noise in zip(gradients, drawn_noise(), strict=True):
            for name, param in params.items():
                param.grad = torch.tensor(gradient[name])
            numbers = iter([torch.tensor(noise[name]) for name in params])
            draw = mock.patch("torch.randn_like", lambda _, dtype, given=numbers: next(given))
            with draw, InDouble(is_exact=False):
                optimizer.step()
            results.append({name: p.detach().numpy().copy() for name, p in params.items()})
            if len(results) == 1:
                results[0] |= {
                    f"{name}/Q_{side}": np.array(basis)
                    for name, param in params.items()
                    for side, basis in enumerate(optimizer.state[param].get("Q", ()))
                    if has_bases and len(basis)
                }
        return results

    return run


def plain(name: str, **options: Any) -> Callable[[list[Any]], Any]:
    """Makes an optimizer of pytorch_optimizer."""
    return lambda params: getattr(pytorch_optimizer, name)(params, **options)


def ada_muon(params: list[Any], **options: Any) -> Any:
    """AdaMuon whose iterations are in float64; by itself they are in bf16."""
    iterate = partial(
        pytorch_optimizer.optimizer.utils.matrix.zero_power_via_newton_schulz_5, dtype=torch.float64
    )
    adamuon.zero_power_via_newton_schulz_5 = iterate
    return pytorch_optimizer.AdaMuon(
        [{"params": params, "use_muon": True}], lr=0.02, foreach=False, **options
    )


MATRICES = ("w", "u", "v")
contrib = optax.contrib
RUNS: dict[str, tuple[Run, tuple[str, ...]]] = {
    "acprop": (of_optax(lambda: contrib.acprop(0.01, weight_decay=0.1)), tuple(SHAPES)),
    "dog": (of_optax(lambda: contrib.dog(weight_decay=0.1)), tuple(SHAPES)),
    "dog_distance": (
        of_optax(lambda: contrib.dog(0.5, ("distance", 0.1), eps=1e-6)),
        tuple(SHAPES),
    ),
    "dog_rate": (of_optax(lambda: contrib.dog(init_step=("learning_rate", 0.1))), tuple(SHAPES)),
    "dowg": (of_optax(lambda: contrib.dowg(weight_decay=0.1)), tuple(SHAPES)),
    "dowg_estimate": (of_optax(lambda: contrib.dowg(0.5, 0.01, 1e-3)), tuple(SHAPES)),
    "momo": (
        of_optax(lambda: contrib.momo(0.1, weight_decay=0.1), takes_loss=True),
        tuple(SHAPES),
    ),
    "momo_adapted": (
        of_optax(
            lambda: contrib.momo(1.0, 0.8, 0.5, 0.01, adapt_lower_bound=True), takes_loss=True
        ),
        tuple(SHAPES),
    ),
    "adamuon": (of_torch(partial(ada_muon, weight_decay=0.1)), ("w", "k")),
    "adamuon_original": (of_torch(partial(ada_muon, use_adjusted_lr=False)), ("w", "k")),
    "soap": (of_torch(plain("SOAP", lr=0.01), has_bases=True), MATRICES),
    "soap_often": (
        of_torch(
            plain(
                "SOAP",
                lr=0.01,
                betas=(0.9, 0.99),
                shampoo_beta=0.8,
                precondition_frequency=3,
                max_precondition_dim=5,
                correct_bias=False,
                normalize_gradient=True,
            ),
            has_bases=True,
        ),
        MATRICES,
    ),
    "shampoo": (of_torch(plain("Shampoo", lr=0.01)), MATRICES),
    "shampoo_momentum": (
        of_torch(
            plain(
                "Shampoo",
                lr=0.01,
                momentum=0.5,
                weight_decay=0.1,
                preconditioning_compute_steps=3,
                matrix_eps=0.01,
            )
        ),
        MATRICES,
    ),
    "kron": (of_torch(plain("Kron", lr=0.01, balance_prob=0.0)), MATRICES),
    "kron_diagonal": (
        of_torch(
            plain(
                "Kron",
                lr=0.01,
                balance_prob=0.0,
                weight_decay=0.1,
                max_size_triangular=3,
                momentum_into_precondition_update=False,
                pre_conditioner_update_probability=0.4,
            )
        ),
        MATRICES,
    ),
}
"""Runs by name, and the parameters that they are for."""


def trajectory(name: str, seed: int = 30) -> list[dict[str, Any]]:
    """The parameters after each step."""
    run, names = RUNS[name]
    start, gradients, losses = drawn(seed)
    return run(
        {key: start[key] for key in names},
        [{key: gradient[key] for key in names} for gradient in gradients],
        losses,
    )


def in_float64() -> None:
    """Lets jax and torch compute in float64."""
    jax.config.update("jax_enable_x64", True)
    torch.set_default_dtype(torch.float64)


def main() -> None:
    in_float64()
    arrays: dict[str, Any] = {}
    for name, (_, keys) in RUNS.items():
        results = trajectory(name)
        for key in keys:
            arrays[f"{name}/{key}"] = np.array([results[step - 1][key] for step in RECORDED])
        arrays |= {f"{name}/{k}": value for k, value in results[0].items() if "/" in k}
    np.savez_compressed(HERE / "optimizers_authors.npz", allow_pickle=False, **arrays)
    facts = {name: version(name) for name in ("optax", "pytorch_optimizer", "torch")}
    sys.stdout.write(json.dumps(facts) + "\n")


if __name__ == "__main__":
    main()

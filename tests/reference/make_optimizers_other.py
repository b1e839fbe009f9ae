"""Writes ``optimizers_other.npz`` and ``.json``: trajectories of optimizers of public packages.

Run in an environment of its own, with torch, schedulefree, prodigyopt, dadaptation, optax, timm and
pytorch_optimizer installed; no test runs this. Every optimizer is stepped in float64 on the CPU
from the same parameters with the same gradients; the parameters after each step are kept.
"""

import json
from collections.abc import Callable, Iterator
from functools import partial
from importlib.metadata import version
from pathlib import Path
from typing import Any

import jax
import numpy as np
import optax
import pytorch_optimizer
import schedulefree
import timm.optim
import torch
from dadaptation import DAdaptAdam, DAdaptSGD
from prodigyopt import Prodigy

jax.config.update("jax_enable_x64", True)  # before anything of optax is made

SHAPES = [(2, 3), (4,), ()]
STEPS = 10
HERE = Path(__file__).parent


def drawn() -> tuple[np.ndarray, np.ndarray, np.ndarray]:
    """Parameters, gradients with changes of sign and a step of zeros, and Hessian diagonals."""
    rng = np.random.default_rng(20)
    count = sum(int(np.prod(shape)) for shape in SHAPES)
    start = rng.normal(size=count)
    gradients = rng.normal(size=(STEPS, count)) + 0.3
    gradients[4] = 0
    gradients[7] *= 30
    return start, gradients, rng.normal(size=(STEPS, count))


START, GRADIENTS, HESSIANS = drawn()
# Gradients that agree with each other: estimates of the distance to the solution grow with them.
DRIFT = START + 0.2 * np.random.default_rng(21).normal(size=GRADIENTS.shape)


def split(flat: np.ndarray) -> list[np.ndarray]:
    ends = np.cumsum([int(np.prod(shape)) for shape in SHAPES])[:-1]
    return [part.reshape(shape) for part, shape in zip(np.split(flat, ends), SHAPES, strict=True)]


def joined(tensors: Any) -> np.ndarray:
    return np.concatenate([np.asarray(tensor, np.float64).reshape(-1) for tensor in tensors])


def torch_trajectory(
    make: Callable[[Any], Any],
    more: Callable[[int], dict[str, Any]] = lambda _: {},
    gradients: np.ndarray = GRADIENTS,
) -> Iterator[Any]:
    params = [torch.nn.Parameter(torch.tensor(part)) for part in split(START)]
    optimizer = make(params)
    for step in range(STEPS):
        for param, gradient in zip(params, split(gradients[step]), strict=True):
            param.grad = torch.tensor(gradient)
        if hasattr(optimizer, "train"):
            optimizer.train()
        optimizer.step(**more(step))
        yield joined(param.detach().numpy() for param in params)


def torch_averages(make: Callable[[Any], Any]) -> Iterator[Any]:
    """The points of evaluation of schedulefree."""
    params = [torch.nn.Parameter(torch.tensor(part)) for part in split(START)]
    optimizer = make(params)
    for step in range(STEPS):
        optimizer.train()
        for param, gradient in zip(params, split(GRADIENTS[step]), strict=True):
            param.grad = torch.tensor(gradient)
        optimizer.step()
        optimizer.eval()
        yield joined(param.detach().numpy() for param in params)


def optax_trajectory(transformation: Any) -> Iterator[Any]:
    params = [jax.numpy.asarray(part) for part in split(START)]
    state = transformation.init(params)
    for step in range(STEPS):
        gradients = [jax.numpy.asarray(part) for part in split(GRADIENTS[step])]
        updates, state = transformation.update(gradients, state, params)
        params = optax.apply_updates(params, updates)
        yield joined(params)


NAMED: dict[str, Any] = {
    "pytorch_optimizer": pytorch_optimizer,
    "timm": timm.optim,
    "schedulefree": schedulefree,
}

# id, package, class, keyword arguments.
TORCH: list[tuple[str, str, str, dict[str, Any]]] = [
    ("signum", "pytorch_optimizer", "SignSGD", {"lr": 0.01, "momentum": 0.8}),
    (
        "signum_decay",
        "pytorch_optimizer",
        "SignSGD",
        {"lr": 0.01, "momentum": 0.8, "weight_decay": 0.1, "weight_decouple": True},
    ),
    (
        "tiger",
        "pytorch_optimizer",
        "Tiger",
        {"lr": 0.01, "beta": 0.9, "weight_decay": 0.1, "weight_decouple": True},
    ),
    ("adabelief_timm", "timm", "AdaBelief", {"lr": 0.01, "eps": 1e-8, "rectify": False}),
    (
        "adabelief_decay",
        "timm",
        "AdaBelief",
        {"lr": 0.01, "eps": 1e-8, "rectify": False, "weight_decay": 0.1},
    ),
    ("yogi_pytorch", "pytorch_optimizer", "Yogi", {"lr": 0.01}),
    ("laprop", "timm", "LaProp", {"lr": 0.01, "betas": (0.8, 0.95), "weight_decay": 0.1}),
    (
        "laprop_cautious",
        "timm",
        "LaProp",
        {"lr": 0.01, "betas": (0.8, 0.95), "weight_decay": 0.1, "caution": True},
    ),
    (
        "ademamix",
        "pytorch_optimizer",
        "AdEMAMix",
        {
            "lr": 0.01,
            "betas": (0.9, 0.99, 0.999),
            "alpha": 4.0,
            "t_alpha_beta3": 6,
            "weight_decay": 0.1,
            "weight_decouple": True,
        },
    ),
    (
        "ademamix_constant",
        "pytorch_optimizer",
        "AdEMAMix",
        {"lr": 0.01, "betas": (0.9, 0.99, 0.999), "alpha": 4.0, "t_alpha_beta3": None},
    ),
    ("adopt", "timm", "Adopt", {"lr": 0.01, "clip_exp": 0.25}),
    (
        "adopt_decoupled",
        "timm",
        "Adopt",
        {"lr": 0.01, "betas": (0.8, 0.95), "weight_decay": 0.1, "decoupled": True},
    ),
    ("adopt_penalty", "timm", "Adopt", {"lr": 0.01, "weight_decay": 0.1, "decoupled": False}),
    ("adan", "timm", "Adan", {"lr": 0.01, "weight_decay": 0.1}),
    ("adan_decoupled", "timm", "Adan", {"lr": 0.01, "weight_decay": 0.1, "no_prox": True}),
    ("mars", "timm", "Mars", {"lr": 0.01, "weight_decay": 0.1, "optimize_1d": True}),
    (
        "mars_lion",
        "timm",
        "Mars",
        {"lr": 0.01, "weight_decay": 0.1, "optimize_1d": True, "mars_type": "lion"},
    ),
    ("adamw_cautious", "timm", "AdamWLegacy", {"lr": 0.01, "weight_decay": 0.1, "caution": True}),
    (
        "lion_cautious",
        "timm",
        "Lion",
        {"lr": 0.01, "betas": (0.9, 0.99), "weight_decay": 0.1, "caution": True},
    ),
]

FREE: list[tuple[str, str, dict[str, Any]]] = [
    ("schedule_free_sgd", "SGDScheduleFree", {"lr": 0.1, "warmup_steps": 3, "weight_decay": 0.1}),
    ("schedule_free_sgd_r", "SGDScheduleFree", {"lr": 0.1, "momentum": 0.8, "r": 1.0}),
    (
        "schedule_free_adamw",
        "AdamWScheduleFree",
        {"lr": 0.01, "betas": (0.9, 0.99), "warmup_steps": 3, "weight_decay": 0.1},
    ),
    ("schedule_free_radam", "RAdamScheduleFree", {"lr": 0.01, "betas": (0.9, 0.95)}),
    (
        "schedule_free_radam_loud",
        "RAdamScheduleFree",
        {"lr": 0.01, "betas": (0.9, 0.95), "weight_decay": 0.1, "silent_sgd_phase": False},
    ),
]

ADAPTED: list[tuple[str, Any, dict[str, Any]]] = [
    ("prodigy", Prodigy, {"lr": 1.0, "weight_decay": 0.1}),
    (
        "prodigy_options",
        Prodigy,
        {
            "lr": 0.5,
            "betas": (0.8, 0.95),
            "weight_decay": 0.1,
            "decouple": False,
            "use_bias_correction": True,
            "safeguard_warmup": True,
            "d0": 1e-3,
            "d_coef": 2.0,
            "growth_rate": 1.5,
        },
    ),
    ("dadapt_adam", DAdaptAdam, {"lr": 1.0, "weight_decay": 0.1, "decouple": True}),
    (
        "dadapt_adam_options",
        DAdaptAdam,
        {
            "lr": 0.5,
            "weight_decay": 0.1,
            "use_bias_correction": True,
            "growth_rate": 1.5,
            "d0": 1e-3,
        },
    ),
    ("dadapt_sgd", DAdaptSGD, {"lr": 1.0, "momentum": 0.8, "d0": 1e-3}),
]

OPTAX: list[tuple[str, str, Any]] = [
    ("adabelief", "adabelief(0.01)", optax.adabelief(0.01)),
    ("yogi", "yogi(0.01)", optax.yogi(0.01)),
    (
        "lookahead",
        "lookahead(sgd(0.1, momentum=0.9), 3, 0.5)",
        None,
    ),
    (
        "accumulated",
        "MultiSteps(adam(0.1), 3, accumulator_dtype=float64)",
        optax.MultiSteps(optax.adam(0.1), 3, accumulator_dtype=np.float64),
    ),
    (
        "clipped_by_norm",
        "chain(clip_by_global_norm(1.5), sgd(0.1))",
        optax.chain(optax.clip_by_global_norm(1.5), optax.sgd(0.1)),
    ),
    (
        "agc",
        "chain(adaptive_grad_clip(0.1), sgd(0.1))",
        optax.chain(optax.adaptive_grad_clip(0.1), optax.sgd(0.1)),
    ),
]


def lookahead_trajectory() -> Iterator[tuple[Any, Any]]:
    """Fast and slow parameters."""
    made = optax.lookahead(optax.sgd(0.1, momentum=0.9), 3, 0.5)
    params = optax.LookaheadParams.init_synced([jax.numpy.asarray(p) for p in split(START)])
    state = made.init(params)
    for step in range(STEPS):
        gradients = [jax.numpy.asarray(part) for part in split(GRADIENTS[step])]
        updates, state = made.update(gradients, state, params)
        params = optax.apply_updates(params, updates)
        yield joined(params.fast), joined(params.slow)


def main() -> None:
    torch.set_default_dtype(torch.float64)  # timm keeps a bias correction in this dtype
    arrays = {"start": START, "gradients": GRADIENTS, "hessians": HESSIANS, "drift": DRIFT}
    facts: dict[str, Any] = {"shapes": SHAPES, "steps": STEPS, "trajectories": {}}

    def keep(key: str, package: str, what: str, kwargs: dict[str, Any], trajectory: Any) -> None:
        arrays[key] = np.array(list(trajectory))
        facts["trajectories"][key] = {
            "package": package,
            "version": version(package),
            "what": what,
            "kwargs": kwargs,
        }

    for key, package, name, kwargs in TORCH:
        make = getattr(NAMED[package], name)
        keep(key, package, name, kwargs, torch_trajectory(partial(make, **kwargs)))
    for key, name, kwargs in FREE:
        make = getattr(schedulefree, name)
        keep(
            key,
            "schedulefree",
            name,
            kwargs,
            torch_trajectory(partial(make, **kwargs)),
        )
        keep(f"{key}/x", "schedulefree", name, kwargs, torch_averages(partial(make, **kwargs)))
    for key, make, kwargs in ADAPTED:
        package = "prodigyopt" if make is Prodigy else "dadaptation"
        trajectory = torch_trajectory(partial(make, **kwargs), gradients=DRIFT)
        keep(key, package, make.__name__, kwargs, trajectory)
    kwargs = {"lr": 0.01, "betas": (0.9, 0.99), "p": 0.05, "weight_decay": 0.1}
    keep(
        "sophia",
        "pytorch_optimizer",
        "SophiaH",
        kwargs,
        torch_trajectory(
            lambda p: pytorch_optimizer.SophiaH(p, **kwargs),
            lambda step: {"hessian": [torch.tensor(part) for part in split(HESSIANS[step])]},
        ),
    )
    for key, what, made in OPTAX:
        if made is not None:
            keep(key, "optax", what, {}, optax_trajectory(made))
    fast, slow = zip(*lookahead_trajectory(), strict=True)
    what = "lookahead(sgd(0.1, momentum=0.9), 3, 0.5)"
    keep("lookahead", "optax", what, {}, fast)
    keep("lookahead/slow", "optax", what, {}, slow)
    np.savez_compressed(HERE / "optimizers_other.npz", **arrays)  # type: ignore[arg-type]
    text = json.dumps(facts, indent=1)
    (HERE / "optimizers_other.json").write_text(text + "\n", encoding="utf-8")


if __name__ == "__main__":
    main()

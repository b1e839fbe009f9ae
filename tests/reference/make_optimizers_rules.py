"""Writes ``optimizers_rules.npz``: trajectories of the rules of pytorch_optimizer.

Run in an environment with torch and pytorch_optimizer; no test runs this. Its arguments are the
paths of ``composer/optim/decoupled_weight_decay.py`` (mosaicml/composer 640518880) and of
``llmfoundry/optim/lion.py`` (mosaicml/llm-foundry) and ``torchao/optim/quant_utils.py``
(pytorch/ao). Every optimizer takes 50 steps in float64 on the CPU from the same parameters with the
same gradients; some are recorded.
"""

import importlib.util
import json
import sys
import types
from collections.abc import Callable
from functools import partial
from importlib.metadata import version
from pathlib import Path
from typing import Any

import numpy as np
import pytorch_optimizer
import torch
from pytorch_optimizer.base.optimizer import BaseOptimizer
from pytorch_optimizer.optimizer import scion
from pytorch_optimizer.optimizer.grokfast import gradfilter_ema
from pytorch_optimizer.optimizer.muon import base, normuon

# The package adds 1e-15 to some second moments, which no paper has: it is 0 here.
BaseOptimizer.apply_ams_bound = staticmethod(
    partial(BaseOptimizer.apply_ams_bound, exp_avg_sq_eps=0.0)
)
HERE = Path(__file__).parent
SHAPES = {"w": (4, 3), "k": (2, 2, 1, 3), "v": (5,), "s": ()}
STEPS = 50
RECORDED = (1, 2, 3, 10, 25, 50)


def drawn(seed: int = 30) -> tuple[dict[str, Any], list[dict[str, Any]]]:
    """Parameters, and gradients with changes of sign, a step of zeros and a large one."""
    rng = np.random.default_rng(seed)
    start = {name: rng.normal(size=shape) for name, shape in SHAPES.items()}
    gradients = []
    for step in range(STEPS):
        factor = {4: 0.0, 17: 30.0}.get(step, 1.0)
        given = {n: factor * (rng.normal(size=shape) + 0.3) for n, shape in SHAPES.items()}
        gradients.append(given)
    return start, gradients


def run(
    make: Callable[[dict[str, Any]], Any],
    start: dict[str, Any],
    gradients: list[dict[str, Any]],
    names: tuple[str, ...] = tuple(SHAPES),
    rates: Callable[[int], float] | None = None,
) -> list[dict[str, Any]]:
    """The parameters after each step of an optimizer, with the rate of each step if given."""
    params = {name: torch.nn.Parameter(torch.tensor(start[name])) for name in names}
    optimizer = make(params)
    results = []
    for step, given in enumerate(gradients):
        for name, param in params.items():
            param.grad = torch.tensor(given[name])
        if rates is not None:
            for group in optimizer.param_groups:
                group["lr"] = rates(step)
        optimizer.step()
        results.append({name: param.detach().numpy().copy() for name, param in params.items()})
    return results


def plain(name: str, **kwargs: Any) -> Callable[[dict[str, Any]], Any]:
    """Makes an optimizer of pytorch_optimizer, one loop over the parameters."""
    return lambda params: getattr(pytorch_optimizer, name)(
        list(params.values()), foreach=False, **kwargs
    )


def qhadam(params: dict[str, Any]) -> Any:
    """QHAdam with the weights of its moments in float64: by itself it holds them in float32."""
    optimizer = plain("QHAdam", lr=0.01, betas=(0.95, 0.99), nus=(0.7, 0.9))(params)
    for param in params.values():
        zeros = torch.zeros((1,), dtype=torch.float64)
        optimizer.state[param] = {
            "beta1_weight": zeros.clone(),
            "beta2_weight": zeros.clone(),
            "exp_avg": torch.zeros_like(param),
            "exp_avg_sq": torch.zeros_like(param),
        }
    return optimizer


def falling(step: int) -> float:
    """A rate that falls in a line from 0.02."""
    return 0.02 * (1 - step / 60)


Entry = tuple[Callable[[dict[str, Any]], Any], Callable[[int], float] | None]


def adam_mini(names: dict[str, str], **kwargs: Any) -> Callable[[dict[str, Any]], Any]:
    """Makes AdamMini, with names of parameters that choose their blocks. It computes in float32."""

    def make(params: dict[str, Any]) -> Any:
        named = [(names[key], param) for key, param in params.items()]
        model = types.SimpleNamespace(named_parameters=lambda: named)
        given = {"lr": 0.01, "weight_decay": 0.1, **kwargs}
        return pytorch_optimizer.AdamMini(model, foreach=False, **given)

    return make


def module_at(path: str) -> Any:
    """A module from its file alone."""
    spec = importlib.util.spec_from_file_location(Path(path).stem, path)
    assert spec is not None
    assert spec.loader is not None
    module = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(module)
    return module


def decoupled(adamw_path: str, lion_path: str) -> dict[str, Entry]:
    """The decoupled optimizers of Composer and llm-foundry, from their files alone."""
    for name in ("composer", "composer.utils"):
        sys.modules[name] = types.ModuleType(name)
    sys.modules["composer.utils"].dist = None  # type: ignore[attr-defined]
    modules = [module_at(path) for path in (adamw_path, lion_path)]

    def adamw(params: dict[str, Any]) -> Any:
        kwargs = {"lr": 0.02, "weight_decay": 1e-3, "amsgrad": True}
        return modules[0].DecoupledAdamW(list(params.values()), **kwargs)

    def lionw(params: dict[str, Any]) -> Any:
        return modules[1].DecoupledLionW(list(params.values()), lr=0.02, weight_decay=1e-3)

    def sgdw(params: dict[str, Any]) -> Any:
        kwargs = {"lr": 0.02, "momentum": 0.9, "weight_decay": 1e-3, "nesterov": True}
        return modules[0].DecoupledSGDW(list(params.values()), **kwargs)

    makers = {"decoupled_adamw": adamw, "decoupled_lionw": lionw, "decoupled_sgdw": sgdw}
    return {name: (make, falling) for name, make in makers.items()}


class Alternating:
    """SAM whose steps are the two halves of its own, in turn."""

    def __init__(self, params: dict[str, Any], **kwargs: Any) -> None:
        self.inner = pytorch_optimizer.SAM(list(params.values()), torch.optim.SGD, **kwargs)
        self.calls = 0

    def step(self) -> None:
        (self.inner.second_step if self.calls % 2 else self.inner.first_step)()
        self.calls += 1


class Filtered:
    """AdamW of torch with gradients that the EMA filter of Grokfast changes."""

    def __init__(self, params: dict[str, Any]) -> None:
        self.inner = torch.optim.AdamW(params.values(), lr=0.01, weight_decay=0.1)
        self.model = torch.nn.Module()
        for name, param in params.items():
            self.model.register_parameter(name, param)
        self.averages: dict[str, Any] | None = None

    def step(self) -> None:
        self.averages = gradfilter_ema(self.model, self.averages, 0.9, 1.5)
        self.inner.step()


def coded(path: str, bits: int) -> dict[str, Any]:
    """Adam with states of few bits, by the functions of torchao, and the codes of its maps."""
    quant = module_at(path)
    rng = np.random.default_rng(31)
    start, gradients = rng.normal(size=(4, 8)), rng.normal(size=(10, 4, 8))
    gradients[3] *= 100
    quantize = getattr(quant, f"quantize_{bits}bit_with_qmap")
    if bits == 8:
        maps = [torch.tensor(quant.create_dynamic_map(signed)) for signed in (True, False)]
    else:
        # As subclass_4bit.py does, whose relative imports need the package.
        map_of_4_bits = torch.tensor(quant.create_dynamic_map(True, 3, 4))
        maps = [map_of_4_bits, torch.linspace(0, 1, 17)[1:]]
    param = torch.tensor(start)
    states = [torch.zeros(4, 8), torch.zeros(4, 8)]
    codes = []
    for step, given in enumerate(gradients, 1):
        mean = states[0].lerp(torch.tensor(given), 0.1)
        square = 0.99 * states[1] + 0.01 * torch.tensor(given) ** 2
        below = (square / (1 - 0.99**step)).sqrt() + 1e-8
        param = param - 0.1 * mean / (1 - 0.9**step) / below
        for place, value in enumerate((mean, square)):
            scaled, scale = quant.scale_tensor(value, 16)
            code = quantize(scaled, maps[place].double())
            states[place] = quant.dequant_with_qmap(code, maps[place].double(), scale)
            flat = code.flatten()
            codes.append((flat if bits == 8 else flat[::2] << 4 | flat[1::2]).numpy())
    results = {
        "start": start,
        "gradients": gradients,
        "param": param.numpy(),
        "codes": np.array(codes),
        "signed": np.array(maps[0]),
        "unsigned": np.array(maps[1]),
    }
    return {f"coded {bits}/{name}": array for name, array in results.items()}


def in_float64() -> None:
    """Lets the Newton-Schulz iterations of the package compute in float64; by itself in bf16."""
    for module in (base, normuon, scion):
        iterate = partial(module.zero_power_via_newton_schulz_5, dtype=torch.float64)
        module.zero_power_via_newton_schulz_5 = iterate


def orthogonal(name: str, **kwargs: Any) -> Callable[[dict[str, Any]], Any]:
    """Makes an optimizer of the Muon family."""
    return lambda params: getattr(pytorch_optimizer, name)(
        [{"params": list(params.values()), "use_muon": True}], lr=0.02, foreach=False, **kwargs
    )


# The shapes that an optimizer runs on, where those are not all.
NAMES: dict[str, tuple[str, ...]] = {
    "adam_mini_heads": ("w",),
    "muon_polar": ("w", "k"),
    "normuon": ("w", "k"),
    "normuon_rms": ("w", "k"),
    "scion": ("w",),
    "scion_kernel": ("k",),
    "scion_sign": ("w", "k"),
    "scion_column": ("w",),
    "scion_row": ("w",),
    "scion_rms": ("v",),
}
SCHEDULE = [
    (8.2, -22.9, 16.5),
    (4.07, -2.86, 0.52),
    (3.9, -2.8, 0.53),
    (3.3, -2.4, 0.48),
    (2.3, -1.65, 0.4),
]

RULES: dict[str, Entry] = {
    "muon_polar": (orthogonal("Muon", weight_decay=0.1, ns_coeffs=SCHEDULE), None),
    "normuon": (orthogonal("NorMuon", weight_decay=0.1), None),
    "normuon_rms": (
        orthogonal("NorMuon", update_scale="match_rms", nesterov=False, ns_coeffs=SCHEDULE),
        None,
    ),
    "scion": (plain("SCION", lr=0.02, norm_type=2, scale=3.0, weight_decay=0.1), None),
    "scion_kernel": (plain("SCION", lr=0.02, norm_type=3, constraint=True), None),
    "scion_sign": (plain("SCION", lr=0.02, norm_type=4, scale=2.0), None),
    "scion_column": (plain("SCION", lr=0.02, norm_type=6), None),
    "scion_row": (plain("SCION", lr=0.02, norm_type=7), None),
    "scion_rms": (plain("SCION", lr=0.02, norm_type=5, momentum=0.2), None),
    "sam": (lambda params: Alternating(params, lr=0.05, momentum=0.9, rho=0.3), None),
    "asam": (lambda params: Alternating(params, lr=0.05, rho=0.5, adaptive=True), None),
    "grokfast": (Filtered, None),
    "adamc": (plain("AdamC", lr=0.02, weight_decay=0.1, eps=1e-6, normalized=True), falling),
    "qhadam": (qhadam, None),
    "grams": (plain("Grams", lr=0.01, weight_decay=0.1), None),
    "adabound": (
        plain("AdaBound", lr=0.02, gamma=0.01, weight_decay=0.1, weight_decouple=False),
        falling,
    ),
    "adabound_decoupled": (
        plain("AdaBound", lr=0.02, weight_decay=0.1, weight_decouple=True, ams_bound=True),
        None,
    ),
    "adams": (plain("AdamS", lr=0.01, weight_decay=0.1), None),
    "aggmo": (plain("AggMo", lr=0.01, weight_decay=0.1), None),
    "pid": (plain("PID", lr=0.001, momentum=0.8, dampening=0.1, weight_decay=0.1), None),
    "ftrl": (plain("FTRL", lr=0.1, beta=0.5, lambda_1=2.0, lambda_2=0.1), None),
    "fromage": (plain("Fromage", lr=0.05), None),
    "madgrad": (plain("MADGRAD", lr=0.01, weight_decay=0.1, weight_decouple=False), None),
    "madgrad_plain": (
        plain("MADGRAD", lr=0.01, momentum=0.0, weight_decay=0.1, weight_decouple=True),
        None,
    ),
    "adamp": (plain("AdamP", lr=0.01, weight_decay=0.1, delta=0.5), None),
    "adamp_nesterov": (plain("AdamP", lr=0.01, weight_decay=0.1, nesterov=True), None),
    "adam_mini": (adam_mini({key: f"mlp.{key}" for key in SHAPES}), None),
    "adam_mini_element": (adam_mini({key: f"embed.{key}" for key in SHAPES}), None),
    "adam_mini_heads": (
        adam_mini({"w": "q_proj.weight"}, num_embeds=4, num_heads=4),
        None,
    ),
    "sgdp": (
        plain("SGDP", lr=0.01, momentum=0.8, weight_decay=0.1, delta=0.5, nesterov=True),
        None,
    ),
    "spam": (
        plain(
            "SPAM",
            lr=0.01,
            weight_decay=0.1,
            threshold=3,
            warmup_epoch=4,
            grad_accu_steps=3,
            update_proj_gap=12,
        ),
        None,
    ),
}


def main() -> None:
    torch.set_default_dtype(torch.float64)
    in_float64()
    RULES.update(decoupled(*sys.argv[1:3]))
    start, gradients = drawn()
    arrays: dict[str, Any] = coded(sys.argv[3], 8) | coded(sys.argv[3], 4)
    arrays |= {f"start/{name}": start[name] for name in SHAPES}
    arrays |= {f"gradients/{name}": np.array([g[name] for g in gradients]) for name in SHAPES}
    for name, (make, rates) in RULES.items():
        names = NAMES.get(name, tuple(SHAPES))
        results = run(make, start, gradients, names, rates)
        for param in names:
            arrays[f"{name}/{param}"] = np.array([results[step - 1][param] for step in RECORDED])
    np.savez_compressed(HERE / "optimizers_rules.npz", **arrays)
    facts = {"pytorch_optimizer": version("pytorch_optimizer"), "torch": torch.__version__}
    sys.stdout.write(json.dumps(facts) + "\n")


if __name__ == "__main__":
    main()

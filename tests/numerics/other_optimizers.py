"""One update of optimizers of torch and optax, from the states of a rule of the library."""

from collections.abc import Callable, Mapping
from dataclasses import dataclass
from typing import Any

import numpy as np
import torch
from numpy.typing import NDArray

from closedform import frameworks, optimizers
from closedform.language import UpdateRule
from tests.numerics.updates import Case

Array = NDArray[Any]

PATHS: Mapping[str, Mapping[str, bool]] = {
    "single": {"foreach": False},
    "foreach": {"foreach": True},
    "fused": {"fused": True},
}
FUSED = ("SGD", "Adam", "AdamW", "Adagrad")
"""The classes that torch has fused kernels of on CPUs."""


@dataclass(frozen=True, slots=True)
class TorchOptimizer:
    """A class of torch.optim with its arguments, and the rule of the library that it is."""

    name: str
    arguments: Mapping[str, Any]

    @property
    def rule(self) -> UpdateRule:
        """The rule, whose states have torch's names."""
        return frameworks.optimizer("torch", self.name, dict(self.arguments))

    @property
    def paths(self) -> tuple[str, ...]:
        """The implementations that the class has."""
        return ("single", "foreach", "fused") if self.name in FUSED else ("single", "foreach")


TORCH: Mapping[str, TorchOptimizer] = {
    "SGD": TorchOptimizer("SGD", {"lr": 1e-3, "momentum": 0.9, "weight_decay": 0.01}),
    "Adam": TorchOptimizer("Adam", {"lr": 1e-3}),
    "AdamW": TorchOptimizer("AdamW", {"lr": 1e-3}),
    "AdamW, amsgrad": TorchOptimizer("AdamW", {"lr": 1e-3, "amsgrad": True}),
    "RMSprop": TorchOptimizer("RMSprop", {"lr": 1e-3}),
    "RMSprop, centered": TorchOptimizer("RMSprop", {"lr": 1e-3, "centered": True, "momentum": 0.9}),
    "Adagrad": TorchOptimizer("Adagrad", {"lr": 1e-3}),
    "Adamax": TorchOptimizer("Adamax", {"lr": 1e-3}),
    "NAdam": TorchOptimizer("NAdam", {"lr": 1e-3}),
    "RAdam": TorchOptimizer("RAdam", {"lr": 1e-3}),
    "Adadelta": TorchOptimizer("Adadelta", {"lr": 1e-3}),
    "Rprop": TorchOptimizer("Rprop", {"lr": 1e-3}),
    "ASGD": TorchOptimizer("ASGD", {"lr": 1e-3}),
    "Adafactor": TorchOptimizer("Adafactor", {"lr": 1e-3}),
}
"""Muon is not one of them: torch's products are in bfloat16, which is part of its formula."""


def torch_update(optimizer: TorchOptimizer, path: str, case: Case) -> Array:
    """Returns the parameter after a step of torch."""
    param = torch.nn.Parameter(torch.tensor(case.tensors["param"]))
    stepper = getattr(torch.optim, optimizer.name)([param], **optimizer.arguments, **PATHS[path])
    # A step makes the states, whose values are then replaced.
    param.grad = torch.ones_like(param)
    stepper.step()
    states = stepper.state[param]
    if case.step == 0:
        states.clear()
    for name in states:
        if name == "step":
            states[name] = torch.full_like(states[name], case.step)
        else:
            values = torch.tensor(np.array(case.tensors[name]))
            states[name] = values.reshape(states[name].shape).to(states[name].dtype)
    param.data = torch.tensor(case.tensors["param"])
    param.grad = torch.tensor(case.tensors["grad"])
    stepper.step()
    return np.asarray(param.detach().numpy())


MOMENTS = {"mu": "exp_avg", "nu": "exp_avg_sq"}


def _optax(name: str, *arguments: Any, **keywords: Any) -> Callable[[], Any]:
    def make() -> Any:
        import optax

        return getattr(optax, name)(*arguments, **keywords)

    return make


OPTAX: Mapping[str, tuple[Callable[[], Any], UpdateRule, Mapping[str, str]]] = {
    "sgd": (
        _optax("sgd", 1e-3, momentum=0.9),
        optimizers.sgd(1e-3, momentum=0.9),
        {"trace": "momentum_buffer"},
    ),
    "adam": (_optax("adam", 1e-3), optimizers.adam(1e-3), MOMENTS),
    "adamw": (
        _optax("adamw", 1e-3, weight_decay=0.01),
        optimizers.adamw(1e-3, weight_decay=0.01),
        MOMENTS,
    ),
    "adamax": (
        _optax("adamax", 1e-3),
        optimizers.adamax(1e-3),
        {"mu": "exp_avg", "nu": "exp_inf"},
    ),
    "lion": (
        _optax("lion", 1e-4, weight_decay=0.01),
        optimizers.lion(1e-4, weight_decay=0.01),
        {"mu": "exp_avg"},
    ),
    "rmsprop": (
        _optax("rmsprop", 1e-3, decay=0.99, eps_in_sqrt=False),
        optimizers.rmsprop(1e-3),
        {"nu": "square_avg"},
    ),
}
"""Optimizers of optax with the rule that each is, and the names of its states."""


def optax_update(make: Callable[[], Any], fields: Mapping[str, str], case: Case) -> Array:
    """Returns the parameter after a step of optax, compiled."""
    import jax
    import optax

    transformation = make()
    param = jax.numpy.asarray(case.tensors["param"])

    def replaced(part: Any) -> Any:
        """A state with the values of the case, at every depth of a chain of transformations."""
        if not isinstance(part, tuple):
            return part
        names: tuple[str, ...] | None = getattr(part, "_fields", None)
        if names is None:
            return tuple(replaced(entry) for entry in part)
        values = {
            name: jax.numpy.asarray(case.tensors[fields[name]]) for name in names if name in fields
        }
        counts = {"count": jax.numpy.asarray(case.step, "int32")} if "count" in names else {}
        inner = {name: replaced(getattr(part, name)) for name in names}
        return type(part)(**(inner | values | counts))

    def update(gradient: Any, state: Any, param: Any) -> Any:
        updates, _ = transformation.update(gradient, state, param)
        return optax.apply_updates(param, updates)

    state = replaced(transformation.init(param))
    return np.asarray(jax.jit(update)(jax.numpy.asarray(case.tensors["grad"]), state, param))

"""The engines of a step behind two methods, so that a run can be compared step by step."""

from abc import ABC, abstractmethod
from collections.abc import Iterable, Mapping
from typing import Any

import numpy as np
import torch
from numpy.typing import NDArray

import closedform as cf
from closedform.ir.types import DType
from closedform.language import UpdateRule

Arrays = Mapping[str, NDArray[Any]]
BF16 = DType.BF16.numpy


def as_torch(array: NDArray[Any]) -> torch.Tensor:
    """A copy as a tensor; NumPy's bfloat16 is not torch's."""
    if array.dtype == BF16:
        return torch.tensor(array.view(np.int16)).view(torch.bfloat16)
    return torch.tensor(array)


def as_numpy(tensor: torch.Tensor) -> NDArray[Any]:
    """The memory of a tensor as an array."""
    if tensor.dtype is torch.bfloat16:
        return tensor.detach().view(torch.int16).numpy().view(BF16)
    return tensor.detach().numpy()


def states_in_torch(
    optimizer: torch.optim.Optimizer, tensors: Mapping[str, torch.Tensor], labels: Iterable[str]
) -> dict[str, Arrays]:
    """Returns the states of an optimizer of torch by label and parameter."""
    arrays: dict[str, dict[str, NDArray[Any]]] = {}
    for name, tensor in tensors.items():
        # A tensor has the states of its shape.
        for label in labels:
            if label in optimizer.state[tensor]:
                arrays.setdefault(label, {})[name] = as_numpy(optimizer.state[tensor][label])
    return dict(arrays)


class Engine(ABC):
    """A rule with parameters, stepped by one engine.

    Args:
        rule: The rule.
        params: The first parameters, by name.
        threads: The threads of a session; those of torch are set by ``torch.set_num_threads``.
    """

    def __init__(self, rule: UpdateRule, params: Arrays, threads: int = 1) -> None:
        self.rule = rule

    @abstractmethod
    def step(self, grads: Arrays) -> None:
        """Performs one step."""

    @abstractmethod
    def params(self) -> Arrays:
        """Returns the parameters by name."""

    @abstractmethod
    def states(self) -> dict[str, Arrays]:
        """Returns the states by their name and that of the parameter."""

    @abstractmethod
    def save(self) -> Any:
        """Returns the parameters, states and clock to be loaded."""

    @abstractmethod
    def load(self, saved: Any) -> None:
        """Loads what another engine of the rule saved."""


class Session(Engine):
    """A session of onnxruntime or compiled C."""

    backend = "onnxruntime"

    def __init__(self, rule: UpdateRule, params: Arrays, threads: int = 1) -> None:
        super().__init__(rule, params, threads)
        self.session = cf.OptimizerSession(
            rule, dict(params), backend=self.backend, threads=threads
        )

    def step(self, grads: Arrays) -> None:
        self.session.step(dict(grads))

    def params(self) -> Arrays:
        return self.session.params

    def states(self) -> dict[str, Arrays]:
        return dict(self.session.states)

    def save(self) -> Any:
        return self.session.state_dict()

    def load(self, saved: Any) -> None:
        self.session.load_state_dict(saved)


class CSession(Session):
    """A session of compiled C."""

    backend = "c"


class Torch(Engine):
    """`closedform.torch.Optimizer`."""

    backend = "eager"

    def __init__(self, rule: UpdateRule, params: Arrays, threads: int = 1) -> None:
        super().__init__(rule, params, threads)
        self.tensors = {name: torch.nn.Parameter(as_torch(array)) for name, array in params.items()}
        self.optimizer: Any = cf.torch.Optimizer(self.tensors.values(), rule, backend=self.backend)

    def step(self, grads: Arrays) -> None:
        for name, tensor in self.tensors.items():
            tensor.grad = as_torch(grads[name])
        self.optimizer.step()

    def params(self) -> Arrays:
        return {name: as_numpy(tensor) for name, tensor in self.tensors.items()}

    def states(self) -> dict[str, Arrays]:
        return states_in_torch(self.optimizer, self.tensors, self.rule.states)

    def save(self) -> Any:
        return self.optimizer.state_dict()

    def load(self, saved: Any) -> None:
        self.optimizer.load_state_dict(saved)


class Jax(Engine):
    """`closedform.to_jax`, jitted, with types of 64 bits: scalars are float64 as elsewhere."""

    def __init__(self, rule: UpdateRule, params: Arrays, threads: int = 1) -> None:
        super().__init__(rule, params, threads)
        import jax
        import optax

        def step(grads: Any, carried: Any, params: Any) -> Any:
            changes, carried = transformation.update(grads, carried, params)
            return optax.apply_updates(params, changes), carried

        self.context = jax.enable_x64
        with self.context(True):
            transformation = cf.to_jax(rule)
            self.arrays: Any = {name: jax.numpy.asarray(a) for name, a in params.items()}
            self.carried: Any = transformation.init(self.arrays)
            self.update = jax.jit(step)

    def step(self, grads: Arrays) -> None:
        with self.context(True):
            self.arrays, self.carried = self.update(dict(grads), self.carried, self.arrays)

    def params(self) -> Arrays:
        return {name: np.asarray(array) for name, array in self.arrays.items()}

    def states(self) -> dict[str, Arrays]:
        # A parameter without the state has a masked node in its place.
        return {
            label: {name: np.asarray(a) for name, a in by_name.items() if hasattr(a, "dtype")}
            for label, by_name in self.carried.states.items()
        }

    def save(self) -> Any:
        return self.arrays, self.carried

    def load(self, saved: Any) -> None:
        self.arrays, self.carried = saved


ENGINES: Mapping[str, type[Engine]] = {
    "onnxruntime": Session,
    "torch": Torch,
    "jax": Jax,
    "c": CSession,
}

"""AdamW with parameters of float32 and of bfloat16 on a problem, in closedform and in packages."""

from __future__ import annotations

import warnings
from collections.abc import Callable, Mapping, Sequence
from dataclasses import replace
from typing import Any

import numpy as np
import torch

from closedform import optimizers, transforms
from closedform.language import Schedule, UpdateRule
from tests.low_precision.engines import (
    BF16,
    Arrays,
    Engine,
    Session,
    as_numpy,
    as_torch,
    states_in_torch,
)
from tests.low_precision.problems import Problem

WEIGHT_DECAY = 0.01
EIGHT_BIT_BLOCK = 256
"""The elements that share a scale."""
ENDING = 10
"""The last steps over which the loss is averaged are the steps divided by this."""
SAMPLES = 20
"""The losses that are averaged."""

Wrapper = Callable[[UpdateRule, int], UpdateRule]

CHOICES: Mapping[str, Wrapper] = {
    "float32": lambda rule, seed: rule,
    "nearest": lambda rule, seed: replace(rule, stored="bf16"),
    "stochastic_rounding": lambda rule, seed: transforms.stochastic_rounding(rule, seed=seed),
    "kahan": lambda rule, seed: transforms.kahan(rule),
    "master_weights": lambda rule, seed: transforms.master_weights(rule),
}
"""Ways to store the parameters, as transforms of a rule and a seed."""


def rule_of(choice: str, schedule: Schedule, seed: int = 0) -> UpdateRule:
    """AdamW whose parameters are stored in one of these ways."""
    return CHOICES[choice](optimizers.adamw(schedule, weight_decay=WEIGHT_DECAY), seed)


def stored(arrays: Arrays, choice: str) -> dict[str, Any]:
    """Copies in the dtype of the parameters."""
    dtype = np.float32 if choice == "float32" else BF16
    return {name: array.astype(dtype) for name, array in arrays.items()}


class Peer(Engine):
    """An optimizer of a package, on tensors of bfloat16."""

    def __init__(self, schedule: Schedule, steps: int, params: Arrays, seed: int) -> None:
        self.rates = schedule(range(steps))
        self.count = 0
        self.tensors = {name: torch.nn.Parameter(as_torch(a)) for name, a in params.items()}
        torch.manual_seed(seed)
        self.optimizer: Any = self.create()

    def create(self) -> Any:
        """Returns the optimizer."""
        return torch.optim.AdamW(
            self.tensors.values(), lr=torch.tensor(0.0), weight_decay=WEIGHT_DECAY, foreach=False
        )

    def step(self, grads: Arrays) -> None:
        for name, tensor in self.tensors.items():
            tensor.grad = as_torch(grads[name])
        self.optimizer.param_groups[0]["lr"].fill_(float(self.rates[self.count]))
        self.optimizer.step()
        self.count += 1

    def params(self) -> Arrays:
        return {name: as_numpy(tensor) for name, tensor in self.tensors.items()}

    def states(self) -> dict[str, Arrays]:
        return states_in_torch(self.optimizer, self.tensors, ("exp_avg", "exp_avg_sq"))

    def save(self) -> Any:
        return self.optimizer.state_dict()

    def load(self, saved: Any) -> None:
        self.optimizer.load_state_dict(saved)


class Torchao(Peer):
    """AdamW of torchao with stochastic rounding."""

    def create(self) -> Any:
        with warnings.catch_warnings():
            warnings.simplefilter("ignore")
            from torchao.optim import _AdamW
        return _AdamW(
            self.tensors.values(), lr=0.0, weight_decay=WEIGHT_DECAY, bf16_stochastic_round=True
        )


class Torchao8Bits(Peer):
    """AdamW of torchao with states of 8 bits, in blocks of 256."""

    def create(self) -> Any:
        with warnings.catch_warnings():
            warnings.simplefilter("ignore")
            from torchao.optim import AdamW8bit
        return AdamW8bit(
            self.tensors.values(), lr=0.0, weight_decay=WEIGHT_DECAY, block_size=EIGHT_BIT_BLOCK
        )

    def states(self) -> dict[str, Arrays]:
        return {
            f"{label}_{part}": {
                name: as_numpy(getattr(self.optimizer.state[tensor][label], attribute))
                for name, tensor in self.tensors.items()
            }
            for label in ("exp_avg", "exp_avg_sq")
            for part, attribute in (("code", "codes"), ("scale", "scale"))
        }


def eight_bit_engines(problem: Problem, steps: int) -> dict[str, Engine]:
    """AdamW on parameters of float32 with states of float32 and of 8 bits."""
    rule = optimizers.adamw(problem.schedule, weight_decay=WEIGHT_DECAY)
    coded_rule = transforms.eight_bit_states(rule, block=EIGHT_BIT_BLOCK)
    return {
        "float32": Session(rule, problem.start),
        "eight_bit_states": Session(coded_rule, problem.start),
        "torchao": Torchao8Bits(problem.schedule, steps, problem.start, 0),
    }


def share_of_equal_codes(first: Engine, second: Engine) -> float:
    """The share of codes of two engines that are equal; codes of torchao have no sign."""
    equal = []
    tables = second.states()
    for label, by_name in first.states().items():
        if label.endswith("_code"):
            for name, codes in by_name.items():
                unsigned_codes = codes.astype(int) + 128
                equal.append(unsigned_codes.ravel() == tables[label][name].ravel())
    return float(np.mean(equal))


PEERS: Mapping[str, type[Peer]] = {"torch, AdamW": Peer, "torchao, stochastic rounding": Torchao}


def build(choice: str, problem: Problem, steps: int, seed: int) -> Engine:
    """Returns the optimizer of one of the choices or peers."""
    params = stored(problem.start, choice)
    if choice in PEERS:
        return PEERS[choice](problem.schedule, steps, params, seed)
    return Session(rule_of(choice, problem.schedule, seed), params)


def trained(choice: str, problem: Problem, steps: int, seed: int = 0) -> float:
    """Returns the mean loss over the end of a training."""
    return mean_loss(build(choice, problem, steps, seed), problem, choice, steps)


def mean_loss(engine: Engine, problem: Problem, choice: str, steps: int) -> float:
    """Trains, and returns the mean loss over the end."""
    ending = steps - steps // ENDING
    interval = max(1, steps // ENDING // SAMPLES)
    losses = []
    for step in range(steps):
        engine.step(stored(problem.gradients(engine.params(), step), choice))
        if step >= ending and (step + 1) % interval == 0:
            losses.append(problem.loss(engine.params()))
    return float(np.mean(losses))


def first_difference(engines: Sequence[Engine], problem: Problem, choice: str, steps: int) -> Any:
    """Steps engines with the gradients at the parameters of the first one.

    As long as the parameters have the same bits, these are the gradients of each engine.

    Returns:
        The step after which parameters differ in a bit, None if none does, not the states at the
        end, either.
    """
    reference, *others = engines
    for step in range(steps):
        grads = stored(problem.gradients(reference.params(), step), choice)
        for engine in engines:
            engine.step(grads)
        expected = bits(reference.params())
        if any(bits(engine.params()) != expected for engine in others):
            return step
    if any(state_bits(engine) != state_bits(reference) for engine in others):
        return steps
    return None


def bits(arrays: Arrays) -> dict[str, bytes]:
    """The bytes of arrays, by name."""
    return {name: np.ascontiguousarray(array).tobytes() for name, array in arrays.items()}


LEAST_STATE = 2.0**-122
"""XLA on CPUs takes subnormal products as zero: a moment below 2**-126 / (1 - beta1) stays so."""


def state_bits(engine: Engine) -> dict[str, dict[str, bytes]]:
    """The bytes of all states, of which those that XLA does not compute further are zero."""
    return {
        label: bits(
            {
                name: np.where(np.abs(array) < LEAST_STATE, np.zeros_like(array), array)
                for name, array in by_name.items()
            }
        )
        for label, by_name in engine.states().items()
    }


def bytes_per_parameter(engine: Engine) -> float:
    """The memory of parameters and states, over the number of parameters."""
    params = engine.params()
    tables = [params, *engine.states().values()]
    size = sum(array.nbytes for arrays in tables for array in arrays.values())
    return size / sum(array.size for array in params.values())

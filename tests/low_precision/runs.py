"""AdamW with parameters of float32 and of bfloat16 on a problem, in closedform and in packages."""

import warnings
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field, replace
from importlib import import_module
from typing import Any

import numpy as np
import torch
from numpy.typing import NDArray

from closedform import optimizers, transforms
from closedform.language import Schedule, UpdateRule
from closedform.transforms.quantized_states import QUANTIZATIONS, Quantization
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
from tools.build_low_precision import EIGHT_BITS, FOUR_BITS, TOLERATED, TOLERATED_STATES

WEIGHT_DECAY = 0.01
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
    "states, nearest": lambda rule, seed: transforms.sixteen_bit_states(rule),
    "states, stochastic": lambda rule, seed: transforms.sixteen_bit_states(
        rule, rounding="stochastic", seed=seed
    ),
    "all, stochastic": lambda rule, seed: transforms.stochastic_rounding(
        transforms.sixteen_bit_states(rule, rounding="stochastic", seed=seed), seed=seed
    ),
}
"""Ways to store parameters and states, as transforms of a rule and a seed."""
FLOAT32 = ("float32", "states, nearest", "states, stochastic")
"""Those whose parameters are float32."""


def rule_of(choice: str, schedule: Schedule, seed: int = 0) -> UpdateRule:
    """AdamW whose parameters are stored in one of these ways."""
    return CHOICES[choice](optimizers.adamw(schedule, weight_decay=WEIGHT_DECAY), seed)


def stored(arrays: Arrays, choice: str) -> dict[str, Any]:
    """Copies in the dtype of the parameters."""
    dtype = np.float32 if choice in FLOAT32 else BF16
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


class TorchaoCoded(Peer):
    """AdamW of torchao with states of a few bits, in blocks of its default size."""

    kind = ""
    """The name of the class in torchao."""

    def create(self) -> Any:
        with warnings.catch_warnings():
            warnings.simplefilter("ignore")
            import torchao.optim
        kind = getattr(torchao.optim, self.kind)
        return kind(self.tensors.values(), lr=0.0, weight_decay=WEIGHT_DECAY)

    def states(self) -> dict[str, Arrays]:
        return {
            f"{label}_{part}": {
                name: as_numpy(getattr(self.optimizer.state[tensor][label], attribute))
                for name, tensor in self.tensors.items()
            }
            for label in ("exp_avg", "exp_avg_sq")
            for part, attribute in (("code", "codes"), ("scale", "scale"))
        }


class Torchao8Bits(TorchaoCoded):
    """States of 8 bits."""

    kind = "AdamW8bit"


class Torchao4Bits(TorchaoCoded):
    """States of 4 bits."""

    kind = "AdamW4bit"


@dataclass(frozen=True, slots=True)
class Coded:
    """States of a few bits.

    Attributes:
        transform: The name of the transform.
        peer: AdamW of torchao with such states.
        module: The module of torchao with the tensors of such states.
        state: The class of these tensors.
        mixtures: Rules that have states of other bits, too.
    """

    transform: str
    peer: type[Peer]
    module: str
    state: str
    mixtures: Mapping[str, Callable[[UpdateRule], UpdateRule]] = field(default_factory=dict)

    @property
    def quantization(self) -> Quantization:
        """The bits, the block and the code books."""
        return QUANTIZATIONS[self.transform]

    def code(self, rule: UpdateRule, **lists: Sequence[str]) -> UpdateRule:
        """Returns the rule with states of these bits."""
        coded_rule: UpdateRule = getattr(transforms, self.transform)(rule, **lists)
        return coded_rule

    def engines(self, problem: Problem, steps: int) -> dict[str, Engine]:
        """AdamW on parameters of float32 with states of float32 and of these bits."""
        rule = optimizers.adamw(problem.schedule, weight_decay=WEIGHT_DECAY)
        return {
            "float32": Session(rule, problem.start),
            self.transform: Session(self.code(rule), problem.start),
            "torchao": self.peer(problem.schedule, steps, problem.start, 0),
            **{
                label: Session(mixture(rule), problem.start)
                for label, mixture in self.mixtures.items()
            },
        }

    def share_of_equal_codes(self, first: Engine, second: Engine) -> float:
        """The share of codes of two engines that are equal; the second is of torchao."""
        tables = second.states()
        equal = [
            self.unpack(codes.astype(int) + 128) == self.unpack(tables[label][name])
            for label, by_name in first.states().items()
            if label.endswith("_code")
            for name, codes in by_name.items()
        ]
        return float(np.mean(equal))

    def unpack(self, packed: NDArray[Any]) -> NDArray[Any]:
        """The codes in bytes, the highest bits first."""
        bits = self.quantization.bits
        shifts = np.arange(8 - bits, -1, -bits)
        return np.asarray(packed.reshape(-1, 1).astype(int) >> shifts & 2**bits - 1).ravel()

    def quantized_by_torchao(
        self, tensor: NDArray[Any], *, is_signed: bool
    ) -> tuple[NDArray[Any], NDArray[Any]]:
        """The codes of a tensor in torchao, and its values."""
        with warnings.catch_warnings():
            warnings.simplefilter("ignore")
            kind = getattr(import_module(self.module), self.state)
        block = self.quantization.block
        coded = kind.zeros(tensor.shape, signed=is_signed, block_size=block)
        coded.copy_(torch.from_numpy(tensor))
        return self.unpack(coded.codes.numpy()), coded.dequantize().numpy()


CODED: Mapping[str, Coded] = {
    EIGHT_BITS: Coded(
        "eight_bit_states", Torchao8Bits, "torchao.optim.subclass_8bit", "OptimState8bit"
    ),
    FOUR_BITS: Coded(
        "four_bit_states",
        Torchao4Bits,
        "torchao.optim.subclass_4bit",
        "OptimState4bit",
        {
            "exp_avg in 8 bits": lambda rule: transforms.eight_bit_states(
                transforms.four_bit_states(rule, [], ["exp_avg_sq"]), ["exp_avg"], []
            )
        },
    ),
}
"""By the name of their results."""


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


def check_losses(losses: Mapping[str, float]) -> None:
    """Asserts that the mean losses of a problem are within the bars of the page."""
    limit = losses["float32"]
    for choice in {"stochastic_rounding", "kahan", "master_weights"} & set(losses):
        assert losses[choice] <= TOLERATED * limit, choice
    for choice in {"states, stochastic", "all, stochastic"} & set(losses):
        assert losses[choice] <= TOLERATED_STATES * limit, choice
    if "nearest" in losses:
        assert losses["nearest"] > losses["stochastic_rounding"]
        for choice in ("stochastic_rounding", "kahan"):
            assert losses[choice] <= losses["torchao, stochastic rounding"], choice


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
                name: array
                if array.dtype.kind == "i"
                else np.where(np.abs(array) < LEAST_STATE, np.zeros_like(array), array)
                for name, array in by_name.items()
            }
        )
        for label, by_name in engine.states().items()
        if by_name
    }


def bytes_per_parameter(engine: Engine) -> float:
    """The memory of parameters and states, over the number of parameters."""
    params = engine.params()
    tables = [params, *engine.states().values()]
    size = sum(array.nbytes for arrays in tables for array in arrays.values())
    return size / sum(array.size for array in params.values())

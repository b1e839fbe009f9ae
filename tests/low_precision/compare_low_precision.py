"""AdamW with parameters in bfloat16: losses beside float32 and torchao, and the bits of engines.

`make precision` runs it, some 25 minutes on a core, and stores the results in
docs/low_precision.json.
"""

from __future__ import annotations

import json
from collections.abc import Callable, Mapping, Sequence
from typing import Any

import numpy as np
import pytest
import torch

from docs.build_low_precision import EIGHT_BITS, LANGUAGE, QUADRATIC, RESULTS, TOLERATED
from tests.low_precision.engines import ENGINES
from tests.low_precision.problems import Language, Problem, Quadratic, Separable
from tests.low_precision.runs import (
    CHOICES,
    EIGHT_BIT_BLOCK,
    PEERS,
    build,
    bytes_per_parameter,
    eight_bit_engines,
    first_difference,
    mean_loss,
    rule_of,
    share_of_equal_codes,
    stored,
    trained,
)

pytestmark = pytest.mark.filterwarnings("ignore")  # of torchao and torch's compiler

STEPS = {QUADRATIC: 100_000, LANGUAGE: 20_000, EIGHT_BITS: 1_000}
EARLY = 100
"""The steps after which the codes of two implementations are compared."""
SEEDS = {QUADRATIC: range(3), LANGUAGE: range(1)}
COMPARED = {QUADRATIC: 100_000, LANGUAGE: 1_000}
"""The steps after each of which the bits of the engines are compared."""
PROBLEMS: Mapping[str, Callable[[int, int], Problem]] = {QUADRATIC: Quadratic, LANGUAGE: Language}
LOW = [choice for choice in CHOICES if choice != "float32"]
MEASURED = 2**14
"""The elements of the parameter whose memory is measured."""


def store(name: str, results: Any) -> None:
    """Writes the results of a problem, and keeps those of others."""
    everything = json.loads(RESULTS.read_text(encoding="utf-8")) if RESULTS.exists() else {}
    everything[name] = results
    RESULTS.write_text(json.dumps(everything, indent=1, sort_keys=True) + "\n", encoding="utf-8")


@pytest.fixture(scope="module", params=[QUADRATIC, LANGUAGE])
def losses(request: pytest.FixtureRequest) -> Mapping[str, Sequence[float]]:
    torch.set_num_threads(1)
    name: str = request.param
    steps = STEPS[name]
    measured: dict[str, list[float]] = {choice: [] for choice in [*CHOICES, *PEERS]}
    for seed in SEEDS[name]:
        problem = PROBLEMS[name](steps, seed)
        for choice, values in measured.items():
            values.append(trained(choice, problem, steps, seed))
            print(name, seed, choice, values[-1], flush=True)
    store(name, {"steps": steps, "losses": measured})
    return measured


@pytest.mark.parametrize("choice", ["stochastic_rounding", "kahan", "master_weights"])
def test_the_loss_is_that_of_float32(choice: str, losses: Mapping[str, Sequence[float]]) -> None:
    assert np.mean(losses[choice]) <= TOLERATED * np.mean(losses["float32"])


def test_rounding_to_nearest_is_worse(losses: Mapping[str, Sequence[float]]) -> None:
    assert np.mean(losses["nearest"]) > np.mean(losses["stochastic_rounding"])


def test_the_loss_is_not_above_that_of_torchao(losses: Mapping[str, Sequence[float]]) -> None:
    limit = np.mean(losses["torchao, stochastic rounding"])
    for choice in ("stochastic_rounding", "kahan"):
        assert np.mean(losses[choice]) <= limit, choice


@pytest.mark.parametrize("name", PROBLEMS)
def test_engines_have_the_same_bits(name: str) -> None:
    torch.set_num_threads(1)
    problem = PROBLEMS[name](STEPS[name], 0)
    differences = {}
    for choice in LOW:
        params = stored(problem.start, choice)
        rule = rule_of(choice, problem.schedule)
        engines = [engine(rule, params) for engine in ENGINES.values()]
        differences[choice] = first_difference(engines, problem, choice, COMPARED[name])
        print(name, choice, differences[choice], flush=True)
    results = {"engines": list(ENGINES), "steps": COMPARED[name], "differences": differences}
    store(f"{name}, bits", results)
    assert set(differences.values()) == {None}, differences


def test_states_of_8_bits_are_those_of_torchao() -> None:
    torch.set_num_threads(1)
    steps = STEPS[EIGHT_BITS]
    problem = Separable(steps)
    early = eight_bit_engines(problem, steps)
    for step in range(EARLY):
        for engine in early.values():
            engine.step(problem.gradients(engine.params(), step))
    share = share_of_equal_codes(early["eight_bit_states"], early["torchao"])
    engines = eight_bit_engines(problem, steps)
    losses = {
        name: mean_loss(engine, problem, "float32", steps) for name, engine in engines.items()
    }
    memory = {name: bytes_per_parameter(engine) for name, engine in engines.items()}
    results = {"steps": steps, "losses": losses, "memory": memory}
    store(EIGHT_BITS, {**results, "early": EARLY, "equal codes": share})
    # A code is the other neighbour where rounding decides; its step is a hundredth of the state.
    assert share > 0.999
    assert losses["eight_bit_states"] == pytest.approx(losses["torchao"], rel=1e-3)
    assert memory["eight_bit_states"] == memory["torchao"] == 6 + 2 * 4 / EIGHT_BIT_BLOCK


def test_memory() -> None:
    problem = Quadratic(100)
    problem.start = {"w": np.ones(MEASURED, np.float32)}
    memory = {}
    for choice in [*CHOICES, *PEERS]:
        engine = build(choice, problem, 100, 0)
        engine.step(stored(problem.start, choice))
        memory[choice] = bytes_per_parameter(engine)
    store("memory", memory)
    assert memory == {
        "float32": 12,
        "nearest": 10,
        "stochastic_rounding": 10,
        "kahan": 12,
        "master_weights": 14,
        "torch, AdamW": 6,
        "torchao, stochastic rounding": 6,
    }

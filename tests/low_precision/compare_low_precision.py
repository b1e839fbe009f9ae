"""AdamW with parameters or states in few bits: losses beside float32 and torchao, and the bits.

`make precision` runs it, some two hours on a core, and stores the results in
tools/results/low_precision.json. An interrupted run goes on where it stopped.
"""

import json
from collections.abc import Callable, Mapping, Sequence
from functools import partial
from typing import Any

import numpy as np
import pytest
import torch

from closedform import transforms
from closedform.language import GRAD, State, UpdateRule, state
from tests.low_precision.engines import ENGINES, Session
from tests.low_precision.problems import Language, Problem, Quadratic, Separable
from tests.low_precision.runs import (
    CHOICES,
    CODED,
    PEERS,
    build,
    bytes_per_parameter,
    check_losses,
    first_difference,
    mean_loss,
    rule_of,
    stored,
    trained,
)
from tests.support.stored_results import StoredResults
from tools.build_low_precision import (
    EIGHT_BITS,
    FOUR_BITS,
    LANGUAGE,
    QUADRATIC,
    RANDOM,
    RESULTS,
    STATES,
    TITLES,
    TITLES_OF_MOMENTS,
)

pytestmark = pytest.mark.filterwarnings("ignore")  # of torchao and torch's compiler

STEPS = {
    QUADRATIC: 100_000,
    LANGUAGE: 100_000,
    STATES: 20_000,
    EIGHT_BITS: 1_000,
    FOUR_BITS: 1_000,
}
EARLY = 100
"""The steps after which the codes of two implementations are compared."""
SEEDS = {QUADRATIC: range(3), LANGUAGE: range(2), STATES: range(2)}
COMPARED = {QUADRATIC: 100_000, LANGUAGE: 1_000, STATES: 1_000}
"""The steps after each of which the bits of the engines are compared."""
PROBLEMS: Mapping[str, Callable[[int, int], Problem]] = {
    QUADRATIC: Quadratic,
    LANGUAGE: Language,
    STATES: Language,
}
ROWS = {QUADRATIC: TITLES, LANGUAGE: TITLES, STATES: TITLES_OF_MOMENTS}
ENGINES_OF = {name: [key for key in ENGINES if key != "jax" or name != STATES] for name in PROBLEMS}
"""optax adds the difference of a float32 parameter, which rounds once more where it is large."""
SOURCES = ["src/closedform/transforms", "src/closedform/optimizers", "tests/low_precision/runs.py"]
PACKAGES = ["onnxruntime", "torch", "torchao"]
MEASURED = 2**14
"""The elements of the parameter whose memory is measured."""


def store(name: str, results: Any) -> None:
    """Writes the results of a problem, and keeps those of others."""
    everything = json.loads(RESULTS.read_text(encoding="utf-8")) if RESULTS.exists() else {}
    everything[name] = results
    RESULTS.write_text(json.dumps(everything, indent=1, sort_keys=True) + "\n", encoding="utf-8")


@pytest.fixture(scope="module", params=PROBLEMS)
def losses(request: pytest.FixtureRequest) -> Mapping[str, Sequence[float]]:
    torch.set_num_threads(1)
    name: str = request.param
    steps = STEPS[name]
    runs = StoredResults(f"low_precision_{name.replace(' ', '_')}", SOURCES, PACKAGES)
    measured: dict[str, list[float]] = {choice: [] for choice in ROWS[name]}
    for seed in SEEDS[name]:
        problem = PROBLEMS[name](steps, seed)
        for choice, values in measured.items():
            run = partial(trained, choice, problem, steps, seed)
            case = f"{choice}, {steps} steps, seed {seed}"
            values.append(json.loads(runs.result(case, lambda run=run: json.dumps(run()))))  # type: ignore[misc]
            print(name, seed, choice, values[-1], flush=True)
    store(name, {"steps": steps, "losses": measured})
    return measured


def test_the_losses_are_within_the_bars(losses: Mapping[str, Sequence[float]]) -> None:
    check_losses({choice: float(np.mean(values)) for choice, values in losses.items()})


@pytest.mark.parametrize("name", PROBLEMS)
def test_engines_have_the_same_bits(name: str) -> None:
    torch.set_num_threads(1)
    problem = PROBLEMS[name](STEPS[name], 0)
    differences = {}
    for choice in set(ROWS[name]) - {"float32", *PEERS}:
        params = stored(problem.start, choice)
        rule = rule_of(choice, problem.schedule)
        engines = [ENGINES[key](rule, params) for key in ENGINES_OF[name]]
        differences[choice] = first_difference(engines, problem, choice, COMPARED[name])
        print(name, choice, differences[choice], flush=True)
    results = {"engines": ENGINES_OF[name], "steps": COMPARED[name], "differences": differences}
    store(f"{name}, bits", results)
    assert set(differences.values()) == {None}, differences


@pytest.mark.parametrize("name", CODED)
def test_coded_states_are_those_of_torchao(name: str) -> None:
    torch.set_num_threads(1)
    coded, steps = CODED[name], STEPS[name]
    problem = Separable(steps)
    early = coded.engines(problem, steps)
    for step in range(EARLY):
        for engine in early.values():
            engine.step(problem.gradients(engine.params(), step))
    share = coded.share_of_equal_codes(early[coded.transform], early["torchao"])
    engines = coded.engines(problem, steps)
    losses = {
        label: mean_loss(engine, problem, "float32", steps) for label, engine in engines.items()
    }
    memory = {label: bytes_per_parameter(engine) for label, engine in engines.items()}
    results = {"steps": steps, "losses": losses, "memory": memory}
    print(name, share, results, flush=True)
    store(name, {**results, "early": EARLY, "equal codes": share})
    # A code is the other neighbour where rounding decides.
    assert share > 0.999
    assert losses[coded.transform] == pytest.approx(losses["torchao"], rel=1e-3)
    bits, block = coded.quantization.bits, coded.quantization.block
    assert memory[coded.transform] == memory["torchao"] == 4 + 2 * (bits / 8 + 4 / block)


def draw_tensors(shape: tuple[int, int]) -> dict[str, Any]:
    """Tensors whose blocks have few, many and all decades, and a block of zeros."""
    rng = np.random.default_rng(5)
    arrays = {
        "normal": rng.normal(size=shape),
        "heavy tails": rng.standard_t(2, size=shape),
        "all decades": 10.0 ** rng.uniform(-9, 3, size=shape) * rng.choice([-1, 1], size=shape),
    }
    for array in arrays.values():
        array[0] = 0
    return {name: array.astype(np.float32) for name, array in arrays.items()}


@pytest.mark.parametrize("name", CODED)
def test_codes_of_random_tensors_are_those_of_torchao(name: str) -> None:
    """A tensor is stored and read once, as a state that is the last gradient."""
    coded, results = CODED[name], {}
    for sort in ("signed", "unsigned"):
        lists: dict[str, Sequence[str]] = {"signed": [], "unsigned": [], sort: ["s"]}
        rule = coded.code(UpdateRule("read", state("s"), {"s": State(GRAD)}), **lists)
        for label, tensor in draw_tensors((1024, 1024)).items():
            gradient = tensor if sort == "signed" else np.abs(tensor)
            session = Session(rule, {"w": gradient})
            session.step({"w": gradient})
            codes = coded.unpack(session.states()["s_code"]["w"].astype(int) + 128)
            session.step({"w": gradient})
            expected, values = coded.quantized_by_torchao(gradient, is_signed=sort == "signed")
            equal = codes == expected
            scales = np.repeat(session.states()["s_scale"]["w"].ravel(), coded.quantization.block)
            differences = np.abs(session.params()["w"] - values).ravel() / scales
            results[f"{sort}, {label}"] = {
                "different codes": int(np.sum(~equal)),
                "codes": equal.size,
                "largest difference of values of equal codes": float(differences[equal].max()),
            }
            assert np.abs(codes - expected).max() <= 1
            # Both maps are rounded to float32, with an error of a few units of values below 1.
            assert differences[equal].max() <= 2**-22
    print(name, results, flush=True)
    store(f"{name}, {RANDOM}", results)
    # Elsewhere rounding puts a quotient to the other side of a border: a few of a million.
    assert all(r["different codes"] <= 1e-5 * r["codes"] for r in results.values())


@pytest.mark.parametrize("name", CODED)
def test_engines_have_the_same_codes(name: str) -> None:
    torch.set_num_threads(1)
    coded, steps = CODED[name], STEPS[name]
    problem = Separable(steps)
    rule = rule_of("float32", problem.schedule)
    rule = transforms.stochastic_rounding(coded.code(rule))
    params = stored(problem.start, "stochastic_rounding")
    # Compiled C takes rules of single elements, not of blocks.
    engines = {key: kind(rule, params) for key, kind in ENGINES.items() if key != "c"}
    difference = first_difference([*engines.values()], problem, "stochastic_rounding", steps)
    store(f"{name}, bits", {"engines": [*engines], "steps": steps, "difference": difference})
    assert difference is None


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
        "states, nearest": 8,
        "states, stochastic": 8,
        "all, stochastic": 6,
        "torch, AdamW": 6,
        "torchao, stochastic rounding": 6,
    }

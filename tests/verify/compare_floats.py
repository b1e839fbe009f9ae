"""Verdicts on floats: of the library, of all configs, and of random formulas run in onnxruntime.

For `make compare`. The unit tests run a part of the random formulas (`tests/support/floats.py`).
"""

import statistics
import time
from pathlib import Path

import pytest

from closedform.api.onnx import to_onnx
from closedform.compiler import compile_init, compile_program, compile_schedule
from closedform.effort import Effort
from closedform.options import GraphOptions, ModelSpec
from closedform.recipes import load_schedules
from closedform.verify.certificates.floats import FloatVerdict, rule_floats, schedule_floats
from tests.reference.records import CONFIGS
from tests.support.floats import Tally, run_random
from tests.test_library import OPTIMIZERS, SCHEDULES

LEAST_PROVED = 0.95
LEAST_DECIDED = 0.90
# Seconds for a graph; on a busy machine the default of an export may be over before it is decided.
WORK = 20_000_000
RANDOM = 2_000

# Rules that are refuted by a run, each with the reason; all others are proved.
REFUTED = {
    "prodigy": "its estimate of the distance grows where gradients cancel their weighted sum",
    "d_adapt_sgd": "a first gradient of 1e-19 makes steps of 1e11 times the next ones",
    "adafactor": "a row of zeros beside large gradients has a mean that is flushed to zero: 0/0",
    "came": "a row of zeros beside large gradients has a mean that is flushed to zero: 0/0",
}

PRECISIONS = {
    "f64": GraphOptions(step_shape=("n",)),
    "f32": GraphOptions(step_shape=("n",), dtype="f32", scalar_dtype="f32"),
}


def verdicts_of_schedules(options: GraphOptions) -> dict[str, FloatVerdict]:
    schedules = {name: make() for name, make in SCHEDULES.items()}
    for config in CONFIGS:
        loaded, _ = load_schedules(config)
        schedules |= {f"{config.stem} {key}": schedule for key, schedule in loaded.items()}
    return {
        name: schedule_floats(compile_schedule(schedule, options), last=schedule.last_step)
        for name, schedule in schedules.items()
    }


def verdicts_of_rules() -> dict[str, FloatVerdict]:
    found = {}
    for name, make in OPTIMIZERS.items():
        spec = ModelSpec(make(), {"w": (8, 16), "v": (8, 16), "u": (16, 8)})
        found[name] = rule_floats(compile_program(spec), compile_init(spec), effort=Effort.of(WORK))
    return found


def shown(found: dict[str, FloatVerdict], capsys: pytest.CaptureFixture[str]) -> float:
    proved = sum(one.verdict.proved for one in found.values())
    with capsys.disabled():
        print(f"\n{proved} of {len(found)} are proved")
        for name, one in found.items():
            if not one.verdict.proved:
                print(f"  {name}: {one.verdict}")
    return proved / len(found)


def test_the_library_and_all_configs_are_finite(capsys: pytest.CaptureFixture[str]) -> None:
    rules = verdicts_of_rules()
    found = dict(rules)
    for precision, options in PRECISIONS.items():
        of_schedules = verdicts_of_schedules(options)
        assert all(one.verdict.proved for one in of_schedules.values())
        found |= {f"{name} in {precision}": one for name, one in of_schedules.items()}
    assert shown(found, capsys) >= LEAST_PROVED
    assert not [name for name, one in rules.items() if one.verdict.unknown]
    assert {name for name, one in rules.items() if one.verdict.refuted} == set(REFUTED)


@pytest.mark.parametrize("precision", PRECISIONS)
def test_random_formulas_that_are_proved_are_finite(
    precision: str, capsys: pytest.CaptureFixture[str]
) -> None:
    tally = run_random(RANDOM, PRECISIONS[precision], seed=1)
    with capsys.disabled():
        print(f"\n{tally}")
    assert isinstance(tally, Tally)
    assert not tally.wrong, tally.wrong
    assert tally.decided >= LEAST_DECIDED * tally.compiled


def test_the_verdict_on_floats_costs_less_than_the_rest_of_an_export(tmp_path: Path) -> None:
    """An export with both verdicts takes at most twice the time of one with the first alone."""
    shares = []
    for name, make in SCHEDULES.items():
        schedule = make()
        to_onnx(schedule, tmp_path / f"{name}.onnx")
        begun = time.process_time()
        to_onnx(schedule, tmp_path / f"{name}.onnx")
        whole = time.process_time() - begun
        graph = compile_schedule(schedule)
        begun = time.process_time()
        schedule_floats(graph, last=schedule.last_step)
        shares.append((time.process_time() - begun) / whole)
    assert statistics.median(shares) < 0.5

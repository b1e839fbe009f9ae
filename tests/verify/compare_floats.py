"""Verdicts on floats: of the library, of all configs, and of random formulas run in onnxruntime.

For `make compare`. The unit tests run a part of the random formulas (`tests/support/floats.py`).
"""

from __future__ import annotations

import pytest

from closedform.compiler import compile_init, compile_program, compile_schedule
from closedform.options import GraphOptions, ModelSpec
from closedform.recipes import load_schedules
from closedform.verify.certificates.floats import FloatVerdict, rule_floats, schedule_floats
from tests.reference.test_configs import CONFIGS
from tests.support.floats import Tally, run_random
from tests.test_library import OPTIMIZERS, SCHEDULES

LEAST_PROVED = 0.95
LEAST_DECIDED = 0.90
RANDOM = 2_000

# Rules that are not proved, each with what the intervals leave open.
NOT_PROVED = {
    "lamb": "the trust ratio overflows where the norm of the update is below 1e-37",
    "yogi": "its second moment is >= 0 by the sign of a difference of the same terms",
    "schedule_free_radam": "a sum of weights is not 0 where one of two conditions fails",
    "prodigy": "the estimate of the distance and its sums have no bound",
    "d_adapt_sgd": "the estimate of the distance and its sums have no bound",
    "adafactor": "0/0: late means of squares of a gradient of 0 are subnormal, and may be flushed",
    "came": "0/0 of means of residuals of 0",
    "muon": "five iterations are bounded by the spectral norm, not by sizes of elements",
    "stable_adamw": "its decay of the second moment at t = 0 is 0, but for rounding",
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
        found[name] = rule_floats(compile_program(spec), compile_init(spec))
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
    assert {name for name, one in rules.items() if not one.verdict.proved} == set(NOT_PROVED)


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

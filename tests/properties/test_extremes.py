"""Extreme numbers end in a value or in an error of the library: never in an abort or a traceback.

A sample of the inputs of ``compare_extremes.py``, and the inputs that once ended a process. All run
in forks of one process, under limits of memory and time.
"""

import sys

import pytest

from tests.properties.extreme_inputs import extreme
from tests.properties.extreme_runs import Run, run_programs

pytestmark = pytest.mark.skipif(
    sys.platform != "linux", reason="limits of memory and forks are those of Linux"
)

SMALL_POWER = """
def beta(step, batch=512, half=500_000, ratio=0.05):
    return 0.5 ** (batch / max(min(half, step * batch * ratio), 1e-8))

s = cf.from_python(beta)
assert s(0) == 0
"""
"""At step 0 it is 2**-51200000000: 0.0 in floats, 6.4 GB as a fraction."""

NAMED = {
    "small power, ONNX": (SMALL_POWER + "cf.to_onnx(s)", "value", ""),
    "power of a config": (
        "cf.load_recipe({'learning_rate': 1e-3, 'lr_scheduler_type': 'polynomial', 'max_steps': "
        "1000, 'lr_scheduler_kwargs': {'power': 1e9}}, framework='transformers')",
        "refused",
        "the exact power",
    ),
    "long run": (
        "cf.lint({'learning_rate': 1e-3, 'lr_scheduler_type': 'cosine', 'max_steps': 10**11}, "
        "framework='transformers')",
        "value",
        "",
    ),
    "steps of 400 digits": (
        "cf.load_recipe({'learning_rate': 1e-3, 'max_steps': 10**400}, framework='transformers')",
        "refused",
        "max_steps must be at most 1.8e+308, got a number of 401 digits",
    ),
    "shift": (
        "cf.from_python(lambda step: (1 << 10**5) * 2.0**-2000 * step)", "refused", "",
    ),
    "plot": (
        "cosine(1, 0, 10**20).plot(os.path.join(place, 'x.svg'))", "refused", "at most 2**50",
    ),
    "tower": (
        "def f(step):\n    return 0.1 * 10**400 ** step\nprint(cf.from_python(f))", "value", "",
    ),
    "restarts": (
        "warm_restarts(1, 0.1, 20, multiplier=2, restarts=10**400)", "refused", "at most 1000",
    ),
    "cosine beyond floats": ("one_cycle_momentum(-0.0, sp.pi*10**400, 100).verify()", "value", ""),
    "end of a comparison": (
        "cf.diff(RISE, FALL, until=10**5000)", "refused", "and at most 1125899906842624",
    ),
    "exponentials": (
        "cf.Schedule(cf.t * sp.exp(sp.exp(sp.exp(20))))", "refused", "exponent is beyond",
    ),
}  # fmt: skip
"""Programs, their outcomes, and a part of the message."""

SAMPLE = (
    *(
        0,
        9,
        11,
        12,
        13,
        20,
        21,
        29,
        32,
        33,
        42,
        45,
        49,
        50,
        51,
    ),
    *(
        54,
        60,
        63,
        65,
        69,
        78,
        87,
        92,
        93,
        94,
        96,
        108,
        119,
        123,
        126,
    ),
    *(
        200,
        203,
        213,
        216,
        218,
        221,
        231,
        234,
        236,
        240,
        245,
        247,
        254,
        257,
        261,
    ),
    *(
        265,
        267,
        270,
        272,
        279,
        285,
        288,
        291,
        303,
        308,
        309,
        312,
        315,
        317,
        324,
    ),
)
"""Numbers of inputs, the quick ones of each entrance."""


@pytest.fixture(scope="module")
def runs() -> dict[str, Run]:
    """The outcomes of all programs, by name."""
    programs = {name: program for name, (program, _, _) in NAMED.items()}
    programs |= {str(number): extreme(number).text for number in SAMPLE}
    return dict(zip(programs, run_programs(programs.values()), strict=True))


@pytest.mark.parametrize("name", NAMED)
def test_an_input_that_ended_a_process(name: str, runs: dict[str, Run]) -> None:
    _, outcome, message = NAMED[name]
    assert runs[name].outcome == outcome, runs[name].text
    assert message in runs[name].text


@pytest.mark.parametrize("number", SAMPLE)
def test_a_sample_has_values_or_errors_of_the_library(number: int, runs: dict[str, Run]) -> None:
    run = runs[str(number)]
    assert not run.is_fault, f"{run.outcome}\n{extreme(number).text}\n{run.text}"


FAULTS = {
    "abort": "os.abort()",
    "traceback": "[][0]",
    "memory": "x = bytearray(3 * 2**30)",
    "foreign": "from flint import fmpz\nfmpz(2) ** (2**36)",
}


def test_faults_are_seen() -> None:
    outcomes = [run.outcome for run in run_programs(FAULTS.values())]
    assert outcomes == ["abort", "traceback", "traceback", "abort"]

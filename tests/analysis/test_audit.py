"""Audits: values, settings, and other frameworks at them, beside their own formulas."""

from __future__ import annotations

import math
from collections.abc import Callable

import numpy as np
import pytest
import sympy as sp

from closedform import schedules
from closedform.analysis.audit import FRAMEWORKS, Settings, audit
from closedform.errors import VerificationError
from closedform.language import Schedule, t
from closedform.recipes import load_schedules
from tests.reference.records import CEREBRAS

PEAK, END = sp.Rational(3, 10000), sp.Rational(3, 100000)
LINEAR = schedules.linear(0, PEAK, 20).then(schedules.linear(PEAK, END, 80))
COSINE = schedules.linear(0, PEAK, 20).then(schedules.cosine(PEAK, END, 80))


def test_values_peak_area_and_marks() -> None:
    found = audit(COSINE)
    assert (found.warmup, found.total, found.peak) == (20, 100, 20)
    assert set(found.values) == {0, 19, 20, 99, 100, 101}
    assert found.values[19] == PEAK * 19 / 20
    values = np.asarray(COSINE(np.arange(100)))
    # The sum of 100 float64 values, each within 2 ulp of the peak.
    assert math.isclose(found.area, values.sum(), rel_tol=1e-12)
    assert found.jumps == ()


def test_a_run_that_ends_in_the_warmup_peaks_at_its_end() -> None:
    found = audit(COSINE, 15)
    assert (found.peak, found.total, found.warmup) == (15, 15, 20)


def test_a_flat_stretch_is_not_a_warmup() -> None:
    assert audit(schedules.wsd(1, 0, 30, 5, 9)).warmup == 5
    assert audit(schedules.wsd(1, 0, 30, 0, 9)).warmup is None


def test_jumps_are_listed() -> None:
    found = audit(schedules.multi_step(1, 0.5, [4, 8]))
    assert [jump.step for jump in found.jumps] == [4, 8]
    assert found.warmup is None
    assert found.settings is None
    assert found.comparisons == ()


SETTINGS: dict[str, tuple[Schedule, Settings | None]] = {
    "linear": (LINEAR, Settings(sp.Integer(0), PEAK, END, 20, 100, "linear")),
    "cosine": (COSINE, Settings(sp.Integer(0), PEAK, END, 20, 100, "cosine")),
    "no warmup": (
        schedules.cosine(PEAK, END, 80),
        Settings(PEAK, PEAK, END, 0, 80, "cosine"),
    ),
    "constant": (
        schedules.linear(0, PEAK, 20).then(schedules.constant(PEAK, steps=30)),
        Settings(sp.Integer(0), PEAK, PEAK, 20, 50, "constant"),
    ),
    "another shape": (schedules.linear(0, 1, 20).then(schedules.rex(1, 0, 80)), None),
    "nothing to scale": (schedules.constant(0, steps=9), None),
}


@pytest.mark.parametrize("name", SETTINGS)
def test_settings(name: str) -> None:
    schedule, wanted = SETTINGS[name]
    assert audit(schedule).settings == wanted


# The values of each framework for these settings, by its own source: factor of the peak at a step.
WARMUP, TOTAL = 20, 100
LOW = float(END / PEAK)


def cosine(p: float) -> float:
    return LOW + (1 - LOW) * (1 + math.cos(math.pi * p)) / 2


FORMULAS: dict[str, Callable[[int], float]] = {
    "cerebras": lambda s: s / WARMUP if s < WARMUP else cosine(min((s - 20) / 80, 1)),
    "torch": lambda s: 1e-8 + (1 - 1e-8) * s / WARMUP if s < WARMUP else cosine((s - 20) / 80),
    "huggingface": lambda s: s / WARMUP if s < WARMUP else cosine((s - 20) / 80),
    "timm": lambda s: s / WARMUP if s < WARMUP else (cosine(s / TOTAL) if s < TOTAL else LOW),
    "torchtitan": lambda s: (s + 1) / WARMUP if s < WARMUP else cosine(min((s - 20) / 80, 1)),
}


@pytest.mark.parametrize("framework", FRAMEWORKS)
def test_a_system_is_its_own_formula(framework: str) -> None:
    settings = audit(COSINE).settings
    assert settings is not None
    made = FRAMEWORKS[framework](settings)
    assert made is not None
    values = np.asarray(made(np.arange(TOTAL + 1)))
    wanted = np.array([FORMULAS[framework](step) for step in range(TOTAL + 1)]) * float(PEAK)
    # float64 with a cosine on both sides: a few ulp of the peak
    assert np.abs(values - wanted).max() <= 8 * np.spacing(float(PEAK))


def test_differences_are_exact() -> None:
    found = {each.framework: each for each in audit(COSINE).comparisons}
    assert found["cerebras"].first is None
    assert found["cerebras"].is_proved
    assert found["huggingface"].is_proved
    ahead = found["torchtitan"].first
    assert ahead is not None
    assert (ahead.step, ahead.ours, ahead.theirs) == (0, 0, PEAK / 20)
    earlier = found["timm"].first
    assert earlier is not None
    assert (earlier.step, earlier.ours) == (20, PEAK)
    assert sp.N(earlier.theirs - PEAK * sp.Float(cosine(0.2), 30), 20) < 1e-18
    largest = found["timm"].largest
    assert largest is not None
    apart = [abs(FORMULAS["timm"](step) - FORMULAS["cerebras"](step)) for step in range(TOTAL + 1)]
    assert largest.step == int(np.argmax(apart))


def test_a_line_to_an_end_above_0_is_a_polynomial_there() -> None:
    found = {each.framework: each for each in audit(LINEAR).comparisons}
    assert found["huggingface"].is_proved
    assert found["timm"].first is not None


def test_timm_has_no_warmup_into_a_constant() -> None:
    constant = schedules.linear(0, PEAK, 20).then(schedules.constant(PEAK, steps=30))
    frameworks = [each.framework for each in audit(constant).comparisons]
    assert frameworks == ["cerebras", "torch", "huggingface", "torchtitan"]


def test_a_config_with_a_cosine_warmup_differs_everywhere() -> None:
    (path,) = CEREBRAS.glob("params_llama3p2_1b_msl_8k-*.yaml")
    lr, steps = load_schedules(path)
    found = audit(lr["lr"], steps)
    assert found.settings is not None
    assert (found.settings.warmup, found.settings.shape) == (34, "cosine")
    assert all(each.first is not None for each in found.comparisons)


BAD: dict[str, tuple[Callable[[], object], str]] = {
    "open": (
        lambda: audit(COSINE.unbind("end_2")),
        "end_2 has no value (schedule 'sequential'): give it one with bind()",
    ),
    "no length": (
        lambda: audit(Schedule(1 / (t + 1))),
        "a schedule without a length needs the number of steps of the run (schedule 'schedule')",
    ),
    "no steps": (
        lambda: audit(COSINE, 0),
        "the number of steps must be from 1 to 100,000,000, got 0 (schedule 'sequential')",
    ),
}


@pytest.mark.parametrize("name", BAD)
def test_bad_audit_is_refused(name: str) -> None:
    make, message = BAD[name]
    with pytest.raises(VerificationError) as caught:
        make()
    assert str(caught.value) == message

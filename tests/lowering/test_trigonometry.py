"""Cosines and sines of rational multiples of pi, in every quadrant and form."""

from fractions import Fraction

import mpmath
import numpy as np
import pytest
import sympy as sp

from closedform.compiler import compile_schedule
from closedform.ir.ops import Op
from closedform.language import Schedule, t
from closedform.options import GraphOptions
from closedform.verify.certificates.certificate import certify
from tests.support.exact import evaluate_exactly, mpf

CASES = {
    "cosine": sp.cos(sp.pi * t / 7),
    "sine": sp.sin(sp.pi * t / 7),
    "sine of a shifted step": sp.sin(sp.pi * (3 - t) / 5),
    "half turn": sp.cos(sp.pi * sp.Min(t, 7) / 7),
    "whole turn": sp.cos(2 * sp.pi * sp.Min(t, 7) / 7),
    "whole turn of a sine": sp.sin(2 * sp.pi * sp.Min(t, 7) / 7),
    "negative": sp.cos(sp.pi * (sp.Min(t, 7) - 4) / 7),
    "falling": (1 + sp.cos(sp.pi * sp.Min(t, 9) / 9)) / 2,
    "rising": (1 - sp.cos(sp.pi * sp.Min(t, 9) / 9)) / 2,
    "falling to a floor": sp.Rational(11, 20) + sp.Rational(9, 20) * sp.cos(sp.pi * t / 9),
    "rising from a floor": sp.Rational(11, 20) - sp.Rational(9, 20) * sp.cos(sp.pi * t / 9),
    "below zero": sp.Rational(1, 2) + 3 * sp.cos(sp.pi * t / 9),
    "restarting": 1 + sp.cos(sp.pi * t / 9),
}


@pytest.mark.parametrize("name", CASES)
def test_values(name: str) -> None:
    schedule = Schedule(CASES[name])
    for step in (*range(40), 10**6 + 3, 10**12 + 8):
        truth = mpf(evaluate_exactly(CASES[name], {t: Fraction(step)}))
        # One rounding each of the angle, the sine, and of a product and a sum.
        assert abs(schedule(step) - truth) <= np.spacing(3.5 if name == "below zero" else 1.0), step


def test_a_cosine_to_zero_keeps_its_relative_accuracy_near_its_end() -> None:
    fall = Schedule((1 + sp.cos(sp.pi * t / 90_000)) / 2)
    for step in (30_000, 44_999, 45_001, 59_999, 60_001, 89_000, 89_990, 89_999):
        with mpmath.workdps(60):
            truth = mpmath.sin(mpmath.pi * (90_000 - step) / 180_000) ** 2
        assert abs(fall(step) / truth - 1) <= 1e-15, step


def test_the_rounding_error_of_a_constant_is_compensated_where_it_matters() -> None:
    """At step 24,966 this cosine was 2.06 ulp off in onnxruntime, at most 1.74 now."""
    given_back = Schedule(
        sp.Rational(66, 10**6) + sp.Rational(54, 10**6) * sp.cos(sp.pi * sp.Min(t, 116054) / 116054)
    )
    plain = Schedule(2 + sp.cos(sp.pi * sp.Min(t, 116054) / 116054))
    counts = [
        sum(node.op is Op.ADD for node in compile_schedule(schedule).nodes)
        for schedule in (given_back, plain)
    ]
    assert counts == [2, 1]
    graph = compile_schedule(given_back, GraphOptions(step_shape=("n",)))
    found = certify(given_back, graph, range(24_500, 25_500), engine="onnxruntime")
    assert found.measured.ulp_of_scale.value < 2


def test_a_cosine_to_zero_is_computed_from_both_ends_where_it_matters() -> None:
    """At step 135,035 this cosine was 2.31 ulp off in onnxruntime, at most 1.91 now."""

    def fall(peak: sp.Rational) -> Schedule:
        turns = sp.Min(t, 588_000) / sp.Integer(588_000)
        return Schedule(peak / 2 * (1 + sp.cos(sp.pi * turns)))

    from_both, from_zero = fall(sp.Rational(2, 10**4)), fall(sp.Rational(3, 10**4))
    counts = [
        sum(node.op is Op.WHERE for node in compile_schedule(schedule).nodes)
        for schedule in (from_both, from_zero)
    ]
    assert counts == [3, 1]
    graph = compile_schedule(from_both, GraphOptions(step_shape=("n",)))
    near, end = range(104_000, 136_000), range(578_000, 588_000)
    assert certify(from_both, graph, near, engine="onnxruntime").measured.ulp_of_scale.value < 2
    # Near its zero the value stays as near as the product of two sines and a number.
    assert certify(from_both, graph, end, engine="onnxruntime").measured.relative.value < 2e-15
    assert from_both(0) == 2e-4
    assert from_both(588_000) == 0


def test_an_angle_too_long_for_the_integers_is_computed_in_floats() -> None:
    """A phase of 3.2, computed as 0.3*14 - 1 in floats: 2*D*t exceeds every integer."""
    start = sp.Rational(3.1999999999999993)
    turns = (t - start) / (sp.Integer(20) - start)
    wave = Schedule(sp.cos(sp.pi * turns))
    for step in (4, 19, 1000):
        truth = mpmath.cos(
            mpmath.pi
            * (step - mpmath.mpf("3.1999999999999993"))
            / mpmath.mpf("16.8000000000000007")
        )
        # The angle is rounded once: up to 2**-53 of 190, and the cosine itself.
        assert abs(wave(step) - truth) <= 5e-14, step

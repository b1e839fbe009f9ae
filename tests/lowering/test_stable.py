"""Stable forms: what overflows in floats is exported in a form that does not, equal to its source.

The equations are proved by translation validation, which shares nothing with the lowering; the
values come from onnxruntime.
"""

import json
from pathlib import Path
from typing import Any

import numpy as np
import onnxruntime
import pytest
import sympy as sp

from closedform.api.onnx import to_onnx
from closedform.api.torch import to_torch
from closedform.compiler import compile_schedule
from closedform.errors import LoweringError
from closedform.language import Schedule, hyper, t
from closedform.lowering.analysis.domain import clock_domain
from closedform.lowering.stable import stable
from closedform.options import GraphOptions
from tests.support.unproved import expect_unproved

LARGEST = float(np.finfo(np.float64).max)
STEPS = np.array([0, 1, 2, 50, 90, 720, 10**4, 10**8, 2**40, 2**50])
PRECISIONS: dict[str, dict[str, Any]] = {
    "f64": {},
    "f32": {"dtype": "f32", "scalar_dtype": "f32"},
}
LOGISTIC = sp.exp(t) / (1 + sp.exp(t))

# Formula, and its limit at the far end if that is a number.
FORMS: dict[str, tuple[Any, float | None]] = {
    "logistic": (LOGISTIC, 1.0),
    "a logistic in the middle": (LOGISTIC.xreplace({t: (t - 100) / sp.Integer(10)}), 1.0),
    "softplus": (sp.log(1 + sp.exp(t)), 2.0**50),
    "the rest of a softplus": (sp.log(1 + sp.exp(t)) - t, 0.0),
    "log-sum-exp": (sp.log(sp.exp(t) + sp.exp(2 * t) + 1), 2.0**51),
    "a ratio of powers": (t**40 / (1 + t**40), 1.0),
    "a ratio of polynomials": ((t**40 + 3 * t**20) / (t**41 + 5), 0.0),
    "a ratio of large powers": ((t + 3) ** 40 / (t + 1) ** 40, 1.0),
    "a ratio of exponentials": ((sp.exp(t) - sp.exp(-t)) / (sp.exp(t) + sp.exp(-t)), 1.0),
    "squares": ((1 + sp.exp(t)) ** 2 / (1 + sp.exp(2 * t)), 1.0),
    "a root": (sp.sqrt(1 + sp.exp(2 * t)) / sp.exp(t), 1.0),
    "a sum with a power": (sp.exp(t) / (t**2 + sp.exp(t)), 1.0),
    "other bases": (2**t / (1 + 2**t), 1.0),
    "the log of a power": (sp.log(t**40 + 1), None),
    "an exact zero": (3 + sp.Mul(0, sp.exp(t), evaluate=False), 3.0),
    "a bell": (t**8 * sp.exp(-t), 0.0),
    "a fast bell": (t**30 * sp.exp(-(t**2)), 0.0),
}


# They take sums of the step and other numbers: of a step that float32 does not hold, validation
# does not say what these are.
OPEN_IN_SINGLE = {"a logistic in the middle", "a bell", "a fast bell"}


def facts_of(model: Any, key: str) -> dict[str, Any]:
    found: dict[str, Any] = json.loads(
        next(entry.value for entry in model.metadata_props if entry.key == f"closedform.{key}")
    )
    return found


def run(path: Path) -> Any:
    return onnxruntime.InferenceSession(str(path)).run(None, {"step": STEPS})[0]


@pytest.mark.parametrize("precision", PRECISIONS)
@pytest.mark.parametrize("name", FORMS)
def test_what_overflows_is_exported_in_a_form_that_does_not(
    name: str, precision: str, tmp_path: Path
) -> None:
    expr, limit = FORMS[name]
    path = tmp_path / "lr.onnx"
    is_open = precision == "f32" and name in OPEN_IN_SINGLE
    with expect_unproved(is_open):
        model = to_onnx(Schedule(expr), path, step_shape=("n",), **PRECISIONS[precision])
    wanted = "UNKNOWN" if is_open else "PROVED"
    assert facts_of(model, "translation")["status"] == wanted
    assert facts_of(model, "floats")["status"] == "PROVED"
    values = run(path)
    assert np.isfinite(values).all()
    if limit is not None:
        # Twice the ulp of the op table for one exp and one log, for the rounding between them.
        assert values[-1] == pytest.approx(limit, rel=16 * float(np.finfo(values.dtype).eps))


# float32 does not represent step 2**24 + 1: what is undefined there is not proved.
@pytest.mark.filterwarnings("ignore::closedform.errors.UnprovedWarning")
@pytest.mark.parametrize("precision", PRECISIONS)
def test_values_are_those_of_the_formula(precision: str, tmp_path: Path) -> None:
    path = tmp_path / "lr.onnx"
    for expr in (LOGISTIC, sp.log(1 + sp.exp(t)), t**4 / (1 + t**4), t**8 * sp.exp(-t)):
        to_onnx(Schedule(expr), path, step_shape=("n",), **PRECISIONS[precision])
        exact = np.array([float(sp.N(expr.subs(t, step), 30)) for step in (0, 1, 2, 50)])
        # exp(8*log(t) - t) rounds an exponent of up to 50, which is off by 50 half ulp, as its
        # exp is; the other forms are off by a few ulp.
        eps = float(np.finfo(run(path).dtype).eps)
        np.testing.assert_allclose(run(path)[:4], exact, rtol=128 * eps, atol=0)


def test_nothing_is_rewritten_where_nothing_overflows() -> None:
    for expr in (
        t**3 / (1 + t**3),
        sp.log(1 + t),
        sp.exp(-t) / (1 + sp.exp(-t)),
        1 / (1 + sp.Rational(1, 2) ** t),
        hyper("scale") * sp.exp(hyper("rate") * t) / (1 + sp.exp(hyper("rate") * t)),
    ):
        assert stable(expr, clock_domain(), LARGEST) == expr


def test_a_product_with_zero_keeps_what_has_no_value() -> None:
    zero = sp.Mul(0, sp.log(t), evaluate=False)
    assert stable(zero, clock_domain(), LARGEST) == zero


def test_other_branches_stay_as_they_are() -> None:
    form = stable(t**40 / (1 + t**40), clock_domain(), LARGEST)
    assert isinstance(form, sp.Piecewise)
    assert form.args[1] == (t**40 / (t**40 + 1), True)
    inside = sp.Piecewise((t**2, t < 5), (LOGISTIC, True))
    assert stable(inside, clock_domain(), LARGEST) == sp.Piecewise(
        (t**2, t < 5), (1 / (1 + sp.exp(-t)), True)
    )


# Formula, the domain, and the step that is named.
REFUSED: dict[str, tuple[Any, int, str]] = {
    "growth": (sp.Integer(2) ** t, 1024, "the value is inf at t = 1024, computed in f64: pow"),
    "an exponential": (sp.exp(t), 710, "the value is inf at t = 710, computed in f64: exp"),
    "a difference": (sp.exp(t) - sp.exp(t / 2), 710, "the value is inf at t = 710"),
}


@pytest.mark.parametrize("name", REFUSED)
def test_what_has_no_stable_form_is_refused(name: str, tmp_path: Path) -> None:
    expr, step, message = REFUSED[name]
    path = tmp_path / "lr.onnx"
    with pytest.raises(LoweringError) as caught:
        to_onnx(Schedule(expr, name="growing"), path)
    assert str(caught.value).startswith(message)
    assert "(schedule 'growing'): if it is not used for so long" in str(caught.value)
    assert f"Schedule(…, domain=(t < {step},))" in str(caught.value)
    assert not path.exists()
    with pytest.raises(LoweringError, match=rf"at t = {step}"):
        to_torch(Schedule(expr))
    to_onnx(Schedule(expr), path, validate=False)
    model = to_onnx(Schedule(expr, domain=(t < step,)), path)
    found = facts_of(model, "floats")
    assert (found["status"], found["steps"]) == ("PROVED", [0, step - 1])
    assert to_torch(Schedule(expr, domain=(t < step,))) is not None


def test_graphs_of_the_study_of_double_float_have_the_same_form() -> None:
    options = GraphOptions(dtype="f32", scalar_dtype="f32", precision="double-float")
    graph = compile_schedule(Schedule(t**8 * sp.exp(-t)), options)
    assert {str(node.type.dtype) for node in graph.nodes} <= {"f32", "i64", "i32", "bool"}


def test_a_product_of_branches() -> None:
    """A factor that overflows, and one that is defined on its branch alone."""
    root = sp.Piecewise((sp.sqrt(1 - t / 5), t < 5), (0, True))
    rise = sp.Piecewise(((2 * t / 15 + sp.Rational(1, 3)) ** 2, t < 5), (1, True))
    schedule = Schedule(sp.Rational(33, 32) ** t * root * rise)
    expected = [float(schedule.exact(step)) for step in range(8)]
    np.testing.assert_allclose(schedule(np.arange(8)), expected, rtol=0, atol=3e-16)

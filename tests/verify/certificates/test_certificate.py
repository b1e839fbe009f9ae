"""Certificates beside mpmath, planted errors of known size, and an engine as bad as it may be."""

import itertools
from dataclasses import replace
from fractions import Fraction
from typing import Any

import mpmath
import numpy as np
import pytest
import sympy as sp
import torch
from flint import arb, fmpq
from hypothesis import HealthCheck, given, note, reject, settings
from hypothesis import strategies as st

import closedform as cf
from closedform.compiler import compile_schedule
from closedform.errors import DomainError, VerificationError
from closedform.exporters.torch_module import to_module
from closedform.ir.evaluate import KERNELS, evaluate
from closedform.ir.graph import Array, Graph
from closedform.ir.ops import OPS, Op
from closedform.ir.types import DType
from closedform.language import Schedule, floor_div, floor_mod, t
from closedform.options import GraphOptions
from closedform.verify.certificates.certificate import certify
from closedform.verify.certificates.error_rules import RULES
from closedform.verify.certificates.errors import analyse, bound_error
from closedform.verify.certificates.measure import Measured, measure, unit_in_last_place
from closedform.verify.certificates.values import ExactValues
from closedform.verify.terms.build import ite, less, multiply, rational
from closedform.verify.terms.limits import LIMITS
from closedform.verify.terms.sympy_io import term
from tests.properties.test_random_expressions import make
from tests.support.exact import UndefinedError, evaluate_exactly, mpf
from tests.support.expressions import reals
from tests.support.sampling import examples
from tests.support.study import STUDY
from tests.test_library import SCHEDULES

relaxed = settings(
    max_examples=examples(80),
    suppress_health_check=[HealthCheck.too_slow, HealthCheck.filter_too_much],
)


# --- exact values ----------------------------------------------------------------------------

# Two float64 hold a value to 2**-105; of the ball, 96 bits are asked for.
EXACT = 2.0**-94


def assert_exact(schedule: Schedule, steps: Any, *, digits: int = 45) -> None:
    high, low = ExactValues(term(schedule.bound)).at([int(step) for step in steps])
    for step, h, rest in zip(steps, high, low, strict=True):
        wanted = mpf(evaluate_exactly(schedule.bound, {t: Fraction(int(step))}))
        error = abs(mpmath.mpf(float(h)) + float(rest) - wanted)
        # mpmath's own 60 digits: what cancels to zero there is zero here.
        zero = mpmath.mpf(10) ** -digits
        assert error <= abs(wanted) * EXACT + zero, (int(step), h, rest, wanted)


@pytest.mark.parametrize("name", SCHEDULES)
def test_values_of_the_library_beside_mpmath(name: str) -> None:
    assert_exact(SCHEDULES[name](), [*range(160), 1000, 2**24 + 1, 2**31 + 7])


@given(reals(3))
@relaxed
def test_values_of_random_expressions_beside_mpmath(expr: Any) -> None:
    note(str(expr))
    schedule = make(expr)
    try:
        # A root halves the digits of what cancels: sqrt(cos(pi/2)) is 1e-30 in mpmath.
        assert_exact(schedule, [*range(22), 29, 30, 31, 39, 40, 41, 81, 1000], digits=28)
    except UndefinedError:
        with pytest.raises(DomainError):
            ExactValues(term(schedule.bound)).at(list(range(22)))
    except DomainError as error:
        # Complex in mpmath, such as (-1)**(2*t/5): drawn by chance, and no schedule.
        if "power of a negative number" not in error.what:
            raise
        reject()


STEPS_OF_CLAMPS = st.integers(-30, 30)


@given(
    STEPS_OF_CLAMPS,
    st.integers(1, 7),
    STEPS_OF_CLAMPS,
    st.sampled_from([sp.Lt, sp.Le, sp.Gt, sp.Ge]),
    st.sampled_from([sp.Lt, sp.Le, sp.Gt, sp.Ge]),
    st.booleans(),
)
@settings(max_examples=examples(200))
def test_thresholds_are_those_of_the_comparisons(
    offset: int, slope: int, other: int, first: Any, second: Any, is_falling: bool
) -> None:
    line = (-slope if is_falling else slope) * t / sp.Integer(3) + offset
    expr = sp.Piecewise((1, first(line, other)), (2, second(t, slope)), (t / 7, True))
    assert_exact(Schedule(expr), range(60))


def test_thousands_of_milestones_cost_one_lookup_a_step() -> None:
    values = [fmpq(k % 97, 89) for k in range(3_000)]
    chain = rational(values[-1])
    for k in range(2_998, -1, -1):
        chain = ite(less(term(t), rational(10 * (k + 1))), rational(values[k]), chain)
    exact = ExactValues(multiply(chain, rational(2)))
    high, _ = exact.at(range(30_000))
    assert np.array_equal(high, np.repeat([2 * int(v.p) / int(v.q) for v in values], 10))
    assert ExactValues(chain).starts == list(range(0, 30_000, 10))


def test_what_has_no_value_is_an_error() -> None:
    with pytest.raises(DomainError, match=r"t = 5"):
        ExactValues(term(1 / (t - 5))).at(range(9))
    with pytest.raises(DomainError, match=r"t = 8"):
        ExactValues(term(sp.Piecewise((1, t < 8)))).at(range(9))
    with pytest.raises(DomainError, match=r"t = 0"):
        ExactValues(term(sp.log(t))).at(range(9))


# --- measuring -------------------------------------------------------------------------------


def measured(outputs: Any, exact: list[Fraction], dtype: DType) -> Measured:
    high = np.array([float(value) for value in exact])
    low = np.array([float(v - Fraction(h)) for v, h in zip(exact, high.tolist(), strict=True)])
    steps = np.arange(len(exact))
    known = [fmpq(value.numerator, value.denominator) for value in exact]
    return measure(steps, np.asarray(outputs, dtype.numpy), high, low, dtype, lambda s: known[s])


@pytest.mark.parametrize("dtype", [DType.F32, DType.F64])
@pytest.mark.parametrize("away", [0, 1, 2, 7, 1000])
def test_planted_errors_are_measured(dtype: DType, away: int) -> None:
    rng = np.random.default_rng(3)
    kind = dtype.numpy.type
    values = rng.uniform(1.1, 1.9, 50).astype(kind)
    third = Fraction(1, 3) * Fraction(float(np.finfo(kind).eps))
    exact = [Fraction(float(value)) + third for value in values]
    outputs = values.copy()
    for _ in range(away):
        outputs[17] = np.nextafter(outputs[17], kind(0))
    found = measured(outputs, exact, dtype)
    assert found.ulp.value == pytest.approx(away + 1 / 3, rel=1e-9)
    assert found.ulp.step == (17 if away else found.ulp.step)
    assert found.rounded == (49 if away else 50)
    assert found.rounded_share == found.rounded / 50
    assert found.relative.value == pytest.approx(
        float((away + Fraction(1, 3)) * Fraction(float(np.finfo(kind).eps)) / exact[17]), rel=0.5
    )


@pytest.mark.parametrize("dtype", [DType.F32, DType.F64])
def test_ulps_of_the_value_and_of_the_scale(dtype: DType) -> None:
    """One value is 2**-10 of the other: what is a unit of it is 2**-10 of the unit of scale."""
    small = Fraction(3, 2) / 2**10
    outputs = np.array([1.5, np.nextafter(dtype.numpy.type(small), dtype.numpy.type(1))])
    found = measured(outputs, [Fraction(3, 2), small], dtype)
    assert found.ulp.step == 1
    assert found.ulp.value == pytest.approx(1)
    assert found.ulp_of_scale.value == pytest.approx(2.0**-10)
    assert found.relative.value == pytest.approx(float(np.finfo(dtype.numpy).eps) / 1.5)


@pytest.mark.parametrize("dtype", [DType.F32, DType.F64])
def test_a_tie_goes_to_the_even_mantissa_and_nothing_else_does(dtype: DType) -> None:
    eps = Fraction(float(np.finfo(dtype.numpy).eps))
    tie = 1 + 3 * eps / 2
    lower, upper = float(1 + eps), float(1 + 2 * eps)
    tiny = eps / 2**200
    for exact, nearest in ((tie, upper), (tie - tiny, lower), (tie + tiny, upper)):
        for output in (lower, upper):
            found = measured([output], [exact], dtype)
            assert bool(found.rounded) == (output == nearest)


@pytest.mark.parametrize("dtype", [DType.F32, DType.F64])
def test_units_at_powers_of_two_zero_and_below_the_normal_numbers(dtype: DType) -> None:
    info = np.finfo(dtype.numpy)
    tiny = float(info.tiny)
    cases = {
        (1.0, 0.0): float(info.eps),
        (1.0, -1e-30): float(info.eps) / 2,
        (1.0, 1e-30): float(info.eps),
        (-1.0, 1e-30): float(info.eps) / 2,
        (0.0, 0.0): float(info.smallest_subnormal),
        (tiny, 0.0): float(info.smallest_subnormal),
        (tiny / 4, 0.0): float(info.smallest_subnormal),
    }
    for (high, low), unit in cases.items():
        assert unit_in_last_place(np.array([high]), np.array([low]), dtype)[0] == unit, (high, low)


@pytest.mark.parametrize("dtype", [DType.F32, DType.F64])
def test_a_value_that_is_met_is_rounded_and_not_asked_for_again(dtype: DType) -> None:
    """A schedule may stay at 0, where half the gap of floats underflows, for a million steps."""

    def exact(step: int) -> Fraction:
        raise AssertionError(f"asked at {step}")

    zeros = np.zeros(3)
    found = measure(np.arange(3), zeros.astype(dtype.numpy), zeros, zeros, dtype, exact)
    assert (found.rounded, found.ulp.value) == (3, 0)


def test_not_a_number_is_infinitely_wrong() -> None:
    found = measured([1.0, np.nan, 2.0], [Fraction(1), Fraction(1), Fraction(2)], DType.F64)
    assert (found.ulp.value, found.ulp.step, found.rounded) == (np.inf, 1, 2)


# --- certificates ----------------------------------------------------------------------------


@pytest.mark.parametrize("last", [10**5, pytest.param(10**6, marks=pytest.mark.exhaustive)])
def test_every_step_of_a_cosine(last: int) -> None:
    """The figures of the measurements: float64 within 2 ulp of scale, float32 correctly rounded."""
    schedule = STUDY["cosine_decay"]
    double = certify(schedule, steps=range(last + 1), engine="onnxruntime")
    assert double.is_exhaustive
    assert double.measured.steps == double.count == last + 1
    assert 0.5 < double.measured.ulp_of_scale.value <= 2
    single = cf.certify(schedule, steps=range(last + 1), engine="onnxruntime", dtype="f32")
    assert single.measured.rounded_share >= 0.9999
    assert (double.dtype, single.dtype) == (DType.F64, DType.F32)


def test_the_step_of_a_planted_fault_is_named() -> None:
    schedule = STUDY["wsd_sqrt"]
    graph = compile_schedule(schedule, GraphOptions(step_shape=("n",)))

    def engine(steps: Array) -> Array:
        values = evaluate(graph, {"step": steps})["value"]
        return np.where(steps == 9_999, values * (1 + 1e-12), values)

    found = certify(schedule, graph, range(20_000), engine=engine)
    assert found.measured.ulp.step == found.measured.relative.step == 9_999
    assert found.measured.relative.value == pytest.approx(1e-12, rel=1e-3)
    assert found.engine == "engine"


@pytest.mark.parametrize("offset", [-1, 1])
def test_a_schedule_that_is_one_step_off_is_seen(offset: int) -> None:
    schedule = cf.schedules.cosine(1e-3, 1e-5, 1000)
    other = compile_schedule(
        cf.schedules.cosine(1e-3, 1e-5, 1000 + offset), GraphOptions(step_shape=("n",))
    )
    assert certify(schedule, other).measured.relative.value > 1e-4


def test_engines_are_distinguished_and_agree() -> None:
    schedule = STUDY["inverse_time"]
    graph = compile_schedule(schedule, GraphOptions(step_shape=("n",), dtype="f32"))
    module = to_module(graph)

    def in_torch(steps: Array) -> Array:
        with torch.no_grad():
            return np.asarray(module(torch.from_numpy(steps)).numpy())

    found = [certify(schedule, graph, range(5000), engine=e) for e in ("onnxruntime", in_torch)]
    assert [one.engine for one in found] == ["onnxruntime", "in_torch"]
    assert found[0].measured == found[1].measured
    assert found[0].measured.rounded == 5000


def test_steps_may_be_listed_and_are_by_default_those_of_the_schedule() -> None:
    schedule = cf.schedules.cosine(1e-3, 1e-5, 700)
    assert (certify(schedule).first, certify(schedule).last) == (0, 700)
    assert cf.certify(cf.schedules.constant(0.1), dtype="f32").last == 10**6 - 1
    listed = certify(schedule, steps=[5, 3, 5, 900])
    assert (listed.first, listed.last, listed.count, listed.is_exhaustive) == (3, 900, 3, True)


def test_a_long_range_is_sampled_at_its_milestones_and_bounded() -> None:
    schedule = STUDY["wsd_sqrt"]
    seen: list[Array] = []
    graph = compile_schedule(schedule, GraphOptions(step_shape=("n",)))

    def engine(steps: Array) -> Array:
        seen.append(steps)
        return evaluate(graph, {"step": steps})["value"]

    found = certify(schedule, graph, range(2**31), engine=engine)
    steps = set(np.concatenate(seen).tolist())
    near = {m + k for m in (10_000, 810_000, 10**6, 2**24, 2**30) for k in range(-3, 4)}
    assert {0, 1, 2**31 - 1, 2**31 - 500} | near <= steps
    assert not found.is_exhaustive
    assert 20_000 < found.measured.steps == len(steps) < 40_000
    assert found.bound is not None
    assert found.measured.ulp_of_scale.value * 2.0**-62 <= found.bound.absolute
    assert certify(schedule, graph, range(LIMITS.exhaustive_steps)).bound is None


def test_the_text_tells_proved_from_measured() -> None:
    schedule = cf.schedules.cosine(1e-3, 1e-5, 1000)
    text = str(cf.certify(schedule, steps=range(1001), dtype="f32"))
    assert text.splitlines()[:2] == [
        "schedule 'cosine' in evaluate, f32, 1,001 steps from 0 to 1000",
        "proved, each of these 1,001 steps compared with ball arithmetic:",
    ]
    assert "correctly rounded: 100.0000 % (0 are not)" in text
    assert "measured" not in text
    text = str(certify(schedule, steps=range(2**31)))
    assert "of them, not proved at the others:" in text.splitlines()[1]
    assert text.splitlines()[1].startswith("measured at 2")
    assert "proved at every step, by error analysis on" in text
    assert "provided that each operation is as near as the op table says" in text
    graph = cf.compile(
        schedule, step_shape=("n",), dtype="f32", scalar_dtype="f32", precision="double-float"
    )
    assert "no bound below the values was found" in str(certify(schedule, graph, range(2**31)))


@pytest.mark.parametrize(
    ("call", "message"),
    [
        (
            lambda: certify(Schedule(sp.Symbol("peak") * t, name="s")),
            "the symbol peak has no value (schedule 's'): bind it first",
        ),
        (
            lambda: certify(Schedule(t, name="s"), steps=range(3, 3)),
            "steps must not be empty, got range(3, 3) (schedule 's')",
        ),
        (
            lambda: certify(Schedule(t, name="s"), steps=[4, -2]),
            "steps must be in 0..2**53, got -2 (schedule 's')",
        ),
        (
            lambda: certify(Schedule(t, name="s"), steps=range(2**53 + 2)),
            f"steps must be in 0..2**53, got {2**53 + 1} (schedule 's')",
        ),
        (
            lambda: certify(Schedule(t, name="s"), cf.compile(Schedule(t))),
            "the graph must take an array of steps, got i64[] (schedule 's'): "
            'compile it with step_shape=("n",)',
        ),
        (
            lambda: certify(
                Schedule(t, name="s"),
                cf.compile(Schedule(sp.Symbol("a") * t), step_shape=("n",), inputs=("a",)),
            ),
            "the step must be the one input, got ['step', 'a'] (schedule 's')",
        ),
        (
            lambda: certify(Schedule(t, name="s"), steps=range(-3, 2)),
            "steps must be in 0..2**53, got -3 (schedule 's')",
        ),
        (
            lambda: certify(Schedule(t, name="s"), engine="tvm"),
            "the engine must be evaluate, onnxruntime or a function, got 'tvm'",
        ),
        (
            lambda: certify(Schedule(t, name="s"), steps=range(5), engine=lambda s: s),
            "the engine must return float32 or float64 of shape (5,), got int64 of shape (5,) "
            "(schedule 's')",
        ),
    ],
)
def test_what_cannot_be_certified_is_refused(call: Any, message: str) -> None:
    with pytest.raises(VerificationError) as caught:
        call()
    assert str(caught.value) == message


# --- bounds ----------------------------------------------------------------------------------


def intervals(last: int) -> tuple[Array, Array]:
    """Intervals of steps, from single ones to long ones."""
    starts = np.unique([0, 1, 2, 3, 10, 30, 100, 140, *np.linspace(150, last, 12).astype(int)])
    return starts, np.append(starts[1:] - 1, last)


def noisy(graph: Graph, steps: Array, seed: int) -> Array:
    """The result of an engine whose operations are as bad as the op table allows."""
    rng = np.random.default_rng(seed)
    values: list[Array] = []
    for node in graph.nodes:
        operands = tuple(values[operand] for operand in node.operands)
        if node.op is Op.INPUT:
            operands = (steps,)
        with np.errstate(all="ignore"):
            value = np.asarray(KERNELS[node.op](node, operands, {"n": steps.size}))
            # NumPy's own result is within an ulp, so the rest of the grant is what is added.
            allowed = max(OPS[node.op].ulp - 1, 0) if node.op is not Op.REDUCE_SUM else 0
            unit = np.spacing(np.ones_like(value) if node.op in (Op.COS, Op.SIN) else value)
            # log(1) and other results that are 0 are exact: the grant is relative to the result.
            unit = np.where(value == 0, 0, unit) if node.op not in (Op.COS, Op.SIN) else unit
            if allowed:
                value = value + rng.choice([-1, 1], value.shape) * unit * value.dtype.type(allowed)
        values.append(value)
    return values[graph.outputs[0].index]


OPTIONS: dict[str, dict[str, Any]] = {
    "f64": {},
    "f32": {"dtype": "f32"},
    "f32 alone": {"dtype": "f32", "scalar_dtype": "f32"},
}
SEVERAL = {**{name: make_one() for name, make_one in SCHEDULES.items()}, **STUDY}


@pytest.mark.sample(every=4)
@pytest.mark.parametrize(("name", "options"), list(itertools.product(SEVERAL, OPTIONS)))
def test_no_allowed_engine_is_beyond_the_bound(name: str, options: str) -> None:
    schedule = SEVERAL[name]
    graph = compile_schedule(schedule, GraphOptions(step_shape=("n",), **OPTIONS[options]))
    lows, highs = intervals(1_200_000 if name in STUDY else 400)
    found = analyse(graph, lows, highs)
    rng = np.random.default_rng(1)
    inner = [rng.integers(low, high + 1, 12) for low, high in zip(lows, highs, strict=True)]
    steps = np.concatenate([lows, highs, *inner])
    place = np.searchsorted(lows, steps, side="right") - 1
    high, low = ExactValues(term(schedule.bound)).at(sorted(steps.tolist()))
    order = np.argsort(np.argsort(steps, kind="stable"), kind="stable")
    exact = high[order]
    slack = np.abs(exact) * 2.0**-52
    assert (found.low[place] <= exact + slack).all()
    assert (exact - slack <= found.high[place]).all()
    for seed in range(2):
        values = noisy(graph, steps, seed).astype(np.float64)
        with np.errstate(invalid="ignore"):
            error = np.abs((values - exact) - low[order])
        is_out = ~(error <= found.error[place])
        assert not is_out.any(), (
            steps[is_out][:3],
            error[is_out][:3],
            found.error[place][is_out][:3],
        )


ONE_STEP = {
    **SEVERAL,
    "many milestones": Schedule(
        sp.Piecewise(*((sp.Rational(1, 3) ** k, t < 7 * k) for k in range(1, 40)), (0, True))
    ),
}


@pytest.mark.sample(every=6)
@pytest.mark.parametrize(("name", "options"), list(itertools.product(ONE_STEP, OPTIONS)))
def test_no_allowed_engine_is_beyond_the_bound_of_one_step(name: str, options: str) -> None:
    schedule = ONE_STEP[name]
    lows, highs = intervals(400)
    graph = compile_schedule(schedule, GraphOptions(**OPTIONS[options]))
    found = analyse(graph, lows, highs)
    exact = ExactValues(term(schedule.bound))
    for low, high, bound in zip(lows, highs, found.error, strict=True):
        for step in {int(low), int(low + high) // 2, int(high)}:
            main, rest = (Fraction(float(part[0])) for part in exact.at([step]))
            value = Fraction(float(noisy(graph, np.asarray(step), step)))
            assert np.isinf(bound) or abs(value - main - rest) <= Fraction(float(bound)), step


def test_a_graph_of_one_step_has_the_bound_of_its_milestones() -> None:
    graph = compile_schedule(ONE_STEP["many milestones"], GraphOptions())
    assert any(node.op is Op.REDUCE_SUM or node.op is Op.LOOKUP for node in graph.nodes)
    assert bound_error(graph, 0, 400, range(7, 280, 7)).absolute < 1e-16


# In ulp of scale: what is proved of float64 graphs up to 2**31, at most a few times what is seen.
PROVED = {
    "linear": 2,
    "cosine_decay": 4,
    "cosine_annealing": 4,
    "decay_096": 6,
    "decay_099999": 6,
    "inverse_sqrt": 3,
    "polynomial_09": 7,
    "wsd_sqrt": 3,
    "inverse_time": 2,
    "step": 11,
}


@pytest.mark.parametrize("name", STUDY)
def test_bounds_of_the_study_are_tight(name: str) -> None:
    graph = compile_schedule(STUDY[name], GraphOptions(step_shape=("n",)))
    found = bound_error(graph, 0, 2**31 - 1, ExactValues(term(STUDY[name].bound)).starts)
    assert found.absolute <= PROVED[name] * np.spacing(1e-3)
    assert found.intervals <= 4096


def test_a_rule_for_every_op_but_random_numbers() -> None:
    without = {Op.INPUT, Op.UNIFORM}
    assert set(RULES) == set(Op) - without


def test_an_op_without_a_rule_is_refused() -> None:
    graph = compile_schedule(Schedule(t / 7), GraphOptions(step_shape=("n",)))
    nodes = [replace(n, op=Op.UNIFORM) if n.op is Op.DIV else n for n in graph.nodes]
    with pytest.raises(VerificationError, match="the error of uniform has no rule"):
        bound_error(replace(graph, nodes=tuple(nodes)), 0, 9)


@pytest.mark.parametrize(
    "expr",
    [
        floor_mod(t, 7) / sp.Integer(3),
        floor_div(3 * t + 1, 5) / sp.Integer(7),
        sp.cos(sp.pi * floor_mod(t, 100) / 50),
        sp.Max(sp.sqrt(t) - 10, 0) ** sp.Rational(1, 3),
        sp.Piecewise((1, sp.sqrt(t) < sp.Rational(71, 10)), (t / 9, True)),
        sp.Abs(sp.sin(sp.pi * t / 64)) * sp.exp(-t / 100) + sp.log(1 + t / 3),
    ],
    ids=str,
)
def test_bounds_of_single_ops(expr: Any) -> None:
    schedule = Schedule(expr)
    graph = compile_schedule(schedule, GraphOptions(step_shape=("n",)))
    lows, highs = intervals(3000)
    found = analyse(graph, lows, highs)
    steps = np.arange(3001)
    high, low = ExactValues(term(expr)).at(range(3001))
    values = noisy(graph, steps, 5)
    error = np.abs((values - high) - low)
    place = np.searchsorted(lows, steps, side="right") - 1
    assert (error <= found.error[place]).all()


@pytest.mark.parametrize(
    "expr",
    [
        sp.Pow(2, -(10**11) * t),  # its exponents take 57 of the 128 bits
        sp.Rational(2, 3) ** (10**9 * t),
        sp.cos(sp.pi * t / 10**6) - sp.cos(sp.pi * (t + sp.Rational(1, 10**12)) / 10**6),
    ],
)
def test_more_digits_are_asked_of_the_compiled_function(
    expr: Any, monkeypatch: pytest.MonkeyPatch
) -> None:
    values = ExactValues(term(expr))
    steps = [*range(1, 5), *range(999_990, 10**6)]
    exact = [arb(values.at_step(step)) for step in steps]
    # Node by node, a million of such steps took a minute.
    monkeypatch.setattr(ExactValues, "at_step", None)
    high, low = values.at(steps)
    for ball, first, second in zip(exact, high, low, strict=True):
        assert abs(ball - arb(first) - arb(second)) <= abs(ball) * arb(2) ** -95 + arb(2) ** -1074


def test_an_exact_zero_of_irrational_terms_is_zero() -> None:
    elapsed = sp.Min(t, 320_000)
    values = ExactValues(term(sp.sqrt(2) / 4 - sp.sqrt(2) * elapsed / 1_280_000))
    assert values.at_step(320_000) == 0
    assert values.at([320_000, 400_000])[0].tolist() == [0, 0]
    near = ExactValues(term(sp.sqrt(2) * sp.Rational(1, 2**1070)))
    assert near.at_step(0) > 0


def test_steps_that_are_not_correctly_rounded_are_listed() -> None:
    steps = np.arange(40)
    exact = np.full(40, 0.1)
    outputs = exact.astype(np.float32)
    outputs[7::2] = np.nextafter(outputs[7], np.float32(1))
    measured = measure(steps, outputs, exact, np.zeros(40), DType.F32, lambda _: fmpq(1, 10))
    assert measured.misrounded == tuple(range(7, 27, 2))
    assert measured.rounded == 40 - len(range(7, 40, 2))

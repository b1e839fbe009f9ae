"""Files whose host counts: an honest one is never REFUTED, a fault never PROVED, a run is real."""

from collections.abc import Callable
from dataclasses import replace
from functools import partial
from itertools import product
from typing import Any

import onnx
import onnx.parser
import pytest
import sympy as sp

import closedform as cf
from closedform import optimizers
from closedform.errors import ArgumentError, VerificationError
from closedform.language import GRAD, PARAM, State, UpdateRule, hyper, state, t
from closedform.referee.judgement import judge_step
from tests.referee.host_steps import (
    CLOCKS,
    assert_run_shows,
    step_of,
    with_next_floats,
)
from tests.verify.translation.test_rule_faults import (
    with_eps_inside,
    with_sign,
    without_correction,
)

SHAPES = {"w": (2, 3)}
RULES: dict[str, UpdateRule] = {
    "adamw": optimizers.adamw(0.01, weight_decay=0.1),
    "adam": optimizers.adam(0.001),
    "nadam": optimizers.nadam(0.01),
    "radam": optimizers.radam(0.01),
    "adamax": optimizers.adamax(0.01),
    "lamb": optimizers.lamb(0.01),
    "scheduled": optimizers.sgd(cf.schedules.inverse_time(0.1, 0.5, 1), momentum=0.9),
}
HONEST = [(name, clock) for name, clock in product(RULES, CLOCKS) if clock != "f32 from 1"]


@pytest.mark.sample(every=5)
@pytest.mark.parametrize(("name", "clock"), HONEST)
def test_a_host_may_count(name: str, clock: str) -> None:
    rule = RULES[name]
    model, ports = step_of(rule, SHAPES, clock)
    judgement = judge_step(model, rule, ports=ports)
    assert judgement.verdict.proved, judgement.verdict
    begin = CLOCKS[clock][2]
    meaning = f"t + {begin}" if begin else "t"
    assert judgement.renamed[-1] == ("shared.step", f"{meaning}, given by the host")
    # Without its first value the count may begin with 0 or 1.
    del ports["initial_states"]["step"]
    assert judge_step(model, rule, ports=ports).verdict.proved


@pytest.mark.parametrize("clock", ["i64", "from 1"])
def test_a_file_with_the_next_floats_is_not_refuted(clock: str) -> None:
    """Its constants of float64 round to other numbers, which float32 does not show."""
    model, ports = step_of(RULES["adam"], SHAPES, clock)
    verdict = judge_step(with_next_floats(model), RULES["adam"], ports=ports).verdict
    assert verdict.unknown, verdict


def test_a_difference_below_the_floats_is_not_a_refutation() -> None:
    rule = optimizers.sgd(cf.schedules.inverse_time(0.1, 0.3, 1))
    model, ports = step_of(rule, SHAPES, "i64")
    changed = with_next_floats(model, 1 + 1e-11)
    assert changed != model
    verdict = judge_step(changed, rule, ports=ports).verdict
    assert verdict.unknown, verdict
    assert verdict.reason.endswith(", which the floats of the file do not show")


FAULTS: dict[str, Callable[[UpdateRule], UpdateRule]] = {
    "decay": lambda rule: rule.bind(weight_decay=0.01),
    "eps in the root": with_eps_inside,
    "no correction": without_correction,
    "sign": with_sign,
}


@pytest.mark.sample(every=3)
@pytest.mark.parametrize(("fault", "clock"), list(product((*FAULTS, "late"), CLOCKS)))
def test_a_fault_is_a_run_in_onnxruntime(fault: str, clock: str) -> None:
    rule = RULES["adamw"]
    if fault == "late":
        file = step_of(rule, SHAPES, clock, late=1)
    else:
        file = step_of(FAULTS[fault](rule), SHAPES, clock)
    judgement = judge_step(file[0], rule, ports=file[1])
    assert judgement.verdict.refuted, judgement.verdict
    difference = judgement.difference
    assert difference is not None
    assert difference.engine == "onnxruntime"
    assert_run_shows(difference, file, step_of(rule, SHAPES, clock))


@pytest.mark.parametrize(("eps", "decay"), [(1e-8, 0.01), (1e-8, 0.0), (1e-6, 0.01), (1e-12, 0.01)])
def test_eps_inside_of_the_root(eps: float, decay: float) -> None:
    """``sqrt(v + eps**2)``: a difference of ten digits, but where gradients are as small as eps."""
    rule = optimizers.adamw(1e-3, eps=eps, weight_decay=decay)
    symbol = next(symbol for symbol in rule.param.free_symbols if symbol.name == "eps")
    inside = with_eps_inside(rule)
    inside = replace(inside, param=inside.param.xreplace({symbol: symbol**2}))
    file = step_of(inside, SHAPES, "i64")
    judgement = judge_step(file[0], rule, ports=file[1])
    assert judgement.verdict.refuted, judgement.verdict
    assert judgement.difference is not None
    assert_run_shows(judgement.difference, file, step_of(rule, SHAPES, "i64"))


@pytest.mark.parametrize("clock", ["i64", "from 1"])
def test_a_fault_after_a_warmup_is_a_run(clock: str) -> None:
    """Gradients of 0 until the last step of the warmup leave the states as they begin."""

    def rule_of(last: sp.Rational) -> UpdateRule:
        rate = cf.Schedule(sp.Piecewise((sp.Rational(1, 100), t < 40), (last, True)))
        return optimizers.adamw(rate)

    rule = rule_of(sp.Rational(1, 1000))
    file = step_of(rule_of(sp.Rational(1, 500)), SHAPES, clock)
    judgement = judge_step(file[0], rule, ports=file[1])
    assert judgement.verdict.refuted, judgement.verdict
    difference = judgement.difference
    assert difference is not None
    assert difference.steps > 40
    assert_run_shows(difference, file, step_of(rule, SHAPES, clock))
    late = step_of(rule, SHAPES, clock, late=1)
    assert judge_step(late[0], rule, ports=late[1]).verdict.refuted


# --- what else the host gives --------------------------------------------------------------------

POWERS = """
<ir_version: 8, opset_import: ["" : 17]>
step (float[4] w, float[4] g, float[4] m, float power{inputs})
    => (float[4] next_w, float[4] next_m{outputs})
<float beta = {{0.9}}, float rest = {{0.1}}, float rate = {{{rate}}}, float one = {{1.0}}>
{{
    a = Mul (beta, m)
    b = Mul (rest, g)
    next_m = Add (a, b)
    {nodes}
    c = Sub (one, {power})
    d = Mul (rate, next_m)
    e = Div (d, c)
    next_w = Sub (w, e)
}}"""
AVERAGE = hyper("beta") * state("m") + (1 - hyper("beta")) * GRAD
CORRECTED = UpdateRule(
    "momentum",
    PARAM - hyper("lr") * AVERAGE / (1 - hyper("beta") ** (t + 1)),
    {"m": State(AVERAGE)},
    {"lr": 0.01, "beta": 0.9},
)
ROLES = {"w": "param.w", "g": "grad.w", "m": "state.w.m"}
REPLACED = {"next_w": "param.w", "next_m": "state.w.m"}


ADVANCED: dict[str, Any] = {
    "outputs": ", float next_power",
    "nodes": "next_power = Mul (beta, power)",
}


def powers(rate: float = 0.01, **parts: Any) -> onnx.ModelProto:
    fields = {"inputs": "", "outputs": "", "nodes": "", "power": "power", "rate": rate, **parts}
    return onnx.parser.parse_model(POWERS.format(**fields))


@pytest.mark.parametrize("first", [0.9, None])
@pytest.mark.parametrize("is_given", [True, False])
def test_a_power_of_a_decay(first: float | None, is_given: bool) -> None:
    """As the files of Paddle and TensorFlow have it: ``beta1_power``, advanced or given."""
    initial = {} if first is None else {"state.power": first}
    ports = {
        "inputs": {**ROLES, "power": "state.power"},
        "outputs": REPLACED if is_given else {**REPLACED, "next_power": "state.power"},
        "initial_states": {"state.w.m": [0, 0, 0, 0], **initial},
    }
    host = partial(powers) if is_given else partial(powers, **ADVANCED)
    judgement = judge_step(host(), CORRECTED, ports=ports)
    assert judgement.verdict.proved, judgement.verdict
    given = ", given by the host" if is_given else ""
    assert judgement.renamed[-1] == ("shared.power", f"(9/10)^(t + 1){given}")
    fault = judge_step(host(rate=0.02), CORRECTED, ports=ports).verdict
    # Without its first value a power may begin with any number.
    assert fault.refuted == (first is not None and not is_given), fault
    if first is None and not is_given:
        assert fault.reason == (
            "the first value of shared.power is not known: state it, initial_states"
        )
    if is_given:
        assert fault.reason == (
            "no output replaces shared.power, and its values are not known: name it 'step' where "
            "it counts the steps"
        )


@pytest.mark.parametrize("role", ["is_last", "state.is_last"])
def test_a_flag_of_the_host_may_have_any_value(role: str) -> None:
    model = powers(
        inputs=", bool is_last", nodes="choice = Where (is_last, power, one)", power="choice"
    )
    ports = {**ROLES, **REPLACED, "power": "step", "is_last": role}
    verdict = judge_step(model, CORRECTED, ports=ports).verdict
    assert verdict.unknown, verdict


def test_the_rate_of_the_host_is_a_hyperparameter() -> None:
    model = onnx.parser.parse_model("""
<ir_version: 8, opset_import: ["" : 17]>
step (float[4] w, float[4] g, float rate, int64 step) => (float[4] next_w)
<int64 one = {1}>
{
    n = Add (step, one)
    f = Cast <to = 1> (n)
    r = Div (rate, f)
    d = Mul (r, g)
    next_w = Sub (w, d)
}""")
    rule = UpdateRule("sgd", PARAM - hyper("rate") * GRAD / (t + 1), {}, {"rate": None})
    ports = {"w": "param.w", "g": "grad.w", "rate": "rate", "step": "step", "next_w": "param.w"}
    assert judge_step(model, rule, ports=ports).verdict.proved
    late = UpdateRule("late", PARAM - hyper("rate") * GRAD / (t + 3), {}, {"rate": None})
    judgement = judge_step(model, late, ports=ports)
    assert judgement.verdict.refuted
    assert judgement.difference is not None
    assert {"rate at t = 0", "shared.step at t = 0"} <= judgement.difference.tensors.keys()
    # The same ports make a rule.
    assert judge_step(model, cf.from_onnx(model, ports=ports), ports=ports).verdict.proved
    by_use = judge_step(model, rule).verdict
    assert by_use.unknown
    assert by_use.reason == (
        "the input 'step' of the file may have any value: where it counts the steps, say so in the "
        'ports, "step": "step"; of any other, compare closedform.from_onnx(file, ports=…)'
        ".bind(step=…)"
    )


@pytest.mark.parametrize("begin", [None, 0, 1])
@pytest.mark.parametrize("clock", ["i64", "f32 from 1"])
def test_a_rule_of_a_file_whose_host_counts(clock: str, begin: int | None) -> None:
    model, ports = step_of(RULES["adam"], SHAPES, clock)
    del ports["initial_states"]["step"]
    if begin is not None:
        ports["initial_states"]["step"] = begin
    rule = cf.from_onnx(model, ports=ports)
    # Without a first value the clock is t, which is 0 at the first step.
    is_right = (begin or 0) == CLOCKS[clock][2]
    other, other_ports = step_of(RULES["adam"], SHAPES, "i64")
    assert judge_step(other, rule, ports=other_ports).verdict.proved == is_right


def test_a_rule_has_no_value_for_what_a_host_gives() -> None:
    ports = {**ROLES, **REPLACED, "power": "state.power"}
    with pytest.raises(VerificationError) as caught:
        cf.from_onnx(powers(), ports=ports)
    assert str(caught.value) == (
        "no output replaces shared.power, and a rule has no value for it (ports): name it 'step' "
        "where it counts the steps; of any other, make it a hyperparameter, 'power', and bind that"
    )
    rule = cf.from_onnx(powers(), ports={**ports, "power": "power"})
    assert isinstance(rule, UpdateRule)
    bound = rule.bind(power=cf.Schedule(sp.Rational(9, 10) ** (t + 1)))
    assert cf.claims.same_rule(bound, CORRECTED).verify().status.value == "PROVED"


def test_a_parameter_that_nothing_replaces() -> None:
    model = powers()
    ports = {"inputs": {**ROLES, "power": "step"}, "outputs": {"next_m": "state.w.m"}}
    with pytest.raises(ArgumentError, match="no output replaces the parameter 'w'"):
        judge_step(model, CORRECTED, ports=ports)

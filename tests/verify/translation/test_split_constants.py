"""A constant in two floats is one number; a wrong rest is never proved to be the right one."""

from dataclasses import replace
from pathlib import Path

import numpy as np
import pytest
import sympy as sp
from flint import fmpq

import closedform as cf
from closedform.compiler import compile_schedule
from closedform.ir import Builder, DType, Graph, Op, Role, TensorType
from closedform.language import Schedule, t
from closedform.options import GraphOptions
from closedform.recipes import load_schedules
from closedform.verify.certificates.certificate import certify
from closedform.verify.terms import build
from closedform.verify.translation.constants import (
    Constants,
    rounding_interval,
    with_split_constants,
)
from closedform.verify.translation.translation import validate
from tests.reference.records import CEREBRAS

CONFIG = CEREBRAS / "13b_bs1080-b97243.yaml"
MIDDLE = fmpq(66, 10**6)  # of a cosine from 120 to 12 millionths
HIGH = 66e-6
LOW = float(sp.Rational(66, 10**6) - sp.Rational(HIGH))


def fall(middle: sp.Rational) -> Schedule:
    return Schedule(
        middle + sp.Rational(54, 10**6) * sp.cos(sp.pi * sp.Min(t, 116054) / 116054), name="fall"
    )


FALL = fall(sp.Rational(66, 10**6))


def with_constant(graph: Graph, before: float, after: float) -> Graph:
    """The graph with another number in the one constant of this value."""
    (place,) = [
        index
        for index, node in enumerate(graph.nodes)
        if node.op is Op.CONST and node.array().tolist() == before
    ]
    node = graph.nodes[place]
    data = np.array(after, node.type.dtype.numpy).tobytes()
    attributes = tuple(sorted({**dict(node.attributes), "data": data}.items()))
    nodes = (*graph.nodes[:place], replace(node, attributes=attributes), *graph.nodes[place + 1 :])
    return replace(graph, nodes=nodes)


def added(*constants: float, dtype: DType = DType.F64, is_first: bool = False) -> Graph:
    """The step, and constants added to it one after another."""
    builder = Builder("sum")
    step = builder.input("step", TensorType(DType.I64), Role.STEP)
    value = builder.emit(Op.CAST, step, to=dtype)
    for number in constants:
        constant = builder.const(number, dtype)
        value = builder.emit(Op.ADD, *((constant, value) if is_first else (value, constant)))
    builder.output("value", value)
    return builder.build()


def test_the_graph_holds_the_middle_in_two_floats_and_is_proved() -> None:
    graph = compile_schedule(FALL)
    stored = [node.array().tolist() for node in graph.nodes if node.op is Op.CONST]
    assert stored.index(LOW) < stored.index(HIGH)
    assert -0.5 < LOW / np.spacing(HIGH) < -0.3
    assert validate(FALL, graph).proved


def test_the_config_that_needs_it_is_proved() -> None:
    (schedule,) = load_schedules(CONFIG)[0].values()
    graph = compile_schedule(schedule)
    assert LOW in [node.array().tolist() for node in graph.nodes if node.op is Op.CONST]
    assert validate(schedule, graph).proved


@pytest.mark.parametrize("is_first", [False, True])
def test_two_parts_are_one_number_in_whatever_order_they_are_added(is_first: bool) -> None:
    read = with_split_constants(Constants(), added(LOW, HIGH, is_first=is_first))
    assert read(HIGH, DType.F64) == build.rational(HIGH)
    total = build.add(read(LOW, DType.F64), read(HIGH, DType.F64))
    assert total == build.rational(MIDDLE)


def test_each_part_stays_within_half_a_unit_in_its_last_place() -> None:
    read = with_split_constants(Constants(), added(LOW, HIGH))
    for number in (LOW, HIGH):
        low, high = rounding_interval(number, DType.F64)
        assert low <= read(number, DType.F64).value <= high


@pytest.mark.parametrize(
    "constants",
    [(HIGH, LOW), (LOW,), (HIGH,), (1e-3, HIGH), (0.0, HIGH), (-LOW, HIGH), (2 * LOW, HIGH)],
    ids=["large first", "rest alone", "no rest", "no rounding", "zero", "sign", "twice"],
)
def test_what_is_not_a_number_in_two_parts_is_read_as_before(constants: tuple[float, ...]) -> None:
    plain = Constants()
    read = with_split_constants(plain, added(*constants))
    for number in constants:
        assert read(number, DType.F64) == plain(number, DType.F64)


def test_float32_has_such_constants_too() -> None:
    high = float(np.float32(0.1))
    low = float(np.float32(0.1 - high))
    graph = added(low, high, dtype=DType.F32)
    schedule = Schedule(t + sp.Rational(1, 10))
    assert validate(schedule, graph).proved
    assert not validate(schedule, added(-low, high, dtype=DType.F32)).proved


def test_a_number_of_the_source_is_found_where_no_simple_one_is() -> None:
    """With 60 bits, and only there: this is not the number of another source."""
    number = sp.Rational("0.1234567890123456789")
    high = float(number)
    low = float(number - sp.Rational(high))
    graph = added(low, high)
    assert validate(Schedule(t + number), graph).proved
    beside = number + sp.Rational(1, 10**19)
    assert float(beside) == high
    assert not validate(Schedule(t + beside), graph).proved


# --- planted faults -------------------------------------------------------------------------------

WRONG = {"sign": -LOW, "twice": 2 * LOW, "half": LOW / 2, "of another": 3.1e-21}


@pytest.mark.parametrize("fault", WRONG)
def test_a_wrong_rest_is_not_proved(fault: str) -> None:
    graph = with_constant(compile_schedule(FALL), LOW, WRONG[fault])
    assert not validate(FALL, graph).proved


def test_a_rest_with_the_wrong_sign_is_refuted_where_it_is_large() -> None:
    """It is 0.37 units; so no number that rounds to the large constant is then the middle."""
    graph = with_constant(compile_schedule(FALL), LOW, -LOW)
    verdict = validate(FALL, graph)
    assert verdict.refuted, verdict


def test_a_rest_without_its_number_is_refuted() -> None:
    graph = with_constant(compile_schedule(FALL), HIGH, 0.0)
    assert validate(FALL, graph).refuted


@pytest.mark.parametrize("part", [LOW, HIGH])
def test_a_part_one_unit_away_is_not_proved(part: float) -> None:
    for direction in (-1.0, 1.0):
        graph = with_constant(compile_schedule(FALL), part, float(np.nextafter(part, direction)))
        assert not validate(FALL, graph).proved


def test_a_rest_that_is_dropped_leaves_a_rounded_constant_which_the_certificate_sees() -> None:
    """As in every graph without a rest: it is the right function, 2.06 ulp off at some steps."""
    graph = compile_schedule(FALL, GraphOptions(step_shape=("n",)))
    dropped = with_constant(graph, LOW, 0.0)
    assert validate(FALL, dropped).proved
    steps = range(24_500, 25_500)
    whole, part = (
        certify(FALL, each, steps, engine="onnxruntime").measured.ulp_of_scale.value
        for each in (graph, dropped)
    )
    assert whole < 2 < part


def test_another_middle_that_rounds_alike_is_not_proved() -> None:
    """Without the rest it is: a rounded constant does not tell the two numbers apart."""
    other = fall(sp.Rational(66, 10**6) + sp.Rational(1, 10**23))
    graph = compile_schedule(FALL)
    assert not validate(other, graph).proved
    assert validate(other, with_constant(graph, LOW, 0.0)).proved


def test_a_large_part_that_stands_for_another_number_as_well_is_unknown() -> None:
    """A float has one meaning in a graph: it cannot be 66 millionths here and less of it there."""
    both = Schedule(sp.Piecewise((sp.Rational(66, 10**6) * t, t < 9), (FALL.expr, True)))
    graph = compile_schedule(both)
    stored = [node.array().tolist() for node in graph.nodes if node.op is Op.CONST]
    assert LOW in stored
    assert stored.count(HIGH) == 1
    assert validate(both, graph).unknown


def test_a_file_with_such_a_constant_is_read_as_its_schedule(tmp_path: Path) -> None:
    path = tmp_path / "fall.onnx"
    cf.to_onnx(FALL, path)
    found = cf.from_onnx(path)
    assert found.exact(0) == sp.Rational(12, 10**5)
    assert found.exact(116054) == sp.Rational(12, 10**6)
    assert cf.from_onnx(path, stored=True).exact(0) != found.exact(0)

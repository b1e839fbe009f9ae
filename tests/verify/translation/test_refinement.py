"""A graph has a value wherever its rule has one, and integers where its rule has integers."""

import pytest

from closedform.compiler import compile_step
from closedform.effort import Effort
from closedform.ir import Builder, DType, Op, Role, TensorType
from closedform.language import GRAD, PARAM, UpdateRule
from closedform.lowering import model as lowering
from closedform.options import ModelSpec
from closedform.verify.identity.equality import StepRange
from closedform.verify.terms import build
from closedform.verify.terms.build import divide, log, square_root, symbol
from closedform.verify.terms.tree import Term
from closedform.verify.translation.refinement import undefined_parts
from closedform.verify.translation.refutation import CLOCK
from closedform.verify.translation.translation import validate
from tests.test_library import OPTIMIZERS
from tests.verify.faults import TRANSFORMED

STEPS = StepRange(CLOCK, 0, 2**50)
x, y = symbol("x"), symbol("y")
ADDED = build.add(x, y)
SQUARE = build.power(ADDED, build.TWO)
MULTIPLIED_OUT = build.add(build.multiply(x, ADDED), build.multiply(y, ADDED))
LATER = build.add(CLOCK, build.ONE)


def parts(source: Term, computed: Term) -> list[str]:
    found = undefined_parts(source, computed, STEPS, Effort.of(5_000_000))
    return [part.text for part in found]


@pytest.mark.parametrize(
    ("source", "computed"),
    [
        (divide(x, y), build.multiply(x, divide(build.ONE, y))),
        (divide(x, build.multiply(y, ADDED)), divide(divide(x, ADDED), y)),
        (square_root(ADDED), build.add(square_root(build.add(y, x)), build.ZERO)),
        (log(ADDED), log(build.add(y, x))),
        (square_root(build.add(x, SQUARE)), square_root(build.add(x, MULTIPLIED_OUT))),
        (x, divide(x, build.add(build.ONE, square_root(build.multiply(y, y))))),
        (
            x,
            divide(
                x, build.subtract(build.ONE, build.power(build.HALF, build.add(CLOCK, build.ONE)))
            ),
        ),
    ],
)
def test_an_operation_that_the_source_has_or_that_is_always_defined(
    source: Term, computed: Term
) -> None:
    assert parts(source, computed) == []


@pytest.mark.parametrize(
    ("source", "computed", "text"),
    [
        (x, divide(build.multiply(x, y), y), "1 / y"),
        (build.absolute(x), build.power(square_root(x), build.TWO), "(x ^ 1/2)"),
        (
            square_root(build.add(x, SQUARE)),
            square_root(build.add(y, MULTIPLIED_OUT)),
            "((y + ((x * (x + y)) + (y * (x + y)))) ^ 1/2)",
        ),
        (divide(x, y), divide(divide(build.multiply(x, ADDED), ADDED), y), "1 / (x + y)"),
        (x, divide(x, build.subtract(build.ONE, build.power(build.HALF, CLOCK))), "1 / "),
    ],
)
def test_an_operation_that_the_source_has_not(source: Term, computed: Term, text: str) -> None:
    (found,) = parts(source, computed)
    assert found.startswith(text)


def test_an_operation_under_another_condition() -> None:
    positive = build.less(build.ZERO, y)
    guarded = build.ite(positive, divide(x, y), build.ZERO)
    assert (
        parts(
            guarded, build.ite(positive, divide(build.negative(x), build.negative(y)), build.ZERO)
        )
        == []
    )
    assert parts(guarded, build.multiply(divide(x, y), y)) == ["1 / y"]


def test_a_counter_counts_steps() -> None:
    count = symbol("count", integer=True)
    following = build.add(count, build.ONE)
    limit = build.rational(2**63 - 1)
    fits = build.ite(build.less_equal(following, limit), following, build.UNDEFINED)
    assert parts(following, fits) == []
    few = build.ite(build.less_equal(following, build.rational(1000)), following, build.UNDEFINED)
    assert parts(following, few) == ["no branch holds"]


# --- graphs of rules -----------------------------------------------------------------------------


def test_a_graph_without_a_value_where_its_rule_has_one_is_not_proved() -> None:
    """Over the reals ``g * p / p`` is g, and where p = 0 it is NaN."""
    plain = UpdateRule("plain", param=PARAM - GRAD)
    builder = Builder("plain")
    step = builder.input("step", TensorType(DType.I64), Role.STEP)
    param = builder.input("param.w", TensorType(DType.F64, (2,)), Role.PARAM)
    grad = builder.input("grad.w", TensorType(DType.F64, (2,)), Role.GRAD)
    one = builder.const(1, DType.I64)
    builder.output("next.step", builder.emit(Op.ADD, step, one))
    same = builder.emit(Op.DIV, builder.emit(Op.MUL, grad, param), param)
    builder.output("next.param.w", builder.emit(Op.SUB, param, same))
    verdict = validate(plain, builder.build())
    assert verdict.refuted
    assert verdict.counterexample is not None
    assert verdict.counterexample["param.w"] == 0


def swapped(part: lowering._Part, name: str, role: object, *, is_counter: bool = False) -> None:
    """The declaration of inputs with the dtypes of counters and of scalars exchanged."""
    if name not in part.inputs:
        options = part.options
        dtype = options.scalar_dtype if is_counter else options.step_dtype
        part.inputs[name] = part.builder.input(name, TensorType(dtype), role)  # type: ignore[arg-type]


@pytest.mark.parametrize("name", ["schedule_free_sgd", "skipped", "accumulated"])
def test_exchanged_dtypes_of_counters_and_scalars(
    name: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    rule = {**OPTIMIZERS, **TRANSFORMED}[name]()
    spec = ModelSpec(rule, {"w": (3, 4)})
    assert validate(rule, compile_step(spec)).proved
    monkeypatch.setattr(lowering._Part, "_declare", swapped)
    verdict = validate(rule, compile_step(spec))
    assert verdict.refuted
    assert "and its source takes" in verdict.reason

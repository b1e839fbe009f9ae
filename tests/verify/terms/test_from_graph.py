"""Graphs read back as terms: each op against the evaluator, tables, rules, and what is refused."""

from collections.abc import Callable
from typing import Any

import numpy as np
import pytest
from flint import arb, ctx, fmpq

from closedform import optimizers, schedules
from closedform.compiler import compile_schedule, compile_step
from closedform.errors import VerificationError
from closedform.ir import OPS, Builder, DType, Graph, Op, Role, TensorType, Value, evaluate
from closedform.options import GraphOptions, ModelSpec
from closedform.verify.terms import build, tree
from closedform.verify.terms.evaluate import Undefined
from closedform.verify.terms.evaluate import value as value_of
from closedform.verify.terms.from_graph import GRAPH_RULES, terms_of_graph
from closedform.verify.terms.tree import Sign, Term, show, symbols, walk
from tests.test_library import SCHEDULES

F64 = TensorType(DType.F64)
I64 = TensorType(DType.I64)
BOOL = TensorType(DType.BOOL)
NUMBERS = (-7.5, -2.0, -0.75, 0.0, 0.5, 1.0, 3.25, 40.0)


def test_every_op_has_a_rule() -> None:
    assert set(GRAPH_RULES) == set(OPS) == set(Op)


def graph_of(build: Callable[..., Value], *types: TensorType) -> Graph:
    builder = Builder("one")
    inputs = [builder.input(f"x{i}", kind, Role.HYPER) for i, kind in enumerate(types)]
    builder.output("y", build(builder, *inputs))
    return builder.build()


def plain(op: Op, **attributes: Any) -> Callable[..., Value]:
    return lambda builder, *operands: builder.emit(op, *operands, **attributes)


UNARY = {
    Op.NEG: NUMBERS,
    Op.ABS: NUMBERS,
    Op.FLOOR: NUMBERS,
    Op.SQRT: (0.0, 0.25, 2.0, 1e6),
    Op.EXP: NUMBERS,
    Op.LOG: (0.25, 1.0, 2.0, 1e6),
    Op.COS: NUMBERS,
    Op.SIN: NUMBERS,
    Op.ATAN: NUMBERS,
}
BINARY = (Op.ADD, Op.SUB, Op.MUL, Op.MIN, Op.MAX, Op.LT, Op.LE, Op.EQ)


def assert_agrees(graph: Graph, term: Term, values: dict[str, Any], op: Op) -> None:
    """The evaluator's value is within the op's own tolerance of the exact value of the term."""
    computed = evaluate(graph, values)["y"]
    point = {name: build.exact(value) for name, value in values.items()}
    if computed.dtype == np.bool_:
        as_number = build.ite(term, build.ONE, build.ZERO)
        assert value_of(as_number, point) == fmpq(int(computed)), (values, term)
        return
    size = 1.0 if op in (Op.COS, Op.SIN) else abs(float(computed))
    bound = (OPS[op].ulp + 0.5) * float(np.spacing(size))
    assert is_within(value_of(term, point), computed, bound), (op, values, term)


def is_within(exact: Any, computed: Any, bound: float) -> bool:
    """Whether a float is surely no further than a bound from an exact value."""
    with ctx.workprec(192):
        return bool(abs(arb(exact) - arb(float(computed))) <= arb(bound) * (1 + arb(2) ** -60))


@pytest.mark.parametrize("op", UNARY, ids=str)
def test_unary_op_means_what_the_evaluator_computes(op: Op) -> None:
    graph = graph_of(plain(op), F64)
    term = terms_of_graph(graph)["y"]
    for value in UNARY[op]:
        assert_agrees(graph, term, {"x0": value}, op)


@pytest.mark.parametrize("op", BINARY, ids=str)
def test_binary_op_means_what_the_evaluator_computes(op: Op) -> None:
    graph = graph_of(plain(op), F64, F64)
    term = terms_of_graph(graph)["y"]
    for first in NUMBERS:
        for second in NUMBERS:
            assert_agrees(graph, term, {"x0": first, "x1": second}, op)


@pytest.mark.parametrize("op", [Op.DIV, Op.FLOOR_MOD, Op.POW], ids=str)
def test_partial_op_means_what_the_evaluator_computes(op: Op) -> None:
    graph = graph_of(plain(op), F64, F64)
    term = terms_of_graph(graph)["y"]
    for first in NUMBERS if op is not Op.POW else (0.25, 1.0, 9.0):
        for second in (-3.0, -0.5, 0.25, 2.0):
            assert_agrees(graph, term, {"x0": first, "x1": second}, op)


@pytest.mark.parametrize("op", [Op.FLOOR_DIV, Op.FLOOR_MOD, Op.ADD, Op.MUL], ids=str)
def test_integer_op_means_what_the_evaluator_computes(op: Op) -> None:
    builder = Builder("one")
    step = builder.input("step", I64, Role.STEP)
    inner = builder.emit(Op.SUB, step, builder.const(9, DType.I64))
    builder.output("y", builder.emit(op, inner, builder.const(-4, DType.I64)))
    graph = builder.build()
    term = terms_of_graph(graph)["y"]
    for value in range(20):
        assert value_of(term, {"t": fmpq(value)}) == int(evaluate(graph, {"step": value})["y"])


@pytest.mark.parametrize("op", [Op.AND, Op.OR], ids=str)
def test_logic_means_what_the_evaluator_computes(op: Op) -> None:
    def build(builder: Builder, x: Value, y: Value) -> Value:
        zero = builder.const(0.0, DType.F64)
        first, second = builder.emit(Op.LT, x, zero), builder.emit(Op.LE, zero, y)
        joined = builder.emit(op, first, builder.emit(Op.NOT, second))
        return builder.emit(Op.WHERE, joined, x, y)

    graph = graph_of(build, F64, F64)
    term = terms_of_graph(graph)["y"]
    for x in NUMBERS:
        for y in NUMBERS:
            assert_agrees(graph, term, {"x0": x, "x1": y}, Op.WHERE)


@pytest.mark.parametrize("value", NUMBERS)
def test_casts(value: float) -> None:
    graph = graph_of(plain(Op.CAST, to=DType.I64), F64)
    wanted = int(evaluate(graph, {"x0": value})["y"])
    assert value_of(terms_of_graph(graph)["y"], {"x0": build.exact(value)}) == wanted
    graph = graph_of(plain(Op.CAST, to=DType.BOOL), F64)
    assert_agrees(graph, terms_of_graph(graph)["y"], {"x0": value}, Op.CAST)
    graph = graph_of(
        lambda b, x: b.emit(Op.CAST, b.emit(Op.LT, x, b.const(1.0, DType.F64)), to=DType.F32), F64
    )
    assert_agrees(graph, terms_of_graph(graph)["y"], {"x0": value}, Op.CAST)


def test_float_casts_and_integers_to_floats_are_exact() -> None:
    graph = graph_of(plain(Op.CAST, to=DType.F32), F64)
    assert terms_of_graph(graph)["y"] == build.symbol("x0")
    graph = graph_of(plain(Op.CAST, to=DType.F64), I64)
    assert terms_of_graph(graph)["y"] == build.symbol("x0", integer=True)


def milestones_graph(marks: list[int], table: list[float]) -> Graph:
    builder = Builder("marks")
    step = builder.input("step", TensorType(DType.I64, ("n",)), Role.STEP)
    column = builder.emit(Op.RESHAPE, step, shape=("n", 1))
    reached = builder.emit(Op.LE, builder.const(np.array(marks), DType.I64), column)
    number = builder.emit(Op.CAST, reached, to=DType.I64)
    index = builder.emit(Op.REDUCE_SUM, number, axes=(1,), keepdims=False)
    looked_up = builder.emit(Op.LOOKUP, builder.const(np.array(table), DType.F64), index)
    builder.output("y", looked_up)
    return builder.build()


@pytest.mark.parametrize("marks", [[3], [3, 3, 7], [9, 2, 5, 5], list(range(0, 40, 3))])
def test_milestones_are_a_tree_of_comparisons(marks: list[int]) -> None:
    table = [float(7 * k % 11) for k in range(len(marks) + 1)]
    graph = milestones_graph(marks, table)
    term = terms_of_graph(graph)["y"]
    computed = evaluate(graph, {"step": np.arange(60)})["y"]
    for step in range(60):
        assert value_of(term, {"t": fmpq(step)}) == fmpq(int(computed[step]))
    assert sum(1 for _ in walk(term)) < 12 * len(marks) + 20


def test_a_table_too_short_is_undefined_beyond_it() -> None:
    term = terms_of_graph(milestones_graph([2, 4], [1.0, 5.0]))["y"]
    assert value_of(term, {"t": fmpq(3)}) == 5
    assert isinstance(value_of(term, {"t": fmpq(4)}), Undefined)


@pytest.mark.parametrize("name", SCHEDULES)
def test_the_term_of_a_schedule_has_the_values_of_its_graph(name: str) -> None:
    """Over the stored numbers; the graph rounds at each of its at most 40 ops, by 4 ulp or less."""
    graph = compile_schedule(SCHEDULES[name](), GraphOptions(step_shape=("n",)))
    term = terms_of_graph(graph)["value"]
    steps = [*range(0, 130, 3), 99, 100, 101, 10**4, 10**6]
    computed = evaluate(graph, {"step": np.array(steps)})["value"]
    bound = 160 * float(np.spacing(np.abs(computed).max()))
    for step, value in zip(steps, computed, strict=True):
        # A phase that is not reduced in integers is off by up to t ulp of a turn.
        exact = value_of(term, {"t": fmpq(step)})
        assert is_within(exact, value, bound * max(1, step / 1000)), step


def test_sums_over_tensors_are_opaque() -> None:
    graph = compile_step(ModelSpec(optimizers.lamb(lr=0.1), {"w": (3, 4)}))
    found = terms_of_graph(graph)
    sums = {node for node in walk(found["next.param.w"]) if node.op is tree.Op.OPAQUE}
    assert {str(node.value) for node in sums} == {"reduce_sum [3,4] axes 0,1"}
    assert show(found["next.state.w.exp_avg"]).count("grad.w") == 1


def test_an_integer_that_may_wrap_is_undefined_there() -> None:
    builder = Builder("wraps")
    step = builder.input("step", TensorType(DType.I32), Role.STEP)
    builder.output("y", builder.emit(Op.MUL, step, builder.const(4, DType.I32)))
    term = terms_of_graph(builder.build(), last=2**31 - 1)["y"]
    assert value_of(term, {"t": fmpq(2**29 - 1)}) == 2**31 - 4
    assert isinstance(value_of(term, {"t": fmpq(2**29)}), Undefined)


def test_cosine_of_pi_multiples_loses_its_pi() -> None:
    pi = build.PI

    def constant(number: float, _: DType) -> Term:
        return build.multiply(build.rational(1, 7), pi) if number == 0.25 else pi

    graph = graph_of(lambda b, x: b.emit(Op.COS, b.emit(Op.MUL, x, b.const(0.25, DType.F64))), F64)
    x = build.symbol("x0")
    assert terms_of_graph(graph, constant=constant)["y"] == build.cospi(
        build.multiply(x, build.rational(1, 7))
    )
    assert terms_of_graph(graph)["y"].args[0].op is tree.Op.DIVIDE


Shaped = tuple[Callable[[Builder, Value], Value], str]

SHAPED: dict[str, Shaped] = {
    "a sum of an axis": (
        lambda b, x: b.emit(Op.REDUCE_SUM, x, axes=(1,), keepdims=False),
        "reduce_sum [5,2,4] axes 1(x)",
    ),
    "an axis that stays": (
        lambda b, x: b.emit(Op.REDUCE_SUM, x, axes=(1,), keepdims=True),
        "reshape [5,4] [5,1,4](reduce_sum [5,2,4] axes 1(x))",
    ),
    "a maximum of axes": (
        lambda b, x: b.emit(Op.REDUCE_MAX, x, axes=(0, 2), keepdims=False),
        "reduce_max [5,2,4] axes 0,2(x)",
    ),
    "axes in another order": (
        lambda b, x: b.emit(Op.TRANSPOSE, x, permutation=(1, 0, 2)),
        "transpose [5,2,4] axes 1,0,2(x)",
    ),
    "axes exchanged twice": (
        lambda b, x: b.emit(
            Op.TRANSPOSE, b.emit(Op.TRANSPOSE, x, permutation=(1, 2, 0)), permutation=(2, 0, 1)
        ),
        "x",
    ),
    "another shape": (
        lambda b, x: b.emit(Op.RESHAPE, x, shape=(10, 4)),
        "reshape [5,2,4] [10,4](x)",
    ),
    "another shape and back": (
        lambda b, x: b.emit(Op.RESHAPE, b.emit(Op.RESHAPE, x, shape=(40,)), shape=(5, 2, 4)),
        "x",
    ),
    "axes of size 1 before": (lambda b, x: b.emit(Op.RESHAPE, x, shape=(1, 5, 2, 4)), "x"),
    "an axis of size 1 behind": (
        lambda b, x: b.emit(Op.RESHAPE, x, shape=(5, 2, 4, 1)),
        "reshape [5,2,4] [5,2,4,1](x)",
    ),
    "more of the same": (lambda b, x: b.emit(Op.BROADCAST_TO, x, shape=(3, 5, 2, 4)), "x"),
    "a product": (
        lambda b, x: b.emit(Op.MATMUL, x, b.emit(Op.TRANSPOSE, x, permutation=(0, 2, 1))),
        "matmul [5,2,4] [5,4,2](x, transpose [5,2,4] axes 0,2,1(x))",
    ),
    "rounded": (
        lambda b, x: b.emit(Op.CAST, b.emit(Op.CAST, x, to=DType.BF16), to=DType.F64),
        "rounded bf16(x)",
    ),
    "the sum of a number": (
        lambda b, x: b.emit(
            Op.REDUCE_SUM,
            b.emit(Op.BROADCAST_TO, b.const(0.5, DType.F64), shape=(3, 4)),
            axes=(0,),
            keepdims=False,
        ),
        "3/2",
    ),
}


@pytest.mark.parametrize("name", SHAPED)
def test_functions_of_tensors_are_named_by_their_shapes(name: str) -> None:
    build, shown = SHAPED[name]
    builder = Builder("g")
    builder.output(
        "y", build(builder, builder.input("x", TensorType(DType.F64, (5, 2, 4)), Role.PARAM))
    )
    assert str(terms_of_graph(builder.build())["y"]) == shown


def test_a_column_is_not_a_row() -> None:
    """Of a square matrix x, x + v and x + v[:, None] are two things."""

    def found(shape: tuple[int, ...]) -> Term:
        builder = Builder("g")
        x = builder.input("x", TensorType(DType.F64, (3, 3)), Role.PARAM)
        v = builder.input("v", TensorType(DType.F64, (3,)), Role.STATE)
        builder.output("y", builder.emit(Op.ADD, x, builder.emit(Op.RESHAPE, v, shape=shape)))
        return terms_of_graph(builder.build())["y"]

    assert str(found((1, 3))) == "(x + v)"
    assert str(found((3, 1))) == "(x + reshape [3] [3,1](v))"


def row_as_output(builder: Builder) -> Value:
    return builder.const(np.array([1.0, 2.0]), DType.F64)


def not_a_number(builder: Builder) -> Value:
    nan = builder.const(float("nan"), DType.F32)
    return builder.emit(Op.ADD, nan, builder.const(1, DType.F32))


def infinity(builder: Builder) -> Value:
    return builder.const(float("inf"), DType.F32)


def table_that_is_computed(builder: Builder) -> Value:
    wide = builder.input("wide", TensorType(DType.F64, (7,)), Role.PARAM)
    return builder.emit(Op.LOOKUP, wide, builder.const(2, DType.I64))


HINT = ": a table is compared with a number or a column, summed, or looked up"
REFUSED = [
    (
        row_as_output,
        "const of f64[2] cannot be read as a term: its elements depend on their position "
        "(node %0 of graph 'g')" + HINT,
    ),
    (
        not_a_number,
        "add of f32[] cannot be read as a term: it computes with the constant NaN "
        "(node %2 of graph 'g')" + HINT,
    ),
    (
        infinity,
        "const of f32[] cannot be read as a term: the constant inf is not a number "
        "(node %0 of graph 'g')" + HINT,
    ),
    (
        table_that_is_computed,
        "lookup of f64[] cannot be read as a term: its table is not a constant of one axis "
        "(node %2 of graph 'g')" + HINT,
    ),
]


def test_the_largest_element_is_opaque_but_of_one() -> None:
    for shape, expected in (((3, 2), "reduce_max [3,2] axes 0,1(x0)"), ((1, 1), "x0")):
        wide = TensorType(DType.F64, shape)
        graph = graph_of(plain(Op.REDUCE_MAX, axes=(0, 1), keepdims=False), wide)
        assert str(terms_of_graph(graph)["y"]) == expected


@pytest.mark.parametrize(("build", "message"), REFUSED, ids=lambda x: getattr(x, "__name__", ""))
def test_refused(build: Callable[[Builder], Value], message: str) -> None:
    builder = Builder("g")
    builder.output("y", build(builder))
    with pytest.raises(VerificationError) as caught:
        terms_of_graph(builder.build())
    assert str(caught.value) == message


def test_a_step_beside_milestones_without_a_column_is_not_a_row() -> None:
    """Five steps against five marks is element by element, not a count."""
    builder = Builder("g")
    step = builder.input("step", TensorType(DType.I64, (5,)), Role.STEP)
    marks = builder.const(np.array([1, 2, 3, 4, 5]), DType.I64)
    number = builder.emit(Op.CAST, builder.emit(Op.LE, marks, step), to=DType.I64)
    builder.output("y", builder.emit(Op.REDUCE_SUM, number, axes=(0,), keepdims=False))
    with pytest.raises(
        VerificationError, match="an operand of shape \\[5\\] is broadcast along an axis of a row"
    ):
        terms_of_graph(builder.build())


def test_the_step_is_the_clock() -> None:
    term = terms_of_graph(compile_schedule(schedules.linear(0, 1, 4)))["value"]
    assert symbols(term) == {"t": build.symbol("t", integer=True, sign=Sign.NONNEGATIVE)}

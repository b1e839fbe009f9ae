"""The C table beyond the common suite: loops, integers that wrap, literals, names, refusals."""

import numpy as np
import pytest

from closedform.errors import ExportError
from closedform.exporters.c_function import identifiers
from closedform.exporters.c_ops import C_OPS, literal
from closedform.ir.graph import Builder, Role
from closedform.ir.ops import Op
from closedform.ir.types import DType, TensorType
from closedform.runtime.c_library import c_compiler
from tests.exporters.op_cases import CASES
from tests.support.backends import BACKENDS
from tests.support.c_programs import compiled, graph_header, run_graph
from tests.support.engines import run_evaluator, steps_apart

needs_compiler = pytest.mark.skipif(c_compiler() is None, reason="there is no C compiler")


def test_every_written_op_has_a_case() -> None:
    """Lookups are written where the table is a constant: it is an input in their cases."""
    written = [case for case in CASES if not BACKENDS["C"].refuses(case.graph)]
    assert {case.op for case in written} >= set(C_OPS) - {Op.LOOKUP}


@needs_compiler
def test_tables_sums_and_arrays_of_constants() -> None:
    b = Builder("places")
    step = b.input("step", TensorType(DType.I64), Role.STEP)
    x = b.input("x", TensorType(DType.F32, ("n",)), Role.PARAM)
    marks = b.const(np.array([3, 5, 9]), DType.I64)
    is_past = b.emit(Op.CAST, b.emit(Op.LE, marks, step), to=DType.I64)
    place = b.emit(Op.REDUCE_SUM, is_past, axes=(0,), keepdims=False)
    table = b.const(np.array([0.5, -0.0, np.inf, 1e-40]), DType.F32)
    found = b.emit(Op.LOOKUP, table, place)
    total = b.emit(Op.REDUCE_SUM, b.emit(Op.MUL, x, x), axes=(0,), keepdims=False)
    b.output("place", place)
    b.output("y", b.emit(Op.ADD, b.emit(Op.MUL, x, found), total))
    b.output("same", x)
    graph = b.build()
    loaded = compiled([graph_header("places", graph)])
    for step_value in (0, 3, 4, 5, 8, 9, 1000):
        inputs = {
            "step": np.array(step_value),
            "x": np.array([1.5, -2.0, 0.25], np.float32),
        }
        actual = run_graph(loaded, "places", graph, inputs)
        for name, value in run_evaluator(graph, inputs).items():
            assert steps_apart(actual[name], value) == 0, (step_value, name)


@needs_compiler
def test_integers_wrap_as_the_evaluator_says() -> None:
    b = Builder("wraps")
    step = b.input("x", TensorType(DType.I64), Role.STATE)
    for op in (Op.NEG, Op.ABS):
        b.output(op, b.emit(op, step))
    for op in (Op.ADD, Op.SUB, Op.MUL):
        b.output(op, b.emit(op, step, b.const(3, DType.I64)))
    graph = b.build()
    loaded = compiled([graph_header("wraps", graph)], ("-O2", "-Wall", "-Wextra", "-Werror"))
    info = np.iinfo(np.int64)
    for value in (info.min, info.min + 1, -1, 0, 5, info.max):
        inputs = {"x": np.array(value)}
        actual = run_graph(loaded, "wraps", graph, inputs)
        assert actual == run_evaluator(graph, inputs)


@pytest.mark.parametrize(
    ("number", "dtype", "text"),
    [
        (True, DType.BOOL, "1"),
        (2**31 - 1, DType.I32, "INT32_C(2147483647)"),
        (-(2**31), DType.I32, "INT32_MIN"),
        (-(2**63), DType.I64, "INT64_MIN"),
        (-7, DType.I64, "(-INT64_C(7))"),
        (1.0, DType.F64, "1.0"),
        (1e22, DType.F64, "1e+22"),
        (-0.0, DType.F32, "(-0.0f)"),
        (np.inf, DType.F32, "INFINITY"),
        (-np.inf, DType.F64, "(-INFINITY)"),
        (np.nan, DType.F64, "NAN"),
        (1e-45, DType.F32, "1e-45f"),
    ],
)
def test_literals(number: float, dtype: DType, text: str) -> None:
    assert literal(number, dtype) == text


def test_identifiers_are_free_and_different() -> None:
    wanted = {"a": "double", "b": "double_", "c": "1st", "d": "exp_avg", "e": "_x", "f": "n"}
    assert identifiers(list(wanted), wanted) == {
        "a": "double_",
        "b": "double__",
        "c": "x1st",
        "d": "exp_avg",
        "e": "x_x",
        "f": "n_",
    }


@pytest.mark.parametrize(
    ("op", "attributes", "message"),
    [
        (
            Op.TRANSPOSE,
            {"permutation": (0,)},
            "C functions are written for numbers and flat arrays, got transpose to f32[4] "
            "(graph 'shapes')",
        ),
        (
            Op.REDUCE_SUM,
            {"axes": (0,), "keepdims": True},
            "C functions are written for numbers and flat arrays, got reduce_sum to f32[1] "
            "(graph 'shapes')",
        ),
        (
            Op.RESHAPE,
            {"shape": (2, 2)},
            "C functions are written for numbers and flat arrays, got reshape to f32[2,2] "
            "(graph 'shapes')",
        ),
    ],
)
def test_ops_on_shapes_are_refused(
    op: Op, attributes: dict[str, bool | tuple[int, ...]], message: str
) -> None:
    b = Builder("shapes")
    x = b.input("x", TensorType(DType.F32, (4,)), Role.PARAM)
    b.output("y", b.emit(op, x, **attributes))
    with pytest.raises(ExportError) as caught:
        graph_header("shapes", b.build())
    assert str(caught.value) == message


def test_types_of_16_bits_are_refused() -> None:
    b = Builder("half")
    x = b.input("x", TensorType(DType.F32, (4,)), Role.PARAM)
    b.output("y", b.emit(Op.CAST, b.emit(Op.CAST, x, to=DType.F16), to=DType.F32))
    with pytest.raises(ExportError) as caught:
        graph_header("half", b.build())
    assert str(caught.value) == (
        "C11 has no type for f16: store parameters and states in f32 or f64"
    )

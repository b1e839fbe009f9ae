"""The text form: round trips bit for bit, a golden, a pinned message for each way to break it."""

from collections import Counter
from collections.abc import Callable

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from closedform.errors import GraphError
from closedform.ir.evaluate import evaluate
from closedform.ir.graph import Builder, Graph, Role, scalar
from closedform.ir.literals import format_number, parse_number
from closedform.ir.ops import Op
from closedform.ir.text import parse_graph, print_graph
from closedform.ir.types import DType, TensorType
from tests.support.graphs import graphs
from tests.support.sampling import examples

COSINE = """\
graph cosine(step: i64[] step, param.0.w: f32[2,n] param) -> (value: f64[], "new w": f32[2,n]) {
  %0 = cast(step) to=f64 : f64[]
  %1 = const 100.0 : f64[]
  %2 = div(%0, %1) : f64[]
  %3 = cos(%2) : f64[]
  %4 = const [0.0 x 5, -0.0, 0.1] : f32[7]
  %5 = const 6 : i64[]
  %6 = min(step, %5) : i64[]
  %7 = lookup(%4, %6) : f32[]
  %8 = mul(param.0.w, %7) : f32[2,n]
  %9 = reduce_sum(%8) axes=[1] keepdims=true : f32[2,1]
  %10 = sub(%8, %9) : f32[2,n]
  value = %3
  "new w" = %10
}
"""


@pytest.fixture
def cosine() -> Graph:
    return parse_graph(COSINE)


def test_text_is_golden_and_runs(cosine: Graph, golden: Callable[[str, str], None]) -> None:
    golden("ir/cosine", print_graph(cosine))
    assert print_graph(cosine) == COSINE
    weight = np.ones((2, 3), np.float32)
    result = evaluate(cosine, {"step": 50, "param.0.w": weight})
    assert result["value"] == np.cos(0.5)
    tenth = np.float32(0.1)
    np.testing.assert_array_equal(result["new w"], np.full((2, 3), tenth - (tenth + tenth + tenth)))


def test_layout_is_free() -> None:
    assert print_graph(parse_graph(" ".join(COSINE.split("\n")))) == COSINE


@given(graphs())
@settings(max_examples=examples(150))
def test_round_trip(graph: Graph) -> None:
    assert parse_graph(print_graph(graph)) == graph, print_graph(graph)


@given(st.text(min_size=1), st.text(min_size=1))
def test_any_name_round_trips(first: str, second: str) -> None:
    builder = Builder("names")
    value = builder.input(first, scalar(DType.F32), Role.GRAD)
    builder.output(second, builder.emit(Op.NEG, value))
    builder.output(second + "x", value)
    assert parse_graph(print_graph(builder.build())) == builder.build()


@pytest.mark.parametrize("name", ["step", "layers.0.weight", "0", "_x", "nan", "1e5", "f32"])
def test_names_of_torch_parameters_stand_bare(name: str) -> None:
    builder = Builder("names")
    builder.output("y", builder.emit(Op.NEG, builder.input(name, scalar(DType.F32), Role.PARAM)))
    text = print_graph(builder.build())
    assert f"neg({name})" in text
    assert parse_graph(text) == builder.build()


FLOATS = (DType.F16, DType.BF16, DType.F32, DType.F64)


@given(st.sampled_from(FLOATS), st.integers(0, 2**64 - 1))
@settings(max_examples=examples(400))
def test_every_bit_pattern_of_a_float_round_trips(dtype: DType, bits: int) -> None:
    size = dtype.numpy.itemsize
    data = (bits % (1 << 8 * size)).to_bytes(size, "little")
    number = np.frombuffer(data, dtype.numpy)[0]
    assert parse_number(format_number(number, dtype), dtype) == data


@pytest.mark.parametrize("dtype", [DType.F16, DType.BF16])
def test_all_numbers_of_the_small_dtypes_round_trip(dtype: DType) -> None:
    every = np.arange(2**16, dtype=np.uint16).view(dtype.numpy)
    data = b"".join(parse_number(format_number(number, dtype), dtype) for number in every)
    assert data == every.tobytes()


@pytest.mark.parametrize(
    ("number", "dtype", "literal"),
    [
        (0.1, DType.F64, "0.1"),
        (0.1, DType.F32, "0.1"),
        (-0.0, DType.F64, "-0.0"),
        (1e22, DType.F64, "1e+22"),
        (5e-324, DType.F64, "5e-324"),
        (float("inf"), DType.F16, "inf"),
        (float("-inf"), DType.BF16, "-inf"),
        (float("nan"), DType.F32, "nan"),
        (100, DType.F32, "100.0"),
        (-(2**63), DType.I64, "-9223372036854775808"),
        (True, DType.BOOL, "true"),
    ],
)
def test_literals(number: float, dtype: DType, literal: str) -> None:
    assert format_number(np.asarray(number).astype(dtype.numpy)[()], dtype) == literal


def test_payload_of_a_nan_is_preserved() -> None:
    number = np.frombuffer(bytes.fromhex("010000000000f4ff"), np.float64)[0]
    assert format_number(number, DType.F64) == "nan(0xfff4000000000001)"


@pytest.mark.parametrize("size", [100_000, 3])
def test_long_tables_are_short_and_exact(size: int) -> None:
    table = np.zeros(size)
    table[-1] = -0.0
    builder = Builder("table")
    builder.output("y", builder.const(table, DType.F64))
    text = print_graph(builder.build())
    assert len(text) < 100
    assert parse_graph(text) == builder.build()


def broken(line: str, replacement: str) -> str:
    assert COSINE.count(line) == 1, line
    return COSINE.replace(line, replacement)


BROKEN = [
    ("", "expected 'graph', got the end of the text (line 1)"),
    (broken("graph cosine", "graph 3d"), "expected the name of the graph, got '3d' (line 1)"),
    (broken("to=f64", "to=f65"), "expected a dtype, got 'f65' (line 2): known are bool, i8, i32,"),
    (broken("[] step,", "[] stop,"), "expected a role, got 'stop' (line 1): known are step, hyper"),
    (broken("f32[2,n] param", "f32[2,-n] param"), "expected an integer or an identifier, got '-n'"),
    (
        broken("cast(step)", "cast(stop)"),
        "expected the name of an input, got 'stop' (line 2): did you mean 'step'?",
    ),
    (broken("cos(%2)", "cos(%4)"), "expected an earlier value, got '%4' (line 5)"),
    (broken("cos(%2)", "cosh(%2)"), "expected an op, got 'cosh' (line 5): did you mean 'cos'?"),
    (
        broken("cos(%2)", "cos(%2, %1)"),
        "%3 = cos: takes 1 operands, got 2 (graph 'cosine', as parsed)",
    ),
    (broken("%3 = cos", "%4 = cos"), "expected '%3', the next number, got '%4' (line 5)"),
    (
        broken("cos(%2) :", "cos(%2) n=1 :"),
        "expected ':' and the type, got 'n' (line 5): attributes of cos: none",
    ),
    (
        broken("cos(%2) : f64[]", "cos(%2) : f32[]"),
        "output 'value' is declared as f64[], its value is f32[] (line 13)",
    ),
    (broken("%0, %1", "%0 %1"), "expected ',' or ')', got '%1' (line 4)"),
    (broken("100.0 :", "hundred :"), "expected a number for f64, got 'hundred' (line 3)"),
    (broken("100.0 :", "1e400 :"), "1e400 does not fit f64 (line 3): write inf for an infinity"),
    (broken("0.1]", "1e39]"), "1e39 does not fit f32 (line 6): write inf"),
    (broken("100.0 :", "nan(0x1) :"), "nan(0x1) is not a NaN of f64 (line 3)"),
    (broken("0.1]", "nan(0x7ff8000000000001)]"), "nan(0x7ff8000000000001) has more bits than f32"),
    (broken("const 6 :", "const 6.0 :"), "expected an integer for i64, got '6.0' (line 7)"),
    (broken("const 6 :", f"const {2**63} :"), f"{2**63} does not fit i64 (line 7)"),
    (broken("const 6 :", f"const {'6' * 50} :"), "a number has at most 40 signs, got 50 (line 7)"),
    (
        broken("const 6 :", "const [6] :"),
        "a constant of type i64[] is written without brackets (line 7)",
    ),
    (broken("x 5", "x 0"), "expected a count, got '0' (line 6)"),
    (broken("x 5", "x 6"), "%4 = const: f32[7] takes 28 bytes, got 32"),
    (
        broken("x 5", f"x {10**11}"),
        f"a constant has at most {2**31} bytes, got {10**11 + 2} numbers of f32",
    ),
    (broken("keepdims=true", "keepdims=1"), "expected true or false, got '1' (line 11)"),
    (
        broken("value = %3\n", ""),
        "expected the output 'value', got '\"new w\"' (line 13): outputs come in the decl",
    ),
    (COSINE + "}", "expected the end of the text, got '}' (line 16)"),
    (broken("%3\n", "%3;\n"), "';' begins no token (line 13)"),
    (
        broken('  "new w" =', '  "new\\q" ='),
        "expected a value or the output 'new w' as a JSON string",
    ),
    (
        broken("step: i64[] step,", "step: i64[] step, step: i64[] step,"),
        "input 'step' is declared twice (line 1)",
    ),
    (broken("lookup(%4, %6)", "lookup(%4, step)"), "index input 'step' is not proved in 0..6"),
]


@pytest.mark.parametrize(("text", "message"), BROKEN, ids=[message for _, message in BROKEN])
def test_broken_text(text: str, message: str) -> None:
    with pytest.raises(GraphError) as caught:
        parse_graph(text)
    assert message in str(caught.value)


def test_damaged_text_is_a_graph_or_a_graph_error() -> None:
    counts: Counter[str] = Counter()

    @given(st.data())
    @settings(max_examples=examples(200))
    def check(data: st.DataObject) -> None:
        start = data.draw(st.integers(0, len(COSINE)))
        end = data.draw(st.integers(start, min(start + 6, len(COSINE))))
        drawn = data.draw(st.text('%0123x[](){}:=,. "\nab-', max_size=4))
        try:
            graph = parse_graph(COSINE[:start] + drawn + COSINE[end:])
        except GraphError:
            counts["refused"] += 1
            return
        counts["read"] += 1
        assert parse_graph(print_graph(graph)) == graph

    check()
    assert counts["read"] >= 1, counts  # an empty damage is among the draws
    assert counts["refused"] > counts["read"], counts


def test_shaped_constants_and_attributes() -> None:
    builder = Builder("shapes")
    matrix = builder.const(np.arange(4).reshape(2, 2), DType.I32)
    value = builder.input("x", TensorType(DType.F32, ("n", 2)), Role.PARAM)
    moved = builder.emit(Op.TRANSPOSE, value, permutation=(1, 0))
    builder.output("a", builder.emit(Op.BROADCAST_TO, matrix, shape=(3, 2, 2)))
    builder.output("b", builder.emit(Op.RESHAPE, moved, shape=("n", 1, 2)))
    builder.output("c", builder.const(np.zeros((0, 2)), DType.F64))
    text = print_graph(builder.build())
    assert "const [0, 1, 2, 3] : i32[2,2]" in text
    assert "transpose(x) permutation=[1,0] : f32[2,n]" in text
    assert "reshape(%1) shape=[n,1,2] : f32[n,1,2]" in text
    assert "const [] : f64[0,2]" in text
    assert parse_graph(text) == builder.build()

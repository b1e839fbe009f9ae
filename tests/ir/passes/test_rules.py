"""Each rewrite of each pass: a graph on which it fires, and its neighbour on which it must not."""

import pytest

from closedform.ir.graph import Graph
from closedform.ir.passes import Algebra, Fold, Pass, Select, Share
from closedform.ir.text import parse_graph, print_graph

INPUTS = (
    "t: i64[] step, k: i64[] hyper, j: i32[] hyper, f: f64[] hyper, e: f64[] hyper, "
    "x: f32[4] grad, w: f32[n,2] param, h: bf16[2] state"
)


def graph_of(body: str) -> Graph:
    """A graph of lines without numbers; the last is the output, or an input."""
    lines = body.split("; ")
    if ":" not in lines[-1]:
        *lines, last = lines
    else:
        last = f"%{len(lines) - 1}"
    listed = "\n".join(f"%{number} = {line}" for number, line in enumerate(lines))
    types = {part.split(":")[0]: part.split()[1] for part in INPUTS.split(", ")}
    type_ = types[last] if last in types else lines[int(last[1:])].rsplit(" : ", 1)[1]
    return parse_graph(f"graph g({INPUTS}) -> (y: {type_}) {{\n{listed}\ny = {last}\n}}")


FIRES: list[tuple[Pass, str, str]] = [
    (Fold(), "const 2.0 : f64[]; cos(%0) : f64[]", "const -0.4161468365471424 : f64[]"),
    (Fold(), "const 0.0 : f64[]; div(%0, %0) : f64[]", "const nan : f64[]"),
    (Fold(), "const 2 : i64[]; broadcast_to(%0) shape=[3] : i64[3]", "const [2, 2, 2] : i64[3]"),
    (
        Fold(),
        "const [1, 2] : i64[2]; const 3 : i64[]; lt(%0, %1) : bool[2]",
        "const [true, true] : bool[2]",
    ),
    (Fold(), "const 0.1 : f64[]; cast(%0) to=bf16 : bf16[]", "const 0.100098 : bf16[]"),
    # Algebra 1
    (Algebra(), "const 1.0 : f64[]; mul(f, %0) : f64[]", "f"),
    (Algebra(), "const 1 : i64[]; mul(%0, k) : i64[]", "k"),
    (Algebra(), "const 1.0 : f64[]; div(f, %0) : f64[]", "f"),
    (Algebra(), "const -1.0 : f64[]; div(f, %0) : f64[]", "neg(f) : f64[]"),
    (Algebra(), "const -1 : i64[]; mul(k, %0) : i64[]", "neg(k) : i64[]"),
    (Algebra(), "const [1.0, 1.0, 1.0, 1.0] : f32[4]; mul(x, %0) : f32[4]", "x"),
    # 2
    (Algebra(), "const -0.0 : f64[]; add(%0, f) : f64[]", "f"),
    (Algebra(), "const 0.0 : f64[]; sub(f, %0) : f64[]", "f"),
    (Algebra(), "const 0 : i64[]; add(k, %0) : i64[]", "k"),
    (Algebra(), "const 0 : i64[]; sub(k, %0) : i64[]", "k"),
    (Algebra(), "const -0.0 : f64[]; sub(%0, f) : f64[]", "neg(f) : f64[]"),
    (Algebra(), "const 0 : i64[]; sub(%0, k) : i64[]", "neg(k) : i64[]"),
    (
        Algebra(),
        "const 0.0 : f64[]; const 2.0 : f64[]; max(f, %1) : f64[]; add(%2, %0) : f64[]",
        "const 2.0 : f64[]; max(f, %0) : f64[]",
    ),
    # 3
    (Algebra(), "neg(f) : f64[]; neg(%0) : f64[]", "f"),
    (Algebra(), "lt(f, e) : bool[]; not(%0) : bool[]; not(%1) : bool[]", "lt(f, e) : bool[]"),
    (Algebra(), "abs(f) : f64[]; abs(%0) : f64[]", "abs(f) : f64[]"),
    (Algebra(), "neg(k) : i64[]; abs(%0) : i64[]", "abs(k) : i64[]"),
    (Algebra(), "abs(t) : i64[]", "t"),
    # 4
    (Algebra(), "neg(e) : f64[]; add(f, %0) : f64[]", "sub(f, e) : f64[]"),
    (Algebra(), "neg(f) : f64[]; add(%0, e) : f64[]", "sub(e, f) : f64[]"),
    (Algebra(), "neg(e) : f64[]; sub(f, %0) : f64[]", "add(f, e) : f64[]"),
    (Algebra(), "neg(e) : f64[]; neg(f) : f64[]; mul(%0, %1) : f64[]", "mul(e, f) : f64[]"),
    (Algebra(), "neg(e) : f64[]; neg(f) : f64[]; div(%0, %1) : f64[]", "div(e, f) : f64[]"),
    # 5
    (Algebra(), "cast(f) to=f64 : f64[]", "f"),
    (Algebra(), "cast(x) to=f64 : f64[4]; cast(%0) to=f32 : f32[4]", "x"),
    (Algebra(), "cast(h) to=f32 : f32[2]; cast(%0) to=f64 : f64[2]", "cast(h) to=f64 : f64[2]"),
    (Algebra(), "cast(j) to=i64 : i64[]; cast(%0) to=f32 : f32[]", "cast(j) to=f32 : f32[]"),
    # 6
    (Algebra(), "min(f, f) : f64[]", "f"),
    (Algebra(), "lt(f, e) : bool[]; and(%0, %0) : bool[]", "lt(f, e) : bool[]"),
    (Algebra(), "lt(f, e) : bool[]; where(%0, e, e) : f64[]", "e"),
    # 7
    (Algebra(), "const 0 : i64[]; max(t, %0) : i64[]", "t"),
    (Algebra(), "const 2.0 : f64[]; cos(f) : f64[]; min(%1, %0) : f64[]", "cos(f) : f64[]"),
    (Algebra(), "const 1.0 : f64[]; cos(f) : f64[]; min(%1, %0) : f64[]", "cos(f) : f64[]"),
    # 8
    (Algebra(), "reshape(x) shape=[4] : f32[4]", "x"),
    (Algebra(), "reshape(w) shape=[2,n] : f32[2,n]; reshape(%0) shape=[n,2] : f32[n,2]", "w"),
    (Algebra(), "transpose(w) permutation=[0,1] : f32[n,2]", "w"),
    (
        Algebra(),
        "broadcast_to(x) shape=[2,3,4] : f32[2,3,4]; "
        "transpose(%0) permutation=[1,2,0] : f32[3,4,2]; "
        "transpose(%1) permutation=[1,0,2] : f32[4,3,2]",
        "broadcast_to(x) shape=[2,3,4] : f32[2,3,4]; "
        "transpose(%0) permutation=[2,1,0] : f32[4,3,2]",
    ),
    (
        Algebra(),
        "transpose(w) permutation=[1,0] : f32[2,n]; transpose(%0) permutation=[1,0] : f32[n,2]",
        "w",
    ),
    (
        Algebra(),
        "broadcast_to(f) shape=[2] : f64[2]; broadcast_to(%0) shape=[3,2] : f64[3,2]",
        "broadcast_to(f) shape=[3,2] : f64[3,2]",
    ),
    (Algebra(), "reduce_sum(x) axes=[] keepdims=false : f32[4]", "x"),
    (Algebra(), "reduce_max(x) axes=[] keepdims=false : f32[4]", "x"),
    # 9
    (
        Algebra(),
        "const 3.0 : f32[]; broadcast_to(%0) shape=[4] : f32[4]; mul(x, %1) : f32[4]",
        "const 3.0 : f32[]; mul(x, %0) : f32[4]",
    ),
    # 10
    (Algebra(), "const 1 : i64[]; floor_mod(k, %0) : i64[]", "const 0 : i64[]"),
    (Algebra(), "const 3.0 : f64[]; add(%0, %0) : f64[]", "const 6.0 : f64[]"),
    # Select 1
    (Select(), "const true : bool[]; where(%0, f, e) : f64[]", "f"),
    (Select(), "const 0 : i64[]; lt(t, %0) : bool[]; where(%1, f, e) : f64[]", "e"),
    # 2
    (
        Select(),
        "lt(f, e) : bool[]; not(%0) : bool[]; where(%1, f, e) : f64[]",
        "lt(f, e) : bool[]; where(%0, e, f) : f64[]",
    ),
    (
        Select(),
        "const 4 : i64[]; lt(%0, t) : bool[]; where(%1, f, e) : f64[]",
        "const 5 : i64[]; lt(t, %0) : bool[]; where(%1, e, f) : f64[]",
    ),
    # 3
    (
        Select(),
        "lt(f, e) : bool[]; neg(f) : f64[]; where(%0, f, e) : f64[]; where(%0, %2, %1) : f64[]",
        "lt(f, e) : bool[]; neg(f) : f64[]; where(%0, f, %1) : f64[]",
    ),
    (
        Select(),
        "lt(f, e) : bool[]; neg(f) : f64[]; where(%0, f, e) : f64[]; where(%0, %1, %2) : f64[]",
        "lt(f, e) : bool[]; neg(f) : f64[]; where(%0, %1, e) : f64[]",
    ),
    # 4
    (Select(), "const 0 : i64[]; le(%0, t) : bool[]", "const true : bool[]"),
    (Select(), "const 2.0 : f64[]; cos(f) : f64[]; lt(%0, %1) : bool[]", "const false : bool[]"),
    # 5
    (
        Select(),
        "const true : bool[]; lt(f, e) : bool[]; and(%0, %1) : bool[]",
        "lt(f, e) : bool[]",
    ),
    (
        Select(),
        "const [false, false] : bool[2]; cast(h) to=bool : bool[2]; or(%1, %0) : bool[2]",
        "cast(h) to=bool : bool[2]",
    ),
    # 6
    (Select(), "lt(t, k) : bool[]; not(%0) : bool[]", "le(k, t) : bool[]"),
    (Select(), "le(t, k) : bool[]; not(%0) : bool[]", "lt(k, t) : bool[]"),
    # 7
    (
        Select(),
        "const 4 : i64[]; le(t, %0) : bool[]",
        "const 5 : i64[]; lt(t, %0) : bool[]",
    ),
    (
        Select(),
        "const 4 : i64[]; le(%0, t) : bool[]",
        "const 3 : i64[]; lt(%0, t) : bool[]",
    ),
    # 8
    (
        Select(),
        "const 4 : i64[]; const 9 : i64[]; add(t, %0) : i64[]; lt(%2, %1) : bool[]",
        "const 5 : i64[]; lt(t, %0) : bool[]",
    ),
    (
        Select(),
        "const 4 : i64[]; const 9 : i64[]; sub(t, %0) : i64[]; eq(%1, %2) : bool[]",
        "const 13 : i64[]; eq(%0, t) : bool[]",
    ),
    # Share
    (
        Share(),
        "add(f, e) : f64[]; add(e, f) : f64[]; mul(%0, %1) : f64[]",
        "add(f, e) : f64[]; mul(%0, %0) : f64[]",
    ),
    (Share(), "const 3.0 : f64[]; mul(%0, f) : f64[]", "const 3.0 : f64[]; mul(f, %0) : f64[]"),
    (
        Share(),
        "neg(f) : f64[]; neg(f) : f64[]; sub(%0, %1) : f64[]",
        "neg(f) : f64[]; sub(%0, %0) : f64[]",
    ),
    (Share(), "neg(f) : f64[]; e", "e"),
]

STAYS: list[tuple[Pass, str]] = [
    (Fold(), "neg(f) : f64[]"),
    (Fold(), "const 2.0 : f64[]; broadcast_to(%0) shape=[65] : f64[65]"),
    (Fold(), "const 0.0 : f64[]; mul(f, %0) : f64[]"),
    # Algebra 1: the constant widens the shape.
    (Algebra(), "const [1.0, 1.0] : f64[2]; mul(f, %0) : f64[2]"),
    (Algebra(), "const 1.0 : f64[]; div(%0, f) : f64[]"),
    (Algebra(), "const [1.0, 2.0, 1.0, 1.0] : f32[4]; mul(x, %0) : f32[4]"),
    # 2: the sign of a zero.
    (Algebra(), "const 0.0 : f64[]; add(f, %0) : f64[]"),
    (Algebra(), "const -0.0 : f64[]; sub(f, %0) : f64[]"),
    (Algebra(), "const 0.0 : f64[]; sub(%0, f) : f64[]"),
    (Algebra(), "const [-0.0, 0.0, -0.0, -0.0] : f32[4]; add(x, %0) : f32[4]"),
    # 3: a value that is >= 0 may be -0.0; a NaN or a negative one.
    (Algebra(), "const 0.0 : f64[]; max(f, %0) : f64[]; abs(%1) : f64[]"),
    (Algebra(), "abs(k) : i64[]"),
    # 4
    (Algebra(), "neg(f) : f64[]; mul(%0, e) : f64[]"),
    # 5: f32 does not hold what f64 and i64 hold.
    (Algebra(), "cast(f) to=f32 : f32[]; cast(%0) to=f64 : f64[]"),
    (Algebra(), "cast(j) to=f32 : f32[]; cast(%0) to=f64 : f64[]"),
    (Algebra(), "cast(k) to=i32 : i32[]; cast(%0) to=i64 : i64[]"),
    (Algebra(), "cast(k) to=f64 : f64[]; cast(%0) to=i64 : i64[]"),
    # 7: the zeros, a loser that may be NaN, and a winner of a narrower shape.
    (Algebra(), "const 0.0 : f64[]; cast(t) to=f64 : f64[]; max(%1, %0) : f64[]"),
    (Algebra(), "const 2.0 : f64[]; cos(f) : f64[]; max(%1, %0) : f64[]"),
    (Algebra(), "const [-1, -2] : i64[2]; max(t, %0) : i64[2]"),
    (Algebra(), "min(f, e) : f64[]"),
    # 9: the broadcast is what gives the result its shape.
    (Algebra(), "broadcast_to(f) shape=[4] : f64[4]; neg(%0) : f64[4]"),
    (Algebra(), "broadcast_to(f) shape=[4] : f64[4]; mul(%0, e) : f64[4]"),
    # The condition bounds what is broadcast.
    (
        Algebra(),
        "broadcast_to(k) shape=[4] : i64[4]; const 0 : i64[]; lt(%1, %0) : bool[4]; "
        "where(%2, %0, %1) : i64[4]",
    ),
    # 10: the sign of 0.0 is unknown.
    (Algebra(), "const 0.0 : f64[]; mul(%0, %0) : f64[]"),
    # Rewrites that it never makes.
    (Algebra(), "const 0.0 : f64[]; mul(f, %0) : f64[]"),
    (Algebra(), "sub(f, f) : f64[]"),
    (Algebra(), "div(f, f) : f64[]"),
    (Algebra(), "const 2.0 : f64[]; div(f, %0) : f64[]"),
    (Algebra(), "const 2.0 : f64[]; mul(f, %0) : f64[]; mul(%1, %0) : f64[]"),
    # Select 1: the branch is narrower than the result.
    (Select(), "const [true, true] : bool[2]; where(%0, f, e) : f64[2]"),
    (Select(), "lt(f, e) : bool[]; where(%0, f, e) : f64[]"),
    # 2: the largest integer, and two constants.
    (Select(), f"const {2**63 - 1} : i64[]; lt(k, t) : bool[]; where(%1, f, e) : f64[]"),
    (
        Select(),
        "const [1, 1] : i64[2]; const [0, 0] : i64[2]; lt(%0, %1) : bool[2]; "
        "where(%2, f, e) : f64[2]",
    ),
    # 4, 6: NaN compares false both ways.
    (Select(), "const 2.0 : f64[]; cos(f) : f64[]; le(%1, %0) : bool[]"),
    (Select(), "lt(f, e) : bool[]; not(%0) : bool[]"),
    # 7: no larger integer; 8: the sum may wrap.
    (Select(), "const 4 : i64[]; const 9 : i64[]; add(k, %0) : i64[]; lt(%2, %1) : bool[]"),
    (Select(), "const 4.0 : f64[]; le(f, %0) : bool[]"),
    # Share: the order of these matters, and sums are never regrouped.
    (Share(), "sub(e, f) : f64[]"),
    (Share(), "lt(e, f) : bool[]"),
    (Share(), "add(f, e) : f64[]; add(e, %0) : f64[]; add(f, %1) : f64[]"),
]


def name_of(case: tuple[object, ...]) -> str:
    return f"{getattr(case[0], 'name', '')}: {case[1]}"


@pytest.mark.parametrize(("pass_", "before", "after"), FIRES, ids=map(name_of, FIRES))
def test_fires(pass_: Pass, before: str, after: str) -> None:
    result = pass_(graph_of(before))
    assert print_graph(result) == print_graph(graph_of(after))
    assert pass_(result) is result


@pytest.mark.parametrize(("pass_", "body"), STAYS, ids=map(name_of, STAYS))
def test_stays(pass_: Pass, body: str) -> None:
    graph = graph_of(body)
    result = pass_(graph)
    assert result is graph, print_graph(result)

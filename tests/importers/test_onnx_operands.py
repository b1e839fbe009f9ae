"""An operand that a rule leaves out keeps its domain; onnxruntime computes the values."""

import math
from collections.abc import Iterator, Sequence
from typing import Any

import numpy as np
import onnxruntime as ort
import pytest
from flint import arb, fmpq
from onnx import AttributeProto, ModelProto, NodeProto, TensorProto, helper

import closedform as cf
from closedform.errors import VerificationError
from closedform.importers import onnx_graph
from closedform.importers.onnx_composed_ops import ROWS
from closedform.importers.onnx_graph import read_model
from closedform.importers.onnx_ops import EngineValue
from closedform.ir import Builder, DType, Op, Role, TensorType
from closedform.language import Schedule, t
from closedform.verify.terms import build, evaluate, from_graph
from closedform.verify.terms.definedness import obligations
from closedform.verify.terms.from_graph import terms_of_graph
from closedform.verify.translation.translation import validate
from tests.importers.onnx_programs import program_model

node = helper.make_node
CAST = node("Cast", ["step"], ["d"], to=TensorProto.DOUBLE)
UNDEFINED_AT_0 = node("Div", ["d", "d"], ["y"])
NUMBERS = {
    "nan": np.float64(math.nan),
    "inf": np.float64(math.inf),
    "zero": np.float64(0),
    "one": np.float64(1),
    "four": np.float64(4),
}


def program(*nodes: NodeProto) -> ModelProto:
    """A model of the step as a float d, and of a value y that is NaN at step 0 and 1 elsewhere."""
    return program_model([CAST, UNDEFINED_AT_0, *nodes], NUMBERS)


def run(model: ModelProto, steps: Sequence[int]) -> list[float]:
    options = ort.SessionOptions()
    options.log_severity_level = 4
    options.intra_op_num_threads = 1
    session = ort.InferenceSession(
        model.SerializeToString(), options, providers=["CPUExecutionProvider"]
    )
    return [float(session.run(None, {"step": np.array(step, np.int64)})[0]) for step in steps]


def value_at(model: ModelProto, step: int) -> float | None:
    """The value of a model at a step, as it is read; None where it has none."""
    graph = read_model(model)
    value = evaluate.value(terms_of_graph(graph)["value"], {"t": fmpq(step)})
    return None if isinstance(value, evaluate.Undefined) else float(arb(value))


# --- each row -------------------------------------------------------------------------------------

OPERANDS: dict[str, int] = {
    **dict.fromkeys(("Abs", "Ceil", "Cos", "Exp", "Floor", "Identity", "Neg", "Sigmoid"), 1),
    **dict.fromkeys(("Sign", "Sin", "Sqrt", "Tanh", "IsNaN", "IsInf", "Cast"), 1),
    **dict.fromkeys(("Add", "Div", "Mul", "Pow", "Sub", "Equal", "Less", "LessOrEqual"), 2),
    **dict.fromkeys(("Greater", "GreaterOrEqual"), 2),
    **dict.fromkeys(("Clip", "Max", "Min", "Sum"), 3),
    **dict.fromkeys(("ReduceL1", "ReduceL2", "ReduceMax", "ReduceMean", "ReduceMin"), 1),
    **dict.fromkeys(("ReduceSum", "ReduceSumSquare", "Reciprocal", "Log"), 1),
}
ATTRIBUTES: dict[str, dict[str, Any]] = {"Cast": {"to": TensorProto.DOUBLE}}
TRUTHS = {"IsNaN", "IsInf", "Equal", "Less", "LessOrEqual", "Greater", "GreaterOrEqual"}


def calls() -> Iterator[tuple[str, int]]:
    return ((operator, place) for operator, count in OPERANDS.items() for place in range(count))


@pytest.mark.parametrize(("operator", "place"), list(calls()))
def test_each_row_keeps_the_domain_of_each_operand(operator: str, place: int) -> None:
    names = ["four"] * OPERANDS[operator]
    names[place] = "y"
    result = node(operator, names, ["r"], **ATTRIBUTES.get(operator, {}))
    if operator in TRUTHS:
        last = [node("Where", ["r", "one", "four"], ["value"])]
    else:
        last = [node("Identity", ["r"], ["value"])]
    model = program(result, *last)
    # Some operations in float64.
    assert value_at(model, 3) == pytest.approx(run(model, [3])[0], rel=1e-14)
    assert value_at(model, 0) is None


def forgetful(reader: Any, _: NodeProto, operands: tuple[Any, ...]) -> Any:
    return reader.constant(4, operands[0])


def test_a_row_that_forgets_its_operand_loses_nothing(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(onnx_graph, "ROWS", {**ROWS, "Cos": forgetful})
    model = program(node("Cos", ["y"], ["value"]))
    assert value_at(model, 3) == 4
    assert value_at(model, 0) is None
    monkeypatch.setattr(
        onnx_graph, "ROWS", {**ROWS, "Cos": lambda *args: EngineValue(forgetful(*args))}
    )
    assert value_at(model, 0) == 4


def test_a_row_of_truths_may_not_forget_its_operand(monkeypatch: pytest.MonkeyPatch) -> None:
    def row(reader: Any, *_: Any) -> Any:
        return reader.builder.const(True, DType.BOOL)

    monkeypatch.setattr(onnx_graph, "ROWS", {**ROWS, "IsNaN": row})
    model = program(node("IsNaN", ["y"], ["b"]), node("Where", ["b", "d", "one"], ["value"]))
    with pytest.raises(VerificationError) as caught:
        cf.from_onnx(model)
    assert str(caught.value) == (
        "its value leaves out an operand that may have no value (node 'b', operator IsNaN)"
    )


def test_a_rule_of_an_op_that_forgets_its_operand_loses_nothing(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    graph = read_model(program(node("Cos", ["y"], ["value"])))
    rules = {**from_graph.GRAPH_RULES, Op.COS: lambda *_: build.ONE}
    monkeypatch.setattr(from_graph, "GRAPH_RULES", rules)
    value = terms_of_graph(graph)["value"]
    assert str(value) == "((0 * (t / t)) + 1)"
    assert [str(obligation.goal) for obligation in obligations(value)] == ["not(t = 0)"]


def test_a_rule_of_a_comparison_may_not_forget_its_operand(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    below = node("Less", ["y", "four"], ["b"])
    graph = read_model(program(below, node("Where", ["b", "d", "one"], ["value"])))
    monkeypatch.setattr(
        from_graph, "GRAPH_RULES", {**from_graph.GRAPH_RULES, Op.LT: lambda *_: build.TRUE}
    )
    with pytest.raises(VerificationError, match="it leaves out an operand that may have no value"):
        terms_of_graph(graph)


# --- guards ---------------------------------------------------------------------------------------

GUARDS: dict[str, list[NodeProto]] = {
    "against the NaN of another value": [
        node("IsNaN", ["y"], ["b"]),
        node("Where", ["b", "nan", "d"], ["value"]),
    ],
    "of a guard": [
        node("IsNaN", ["y"], ["b"]),
        node("Where", ["b", "nan", "d"], ["w"]),
        node("IsNaN", ["w"], ["c"]),
        node("Where", ["c", "four", "d"], ["value"]),
    ],
    "with the number first": [
        node("Equal", ["y", "y"], ["b"]),
        node("Where", ["b", "d", "nan"], ["value"]),
    ],
    "against one of two": [
        node("IsNaN", ["y"], ["b"]),
        node("IsNaN", ["d"], ["c"]),
        node("Or", ["b", "c"], ["e"]),
        node("Where", ["e", "nan", "d"], ["value"]),
    ],
    "as a number": [
        node("IsNaN", ["y"], ["b"]),
        node("Cast", ["b"], ["c"], to=TensorProto.DOUBLE),
        node("Add", ["c", "d"], ["value"]),
    ],
    "by equality": [
        node("Equal", ["y", "y"], ["b"]),
        node("Where", ["b", "d", "four"], ["value"]),
    ],
    "with equal branches": [
        node("Less", ["y", "four"], ["b"]),
        node("Where", ["b", "d", "d"], ["value"]),
    ],
    "times 0": [node("Mul", ["y", "zero"], ["b"]), node("Add", ["b", "d"], ["value"])],
    "clipped to one number": [node("Clip", ["y", "d", "d"], ["value"])],
    "dominated": [node("Min", ["y", "d"], ["b"]), node("Max", ["b", "d"], ["value"])],
}


@pytest.mark.parametrize("name", GUARDS)
def test_a_guard_of_another_value_is_undefined_where_that_is(name: str) -> None:
    model = program(*GUARDS[name])
    assert (value_at(model, 3), run(model, [3])) == (3, [3.0])
    assert value_at(model, 0) is None
    verdict = validate(Schedule(t), read_model(model))
    (at_zero,) = run(model, [0])
    # Where engines have the value of the source all the same, nothing is refuted.
    assert (str(verdict.status) == "REFUTED") is (at_zero != 0.0)
    assert not verdict.proved


IDENTITIES: dict[str, list[NodeProto]] = {
    "a guard of itself": [
        node("IsNaN", ["d"], ["b"]),
        node("Where", ["b", "nan", "d"], ["value"]),
    ],
    "a guard of an operand": [
        node("Mul", ["d", "four"], ["e"]),
        node("IsNaN", ["d"], ["b"]),
        node("Where", ["b", "nan", "e"], ["w"]),
        node("Div", ["w", "four"], ["value"]),
    ],
    "an infinity": [
        node("Equal", ["d", "inf"], ["b"]),
        node("Where", ["b", "inf", "d"], ["value"]),
    ],
    "a type": [node("CastLike", ["d", "y"], ["value"])],
    "a branch that is not taken": [
        node("Equal", ["d", "zero"], ["b"]),
        node("Where", ["b", "zero", "y"], ["c"]),
        node("Mul", ["c", "d"], ["value"]),
    ],
    "a size": [
        node("Shape", ["y"], ["s"]),
        node("Shape", ["s"], ["r"]),
        node("Cast", ["r"], ["f"], to=TensorProto.DOUBLE),
        node("ReduceSum", ["f"], ["g"], keepdims=0),
        node("Add", ["g", "d"], ["value"]),
    ],
}


@pytest.mark.parametrize("name", IDENTITIES)
def test_a_value_that_no_operand_changes_is_itself(name: str) -> None:
    model = program(*IDENTITIES[name])
    assert run(model, [0, 3]) == [0.0, 3.0]
    assert validate(Schedule(t), read_model(model)).proved


def test_an_honest_guard_costs_no_goal() -> None:
    """Exporters of torch guard each maximum, and the number of goals is that of the maximum."""
    both = node("Or", ["b", "c"], ["e"])
    tests = [node("IsNaN", ["y"], ["b"]), node("IsNaN", ["d"], ["c"]), both]
    plain = program(node("Max", ["y", "d"], ["value"]))
    guarded = program(
        *tests, node("Max", ["y", "d"], ["m"]), node("Where", ["e", "nan", "m"], ["value"])
    )
    first, second = (terms_of_graph(read_model(model))["value"] for model in (plain, guarded))
    assert first == second


def test_floats_that_are_rounded_apart_are_not_compared() -> None:
    model = program(
        node("Div", ["d", "four"], ["x"]),
        node("Sqrt", ["x"], ["r"]),
        node("Cast", ["r"], ["n"], to=TensorProto.FLOAT),
        node("Cast", ["n"], ["w"], to=TensorProto.DOUBLE),
        node("Equal", ["w", "r"], ["b"]),
        node("Where", ["b", "d", "four"], ["value"]),
    )
    assert run(model, [2]) == [4.0]
    verdict = validate(Schedule(t), read_model(model))
    assert str(verdict.status) == "UNKNOWN"
    assert "its operands are equal, and floats may round them apart" in verdict.reason


# --- tables ---------------------------------------------------------------------------------------

SIZE = 3
TABLES = {"numbers": [1.0, 2.5, 4.0], "angles": [0.0, math.pi, 2 * math.pi], "equal": [2.0] * 3}


@pytest.mark.parametrize("entries", TABLES)
@pytest.mark.parametrize("shift", range(-4, 5))
@pytest.mark.parametrize("axis", [0, -1])
def test_an_index_below_0_counts_from_the_end(entries: str, shift: int, axis: int) -> None:
    """``table[t mod 3 + shift]``, and where onnxruntime refuses the index there is no value."""
    nodes = [
        node("Mod", ["step", "size"], ["m"]),
        node("Add", ["m", "shift"], ["i"]),
        node("Gather", ["table", "i"], ["value"], axis=axis),
    ]
    table = np.array(TABLES[entries])
    model = program_model(nodes, {"size": np.int64(SIZE), "shift": np.int64(shift)})
    model.graph.initializer.append(helper.make_tensor("table", TensorProto.DOUBLE, [SIZE], table))
    for step in range(SIZE):
        try:
            (computed,) = run(model, [step])
        except Exception:  # onnxruntime's own errors
            assert value_at(model, step) is None
            continue
        assert value_at(model, step) == pytest.approx(computed, rel=1e-15)


def test_a_table_beyond_its_ends_has_no_value() -> None:
    builder = Builder("g")
    step = builder.input("step", TensorType(DType.I64), Role.STEP)
    table = builder.const(np.array([0.0, math.pi, 0.3]), DType.F64)
    builder.output("value", builder.emit(Op.LOOKUP, table, step))
    value = terms_of_graph(
        builder.build(), constant=lambda x, _: build.multiply(build.PI, build.rational(x))
    )
    (branch,) = obligations(value["value"])
    assert str(branch.claim) == "(0 <= t and t <= 2)"


# --- values at which an engine stops --------------------------------------------------------------

INTEGERS: dict[str, Any] = {"three": np.int64(3), "none": np.int64(0), "less": np.int64(-1)}
INTEGERS |= {"table": np.array([1.0, 2.0, 4.0]), "least": np.int64(-(2**63))}
INTEGERS |= {"nothing": np.float64(0)}
STOPPING: dict[str, tuple[list[NodeProto], int]] = {
    "an index beyond the table": (
        [node("Gather", ["table", "step"], ["f"]), node("Less", ["step", "three"], ["b"])],
        3,
    ),
    "an index far below 0": (
        [
            node("Sub", ["none", "step"], ["i"]),
            node("Gather", ["table", "i"], ["f"]),
            node("Less", ["i", "least"], ["b"]),
        ],
        4,
    ),
    "a quotient by 0": (
        [
            node("Div", ["three", "step"], ["q"]),
            node("Cast", ["q"], ["f"], to=TensorProto.DOUBLE),
            node("Less", ["none", "step"], ["b"]),
        ],
        0,
    ),
    "a remainder by 0": (
        [
            node("Mod", ["three", "step"], ["q"]),
            node("Cast", ["q"], ["f"], to=TensorProto.DOUBLE),
            node("Less", ["none", "step"], ["b"]),
        ],
        0,
    ),
    "a remainder of the least integer": (
        [
            node("Add", ["step", "least"], ["i"]),
            node("Mod", ["i", "less"], ["q"]),
            node("Cast", ["q"], ["f"], to=TensorProto.DOUBLE),
            node("Less", ["none", "step"], ["b"]),
        ],
        0,
    ),
}


@pytest.mark.parametrize("name", STOPPING)
def test_a_value_at_which_an_engine_stops_is_needed(name: str) -> None:
    """A quotient of integers by 0 ends the process, so that it is not run here."""
    nodes, step = STOPPING[name]
    model = program_model([CAST, *nodes, node("Where", ["b", "f", "d"], ["value"])], INTEGERS)
    assert value_at(model, step) is None
    assert value_at(model, 1) is not None
    if "index" in name:
        assert run(model, [1])
        with pytest.raises(Exception, match="out of data bounds"):
            run(model, [step])


def test_a_branch_of_an_if_that_is_not_run_stops_no_engine() -> None:
    output = helper.make_tensor_value_info("r", TensorProto.DOUBLE, [])
    then_branch = helper.make_graph(
        [node("Gather", ["table", "step"], ["r"])], "then", [], [output]
    )
    else_branch = helper.make_graph([node("Identity", ["nothing"], ["r"])], "else", [], [output])
    nodes = [
        node("Less", ["step", "three"], ["b"]),
        node("If", ["b"], ["value"], then_branch=then_branch, else_branch=else_branch),
    ]
    model = program_model(nodes, INTEGERS)
    steps = (0, 2, 3, 7)
    assert [value_at(model, step) for step in steps] == run(model, steps)
    marked = program_model(
        [
            node("Gather", ["table", "step"], ["f"], doc_string="closedform.branch"),
            nodes[0],
            node("Where", ["b", "f", "nothing"], ["value"]),
        ],
        INTEGERS,
    )
    assert value_at(marked, 2) == 4
    assert value_at(marked, 3) is None


# --- functions ------------------------------------------------------------------------------------


def function_model(
    default: float | None, passed: float | None, *, is_required: bool = False
) -> ModelProto:
    """A function that multiplies with an attribute."""
    factor = node("Constant", [], ["k"])
    factor.attribute.append(
        AttributeProto(name="value_float", ref_attr_name="factor", type=AttributeProto.FLOAT)
    )
    body = [factor, node("CastLike", ["k", "a"], ["l"]), node("Mul", ["a", "l"], ["c"])]
    defaults = [] if default is None else [helper.make_attribute("factor", default)]
    required = ["factor"] if is_required else []
    opsets = [helper.make_opsetid("", 21), helper.make_opsetid("local", 1)]
    scaled = helper.make_function(
        "local", "Scaled", ["a"], ["c"], body, opsets[:1], required, defaults
    )
    outer = helper.make_function(
        "local", "Outer", ["a"], ["c"], [node("Scaled", ["a"], ["c"], domain="local")], opsets
    )
    if passed is not None:
        outer.node[0].attribute.append(helper.make_attribute("factor", passed))
    model = program(node("Outer", ["d"], ["value"], domain="local"))
    model.functions.extend([scaled, outer])
    model.opset_import.append(opsets[1])
    return model


@pytest.mark.parametrize(("default", "passed"), [(3.0, None), (3.0, 2.0), (1.0, 3.0)])
def test_an_attribute_of_a_function_has_its_default(default: float, passed: float | None) -> None:
    model = function_model(default, passed)
    assert [value_at(model, step) for step in (1, 2)] == run(model, [1, 2])


def test_a_constant_without_its_attribute_is_refused() -> None:
    model = function_model(None, None, is_required=True)
    with pytest.raises(VerificationError, match="One and only one of the attributes"):
        cf.from_onnx(model)


def test_a_default_is_not_replaced_by_what_may_be_missing() -> None:
    model = function_model(3.0, None)
    call = model.functions[1].node[0]
    call.attribute.append(
        AttributeProto(name="factor", ref_attr_name="outer", type=AttributeProto.FLOAT)
    )
    model.functions[1].attribute.append("outer")
    with pytest.raises(VerificationError) as caught:
        cf.from_onnx(model)
    assert str(caught.value) == (
        "its attribute 'factor' has a default, and is given the attribute 'outer' that its caller "
        "may leave out (node 'c', operator Scaled)"
    )


def test_the_main_graph_takes_no_attribute_of_a_function() -> None:
    cast = node("Cast", ["d"], ["value"])
    cast.attribute.append(AttributeProto(name="to", ref_attr_name="kind", type=AttributeProto.INT))
    with pytest.raises(VerificationError) as caught:
        cf.from_onnx(program(cast))
    assert str(caught.value) == (
        "its attribute 'to' is one of a function, and it is in none (node 'value', operator Cast)"
    )


NUMBER_ATTRIBUTES: dict[str, Any] = {
    "value_float": 0.1,
    "value_int": 3,
    "value_floats": [0.25],
    "value_ints": [7],
}


@pytest.mark.parametrize("name", NUMBER_ATTRIBUTES)
def test_a_constant_may_be_a_number(name: str) -> None:
    constant = node("Constant", [], ["k"], **{name: NUMBER_ATTRIBUTES[name]})
    nodes = [
        constant,
        node("Cast", ["k"], ["c"], to=TensorProto.DOUBLE),
        node("ReduceSum", ["c"], ["s"], keepdims=0),
        node("Mul", ["s", "d"], ["value"]),
    ]
    model = program(*nodes)
    (computed,) = run(model, [2])
    assert value_at(model, 2) == computed

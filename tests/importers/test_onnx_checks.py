"""Models that have no meaning, or another one in onnxruntime, are refused before they are read."""

from collections.abc import Callable

import numpy as np
import onnx
import onnxruntime as ort
import pytest
from onnx import FunctionProto, ModelProto, NodeProto, TensorProto, helper, numpy_helper
from onnxruntime.capi import onnxruntime_pybind11_state as engine

import closedform as cf
from closedform.effort import Effort
from closedform.errors import ClosedFormError, ExportError, VerificationError
from closedform.importers.onnx_checks import IR_VERSIONS, NAMES_OF_ANY_DOMAIN, OPSETS, is_of_engine
from closedform.training.from_onnx.module import read_module
from closedform.verify.translation.rule_files import validate_file
from closedform.verify.translation.rule_reading import Kinds
from closedform.verify.translation.rule_terms import Model

DOUBLE, FLOAT, INT64 = TensorProto.DOUBLE, TensorProto.FLOAT, TensorProto.INT64
node, value_info = helper.make_node, helper.make_tensor_value_info
CAST = node("Cast", ["step"], ["d"], to=DOUBLE)
HALF = helper.make_tensor("half", DOUBLE, [], [0.5])
SCALED = node("Mul", ["d", "half"], ["value"])


def function(domain: str, name: str, *nodes: NodeProto, opset: int = 21) -> FunctionProto:
    body = nodes or (node("Add", ["a", "a"], ["c"]),)
    imports = [helper.make_opsetid("", opset)]
    return helper.make_function(domain, name, ["a"], ["c"], list(body), imports)


def model(
    *nodes: NodeProto,
    constants: tuple[TensorProto, ...] = (HALF,),
    functions: tuple[FunctionProto, ...] = (),
    imports: tuple[tuple[str, int], ...] = (("", 21),),
    inputs: tuple[onnx.ValueInfoProto, ...] = (),
    outputs: tuple[onnx.ValueInfoProto, ...] = (),
    ir_version: int = 10,
) -> ModelProto:
    graph = helper.make_graph(
        list(nodes) or [CAST, SCALED],
        "g",
        [value_info("step", INT64, []), *inputs],
        list(outputs) or [value_info("value", DOUBLE, [])],
        list(constants),
    )
    return helper.make_model(
        graph,
        opset_imports=[helper.make_opsetid(*entry) for entry in imports],
        ir_version=ir_version,
        functions=list(functions),
    )


def run(source: ModelProto, step: int) -> float:
    session = ort.InferenceSession(source.SerializeToString(), providers=["CPUExecutionProvider"])
    return float(session.run(None, {"step": np.array(step, np.int64)})[0])


def calling(domain: str, name: str = "f", **kwargs: object) -> ModelProto:
    call = node(name, ["d"], ["value"], domain=domain)
    imports = (("", 21), *(((domain, 1),) if domain else ()))
    return model(CAST, call, functions=(function(domain, name),), imports=imports)


def with_part(change: Callable[[ModelProto], object], source: ModelProto) -> ModelProto:
    change(source)
    return source


def negative_size() -> TensorProto:
    tensor = TensorProto(name="half", data_type=DOUBLE, dims=[-1])
    tensor.raw_data = np.float64(0.5).tobytes()
    return tensor


def external() -> TensorProto:
    tensor = TensorProto(name="half", data_type=DOUBLE, data_location=TensorProto.EXTERNAL)
    tensor.external_data.add(key="location", value="/etc/passwd")
    return tensor


LOCAL = (("", 21), ("f", 1))
CALL = node("g", ["d"], ["value"], domain="f")
REFUSED: dict[str, tuple[Callable[[], ModelProto], str]] = {
    "two constants of one name": (
        lambda: model(constants=(HALF, helper.make_tensor("half", DOUBLE, [], [8.0]))),
        "the constant 'half' is defined twice",
    ),
    "a negative size": (lambda: model(constants=(negative_size(),)), "the negative size -1"),
    "a negative size of an input": (
        lambda: model(inputs=(value_info("x", DOUBLE, [-2]),)),
        "the input 'x' has the negative size -2",
    ),
    "data in another file": (
        lambda: model(constants=(external(),)),
        "the constant 'half' cannot be read",
    ),
    "a value that is computed twice": (
        lambda: model(CAST, node("Add", ["d", "d"], ["value"]), SCALED),
        "its output 'value' is defined before",
    ),
    "a constant that is computed": (
        lambda: model(CAST, node("Neg", ["d"], ["half"]), SCALED),
        "its output 'half' is defined before",
    ),
    "an input that is computed": (
        lambda: model(CAST, node("Neg", ["step"], ["step"]), SCALED),
        "its output 'step' is defined before",
    ),
    "two inputs of one name": (
        lambda: model(inputs=(value_info("step", INT64, []),)),
        "the input or constant 'step' is defined twice",
    ),
    "an output that is declared twice": (
        lambda: model(outputs=(value_info("value", DOUBLE, []),) * 2),
        "the output 'value' is declared twice",
    ),
    "an output that is not computed": (
        lambda: model(outputs=(value_info("ghost", DOUBLE, []),)),
        "the output 'ghost' is not computed",
    ),
    "a value without a name": (
        lambda: model(CAST, node("Neg", ["d"], [""]), SCALED),
        "it has no output",
    ),
    "nodes in another order": (lambda: model(SCALED, CAST), "its operand 'd' is not computed"),
    "a future opset": (
        lambda: model(imports=(("", 99),)),
        f"its opset must be in 7..{OPSETS[-1]}, got 99",
    ),
    "an early opset": (
        lambda: model(imports=(("", 6),)),
        f"its opset must be in 7..{OPSETS[-1]}, got 6",
    ),
    "two opsets": (lambda: model(imports=(("", 21), ("", 13))), "the domain 'ai.onnx' twice"),
    "two opsets by two names": (
        lambda: model(imports=(("", 21), ("ai.onnx", 13))),
        "the domain 'ai.onnx' twice",
    ),
    "no opset": (lambda: model(imports=(("f", 1),)), "it does not import the domain 'ai.onnx'"),
    "a version that the engine does not have": (
        lambda: model(imports=(("", 21), ("com.microsoft", 7))),
        "version 7 of the domain 'com.microsoft'",
    ),
    "a future format": (lambda: model(ir_version=99), "its IR version must be in 3.."),
    "no format": (lambda: model(ir_version=0), ", got 0"),
    "a function that is defined twice": (
        lambda: model(CAST, CALL, functions=(function("f", "g"),) * 2, imports=LOCAL),
        "the function 'g' of the domain 'f' is defined twice",
    ),
    "a function of another opset": (
        lambda: model(CAST, CALL, functions=(function("f", "g", opset=13),), imports=LOCAL),
        "the function 'g' imports version 13 of the domain 'ai.onnx', and the model 21",
    ),
    "a function that takes a value of its caller": (
        lambda: model(
            CAST,
            CALL,
            functions=(function("f", "g", node("Mul", ["a", "d"], ["c"])),),
            imports=LOCAL,
        ),
        "its operand 'd' is not computed",
    ),
    "a function that computes its operand": (
        lambda: model(
            CAST,
            CALL,
            functions=(function("f", "g", node("Neg", ["a"], ["a"]), node("Neg", ["a"], ["c"])),),
            imports=LOCAL,
        ),
        "its output 'a' is defined before",
    ),
    "a call with two operands": (
        lambda: model(
            CAST,
            node("g", ["d", "d"], ["value"], domain="f"),
            functions=(function("f", "g"),),
            imports=LOCAL,
        ),
        "the function 'g' has 1 inputs, got 2",
    ),
    "a default of another type": (
        lambda: model(inputs=(value_info("half", FLOAT, []),)),
        "the default of the input 'half' has another type",
    ),
    "a default of another shape": (
        lambda: model(inputs=(value_info("half", DOUBLE, [2]),)),
        "the default of the input 'half' has another type",
    ),
    "a value of another type than declared": (
        lambda: with_part(
            lambda made: made.graph.value_info.append(value_info("d", FLOAT, [])), model()
        ),
        "onnx.checker refuses it",
    ),
    "an output of another type than computed": (
        lambda: model(outputs=(value_info("value", FLOAT, []),)),
        "onnx.checker refuses it",
    ),
    "an output of another shape than computed": (
        lambda: model(outputs=(value_info("value", DOUBLE, [3]),)),
        "onnx.checker refuses it",
    ),
    "an attribute that is given twice": (
        lambda: with_part(
            lambda made: made.graph.node[0].attribute.append(helper.make_attribute("to", DOUBLE)),
            model(),
        ),
        "onnx.checker refuses it: Attribute 'to' appeared multiple times",
    ),
    "an attribute of another opset": (
        lambda: with_part(
            lambda made: made.graph.node[0].attribute.append(helper.make_attribute("saturate", 1)),
            model(imports=(("", 13),)),
        ),
        "its attribute 'saturate' is not supported",
    ),
    "an operator of another opset": (
        lambda: model(
            CAST, node("Mod", ["d", "half"], ["value"], fmod=1), imports=(("", 9),), ir_version=4
        ),
        "opset 9 does not have the operator",
    ),
    "a sparse constant": (
        lambda: with_part(
            lambda made: made.graph.sparse_initializer.add().values.CopyFrom(HALF), model()
        ),
        "it has sparse initializers",
    ),
    "training information": (
        lambda: with_part(lambda made: made.training_info.add(), model()),
        "it has training information",
    ),
    "quantization annotations": (
        lambda: with_part(lambda made: made.graph.quantization_annotation.add(), model()),
        "it has quantization annotations",
    ),
}


@pytest.mark.parametrize(("make", "message"), REFUSED.values(), ids=list(REFUSED))
def test_an_ambiguous_model_is_refused(make: Callable[[], ModelProto], message: str) -> None:
    with pytest.raises(VerificationError) as caught:
        cf.from_onnx(make())
    assert message in str(caught.value)


SUBDOMAINS = ("", ".experimental", ".a.b")
DOMAINS = sorted(
    {schema.domain for schema in engine.get_all_operator_schema()}
    | {schema.domain for schema in onnx.defs.get_all_schemas_with_history()}
    | {"ai.onnx", "ai.onnx.training", "org.pytorch.aten", "com.microsoft.dml"}
)
NAMES = ("Div", "Relu", "QuickGelu", "Normalizer", "NotAnOperator")


@pytest.mark.parametrize(
    "domain", [f"{name}{end}" for name in DOMAINS if name for end in SUBDOMAINS]
)
def test_no_function_is_in_a_domain_of_the_engine(domain: str) -> None:
    assert is_of_engine(domain)
    for name in NAMES:
        for source in (calling(domain, name), calling(domain, name)):
            with pytest.raises(VerificationError, match="whose operators engines define"):
                cf.from_onnx(source)
            with pytest.raises(ExportError, match="whose operators engines define"):
                read_module(source, [])


def test_no_function_of_a_rule_is_in_a_domain_of_the_engine() -> None:
    rule = cf.optimizers.sgd(0.1)
    source = calling("", "Relu")
    with pytest.raises(ClosedFormError, match="whose operators engines define"):
        validate_file("step", Model([(rule, {"w": (2,)})], Kinds()), source, Effort.of(0))


@pytest.mark.parametrize(
    "domain",
    ["f", "local", "custom", "pkg.onnxscript.torch_lib", "pkg.torch.__subgraph__", "my.ai.onnx"],
)
def test_a_function_of_another_domain_is_read_as_it_runs(domain: str) -> None:
    for name in sorted({*NAMES} - NAMES_OF_ANY_DOMAIN):
        source = calling(domain, name)
        assert float(cf.from_onnx(source).exact(3)) == run(source, 3) == 6


@pytest.mark.parametrize("name", sorted(NAMES_OF_ANY_DOMAIN))
def test_no_function_has_a_name_that_the_engine_takes_for_its_own(name: str) -> None:
    with pytest.raises(VerificationError, match="that onnxruntime recognizes in any domain"):
        cf.from_onnx(calling("f", name))


def test_the_long_name_of_the_standard_domain_is_the_short_one() -> None:
    long = node("Mul", ["d", "half"], ["value"], domain="ai.onnx")
    for imports in ((("", 21),), (("ai.onnx", 21),)):
        source = model(CAST, long, imports=imports)
        assert float(cf.from_onnx(source).exact(3)) == run(source, 3) == 1.5


def test_an_output_needs_no_shape() -> None:
    source = model(outputs=(value_info("value", DOUBLE, None),))
    assert float(cf.from_onnx(source).exact(3)) == run(source, 3) == 1.5


def test_an_input_with_an_initializer_is_optional_since_version_4() -> None:
    optional = (value_info("half", DOUBLE, []),)
    recent, early = (model(inputs=optional, ir_version=version) for version in (4, 3))
    for source in (recent, early):
        assert float(cf.from_onnx(source).exact(3)) == run(source, 3) == 1.5
    assert [str(name) for name in cf.from_onnx(recent).hyperparameters] == ["half"]
    assert not cf.from_onnx(early).hyperparameters


def test_the_default_of_an_input_is_compared(tmp_path: object) -> None:
    from pathlib import Path

    path = Path(str(tmp_path)) / "lr.onnx"
    schedule = cf.Schedule(cf.t * cf.expr.hyper("half")).bind(half=0.5)
    source = model(inputs=(value_info("half", DOUBLE, []),))
    onnx.save(source, path)
    text = 'closedform.Schedule(closedform.t * closedform.expr.hyper("half")).bind(half={})'
    for default, verdict in ((0.5, "PROVED"), (0.25, "REFUTED")):
        file = path.with_name("source.py")
        file.write_text(f"import closedform\nlr = {text.format(default)}\n")
        report = cf.verify_file(path, against=f"{file}:lr")
        (row,) = (row for row in report.rows if row.claim.startswith("the file is"))
        assert row.verdict == verdict
    assert float(schedule.exact(3)) == run(source, 3)


def test_onnxruntime_runs_each_version_that_is_read() -> None:
    for opset in OPSETS:
        source = model(imports=(("", opset),))
        assert run(source, 3) == float(cf.from_onnx(source).exact(3))
    for version in range(IR_VERSIONS[0], 14):
        assert run(model(ir_version=version), 3) == 1.5
    # onnxruntime 1.32 loads opset 28 and version 14 of the format: the bounds are those of 1.31.
    if tuple(map(int, ort.__version__.split(".")[:2])) < (1, 32):
        for source in (model(imports=(("", 27),)), model(ir_version=14)):
            with pytest.raises(Exception, match="support"):
                run(source, 3)


def test_large_constants_are_checked_without_their_data() -> None:
    """A model of more than 2 GiB cannot be checked by onnx: here its nodes can."""
    weights = numpy_helper.from_array(np.ones((300, 300)), "w")
    bad = node("MatMul", ["half", "w"], ["value"])
    with pytest.raises(ExportError, match=r"onnx\.checker refuses it"):
        read_module(model(bad, constants=(HALF, weights)), [])

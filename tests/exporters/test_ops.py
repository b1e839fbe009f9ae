"""Each op row x special values x dtypes x back ends, with the tolerance of the row."""

from collections.abc import Mapping

import numpy as np
import onnxruntime
import pytest
import torch
from onnx import helper

from closedform.errors import ExportError
from closedform.ir.graph import Array, Builder, Role
from closedform.ir.ops import OPS, Op
from closedform.ir.types import ELEMENT_TYPES, DType, ElementType, Shape, TensorType
from tests.exporters.op_cases import CASES, Case
from tests.support.backends import BACKENDS, INSTALLED, Backend
from tests.support.engines import run_evaluator, run_onnxruntime, run_torch, steps_apart
from tests.support.extras import skip_for_module


def assert_agrees(case: Case, actual: Mapping[str, Array]) -> None:
    expected = run_evaluator(case.graph, case.inputs)["y"]
    apart = steps_apart(actual["y"], expected, unit=case.unit)
    spec = OPS[case.op]
    assert apart <= spec.ulp, f"{case}: {apart} ulp apart, {spec.ulp} allowed ({spec.reason})"


@pytest.mark.parametrize("name", BACKENDS)
def test_table_is_total(name: str) -> None:
    backend = BACKENDS[name]
    for module in backend.needs:
        skip_for_module(module)
    if not backend.is_installed:
        pytest.skip(f"needs one of {', '.join(backend.programs)}")
    assert sorted(backend.ops()) == sorted(Op)


def _identity(row: ElementType) -> onnxruntime.InferenceSession:
    ports = [helper.make_tensor_value_info(name, row.number, []) for name in "xy"]
    graph = helper.make_graph(
        [helper.make_node("Identity", ["x"], ["y"])], "g", ports[:1], ports[1:]
    )
    imports = [helper.make_opsetid("", 17)]
    model = helper.make_model(graph, opset_imports=imports, ir_version=8)
    return onnxruntime.InferenceSession(model.SerializeToString())


@pytest.mark.parametrize("row", ELEMENT_TYPES, ids=[row.name for row in ELEMENT_TYPES])
def test_a_row_of_the_table_of_element_types_says_what_the_libraries_say(row: ElementType) -> None:
    assert helper.tensor_dtype_to_np_dtype(row.number) == row.numpy
    assert str(getattr(torch, row.name)) == f"torch.{row.name}"
    assert f"tensor({row.runtime})" in [argument.type for argument in _identity(row).get_inputs()]
    if row.precision:
        limits = DType(row.label.lower()).limits
        assert (limits.nmant + 1, float(limits.smallest_normal)) == (
            row.precision,
            2.0**row.exponent,
        )


def test_cases_cover_every_op_and_dtype() -> None:
    seen = {
        (case.op, case.graph.nodes[operand].type.dtype)
        for case in CASES
        for node in case.graph.nodes
        if node.op is case.op
        for operand in node.operands
    }
    computed = {op for op in Op if op not in (Op.INPUT, Op.CONST)}
    assert {op for op, _ in seen} == computed
    assert {(op, dtype) for op in computed for dtype in OPS[op].dtypes} - seen == set()


@pytest.fixture(scope="module", params=INSTALLED)
def backend(request: pytest.FixtureRequest) -> Backend:
    """A back end that has compiled all cases."""
    found = INSTALLED[request.param]
    found.prepare(case.graph for case in CASES)
    return found


@pytest.mark.parametrize("case", CASES, ids=str)
def test_back_end_agrees_with_the_evaluator(case: Case, backend: Backend) -> None:
    refusal = backend.refuses(case.graph)
    inputs = {name: backend.canonical(array) for name, array in case.inputs.items()}
    if refusal:
        with pytest.raises(ExportError) as caught:
            backend.run(case.graph, inputs)
        assert refusal in str(caught.value)
        return
    expected = backend.canonical(run_evaluator(case.graph, inputs)["y"])
    apart = steps_apart(backend.run(case.graph, inputs)["y"], expected, unit=case.unit)
    spec = OPS[case.op]
    assert apart <= spec.ulp, f"{case}: {apart} ulp apart, {spec.ulp} allowed ({spec.reason})"


@pytest.mark.parametrize("opset", [13, 17, 18])
@pytest.mark.parametrize("case", [c for c in CASES if c.op is Op.REDUCE_MAX], ids=str)
def test_axes_of_a_maximum_are_an_attribute_before_opset_18(case: Case, opset: int) -> None:
    assert_agrees(case, run_onnxruntime(case.graph, case.inputs, opset=opset))


@pytest.mark.parametrize("op", [Op.MIN, Op.MAX])
@pytest.mark.parametrize("shape", [(), ("n",)])
def test_extremum_of_integers_beyond_32_bits(op: Op, shape: Shape) -> None:
    # onnxruntime 1.31.1: Min([2**31 + 1], 100) is 2147483649 for vectors of i64.
    builder = Builder("extremum")
    step = builder.input("step", TensorType(DType.I64, ("n",)), Role.STEP)
    other = builder.input("other", TensorType(DType.I64, shape), Role.STATE)
    builder.output("value", builder.emit(op, step, other))
    graph = builder.build()
    steps = np.array([2**31 + 1, 2**31, 5, 2**40, 7, 2**50])
    inputs = {"step": steps, "other": np.array(100) if shape == () else np.full(6, 100)}
    expected = run_evaluator(graph, inputs)["value"]
    assert np.array_equal(run_onnxruntime(graph, inputs)["value"], expected)
    assert np.array_equal(run_torch(graph, inputs)["value"], expected)

"""Each op row x special values x dtypes x three engines, with the tolerance of the row."""

import pytest

from closedform.exporters.onnx_ops import ELEMENT_TYPES, ONNX_OPS
from closedform.exporters.torch_ops import TORCH_DTYPES, TORCH_OPS
from closedform.ir.graph import Array
from closedform.ir.ops import OPS, Op
from closedform.ir.types import DType
from tests.exporters.op_cases import CASES, Case
from tests.support.engines import run_evaluator, run_onnxruntime, run_torch, steps_apart


def assert_agrees(case: Case, actual: dict[str, Array]) -> None:
    expected = run_evaluator(case.graph, case.inputs)["y"]
    apart = steps_apart(actual["y"], expected, unit=case.unit)
    spec = OPS[case.op]
    assert apart <= spec.ulp, f"{case}: {apart} ulp apart, {spec.ulp} allowed ({spec.reason})"


def test_tables_are_total() -> None:
    assert set(ONNX_OPS) == set(TORCH_OPS) == set(Op)
    assert set(ELEMENT_TYPES) == set(TORCH_DTYPES) == set(DType)


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


@pytest.mark.parametrize("case", CASES, ids=str)
def test_onnxruntime_agrees_with_the_evaluator(case: Case) -> None:
    assert_agrees(case, run_onnxruntime(case.graph, case.inputs))


@pytest.mark.parametrize("case", CASES, ids=str)
def test_optimized_onnxruntime_agrees_with_the_evaluator(case: Case) -> None:
    assert_agrees(case, run_onnxruntime(case.graph, case.inputs, is_optimized=True))


@pytest.mark.parametrize("case", CASES, ids=str)
def test_torch_agrees_with_the_evaluator(case: Case) -> None:
    assert_agrees(case, run_torch(case.graph, case.inputs))

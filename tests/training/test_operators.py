"""Operators that a version of torch has removed do not stop the tables of the others."""

import ast
from pathlib import Path

import pytest
import torch

from closedform.training.to_onnx.operators import ATEN, PRIMS, AbsentOperator

TRACING = Path(__file__).parents[2] / "src/closedform/training/to_onnx"
REMOVED = {"ATEN.cholesky": (2, 14)}
"""Operators by the first version of torch without them."""


def test_an_operator_is_torchs_own() -> None:
    assert ATEN.mul.Tensor is torch.ops.aten.mul.Tensor
    assert PRIMS.sum.default is torch.ops.prims.sum.default


def test_an_absent_operator_equals_no_target() -> None:
    absent = ATEN.no_such_operator.default
    assert isinstance(absent, AbsentOperator)
    assert repr(absent) == "AbsentOperator('aten.no_such_operator.default')"
    assert absent not in {torch.ops.aten.mul.Tensor: 1, ATEN.no_such_operator.default: 2}


@pytest.mark.parametrize("path", sorted(TRACING.glob("*.py")), ids=lambda path: path.stem)
def test_only_removed_operators_are_absent(path: Path) -> None:
    """A misspelt operator would be a row of a table that nothing reaches."""
    version = tuple(int(part) for part in torch.__version__.split(".")[:2])
    for node in ast.walk(ast.parse(path.read_text(encoding="utf-8"))):
        match node:
            case ast.Attribute(ast.Name("ATEN" | "PRIMS" as namespace), name):
                is_absent = isinstance(
                    getattr({"ATEN": ATEN, "PRIMS": PRIMS}[namespace], name), AbsentOperator
                )
                removal = REMOVED.get(f"{namespace}.{name}")
                assert is_absent == (removal is not None and version >= removal), name

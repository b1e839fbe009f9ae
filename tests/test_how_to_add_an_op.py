"""The page "how to add an op", followed literally in a copy of the repository."""

import re
from pathlib import Path

from tests.support.pages import ROOT, apply, commands, copy, edits, run
from tests.support.programs import run_python

PAGE = ROOT / "docs" / "how_to_add_an_op.md"
FOLDERS = (
    *("src/closedform", "tests/support", "tests/exporters", "tests/ir", "tests/properties"),
    *("tests/verify/certificates",),
)
FILES = ("pyproject.toml", "tests/conftest.py", "tests/test_library.py")
BACK_ENDS = {f"src/closedform/exporters/{name}_ops.py" for name in ("c", "onnx", "torch")}
MOST_OTHER_FILES = 7

# The uses of the new op: a file that has it is read, evaluated, run in onnxruntime and
# torch, and proved to be a schedule.
USE = """
import numpy as np
import sympy as sp
import torch

import closedform as cf
from closedform.exporters.onnx_model import to_model
from closedform.importers.onnx_graph import read_model
from closedform.ir import Builder, DType, Op, Role, TensorType, evaluate
from closedform.verify.translation.translation import validate
from tests.support.engines import run_onnxruntime, run_torch

builder = Builder("tangent")
step = builder.input("step", TensorType(DType.I64), Role.STEP)
first = builder.emit(Op.MIN, step, builder.const(10, DType.I64))
cast = builder.emit(Op.CAST, first, to=DType.F64)
x = builder.emit(Op.MUL, cast, builder.const(2**-6, DType.F64))
builder.output("value", builder.emit(Op.TAN, x))
graph = builder.build()
model = to_model(graph)
assert {"Sin", "Cos", "Div"} <= {node.op_type for node in model.graph.node}
tangent = next(node for node in model.graph.node if node.op_type == "Sin")
tangent.op_type = "Tan"
assert any(node.op is Op.TAN for node in read_model(model).nodes)
for number in (0, 1, 10):
    inputs = {"step": np.array(number)}
    wanted = np.tan(number / 64)
    assert np.isclose(evaluate(graph, inputs)["value"], wanted, rtol=1e-15)
    for engine in (run_onnxruntime, run_torch):
        assert np.isclose(engine(graph, inputs)["value"], wanted, rtol=4e-15), engine
for divisor in (64, 63):
    print(validate(cf.Schedule(sp.tan(sp.Min(cf.t, 10) / divisor)), graph).status)
"""


def files(blocks: list[str]) -> set[str]:
    return {block.splitlines()[0].removeprefix("--- ") for block in blocks}


def test_following_the_page_adds_the_op(tmp_path: Path) -> None:
    text = PAGE.read_text(encoding="utf-8")
    copy(tmp_path, FOLDERS, FILES)
    assert files(edits(text)) >= BACK_ENDS
    assert len(files(edits(text)) - BACK_ENDS) <= MOST_OTHER_FILES
    for block in edits(text):
        apply(block, tmp_path)
    (tests,) = (run(command, tmp_path) for command in commands(text))
    assert tests.returncode == 0, f"{tests.stdout}{tests.stderr}"
    assert int(re.findall(r"(\d+) passed", tests.stdout)[0]) >= 8, tests.stdout
    used = run_python(["-c", USE], tmp_path, {"PYTHONPATH": str(tmp_path / "src")})
    assert used.returncode == 0, used.stderr
    assert used.stdout.split() == ["PROVED", "REFUTED"]


def test_every_table_of_the_page_exists() -> None:
    text = PAGE.read_text(encoding="utf-8")
    for path in re.findall(r"`((?:ir|exporters|importers|verify|lowering)/[\w/]+\.py)`", text):
        assert (ROOT / "src" / "closedform" / path).exists(), path

"""Files that ask for more than they hold are refused at once, with an error of ours."""

import sys
import time
from collections.abc import Callable
from pathlib import Path

import onnx
import pytest
from onnx import ModelProto, NodeProto

from closedform.errors import VerificationError
from closedform.importers.onnx_graph import read_model
from closedform.ir.evaluate import evaluate
from closedform.verify.claims.files import verify_file
from tests.verify.hostile import REFUSED, chain, choices, doubling, node, recursive, stating


@pytest.mark.sample(every=2)
@pytest.mark.parametrize(("make", "message"), REFUSED.values(), ids=list(REFUSED))
def test_it_is_refused_early(make: Callable[[], ModelProto], message: str, tmp_path: Path) -> None:
    path = tmp_path / "hostile.onnx"
    onnx.save(make(), path)
    begun = time.process_time()
    with pytest.raises(VerificationError) as caught:
        verify_file(path, effort=0.1)
    assert message in str(caught.value)
    assert len(str(caught.value)) < 1000
    assert time.process_time() - begun < 20  # 4 s for 5,000 nodes, the others less than 1 s


@pytest.mark.parametrize("name", ["5,000 sines", "5,000 floors"])
def test_nesting_is_refused_whatever_the_limit_on_recursion(name: str, tmp_path: Path) -> None:
    """At 10,000 frames, which other packages set, the sines took 83 s of CPU before this limit."""
    path = tmp_path / "hostile.onnx"
    onnx.save(REFUSED[name][0](), path)
    frames = sys.getrecursionlimit()
    begin = time.process_time()
    sys.setrecursionlimit(10_000)
    try:
        with pytest.raises(VerificationError, match="nested too deeply"):
            verify_file(path, effort=0.1)
    finally:
        sys.setrecursionlimit(frames)
    assert time.process_time() - begin < 20  # 0.2 s; the rest of the time is for a busy machine


def test_a_small_program_with_functions_is_read(tmp_path: Path) -> None:
    path = tmp_path / "functions.onnx"
    onnx.save(doubling(4), path)
    schedule, _ = verify_file(path, effort=0.1)
    assert schedule.exact(3) == 3 * 2**8
    assert recursive().functions[0].node[0].op_type == "f0"
    onnx.save(stating("[]"), path)
    assert verify_file(path, effort=0.1)[0].exact(7) == 7


def test_a_chain_of_choices_is_read_in_segments(tmp_path: Path) -> None:
    """2**40 paths as a tree, two segments of steps: the values are those of the graph."""
    path = tmp_path / "choices.onnx"
    onnx.save(choices(40), path)
    schedule, report = verify_file(path, effort=0.5)
    assert not report.unknown
    graph = read_model(choices(40))
    for step in (0, 1, 7, 99, 100, 101, 10**6, 2**40):
        value = float(evaluate(graph, {"step": step})["value"])
        # 40 products by the float nearest to 7/10, each rounded.
        assert float(schedule.exact(step)) == pytest.approx(value, rel=40 * 2**-51, abs=0)


def test_choices_with_many_segments_are_refused(tmp_path: Path) -> None:
    """Each choice has a limit of its own, and so a segment: more of them than are written."""

    def link(i: int) -> list[NodeProto]:
        return [
            node("Less", [f"x{i}", f"c{i}"], [f"b{i}"]),
            node("Add", [f"x{i}", "one"], [f"y{i}"]),
            node("Where", [f"b{i}", f"y{i}", f"x{i}"], [f"x{i + 1}"]),
        ]

    path = tmp_path / "many.onnx"
    onnx.save(chain(80, link, one=1.0, **{f"c{i}": 1000.0 * i for i in range(80)}), path)
    with pytest.raises(VerificationError, match="nested choices, at most 6 are written"):
        verify_file(path, effort=0.1)

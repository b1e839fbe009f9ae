"""Files that ask for more than they hold are refused at once, with an error of ours."""

from __future__ import annotations

import time
from collections.abc import Callable
from pathlib import Path

import onnx
import pytest
from onnx import ModelProto

from closedform.errors import VerificationError
from closedform.verify.claims.files import verify_file
from tests.verify.hostile import REFUSED, doubling, recursive, stating


@pytest.mark.sample(every=2)
@pytest.mark.parametrize(("make", "message"), REFUSED.values(), ids=list(REFUSED))
def test_it_is_refused_early(make: Callable[[], ModelProto], message: str, tmp_path: Path) -> None:
    path = tmp_path / "hostile.onnx"
    onnx.save(make(), path)
    begun = time.process_time()
    with pytest.raises(VerificationError) as caught:
        verify_file(path, budget=1.0)
    assert message in str(caught.value)
    assert len(str(caught.value)) < 1000
    assert time.process_time() - begun < 20  # 4 s for 5,000 nodes, the others less than 1 s


def test_a_small_program_with_functions_is_read(tmp_path: Path) -> None:
    path = tmp_path / "functions.onnx"
    onnx.save(doubling(4), path)
    schedule, _ = verify_file(path, budget=1.0)
    assert schedule.exact(3) == 3 * 2**8
    assert recursive().functions[0].node[0].op_type == "f0"
    onnx.save(stating("[]"), path)
    assert verify_file(path, budget=1.0)[0].exact(7) == 7

"""Every hostile file through ``verify_file``: an answer within the limits, this process alive."""

import resource
import time
from collections.abc import Callable
from pathlib import Path

import onnx
import pytest
from onnx import ModelProto

import closedform as cf
from closedform.errors import ClosedFormError
from tests.verify.hostile import LIMITED, REFUSED

FILES: dict[str, Callable[[], ModelProto]] = {
    **{name: make for name, (make, _) in REFUSED.items()},
    **LIMITED,
}
SECONDS = 60.0
GRACE = 5.0  # to write the report and to end the process, on a machine that others use as well


@pytest.mark.parametrize("name", FILES)
def test_a_hostile_file_has_an_answer(
    name: str, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    path = tmp_path / "hostile.onnx"
    onnx.save(FILES[name](), path)
    begun = time.monotonic()
    try:
        report = cf.verify_file(path, effort=0.2, seconds=SECONDS)
        said = ", ".join(sorted({row.verdict for row in report.rows}))
        said += "".join(f": {row.detail}" for row in report.rows if row.name == "limits")
    except ClosedFormError as error:
        said = f"refused: {str(error)[:60]}"
    seconds = time.monotonic() - begun
    largest = resource.getrusage(resource.RUSAGE_CHILDREN).ru_maxrss / 2**20
    with capsys.disabled():
        print(f"\n{name}: {seconds:.1f} s, {said}; largest process so far {largest:.2f} GiB")
    assert seconds < SECONDS + GRACE
    assert largest <= 2.0

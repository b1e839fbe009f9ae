"""The whole library under all its names, exported to ONNX in one process."""

import time

from benchmarks.export_library import classes_of_all_systems, examples, exported
from closedform import schedules


def test_every_name_exports_within_half_a_minute() -> None:
    begin = time.process_time()
    sizes = {name: exported(source) for name, source in examples()}
    seconds = time.process_time() - begin
    assert set(sizes) == {*schedules.__all__, *classes_of_all_systems()}
    assert len(sizes) >= 45 + 100
    assert seconds <= 30  # 3 s on two cores of 2026; the processor's own time, whatever else runs

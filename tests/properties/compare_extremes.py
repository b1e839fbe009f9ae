"""3,000 inputs with extreme numbers over every entrance: a value, or an error of the library.

Each is run under limits of 2 GB of memory and 10 s of processor time; no process may end, no other
exception be raised, and none may reach the limit of time. The outcomes are stored in
``build/extremes.jsonl`` with the programs, so that a run that was ended goes on where it was; a
fault is run again. ``EXTREMES=100-400`` names some of the inputs.
"""

import json
import os
from collections import Counter

import pytest

from tests.properties.extreme_inputs import extreme
from tests.properties.extreme_runs import ROOT, Run, run_programs

FIRST, END = map(int, os.environ.get("EXTREMES", "0-3000").split("-"))
STORED = ROOT / "build" / "extremes.jsonl"


def stored_programs() -> set[str]:
    """The programs that have had a value or an error of the library."""
    if not STORED.exists():
        return set()
    rows = [json.loads(line) for line in STORED.read_text(encoding="utf-8").splitlines()]
    return {row["program"] for row in rows if not Run(*row["run"]).is_fault}


def test_every_input_has_a_value_or_an_error_of_the_library(
    capsys: pytest.CaptureFixture[str],
) -> None:
    known = stored_programs()
    inputs = [(number, extreme(number)) for number in range(FIRST, END)]
    missing = [(number, one) for number, one in inputs if one.text not in known]
    faults: list[str] = []
    counts: Counter[str] = Counter(stored=len(inputs) - len(missing))
    STORED.parent.mkdir(exist_ok=True)
    with STORED.open("a", encoding="utf-8") as file:
        runs = run_programs(one.text for _, one in missing)
        for (number, one), run in zip(missing, runs, strict=True):
            file.write(json.dumps({"program": one.text, "run": list(run)}) + "\n")
            file.flush()
            counts[f"{one.entrance}: {run.outcome}"] += 1
            if run.is_fault:
                faults.append(f"{number} {one.entrance}: {run.outcome}\n{one.text}\n{run.text}")
    with capsys.disabled():
        print(f"\n{dict(sorted(counts.items()))}")
    assert not faults, f"{len(faults)} faults:\n" + "\n\n".join(faults)

"""Each promise of docs/determinism.md in each engine, and runs in new processes.

What the table does not promise is printed with what was measured.
"""

import os
import subprocess
import sys
from pathlib import Path

import pytest

from tests.determinism.contract import MEANINGS, PAGE, cells, promises
from tests.determinism.runs import CHECKS, ENGINES, RULES

# The warnings are of torch's compiler.
pytestmark = [pytest.mark.packages(), pytest.mark.filterwarnings("ignore")]

ROOT = Path(__file__).parents[2]
TEXT = PAGE.read_text(encoding="utf-8")
BY_CORES = [
    (engine, kind)
    for engine, column, text in cells(TEXT)
    if column == "thread counts"
    for kind in sorted(MEANINGS[text])
]


@pytest.mark.parametrize(("engine", "column", "kind"), list(promises(TEXT)))
def test_bits_are_equal(engine: str, column: str, kind: str) -> None:
    assert CHECKS[column](ENGINES[engine], kind)


@pytest.mark.parametrize(("engine", "kind"), BY_CORES)
def test_new_processes_with_one_core_and_all(engine: str, kind: str) -> None:
    counts = [1, 1, os.cpu_count() or 1]
    digests = {digest_of_process(count, engine, kind) for count in counts}
    assert len(digests) == 1


def digest_of_process(count: int, engine: str, kind: str) -> str:
    command = [sys.executable, "-m", "tests.determinism.runs", str(count), engine, kind]
    result = subprocess.run(command, cwd=ROOT, capture_output=True, text=True, check=False)
    assert result.returncode == 0, result.stderr
    return result.stdout.split()[-1]


def test_what_is_not_promised_is_measured() -> None:
    promised = set(promises(TEXT))
    for engine in ENGINES:
        for column, check in CHECKS.items():
            for kind in RULES:
                is_possible = (engine, kind) != ("torch, onnxruntime", "random")
                if is_possible and (engine, column, kind) not in promised:
                    print(engine, column, kind, check(ENGINES[engine], kind))

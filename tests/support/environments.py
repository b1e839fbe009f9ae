"""The whole suite in environments other than that of `make test`: core install, lowest, newest.

``python -m tests.support.environments [NAME …]`` makes build/environments/NAME, a virtual
environment with the versions of its constraints, and runs the tests folder by folder. The results
stand in tools/results/environments.json with the commit and a digest of their inputs; a folder
whose result is fresh is not run again, so an interrupted run goes on where it stopped. The skips of
a folder are fixed by reason: a run with more of them fails, unless --accept-skips says that they
are right.
"""

import argparse
import hashlib
import json
import os
import re
import subprocess
import sys
import tomllib
from collections import Counter
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import asdict, dataclass
from pathlib import Path

from tests.support.inputs import ROOT, commit, digest

RESULTS = ROOT / "tools" / "results" / "environments.json"
FOLDER = ROOT / "build" / "environments"
INPUTS = ("src/closedform", "tests/support", "tests/conftest.py", "pyproject.toml")
# A test builds a package with the setuptools of the environment; that of Python 3.11 is too old.
RUNNERS = ("pytest", "pytest-xdist", "hypothesis", "networkx", "setuptools>=77")
# pip finds a build of this version for CPUs; that of others has 5 GB of CUDA.
TORCH = "torch==2.13.0"
SKIP = re.compile(r"^SKIPPED \[(\d+)\] \S+?:(?:\d+:)? (.+?)(?: in tests/\S+)?$", re.MULTILINE)
COUNT = re.compile(r"(\d+) (passed|failed|error|skipped)")


@dataclass(frozen=True, slots=True)
class Environment:
    """A virtual environment.

    Attributes:
        title: The words of the table.
        requirements: The arguments of ``pip install``.
        constraints: The file of its versions; None for the newest.
    """

    title: str
    requirements: tuple[str, ...]
    constraints: str | None


ENVIRONMENTS: Mapping[str, Environment] = {
    "core": Environment("core install, no extra", ("-e", ".", *RUNNERS), "constraints.txt"),
    "lowest": Environment("lowest versions", ("-e", ".[dev]", TORCH), "constraints-lowest.txt"),
    "newest": Environment("newest versions", ("-e", ".[dev]", TORCH), None),
}


def parts(root: Path = ROOT) -> Iterator[str]:
    """The folders of tests, and the files beside them as one part."""
    yield "tests/test_*.py"
    for folder in sorted((root / "tests").iterdir()):
        if folder.is_dir() and any(folder.rglob("test_*.py")):
            yield f"tests/{folder.name}"


def state_of(environment: Environment, root: Path = ROOT) -> str:
    """A digest of what pip reads: not of the settings of tools in pyproject.toml."""
    project = tomllib.loads((root / "pyproject.toml").read_text(encoding="utf-8"))["project"]
    names = ("requires-python", "dependencies", "optional-dependencies", "scripts")
    constraints = environment.constraints
    versions = (root / constraints).read_text(encoding="utf-8") if constraints else ""
    lines = [line for line in versions.splitlines() if not line.startswith("#")]
    text = json.dumps([environment.requirements, [project.get(name) for name in names], lines])
    return hashlib.sha256(text.encode()).hexdigest()[:16]


def make(name: str) -> Path:
    """Makes an environment unless it is of today's requirements; returns its Python."""
    environment, folder = ENVIRONMENTS[name], FOLDER / name
    python, stamp = folder / "bin" / "python", folder / "requirements"
    state = state_of(environment)
    if stamp.exists() and stamp.read_text() == state:
        return python
    print(f"== environments: {name}, {environment.title}", flush=True)
    subprocess.run([sys.executable, "-m", "venv", "--clear", str(folder)], check=True)
    constraints = environment.constraints
    versions = ["-c", constraints] if constraints else ["--upgrade"]
    install = [str(python), "-m", "pip", "install", "-qq", *environment.requirements, *versions]
    subprocess.run(install, cwd=ROOT, check=True)
    stamp.write_text(state)
    return python


@dataclass(frozen=True, slots=True)
class Outcome:
    """The result of one part of the tests in one environment.

    Attributes:
        commit: The commit that was checked out.
        inputs: The digest of the inputs.
        passed: The number of tests that passed.
        failed: The number of tests that failed, and of files that cannot be imported.
        skips: The number of skips by reason.
    """

    commit: str
    inputs: str
    passed: int
    failed: int
    skips: Mapping[str, int]


def read_summary(text: str, origin: Mapping[str, str]) -> Outcome:
    """Returns the outcome that ``pytest -q -rs`` prints; a run without a last line has failed."""
    skips: Counter[str] = Counter()
    for count, words in SKIP.findall(text):
        skips[words] += int(count)
    counts: Counter[str] = Counter()
    last = (text.strip().splitlines() or [""])[-1]
    for count, kind in COUNT.findall(last):
        counts[kind] += int(count)
    was_killed = not counts and not last.startswith("no tests ran")
    failed = 1 if was_killed else counts["failed"] + counts["error"]
    return Outcome(**origin, passed=counts["passed"], failed=failed, skips=dict(skips))


def new_skips(outcome: Outcome, stored: Outcome | None) -> dict[str, int]:
    """The reasons with more skips than are stored, and how many more."""
    fixed = stored.skips if stored else outcome.skips
    growth = {words: count - fixed.get(words, 0) for words, count in outcome.skips.items()}
    return {words: count for words, count in growth.items() if count > 0}


def run(name: str, part: str, python: Path, workers: int, stored: Outcome | None) -> Outcome:
    """Runs a part unless its stored outcome is fresh, prints its output, returns its outcome."""
    files = sorted(ROOT.glob(part)) if "*" in part else [ROOT / part]
    sources = [file.relative_to(ROOT).as_posix() for file in files]
    origin = {"commit": commit(), "inputs": digest([*INPUTS, *sources])}
    if stored is not None and stored.inputs == origin["inputs"] and not stored.failed:
        return stored
    print(f"== {name}: {part}", flush=True)
    words = ["-m", "pytest", "-q", "-rs", "-n", str(workers), "--dist", "loadfile", *sources]
    environment = os.environ | {"OMP_WAIT_POLICY": "PASSIVE", "MPLBACKEND": "Agg"}
    done = subprocess.run(
        [str(python), *words], cwd=ROOT, env=environment, capture_output=True, text=True
    )
    print(done.stdout, done.stderr, flush=True)
    return read_summary(done.stdout, origin)


def read(path: Path = RESULTS) -> dict[str, dict[str, Outcome]]:
    """The stored outcomes, by environment and part."""
    stored = json.loads(path.read_text(encoding="utf-8")) if path.exists() else {}
    return {
        name: {part: Outcome(**entry) for part, entry in entries.items()}
        for name, entries in stored.items()
    }


def store(name: str, part: str, outcome: Outcome, path: Path = RESULTS) -> None:
    """Stores the outcome of a part in an environment; of one that failed, that there is none."""
    results = read(path)
    results.setdefault(name, {}).pop(part, None)
    if not outcome.failed:
        results[name][part] = outcome
    entries = {n: {p: asdict(o) for p, o in parts.items()} for n, parts in results.items()}
    path.write_text(f"{json.dumps(entries, indent=1, sort_keys=True)}\n", encoding="utf-8")


def main(words: Sequence[str]) -> int:
    """Runs the parts that are not fresh in the environments; returns the exit code."""
    parser = argparse.ArgumentParser(prog="python -m tests.support.environments")
    parser.add_argument("names", nargs="*", choices=[[], *ENVIRONMENTS], metavar="NAME")
    parser.add_argument("--parts", nargs="*", metavar="PART")
    parser.add_argument("--workers", type=int, default=2)
    parser.add_argument("--accept-skips", action="store_true")
    options = parser.parse_args(words)
    is_green = True
    for name in options.names or ENVIRONMENTS:
        python = make(name)
        for part in options.parts or parts():
            stored = read().get(name, {}).get(part)
            outcome = run(name, part, python, options.workers, stored)
            growth = new_skips(outcome, stored)
            if growth and not options.accept_skips:
                print(f"{name}: {part}: more skips than are stored: {growth}", file=sys.stderr)
            else:
                store(name, part, outcome)
                # A later part compares the page with the results.
                subprocess.run([sys.executable, "-m", "tools", "environments"], cwd=ROOT)
            is_green = is_green and not outcome.failed and (options.accept_skips or not growth)
    return 0 if is_green else 1


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))

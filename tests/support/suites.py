"""The suites of ``make compare``, and the stored result of each.

Each ``compare_*.py`` is a suite: ``tests/training/compare_zoo.py`` is ``training/zoo``. One that is
marked ``pytest.mark.packages()`` runs in .venv-compare, which has the packages of others, with the
environment variables that the mark names. ``SPECIAL`` has the suites that need more.

``python -m tests.support.suites run [NAME …]`` runs suites one by one. Without names these are the
suites of ``make compare`` whose stored result is not fresh, so an interrupted run goes on where it
stopped. tools/results/suites.json has the results, each with the commit and a digest of its inputs:
it is fresh while these files are the same. The files that a suite writes, such as accuracy.json
there, are of the same commit. ``python -m tests.support.suites status`` lists them all.
"""

import argparse
import ast
import json
import os
import re
import shutil
import subprocess
import sys
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from enum import StrEnum
from pathlib import Path

from tests.support.inputs import ROOT, commit, digest

RECORDS = ROOT / "tools" / "results" / "suites.json"
COMMON_INPUTS = ("src/closedform", "tests/support", "tests/conftest.py", "constraints.txt")
REQUIREMENTS = ("tests/recipes/compare_requirements.txt",)
SUMMARY = re.compile(r"(?:\d+ (?:passed|failed|errors?|skipped|xfailed|deselected)(?:, )?)+")


class State(StrEnum):
    """How a stored result is related to the sources."""

    NEVER_RUN = "never run"
    FRESH = "fresh"
    STALE = "stale"
    FAILED = "failed"


@dataclass(frozen=True, slots=True)
class Suite:
    """A comparison that takes longer than the tests of ``make test``.

    Attributes:
        name: Its name in SUITES=, and in tools/results/suites.json.
        title: The claim that it compares with something.
        arguments: The arguments of pytest.
        is_compared: Whether it runs in .venv-compare, which has the packages of others.
        is_parallel: Whether its files are spread over several processes.
        is_default: Whether ``make compare`` runs it; the others have targets with their names.
        variables: Environment variables.
        program: A program that it needs.
        afterwards: The arguments of Python that rewrite a page from the results.
    """

    name: str
    title: str
    arguments: tuple[str, ...]
    is_compared: bool = False
    is_parallel: bool = False
    is_default: bool = True
    variables: Mapping[str, str] = field(default_factory=dict)
    program: str | None = None
    afterwards: tuple[str, ...] = ()

    @property
    def files(self) -> tuple[str, ...]:
        """The test files and folders that it names."""
        return tuple(word.partition("::")[0] for word in self.arguments if word.startswith("tests"))

    def inputs(self, root: Path = ROOT) -> tuple[str, ...]:
        """The files and folders that its result depends on."""
        helpers = {
            path.relative_to(root).as_posix()
            for file in self.files
            for path in (root / file).parent.glob("*.py")
            if (root / file).suffix and not path.name.startswith(("test_", "compare_"))
        }
        requirements = REQUIREMENTS if self.is_compared else ()
        return (*COMMON_INPUTS, *requirements, *self.files, *sorted(helpers))


def main_suite(name: str, title: str, *arguments: str, **options: object) -> Suite:
    """A suite of the environment of ``make test``."""
    return Suite(name, title, arguments, **options)  # type: ignore[arg-type]


def compared_suite(name: str, title: str, *arguments: str, **options: object) -> Suite:
    """A suite of the environment that has the packages of others."""
    return Suite(name, title, arguments, is_compared=True, **options)  # type: ignore[arg-type]


SPECIAL = (
    main_suite(
        "cases",
        "every case of the tests of which make test runs a part; the reference values",
        "--exhaustive",
        "tests",
        "tests/optimizers/compare_accuracy.py",
        is_parallel=True,
    ),
    compared_suite(
        "jax",
        "every schedule and rule in JAX beside onnxruntime and optax",
        "--exhaustive",
        "tests/exporters/test_jax.py",
        "tests/exporters/test_ops.py",
        "tests/test_library.py",
        "tests/transforms/test_low_precision.py",
        "tests/transforms/test_quantized_engines.py",
        "tests/test_readme.py::test_page_runs[docs/jax.md]",
    ),
    compared_suite(
        "keras-jax",
        "schedules and rules in Keras on JAX",
        "tests/exporters/test_keras.py",
        variables={"KERAS_BACKEND": "jax"},
    ),
    compared_suite(
        "keras-torch",
        "schedules and rules in Keras on torch",
        "tests/exporters/test_keras.py",
        "tests/test_readme.py::test_page_runs[docs/keras.md]",
        variables={"KERAS_BACKEND": "torch"},
    ),
    compared_suite(
        "mlx",
        "schedules and rules in MLX",
        "--exhaustive",
        "tests/exporters/test_mlx.py",
        "tests/test_readme.py::test_page_runs[docs/mlx.md]",
    ),
    compared_suite(
        "executorch",
        "rules as programs of ExecuTorch",
        "--exhaustive",
        "-k",
        "executorch",
        "tests/exporters/test_torch_rule.py",
    ),
    compared_suite(
        "pages",
        "pages that use optax and other packages; what is read of optax",
        "tests/importers/test_optax.py",
        "tests/test_readme.py::test_page_runs[docs/bring_your_own_schedule.md]",
        "tests/test_readme.py::test_page_runs[docs/bring_your_own_optimizer.md]",
        "tests/test_readme.py::test_page_runs[docs/adopt_torch.md]",
    ),
    main_suite(
        "records",
        "translation validation of every record",
        "tests/verify/compare_records.py",
        is_parallel=True,
    ),
    # Fifteen minutes on one core; the accelerated packages run on the CPU.
    compared_suite(
        "accuracy",
        "schedules and updates in every back end and other packages; docs/accuracy.md",
        "tests/numerics/compare_accuracy.py",
        "tests/numerics/compare_update_accuracy.py",
        variables={"KERAS_BACKEND": "jax"},
        afterwards=("-m", "tools.build_accuracy"),
    ),
    # Some 70 minutes on one core.
    compared_suite(
        "precision",
        "parameters in bfloat16, next to float32 and torchao; docs/low_precision.md",
        "tests/low_precision/compare_low_precision.py",
        afterwards=("-m", "tools.build_low_precision"),
    ),
    # Half an hour on one core.
    main_suite(
        "checker",
        "proofs of all proved goals, replayed; false claims, edited proofs; docs/verification.md",
        "tests/verify/compare_search.py",
        afterwards=("-m", "tools.build_checker"),
    ),
    # Twenty minutes on one core. Debian: apt-get install coq libcoq-interval
    main_suite(
        "rocq",
        "proofs of all verdicts, checked by Rocq; false claims, edited proofs",
        "tests/rocq/compare_rocq.py",
        program="coqc",
        afterwards=("-m", "tools.build_rocq"),
    ),
    # About 30 minutes on one core.
    main_suite(
        "transfer",
        "best learning rates over widths; docs/scaling.md",
        "tests/scaling/compare_transfer.py",
        is_default=False,
        afterwards=("-m", "tools.build_scaling"),
    ),
    compared_suite(
        "backends",
        "every schedule and rule in every back end",
        "tests/runtimes/compare_backends.py",
        is_default=False,
    ),
    main_suite(
        "runtimes",
        "onnxruntime of other versions and on the web, tract, OpenVINO; docs/runtimes.md",
        "tests/runtimes/compare_runtimes.py",
        is_default=False,
        variables={"RUST_BACKTRACE": "0"},
        afterwards=("-m", "tools.build_runtimes"),
    ),
    main_suite(
        "torch-tests",
        "the optimizer suite that ships in the torch wheel; torch's schedulers",
        "--exhaustive",
        "tests/torch/compare_torch_suites.py",
        "tests/torch/test_torch_schedulers.py",
        "tests/torch/test_scheduler_behaviours.py",
        "tests/torch/test_changed_groups.py",
        "tests/torch/test_complex_and_sparse.py",
        is_default=False,
    ),
    main_suite(
        "browser",
        "training and the gallery in Node and Chromium",
        "tests/web/compare_browser.py",
        is_default=False,
    ),
    main_suite(
        "webgpu",
        "training on WebGPU, on Chromium's software adapter",
        "tests/web/compare_webgpu.py",
        is_default=False,
    ),
    main_suite(
        "hosts",
        "training in C and in Node, with onnxruntime's own API",
        "tests/training/test_hosts.py",
        is_default=False,
    ),
)


def comparison(path: Path, root: Path = ROOT) -> Suite:
    """The suite of a ``compare_*.py``: its docstring is the title, its mark the environment."""
    tree = ast.parse(path.read_text(encoding="utf-8"))
    file = path.relative_to(root).as_posix()
    name = file.removeprefix("tests/").replace("compare_", "").removesuffix(".py")
    title = (ast.get_docstring(tree) or name).partition("\n")[0].rstrip(".")
    for node in ast.walk(tree):
        match node:
            case ast.Call(
                func=ast.Attribute(value=ast.Attribute(attr="mark"), attr="packages"),
                keywords=keywords,
            ):
                variables = {str(each.arg): ast.literal_eval(each.value) for each in keywords}
                return compared_suite(name, title, file, variables=variables)
    return main_suite(name, title, file)


def comparisons(special: Iterable[Suite], root: Path = ROOT) -> tuple[Suite, ...]:
    """The suites of the comparisons that no special suite has."""
    files = {root / file for suite in special for file in suite.files}
    paths = sorted(root.glob("tests/**/compare_*.py"))
    return tuple(comparison(path, root) for path in paths if path not in files)


SUITES = (*SPECIAL, *comparisons(SPECIAL))


@dataclass(frozen=True, slots=True)
class Record:
    """The stored result of a suite.

    Attributes:
        commit: The commit that was checked out.
        inputs: The digest of the inputs.
        has_passed: Whether pytest ended without a failure.
        counts: The counts of the summary of pytest.
    """

    commit: str
    inputs: str
    has_passed: bool
    counts: str


class Records:
    """The stored results, in a file of JSON.

    Args:
        path: The file.
        root: The repository.
    """

    def __init__(self, path: Path = RECORDS, root: Path = ROOT) -> None:
        self._path, self._root = path, root

    def read(self) -> dict[str, Record]:
        """Returns the results by the names of their suites."""
        if not self._path.exists():
            return {}
        stored = json.loads(self._path.read_text(encoding="utf-8"))
        return {name: Record(**entry) for name, entry in stored.items()}

    def origin(self, suite: Suite) -> dict[str, str]:
        """Returns the commit and the digest of the inputs as they are now."""
        inputs = digest(suite.inputs(self._root), root=self._root)
        return {"commit": commit(self._root), "inputs": inputs}

    def write(
        self, suite: Suite, origin: Mapping[str, str], *, has_passed: bool, counts: str
    ) -> None:
        """Stores the result of a suite for the files that it began with."""
        record = {**origin, "has_passed": has_passed, "counts": counts}
        stored = json.loads(self._path.read_text(encoding="utf-8")) if self._path.exists() else {}
        text = json.dumps(stored | {suite.name: record}, indent=1, sort_keys=True)
        self._path.write_text(f"{text}\n", encoding="utf-8")

    def state(self, suite: Suite) -> State:
        """Returns whether the result of a suite is of the files as they are now."""
        record = self.read().get(suite.name)
        if record is None:
            return State.NEVER_RUN
        if not record.has_passed:
            return State.FAILED
        is_fresh = record.inputs == self.origin(suite)["inputs"]
        return State.FRESH if is_fresh else State.STALE

    def changed_files(self, suite: Suite) -> int | None:
        """Returns the number of inputs that changed since the commit; None for another history."""
        record = self.read()[suite.name]
        command = ["git", "diff", "--name-only", record.commit, "--", *suite.inputs(self._root)]
        done = subprocess.run(command, cwd=self._root, capture_output=True, text=True, check=False)
        return len(done.stdout.splitlines()) if done.returncode == 0 else None

    def lines(self, suites: Iterable[Suite]) -> list[str]:
        """Returns a line for each suite: state, name, commit and counts."""
        records = self.read()
        lines = []
        for suite in suites:
            record, state = records.get(suite.name), self.state(suite)
            words = [f"{state:9}", f"{suite.name:20}"]
            if record is not None:
                words += [f"{record.commit:12}", record.counts]
            if state is State.STALE:
                count = self.changed_files(suite)
                words.append("" if count is None else f"({count} inputs changed since)")
            lines.append(" ".join(words).rstrip())
        return lines


def command_of(suite: Suite, workers: int, root: Path = ROOT) -> list[str]:
    """The command that runs a suite."""
    python = str(root / ".venv-compare/bin/python") if suite.is_compared else sys.executable
    spread = ["-n", str(workers), "--dist", "loadfile"] if suite.is_parallel else ["-s"]
    return [python, "-m", "pytest", "-q", *spread, *suite.arguments]


def run(suite: Suite, command: Sequence[str], records: Records) -> bool:
    """Runs a suite, prints and stores its result, and returns whether it has passed."""
    print(f"== {suite.name}: {suite.title}", flush=True)
    environment = os.environ | {"OMP_WAIT_POLICY": "PASSIVE"} | dict(suite.variables)
    origin, counts = records.origin(suite), ""
    with subprocess.Popen(
        command, cwd=ROOT, env=environment, stdout=subprocess.PIPE, text=True
    ) as process:
        for line in process.stdout or ():
            print(line, end="", flush=True)
            match = SUMMARY.search(line)
            counts = match.group().removesuffix(", ") if match else counts
    has_passed = process.returncode == 0
    if has_passed and suite.afterwards:
        has_passed = subprocess.run([sys.executable, *suite.afterwards], cwd=ROOT).returncode == 0
    records.write(suite, origin, has_passed=has_passed, counts=counts)
    return has_passed


def selected(names: Sequence[str], records: Records) -> list[Suite]:
    """The suites with these names; without names those of ``make compare`` that are not fresh."""
    by_name = {suite.name: suite for suite in SUITES}
    unknown = [name for name in names if name not in by_name]
    if unknown:
        sys.exit(f"there is no suite {unknown[0]!r}; known are {', '.join(by_name)}")
    if names:
        return [by_name[name] for name in names]
    return [s for s in SUITES if s.is_default and records.state(s) is not State.FRESH]


def main(words: Sequence[str]) -> int:
    """Runs suites, or lists the states of all; returns the exit code."""
    parser = argparse.ArgumentParser(prog="python -m tests.support.suites", description=__doc__)
    parser.add_argument("action", choices=["run", "status"])
    parser.add_argument("names", nargs="*", metavar="NAME")
    parser.add_argument("--workers", type=int, default=2)
    options = parser.parse_args(words)
    records = Records()
    if options.action == "status":
        print(
            "\n".join(records.lines(selected(options.names, records) if options.names else SUITES))
        )
        return 0
    failures = []
    for suite in selected(options.names, records):
        if suite.program is not None and shutil.which(suite.program) is None:
            print(f"== {suite.name}: skipped, {suite.program} is not installed")
        elif not run(suite, command_of(suite, options.workers), records):
            failures.append(suite.name)
    if failures:
        print(f"failed: {', '.join(failures)}", file=sys.stderr)
    return 1 if failures else 0


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))

"""Shared by all tests: the `golden` fixture, sampling of cases, skips without an extra.

`make test` runs a fixed part of the long tables of cases; `make compare` runs all of them:

- `@pytest.mark.sample(every=8)` above a parametrized test keeps the cases 0, 8, 16, … in the order
  in which pytest collects them. `@pytest.mark.exhaustive` keeps none.
- `settings(max_examples=examples(300))` of tests.support.sampling asks hypothesis for a part of the
  300 examples, which are the same in each run.
- `--exhaustive` runs all cases and all examples, the latter drawn anew in each run.

A test that is named by its id, or by `-k`, is run in any case.

A test that imports a package of an extra which is not installed, itself or in the library, is
skipped with the name of the extra, and so is a file of tests. Tests that see the missing package in
the output of a program are marked with `@pytest.mark.needs("torch")`.
"""

import difflib
import gc
import os
import sys
from collections import Counter
from collections.abc import Callable, Generator, Iterator
from pathlib import Path
from typing import Any

import hypothesis
import pytest

from tests.support import programs
from tests.support.extras import missing_extra, skip_for_extra, skip_for_module
from tests.support.inputs import ROOT
from tests.support.torch_linker import link_torch

GOLDEN = Path(__file__).parent / "golden"

# SymPy and torch leave millions of objects, and a full collection visits all of them: with the
# thresholds of Python, a tenth of the time.
gc.set_threshold(100_000, 50, 100)

# A slow machine does not fail an example. What `make test` draws is the same in each run.
hypothesis.settings.register_profile(
    "closedform", deadline=None, print_blob=True, derandomize=True, max_examples=25
)
hypothesis.settings.register_profile("exhaustive", deadline=None, print_blob=True, max_examples=100)
hypothesis.settings.load_profile("closedform")


def pytest_addoption(parser: pytest.Parser) -> None:
    parser.addoption(
        "--update-golden", action="store_true", help="rewrite tests/golden from what the code says"
    )
    parser.addoption(
        "--exhaustive", action="store_true", help="run every case of the sampled tests"
    )
    parser.addoption(
        "--device", default="cpu", help="the device of the tests that run on a GPU, too"
    )


def pytest_configure(config: pytest.Config) -> None:
    config.addinivalue_line(
        "markers", "sample(every): without --exhaustive only each so many-th case is run"
    )
    config.addinivalue_line("markers", "exhaustive: run with --exhaustive only")
    config.addinivalue_line("markers", "needs(module, …): skipped where a module is not installed")
    config.addinivalue_line(
        "markers", "packages(NAME=value, …): make compare runs it in .venv-compare, with variables"
    )
    if config.getoption("--exhaustive"):
        # Before any test module is imported: their settings read the profile.
        hypothesis.settings.load_profile("exhaustive")


class _File(pytest.Module):
    """A file of tests; it is skipped where it imports a package of a missing extra."""

    def collect(self) -> Any:
        try:
            return super().collect()
        except self.CollectError as error:
            # Another file that imports this one finds the missing package, not half of its names.
            if self.path.is_relative_to(ROOT):
                parts = self.path.relative_to(ROOT).with_suffix("").parts
                sys.modules.pop(".".join(parts), None)
            _skip_without_extra(error, self.nodeid)
            raise


def pytest_pycollect_makemodule(module_path: Path, parent: pytest.Collector) -> pytest.Module:
    file: pytest.Module = _File.from_parent(parent, path=module_path)
    return file


@pytest.hookimpl(wrapper=True)
def pytest_fixture_setup() -> Generator[None, Any, Any]:
    try:
        return (yield)
    except Exception as error:
        _skip_without_extra(error)
        raise


@pytest.hookimpl(wrapper=True)
def pytest_pyfunc_call(pyfuncitem: pytest.Function) -> Generator[None, Any, Any]:
    for mark in pyfuncitem.iter_markers("needs"):
        for module in mark.args:
            skip_for_module(module)
    try:
        return (yield)
    except Exception as error:
        _skip_without_extra(error)
        raise


def _skip_without_extra(error: Exception, file: str = "") -> None:
    extra = missing_extra(error)
    if extra is not None:
        skip_for_extra(extra, file)


def pytest_collection_modifyitems(config: pytest.Config, items: list[pytest.Item]) -> None:
    is_named = any("::" in argument for argument in config.args) or config.option.keyword
    if config.getoption("--exhaustive") or is_named:
        return
    chosen, left_out = sampled(items)
    if left_out:
        config.hook.pytest_deselected(items=left_out)
        items[:] = chosen


def sampled(items: list[pytest.Item]) -> tuple[list[pytest.Item], list[pytest.Item]]:
    """Returns the tests that are run without `--exhaustive`, and the others."""
    chosen: list[pytest.Item] = []
    left_out: list[pytest.Item] = []
    seen: Counter[str] = Counter()
    for item in items:
        strides = [mark.kwargs["every"] for mark in item.iter_markers("sample")]
        name = item.nodeid.partition("[")[0]
        is_left_out = any(item.iter_markers("exhaustive")) or any(
            seen[name] % stride for stride in strides
        )
        seen[name] += 1
        (left_out if is_left_out else chosen).append(item)
    return chosen, left_out


@pytest.fixture(scope="session", autouse=True)
def _torch_is_found_by_its_linker() -> None:
    link_torch()


@pytest.fixture(scope="session", autouse=True)
def _programs_are_ended() -> Iterator[None]:
    yield
    programs.close()


def compare_with_golden(path: Path, text: str, *, update: bool) -> None:
    """Fails with a diff where `text` is not what the file at `path` says; writes it on `update`."""
    text = text.rstrip("\n") + "\n"
    if update:
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_text(text, encoding="utf-8", newline="\n")
        return
    if not path.exists():
        pytest.fail(f"no golden text {path}: write it with `make golden`, and review it")
    expected = path.read_text(encoding="utf-8")
    if text == expected:
        return
    lines = difflib.unified_diff(
        expected.splitlines(), text.splitlines(), "golden", "now", lineterm=""
    )
    diff = "\n".join(lines)
    pytest.fail(f"{path.name} differs (if the new text is right: `make golden`):\n{diff}")


@pytest.fixture
def golden(request: pytest.FixtureRequest) -> Callable[[str, str], None]:
    """`golden(name, text)` compares `text` with tests/golden/<name>.txt."""
    update = bool(request.config.getoption("--update-golden"))

    def compare(name: str, text: str) -> None:
        compare_with_golden(GOLDEN / f"{name}.txt", text, update=update)

    return compare


def pytest_terminal_summary(terminalreporter: pytest.TerminalReporter) -> None:
    """Says what the run cost, all processes together."""
    if not os.environ.get("PYTEST_XDIST_WORKER"):
        spent = os.times()
        own, others = spent.user + spent.system, spent.children_user + spent.children_system
        terminalreporter.write_line(f"CPU time: {own + others:.0f} s")

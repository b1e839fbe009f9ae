"""Every block of README.md and of the pages under docs/ is run.

A page's blocks run in order in one namespace and one empty folder: ```python blocks as Python
(those that begin with `>>>` as doctests, whose shown values must match), and in ```console blocks
the lines `$ closedform ...`, which must exit with 0. Lines shown below such a command must stand in
what it prints, in that order; `...` stands for any lines. A block ```python needs=optax is run
where that package is installed, as in the environment of `make compare`.
"""

import doctest
import re
import shlex
import sys
import textwrap
import warnings
from dataclasses import dataclass
from importlib.util import find_spec
from pathlib import Path
from typing import Any

import pytest

from tests.support import programs
from tests.support.extras import missing_extra

ROOT = Path(__file__).parents[1]
# The files of the first import each other; tests/test_how_to_add_a_framework.py follows it in a
# copy. Commands of the second exit with 1; tests/symptoms/test_symptoms.py runs them.
FOLLOWED = {ROOT / "docs" / name for name in ("how_to_add_a_framework.md", "symptoms.md")}
PAGES = [ROOT / "README.md", *sorted({*(ROOT / "docs").glob("**/*.md")} - FOLLOWED)]
FENCE = re.compile(r"^( *)```(\w*)(?: needs=(\w+))?[^\n]*\n(.*?)^\1```$", re.MULTILINE | re.DOTALL)
# Other names of the two languages: a block that bears one would never be run.
REFUSED = {"py": "python", "pycon": "python", "python3": "python"} | dict.fromkeys(
    ("bash", "sh", "shell", "zsh"), "console"
)
FLAGS = doctest.ELLIPSIS | doctest.NORMALIZE_WHITESPACE


class _Runner(doctest.DocTestRunner):
    """Runs the examples of a block; a missing extra skips the page, as in any other test."""

    def report_unexpected_exception(
        self, out: Any, test: doctest.DocTest, example: doctest.Example, exc_info: Any
    ) -> None:
        if missing_extra(exc_info[1]) is not None:
            raise exc_info[1]
        super().report_unexpected_exception(out, test, example, exc_info)


@dataclass(frozen=True, slots=True)
class Block:
    """A fenced block of a page, the page's line on which its text begins, what it needs."""

    page: str
    line: int
    language: str
    text: str
    needs: str | None = None

    @property
    def is_runnable(self) -> bool:
        return self.needs is None or find_spec(self.needs) is not None


@dataclass(frozen=True, slots=True)
class Command:
    """A line `$ closedform ...` and the lines of output shown below it."""

    line: str
    shown: tuple[str, ...]


def blocks_of(page: str, text: str) -> list[Block]:
    return [
        Block(
            page,
            text.count("\n", 0, match.start(4)) + 1,
            match[2],
            textwrap.dedent(match[4]),
            match[3],
        )
        for match in FENCE.finditer(text)
    ]


def commands_of(text: str) -> list[Command]:
    commands: list[Command] = []
    pending: str | None = None
    shown: list[str] = []
    for line in [*text.replace("\\\n", " ").splitlines(), "$"]:
        if not line.startswith("$"):
            shown.append(line)
            continue
        if pending is not None:
            commands.append(Command(pending, tuple(shown)))
        pending = line[2:] if line.startswith("$ closedform ") else None
        shown = []
    return commands


def missing_line(shown: tuple[str, ...], printed: str) -> str | None:
    """The first shown line that `printed` lacks after the ones before it; None where all stand."""
    rest = iter([line.strip() for line in printed.splitlines()])
    for line in shown:
        wanted = line.strip()
        if wanted in {"", "..."}:
            continue
        if wanted not in rest:
            return line
    return None


def run_python(block: Block, namespace: dict[str, Any]) -> None:
    if block.text.lstrip().startswith(">>> "):
        test = doctest.DocTestParser().get_doctest(
            block.text, namespace, block.page, block.page, block.line - 1
        )
        report: list[str] = []
        _Runner(optionflags=FLAGS).run(test, out=report.append, clear_globs=False)
        namespace.update(test.globs)
        assert not report, "".join(report)
        return
    # Empty lines first, so that a traceback shows the page's own line.
    code = compile("\n" * (block.line - 1) + block.text, block.page, "exec")
    exec(code, namespace)


def run_console(block: Block) -> None:
    program = Path(sys.executable).with_name("closedform")
    for command in commands_of(block.text):
        words = shlex.split(command.line, comments=True)[1:]
        shown = {"MPLBACKEND": "Agg", "COLUMNS": "100", "NO_COLOR": "1"}
        done = programs.run_python([str(program), *words], environment=shown)
        where = f"{block.page}:{block.line}: $ {command.line}"
        assert done.returncode == 0, f"{where}\n{done.stdout}\n{done.stderr}"
        missing = missing_line(command.shown, done.stdout)
        assert missing is None, f"{where}\nshown but not printed: {missing}\n{done.stdout}"


def run_page(page: str, text: str) -> None:
    namespace: dict[str, Any] = {"__name__": "__main__"}
    for block in blocks_of(page, text):
        if block.language in REFUSED:
            wanted = REFUSED[block.language]
            pytest.fail(f"{page}:{block.line}: a {block.language} block: write ```{wanted}")
        if block.language == "python" and block.is_runnable:
            with warnings.catch_warnings():
                if block.needs is not None:  # packages warn of each other
                    warnings.simplefilter("ignore")
                run_python(block, namespace)
        if block.language == "console":
            run_console(block)


@pytest.mark.parametrize("page", PAGES, ids=lambda page: str(page.relative_to(ROOT)))
def test_page_runs(page: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(tmp_path)
    run_page(str(page), page.read_text(encoding="utf-8"))


def test_readme_has_blocks() -> None:
    languages = {b.language for b in blocks_of("README.md", (ROOT / "README.md").read_text())}
    assert {"python", "console"} <= languages


def test_blocks_share_one_namespace() -> None:
    run_page("page", "```python\na = 1\n```\ntext\n```python\n>>> a + 1\n2\n\n```\n")


def test_block_inside_a_list_runs() -> None:
    page = "- item\n\n  ```python\n  if True:\n      1 / 0\n  ```\n"
    with pytest.raises(ZeroDivisionError):
        run_page("page", page)


def test_a_block_that_needs_a_package_runs_where_it_is_installed() -> None:
    run_page("page", "```python needs=absent_package\n1 / 0\n```\n")
    with pytest.raises(ZeroDivisionError):
        run_page("page", "```python needs=sympy\n1 / 0\n```\n")


def test_block_that_would_never_run_is_refused() -> None:
    with pytest.raises(pytest.fail.Exception, match=r"page:3: a sh block: write ```console"):
        run_page("page", "a\n```sh\nclosedform list\n```\n")


def test_failing_block_shows_the_line_of_its_page() -> None:
    page = "title\n\n```python\nokay = 1\n1 / 0\n```\n"
    with pytest.raises(ZeroDivisionError) as caught:
        run_page("page.md", page)
    assert (caught.traceback[-1].lineno, str(caught.traceback[-1].path)[-7:]) == (4, "page.md")


def test_wrong_shown_value_is_reported() -> None:
    with pytest.raises(AssertionError, match=r"(?s)Expected:.*3.*Got:.*2"):
        run_page("page", "```python\n>>> 1 + 1\n3\n```\n")


def test_commands_are_found_with_what_is_shown() -> None:
    text = "$ make demo\nignored\n$ closedform list \\\n  --all\none\ntwo\n$ closedform show x\n"
    assert commands_of(text) == [
        Command("closedform list    --all", ("one", "two")),
        Command("closedform show x", ()),
    ]


@pytest.mark.parametrize(
    ("shown", "missing"),
    [
        (("a", "c"), None),
        (("a", "...", " c "), None),
        (("c", "a"), "a"),
        (("b", "d"), "d"),
        ((), None),
    ],
)
def test_shown_lines_are_sought_in_order(shown: tuple[str, ...], missing: str | None) -> None:
    assert missing_line(shown, "a\nb\nc\n") == missing


def test_the_first_hour_takes_fifteen_lines() -> None:
    text = (ROOT / "docs" / "first_hour.md").read_text(encoding="utf-8")
    blocks = [block for block in blocks_of("", text) if block.language == "python"]
    # The output of the doctest is not code.
    code = [
        line
        for block in blocks
        for line in block.text.splitlines()
        if line.strip() and (line.startswith(">>>") or not block.text.startswith(">>>"))
    ]
    assert len(code) == 15
    assert "15 lines of code" in text

"""The size of each package of src in code lines, which only falls.

Docstrings, comments and blank lines do not count. A cap is raised
in a separate commit, whose message says why.
"""

import re
import subprocess
from collections import Counter
from functools import cache

import pytest

from tests.support.pages import ROOT
from tools.__main__ import MODULES

SOURCE = ROOT / "src" / "closedform"
CAPS = {
    "analysis": 6943,
    "api": 756,
    "cli": 2963,
    "exporters": 3756,
    "frameworks": 19778,
    "importers": 14365,
    "ir": 3998,
    "language": 3963,
    "laws": 1436,
    "lowering": 4325,
    "modules": 1245,
    "optimizers": 3602,
    "plotting": 730,
    "recipes": 7117,
    "referee": 2681,
    "runtime": 2418,
    "scaling": 624,
    "schedules": 1605,
    "torch": 6909,
    "training": 12940,
    "transforms": 1098,
    "verify": 17895,
    "web": 612,
}
"""The most code lines of each package; "modules" are the files in no package."""
SLACK = 40
"""A cap is lowered when a package is smaller by more."""
MAKEFILE = 150


DOCSTRING = re.compile(r'^[ \t]*[rR]?"""(?:[^"\\]|\\.|"(?!""))*"""[ \t]*$', re.MULTILINE)
"""A string of three quotes that is a statement: ruff forbids other quotes for docstrings."""


def code_lines(text: str) -> int:
    """The number of lines with code; a syntax tree of all files takes ten times as long."""
    lines = (line.strip() for line in DOCSTRING.sub("", text).splitlines())
    return sum(bool(line) and not line.startswith("#") for line in lines)


def package_of(name: str) -> str:
    """The package of a file, by its path from the root of the repository."""
    parts = name.split("/")[2:]
    return parts[0] if len(parts) > 1 else "modules"


@cache
def sizes() -> Counter[str]:
    """The code lines of each file of src by its path."""
    return Counter(
        {
            path.relative_to(ROOT).as_posix(): code_lines(path.read_text(encoding="utf-8"))
            for path in SOURCE.rglob("*.py")
        }
    )


def totals() -> Counter[str]:
    """The code lines of each package."""
    total: Counter[str] = Counter()
    for name, size in sizes().items():
        total[package_of(name)] += size
    return total


def growth(package: str) -> str:
    """The files of a package whose sizes differ from the last commit."""
    rows = []
    for name, size in sizes().items():
        if package_of(name) == package:
            command = ["git", "show", f"HEAD:{name}"]
            shown = subprocess.run(command, cwd=ROOT, capture_output=True, text=True, check=False)
            before = code_lines(shown.stdout) if shown.returncode == 0 else 0
            rows += [f"{name}: {before} -> {size}"] if before != size else []
    return "\n".join(sorted(rows)) or "no file differs from the last commit"


def test_every_package_has_a_cap() -> None:
    assert totals().keys() == CAPS.keys()


@pytest.mark.parametrize("package", CAPS)
def test_a_package_does_not_grow(package: str) -> None:
    size, cap = totals()[package], CAPS[package]
    assert size <= cap, f"{package} has {size} code lines, its cap is {cap}:\n{growth(package)}"
    assert size > cap - SLACK, f"{package} has {size} code lines: lower its cap of {cap}"


def test_docstrings_comments_and_blank_lines_are_not_code() -> None:
    text = '"""A\ndocstring."""\n\n# a comment\nx = 1  # with code\ny = (\n    2,\n)\n"""Of y."""\n'
    assert code_lines(text) == 4


def test_a_new_file_is_in_the_report(monkeypatch: pytest.MonkeyPatch) -> None:
    name = "src/closedform/ir/new.py"
    monkeypatch.setitem(globals(), "sizes", lambda: Counter({name: 3}))
    assert growth("ir") == f"{name}: 0 -> 3"


def test_the_makefile_is_short_and_knows_the_pages() -> None:
    text = (ROOT / "Makefile").read_text(encoding="utf-8")
    assert text.count("\n") <= MAKEFILE
    (pages,) = (line for line in text.splitlines() if line.startswith("PAGES := "))
    assert set(pages.split()[2:]) <= MODULES.keys()
    for module in MODULES.values():
        assert (ROOT / "tools" / f"{module}.py").exists()

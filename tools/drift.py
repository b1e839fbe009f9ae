"""The lines that formulas of frameworks cite, at the newest commits of their repositories.

``make drift`` fetches the repository of each framework, where the network allows, and lists which
cited lines moved, changed or went since the commit that the framework follows:

    litgpt 26857050fe3f
      litgpt/pretrain.py:341  moved to 352
"""

from __future__ import annotations

import ast
import importlib.util
import re
import subprocess
import sys
import tempfile
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from pathlib import Path

from closedform.frameworks import FRAMEWORKS

_PATH = re.compile(r"(?<![\w/.-])((?:[\w.*-]+/)*[\w-]+\.[a-z]\w*)(?:@[\w.^]+)?(?::(\d+))?")
_LINE = re.compile(r"\b[Ll]ines? (\d+)")
_ORIGIN = re.compile(r"\bat (?:commit|version) (\S+) of ([\w.-]+/[\w.-]*\w)")


@dataclass(frozen=True, slots=True, order=True)
class Pin:
    """A place in the repository of a framework that a formula cites.

    Attributes:
        path: The path, or the end of it.
        line: The line; 0 for the whole file.
    """

    path: str
    line: int

    def __str__(self) -> str:
        return f"{self.path}:{self.line}" if self.line else self.path


def docstrings(name: str) -> list[str]:
    """Returns the docstrings of ``curves.py`` of a framework, that of the file first."""
    spec = importlib.util.find_spec(FRAMEWORKS.module(name))
    path = Path(spec.origin).with_name("curves.py") if spec and spec.origin else None
    if path is None or not path.is_file():
        return []
    nodes = ast.walk(ast.parse(path.read_text(encoding="utf-8")))
    places = (node for node in nodes if isinstance(node, ast.Module | ast.FunctionDef))
    return [text for text in map(ast.get_docstring, places) if text]


def pins(name: str) -> list[Pin]:
    """Returns the places that the defects and the curves of a framework cite."""
    first, *functions = docstrings(name) or [""]
    texts = (*(defect.upstream for defect in FRAMEWORKS[name].defects.values()), first, *functions)
    places = {match.groups() for text in texts for match in _PATH.finditer(text)}
    lines = [match[1] for text in functions for match in _LINE.finditer(text)]
    if lines:  # of the file that the first docstring names
        places |= {(_PATH.findall(first)[-1][0], line) for line in lines}
    return sorted(Pin(path, int(line or 0)) for path, line in places)


def faults(name: str) -> Iterator[str]:
    """Yields what is wrong with the pins of a framework, for which no network is needed."""
    framework = FRAMEWORKS[name]
    if not (framework.repository.startswith("https://") and framework.commit):
        yield f"{name}: a framework has the URL of its repository, and a commit"
    for key, defect in framework.defects.items():
        if not _PATH.search(defect.upstream) and "/" not in defect.upstream:
            yield f"{name}: the defect {key} cites no file: {defect.upstream}"
    for text in docstrings(name)[:1]:
        match = _ORIGIN.search(text)
        commit, repository = match.groups() if match else ("", "")
        if commit not in framework.versions or not framework.repository.endswith(repository):
            yield f"{name}: curves.py follows {commit} of {repository}, unlike the framework"


def drift(commit: str, places: Sequence[Pin], folder: Path) -> Iterator[str]:
    """Yields the pins that are elsewhere at the newest commit.

    Args:
        commit: The commit, or the release, that the formulas follow.
        places: The pins.
        folder: The bare repository.
    """
    names = [name for name in (commit, f"v{commit}") if _git(folder, "ls-tree", name) is not None]
    if not names:
        yield f"the repository has no {commit}"
        return
    files = (_git(folder, "ls-tree", "-r", "--name-only", names[0]) or "").splitlines()
    for pin in places:
        paths = [path for path in files if f"/{path}".endswith(f"/{pin.path}")]
        if len(paths) != 1:
            continue  # of another repository, or of several files
        old, new = (_git(folder, "show", f"{name}:{paths[0]}") for name in (names[0], "HEAD"))
        if new is None:
            yield f"{pin}  the file is gone"
        elif new != old:
            yield from _line_drift(pin, (old or "").splitlines(), new.splitlines())


def _line_drift(pin: Pin, old: list[str], new: list[str]) -> Iterator[str]:
    if not pin.line:
        yield f"{pin}  the file changed"
    elif pin.line > len(old):
        yield f"{pin}  the file has {len(old)} lines"
    elif new[pin.line - 1 : pin.line] != [old[pin.line - 1]]:
        lines = [number for number, line in enumerate(new, 1) if line == old[pin.line - 1]]
        nearest = min(lines, key=lambda number: abs(number - pin.line), default=None)
        yield f"{pin}  changed or gone" if nearest is None else f"{pin}  moved to {nearest}"


def _git(folder: Path, *words: str) -> str | None:
    """The output of git in a repository; None where it fails."""
    command = ["git", "-C", str(folder), *words]
    run = subprocess.run(command, capture_output=True, text=True, errors="replace", check=False)
    return None if run.returncode else run.stdout


def main() -> None:
    """Prints what moved; malformed pins are an error."""
    messages = [fault for name in FRAMEWORKS for fault in faults(name)]
    with tempfile.TemporaryDirectory() as folder:
        for name, framework in FRAMEWORKS.items():
            sys.stdout.write(f"{name} {framework.commit}\n")
            clone = Path(folder, name)
            options = ["clone", "--quiet", "--bare", "--filter=blob:none"]
            is_reached = _git(Path(folder), *options, framework.repository, str(clone)) is not None
            lines = drift(framework.commit, pins(name), clone) if is_reached else ["not reached"]
            for line in lines:
                sys.stdout.write(f"  {line}\n")
    if messages:
        sys.exit("\n".join(messages))


if __name__ == "__main__":
    main()

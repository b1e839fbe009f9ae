"""Pages that say how to add something, followed literally in a copy of the repository."""

import re
import shlex
import shutil
import subprocess
from collections.abc import Iterable
from pathlib import Path

from tests.support import programs

ROOT = Path(__file__).parents[2]
FENCE = re.compile(r"^```(\w+)\n(.*?)^```$", re.MULTILINE | re.DOTALL)
NEW_FILE = re.compile(r"new file\s`([^`]+)`:\n\n```python\n(.*?)^```$", re.MULTILINE | re.DOTALL)


def copy(folder: Path, folders: Iterable[str], files: Iterable[str]) -> None:
    """Copies what the commands of a page read; the reference values are left where they are."""
    for name in folders:
        # Compiled modules are copied, so that no command compiles them anew. Those of pytest name
        # the files of this checkout.
        ignore = shutil.ignore_patterns("*-pytest-*.pyc")
        shutil.copytree(ROOT / name, folder / name, ignore=ignore)
    for name in files:
        (folder / name).parent.mkdir(parents=True, exist_ok=True)
        shutil.copy(ROOT / name, folder / name)


def write_new_files(text: str, folder: Path) -> list[str]:
    """Writes the blocks that a page calls a new file; returns their names."""
    found = NEW_FILE.findall(text)
    for name, content in found:
        (folder / name).parent.mkdir(parents=True, exist_ok=True)
        (folder / name).write_text(content, encoding="utf-8")
    return [name for name, _ in found]


def edits(text: str) -> list[str]:
    """Returns the blocks of a page that change a file."""
    return [block for language, block in FENCE.findall(text) if language == "diff"]


def apply(text: str, folder: Path) -> None:
    """Changes one file by a block: lines with a space remain, - are removed, + are added."""
    first, *lines = text.splitlines()
    path = folder / first.removeprefix("--- ")
    assert first.startswith("--- "), text
    assert all(line[0] in " -+" for line in lines), text
    old = "".join(f"{line[1:]}\n" for line in lines if line[0] in " -")
    content = path.read_text(encoding="utf-8")
    assert content.count(old) == 1, f"{path} holds {content.count(old)} times:\n{old}"
    new = "".join(f"{line[1:]}\n" for line in lines if line[0] in " +")
    path.write_text(content.replace(old, new), encoding="utf-8")


def run(
    command: str, folder: Path, limit: int = programs.LIMIT_SECONDS
) -> subprocess.CompletedProcess[str]:
    """Runs a command of a page, which must call Python, on the copy, for `limit` seconds."""
    program, *words = shlex.split(command)
    assert program == "python", command
    environment = {"PYTHONPATH": str(folder / "src"), "PYTHONDONTWRITEBYTECODE": "1"}
    return programs.run_python(words, folder, environment, limit)


def commands(text: str) -> list[str]:
    """Returns the commands of a page."""
    blocks = [block for language, block in FENCE.findall(text) if language == "text"]
    return [line.removeprefix("$ ") for block in blocks for line in block.splitlines()]

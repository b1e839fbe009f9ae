"""docs/symptoms.md: each section is a public thread, told again by the files of a folder here.

The folder of a section has its title's words. The loops run, every command prints what the page
shows, and says in JSON which update is the first wrong one: that of the page's table.
"""

import json
import re
import runpy
import shlex
import shutil
import textwrap
import warnings
from pathlib import Path
from typing import Any

import pytest

from tests.support.commands import CliRunner
from tests.support.pages import ROOT
from tests.test_readme import blocks_of, commands_of, missing_line

HERE = Path(__file__).parent
PAGE = ROOT / "docs" / "symptoms.md"
FOLDERS = {path.name: path for path in HERE.iterdir() if path.is_dir() and path.name[0] != "_"}
TEXT = PAGE.read_text(encoding="utf-8")
SECTIONS = {
    re.sub(r"\W+", "_", title.lower()).strip("_"): text
    for title, _, text in (part.partition("\n") for part in TEXT.split("\n## ")[1:])
}
ROW = re.compile(
    r"^\| \[.*\]\(#([\w-]+)\) \| (\S+#\d+) \| `(\w+)` \| (\d+) \| .* \|$", re.MULTILINE
)
ROWS = {
    anchor.replace("-", "_"): (thread, command, int(update))
    for anchor, thread, command, update in ROW.findall(TEXT)
}


def first_wrong_update(data: dict[str, Any]) -> int:
    """The update that the JSON of lint, diff or watch has."""
    if "departure" in data:
        return int(data["departure"]["update"])
    places = [entry.get("update") for entry in data.get("findings", [])]
    places += [curve["first_step"] for curve in data.get("curves", [])]
    return min(int(place) for place in places if place is not None)


def test_each_row_has_a_section_and_a_folder() -> None:
    assert len(ROWS) >= 10
    assert ROWS.keys() == SECTIONS.keys() == FOLDERS.keys()
    assert len({thread for thread, _, _ in ROWS.values()}) == len(ROWS)


@pytest.mark.parametrize("name", ROWS)
def test_the_files_of_a_section_are_those_of_its_folder(name: str) -> None:
    files = {path.read_text(encoding="utf-8") for path in FOLDERS[name].rglob("*.*")}
    shown = [block for block in blocks_of(str(PAGE), SECTIONS[name]) if block.language != "console"]
    assert all(block.text in files for block in shown)


@pytest.mark.parametrize("name", ROWS)
def test_the_first_wrong_update_is_found(
    name: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    _, command, update = ROWS[name]
    folder = shutil.copytree(FOLDERS[name], tmp_path / name)
    monkeypatch.chdir(folder)
    monkeypatch.setenv("COLUMNS", "200")
    (block,) = (b for b in blocks_of(str(PAGE), SECTIONS[name]) if b.language == "console")
    if "$ python loop.py\n" in block.text:
        with warnings.catch_warnings():
            # The loops have faults, some of which torch warns of.
            warnings.simplefilter("ignore")
            runpy.run_path("loop.py")
        assert missing_line(loop_output(block.text), capsys.readouterr().out) is None
    for line in commands_of(block.text):
        words = line.line.partition(" ")[2]
        result = CliRunner().invoke(shlex.split(words), {"NO_COLOR": "1", "COLUMNS": "200"})
        assert result.exit_code in (0, 1), result.output
        assert missing_line(line.shown, result.stdout) is None, result.stdout
    data = json.loads(CliRunner().invoke([*shlex.split(words), "--json"]).stdout)
    assert words.startswith(f"{command} ")
    assert first_wrong_update(data) == update


def loop_output(text: str) -> tuple[str, ...]:
    """The lines that a page shows below the command of a loop."""
    shown = text.partition("$ python loop.py\n")[2].partition("\n$ ")[0]
    return tuple(textwrap.dedent(shown).splitlines()) if not shown.startswith("$ ") else ()

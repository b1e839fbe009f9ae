"""Generated sections of pages, between two marks, and the stored figures behind them.

``replace_section("a <b> old <e> z", "<b>", "<e>", " new ")`` is ``"a <b> new <e> z"``.
"""

from __future__ import annotations

import json
import sys
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any

ROOT = Path(__file__).parents[1]
DOCS = ROOT / "docs"
RESULTS_FOLDER = Path(__file__).parent / "results"


def replace_section(text: str, begin: str, end: str, section: str) -> str:
    """Returns a page whose section between two marks is a new one.

    Raises:
        ValueError: A mark does not occur exactly once.
    """
    before, old_section = text.split(begin)
    _, after = old_section.split(end)
    return f"{before}{begin}{section}{end}{after}"


@dataclass(frozen=True, slots=True)
class GeneratedSection:
    """A section of a page that a function writes.

    Attributes:
        page: The file of the page.
        begin: The mark before the section.
        end: The mark after it.
        build: Returns the text between the marks.
    """

    page: Path
    begin: str
    end: str
    build: Callable[[], str]

    def updated_page(self) -> str:
        """Returns the page with the section of today."""
        text = self.page.read_text(encoding="utf-8")
        return replace_section(text, self.begin, self.end, self.build())

    def write(self) -> None:
        """Writes the page, and prints its name."""
        self.page.write_text(self.updated_page(), encoding="utf-8", newline="\n")
        sys.stdout.write(f"{self.page}\n")


def add_figures(path: Path, entries: Mapping[str, Any]) -> None:
    """Adds entries to a file of figures, in place of those with the same keys."""
    figures = json.loads(path.read_text(encoding="utf-8")) if path.exists() else {}
    figures.update(entries)
    text = json.dumps(figures, indent=1, ensure_ascii=False, sort_keys=True)
    path.write_text(f"{text}\n", encoding="utf-8")

"""``closedform gallery``: a static page with every schedule."""

from __future__ import annotations

from pathlib import Path

from closedform.cli.parser import Parser
from closedform.cli.web import add_page_options, print_page


def parser(prog: str) -> Parser:
    """Returns the parser of the command."""
    found = Parser(
        prog, "Write a static page with every schedule, its curve computed by its ONNX graph."
    )
    add_page_options(found)
    return found


def run(*, output: Path, packages: Path | None) -> None:
    """Writes the page."""
    from closedform.web.gallery import write_gallery

    print_page(write_gallery(output, packages=packages))

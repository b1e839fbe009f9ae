"""``closedform gallery``: a static page with every schedule."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path

from closedform.cli.parser import Parser
from closedform.cli.web import add_page_options, print_page

_HELP = """\
Write static pages with every schedule, its curve computed by its ONNX graph.

examples:
  closedform gallery -o site
  closedform gallery cosine wsd -o site
"""


def parser(prog: str) -> Parser:
    """Returns the parser of the command."""
    command = Parser(prog, _HELP)
    command.add_argument("names", nargs="*", metavar="NAME", help="the schedules; default: all")
    add_page_options(command)
    return command


def run(*, names: Sequence[str], output: Path, packages: Path | None) -> None:
    """Writes the pages."""
    from closedform.web.gallery import write_gallery

    print_page(write_gallery(output, names=names or None, packages=packages))

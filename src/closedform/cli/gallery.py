"""``closedform gallery``: a static page with every schedule."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path

from closedform.cli.arguments import folder_option, packages_option
from closedform.cli.parser import argument, command
from closedform.cli.web import print_page

HELP = """\
Write static pages with every schedule, its curve computed by its ONNX graph.

examples:
  closedform gallery -o site
  closedform gallery cosine wsd -o site
"""


@command
class Options:
    """The options of ``closedform gallery``."""

    names: Sequence[str] = argument("the schedules; default: all", nargs="*", metavar="NAME")
    output: Path = folder_option()
    packages: Path | None = packages_option()


def run(options: Options) -> None:
    """Writes the pages."""
    from closedform.web.gallery import write_gallery

    print_page(
        write_gallery(options.output, names=options.names or None, packages=options.packages)
    )

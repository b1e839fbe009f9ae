"""Links of pages into src: on the site they lead to the line of the name that they show.

``[`Builder`](../src/closedform/ir/graph.py)`` becomes a link to ``…/closedform/ir/graph.py#L102``
of the repository. A name may be a method, `Builder.add`; without backticks the whole file is meant.
"""

from __future__ import annotations

import ast
import re
from functools import cache
from pathlib import Path

SOURCE = Path(__file__).parents[1] / "src"
ADDRESS = "https://github.com/closedform/closedform/blob/main/src/"
LINK = re.compile(r"\[(`?)([\w.]+?)`?\]\(\.\./src/([\w/]+(?:\.py)?)\)")


@cache
def definitions(path: Path) -> dict[str, int]:
    """Returns the line of each class, function, method and assigned name of a file."""
    lines = {}

    def visit(body: list[ast.stmt], prefix: str) -> None:
        for node in body:
            match node:
                case ast.ClassDef(name=name) | ast.FunctionDef(name=name):
                    lines[prefix + name] = node.lineno
                    if isinstance(node, ast.ClassDef):
                        visit(node.body, f"{prefix}{name}.")
                case (
                    ast.Assign(targets=[ast.Name(id=name)])
                    | ast.AnnAssign(target=ast.Name(id=name))
                ):
                    lines[prefix + name] = node.lineno

    visit(ast.parse(path.read_text(encoding="utf-8")).body, "")
    return lines


def address(mark: str, text: str, file: str) -> str:
    """Returns where a link leads on the site.

    Raises:
        LookupError: There is no such file, or it does not define the name.
    """
    path = SOURCE / file
    if not path.exists():
        raise LookupError(f"{text}: there is no src/{file}")
    if not mark:
        return ADDRESS + file
    if text not in definitions(path):
        raise LookupError(f"{text}: src/{file} does not define it")
    return f"{ADDRESS}{file}#L{definitions(path)[text]}"


def with_addresses(markdown: str) -> str:
    """Returns a page whose links into src are those of the site."""
    return LINK.sub(
        lambda link: f"[{link[1]}{link[2]}{link[1]}]({address(*link.groups())})", markdown
    )

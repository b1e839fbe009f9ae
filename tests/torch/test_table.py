"""The table of behaviours in docs/torch.md names tests that there are."""

import ast
import re
from pathlib import Path

HERE = Path(__file__).parent
PAGE = HERE.parents[1] / "docs" / "torch.md"


def test_every_row_names_a_test() -> None:
    rows = re.findall(r"`(test_\w+\.py)::(test_\w+)`", PAGE.read_text(encoding="utf-8"))
    assert len(rows) >= 25
    for file, name in rows:
        tree = ast.parse((HERE / file).read_text(encoding="utf-8"))
        names = {node.name for node in tree.body if isinstance(node, ast.FunctionDef)}
        assert name in names, f"{file} has no {name}"

"""The table of behaviours in docs/torch.md names tests that there are."""

import ast
import re
from pathlib import Path

from tests.torch.scheduler_behaviours import KINDS

HERE = Path(__file__).parent
PAGE = HERE.parents[1] / "docs" / "torch.md"


def test_every_row_names_a_test() -> None:
    rows = re.findall(r"`(test_\w+\.py)::(test_\w+)`", PAGE.read_text(encoding="utf-8"))
    assert len(rows) >= 25
    for file, name in rows:
        tree = ast.parse((HERE / file).read_text(encoding="utf-8"))
        names = {node.name for node in tree.body if isinstance(node, ast.FunctionDef)}
        assert name in names, f"{file} has no {name}"


def test_every_difference_is_of_one_of_seven_kinds() -> None:
    text = PAGE.read_text(encoding="utf-8")
    section = text.split("## Differences to torch")[1].split("\n## ")[0]
    kinds = [row.split("|")[1].strip() for row in section.splitlines() if row.startswith("| ")][2:]
    assert len(kinds) == len(set(kinds)) == 7
    assert set(KINDS.values()) <= set(kinds)
    table = text.split("## Behaviours of torch's scheduler suite")[1].split("\n## ")[0]
    for row in table.splitlines():
        if row.startswith("| deliberately different"):
            assert row.split("|")[3].split(":")[0].strip() in kinds

"""The checker shares no code with what it checks: verify imports nothing of lowering."""

import ast
from pathlib import Path

import closedform

VERIFY = Path(closedform.__file__).parent / "verify"


def test_verify_imports_nothing_of_lowering() -> None:
    found = [
        f"{path.name}:{node.lineno}"
        for path in sorted(VERIFY.rglob("*.py"))
        for node in ast.walk(ast.parse(path.read_text()))
        if isinstance(node, ast.ImportFrom | ast.Import)
        for name in ([node.module or ""] if isinstance(node, ast.ImportFrom) else [])
        + [alias.name for alias in node.names]
        if name.startswith("closedform.lowering") or name == "lowering"
    ]
    assert not found

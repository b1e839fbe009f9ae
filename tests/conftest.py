"""What all tests share: the `golden` fixture and one fixed profile of hypothesis."""

import difflib
import os
from collections.abc import Callable
from pathlib import Path

import hypothesis
import pytest

GOLDEN = Path(__file__).parent / "golden"

# The machine decides neither what is drawn in CI nor whether a slow example fails.
hypothesis.settings.register_profile(
    "closedform", deadline=None, print_blob=True, derandomize="CI" in os.environ
)
hypothesis.settings.load_profile("closedform")


def pytest_addoption(parser: pytest.Parser) -> None:
    parser.addoption(
        "--update-golden", action="store_true", help="rewrite tests/golden from what the code says"
    )


def compare_with_golden(path: Path, text: str, *, update: bool) -> None:
    """Fails with a diff where `text` is not what the file at `path` says; writes it on `update`."""
    text = text.rstrip("\n") + "\n"
    if update:
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_text(text, encoding="utf-8", newline="\n")
        return
    if not path.exists():
        pytest.fail(f"no golden text {path}: write it with `make golden`, and review it")
    expected = path.read_text(encoding="utf-8")
    if text == expected:
        return
    lines = difflib.unified_diff(
        expected.splitlines(), text.splitlines(), "golden", "now", lineterm=""
    )
    diff = "\n".join(lines)
    pytest.fail(f"{path.name} differs (if the new text is right: `make golden`):\n{diff}")


@pytest.fixture
def golden(request: pytest.FixtureRequest) -> Callable[[str, str], None]:
    """`golden(name, text)` compares `text` with tests/golden/<name>.txt."""
    update = bool(request.config.getoption("--update-golden"))

    def compare(name: str, text: str) -> None:
        compare_with_golden(GOLDEN / f"{name}.txt", text, update=update)

    return compare

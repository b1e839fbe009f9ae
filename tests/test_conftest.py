"""The golden fixture's own tests."""

from pathlib import Path

import hypothesis
import pytest

from tests.conftest import compare_with_golden


def test_golden_missing_file_says_how_to_write_it(tmp_path: Path) -> None:
    with pytest.raises(pytest.fail.Exception, match=r"no golden text .*none\.txt: .*`make golden`"):
        compare_with_golden(tmp_path / "none.txt", "a", update=False)


def test_golden_update_then_compare(tmp_path: Path) -> None:
    path = tmp_path / "deep" / "graph.txt"
    compare_with_golden(path, "a\nb", update=True)
    assert path.read_bytes() == b"a\nb\n"
    compare_with_golden(path, "a\nb\n", update=False)


def test_golden_difference_is_shown(tmp_path: Path) -> None:
    path = tmp_path / "graph.txt"
    compare_with_golden(path, "a\nb", update=True)
    with pytest.raises(pytest.fail.Exception, match=r"(?s)graph\.txt differs.*-b\n\+c"):
        compare_with_golden(path, "a\nc", update=False)
    assert path.read_text() == "a\nb\n"


def test_hypothesis_profile_is_ours() -> None:
    settings = hypothesis.settings.default
    assert settings is not None
    assert settings.deadline is None
    assert settings.print_blob

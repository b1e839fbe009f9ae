"""The tests of what all tests share: the golden fixture, and how cases are sampled."""

from pathlib import Path
from types import SimpleNamespace
from typing import Any

import hypothesis
import pytest

from tests.conftest import compare_with_golden, pytest_collection_modifyitems, sampled
from tests.support.sampling import FEWEST, examples


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


def case(name: str, *marks: pytest.MarkDecorator) -> Any:
    """A test as pytest collects it, as far as sampling reads it."""
    own = [mark.mark for mark in marks]
    return SimpleNamespace(
        nodeid=f"tests/test_a.py::{name}",
        iter_markers=lambda kind: [mark for mark in own if mark.name == kind],
    )


def test_a_fixed_part_of_the_cases_is_run() -> None:
    third = pytest.mark.sample(every=3)
    cases = [case(f"test_b[{number}]", third) for number in range(8)]
    cases.insert(4, case("test_c"))
    cases.append(case("test_d", pytest.mark.exhaustive))
    chosen, left_out = sampled(cases)
    assert [one.nodeid.partition("::")[2] for one in chosen] == [
        *("test_b[0]", "test_b[3]", "test_c", "test_b[6]")
    ]
    assert len(chosen) + len(left_out) == len(cases)


@pytest.mark.parametrize(
    ("arguments", "keyword", "is_exhaustive", "wanted"),
    [
        (["tests"], "", False, False),
        (["tests"], "", True, True),
        (["tests", "tests/test_a.py::test_d"], "", False, True),
        (["tests"], "test_d", False, True),
    ],
)
def test_named_tests_are_run_in_any_case(
    arguments: list[str], keyword: str, is_exhaustive: bool, wanted: bool
) -> None:
    config: Any = SimpleNamespace(
        args=arguments,
        option=SimpleNamespace(keyword=keyword),
        getoption=lambda _: is_exhaustive,
        hook=SimpleNamespace(pytest_deselected=lambda items: None),
    )
    items = [case("test_c"), case("test_d", pytest.mark.exhaustive)]
    pytest_collection_modifyitems(config, items)
    assert (len(items) == 2) is wanted


def test_examples_are_a_part_of_those_that_are_asked_for() -> None:
    settings = hypothesis.settings.default
    assert settings is not None
    assert examples(400) == 4 * settings.max_examples
    assert examples(1) == FEWEST

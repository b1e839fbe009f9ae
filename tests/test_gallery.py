"""The gallery: written from the code, complete, and the same bytes each time."""

from pathlib import Path

import pytest
import sympy as sp

from closedform import frameworks, schedules
from closedform.schedules.examples import EXAMPLES
from tools import build_gallery as gallery


def test_page_says_what_the_code_says() -> None:
    assert gallery.PAGE.read_text(encoding="utf-8") == gallery.page(), "run `make gallery`"


def test_every_schedule_has_a_card_and_a_plot() -> None:
    assert set(EXAMPLES) == set(schedules.__all__)
    assert {path.stem for path in gallery.PLOTS.iterdir()} == set(schedules.__all__)
    assert sum(path.stat().st_size for path in gallery.PLOTS.iterdir()) < 2_000_000


@pytest.mark.parametrize("name", EXAMPLES)
def test_call_on_the_card_makes_what_is_drawn(name: str) -> None:
    example = EXAMPLES[name]
    assert example.call.startswith(f"{name}(")
    names = {known: getattr(schedules, known) for known in schedules.__all__}
    assert eval(example.call, {**names, "sp": sp}) == example.make()


def test_card_names_the_other_frameworks() -> None:
    text = gallery.card("warm_restarts")
    for framework, names in frameworks.known_as("warm_restarts").items():
        for name in names:
            assert f"`{framework}:{name}`" in text
    assert "none of those that closedform knows" in gallery.card("hyperbolic")


def test_schedule_without_an_example_stops_it(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(schedules, "__all__", [*schedules.__all__, "new_one"])
    with pytest.raises(SystemExit) as caught:
        gallery.page()
    assert str(caught.value) == (
        "closedform.schedules.examples: give each schedule one example: ['new_one']"
    )


@pytest.mark.parametrize("name", ["warm_restarts", "reduce_on_plateau"])
def test_plot_is_the_same_bytes_each_time(name: str, tmp_path: Path) -> None:
    (tmp_path / "again").mkdir()
    first, second = gallery.draw(name, tmp_path), gallery.draw(name, tmp_path / "again")
    assert first.read_bytes() == second.read_bytes()
    assert b"<text" in first.read_bytes()

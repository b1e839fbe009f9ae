"""The page of frameworks: written from the code, and its curves beside formulas of their own."""

import math
from pathlib import Path

import numpy as np
import pytest

from closedform.frameworks import FRAMEWORKS
from closedform.verify.terms.verdict import Status
from tools import build_frameworks as build
from tools.defects import Defect, defects


def test_pages_are_written_from_the_code() -> None:
    pages = build.pages()
    for path, text in pages.items():
        assert path.read_text(encoding="utf-8") == text, f"{path.name}: run `make frameworks`"
    made = (build.PAGE, build.REGISTRY, build.FIVE_PLOT)
    written = {*build.PAGE.parent.glob("frameworks/*.md"), *made}
    assert written == set(pages)


@pytest.mark.parametrize("defect", defects(), ids=lambda one: f"{one.framework}: {one.heading}")
def test_every_defect_is_a_difference(defect: Defect) -> None:
    found = build.difference(defect)
    assert found.verdict is Status.REFUTED
    assert found.first_step is not None
    assert found.max_gap > 1e-3


def test_defects_of_a_declaration_are_on_its_page_with_their_code() -> None:
    for name, framework in FRAMEWORKS.items():
        if framework.defects:
            text = (build.PAGE.parent / "frameworks" / f"{name}.md").read_text(encoding="utf-8")
            for defect in framework.defects.values():
                assert f"| {defect.text} |".replace("|", "") in text.replace("|", "").replace(
                    "\\", ""
                )
                assert f"`{defect.upstream}`" in text


def test_curves_are_those_of_the_frameworks() -> None:
    """By hand, from the source of three frameworks that differ in the warmup alone."""

    def cosine(step: int) -> float:
        return 0.1 + 0.9 * (1 + math.cos(math.pi * (step - 4) / 6)) / 2

    warmups = {
        "levanter": [0, 0.25, 0.5, 0.75],
        "nemo": [0.2, 0.4, 0.6, 0.8],
        "torchtitan": [0.25, 0.5, 0.75, 1],
    }
    for name, warmup in warmups.items():
        curve = next(one for one in build.curves() if name in one.names)
        wanted = [*warmup, *(cosine(step) for step in range(4, 10))]
        np.testing.assert_allclose(curve.values[:10], wanted, atol=2e-8)


def test_the_plot_is_the_same_bytes_each_time(tmp_path: Path) -> None:
    for name in ("one.svg", "two.svg"):
        build.draw(tmp_path / name, build.curves())
    assert (tmp_path / "one.svg").read_bytes() == (tmp_path / "two.svg").read_bytes()
    assert build.PLOT.stat().st_size < 100_000

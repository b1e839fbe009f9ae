"""Pages of notebooks: small, escaped, in the colors of the page around them."""

import re
import subprocess
import sys
from html.parser import HTMLParser
from typing import Any

import numpy as np
import pytest

import closedform as cf
from closedform.plotting.vector import draw, picture
from closedform.schedules.examples import EXAMPLES

NAME = "a<i>"
VOID = {"path", "polyline", "rect"}


class Reader(HTMLParser):
    """The elements and the text of a page; each element must be closed in its turn."""

    def __init__(self, page: str) -> None:
        super().__init__()
        self.open: list[str] = []
        self.names: list[str] = []
        self.text = ""
        self.feed(page)
        assert self.open == []

    def handle_starttag(self, tag: str, attrs: object) -> None:
        self.names.append(tag)
        self.open.append(tag)

    def handle_startendtag(self, tag: str, attrs: object) -> None:
        self.names.append(tag)

    def handle_endtag(self, tag: str) -> None:
        assert self.open.pop() == tag

    def handle_data(self, data: str) -> None:
        self.text += data


def shown() -> dict[str, Any]:
    lr = cf.schedules.linear(0, 3e-4, 20).then(cf.schedules.cosine(3e-4, 0, 80)).rename(NAME)
    config = {"learning_rate": 3e-4, "lr_scheduler_type": "cosine", "max_steps": 100}
    report = lr.verify(cf.claims.bounded(lr, 0, 3e-4))
    return {
        "schedule": lr,
        "rule": cf.optimizers.adamw(lr=lr, weight_decay=0.1),
        "recipe": cf.load_recipe(config, framework="transformers"),
        "difference": cf.diff(lr, cf.schedules.linear(3e-4, 0, 100).rename(NAME)),
        "report": report,
        "certificate": cf.certify(lr),
        "proofs": report.certificate(),
    }


PAGES = shown()
PLOTTED = {"schedule", "rule", "recipe", "difference"}


@pytest.mark.parametrize("kind", PAGES)
def test_html_is_small_escaped_and_has_no_color_of_a_background(kind: str) -> None:
    page = PAGES[kind]._repr_html_()
    reader = Reader(page)
    assert "b" in reader.names
    assert "i" not in reader.names
    assert kind == "recipe" or NAME in reader.text or "adamw" in reader.text
    assert len(page) < 6000
    colors = re.findall(
        r"\b(?:color|fill|stroke|background):?[=:]\"?(?:black|white|#000|#fff)", page
    )
    assert colors == []
    assert reader.names.count("svg") == (kind in PLOTTED)


@pytest.mark.parametrize("kind", PAGES)
def test_repr_is_one_line(kind: str) -> None:
    line = repr(PAGES[kind])
    assert line.startswith("<")
    assert len(line) < 160
    assert "\n" not in line


def test_plot_of_several_curves_labels_each_at_its_end_without_overlap() -> None:
    steps = np.arange(11)
    page = draw({f"curve {i}": (steps, np.full(11, 1 + i / 1000)) for i in range(6)})
    heights = [float(y) for y in re.findall(r'y="([\d.]+)" text-anchor="start">curve', page)]
    assert len(heights) == 6
    assert np.diff(sorted(heights)).min() >= 13
    assert max(heights) <= 150 - 20 + 4


@pytest.mark.parametrize("name", ["cosine", "step_decay", "cyclic", "exponential"])
def test_plot_is_within_a_fifth_of_a_pixel_of_the_curve(name: str) -> None:
    schedule = EXAMPLES[name].make()
    assert isinstance(schedule, cf.Schedule)
    page = picture({name: schedule}, 1000)
    text = re.findall(r'points="([^"]*)"', page)[0]
    corners = np.array([[float(number) for number in pair.split(",")] for pair in text.split()])
    values = np.asarray(schedule(np.arange(1001)))
    x = 58 + 290 * np.arange(1001) / 1000
    low = min(values.min(), 0) if values.min() < 0.5 * values.max() else values.min()
    y = 10 + 120 * (values.max() - values) / (values.max() - low)
    drawn = np.interp(x, corners[:, 0], corners[:, 1])
    # 300 of the 1,001 steps are drawn, and near a jump both sides are.
    at_jump = np.abs(np.diff(y, prepend=y[0])) > 1
    assert np.abs(drawn - y)[~at_jump].mean() < 0.2
    assert len(corners) < 400


def test_nothing_is_drawn_where_a_value_is_open() -> None:
    assert picture({"open": cf.schedules.linear(0, 1, 10).unbind("end")}) == ""


def test_a_constant_and_a_single_step_are_drawn() -> None:
    assert "<polyline" in picture({"one": cf.schedules.constant(1)}, 0)
    assert "<polyline" in draw({"one": (np.array([0]), np.array([2.0]))})


def test_a_plot_needs_no_matplotlib() -> None:
    code = (
        "import sys; sys.modules['matplotlib'] = None; import closedform as cf; "
        "print('<polyline' in cf.schedules.linear(0, 1, 10)._repr_html_())"
    )
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True)
    assert done.stdout == "True\n"

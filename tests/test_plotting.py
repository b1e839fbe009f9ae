import builtins
import re
from collections.abc import Mapping
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import sympy as sp

from closedform import Schedule, schedules, t
from closedform.errors import DefinitionError, ExportError, LimitError
from closedform.plotting import (
    boundaries,
    even_steps,
    last_step,
    overlay,
    plot_schedule,
    terminal_plot,
)

WARMUP = schedules.linear(0, 6e-4, 1525).then(schedules.linear(6e-4, 6e-5, 7512))


@pytest.mark.parametrize(
    ("expr", "steps"),
    [
        (sp.Integer(3), ()),
        (t / 7, ()),
        (sp.Piecewise((1, t < 5), (2, True)), (5,)),
        (sp.Piecewise((1, t <= 5), (2, True)), (6,)),
        (sp.Piecewise((1, t > 5), (2, True)), (6,)),
        (sp.Piecewise((1, t >= 5), (2, True)), (5,)),
        (sp.Piecewise((1, t < sp.Rational(9, 2)), (2, True)), (5,)),
        (sp.Piecewise((1, 3 * t < 2 * t + 8), (2, True)), (8,)),
        (sp.Piecewise((1, t < 5), (2, sp.And(t >= 7, t < 9)), (3, True)), (5, 7, 9)),
        (sp.Piecewise((1, sp.Eq(t, 4)), (2, True)), (4,)),
        (sp.Min(t, 12) / 12, (12,)),
        (sp.Max(sp.Rational(1, 10), 1 - t / 10), (9,)),
        (sp.Piecewise((1, sp.cos(t) < 0), (2, True)), ()),
        (sp.Piecewise((1, t**2 < 50), (2, True)), ()),
    ],
)
def test_boundaries(expr: sp.Expr, steps: tuple[int, ...]) -> None:
    assert boundaries(expr) == steps


def test_boundaries_see_bound_hyperparameters() -> None:
    warmup = sp.Symbol("warmup")
    schedule = Schedule(sp.Piecewise((t, t < warmup), (warmup, True)))
    assert boundaries(schedule.bound) == ()
    assert boundaries(schedule.bind(warmup=20).bound) == (20,)


@pytest.mark.parametrize(
    ("schedule", "end"),
    [
        (WARMUP, 9037),
        (Schedule(sp.Piecewise((t, t < 11), (11, True))), 17),
        (Schedule(1), 1000),
    ],
)
def test_last_step(schedule: Schedule, end: int) -> None:
    assert last_step(schedule) == end


def test_even_steps() -> None:
    assert even_steps(4).tolist() == [0, 1, 2, 3, 4]
    assert even_steps(100, most=5).tolist() == [0, 25, 50, 75, 100]


def test_long_curve_contains_both_sides_of_a_jump() -> None:
    jump = Schedule(sp.Piecewise((1, t < 777_777), (3, True)))
    (axes,) = plot_schedule(jump, steps=1_000_000).axes
    curve = next(line for line in axes.lines if line.get_linewidth() == 2.0)
    points = dict(zip(*(np.asarray(data).tolist() for data in curve.get_data()), strict=True))
    assert (points[777_776], points[777_777]) == (1.0, 3.0)
    assert len(points) <= 2002


def test_figure_is_labeled(tmp_path: Path) -> None:
    figure = plot_schedule(WARMUP, tmp_path / "lr.png")
    (axes,) = figure.axes
    assert axes.get_title(loc="left") == "sequential"
    assert (axes.get_xlabel(), axes.get_ylabel()) == ("step", "value")
    assert {0, 1525, 9037} <= {int(tick) for tick in axes.get_xticks()}
    curve = next(line for line in axes.lines if line.get_linewidth() == 2.0)
    steps, values = (np.asarray(data) for data in curve.get_data())
    assert np.array_equal(values, np.asarray(WARMUP(steps.astype(np.int64))))


@pytest.mark.parametrize(
    ("name", "beginning"), [("a.png", b"\x89PNG"), ("a.svg", b"<?xml"), ("a.PDF", b"%PDF")]
)
def test_file_is_complete_and_reproducible(tmp_path: Path, name: str, beginning: bytes) -> None:
    path = tmp_path / name
    path.write_bytes(b"what was there before")
    plot_schedule(WARMUP, path, steps=50)
    first = path.read_bytes()
    assert first.startswith(beginning)
    plot_schedule(WARMUP, str(path), steps=50)
    assert path.read_bytes() == first
    assert [entry.name for entry in tmp_path.iterdir()] == [name]


def test_remarks_annotate_their_steps(tmp_path: Path) -> None:
    lr = schedules.linear(0, 1, 10)
    figure = plot_schedule(
        lr, tmp_path / "lr.png", steps=12, remarks={4: "not bounded", 99: "late"}
    )
    (axes,) = figure.axes
    shown = [text.get_text() for text in axes.texts]
    assert "step 4: not bounded" in shown
    assert not [text for text in shown if "late" in text]
    points = [np.asarray(line.get_xydata()).tolist() for line in axes.lines]
    assert [[4.0, 0.4]] in points


def test_schedule_plot_is_the_same_figure(tmp_path: Path) -> None:
    WARMUP.plot(str(tmp_path / "a.svg"), steps=30)
    plot_schedule(WARMUP, tmp_path / "b.svg", steps=30)
    assert (tmp_path / "a.svg").read_bytes() == (tmp_path / "b.svg").read_bytes()


@pytest.mark.parametrize(
    ("arguments", "kind", "message"),
    [
        ({"path": "lr.jpg"}, ExportError, r"must be .pdf, .png, .svg, got '.jpg' \(lr.jpg\)"),
        ({"path": "lr"}, ExportError, r"got 'no suffix' \(lr\)"),
        ({"steps": 0}, DefinitionError, r"steps must be an integer above 0, got int 0 \(plot\)"),
        ({"steps": -4}, DefinitionError, "steps must be an integer above 0, got int -4"),
    ],
)
def test_invalid_figure(arguments: Mapping[str, Any], kind: type[Exception], message: str) -> None:
    with pytest.raises(kind, match=message):
        plot_schedule(WARMUP, **arguments)


def test_missing_folder(tmp_path: Path) -> None:
    path = tmp_path / "none" / "lr.png"
    message = rf"cannot write the plot: No such file or directory \(file '{re.escape(str(path))}'\)"
    with pytest.raises(ExportError, match=message):
        plot_schedule(WARMUP, path)


def test_without_matplotlib_the_error_names_the_extra(monkeypatch: pytest.MonkeyPatch) -> None:
    real = builtins.__import__

    def refuse(name: str, *rest: Any) -> Any:
        if name.startswith("matplotlib"):
            raise ImportError(name)
        return real(name, *rest)

    monkeypatch.setattr(builtins, "__import__", refuse)
    with pytest.raises(ExportError, match=r"not installed: pip install 'closedform\[plot\]'"):
        plot_schedule(WARMUP)


def test_terminal_plot() -> None:
    assert terminal_plot([0, 1, 2, 3], width=8, height=2).split("\n") == [
        "3 ┤⠀⠀⠀⢀⣀⡤⠖⠋",
        "0 ┤⣠⠴⠚⠉",
        "  └────────",
        "   0      3",
    ]


def test_terminal_plot_of_a_constant_has_one_label() -> None:
    drawing = terminal_plot([0.5] * 5, width=8, height=3, last=400)
    assert drawing.count("0.5 ┤") == 1
    assert drawing.endswith(" 0    400")


def test_terminal_plot_shows_a_spike_of_one_step() -> None:
    values = np.zeros(10_000)
    values[4321] = 1
    top = terminal_plot(values, width=20, height=4).split("\n")[0]
    assert len(top.removeprefix("1 ┤").strip("\u2800")) == 1


@pytest.mark.parametrize(
    ("values", "message"),
    [
        ([1.5], r"at least two finite values, got \[1.5\]"),
        ([0.0, float("nan")], r"got \[0.0, nan\]"),
    ],
)
def test_invalid_values(values: list[float], message: str) -> None:
    with pytest.raises(DefinitionError, match=message):
        terminal_plot(values)


def test_a_shorter_curve_ends_and_the_last_one_is_on_top() -> None:
    curves = {
        "long": (np.arange(11), np.zeros(11)),
        "short": (np.arange(6), np.linspace(1, 0, 6)),
    }
    lines = overlay(curves, width=11, height=3, is_ascii=True).split("\n")
    assert lines[2].startswith("0 +****++***")
    assert [line.split() for line in lines[-2:]] == [["*", "long"], ["+", "short"]]


def test_curves_have_colors_on_a_terminal() -> None:
    curves = {name: (np.arange(3), np.full(3, value)) for name, value in (("a", 0.0), ("b", 1.0))}
    drawing = overlay(curves, width=8, height=2, are_colored=True)
    assert drawing.count("\x1b[34m") == 8 + 1
    assert drawing.count("\x1b[33m") == 8 + 1


@pytest.mark.parametrize("end", [2**50 + 1, 10**20, 10**400])
def test_a_plot_beyond_the_last_step_is_refused(end: int) -> None:
    with pytest.raises(
        LimitError, match=r"the last step of a plot must be at most 2\*\*50, .* got"
    ):
        even_steps(end)

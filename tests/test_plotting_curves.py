"""Several curves in one figure: logs, units, scales, areas, differences; what is drawn is read."""

from pathlib import Path

import matplotlib as mpl
import numpy as np
import pytest
from matplotlib.figure import Figure

import closedform as cf
from closedform.errors import ArgumentError, ClosedFormError
from closedform.recipes.logs import Log, read_log
from tests.support.commands import CliRunner

COSINE = cf.schedules.cosine(1, 0, 100)
LINEAR = cf.schedules.linear(1, 0, 80)
WARMUP = cf.schedules.linear(0, 1, 20).then(cf.schedules.linear(1, 0, 80))


@pytest.fixture(autouse=True)
def _no_display(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setitem(mpl.rcParams, "backend", "agg")


@pytest.fixture
def axes() -> mpl.axes.Axes:
    found: mpl.axes.Axes = Figure().subplots()
    return found


@pytest.fixture
def log(tmp_path: Path) -> Log:
    path = tmp_path / "log.csv"
    path.write_text("step,lr\n0,1.0\n40,0.5\n80,0.25\n", encoding="utf-8")
    return read_log(path)


def line(axes: mpl.axes.Axes, label: str) -> tuple[np.ndarray, np.ndarray]:
    """The drawn points of a curve."""
    (found,) = [each for each in axes.lines if str(each.get_label()).startswith(label)]
    return np.asarray(found.get_xdata()), np.asarray(found.get_ydata())


def test_given_axes_are_drawn_in(axes: mpl.axes.Axes) -> None:
    assert cf.plot(COSINE, ax=axes) is axes.figure
    x, y = line(axes, "cosine")
    assert np.array_equal(x, np.arange(101))
    assert np.array_equal(y, COSINE(np.arange(101)))
    assert COSINE.plot(ax=axes, steps=50) is axes.figure


def test_several_schedules_and_a_log(axes: mpl.axes.Axes, log: Log) -> None:
    cf.plot({"ours": COSINE, "theirs": LINEAR, "run": log}, ax=axes)
    assert np.array_equal(line(axes, "theirs")[1], LINEAR(np.arange(101)))
    x, y = line(axes, "run")
    assert (x.tolist(), y.tolist()) == ([0, 40, 80], [1.0, 0.5, 0.25])
    legend = axes.get_legend()
    assert legend is not None
    assert [text.get_text() for text in legend.get_texts()] == ["ours", "theirs", "run"]
    points = next(each for each in axes.lines if each.get_label() == "run")
    assert (points.get_linestyle(), points.get_marker()) == ("None", "o")


def test_labels_of_a_list(axes: mpl.axes.Axes, log: Log) -> None:
    cf.plot([LINEAR, LINEAR, log], ax=axes)
    legend = axes.get_legend()
    assert legend is not None
    assert [text.get_text() for text in legend.get_texts()] == ["linear", "linear #2", "log.csv"]


@pytest.mark.parametrize(
    ("clock", "facts", "factor"),
    [
        ("tokens", {"tokens_per_update": 4_000_000}, 4e6),
        ("epochs", {"updates_per_epoch": 25}, 1 / 25),
        ("samples", {"global_batch_size": 512}, 512),
    ],
)
def test_units_of_the_axis(
    clock: str, facts: dict[str, int], factor: float, axes: mpl.axes.Axes
) -> None:
    cf.plot(COSINE, ax=axes, clock=clock, facts=facts)
    assert line(axes, "cosine")[0] == pytest.approx(np.arange(101) * factor, rel=1e-15)
    assert axes.get_xlabel() == clock
    assert axes.get_xlim()[1] == pytest.approx(100 * factor, rel=1e-15)


def test_ticks_of_tokens(axes: mpl.axes.Axes) -> None:
    cf.plot(COSINE, ax=axes, clock="tokens", facts={"tokens_per_update": 4_000_000})
    assert axes.xaxis.get_major_formatter()(2e8, 0) == "200 M"


@pytest.mark.parametrize("log_axes", ["", "x", "y", "xy"])
def test_logarithmic_axes(log_axes: str, axes: mpl.axes.Axes) -> None:
    cf.plot([COSINE, LINEAR], ax=axes, log=log_axes)
    scales = ("log" if "x" in log_axes else "linear", "log" if "y" in log_axes else "linear")
    assert (axes.get_xscale(), axes.get_yscale()) == scales


def test_area_is_the_sum_of_the_values(axes: mpl.axes.Axes) -> None:
    cf.plot([COSINE, LINEAR], ax=axes, area=True)
    wanted = [f"{sum(float(lr(t)) for t in range(100)):.6g}" for lr in (COSINE, LINEAR)]
    labels = axes.get_legend_handles_labels()[1]
    assert labels == [f"cosine: area {wanted[0]}", f"linear: area {wanted[1]}"]
    assert len(axes.collections) == 2


def test_milestones_are_marked_where_asked() -> None:
    for is_marked in (True, False):
        axes = Figure().subplots()
        cf.plot(WARMUP, ax=axes, milestones=is_marked)
        marks = {x for each in axes.lines if len(x := tuple(np.asarray(each.get_xdata()))) == 2}
        assert marks == ({(20, 20), (100, 100)} if is_marked else set())


def test_differences_are_drawn_below(log: Log, tmp_path: Path) -> None:
    path = tmp_path / "gap.png"
    figure = cf.plot({"ours": COSINE, "theirs": LINEAR, "run": log}, path, compare=True)
    above, below = figure.axes
    assert len(above.lines) > 3
    theirs, run = below.lines[:2]
    steps = np.asarray(theirs.get_xdata()).astype(np.int64)
    assert np.array_equal(theirs.get_ydata(), LINEAR(steps) - COSINE(steps))
    wanted = [0.0, 0.5 - float(COSINE(40)), 0.25 - float(COSINE(80))]
    assert np.asarray(run.get_ydata()).tolist() == wanted
    assert path.read_bytes().startswith(b"\x89PNG")


def test_differences_from_a_log(log: Log, tmp_path: Path) -> None:
    figure = cf.plot({"run": log, "ours": COSINE}, tmp_path / "gap.svg", compare=True)
    below = figure.axes[1]
    steps = np.array([0, 40, 80])
    wanted = COSINE(steps) - np.array([1.0, 0.5, 0.25])
    assert np.array_equal(below.lines[0].get_ydata(), wanted)


@pytest.mark.parametrize(
    ("options", "message"),
    [
        ({"clock": "tokens"}, "missing facts: global_batch_size, sequence_length"),
        ({"clock": "token"}, "clock must be one of updates, .*, got 'token' .*: did you mean 'tok"),
        ({"log": "z"}, "log must be 'x', 'y' or 'xy', got 'z'"),
        ({"compare": True}, "a comparison draws several curves .*, got one curve"),
        ({"facts": {"tokens": 3}}, "unknown fact 'tokens'"),
    ],
)
def test_options_are_checked(options: dict[str, object], message: str) -> None:
    with pytest.raises(ArgumentError, match=message):
        cf.plot(COSINE, "never.png", **options)  # type: ignore[arg-type]
    assert not Path("never.png").exists()


def test_the_column_of_a_log_is_checked(log: Log) -> None:
    with pytest.raises(ClosedFormError, match="the log has no 'momentum'"):
        cf.plot(log, "never.png", key="momentum")
    with pytest.raises(ClosedFormError, match="plot needs at least one"):
        cf.plot([], "never.png")


def test_the_command_plots_several(tmp_path: Path, log: Log) -> None:
    path = tmp_path / "all.svg"
    names = ["cosine --start 1 --end 0 --steps 100", "linear --start 1 --end 0 --steps 80"]
    words = ["plot", *names, log.source, "-o", str(path), "--compare", "--area"]
    result = CliRunner().invoke(words)
    assert (result.exit_code, result.stdout) == (0, f"{path}\n"), result.stderr
    text = path.read_text(encoding="utf-8")
    for label in (*names, "log.csv"):
        assert f"<!-- {label.replace('--', '- -')}" in text or label[:12] in text
    tokens = ["--clock", "tokens", "--facts", "tokens_per_update=4000000", "--log", "y"]
    assert CliRunner().invoke([*words, *tokens, "--force"]).exit_code == 0


@pytest.mark.parametrize(
    ("words", "message"),
    [
        (["a", "b", "--start", "1"], "--start can be an argument of several names: put a name and"),
        (["linear --start 1 --end 0 --steps 9", "--compare"], "--compare is for a file"),
    ],
)
def test_the_command_refuses(
    words: list[str], message: str, log: Log, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.chdir(Path(log.source).parent)
    result = CliRunner().invoke(["plot", *words])
    assert result.exit_code == 2
    assert message in result.stderr

"""Logs as runs leave them: skipped updates, resumed runs, steps twice, rows without a value.

Example: a log whose rates lag by 2 updates from update 110 on has the cause ``updates-skipped``.
"""

import math
import random
import subprocess
import sys
from collections.abc import Sequence
from pathlib import Path

import pytest

import closedform as cf
from closedform.analysis.watching import CauseKind, watch_log
from closedform.errors import ArgumentError
from closedform.recipes.logs import read_log
from tests.support.commands import CliRunner

PEAK, WARMUP, TOTAL = 5e-5, 100, 2000


def rate(update: int, total: int = TOTAL) -> float:
    if update < WARMUP:
        return PEAK * update / WARMUP
    return PEAK * (total - update) / (total - WARMUP)


RECIPE = cf.load_recipe(
    {
        "learning_rate": PEAK,
        "lr_scheduler_type": "linear",
        "warmup_steps": WARMUP,
        "max_steps": TOTAL,
    },
    "transformers",
)


def write(path: Path, rows: Sequence[tuple[object, object]], header: str = "step,lr") -> Path:
    path.write_text("\n".join([header, *(f"{step},{value}" for step, value in rows)]))
    return path


@pytest.mark.parametrize("seed", range(6))
@pytest.mark.parametrize("first", [0, 1])
def test_skipped_updates_are_a_cause(seed: int, first: int, tmp_path: Path) -> None:
    draw = random.Random(seed)
    skipped = sorted(draw.sample(range(1, TOTAL // 2), draw.choice([1, 2, 3])))
    rows = [
        (update + first, rate(update - sum(skip < update for skip in skipped)))
        for update in range(0, TOTAL, 5)
    ]
    report = watch_log(RECIPE, read_log(write(tmp_path / "log.csv", rows)))
    assert report.departure is not None
    kinds = [cause.kind for cause in report.departure.causes]
    assert CauseKind.SKIPPED in kinds
    text = next(str(c) for c in report.departure.causes if c.kind is CauseKind.SKIPPED)
    assert text.startswith(f"{len(skipped)} update")


@pytest.mark.parametrize("at", [700, 1500])
@pytest.mark.parametrize("total", [3000, 4500])
def test_a_run_resumed_with_another_horizon_is_a_cause(at: int, total: int, tmp_path: Path) -> None:
    rows = [(u, rate(u) if u < at else rate(u, total)) for u in range(0, TOTAL, 10)]
    report = watch_log(RECIPE, read_log(write(tmp_path / "log.csv", rows)))
    assert report.departure is not None
    assert report.departure.update == at
    kind = CauseKind.OTHER_HORIZON
    text = next(str(cause) for cause in report.departure.causes if cause.kind is kind)
    assert f"from update {at:,} on the decay ends after" in text
    assert f"{total:,} updates instead of 2,000" in text


def test_rates_that_rise_and_fall_by_chance_have_no_cause(tmp_path: Path) -> None:
    draw = random.Random(1)
    rows = [(u, rate(u) * (1 + 0.1 * draw.random())) for u in range(0, TOTAL, 10)]
    report = watch_log(RECIPE, read_log(write(tmp_path / "log.csv", rows)))
    assert report.departure is not None
    assert report.departure.causes == ()


def test_the_reading_that_agrees_longest_is_reported(tmp_path: Path) -> None:
    draw = random.Random(3)
    rows = [
        (u + 1, rate(u) * (1 if u < 720 else 1 + 0.1 * draw.random())) for u in range(0, TOTAL, 25)
    ]
    report = watch_log(RECIPE, read_log(write(tmp_path / "log.csv", rows)))
    assert report.departure is not None
    assert (report.departure.update, report.reading) == (725, "an offset of 1")


def test_two_values_of_a_step_are_refused(tmp_path: Path) -> None:
    log = write(tmp_path / "log.csv", [(0, 0.1), (1, 0.09), (1, 0.5), (2, 0.08)])
    with pytest.raises(ArgumentError, match=r"step 1 has two values of lr, 0\.09 in line 3 and"):
        read_log(log)
    assert len(read_log(write(log, [(0, 0.1), (1, "9e-2"), (1, 0.09), (2, 0.08)])).steps) == 4
    rows = [(f"{1 + u // 100},{u % 100}", rate(u)) for u in range(10, 200, 10)]
    with pytest.raises(ArgumentError, match="the count begins again in each epoch"):
        read_log(write(log, rows, "epoch,iter,lr"))


@pytest.mark.parametrize("text", ["step,lr\n0,\n1,\n2,", "step;lr\n0;0,100\n1;0,090\n2;0,08"])
def test_a_log_without_values_is_an_error(text: str, tmp_path: Path) -> None:
    log, config = tmp_path / "log.csv", tmp_path / "run.yaml"
    log.write_text(text)
    config.write_text("learning_rate: 1e-3\nlr_scheduler_type: cosine\nmax_steps: 100\n")
    for words in (["watch", config, log], ["diff", config, log], ["recover", log]):
        result = CliRunner().invoke([*map(str, words)])
        assert result.exit_code == 2
        assert "no row of the log has a whole number in step and a number in lr" in result.stderr


def test_rows_that_are_not_numbers_are_counted(tmp_path: Path) -> None:
    rows: list[tuple[object, object]] = [(u, rate(u)) for u in range(0, 400, 10)]
    rows[7] = rows[7][0], "nan"
    rows[9] = rows[9][0], "inf"
    log = write(tmp_path / "log.csv", rows)
    assert read_log(log).left_out == (9, 11)
    result = CliRunner().invoke(["recover", str(log)])
    note = "2 rows have rates that are infinite or not a number, left out; the first in line 9"
    assert note in result.stderr


@pytest.mark.parametrize("total", [1000, 100_000])
def test_diff_and_watch_have_one_tolerance(total: int, tmp_path: Path) -> None:
    schedule = cf.schedules.cosine(1, 0, total)
    rows = [
        (u, f"{0.5 * (1 + math.cos(math.pi * u / total)):.7g}") for u in range(total - 300, total)
    ]
    log = read_log(write(tmp_path / "log.csv", rows), 0)
    assert watch_log(schedule, log).departure is None
    assert all(curve.first_step is None for curve in cf.diff(schedule, log).curves)


@pytest.mark.parametrize("seed", range(2))
@pytest.mark.parametrize("digits", [6, 17])
def test_skipped_updates_are_a_reason_of_diff_and_a_reading_of_recover(
    seed: int, digits: int, tmp_path: Path
) -> None:
    draw = random.Random(seed)
    skipped = [*draw.sample(range(1, 30), draw.choice([1, 2, 3])), draw.randrange(500, 1500)]
    rows = [
        (u + 1, f"{rate(u - sum(skip < u for skip in skipped)):.{digits}g}")
        for u in range(9, TOTAL, 10)
    ]
    log = read_log(write(tmp_path / "log.csv", rows), 1)
    curve = next(curve for curve in cf.diff(RECIPE, log).curves if curve.key == "lr")
    recovery = cf.recover(log)
    assert curve.reason.startswith(f"{len(skipped)} updates were skipped")
    assert curve.reason == recovery.skipped
    assert recovery.config == {
        "learning_rate": PEAK,
        "lr_scheduler_type": "linear",
        "warmup_steps": WARMUP,
        "max_steps": TOTAL,
    }


@pytest.mark.skipif(sys.platform != "linux", reason="the peak of memory is read from /proc")
def test_a_million_rows_take_seconds_and_little_memory(tmp_path: Path) -> None:
    count = 1_000_000
    path = tmp_path / "log.csv"
    values = (0.5 * (1 + math.cos(math.pi * u / count)) for u in range(count))
    path.write_text("step,lr\n" + "".join(f"{u},{v!r}\n" for u, v in enumerate(values)))
    program = (
        "import re, resource, closedform as cf\n"
        "from closedform.analysis.watching import watch_log\n"
        "from closedform.recipes.logs import read_log\n"
        f"log = read_log({str(path)!r})\n"
        f"schedule = cf.schedules.cosine(1, 0, {count})\n"
        "assert cf.diff(schedule, log).first_step is None\n"
        "assert watch_log(schedule, log).values == len(log.steps)\n"
        "usage = resource.getrusage(resource.RUSAGE_SELF)\n"
        # The usage begins with the memory of the process that has started this one.
        "peak = re.search(r'VmHWM:\\s+(\\d+)', open('/proc/self/status').read())\n"
        "print(usage.ru_utime + usage.ru_stime, int(peak[1]) / 1024)\n"
    )
    result = subprocess.run([sys.executable, "-c", program], capture_output=True, check=True)
    seconds, megabytes = map(float, result.stdout.split())
    # Here 5 s and 295 MB; 40 s and 980 MB with an object for each value.
    assert seconds < 20
    assert megabytes < 400

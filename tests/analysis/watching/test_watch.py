"""Watch: planted causes, at the first wrong update and over a whole log; good runs; the command."""

import json
import threading
import time
import warnings
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
import torch

import closedform as cf
from closedform.analysis.watching import CauseKind, watch_log
from closedform.errors import ArgumentError, DepartureError, DepartureWarning
from closedform.language import Schedule
from closedform.recipes.logs import read_log
from closedform.torch import watch
from closedform.torch.watching import Watcher
from tests.analysis.watching.loops import CONFIG, LOOPS, Loop, Values, records
from tests.support.commands import CliRunner

RECIPE = cf.load_recipe(dict(CONFIG), framework="transformers")
NAMES = [*LOOPS]


def optimizer_of(values: list[Values]) -> torch.optim.Optimizer:
    weights = [torch.nn.Parameter(torch.zeros(1)) for _ in values]
    for weight in weights:
        weight.grad = torch.zeros(1)
    optimizer = torch.optim.AdamW([{"params": [weight]} for weight in weights], lr=1e-3)
    for group, numbers in zip(optimizer.param_groups, values, strict=True):
        group.update(numbers)
    return optimizer


def replayed(loop: Loop, values: list[list[Values]], **options: Any) -> str:
    """The message with which a run stops."""
    optimizer = optimizer_of(values[0])
    watcher = watch(optimizer, RECIPE, start=loop.start, facts=dict(loop.facts), **options)

    def train() -> None:
        for update in values:
            for group, numbers in zip(optimizer.param_groups, update, strict=True):
                group.update(numbers)
            optimizer.step()
        watcher.remove()

    with pytest.raises(DepartureError) as raised:
        train()
    departure = watcher.departure
    assert departure is not None
    assert (departure.update, departure.group, departure.key) == (loop.first, loop.group, "lr")
    assert departure.cause is not None, departure
    assert departure.cause.kind in loop.kinds, departure
    return str(raised.value)


@pytest.mark.parametrize("name", NAMES)
@pytest.mark.parametrize("evidence", [0, 8])
def test_a_planted_cause_is_named_at_the_first_wrong_update(name: str, evidence: int) -> None:
    loop, values = next((loop, values) for key, loop, values in records() if key == name)
    message = replayed(loop, values, evidence=evidence)
    assert message.startswith(f"update {loop.first:,}: lr")
    assert "likely cause: " in message


@pytest.mark.parametrize("name", [name for name in NAMES if LOOPS[name].start == 0])
def test_a_planted_cause_is_named_from_the_log(name: str, tmp_path: Path) -> None:
    loop, values = next((loop, values) for key, loop, values in records() if key == name)
    path = tmp_path / "metrics.jsonl"
    lines = [
        json.dumps({"step": step, "lr": groups[0]["lr"], "lr/1": groups[-1]["lr"]})
        for step, groups in enumerate(values)
    ]
    path.write_text("\n".join(lines) + "\n", encoding="utf-8")
    recipe = cf.load_recipe(dict(CONFIG), framework="transformers", facts=dict(loop.facts))
    departure = watch_log(recipe, read_log(path, 0)).departure
    assert departure is not None
    assert departure.update == loop.first
    assert departure.line == loop.first + 1
    assert departure.cause is not None
    assert departure.cause.kind in loop.kinds, departure


# --- good runs -----------------------------------------------------------------------------------


def cosine(warmup: int = 10, total: int = 60) -> Callable[[int], float]:
    lr = cf.schedules.linear(0, 1, warmup).then(cf.schedules.cosine(1, 0, total - warmup))
    return lambda step: float(lr(step))


GOOD: dict[str, Callable[[Any], Any]] = {
    "lambda": lambda o: torch.optim.lr_scheduler.LambdaLR(o, cosine()),
    "sequential": lambda o: torch.optim.lr_scheduler.SequentialLR(
        o,
        [
            torch.optim.lr_scheduler.LambdaLR(o, lambda step: step / 10),
            torch.optim.lr_scheduler.CosineAnnealingLR(o, 50),
        ],
        [10],
    ),
}


@pytest.mark.parametrize("name", GOOD)
@pytest.mark.parametrize("as_tensor", [False, True])
@pytest.mark.filterwarnings("ignore")
def test_a_good_run_is_not_stopped(name: str, as_tensor: bool) -> None:
    """Also torch's recursive cosine, and rates that are tensors of float32."""
    optimizer = optimizer_of([{"lr": 1e-3, "weight_decay": 0.01}, {"lr": 1e-3, "weight_decay": 0}])
    if as_tensor:
        for group in optimizer.param_groups:
            group["lr"] = torch.tensor(1e-3)
    scheduler = GOOD[name](optimizer)
    watcher = watch(optimizer, RECIPE)
    for _ in range(60):
        optimizer.step()
        scheduler.step()
    watcher.remove()
    assert watcher.departure is None
    assert watcher.update == 60


def test_the_update_of_a_loaded_optimizer_is_that_of_its_state() -> None:
    optimizer = optimizer_of([{"lr": 1e-3, "weight_decay": 0.01}, {"lr": 1e-3, "weight_decay": 0}])
    scheduler = GOOD["lambda"](optimizer)
    for _ in range(25):
        optimizer.step()
        scheduler.step()
    watcher = watch(optimizer, RECIPE)
    assert watcher.update == 25
    optimizer.step()
    watcher.remove()


@pytest.mark.parametrize("key", ["weight_decay", "momentum"])
def test_every_key_of_the_recipe_is_compared(key: str) -> None:
    config = {"lr": 0.1, "momentum": 0.9, "weight_decay": 1e-4}
    weight = torch.nn.Parameter(torch.zeros(1))
    weight.grad = torch.zeros(1)
    optimizer = torch.optim.SGD([weight], lr=0.1, momentum=0.9, weight_decay=1e-4)
    given = {name: cf.schedules.constant(value) for name, value in config.items()}
    recipe = cf.load_recipe(dict(CONFIG), framework="transformers")
    group = recipe.param_groups[0]
    from dataclasses import replace

    recipe = replace(recipe, param_groups=(replace(group, schedules=given),))
    watch(optimizer, recipe)
    optimizer.step()
    optimizer.param_groups[0][key] = 0.5
    with pytest.raises(DepartureError, match=f"update 1: {key} is 0.5"):
        optimizer.step()
    optimizer.state.clear()
    watch(optimizer, recipe, start=0)
    with pytest.raises(DepartureError, match=r"likely cause: another value: 0\.5 instead of"):
        optimizer.step()


def test_a_warning_does_not_stop_the_run() -> None:
    schedule = cf.schedules.linear(1e-3, 0, 10)
    optimizer = optimizer_of([{"lr": 1e-3, "weight_decay": 0.0}])
    watcher = watch(optimizer, schedule, action="warn")
    optimizer.step()
    with pytest.warns(DepartureWarning, match="update 1: lr is 0.001"):
        optimizer.step()
    watcher.remove()
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        optimizer.step()


@pytest.mark.parametrize(
    ("options", "message"),
    [
        ({"action": "ignore"}, "action must be one of stop, warn, got 'ignore'"),
        ({"evidence": -1}, "evidence must be an integer of at least 0, got -1"),
        ({"groups": [0]}, "for each of the 2 of the run, got 1"),
    ],
)
def test_bad_options_are_refused(options: dict[str, Any], message: str) -> None:
    optimizer = optimizer_of([{"lr": 1e-3, "weight_decay": 0.0}] * 2)
    with pytest.raises(ArgumentError, match=message):
        watch(optimizer, RECIPE, **options)
    with pytest.raises(ArgumentError, match="the recipe must be a Recipe or a Schedule, got int 3"):
        watch(optimizer, 3)  # type: ignore[arg-type]


def test_a_check_of_four_groups_takes_a_few_microseconds() -> None:
    """CPU time of one process: 20 us is the bar, 5 us are usual."""
    groups = [{"lr": 1e-3, "weight_decay": 0.01, "momentum": 0.9} for _ in range(4)]
    schedules = {
        "lr": cf.schedules.cosine(1e-3, 0, 1000),
        "weight_decay": cf.schedules.constant(0.01),
        "momentum": cf.schedules.constant(0.9),
    }
    from dataclasses import replace

    recipe = cf.load_recipe(dict(CONFIG), framework="transformers")
    one = replace(recipe.param_groups[0], schedules=schedules)
    from closedform.analysis.watching import RunNumbers

    watcher = Watcher(replace(recipe, param_groups=(one,)), numbers=RunNumbers())
    lr: Schedule = schedules["lr"]
    rates = [float(lr(step)) for step in range(1000)]
    watcher.check(groups, 0)
    least = float("inf")
    for _ in range(5):
        begin = time.process_time()
        for step, rate in enumerate(rates):
            for group in groups:
                group["lr"] = rate
            watcher.check(groups, step)
        least = min(least, (time.process_time() - begin) / len(rates))
    assert least < 20e-6, least


# --- the command ---------------------------------------------------------------------------------


@pytest.fixture
def config(tmp_path: Path) -> Path:
    path = tmp_path / "run.json"
    path.write_text(json.dumps(dict(CONFIG)), encoding="utf-8")
    return path


def log_lines(steps: range, scale: float = 1.0) -> str:
    lr = RECIPE.schedule()
    return "".join(f"{step},{float(lr(step)) * scale!r}\n" for step in steps)


def invoke(*words: object, code: int = 0) -> str:
    result = CliRunner().invoke(["watch", *map(str, words)])
    assert result.exit_code == code, result.output
    return " ".join(result.stdout.split())


def test_the_command(config: Path, tmp_path: Path) -> None:
    log = tmp_path / "log.csv"
    log.write_text("step,lr\n" + log_lines(range(60)), encoding="utf-8")
    words = (config, log, "--framework", "transformers")
    assert invoke(*words) == "60 values agree, up to update 59"
    log.write_text("step,lr\n" + log_lines(range(60), 0.5), encoding="utf-8")
    assert "likely cause: another base value: each value is 0.5 times" in invoke(*words, code=1)
    plain = json.loads(invoke(*words, "--json", code=1))
    assert plain["departure"]["update"] == 1
    assert plain["departure"]["line"] == 3
    assert plain["departure"]["causes"][0]["kind"] == CauseKind.RATE


def test_a_log_is_followed_until_the_end_of_the_run(config: Path, tmp_path: Path) -> None:
    log = tmp_path / "log.csv"
    log.write_text("step,lr\n" + log_lines(range(30)), encoding="utf-8")

    def append() -> None:
        with log.open("a", encoding="utf-8") as file:
            file.write(log_lines(range(30, 60)))

    timer = threading.Timer(0.3, append)
    timer.start()
    words = (config, log, "--framework", "transformers", "--follow", "--interval", 1)
    assert invoke(*words) == "60 values agree, up to update 59"
    timer.join()
